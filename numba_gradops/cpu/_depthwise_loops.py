"""The loops of depthwise convolutions: rows of results, of which all channels are computed at once.

Lanes are channels, as they lie in memory. The pixels of a row that meet the same taps lie at a
constant distance, and so do their gradients; all but those near the ends of the row are reached by
all taps of their class. So there is a list of taps for each class, and no table of pixels. Taps
that reach no gradient are not in the list: nothing is multiplied with padding, and weights need not
be finite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._geometry import Axis
from ._compile import helper, loop
from ._depthwise_kernel import ENTRY, taps_of_pixels
from ._scalars import next_number
from ._tiles import ClassAxis, stride_class

# Pixels that are computed together: enough sums, of two vectors each, to hide how long a product
# takes, and few enough rows of gradients for the ways of the first-level cache.
_PIXELS = 4

_many_pixels, _one_pixel = taps_of_pixels(_PIXELS), taps_of_pixels(1)


class Plan(NamedTuple):
    """Sizes, and how the work is cut up."""

    batch: int
    channels: int
    strip: int  # rows of a task
    parts: int  # that these are cut into
    tasks: int


@helper
def _reaching(position: int, taps: int, axis: Axis) -> tuple[int, int]:
    """Give the taps of a class that reach a gradient cell: the first, and behind the last.

    Tap number 0 of the class would reach the cell at `position`.
    """
    first = max(0, -(-(position - axis.output + 1) // axis.cell_step))
    behind = min(taps, position // axis.cell_step + 1)
    return first, max(first, behind)


@helper
def _write_entries(
    first: int,
    behind: int,
    row_class: ClassAxis,
    col_class: ClassAxis,
    rows: Axis,
    cols: Axis,
    cell_bytes: int,
    tap_bytes: int,
    entries: Any,
) -> None:
    """List the taps of a class by columns, so that those of neighbouring columns are neighbours."""
    number = 0
    for m in range(col_class.taps - 1, -1, -1):
        for k in range(behind - 1, first - 1, -1):
            tap = (row_class.tap + k * rows.tap_step) * cols.window
            tap += col_class.tap + m * cols.tap_step
            shift = k * rows.cell_step * cols.output + m * cols.cell_step
            entries[number, 0] = -shift * cell_bytes
            entries[number, 1] = tap * tap_bytes
            number += 1


@loop
def gather(
    counter: Any, plan: Plan, rows: Axis, cols: Axis, weights: Any, gradient: Any, result: Any
) -> None:
    """Compute strips of rows until none is left."""
    cell_bytes, tap_bytes = plan.channels * gradient.itemsize, plan.channels * weights.itemsize
    pixel_bytes = plan.channels * result.itemsize
    step = cols.stride * pixel_bytes
    like = gradient[0], weights[0], result[0]
    weights_at = np.int64(weights.ctypes.data)
    row_classes, col_classes = min(rows.stride, rows.input), min(cols.stride, cols.input)
    taps = rows.window * cols.window
    entries = np.empty((row_classes * col_classes, taps, ENTRY), np.int64)
    known = np.full((row_classes * col_classes, 2), -1)  # range of the rows' taps
    while True:
        task = next_number(counter.ctypes.data)
        if task >= plan.tasks:
            break
        strip, part = task // plan.parts, task % plan.parts
        last_row = min((strip + 1) * plan.strip, plan.batch * rows.input)
        for row in range(strip * plan.strip, last_row):
            image, y = row // rows.input, row % rows.input
            row_class = stride_class(y % rows.stride, rows)
            cell_row = row_class.cell + y // rows.stride
            first, behind = _reaching(cell_row, row_class.taps, rows)
            for lead in range(col_classes):
                col_class = stride_class(lead, cols)
                table = y % rows.stride * col_classes + lead
                if known[table, 0] != first or known[table, 1] != behind:
                    known[table, 0], known[table, 1] = first, behind
                    _write_entries(
                        first,
                        behind,
                        row_class,
                        col_class,
                        rows,
                        cols,
                        cell_bytes,
                        tap_bytes,
                        entries[table],
                    )
                list_at = np.int64(entries.ctypes.data) + table * taps * ENTRY * entries.itemsize
                count = (behind - first) * col_class.taps
                cell = (image * rows.output + cell_row) * cols.output + col_class.cell
                cells_at = np.int64(gradient.ctypes.data) + cell * cell_bytes
                to = np.int64(result.ctypes.data) + (row * cols.input + lead) * pixel_bytes
                # Pixels that all taps reach, and that a tile can be made of.
                left = right = 0
                if count == 0:
                    right = col_class.elements
                else:
                    left = min(max(col_class.full_first, 0), col_class.elements)
                    right = max(left, min(col_class.full_last, col_class.elements))
                # And that this task computes.
                begin = col_class.elements * part // plan.parts
                end = col_class.elements * (part + 1) // plan.parts
                left = min(max(left, begin), end)
                right = max(left, min(right, end))
                if right - left < _PIXELS:
                    right = left
                for j in range(left, right, _PIXELS):
                    # The last tile may begin within the one before it.
                    at = min(j, right - _PIXELS)
                    there = cells_at + at * cell_bytes, weights_at, to + at * step
                    _many_pixels(*like, list_at, count, *there, cell_bytes, step, plan.channels)
                for side in range(2):
                    for j in range(right if side else begin, end if side else left):
                        low, high = _reaching(col_class.cell + j, col_class.taps, cols)
                        skipped = (col_class.taps - high) * (behind - first)
                        some = (high - low) * (behind - first)
                        list_from = list_at + skipped * ENTRY * entries.itemsize
                        there = cells_at + j * cell_bytes, weights_at, to + j * step
                        _one_pixel(*like, list_from, some, *there, cell_bytes, step, plan.channels)
    # Numba takes memory back after the last use that it sees, and it does not see addresses.
    known[0, 0] = entries[0, 0, 0]
