"""The vector operations that LLVM IR is built of here, and the loop around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)

UNROLL = 4  # steps of a loop over terms


class Tile(NamedTuple):
    """Shape of a register tile."""

    pixels: int
    vectors: int
    lanes: int


def constant(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def _size(element: ir.Type) -> int:
    """Give the bytes of an element."""
    if isinstance(element, ir.IntType):
        return int(element.width) // 8
    return 4 if isinstance(element, ir.FloatType) else 8


def _suffix(vector: ir.VectorType) -> str:
    """Give a vector type as LLVM writes it in the names of functions."""
    letter = "i" if isinstance(vector.element, ir.IntType) else "f"
    return f"v{vector.count}{letter}{8 * _size(vector.element)}"


class Emitter:
    """The vector operations that the kernels are made of, for one element type and width."""

    def __init__(self, builder: ir.IRBuilder, element: ir.Type, lanes: int) -> None:
        self.builder, self.element, self.lanes = builder, element, lanes
        self.size = _size(element)
        self.vector = ir.VectorType(element, lanes)
        self.zero = ir.Constant(self.vector, [0.0] * lanes)
        self.suffix = _suffix(self.vector)

    def _declare(self, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> Any:
        return cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(result, arguments), name
        )

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        # fmuladd, not fma: without such an instruction it is a multiply and an add, not a call.
        name = f"llvm.fmuladd.{self.suffix}"
        return self.builder.call(self._declare(name, self.vector, [self.vector] * 3), [a, b, c])

    def fused_multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        name = f"llvm.fma.{self.suffix}"
        return self.builder.call(self._declare(name, self.vector, [self.vector] * 3), [a, b, c])

    def pointer(self, address: Any, pointee: ir.Type) -> Any:
        return self.builder.inttoptr(address, pointee.as_pointer())

    def load_int(self, address: Any, index: Any) -> Any:
        return self.builder.load(self.builder.gep(self.pointer(address, I64), [index]))

    def load(self, address: Any) -> Any:
        return self.builder.load(self.pointer(address, self.vector), align=self.size)

    def store(self, value: Any, address: Any) -> None:
        self.builder.store(value, self.pointer(address, self.vector), align=self.size)

    def store_past_caches(self, value: Any, pointer: Any, align: int) -> None:
        store = self.builder.store(value, pointer, align=align)
        once = self.builder.module.add_metadata([ir.Constant(I32, 1)])
        store.set_metadata("nontemporal", once)

    def splat(self, value: Any) -> Any:
        undefined = ir.Constant(ir.VectorType(value.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, value, ir.Constant(I32, 0))
        zeros = ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, zeros)

    def load_splat(self, address: Any) -> Any:
        return self.splat(self.builder.load(self.pointer(address, self.element), align=self.size))

    def mask(self, first: int, count: Any) -> Any:
        """Give the lanes whose number, counted from `first`, is below `count`."""
        numbers = [first + lane for lane in range(self.lanes)]
        lanes = ir.Constant(ir.VectorType(I64, self.lanes), numbers)
        return self.builder.icmp_signed("<", lanes, self.splat(count))

    def load_masked(self, address: Any, mask: Any, vector: ir.Type | None = None) -> Any:
        """Load some lanes, the others are 0; of `vector`, or of what is in registers."""
        vector = vector or self.vector
        pointer = self.pointer(address, vector)
        arguments = [pointer.type, I32, mask.type, vector]
        name = f"llvm.masked.load.{_suffix(vector)}.p0"
        function = self._declare(name, vector, arguments)
        align = ir.Constant(I32, _size(vector.element))
        return self.builder.call(function, [pointer, align, mask, ir.Constant(vector, None)])

    def store_masked(self, value: Any, address: Any, mask: Any) -> None:
        """Store some lanes."""
        pointer = self.pointer(address, value.type)
        arguments = [value.type, pointer.type, I32, mask.type]
        name = f"llvm.masked.store.{_suffix(value.type)}.p0"
        function = self._declare(name, ir.VoidType(), arguments)
        align = ir.Constant(I32, _size(value.type.element))
        self.builder.call(function, [value, pointer, align, mask])

    def sums_of_lanes(self, values: list[Any]) -> list[Any]:
        """Add up the lanes of each vector; sum i is lane i % lanes of vector i // lanes.

        A tree: halves are added, and what is left of two vectors becomes one that holds both.
        """
        half = self.lanes // 2
        while half:
            if len(values) % 2:
                values = [*values, self.zero if len(values) > 1 else values[0]]
            low = [n for n in range(2 * self.lanes) if not n & half]
            high = [n + half for n in low]
            values = [
                self.builder.fadd(self.pick(a, b, low), self.pick(a, b, high))
                for a, b in zip(values[::2], values[1::2], strict=True)
            ]
            half //= 2
        return values

    def pick(self, a: Any, b: Any, order: Sequence[int]) -> Any:
        """Give some lanes of two vectors, whose numbers run on from the first to the second."""
        numbers = ir.Constant(ir.VectorType(I32, self.lanes), list(order))
        return self.builder.shuffle_vector(a, b, numbers)

    def prefetch(self, address: Any, level: int, *, write: bool = False) -> None:
        """Have a cache line ready; level 3 is the nearest cache. Any address will do."""
        pointer = self.pointer(address, ir.IntType(8))
        function = self._declare("llvm.prefetch.p0", ir.VoidType(), [pointer.type, I32, I32, I32])
        purpose, data = ir.Constant(I32, int(write)), ir.Constant(I32, 1)
        self.builder.call(function, [pointer, purpose, ir.Constant(I32, level), data])

    def not_finite(self, value: Any) -> Any:
        """Give a vector of NaN where there is NaN or infinity, else of zeros."""
        return self.builder.fsub(value, value)

    def has(self, bits: Any, bit: int) -> Any:
        return self.builder.icmp_signed("!=", self.builder.and_(bits, constant(bit)), constant(0))

    def add(self, address: Any, offset: Any) -> Any:
        return self.builder.add(address, constant(offset) if isinstance(offset, int) else offset)

    def scaled(self, value: Any, factor: int) -> Any:
        return self.builder.mul(value, constant(factor))


Grid = list[list[Any]]


class Sums:
    """A grid of accumulators, as phi nodes at the head of a loop or behind a branch."""

    def __init__(self, emit: Emitter, rows: int, columns: int) -> None:
        self.values: Grid = [
            [emit.builder.phi(emit.vector) for _ in range(columns)] for _ in range(rows)
        ]

    def come_from(self, block: Any, values: Grid) -> None:
        for phis, row in zip(self.values, values, strict=True):
            for phi, value in zip(phis, row, strict=True):
                phi.add_incoming(value, block)


def loop_over_terms(
    emit: Emitter,
    terms: Any,
    sums: Grid,
    step: Callable[[Any, Grid], Grid],
    unroll: int,
) -> Grid:
    """Emit ``for k in range(terms): sums = step(k, sums)``, unrolled, with a rest."""
    builder = emit.builder
    rows, columns = len(sums), len(sums[0])
    many = builder.and_(terms, constant(-unroll))

    def loop(start: Any, limit: Any, values: Grid, repeat: int, name: str) -> tuple[Any, Grid]:
        before = builder.block
        body = builder.append_basic_block(name)
        behind = builder.append_basic_block(f"{name}_end")
        builder.cbranch(builder.icmp_signed("<", start, limit), body, behind)
        builder.position_at_end(body)
        k = builder.phi(I64)
        k.add_incoming(start, before)
        current = Sums(emit, rows, columns)
        current.come_from(before, values)
        new = current.values
        for number in range(repeat):
            new = step(emit.add(k, number), new)
        following = emit.add(k, repeat)
        k.add_incoming(following, builder.block)
        current.come_from(builder.block, new)
        last = builder.block
        builder.cbranch(builder.icmp_signed("<", following, limit), body, behind)
        builder.position_at_end(behind)
        after, k_after = Sums(emit, rows, columns), builder.phi(I64)
        after.come_from(before, values)
        after.come_from(last, new)
        k_after.add_incoming(start, before)
        k_after.add_incoming(following, last)
        return k_after, after.values

    k, sums = loop(constant(0), many, sums, unroll, "many")
    if unroll > 1:
        k, sums = loop(k, terms, sums, 1, "rest")
    return sums


def element_of(array: Any) -> ir.Type:
    """Give the element type of an array argument that is there for its type."""
    return ir.FloatType() if array.dtype == types.float32 else ir.DoubleType()
