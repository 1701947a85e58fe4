"""Calls so small that what they cost is all overhead; they stay on the calling thread.

There is no `setup`: airspeed velocity would repeat it before every call, and time calls of a few
microseconds one by one.
"""

from typing import Any

import numpy as np

import numba_gradops

from . import _calls
from .layers import TINY_CONVOLUTION, TINY_POOL


class SmallCalls:
    """Results of 64 and of 256 numbers, in new memory."""

    rounds = 2
    number = 1000
    repeat = (10, 40, 0.5)

    def setup_cache(self) -> tuple[dict[str, Any], dict[str, Any]]:
        rng = np.random.default_rng(0)
        convolution = TINY_CONVOLUTION.arguments(rng, np.float32)
        pooling = TINY_POOL.arguments(rng, np.float32)
        result = numba_gradops.conv2d_backprop_input(**convolution)
        _calls.check_convolution(result, convolution, "float32")
        result = numba_gradops.fractional_avg_pool_grad(**pooling)
        _calls.check_pooling(result, pooling, "float32")
        return convolution, pooling

    def time_convolution(self, calls: tuple[dict[str, Any], dict[str, Any]]) -> None:
        numba_gradops.conv2d_backprop_input(**calls[0])

    time_convolution.pretty_name = "convolution, small call, 4x4x2"

    def time_pooling(self, calls: tuple[dict[str, Any], dict[str, Any]]) -> None:
        numba_gradops.fractional_avg_pool_grad(**calls[1])

    time_pooling.pretty_name = "pooling, small call, 8x8x2"
