"""Launcher of conv2d_backprop_input on the CPU: which of its ways a call takes."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .. import _dtypes
from .._arguments import Algorithm, DataFormat
from .._geometry import Conv2D
from . import _depthwise, _exact, _tiled, _winograd
from ._call import Call, widened


def conv2d_backprop_input(
    geometry: Conv2D,
    filter: NDArray[Any],
    out_backprop: NDArray[Any],
    data_format: DataFormat,
    algorithm: Algorithm,
    result: NDArray[Any],
) -> None:
    """Fill `result`, whose arguments have all been checked.

    The choice depends on shapes and dtype, and on whether the filter is finite; never on timing.
    """
    if result.size == 0:
        return
    if filter.size == 0 or out_backprop.size == 0:
        result.fill(0)
        return
    weights = filter
    computing = _dtypes.accumulator(filter.dtype)
    if filter.dtype != computing:
        weights = widened(filter, computing, "the filter in another dtype")
    call = Call(geometry, weights, out_backprop, data_format, result)
    if algorithm == "winograd":
        _winograd.require(call)
    by_winograd = algorithm == "winograd" or (algorithm == "auto" and _winograd.pays(call))
    if by_winograd and _winograd.compute(call):
        return
    if _depthwise.suits(call):
        _depthwise.compute(call)
        return
    if _tiled.suits(call) and _tiled.compute(call):
        return
    _exact.compute(call)
