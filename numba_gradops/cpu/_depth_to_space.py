"""Strided layers with few channels, seen as layers of stride 1 with many.

A result of stride s is cut into blocks of s x s pixels. Seen as one pixel with s x s times as many
channels, a block meets the same gradients for all of its elements: the layer becomes one of
stride 1 with a smaller filter, whose channels fill vectors; only the last step, from depth to
space, is its own (`_depth_to_space_loops`). Element a, b of a block meets tap k, l of the smaller
filter with the weight of tap ``k * s + a, l * s + b``; that is 0 where the filter ends before.

Such a zero times an infinite or NaN gradient would make NaN: rows of results that are not finite
are noted, and computed again by the exact loops.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._geometry import Axis, Conv2D
from ._tiled_loops import by_terms
from ._vectors import lanes


class Space(NamedTuple):
    """The blocks that a result is cut into."""

    rows: int  # of a block: the stride
    cols: int
    channels: int  # of a pixel of the result
    height: int  # of the result
    width: int
    above: int  # rows of the first blocks that lie outside the result
    before: int  # columns
    padded: int  # 1: some weights are zeros that the filter does not have


NO_SPACE = Space(0, 0, 0, 0, 0, 0, 0, 0)

# Strides along both axes together, at most: what a block has too much is computed for nothing.
_MOST_STRIDES = 1024

# Costs in processor cycles, fitted to measurements: of a pixel or a block, for each two vectors of
# its channels and for each vector that is copied from depth to space; of a block in any case; of a
# pixel of a stride class, which has tables of its own; of a pixel whose terms lie along vectors,
# for each of its channels too.
_TWO_VECTORS, _COPIED, _BLOCK, _CLASS = 60, 10, 100, 30
_BY_TERMS, _CHANNEL = 25, 15
# And of ordering the weights, which the images of a batch share; one is assumed.
_CALL = 100_000


def _costs_less(geometry: Conv2D, smaller: Conv2D, size: int) -> bool:
    """Compare the cycles that the blocks and the pixels of an image take."""
    step, channels, terms = lanes(size), geometry.channels, geometry.out_channels
    strides = geometry.rows.stride * geometry.cols.stride
    products = geometry.rows.window * geometry.cols.window * terms / strides
    if by_terms(channels, int(products), size):
        pixel = _BY_TERMS + _CHANNEL * channels + 0.75 * products * channels / step
    else:
        vectors = -(-channels // step)
        pixel = products * vectors / 2 + _TWO_VECTORS * -(-vectors // 2) + _CLASS
    vectors = -(-smaller.channels // step)
    block = smaller.rows.window * smaller.cols.window * terms * vectors / 2
    block += _TWO_VECTORS * -(-vectors // 2) + _COPIED * vectors + _BLOCK
    blocks = smaller.rows.input * smaller.cols.input
    return _CALL + blocks * block < geometry.rows.input * geometry.cols.input * pixel


def _axis(axis: Axis) -> tuple[Axis, int]:
    """Give the axis of the blocks, and how much of the first block lies outside."""
    outside, first = axis.pad % axis.stride, axis.pad // axis.stride
    blocks = -(-(axis.input + outside) // axis.stride)
    window = -(-axis.window // axis.stride)
    return Axis(blocks, axis.output, window, 1, 1, first, 1, 1, 0), outside


@lru_cache(maxsize=256)
def as_blocks(geometry: Conv2D, size: int) -> tuple[Conv2D, Space] | None:
    """Give the layer of stride 1, if that is faster; by shapes and dtype alone."""
    rows, cols, channels = geometry.rows, geometry.cols, geometry.channels
    strides = rows.stride * cols.stride
    if geometry.groups > 1 or rows.dilation > 1 or cols.dilation > 1:
        return None
    if not 1 < strides <= _MOST_STRIDES or rows.stride > rows.window or cols.stride > cols.window:
        return None
    (block_rows, above), (block_cols, before) = _axis(rows), _axis(cols)
    smaller = geometry._replace(channels=strides * channels, rows=block_rows, cols=block_cols)
    whole = block_rows.window * rows.stride, block_cols.window * cols.stride
    padded = int(whole != (rows.window, cols.window))
    if not _costs_less(geometry, smaller, size):
        return None
    return smaller, Space(
        rows.stride, cols.stride, channels, rows.input, cols.input, above, before, padded
    )


def regrouped(weights: NDArray[Any], space: Space, *, channels_last: bool) -> NDArray[Any]:
    """Give the smaller filter; a block's channels are ordered as the result's memory is."""
    rows, cols, channels, terms = weights.shape
    whole = -(-rows // space.rows) * space.rows, -(-cols // space.cols) * space.cols
    if space.padded:
        filled = np.zeros((*whole, channels, terms), weights.dtype)
        filled[:rows, :cols] = weights
        weights = filled
    cut = weights.reshape(
        whole[0] // space.rows, space.rows, whole[1] // space.cols, space.cols, channels, terms
    )
    order = (0, 2, 1, 3, 4, 5) if channels_last else (0, 2, 1, 4, 3, 5)
    depth = space.rows * space.cols * channels
    return cut.transpose(order).reshape(cut.shape[0], cut.shape[2], depth, terms)
