"""Depthwise convolution: every channel by itself, as fast as memory allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arguments import DataFormat
from .._geometry import Conv2D
from . import _depthwise_loops as loops
from . import _threads
from ._adopt import adopt, target
from ._call import Call
from ._halves import as_bits

# Taps whose products make one sum; longer sums need totals, as `_tiled` keeps them.
_MOST_TAPS = 256
# Stride classes, at most: each has a list of taps.
_MOST_CLASSES = 256
# Bytes of a task, at most, and tasks in a call, at least, where it has that many rows.
_TASK_BYTES, _TASKS = 2**17, 64
# Bytes of a part of a row, at least.
_PART_BYTES = 2**14
# Nanoseconds that a product takes on one thread, about, and that a byte of the result does.
_PRODUCT_TIME, _BYTE_TIME = 0.03, 0.06


def suits(geometry: Conv2D, dtype: np.dtype[Any], data_format: DataFormat) -> bool:
    """Tell whether each channel of the input has an output channel for itself."""
    rows, cols = geometry.rows, geometry.cols
    return (
        data_format == "NHWC"
        and dtype.kind != "i"
        and geometry.groups == geometry.channels == geometry.out_channels > 1
        and rows.window * cols.window <= _MOST_TAPS
        and min(rows.stride, rows.input) * min(cols.stride, cols.input) <= _MOST_CLASSES
    )


def _plan(geometry: Conv2D, result_bytes: int) -> loops.Plan:
    rows = geometry.batch * geometry.rows.input
    wished = max(_TASKS, result_bytes // _TASK_BYTES)
    strip = max(1, rows // wished)
    strips = -(-rows // strip)
    # Few long rows: cut them, too.
    parts = max(1, min(-(-_TASKS // strips), result_bytes // rows // _PART_BYTES))
    return loops.Plan(geometry.batch, geometry.channels, strip, parts, strips * parts)


def compute(call: Call) -> bool:
    """Compute all channels, lanes along them as they lie in memory.

    Beside a result in another memory order, each thread allocates two integers for each tap and
    stride class.
    """
    geometry = call.geometry
    rows, cols = geometry.rows, geometry.cols
    plan = _plan(geometry, call.result.nbytes)
    gradient = adopt(as_bits(call.gradient))
    with target(call.result) as flat:
        arguments = (
            plan, rows, cols, adopt(call.weights()), gradient, as_bits(flat)
        )  # fmt: skip
        work = _PRODUCT_TIME * call.products + _BYTE_TIME * flat.nbytes
        classes = min(rows.stride, rows.input) * min(cols.stride, cols.input)
        scratch = 16 * classes * (rows.window * cols.window + 1)
        _threads.run(loops.gather, plan.tasks, work, arguments, scratch)
    return True
