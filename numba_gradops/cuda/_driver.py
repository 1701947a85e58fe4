"""The few functions of NVIDIA's driver that are needed; the only file that talks to it.

Devices are numbered, streams, addresses and functions are integers. What goes wrong is a
MemoryError or a RuntimeError with the driver's own words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from cuda.bindings import driver
from numpy.typing import NDArray

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


def _call(function: Any, *arguments: Any) -> Any:
    status, *values = function(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        text = driver.cuGetErrorString(status)[1]
        words = text.decode() if isinstance(text, bytes) else str(status)
        if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise MemoryError(words)
        msg = f"{function.__name__} failed: {words}"
        raise RuntimeError(msg)
    return values[0] if len(values) == 1 else values


@cache
def count() -> int:
    """Give the number of devices."""
    _call(driver.cuInit, 0)
    return int(_call(driver.cuDeviceGetCount))


@cache
def _context(device: int) -> Any:
    """Keep the context that all libraries share."""
    count()
    return _call(driver.cuDevicePrimaryCtxRetain, _call(driver.cuDeviceGet, device))


@cache
def capability(device: int) -> tuple[int, int]:
    """Give the compute capability of a device."""
    count()
    handle = _call(driver.cuDeviceGet, device)
    names = driver.CUdevice_attribute
    major = names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    minor = names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
    return (
        int(_call(driver.cuDeviceGetAttribute, major, handle)),
        int(_call(driver.cuDeviceGetAttribute, minor, handle)),
    )


def current() -> int:
    """Give the device that the calling thread uses, or the first one."""
    count()
    if not int(_call(driver.cuCtxGetCurrent)):
        return 0
    return int(_call(driver.cuCtxGetDevice))


@contextmanager
def using(device: int) -> Iterator[None]:
    """Use a device; afterwards the thread uses again what it used before."""
    _call(driver.cuCtxPushCurrent, _context(device))
    try:
        yield
    finally:
        _call(driver.cuCtxPopCurrent)


def owner(address: int) -> int:
    """Give the device whose memory an address lies in."""
    count()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(_call(driver.cuPointerGetAttribute, attribute, address))


def allocate(size: int) -> int:
    """Allocate memory of the device in use."""
    return int(_call(driver.cuMemAlloc, size))


def free(address: int) -> None:
    """Give memory back, when the device has finished with it."""
    _call(driver.cuMemFree, address)


@cache
def has_pools(device: int) -> bool:
    """Tell whether memory can be allocated in the order of a stream."""
    handle = _call(driver.cuDeviceGet, device)
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
    return bool(_call(driver.cuDeviceGetAttribute, attribute, handle))


def allocate_on(stream: int, size: int) -> int:
    """Allocate memory that what is given to a stream from now on may use."""
    return int(_call(driver.cuMemAllocAsync, size, stream))


def free_on(stream: int, address: int) -> None:
    """Give memory back once a stream has done what was given to it."""
    _call(driver.cuMemFreeAsync, address, stream)


def upload(address: int, array: NDArray[Any], stream: int) -> None:
    """Copy a contiguous array to the device; it must stay until the stream has got there.

    The driver may, but need not, copy it to memory of its own before this returns.
    """
    _call(driver.cuMemcpyHtoDAsync, address, array.ctypes.data, array.nbytes, stream)


def download(array: NDArray[Any], address: int, stream: int) -> None:
    """Copy from the device into a contiguous array."""
    _call(driver.cuMemcpyDtoHAsync, array.ctypes.data, address, array.nbytes, stream)


@cache
def own_stream(device: int) -> int:
    """Give a stream that nobody else uses, and that waits for nobody."""
    with using(device):
        return int(_call(driver.cuStreamCreate, _NON_BLOCKING))


def synchronize(stream: int) -> None:
    """Wait until all is done that was given to a stream."""
    _call(driver.cuStreamSynchronize, stream)


def synchronize_all() -> None:
    """Wait until the device in use has nothing to do."""
    _call(driver.cuCtxSynchronize)


def wait(stream: int, other: int) -> None:
    """Have a stream wait for what has been given to another one; the host waits for neither."""
    event = record(other)
    _call(driver.cuStreamWaitEvent, stream, event, 0)
    _call(driver.cuEventDestroy, event)  # the driver keeps it until it has happened


def record(stream: int) -> Any:
    """Give an event that happens when all is done that was given to a stream."""
    event = _call(driver.cuEventCreate, _NO_TIMING)
    _call(driver.cuEventRecord, event, stream)
    return event


def has_happened(event: Any) -> bool:
    """Tell whether an event has happened; if so it is forgotten."""
    (status,) = driver.cuEventQuery(event)
    if status == driver.CUresult.CUDA_ERROR_NOT_READY:
        return False
    _call(driver.cuEventDestroy, event)
    return True


_modules: list[Any] = []  # stay loaded


def load(image: bytes, name: str) -> int:
    """Load machine code onto the device in use; give the function of this name."""
    module = _call(driver.cuModuleLoadData, image)
    _modules.append(module)
    return int(_call(driver.cuModuleGetFunction, module, name.encode()))


def launch(
    function: int, grid: int, block: int, shared: int, stream: int, addresses: Sequence[int]
) -> None:
    """Start a kernel whose arguments are 64-bit integers."""
    values = (ctypes.c_int64 * len(addresses))(*addresses)
    start = ctypes.addressof(values)
    pointers = (ctypes.c_void_p * len(addresses))(*[start + 8 * i for i in range(len(addresses))])
    parameters = ctypes.addressof(pointers)
    _call(driver.cuLaunchKernel, function, grid, 1, 1, block, 1, 1, shared, stream, parameters, 0)
