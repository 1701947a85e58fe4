"""Both gradients on the layers that peers.py compares, and on calls so small that overhead is all.

Each benchmark checks its result against the float64 reference in `setup`, and compiles there.
"""

from typing import Any

import numpy as np

from numba_gradops import _reference, conv2d_backprop_input, fractional_avg_pool_grad

from .layers import LAYERS, POOLS

CONVOLUTIONS = {layer.name: layer for layer in LAYERS}
POOLINGS = {layer.name: layer for layer in POOLS}
# Largest error allowed, relative to the largest exact value.
TOLERANCE = {"float32": 3e-5, "float64": 1e-12, "int32": 0.0}


def check(result: np.ndarray, exact: np.ndarray, dtype: str) -> None:
    """Let no number come from a wrong result."""
    error = np.abs(result - (np.trunc(exact) if dtype == "int32" else exact)).max()
    if not error <= TOLERANCE[dtype] * np.abs(exact).max():
        msg = f"wrong result: error {error}"
        raise ValueError(msg)


class Convolution:
    """conv2d_backprop_input on layers of networks, all threads."""

    params = (list(CONVOLUTIONS), ["float32", "float64"], ["NHWC", "NCHW"])
    param_names = ("layer", "dtype", "data_format")
    repeat = (3, 7, 2.0)

    def setup(self, name: str, dtype: str, data_format: str) -> None:
        layer = CONVOLUTIONS[name]._replace(data_format=data_format)
        self.arguments = layer.arguments(np.random.default_rng(0), dtype)
        one = self.arguments | {
            "out_backprop": self.arguments["out_backprop"][:1],
            "input_sizes": [1, *self.arguments["input_sizes"][1:]],
        }
        check(conv2d_backprop_input(**one), _reference.conv2d_backprop_input(**one), dtype)
        self.out = conv2d_backprop_input(**self.arguments)

    def time_layer(self, *_: str) -> None:
        conv2d_backprop_input(**self.arguments, out=self.out)


class Pooling:
    """fractional_avg_pool_grad on layers of networks, all threads."""

    params = (list(POOLINGS), ["float32", "int32"], [False, True])
    param_names = ("layer", "dtype", "overlapping")
    repeat = (3, 7, 2.0)

    def setup(self, name: str, dtype: str, overlapping: bool) -> None:
        layer = POOLINGS[name]._replace(overlapping=overlapping)
        self.arguments = layer.arguments(np.random.default_rng(0), dtype)
        self.out = fractional_avg_pool_grad(**self.arguments)
        check(self.out, _reference.fractional_avg_pool_grad(**self.arguments), dtype)

    def time_layer(self, *_: Any) -> None:
        fractional_avg_pool_grad(**self.arguments, out=self.out)


class SmallCalls:
    """Calls that take no time but for their overhead."""

    def setup(self) -> None:
        self.weights = np.ones((3, 3, 2, 2), np.float32)
        self.gradient = np.ones((1, 4, 4, 2), np.float32)
        self.ends = np.arange(0, 9, 2)
        self.time_convolution()
        self.time_pooling()

    def time_convolution(self) -> None:
        conv2d_backprop_input([1, 4, 4, 2], self.weights, self.gradient, [1, 1, 1, 1], "SAME")

    def time_pooling(self) -> None:
        fractional_avg_pool_grad([1, 8, 8, 2], self.gradient, self.ends, self.ends)
