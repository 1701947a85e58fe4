"""The memory of a large result: when it is freed, the next result of about that size gets it.

Memory that is new from the system has no pages. Having them cleared takes longer than filling them
with a result, and the C library gives blocks of more than 32 MiB back at once. So the last one that
was freed is kept here: one block of at most 64 MiB, which is what the C library itself keeps of
smaller ones.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

SMALLEST, LARGEST = 2**25, 2**26


class _Lent:
    """Memory that arrays show; it comes back when the last of them, or of their views, is gone."""

    spare: ClassVar[list[NDArray[Any]]] = []

    def __init__(self, memory: NDArray[Any]) -> None:
        self.memory = memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        # At any time, in any thread: a single operation that needs no lock.
        self.spare[:] = [self.memory]


def take(nbytes: int) -> NDArray[Any] | None:
    """Give spare bytes, if there are as many and not many more; others are freed."""
    try:
        memory = _Lent.spare.pop()
    except IndexError:
        return None
    return lend(memory, nbytes) if nbytes <= memory.nbytes <= nbytes + nbytes // 4 else None


def lend(memory: NDArray[Any], nbytes: int) -> NDArray[Any]:
    """Show the first bytes of memory that is to be spared."""
    return np.asarray(_Lent(memory))[:nbytes]
