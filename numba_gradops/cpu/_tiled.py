"""Convolution by register tiles: which tiles, weights in their order, and the plan of the loops."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba.core.config import NUMBA_NUM_THREADS
from numpy.typing import NDArray

from .._arrays import empty
from .._geometry import Conv2D
from . import _exact, _threads
from . import _packing_loops as packing_loops
from . import _tiled_loops as loops
from ._adopt import adopt, target
from ._call import Call, channels_last
from ._depth_to_space import NO_SPACE, Space, as_blocks, regrouped
from ._gradient_block import Reading, in_blocks, in_place
from ._halves import as_bits
from ._packing_loops import Packing
from ._plans import write_down
from ._vectors import lanes, second_cache

# What tiles are not for: fewer products (in an image: a result must not depend on the batch) than
# it takes to prepare them, and geometries whose tables would be large (a huge stride makes a class
# of each pixel, a huge filter a long list of taps).
_TOO_LITTLE_WORK = 8192
_MOST_CLASSES = 4096
_MOST_ENTRIES = 2**15

# Products in an entry of a tile's table, at most: before neighbours are merged, and after. And
# products that a lane adds up before they move to a total.
_CHUNK = 256
_LONGEST = 1024
_SEGMENT = 256

# Tiles that are finished before they are copied to another layout, at most, and bytes of them.
_TILES = 16
_FINISHED_BYTES = 2**16
# Panels that are finished before they are copied to NCHW, at most: they share the tiles' tables.
# They leave room for so many tiles: pixels side by side are copied in vectors.
_PANELS, _FEW_TILES = 8, 8
# Tasks in a call, at least, where it has that many tiles: to keep many threads busy to the end;
# their gradients, at most: all stride classes read them from the second-level cache.
_TASKS = 64
_TASK_BYTES = 2**18
# Such tasks in one that copies its gradients to a block, unless that leaves threads without: tasks
# next to each other would copy some rows both.
_BLOCK_TASKS = 4
# Tiles of a class in a task, at least: describing the class takes as long as a tile or two.
_CLASS_TILES = 4

# Products in a nanosecond on one thread, about.
_PRODUCTS = 50

# Tables that a thread remembers (a prime number: columns come in steps), and entries of them all.
_REMEMBERED = 31
_TABLE_ENTRIES = 2**11


def suits(geometry: Conv2D, dtype: np.dtype[Any]) -> bool:
    """Tell whether tiles are made for this geometry and dtype."""
    if dtype.kind == "i":
        return False
    rows, cols = geometry.rows, geometry.cols
    classes = min(rows.stride, rows.input) * min(cols.stride, cols.input)
    taps = rows.window * cols.window
    terms = geometry.out_channels // geometry.groups
    products = rows.output * cols.output * taps * geometry.channels * terms
    return (
        products >= _TOO_LITTLE_WORK
        and classes <= _MOST_CLASSES
        and taps * -(-terms // _CHUNK) <= _MOST_ENTRIES
    )


class Part(NamedTuple):
    """Channels of each group that one kind of tile computes."""

    kind: Any
    first: int
    blocks: int
    block: int


def _parts(geometry: Conv2D, group_in: int, size: int, *, blocks: bool) -> list[Part]:
    """Divide the channels of a group, or those of all small groups, among the kinds of tiles."""
    groups = geometry.groups
    terms = geometry.out_channels // groups
    if groups > 1 and group_in == terms and group_in in loops.GROUPED and group_in < lanes(size):
        kind = loops.GROUPED[group_in]
        block = loops.width_of(kind, size)
        return [Part(kind, 0, -(-geometry.channels // block), block)]
    few = len(loops.BY_TERMS)
    taps = geometry.rows.window * geometry.cols.window
    products = taps * terms // (geometry.rows.stride * geometry.cols.stride)
    if not blocks and loops.by_terms(group_in, products, size):
        full, rest = divmod(group_in, few)
        found = [Part(loops.BY_TERMS[-1], 0, full, few)] if full else []
        last = [Part(loops.BY_TERMS[rest - 1], full * few, 1, rest)] if rest else []
        return found + last
    wide, narrow = (loops.width_of(kind, size) for kind in loops.BY_CHANNELS)
    full, rest = divmod(group_in, wide)
    if rest > narrow:
        full, rest = full + 1, 0
    found = [Part(loops.Wide, 0, full, wide)] if full else []
    return [*found, Part(loops.Narrow, full * wide, 1, narrow)] if rest else found


class Planned(NamedTuple):
    """What the loops need to know to compute a part."""

    packing: NDArray[np.int64]
    packing_tasks: int
    packed_numbers: int
    kind: Any  # of tile, with the number of tasks
    form: Any  # of the arrays
    plan: NDArray[np.int64]
    scratch: int  # bytes that a thread allocates


@lru_cache(maxsize=256)
def plans(
    geometry: Conv2D,
    group_in: int,
    size: int,
    batch: int,
    *,
    channels_last: bool,
    plain: bool,
    space: Space | None = None,
) -> list[Planned]:
    """Plan the parts of a call for some images of its batch.

    A `plain` gradient is NHWC and has the computing dtype; others must be copied to blocks, and
    there is no plan where that would be dear. A pixel of the geometry may stand for a block of the
    result in `space`.
    """
    rows, cols = geometry.rows, geometry.cols
    found = []
    for part in _parts(geometry, group_in, size, blocks=space is not None):
        sizes = _sizes(geometry, part, group_in, size)
        together = _panels_together(sizes["panels"], sizes["panel_bytes"])
        panel_groups = -(-sizes["panels"] // together)
        pixels = loops.tile_of(part.kind, size).pixels
        tile_groups = _tile_groups(geometry, part, size, batch, panel_groups)
        reading = in_place(geometry)
        padded = part.kind in loops.BY_TERMS
        if padded or not plain:
            blocks = in_blocks(
                geometry,
                batch,
                pixels,
                max(tile_groups // _BLOCK_TASKS, min(tile_groups, 4 * NUMBA_NUM_THREADS)),
                panel_groups,
                sizes["cell_bytes"],
                channels_first=not (plain or channels_last),
                padded=padded,
            )
            if blocks is None and not plain:
                return []
            if blocks and (not plain or blocks[0].padded):
                reading, tile_groups = blocks
        at_once = together
        if not (channels_last or space):
            fit = _FINISHED_BYTES // (_FEW_TILES * pixels * part.block * size)
            at_once = max(1, min(together, _PANELS, fit))
        plan = loops.Plan(
            batch=batch,
            tiles=max(1, min(_TILES, _FINISHED_BYTES // (pixels * at_once * part.block * size))),
            together=together,
            at_once=at_once,
            tile_groups=tile_groups,
            fetches_result=int(
                channels_last
                and not space
                and cols.stride == 1
                and part.kind in loops.BY_CHANNELS
                and together == sizes["panels"]
            ),
            **reading._asdict(),
            **sizes,
            **_result_steps(geometry, channels_last, space),
        )
        groups = 1 if part.kind in loops.GROUPED.values() else geometry.groups
        taps = rows.window * cols.window
        terms = geometry.out_channels // geometry.groups
        packing = Packing(
            taps, geometry.groups, group_in, terms, part.first, part.block, part.blocks
        )
        packing_tasks = groups * part.blocks * taps
        found.append(
            Planned(
                write_down(packing, rows, cols),
                packing_tasks,
                packing_tasks * terms * part.block,
                part.kind(tile_groups * panel_groups),
                _form(part, reading, plan, space),
                write_down(plan, rows, cols),
                _scratch(plan, part.kind, size),
            )
        )
    return found


def _form(part: Part, reading: Reading, plan: Any, space: Space | None) -> Any:
    """Choose what is compiled; few channels have one form, whatever the gradients."""
    form: Any = loops.AnyForm
    if space:
        form = loops.Blocks
    elif plan.direct and part.kind not in loops.BY_TERMS:
        form = loops.Widened if reading.copies else loops.InPlace
    return form(0)


def _panels_together(panels: int, panel_bytes: int) -> int:
    """Divide the panels evenly so that the weights of a task stay in the second-level cache."""
    fit = max(1, second_cache() // 2 // panel_bytes)
    return -(-panels // -(-panels // fit))


def _tile_groups(geometry: Conv2D, part: Part, size: int, batch: int, panel_groups: int) -> int:
    """Divide the tiles of each stride class into as many tasks."""
    rows, cols = geometry.rows, geometry.cols
    class_pixels = batch * -(-rows.input // rows.stride) * -(-cols.input // cols.stride)
    tiles = -(-class_pixels // loops.tile_of(part.kind, size).pixels)
    numbers = batch * rows.output * cols.output * geometry.out_channels
    products = numbers * rows.window * cols.window * geometry.channels // geometry.groups
    wished = numbers * size // _TASK_BYTES
    # What stays on one thread need not be cut: each task writes its tables.
    if products >= _PRODUCTS * _threads.SERIAL_BELOW:
        wished = max(wished, -(-_TASKS // panel_groups))
    return max(1, min(tiles // _CLASS_TILES, wished))


def _sizes(geometry: Conv2D, part: Part, group_in: int, size: int) -> dict[str, int]:
    small = part.kind in loops.GROUPED.values()
    by_terms = part.kind in loops.BY_TERMS
    groups, rows, cols = geometry.groups, geometry.rows, geometry.cols
    terms = geometry.out_channels // groups
    taps = rows.window * cols.window
    step = lanes(size)
    chunk = -(-terms // -(-terms // _CHUNK))
    if by_terms and terms > _CHUNK:
        chunk = -(-chunk // step) * step  # the lane of a term must not depend on merging
    # A lane adds up every product, or one of as many as there are lanes with a term each.
    segment = _SEGMENT * min(terms, step) if by_terms else _SEGMENT
    entries = taps * -(-terms // chunk)
    merges = groups == 1 and cols.cell_step == 1 and (not by_terms or terms % step == 0)
    row = taps * terms * size if by_terms else part.block * size
    return {
        "panels": part.blocks * (1 if small else groups),
        "blocks": part.blocks,
        "block": part.block,
        "first_channel": part.first,
        "group_in": geometry.channels if small else group_in,
        "classes": min(rows.stride, rows.input) * min(cols.stride, cols.input),
        "class_columns": min(cols.stride, cols.input),
        "entries": entries,
        "remembered": max(1, min(_REMEMBERED, _TABLE_ENTRIES // entries, cols.input)),
        "element_bytes": size,
        "cell_bytes": geometry.out_channels * size,
        "group_bytes": 0 if small else terms * size,
        "block_bytes": part.block * size if small else 0,
        "terms": 1 if small else terms,
        "chunk": chunk,
        "longest": max(chunk, min(_LONGEST, cols.window * terms)),
        "merges": int(merges),
        "segment": _SEGMENT if small else segment,
        "panel_bytes": taps * terms * part.block * size,
        "tap_bytes": terms * size if by_terms else terms * part.block * size,
        "term_bytes": size if by_terms else part.block * size,
        "row_bytes": row,
    }


def _result_steps(geometry: Conv2D, channels_last: bool, space: Space | None) -> dict[str, int]:
    rows, cols, channels = geometry.rows.input, geometry.cols.input, geometry.channels
    if space:
        rows, cols, channels = space.height, space.width, space.channels
    steps = channels * rows * cols, cols, 1, rows * cols
    if channels_last:
        steps = rows * cols * channels, cols * channels, channels, 1
    names = "image_step", "row_step", "column_step", "channel_step"
    blocks = (space or NO_SPACE)._asdict()
    return {
        "direct": int(channels_last and not space),
        **dict(zip(names, steps, strict=True)),
        **{f"space_{name}": value for name, value in blocks.items() if name != "padded"},
    }


def _scratch(plan: Any, kind: Any, size: int) -> int:
    tile = loops.tile_of(kind, size)
    sums = 2 * tile.pixels * tile.vectors * tile.lanes + plan.longest
    row = plan.at_once * loops.width_of(kind, size)
    finished = (0 if plan.direct else plan.tiles) * tile.pixels * row
    block = plan.block_rows * plan.pitch * plan.cell_bytes
    return int(
        8 * ((9 + 4 * plan.remembered) * plan.entries + plan.tiles * tile.pixels)
        + size * (sums + finished)
        + block
    )


def _planned(call: Call, space: Space | None, *, plain: bool) -> list[Planned]:
    return plans(
        call.geometry,
        call.filter.shape[2],
        call.computing.itemsize,
        len(call.result),
        channels_last=call.data_format == "NHWC",
        plain=plain,
        space=space,
    )


def packed(call: Call, planned: Planned) -> NDArray[Any] | None:
    """Give the weights in the order of the part's tiles; None if one of them is not finite."""
    weights = as_bits(adopt(call.filter))
    ordered = empty((planned.packed_numbers,), call.computing, "the filter in another order")
    kind = type(planned.kind)
    odd = np.zeros(1, np.int64)
    if kind in loops.BY_CHANNELS:
        arguments = (planned.packing, weights, ordered, odd)
        work = 0.3 * ordered.size
        _threads.run(packing_loops.pack, planned.packing_tasks, work, arguments)
    elif kind in loops.BY_TERMS:
        packing_loops.pack_by_terms(planned.packing, weights, ordered, odd)
    else:
        packing_loops.pack_groups(planned.packing, weights, ordered, odd)
    ordered.flags.writeable = False
    return ordered if odd.item() == 0 else None


def compute(call: Call) -> bool:
    """Compute by register tiles; give up if a weight is not finite.

    Tiles read zeros for pixels that a tap does not reach; an infinite weight would make NaN there.
    """
    blocks = as_blocks(call.geometry, call.computing.itemsize)
    if blocks is None:
        return _compute(call, None, call)
    geometry, space = blocks
    channels_last = call.data_format == "NHWC"
    weights = regrouped(call.filter, space, channels_last=channels_last)
    blocked = call._replace(geometry=geometry, filter=weights)
    return _compute(blocked, space, call)


def _compute(call: Call, space: Space | None, original: Call) -> bool:
    """Compute a call whose pixels may stand for blocks of those of the original one."""
    plain = call.data_format == "NHWC" and call.gradient.dtype == call.computing
    planned, parts, weights = _planned(call, space, plain=plain), [call], []
    in_parts = not planned  # the gradient must be copied as a whole, a few images at a time
    if in_parts:
        planned, parts = _planned(call, space, plain=True), call.parts()
    for one in planned:
        ordered = packed(call, one)
        if ordered is None:
            return False
        weights.append(ordered)
    for part in parts:
        gradient = channels_last(part) if in_parts else adopt(as_bits(part.gradient))
        noted = None
        if space and space.padded:
            noted = np.zeros((len(part.result), space.height), np.uint8)
        work = part.products / _PRODUCTS / len(planned)
        with target(part.result) as flat:
            result = as_bits(flat)
            if part is not call:
                planned = _planned(part, space, plain=True)
            for one, ordered in zip(planned, weights, strict=True):
                form = one.form
                if noted is not None:
                    form = form._replace(noted=noted.ctypes.data)
                arguments = (one.kind, form, one.plan, ordered, gradient, result)
                _threads.run(loops.work, one.kind.tasks, work, arguments, one.scratch)
            if noted is not None and noted.any():
                _compute_again(original._replace(gradient=part.gradient), noted, result)
    return True


def _compute_again(call: Call, noted: NDArray[np.uint8], result: NDArray[Any]) -> None:
    """Compute the noted rows of each image by the exact loops."""
    size = result.size // len(noted)
    for image in np.flatnonzero(noted.any(axis=1)):
        one = call._replace(gradient=call.gradient[image : image + 1])
        flat = result[image * size : (image + 1) * size]
        rows = np.flatnonzero(noted[image])
        _exact.compute_rows(one, rows, channels_last(one), flat)
