"""The arguments of a checked convolution call, and the gradient in the form that loops read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._arguments import DataFormat
from .._arrays import empty
from .._dtypes import accumulator
from .._geometry import Conv2D
from . import _copy_loops as loops
from . import _threads
from ._adopt import adopt
from ._halves import as_bits

_PASS_BYTES = 2**23
# Elements of a task that widens, pixels of one that turns.
_STRIP, _PIXELS = 4096, 64


class Call(NamedTuple):
    """The arguments of a call, checked.

    Part of a call has part of the images; its geometry is that of the whole.
    """

    geometry: Conv2D
    filter: NDArray[Any]
    gradient: NDArray[Any]
    data_format: DataFormat
    result: NDArray[Any]

    @property
    def computing(self) -> np.dtype[Any]:
        """The dtype in which sums are formed."""
        return accumulator(self.filter.dtype)

    def weights(self) -> NDArray[Any]:
        """Give the filter in the computing dtype, a copy for halves."""
        if self.filter.dtype == self.computing:
            return self.filter
        return widened(self.filter, self.computing, "the filter in another dtype")

    @property
    def products(self) -> int:
        """Number of multiply-adds."""
        taps = self.geometry.rows.window * self.geometry.cols.window
        size: int = self.gradient.size
        return size * taps * int(self.filter.shape[2])

    def parts(self) -> list[Call]:
        """Cut the batch so that the copies that `channels_last` makes stay small."""
        gradient, result = self.gradient, self.result
        if self.data_format == "NHWC" and gradient.dtype == self.computing:
            return [self]
        images = max(1, _PASS_BYTES // (gradient[0].size * self.computing.itemsize))
        if images >= len(gradient):
            return [self]
        return [
            self._replace(gradient=gradient[start:stop], result=result[start:stop])
            for start, stop in pairwise([*range(0, len(gradient), images), len(gradient)])
        ]


def widened(halves: NDArray[Any], dtype: np.dtype[Any], purpose: str) -> NDArray[Any]:
    """Give a copy in the computing dtype."""
    copy = empty(halves.shape, dtype, purpose)
    arguments = (_STRIP, adopt(as_bits(halves)), copy.reshape(-1))
    _threads.run(loops.widen, -(-copy.size // _STRIP), 0.1 * copy.size, arguments)
    return copy


def channels_last(call: Call) -> NDArray[Any]:
    """Give the gradient flat, in NHWC order and the computing dtype."""
    gradient = call.gradient
    dtype, purpose = call.computing, "the gradient of a few images in another form"
    if call.data_format == "NHWC":
        return adopt(gradient if gradient.dtype == dtype else widened(gradient, dtype, purpose))
    copy = empty((gradient.size,), dtype, purpose)
    channels, pixels = gradient.shape[1], gradient.shape[2] * gradient.shape[3]
    arguments = (channels, pixels, _PIXELS, adopt(as_bits(gradient)), copy)
    tasks = len(gradient) * -(-pixels // _PIXELS)
    _threads.run(loops.to_channels_last, tasks, 0.3 * copy.size, arguments)
    return adopt(copy)
