"""Single instructions as functions: a counter for all threads, bits of numbers, copies."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ._emitter import I32, I64, constant


@intrinsic  # type: ignore[untyped-decorator]
def next_number(typingctx: Any, counter: Any) -> Any:
    """Fetch the number at an address and add one to it, for all threads at once."""

    def codegen(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        return builder.atomic_rmw("add", pointer, constant(1), "monotonic")

    return types.intp(types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(typingctx: Any, value: Any) -> Any:
    """See a float32 as the uint32 that stands for it in memory."""

    def codegen(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], I32)

    return types.uint32(types.float32), codegen


@intrinsic  # type: ignore[untyped-decorator]
def from_bits(typingctx: Any, bits: Any) -> Any:
    """See a uint32 as the float32 that it stands for in memory."""

    def codegen(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), codegen


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(typingctx: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy bytes between two addresses whose ranges do not overlap; give their number back."""

    def codegen(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        target, source, count = arguments
        byte = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder, builder.inttoptr(target, byte), builder.inttoptr(source, byte), count, 1
        )
        return count

    return types.intp(types.intp, types.intp, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def store_byte(typingctx: Any, address: Any, value: Any) -> Any:
    """Store the lowest byte of a number; threads may store the same one."""

    def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        byte = ir.IntType(8)
        address, value = arguments
        builder.store(builder.trunc(value, byte), builder.inttoptr(address, byte.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic  # type: ignore[untyped-decorator]
def finish_streams(typingctx: Any) -> Any:
    """Have what was stored past the caches seen by all threads before what is stored next."""

    def codegen(context: Any, builder: Any, _: Any, __: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic  # type: ignore[untyped-decorator]
def fused_multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """Give a * b + c in float64, rounded once."""

    def codegen(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def bits_of_float64(typingctx: Any, value: Any) -> Any:
    """See a float64 as the int64 that stands for it in memory."""

    def codegen(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], I64)

    return types.int64(types.float64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def float64_from_bits(typingctx: Any, bits: Any) -> Any:
    """See an int64 as the float64 that it stands for in memory."""

    def codegen(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), codegen
