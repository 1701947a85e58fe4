"""Bridges between NumPy's many kinds of arrays and the one kind that loops are compiled for.

Loops see flat, contiguous, aligned arrays. Inputs of another kind are copied; for a result of
another kind a contiguous one is lent, and copied when it is done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import empty


def adopt(array: NDArray[Any], dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Give an input as a flat read-only array, by copy where its memory or dtype is another."""
    if not _is_plain(array) or (dtype is not None and array.dtype != dtype):
        copy = empty(array.shape, dtype or array.dtype, "a contiguous copy of an argument")
        with np.errstate(all="ignore"):  # a signalling NaN is no concern
            copy[...] = array
        array = copy
    # Read-only for all, or each mix of writable and read-only inputs would be compiled anew.
    flat = array.reshape(-1)  # a view
    flat.setflags(write=False)
    return flat


def _is_plain(array: NDArray[Any]) -> bool:
    flags = array.flags
    return flags.c_contiguous and flags.aligned


class target:  # noqa: N801 - used like a function
    """Lends a flat array to write into; on leaving, the result holds what was written."""

    __slots__ = ("_result", "_written")

    def __init__(self, result: NDArray[Any]) -> None:
        self._result = result

    def __enter__(self) -> NDArray[Any]:
        self._written = self._result
        if not _is_plain(self._result):
            shape, dtype = self._result.shape, self._result.dtype
            self._written = empty(shape, dtype, "a contiguous copy of out")
        return self._written.reshape(-1)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None and self._written is not self._result:
            self._result[...] = self._written
