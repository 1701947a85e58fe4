"""Plan of fractional_avg_pool_grad: which kernel, its grid, and the table of cells."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from .._geometry import Cells, Pool, segments
from ._plan import GRADIENT, INT32_LIMIT, RESULT, TABLE, Launch, ceil_div, division, table

THREADS = 256
_ITEMS = 4  # vectors of a row that a thread computes
_MOST_BLOCKS = 2**30  # more rows than that take turns
_VECTOR_BYTES = 16

# How elements meet cells. Where all lie in one cell at most, it is looked up and divided by in the
# dtype itself, which is exact up to _LARGEST_CELL elements; else the lists of cells are added up in
# float64. Cells of hand-made sequences can be too many to list; then every element tries them all.
ONE_CELL, LISTED_CELLS, ALL_CELLS = "one cell", "listed cells", "all cells"
_LARGEST_CELL = 2**12


class PoolVariant(NamedTuple):
    """A pooling kernel."""

    dtype: str
    cells: str
    vector: int  # channels in an access
    wide: bool  # positions need 64 bits

    @property
    def launch_bounds(self) -> tuple[int, int]:
        """Threads in a block, and how many blocks share a multiprocessor at least."""
        simple = self.cells == ONE_CELL and not self.wide and self.dtype != "float64"
        return THREADS, 6 if simple else 4


class Header(NamedTuple):
    """The numbers in front of the cells; positions count vectors."""

    rows: int  # of all images
    image_rows: int
    row_vectors: int  # in a row
    pixel_vectors: int
    multiplier: int  # divides by pixel_vectors
    shift: int
    cell_rows: int
    cell_cols: int
    row_lanes: int  # threads side by side in a row, as a power of 2
    row_chunks: int  # blocks side by side in a row
    row_units: int  # blocks, divided by row_chunks
    row_table: int  # where the tables start
    row_cells: int
    col_table: int
    col_cells: int


def _one_cell_each(cells: Cells, size: int) -> NDArray[np.int64] | None:
    """Give (cell, length) for each element of an axis, (-1, 1) outside; None if cells overlap."""
    first, last = cells
    used = np.flatnonzero((first <= last) & (first < size))
    order = used[np.argsort(first[used], kind="stable")]
    if (first[order[1:]] <= last[order[:-1]]).any():
        return None
    found = np.stack([np.full(size, -1), np.ones(size, np.int64)], axis=1)
    lengths = last[order] - first[order] + 1
    found[:, 0][_runs(first[order], lengths)] = np.repeat(order, lengths)
    found[:, 1][_runs(first[order], lengths)] = np.repeat(lengths, lengths)
    return found


def _runs(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """List the numbers of runs one after the other."""
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    found: NDArray[np.int64] = np.repeat(starts, lengths) + within
    return found


class _Tables(NamedTuple):
    """Cells of both axes in the form that a kernel reads."""

    cells: str
    rows: NDArray[np.int64]  # for each element
    row_cells: NDArray[np.int64]  # what these refer to
    cols: NDArray[np.int64]
    col_cells: NDArray[np.int64]


def _listed(cells: Cells, size: int) -> tuple[bool, NDArray[np.int64], NDArray[np.int64]]:
    """Give (begin, end) for each element, in a list of (cell, length, first, last)."""
    parts = segments(cells, size)
    used = parts.cells
    first, last = cells.first[used], cells.last[used]
    listing = np.stack([used, last - first + 1, first, last], axis=1)
    begin, end = parts.begin[:-1], parts.begin[1:]
    is_listed = bool(parts.begin[0] >= 0)
    if not is_listed:
        begin, end = np.zeros_like(begin), np.full_like(end, used.size)
    lengths = np.diff(parts.starts)
    ranges = np.stack([np.repeat(begin, lengths), np.repeat(end, lengths)], axis=1)
    return is_listed, ranges, listing


def _make_tables(geometry: Pool) -> _Tables:
    _, height, width, _ = geometry.input_sizes
    rows = _one_cell_each(geometry.rows, height)
    cols = _one_cell_each(geometry.cols, width)
    nothing = np.zeros((0, 4), np.int64)
    if (
        rows is not None
        and cols is not None
        and int(rows[:, 1].max()) * int(cols[:, 1].max()) <= _LARGEST_CELL
    ):
        return _Tables(ONE_CELL, rows, nothing, cols, nothing)
    rows_listed, rows, row_cells = _listed(geometry.rows, height)
    cols_listed, cols, col_cells = _listed(geometry.cols, width)
    cells = LISTED_CELLS if rows_listed and cols_listed else ALL_CELLS
    return _Tables(cells, rows, row_cells, cols, col_cells)


# Kept as long as the geometry is.
_tables: WeakKeyDictionary[Pool, dict[Any, Any]] = WeakKeyDictionary()


def plan(
    geometry: Pool, dtype: str, size: int, aligned: bool, *, wide: bool | None = None
) -> Launch:
    """Plan a call whose elements have `size` bytes; `wide` is for tests.

    `aligned` says that both arrays start at a multiple of 16 bytes.
    """
    kept = _tables.setdefault(geometry, {})
    key = (dtype, aligned, wide)
    if key not in kept:
        if "tables" not in kept:
            kept["tables"] = _make_tables(geometry)
        kept[key] = _plan(geometry, kept["tables"], dtype, size, aligned, wide)
    launch: Launch = kept[key]
    return launch


def _plan(
    geometry: Pool, tables: _Tables, dtype: str, size: int, aligned: bool, wide: bool | None
) -> Launch:
    batch, height, width, depth = geometry.input_sizes
    cell_rows, cell_cols = geometry.rows.first.size, geometry.cols.first.size
    parts = (tables.rows, tables.row_cells, tables.cols, tables.col_cells)
    most = max(
        math.prod(geometry.input_sizes),
        batch * cell_rows * cell_cols * depth,
        2 * (batch * height + THREADS),  # a thread looks for its next row behind the last one
        len(Header._fields) + sum(part.size for part in parts),
    )
    if wide is None:
        wide = most >= INT32_LIMIT
    vector = min(_VECTOR_BYTES // size, 8 if tables.cells == ONE_CELL else 4)
    if not aligned or depth % vector:
        vector = 1
    pixel_vectors = depth // vector
    row_vectors = width * pixel_vectors
    lanes = THREADS
    while lanes > 32 and lanes >= 2 * row_vectors:
        lanes //= 2
    chunks = ceil_div(row_vectors, lanes * _ITEMS)
    rows_at_once = THREADS // lanes
    units = min(ceil_div(batch * height, rows_at_once), max(1, _MOST_BLOCKS // chunks))
    start = len(Header._fields)
    starts = [start]
    for part in parts[:-1]:
        starts.append(starts[-1] + part.size)
    divide = division(pixel_vectors) if pixel_vectors < INT32_LIMIT else (0, 0)
    header = Header(
        batch * height,
        height,
        row_vectors,
        pixel_vectors,
        *divide,
        cell_rows,
        cell_cols,
        lanes.bit_length() - 1,
        chunks,
        units,
        *starts,
    )
    return Launch(
        PoolVariant(dtype, tables.cells, vector, wide),
        chunks * units,
        THREADS,
        0,
        (GRADIENT, RESULT, TABLE),
        table([header, *parts], wide),
    )


def variants(dtype: str, size: int) -> list[PoolVariant]:
    """List the kernels that calls of a dtype take, but those for 2**31 elements or more."""
    full = _VECTOR_BYTES // size
    return [
        PoolVariant(dtype, cells, vector, False)
        for cells in (ONE_CELL, LISTED_CELLS)
        for vector in (1, full if cells == ONE_CELL else min(full, 4))
    ]
