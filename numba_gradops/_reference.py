"""Both gradients in plain NumPy, float64, scatter form: what the kernels are checked against.

The kernels gather (each result element collects what reaches it); this file scatters (each
gradient element is spread to where it came from), and it derives padding by itself. The two
share no code and no idea, so a fault would have to be made twice to go unseen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def fractional_avg_pool_grad(
    orig_input_tensor_shape: Sequence[int],
    out_backprop: NDArray[np.generic],
    row_pooling_sequence: Sequence[int],
    col_pooling_sequence: Sequence[int],
    overlapping: bool = False,
) -> NDArray[np.float64]:
    """Spread each gradient evenly over its cell, before the cast to the result's dtype."""
    _, height, width, _ = orig_input_tensor_shape
    gradient = np.asarray(out_backprop).astype(np.float64)
    result = np.zeros(tuple(orig_input_tensor_shape))
    past = 1 if overlapping else 0
    for r in range(gradient.shape[1]):
        top = int(row_pooling_sequence[r])
        bottom = min(int(row_pooling_sequence[r + 1]) + past, height)
        for c in range(gradient.shape[2]):
            left = int(col_pooling_sequence[c])
            right = min(int(col_pooling_sequence[c + 1]) + past, width)
            if bottom > top and right > left:
                share = gradient[:, r, c] / ((bottom - top) * (right - left))
                result[:, top:bottom, left:right] += share[:, None, None]
    return result


def conv2d_backprop_input(
    input_sizes: Sequence[int],
    filter: NDArray[np.generic],
    out_backprop: NDArray[np.generic],
    strides: Sequence[int],
    padding: str | Sequence[Sequence[int]],
    data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> NDArray[np.float64]:
    """Spread each gradient pixel through the filter, one filter tap at a time."""
    height, width, depth = (1, 2, 3) if data_format == "NHWC" else (2, 3, 1)
    weights = np.asarray(filter).astype(np.float64)
    gradient = np.asarray(out_backprop).astype(np.float64)
    if data_format == "NCHW":
        gradient = gradient.transpose(0, 2, 3, 1)
    k_rows, k_cols, group_in, out_channels = weights.shape
    if len(input_sizes) == 2:
        (rows, cols), channels = input_sizes, group_in
    else:
        rows, cols, channels = input_sizes[height], input_sizes[width], input_sizes[depth]
    groups = channels // group_in
    group_out = out_channels // max(groups, 1)
    batch, out_rows, out_cols, _ = gradient.shape

    def before(size: int, window: int, axis: int) -> int:
        if padding == "SAME":
            stride, span = strides[axis], (window - 1) * dilations[axis] + 1
            return int(max(0, (-(-size // stride) - 1) * stride + span - size) // 2)
        return 0 if isinstance(padding, str) else int(padding[axis][0])

    top, left = before(rows, k_rows, height), before(cols, k_cols, width)
    result = np.zeros((batch, rows, cols, channels))
    with np.errstate(all="ignore"):
        for k in range(k_rows):
            y = np.arange(out_rows, dtype=object) * strides[height] + k * dilations[height] - top
            in_y = np.array([0 <= v < rows for v in y], dtype=bool)
            for m in range(k_cols):
                x = np.arange(out_cols, dtype=object) * strides[width] + m * dilations[width] - left
                in_x = np.array([0 <= v < cols for v in x], dtype=bool)
                if not (in_y.any() and in_x.any()):
                    continue
                at = np.ix_(range(batch), y[in_y].astype(np.intp), x[in_x].astype(np.intp))
                seen = gradient[:, in_y][:, :, in_x]
                for q in range(groups):
                    inner = slice(q * group_in, (q + 1) * group_in)
                    outer = slice(q * group_out, (q + 1) * group_out)
                    block = seen[..., outer] @ weights[k, m, :, outer].T
                    result[..., inner][at] += block
    return result.transpose(0, 3, 1, 2) if data_format == "NCHW" else result
