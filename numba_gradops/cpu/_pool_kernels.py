"""The LLVM IR of the pool: rows of columns that are divided, added up, put in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ._elements import Elements
from ._emitter import I64, UNROLL, Emitter, Grid, constant, loop_over_terms


def _over_columns(
    emit: Emitter,
    columns: Any,
    blocks: Any,
    start: Callable[[Any], Callable[[Any, Any], Any]],
    carried: Any = None,
) -> Any:
    """Emit ``for c in columns: for b in blocks: carried = start(c)(b, carried)``.

    `blocks` None is one block, which needs no loop.
    """

    def column(c: Any, values: Grid) -> Grid:
        step = start(c)

        def block(b: Any, values: Grid) -> Grid:
            new = step(b, values[0][0] if values[0] else None)
            return [[new]] if values[0] else values

        if blocks is None:
            return block(constant(0), values)
        return loop_over_terms(emit, blocks, values, block, 1)

    unroll = UNROLL if blocks is None else 1
    values = loop_over_terms(emit, columns, [[] if carried is None else [carried]], column, unroll)
    return values[0][0] if values[0] else None


def _least(emit: Emitter, value: Any, least: Any) -> Any:
    """Keep the least magnitude but for zero, as integers whose order is that of magnitudes."""
    builder = emit.builder
    integers = ir.VectorType(I64, emit.lanes)
    bits = builder.bitcast(value, integers)
    one = ir.Constant(integers, [1] * emit.lanes)
    # Without the sign; zero becomes the largest integer.
    order, least = builder.sub(builder.shl(bits, one), one), builder.bitcast(least, integers)
    smaller = builder.icmp_unsigned("<", order, least)
    return builder.bitcast(builder.select(smaller, order, least), emit.vector)


# The functions below work on columns: runs of channels, one behind the other in memory. A column is
# read and written in whole vectors, and what sticks out at its end is overwritten by the next one:
# there must be room for a vector behind the last. So few channels cost no loop over what is left.


def divide_columns(lanes: int, fused: bool, one_block: bool) -> Any:
    """Make a function that divides each column by a number of its own, in float64, and adds +0.0.

    ``f(from, to, source, target, columns, from_bytes, to_bytes, blocks, divisors, high, low)``:
    `from` and `to` are any numbers of the source's and the target's type; columns have `from_bytes`
    and `to_bytes`, and `blocks` vectors. If `fused`, the quotient is made of two products: `high +
    low` is the divisor's reciprocal (see the pool's loops for why that is exact), and the result is
    the least magnitude of a float64 but for zero, as the integer ``2 * bits - 1``.
    """

    def kernel(
        typingctx: Any, like_source: Any, like_target: Any, source: Any, target: Any, columns: Any,
        source_bytes: Any, target_bytes: Any, blocks: Any, divisors: Any, high: Any, low: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            source, target, columns, source_bytes, target_bytes, blocks = values[2:8]
            divisors, high, low = values[8:]
            emit = Emitter(builder, ir.DoubleType(), lanes)
            read, write = Elements(emit, like_source), Elements(emit, like_target)
            watch = fused and like_source == types.float64

            def start(c: Any) -> Callable[[Any, Any], Any]:
                from_at = emit.add(source, builder.mul(c, source_bytes))
                to_at = emit.add(target, builder.mul(c, target_bytes))
                number = emit.scaled(c, emit.size)
                tables = (high, low) if fused else (divisors,)
                factors = [emit.load_splat(emit.add(table, number)) for table in tables]

                def step(b: Any, least: Any) -> Any:
                    value = read.load(emit.add(from_at, read.block_bytes(b)))
                    if fused:
                        rest = builder.fmul(value, factors[1])
                        quotient = emit.fused_multiply_add(value, factors[0], rest)
                    else:
                        quotient = builder.fdiv(value, factors[0])
                    write.store(
                        builder.fadd(emit.zero, quotient), emit.add(to_at, write.block_bytes(b))
                    )
                    return _least(emit, value, least) if watch else None

                return step

            blocks = None if one_block else blocks
            if not watch:
                _over_columns(emit, columns, blocks, start)
                return constant(-1)
            integers = ir.VectorType(I64, lanes)
            largest = builder.bitcast(ir.Constant(integers, [-1] * lanes), emit.vector)
            least = _over_columns(emit, columns, blocks, start, largest)
            name = f"llvm.vector.reduce.umin.v{lanes}i64"
            reduce = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(I64, [integers]), name
            )
            return builder.call(reduce, [builder.bitcast(least, integers)])

        arguments = [like_source, like_target, *[types.intp] * 9]
        return types.uint64(*arguments), codegen

    return intrinsic(kernel)


def add_columns(lanes: int, rows: int, one_block: bool, past_caches: bool = False) -> Any:
    """Make a function that adds up columns of float64 that lie anywhere.

    ``f(to, target, columns, to_bytes, blocks, firsts, seconds, row, next_row)``: column i is the
    sum, in this order, of what lies at ``row + firsts[i]`` and ``row + seconds[i]``, and if there
    are two `rows`, the same of `next_row`; cast to the type of `to`. For `past_caches`, see
    `place_columns`.
    """

    def kernel(
        typingctx: Any, like_target: Any, target: Any, columns: Any, target_bytes: Any,
        blocks: Any, firsts: Any, seconds: Any, row: Any, next_row: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            target, columns, target_bytes, blocks, firsts, seconds, row, next_row = values[1:]
            emit = Emitter(builder, ir.DoubleType(), lanes)
            write = Elements(emit, like_target, past_caches)

            def start(c: Any) -> Callable[[Any, Any], Any]:
                places = emit.load_int(firsts, c), emit.load_int(seconds, c)
                starts = [emit.add(r, place) for r in (row, next_row)[:rows] for place in places]
                to_at = emit.add(target, builder.mul(c, target_bytes))

                def step(b: Any, _: Any) -> None:
                    offset = emit.scaled(b, lanes * emit.size)
                    total = emit.load(emit.add(starts[0], offset))
                    for other in starts[1:]:
                        total = builder.fadd(total, emit.load(emit.add(other, offset)))
                    write.store(total, emit.add(to_at, write.block_bytes(b)))

                return step

            _over_columns(emit, columns, None if one_block else blocks, start)
            return context.get_dummy_value()

        return types.void(like_target, *[types.intp] * 8), codegen

    return intrinsic(kernel)


def place_columns(width: int, one_block: bool, past_caches: bool = False) -> Any:
    """Make a function that copies columns of any bytes, `width` bytes at a time.

    ``f(target, source, columns, column_bytes, blocks, origins)``: column i is what lies at
    ``source + origins[i]``. If `past_caches`, the result goes to memory at once: targets begin, and
    columns end, at multiples of `width`.
    """
    signature = types.void(*[types.intp] * 6)

    def kernel(
        typingctx: Any, target: Any, source: Any, columns: Any, column_bytes: Any, blocks: Any,
        origins: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            target, source, columns, column_bytes, blocks, origins = values
            emit = Emitter(builder, ir.DoubleType(), width // 8)

            def start(c: Any) -> Callable[[Any, Any], Any]:
                origin = emit.add(source, emit.load_int(origins, c))
                to_at = emit.add(target, builder.mul(c, column_bytes))

                def step(b: Any, _: Any) -> None:
                    offset = emit.scaled(b, width)
                    value, to = emit.load(emit.add(origin, offset)), emit.add(to_at, offset)
                    if past_caches:
                        emit.store_past_caches(value, emit.pointer(to, emit.vector), width)
                    else:
                        emit.store(value, to)

                return step

            _over_columns(emit, columns, None if one_block else blocks, start)
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(kernel)


def stream_bytes(width: int) -> Any:
    """Make a function that copies bytes past the caches, `width` bytes at a time.

    ``f(target, source, blocks)``; the target begins at a multiple of `width`.
    """
    signature = types.void(*[types.intp] * 3)

    def kernel(typingctx: Any, target: Any, source: Any, blocks: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            target, source, blocks = values
            emit = Emitter(builder, ir.DoubleType(), width // 8)

            def step(b: Any, nothing: Grid) -> Grid:
                offset = emit.scaled(b, width)
                pointer = emit.pointer(emit.add(target, offset), emit.vector)
                emit.store_past_caches(emit.load(emit.add(source, offset)), pointer, width)
                return nothing

            loop_over_terms(emit, blocks, [[]], step, 1)
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(kernel)
