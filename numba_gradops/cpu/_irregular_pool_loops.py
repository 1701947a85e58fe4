"""The loops of fractional_avg_pool_grad for sequences made by hand, with cells in any order.

TensorFlow's arithmetic to the bit: each gradient is divided by the size of its cell in float64,
an element adds its terms by ascending cell row and column to +0.0, and the sum is cast once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from ._compile import loop
from ._fractional_pool_loops import first_above
from ._halves import get, put, round_to_odd
from ._scalars import copy_bytes, next_number

# Rows of a task, at most: large cells are shared between threads.
STRIP = 16


class Sizes(NamedTuple):
    """Image and gradient sizes."""

    rows: int
    cols: int
    cell_rows: int
    cell_cols: int
    depth: int


class Axis(NamedTuple):
    """Cells of one axis and its segments (see geometry)."""

    first: Any
    last: Any
    starts: Any
    begin: Any
    cells: Any


def store(result: Any, at: Any, value: Any) -> None:
    """Cast a float64 sum to the result's dtype as TensorFlow does on x86, and keep it."""
    raise NotImplementedError  # `_store` below is what gets compiled


@overload(store)  # type: ignore[untyped-decorator]
def _store(result: Any, at: Any, value: Any) -> Any:
    if result.dtype in (types.uint16, types.int16):

        def half(result: Any, at: Any, value: Any) -> Any:
            put(result, at, round_to_odd(value))

        return half
    if not isinstance(result.dtype, types.Integer):

        def rounded(result: Any, at: Any, value: Any) -> Any:
            result[at] = value

        return rounded

    # Toward zero; what does not fit becomes the lowest integer (the conversion alone would be
    # undefined, and differ between processors).
    lowest = -(2 ** (result.dtype.bitwidth - 1))
    low, high = float(lowest) - 1.0, -float(lowest)

    def cut(result: Any, at: Any, value: Any) -> Any:
        result[at] = np.int64(value) if value > low and value < high else lowest

    return cut


@loop
def gather_irregular(
    counter: Any,
    tasks: int,
    sizes: Sizes,
    rows: Axis,
    cols: Axis,
    first_strips: Any,
    gradient: Any,
    result: Any,
) -> None:
    """Compute strips of rows until none is left; a strip's rows are alike.

    Strips are counted over all images; `first_strips` counts those of an image before each row
    segment.
    """
    # Not in a helper: handing arrays to a function counts references, which threads fight over.
    depth = sizes.depth
    row_size = sizes.cols * depth
    row_bytes = row_size * result.itemsize
    sums = np.zeros(depth, np.float64)
    strips = first_strips[-1]
    listed = rows.begin[0] >= 0, cols.begin[0] >= 0
    while True:
        task = next_number(counter.ctypes.data)
        if task >= tasks:
            break
        image, strip = task // strips, task % strips
        row_segment = first_above(first_strips, strip) - 1
        top = rows.starts[row_segment] + (strip - first_strips[row_segment]) * STRIP
        bottom = min(top + STRIP, rows.starts[row_segment + 1])
        row_at = (image * sizes.rows + top) * row_size
        row_begin = rows.begin[row_segment] if listed[0] else 0
        row_end = rows.begin[row_segment + 1] if listed[0] else rows.cells.size
        for col_segment in range(cols.starts.size - 1):
            left, right = cols.starts[col_segment], cols.starts[col_segment + 1]
            col_begin = cols.begin[col_segment] if listed[1] else 0
            col_end = cols.begin[col_segment + 1] if listed[1] else cols.cells.size
            if listed[0] and listed[1] and row_end - row_begin == 1 and col_end - col_begin == 1:
                # One cell only, as everywhere without overlap: no need to add up.
                r, c = rows.cells[row_begin], cols.cells[col_begin]
                height = rows.last[r] - rows.first[r] + 1
                size = np.float64(height * (cols.last[c] - cols.first[c] + 1))
                at = ((image * sizes.cell_rows + r) * sizes.cell_cols + c) * depth
                for x in range(left, right):
                    into = row_at + x * depth
                    for d in range(depth):
                        store(result, into + d, 0.0 + np.float64(get(gradient, at + d)) / size)
                continue
            for d in range(depth):
                sums[d] = 0.0
            for i in range(row_begin, row_end):
                r = rows.cells[i]
                if top < rows.first[r] or top > rows.last[r]:
                    continue
                height = rows.last[r] - rows.first[r] + 1
                for j in range(col_begin, col_end):
                    c = cols.cells[j]
                    if left < cols.first[c] or left > cols.last[c]:
                        continue
                    size = np.float64(height * (cols.last[c] - cols.first[c] + 1))
                    at = ((image * sizes.cell_rows + r) * sizes.cell_cols + c) * depth
                    for d in range(depth):
                        sums[d] += np.float64(get(gradient, at + d)) / size
            # The pixels of a segment are alike.
            for x in range(left, right):
                into = row_at + x * depth
                for d in range(depth):
                    store(result, into + d, sums[d])
        source = result.ctypes.data + row_at * result.itemsize
        for y in range(1, bottom - top):
            copy_bytes(source + y * row_bytes, source, row_bytes)
