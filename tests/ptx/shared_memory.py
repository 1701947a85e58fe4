"""Shared memory of the blocks that run side by side: bounds, alignment, contents, races.

A state byte is kept for every cell, the smallest unit that the program accesses: whether it was
ever written, and whether it was written or read since the last barrier. So the common case (no
conflict) costs one gather and one scatter a vector; only where a byte shows a possible conflict is
the log of this epoch's accesses searched for the threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import MisalignedError, OutOfBoundsError, RaceError, UninitialisedError
from .scalars import Values

Lanes = NDArray[np.int64]

_VALID, _WRITTEN, _READ = 1, 2, 4
_SEVERAL = -2


def _repeated(byte: int, count: int) -> int:
    return int.from_bytes(bytes([byte]) * count, "little")


class SharedMemory:
    """`blocks` memories of `size` bytes, one after another."""

    def __init__(self, blocks: int, size: int, grain: int) -> None:
        self.size = size
        self._grain = grain
        self._bytes = np.full(blocks * size, 0xFF, np.uint8)  # NaN in every float type
        self._state = np.zeros(blocks * size // grain, np.uint8)
        self._stamp = np.zeros(blocks * size, np.int64)
        self._read_log: list[tuple[int, Lanes, Lanes]] = []
        self._write_log: list[tuple[int, Lanes, Lanes]] = []

    def restart(self) -> None:
        """Forget everything: other blocks begin."""
        self._bytes[:] = 0xFF
        self._state[:] = 0
        self._read_log.clear()
        self._write_log.clear()

    def barrier(self) -> None:
        """Order what was done before and what comes: nothing of it can race."""
        self._state &= _VALID
        self._read_log.clear()
        self._write_log.clear()

    def load(
        self, addresses: Lanes, blocks: Lanes, lanes: Lanes, kind: np.dtype[Any], count: int
    ) -> Values:
        """Read a vector for each lane, as rows."""
        size = kind.itemsize * count
        places = self._places(addresses, blocks, lanes, size)
        cells, width = self._state_rows(size)
        found = cells[places]
        valid, written = (_repeated(bit, width) for bit in (_VALID, _WRITTEN))
        if (np.bitwise_and.reduce(found, axis=None) & valid) != valid:
            bad = ((found & cells.dtype.type(valid)) != valid).any(axis=1)
            lane = int(bad.argmax())
            raise UninitialisedError(
                f"{size} bytes at shared byte {int(addresses[lane])} are read by lane "
                f"{int(lanes[lane])}, and were never written"
            )
        if np.bitwise_or.reduce(found, axis=None) & written:
            self._search(self._write_log, places, lanes, size, "reads", "wrote")
        cells[places] = found | cells.dtype.type(_repeated(_READ, width))
        self._read_log.append((size, places, lanes))
        return self._bytes.view(kind).reshape(-1, count)[places]

    def store(self, addresses: Lanes, blocks: Lanes, lanes: Lanes, values: Values) -> None:
        """Write a row of `values` for each lane."""
        size = values.itemsize * values.shape[1]
        places = self._places(addresses, blocks, lanes, size)
        self._stamp[places] = lanes
        if (self._stamp[places] != lanes).any():
            lane = int((self._stamp[places] != lanes).argmax())
            raise RaceError(
                f"lanes {int(lanes[lane])} and {int(self._stamp[places][lane])} write shared byte "
                f"{int(addresses[lane])} at once"
            )
        cells, width = self._state_rows(size)
        found = cells[places]
        touched = int(np.bitwise_or.reduce(found, axis=None))
        if touched & _repeated(_WRITTEN, width):
            self._search(self._write_log, places, lanes, size, "writes", "wrote")
        if touched & _repeated(_READ, width):
            self._search(self._read_log, places, lanes, size, "writes", "read")
        cells[places] = found | cells.dtype.type(_repeated(_VALID | _WRITTEN, width))
        self._write_log.append((size, places, lanes))
        self._bytes.view(values.dtype).reshape(-1, values.shape[1])[places] = values

    def _state_rows(self, size: int) -> tuple[Values, int]:
        """View the states of an access's cells as a row of integers of at most 8 cells each."""
        cells = size // self._grain
        width = min(cells, 8)
        return self._state.view(f"u{width}").reshape(-1, cells // width), width

    def _places(self, addresses: Lanes, blocks: Lanes, lanes: Lanes, size: int) -> Lanes:
        """Give the number of each access's vector in the memory of all blocks."""
        if int(addresses.min()) < 0 or int(addresses.max()) + size > self.size:
            outside = (addresses < 0) | (addresses + size > self.size)
            lane = int(outside.argmax())
            raise OutOfBoundsError(
                f"{size} bytes at shared byte {int(addresses[lane])} of {self.size}; lane "
                f"{int(lanes[lane])} and {int(outside.sum()) - 1} others"
            )
        if int(np.bitwise_or.reduce(addresses)) & (size - 1):
            lane = int((addresses % size != 0).argmax())
            raise MisalignedError(f"{size} bytes at shared byte {int(addresses[lane])}")
        places: Lanes = (addresses + blocks * self.size) // size
        return places

    def _search(
        self,
        log: list[tuple[int, Lanes, Lanes]],
        places: Lanes,
        lanes: Lanes,
        size: int,
        now: str,
        before: str,
    ) -> None:
        """Raise `RaceError` if another lane is in the log with a cell of these places."""
        cells = self._cells(places, size)
        for logged_size, logged_places, logged_lanes in log:
            owner = np.full(self._state.size, -1, np.int64)
            logged = self._cells(logged_places, logged_size)
            owner[logged] = logged_lanes[:, None]
            owner[logged[owner[logged] != logged_lanes[:, None]]] = _SEVERAL
            others = (owner[cells] != -1) & (owner[cells] != lanes[:, None])
            if others.any():
                row, column = np.argwhere(others)[0]
                who = int(owner[cells[row, column]])
                byte = int(cells[row, column]) * self._grain % self.size
                raise RaceError(
                    f"lane {int(lanes[row])} {now} shared byte {byte}, which "
                    f"{'several lanes' if who == _SEVERAL else f'lane {who}'} {before}, and there "
                    "is no barrier between"
                )

    def _cells(self, places: Lanes, size: int) -> Lanes:
        count = size // self._grain
        return places[:, None] * count + np.arange(count)
