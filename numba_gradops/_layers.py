"""Layers of real networks, as calls of the two functions with random data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ConvLayer(NamedTuple):
    """A convolution; `groups` equal to `channels` makes it depthwise."""

    name: str
    input: tuple[int, int, int, int]  # batch, rows, cols, channels
    filter: tuple[int, int]
    out_channels: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    padding: str = "SAME"
    data_format: str = "NHWC"

    @property
    def gradient_shape(self) -> tuple[int, int, int, int]:
        """The shape of the gradient, channels last."""
        batch, rows, cols, _ = self.input
        sides = []
        for size, window in zip((rows, cols), self.filter, strict=True):
            span = (window - 1) * self.dilation + 1
            reach = size if self.padding == "SAME" else size - span + 1
            sides.append(-(-reach // self.stride))
        return batch, sides[0], sides[1], self.out_channels

    def arguments(self, rng: np.random.Generator, dtype: Any) -> dict[str, Any]:
        """Draw a filter and a gradient; return the keyword arguments of the call."""
        batch, rows, cols, channels = self.input
        gradient = rng.standard_normal(self.gradient_shape).astype(dtype)
        weights = (*self.filter, channels // self.groups, self.out_channels)
        sizes = self.input
        strides = [1, self.stride, self.stride, 1]
        dilations = [1, self.dilation, self.dilation, 1]
        if self.data_format == "NCHW":
            gradient = np.ascontiguousarray(gradient.transpose(0, 3, 1, 2))
            sizes = (batch, channels, rows, cols)
            strides, dilations = ([v[0], v[3], v[1], v[2]] for v in (strides, dilations))
        return {
            "input_sizes": sizes,
            "filter": rng.standard_normal(weights).astype(dtype),
            "out_backprop": gradient,
            "strides": strides,
            "padding": self.padding,
            "data_format": self.data_format,
            "dilations": dilations,
        }


class PoolLayer(NamedTuple):
    """A fractional average pooling whose sides shrink by about `ratio`."""

    name: str
    input: tuple[int, int, int, int]
    ratio: float
    overlapping: bool = False

    @property
    def gradient_shape(self) -> tuple[int, int, int, int]:
        """The shape of the gradient."""
        batch, rows, cols, channels = self.input
        return batch, cells(rows, self.ratio), cells(cols, self.ratio), channels

    def arguments(self, rng: np.random.Generator, dtype: Any) -> dict[str, Any]:
        """Draw sequences and a gradient; return the keyword arguments of the call."""
        _, rows, cols, _ = self.input
        row_sequence, col_sequence = (sequence(side, self.ratio, rng) for side in (rows, cols))
        gradient = rng.standard_normal(self.gradient_shape)
        if np.issubdtype(np.dtype(dtype), np.integer):
            gradient *= 1000
        return {
            "orig_input_tensor_shape": self.input,
            "out_backprop": gradient.astype(dtype),
            "row_pooling_sequence": row_sequence,
            "col_pooling_sequence": col_sequence,
            "overlapping": self.overlapping,
        }


def cells(size: int, ratio: float) -> int:
    """Count the cells of a side."""
    return max(1, int(size / ratio))


def sequence(size: int, ratio: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a pooling sequence as the forward op does: steps of K or K + 1, in random order."""
    count = cells(size, ratio)
    small = size // count
    steps = np.full(count, small)
    steps[: size - small * count] += 1
    rng.shuffle(steps)
    return np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)


DEMO: tuple[ConvLayer | PoolLayer, ...] = (
    ConvLayer("ResNet-50 first layer 7x7/2", (4, 224, 224, 3), (7, 7), 64, stride=2),
    ConvLayer("ResNet-50 3x3", (4, 28, 28, 128), (3, 3), 128),
    ConvLayer("ResNet-50 1x1", (4, 28, 28, 128), (1, 1), 512),
    ConvLayer("DCGAN generator 5x5/2", (4, 32, 32, 64), (5, 5), 128, stride=2),
    ConvLayer("U-Net 3x3, channels first", (1, 64, 64, 64), (3, 3), 64, data_format="NCHW"),
    ConvLayer("DeepLab 3x3, dilation 6", (1, 33, 33, 128), (3, 3), 128, dilation=6),
    ConvLayer("ResNeXt-50 3x3, 32 groups", (2, 28, 28, 256), (3, 3), 256, groups=32),
    ConvLayer("MobileNet depthwise 3x3", (4, 56, 56, 128), (3, 3), 128, groups=128),
    PoolLayer("fractional pool, ratio 1.44", (4, 112, 112, 64), 1.44),
    PoolLayer("fractional pool, overlapping", (4, 56, 56, 128), 1.6, overlapping=True),
)
