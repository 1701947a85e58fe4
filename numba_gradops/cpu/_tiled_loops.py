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
from numba.extending import overload

from .._geometry import Axis
from . import _microkernel
from ._compile import helper, loop
from ._depth_to_space_loops import depth_to_space
from ._emitter import Tile, element_of
from ._gradient_block_loops import fill_block, fill_block_by_runs, task_rows
from ._plans import reader
from ._scalars import next_number
from ._tiles import place_pixels, stride_class, write_entries
from ._transpose import lanes_of, transpose
from ._vectors import lanes, pixels_beside


class Plan(NamedTuple):
    """What the loops need to know beside the two axes and the number of tasks."""

    batch: int
    panels: int  # blocks of all groups
    blocks: int  # blocks of channels in a group
    block: int  # channels in a block
    together: int  # panels in a task
    at_once: int  # of which so many are computed before the next tile
    first_channel: int  # of block 0, in its group
    group_in: int  # channels of a group, of which the last block may have too few
    tiles: int  # tiles that are finished before they are copied out, if they are
    tile_groups: int  # tasks of a panel
    classes: int
    class_columns: int  # stride classes along a row
    entries: int  # room for a tile's table
    remembered: int  # tables of tiles that lack columns
    element_bytes: int
    # The fields of `Reading`:
    copies: int
    channels_first: int
    padded: int
    block_rows: int
    pitch: int
    image_rows: int
    pad_top: int
    pad_left: int
    # And of gradients and weights:
    cell_bytes: int  # from one gradient pixel to the next
    group_bytes: int  # from one group's gradient channels to the next
    block_bytes: int  # from one block's gradient channels to the next (small groups only)
    terms: int  # output channels that are summed over
    chunk: int  # as many of them in an entry that is not merged
    longest: int  # as many products in an entry that is merged
    merges: int  # 1: entries of neighbouring taps can be merged
    segment: int  # products after which sums move to totals
    panel_bytes: int  # weights of a panel
    tap_bytes: int  # weights of a tap
    term_bytes: int  # from the weights of one term to those of the next
    row_bytes: int  # from the weights of one channel to those of the next
    fetches_result: int  # a tile's results are whole pixels in a row, and many
    direct: int  # tiles are stored in the result as they are
    image_step: int  # of the result, in elements
    row_step: int
    column_step: int
    channel_step: int
    # Blocks of the result that are computed as pixels (see `_depth_to_space`), or 0:
    space_rows: int
    space_cols: int
    space_channels: int
    space_height: int  # rows and columns of the result
    space_width: int
    space_above: int  # rows and columns that the first blocks have too many
    space_before: int


# One class for each kind of register tile, which tells the compiler which one; an instance says how
# many tasks there are.
_TASKS = [("tasks", int)]
Wide = NamedTuple("Wide", _TASKS)  # type: ignore[misc] # the field is in a list
Narrow = NamedTuple("Narrow", _TASKS)  # type: ignore[misc]
Terms1 = NamedTuple("Terms1", _TASKS)  # type: ignore[misc]
Terms2 = NamedTuple("Terms2", _TASKS)  # type: ignore[misc]
Terms3 = NamedTuple("Terms3", _TASKS)  # type: ignore[misc]
Terms4 = NamedTuple("Terms4", _TASKS)  # type: ignore[misc]
Grouped1 = NamedTuple("Grouped1", _TASKS)  # type: ignore[misc]
Grouped2 = NamedTuple("Grouped2", _TASKS)  # type: ignore[misc]
Grouped4 = NamedTuple("Grouped4", _TASKS)  # type: ignore[misc]
Grouped8 = NamedTuple("Grouped8", _TASKS)  # type: ignore[misc]

# And one for each form of the arrays, so that what a form does not need is not compiled: gradients
# and results as the tiles have them; gradients of which rows are copied as they lie, to widen
# halves; any gradients and results; results in blocks (see `_depth_to_space`), for which an
# instance says at which address rows that are not finite are noted, if not 0.
_NOTED = [("noted", int)]
InPlace = NamedTuple("InPlace", _NOTED)  # type: ignore[misc]
Widened = NamedTuple("Widened", _NOTED)  # type: ignore[misc]
AnyForm = NamedTuple("AnyForm", _NOTED)  # type: ignore[misc]
Blocks = NamedTuple("Blocks", _NOTED)  # type: ignore[misc]

_read_plan = reader(Plan, Axis, Axis)

BY_CHANNELS = (Wide, Narrow)
BY_TERMS = (Terms1, Terms2, Terms3, Terms4)
GROUPED = {1: Grouped1, 2: Grouped2, 4: Grouped4, 8: Grouped8}


def by_terms(channels: int, products: int, itemsize: int) -> bool:
    """Tell whether lanes are better along terms than along channels, of which there are few.

    The lanes must then be added up at the end: measured, a pixel needs so many products for that.
    """
    step = lanes(itemsize)
    most = min(2 * len(BY_TERMS), 3 * step // 4)
    return channels <= most and products >= 96 * channels * (channels - 1) // step


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


def _tile_sizes(kind: Any, weights: Any) -> tuple[int, int, int]:
    """Give a tile's pixels, its channels, and the elements in a row of its sums."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_tile_sizes)  # type: ignore[untyped-decorator]
def _tile_sizes_compiled(kind: Any, weights: Any) -> Any:
    itemsize = weights.dtype.bitwidth // 8
    tile = tile_of(kind.instance_class, itemsize)
    pixels, width = tile.pixels, width_of(kind.instance_class, itemsize)
    room = tile.vectors * tile.lanes

    def sizes(kind: Any, weights: Any) -> Any:
        return pixels, width, room

    return sizes


def _run_tile(kind: Any, weights: Any, result: Any, *arguments: int) -> None:
    """Run the register tile of this kind; the arguments are those of `_microkernel`."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_run_tile)  # type: ignore[untyped-decorator]
def _run_tile_compiled(kind: Any, weights: Any, result: Any, *arguments: Any) -> Any:
    tile = tile_of(kind.instance_class, weights.dtype.bitwidth // 8)
    kernel = _kernel_of(kind.instance_class, element_of(weights), tile, result.dtype)

    def run(kind: Any, weights: Any, result: Any, *arguments: Any) -> Any:
        kernel(*arguments)

    return run


@helper
def _copy_out(
    plan: Any, scratch: Any, start: int, row: int, wanted: int, places: Any, pixels: int,
    first: int, to: Any,
) -> None:  # fmt: skip
    """Copy a panel of finished tiles, `row` numbers a pixel, to a result of another layout."""
    step, size = lanes_of(to), to.itemsize
    p = 0
    while p < pixels:
        # As many pixels as lie equally far apart: side by side in a plane, or in a stride class.
        count, apart = 1, 1
        if p + 1 < pixels:
            apart = places[p + 1] - places[p]
        while p + count < pixels and places[p + count] - places[p] == count * apart:
            count += 1
        lead = 0
        if apart == 1 and count >= step and wanted >= step:
            # The last blocks are full too: they copy again some of what those before them did.
            lead = wanted
            for number in range((wanted + step - 1) // step):
                c = min(number * step, wanted - step)
                source = scratch.ctypes.data + (start + p * row + c) * size
                target = to.ctypes.data + (first + places[p] + c * plan.channel_step) * size
                for other in range((count + step - 1) // step):
                    q = min(other * step, count - step)
                    transpose(
                        to, to, source + q * row * size, row * size,
                        target + q * size, plan.channel_step * size,
                    )  # fmt: skip
        for c in range(lead, wanted):
            at = first + places[p] + c * plan.channel_step
            for q in range(count):
                to[at + q * apart] = scratch[start + (p + q) * row + c]
        p += count


def _gradients_at(
    form: Any, plan: Any, rows: Axis, cols: Axis, pixels: int, tile_group: int, gradient: Any,
    own: Any,
) -> int:  # fmt: skip
    """Give the address that places in the gradient count from; copy what a task reads, if it does.

    The block of the copy, `own`, must be kept alive by the caller.
    """
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_gradients_at)  # type: ignore[untyped-decorator]
def _gradients_at_compiled(
    form: Any, plan: Any, rows: Any, cols: Any, pixels: Any, tile_group: Any, gradient: Any,
    own: Any,
) -> Any:  # fmt: skip
    def in_place(
        form: Any, plan: Any, rows: Any, cols: Any, pixels: Any, tile_group: Any, gradient: Any,
        own: Any,
    ) -> Any:  # fmt: skip
        return np.int64(gradient.ctypes.data)

    fill = fill_block_by_runs if form.instance_class is Widened else fill_block

    def copied(
        form: Any, plan: Any, rows: Any, cols: Any, pixels: Any, tile_group: Any, gradient: Any,
        own: Any,
    ) -> Any:  # fmt: skip
        at = np.int64(gradient.ctypes.data)
        if plan.copies:
            first_row, last_row = task_rows(plan, rows, cols, pixels, tile_group)
            fill(plan, rows, cols, first_row, last_row, gradient, own)
            at = np.int64(own.ctypes.data) - first_row * plan.pitch * plan.cell_bytes
        return at

    return in_place if form.instance_class is InPlace else copied


def _finish(
    form: Any, plan: Any, scratch: Any, width: int, panels: tuple[int, int], places: Any,
    start: int, count: int, sizes: tuple[int, int], result: Any,
) -> None:  # fmt: skip
    """Bring finished tiles to the result, unless that is where they are.

    They hold some `panels` of `count` pixels from number `start` on; `sizes` are the pixels in a
    row and in an image.
    """
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_finish)  # type: ignore[untyped-decorator]
def _finish_compiled(
    form: Any, plan: Any, scratch: Any, width: Any, panels: Any, places: Any,
    start: Any, count: Any, sizes: Any, result: Any,
) -> Any:  # fmt: skip
    def in_place(
        form: Any, plan: Any, scratch: Any, width: Any, panels: Any, places: Any,
        start: Any, count: Any, sizes: Any, result: Any,
    ) -> Any:  # fmt: skip
        pass

    def copied(
        form: Any, plan: Any, scratch: Any, width: Any, panels: Any, places: Any,
        start: Any, count: Any, sizes: Any, result: Any,
    ) -> Any:  # fmt: skip
        if not plan.direct:
            for panel in range(panels[0], panels[1]):
                group, block = panel // plan.blocks, panel % plan.blocks
                channel = plan.first_channel + block * plan.block
                first = (group * plan.group_in + channel) * plan.channel_step
                wanted = min(width, plan.group_in - channel)
                lead, row = (panel - panels[0]) * width, plan.at_once * width
                _copy_out(plan, scratch, lead, row, wanted, places, count, first, result)

    def blocks(
        form: Any, plan: Any, scratch: Any, width: Any, panels: Any, places: Any,
        start: Any, count: Any, sizes: Any, result: Any,
    ) -> Any:  # fmt: skip
        first = plan.first_channel + panels[0] * width
        last = min(plan.first_channel + panels[1] * width, plan.group_in)
        depth_to_space(
            plan, scratch, plan.at_once * width, first, last - first, start, count,
            sizes[0], sizes[1], result, form.noted,
        )  # fmt: skip

    if form.instance_class is Blocks:
        return blocks
    return copied if form.instance_class is AnyForm else in_place


@loop
def work(
    counter: Any, kind: Any, form: Any, numbers: Any, weights: Any, gradient: Any, result: Any
) -> None:
    """Work on tasks until none is left."""
    plan, rows, cols = _read_plan(numbers)
    pixels, width, room = _tile_sizes(kind, weights)
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
    row = plan.at_once * width
    scratch = np.zeros((0 if plan.direct else plan.tiles) * pixels * row, result.dtype)
    block_numbers = plan.block_rows * plan.pitch * plan.cell_bytes // weights.itemsize
    own = np.empty(block_numbers + _microkernel.LINE // weights.itemsize, weights.dtype)
    own = own[
        -own.ctypes.data % _microkernel.LINE // weights.itemsize :
    ]  # vectors lie in one line each
    table_bytes = plan.entries * _microkernel.ENTRY * tables.itemsize
    # Pixels that follow one another in the result, whole: fetched too, before they are written.
    place_bytes = plan.column_step * size
    place_lines = pixels * place_bytes // _microkernel.LINE
    tile_lines = pixels * plan.cell_bytes // _microkernel.LINE
    while True:
        task = next_number(counter.ctypes.data)
        if task >= kind.tasks:
            break
        first_panel = task // plan.tile_groups * plan.together
        last_panel = min(first_panel + plan.together, plan.panels)
        tile_group = task % plan.tile_groups
        gradient_at = _gradients_at(
            form, plan, rows, cols, pixels, tile_group, gradient, own
        )  # fmt: skip
        for index in range(plan.classes):
            row_class = stride_class(index // plan.class_columns, rows)
            col_class = stride_class(index % plan.class_columns, cols)
            in_image = row_class.elements * col_class.elements
            class_pixels = plan.batch * in_image
            known[:, 0] = -1
            class_tiles = (class_pixels + pixels - 1) // pixels
            first_tile = class_tiles * tile_group // plan.tile_groups
            last_tile = class_tiles * (tile_group + 1) // plan.tile_groups
            for panel_first in range(first_panel, last_panel, plan.at_once):
                panel_last = min(panel_first + plan.at_once, last_panel)
                for tile in range(first_tile, last_tile, plan.tiles):
                    start = tile * pixels
                    count = min(min(plan.tiles, last_tile - tile) * pixels, class_pixels - start)
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
                        full = full or plan.padded != 0
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
                                outs[p] = (done + p) * row * size
                        # What the next tile reads first lies behind what this one does.
                        ahead = gradient_at + bases[here - 1] + plan.cell_bytes
                        lines = tile_lines // max(1, written * (panel_last - panel_first)) + 1
                        result_ahead, result_lines = 0, 0
                        if plan.fetches_result:
                            result_ahead = (
                                result.ctypes.data + places[done + here - 1] + place_bytes
                            )
                            result_lines = place_lines // max(
                                1, written * (panel_last - panel_first)
                            )
                            result_lines += 1
                        group, block = panel_first // plan.blocks, panel_first % plan.blocks
                        for panel in range(panel_first, panel_last):
                            channel = plan.first_channel + block * plan.block
                            place = (group * plan.group_in + channel) * plan.channel_step
                            to = (
                                result.ctypes.data + place * size
                                if plan.direct
                                else scratch.ctypes.data + (panel - panel_first) * width * size
                            )
                            _run_tile(
                                kind,
                                weights,
                                result,
                                tables.ctypes.data + table * table_bytes,
                                written,
                                left,
                                bases.ctypes.data,
                                gradient_at + group * plan.group_bytes + block * plan.block_bytes,
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
                    _finish(
                        form, plan, scratch, width, (panel_first, panel_last), places, start,
                        count, (col_class.elements, in_image), result,
                    )  # fmt: skip
