"""The loops of the tiled convolution: tasks of tiles, worked through by register tiles.

A task is a part of the image, with the tiles of all stride classes that lie there (they read the
same gradients), for some panels; a panel is a block of channels of a group. Threads fetch the
number of the next task from a counter, so that a thread that is slow, or gets the cheap tiles of a
border, keeps nobody waiting; what a task computes does not depend on who computes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import prange
from numba.extending import overload

from .._geometry import Axis
from . import _microkernel
from ._compile import helper, loop, parallel_loop
from ._copy_runs import copy_run
from ._emitter import Tile, element_of
from ._scalars import next_number
from ._tiles import class_tiles, place_pixels, reached_cells, stride_class, write_entries
from ._transpose import lanes_of, transpose
from ._vectors import lanes, pixels_beside

_FIELDS = [
    (name, int)
    for name in (
        "batch",
        "panels",  # blocks of all groups
        "blocks",  # blocks of channels in a group
        "block",  # channels in a block
        "together",  # panels in a task
        "first_channel",  # of block 0, in its group
        "group_in",  # channels of a group, of which the last block may have too few
        "tiles",  # tiles that are finished before they are copied out, if they are
        "tile_groups",  # tasks of a panel
        "tasks",
        "classes",
        "class_columns",  # stride classes along a row
        "entries",  # room for a tile's table
        "remembered",  # tables of tiles that lack columns
        "element_bytes",
        "cell_bytes",  # from one gradient pixel to the next
        "group_bytes",  # from one group's gradient channels to the next
        "block_bytes",  # from one block's gradient channels to the next (small groups only)
        "terms",  # output channels that are summed over
        "chunk",  # as many of them in an entry that is not merged
        "longest",  # as many products in an entry that is merged
        "merges",  # 1: entries of neighbouring taps can be merged
        "segment",  # products after which sums move to totals
        "panel_bytes",  # weights of a panel
        "tap_bytes",  # weights of a tap
        "term_bytes",  # from the weights of one term to those of the next
        "row_bytes",  # from the weights of one channel to those of the next
        "fetches_result",  # a tile's results are whole pixels in a row, and many
        "task_cells",  # gradient pixels that a task widens at most; 0: they are wide already
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
Grouped1 = NamedTuple("Grouped1", _FIELDS)  # type: ignore[misc]
Grouped2 = NamedTuple("Grouped2", _FIELDS)  # type: ignore[misc]
Grouped4 = NamedTuple("Grouped4", _FIELDS)  # type: ignore[misc]
Grouped8 = NamedTuple("Grouped8", _FIELDS)  # type: ignore[misc]

BY_CHANNELS = (Wide, Narrow)
BY_TERMS = (Terms1, Terms2, Terms3, Terms4)
GROUPED = {1: Grouped1, 2: Grouped2, 4: Grouped4, 8: Grouped8}


def tile_of(kind: Any, itemsize: int) -> Tile:
    """Give the shape of a kind's register tile."""
    columns = 1 if kind is Narrow else 2
    if kind in BY_TERMS:
        columns = BY_TERMS.index(kind) + 1
    pixels = pixels_beside(columns)
    if kind in GROUPED.values() and kind is not Grouped1:
        pixels = max(2, pixels // 2)  # registers for weights and for terms
    return Tile(pixels, columns, lanes(itemsize))


def width_of(kind: Any, itemsize: int) -> int:
    """Give the number of channels that a kind's register tile computes."""
    tile = tile_of(kind, itemsize)
    return tile.vectors if kind in BY_TERMS else tile.vectors * tile.lanes


def _kernel_of(kind: Any, element: ir.Type, tile: Tile, stored: Any) -> Any:
    if kind in BY_CHANNELS:
        return _microkernel.channels(element, tile, stored)
    if kind in BY_TERMS:
        return _microkernel.terms(element, tile, stored)
    group = next(size for size, grouped in GROUPED.items() if grouped is kind)
    return _microkernel.grouped(element, tile, group, stored)


def _tile_sizes(plan: Any, weights: Any) -> tuple[int, int, int]:
    """Give a tile's pixels, its channels, and the elements in a row of its sums."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_tile_sizes)  # type: ignore[untyped-decorator]
def _tile_sizes_compiled(plan: Any, weights: Any) -> Any:
    itemsize = weights.dtype.bitwidth // 8
    tile = tile_of(plan.instance_class, itemsize)
    pixels, width = tile.pixels, width_of(plan.instance_class, itemsize)
    room = tile.vectors * tile.lanes

    def sizes(plan: Any, weights: Any) -> Any:
        return pixels, width, room

    return sizes


def _run_tile(plan: Any, weights: Any, result: Any, *arguments: int) -> None:
    """Run the register tile of the plan's kind; the arguments are those of `_microkernel`."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_run_tile)  # type: ignore[untyped-decorator]
def _run_tile_compiled(plan: Any, weights: Any, result: Any, *arguments: Any) -> Any:
    kind = plan.instance_class
    tile = tile_of(kind, weights.dtype.bitwidth // 8)
    kernel = _kernel_of(kind, element_of(weights), tile, result.dtype)

    def run(plan: Any, weights: Any, result: Any, *arguments: Any) -> Any:
        kernel(*arguments)

    return run


@helper
def _copy_out(
    plan: Any, scratch: Any, width: int, wanted: int, places: Any, pixels: int, first: int, to: Any
) -> None:
    """Copy finished tiles to a result of another layout."""
    step, size = lanes_of(to), to.itemsize
    contiguous = pixels >= step and places[1] - places[0] == 1
    whole = wanted // step * step if contiguous and width % step == 0 else 0
    p = 0
    while p < pixels:
        count = min(step, pixels - p)
        lead = 0
        if whole > 0 and count == step and places[p + step - 1] - places[p] == step - 1:
            for c in range(0, whole, step):
                transpose(
                    to,
                    to,
                    scratch.ctypes.data + (p * width + c) * size,
                    width * size,
                    to.ctypes.data + (first + places[p] + c * plan.channel_step) * size,
                    plan.channel_step * size,
                )
            lead = whole
        for c in range(lead, wanted):
            at = first + c * plan.channel_step
            for q in range(p, p + count):
                to[at + places[q]] = scratch[q * width + c]
        p += count


@loop
def work(
    counter: Any,
    plan: Any,
    rows: Axis,
    cols: Axis,
    weights: Any,
    gradient: Any,
    result: Any,
) -> None:
    """Work on tasks until none is left."""
    pixels, width, room = _tile_sizes(plan, weights)
    size = result.itemsize
    # Tables: one for tiles of every kind, one for full tiles, others by the first column.
    tables = np.empty((2 + plan.remembered, plan.entries, _microkernel.ENTRY), np.int64)
    known = np.empty((2 + plan.remembered, 3), np.int64)  # first column, entries, totals left
    masks = np.empty(plan.entries, np.int64)
    runs = np.empty((pixels, 4), np.int64)
    bases, outs = np.empty(pixels, np.int64), np.empty(pixels, np.int64)
    places = np.empty(plan.tiles * pixels, np.int64)
    totals = np.empty(2 * pixels * room, weights.dtype)
    zeros = np.zeros(max(plan.longest, room), weights.dtype)
    # Tiles that are not stored in place go here.
    scratch = np.empty((0 if plan.direct else plan.tiles) * pixels * width, result.dtype)
    cell_elements = plan.cell_bytes // weights.itemsize
    widened = np.empty(plan.task_cells * cell_elements, weights.dtype)
    source = gradient.ctypes.data
    table_bytes = plan.entries * _microkernel.ENTRY * tables.itemsize
    # Pixels that follow one another in the result, whole: fetched too, before they are written.
    place_bytes = plan.column_step * size
    place_lines = pixels * place_bytes // _microkernel.LINE
    tile_lines = pixels * plan.cell_bytes // _microkernel.LINE
    while True:
        task = next_number(counter.ctypes.data)
        if task >= plan.tasks:
            break
        first_panel = task // plan.tile_groups * plan.together
        last_panel = min(first_panel + plan.together, plan.panels)
        tile_group = task % plan.tile_groups
        if plan.task_cells > 0:
            low, high = reached_cells(
                plan.batch,
                plan.classes,
                plan.class_columns,
                rows,
                cols,
                pixels,
                tile_group,
                plan.tile_groups,
            )
            first, count = low * cell_elements, (high - low) * cell_elements
            copy_run(gradient, widened, first, 0, count)
            source = widened.ctypes.data - first * weights.itemsize
        for index in range(plan.classes):
            row_class = stride_class(index // plan.class_columns, rows)
            col_class = stride_class(index % plan.class_columns, cols)
            class_pixels = plan.batch * row_class.elements * col_class.elements
            known[:, 0] = -1
            first_tile, last_tile = class_tiles(class_pixels, pixels, tile_group, plan.tile_groups)
            for tile in range(first_tile, last_tile, plan.tiles):
                start = tile * pixels
                count = min(min(plan.tiles, last_tile - tile) * pixels, class_pixels - start)
                in_image = row_class.elements * col_class.elements
                at = (
                    start // in_image,
                    start % in_image // col_class.elements,
                    start % col_class.elements,
                )
                for done in range(0, count, pixels):
                    here = min(pixels, count - done)
                    column = at[2]
                    at, number, full, rows_full = place_pixels(
                        at,
                        here,
                        pixels,
                        plan,
                        rows,
                        cols,
                        row_class,
                        col_class,
                        bases,
                        places,
                        done,
                        size if plan.direct else 1,
                        runs,
                    )
                    table = 0
                    if full:
                        table, column = 1, 0
                    elif rows_full and here == pixels:
                        table = 2 + column % plan.remembered
                    if table == 0 or known[table, 0] != column:
                        known[table, 0] = column
                        known[table, 1], known[table, 2] = write_entries(
                            full,
                            pixels,
                            here,
                            number,
                            plan,
                            rows,
                            cols,
                            row_class,
                            col_class,
                            runs,
                            masks,
                            tables[table],
                        )
                    written, left = known[table, 1], known[table, 2]
                    places_at = places.ctypes.data + done * places.itemsize
                    if not plan.direct:
                        for p in range(pixels):
                            outs[p] = (done + p) * width * size
                    # What the next tile reads first lies behind what this one does.
                    ahead = source + bases[here - 1] + plan.cell_bytes
                    lines = tile_lines // max(1, written * (last_panel - first_panel)) + 1
                    result_ahead, result_lines = 0, 0
                    if plan.fetches_result:
                        result_ahead = result.ctypes.data + places[done + here - 1] + place_bytes
                        result_lines = place_lines // max(1, written * (last_panel - first_panel))
                        result_lines += 1
                    group, block = first_panel // plan.blocks, first_panel % plan.blocks
                    for panel in range(first_panel, last_panel):
                        channel = plan.first_channel + block * plan.block
                        place = (group * plan.group_in + channel) * plan.channel_step
                        to = (
                            result.ctypes.data + place * size
                            if plan.direct
                            else scratch.ctypes.data
                        )
                        _run_tile(
                            plan,
                            weights,
                            result,
                            tables.ctypes.data + table * table_bytes,
                            written,
                            left,
                            bases.ctypes.data,
                            source + group * plan.group_bytes + block * plan.block_bytes,
                            places_at if plan.direct else outs.ctypes.data,
                            to,
                            zeros.ctypes.data,
                            weights.ctypes.data + panel * plan.panel_bytes,
                            totals.ctypes.data,
                            min(width, plan.group_in - channel),
                            plan.row_bytes,
                            ahead,
                            lines,
                            result_ahead,
                            result_lines,
                        )
                        ahead += written * lines * _microkernel.LINE
                        result_ahead += written * result_lines * _microkernel.LINE
                        block += 1
                        if block == plan.blocks:
                            group, block = group + 1, 0
                if not plan.direct:  # then there is one panel in a task
                    group, block = first_panel // plan.blocks, first_panel % plan.blocks
                    channel = plan.first_channel + block * plan.block
                    place = (group * plan.group_in + channel) * plan.channel_step
                    wanted = min(width, plan.group_in - channel)
                    _copy_out(plan, scratch, width, wanted, places, count, place, result)
    # Numba takes memory back after the last use that it sees, and it does not see addresses.
    if plan.task_cells > 0:
        widened[0] = 0


@parallel_loop
def work_parallel(
    threads: int,
    counter: Any,
    plan: Any,
    rows: Axis,
    cols: Axis,
    weights: Any,
    gradient: Any,
    result: Any,
) -> None:
    """Have `threads` threads work."""
    for _ in prange(threads):
        work(counter, plan, rows, cols, weights, gradient, result)
