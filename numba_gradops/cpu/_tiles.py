"""Tile programs: which gradient elements and which weights make up a tile of result pixels.

The pixels of one stride class (equal row and column modulo the strides) meet the same filter taps,
and from one pixel of a class to the next the gradient position moves by one. So a class is a
smaller image; its pixels, counted through all images of the batch, are cut into tiles. What the
taps of a tile reach is written down as the table that the register tiles of `_microkernel` read.

Tables are made when a tile is computed, by the thread that computes it: nothing is kept by shape,
and the memory does not grow with the image. A tile whose pixels are all reached by all taps of
their class has the same table as any other such tile, and one that lacks only columns the same as
those that begin at the same column: a few tables are remembered while a class lasts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .._geometry import Axis
from ._compile import helper, loop
from ._microkernel import CARRY, FIRST_CARRY, FIRST_MOVE, MOVE

# Segments of a sum whose totals are, in turn, carried to the grand totals.
_SEGMENTS = 32


class ClassAxis(NamedTuple):
    """One axis of a stride class.

    Element ``lead + i * stride`` of the class meets tap ``tap + j * tap_step`` at gradient element
    ``cell + i - j * cell_step``, where that exists; it exists for every j where ``full_first <= i <
    full_last``.
    """

    lead: int
    elements: int
    tap: int
    taps: int
    cell: int
    full_first: int
    full_last: int


@helper
def tap_place(tap: int, axis: Axis) -> int:
    """Give the place of a tap in the packed weights.

    Taps of a class lie side by side, the last one first: in the order of the gradient elements.
    """
    first, number = tap % axis.tap_step, tap // axis.tap_step
    each, longer = axis.window // axis.tap_step, axis.window % axis.tap_step
    taps = each + (1 if first < longer else 0)
    return first * each + min(first, longer) + taps - 1 - number


@helper
def stride_class(lead: int, axis: Axis) -> ClassAxis:
    """Describe the class of the elements ``lead + i * stride``."""
    count = (axis.input - lead - 1) // axis.stride + 1
    shared = axis.stride // axis.tap_step
    reach = lead + axis.pad
    tap = axis.window
    if reach % shared == 0:
        tap = (reach // shared) % axis.tap_step * axis.inverse % axis.tap_step
    if tap >= axis.window:
        return ClassAxis(lead, count, 0, 0, 0, 0, count)
    taps = (axis.window - 1 - tap) // axis.tap_step + 1
    cell = (reach - tap * axis.dilation) // axis.stride
    full_first = max(0, (taps - 1) * axis.cell_step - cell)
    full_last = min(count, axis.output - cell)
    return ClassAxis(lead, count, tap, taps, cell, full_first, full_last)


@helper
def class_tiles(pixels: int, tile: int, group: int, groups: int) -> tuple[int, int]:
    """Give the tiles of a class that belong to a group, one of `groups`: the first, and behind."""
    tiles = (pixels + tile - 1) // tile
    return tiles * group // groups, tiles * (group + 1) // groups


@helper
def _cell_number(image: int, y: int, x: int, rows: Axis, cols: Axis) -> int:
    """Count the cells before one; one outside of the image counts as the nearest end of a row."""
    if y < 0 or y >= rows.output:
        return (image + (0 if y < 0 else 1)) * rows.output * cols.output
    return (image * rows.output + y) * cols.output + min(max(x, 0), cols.output)


@helper
def reached_cells(
    batch: int, classes: int, class_columns: int, rows: Axis, cols: Axis,
    tile: int, group: int, groups: int,
) -> tuple[int, int]:  # fmt: skip
    """Give a range that holds all cells that a group of tiles reaches: the first, and behind."""
    low, high = batch * rows.output * cols.output, 0
    for index in range(classes):
        row_class = stride_class(index // class_columns, rows)
        col_class = stride_class(index % class_columns, cols)
        in_image = row_class.elements * col_class.elements
        first, last = class_tiles(batch * in_image, tile, group, groups)
        start, stop = first * tile, min(last * tile, batch * in_image)
        if start >= stop or row_class.taps == 0 or col_class.taps == 0:
            continue
        # The last tap of the first pixel, and the first tap of the last pixel.
        y = row_class.cell + start % in_image // col_class.elements
        x = col_class.cell + start % col_class.elements
        y -= (row_class.taps - 1) * rows.cell_step
        x -= (col_class.taps - 1) * cols.cell_step
        low = min(low, _cell_number(start // in_image, y, x, rows, cols))
        stop -= 1
        y = row_class.cell + stop % in_image // col_class.elements
        x = col_class.cell + stop % col_class.elements + 1
        high = max(high, _cell_number(stop // in_image, y, x, rows, cols))
    return low, max(low, high)


@loop
def most_reached_cells(
    batch: int, classes: int, class_columns: int, rows: Axis, cols: Axis, tile: int, groups: int
) -> int:
    """Give the size of the largest range of `reached_cells`."""
    most = 0
    for group in range(groups):
        low, high = reached_cells(batch, classes, class_columns, rows, cols, tile, group, groups)
        most = max(most, high - low)
    return most


@helper
def place_pixels(
    at: tuple[int, int, int],
    here: int,
    pixels: int,
    plan: Any,
    rows: Axis,
    cols: Axis,
    row_class: ClassAxis,
    col_class: ClassAxis,
    bases: Any,
    places: Any,
    first_place: int,
    place_bytes: int,
    runs: Any,
) -> tuple[tuple[int, int, int], int, bool, bool]:
    """Note where the gradients and results of a tile's pixels lie.

    Offsets in the gradient are in bytes; `places` in the result, from number `first_place` on, in
    elements of `place_bytes`. `at` is the image, row and column of the first of the `here` pixels.
    Returns that of the next tile, the number of runs of pixels in one row (noted in `runs`: first
    pixel, pixels, gradient row and column), whether all taps reach all pixels, and whether they
    would if rows of gradients had no ends. What the tile lacks is filled with its last pixel, which
    is then computed and stored more than once.
    """
    image, i, j = at
    rows_full = cols_full = True
    count = base = place = 0
    first = 0  # pixel of the run
    column_step = cols.stride * plan.column_step * place_bytes
    for p in range(here):
        if p == first:  # a run begins
            y, x = row_class.cell + i, col_class.cell + j
            run = min(here - p, col_class.elements - j)
            rows_full = rows_full and row_class.full_first <= i and i < row_class.full_last
            cols_full = cols_full and col_class.full_first <= j and j + run <= col_class.full_last
            runs[count, 0], runs[count, 1], runs[count, 2], runs[count, 3] = p, run, y, x
            count += 1
            base = ((image * rows.output + y) * cols.output + x) * plan.cell_bytes
            place = place_bytes * (
                image * plan.image_step
                + (row_class.lead + i * rows.stride) * plan.row_step
                + (col_class.lead + j * cols.stride) * plan.column_step
            )
            first += run
            j += run
            if j == col_class.elements:
                j = 0
                i += 1
                if i == row_class.elements:
                    i = 0
                    image += 1
        bases[p] = base
        places[first_place + p] = place
        base += plan.cell_bytes
        place += column_step
    # The last run goes on to the end, as far as the table is concerned.
    for q in range(here, pixels):
        bases[q] = bases[here - 1]
        places[first_place + q] = places[first_place + here - 1]
    return (image, i, j), count, rows_full and cols_full, rows_full


@helper
def _reached(first: int, run: int, cell: int, output: int) -> int:
    """Give the mask of the pixels of a run whose cells, from `cell` on, exist."""
    low, high = min(run, max(0, -cell)), max(0, min(run, output - cell))
    return (1 << (first + high)) - (1 << (first + low)) if low < high else 0


@helper
def write_entries(
    full: bool,
    pixels: int,
    here: int,
    count: int,
    plan: Any,
    rows: Axis,
    cols: Axis,
    row_class: ClassAxis,
    col_class: ClassAxis,
    runs: Any,
    masks: Any,
    entries: Any,
) -> tuple[int, int]:
    """Write the table of a tile with `count` runs; return its entries, and which totals they leave.

    Where sums are moved depends on the filter alone: a pixel's bits must not depend on the other
    pixels of its tile.
    """
    row_place, col_place = tap_place(row_class.tap, rows), tap_place(col_class.tap, cols)
    all_pixels = (1 << pixels) - 1
    last = (all_pixels >> (here - 1)) << (here - 1)  # the last pixel and those that repeat it
    for m in range(col_class.taps):
        bits = all_pixels if full else 0
        for r in range(0 if full else count):
            cell = runs[r, 3] - m * cols.cell_step
            bits |= _reached(runs[r, 0], runs[r, 1], cell, cols.output)
        masks[m] = bits | last if bits >> (here - 1) else bits
    row_terms = col_class.taps * plan.terms
    rows_together = segments_of_row = 1
    if row_terms > plan.segment:
        segments_of_row = (row_terms - 1) // plan.segment + 1
    elif row_terms > 0:
        rows_together = plan.segment // row_terms
    written = left = segment = 0
    for k in range(row_class.taps - 1, -1, -1):
        row_bits = all_pixels if full else 0
        for r in range(0 if full else count):
            cell = runs[r, 2] - k * rows.cell_step
            if cell >= 0 and cell < rows.output:
                row_bits |= ((1 << runs[r, 1]) - 1) << runs[r, 0]
        row_bits = row_bits | last if row_bits >> (here - 1) else row_bits
        if row_bits == 0:
            continue
        row_segment = (row_class.taps - 1 - k) // rows_together * segments_of_row
        merges = False  # the first entry of a row does not continue one of another row
        for m in range(col_class.taps - 1, -1, -1):
            bits = row_bits & masks[m]
            if bits == 0:
                merges = False
                continue
            place = (row_place - k) * cols.window + col_place - m
            shift = -(k * rows.cell_step * cols.output + m * cols.cell_step) * plan.cell_bytes
            for start in range(0, plan.terms, plan.chunk):
                terms = min(plan.chunk, plan.terms - start)
                now = row_segment
                if row_terms > plan.segment:
                    now += ((col_class.taps - 1 - m) * plan.terms + start) // plan.segment
                if written > 0 and now != segment:
                    flags = MOVE | (0 if left & 1 else FIRST_MOVE)
                    left |= 1
                    if now // _SEGMENTS != segment // _SEGMENTS:
                        flags |= CARRY | (0 if left & 2 else FIRST_CARRY)
                        left = 2
                    entries[written - 1, 2] |= flags
                    merges = False
                segment = now
                if merges and entries[written - 1, 2] == bits:
                    longer = entries[written - 1, 3] + terms
                    if longer <= plan.longest:
                        entries[written - 1, 3] = longer
                        continue
                entries[written, 0] = place * plan.tap_bytes + start * plan.term_bytes
                entries[written, 1] = shift + start * plan.element_bytes
                entries[written, 2] = bits
                entries[written, 3] = terms
                written += 1
                merges = plan.merges != 0
    return written, left
