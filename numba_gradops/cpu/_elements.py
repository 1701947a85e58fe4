"""Vectors of float32 or float64 in registers, of another element type in memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ._emitter import I32, I64, UNROLL, Emitter, Grid, loop_over_terms
from ._vectors import has_instruction, lanes

# Element types in memory: in LLVM, and the number of bytes. Halves are seen as integers: float16
# as uint16, bfloat16 as int16.
_ELEMENTS = {
    types.float32: (ir.FloatType(), 4),
    types.float64: (ir.DoubleType(), 8),
    types.int32: (I32, 4),
    types.int64: (I64, 8),
    types.uint16: (ir.IntType(16), 2),
    types.int16: (ir.IntType(16), 2),
}


class Elements:
    """Loads and stores of vectors that are converted on the way.

    `kind` is what lies in memory; None is what is in registers.
    """

    def __init__(self, emit: Emitter, kind: Any = None, past_caches: bool = False) -> None:
        self.emit, self.past_caches = emit, past_caches
        if kind is None:
            kind = types.float32 if isinstance(emit.element, ir.FloatType) else types.float64
        self.element, self.size = _ELEMENTS[kind]
        self.vector = ir.VectorType(self.element, emit.lanes)
        self.kind = kind
        self.floats = ir.VectorType(ir.FloatType(), emit.lanes)
        self.halves = ir.VectorType(ir.HalfType(), emit.lanes)
        self.words = ir.VectorType(I32, emit.lanes)

    def block_bytes(self, block: Any) -> Any:
        return self.emit.scaled(block, self.emit.lanes * self.size)

    def load(self, address: Any) -> Any:
        pointer = self.emit.pointer(address, self.vector)
        return self._widen(self.emit.builder.load(pointer, align=self.size))

    def load_masked(self, address: Any, mask: Any) -> Any:
        """Load some lanes; the others are 0."""
        return self._widen(self.emit.load_masked(address, mask, self.vector))

    def store(self, value: Any, address: Any) -> None:
        value = self.narrow(value)
        pointer = self.emit.pointer(address, self.vector)
        if self.past_caches:
            self.emit.store_past_caches(value, pointer, self.emit.lanes * self.size)
        else:
            self.emit.builder.store(value, pointer, align=self.size)

    def store_masked(self, value: Any, address: Any, mask: Any) -> None:
        """Store some lanes."""
        self.emit.store_masked(self.narrow(value), address, mask)

    def _widen(self, value: Any) -> Any:
        builder, wide = self.emit.builder, self.emit.vector
        if self.kind == types.uint16:
            return builder.fpext(self._from_float16(value), wide)
        if self.kind == types.int16:
            word = builder.shl(builder.zext(value, self.words), self._word(16))
            return builder.fpext(builder.bitcast(word, self.floats), wide)
        if self.kind in (types.int32, types.int64):
            return builder.sitofp(value, wide)
        return builder.fpext(value, wide)

    def narrow(self, value: Any) -> Any:
        """Convert a vector to what lies in memory, rounding once."""
        if self.kind == types.uint16:
            return self._to_float16(self._bits_to_round(value))
        if self.kind == types.int16:
            return self._to_bfloat16(self._bits_to_round(value))
        if self.kind in (types.int32, types.int64):
            return self._cut(value)
        return self.emit.builder.fptrunc(value, self.vector)

    def _bits_to_round(self, value: Any) -> Any:
        """Give the bits of the float32 that is to be rounded to a half."""
        if self.emit.vector == self.floats:
            return self.emit.builder.bitcast(value, self.words)
        return self._round_to_odd(value)

    def _cut(self, value: Any) -> Any:
        """Cut toward zero; what does not fit becomes the lowest integer."""
        builder, lanes = self.emit.builder, self.emit.lanes
        lowest = -(2 ** (8 * self.size - 1))
        low, high = (
            ir.Constant(self.emit.vector, [bound] * lanes)
            for bound in (float(lowest) - 1.0, -float(lowest))
        )
        above = builder.fcmp_ordered(">", value, low)
        fits = builder.and_(above, builder.fcmp_ordered("<", value, high))
        cut = builder.fptosi(value, self.vector)
        return builder.select(fits, cut, ir.Constant(self.vector, [lowest] * lanes))

    # What follows says in vectors what `_halves` says, and explains, for one element.

    def _word(self, value: int) -> ir.Constant:
        return ir.Constant(self.words, [value] * self.emit.lanes)

    def _from_float16(self, value: Any) -> Any:
        builder, word = self.emit.builder, self._word
        if has_instruction("f16c"):
            return builder.fpext(builder.bitcast(value, self.halves), self.floats)
        bits = builder.zext(value, self.words)
        magnitude = builder.shl(builder.and_(bits, word(0x7FFF)), word(13))
        scale = ir.Constant(self.floats, [2.0**112] * self.emit.lanes)
        scaled = builder.fmul(builder.bitcast(magnitude, self.floats), scale)
        finite = builder.icmp_unsigned("<", magnitude, word(0x7C00 << 13))
        special = builder.or_(magnitude, word(0x7F800000))
        wide = builder.select(finite, builder.bitcast(scaled, self.words), special)
        sign = builder.shl(builder.and_(bits, word(0x8000)), word(16))
        return builder.bitcast(builder.or_(wide, sign), self.floats)

    def _round_to_odd(self, value: Any) -> Any:
        """Give the bits of a float32 that a second rounding treats as it would treat `value`."""
        builder, word, wide = self.emit.builder, self._word, self.emit.vector
        short = builder.fptrunc(value, self.floats)
        back = builder.fpext(short, wide)
        bits = builder.bitcast(short, self.words)
        integers = ir.VectorType(I64, self.emit.lanes)
        one = ir.Constant(integers, [1] * self.emit.lanes)
        # Without the sign, the order of magnitudes is that of the bits.
        orders = [builder.shl(builder.bitcast(v, integers), one) for v in (back, value)]
        away = builder.zext(builder.icmp_unsigned(">", *orders), self.words)
        odd = builder.or_(builder.sub(bits, away), word(1))
        # Neither for NaN nor for infinity, which is equal to itself.
        return builder.select(builder.fcmp_ordered("!=", back, value), odd, bits)

    def _to_float16(self, bits: Any) -> Any:
        builder, word = self.emit.builder, self._word
        magnitude = builder.and_(bits, word(0x7FFFFFFF))
        number = builder.icmp_unsigned("<=", magnitude, word(0x7F800000))
        sign = builder.and_(builder.lshr(bits, word(16)), word(0x8000))
        if has_instruction("f16c"):
            short = builder.fptrunc(builder.bitcast(bits, self.floats), self.halves)
            nan = builder.trunc(builder.or_(sign, word(0x7E00)), self.vector)
            return builder.select(number, builder.bitcast(short, self.vector), nan)
        odd = builder.and_(builder.lshr(magnitude, word(13)), word(1))
        rebiased = builder.add(magnitude, word((0xFFF - (112 << 23)) & 0xFFFFFFFF))
        normal = builder.lshr(builder.add(rebiased, odd), word(13))
        half = ir.Constant(self.floats, [0.5] * self.emit.lanes)
        lined_up = builder.fadd(builder.bitcast(magnitude, self.floats), half)
        subnormal = builder.sub(builder.bitcast(lined_up, self.words), word(0x3F000000))
        result = subnormal
        for bound, above in ((113 << 23, normal), (0x47800000, word(0x7C00))):
            below = builder.icmp_unsigned("<", magnitude, word(bound))
            result = builder.select(below, result, above)
        result = builder.select(number, result, word(0x7E00))
        return builder.trunc(builder.or_(result, sign), self.vector)

    def _to_bfloat16(self, bits: Any) -> Any:
        builder, word = self.emit.builder, self._word
        top = builder.lshr(bits, word(16))
        odd = builder.and_(top, word(1))
        rounded = builder.lshr(builder.add(builder.add(bits, word(0x7FFF)), odd), word(16))
        magnitude = builder.and_(bits, word(0x7FFFFFFF))
        number = builder.icmp_unsigned("<=", magnitude, word(0x7F800000))
        result = builder.select(number, rounded, builder.or_(top, word(0x40)))
        return builder.trunc(result, self.vector)


def widen(kind: Any) -> Any:
    """Make a function that widens whole vectors of halves: ``f(source, target, vectors)``."""
    signature = types.void(*[types.intp] * 3)

    def kernel(typingctx: Any, source: Any, target: Any, vectors: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            source, target, vectors = values
            emit = Emitter(builder, ir.FloatType(), lanes(4))
            read = Elements(emit, kind)

            def step(k: Any, nothing: Grid) -> Grid:
                value = read.load(emit.add(source, emit.scaled(k, emit.lanes * read.size)))
                emit.store(value, emit.add(target, emit.scaled(k, emit.lanes * emit.size)))
                return nothing

            loop_over_terms(emit, vectors, [[]], step, UNROLL)
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(kernel)
