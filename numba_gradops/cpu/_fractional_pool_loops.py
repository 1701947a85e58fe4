"""The loops of fractional_avg_pool_grad: each result element is gathered, once, by one thread.

TensorFlow's arithmetic to the bit: each gradient is divided by the size of its cell in float64,
an element adds its terms by ascending cell row and column to +0.0, and the sum is cast once.

These loops are for the sequences of the forward op: cells in order, which leave no gap, and of
which neighbours share one row or column at most (`_irregular_pool_loops` takes all others). They
work on a panel of columns at a time, so that what they keep stays in the caches:

1. a gradient row is divided, once: a row of *shares*, to which +0.0 has been added;
2. where cells overlap, the shares of two columns and two rows are added up. Where there is only
   one, the other is a column of zeros: it changes nothing, since no share is -0.0;
3. the sums are cast;
4. a column is repeated as often as pixels are alike, and so is the row.

Division. x / n is rounded to nearest from x * (high + low), where high is 1 / n rounded down and
low, above zero, is what is missing: the product misses x / n by less than 2**-104 of it. A quotient
that is not a float64 keeps 2**-54 / n of itself from every number at which rounding changes
(Brisebarre and Muller, Correctly rounded multiplication by arbitrary precision constants, 2008), so
for cells of less than 2**40 elements the result is that of the division. Infinity and NaN come out
as they should, and so do zeros, because both factors are above zero. Where a product could be
subnormal, division it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._compile import helper, loop
from ._plans import reader
from ._pool_columns import FEW, FUSED, WIDTH, add, copy_row, divide, place, split_reciprocal
from ._scalars import copy_bytes, finish_streams, next_number

# Elements behind the end of a row that columns may write to.
_ROOM = 64
# Cells of fewer elements are divided by way of reciprocals.
CELL_LIMIT = 2**40


class Plan(NamedTuple):
    """Sizes, and how the work is cut up."""

    tasks: int
    rows: int
    cols: int
    cell_rows: int
    cell_cols: int
    depth: int
    shared_rows: int  # 1 if a cell includes the first row of the next one
    shared_cols: int
    strip: int  # rows of a task
    panel: int  # columns of a task
    part: int  # channels of a task: all, or those of a panel of one column
    streams: int  # places in the result that threads work at
    past_caches: int  # 1: results are stored past the caches


_read_plan = reader(Plan)


@helper
def first_above(values: Any, number: int) -> int:
    """Find the first entry of ascending `values` that is larger than `number`."""
    low, high = 0, values.size
    while low < high:
        middle = (low + high) // 2
        if values[middle] > number:
            high = middle
        else:
            low = middle + 1
    return low


@loop
def gather(
    counter: Any,
    numbers: Any,
    row_starts: Any,
    col_starts: Any,
    gradient: Any,
    result: Any,
) -> None:
    """Compute tasks, strips of rows times panels of columns, until none is left."""
    (plan,) = _read_plan(numbers)
    tasks = plan.tasks
    # Not in helpers: handing arrays to a function counts references, which threads fight over.
    depth, cell_cols = plan.depth, plan.cell_cols
    itemsize = result.itemsize
    like_source, like_target = gradient[0], result[0]
    pixel_bytes = depth * itemsize
    row_bytes = plan.cols * pixel_bytes
    parts = (depth + plan.part - 1) // plan.part
    panels = (plan.cols + plan.panel - 1) // plan.panel
    strips = (plan.rows + plan.strip - 1) // plan.strip
    gradient_at, result_at = np.int64(gradient.ctypes.data), np.int64(result.ctypes.data)
    # Columns that are whole vectors can be written where they belong at once; past the caches, only
    # if vectors begin at multiples of their width there.
    direct = parts == 1 and pixel_bytes % WIDTH == 0
    direct &= plan.past_caches == 0 or result_at % WIDTH == 0

    # A gradient row, and two rows of shares behind a column of zeros each; at cache lines.
    zeros = (plan.part + _ROOM) // 8 * 8
    shares = (zeros + (plan.panel + 1) * plan.part + _ROOM) // 8 * 8
    work = np.zeros(3 * shares + 8, np.float64)
    work_at = (np.int64(work.ctypes.data) + 63) // 64 * 64
    # The sums after the cast, and a result row.
    finals = (plan.panel * plan.part + _ROOM * 8 // itemsize + 63) // 64 * 64
    final = np.empty(2 * finals + 64, result.dtype)
    final_at = (np.int64(final.ctypes.data) + 63) // 64 * 64
    image_row_at = final_at + finals * itemsize
    # Divisors, and the two parts of their reciprocals, for cells of even and of odd height.
    factors = np.empty((2, 3, plan.panel + 1), np.float64)
    factors_at = np.int64(factors.ctypes.data)
    factor_bytes = 8 * (plan.panel + 1)
    heights, kept = np.empty(2, np.int64), np.empty(2, np.int64)
    firsts, seconds, origins = (
        np.empty(plan.panel, np.int64),
        np.empty(plan.panel, np.int64),
        np.empty(plan.panel, np.int64),
    )
    firsts_at, seconds_at = np.int64(firsts.ctypes.data), np.int64(seconds.ctypes.data)
    origins_at = np.int64(origins.ctypes.data)
    # A sum may then be stored in the result at once: full vectors only, of the result's type.
    whole = direct and depth >= FEW
    overlap = plan.shared_rows or plan.shared_cols
    at_panel = at_part = -1
    channels = column = wide = 0
    low = cells = segments = left = right = 0
    each, more = tasks // plan.streams, tasks % plan.streams

    while True:
        number = next_number(counter.ctypes.data)
        if number >= tasks:
            break
        # Threads work far from each other: in new memory, two would clear the same page.
        stream = number % plan.streams
        task = stream * each + min(stream, more) + number // plan.streams
        part, task = task % parts, task // parts
        panel, task = task % panels, task // panels
        strip, image = task % strips, task // strips

        if part != at_part or panel != at_panel:
            at_part, at_panel = part, panel
            channels = min(plan.part, depth - part * plan.part)
            column, wide = channels * itemsize, 8 * channels
            heights[:] = 0
            left = panel * plan.panel
            right = min(left + plan.panel, plan.cols)
            cell = first_above(col_starts, left) - 1
            low = cell
            if plan.shared_cols and cell > 0 and col_starts[cell] == left:
                low -= 1
            segments = 0
            x = left
            last = cell
            while x < right:
                last = cell
                behind = col_starts[cell + 1] if cell + 1 < cell_cols else plan.cols
                firsts[segments] = 8 * zeros + (cell - low) * wide
                seconds[segments] = 0
                end = min(behind, right)
                if plan.shared_cols and cell > 0 and col_starts[cell] == x:
                    seconds[segments] = firsts[segments]
                    firsts[segments] -= wide
                    end = x + 1
                for pixel in range(x, end):
                    origins[pixel - left] = segments * column
                segments += 1
                x = end
                if x >= behind:
                    cell += 1
            cells = last - low + 1
        pixels = right - left

        kept[:] = -1
        y = strip * plan.strip
        bottom = min(y + plan.strip, plan.rows)
        row = first_above(row_starts, y) - 1
        while y < bottom:
            behind = row_starts[row + 1] if row + 1 < plan.cell_rows else plan.rows
            two = plan.shared_rows and row > 0 and row_starts[row] == y
            end = y + 1 if two else min(behind, bottom)
            for r in range(row - 1 if two else row, row + 1):
                slot = r & 1
                if overlap and kept[slot] == r:
                    continue
                kept[slot] = r
                after = row_starts[r + 1] if r + 1 < plan.cell_rows else plan.rows
                height = min(after + plan.shared_rows, plan.rows) - row_starts[r]
                table = height & 1
                if heights[table] != height:
                    heights[table] = height
                    for c in range(cells):
                        after = col_starts[low + c + 1] if low + c + 1 < cell_cols else plan.cols
                        width = min(after + plan.shared_cols, plan.cols) - col_starts[low + c]
                        size = np.float64(height * width)
                        factors[table, 0, c] = size
                        if FUSED:
                            both = split_reciprocal(size)
                            factors[table, 1, c], factors[table, 2, c] = both
                divisors = factors_at + table * 3 * factor_bytes
                at = ((image * plan.cell_rows + r) * cell_cols + low) * depth + part * plan.part
                source, source_column = gradient_at + at * itemsize, pixel_bytes
                if at + cells * depth + _ROOM > gradient.size:
                    # The last vector would read what lies behind the gradient.
                    for c in range(cells):
                        copy_bytes(work_at + c * column, source + c * pixel_bytes, column)
                    source, source_column = work_at, column
                by = divisors, divisors + factor_bytes, divisors + 2 * factor_bytes
                if overlap:
                    to = work_at + 8 * ((1 + slot) * shares + zeros)
                    divide(like_source, 0.0, channels, source, to, cells, source_column, wide, *by)
                else:
                    columns = cells, source_column, column
                    divide(like_source, like_target, channels, source, final_at, *columns, *by)

            target = result_at + (image * plan.rows + y) * row_bytes + left * pixel_bytes
            target += part * plan.part * itemsize
            done = 0
            if overlap:
                to, past_caches = final_at, False
                if whole and end == y + 1 and segments == pixels:
                    # These sums are the result's row already.
                    to, past_caches, done = target, plan.past_caches != 0, 1
                this = work_at + 8 * (1 + (row & 1)) * shares
                above = work_at + 8 * (1 + (row - 1 & 1)) * shares if two else this
                run = to, segments, column, firsts_at, seconds_at, above, this
                add(like_target, channels, past_caches, two, *run)
            source = final_at
            if not direct and segments < pixels:
                source = image_row_at
                place(False, source, final_at, pixels, column, origins_at)
            for line in range(done, end - y):
                to = target + line * row_bytes
                if direct:
                    place(plan.past_caches != 0, to, source, pixels, column, origins_at)
                else:
                    copy_row(plan.past_caches != 0, to, source, pixels * column)
            y = end
            if y >= behind:
                row += 1
    finish_streams()
    # Numba takes memory back after the last use that it sees, and it does not see addresses.
    work[0], final[0] = work[1], final[1]
