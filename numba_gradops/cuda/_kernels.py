"""The kernel of each variant: function, signature, and the bounds that registers are divided by."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from numba.cuda import types

from . import _direct_kernels, _pool_kernels, _tiled_kernel
from ._conv2d_plan import AnyVariant, ChannelsVariant, PixelsVariant, TiledVariant
from ._pool_plan import PoolVariant

_MAKERS: dict[type, Any] = {
    TiledVariant: _tiled_kernel.make,
    ChannelsVariant: _direct_kernels.make_channels,
    PixelsVariant: _direct_kernels.make_pixels,
    AnyVariant: _direct_kernels.make_any,
    PoolVariant: _pool_kernels.make,
}


class Kernel(NamedTuple):
    """What `numba.cuda.compile` needs."""

    function: Any
    signature: Any
    launch_bounds: tuple[int, int]  # threads in a block, blocks that share a multiprocessor


@cache
def kernel(variant: Any) -> Kernel:
    """Give the kernel of a variant."""
    arrays = 2 if isinstance(variant, PoolVariant) else 3
    signature = types.void(*[types.int64] * (arrays + 1))  # and the table
    return Kernel(_MAKERS[type(variant)](variant), signature, variant.launch_bounds)
