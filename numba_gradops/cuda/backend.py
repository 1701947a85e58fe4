"""The CUDA backend: both gradients on NVIDIA GPUs, over kernels compiled by Numba."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _dtypes
from .._arguments import Algorithm, DataFormat
from .._geometry import Conv2D, Pool
from . import _conv2d_plan, _driver, _launch, _pool_plan
from ._arrays import Arrays, DeviceArray
from ._plan import FILTER, GRADIENT, RESULT, Launch

_ALIGNMENT = 16  # bytes of the widest access

AnyArray = NDArray[Any] | DeviceArray


def device_count() -> int:
    """Give the number of devices."""
    return _driver.count()


class Backend:
    """The two functions for one call, on the device where its arrays are or are to be copied.

    `on_device` are the names of the arguments in a device's memory.
    """

    def __init__(self, device: int | None, on_device: frozenset[str]) -> None:
        if device is None and not on_device:
            device = _driver.current()
        self.arrays = Arrays(on_device, device)

    def conv2d_backprop_input(
        self,
        geometry: Conv2D,
        filter: AnyArray,
        out_backprop: AnyArray,
        data_format: DataFormat,
        algorithm: Algorithm,
        result: AnyArray,
    ) -> Any:
        """Fill `result`, whose arguments have all been checked; give what the caller gets."""
        if algorithm == "winograd":
            msg = "algorithm 'winograd' is not available on CUDA devices; use 'auto' or 'direct'"
            raise ValueError(msg)

        def plan(aligned: bool) -> Launch:
            dtype = _dtypes.name_of(result.dtype)
            size = result.dtype.itemsize
            return _conv2d_plan.plan(geometry, dtype, size, data_format, aligned)

        arrays = {GRADIENT: out_backprop, FILTER: filter, RESULT: result}
        return self._run(plan, arrays)

    def fractional_avg_pool_grad(
        self, geometry: Pool, out_backprop: AnyArray, result: AnyArray
    ) -> Any:
        """Fill `result`, whose arguments have all been checked; give what the caller gets."""

        def plan(aligned: bool) -> Launch:
            dtype = _dtypes.name_of(result.dtype)
            return _pool_plan.plan(geometry, dtype, result.dtype.itemsize, aligned)

        return self._run(plan, {GRADIENT: out_backprop, RESULT: result})

    def warmup_steps(self, dtype: np.dtype[Any]) -> list[tuple[str, Callable[[], object]]]:
        """List what compiles the kernels of a dtype."""
        name, size = _dtypes.name_of(dtype), dtype.itemsize
        kernels: list[Any] = []
        if name in _dtypes.CONV2D:
            kernels += _conv2d_plan.variants(name, size)
        if name in _dtypes.POOL:
            kernels += _pool_plan.variants(name, size)
        return [
            (f"{type(each).__name__} {name} {number}/{len(kernels)}", partial(self._load, each))
            for number, each in enumerate(kernels, 1)
        ]

    def _load(self, variant: Any) -> None:
        device = self.arrays.device
        assert device is not None
        with _driver.using(device):
            _launch.load(variant, device)

    def _run(self, plan: Any, arrays: dict[str, Any]) -> Any:
        device = self.arrays.device
        assert device is not None
        result = arrays[RESULT]
        if isinstance(result, DeviceArray):
            with _driver.using(device):
                return _in_place(plan, arrays, device)
        if result.size:
            with _driver.using(device):
                _by_copies(plan, arrays, device)
        return result


def _in_place(plan: Any, arrays: dict[str, DeviceArray], device: int) -> Any:
    """Launch on the stream on which the gradient's library works."""
    result = arrays[RESULT]
    stream = arrays[GRADIENT].stream
    if result.size:
        others = {each.stream for each in arrays.values()} - {stream}
        for other in others:
            _driver.wait(stream, other)
        addresses = {name: array.address for name, array in arrays.items()}
        aligned = not any(address % _ALIGNMENT for address in addresses.values())
        _launch.launch(plan(aligned), device, stream, addresses)
        # Libraries of other streams may reuse their memory once these have got there.
        for other in others:
            _driver.wait(other, stream)
        for array in arrays.values():
            if not array.ordered:
                _launch.keep_until_done(array.owner, stream)
    if result.library == "jax":
        # JAX knows nothing of streams: its arrays are complete when they are handed over.
        _driver.synchronize(stream)
        return sys.modules["jax"].dlpack.from_dlpack(result.owner)
    return result.owner


def _by_copies(plan: Any, arrays: dict[str, NDArray[Any]], device: int) -> None:
    """Copy host arrays to the device, and the result back."""
    stream = _driver.own_stream(device)
    result = arrays[RESULT]
    addresses: dict[str, int] = {}
    sources = []  # stay until the stream has copied them
    try:
        for name, array in arrays.items():
            addresses[name] = _driver.allocate(max(array.nbytes, 1))
            if name != RESULT and array.size:
                sources.append(np.ascontiguousarray(array))
                _driver.upload(addresses[name], sources[-1], stream)
        _launch.launch(plan(aligned=True), device, stream, addresses)
        target = result if result.flags.c_contiguous else np.empty_like(result, order="C")
        _driver.download(target, addresses[RESULT], stream)
        _driver.synchronize(stream)
        if target is not result:
            result[...] = target
    except MemoryError:
        nbytes = sum(array.nbytes for array in arrays.values())
        msg = f"the arrays of this call need {nbytes} bytes of memory on device 'cuda:{device}'"
        raise MemoryError(msg) from None
    finally:
        for address in addresses.values():
            _driver.free(address)


__all__ = ["Backend", "device_count"]
