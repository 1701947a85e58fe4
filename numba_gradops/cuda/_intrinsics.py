"""Everything below Numba's language: typed memory accesses, exact quotients, register tiles.

The only file of this backend that knows LLVM. Kernels get addresses, not arrays: an access names
the element type and the number of elements, and converts between what lies in memory and what is
computed with (halves are float32 in registers). Addresses are int64, positions count elements.

A move to another compiler rewrites this file. Tensor-core instructions belong here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba.cuda import cgutils, extending, types
from numba.cuda.typing import signature

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_HALF, _FLOAT, _DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_GLOBAL = 1  # the address space of the device's memory

Value = Any  # of llvmlite
Intrinsic = Any  # a function that kernels call


class _Element(NamedTuple):
    """How elements of a dtype lie in memory."""

    llvm: ir.Type
    size: int


_ELEMENTS = {
    "float16": _Element(_I16, 2),
    "bfloat16": _Element(_I16, 2),
    "float32": _Element(_FLOAT, 4),
    "float64": _Element(_DOUBLE, 8),
    "int32": _Element(_I32, 4),
    "int64": _Element(_I64, 8),
}
_REGISTERS = {
    "float32": (types.float32, _FLOAT),
    "float64": (types.float64, _DOUBLE),
    "int32": (types.int32, _I32),
    "int64": (types.int64, _I64),
}


def _intrinsic(function: Callable[..., Any]) -> Intrinsic:
    return extending.intrinsic(function)


def size_of(dtype: str) -> int:
    """Give the size of an element in bytes."""
    return _ELEMENTS[dtype].size


def accumulator(dtype: str) -> str:
    """Name what products of a dtype are summed in: halves are in float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _constant(value: int) -> ir.Constant:
    return ir.Constant(_I32, value)


def _widen(builder: ir.IRBuilder, dtype: str, register: str, value: Value) -> Value:
    """Turn a number in memory into one in a register; exact but for int64 as float64."""
    if dtype == "float16":
        value = builder.fpext(builder.bitcast(value, _HALF), _FLOAT)
    elif dtype == "bfloat16":
        value = builder.shl(builder.zext(value, _I32), _constant(16))
        value = builder.bitcast(value, _FLOAT)
    if register == "float64" and value.type == _FLOAT:
        return builder.fpext(value, _DOUBLE)
    if register == "float64" and value.type in (_I32, _I64):
        return builder.sitofp(value, _DOUBLE)
    return value


def _magnitude(builder: ir.IRBuilder, value: Value) -> Value:
    """Give a float's bits without the sign: they are ordered as the magnitudes are."""
    kind = _I64 if value.type == _DOUBLE else _I32
    return builder.and_(builder.bitcast(value, kind), ir.Constant(kind, 2 ** (kind.width - 1) - 1))


def _infinity(value: Value) -> ir.Constant:
    if value.type == _DOUBLE:
        return ir.Constant(_I64, 0x7FF << 52)
    return ir.Constant(_I32, 0xFF << 23)


def _is_finite(builder: ir.IRBuilder, value: Value) -> Value:
    return builder.icmp_unsigned("<", _magnitude(builder, value), _infinity(value))


def _round_to_odd(builder: ir.IRBuilder, value: Value) -> Value:
    """Shorten float64 to float32 so that a second rounding, to a half, is as good as one.

    A result that is not exact is made to end in an odd last bit, which no later tie can be mistaken
    for (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    short = builder.fptrunc(value, _FLOAT)
    back = builder.fpext(short, _DOUBLE)
    inexact = builder.fcmp_ordered("!=", back, value)
    away = builder.icmp_unsigned(">", _magnitude(builder, back), _magnitude(builder, value))
    # Toward zero first: one step in magnitude is one step in the bits.
    bits = builder.sub(builder.bitcast(short, _I32), builder.zext(away, _I32))
    odd = builder.bitcast(builder.or_(bits, _constant(1)), _FLOAT)
    # An infinite sum is exact; a finite one that float32 cannot hold is not.
    changed = builder.and_(inexact, _is_finite(builder, value))
    return builder.select(changed, odd, short)


def _to_bfloat16(builder: ir.IRBuilder, value: Value) -> Value:
    """Round float32 to nearest, ties to even; older processors have no instruction for it."""
    bits = builder.bitcast(value, _I32)
    high = builder.lshr(bits, _constant(16))
    odd = builder.and_(high, _constant(1))
    rounded = builder.lshr(builder.add(builder.add(bits, _constant(0x7FFF)), odd), _constant(16))
    is_nan = builder.fcmp_unordered("uno", value, value)
    quiet = builder.or_(high, _constant(0x40))
    return builder.trunc(builder.select(is_nan, quiet, rounded), _I16)


def _cut(builder: ir.IRBuilder, value: Value, kind: ir.Type) -> Value:
    """Cut float64 toward zero; what does not fit becomes the lowest integer, as on x86."""
    lowest = -(2 ** (kind.width - 1))
    low, high = float(lowest) - 1.0, -float(lowest)
    fits = builder.and_(
        builder.fcmp_ordered(">", value, ir.Constant(_DOUBLE, low)),
        builder.fcmp_ordered("<", value, ir.Constant(_DOUBLE, high)),
    )
    if kind == _I64:  # -2**63 - 1 is no float64, and -2**63 is the lowest integer itself
        value = builder.select(fits, value, ir.Constant(_DOUBLE, float(lowest)))
        return builder.fptosi(value, kind)
    inside = builder.select(fits, value, ir.Constant(_DOUBLE, 0.0))
    return builder.select(fits, builder.fptosi(inside, kind), ir.Constant(kind, lowest))


def _narrow(builder: ir.IRBuilder, dtype: str, value: Value) -> Value:
    """Turn a number in a register into one in memory, rounded once."""
    kind = _ELEMENTS[dtype].llvm
    if dtype in ("float16", "bfloat16"):
        if value.type == _DOUBLE:
            value = _round_to_odd(builder, value)
        if dtype == "bfloat16":
            return _to_bfloat16(builder, value)
        return builder.bitcast(builder.fptrunc(value, _HALF), _I16)
    if dtype in ("int32", "int64") and value.type == _DOUBLE:
        return _cut(builder, value, kind)
    return builder.fptrunc(value, _FLOAT) if kind != value.type else value


def _pointer(
    builder: ir.IRBuilder, address: Value, at: Value, element: ir.Type, count: int
) -> Value:
    base = builder.inttoptr(address, ir.PointerType(element, _GLOBAL))
    at = at if at.type == _I64 else builder.sext(at, _I64)
    kind = ir.VectorType(element, count) if count > 1 else element
    return builder.bitcast(builder.gep(base, [at]), ir.PointerType(kind, _GLOBAL))


@cache
def loads(dtype: str, count: int, register: str, constant: bool = True) -> Intrinsic:
    """Make ``load(address, at)``: `count` neighbours, aligned together, as a tuple.

    `constant` memory is written by nobody while the kernel runs.
    """
    element = _ELEMENTS[dtype]
    found = types.UniTuple(_REGISTERS[register][0], count)

    @_intrinsic
    def load(typing_context: Any, address: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            address, at = arguments
            pointer = _pointer(builder, address, at, element.llvm, count)
            value = builder.load(pointer, align=element.size * count)
            if constant:
                value.set_metadata("invariant.load", builder.module.add_metadata([]))
            numbers = [value]
            if count > 1:
                numbers = [builder.extract_element(value, _constant(i)) for i in range(count)]
            wide = [_widen(builder, dtype, register, number) for number in numbers]
            return cgutils.pack_array(builder, wide)

        return signature(found, address, at), codegen

    return load


def _constant_number(builder: ir.IRBuilder, element: _Element, address: Value, at: Value) -> Value:
    value = builder.load(_pointer(builder, address, at, element.llvm, 1))
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@cache
def reads(dtype: str) -> Intrinsic:
    """Make ``read(address, at)``: a number of a constant table.

    An intrinsic, as is `divide`, for Numba takes long over the many calls of small helpers.
    """
    element = _ELEMENTS[dtype]

    @_intrinsic
    def read(typing_context: Any, address: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            return _constant_number(builder, element, *arguments)

        return signature(_REGISTERS[dtype][0], address, at), codegen

    return read


def fields(dtype: str) -> Intrinsic:
    """Make ``field(address, entry, place)``: the number at a place of a constant table's entry."""
    element = _ELEMENTS[dtype]

    @_intrinsic
    def field(typing_context: Any, address: Any, entry: Any, place: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            address, entry, place = arguments
            return _constant_number(builder, element, address, builder.add(entry, place))

        return signature(_REGISTERS[dtype][0], address, types.int32, types.int32), codegen

    return field


def _resized(builder: ir.IRBuilder, value: Value, kind: ir.Type) -> Value:
    """Turn a signed integer into one of another width."""
    if value.type.width > kind.width:
        return builder.trunc(value, kind)
    return builder.sext(value, kind) if value.type.width < kind.width else value


@cache
def flats(bits: int) -> Intrinsic:
    """Make ``flat(outer, size, inner)``: ``outer * size + inner`` in int32 or int64.

    The step from positions along two axes to one. As operators and conversions, Numba would take
    longer over these than over all the rest of a kernel.
    """
    kind, llvm = (types.int64, _I64) if bits == 64 else (types.int32, _I32)

    @_intrinsic
    def flat(typing_context: Any, outer: Any, size: Any, inner: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            outer, size, inner = (_resized(builder, each, llvm) for each in arguments)
            return builder.add(builder.mul(outer, size), inner)

        return signature(kind, outer, size, inner), codegen

    return flat


@_intrinsic
def inside(typing_context: Any, at: Any, shift: Any, limit: Any) -> Any:
    """Tell whether ``0 <= at + shift < limit``, all int32: one comparison without signs."""

    def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        at, shift, limit = arguments
        return builder.icmp_unsigned("<", builder.add(at, shift), limit)

    kind = types.int32
    return signature(types.boolean, kind, kind, kind), codegen


@_intrinsic
def remainder(typing_context: Any, a: Any, b: Any) -> Any:
    """Give what `divide` leaves."""

    def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.urem(*arguments)

    return signature(types.int32, types.int32, types.int32), codegen


@_intrinsic
def divide(typing_context: Any, a: Any, b: Any) -> Any:
    """Divide int32 numbers that are not negative."""

    def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        return builder.udiv(*arguments)

    return signature(types.int32, types.int32, types.int32), codegen


@cache
def stores(dtype: str, count: int) -> Intrinsic:
    """Make ``store(address, at, values)``: the reverse of a load, rounded once."""
    element = _ELEMENTS[dtype]

    @_intrinsic
    def store(typing_context: Any, address: Any, at: Any, values: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            address, at, values = arguments
            pointer = _pointer(builder, address, at, element.llvm, count)
            wide = [builder.extract_value(values, i) for i in range(count)]
            numbers = [_narrow(builder, dtype, number) for number in wide]
            vector = numbers[0]
            if count > 1:
                vector = ir.Constant(ir.VectorType(element.llvm, count), ir.Undefined)
                for i, number in enumerate(numbers):
                    vector = builder.insert_element(vector, number, _constant(i))
            builder.store(vector, pointer, align=element.size * count)
            return context.get_dummy_value()

        return signature(types.void, address, at, values), codegen

    return store


def _reciprocal(builder: ir.IRBuilder, size: Value, kind: ir.Type) -> Value:
    """Give about 1 / size: within an ulp or two, which `_corrected` makes up for."""
    rough_type = ir.FunctionType(_FLOAT, [_FLOAT])
    rough = ir.InlineAsm(rough_type, "rcp.approx.ftz.f32 $0, $1;", "=f,f", side_effect=False)
    guess = builder.call(rough, [builder.sitofp(size, _FLOAT)])
    if kind == _FLOAT:
        return guess
    guess = builder.fpext(guess, _DOUBLE)
    minus = builder.fsub(ir.Constant(_DOUBLE, -0.0), builder.sitofp(size, _DOUBLE))
    for _ in range(2):  # Newton's steps double the 23 bits
        error = builder.fma(minus, guess, ir.Constant(_DOUBLE, 1.0))
        guess = builder.fma(error, guess, guess)
    return guess


def _corrected(builder: ir.IRBuilder, value: Value, size: Value, reciprocal: Value) -> Value:
    """Divide by a multiplication and one correction.

    Correctly rounded (and never a tie) for sizes up to 2**19 in float32 and 2**48 in float64, if
    neither the value nor the remainder is subnormal, infinite or NaN: the quotient then is farther
    from the middle between two numbers than the error of the correction.
    """
    guess = builder.fmul(value, reciprocal)
    minus = builder.fsub(ir.Constant(guess.type, -0.0), guess)  # NVVM's LLVM has no fneg
    rest = builder.fma(minus, size, value)
    return builder.fma(rest, reciprocal, guess)


def _each(builder: ir.IRBuilder, values: Value, count: int) -> list[Value]:
    return [builder.extract_value(values, i) for i in range(count)]


# Below 2**-100 the remainder of a float32 division may be subnormal: twice the bits, less one.
_SMALL = 2 * ((127 - 100) << 23) - 1
_LARGE = (127 + 126) << 23


def _are_ordinary(builder: ir.IRBuilder, values: list[Value]) -> Value:
    """Tell whether float32 values are zero, or of a magnitude from 2**-100 to below 2**126.

    Above, a guess that is an ulp too large could overflow.
    """
    least, finite = None, None
    for value in values:
        bits = builder.bitcast(value, _I32)
        # Zero becomes the largest number.
        doubled = builder.sub(builder.shl(bits, _constant(1)), _constant(1))
        if least is None:
            least = doubled
        else:
            least = builder.select(builder.icmp_unsigned("<", doubled, least), doubled, least)
        here = builder.icmp_unsigned("<", _magnitude(builder, value), _constant(_LARGE))
        finite = here if finite is None else builder.and_(finite, here)
    large = builder.icmp_unsigned(">=", least, _constant(_SMALL))
    return builder.and_(large, finite)


@cache
def quotients(count: int) -> Intrinsic:
    """Make ``divide(values, size)``: float32 values over a size up to 2**19, correctly rounded.

    Of -0.0 it is +0.0, as a sum that begins with +0.0 is; one that underflows keeps its sign.
    """
    found = types.UniTuple(types.float32, count)
    zero = ir.Constant(_FLOAT, 0.0)

    @_intrinsic
    def divide(typing_context: Any, values: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            numbers = [builder.fadd(each, zero) for each in _each(builder, arguments[0], count)]
            divisor = builder.sitofp(arguments[1], _FLOAT)
            with builder.if_else(_are_ordinary(builder, numbers), likely=True) as (fast, slow):
                with fast:
                    reciprocal = _reciprocal(builder, arguments[1], _FLOAT)
                    quick = [_corrected(builder, number, divisor, reciprocal) for number in numbers]
                    quick_block = builder.block
                with slow:
                    plain = [builder.fdiv(number, divisor) for number in numbers]
                    plain_block = builder.block
            results = []
            for one_way, other_way in zip(quick, plain, strict=True):
                phi = builder.phi(_FLOAT)
                phi.add_incoming(one_way, quick_block)
                phi.add_incoming(other_way, plain_block)
                results.append(phi)
            return cgutils.pack_array(builder, results)

        return signature(found, values, size), codegen

    return divide


@cache
def added_quotients(dtype: str, count: int) -> Intrinsic:
    """Make ``add(sums, values, size)``: sums + values / size in float64."""
    found = types.UniTuple(types.float64, count)

    @_intrinsic
    def add(typing_context: Any, sums: Any, values: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            divisor = builder.sitofp(arguments[2], _DOUBLE)
            reciprocal = None
            results = []
            numbers = (_each(builder, argument, count) for argument in arguments[:2])
            for total, value in zip(*numbers, strict=True):
                if dtype == "float64":  # can be subnormal
                    quotient = builder.fdiv(value, divisor)
                else:
                    if reciprocal is None:
                        reciprocal = _reciprocal(builder, arguments[2], _DOUBLE)
                    quotient = _corrected(builder, value, divisor, reciprocal)
                    if dtype not in ("int32", "int64"):
                        infinite = builder.fmul(value, reciprocal)
                        finite = _is_finite(builder, value)
                        quotient = builder.select(finite, quotient, infinite)
                results.append(builder.fadd(total, quotient))
            return cgutils.pack_array(builder, results)

        return signature(found, sums, values, size), codegen

    return add


@cache
def zeros(count: int, register: str) -> Intrinsic:
    """Make ``zero()``: a tuple of zeros."""
    kind, llvm = _REGISTERS[register]
    found = types.UniTuple(kind, count)

    @_intrinsic
    def zero(typing_context: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, __: Any) -> Any:
            nothing = ir.Constant(llvm, 0 if register.startswith("int") else 0.0)
            return cgutils.pack_array(builder, [nothing] * count)

        return signature(found), codegen

    return zero


def _multiply_add(builder: ir.IRBuilder, a: Value, b: Value, c: Value) -> Value:
    if c.type in (_FLOAT, _DOUBLE):
        return builder.fma(a, b, c)
    return builder.add(builder.mul(a, b), c)


@cache
def scaled_sums(count: int, register: str) -> Intrinsic:
    """Make ``add(sums, factors, values)``: sums + factors * values, element by element."""
    found = types.UniTuple(_REGISTERS[register][0], count)

    @_intrinsic
    def add(typing_context: Any, sums: Any, factors: Any, values: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            totals, factors, numbers = (_each(builder, each, count) for each in arguments)
            results = [
                _multiply_add(builder, a, b, c)
                for a, b, c in zip(factors, numbers, totals, strict=True)
            ]
            return cgutils.pack_array(builder, results)

        return signature(found, sums, factors, values), codegen

    return add


@cache
def dot(count: int, register: str) -> Intrinsic:
    """Make ``add(total, one, other)``: total + one . other, in the order of the elements."""
    found = _REGISTERS[register][0]

    @_intrinsic
    def add(typing_context: Any, total: Any, one: Any, other: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            total = arguments[0]
            ones, others = (_each(builder, each, count) for each in arguments[1:])
            for a, b in zip(ones, others, strict=True):
                total = _multiply_add(builder, a, b, total)
            return total

        return signature(found, total, one, other), codegen

    return add


@cache
def fetches(dtype: str, count: int, register: str, vector: bool) -> Intrinsic:
    """Make ``fetch(staged, slot, address, at, available)``: `count` elements into a local array.

    Those past the `available` ones are not read but 0. With `vector` there are all or none.
    """
    element = _ELEMENTS[dtype]
    llvm = _REGISTERS[register][1]
    nothing = ir.Constant(llvm, 0 if register.startswith("int") else 0.0)
    step = count if vector else 1

    def read(builder: ir.IRBuilder, address: Value, at: Value) -> list[Value]:
        pointer = _pointer(builder, address, at, element.llvm, step)
        value = builder.load(pointer, align=element.size * step)
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        if step == 1:
            return [_widen(builder, dtype, register, value)]
        numbers = [builder.extract_element(value, _constant(i)) for i in range(step)]
        return [_widen(builder, dtype, register, number) for number in numbers]

    @_intrinsic
    def fetch(
        typing_context: Any, staged: Any, slot: Any, address: Any, at: Any, available: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            array, slot, address, at, available = arguments
            data = context.make_array(sig.args[0])(context, builder, value=array).data
            slot = slot if slot.type == _I64 else builder.sext(slot, _I64)
            at = at if at.type == _I64 else builder.sext(at, _I64)
            available = available if available.type == _I32 else builder.trunc(available, _I32)
            for first in range(0, count, step):
                there = builder.icmp_signed(">", available, _constant(first))
                before = builder.block
                with builder.if_then(there):
                    position = builder.add(at, ir.Constant(_I64, first))
                    numbers = read(builder, address, position)
                    inside = builder.block
                for i, number in enumerate(numbers):
                    phi = builder.phi(llvm)
                    phi.add_incoming(number, inside)
                    phi.add_incoming(nothing, before)
                    numbers[i] = phi
                for i, number in enumerate(numbers):
                    target = builder.add(slot, ir.Constant(_I64, first + i))
                    builder.store(number, builder.gep(data, [target]))
            return context.get_dummy_value()

        return signature(types.void, staged, slot, address, at, available), codegen

    return fetch


@cache
def places(count: int, pitch: int) -> Intrinsic:
    """Make ``place(tile, at, staged, slot)``: neighbours of a local array `pitch` apart."""

    @_intrinsic
    def place(typing_context: Any, tile: Any, at: Any, staged: Any, slot: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            bases = []
            for i in (0, 2):
                array = context.make_array(sig.args[i])(context, builder, value=arguments[i])
                at = arguments[i + 1]
                at = at if at.type == _I64 else builder.sext(at, _I64)
                bases.append(builder.gep(array.data, [at]))
            for i in range(count):
                value = builder.load(builder.gep(bases[1], [ir.Constant(_I64, i)]))
                builder.store(value, builder.gep(bases[0], [ir.Constant(_I64, i * pitch)]))
            return context.get_dummy_value()

        return signature(types.void, tile, at, staged, slot), codegen

    return place


@cache
def saves(dtype: str, count: int) -> Intrinsic:
    """Make ``save(address, at, sums, slot)``: neighbours of a local array, rounded once.

    The answer tells whether one of them is NaN.
    """
    element = _ELEMENTS[dtype]

    @_intrinsic
    def save(typing_context: Any, address: Any, at: Any, sums: Any, slot: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            address, at, array, slot = arguments
            data = context.make_array(sig.args[2])(context, builder, value=array).data
            slot = slot if slot.type == _I64 else builder.sext(slot, _I64)
            base = builder.gep(data, [slot])
            numbers = [
                builder.load(builder.gep(base, [ir.Constant(_I64, i)])) for i in range(count)
            ]
            found = ir.Constant(ir.IntType(1), 0)
            for number in numbers:
                if number.type in (_FLOAT, _DOUBLE):
                    found = builder.or_(found, builder.fcmp_unordered("uno", number, number))
            narrow = [_narrow(builder, dtype, number) for number in numbers]
            vector = narrow[0]
            if count > 1:
                vector = ir.Constant(ir.VectorType(element.llvm, count), ir.Undefined)
                for i, number in enumerate(narrow):
                    vector = builder.insert_element(vector, number, _constant(i))
            pointer = _pointer(builder, address, at, element.llvm, count)
            builder.store(vector, pointer, align=element.size * count)
            return found

        return signature(types.boolean, address, at, sums, slot), codegen

    return save


class TileShape(NamedTuple):
    """What a thread multiplies: slices of two shared tiles, each stored [depth][pitch].

    A thread owns, of `rows` rows of the first tile, `vector` neighbours every `row_step`; of the
    columns of the second likewise.
    """

    depth: int
    row_pitch: int
    col_pitch: int
    rows: int
    cols: int
    row_step: int
    col_step: int
    vector: int


def _shared_vectors(
    builder: ir.IRBuilder, base: Value, offset: int, count: int, step: int, vector: int
) -> list[Value]:
    found = []
    kind = ir.VectorType(base.type.pointee, vector)
    size = 4 if base.type.pointee in (_FLOAT, _I32) else 8
    for i in range(count // vector):
        pointer = builder.gep(base, [ir.Constant(_I64, offset + i * step)])
        pointer = builder.bitcast(pointer, kind.as_pointer())
        value = builder.load(pointer, align=size * vector)
        found += [builder.extract_element(value, _constant(j)) for j in range(vector)]
    return found


@cache
def tile_products(shape: TileShape) -> Intrinsic:
    """Make ``add(sums, rows, rows_at, cols, cols_at)``: the products of two slices.

    `sums` is a local array of rows x cols numbers, which stays in registers: it is addressed by
    constants only. Unrolled here, because Numba takes long over thousands of statements.
    """

    @_intrinsic
    def add(
        typing_context: Any, sums: Any, rows: Any, rows_at: Any, cols: Any, cols_at: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            def data(position: int) -> Value:
                kind = sig.args[position]
                return context.make_array(kind)(context, builder, value=arguments[position]).data

            def start(position: int) -> Value:
                at = arguments[position + 1]
                at = at if at.type == _I64 else builder.sext(at, _I64)
                return builder.gep(data(position), [at])

            slots = [
                builder.gep(data(0), [ir.Constant(_I64, i)]) for i in range(shape.rows * shape.cols)
            ]
            totals = [builder.load(slot) for slot in slots]
            row_base, col_base = start(1), start(3)
            for k in range(shape.depth):
                a = _shared_vectors(
                    builder, row_base, k * shape.row_pitch, shape.rows, shape.row_step, shape.vector
                )
                b = _shared_vectors(
                    builder, col_base, k * shape.col_pitch, shape.cols, shape.col_step, shape.vector
                )
                for i in range(shape.rows):
                    for j in range(shape.cols):
                        at = i * shape.cols + j
                        totals[at] = _multiply_add(builder, a[i], b[j], totals[at])
            for slot, total in zip(slots, totals, strict=True):
                builder.store(total, slot)
            return context.get_dummy_value()

        return signature(types.void, sums, rows, rows_at, cols, cols_at), codegen

    return add


def register_type(register: str) -> Any:
    """Give Numba's type of a number in a register."""
    return _REGISTERS[register][0]
