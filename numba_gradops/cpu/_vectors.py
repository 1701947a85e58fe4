"""Sizes of register tiles, for the vector registers of the processor that Numba compiles for."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from numba.core.registry import cpu_target


class Vectors(NamedTuple):
    """Width of a vector register in bytes, how many there are, whether products are fused."""

    width: int
    registers: int
    fused: bool


@lru_cache(maxsize=1)
def vectors() -> Vectors:
    """Look at what Numba's code generator may use (which environment variables can change)."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    enabled = {name[1:] for name in features.split(",") if name.startswith("+")}
    if "avx512f" in enabled:
        return Vectors(64, 32, fused=True)
    if "avx2" in enabled or "avx" in enabled:
        return Vectors(32, 16, "fma" in enabled)
    if triple.startswith(("aarch64", "arm64")):
        return Vectors(16, 32, fused=True)
    return Vectors(16, 16, "fma" in enabled)


@lru_cache(maxsize=1)
def second_cache() -> int:
    """Give the bytes of a core's second-level cache, as Linux tells them, or what is usual."""
    usual = 2**20
    try:
        for cache in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            if (cache / "level").read_text().strip() == "2":
                size = (cache / "size").read_text().strip()  # "512K"
                return max(2**17, min(int(size.removesuffix("K")) * 1024, 2**22))
    except (OSError, ValueError):
        pass
    return usual


def lanes(itemsize: int) -> int:
    """Give the number of elements in a vector register."""
    return vectors().width // itemsize


def pixels_beside(columns: int) -> int:
    """Give how many pixels, times `columns` vectors, fit in the registers as sums.

    Beside the sums the inner loop needs `columns` registers for weights and one for gradients;
    where products are not fused with sums, two for products.
    """
    spare = columns + (1 if vectors().fused else 3)
    room = (vectors().registers - spare) // columns
    return max(2, min(12, room // 2 * 2))


@lru_cache(maxsize=8)
def has_instruction(name: str) -> bool:
    """Tell whether LLVM may use what it calls `name` on x86; otherwise it calls a slow function."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return f"+{name}" in features.split(",")
