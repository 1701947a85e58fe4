"""Bridges between NumPy's many kinds of arrays and the one kind that loops are compiled for.

Loops see flat, contiguous, aligned arrays. Inputs of another kind are copied; for a result of
another kind a contiguous one is lent, and copied when it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import empty

_PASS_BYTES = 2**23


def adopt(array: NDArray[Any], dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Give an input as a flat read-only array, by copy where its memory or dtype is another."""
    dtype = array.dtype if dtype is None else dtype
    if not _is_plain(array) or array.dtype != dtype:
        copy = empty(array.shape, dtype, "a contiguous copy of an argument")
        with np.errstate(all="ignore"):  # a signalling NaN is no concern
            copy[...] = array
        array = copy
    # Read-only for all, or each mix of writable and read-only inputs would be compiled anew.
    flat = array.reshape(-1).view()
    flat.flags.writeable = False
    return flat


def _is_plain(array: NDArray[Any]) -> bool:
    return array.flags.c_contiguous and array.flags.aligned


def batches(batch: int, image_bytes: int) -> Iterator[slice]:
    """Cut the batch so that copies of `image_bytes` an image stay small."""
    step = max(1, _PASS_BYTES // image_bytes) if image_bytes else batch
    for start in range(0, batch, step):
        yield slice(start, min(start + step, batch))


@contextmanager
def target(result: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Lend a flat array to write into; on leaving, `result` holds what was written."""
    if _is_plain(result):
        yield result.reshape(-1)
        return
    scratch = empty(result.shape, result.dtype, "a contiguous copy of out")
    yield scratch.reshape(-1)
    result[...] = scratch
