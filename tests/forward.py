"""The forward passes whose gradients the package computes, in plain float64 NumPy.

Written to be read: each output element is gathered from the inputs it depends on. A gradient is
right exactly when it is the transpose of these, which no kernel of the package was made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Padding = str | Sequence[Sequence[int]]


def conv2d(
    images: NDArray[np.generic],
    filter: NDArray[np.generic],
    strides: Sequence[int],
    padding: Padding,
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> NDArray[np.float64]:
    """Convolve as TensorFlow does; more channels than the filter is deep means groups."""
    if data_format == "NCHW":
        pairs = padding if isinstance(padding, str) else [padding[i] for i in (0, 2, 3, 1)]
        last = [[of[i] for i in (0, 2, 3, 1)] for of in (strides, dilations)]
        result = conv2d(images.transpose(0, 2, 3, 1), filter, last[0], pairs, "NHWC", last[1])
        return result.transpose(0, 3, 1, 2)
    batch, rows, cols, channels = images.shape
    taps = filter.astype(np.float64)
    f_rows, f_cols, group_in, out_channels = taps.shape
    groups = channels // group_in
    top, bottom = pad_amounts(rows, f_rows, strides[1], dilations[1], padding, axis=1)
    left, right = pad_amounts(cols, f_cols, strides[2], dilations[2], padding, axis=2)
    padded = np.pad(images.astype(np.float64), [(0, 0), (top, bottom), (left, right), (0, 0)])
    out_rows = output_size(padded.shape[1], f_rows, strides[1], dilations[1])
    out_cols = output_size(padded.shape[2], f_cols, strides[2], dilations[2])
    result = np.zeros((batch, out_rows, out_cols, out_channels))
    for f_r in range(f_rows):
        for f_c in range(f_cols):
            y = f_r * dilations[1] + strides[1] * np.arange(out_rows)
            x = f_c * dilations[2] + strides[2] * np.arange(out_cols)
            seen = padded[:, y[:, None], x].reshape(batch, out_rows, out_cols, groups, group_in)
            tap = taps[f_r, f_c].reshape(group_in, groups, out_channels // groups)
            result += np.einsum("nrcgi,igo->nrcgo", seen, tap).reshape(result.shape)
    return result


def pad_amounts(
    size: int, window: int, stride: int, dilation: int, padding: Padding, axis: int
) -> tuple[int, int]:
    """Zeros before and after one axis; SAME puts the odd one after."""
    if not isinstance(padding, str):
        before, after = padding[axis]
        return int(before), int(after)
    if padding == "VALID":
        return 0, 0
    outputs = -(-size // stride)
    missing = max(0, (outputs - 1) * stride + (window - 1) * dilation + 1 - size)
    return missing // 2, missing - missing // 2


def output_size(padded_size: int, window: int, stride: int, dilation: int) -> int:
    """How many windows fit into a padded axis."""
    return max(0, (padded_size - (window - 1) * dilation - 1) // stride + 1)


def fractional_avg_pool(
    value: NDArray[np.generic],
    row_pooling_sequence: Sequence[int],
    col_pooling_sequence: Sequence[int],
    overlapping: bool = False,
) -> NDArray[np.float64]:
    """Average each cell between two neighbours of the sequences, the last edge included or not."""
    batch, height, width, channels = value.shape
    rows = cells(row_pooling_sequence, height, overlapping)
    cols = cells(col_pooling_sequence, width, overlapping)
    result = np.empty((batch, len(rows), len(cols), channels))
    for r, row_cell in enumerate(rows):
        for c, col_cell in enumerate(cols):
            result[:, r, c] = value[:, row_cell, col_cell].mean(axis=(1, 2), dtype=np.float64)
    return result


def cells(sequence: Sequence[int], size: int, overlapping: bool) -> list[slice]:
    """The input positions of each output position, along one axis."""
    past = 1 if overlapping else 0
    return [slice(first, min(following + past, size)) for first, following in pairwise(sequence)]


def pooling_sequence(rng: np.random.Generator, size: int, outputs: int) -> list[int]:
    """Draw what TensorFlow's forward pass could draw: steps of size // outputs or one more."""
    steps = np.full(outputs, size // outputs)
    steps[: size % outputs] += 1
    return [0, *np.cumsum(rng.permutation(steps)).tolist()]
