"""The LLVM IR of depthwise convolutions: some pixels of a row, all channels, a list of taps."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ._elements import Elements
from ._emitter import Emitter, Grid, constant, loop_over_terms
from ._vectors import lanes

ENTRY = 2  # integers in an entry
_VECTORS = 2  # of channels at a time, where there are so many


def taps_of_pixels(pixels: int) -> Any:
    """Make a function that computes all channels of `pixels` pixels at a constant distance.

    ``f(from, by, to, entries, count, gradient, weights, result, from_step, to_step, channels)``:
    `from`, `by` and `to` are any numbers of the types of gradient, weights and result, whose
    addresses follow; `from_step` and `to_step` are the bytes between pixels. An entry is a tap that
    reaches all of the pixels: the offsets in bytes of its gradients and of its weights. Every sum
    begins with 0 and takes the entries in order, in the type of the weights.
    """

    def kernel(
        typingctx: Any, like_gradient: Any, like_weights: Any, like_result: Any, entries: Any,
        count: Any, gradient: Any, weights: Any, result: Any, from_step: Any, to_step: Any,
        channels: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            entries, count, gradient, weights, result, from_step, to_step, channels = values[3:]
            single = like_weights == types.float32
            element = ir.FloatType() if single else ir.DoubleType()
            emit = Emitter(builder, element, lanes(4 if single else 8))
            read, write = Elements(emit, like_gradient), Elements(emit, like_result)

            def starts(address: Any, step: Any) -> list[Any]:
                return [emit.add(address, emit.scaled(step, p)) for p in range(pixels)]

            froms, tos = starts(gradient, from_step), starts(result, to_step)

            def block(first: Any, vectors: int, mask: Any = None) -> None:
                """Compute so many vectors of channels, or one under a mask, of all pixels."""

                def at(address: Any, vector: int, size: int) -> Any:
                    return emit.add(
                        address, emit.scaled(emit.add(first, vector * emit.lanes), size)
                    )

                def load(address: Any) -> Any:
                    return emit.load(address) if mask is None else emit.load_masked(address, mask)

                def load_gradient(address: Any) -> Any:
                    return read.load(address) if mask is None else read.load_masked(address, mask)

                def tap(k: Any, sums: Grid) -> Grid:
                    entry = emit.scaled(k, ENTRY)
                    shift, place = (
                        emit.load_int(entries, emit.add(entry, field)) for field in range(ENTRY)
                    )
                    by = [load(at(emit.add(weights, place), v, emit.size)) for v in range(vectors)]
                    return [
                        [
                            emit.multiply_add(
                                load_gradient(at(emit.add(start, shift), v, read.size)),
                                by[v],
                                total,
                            )
                            for v, total in enumerate(row)
                        ]
                        for start, row in zip(froms, sums, strict=True)
                    ]

                zeros = [[emit.zero] * vectors for _ in range(pixels)]
                for to, row in zip(tos, loop_over_terms(emit, count, zeros, tap, 1), strict=True):
                    for v, total in enumerate(row):
                        if mask is None:
                            write.store(total, at(to, v, write.size))
                        else:
                            write.store_masked(total, at(to, v, write.size), mask)

            def over_blocks(first: Any, behind: Any, vectors: int) -> Any:
                """Emit the loop over blocks that fit, and give the channel behind the last."""
                step = vectors * emit.lanes
                blocks = builder.sdiv(builder.sub(behind, first), constant(step))

                def one(number: Any, nothing: Grid) -> Grid:
                    block(emit.add(first, emit.scaled(number, step)), vectors)
                    return nothing

                loop_over_terms(emit, blocks, [[]], one, 1)
                return emit.add(first, emit.scaled(blocks, step))

            first = over_blocks(constant(0), channels, _VECTORS)
            first = over_blocks(first, channels, 1)
            with builder.if_then(builder.icmp_signed("<", first, channels)):
                block(first, 1, emit.mask(0, builder.sub(channels, first)))
            return context.get_dummy_value()

        arguments = [like_gradient, like_weights, like_result, *[types.intp] * 8]
        return types.void(*arguments), codegen

    return intrinsic(kernel)
