"""The loops of the tiled convolution: tasks of tiles, worked through by register tiles.

A task is a run of tiles of one stride class, for one block of channels. Threads fetch the number of
the next task from a counter, so that a thread that is slow, or gets the cheap tiles of a border,
keeps nobody waiting; what a task computes does not depend on who computes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.extending import overload

from .._geometry import Axis
from . import _microkernel
from ._compile import helper, loop, parallel_loop
from ._halves import put
from ._microkernel import Tile, next_number
from ._tiles import place_pixels, stride_class, write_entries
from ._vectors import lanes, pixels_beside

_FIELDS = [
    (name, int)
    for name in (
        "batch",
        "blocks",  # blocks of channels in a group
        "block",  # channels in a block
        "first_channel",  # of block 0, in its group
        "group_in",  # channels of a group, of which the last block may have too few
        "tiles",  # tiles in a task
        "tile_groups",  # tasks of a block
        "tasks",
        "class_columns",  # stride classes along a row
        "entries",  # room for a tile's table
        "element_bytes",
        "cell_bytes",  # from one gradient pixel to the next
        "group_bytes",  # from one group's gradient channels to the next
        "block_bytes",  # from one block's gradient channels to the next (depthwise only)
        "terms",  # output channels that are summed over
        "chunk",  # as many of them in an entry
        "segment",  # products after which sums move to totals
        "panel_bytes",  # weights of a block
        "tap_bytes",  # weights of a tap
        "term_bytes",  # from the weights of one term to those of the next
        "row_bytes",  # from the weights of one input channel to those of the next
        "direct",  # tiles are stored in the result as they are
        "image_step",  # of the result, in elements
        "row_step",
        "column_step",
        "channel_step",
    )
]

# One class for each kind of register tile: the class of the plan tells the compiler which one.
Wide = NamedTuple("Wide", _FIELDS)  # type: ignore[misc] # the fields are a list
Narrow = NamedTuple("Narrow", _FIELDS)  # type: ignore[misc]
Terms1 = NamedTuple("Terms1", _FIELDS)  # type: ignore[misc]
Terms2 = NamedTuple("Terms2", _FIELDS)  # type: ignore[misc]
Terms3 = NamedTuple("Terms3", _FIELDS)  # type: ignore[misc]
Terms4 = NamedTuple("Terms4", _FIELDS)  # type: ignore[misc]
Depthwise = NamedTuple("Depthwise", _FIELDS)  # type: ignore[misc]

# Vectors in a tile's row, and the register tile that makes it.
_KINDS = {
    Wide: (2, _microkernel.channels),
    Narrow: (1, _microkernel.channels),
    Terms1: (1, _microkernel.terms),
    Terms2: (2, _microkernel.terms),
    Terms3: (3, _microkernel.terms),
    Terms4: (4, _microkernel.terms),
    Depthwise: (2, _microkernel.depthwise),
}


def tile_of(kind: Any, itemsize: int) -> Tile:
    """Give the shape of a kind's register tile."""
    columns, _ = _KINDS[kind]
    return Tile(pixels_beside(columns), columns, lanes(itemsize))


def width_of(kind: Any, itemsize: int) -> int:
    """Give the number of channels that a kind's register tile computes."""
    tile = tile_of(kind, itemsize)
    by_terms = _KINDS[kind][1] is _microkernel.terms
    return tile.vectors if by_terms else tile.vectors * tile.lanes


def _element(dtype: Any) -> ir.Type:
    return ir.FloatType() if dtype == types.float32 else ir.DoubleType()


def _tile_sizes(plan: Any, gradient: Any) -> tuple[int, int, int]:
    """Give a tile's pixels, its channels, and the elements in a row of its sums."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_tile_sizes)  # type: ignore[untyped-decorator]
def _tile_sizes_compiled(plan: Any, gradient: Any) -> Any:
    itemsize = gradient.dtype.bitwidth // 8
    tile = tile_of(plan.instance_class, itemsize)
    pixels, width = tile.pixels, width_of(plan.instance_class, itemsize)
    room = tile.vectors * tile.lanes

    def sizes(plan: Any, gradient: Any) -> Any:
        return pixels, width, room

    return sizes


def _run_tile(plan: Any, gradient: Any, *arguments: int) -> None:
    """Run the register tile of the plan's kind; the arguments are those of `_microkernel`."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_run_tile)  # type: ignore[untyped-decorator]
def _run_tile_compiled(plan: Any, gradient: Any, *arguments: Any) -> Any:
    _, make = _KINDS[plan.instance_class]
    tile = tile_of(plan.instance_class, gradient.dtype.bitwidth // 8)
    kernel = make(_element(gradient.dtype), tile)

    def run(plan: Any, gradient: Any, *arguments: Any) -> Any:
        kernel(*arguments)

    return run


@helper
def _copy_out(
    plan: Any, scratch: Any, width: int, wanted: int, places: Any, pixels: int, first: int, to: Any
) -> None:
    """Copy finished tiles to a result of another layout or dtype."""
    for c in range(wanted):
        at = first + c * plan.channel_step
        for p in range(pixels):
            put(to, at + places[p], scratch[p * width + c])


@loop
def work(
    counter: Any,
    plan: Any,
    rows: Axis,
    cols: Axis,
    first_tasks: Any,
    weights: Any,
    gradient: Any,
    result: Any,
) -> None:
    """Work on tasks until none is left; `first_tasks` counts those before each stride class."""
    pixels, width, room = _tile_sizes(plan, gradient)
    size = plan.element_bytes
    entries = np.empty((plan.entries, _microkernel.ENTRY), np.int64)
    masks = np.empty(plan.entries, np.int64)
    reach = np.empty((pixels, 4), np.int64)
    bases, outs = np.empty(pixels, np.int64), np.empty(pixels, np.int64)
    places = np.empty(plan.tiles * pixels, np.int64)
    totals = np.empty(2 * pixels * room, gradient.dtype)
    zeros = np.zeros(max(plan.chunk, room), gradient.dtype)
    # Tiles that are not stored in place go here; so do the pixels that the last tile has too many.
    scratch = np.empty((1 if plan.direct else plan.tiles) * pixels * width, gradient.dtype)
    beside = scratch.ctypes.data - result.ctypes.data
    while True:
        task = next_number(counter.ctypes.data)
        if task >= plan.tasks:
            break
        panel, tile_group = task // plan.tile_groups, task % plan.tile_groups
        group, block = panel // plan.blocks, panel % plan.blocks
        channel = plan.first_channel + block * plan.block
        wanted = min(width, plan.group_in - channel)
        # The class is the last one that starts at this task or before.
        index = 0
        while first_tasks[index + 1] <= tile_group:
            index += 1
        row_lead, col_lead = index // plan.class_columns, index % plan.class_columns
        row_tap, row_taps, row_cell = stride_class(row_lead, rows)
        col_tap, col_taps, col_cell = stride_class(col_lead, cols)
        row_count = (rows.input - row_lead - 1) // rows.stride + 1
        col_count = (cols.input - col_lead - 1) // cols.stride + 1
        here = gradient.ctypes.data + group * plan.group_bytes + block * plan.block_bytes
        panel_at = weights.ctypes.data + panel * plan.panel_bytes
        first_place = (group * plan.group_in + channel) * plan.channel_step
        start = (tile_group - first_tasks[index]) * plan.tiles * pixels
        count = min(plan.tiles * pixels, plan.batch * row_count * col_count - start)
        for done in range(0, count, pixels):
            there = places[done : done + pixels]
            placed = place_pixels(
                start + done,
                pixels,
                plan,
                rows,
                cols,
                (row_lead, row_count, row_taps, row_tap, row_cell),
                (col_lead, col_count, col_taps, col_tap, col_cell),
                here,
                bases,
                there,
                reach,
            )
            written = write_entries(
                pixels,
                plan,
                rows,
                cols,
                row_tap,
                row_taps,
                col_tap,
                col_taps,
                reach,
                masks,
                entries,
            )
            for p in range(pixels):
                outs[p] = beside + ((0 if plan.direct else done) + p) * width * size
            if plan.direct:
                for p in range(placed):
                    outs[p] = (there[p] + first_place) * size
            _run_tile(
                plan,
                gradient,
                entries.ctypes.data,
                written,
                bases.ctypes.data,
                outs.ctypes.data,
                zeros.ctypes.data,
                panel_at,
                totals.ctypes.data,
                result.ctypes.data,
                wanted,
                plan.row_bytes,
            )
        if not plan.direct:
            _copy_out(plan, scratch, width, wanted, places, count, first_place, result)


@parallel_loop
def work_parallel(
    threads: int,
    counter: Any,
    plan: Any,
    rows: Axis,
    cols: Axis,
    first_tasks: Any,
    weights: Any,
    gradient: Any,
    result: Any,
) -> None:
    """Have `threads` threads work."""
    for _ in prange(threads):
        work(counter, plan, rows, cols, first_tasks, weights, gradient, result)


def _lanes_of(array: Any) -> int:
    """Give the number of elements in a vector."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_lanes_of)  # type: ignore[untyped-decorator]
def _lanes_of_compiled(array: Any) -> Any:
    number = lanes(array.dtype.bitwidth // 8)

    def constant(array: Any) -> Any:
        return number

    return constant


def _transpose(array: Any, source: int, source_row: int, target: int, target_row: int) -> None:
    """Transpose a block of vector size between two addresses."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_transpose)  # type: ignore[untyped-decorator]
def _transpose_compiled(
    array: Any, source: Any, source_row: Any, target: Any, target_row: Any
) -> Any:
    kernel = _microkernel.transpose(_element(array.dtype), lanes(array.dtype.bitwidth // 8))

    def run(array: Any, source: Any, source_row: Any, target: Any, target_row: Any) -> Any:
        kernel(source, source_row, target, target_row)

    return run


class Packing(NamedTuple):
    """What `pack` needs to know."""

    taps: int
    groups: int
    group_in: int
    group_out: int
    first_channel: int
    block: int
    blocks: int


@loop
def pack(counter: Any, packing: Packing, weights: Any, packed: Any, finite: Any) -> None:
    """Reorder weights from [tap, in, out] to [group, block, tap, out in group, in within block].

    Channels that the last block has too many become 0. Clears `finite` if a weight is not.
    """
    size, step = weights.itemsize, _lanes_of(weights)
    outs = packing.groups * packing.group_out
    block, terms = packing.block, packing.group_out
    while True:
        task = next_number(counter.ctypes.data)
        if task >= packing.groups * packing.blocks * packing.taps:
            break
        tap, panel = task % packing.taps, task // packing.taps
        group, first = panel // packing.blocks, panel % packing.blocks * block
        first += packing.first_channel
        for lead in range(0, block, step):
            channels = min(step, max(0, packing.group_in - first - lead))
            source = (tap * packing.group_in + first + lead) * outs + group * terms
            target = task * terms * block + lead
            whole = terms // step * step if channels == step else 0
            for o in range(0, whole, step):
                _transpose(
                    weights,
                    weights.ctypes.data + (source + o) * size,
                    outs * size,
                    packed.ctypes.data + (target + o * block) * size,
                    block * size,
                )
            for o in range(whole, terms):
                for c in range(step):
                    value = weights[source + c * outs + o] if c < channels else 0
                    packed[target + o * block + c] = value
        if _not_finite(packed, task * terms * block, (task + 1) * terms * block) != 0:
            finite[0] = 0


@helper
def _not_finite(values: Any, start: int, stop: int) -> int:
    """Count values that are NaN or infinite."""
    count = 0
    for i in range(start, stop):
        count += 0 if values[i] - values[i] == 0 else 1
    return count


@loop
def all_finite(values: Any) -> Any:
    """Tell whether no value is NaN or infinite."""
    return _not_finite(values, 0, values.size) == 0


@parallel_loop
def pack_parallel(
    threads: int, counter: Any, packing: Packing, weights: Any, packed: Any, finite: Any
) -> None:
    """Have `threads` threads pack."""
    for _ in prange(threads):
        pack(counter, packing, weights, packed, finite)
