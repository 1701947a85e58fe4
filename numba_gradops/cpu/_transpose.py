"""Transposes of blocks of vector size in registers, as functions that loops can call."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from ._elements import Elements
from ._emitter import I32, Emitter
from ._vectors import lanes


def _computing(source: Any, target: Any) -> tuple[ir.Type, int]:
    """Give the element type in registers, and how many of them a register holds."""
    wide = types.float64 in (source, target)
    return (ir.DoubleType(), lanes(8)) if wide else (ir.FloatType(), lanes(4))


def lanes_of(array: Any) -> int:
    """Give the number of elements in a vector in registers, where halves are float32."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(lanes_of)  # type: ignore[untyped-decorator]
def _lanes_of_compiled(array: Any) -> Any:
    _, number = _computing(array.dtype, array.dtype)

    def constant(array: Any) -> Any:
        return number

    return constant


def transpose_kernel(source: Any, target: Any) -> Any:
    """Make a function that transposes a square block in registers, from one type to another.

    ``f(source, source_row, target, target_row)``: addresses, and bytes from row to row.
    """
    signature = types.void(*[types.intp] * 4)
    element, lanes = _computing(source, target)

    def kernel(typingctx: Any, from_at: Any, from_row: Any, to_at: Any, to_row: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            from_at, from_row, to_at, to_row = values
            emit = Emitter(builder, element, lanes)
            read, write = Elements(emit, source), Elements(emit, target)
            rows = [read.load(emit.add(from_at, emit.scaled(from_row, i))) for i in range(lanes)]
            # Exchange the off-diagonal halves of blocks of 2, 4, 8, ... rows and columns.
            half = 1
            while half < lanes:
                numbers = range(lanes)
                low = [n if not n & half else lanes + n - half for n in numbers]
                high = [n + half if not n & half else lanes + n for n in numbers]
                masks = [ir.Constant(ir.VectorType(I32, lanes), order) for order in (low, high)]
                for i in range(lanes):
                    if not i & half:
                        a, b = rows[i], rows[i + half]
                        rows[i], rows[i + half] = (builder.shuffle_vector(a, b, m) for m in masks)
                half *= 2
            for i, row in enumerate(rows):
                write.store(row, emit.add(to_at, emit.scaled(to_row, i)))
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(kernel)


def transpose(
    source: Any, target: Any, source_at: int, source_row: int, target_at: int, target_row: int
) -> None:
    """Transpose a block of `lanes_of` rows and columns between addresses in two arrays.

    Halves are widened in registers, and rounded again where they are stored.
    """
    raise NotImplementedError  # the overload below is what gets compiled


@overload(transpose)  # type: ignore[untyped-decorator]
def _transpose_compiled(
    source: Any, target: Any, source_at: Any, source_row: Any, target_at: Any, target_row: Any
) -> Any:
    kernel = transpose_kernel(source.dtype, target.dtype)

    def run(
        source: Any, target: Any, source_at: Any, source_row: Any, target_at: Any, target_row: Any
    ) -> Any:
        kernel(source_at, source_row, target_at, target_row)

    return run
