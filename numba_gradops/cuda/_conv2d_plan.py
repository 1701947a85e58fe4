"""Plan of conv2d_backprop_input: which kernel, its grid, and the tables of classes and taps.

Result pixels of one stride class (the same remainders of row and column by the strides) meet the
same taps. All pixels of a class, the channels of a group and the products of a sum make a matrix
product without a wasted multiplication: rows are pixels, columns channels. One launch computes the
tiles of all classes and groups, long sums first.

Sums are formed in the same order by every kernel (taps as listed, then channels): the choice
of the kernel does not change a bit of a float or an integer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from .._arguments import DataFormat
from .._geometry import Conv2D, StrideClass, stride_classes
from ._plan import FILTER, GRADIENT, INT32_LIMIT, RESULT, TABLE, Launch, ceil_div, table


class Tile(NamedTuple):
    """A block's part of the matrix product, and each thread's part of that."""

    rows: int
    cols: int
    depth: int
    thread_rows: int
    thread_cols: int

    @property
    def threads(self) -> int:
        """Number of threads in a block."""
        return (self.rows // self.thread_rows) * (self.cols // self.thread_cols)


# From the fastest to the one that cuts a small problem into most blocks.
_TILES = {
    4: (
        Tile(128, 128, 8, 8, 8),
        Tile(128, 64, 8, 8, 8),
        Tile(64, 64, 8, 8, 4),
        Tile(32, 32, 8, 4, 4),
    ),
    8: (Tile(64, 64, 8, 4, 4), Tile(32, 32, 8, 4, 4)),
}


def tiles_for(size: int) -> tuple[Tile, ...]:
    """Give the tiles for elements of `size` bytes; halves lie in shared memory as float32."""
    return _TILES[8 if size == 8 else 4]


# Blocks that keep a large GPU busy. A constant, so that plans do not depend on the device.
_ENOUGH_BLOCKS = 132

# Fewer channels of a group than this would leave most of a tile empty.
FEW_CHANNELS = 16
# Channels that a thread of a direct kernel computes, at most.
_THREAD_CHANNELS = 4
THREADS = 256

# A huge stride makes a class of each pixel, a huge filter a long list of taps: no tables for those.
_MOST_CLASSES = 4096
_MOST_TAPS = 2**15
_MOST_BLOCKS = 2**30
# Kernels with tables count rows and channels in 32 bits, and add a few to the last channel.
MOST_ROWS = 2**28
_MOST_CHANNELS = 2**30

CLASS_FIELDS = ("lead_row", "lead_col", "rows", "cols", "taps", "first_tap", "first_tile", "pixels")
TAP_FIELDS = ("tap", "row_shift", "col_shift", "unused")


class TiledVariant(NamedTuple):
    """A kernel that multiplies tiles of matrices."""

    dtype: str
    channels_last: bool
    vector: bool  # accesses of several channels
    wide: bool  # positions need 64 bits
    tile: Tile

    @property
    def launch_bounds(self) -> tuple[int, int]:
        """Threads in a block, and how many blocks share a multiprocessor at least."""
        # As few as each kernel does with: the assembler would keep what is too much in memory.
        registers = 192 if self.wide else 128
        return self.tile.threads, max(1, 2**16 // (registers * self.tile.threads))


class ChannelsVariant(NamedTuple):
    """A kernel for one input channel a group; a thread computes `vector` groups of a pixel."""

    dtype: str
    channels_last: bool
    vector: int
    wide: bool

    @property
    def launch_bounds(self) -> tuple[int, int]:
        """Threads in a block, and how many blocks share a multiprocessor at least."""
        return THREADS, 3


class PixelsVariant(NamedTuple):
    """A kernel for groups of few channels; a thread computes `channels` of them for a pixel."""

    dtype: str
    channels_last: bool
    channels: int
    vector: int  # terms of a sum in an access
    wide: bool

    @property
    def launch_bounds(self) -> tuple[int, int]:
        """Threads in a block, and how many blocks share a multiprocessor at least."""
        return THREADS, 2


class AnyVariant(NamedTuple):
    """The kernel without tables, for every geometry there is."""

    dtype: str
    channels_last: bool

    @property
    def launch_bounds(self) -> tuple[int, int]:
        """Threads in a block, and how many blocks share a multiprocessor at least."""
        return THREADS, 2


class Header(NamedTuple):
    """The numbers in front of the classes."""

    classes: int
    rows: int
    cols: int
    out_rows: int
    out_cols: int
    group_in: int
    group_out: int
    groups: int
    row_stride: int
    col_stride: int
    col_tiles: int  # tiles, or threads of a pixel, beside each other in a group
    first_tap: int  # where the taps start in the table


def _class_pairs(geometry: Conv2D) -> list[tuple[StrideClass, StrideClass]]:
    """List the classes of pixels, most products of a pixel first."""
    rows, cols = stride_classes(geometry.rows), stride_classes(geometry.cols)
    pairs = [(row, col) for row in rows for col in cols]
    return sorted(pairs, key=lambda pair: -len(pair[0].taps) * len(pair[1].taps))


@lru_cache(maxsize=256)
def _tables(geometry: Conv2D, items: int, per_block: int) -> tuple[int, list[int], list[int]]:
    """Give the number of tiles, the classes and the taps.

    Of each pixel, `items` are counted; a tile has `per_block` of them.
    """
    classes: list[int] = []
    taps: list[int] = []
    tiles = 0
    window = geometry.cols.window
    for row, col in _class_pairs(geometry):
        pixels = geometry.batch * row.size * col.size
        first_tap, count = len(taps) // len(TAP_FIELDS), len(row.taps) * len(col.taps)
        classes += [row.lead, col.lead, row.size, col.size, count, first_tap, tiles, pixels]
        for k, row_shift in zip(row.taps, row.shifts, strict=True):
            for m, col_shift in zip(col.taps, col.shifts, strict=True):
                taps += [k * window + m, row_shift, col_shift, 0]
        tiles += ceil_div(pixels * items, per_block)
    return tiles, classes, taps


def _has_tables(geometry: Conv2D) -> bool:
    """Tell whether tables stay small, and everything counted in them below 2**31.

    Padding can make a gradient of few channels as large as it likes, whatever the result.
    """
    rows, cols = geometry.rows, geometry.cols
    most_rows = max(rows.input, rows.output)
    classes = min(rows.stride, rows.input) * min(cols.stride, cols.input)
    pixels = geometry.batch * rows.input * cols.input
    # The direct kernels count threads of pixels, with some channels each.
    few = geometry.channels // max(geometry.groups, 1) < FEW_CHANNELS
    items = pixels * geometry.channels if few else pixels
    return (
        classes <= _MOST_CLASSES
        and rows.window * cols.window <= _MOST_TAPS
        and items < INT32_LIMIT // 2
        and max(rows.stride, cols.stride) < INT32_LIMIT
        and most_rows < MOST_ROWS
        and most_rows * cols.output < INT32_LIMIT // 2
        and max(geometry.channels, geometry.out_channels) < _MOST_CHANNELS
    )


def _elements(geometry: Conv2D) -> int:
    """Count the elements of the largest of the three arrays."""
    rows, cols = geometry.rows, geometry.cols
    group_in = geometry.channels // max(geometry.groups, 1)
    return max(
        geometry.batch * rows.input * cols.input * geometry.channels,
        geometry.batch * rows.output * cols.output * geometry.out_channels,
        rows.window * cols.window * group_in * geometry.out_channels,
    )


def _header(geometry: Conv2D, col_tiles: int, classes: list[int]) -> Header:
    rows, cols, groups = geometry.rows, geometry.cols, geometry.groups
    return Header(
        len(classes) // len(CLASS_FIELDS),
        rows.input,
        cols.input,
        rows.output,
        cols.output,
        geometry.channels // groups,
        geometry.out_channels // groups,
        groups,
        rows.stride,
        cols.stride,
        col_tiles,
        len(Header._fields) + len(classes),
    )


def _launch(
    geometry: Conv2D,
    variant: Any,
    col_tiles: int,
    tables: tuple[int, list[int], list[int]],
    blocks: int,
    threads: int,
) -> Launch:
    _, classes, taps = tables
    parts = [_header(geometry, col_tiles, classes), classes, taps]
    arguments = (GRADIENT, FILTER, RESULT, TABLE)
    return Launch(variant, blocks, threads, 0, arguments, table(parts, wide=False))


def _best_tile(geometry: Conv2D, tiles: tuple[Tile, ...]) -> Tile:
    """Choose the smallest tile whose columns hold all channels; a smaller one for more blocks."""
    group_in = geometry.channels // geometry.groups
    fitting = [tile for tile in tiles if tile.cols // 2 < group_in] or [tiles[-1]]
    for tile in fitting:
        col_tiles = geometry.groups * ceil_div(group_in, tile.cols)
        if _tables(geometry, 1, tile.rows)[0] * col_tiles >= _ENOUGH_BLOCKS:
            return tile
    return fitting[-1]


def _tiled(
    geometry: Conv2D,
    dtype: str,
    size: int,
    channels_last: bool,
    aligned: bool,
    wide: bool,
    tile: Tile | None,
) -> Launch:
    groups = geometry.groups
    group_in, group_out = geometry.channels // groups, geometry.out_channels // groups
    tile = tile or _best_tile(geometry, tiles_for(size))
    vector = 2 if size == 8 else 4
    whole = group_out % vector == 0 and (group_in % vector == 0 or not channels_last)
    col_tiles = ceil_div(group_in, tile.cols)
    tables = _tables(geometry, 1, tile.rows)
    variant = TiledVariant(dtype, channels_last, aligned and whole, wide, tile)
    blocks = tables[0] * groups * col_tiles
    return _launch(geometry, variant, col_tiles, tables, blocks, tile.threads)


def _direct(
    geometry: Conv2D, dtype: str, size: int, channels_last: bool, aligned: bool, wide: bool
) -> Launch:
    groups = geometry.groups
    group_in, group_out = geometry.channels // groups, geometry.out_channels // groups
    full = min(16 // size, 4)
    vector, channels = 1, 1
    if group_in == 1 and groups > 1:
        if channels_last and aligned and group_out == 1 and groups % full == 0:
            vector = full
        items = groups // vector
        variant: Any = ChannelsVariant(dtype, channels_last, vector, wide)
        col_tiles = 1
    else:
        channels = min(group_in, _THREAD_CHANNELS)
        if channels_last and aligned and group_out % full == 0:
            vector = full
        col_tiles = ceil_div(group_in, channels)
        items = groups * col_tiles
        variant = PixelsVariant(dtype, channels_last, channels, vector, wide)
    tables = _tables(geometry, items, THREADS)
    return _launch(geometry, variant, col_tiles, tables, tables[0], THREADS)


def _any(geometry: Conv2D, dtype: str, channels_last: bool) -> Launch:
    rows, cols = geometry.rows, geometry.cols
    groups = max(geometry.groups, 1)
    sizes = (geometry.batch, geometry.channels // groups, geometry.out_channels // groups, groups)
    elements = geometry.batch * rows.input * cols.input * geometry.channels
    blocks = min(ceil_div(elements, THREADS), _MOST_BLOCKS)
    arguments = (GRADIENT, FILTER, RESULT, TABLE)
    parts = [sizes, [elements, blocks * THREADS], rows, cols]
    return Launch(
        AnyVariant(dtype, channels_last), blocks, THREADS, 0, arguments, table(parts, wide=True)
    )


@lru_cache(maxsize=256)
def plan(
    geometry: Conv2D,
    dtype: str,
    size: int,
    data_format: DataFormat,
    aligned: bool,
    *,
    kind: str | None = None,
    tile: Tile | None = None,
    wide: bool | None = None,
) -> Launch:
    """Plan a call whose elements have `size` bytes, and whose result is not empty.

    `aligned` says that all arrays start at a multiple of 16 bytes. The keyword arguments are for
    tests: `kind` is 'tiled', 'direct' or 'any', where the geometry allows it.
    """
    channels_last = data_format == "NHWC"
    group_in = geometry.channels // max(geometry.groups, 1)
    nothing = geometry.out_channels == 0 or not _has_tables(geometry)
    if kind is None:
        kind = "any" if nothing else "direct" if group_in < FEW_CHANNELS else "tiled"
    if wide is None:
        wide = _elements(geometry) >= INT32_LIMIT
    if kind == "tiled":
        return _tiled(geometry, dtype, size, channels_last, aligned, wide, tile)
    if kind == "direct":
        return _direct(geometry, dtype, size, channels_last, aligned, wide)
    return _any(geometry, dtype, channels_last)


def variants(dtype: str, size: int) -> list[Any]:
    """List the kernels that calls of a dtype take, but those for 2**31 elements or more."""
    full = min(16 // size, 4)
    found: list[Any] = []
    for channels_last in (True, False):
        for vector in (True, False):
            found += [
                TiledVariant(dtype, channels_last, vector, False, tile) for tile in tiles_for(size)
            ]
        for width in (1, full) if channels_last else (1,):
            found.append(ChannelsVariant(dtype, channels_last, width, False))
            found += [
                PixelsVariant(dtype, channels_last, channels, width, False)
                for channels in range(1, _THREAD_CHANNELS + 1)
            ]
        found.append(AnyVariant(dtype, channels_last))
    return found
