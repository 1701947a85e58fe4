"""Convolution by Winograd's minimal filtering: where it can be used, where it pays, its plan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import empty
from . import _exact, _threads
from . import _tiled_loops as tiled_loops
from . import _winograd_loops as loops
from ._adopt import adopt, batches, target
from ._call import Call, channels_last
from ._tiled import Part, packed
from ._vectors import lanes

# The 36 numbers of a task's tiles should stay in the second-level cache.
_POINT_BYTES = 3 * 2**19
_MOST_TILES = 96
_TASKS = 8

# Costs in products of the direct sum, measured: turning a gradient tile or a result tile, for each
# of its channels, and a filter element, for each pair of channels.
_GRADIENT_COST = 300
_RESULT_COST = 250
_FILTER_COST = 500


def _obstacle(call: Call) -> str | None:
    """Say what keeps a call from Winograd's algorithm, if something does."""
    geometry = call.geometry
    step = lanes(call.weights.itemsize)
    if call.weights.dtype.kind != "f" or call.result.dtype != call.weights.dtype:
        return f"dtype float32 or float64, got {call.result.dtype}"
    if call.weights.shape[:2] != (3, 3):
        return f"a 3x3 filter, got {call.weights.shape[0]}x{call.weights.shape[1]}"
    if any(axis.stride != 1 or axis.dilation != 1 for axis in (geometry.rows, geometry.cols)):
        return "strides and dilations of 1"
    if geometry.groups != 1:
        return f"one group, got {geometry.groups}"
    if geometry.out_channels % step:
        return f"a multiple of {step} output channels, got {geometry.out_channels}"
    return None


def require(call: Call) -> None:
    """Raise ValueError if a call cannot be computed by Winograd's algorithm."""
    obstacle = _obstacle(call)
    if obstacle:
        msg = f"algorithm='winograd' needs {obstacle}"
        raise ValueError(msg)


def pays(call: Call) -> bool:
    """Tell whether the direct sum would cost more; by shapes alone."""
    if _obstacle(call):
        return False
    geometry = call.geometry
    # Counted for one image: what an image's result is must not depend on how many there are.
    tiles = -(-geometry.rows.input // 4) * -(-geometry.cols.input // 4)
    terms, channels = geometry.out_channels, geometry.channels
    if terms > 1024 or min(terms, channels) < 32:
        return False
    cost = loops.POINTS * tiles * terms * channels
    cost += tiles * (_GRADIENT_COST * terms + _RESULT_COST * channels)
    cost += _FILTER_COST * terms * channels
    return cost < call.products // geometry.batch


def compute(call: Call) -> bool:
    """Compute by Winograd's algorithm; give up if a weight is not finite."""
    geometry, size = call.geometry, call.weights.itemsize
    width = tiled_loops.width_of(tiled_loops.Wide, size)
    terms, channels = geometry.out_channels, geometry.channels
    blocks = -(-channels // width)
    ordered = packed(call, Part(tiled_loops.Wide, 0, blocks, width))
    if ordered is None:
        return False
    points = empty(
        (blocks * loops.POINTS * terms * width,), ordered.dtype, "the filter's transform"
    )
    _threads.run(
        loops.transform_filter,
        loops.transform_filter_parallel,
        blocks * terms,
        0.2 * points.size,
        (blocks, terms, ordered, points),
    )
    for images in batches(geometry.batch, call.image_bytes):
        part = call._replace(gradient=call.gradient[images], result=call.result[images])
        _compute_images(part, images.stop - images.start, blocks, points)
    return True


def _plan(call: Call, batch: int, blocks: int) -> loops.Plan:
    geometry, size = call.geometry, call.weights.itemsize
    rows, cols, channels = geometry.rows.input, geometry.cols.input, geometry.channels
    tile_rows, tile_cols = -(-rows // 4), -(-cols // 4)
    all_tiles = batch * tile_rows * tile_cols
    pixels = tiled_loops.tile_of(tiled_loops.Wide, size).pixels
    fit = min(_MOST_TILES, _POINT_BYTES // (loops.POINTS * geometry.out_channels * size))
    tiles = max(1, min(fit, all_tiles) // pixels) * pixels
    runs = -(-all_tiles // tiles)
    # Few runs of tiles: divide the channels too, though the gradient is then transformed again.
    together = -(-blocks // min(blocks, -(-_TASKS // runs)))
    if call.data_format == "NHWC":
        steps = (rows * cols * channels, cols * channels, channels, 1)
    else:
        steps = (channels * rows * cols, cols, 1, rows * cols)
    return loops.Plan(
        batch,
        rows,
        cols,
        geometry.rows.output,
        geometry.cols.output,
        channels,
        geometry.out_channels,
        geometry.rows.pad - 2,
        geometry.cols.pad - 2,
        tile_rows,
        tile_cols,
        tiles,
        blocks,
        together,
        runs * -(-blocks // together),
        *steps,
    )


def _compute_images(call: Call, batch: int, blocks: int, points: NDArray[Any]) -> None:
    plan = _plan(call, batch, blocks)
    gradient = channels_last(call, slice(None))
    bad = np.zeros(batch * plan.rows, np.uint8)
    with target(call.result) as flat:
        arguments = (plan, adopt(points), gradient, flat, bad)
        run = loops.work, loops.work_parallel
        terms, width = plan.terms, tiled_loops.width_of(tiled_loops.Wide, call.weights.itemsize)
        numbers = loops.POINTS * (plan.tiles * (terms + width) + 2 * terms) + 40 * width
        scratch = numbers * call.weights.itemsize
        _threads.run(*run, plan.tasks, call.products / 100, arguments, scratch)
        rows = np.flatnonzero(bad)
        if rows.size:
            _exact.compute_rows(call, rows, gradient, flat)
