"""Run a pooling kernel's source in Numba's simulator and compare with the CPU; a script.

The simulator has no intrinsics, so that module is replaced by one in plain Python, whose memory
checks every index.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

MEMORY: dict[int, np.ndarray] = {}


def _at(address: int, at: int, count: int) -> tuple[np.ndarray, slice]:
    array = MEMORY[int(address)]
    at = int(at)
    if not 0 <= at <= array.size - count:
        raise IndexError(f"element {at} of {array.size}")
    return array, slice(at, at + count)


def loads(dtype: str, count: int, register: str, constant: bool = True) -> Callable[..., Any]:  # noqa: ARG001
    def load(address: int, at: int) -> tuple[Any, ...]:
        array, where = _at(address, at, count)
        assert array.dtype == dtype
        return tuple(array[where].astype(register))

    return load


def reads(dtype: str) -> Callable[[int, int], Any]:
    load = loads(dtype, 1, dtype)
    return lambda address, at: load(address, at)[0]


def stores(dtype: str, count: int) -> Callable[..., None]:
    def store(address: int, at: int, values: tuple[Any, ...]) -> None:
        array, where = _at(address, at, count)
        assert array.dtype == dtype
        array[where] = values

    return store


def zeros(count: int, register: str) -> Callable[[], tuple[Any, ...]]:
    return lambda: (np.dtype(register).type(0),) * count


def quotients(count: int) -> Callable[..., tuple[Any, ...]]:  # noqa: ARG001
    def divide(values: tuple[Any, ...], size: int) -> tuple[Any, ...]:
        return tuple((v + np.float32(0)) / np.float32(size) for v in values)

    return divide


def added_quotients(*_: object) -> Callable[..., tuple[Any, ...]]:
    def add(sums: tuple[Any, ...], values: tuple[Any, ...], size: int) -> tuple[Any, ...]:
        return tuple(s + v / np.float64(size) for s, v in zip(sums, values, strict=True))

    return add


def main(overlapping: bool) -> None:
    import numba_gradops
    from numba_gradops import _geometry

    stub = types.ModuleType("numba_gradops.cuda._intrinsics")
    for function in (reads, loads, stores, zeros, quotients, added_quotients):
        setattr(stub, function.__name__, function)
    sys.modules[stub.__name__] = stub
    from numba import cuda

    from numba_gradops.cuda import _pool_kernels, _pool_plan

    rng = np.random.default_rng(0)
    rows, cols = [0, 1, 3, 4], [0, 2, 3, 6]
    gradient = rng.standard_normal((1, 3, 3, 8)).astype(np.float32)
    shape = (1, 4, 6, 8)
    sequences = [np.array(sequence, np.int64) for sequence in (rows, cols)]
    geometry = _geometry.pool(shape, gradient.shape, *sequences, overlapping)
    launch = _pool_plan.plan(geometry, "float32", 4, aligned=True)
    result = np.full(shape, np.nan, np.float32)
    MEMORY.update({1: gradient.ravel(), 2: result.reshape(-1), 3: launch.table})
    kernel = cuda.jit(_pool_kernels.make(launch.variant))
    kernel[launch.grid, launch.block](1, 2, 3)
    exact = numba_gradops.fractional_avg_pool_grad(shape, gradient, rows, cols, overlapping)
    np.testing.assert_array_equal(result, exact)
    print(f"right: {launch.variant}")


if __name__ == "__main__":
    main("overlapping" in sys.argv[1:])
