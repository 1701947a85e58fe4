"""PTX's scalar types as NumPy's, and the arithmetic that NumPy lacks."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]

# The types of instructions; bfloat16 is handled as its bits.
NUMPY: dict[str, np.dtype[Any]] = {
    "pred": np.dtype(np.bool_),
    **{f"{kind}8": np.dtype(np.uint8) for kind in "bu"},
    **{f"{kind}16": np.dtype(np.uint16) for kind in "bu"},
    **{f"{kind}32": np.dtype(np.uint32) for kind in "bu"},
    **{f"{kind}64": np.dtype(np.uint64) for kind in "bu"},
    "s8": np.dtype(np.int8),
    "s16": np.dtype(np.int16),
    "s32": np.dtype(np.int32),
    "s64": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "bf16": np.dtype(np.uint16),
    "f16x2": np.dtype(np.uint32),
    "bf16x2": np.dtype(np.uint32),
}

WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def raw(kind: str) -> np.dtype[Any]:
    """Give the dtype that holds the bits of a register of type `kind`."""
    stored = NUMPY[kind]
    return stored if kind == "pred" else np.dtype(f"u{stored.itemsize}")


def literal(text: str, kind: str) -> Values | None:
    """Read a number in PTX's spelling as one value of type `kind`; None if it is no number."""
    stored = NUMPY[kind]
    hexadecimal = re.fullmatch(r"0[fFdD]([0-9a-fA-F]{8}|[0-9a-fA-F]{16})", text)
    if hexadecimal:
        digits = hexadecimal[1]
        bits = np.array([int(digits, 16)], f"u{len(digits) // 2}")
        value: Values = bits.view(f"f{len(digits) // 2}")
        return value.astype(stored) if stored.kind == "f" else bits.view(stored)
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        number = int(text.rstrip("U"), 0)
        if stored.kind == "f":
            return np.array([number], stored)
        if kind == "pred":
            return np.array([number != 0])
        size = stored.itemsize
        return np.array([number % (1 << (8 * size))], f"u{size}").view(stored)
    return None


@cache
def fma() -> Any:
    """Make the fused multiply-add of float32 and float64, which rounds once, as a ufunc."""
    from numba import vectorize
    from numba.extending import intrinsic

    @intrinsic
    def fused(typing_context: Any, a: Any, b: Any, c: Any) -> Any:  # noqa: ARG001
        return a(a, b, c), lambda _context, builder, _signature, arguments: builder.fma(*arguments)

    @vectorize(["float32(float32, float32, float32)", "float64(float64, float64, float64)"])
    def multiply_add(a: Any, b: Any, c: Any) -> Any:
        return fused(a, b, c)

    return multiply_add


def approximate_reciprocal(values: Values) -> Values:
    """Give ``rcp.approx.ftz``: wrong by up to an ulp, here always by one, and differently for each.

    So nothing can rest on what one processor's table happens to say.
    """
    tiny = np.finfo(np.float32).tiny
    flushed = np.where(np.abs(values) < tiny, np.copysign(np.float32(0), values), values)
    exact = np.float32(1) / flushed
    off = np.where(values.view(np.uint32) % 7 % 2 == 0, np.float32(np.inf), np.float32(0))
    near = np.where(np.isfinite(exact), np.copysign(np.nextafter(np.abs(exact), off), exact), exact)
    return np.where(np.abs(near) < tiny, np.copysign(np.float32(0), near), near)


def bfloat16_to_float32(bits: Values) -> Values:
    """Widen the bits of bfloat16."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def float32_to_bfloat16(values: Values) -> Values:
    """Round to the bits of the nearest bfloat16, ties to even; every NaN is the canonical one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def high_product(a: Values, b: Values) -> Values:
    """Give the upper half of the whole product of two integers."""
    a, b = np.broadcast_arrays(a, b)
    if a.dtype.itemsize < 8:
        wide = np.dtype(f"{a.dtype.kind}8")
        shift = 8 * a.dtype.itemsize
        product: Values = (a.astype(wide) * b.astype(wide)) >> wide.type(shift)
        return product.astype(a.dtype)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = (v.astype(np.uint64) for v in (a, b))
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    lower = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> half) + (lower >> half)
    if a.dtype.kind == "i":  # the signed product from the unsigned one
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.astype(a.dtype)


def divide_toward_zero(a: Values, b: Values) -> Values:
    """Divide integers as C does; no divisor may be 0."""
    if a.dtype.kind == "u":
        quotient: Values = a // b
        return quotient
    floor = a // b
    below = (floor * b != a) & ((a < 0) != (b < 0))
    rounded: Values = floor + below.astype(a.dtype)
    return rounded


def float_to_integer(values: Values, target: np.dtype[Any], rounding: str) -> Values:
    """Round, cut off at the limits, and give PTX's integer for NaN."""
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](values)
    limits = np.iinfo(target)
    wide = rounded.astype(np.float64)
    above, below, nan = wide >= float(limits.max), wide <= float(limits.min), np.isnan(wide)
    inside = np.where(above | below | nan, 0, wide).astype(target)
    result = np.where(above, limits.max, np.where(below, limits.min, inside)).astype(target)
    wrong = values.dtype.itemsize == 8 or target.itemsize == 8
    invalid = (1 << (8 * target.itemsize - 1)) if wrong else 0
    return np.where(nan, np.array([invalid], f"u{target.itemsize}").view(target), result)
