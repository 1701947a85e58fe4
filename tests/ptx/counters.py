"""What a launch did: exact for the PTX, not a measure of time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.int64]

_SECTOR, _BANK, _BANKS = 32, 4, 32


@dataclass
class Counters:
    """Counts over all warps; memory is counted only if the launch was asked to."""

    instructions: Counter[str] = field(default_factory=Counter)  # of warps, by full name
    requests: int = 0  # global accesses of warps
    sectors: int = 0  # the 32-byte pieces of memory that they need
    wavefronts: Counter[str] = field(default_factory=Counter)  # of shared "load" and "store"
    ideal: Counter[str] = field(default_factory=Counter)  # the same without bank conflicts

    def note_global(self, addresses: Lanes, lanes: Lanes, size: int) -> None:
        """Count a global access of some lanes."""
        warps = lanes // 32
        pieces = addresses[:, None] // _SECTOR + np.arange(-(-size // _SECTOR))
        keys = np.stack([np.repeat(warps, pieces.shape[1]), pieces.ravel()], axis=1)
        self.sectors += len(np.unique(keys, axis=0))
        self.requests += len(np.unique(warps))

    def note_shared(self, addresses: Lanes, lanes: Lanes, size: int, kind: str) -> None:
        """Count a shared access: lanes of a part of a warp go together, in one wavefront if no
        two of them need different words of one bank.
        """
        part = lanes // (32 if size <= 4 else 128 // size)
        words = addresses[:, None] // _BANK + np.arange(max(1, size // _BANK))
        keys = np.stack([np.repeat(part, words.shape[1]), words.ravel()], axis=1)
        distinct = np.unique(keys, axis=0)
        banks, hits = np.unique(
            distinct[:, 0] * _BANKS + distinct[:, 1] % _BANKS, return_counts=True
        )
        _, first = np.unique(banks // _BANKS, return_index=True)
        self.wavefronts[kind] += int(np.maximum.reduceat(hits, first).sum())
        self.ideal[kind] += len(first)
