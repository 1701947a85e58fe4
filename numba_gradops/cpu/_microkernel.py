"""All the LLVM IR of this package: register tiles, a transpose, columns of a pool, a counter.

Numba's loops cannot keep a tile of sums in registers: an array of accumulators lives in memory.
So the innermost loops are written as LLVM IR here, once for every element type and vector width,
and appear to Numba as functions (``@intrinsic``). LLVM turns them into what one would write by hand
in assembly: on AVX-512 the inner loop of `channels` is 24 fused multiply-adds, two loads of weights
and twelve broadcasts, with no spill.

How a register tile works. A tile is `pixels` result pixels, times some channels, in `vectors`
vectors of `lanes`. It is the sum over a list of *entries*; an entry is a filter tap, a part of one
(where there are very many output channels) or several that lie side by side. It consists of four
integers:

====== ==================================================================================
weight byte offset of the tap's weights
shift  bytes from a pixel's place in the gradient to the elements that the tap applies to
mask   bit i says whether the tap reaches pixel i at all; if not, zeros are read instead.
       Higher bits: what happens to the sums afterwards
terms  number of products for each sum
====== ==================================================================================

Stride, dilation, padding and odd sizes are all in that table: the kernels have no special cases and
no bounds checks. Sums are moved to totals now and then, and totals carried to grand totals: so that
a long sum is about as accurate as a short one.

Three kernels differ in what the lanes of a vector are:

* `channels`: input channels. One gradient element is broadcast, times a vector of packed weights.
* `terms`: output channels. A vector of gradients times a vector of weights as they lie in the
  filter; the lanes are added up at the end. For few input channels.
* `grouped`: input channels of small groups. Every lane takes its group's gradients, in turn, from a
  vector of them, times a vector of packed weights; depthwise, the group is the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
ENTRY = 4  # integers in an entry

# Bits of an entry's mask. After the entry: add the sums to the totals, or, the first time, make
# them the totals; then add the totals to the grand totals, or make them the grand totals.
MOVE, FIRST_MOVE, CARRY, FIRST_CARRY = (1 << bit for bit in range(32, 36))

_UNROLL = 4
LINE = 64  # bytes in a cache line
_WEIGHTS_AHEAD = 24  # rows of packed weights to fetch in advance: the second-level cache is slow


class Tile(NamedTuple):
    """Shape of a register tile."""

    pixels: int
    vectors: int
    lanes: int


def _int(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


class _Emitter:
    """The vector operations that the kernels are made of, for one element type and width."""

    def __init__(self, builder: ir.IRBuilder, element: ir.Type, lanes: int) -> None:
        self.builder, self.element, self.lanes = builder, element, lanes
        self.size = 4 if isinstance(element, ir.FloatType) else 8
        self.vector = ir.VectorType(element, lanes)
        self.zero = ir.Constant(self.vector, [0.0] * lanes)
        self.suffix = f"v{lanes}f{8 * self.size}"

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

    def load_masked(self, address: Any, mask: Any) -> Any:
        pointer = self.pointer(address, self.vector)
        arguments = [pointer.type, I32, mask.type, self.vector]
        function = self._declare(f"llvm.masked.load.{self.suffix}.p0", self.vector, arguments)
        align = ir.Constant(I32, self.size)
        return self.builder.call(function, [pointer, align, mask, self.zero])

    def store_masked(self, value: Any, address: Any, mask: Any) -> None:
        pointer = self.pointer(address, self.vector)
        arguments = [self.vector, pointer.type, I32, mask.type]
        function = self._declare(f"llvm.masked.store.{self.suffix}.p0", ir.VoidType(), arguments)
        self.builder.call(function, [value, pointer, ir.Constant(I32, self.size), mask])

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
        return self.builder.icmp_signed("!=", self.builder.and_(bits, _int(bit)), _int(0))

    def add(self, address: Any, offset: Any) -> Any:
        return self.builder.add(address, _int(offset) if isinstance(offset, int) else offset)

    def scaled(self, value: Any, factor: int) -> Any:
        return self.builder.mul(value, _int(factor))


Grid = list[list[Any]]


class _Sums:
    """A grid of accumulators, as phi nodes at the head of a loop or behind a branch."""

    def __init__(self, emit: _Emitter, rows: int, columns: int) -> None:
        self.values: Grid = [
            [emit.builder.phi(emit.vector) for _ in range(columns)] for _ in range(rows)
        ]

    def come_from(self, block: Any, values: Grid) -> None:
        for phis, row in zip(self.values, values, strict=True):
            for phi, value in zip(phis, row, strict=True):
                phi.add_incoming(value, block)


def _entry_loop(
    emit: _Emitter,
    rows: int,
    columns: int,
    arguments: dict[str, Any],
    inner: Callable[[Any, list[Any], Any, Grid], Grid],
) -> Grid:
    """Emit the loop over entries, of which `inner` adds one to the sums, and give the sums."""
    builder = emit.builder
    zeros = [[emit.zero] * columns for _ in range(rows)]
    before = builder.block
    head, move, tail, done = (
        builder.append_basic_block(name) for name in ("entry", "move", "entry_end", "done")
    )
    none = builder.icmp_signed("<=", arguments["count"], _int(0))
    builder.cbranch(none, done, head)

    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(_int(0), before)
    sums = _Sums(emit, rows, columns)
    sums.come_from(before, zeros)
    at = emit.scaled(index, ENTRY)
    weight, shift, mask, terms = (
        emit.load_int(arguments["entries"], builder.add(at, _int(field))) for field in range(ENTRY)
    )
    start = builder.add(arguments["gradient"], shift)
    gradients = []
    for i in range(rows):
        address = builder.add(emit.load_int(arguments["bases"], _int(i)), start)
        reached = emit.has(mask, 1 << i)
        gradients.append(builder.select(reached, address, arguments["zeros"]))
    _fetch_ahead(emit, arguments, index)
    added = inner(builder.add(arguments["weights"], weight), gradients, terms, sums.values)
    last = builder.block
    builder.cbranch(emit.has(mask, MOVE), move, tail)

    builder.position_at_end(move)
    first = emit.has(mask, FIRST_MOVE)
    for number, value in enumerate(value for row in added for value in row):
        at, _ = _total_addresses(emit, arguments["totals"], number)
        old = builder.select(first, emit.zero, emit.load(at))
        emit.store(builder.fadd(old, value), at)
    with builder.if_then(emit.has(mask, CARRY)):
        _carry(emit, arguments["totals"], rows * columns, emit.has(mask, FIRST_CARRY))
    moved = builder.block
    builder.branch(tail)

    builder.position_at_end(tail)
    kept = _Sums(emit, rows, columns)
    kept.come_from(last, added)
    kept.come_from(moved, zeros)
    following = builder.add(index, _int(1))
    index.add_incoming(following, tail)
    sums.come_from(tail, kept.values)
    builder.cbranch(builder.icmp_signed("<", following, arguments["count"]), head, done)

    builder.position_at_end(done)
    final = _Sums(emit, rows, columns)
    final.come_from(before, zeros)
    final.come_from(tail, kept.values)
    return _with_totals(emit, final.values, arguments)


def _fetch_ahead(emit: _Emitter, arguments: dict[str, Any], entry: Any) -> None:
    """Fetch cache lines, others for every entry, of what the next tile will read and write."""
    builder = emit.builder
    for place, count, write in (("ahead", "lines", False), ("result_ahead", "result_lines", True)):
        lines = arguments[count]
        start = emit.add(arguments[place], emit.scaled(builder.mul(entry, lines), LINE))

        def fetch(k: Any, nothing: Grid, start: Any = start, write: bool = write) -> Grid:
            emit.prefetch(emit.add(start, emit.scaled(k, LINE)), 2, write=write)
            return nothing

        _loop_over_terms(emit, lines, [[]], fetch, 1)


def _total_addresses(emit: _Emitter, totals: Any, number: Any) -> tuple[Any, Any]:
    """Give where a total is kept, and where its grand total is."""
    vector = emit.lanes * emit.size
    at = emit.add(
        totals, 2 * number * vector if isinstance(number, int) else emit.scaled(number, 2 * vector)
    )
    return at, emit.add(at, vector)


def _carry(emit: _Emitter, totals: Any, count: int, first: Any) -> None:
    """Add totals to grand totals; a loop, because it is rare."""

    def carry(number: Any, nothing: Grid) -> Grid:
        at, grand_at = _total_addresses(emit, totals, number)
        old = emit.builder.select(first, emit.zero, emit.load(grand_at))
        emit.store(emit.builder.fadd(old, emit.load(at)), grand_at)
        return nothing

    _loop_over_terms(emit, _int(count), [[]], carry, 1)


def _with_totals(emit: _Emitter, sums: Grid, arguments: dict[str, Any]) -> Grid:
    """Add totals and grand totals, where there are any, to the sums of the last entries."""
    for bit, which in ((1, 0), (2, 1)):
        builder = emit.builder
        before = builder.block
        add, after = builder.append_basic_block("totals"), builder.append_basic_block("added")
        builder.cbranch(emit.has(arguments["left"], bit), add, after)
        builder.position_at_end(add)
        whole = [
            [
                builder.fadd(
                    value,
                    emit.load(_total_addresses(emit, arguments["totals"], i * len(row) + j)[which]),
                )
                for j, value in enumerate(row)
            ]
            for i, row in enumerate(sums)
        ]
        builder.branch(after)
        builder.position_at_end(after)
        result = _Sums(emit, len(sums), len(sums[0]))
        result.come_from(before, sums)
        result.come_from(add, whole)
        sums = result.values
    return sums


def _loop_over_terms(
    emit: _Emitter,
    terms: Any,
    sums: Grid,
    step: Callable[[Any, Grid], Grid],
    unroll: int,
) -> Grid:
    """Emit ``for k in range(terms): sums = step(k, sums)``, unrolled, with a rest."""
    builder = emit.builder
    rows, columns = len(sums), len(sums[0])
    many = builder.and_(terms, _int(-unroll))

    def loop(start: Any, limit: Any, values: Grid, repeat: int, name: str) -> tuple[Any, Grid]:
        before = builder.block
        body = builder.append_basic_block(name)
        behind = builder.append_basic_block(f"{name}_end")
        builder.cbranch(builder.icmp_signed("<", start, limit), body, behind)
        builder.position_at_end(body)
        k = builder.phi(I64)
        k.add_incoming(start, before)
        current = _Sums(emit, rows, columns)
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
        after, k_after = _Sums(emit, rows, columns), builder.phi(I64)
        after.come_from(before, values)
        after.come_from(last, new)
        k_after.add_incoming(start, before)
        k_after.add_incoming(following, last)
        return k_after, after.values

    k, sums = loop(_int(0), many, sums, unroll, "many")
    if unroll > 1:
        k, sums = loop(k, terms, sums, 1, "rest")
    return sums


def _store_tile(emit: _Emitter, sums: Grid, arguments: dict[str, Any]) -> None:
    """Store pixel i at ``result + outs[i]``, as many channels as are `wanted`."""
    builder = emit.builder
    columns = len(sums[0])
    full = builder.icmp_signed(">=", arguments["wanted"], _int(columns * emit.lanes))

    def store_all(store: Callable[[Any, Any, int], None]) -> None:
        for i, row in enumerate(sums):
            to = builder.add(arguments["result"], emit.load_int(arguments["outs"], _int(i)))
            for j, value in enumerate(row):
                store(value, emit.add(to, j * emit.lanes * emit.size), j)

    with builder.if_else(full) as (then, otherwise):
        with then:
            store_all(lambda value, address, _: emit.store(value, address))
        with otherwise:
            masks = [emit.mask(j * emit.lanes, arguments["wanted"]) for j in range(columns)]
            store_all(lambda value, address, j: emit.store_masked(value, address, masks[j]))


_NAMES = (
    "entries",  # address of the tile's entries
    "count",  # how many there are
    "left",  # 1: they leave totals, 2: grand totals
    "bases",  # address of each pixel's place in the gradient, in bytes
    "gradient",  # address that `bases` count from
    "outs",  # address of each pixel's place in the result, in bytes
    "result",  # address that `outs` count from
    "zeros",  # address of zeros, as many as an entry has terms
    "weights",  # address that the entries' weight offsets count from
    "totals",  # address of room for two tiles of sums
    "wanted",  # channels to store
    "row",  # bytes between weights: of one input channel and the next (`terms`), or of one
    # output channel in the group and the next (`grouped`)
    "ahead",  # address of the gradients to fetch into the cache
    "lines",  # cache lines of them to fetch for each entry
    "result_ahead",  # the same for results
    "result_lines",
)


def _kernel(element: ir.Type, tile: Tile, emit_body: Callable[..., None]) -> Any:
    signature = types.void(*[types.intp] * len(_NAMES))

    def kernel(
        typingctx: Any, entries: Any, count: Any, left: Any, bases: Any, gradient: Any, outs: Any,
        result: Any, zeros: Any, weights: Any, totals: Any, wanted: Any, row: Any,
        ahead: Any, lines: Any, result_ahead: Any, result_lines: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            arguments = dict(zip(_NAMES, values, strict=True))
            emit_body(_Emitter(builder, element, tile.lanes), tile, arguments)
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(kernel)


def _channels_body(emit: _Emitter, tile: Tile, arguments: dict[str, Any]) -> None:
    row_bytes = tile.vectors * emit.lanes * emit.size

    def inner(weights: Any, gradients: list[Any], terms: Any, sums: Grid) -> Grid:
        def step(k: Any, values: Grid) -> Grid:
            at = emit.add(weights, emit.scaled(k, row_bytes))
            vectors = [
                emit.load(emit.add(at, j * emit.lanes * emit.size)) for j in range(tile.vectors)
            ]
            for j in range(tile.vectors):
                there = emit.add(at, _WEIGHTS_AHEAD * row_bytes)
                emit.prefetch(emit.add(there, j * emit.lanes * emit.size), 3)
            offset = emit.scaled(k, emit.size)
            result = []
            for i, row in enumerate(values):
                x = emit.load_splat(emit.add(gradients[i], offset))
                result.append(
                    [emit.multiply_add(x, w, s) for w, s in zip(vectors, row, strict=True)]
                )
            return result

        return _loop_over_terms(emit, terms, sums, step, _UNROLL)

    sums = _entry_loop(emit, tile.pixels, tile.vectors, arguments, inner)
    _store_tile(emit, sums, arguments)


def _terms_body(emit: _Emitter, tile: Tile, arguments: dict[str, Any]) -> None:
    builder = emit.builder

    def inner(weights: Any, gradients: list[Any], terms: Any, sums: Grid) -> Grid:
        rows = [emit.add(weights, emit.scaled(arguments["row"], c)) for c in range(tile.vectors)]
        whole = builder.and_(terms, _int(-emit.lanes))

        def step(load: Callable[[Any], Any], values: Grid) -> Grid:
            vectors = [load(row) for row in rows]
            result = []
            for i, row in enumerate(values):
                x = load(gradients[i])
                result.append(
                    [emit.multiply_add(x, w, s) for w, s in zip(vectors, row, strict=True)]
                )
            return result

        def at(k: Any) -> Callable[[Any], Any]:
            offset = emit.scaled(k, emit.size)
            return lambda address: emit.load(emit.add(address, offset))

        chunks = builder.sdiv(whole, _int(emit.lanes))
        sums = _loop_over_terms(
            emit, chunks, sums, lambda k, v: step(at(emit.scaled(k, emit.lanes)), v), 1
        )
        before, rest = builder.block, builder.append_basic_block("part")
        after = builder.append_basic_block("part_end")
        builder.cbranch(builder.icmp_signed("<", whole, terms), rest, after)
        builder.position_at_end(rest)
        mask = emit.mask(0, builder.sub(terms, whole))
        offset = emit.scaled(whole, emit.size)
        partial = step(lambda a: emit.load_masked(emit.add(a, offset), mask), sums)
        last = builder.block
        builder.branch(after)
        builder.position_at_end(after)
        merged = _Sums(emit, len(sums), len(sums[0]))
        merged.come_from(before, sums)
        merged.come_from(last, partial)
        return merged.values

    sums = _entry_loop(emit, tile.pixels, tile.vectors, arguments, inner)
    added = emit.sums_of_lanes([value for row in sums for value in row])
    for i in range(tile.pixels):
        to = builder.add(arguments["result"], emit.load_int(arguments["outs"], _int(i)))
        for c in range(tile.vectors):
            vector, lane = divmod(i * tile.vectors + c, emit.lanes)
            value = builder.extract_element(added[vector], ir.Constant(I32, lane))
            pointer = emit.pointer(emit.add(to, c * emit.size), emit.element)
            builder.store(value, pointer, align=emit.size)


def _grouped_body(emit: _Emitter, tile: Tile, arguments: dict[str, Any], group: int) -> None:
    columns = range(tile.vectors)
    masks = [emit.mask(j * emit.lanes, arguments["wanted"]) for j in columns]
    # Term o: every lane takes the o-th of its group's gradients.
    orders = [[n // group * group + o for n in range(emit.lanes)] for o in range(group)]

    def inner(weights: Any, gradients: list[Any], _: Any, sums: Grid) -> Grid:
        def load(address: Any, j: int) -> Any:
            return emit.load_masked(emit.add(address, j * emit.lanes * emit.size), masks[j])

        vectors = [
            [load(emit.add(weights, emit.scaled(arguments["row"], o)), j) for j in columns]
            for o in range(group)
        ]
        result = []
        for i, row in enumerate(sums):
            line = []
            for j, total in enumerate(row):
                x, value = load(gradients[i], j), total
                for o, order in enumerate(orders):
                    term = x if group == 1 else emit.pick(x, x, order)
                    value = emit.multiply_add(term, vectors[o][j], value)
                line.append(value)
            result.append(line)
        return result

    sums = _entry_loop(emit, tile.pixels, tile.vectors, arguments, inner)
    _store_tile(emit, sums, arguments)


def channels(element: ir.Type, tile: Tile) -> Any:
    """Make the kernel whose lanes are input channels; weights are packed [term, channel]."""
    return _kernel(element, tile, _channels_body)


def terms(element: ir.Type, tile: Tile) -> Any:
    """Make the kernel whose lanes are output channels; a tile has `vectors` input channels."""
    return _kernel(element, tile, _terms_body)


def grouped(element: ir.Type, tile: Tile, group: int) -> Any:
    """Make the kernel whose lanes are input channels, of groups with `group` inputs and outputs."""

    def body(emit: _Emitter, tile: Tile, arguments: dict[str, Any]) -> None:
        _grouped_body(emit, tile, arguments, group)

    return _kernel(element, tile, body)


def transpose(element: ir.Type, lanes: int) -> Any:
    """Make a function that transposes a square block in registers.

    ``f(source, source_row, target, target_row)``: addresses, and bytes from row to row.
    """
    signature = types.void(*[types.intp] * 4)

    def kernel(typingctx: Any, source: Any, source_row: Any, target: Any, target_row: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            source, source_row, target, target_row = values
            emit = _Emitter(builder, element, lanes)
            rows = [emit.load(emit.add(source, emit.scaled(source_row, i))) for i in range(lanes)]
            # Exchange the off-diagonal halves of blocks of 2, 4, 8, ... rows and columns.
            half = 1
            while half < lanes:
                numbers = range(lanes)
                low = [n if not n & half else lanes + n - half for n in numbers]
                high = [n + half if not n & half else lanes + n for n in numbers]
                masks = [ir.Constant(ir.VectorType(I32, lanes), order) for order in (low, high)]
                for i in range(lanes):
                    if not i & half:
                        a, b = rows[i], rows[i + half]
                        rows[i], rows[i + half] = (builder.shuffle_vector(a, b, m) for m in masks)
                half *= 2
            for i, row in enumerate(rows):
                emit.store(row, emit.add(target, emit.scaled(target_row, i)))
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(kernel)


@intrinsic  # type: ignore[untyped-decorator]
def next_number(typingctx: Any, counter: Any) -> Any:
    """Fetch the number at an address and add one to it, for all threads at once."""

    def codegen(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        return builder.atomic_rmw("add", pointer, _int(1), "monotonic")

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


@lru_cache(maxsize=8)
def has_instruction(name: str) -> bool:
    """Tell whether LLVM may use what it calls `name` on x86; otherwise it calls a slow function."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return f"+{name}" in features.split(",")


# Element types of columns: in LLVM, and the number of bytes. Halves are seen as integers: float16
# as uint16, bfloat16 as int16.
_ELEMENTS = {
    types.float32: (ir.FloatType(), 4),
    types.float64: (ir.DoubleType(), 8),
    types.int32: (I32, 4),
    types.int64: (I64, 8),
    types.uint16: (ir.IntType(16), 2),
    types.int16: (ir.IntType(16), 2),
}


def _over_columns(
    emit: _Emitter,
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
            return block(_int(0), values)
        return _loop_over_terms(emit, blocks, values, block, 1)

    unroll = _UNROLL if blocks is None else 1
    values = _loop_over_terms(emit, columns, [[] if carried is None else [carried]], column, unroll)
    return values[0][0] if values[0] else None


class _Elements:
    """Vectors of float64 in registers, of another element type in memory."""

    def __init__(self, emit: _Emitter, kind: Any, past_caches: bool = False) -> None:
        self.emit, self.past_caches = emit, past_caches
        self.element, self.size = _ELEMENTS[kind]
        self.vector = ir.VectorType(self.element, emit.lanes)
        self.kind = kind
        self.floats = ir.VectorType(ir.FloatType(), emit.lanes)
        self.halves = ir.VectorType(ir.HalfType(), emit.lanes)
        self.words = ir.VectorType(I32, emit.lanes)

    def block_bytes(self, block: Any) -> Any:
        return self.emit.scaled(block, self.emit.lanes * self.size)

    def load(self, address: Any) -> Any:
        builder, wide = self.emit.builder, self.emit.vector
        value = builder.load(self.emit.pointer(address, self.vector), align=self.size)
        if self.kind == types.uint16:
            return builder.fpext(self._from_float16(value), wide)
        if self.kind == types.int16:
            word = builder.shl(builder.zext(value, self.words), self._word(16))
            return builder.fpext(builder.bitcast(word, self.floats), wide)
        if self.kind in (types.int32, types.int64):
            return builder.sitofp(value, wide)
        return value if self.vector == wide else builder.fpext(value, wide)

    def store(self, value: Any, address: Any) -> None:
        builder = self.emit.builder
        if self.kind == types.uint16:
            value = self._to_float16(self._round_to_odd(value))
        elif self.kind == types.int16:
            value = self._to_bfloat16(self._round_to_odd(value))
        elif self.kind in (types.int32, types.int64):
            value = self._cut(value)
        elif self.vector != self.emit.vector:
            value = builder.fptrunc(value, self.vector)
        pointer = self.emit.pointer(address, self.vector)
        if self.past_caches:
            self.emit.store_past_caches(value, pointer, self.emit.lanes * self.size)
        else:
            builder.store(value, pointer, align=self.size)

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


def _least(emit: _Emitter, value: Any, least: Any) -> Any:
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
            emit = _Emitter(builder, ir.DoubleType(), lanes)
            read, write = _Elements(emit, like_source), _Elements(emit, like_target)
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
                return _int(-1)
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
            emit = _Emitter(builder, ir.DoubleType(), lanes)
            write = _Elements(emit, like_target, past_caches)

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
            emit = _Emitter(builder, ir.DoubleType(), width // 8)

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
            emit = _Emitter(builder, ir.DoubleType(), width // 8)

            def step(b: Any, nothing: Grid) -> Grid:
                offset = emit.scaled(b, width)
                pointer = emit.pointer(emit.add(target, offset), emit.vector)
                emit.store_past_caches(emit.load(emit.add(source, offset)), pointer, width)
                return nothing

            _loop_over_terms(emit, blocks, [[]], step, 1)
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(kernel)


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


def element_of(array: Any) -> ir.Type:
    """Give the element type of an array argument that is there for its type."""
    return ir.FloatType() if array.dtype == types.float32 else ir.DoubleType()


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
            emit = _Emitter(builder, element, tile.lanes)
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
            builder.cbranch(builder.icmp_signed("!=", add, _int(0)), go_on, start)
            builder.position_at_end(go_on)
            there = [[emit.load(place) for place in line] for line in places]
            builder.branch(start)
            builder.position_at_end(start)
            first = _Sums(emit, tile.pixels, tile.vectors)
            first.come_from(before, [[emit.zero] * tile.vectors for _ in rows])
            first.come_from(go_on, there)
            sums = _loop_over_terms(emit, terms, first.values, step, _UNROLL)
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
            emit = _Emitter(builder, element, lanes)
            found = cgutils.alloca_once_value(builder, _int(0))
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
                switch.add_case(_int(number), block)
                builder.position_at_end(block)
                with cgutils.for_range(builder, columns) as loop:
                    column(forms, loop.index)
                builder.branch(done)
            builder.position_at_end(done)
            return builder.load(found)

        return types.intp(array, *[types.intp] * 9), codegen

    return intrinsic(kernel)


def _evaluate(emit: _Emitter, form: Sequence[float], inputs: list[Any]) -> Any:
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
