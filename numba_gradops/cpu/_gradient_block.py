"""Where the tiles of a task read their gradients: in the call's array, or in a block of their own.

A block is a copy, made by the thread that works on the task, of the rows of gradients that the task
reads: in NHWC order and the computing dtype, whatever the call's are. It stays in the second-level
cache. Around each image it may have zeros, so that every tap of every tile reads something.

Rows are numbered through the images of the batch, with those that are added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._geometry import Axis, Conv2D
from ._tiles import ClassAxis, stride_class

# Copied gradients for one of the call, at most: tasks next to each other read some rows both.
_MOST_COPIES = 2
# Tasks in a call that are enough to keep threads busy, if copies get fewer that way.
_FEW_TASKS = 16
# With more stride classes than these the rows of a task are not worth finding.
_MOST_CLASSES = 64
# Bytes of a block, at most: what a task reads beyond its own rows grows with the dilation.
_MOST_BYTES = 2**22
# A block with zeros around it for one without, at most.
_MOST_PADDING = 1.6


class Reading(NamedTuple):
    """How gradients are read."""

    copies: int  # whether there are blocks
    channels_first: int  # whether the call's gradient is NCHW
    padded: int  # whether there are zeros where the taps leave the image
    block_rows: int  # of the largest block
    pitch: int  # pixels in a row
    image_rows: int  # rows in an image
    pad_top: int
    pad_left: int


def in_place(geometry: Conv2D) -> Reading:
    """Read from the call's gradient."""
    return Reading(0, 0, 0, 0, geometry.cols.output, geometry.rows.output, 0, 0)


def in_blocks(
    geometry: Conv2D,
    batch: int,
    pixels: int,
    tile_groups: int,
    panel_groups: int,
    cell_bytes: int,
    *,
    channels_first: bool,
    padded: bool,
) -> tuple[Reading, int] | None:
    """Read from blocks, with the number of tasks for a panel; None where that would be dear."""
    rows, cols = geometry.rows, geometry.cols
    row_classes, col_classes = _classes(rows), _classes(cols)
    if not 0 < len(row_classes) * len(col_classes) <= _MOST_CLASSES:
        return None
    reading = in_place(geometry)._replace(copies=1, channels_first=int(channels_first))
    if padded:
        top, image_rows = _with_padding(rows, row_classes)
        left, pitch = _with_padding(cols, col_classes)
        if image_rows * pitch <= _MOST_PADDING * rows.output * cols.output:
            reading = reading._replace(
                padded=1, pitch=pitch, image_rows=image_rows, pad_top=top, pad_left=left
            )
    while True:
        first, last = rows_of_tasks(geometry, batch, pixels, tile_groups, reading)
        counts = np.maximum(0, last - first + 1)
        copied = int(counts.sum()) * panel_groups
        if copied <= _MOST_COPIES * batch * reading.image_rows:
            reading = reading._replace(block_rows=int(counts.max()))
            fits = reading.block_rows * reading.pitch * cell_bytes <= _MOST_BYTES
            return (reading, tile_groups) if fits else None
        if tile_groups <= _FEW_TASKS:
            return None
        tile_groups = max(_FEW_TASKS, tile_groups // 2)


def _classes(axis: Axis) -> list[ClassAxis]:
    """Describe the stride classes of an axis, unless they are too many."""
    leads = min(axis.stride, axis.input)
    if leads > _MOST_CLASSES:
        return []
    return [stride_class.py_func(lead, axis) for lead in range(leads)]


def _with_padding(axis: Axis, classes: list[ClassAxis]) -> tuple[int, int]:
    """Give the zeros that are needed before an axis, and its length with those behind it."""
    met = [one for one in classes if one.taps > 0]
    before = max([0, *((one.taps - 1) * axis.cell_step - one.cell for one in met)])
    end = max([axis.output, *(one.cell + one.elements for one in met)])
    return before, before + end


def rows_of_tasks(
    geometry: Conv2D, batch: int, pixels: int, tile_groups: int, reading: Reading
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the first and the last row that each task reads: what `task_rows` finds for one."""
    group = np.arange(tile_groups)
    first = np.full(tile_groups, np.iinfo(np.int64).max)
    last = np.full(tile_groups, -1)
    high = geometry.rows.output - 1
    for row in _classes(geometry.rows):
        for col in _classes(geometry.cols):
            in_image = row.elements * col.elements
            tiles = -(-batch * in_image // pixels)
            start = tiles * group // tile_groups * pixels
            stop = np.minimum(tiles * (group + 1) // tile_groups * pixels, batch * in_image) - 1
            if row.taps == 0 or col.taps == 0:
                continue
            low = row.cell + start % in_image // col.elements
            low -= (row.taps - 1) * geometry.rows.cell_step
            top = row.cell + stop % in_image // col.elements
            if not reading.padded:
                low, top = np.clip(low, 0, high), np.clip(top, 0, high)
            low += start // in_image * reading.image_rows + reading.pad_top
            top += stop // in_image * reading.image_rows + reading.pad_top
            some = start <= stop
            first[some] = np.minimum(first, low)[some]
            last[some] = np.maximum(last, top)[some]
    return first, last
