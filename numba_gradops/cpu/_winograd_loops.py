"""Winograd's minimal filtering for 3x3 filters with stride 1: a quarter of the products.

F(4x4, 3x3) computes a tile of 4x4 results from 6x6 gradients with 36 products where the direct sum
has 144 (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016). Gradients and
filter are turned into 36 numbers each, these are multiplied and summed over the output channels (36
matrix products, by the register tiles of `_microkernel`), and the sums are turned into results.

The transforms mix the elements of a tile: they would spread a NaN, an infinity or an overflow to
results that do not depend on it. Rows with a result that is not finite are therefore noted, and
computed again by the exact loops.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange
from numba.extending import overload

from . import _microkernel
from ._compile import helper, loop, parallel_loop
from ._microkernel import next_number
from ._tiled_loops import Wide, _element, _kernel_of, tile_of, width_of
from ._vectors import lanes

POINTS = 36


class Plan(NamedTuple):
    """Sizes and strides."""

    batch: int
    rows: int
    cols: int
    out_rows: int
    out_cols: int
    channels: int
    terms: int
    row_shift: int  # from a tile's first result row to its first gradient row
    col_shift: int
    tile_rows: int
    tile_cols: int
    tiles: int  # tiles in a task, a multiple of the pixels of a register tile
    blocks: int  # blocks of channels in all
    blocks_together: int  # blocks of channels in a task
    tasks: int
    image_step: int
    row_step: int
    column_step: int
    channel_step: int


def _overloaded_forms(which: str) -> Any:
    """Make the function that evaluates one of the three lists of linear forms."""

    def forms(array: Any, source: int, source_step: int, target: int, step: int, count: int) -> Any:
        raise NotImplementedError  # the overload below is what gets compiled

    @overload(forms)  # type: ignore[untyped-decorator]
    def compiled(
        array: Any, source: Any, source_step: Any, target: Any, step: Any, count: Any
    ) -> Any:
        kernel = _microkernel.linear_forms(
            _element(array.dtype), lanes(array.dtype.bitwidth // 8), _microkernel.FORMS[which]
        )

        def run(
            array: Any, source: Any, source_step: Any, target: Any, step: Any, count: Any
        ) -> Any:
            kernel(source, source_step, target, step, count)

        return run

    return forms


_gradient_forms = _overloaded_forms("gradient")
_filter_forms = _overloaded_forms("filter")
_result_forms = _overloaded_forms("result")


def _sizes(array: Any) -> tuple[int, int, int]:
    """Give the pixels and channels of a register tile, and the lanes of a vector."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_sizes)  # type: ignore[untyped-decorator]
def _sizes_compiled(array: Any) -> Any:
    size = array.dtype.bitwidth // 8
    pixels, width, step = tile_of(Wide, size).pixels, width_of(Wide, size), lanes(size)

    def constants(array: Any) -> Any:
        return pixels, width, step

    return constants


def _multiply(array: Any, *arguments: int) -> None:
    """Run the register tile with lanes along channels."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_multiply)  # type: ignore[untyped-decorator]
def _multiply_compiled(array: Any, *arguments: Any) -> Any:
    tile = tile_of(Wide, array.dtype.bitwidth // 8)
    kernel = _kernel_of(Wide, _element(array.dtype), tile)

    def run(array: Any, *arguments: Any) -> Any:
        kernel(*arguments)

    return run


@loop
def transform_filter(counter: Any, blocks: int, terms: int, packed: Any, target: Any) -> None:
    """Turn packed weights [block, tap, term, channel] into [block, point, term, channel]."""
    _, width, step = _sizes(packed)
    size = packed.itemsize
    tap_bytes = terms * width * size
    half = np.empty(18 * width, packed.dtype)
    flipped = np.empty(9 * width, packed.dtype)
    while True:
        task = next_number(counter.ctypes.data)
        if task >= blocks * terms:
            break
        block, term = task // terms, task % terms
        for tap in range(9):
            # Packed back to front, which is how the gradient of a convolution meets the filter.
            at = ((block * 9 + tap) * terms + term) * width
            for c in range(width):
                flipped[tap * width + c] = packed[at + c]
        at = target.ctypes.data + (block * POINTS * terms + term) * width * size
        for j in range(3):
            source = flipped.ctypes.data + j * width * size
            to = half.ctypes.data + j * width * size
            _filter_forms(packed, source, 3 * width * size, to, 3 * width * size, width // step)
        for i in range(6):
            source = half.ctypes.data + i * 3 * width * size
            _filter_forms(
                packed, source, width * size, at + i * 6 * tap_bytes, tap_bytes, width // step
            )


@parallel_loop
def transform_filter_parallel(
    threads: int, counter: Any, blocks: int, terms: int, packed: Any, target: Any
) -> None:
    """Have `threads` threads transform the filter."""
    for _ in prange(threads):
        transform_filter(counter, blocks, terms, packed, target)


@helper
def _transform_gradient(
    plan: Plan, tile: int, row: int, gradient: Any, patch: Any, half: Any, target: Any
) -> None:
    """Write the 36 numbers of a tile for each term, at `row` of 36 tables of `tiles` rows."""
    _, _, step = _sizes(gradient)
    size, terms = gradient.itemsize, plan.terms
    per_image = plan.tile_rows * plan.tile_cols
    image = tile // per_image
    top = tile % per_image // plan.tile_cols * 4 + plan.row_shift
    left = tile % plan.tile_cols * 4 + plan.col_shift
    for i in range(6):
        y = top + i
        for j in range(6):
            x = left + j
            to = (i * 6 + j) * terms
            if y >= 0 and y < plan.out_rows and x >= 0 and x < plan.out_cols:
                at = ((image * plan.out_rows + y) * plan.out_cols + x) * terms
                patch[to : to + terms] = gradient[at : at + terms]
            else:
                patch[to : to + terms] = 0
    row_bytes, count = terms * size, terms // step
    for j in range(6):
        _gradient_forms(
            gradient,
            patch.ctypes.data + j * row_bytes,
            6 * row_bytes,
            half.ctypes.data + j * row_bytes,
            6 * row_bytes,
            count,
        )
    for i in range(6):
        _gradient_forms(
            gradient,
            half.ctypes.data + i * 6 * row_bytes,
            row_bytes,
            target.ctypes.data + (i * 6 * plan.tiles + row) * row_bytes,
            plan.tiles * row_bytes,
            count,
        )


@helper
def _write_tile(
    plan: Plan, tile: int, channel: int, wanted: int, width: int, values: Any, result: Any, bad: Any
) -> None:
    """Write a tile's 4x4 results as far as they lie in the image; note rows that are not finite."""
    per_image = plan.tile_rows * plan.tile_cols
    image = tile // per_image
    top, left = tile % per_image // plan.tile_cols * 4, tile % plan.tile_cols * 4
    for i in range(min(4, plan.rows - top)):
        finite = True
        for j in range(min(4, plan.cols - left)):
            at = image * plan.image_step + (top + i) * plan.row_step
            at += (left + j) * plan.column_step + channel * plan.channel_step
            source = (i * 4 + j) * width
            wrong = 0
            if plan.channel_step == 1:
                for c in range(wanted):
                    value = values[source + c]
                    wrong += 0 if value - value == 0 else 1
                    result[at + c] = value
            else:
                for c in range(wanted):
                    value = values[source + c]
                    wrong += 0 if value - value == 0 else 1
                    result[at + c * plan.channel_step] = value
            finite = finite and wrong == 0
        if not finite:
            bad[image * plan.rows + top + i] = 1


@loop
def work(
    counter: Any, plan: Plan, filter_points: Any, gradient: Any, result: Any, bad: Any
) -> None:
    """Work on tasks until none is left: a run of tiles, for some blocks of channels."""
    pixels, width, step = _sizes(gradient)
    size, terms, tiles = gradient.itemsize, plan.terms, plan.tiles
    patch, half = np.empty(36 * terms, gradient.dtype), np.empty(36 * terms, gradient.dtype)
    points = np.zeros(POINTS * tiles * terms, gradient.dtype)
    sums = np.empty(POINTS * tiles * width, gradient.dtype)
    few, values = np.empty(24 * width, gradient.dtype), np.empty(16 * width, gradient.dtype)
    totals = np.empty(1, gradient.dtype)  # never written: one entry, nothing to move
    entry = np.zeros(_microkernel.ENTRY, np.int64)
    entry[2], entry[3] = (1 << pixels) - 1, terms
    bases, outs = np.empty(pixels, np.int64), np.empty(pixels, np.int64)
    all_tiles = plan.batch * plan.tile_rows * plan.tile_cols
    groups = (plan.blocks + plan.blocks_together - 1) // plan.blocks_together
    while True:
        task = next_number(counter.ctypes.data)
        if task >= plan.tasks:
            break
        first = task // groups * tiles
        first_block = task % groups * plan.blocks_together
        count = min(tiles, all_tiles - first)
        for t in range(count):
            _transform_gradient(plan, first + t, t, gradient, patch, half, points)
        for block in range(first_block, min(first_block + plan.blocks_together, plan.blocks)):
            for point in range(POINTS):
                weights = filter_points.ctypes.data
                weights += (block * POINTS + point) * terms * width * size
                for t in range(0, count, pixels):
                    row = point * tiles + t
                    for p in range(pixels):
                        bases[p] = (row + p) * terms * size
                        outs[p] = (row + p) * width * size
                    _multiply(
                        gradient,
                        entry.ctypes.data,
                        1,
                        0,
                        bases.ctypes.data,
                        points.ctypes.data,
                        outs.ctypes.data,
                        sums.ctypes.data,
                        points.ctypes.data,
                        weights,
                        totals.ctypes.data,
                        width,
                        0,
                        0,
                        0,
                    )
            channel = block * width
            wanted = min(width, plan.channels - channel)
            for t in range(count):
                at = sums.ctypes.data + t * width * size
                for j in range(6):
                    _result_forms(
                        gradient,
                        at + j * tiles * width * size,
                        6 * tiles * width * size,
                        few.ctypes.data + j * width * size,
                        6 * width * size,
                        width // step,
                    )
                for i in range(4):
                    _result_forms(
                        gradient,
                        few.ctypes.data + i * 6 * width * size,
                        width * size,
                        values.ctypes.data + i * 4 * width * size,
                        width * size,
                        width // step,
                    )
                _write_tile(plan, first + t, channel, wanted, width, values, result, bad)


@parallel_loop
def work_parallel(
    threads: int,
    counter: Any,
    plan: Plan,
    filter_points: Any,
    gradient: Any,
    result: Any,
    bad: Any,
) -> None:
    """Have `threads` threads work."""
    for _ in prange(threads):
        work(counter, plan, filter_points, gradient, result, bad)
