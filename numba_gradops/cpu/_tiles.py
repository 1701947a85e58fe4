"""Tile programs: which gradient elements and which weights make up a tile of result pixels.

The pixels of one stride class (equal row and column modulo the strides) meet the same filter taps,
and from one pixel of a class to the next the gradient position moves by one. So a class is a
smaller image; its pixels, counted through all images of the batch, are cut into tiles. What the
taps of a tile reach is written down as the table that the register tiles of `_microkernel` read.

Tables are made when a tile is computed, by the thread that computes it: nothing is kept by shape,
and the memory does not grow with the image.
"""

from __future__ import annotations

from typing import Any

from .._geometry import Axis
from ._compile import helper


@helper
def stride_class(lead: int, axis: Axis) -> tuple[int, int, int]:
    """Give the first tap that meets class `lead`, the number of such taps, and the first cell.

    Element ``lead + i * stride`` of the class meets tap ``tap + j * tap_step`` at gradient element
    ``cell + i - j * cell_step``, where that exists.
    """
    shared = axis.stride // axis.tap_step
    reach = lead + axis.pad
    if reach % shared != 0:
        return 0, 0, 0
    tap = (reach // shared) % axis.tap_step * axis.inverse % axis.tap_step
    if tap >= axis.window:
        return 0, 0, 0
    taps = (axis.window - 1 - tap) // axis.tap_step + 1
    return tap, taps, (reach - tap * axis.dilation) // axis.stride


@helper
def _reached(cell: int, axis: Axis, taps: int) -> tuple[int, int]:
    """Give the range of taps j for which ``cell - j * cell_step`` is a gradient element."""
    step = axis.cell_step
    if step == 1:  # without two divisions
        return max(0, cell - axis.output + 1), min(taps, max(0, cell + 1))
    first = 0
    if cell >= axis.output:
        first = (cell - axis.output) // step + 1
    last = 0
    if cell >= 0:
        last = min(taps, cell // step + 1)
    return first, last


@helper
def place_pixels(
    first: int,
    pixels: int,
    plan: Any,
    rows: Axis,
    cols: Axis,
    row_class: tuple[int, int, int, int, int],
    col_class: tuple[int, int, int, int, int],
    gradient: int,
    bases: Any,
    places: Any,
    reach: Any,
) -> int:
    """Note where the gradients and results of a tile's pixels lie, and which taps reach them.

    A class is (lead, elements, taps, tap, cell). Returns how many pixels there are; the rest of the
    tile reaches nothing.
    """
    row_lead, row_count, row_taps, _, row_cell = row_class
    col_lead, col_count, col_taps, _, col_cell = col_class
    here: int = min(pixels, plan.batch * row_count * col_count - first)
    image = first // (row_count * col_count)
    i = first // col_count % row_count
    j = first % col_count
    for p in range(pixels):
        if p >= here:
            reach[p, 0] = reach[p, 1] = reach[p, 2] = reach[p, 3] = 0
            bases[p] = gradient
            continue
        y, x = row_cell + i, col_cell + j
        cell = (image * rows.output + y) * cols.output + x
        bases[p] = gradient + cell * plan.cell_bytes
        places[p] = (
            image * plan.image_step
            + (row_lead + i * rows.stride) * plan.row_step
            + (col_lead + j * cols.stride) * plan.column_step
        )
        reach[p, 0], reach[p, 1] = _reached(y, rows, row_taps)
        reach[p, 2], reach[p, 3] = _reached(x, cols, col_taps)
        j += 1
        if j == col_count:
            j = 0
            i += 1
            if i == row_count:
                i = 0
                image += 1
    return here


@helper
def write_entries(
    pixels: int,
    plan: Any,
    rows: Axis,
    cols: Axis,
    row_tap: int,
    row_taps: int,
    col_tap: int,
    col_taps: int,
    reach: Any,
    masks: Any,
    entries: Any,
) -> int:
    """Write a tile's table; return the number of entries."""
    for m in range(col_taps):
        bits = 0
        for p in range(pixels):
            if reach[p, 2] <= m < reach[p, 3]:
                bits |= 1 << p
        masks[m] = bits
    count = 0
    segment = 0
    for k in range(row_taps):
        row_bits = 0
        for p in range(pixels):
            if reach[p, 0] <= k < reach[p, 1]:
                row_bits |= 1 << p
        if row_bits == 0:
            continue
        for m in range(col_taps):
            bits = row_bits & masks[m]
            if bits == 0:
                continue
            tap = (row_tap + k * rows.tap_step) * cols.window + col_tap + m * cols.tap_step
            shift = -(k * rows.cell_step * cols.output + m * cols.cell_step) * plan.cell_bytes
            for start in range(0, plan.terms, plan.chunk):
                # Where a sum is cut depends on the filter alone: a pixel's bits must not depend on
                # the other pixels of its tile.
                now = ((k * col_taps + m) * plan.terms + start) // plan.segment
                if count > 0 and now != segment:
                    entries[count - 1, 3] = -entries[count - 1, 3]
                segment = now
                entries[count, 0] = tap * plan.tap_bytes + start * plan.term_bytes
                entries[count, 1] = shift + start * plan.element_bytes
                entries[count, 2] = bits
                entries[count, 3] = min(plan.chunk, plan.terms - start)
                count += 1
    return count
