"""What a launch is: a kernel's variant, its grid, and its arguments. Needs neither Numba nor CUDA.

Whoever launches puts the addresses of the three arrays where a plan names them, and that of a copy
of the table in the device's memory. A device and the interpreter of the tests both do just that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# What a plan says instead of an address.
GRADIENT, FILTER, RESULT, TABLE = "out_backprop", "filter", "result", "table"

INT32_LIMIT = 2**31


class Launch(NamedTuple):
    """One launch of one kernel; every argument is an int64 address."""

    variant: Any  # a hashable description, from which `_compile` makes the kernel
    grid: int
    block: int
    shared: int  # bytes of dynamic shared memory
    arguments: tuple[str, ...]
    table: NDArray[Any]  # int32, or int64 where the variant is wide


class Division(NamedTuple):
    """``n // divisor`` for 0 <= n < 2**31 as ``(n * multiplier) >> shift``, in 64 bits."""

    multiplier: int
    shift: int


def division(divisor: int) -> Division:
    """Find the numbers that divide (Granlund and Montgomery, 1994, rounding up)."""
    bits = (divisor - 1).bit_length()
    shift = 31 + bits
    return Division(((1 << shift) + divisor - 1) // divisor, shift)


def ceil_div(a: int, b: int) -> int:
    """Divide, rounding up."""
    return -(-a // b)


def table(parts: Sequence[Any], wide: bool) -> NDArray[Any]:
    """Join integers and integer arrays to one array for the device."""
    flat = [np.asarray(part, np.int64).ravel() for part in parts]
    joined = np.concatenate(flat).astype(np.int64 if wide else np.int32)
    joined.flags.writeable = False
    return joined
