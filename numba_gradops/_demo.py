"""``python -m numba_gradops demo``: layers of real networks, checked and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _reference, conv2d_backprop_input, fractional_avg_pool_grad
from ._layers import DEMO, ConvLayer

# Largest error of algorithm='auto', relative to the largest exact value, as documented.
_TOLERANCE = {"float32": 3e-5, "float64": 1e-13}
_REPEATS = 5


def _seconds(call: Callable[[], NDArray[Any]]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def run(dtype: str = "float32", seed: int = 0) -> bool:
    """Print a line for each layer; return whether every result was right."""
    rng = np.random.default_rng(seed)
    print(f"Gradients with respect to the input of layers of real networks, {dtype}.")
    print("Each is checked against an independent NumPy computation in float64;")
    print("times are the best of", _REPEATS, "calls; a first call may have to compile.\n")
    print(f"{'layer':<32}{'first call':>12}{'then':>12}{'speed':>16}{'error':>10}")
    good = True
    for layer in DEMO:
        arguments = layer.arguments(rng, dtype)
        convolution = isinstance(layer, ConvLayer)
        ours = conv2d_backprop_input if convolution else fractional_avg_pool_grad
        exact_by = getattr(_reference, ours.__name__)

        def call(ours: Any = ours, arguments: Any = arguments) -> NDArray[Any]:
            result: NDArray[Any] = ours(**arguments)
            return result

        first = _seconds(call)
        best = min(_seconds(call) for _ in range(_REPEATS))
        result, exact = call(), exact_by(**arguments)
        error = float(np.abs(result - exact).max() / np.abs(exact).max())
        right = result.shape == exact.shape and error <= _TOLERANCE[dtype]
        good = good and right
        if convolution:
            products = arguments["out_backprop"].size * arguments["filter"][..., 0].size
            speed = f"{2 * products / best / 1e9:.1f} GFLOP/s"
        else:
            speed = f"{(result.nbytes + arguments['out_backprop'].nbytes) / best / 1e9:.1f} GB/s"
        print(
            f"{layer.name:<32}{first * 1e3:>9.1f} ms{best * 1e3:>9.2f} ms{speed:>16}"
            f"{error:>10.1e}{'' if right else '  WRONG'}",
            flush=True,
        )
    print("\nAll results are right." if good else "\nSome results are WRONG.")
    return good
