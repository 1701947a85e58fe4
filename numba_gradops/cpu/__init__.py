"""The CPU backend: one launcher a gradient, over loops compiled by Numba."""

import numba

if numba.config.DISABLE_JIT:
    msg = "numba_gradops needs Numba's compiler: unset NUMBA_DISABLE_JIT"
    raise RuntimeError(msg)

from .. import _arrays as arrays
from .conv2d import conv2d_backprop_input
from .fractional_pool import fractional_avg_pool_grad

__all__ = ["arrays", "conv2d_backprop_input", "fractional_avg_pool_grad"]
