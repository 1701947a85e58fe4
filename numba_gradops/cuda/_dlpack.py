"""Arrays handed from library to library by DLPack: reading a capsule, and making one.

For arrays that have nothing else, such as JAX's.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

CUDA = 2  # kDLCUDA
CUDA_MANAGED = 13  # kDLCUDAManaged
# Codes of DLDataTypeCode with numbers of bits, and NumPy's names for them.
_DTYPES = {
    **{(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (4, 16): "bfloat16",
    (5, 64): "complex64",
    (5, 128): "complex128",
    (6, 8): "bool",
}
_TYPES = {name: kind for kind, name in _DTYPES.items()}


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (
    ("tensor", _Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
)

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_NAME = b"dltensor"


class Contents(NamedTuple):
    """What a capsule says; strides count elements, None means contiguous."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device: int


def read(capsule: Any) -> Contents:
    """Read a capsule, which stays its owner's: the memory is valid as long as the capsule lives."""
    tensor = _Managed.from_address(_get_pointer(capsule, _NAME)).tensor
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    dtype = _DTYPES.get((code, bits)) if lanes == 1 else None
    if dtype is None:
        dtype = f"DLPack's type {code} of {bits} bits and {lanes} lanes"
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    return Contents(address, shape, strides, dtype, tensor.device.number)


_exported: dict[int, Any] = {}  # by the address of the structure: until its deleter is called


def _forget(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


_delete = _Deleter(_forget)


class Exporter:
    """Memory of a device that another library can take over by DLPack."""

    def __init__(
        self, owner: Any, address: int, shape: tuple[int, ...], dtype: str, device: tuple[int, int]
    ) -> None:
        self._owner = owner  # its end frees the memory
        self._address, self._shape, self._dtype, self._device = address, shape, dtype, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **_: Any) -> Any:
        managed = _Managed()
        shape = (ctypes.c_int64 * len(self._shape))(*self._shape)
        tensor = managed.tensor
        tensor.data = self._address
        tensor.device = _Device(*self._device)
        tensor.ndim = len(self._shape)
        tensor.dtype = _DataType(*_TYPES[self._dtype], 1)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
        managed.deleter = _delete
        address = ctypes.addressof(managed)
        _exported[address] = managed, shape, self._owner
        # No destructor: a capsule that nobody takes keeps its memory, which is better than freeing
        # what somebody reads.
        return _new_capsule(address, _NAME, None)
