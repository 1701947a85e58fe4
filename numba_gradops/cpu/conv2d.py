"""Launcher of conv2d_backprop_input on the CPU: which of its ways a call takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import Algorithm, DataFormat
from .._geometry import Conv2D
from . import _depthwise, _exact, _tiled, _winograd
from ._call import Call


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
    call = Call(geometry, filter, out_backprop, data_format, result)
    for compute in _ways(geometry, filter.dtype, data_format, algorithm):
        if compute(call):
            return
    _exact.compute(call)


@lru_cache(maxsize=256)
def _ways(
    geometry: Conv2D, dtype: np.dtype[Any], data_format: DataFormat, algorithm: Algorithm
) -> list[Callable[[Call], bool]]:
    """List the ways that are faster than the exact one; they may give up on weights not finite."""
    ways: list[Callable[[Call], bool]] = []
    if algorithm == "winograd":
        _winograd.require(geometry, dtype)
    if algorithm == "winograd" or (algorithm == "auto" and _winograd.pays(geometry, dtype)):
        ways.append(_winograd.compute)
    if _depthwise.suits(geometry, dtype, data_format):
        ways.append(_depthwise.compute)
    elif _tiled.suits(geometry, dtype):
        ways.append(_tiled.compute)
    return ways
