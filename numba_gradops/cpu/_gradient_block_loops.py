"""The loops that bring the gradients of a task to its block: see `_gradient_block`."""

from __future__ import annotations

from typing import Any

from .._geometry import Axis
from ._compile import helper
from ._copy_loops import copy_pixels, copy_run_of_pixels
from ._tiles import stride_class


@helper
def task_rows(plan: Any, rows: Axis, cols: Axis, pixels: int, tile_group: int) -> tuple[int, int]:
    """Give the first and the last row of gradients that a task reads."""
    first, last = plan.batch * plan.image_rows, -1
    for index in range(plan.classes):
        row_class = stride_class(index // plan.class_columns, rows)
        col_class = stride_class(index % plan.class_columns, cols)
        in_image = row_class.elements * col_class.elements
        tiles = (plan.batch * in_image + pixels - 1) // pixels
        start = tiles * tile_group // plan.tile_groups * pixels
        stop = min(tiles * (tile_group + 1) // plan.tile_groups * pixels, plan.batch * in_image) - 1
        if row_class.taps == 0 or col_class.taps == 0 or start > stop:
            continue
        low = row_class.cell + start % in_image // col_class.elements
        low -= (row_class.taps - 1) * rows.cell_step
        high = row_class.cell + stop % in_image // col_class.elements
        if plan.padded == 0:
            low = min(max(low, 0), rows.output - 1)
            high = min(max(high, 0), rows.output - 1)
        first = min(first, start // in_image * plan.image_rows + plan.pad_top + low)
        last = max(last, stop // in_image * plan.image_rows + plan.pad_top + high)
    return first, last


def _filler(copy_pixels: Any) -> Any:
    """Compile the function that fills a block by copying pixels in this way."""

    @helper
    def fill(
        plan: Any, rows: Axis, cols: Axis, first: int, last: int, gradient: Any, block: Any
    ) -> None:
        """Copy rows `first` to `last`, of which a block has room for as many as a task needs."""
        channels = plan.cell_bytes // plan.element_bytes
        row_numbers = plan.pitch * channels
        right = plan.pitch - plan.pad_left - cols.output
        row = first
        while row <= last:
            image, y = row // plan.image_rows, row % plan.image_rows - plan.pad_top
            to = (row - first) * row_numbers
            if y < 0 or y >= rows.output:
                block[to : to + row_numbers] = 0
                row += 1
                continue
            count = 1
            if plan.padded == 0:  # rows of the image are then one behind the other
                count = min(last + 1 - row, rows.output - y)
            elif plan.pad_left > 0 or right > 0:
                block[to : to + plan.pad_left * channels] = 0
                block[to + (plan.pad_left + cols.output) * channels : to + row_numbers] = 0
            copy_pixels(
                plan.channels_first != 0,
                channels,
                rows.output * cols.output,
                image,
                y * cols.output,
                count * cols.output,
                gradient,
                block,
                to + plan.pad_left * channels,
            )
            row += count

    return fill


fill_block, fill_block_by_runs = _filler(copy_pixels), _filler(copy_run_of_pixels)
