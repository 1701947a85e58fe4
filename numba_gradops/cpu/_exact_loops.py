"""The loops of conv2d_backprop_input: each result pixel is gathered, once, by one thread.

Arrays arrive flat and contiguous, so that one compilation serves every layout; offsets are int64.
Filter taps that fall into the padding are never multiplied, so a NaN or infinity reaches just the
elements that depend on it. Sums are formed in an order that depends on the geometry alone.

There are three ways through the channels, for the three kinds of layers:

* lanes along the input channels (`CHANNELS`), weights as [group, tap, out, in]: many channels;
* lanes along the output channels (`DOT`), weights as [tap, in, out] like the filter itself: few
  input channels, as in first layers;
* lanes along the groups (`DEPTHWISE`), weights like the filter itself: one input channel a group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from .._geometry import Axis
from .._geometry import first_contribution as _first_contribution
from ._compile import helper, loop, sum_in_any_order
from ._halves import put
from ._plans import reader
from ._scalars import next_number

CHANNELS, DOT, DEPTHWISE = range(3)

# Neighbouring pixels of one stride class that use the same taps are computed together, so that
# a weight is loaded once for all of them.
PIXELS = 4

# After this many products a partial sum moves to the total, which is float64 for floats: so the
# rounding errors of a long sum are those of a short one.
PARTIAL = 128


class Layout(NamedTuple):
    """What the loops need to know beside the two axes; strides are of the result, in elements."""

    tasks: int
    form: int
    groups: int
    group_in: int
    group_out: int
    column_blocks: int
    column_block: int
    image_step: int
    row_step: int
    column_step: int
    channel_step: int


_read_plan = reader(Layout, Axis, Axis)

first_contribution = helper(_first_contribution)


@helper
def _add_pixel(
    partial: Any, gradient: Any, at: int, weights: Any, weights_at: int, terms: int, lanes: int
) -> None:
    """Add to partial[c] the sum over o of gradient[o] * weights[o, c], for one pixel."""
    for o in range(terms):
        g = gradient[at + o]
        row = weights_at + o * lanes
        for c in range(lanes):
            partial[c] += g * weights[row + c]


@helper
def _add_pixels(
    partial: Any,
    gradient: Any,
    at: int,
    step: int,
    weights: Any,
    weights_at: int,
    terms: int,
    lanes: int,
) -> None:
    """Do the same for `PIXELS` pixels, whose gradients lie `step` apart."""
    for o in range(terms):
        g0, g1 = gradient[at + o], gradient[at + step + o]
        g2, g3 = gradient[at + 2 * step + o], gradient[at + 3 * step + o]
        row = weights_at + o * lanes
        for c in range(lanes):
            w = weights[row + c]
            partial[c] += g0 * w
            partial[lanes + c] += g1 * w
            partial[2 * lanes + c] += g2 * w
            partial[3 * lanes + c] += g3 * w


def _zero_totals(weights: Any, count: int) -> Any:
    """Allocate totals: float64 for floats; int64 for integers, which then wrap around once."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_zero_totals)  # type: ignore[untyped-decorator]
def _zero_totals_compiled(weights: Any, count: Any) -> Any:
    dtype = np.int64 if isinstance(weights.dtype, types.Integer) else np.float64

    def zeros(weights: Any, count: Any) -> Any:
        return np.zeros(count, dtype)

    return zeros


@helper
def _move(partial: Any, total: Any, count: int) -> None:
    for i in range(count):
        total[i] += partial[i]
        partial[i] = 0


@helper
def _gather_channels(
    rows: Axis,
    cols: Axis,
    layout: Layout,
    row_reach: tuple[int, int, int],
    col_reach: tuple[int, int, int],
    pixels: int,
    group: int,
    weights: Any,
    gradient: Any,
    partial: Any,
    total: Any,
) -> None:
    """Sum up one group of 1 or `PIXELS` pixels, lanes along the group's input channels."""
    row_tap, row_cell, row_count = row_reach
    col_tap, col_cell, col_count = col_reach
    lanes, terms = layout.group_in, layout.group_out
    step = layout.groups * terms
    pending = 0
    for i in range(row_count):
        tap_row = (row_tap + i * rows.tap_step) * cols.window
        cell_row = (row_cell - i * rows.cell_step) * cols.output
        for j in range(col_count):
            tap = group * rows.window * cols.window + tap_row + col_tap + j * cols.tap_step
            at = (cell_row + col_cell - j * cols.cell_step) * step + group * terms
            for o in range(0, terms, PARTIAL):
                some = min(PARTIAL, terms - o)
                weights_at = (tap * terms + o) * lanes
                if pixels == 1:
                    _add_pixel(partial, gradient, at + o, weights, weights_at, some, lanes)
                else:
                    _add_pixels(partial, gradient, at + o, step, weights, weights_at, some, lanes)
                pending += some
                if pending >= PARTIAL:
                    _move(partial, total, pixels * lanes)
                    pending = 0
    _move(partial, total, pixels * lanes)


@sum_in_any_order
def _dot(gradient: Any, at: int, weights: Any, weights_at: int, terms: int) -> Any:
    total = gradient.dtype.type(0)
    for o in range(terms):
        total += gradient[at + o] * weights[weights_at + o]
    return total


@helper
def _gather_terms(
    rows: Axis,
    cols: Axis,
    layout: Layout,
    row_reach: tuple[int, int, int],
    col_reach: tuple[int, int, int],
    weights: Any,
    gradient: Any,
    total: Any,
) -> None:
    """Sum up one pixel, lanes along the output channels or, for depthwise, along the groups."""
    row_tap, row_cell, row_count = row_reach
    col_tap, col_cell, col_count = col_reach
    lanes, terms = layout.group_in, layout.group_out
    step = layout.groups * terms
    for i in range(row_count):
        tap_row = (row_tap + i * rows.tap_step) * cols.window
        cell_row = (row_cell - i * rows.cell_step) * cols.output
        for j in range(col_count):
            tap = tap_row + col_tap + j * cols.tap_step
            at = (cell_row + col_cell - j * cols.cell_step) * step
            if layout.form == DOT:
                for group in range(layout.groups):
                    first = group * terms
                    for c in range(lanes):
                        weights_at = (tap * lanes + c) * step + first
                        total[group * lanes + c] += _dot(
                            gradient, at + first, weights, weights_at, terms
                        )
            elif terms == 1:
                for group in range(layout.groups):
                    total[group] += gradient[at + group] * weights[tap * step + group]
            else:
                for group in range(layout.groups):
                    for o in range(group * terms, (group + 1) * terms):
                        total[group] += gradient[at + o] * weights[tap * step + o]


@helper
def _write(
    result: Any, at: int, pixels: int, pixel_step: int, lanes: int, channel_step: int, total: Any
) -> None:
    for p in range(pixels):
        for c in range(lanes):
            put(result, at + p * pixel_step + c * channel_step, total[p * lanes + c])


@loop
def gather(counter: Any, plan: Any, weights: Any, gradient: Any, result: Any) -> None:
    """Compute blocks of result pixels, counted by image, row and block, until none is left."""
    layout, rows, cols = _read_plan(plan)
    by_channels = layout.form == CHANNELS
    rounds = layout.groups if by_channels else 1
    lanes = layout.group_in * layout.groups // rounds
    pixel_step = cols.stride * layout.column_step
    image_cells = rows.output * cols.output * layout.groups * layout.group_out
    total = _zero_totals(weights, PIXELS * lanes)
    partial = np.zeros(PIXELS * lanes, weights.dtype)
    while True:
        task = next_number(counter.ctypes.data)
        if task >= layout.tasks:
            break
        image = task // layout.column_blocks // rows.input
        row = task // layout.column_blocks % rows.input
        left = task % layout.column_blocks * layout.column_block
        right = min(left + layout.column_block, cols.input)
        cells = gradient[image * image_cells : (image + 1) * image_cells]
        row_reach = first_contribution(row, rows)
        # One stride class after another: the pixels of a class meet the same taps.
        for lead in range(left, min(left + cols.stride, right)):
            col = lead
            while col < right:
                col_reach = first_contribution(col, cols)
                pixels = 1
                far = col + (PIXELS - 1) * cols.stride
                if by_channels and far < right and col_reach[2] > 0:
                    far_reach = first_contribution(far, cols)
                    # Equal at both ends, the taps are equal in between; only the cells move on.
                    if far_reach[0] == col_reach[0] and far_reach[2] == col_reach[2]:
                        pixels = PIXELS
                at = image * layout.image_step + row * layout.row_step + col * layout.column_step
                for group in range(rounds):
                    total[:] = 0
                    if by_channels:
                        _gather_channels(
                            rows,
                            cols,
                            layout,
                            row_reach,
                            col_reach,
                            pixels,
                            group,
                            weights,
                            cells,
                            partial,
                            total,
                        )
                    else:
                        _gather_terms(
                            rows, cols, layout, row_reach, col_reach, weights, cells, total
                        )
                    into = at + group * lanes * layout.channel_step
                    _write(result, into, pixels, pixel_step, lanes, layout.channel_step, total)
                col += pixels * cols.stride
