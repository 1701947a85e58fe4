"""Calls of both functions down to the launch that a device would get, for the tests of CUDA."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from accuracy import DTYPES, draw
from devices import Device
from numpy.typing import NDArray
from poison import poisoned

from numba_gradops import _geometry

TO_CHANNELS_FIRST = (0, 3, 1, 2)


class Convolution(NamedTuple):
    """A convolution, channels last."""

    name: str
    input: tuple[int, int, int, int]
    filter: tuple[int, int]
    out_channels: int
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    padding: str | tuple[tuple[int, int], ...] = "SAME"
    groups: int = 1

    def outputs(self) -> tuple[int, int]:
        sides = []
        for i in (0, 1):
            size, stride = self.input[1 + i], self.strides[i]
            span = (self.filter[i] - 1) * self.dilations[i] + 1
            if self.padding == "SAME":
                sides.append(-(-size // stride))
                continue
            before, after = (0, 0) if self.padding == "VALID" else self.padding[1 + i]
            sides.append((size + before + after - span + stride) // stride)
        return sides[0], sides[1]

    def arguments(
        self, rng: np.random.Generator, dtype: str, data_format: str = "NHWC"
    ) -> dict[str, Any]:
        """Draw the arrays; give the keyword arguments of the call."""
        batch, _, _, channels = self.input
        weights = (*self.filter, channels // self.groups, self.out_channels)
        gradient = draw(rng, (batch, *self.outputs(), self.out_channels), DTYPES[dtype])
        call: dict[str, Any] = {
            "input_sizes": self.input,
            "filter": draw(rng, weights, DTYPES[dtype]),
            "out_backprop": gradient,
            "strides": (1, *self.strides, 1),
            "padding": self.padding,
            "data_format": data_format,
            "dilations": (1, *self.dilations, 1),
        }
        if data_format == "NCHW":
            call["out_backprop"] = np.ascontiguousarray(gradient.transpose(TO_CHANNELS_FIRST))
            for name in ("input_sizes", "strides", "padding", "dilations"):
                if not isinstance(call[name], str):
                    call[name] = tuple(call[name][axis] for axis in TO_CHANNELS_FIRST)
        return call


def convolution_launch(call: dict[str, Any], *, aligned: bool = True, **forced: Any) -> Any:
    """Plan the launch of a convolution whose padding is a word or pairs."""
    from numba_gradops.cuda import _conv2d_plan

    weights, gradient = call["filter"], call["out_backprop"]
    padding = call["padding"]
    geometry = _geometry.conv2d(
        tuple(call["input_sizes"]),
        weights.shape,
        gradient.shape,
        tuple(call["strides"]),
        tuple(call.get("dilations", (1, 1, 1, 1))),
        padding if isinstance(padding, str) else tuple(tuple(pair) for pair in padding),
        call.get("data_format", "NHWC"),
    )
    return _conv2d_plan.plan(
        geometry,
        weights.dtype.name,
        weights.itemsize,
        call.get("data_format", "NHWC"),
        aligned,
        **forced,
    )


def convolve(
    device: Device, call: dict[str, Any], *, shift: int = 0, launch: Any = None, **forced: Any
) -> NDArray[Any]:
    """Compute a convolution as planned, or forced, in a result full of NaN."""
    if launch is None:
        launch = convolution_launch(call, aligned=shift == 0, **forced)
    weights, gradient = call["filter"], call["out_backprop"]
    sizes = call["input_sizes"]
    if len(sizes) == 2:
        spatial = (*sizes, weights.shape[2])
        sizes = (gradient.shape[0], *spatial)
    result = poisoned(tuple(sizes), weights.dtype)
    arrays = {"filter": weights, "out_backprop": gradient, "result": result}
    device.run(launch, arrays, shift=shift)
    return result


def pool_launch(call: dict[str, Any], *, aligned: bool = True, wide: bool | None = None) -> Any:
    """Plan the launch of a pooling."""
    from numba_gradops.cuda import _pool_plan

    gradient = call["out_backprop"]
    geometry = _geometry.pool(
        tuple(map(int, call["orig_input_tensor_shape"])),
        gradient.shape,
        np.asarray(call["row_pooling_sequence"], np.int64),
        np.asarray(call["col_pooling_sequence"], np.int64),
        bool(call.get("overlapping", False)),
    )
    return _pool_plan.plan(geometry, gradient.dtype.name, gradient.itemsize, aligned, wide=wide)


def pool(
    device: Device,
    call: dict[str, Any],
    *,
    shift: int = 0,
    wide: bool | None = None,
    launch: Any = None,
) -> NDArray[Any]:
    """Compute a pooling as planned, or with 64-bit positions, in a result full of NaN."""
    if launch is None:
        launch = pool_launch(call, aligned=shift == 0, wide=wide)
    gradient = call["out_backprop"]
    result = poisoned(tuple(call["orig_input_tensor_shape"]), gradient.dtype)
    device.run(launch, {"out_backprop": gradient, "result": result}, shift=shift)
    return result
