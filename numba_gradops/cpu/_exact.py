"""Convolution by loops that form only the products that belong to a sum.

For int32, for filters that are not finite, and for what register tiles are not made for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._geometry import Conv2D
from . import _exact_loops as loops
from . import _threads
from ._adopt import adopt, target
from ._call import Call, channels_last
from ._halves import as_bits
from ._plans import write_down

# Few enough input channels (in a group) for lanes along the output channels to be faster, and
# enough groups for lanes along these.
_FEW_CHANNELS = 8
_MANY_GROUPS = 8

# Tasks that a call is cut into at least, where it has that many: to keep many threads busy to the
# end.
_TASKS = 64

# Products in a nanosecond on one thread, about.
_PRODUCTS = 4


def _form(geometry: Conv2D, group_in: int) -> int:
    if group_in == 1 and geometry.groups >= _MANY_GROUPS:
        return loops.DEPTHWISE
    return loops.DOT if group_in < _FEW_CHANNELS else loops.CHANNELS


def _layout(geometry: Conv2D, form: int, channels_last: bool, batch: int) -> loops.Layout:
    rows, cols, channels = geometry.rows.input, geometry.cols.input, geometry.channels
    row_blocks = max(1, -(-_TASKS // (batch * rows)))
    block = max(1, -(-cols // row_blocks))
    column_blocks = -(-cols // block)
    if channels_last:
        steps = (rows * cols * channels, cols * channels, channels, 1)
    else:
        steps = (channels * rows * cols, cols, 1, rows * cols)
    return loops.Layout(
        batch * rows * column_blocks,
        form,
        geometry.groups,
        channels // geometry.groups,
        geometry.out_channels // geometry.groups,
        column_blocks,
        block,
        *steps,
    )


@lru_cache(maxsize=256)
def _plan(
    geometry: Conv2D, form: int, channels_last: bool, batch: int
) -> tuple[int, NDArray[np.int64]]:
    """Give the number of tasks, and what the loops need to know as an array."""
    layout = _layout(geometry, form, channels_last, batch)
    return layout.tasks, write_down(layout, geometry.rows, geometry.cols)


def _ordered(call: Call) -> tuple[int, NDArray[Any]]:
    """Choose the way through the channels, and give the weights in its order."""
    k_rows, k_cols, group_in, _ = call.filter.shape
    form = _form(call.geometry, group_in)
    weights = call.weights()
    if form == loops.CHANNELS:
        by_group = weights.reshape(k_rows * k_cols, group_in, call.geometry.groups, -1)
        weights = by_group.transpose(2, 0, 3, 1)
    return form, adopt(weights)


def compute(call: Call) -> None:
    """Compute by loops that form only the products that belong to a sum."""
    geometry = call.geometry
    form, weights = _ordered(call)
    scratch = loops.PIXELS * 12 * geometry.channels
    for part in call.parts():
        gradient = channels_last(part)
        tasks, plan = _plan(geometry, form, call.data_format == "NHWC", len(part.result))
        with target(part.result) as flat:
            arguments = (plan, weights, gradient, as_bits(flat))
            work = part.products / _PRODUCTS
            _threads.run(loops.gather, tasks, work, arguments, scratch)


def compute_rows(
    call: Call, rows: NDArray[np.intp], gradient: NDArray[Any], flat: NDArray[Any]
) -> None:
    """Compute some rows again, counted over all images, from a flat gradient in NHWC order."""
    geometry = call.geometry
    form, weights = _ordered(call)
    layout = _layout(geometry, form, call.data_format == "NHWC", len(call.gradient))
    for row in rows.tolist():
        counter = np.array([row * layout.column_blocks])
        until = layout._replace(tasks=(row + 1) * layout.column_blocks)
        plan = write_down(until, geometry.rows, geometry.cols)
        loops.gather(counter, plan, weights, gradient, flat)
