"""Global memory: the arrays of a launch, each far from the others, with every access checked.

Arrays are used where they lie: a kernel writes into the caller's NumPy array. Each gets a range of
virtual addresses of its own, a tebibyte from the next, and lies in the middle of it, so that a
wrong index cannot meet another array by chance; the lowest bits of the address are the real ones,
so alignment is as the caller made it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import MisalignedError, OutOfBoundsError, RaceError, ReadOnlyError, UninitialisedError
from .scalars import Values

Access = Literal["r", "w", "rw"]

_RANGE = 40  # bits of an array's range of addresses
_ALIGNMENT = 256  # what is kept of the real address: device memory is aligned like this


class Buffer(NamedTuple):
    """An array as a kernel's argument: an input, an output without contents, or both."""

    array: NDArray[Any]
    access: Access = "r"


class _Segment:
    """One array of a launch, and which thread wrote which element of an output."""

    def __init__(self, buffer: Buffer, number: int) -> None:
        array = buffer.array
        if not array.flags.c_contiguous:
            raise ValueError("arguments must be C-contiguous")
        self.number = number
        self.access = buffer.access
        self.bytes = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        self.start = (number << _RANGE) + (1 << _RANGE - 1) + array.ctypes.data % _ALIGNMENT
        self.stop = self.start + self.bytes.size
        self.grain = array.itemsize
        # Who wrote an element: 0 for nobody, else the thread's number plus 1. Only touched pages
        # of it take memory, as of a large array itself.
        elements = array.size if buffer.access == "w" else 0
        self.writer = np.zeros(elements, np.int32)
        self._views: dict[tuple[np.dtype[Any], int], tuple[Values, int]] = {}

    def rows(self, kind: np.dtype[Any], count: int) -> tuple[Values, int]:
        """View the bytes as vectors of `count` elements, from the first aligned one on."""
        key = kind, count
        if key not in self._views:
            size = kind.itemsize * count
            skip = -self.start % size
            used = max(0, self.bytes.size - skip) // size * size
            view = self.bytes[skip : skip + used].view(kind).reshape(-1, count)
            self._views[key] = view, self.start + skip
        return self._views[key]


class GlobalMemory:
    """The arrays of a launch."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    def place(self, buffer: Buffer) -> int:
        """Add an array; give its address."""
        for segment in self._segments:
            written = (segment.access, buffer.access) != ("r", "r")
            if written and np.may_share_memory(segment.bytes, buffer.array):
                raise ValueError("two arguments share memory, and one is written")
        segment = _Segment(buffer, len(self._segments) + 1)
        self._segments.append(segment)
        return segment.start

    def load(
        self,
        addresses: NDArray[np.int64],
        threads: NDArray[np.int64],
        kind: np.dtype[Any],
        count: int,
        constant: bool,
    ) -> Values:
        """Read a vector for each thread, as rows."""
        size = kind.itemsize * count
        segment = self._segment(addresses, threads, size)
        if segment is None:
            result = np.empty((addresses.size, count), kind)
            for chosen in self._by_segment(addresses):
                result[chosen] = self.load(
                    addresses[chosen], threads[chosen], kind, count, constant
                )
            return result
        if segment.access == "w":
            self._check_own(segment, addresses, threads, size)
        if constant and segment.access != "r":
            raise ReadOnlyError(
                f"array {segment.number} is written by the kernel, and read with .nc"
            )
        view, start = segment.rows(kind, count)
        return view[(addresses - start) // size]

    def store(
        self, addresses: NDArray[np.int64], threads: NDArray[np.int64], values: Values
    ) -> None:
        """Write a row of `values` for each thread."""
        size = values.itemsize * values.shape[1]
        segment = self._segment(addresses, threads, size)
        if segment is None:
            for chosen in self._by_segment(addresses):
                self.store(addresses[chosen], threads[chosen], values[chosen])
            return
        if segment.access == "r":
            raise ReadOnlyError(
                f"array {segment.number} is an input; thread {threads[0]} writes it"
            )
        if segment.access == "w":
            self._claim(segment, addresses, threads, size)
        view, start = segment.rows(values.dtype, values.shape[1])
        view[(addresses - start) // size] = values

    @staticmethod
    def _by_segment(addresses: NDArray[np.int64]) -> list[NDArray[np.intp]]:
        numbers = addresses >> _RANGE
        return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]

    def _segment(
        self, addresses: NDArray[np.int64], threads: NDArray[np.int64], size: int
    ) -> _Segment | None:
        """Find the array that all addresses lie in; None if they lie in several."""
        low, high = int(addresses.min()), int(addresses.max())
        number = low >> _RANGE
        if number != high >> _RANGE:
            return None
        if not 1 <= number <= len(self._segments):
            raise OutOfBoundsError(f"{size} bytes at address {low:#x}, which belongs to no array")
        segment = self._segments[number - 1]
        if low < segment.start or high + size > segment.stop:
            outside = (addresses < segment.start) | (addresses + size > segment.stop)
            first = int(outside.argmax())
            raise OutOfBoundsError(
                f"{size} bytes at byte {int(addresses[first]) - segment.start} of array "
                f"{number}, which has {segment.bytes.size}; thread {threads[first]} and "
                f"{int(outside.sum()) - 1} others"
            )
        if int(np.bitwise_or.reduce(addresses)) & (size - 1):
            first = int((addresses % size != 0).argmax())
            raise MisalignedError(
                f"{size} bytes at byte {int(addresses[first]) - segment.start} of array {number}, "
                f"address {int(addresses[first]):#x}; thread {threads[first]}"
            )
        return segment

    @staticmethod
    def _elements(segment: _Segment, addresses: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        if size < segment.grain:
            return ((addresses - segment.start) // segment.grain)[:, None]
        first = (addresses - segment.start) // segment.grain
        return first[:, None] + np.arange(size // segment.grain)

    def _claim(
        self,
        segment: _Segment,
        addresses: NDArray[np.int64],
        threads: NDArray[np.int64],
        size: int,
    ) -> None:
        elements = self._elements(segment, addresses, size)
        mine = (threads + 1).astype(np.int32)[:, None]
        before = segment.writer[elements]
        segment.writer[elements] = mine
        wrong = ((before != 0) & (before != mine)) | (segment.writer[elements] != mine)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise RaceError(
                f"element {elements[row, column]} of array {segment.number} is written by thread "
                f"{threads[row]} and by another one"
            )

    def _check_own(
        self,
        segment: _Segment,
        addresses: NDArray[np.int64],
        threads: NDArray[np.int64],
        size: int,
    ) -> None:
        elements = self._elements(segment, addresses, size)
        writer = segment.writer[elements]
        if (writer == 0).any():
            raise UninitialisedError(f"output {segment.number} is read before it is written")
        if (writer != (threads + 1)[:, None]).any():
            raise RaceError(f"output {segment.number} is read where another thread wrote")
