"""What computes: each instruction that is modelled, with its modifiers, as one ufunc or so.

`compile_arithmetic` turns an instruction into a function of the active lanes. An opcode that is not
here, or a modifier that its pattern does not name, is `UnknownInstructionError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from . import scalars
from .errors import EmulationError, UnknownInstructionError
from .lanes import LOCAL_WINDOW, SHARED_WINDOW, Active, Operands
from .parser import Instruction, split_operands
from .scalars import NUMPY, WIDER, Values

Handler = Callable[[Active], None]
_Compile = Callable[[Instruction, Operands], Handler]

_INTEGER = "[us](?:16|32|64)"
_BITS = "b(?:16|32|64)"
_FLOAT = "f(?:32|64)"

_MODELLED: dict[str, tuple[re.Pattern[str], _Compile]] = {}


def _models(modifiers: str, *opcodes: str) -> Callable[[_Compile], _Compile]:
    def register(compiler: _Compile) -> _Compile:
        for opcode in opcodes:
            _MODELLED[opcode] = re.compile(modifiers), compiler
        return compiler

    return register


def compile_arithmetic(line: Instruction, operands: Operands) -> Handler:
    """Give what runs an instruction in the active lanes."""
    pattern, compiler = _MODELLED.get(line.opcode, (re.compile("(?!)"), None))
    if compiler is None or not pattern.fullmatch(".".join(line.modifiers)):
        raise UnknownInstructionError(line.text)
    return compiler(line, operands)


def _ufunc(line: Instruction, operands: Operands, function: Any, kind: str, result: str) -> Handler:
    """Apply a ufunc straight into the register if it fits, else through a copy."""
    sources = [operands.source(text, kind) for text in line.operands[1:]]
    out = operands.destination(line.operands[0], result)
    if out is not None:
        return lambda active: function(*sources, out=out, where=active.where)
    return _function(line, operands, function, kind)


def _function(
    line: Instruction, operands: Operands, function: Callable[..., Values], *kinds: str
) -> Handler:
    """Apply a function of the sources, of the given types; the last one is that of the rest."""
    texts = line.operands[1:]
    kinds += kinds[-1:] * (len(texts) - len(kinds))
    sources = [operands.source(text, kind) for text, kind in zip(texts, kinds, strict=True)]
    assign = operands.assign(line.operands[0])
    return lambda active: assign(function(*sources), active)


_ELEMENTWISE = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "neg": np.negative,
    "abs": np.absolute,
    "rcp": np.reciprocal,
}


@_models(f"{_INTEGER}|(?:rn\\.)?{_FLOAT}", "add", "sub")
@_models(f"{_INTEGER}|{_FLOAT}", "min", "max")
@_models(f"{_BITS}|pred", "and", "or", "xor", "not")
@_models(f"s(?:16|32|64)|{_FLOAT}", "neg", "abs")
@_models(f"rn\\.{_FLOAT}|approx\\.ftz\\.f32", "rcp")
def _elementwise(line: Instruction, operands: Operands) -> Handler:
    kind = line.modifiers[-1]
    if line.modifiers[0] == "approx":
        return _function(line, operands, scalars.approximate_reciprocal, kind)
    function: Any = _ELEMENTWISE[line.opcode]
    if kind.startswith("f") and line.opcode in {"min", "max"}:
        function = {"min": np.fmin, "max": np.fmax}[line.opcode]  # a number beats a NaN
    return _ufunc(line, operands, function, kind, kind)


@_models(f"(?:lo|hi|wide)\\.{_INTEGER}|(?:rn\\.)?{_FLOAT}", "mul")
def _mul(line: Instruction, operands: Operands) -> Handler:
    part, kind = line.modifiers[0], line.modifiers[-1]
    if part == "wide":
        wide = NUMPY[WIDER[kind]]
        return _function(line, operands, lambda a, b: a.astype(wide) * b.astype(wide), kind)
    if part == "hi":
        return _function(line, operands, scalars.high_product, kind)
    return _ufunc(line, operands, np.multiply, kind, kind)


@_models(f"(?:lo|hi|wide)\\.{_INTEGER}", "mad")
def _mad(line: Instruction, operands: Operands) -> Handler:
    part, kind = line.modifiers
    if part == "wide":
        wide = WIDER[kind]
        return _function(
            line,
            operands,
            lambda a, b, c: a.astype(NUMPY[wide]) * b.astype(NUMPY[wide]) + c,
            kind,
            kind,
            wide,
        )
    product = np.multiply if part == "lo" else scalars.high_product
    return _function(line, operands, lambda a, b, c: product(a, b) + c, kind)


@_models(f"rn\\.{_FLOAT}", "fma")
def _fma(line: Instruction, operands: Operands) -> Handler:
    kind = line.modifiers[-1]
    a, b, c = (operands.source(text, kind) for text in line.operands[1:])
    out = operands.destination(line.operands[0], kind)
    if out is None:
        raise UnknownInstructionError(line.text)
    fused = scalars.fma()

    def multiply_add(active: Active) -> None:
        if active.where is True:
            fused(a, b, c, out=out)
        else:  # Numba's ufuncs do not take `where`
            np.copyto(out, fused(a, b, c), where=active.where)

    return multiply_add


@_models(f"{_INTEGER}|rn\\.{_FLOAT}", "div")
@_models(_INTEGER, "rem")
def _div(line: Instruction, operands: Operands) -> Handler:
    kind = line.modifiers[-1]
    if kind.startswith("f"):
        return _ufunc(line, operands, np.divide, kind, kind)
    a, b = (operands.source(text, kind) for text in line.operands[1:])
    assign = operands.assign(line.operands[0])
    one = NUMPY[kind].type(1)

    def divide(active: Active) -> None:
        zero = np.broadcast_to(b == 0, active.mask.shape)
        if (zero & active.mask).any():
            raise EmulationError("an integer is divided by zero")
        divisor = np.where(zero, one, b)
        quotient = scalars.divide_toward_zero(a, divisor)
        assign(quotient if line.opcode == "div" else a - quotient * divisor, active)

    return divide


@_models(f"{_BITS}", "shl")
@_models(f"{_BITS}|{_INTEGER}", "shr")
def _shift(line: Instruction, operands: Operands) -> Handler:
    kind = line.modifiers[-1]
    width = 8 * NUMPY[kind].itemsize

    def shift(values: Values, amount: Values) -> Values:
        past = amount >= width
        by = np.minimum(amount, width - 1).astype(values.dtype)
        if line.opcode == "shl":
            return np.where(past, values.dtype.type(0), values << by)
        shifted = values >> by  # keeps the sign of signed types, as a shift too far does
        return shifted if kind.startswith("s") else np.where(past, values.dtype.type(0), shifted)

    return _function(line, operands, shift, kind, "u32")


@_models(r"[lr]\.(?:wrap|clamp)\.b32", "shf")
def _funnel_shift(line: Instruction, operands: Operands) -> Handler:
    left, wrap = line.modifiers[0] == "l", line.modifiers[1] == "wrap"

    def shift(low: Values, high: Values, amount: Values) -> Values:
        by = (amount & 31 if wrap else np.minimum(amount, 32)).astype(np.uint64)
        both = (high.astype(np.uint64) << np.uint64(32)) | low
        moved = (both << by) >> np.uint64(32) if left else both >> by
        return moved.astype(np.uint32)

    return _function(line, operands, shift, "u32")


@_models("[us](?:32|64)", "bfe")
def _bit_field_extract(line: Instruction, operands: Operands) -> Handler:
    (kind,) = line.modifiers
    width = 8 * NUMPY[kind].itemsize

    def extract(values: Values, start: Values, length: Values) -> Values:
        start, length = (np.minimum(v & 255, width).astype(np.int64) for v in (start, length))
        top = np.maximum(0, width - start - length)
        keep = np.clip(width - length, 0, width - 1)
        moved = values << np.minimum(top, width - 1).astype(values.dtype)
        moved = moved >> np.minimum(keep, width - 1).astype(values.dtype)
        if kind.startswith("s") and ((start + length > width) & (length > 0)).any():
            raise UnknownInstructionError(f"{line.text} past the end")
        return np.where((length == 0) | (start >= width), values.dtype.type(0), moved)

    return _function(line, operands, extract, kind, "u32")


@_models("b(?:32|64)", "bfi")
def _bit_field_insert(line: Instruction, operands: Operands) -> Handler:
    (kind,) = line.modifiers
    width = 8 * NUMPY[kind].itemsize

    def insert(new: Values, old: Values, start: Values, length: Values) -> Values:
        start, length = (np.minimum(v & 255, width).astype(np.uint64) for v in (start, length))
        ones = np.where(length >= 64, ~np.uint64(0), (np.uint64(1) << (length & 63)) - np.uint64(1))
        mask = np.where(start >= 64, np.uint64(0), ones << (start & 63))
        moved = new.astype(np.uint64) << (start & 63)
        return ((old.astype(np.uint64) & ~mask) | (moved & mask)).astype(NUMPY[kind])

    return _function(line, operands, insert, kind, kind, "u32")


@_models("b32", "prmt")
def _permute(line: Instruction, operands: Operands) -> Handler:
    def permute(low: Values, high: Values, selector: Values) -> Values:
        both = (high.astype(np.uint64) << np.uint64(32)) | low
        result: Any = np.uint64(0)
        for k in range(4):
            chosen = (selector >> np.uint32(4 * k)).astype(np.uint64)
            byte = both >> ((chosen & 7) * np.uint64(8)) & np.uint64(255)
            sign = np.where(byte >= 128, np.uint64(255), np.uint64(0))
            result = result | np.where(chosen & 8, sign, byte) << np.uint64(8 * k)
        return np.asarray(result).astype(np.uint32)

    return _function(line, operands, permute, "u32")


@_models("b(?:32|64)", "popc", "clz")
def _count_bits(line: Instruction, operands: Operands) -> Handler:
    kind = line.modifiers[0]
    width = 8 * NUMPY[kind].itemsize

    def leading_zeros(values: Values) -> Values:
        for shift in (2**k for k in range(width.bit_length() - 1)):
            values = values | values >> values.dtype.type(shift)  # ones below the highest one
        return (width - np.bitwise_count(values)).astype(np.uint32)

    if line.opcode == "clz":
        return _function(line, operands, leading_zeros, kind)
    return _function(line, operands, lambda v: np.bitwise_count(v).astype(np.uint32), kind)


_ORDERED = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMPARISONS = "(?:eq|ne|lt|le|gt|ge|lo|ls|hi|hs)"
_FLOAT_COMPARISONS = "(?:(?:eq|ne|lt|le|gt|ge)u?|num|nan)"
_COMBINED = r"(?:\.(?:and|or|xor))?"


@_models(
    f"{_COMPARISONS}{_COMBINED}\\.(?:{_INTEGER}|{_BITS})"
    f"|{_FLOAT_COMPARISONS}{_COMBINED}\\.f(?:16|32|64)",
    "setp",
)
def _set_predicate(line: Instruction, operands: Operands) -> Handler:
    relation, *combine, kind = line.modifiers
    target, *texts = line.operands
    a, b = (operands.source(text, kind) for text in texts[:2])
    out = operands.destination(target, "pred")
    if out is None:
        raise UnknownInstructionError(line.text)
    floating = kind.startswith("f")
    if not floating and not combine:
        function = _ORDERED[_UNSIGNED.get(relation, relation)]
        return lambda active: function(a, b, out=out, where=active.where)

    def compare() -> Values:
        if not floating:
            return _ORDERED[_UNSIGNED.get(relation, relation)](a, b)
        if relation in {"num", "nan"}:
            unordered: Values = np.isnan(a) | np.isnan(b)
            return unordered if relation == "nan" else ~unordered
        holds = _ORDERED[relation.removesuffix("u")](a, b)
        if relation.endswith("u"):
            return holds | np.isnan(a) | np.isnan(b)
        return holds & ~np.isnan(a) & ~np.isnan(b) if relation == "ne" else holds

    if not combine:
        return lambda active: np.copyto(out, compare(), where=active.where)
    other = operands.source(texts[2].lstrip("!"), "pred")
    negated = texts[2].startswith("!")
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[combine[0]]

    def combined(active: Active) -> None:
        join(compare(), ~other if negated else other, out=out, where=active.where)

    return combined


@_models(f"{_INTEGER}|{_BITS}|{_FLOAT}", "selp")
def _select(line: Instruction, operands: Operands) -> Handler:
    (kind,) = line.modifiers
    a, b = (operands.source(text, kind) for text in line.operands[1:3])
    chosen = operands.source(line.operands[3], "pred")
    assign = operands.assign(line.operands[0])
    return lambda active: assign(np.where(chosen, a, b), active)


@_models(f"{_INTEGER}|{_BITS}|{_FLOAT}|f16|pred", "mov")
def _move(line: Instruction, operands: Operands) -> Handler:
    (kind,) = line.modifiers
    target, source = line.operands
    if target.startswith("{"):
        parts = split_operands(target.strip("{}"))
        part = np.dtype(f"u{NUMPY[kind].itemsize // len(parts)}")
        whole = operands.source(source, kind)
        assigns = [None if text == "_" else operands.assign(text) for text in parts]

        def unpack(active: Active) -> None:
            pieces = np.ascontiguousarray(whole).view(part).reshape(-1, len(parts))
            for k, assign in enumerate(assigns):
                if assign is not None:
                    assign(np.ascontiguousarray(pieces[:, k]), active)

        return unpack
    assign = operands.assign(target)
    if source.startswith("{"):
        texts = split_operands(source.strip("{}"))
        width = NUMPY[kind].itemsize // len(texts)
        pieces = [operands.source(text, f"b{8 * width}") for text in texts]

        def pack(active: Active) -> None:
            rows = np.stack(np.broadcast_arrays(*pieces), axis=-1)
            assign(np.ascontiguousarray(rows).view(NUMPY[kind]).reshape(-1), active)

        return pack
    values = operands.source(source, kind)
    return lambda active: assign(values, active)


@_models(r"(?:to\.)?(?:global|shared|local)\.u64", "cvta")
def _convert_address(line: Instruction, operands: Operands) -> Handler:
    space = line.modifiers[-2]
    window = {"global": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW}[space]
    shift = np.int64(-window if line.modifiers[0] == "to" else window)
    return _function(line, operands, lambda a: a + shift, "s64")


_WHOLE = "[us](?:8|16|32|64)"


@_models(
    f"{_WHOLE}\\.{_WHOLE}|rn\\.{_FLOAT}\\.{_WHOLE}|r[nzmp]i\\.{_WHOLE}\\.{_FLOAT}"
    f"|r[nzmp]i\\.(?:f32\\.f32|f64\\.f64)|f64\\.f32|rn\\.f32\\.f64|f(?:32|64)\\.f16"
    f"|rn\\.f16\\.f(?:32|64)|f32\\.bf16|rn\\.bf16\\.f32|rn\\.(?:bf16|f16)x2\\.f32",
    "cvt",
)
def _convert(line: Instruction, operands: Operands) -> Handler:
    *rounding, target, source = line.modifiers
    dtype = NUMPY[target]
    if target in {"bf16x2", "f16x2"}:

        def narrow(values: Values) -> Values:
            if target == "bf16x2":
                return scalars.float32_to_bfloat16(values)
            return values.astype(np.float16).view(np.uint16)

        return _function(
            line,
            operands,
            lambda high, low: narrow(high).astype(np.uint32) << np.uint32(16) | narrow(low),
            source,
        )
    if target == "bf16":
        return _function(line, operands, scalars.float32_to_bfloat16, source)
    if source == "bf16":
        return _function(line, operands, scalars.bfloat16_to_float32, source)
    if rounding and rounding[0].endswith("i"):
        if target.startswith("f"):
            function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
            return _ufunc(line, operands, function[rounding[0]], source, target)
        return _function(
            line, operands, lambda v: scalars.float_to_integer(v, dtype, rounding[0]), source
        )
    return _function(line, operands, lambda v: v.astype(dtype), source)
