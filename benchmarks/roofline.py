"""What the machine could do: multiply-adds from registers, and bytes copied, by some threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import njit

from numba_gradops.cpu import _microkernel, _tiled_loops

_ROUNDS = 7
_TERMS = 128  # the weights of so many terms stay in the first-level cache


def _best(threads: int, work: Callable[[int], object]) -> float:
    """Give the shortest time in which all threads have done their part."""

    def timed() -> float:
        running = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        start = time.perf_counter()
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return time.perf_counter() - start

    timed()
    return min(timed() for _ in range(_ROUNDS))


def products_per_second(threads: int, dtype: str) -> float:
    """Measure the register tile on data in the first-level cache, in multiply-adds per second."""
    numbers = np.dtype(dtype)
    size = numbers.itemsize
    tile = _tiled_loops.tile_of(_tiled_loops.Wide, size)
    kernel = _microkernel.channels(ir.FloatType() if size == 4 else ir.DoubleType(), tile)

    @njit(nogil=True)
    def repeat(times, table, bases, gradient, outs, result, zeros, weights, width):
        for _ in range(times):
            kernel(
                table, 1, 0, bases, gradient, outs, result, zeros, weights, 0, width, 0, 0, 0, 0, 0
            )

    width = tile.vectors * tile.lanes
    table = np.array([0, 0, (1 << tile.pixels) - 1, _TERMS], np.int64)
    bases = np.arange(tile.pixels) * _TERMS * size
    outs = np.arange(tile.pixels) * width * size
    times = 50_000

    def work(_: int) -> None:
        gradient = np.ones(tile.pixels * _TERMS, numbers)
        weights = np.ones(_TERMS * width, numbers)
        result = np.empty(tile.pixels * width, numbers)
        arrays = (table, bases, gradient, outs, result, gradient, weights)
        repeat(times, *(array.ctypes.data for array in arrays), width)

    return threads * times * tile.pixels * width * _TERMS / _best(threads, work)


def copied_bytes_per_second(threads: int, megabytes: int = 32) -> float:
    """Measure a plain copy, in bytes read plus bytes written per second."""
    parts = [np.ones(megabytes * 2**20 // threads, np.uint8) for _ in range(threads)]
    targets = [np.ones_like(part) for part in parts]

    def work(number: int) -> None:
        np.copyto(targets[number], parts[number])

    return 2 * megabytes * 2**20 / _best(threads, work)
