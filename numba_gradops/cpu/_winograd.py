"""Convolution by Winograd's minimal filtering: where it can be used, where it pays, its plan.

Memory: what is transformed beforehand, that is up to 6.25 times the filter (25 points for 2x2 taps)
or 8 MiB, whichever is more; and for each thread what a task transforms for itself and its sums, a
few MiB unless there are thousands of output channels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._arrays import empty
from .._geometry import Conv2D
from . import _exact, _threads
from . import _winograd_loops as loops
from ._adopt import adopt, target
from ._call import Call, channels_last
from ._vectors import lanes
from ._winograd_forms import MOST_POINTS, MOST_TAPS, block_width, tile_of
from ._winograd_sides import sides_of, table_of

# What a task transforms for itself should stay in the second-level cache; more tiles in a run than
# these do not pay.
_OWN_BYTES = 5 * 2**18
_MOST_TILES = 48

# The gradient is transformed beforehand only if it takes no more memory than the filter would or
# than this, and if the sums of a task take no more than that.
_SHARED_BYTES = 2**23
_SUM_BYTES = 2**22

# Where 'auto' may use it. Longer sums would need totals, as `_tiled` keeps them.
_MOST_TERMS = 1024
_FEWEST_CHANNELS = 32

# Tasks in a call, at least, where it has that many.
_TASKS = 8

# Bytes after which addresses fall in the same set of the first-level cache; and how far apart they
# are then put.
_PAGE = 4096
_APART = 9 * 64

# Stride classes along an axis, at most: their filters are transformed one by one.
_MOST_STRIDE = 16

# Costs in products of the direct sum, measured: of a point of a gradient or result tile, for each
# of its channels; of a point of the filter, for each pair of channels; and of a call, whatever its
# size. The last two are shared by the images of a batch; a few are assumed.
_TILE_COST = 20
_FILTER_COST = 4
_CALL_COST = 500_000


def _obstacle(geometry: Conv2D, dtype: np.dtype[Any]) -> str | None:
    """Say what keeps a call from Winograd's algorithm, if something does."""
    if dtype.name not in ("float32", "float64"):
        return f"dtype float32 or float64, got {dtype}"
    for axis, name in ((geometry.rows, "row"), (geometry.cols, "column")):
        stride = axis.stride
        if stride > _MOST_STRIDE:
            return f"strides of at most {_MOST_STRIDE}, got {stride}"
        if axis.tap_step != stride:
            return f"a {name} stride and dilation without a common factor"
        # Each stride class then meets a tap, and none of them too many.
        if not stride <= axis.window <= MOST_TAPS * stride:
            few = f"{stride} to {MOST_TAPS * stride}"
            return f"{few} filter {name}s for a {name} stride of {stride}, got {axis.window}"
    if geometry.groups != 1:
        return f"one group, got {geometry.groups}"
    return None


def require(geometry: Conv2D, dtype: np.dtype[Any]) -> None:
    """Raise ValueError if a call cannot be computed by Winograd's algorithm."""
    obstacle = _obstacle(geometry, dtype)
    if obstacle:
        msg = f"algorithm='winograd' needs {obstacle}"
        raise ValueError(msg)


def pays(geometry: Conv2D, dtype: np.dtype[Any]) -> bool:
    """Tell whether the direct sum would cost more; by shapes and dtype alone."""
    return not _obstacle(geometry, dtype) and _costs_less(geometry, dtype.itemsize)


def _costs_less(geometry: Conv2D, size: int) -> bool:
    """Compare costs for one image: its result must not depend on how many there are."""
    terms, channels = geometry.out_channels, geometry.channels
    if terms > _MOST_TERMS or min(terms, channels) < _FEWEST_CHANNELS:
        return False
    rows, cols = geometry.rows, geometry.cols
    width = block_width(size)
    wide = -(-channels // width) * width
    cost = _CALL_COST
    for row in sides_of(rows):
        for col in sides_of(cols):
            numbers = row.tiles * col.tiles * (row.taps + 3) * (col.taps + 3)
            cost += numbers * (terms * wide + _TILE_COST * (terms + wide))
            cost += _FILTER_COST * row.filter_points * col.filter_points * terms * wide
    return cost < rows.output * cols.output * rows.window * cols.window * terms * channels


class _Planned(NamedTuple):
    """What the loops need to know for some images of the batch."""

    plan: loops.Plan
    row_sides: NDArray[np.int64]
    col_sides: NDArray[np.int64]
    first_runs: NDArray[np.int64]
    first_points: NDArray[np.int64]
    shared: int  # numbers that are transformed beforehand
    scratch: int  # bytes that a thread allocates


def _apart(count: int, size: int) -> int:
    """Round up so that the same place in each of several arrays falls in another cache set."""
    return (-(-count * size // _PAGE) * _PAGE + _APART) // size


def _before(counts: list[int]) -> NDArray[np.int64]:
    """Count what lies before each class, and in all."""
    sums = np.cumsum([0, *counts]).astype(np.int64)
    sums.flags.writeable = False
    return sums


def _runs(counts: list[int], most: int, height: int) -> tuple[int, list[int]]:
    """Cut the tiles of each class into equal runs of so many `height`; count these."""
    longest = max(counts)
    tiles = -(-longest // (-(-longest // most) * height)) * height
    return tiles, [-(-count // tiles) for count in counts]


@lru_cache(maxsize=256)
def _planned(geometry: Conv2D, size: int, channels_last: bool, batch: int) -> _Planned:
    rows, cols, channels = geometry.rows.input, geometry.cols.input, geometry.channels
    terms, width, height = geometry.out_channels, block_width(size), tile_of(size).pixels
    classes = [(r, c) for r in sides_of(geometry.rows) for c in sides_of(geometry.cols)]
    counts = [batch * row.tiles * col.tiles for row, col in classes]
    blocks = -(-channels // width)
    padded = -(-terms // lanes(size)) * lanes(size)
    points = MOST_POINTS**2
    filter_points = [row.filter_points * col.filter_points for row, col in classes]
    filter_numbers = sum(filter_points) * blocks * terms * width
    # With the filter shared: it is written, and then read for each run of tiles.
    fit = min(_MOST_TILES, _OWN_BYTES // (points * padded * size))
    tiles, runs = _runs(counts, max(1, fit // height) * height, height)
    filter_traffic = sum(f * (4 + n) for f, n in zip(filter_points, runs, strict=True))
    # With the gradient shared: it is written, and then read for each block of channels.
    chunk = -(-terms // -(-terms // max(1, _OWN_BYTES // (points * width * size))))
    chunk = -(-chunk // lanes(size)) * lanes(size)
    other_tiles, other_runs = _runs(counts, _MOST_TILES // height * height, height)
    other_numbers = sum(other_runs) * points * _apart(other_tiles * padded, size)
    sum_runs = max(other_runs) if terms > chunk else 1
    filter_shared = (
        len(classes) * blocks < _TASKS
        or other_numbers > max(filter_numbers, _SHARED_BYTES // size)
        or sum_runs * other_tiles * points * width * size > _SUM_BYTES
        or other_numbers * (2 + blocks) > filter_traffic * blocks * terms * width
    )
    if filter_shared:
        chunk, sum_runs = terms, 1
    else:
        tiles, runs = other_tiles, other_runs
    # Few runs of tiles: divide the channels too, though the gradient is then transformed again.
    together = -(-blocks // min(blocks, -(-_TASKS // sum(runs))))
    steps = channels * rows * cols, cols, 1, rows * cols
    if channels_last:
        steps = rows * cols * channels, cols * channels, channels, 1
    by_runs = len(classes) * blocks * padded // lanes(size), sum(runs) * -(-blocks // together)
    by_blocks = sum(runs) * (tiles // height), len(classes) * blocks
    plan = loops.Plan(
        batch,
        channels,
        terms,
        tiles,
        _apart(tiles * padded, size),
        _apart(tiles * width, size),
        blocks,
        together,
        int(filter_shared),
        chunk,
        sum_runs,
        *(by_runs if filter_shared else by_blocks),
        int(channels_last),
        *steps,
    )
    own = plan.point_step if filter_shared else chunk * width
    return _Planned(
        plan,
        table_of(geometry.rows),
        table_of(geometry.cols),
        _before(runs),
        _before(filter_points),
        filter_numbers if filter_shared else other_numbers,
        points * (own + sum_runs * plan.sum_step) * size,
    )


def compute(call: Call) -> bool:
    """Compute by Winograd's algorithm; give up if a weight is not finite."""
    geometry = call.geometry
    rows, cols, size = geometry.rows, geometry.cols, call.filter.itemsize
    weights, finite = adopt(call.filter), np.ones(1, np.int64)
    shared = ready = None
    for part in call.parts():
        batch = len(part.result)
        planned = _planned(geometry, size, call.data_format == "NHWC", batch)
        plan, *tables, numbers, scratch = planned
        gradient = channels_last(part)
        bad = np.zeros(batch * rows.input, np.uint8)
        prepare = not (ready and plan.filter_shared)
        if prepare:
            ready = plan.filter_shared
            shared = empty((numbers,), weights.dtype, "the filter's or the gradient's transform")
        with target(part.result) as flat:
            arguments = (
                plan, rows, cols, *tables, weights, gradient, shared, finite, flat, bad
            )  # fmt: skip
            # The same for both calls, so that they are serial or parallel together.
            work = part.products / 100  # 100 products a nanosecond
            if prepare:
                _threads.run(loops.work, plan.shared_tasks, work, (1, *arguments), scratch)
            if finite[0]:
                _threads.run(loops.work, plan.tasks, work, (0, *arguments), scratch)
            if not finite[0]:
                return False
            bad_rows = np.flatnonzero(bad)
            if bad_rows.size:
                _exact.compute_rows(part, bad_rows, gradient, flat)
    return True
