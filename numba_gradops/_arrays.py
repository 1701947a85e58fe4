"""Array arguments turned into checked NumPy arrays, and the arrays that results go into."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _dtypes, _spare
from ._arguments import INT32_MAX, describe

# Below this size an allocation is simply tried; above, free memory is looked up first, because
# Linux hands out memory that does not exist and kills the process when it is written to.
_LARGE = 2**30
# Bytes of a cache line, where arrays start from some size on: finding it out takes a microsecond.
_LINE = 64
_ALIGNED_FROM = 2**14

# Steps that the exact search for shared memory may take; beyond it, memory counts as shared.
_OVERLAP_EFFORT: Any = 10_000  # Any: NumPy's types know the two special values only

# Tests put poison here, so that an element that no loop writes shows.
_allocate = np.empty


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _read(value: Any, name: str) -> NDArray[Any]:
    if value is None:
        msg = f"{name} must be given"
        raise TypeError(msg)
    if isinstance(value, np.ma.MaskedArray):
        msg = f"{name} must not be a masked array: the mask would be lost"
        raise TypeError(msg)
    try:
        return np.asarray(value)
    except MemoryError:
        raise
    except ValueError as error:  # ragged lists
        msg = f"{name} could not be read as an array: {error}"
        raise ValueError(msg) from error
    except Exception as error:  # whatever a foreign __array__ throws
        msg = f"{name} could not be read as an array: {type(error).__name__}: {error}"
        raise TypeError(msg) from error


def _refuse_leaves(leaves: list[Any], name: str) -> None:
    for leaf in leaves:
        if isinstance(leaf, np.ma.MaskedArray):
            msg = f"{name} must not hold masked arrays: the mask would be lost"
            raise TypeError(msg)
        if isinstance(leaf, bool | np.bool_):
            msg = f"{name} must hold numbers, got {describe(leaf)}"
            raise TypeError(msg)


def _type_literal(
    array: NDArray[Any], leaves: list[Any], name: str, like: np.dtype[Any] | None, wide: bool
) -> NDArray[Any]:
    """Give numbers in Python lists the dtype that TensorFlow would give them."""
    if array.dtype.kind == "f":
        if all(isinstance(leaf, int) for leaf in leaves):
            # NumPy turns a list that mixes small and very large ints into floats.
            msg = f"{name} has an integer that does not fit in 64 bits"
            raise ValueError(msg)
        floats = (leaf for leaf in leaves if not isinstance(leaf, int))
        if type(next(floats)) is not float:
            return array  # NumPy's floats in a list have a dtype, Python's do not
        if like is not None and like.kind == "i":
            msg = f"{name} must have dtype {like} like filter, got a list of floats"
            raise TypeError(msg)
        target = np.dtype(np.float32) if like is None else like
    elif array.dtype.kind == "i":
        fits = array.size == 0 or (array.min() >= -INT32_MAX - 1 and array.max() <= INT32_MAX)
        target = np.dtype(np.int32 if fits or not wide else np.int64) if like is None else like
        if target == np.int32 and not fits:
            msg = f"{name} has an integer that does not fit in int32"
            raise ValueError(msg)
    else:
        return array
    with np.errstate(all="ignore"):
        return array.astype(target)


def tensor(
    value: Any,
    name: str,
    supported: tuple[str, ...],
    *,
    like: np.dtype[Any] | None = None,
    wide: bool = False,
) -> NDArray[Any]:
    """Read an array argument, of any memory layout, as a native-endian NumPy array.

    Lists have no dtype of their own: they take `like` where it is given, else float32 or int32,
    or int64 where `wide` allows it and the numbers need it, as TensorFlow decides.
    """
    if type(value) is np.ndarray and _dtypes.is_one_of(value.dtype, supported):
        return value
    literal = isinstance(value, list | tuple | int | float) and not isinstance(value, np.generic)
    leaves = list(_leaves(value)) if literal else []
    _refuse_leaves(leaves, name)
    array = _read(value, name)
    if leaves:
        array = _type_literal(array, leaves, name, like, wide)
    return array.astype(_dtypes.require(array.dtype, supported, name), copy=False)


def _available_bytes() -> float:
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            kib = {key: int(rest.split()[0]) for key, rest in (line.split(":") for line in lines)}
        return 1024 * (kib["MemAvailable"] + kib.get("SwapFree", 0))
    except (OSError, ValueError, KeyError, IndexError):
        return math.inf


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], purpose: str) -> NDArray[Any]:
    """Allocate without filling; a refusal is a MemoryError that says how much was asked for."""
    count = math.prod(shape)
    nbytes = count * dtype.itemsize
    try:
        if nbytes > _LARGE and nbytes > _available_bytes():
            raise MemoryError
        if nbytes < _ALIGNED_FROM:
            return _allocate(shape, dtype)
        # At the start of a cache line: no vector then lies across two of them.
        flat = _allocate((count + _LINE // dtype.itemsize,), dtype)
        skip = -flat.ctypes.data % _LINE // dtype.itemsize
        return flat[skip : skip + count].reshape(shape)
    except (MemoryError, ValueError):  # NumPy's word for sizes no machine could hold
        msg = f"{purpose} of shape {shape} and dtype {dtype} needs {nbytes} bytes of memory"
        raise MemoryError(msg) from None


def _new_result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    nbytes = math.prod(shape) * dtype.itemsize
    if not _spare.SMALLEST < nbytes <= _spare.LARGEST:
        return empty(shape, dtype, "the result")
    found = _spare.take(nbytes)
    if found is None:
        found = _spare.lend(empty(shape, dtype, "the result").reshape(-1).view(np.uint8), nbytes)
    return found.view(dtype).reshape(shape)


def _overlaps(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if not np.may_share_memory(one, other):
        return False
    try:
        return np.shares_memory(one, other, max_work=_OVERLAP_EFFORT)
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: NDArray[Any]) -> bool:
    """Tell whether elements may share memory; a view so odd that it is hard to tell counts too."""
    reach = array.itemsize
    for step, count in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if count > 1:
            if step < reach:
                return True
            reach = step * (count - 1) + reach
    return False


def result(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: dict[str, Any]
) -> NDArray[Any]:
    """Allocate the result, or check that the caller's `out` can take it and is no input."""
    if out is None:
        return _new_result(shape, dtype)
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        msg = f"out must be a NumPy array, got {describe(out)}"
        raise TypeError(msg)
    if out.dtype != dtype:
        msg = f"out must have dtype {dtype}, got {out.dtype}"
        raise TypeError(msg)
    if out.shape != shape:
        msg = f"out must have shape {shape}, got {out.shape}"
        raise ValueError(msg)
    if not out.flags.writeable:
        msg = "out must be writeable, got a read-only array"
        raise ValueError(msg)
    if out.size and _overlaps_itself(out):
        msg = "out must have memory of its own for every element, got a view that repeats some"
        raise ValueError(msg)
    for name, array in inputs.items():
        if isinstance(array, np.ndarray) and _overlaps(out, array):
            msg = f"out must not share memory with {name}: it would be overwritten while read"
            raise ValueError(msg)
    return out
