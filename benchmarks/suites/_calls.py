"""Calls on random data, each made, compiled and checked once in a process.

airspeed velocity repeats `setup` before every sample, so what is made here is kept.
"""

import os
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

import numba_gradops

from ._allocator import free_at_once
from ._checkout import reference
from .layers import ConvLayer, PoolLayer

Call = Callable[[], Any]

# Largest error allowed, relative to the largest exact value: as the README promises for 'auto'.
TOLERANCE = {
    "float16": 2**-10,
    "bfloat16": 2**-7,
    "float32": 3e-5,
    "float64": 1e-13,
    "int32": 0.0,
    "int64": 0.0,
}

# What a result holds before the call that is checked: no gradient made here is so large.
WRONG = 9999


def fix_threads(threads: int) -> None:
    """Let Numba have so many threads: it reads this once, when it is loaded."""
    os.environ["NUMBA_NUM_THREADS"] = str(threads)
    numba = sys.modules.get("numba")
    if numba is not None and threads != numba.config.NUMBA_NUM_THREADS:
        msg = f"Numba runs {numba.config.NUMBA_NUM_THREADS} threads already, not {threads}"
        raise RuntimeError(msg)


def dtype_of(name: str) -> Any:
    """Give the dtype of this name, which may be one of ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(name)


def _require(error: Any, largest: Any, dtype: str) -> None:
    allowed = TOLERANCE[dtype] * largest
    if not error <= allowed:  # NaN is no small error
        msg = f"wrong result: off by {error:.3g}, {allowed:.3g} allowed"
        raise ValueError(msg)


def check_convolution(result: np.ndarray, arguments: dict[str, Any], dtype: str) -> None:
    """Compare all images with the reference at the price of one.

    The result is linear in the gradient: a sum of the images, each with a weight of its own, is
    the result of the same sum of the gradients.
    """
    gradient = np.asarray(arguments["out_backprop"])
    weights = np.random.default_rng(1).integers(1, 9, len(gradient)).astype(np.float64)

    def total(images: np.ndarray) -> np.ndarray:
        return np.tensordot(weights, images.astype(np.float64), 1)[np.newaxis]

    sizes = [1, *arguments["input_sizes"][1:]]
    one = arguments | {"input_sizes": sizes, "out_backprop": total(gradient)}
    exact = reference.conv2d_backprop_input(**one)
    _require(np.abs(total(np.asarray(result)) - exact).max(), np.abs(exact).max(), dtype)


def check_pooling(result: np.ndarray, arguments: dict[str, Any], dtype: str) -> None:
    """Compare with the reference, after the cast that the operation ends with."""
    exact = reference.fractional_avg_pool_grad(**arguments)
    if np.dtype(dtype_of(dtype)).kind == "i":
        exact = np.trunc(exact)
    error = np.abs(np.asarray(result).astype(np.float64) - exact).max()
    _require(error, np.abs(exact).max(), dtype)


def _into_given_memory(call: Call) -> Call:
    """Give the call a result to write into; what it leaves alone there will be found wrong."""
    out = call()
    out.fill(WRONG)
    return partial(call, out=out)


@cache
def convolution(
    layer: ConvLayer,
    dtype: str = "float32",
    *,
    threads: int,
    algorithm: str = "auto",
    new_result: bool = False,
) -> Call:
    """Give a call of conv2d_backprop_input, into given memory or into new pages."""
    fix_threads(threads)
    arguments = layer.arguments(np.random.default_rng(0), dtype_of(dtype))
    call = partial(numba_gradops.conv2d_backprop_input, **arguments, algorithm=algorithm)
    if not new_result:
        call = _into_given_memory(call)
    check_convolution(call(), arguments, dtype)
    if new_result:
        free_at_once()
    return call


@cache
def pooling(
    layer: PoolLayer, dtype: str = "float32", *, threads: int, new_result: bool = False
) -> Call:
    """Give a call of fractional_avg_pool_grad, into given memory or into new pages."""
    fix_threads(threads)
    arguments = layer.arguments(np.random.default_rng(0), dtype_of(dtype))
    call = partial(numba_gradops.fractional_avg_pool_grad, **arguments)
    if not new_result:
        call = _into_given_memory(call)
    check_pooling(call(), arguments, dtype)
    if new_result:
        free_at_once()
    return call
