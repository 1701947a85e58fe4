"""The LLVM IR of Winograd's algorithm: plain matrix products and linear forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ._emitter import I64, UNROLL, Emitter, Grid, Sums, Tile, constant, element_of, loop_over_terms


def matrix_tile(tile_of: Callable[[int], Tile]) -> Any:
    """Make the register tile of a plain matrix product: ``result = a * weights``, or ``+=``.

    ``f(array, a, a_row, weights, terms, result, result_row, add, ahead, ahead_step)``: an array of
    the element type, then addresses and bytes. Row i of the tile is at ``a + i * a_row`` and at
    ``result + i * result_row``; weights are packed [term, channel]. If `add` is not 0, the product
    is added to what is there, with the same bits as if it had not been interrupted. With each term,
    what lies at `ahead` is fetched into the second-level cache, `ahead_step` bytes further each
    time: what the next product needs.
    """

    def kernel(
        typingctx: Any, array: Any, a: Any, a_row: Any, weights: Any, terms: Any, result: Any,
        result_row: Any, add: Any, ahead: Any, ahead_step: Any,
    ) -> Any:  # fmt: skip
        element = element_of(array)
        tile = tile_of(array.dtype.bitwidth // 8)
        row_bytes = tile.vectors * tile.lanes * array.dtype.bitwidth // 8

        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            _, a, a_row, weights, terms, result, result_row, add, ahead, ahead_step = values
            emit = Emitter(builder, element, tile.lanes)
            rows = [emit.add(a, emit.scaled(a_row, i)) for i in range(tile.pixels)]

            def step(k: Any, sums: Grid) -> Grid:
                emit.prefetch(builder.add(ahead, builder.mul(k, ahead_step)), 2)
                at = emit.add(weights, emit.scaled(k, row_bytes))
                vectors = [
                    emit.load(emit.add(at, j * emit.lanes * emit.size)) for j in range(tile.vectors)
                ]
                offset = emit.scaled(k, emit.size)
                added = []
                for row, line in zip(rows, sums, strict=True):
                    x = emit.load_splat(emit.add(row, offset))
                    added.append(
                        [emit.multiply_add(x, w, s) for w, s in zip(vectors, line, strict=True)]
                    )
                return added

            places = [
                [
                    emit.add(
                        emit.add(result, emit.scaled(result_row, i)), j * emit.lanes * emit.size
                    )
                    for j in range(tile.vectors)
                ]
                for i in range(tile.pixels)
            ]
            before = builder.block
            go_on = builder.append_basic_block("go_on")
            start = builder.append_basic_block("start")
            builder.cbranch(builder.icmp_signed("!=", add, constant(0)), go_on, start)
            builder.position_at_end(go_on)
            there = [[emit.load(place) for place in line] for line in places]
            builder.branch(start)
            builder.position_at_end(start)
            first = Sums(emit, tile.pixels, tile.vectors)
            first.come_from(before, [[emit.zero] * tile.vectors for _ in rows])
            first.come_from(go_on, there)
            sums = loop_over_terms(emit, terms, first.values, step, UNROLL)
            for line, targets in zip(sums, places, strict=True):
                for value, place in zip(line, targets, strict=True):
                    emit.store(value, place)
            return context.get_dummy_value()

        return types.void(array, *[types.intp] * 9), codegen

    return intrinsic(kernel)


Forms = Sequence[Sequence[float]]


def linear_forms(lanes_of: Callable[[int], int], choices: Sequence[Forms], check: bool) -> Any:
    """Make a function that evaluates linear forms on vectors, lane by lane.

    ``f(array, choice, columns, vectors, input_stride, inputs, input_shift, output_stride, outputs,
    output_shift)``: an array of the element type, then integers. A matrix of numbers, each of them
    `vectors` vectors one behind the other, becomes another matrix, column by column. The address of
    input i of column j is ``inputs[input_stride * j + i]``, that of output i is
    ``outputs[output_stride * j + i]``; the shifts are added to all of them. `choice` says which
    forms. With `check`, bit j of what is given back says that an output of column j is not finite.
    """

    def kernel(
        typingctx: Any, array: Any, choice: Any, columns: Any, vectors: Any, input_stride: Any,
        inputs: Any, input_shift: Any, output_stride: Any, outputs: Any, output_shift: Any,
    ) -> Any:  # fmt: skip
        element, lanes = element_of(array), lanes_of(array.dtype.bitwidth // 8)

        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            _, choice, columns, vectors = values[:4]
            emit = Emitter(builder, element, lanes)
            found = cgutils.alloca_once_value(builder, constant(0))
            wrong = cgutils.alloca_once_value(builder, emit.zero)

            def column(forms: Forms, j: Any) -> None:
                sources, targets = (
                    [
                        builder.add(
                            emit.load_int(table, emit.add(builder.mul(j, stride), i)), shift
                        )
                        for i in range(count)
                    ]
                    for (stride, table, shift), count in (
                        (values[4:7], len(forms[0])),
                        (values[7:], len(forms)),
                    )
                )
                builder.store(emit.zero, wrong)
                with cgutils.for_range(builder, vectors) as loop:
                    offset = emit.scaled(loop.index, lanes * emit.size)
                    loaded = [emit.load(emit.add(source, offset)) for source in sources]
                    for form, target in zip(forms, targets, strict=True):
                        value = _evaluate(emit, form, loaded)
                        emit.store(value, emit.add(target, offset))
                        if check:
                            bad = builder.fadd(builder.load(wrong), emit.not_finite(value))
                            builder.store(bad, wrong)
                if check:
                    bad = builder.load(wrong)
                    bits = builder.bitcast(
                        builder.fcmp_unordered("uno", bad, bad), ir.IntType(lanes)
                    )
                    any_bad = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
                    bit = builder.shl(builder.zext(any_bad, I64), j)
                    builder.store(builder.or_(builder.load(found), bit), found)

            done = builder.append_basic_block("forms_end")
            switch = builder.switch(choice, done)
            for number, forms in enumerate(choices):
                block = builder.append_basic_block("forms")
                switch.add_case(constant(number), block)
                builder.position_at_end(block)
                with cgutils.for_range(builder, columns) as loop:
                    column(forms, loop.index)
                builder.branch(done)
            builder.position_at_end(done)
            return builder.load(found)

        return types.intp(array, *[types.intp] * 9), codegen

    return intrinsic(kernel)


def _evaluate(emit: Emitter, form: Sequence[float], inputs: list[Any]) -> Any:
    """Add up factors times inputs, from a factor of 1 on: the others are then multiply-adds."""
    terms = [(float(f), value) for f, value in zip(form, inputs, strict=True) if f != 0]
    terms.sort(key=lambda term: term[0] != 1)
    total = None
    for factor, value in terms:
        constant = ir.Constant(emit.vector, [factor] * emit.lanes)
        if total is None:
            total = value if factor == 1 else emit.builder.fmul(value, constant)
        elif factor == 1:
            total = emit.builder.fadd(total, value)
        elif factor == -1:
            total = emit.builder.fsub(total, value)
        else:
            total = emit.multiply_add(value, constant, total)
    return total
