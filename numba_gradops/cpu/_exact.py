"""Convolution by loops that form only the products that belong to a sum.

For int32, for filters that are not finite, and for what register tiles are not made for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._geometry import Conv2D
from . import _exact_loops as loops
from . import _threads
from ._adopt import adopt, batches, target
from ._call import Call, channels_last
from ._halves import as_bits

# Few enough input channels (in a group) for lanes along the output channels to be faster, and
# enough groups for lanes along these.
_FEW_CHANNELS = 8
_MANY_GROUPS = 8

# Tasks that a call is cut into at least, where it has that many: to keep many threads busy to the
# end.
_TASKS = 64


def _form(geometry: Conv2D, group_in: int) -> int:
    if group_in == 1 and geometry.groups >= _MANY_GROUPS:
        return loops.DEPTHWISE
    return loops.DOT if group_in < _FEW_CHANNELS else loops.CHANNELS


def _layout(call: Call, form: int, batch: int) -> loops.Layout:
    geometry = call.geometry
    rows, cols, channels = geometry.rows.input, geometry.cols.input, geometry.channels
    row_blocks = max(1, -(-_TASKS // (batch * rows)))
    block = max(1, -(-cols // row_blocks))
    if call.data_format == "NHWC":
        steps = (rows * cols * channels, cols * channels, channels, 1)
    else:
        steps = (channels * rows * cols, cols, 1, rows * cols)
    return loops.Layout(
        form,
        geometry.groups,
        call.weights.shape[2],
        geometry.out_channels // geometry.groups,
        -(-cols // block),
        block,
        *steps,
    )


def _ordered(call: Call) -> tuple[int, NDArray[Any]]:
    """Choose the way through the channels, and give the weights in its order."""
    k_rows, k_cols, group_in, _ = call.weights.shape
    form = _form(call.geometry, group_in)
    weights = call.weights
    if form == loops.CHANNELS:
        by_group = weights.reshape(k_rows * k_cols, group_in, call.geometry.groups, -1)
        weights = by_group.transpose(2, 0, 3, 1)
    return form, adopt(weights)


def compute(call: Call) -> None:
    """Compute by loops that form only the products that belong to a sum."""
    geometry = call.geometry
    form, weights = _ordered(call)
    for images in batches(geometry.batch, call.image_bytes):
        gradient = channels_last(call, images)
        batch = images.stop - images.start
        layout = _layout(call, form, batch)
        tasks = batch * geometry.rows.input * layout.column_blocks
        with target(call.result[images]) as flat:
            arguments = (
                tasks,
                geometry.rows,
                geometry.cols,
                layout,
                weights,
                gradient,
                as_bits(flat),
            )
            work = call.products * batch / geometry.batch / 4  # 4 products a nanosecond
            scratch = loops.PIXELS * 12 * geometry.channels
            _threads.run(loops.gather, loops.gather_parallel, tasks, work, arguments, scratch)


def compute_rows(
    call: Call, rows: NDArray[np.intp], gradient: NDArray[Any], flat: NDArray[Any]
) -> None:
    """Compute some rows again, counted over all images, from a flat gradient in NHWC order."""
    form, weights = _ordered(call)
    layout = _layout(call, form, call.result.shape[0])
    axes = call.geometry.rows, call.geometry.cols
    for row in rows.tolist():
        counter = np.array([row * layout.column_blocks])
        stop = (row + 1) * layout.column_blocks
        loops.gather(counter, stop, *axes, layout, weights, gradient, flat)
