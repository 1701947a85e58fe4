"""The PTX emulator of the tests computes what PTX says: against Python's and NumPy's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import ptx
import pytest
from ptx import Buffer

REGISTERS = {16: "%rs", 32: "%r", 64: "%rd"}


def register(kind: str, number: int) -> str:
    if kind == "pred":
        return f"%p{number}"
    width = int(kind.lstrip("bsuf"))
    if kind.startswith("f") and width > 16:
        return ("%f" if width == 32 else "%fd") + str(number)
    return REGISTERS[max(width, 16)] + str(number)


def evaluate(
    line: str, sources: list[tuple[str, np.ndarray]], result: str, dtype: Any
) -> np.ndarray:
    """Run one instruction, written with a, b, c and d, one thread for each element."""
    count = len(sources[0][1])
    body, parameters = "", ["output"]
    names = {"d": register(result, 5)}
    for i, (kind, values) in enumerate(sources):
        assert len(values) == count
        parameters.append(f"input{i}")
        names["abc"[i]] = register(kind, i)
        size = values.itemsize
        body += f"ld.param.u64 %rd10, [input{i}];\nmad.wide.u32 %rd10, %r10, {size}, %rd10;\n"
        body += f"ld.global.{kind} {register(kind, i)}, [%rd10];\n"
    body += re.sub(r"(?<![\w.%])[abcd](?![\w.])", lambda found: names[found[0]], line) + "\n"
    stored = result
    if result == "pred":
        body += "selp.u32 %r5, 1, 0, %p5;\n"
        stored = "u32"
    size = np.dtype(dtype).itemsize
    body += f"ld.param.u64 %rd10, [output];\nmad.wide.u32 %rd10, %r10, {size}, %rd10;\n"
    body += f"st.global.{stored} [%rd10], {register(stored, 5)};\nret;"
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry kernel("
        + ", ".join(f".param .u64 {name}" for name in parameters)
        + ")\n{\n.reg .pred %p<9>;\n.reg .b16 %rs<12>;\n.reg .b32 %r<12>;\n.reg .b64 %rd<12>;\n"
        + ".reg .f32 %f<9>;\n.reg .f64 %fd<9>;\nmov.u32 %r10, %tid.x;\n"
        + body
        + "\n}"
    )
    output = np.zeros(count, dtype)
    arguments = [Buffer(output, "w"), *(Buffer(values) for _, values in sources)]
    ptx.launch(ptx.parse(text), 1, count, arguments)
    return output


def integers(kind: str, *, seed: int = 0, nonzero: bool = False) -> np.ndarray:
    """Give limits, small numbers and random ones, 256 in all, in random order."""
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    special = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, 31, 32, 33]
    special += [-1, -2, -3] if kind[0] == "s" else []
    values = np.concatenate(
        [
            np.array(special, dtype),
            rng.integers(limits.min, limits.max, 181 - len(special), dtype, endpoint=True),
            rng.integers(max(limits.min, -9), 9, 75, dtype),
        ]
    )
    rng.shuffle(values)
    return np.where(values == 0, dtype.type(5), values) if nonzero else values


def wrapped(values: list[int], kind: str) -> np.ndarray:
    bits = int(kind[1:])
    low = [v % (1 << bits) for v in values]
    return np.array(low, f"u{bits // 8}").view(f"{'i' if kind[0] == 's' else 'u'}{bits // 8}")


def divided(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
    "div": divided,
    "rem": lambda a, b: a - divided(a, b) * b,
}


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("name", BINARY)
def test_integer_arithmetic_wraps_around(name: str, kind: str) -> None:
    a, b = integers(kind), integers(kind, seed=1, nonzero=True)
    got = evaluate(f"{name}.{kind} d, a, b;", [(kind, a), (kind, b)], kind, a.dtype)
    exact = [BINARY[name](int(x), int(y)) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(got, wrapped(exact, kind))


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_high_half_of_a_product(kind: str) -> None:
    a, b = integers(kind), integers(kind, seed=1)
    got = evaluate(f"mul.hi.{kind} d, a, b;", [(kind, a), (kind, b)], kind, a.dtype)
    bits = int(kind[1:])
    exact = [int(x) * int(y) >> bits for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(got, wrapped(exact, kind))


@pytest.mark.parametrize(("kind", "wide"), [("s32", "s64"), ("u32", "u64"), ("s16", "s32")])
def test_wide_product_and_sum(kind: str, wide: str) -> None:
    a, b, c = integers(kind), integers(kind, seed=1), integers(wide, seed=2)
    sources = [(kind, a), (kind, b), (wide, c)]
    got = evaluate(f"mad.wide.{kind} d, a, b, c;", sources, wide, c.dtype)
    exact = [int(x) * int(y) + int(z) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(got, wrapped(exact, wide))


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_shift_right_keeps_the_sign_of_signed_numbers_only(kind: str) -> None:
    a = integers(kind)
    amount = np.random.default_rng(3).integers(0, 80, a.size, np.uint32)
    got = evaluate(f"shr.{kind} d, a, b;", [(kind, a), ("u32", amount)], kind, a.dtype)
    exact = [int(x) >> int(n) for x, n in zip(a, amount, strict=True)]
    np.testing.assert_array_equal(got, wrapped(exact, kind))


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_shift_left_past_the_end_is_zero(kind: str) -> None:
    a = integers("u" + kind[1:])
    amount = np.random.default_rng(3).integers(0, 80, a.size, np.uint32)
    got = evaluate(f"shl.{kind} d, a, b;", [(kind, a), ("u32", amount)], kind, a.dtype)
    exact = [int(x) << int(n) for x, n in zip(a, amount, strict=True)]
    np.testing.assert_array_equal(got, wrapped(exact, "u" + kind[1:]))


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift(side: str, mode: str) -> None:
    a, b = integers("u32"), integers("u32", seed=1)
    amount = np.random.default_rng(3).integers(0, 80, a.size, np.uint32)
    line = f"shf.{side}.{mode}.b32 d, a, b, c;"
    got = evaluate(line, [("b32", a), ("b32", b), ("b32", amount)], "b32", np.uint32)
    for low, high, n, result in zip(a, b, amount, got, strict=True):
        by = int(n) % 32 if mode == "wrap" else min(int(n), 32)
        both = int(high) << 32 | int(low)
        expected = both << by >> 32 if side == "l" else both >> by
        assert result == expected % 2**32


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_bits(kind: str) -> None:
    unsigned = "u" + kind[1:]
    a, b = integers(unsigned), integers(unsigned, seed=1)
    two = [(kind, a), (kind, b)]
    for name, function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        got = evaluate(f"{name}.{kind} d, a, b;", two, kind, a.dtype)
        np.testing.assert_array_equal(got, function(a, b))
    np.testing.assert_array_equal(evaluate(f"not.{kind} d, a;", two[:1], kind, a.dtype), ~a)
    ones = evaluate(f"popc.{kind} d, a;", two[:1], "b32", np.uint32)
    assert ones.tolist() == [int(x).bit_count() for x in a]
    zeros = evaluate(f"clz.{kind} d, a;", two[:1], "b32", np.uint32)
    assert zeros.tolist() == [int(kind[1:]) - int(x).bit_length() for x in a]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize(("start", "length"), [(0, 8), (5, 11), (31, 1), (0, 32), (7, 0)])
def test_bit_field_extract(kind: str, start: int, length: int) -> None:
    a = integers(kind)
    got = evaluate(f"bfe.{kind} d, a, {start}, {length};", [(kind, a)], kind, a.dtype)
    for x, result in zip(a, got, strict=True):
        field = (int(x) >> start) % (1 << length)
        if kind[0] == "s" and length and field >> (length - 1):
            field -= 1 << length
        assert result == field


@pytest.mark.parametrize("kind", ["b32", "b64"])
@pytest.mark.parametrize(("start", "length"), [(0, 8), (5, 11), (31, 1), (0, 32), (7, 0)])
def test_bit_field_insert(kind: str, start: int, length: int) -> None:
    a, b = integers("u" + kind[1:]), integers("u" + kind[1:], seed=1)
    line = f"bfi.{kind} d, a, b, {start}, {length};"
    got = evaluate(line, [(kind, a), (kind, b)], kind, a.dtype)
    mask = ((1 << length) - 1) << start
    for x, y, result in zip(a, b, got, strict=True):
        assert result == (int(y) & ~mask) | (int(x) << start & mask)


def test_permuted_bytes() -> None:
    a, b, selector = integers("u32"), integers("u32", seed=1), integers("u32", seed=2)
    sources = [("b32", a), ("b32", b), ("b32", selector)]
    got = evaluate("prmt.b32 d, a, b, c;", sources, "b32", np.uint32)
    for low, high, chosen, result in zip(a, b, selector, got, strict=True):
        pool = int(low).to_bytes(4, "little") + int(high).to_bytes(4, "little")
        expected = []
        for k in range(4):
            nibble = int(chosen) >> 4 * k & 15
            byte = pool[nibble & 7]
            expected.append((255 if byte > 127 else 0) if nibble & 8 else byte)
        assert result == int.from_bytes(bytes(expected), "little")


SPECIAL = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, 2.5, 3.5, -2.5, 0.5]


def floats(dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal(256 - len(SPECIAL)) * 2.0 ** rng.integers(-30, 30, 243)
    values = np.concatenate([SPECIAL, drawn]).astype(dtype)
    rng.shuffle(values)
    return values


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize(
    ("relation", "unordered"),
    [(r, u) for r in ("eq", "ne", "lt", "le", "gt", "ge") for u in ("", "u")]
    + [("num", ""), ("nan", "")],
)
def test_comparisons_with_nan(kind: str, relation: str, unordered: str) -> None:
    dtype = f"f{int(kind[1:]) // 8}"
    with np.errstate(over="ignore"):
        a, b = floats(dtype), floats(dtype, 1)
    b[::3] = a[::3]
    line = f"setp.{relation}{unordered}.{kind} d, a, b;"
    got = evaluate(line, [(kind, a), (kind, b)], "pred", np.uint32)
    for x, y, result in zip(a, b, got, strict=True):
        nan = math.isnan(x) or math.isnan(y)
        if relation in {"num", "nan"}:
            expected = nan == (relation == "nan")
        elif nan:
            expected = bool(unordered)
        else:
            expected = {
                "eq": x == y,
                "ne": x != y,
                "lt": x < y,
                "le": x <= y,
                "gt": x > y,
                "ge": x >= y,
            }[relation]
        assert result == expected, (x, y)


@pytest.mark.parametrize(("relation", "kind"), [("lt", "s32"), ("lo", "u64"), ("hs", "u32")])
def test_integer_comparisons(relation: str, kind: str) -> None:
    a, b = integers(kind), integers(kind, seed=1)
    got = evaluate(f"setp.{relation}.{kind} d, a, b;", [(kind, a), (kind, b)], "pred", np.uint32)
    np.testing.assert_array_equal(got, a >= b if relation == "hs" else a < b)


def test_number_beats_nan_in_minimum_and_maximum() -> None:
    a, b = floats(np.float32), floats(np.float32, 1)
    for name, function in (("min", np.fmin), ("max", np.fmax)):
        got = evaluate(f"{name}.f32 d, a, b;", [("f32", a), ("f32", b)], "f32", np.float32)
        np.testing.assert_array_equal(got, function(a, b))


def fused(a: float, b: float, c: float, dtype: Any) -> Any:
    """Round the exact a * b + c once; only for finite numbers."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if dtype == np.float64:
        return np.float64(exact.numerator / exact.denominator)
    near = np.float32(exact.numerator / exact.denominator)  # rounded twice: one of the neighbours
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]

    def distance(value: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(value)) - exact), int(value.view(np.uint32)) & 1

    return min(around, key=distance)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fused_multiply_add_rounds_once(kind: str) -> None:
    """Numbers whose sum almost cancels, or lies next to the middle of two neighbours."""
    dtype = np.dtype(f"f{int(kind[1:]) // 8}")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(512).astype(dtype) for _ in range(2))
    c = -(a * b) * (1 + np.finfo(dtype).eps * rng.integers(-2, 3, 512)).astype(dtype)
    c[::2] = (a * b * 2.0 ** rng.integers(-30, 30, 512)).astype(dtype)[::2]
    if kind == "f32":  # 1 + 2**-12 squared is 1 + 2**-11 + 2**-24: twice rounded, it is even
        a[:2] = b[:2] = 1 + 2**-12
        c[:2] = 2.0**-60, -(2.0**-60)
    sources = [(kind, a), (kind, b), (kind, c)]
    got = evaluate(f"fma.rn.{kind} d, a, b, c;", sources, kind, dtype)
    expected = [fused(*map(float, row), dtype) for row in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(got, np.array(expected, dtype))
    twice = a * b + c
    assert (got != twice).any()


def test_fused_multiply_add_is_masked() -> None:
    a, b = floats(np.float32), integers("s32")
    line = "setp.lt.s32 %p1, b, 0; mov.f32 d, 0f00000000; @%p1 fma.rn.f32 d, a, a, a;"
    got = evaluate(line, [("f32", a), ("s32", b)], "f32", np.float32)
    with np.errstate(all="ignore"):
        expected = np.where(b < 0, (a.astype(np.float64) * a + a).astype(np.float32), 0)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("target", ["s32", "u32", "s64", "u64", "s8", "u8"])
@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("rounding", ["rni", "rzi", "rmi", "rpi"])
def test_float_to_integer_saturates(target: str, source: str, rounding: str) -> None:
    dtype = np.dtype(f"f{int(source[1:]) // 8}")
    values = floats(dtype)
    values[-4:] = 2.0**31, 2.0**63, -(2.0**31), 2.0**32
    width = max(int(target[1:]), 16)
    register_kind = target[0] + str(width)
    line = f"cvt.{rounding}.{target}.{source} d, a;"
    out = np.dtype(f"{'i' if target[0] == 's' else 'u'}{width // 8}")
    got = evaluate(line, [(source, values)], register_kind, out)
    bits = int(target[1:])
    low, high = (
        (-(1 << bits - 1), (1 << bits - 1) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    )
    function = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[rounding]
    for value, result in zip(values, got, strict=True):
        if math.isnan(value):
            marker = 1 << bits - 1 if source == "f64" or bits == 64 else 0
            expected = wrapped([marker], f"{target[0]}{max(bits, 16)}")[0] if bits > 8 else None
        elif math.isinf(value):
            expected = high if value > 0 else low
        else:
            expected = min(max(function(float(value)), low), high)
        assert expected is None or result == expected, value


def test_integer_conversions_cut_and_extend() -> None:
    a = integers("s64")
    for target in ("s8", "u8", "s16", "u16", "s32", "u32"):
        got = evaluate(f"cvt.{target}.s64 d, a;", [("s64", a)], f"{target[0]}64", np.int64)
        dtype = np.dtype(f"{'i' if target[0] == 's' else 'u'}{int(target[1:]) // 8}")
        np.testing.assert_array_equal(got, a.astype(dtype).astype(np.int64))
    b = integers("s32")
    np.testing.assert_array_equal(evaluate("cvt.s64.s32 d, a;", [("s32", b)], "s64", np.int64), b)
    got = evaluate("cvt.rn.f32.s64 d, a;", [("s64", a)], "f32", np.float32)
    np.testing.assert_array_equal(got, a.astype(np.float32))


def test_halves_are_rounded_to_the_nearest() -> None:
    import ml_dtypes

    values = floats(np.float32)
    with np.errstate(over="ignore"):
        half, brain = values.astype(np.float16), values.astype(ml_dtypes.bfloat16)
    got = evaluate("cvt.rn.f16.f32 d, a;", [("f32", values)], "b16", np.uint16)
    np.testing.assert_array_equal(got.view(np.float16), half)
    got = evaluate("cvt.rn.bf16.f32 d, a;", [("f32", values)], "b16", np.uint16)
    np.testing.assert_array_equal(
        got.view(ml_dtypes.bfloat16).astype(np.float32), brain.astype(np.float32)
    )
    back = evaluate("cvt.f32.f16 d, a;", [("b16", half.view(np.uint16))], "f32", np.float32)
    np.testing.assert_array_equal(back, half.astype(np.float32))
    back = evaluate("cvt.f32.bf16 d, a;", [("b16", brain.view(np.uint16))], "f32", np.float32)
    np.testing.assert_array_equal(back, brain.astype(np.float32))
    for name, expected in (("f16x2", half), ("bf16x2", brain)):
        both = evaluate(
            f"cvt.rn.{name}.f32 d, a, b;",
            [("f32", values), ("f32", values[::-1].copy())],
            "b32",
            np.uint32,
        )
        low = (both & 0xFFFF).astype(np.uint16).view(expected.dtype)
        high = (both >> 16).astype(np.uint16).view(expected.dtype)
        np.testing.assert_array_equal(low.astype(np.float32), expected[::-1].astype(np.float32))
        np.testing.assert_array_equal(high.astype(np.float32), expected.astype(np.float32))


def test_registers_are_packed_and_unpacked() -> None:
    a, b = integers("u32"), integers("u32", seed=1)
    got = evaluate("mov.b64 d, {a,b};", [("b32", a), ("b32", b)], "b64", np.uint64)
    np.testing.assert_array_equal(got, a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32))
    got = evaluate("mov.b64 {_,d}, a;", [("b64", got)], "b32", np.uint32)
    np.testing.assert_array_equal(got, b)


def test_literals() -> None:
    one = np.zeros(1, np.uint32)
    assert evaluate("mov.f32 d, 0f3FC00000;", [("u32", one)], "f32", np.float32) == 1.5
    assert evaluate("mov.f64 d, 0d3FF8000000000000;", [("u32", one)], "f64", np.float64) == 1.5
    assert evaluate("mov.u32 d, -1;", [("u32", one)], "u32", np.uint32) == 2**32 - 1
    assert evaluate("mov.u64 d, 0xFFFFU;", [("u32", one)], "u64", np.uint64) == 0xFFFF


def test_an_approximate_reciprocal_is_an_ulp_off() -> None:
    values = floats(np.float32)
    got = evaluate("rcp.approx.ftz.f32 d, a;", [("f32", values)], "f32", np.float32)
    with np.errstate(divide="ignore", over="ignore"):
        exact = 1 / values.astype(np.float64)
        ordinary = (np.abs(exact) < 1e38) & (np.abs(exact) > 1e-37)
    near = exact[ordinary].astype(np.float32)
    steps = got[ordinary].view(np.int32) - near.view(np.int32)
    assert set(steps.tolist()) == {-1, 1}
    assert set(got[~ordinary & ~np.isnan(values)].tolist()) <= {0.0, math.inf, -math.inf}
    assert np.isnan(got[np.isnan(values)]).all()
