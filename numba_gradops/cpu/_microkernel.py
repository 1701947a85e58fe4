"""The register tiles of convolutions, in LLVM IR.

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

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ._elements import Elements
from ._emitter import I32, I64, UNROLL, Emitter, Grid, Sums, Tile, constant, loop_over_terms

ENTRY = 4  # integers in an entry

# Bits of an entry's mask. After the entry: add the sums to the totals, or, the first time, make
# them the totals; then add the totals to the grand totals, or make them the grand totals.
MOVE, FIRST_MOVE, CARRY, FIRST_CARRY = (1 << bit for bit in range(32, 36))

LINE = 64  # bytes in a cache line
_WEIGHTS_AHEAD = 24  # rows of packed weights to fetch in advance: the second-level cache is slow


def _entry_loop(
    emit: Emitter,
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
    none = builder.icmp_signed("<=", arguments["count"], constant(0))
    builder.cbranch(none, done, head)

    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(constant(0), before)
    sums = Sums(emit, rows, columns)
    sums.come_from(before, zeros)
    at = emit.scaled(index, ENTRY)
    weight, shift, mask, terms = (
        emit.load_int(arguments["entries"], builder.add(at, constant(field)))
        for field in range(ENTRY)
    )
    start = builder.add(arguments["gradient"], shift)
    gradients = []
    for i in range(rows):
        address = builder.add(emit.load_int(arguments["bases"], constant(i)), start)
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
    kept = Sums(emit, rows, columns)
    kept.come_from(last, added)
    kept.come_from(moved, zeros)
    following = builder.add(index, constant(1))
    index.add_incoming(following, tail)
    sums.come_from(tail, kept.values)
    builder.cbranch(builder.icmp_signed("<", following, arguments["count"]), head, done)

    builder.position_at_end(done)
    final = Sums(emit, rows, columns)
    final.come_from(before, zeros)
    final.come_from(tail, kept.values)
    # An underflow to -0 is +0: after it, other pixels of the tile may still add their products, and
    # zeros in place of those of this one, which would make it +0 there only.
    whole = _with_totals(emit, final.values, arguments)
    return [[emit.builder.fadd(value, emit.zero) for value in row] for row in whole]


def _fetch_ahead(emit: Emitter, arguments: dict[str, Any], entry: Any) -> None:
    """Fetch cache lines, others for every entry, of what the next tile will read and write."""
    builder = emit.builder
    for place, count, write in (("ahead", "lines", False), ("result_ahead", "result_lines", True)):
        lines = arguments[count]
        start = emit.add(arguments[place], emit.scaled(builder.mul(entry, lines), LINE))

        def fetch(k: Any, nothing: Grid, start: Any = start, write: bool = write) -> Grid:
            emit.prefetch(emit.add(start, emit.scaled(k, LINE)), 2, write=write)
            return nothing

        loop_over_terms(emit, lines, [[]], fetch, 1)


def _total_addresses(emit: Emitter, totals: Any, number: Any) -> tuple[Any, Any]:
    """Give where a total is kept, and where its grand total is."""
    vector = emit.lanes * emit.size
    at = emit.add(
        totals, 2 * number * vector if isinstance(number, int) else emit.scaled(number, 2 * vector)
    )
    return at, emit.add(at, vector)


def _carry(emit: Emitter, totals: Any, count: int, first: Any) -> None:
    """Add totals to grand totals; a loop, because it is rare."""

    def carry(number: Any, nothing: Grid) -> Grid:
        at, grand_at = _total_addresses(emit, totals, number)
        old = emit.builder.select(first, emit.zero, emit.load(grand_at))
        emit.store(emit.builder.fadd(old, emit.load(at)), grand_at)
        return nothing

    loop_over_terms(emit, constant(count), [[]], carry, 1)


def _with_totals(emit: Emitter, sums: Grid, arguments: dict[str, Any]) -> Grid:
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
        result = Sums(emit, len(sums), len(sums[0]))
        result.come_from(before, sums)
        result.come_from(add, whole)
        sums = result.values
    return sums


def _store_tile(emit: Emitter, sums: Grid, arguments: dict[str, Any], target: Elements) -> None:
    """Store pixel i at ``result + outs[i]``, as many channels as are `wanted`."""
    builder = emit.builder
    columns = len(sums[0])
    full = builder.icmp_signed(">=", arguments["wanted"], constant(columns * emit.lanes))

    def store_all(store: Callable[[Any, Any, int], None]) -> None:
        for i, row in enumerate(sums):
            to = builder.add(arguments["result"], emit.load_int(arguments["outs"], constant(i)))
            for j, value in enumerate(row):
                store(value, emit.add(to, j * emit.lanes * target.size), j)

    with builder.if_else(full) as (then, otherwise):
        with then:
            store_all(lambda value, address, _: target.store(value, address))
        with otherwise:
            masks = [emit.mask(j * emit.lanes, arguments["wanted"]) for j in range(columns)]
            store_all(lambda value, address, j: target.store_masked(value, address, masks[j]))


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


def _kernel(element: ir.Type, tile: Tile, stored: Any, emit_body: Callable[..., None]) -> Any:
    signature = types.void(*[types.intp] * len(_NAMES))

    def kernel(
        typingctx: Any, entries: Any, count: Any, left: Any, bases: Any, gradient: Any, outs: Any,
        result: Any, zeros: Any, weights: Any, totals: Any, wanted: Any, row: Any,
        ahead: Any, lines: Any, result_ahead: Any, result_lines: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, _: Any, values: Any) -> Any:
            arguments = dict(zip(_NAMES, values, strict=True))
            emit = Emitter(builder, element, tile.lanes)
            emit_body(emit, tile, arguments, Elements(emit, stored))
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(kernel)


def _channels_body(emit: Emitter, tile: Tile, arguments: dict[str, Any], target: Elements) -> None:
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

        return loop_over_terms(emit, terms, sums, step, UNROLL)

    sums = _entry_loop(emit, tile.pixels, tile.vectors, arguments, inner)
    _store_tile(emit, sums, arguments, target)


def _terms_body(emit: Emitter, tile: Tile, arguments: dict[str, Any], target: Elements) -> None:
    builder = emit.builder

    def inner(weights: Any, gradients: list[Any], terms: Any, sums: Grid) -> Grid:
        rows = [emit.add(weights, emit.scaled(arguments["row"], c)) for c in range(tile.vectors)]
        whole = builder.and_(terms, constant(-emit.lanes))

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

        chunks = builder.sdiv(whole, constant(emit.lanes))
        sums = loop_over_terms(
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
        merged = Sums(emit, len(sums), len(sums[0]))
        merged.come_from(before, sums)
        merged.come_from(last, partial)
        return merged.values

    sums = _entry_loop(emit, tile.pixels, tile.vectors, arguments, inner)
    added = emit.sums_of_lanes([value for row in sums for value in row])
    added = [target.narrow(value) for value in added]
    for i in range(tile.pixels):
        to = builder.add(arguments["result"], emit.load_int(arguments["outs"], constant(i)))
        for c in range(tile.vectors):
            vector, lane = divmod(i * tile.vectors + c, emit.lanes)
            value = builder.extract_element(added[vector], ir.Constant(I32, lane))
            pointer = emit.pointer(emit.add(to, c * target.size), target.element)
            builder.store(value, pointer, align=target.size)


def _grouped_body(
    emit: Emitter, tile: Tile, arguments: dict[str, Any], target: Elements, group: int
) -> None:
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
    _store_tile(emit, sums, arguments, target)


def channels(element: ir.Type, tile: Tile, stored: Any = None) -> Any:
    """Make the kernel whose lanes are input channels; weights are packed [term, channel].

    This and the others store elements of Numba's type `stored`, if that is not `element`.
    """
    return _kernel(element, tile, stored, _channels_body)


def terms(element: ir.Type, tile: Tile, stored: Any = None) -> Any:
    """Make the kernel whose lanes are output channels; a tile has `vectors` input channels."""
    return _kernel(element, tile, stored, _terms_body)


def grouped(element: ir.Type, tile: Tile, group: int, stored: Any = None) -> Any:
    """Make the kernel whose lanes are input channels, of groups with `group` inputs and outputs."""

    def body(emit: Emitter, tile: Tile, arguments: dict[str, Any], target: Elements) -> None:
        _grouped_body(emit, tile, arguments, target, group)

    return _kernel(element, tile, stored, body)
