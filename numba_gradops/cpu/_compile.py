"""How loops are compiled: one set of Numba options, one on-disk cache, for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from .. import _cache

# Compiled functions have no static type: Numba finds the types of arguments by itself.
Function = Callable[..., Any]

# "contract" lets a product and a sum become one fused instruction. The other fast-math flags
# would let the compiler assume that NaN and infinity do not occur; here they must come through.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "no_cfunc_wrapper": True,
}
# Nobody calls helpers from Python: without the code for that they compile sooner.
_HELPER_OPTIONS = _OPTIONS | {"no_cpython_wrapper": True}


def loop(function: Function) -> Any:
    """Compile a loop for one thread; `_spread` has several run it."""
    return _cache.enable(numba.njit(**_OPTIONS)(function))


def parallel_loop(function: Function) -> Any:
    """Compile a function whose prange runs on Numba's threads."""
    return _cache.enable(numba.njit(parallel=True, **_OPTIONS)(function))


def helper(function: Function) -> Any:
    """Compile a function that is called from loops only; they carry it in their cache entry."""
    return numba.njit(**_HELPER_OPTIONS)(function)


def sum_in_any_order(function: Function) -> Any:
    """Compile a helper whose sums may be split over vector lanes (always in the same way)."""
    options = _HELPER_OPTIONS | {"fastmath": {"contract", "reassoc"}}
    return numba.njit(**options)(function)
