"""Convolution by register tiles: which tiles, weights in their order, and the plan of the loops."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._arrays import empty
from .._geometry import Conv2D
from . import _threads
from . import _tiled_loops as loops
from ._adopt import adopt, batches, target
from ._call import Call, channels_last
from ._halves import as_bits
from ._vectors import lanes

# What tiles are not for: fewer products (in an image: a result must not depend on the batch) than
# it takes to prepare them, and geometries whose tables would be large (a huge stride makes a class
# of each pixel, a huge filter a long list of taps).
_TOO_LITTLE_WORK = 8192
_MOST_CLASSES = 4096
_MOST_ENTRIES = 2**15

# Output channels in an entry of a tile's table, at most; and products that a lane adds up before
# they move to a total.
_CHUNK = 256
_SEGMENT = 256

# Tiles in a task, at most: they share the weights of a block while these are in the cache. And
# tasks in a call, at least, where it has that many tiles: to keep many threads busy to the end.
_TILES = 16
_TASKS = 64


def suits(call: Call) -> bool:
    """Tell whether tiles are made for this geometry and dtype."""
    rows, cols = call.geometry.rows, call.geometry.cols
    classes = min(rows.stride, rows.input) * min(cols.stride, cols.input)
    taps = rows.window * cols.window
    chunks = -(-call.weights.shape[3] // _CHUNK)
    return (
        call.weights.dtype.kind == "f"
        and call.products >= _TOO_LITTLE_WORK * call.geometry.batch
        and classes <= _MOST_CLASSES
        and taps * chunks <= _MOST_ENTRIES
    )


class Part(NamedTuple):
    """Channels of each group that one kind of tile computes."""

    kind: Any
    first: int
    blocks: int
    block: int


def _parts(geometry: Conv2D, group_in: int, size: int) -> list[Part]:
    """Divide the channels among the kinds of tiles; depthwise ones have groups for channels."""
    groups = geometry.groups
    if group_in == 1 and geometry.out_channels == groups and groups > 1:
        block = loops.width_of(loops.Depthwise, size)
        return [Part(loops.Depthwise, 0, -(-groups // block), block)]
    if group_in <= 4:
        kind = (loops.Terms1, loops.Terms2, loops.Terms3, loops.Terms4)[group_in - 1]
        return [Part(kind, 0, 1, group_in)]
    wide, narrow = (loops.width_of(kind, size) for kind in (loops.Wide, loops.Narrow))
    full, rest = divmod(group_in, wide)
    if rest > narrow:
        full, rest = full + 1, 0
    found = [Part(loops.Wide, 0, full, wide)] if full else []
    return [*found, Part(loops.Narrow, full * wide, 1, narrow)] if rest else found


def packed(call: Call, part: Part) -> NDArray[Any] | None:
    """Give the weights in the order of the part's tiles; None if one of them is not finite."""
    weights = adopt(call.weights)
    if part.kind not in (loops.Wide, loops.Narrow):
        return weights if loops.all_finite(weights) else None
    k_rows, k_cols, group_in, outs = call.weights.shape
    groups = call.geometry.groups
    taps = k_rows * k_cols
    numbers = groups * part.blocks * taps * (outs // groups) * part.block
    ordered = empty((numbers,), weights.dtype, "the filter in another order")
    finite = np.ones(1, np.int64)
    packing = loops.Packing(
        taps, groups, group_in, outs // groups, part.first, part.block, part.blocks
    )
    tasks = groups * part.blocks * taps
    arguments = (packing, weights, ordered, finite)
    _threads.run(loops.pack, loops.pack_parallel, tasks, 0.3 * ordered.size, arguments)
    return adopt(ordered) if finite[0] else None


class Planned(NamedTuple):
    """What the loops need to know to compute a part."""

    part: Part
    plan: Any
    first_tasks: NDArray[np.int64]
    scratch: int  # bytes that a thread allocates


@lru_cache(maxsize=256)
def plans(
    geometry: Conv2D, group_in: int, size: int, channels_last: bool, direct: bool, batch: int
) -> list[Planned]:
    """Plan the parts of a call for some images of its batch."""
    found = []
    for part in _parts(geometry, group_in, size):
        first_tasks, tiles = _first_tasks(geometry, part, size, batch)
        first_tasks.flags.writeable = False
        plan = part.kind(
            batch=batch,
            tiles=tiles,
            **_sizes(geometry, part, group_in, size, int(first_tasks[-1])),
            **_weight_steps(geometry, part, group_in, size),
            **_result_steps(geometry, channels_last, direct),
        )
        found.append(Planned(part, plan, first_tasks, _scratch(plan, part.kind, size)))
    return found


def _first_tasks(
    geometry: Conv2D, part: Part, size: int, batch: int
) -> tuple[NDArray[np.int64], int]:
    """Count the tasks of a block before each stride class, and the tiles in a task."""
    pixels = loops.tile_of(part.kind, size).pixels
    sides = [
        -(-(axis.input - np.arange(min(axis.stride, axis.input))) // axis.stride)
        for axis in (geometry.rows, geometry.cols)
    ]
    tiles = -(-(batch * np.outer(*sides).ravel()) // pixels)
    panels = part.blocks * (1 if part.kind is loops.Depthwise else geometry.groups)
    per_task = max(1, min(_TILES, int(tiles.sum()) * panels // _TASKS))
    return np.concatenate([[0], np.cumsum(-(-tiles // per_task))]).astype(np.int64), per_task


def _sizes(
    geometry: Conv2D, part: Part, group_in: int, size: int, tile_groups: int
) -> dict[str, int]:
    depthwise = part.kind is loops.Depthwise
    by_terms = part.kind not in (loops.Wide, loops.Narrow, loops.Depthwise)
    groups = 1 if depthwise else geometry.groups
    terms = 1 if depthwise else geometry.out_channels // groups
    chunk = -(-terms // -(-terms // _CHUNK))
    return {
        "blocks": part.blocks,
        "block": part.block,
        "first_channel": part.first,
        "group_in": geometry.channels if depthwise else group_in,
        "tile_groups": tile_groups,
        "tasks": tile_groups * groups * part.blocks,
        "class_columns": min(geometry.cols.stride, geometry.cols.input),
        "entries": geometry.rows.window * geometry.cols.window * -(-terms // chunk),
        "element_bytes": size,
        "cell_bytes": geometry.out_channels * size,
        "group_bytes": terms * size,
        "block_bytes": part.block * size if depthwise else 0,
        "terms": terms,
        "chunk": chunk,
        # A lane adds up every product, or one of as many as there are lanes with a term each.
        "segment": _SEGMENT * min(terms, lanes(size)) if by_terms else _SEGMENT,
    }


def _weight_steps(geometry: Conv2D, part: Part, group_in: int, size: int) -> dict[str, int]:
    """Give the bytes between weights, as packed or, for the other kinds, as in the filter."""
    outs = geometry.out_channels
    terms = outs // geometry.groups
    if part.kind in (loops.Wide, loops.Narrow):
        tap = terms * part.block * size
        panel = geometry.rows.window * geometry.cols.window * tap
        return {
            "panel_bytes": panel,
            "tap_bytes": tap,
            "term_bytes": part.block * size,
            "row_bytes": 0,
        }
    if part.kind is loops.Depthwise:
        steps = part.block * size, outs * size, 0, 0
    else:
        steps = terms * size, group_in * outs * size, size, outs * size
    return dict(zip(("panel_bytes", "tap_bytes", "term_bytes", "row_bytes"), steps, strict=True))


def _result_steps(geometry: Conv2D, channels_last: bool, direct: bool) -> dict[str, int]:
    rows, cols, channels = geometry.rows.input, geometry.cols.input, geometry.channels
    steps = channels * rows * cols, cols, 1, rows * cols
    if channels_last:
        steps = rows * cols * channels, cols * channels, channels, 1
    names = "image_step", "row_step", "column_step", "channel_step"
    return {"direct": int(direct), **dict(zip(names, steps, strict=True))}


def _scratch(plan: Any, kind: Any, size: int) -> int:
    tile = loops.tile_of(kind, size)
    sums = 2 * tile.pixels * tile.vectors * tile.lanes + plan.chunk
    finished = (1 if plan.direct else plan.tiles) * tile.pixels * loops.width_of(kind, size)
    return int(8 * (5 * plan.entries + plan.tiles * tile.pixels) + size * (sums + finished))


def _planned(call: Call, batch: int) -> list[Planned]:
    last = call.data_format == "NHWC"
    direct = last and call.result.dtype == call.weights.dtype
    group_in, size = call.weights.shape[2], call.weights.itemsize
    return plans(call.geometry, group_in, size, last, direct, batch)


def compute(call: Call) -> bool:
    """Compute by register tiles; give up if a weight is not finite.

    Tiles read zeros for pixels that a tap does not reach; an infinite weight would make NaN there.
    """
    geometry = call.geometry
    weights = [packed(call, one.part) for one in _planned(call, geometry.batch)]
    if any(array is None for array in weights):
        return False
    for images in batches(geometry.batch, call.image_bytes):
        gradient = channels_last(call, images)
        batch = images.stop - images.start
        work = call.products * batch / geometry.batch / 50  # 50 products a nanosecond
        with target(call.result[images]) as flat:
            for (_, plan, first_tasks, scratch), ordered in zip(
                _planned(call, batch), weights, strict=True
            ):
                arguments = (
                    plan,
                    geometry.rows,
                    geometry.cols,
                    first_tasks,
                    ordered,
                    gradient,
                    as_bits(flat),
                )
                run = loops.work, loops.work_parallel
                _threads.run(*run, plan.tasks, work, arguments, scratch)
    return True
