"""Both gradients on an NVIDIA GPU; where none can be used, this file defines no benchmark.

Arrays are on the device unless said. Each timed call ends with a synchronisation, without which
only the launch would be timed.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

import numba_gradops
from numba_gradops._device import cuda_problems

from . import _calls
from ._timing import Timed
from .layers import LAYERS, POOLS, TINY_CONVOLUTION, TINY_POOL, ConvLayer, PoolLayer

if not cuda_problems():
    from numba import cuda

    CONVOLUTIONS = {layer.name: layer for layer in (*LAYERS, TINY_CONVOLUTION)}
    POOLINGS = {layer.name: layer for layer in (*POOLS, TINY_POOL)}

    def _to_device(arguments: dict[str, Any]) -> dict[str, Any]:
        """Copy filter and gradient; sizes and sequences are read on the host."""
        moved = {
            name: cuda.to_device(arguments[name])
            for name in ("filter", "out_backprop")
            if name in arguments
        }
        return arguments | moved

    @cache
    def _call(layer: ConvLayer | PoolLayer, dtype: str = "float32", on_host: bool = False) -> Any:
        """Make a call, compile it, check its result once, and give it a result to write into."""
        if isinstance(layer, ConvLayer):
            function: Callable[..., Any] = numba_gradops.conv2d_backprop_input
            check = _calls.check_convolution
        else:
            function = numba_gradops.fractional_avg_pool_grad
            check = _calls.check_pooling
        arguments = layer.arguments(np.random.default_rng(0), np.dtype(dtype))
        given = arguments if on_host else _to_device(arguments)
        call = partial(function, **given, device="cuda")
        out = call()
        wrong = np.full(out.shape, _calls.WRONG, out.dtype)
        call = partial(call, out=wrong if on_host else cuda.to_device(wrong))
        result = call()
        check(result if on_host else result.copy_to_host(), arguments, dtype)
        return call

    class Convolution(Timed):
        """The layers of the comparison with TensorFlow and PyTorch, float32, NHWC."""

        params = tuple(layer.name for layer in LAYERS)
        param_names = ("layer",)

        def setup(self, layer: str) -> None:
            self.call = _call(CONVOLUTIONS[layer])

        def time_layer(self, *_: object) -> None:
            self.call()
            cuda.synchronize()

        time_layer.pretty_name = "CUDA, convolution, layers of networks"

    class ConvolutionTypes(Timed):
        """Dtypes and layouts."""

        params = (("float16", "float32", "float64", "int32"), ("NHWC", "NCHW"))
        param_names = ("dtype", "data_format")

        def setup(self, dtype: str, data_format: str) -> None:
            layer = CONVOLUTIONS["resnet 28"]._replace(data_format=data_format)
            self.call = _call(layer, dtype)

        def time_layer(self, *_: object) -> None:
            self.call()
            cuda.synchronize()

        time_layer.pretty_name = "CUDA, convolution, dtypes and layouts, resnet 28"

    class Pooling(Timed):
        """The layers of the comparison with TensorFlow."""

        params = (tuple(layer.name for layer in POOLS), ("float32", "float64", "int32"))
        param_names = ("layer", "dtype")

        def setup(self, layer: str, dtype: str) -> None:
            self.call = _call(POOLINGS[layer], dtype)

        def time_layer(self, *_: object) -> None:
            self.call()
            cuda.synchronize()

        time_layer.pretty_name = "CUDA, pooling, layers and dtypes"

    class HostArrays(Timed):
        """Arrays on the host: copies there and back are part of the call."""

        params = ("resnet 28", "unet")
        param_names = ("layer",)

        def setup(self, layer: str) -> None:
            self.call = _call(CONVOLUTIONS[layer], on_host=True)

        def time_layer(self, *_: object) -> None:
            self.call()

        time_layer.pretty_name = "CUDA, convolution, arrays on the host"

    class SmallCalls(Timed):
        """Calls whose time is that of checking, launching and waiting."""

        repeat = (100, 1000, 0.4)
        params = ("convolution", "pooling")
        param_names = ("function",)

        def setup(self, function: str) -> None:
            self.call = _call(TINY_CONVOLUTION if function == "convolution" else TINY_POOL)

        def time_call(self, *_: object) -> None:
            self.call()
            cuda.synchronize()

        time_call.pretty_name = "CUDA, small calls, launch and wait included"
