"""How helpers of kernels are compiled: into their callers, for which no driver is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda

_inline = cuda.jit(device=True, inline="always")


def helper(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call."""
    return _inline(function)
