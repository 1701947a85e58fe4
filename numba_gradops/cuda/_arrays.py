"""Arrays in a device's memory: read without touching their data, and allocated like one another.

Each library's arrays are read in the library's own words where it is known (PyTorch, CuPy, Numba),
else by `__cuda_array_interface__` or DLPack. Nothing of these libraries is imported that
is not there already.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _arrays, _dtypes
from . import _dlpack, _driver

LEGACY_STREAM = 1  # CU_STREAM_LEGACY, the default stream


class DeviceArray(NamedTuple):
    """A contiguous array in a device's memory."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    library: str
    stream: int  # on which its library works
    owner: Any  # the caller's object
    ordered: bool  # the library keeps memory that is used on its stream

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * int(self.dtype.itemsize)


def library_of(value: Any) -> str:
    """Name the library of an array by where its class comes from."""
    module = type(value).__module__
    name = module.partition(".")[0]
    if name == "jaxlib":
        return "jax"
    if name in ("numba", "numba_cuda"):
        return "numba"
    return name


def _dtype_named(name: str, argument: str) -> np.dtype[Any]:
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as missing:
            msg = f"{argument} is bfloat16, which needs ml_dtypes: pip install ml_dtypes"
            raise TypeError(msg) from missing
        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    try:
        return np.dtype(name)
    except TypeError:
        msg = f"{argument} must have a dtype that NumPy knows, got {name}"
        raise TypeError(msg) from None


def _torch(value: Any, name: str) -> DeviceArray:
    device = value.device.index
    stream = sys.modules["torch"].cuda.current_stream(device).cuda_stream
    _require_contiguous(tuple(value.shape), tuple(value.stride()), name)
    dtype = _dtype_named(str(value.dtype).removeprefix("torch."), name)
    shape = tuple(value.shape)
    return DeviceArray(value.data_ptr(), shape, dtype, device, "torch", stream, value, True)


def _cupy(value: Any, name: str) -> DeviceArray:
    cupy = sys.modules["cupy"]
    device = value.device.id
    with cupy.cuda.Device(device):
        stream = cupy.cuda.get_current_stream().ptr
    steps = tuple(step // value.itemsize for step in value.strides)
    _require_contiguous(value.shape, steps, name)
    dtype = np.dtype(value.dtype)
    return DeviceArray(value.data.ptr, value.shape, dtype, device, "cupy", stream, value, True)


def _by_interface(value: Any, name: str) -> DeviceArray:
    """Read `__cuda_array_interface__`, also that of Numba."""
    facts = value.__cuda_array_interface__
    shape, library = tuple(facts["shape"]), library_of(value)
    own = getattr(value, "dtype", None)
    dtype = np.dtype(own if own is not None else facts["typestr"])
    if facts.get("mask") is not None:
        msg = f"{name} must not be a masked array: the mask would be lost"
        raise TypeError(msg)
    strides = facts.get("strides")
    if strides is not None:
        steps = tuple(step // dtype.itemsize for step in strides)
        if any(step % dtype.itemsize for step in strides):
            steps = (0,) * len(shape)
        _require_contiguous(shape, steps, name)
    address = facts["data"][0] or 0
    device = _driver.owner(address) if address else _driver.current()
    stream = facts.get("stream") or LEGACY_STREAM
    return DeviceArray(
        address, shape, dtype, device, library, int(stream), value, library == "numba"
    )


def _by_dlpack(value: Any, name: str) -> DeviceArray:
    """Read a DLPack capsule; its library has the default stream wait for the array."""
    capsule = value.__dlpack__(stream=LEGACY_STREAM)
    facts = _dlpack.read(capsule)
    if facts.strides is not None:
        _require_contiguous(facts.shape, facts.strides, name)
    dtype = _dtype_named(facts.dtype, name)
    # The capsule keeps the memory valid.
    return DeviceArray(
        facts.address,
        facts.shape,
        dtype,
        facts.device,
        library_of(value),
        LEGACY_STREAM,
        (value, capsule),
        False,
    )


def _require_contiguous(shape: tuple[int, ...], steps: tuple[int, ...], name: str) -> None:
    if 0 in shape:
        return
    expected = 1
    for count, step in zip(reversed(shape), reversed(steps), strict=True):
        if count > 1 and step != expected:
            msg = (
                f"{name} must be contiguous (C order) on a device, got shape {shape} with steps "
                f"{steps}: pass a copy, {name}.contiguous() or cupy.ascontiguousarray({name})"
            )
            raise ValueError(msg)
        expected *= count


def read(value: Any, name: str) -> DeviceArray:
    """Read a device array of whatever library."""
    library = library_of(value)
    try:
        if library == "torch" and hasattr(value, "data_ptr"):
            return _torch(value, name)
        if library == "cupy" and hasattr(value, "device"):
            return _cupy(value, name)
        if library != "jax" and hasattr(value, "__cuda_array_interface__"):
            return _by_interface(value, name)
        return _by_dlpack(value, name)
    except (ValueError, TypeError, MemoryError):
        raise
    except Exception as error:
        msg = f"{name} could not be read as a device array: {type(error).__name__}: {error}"
        raise TypeError(msg) from error


class Arrays:
    """The counterpart of `numba_gradops._arrays` for the arrays of one call on a device."""

    def __init__(self, on_device: frozenset[str], device: int | None) -> None:
        self._on_device = on_device  # names of the arguments that are in a device's memory
        self.device = device  # None until an array tells
        self.found: dict[str, DeviceArray] = {}

    def tensor(
        self,
        value: Any,
        name: str,
        supported: tuple[str, ...],
        *,
        like: np.dtype[Any] | None = None,
        wide: bool = False,
    ) -> NDArray[Any] | DeviceArray:
        """Read an array argument."""
        if name not in self._on_device:
            return _arrays.tensor(value, name, supported, like=like, wide=wide)
        array = read(value, name)
        _dtypes.require(array.dtype, supported, name)
        if not array.dtype.isnative:
            msg = f"{name} must be in the machine's byte order on a device, got {array.dtype}"
            raise TypeError(msg)
        self._meet(array, name)
        self.found[name] = array
        return array

    def _meet(self, array: DeviceArray, name: str) -> None:
        if self.device is None:
            self.device = array.device
        if array.device != self.device:
            msg = f"{name} must be on device 'cuda:{self.device}', got 'cuda:{array.device}'"
            raise ValueError(msg)

    def result(
        self,
        out: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        inputs: dict[str, Any],
    ) -> NDArray[Any] | DeviceArray:
        """Allocate the result as the gradient is, or check that the caller's `out` can take it."""
        if not self._on_device:
            return _arrays.result(out, shape, dtype, inputs)
        if out is None:
            return _empty(shape, dtype, self.found["out_backprop"])
        array = read(out, "out")
        self._meet(array, "out")
        if array.dtype != dtype:
            msg = f"out must have dtype {dtype}, got {array.dtype}"
            raise TypeError(msg)
        if array.shape != shape:
            msg = f"out must have shape {shape}, got {array.shape}"
            raise ValueError(msg)
        if _is_read_only(out):
            msg = "out must be writeable, got a read-only array"
            raise ValueError(msg)
        for name, other in self.found.items():
            first = max(array.address, other.address)
            if first < min(array.address + array.nbytes, other.address + other.nbytes):
                msg = f"out must not share memory with {name}: it would be overwritten while read"
                raise ValueError(msg)
        return array._replace(owner=out)


def _is_read_only(value: Any) -> bool:
    if library_of(value) == "jax":
        return True
    facts = (
        getattr(value, "__cuda_array_interface__", None) if library_of(value) != "torch" else None
    )
    return bool(facts and facts["data"][1])


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], like: DeviceArray) -> DeviceArray:
    """Allocate an array of the same library, for the stream on which it works."""
    try:
        return _allocate(shape, dtype, like)
    except Exception as error:
        if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
            nbytes = math.prod(shape) * dtype.itemsize
            msg = (
                f"the result of shape {shape} and dtype {dtype} needs {nbytes} bytes of memory "
                f"on device 'cuda:{like.device}'"
            )
            raise MemoryError(msg) from error
        raise


class _Memory:
    """Memory of a device that is freed with the last reference to it."""

    def __init__(self, size: int, device: int) -> None:
        self._device = device
        with _driver.using(device):
            self.address = _driver.allocate(max(size, 1))

    def __del__(self) -> None:
        with _driver.using(self._device):
            _driver.free(self.address)


def _allocate(shape: tuple[int, ...], dtype: np.dtype[Any], like: DeviceArray) -> DeviceArray:
    if like.library == "torch":
        torch = sys.modules["torch"]
        made = torch.empty(shape, dtype=like.owner.dtype, device=like.owner.device)
        return like._replace(address=made.data_ptr(), shape=shape, owner=made)
    if like.library == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device):
            made = cupy.empty(shape, dtype)
        return like._replace(address=made.data.ptr, shape=shape, owner=made)
    if like.library == "jax":
        memory = _Memory(math.prod(shape) * dtype.itemsize, like.device)
        device = (_dlpack.CUDA, like.device)
        made = _dlpack.Exporter(memory, memory.address, shape, dtype.name, device)
        return like._replace(address=memory.address, shape=shape, owner=made)
    made = _numba_empty(shape, dtype, like.device, like.stream)
    address = made.__cuda_array_interface__["data"][0] or 0
    return like._replace(address=address, shape=shape, owner=made, library="numba")


def _numba_empty(shape: tuple[int, ...], dtype: np.dtype[Any], device: int, stream: int) -> Any:
    """Allocate an array of Numba, whose interface names the stream that will write it."""
    from numba import cuda

    with cuda.gpus[device]:
        # Without a stream the array would promise to be complete for whoever reads it.
        named = 0 if stream == LEGACY_STREAM else cuda.external_stream(stream)
        return cuda.device_array(shape, dtype, stream=named)
