"""The loops of Winograd's algorithm: tiles are transformed, multiplied, and transformed back.

A stride class (see `_tiles`) that meets up to 3 taps along an axis is a convolution of stride 1 by
itself, and its elements are computed four at a time along each axis, from up to 6 gradients. Each
tile of gradients becomes up to 36 points, these are multiplied and summed over the output channels
(one matrix product for each point), and the sums become 4x4 results: see `_winograd_forms`.

One of the two sides of the products is transformed beforehand, by all threads and for all: the
filter, or, where there are few tiles, the gradient. The other side is transformed by each task for
itself, and stays in the second-level cache while it meets all of the first: a run of tiles meets
the blocks of channels, or a block of channels the runs of tiles.

The transforms mix the elements of a tile: they would spread a NaN, an infinity or an overflow to
results that do not depend on it. Rows with a result that is not finite are therefore noted, and
computed again by the exact loops.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._geometry import Axis
from ._compile import helper, loop
from ._scalars import next_number
from ._winograd_filter import filter_room, transform_part
from ._winograd_forms import MOST_POINTS, evaluate_result, multiply, sizes
from ._winograd_gradient import gradient_room, transform_tiles
from ._winograd_sides import Side, first_of_tile, side_at


class Plan(NamedTuple):
    """Sizes and strides."""

    batch: int
    channels: int
    terms: int
    tiles: int  # tiles in a run, a multiple of the rows of a register tile
    point_step: int  # from the gradients of a point to those of the next, in a run
    sum_step: int
    blocks: int  # blocks of channels in all
    blocks_together: int  # blocks of channels in a task
    filter_shared: int  # or else the gradient
    chunk: int  # terms that a task transforms of its own filter at once
    sum_runs: int  # runs whose sums a task keeps
    shared_tasks: int
    tasks: int
    direct: int  # tiles are stored in the result as they are
    image_step: int
    row_step: int
    column_step: int
    channel_step: int


@helper
def _class_of_run(run: int, first_runs: Any) -> int:
    """Find the class of a run: the last one that starts there or before."""
    index = 0
    while first_runs[index + 1] <= run:
        index += 1
    return index


# Tables of addresses, for the two passes of a transform: from where, and to where.
_SUMS_AT, _FEW_TO, _FEW_AT, _VALUES_TO = range(4)


class ResultRoom(NamedTuple):
    """A thread's working memory, and tables of addresses."""

    tables: Any
    values: Any  # of a tile; then the same transformed along columns only
    sums: Any


@helper
def _result_room(plan: Plan, gradient: Any) -> ResultRoom:
    """Allocate the working memory."""
    _, width, _ = sizes(gradient)
    sums = np.empty(plan.sum_runs * MOST_POINTS * MOST_POINTS * plan.sum_step, gradient.dtype)
    values = np.empty((16 + 4 * MOST_POINTS) * width, gradient.dtype)
    tables = np.empty((4, MOST_POINTS, MOST_POINTS), np.int64)
    for i in range(4):
        for j in range(MOST_POINTS):
            at = values.ctypes.data + (16 + i * MOST_POINTS + j) * width * gradient.itemsize
            tables[_FEW_AT, i, j] = at
            tables[_FEW_TO, j, i] = at
    return ResultRoom(tables, values, sums)


@helper
def _multiply_run(
    plan: Plan,
    row_side: Side,
    col_side: Side,
    count: int,
    points: int,
    weights: int,
    terms: int,
    panel: int,
    add: int,
    gradient: Any,
    sums: int,
) -> None:
    """Multiply the points of a run of tiles with those of the filter for a block of channels.

    A point of the filter is `panel` bytes from the next.
    """
    height, width, step = sizes(gradient)
    size = gradient.itemsize
    row_bytes = (plan.terms + step - 1) // step * step * size
    sum_bytes = width * size
    high = (count + height - 1) // height
    for p in range(row_side.taps + 3):
        for q in range(col_side.taps + 3):
            # A single tap is the same weight at every point.
            row, col = min(p, row_side.filter_points - 1), min(q, col_side.filter_points - 1)
            factor = weights + (row * col_side.filter_points + col) * panel
            point = p * (col_side.taps + 3) + q
            at = points + point * plan.point_step * size
            to = sums + point * plan.sum_step * size
            for g in range(high):
                # Meanwhile, fetch a part of the next point's weights, or the next gradients.
                ahead, ahead_step = factor + panel + g * panel // high, sum_bytes // high
                if not plan.filter_shared:
                    ahead, ahead_step = at + (g + 1) * height * row_bytes, height * size
                    if g == high - 1:
                        ahead = at + plan.point_step * size
                multiply(
                    gradient, at + g * height * row_bytes, row_bytes, factor, terms,
                    to + g * height * sum_bytes, sum_bytes, add, ahead, ahead_step,
                )  # fmt: skip


@helper
def _write_tile(
    plan: Plan, values: Any, width: int, at: int, steps: tuple[int, int], tile: tuple[int, int],
    channel: int, result: Any,
) -> None:  # fmt: skip
    """Write a tile's results, as far as they lie in the image, from the element `at` on."""
    wanted = min(width, plan.channels - channel)
    for i in range(tile[0]):
        to = at + i * steps[0] + channel * plan.channel_step
        source = i * 4 * width
        # A plane at a time: its elements of a row share a cache line.
        for c in range(wanted):
            for j in range(tile[1]):
                result[to + j * steps[1]] = values[source + j * width + c]
            to += plan.channel_step


@helper
def _finish_run(
    plan: Plan,
    rows: Axis,
    cols: Axis,
    row_side: Side,
    col_side: Side,
    first: int,
    count: int,
    block: int,
    sums: int,
    room: ResultRoom,
    result: Any,
    bad: Any,
) -> None:
    """Turn sums into results; note rows that are not finite."""
    _, width, step = sizes(result)
    size = result.itemsize
    tables, values = room.tables, room.values
    table = np.int64(tables.ctypes.data)
    table_bytes = MOST_POINTS * MOST_POINTS * 8
    row_step, col_step = rows.cell_step * rows.stride, cols.cell_step * cols.stride
    steps = row_step * plan.row_step, col_step * plan.column_step
    channel = block * width
    store = plan.direct != 0 and channel + width <= plan.channels
    for p in range(row_side.taps + 3):
        for q in range(col_side.taps + 3):
            point = p * (col_side.taps + 3) + q
            tables[_SUMS_AT, q, p] = sums + point * plan.sum_step * size
    for t in range(count):
        tile = first + t
        tile_row, tile_col = tile // col_side.tiles % row_side.tiles, tile % col_side.tiles
        row, row_count, _ = first_of_tile(tile_row, row_side, rows)
        col, col_count, _ = first_of_tile(tile_col, col_side, cols)
        image = tile // (row_side.tiles * col_side.tiles)
        top = row_side.lead + row * rows.stride
        at = image * plan.image_step + top * plan.row_step
        at += (col_side.lead + col * cols.stride) * plan.column_step
        for i in range(4):
            for j in range(4):
                to = np.int64(values.ctypes.data) + (i * 4 + j) * width * size
                if store and j < col_count:
                    to = np.int64(result.ctypes.data)
                    to += (at + i * steps[0] + j * steps[1] + channel) * size
                tables[_VALUES_TO, i, j] = to
        evaluate_result(
            result, row_side.taps - 1, col_side.taps + 3, width // step,
            MOST_POINTS, table + _SUMS_AT * table_bytes, t * width * size,
            MOST_POINTS, table + _FEW_TO * table_bytes, 0,
        )  # fmt: skip
        wrong = evaluate_result(
            result, col_side.taps - 1, row_count, width // step,
            MOST_POINTS, table + _FEW_AT * table_bytes, 0,
            MOST_POINTS, table + _VALUES_TO * table_bytes, 0,
        )  # fmt: skip
        if wrong != 0:
            for i in range(row_count):
                if (wrong >> i) & 1:
                    bad[image * rows.input + top + i * row_step] = 1
        if not store:
            inside = row_count, col_count
            _write_tile(plan, values, width, at, steps, inside, channel, result)


@loop
def work(
    counter: Any,
    prepare: int,
    plan: Plan,
    rows: Axis,
    cols: Axis,
    row_sides: Any,
    col_sides: Any,
    first_runs: Any,
    first_points: Any,
    weights: Any,
    gradient: Any,
    shared: Any,
    finite: Any,
    result: Any,
    bad: Any,
) -> None:
    """Work on tasks until none is left: to `prepare` what is shared, then to make use of it.

    `first_runs` and `first_points` count the runs and the filter's points before each class. The
    shared filter becomes [class, block, point, term, channel], the shared gradient [run, point,
    tile, term]. Clears `finite` if a weight is not; `bad` notes rows of results that are not.
    """
    height, width, step = sizes(gradient)
    size, terms, tiles = gradient.itemsize, plan.terms, plan.tiles
    filters, gradients = filter_room(weights), gradient_room(terms, gradient)
    room, most = _result_room(plan, gradient), MOST_POINTS * MOST_POINTS
    panel, run_step = terms * width * size, most * plan.point_step
    sums_at, sums_step = np.int64(room.sums.ctypes.data), most * plan.sum_step * size
    own = np.empty(run_step if plan.filter_shared else most * plan.chunk * width, gradient.dtype)
    shared_at = np.int64(shared.ctypes.data)
    chunks, parts = (terms + step - 1) // step, tiles // height
    groups = (plan.blocks + plan.blocks_together - 1) // plan.blocks_together
    while True:
        task = next_number(counter.ctypes.data)
        if task >= (plan.shared_tasks if prepare else plan.tasks):
            break
        # Asked for in the loop: an array that is not used any more is given back.
        own_at = np.int64(own.ctypes.data)
        # Which blocks of channels, and which runs of tiles of a class.
        part, last_part, run, block = 0, parts, 0, 0
        if prepare and plan.filter_shared:
            index, block = task // (plan.blocks * chunks), task // chunks % plan.blocks
        elif prepare:
            run, part = task // parts, task % parts
            last_part = part + 1
            index = _class_of_run(run, first_runs)
        elif plan.filter_shared:
            run, block = task // groups, task % groups * plan.blocks_together
            index = _class_of_run(run, first_runs)
        else:
            index, block = task // plan.blocks, task % plan.blocks
        row_side = side_at(row_sides, index // len(col_sides))
        col_side = side_at(col_sides, index % len(col_sides))
        filter_points = row_side.filter_points * col_side.filter_points
        first_panel = first_points[index] * plan.blocks
        first_run, all_tiles = first_runs[index], plan.batch * row_side.tiles * col_side.tiles
        if prepare != plan.filter_shared:
            to = own_at
            if prepare:
                to = shared_at + (run * run_step + part * height * chunks * step) * size
            first = (run - first_run) * tiles + part * height
            count = min((last_part - part) * height, all_tiles - first)
            transform_tiles(
                rows, cols, row_side, col_side, first, count, terms, gradient, gradients, to,
                plan.point_step * size,
            )  # fmt: skip
            if prepare:
                continue
        for start in range(0, terms, plan.chunk):
            now = min(plan.chunk, terms - start)
            factors, apart = own_at, now * width * size
            if prepare == plan.filter_shared:
                term, last_term = start, start + now
                if prepare:
                    term = task % chunks * step
                    last_term = term + 1
                    factors = shared_at + (first_panel + block * filter_points) * panel
                for o in range(term, last_term, step):
                    wrong = transform_part(
                        rows, cols, row_side, col_side, plan.channels, terms, block, o, weights,
                        filters, factors + (o - start) * width * size, apart,
                    )  # fmt: skip
                    if wrong != 0:
                        finite[0] = 0
            if prepare:
                continue
            last_run, last_block = run + 1, min(block + plan.blocks_together, plan.blocks)
            if not plan.filter_shared:
                run, last_run, last_block = first_run, first_runs[index + 1], block + 1
            for r in range(run, last_run):
                first = (r - first_run) * tiles
                count = min(tiles, all_tiles - first)
                points, to = own_at, sums_at
                if not plan.filter_shared:
                    points = shared_at + (r * run_step + start) * size
                    to += (r - first_run) % plan.sum_runs * sums_step
                for b in range(block, last_block):
                    if plan.filter_shared:
                        factors = shared_at + (first_panel + b * filter_points) * panel
                    _multiply_run(
                        plan, row_side, col_side, count, points, factors, now, apart, start,
                        gradient, to,
                    )  # fmt: skip
                    if start + now == terms:
                        _finish_run(
                            plan, rows, cols, row_side, col_side, first, count, b, to, room,
                            result, bad,
                        )  # fmt: skip
