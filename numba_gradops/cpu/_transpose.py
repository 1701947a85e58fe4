"""Transposes of blocks of vector size in registers, as functions that loops can call."""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from . import _emitter
from ._emitter import element_of
from ._vectors import lanes


def lanes_of(array: Any) -> int:
    """Give the number of elements in a vector."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(lanes_of)  # type: ignore[untyped-decorator]
def lanes_of_compiled(array: Any) -> Any:
    number = lanes(array.dtype.bitwidth // 8)

    def constant(array: Any) -> Any:
        return number

    return constant


def transpose(array: Any, source: int, source_row: int, target: int, target_row: int) -> None:
    """Transpose a block of vector size between two addresses."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(transpose)  # type: ignore[untyped-decorator]
def _transpose_compiled(
    array: Any, source: Any, source_row: Any, target: Any, target_row: Any
) -> Any:
    kernel = _emitter.transpose(element_of(array), lanes(array.dtype.bitwidth // 8))

    def run(array: Any, source: Any, source_row: Any, target: Any, target_row: Any) -> Any:
        kernel(source, source_row, target, target_row)

    return run
