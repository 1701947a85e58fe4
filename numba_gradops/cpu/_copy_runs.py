"""Copies of elements that lie side by side, which widen halves on the way."""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from ._elements import widen
from ._halves import get
from ._scalars import copy_bytes
from ._transpose import lanes_of


def copy_run(source: Any, target: Any, at: int, to: int, count: int) -> None:
    """Copy elements that lie side by side, and widen halves."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(copy_run)  # type: ignore[untyped-decorator]
def _copy_run_compiled(source: Any, target: Any, at: Any, to: Any, count: Any) -> Any:
    if source.dtype == target.dtype:

        def plain(source: Any, target: Any, at: Any, to: Any, count: Any) -> Any:
            size = source.itemsize
            copy_bytes(target.ctypes.data + to * size, source.ctypes.data + at * size, count * size)

        return plain
    kernel = widen(source.dtype)

    def by_vectors(source: Any, target: Any, at: Any, to: Any, count: Any) -> Any:
        step = lanes_of(target)
        blocks = count // step
        from_at = source.ctypes.data + at * source.itemsize
        kernel(from_at, target.ctypes.data + to * target.itemsize, blocks)
        for p in range(blocks * step, count):
            target[to + p] = get(source, at + p)

    return by_vectors
