"""Hypothesis strategies of whole calls: any geometry that fits, any dtype, unequal sides."""

from typing import Any

import numpy as np
from accuracy import DTYPES, draw
from hypothesis import strategies as st

from numba_gradops import _dtypes


@st.composite
def convolutions(draws: Any, dtypes: tuple[str, ...] = _dtypes.CONV2D) -> dict[str, Any]:
    """Draw the keyword arguments of a legal call of conv2d_backprop_input."""
    small = st.integers(1, 4)
    groups = draws(st.integers(1, 9))
    group_in, group_out = draws(st.integers(1, 10)), draws(small)
    batch = draws(st.integers(1, 3))
    word = draws(st.sampled_from(["SAME", "VALID", "EXPLICIT"]))
    sides, outs, window, strides, dilations, pads = [], [], [], [], [], []
    for _ in range(2):
        k, stride, dilation = draws(small), draws(small), draws(small)
        before, after = draws(st.integers(0, 5)), draws(st.integers(0, 5))
        span = (k - 1) * dilation + 1
        if word != "EXPLICIT":
            before = after = 0
        smallest = 1 if word == "SAME" else max(1, span - before - after)
        size = draws(st.integers(smallest, smallest + 12))
        out = -(-size // stride) if word == "SAME" else (size + before + after - span) // stride + 1
        for values, value in (
            (sides, size),
            (outs, out),
            (window, k),
            (strides, stride),
            (dilations, dilation),
            (pads, [before, after]),
        ):
            values.append(value)
    rng = np.random.default_rng(draws(st.integers(0, 2**32 - 1)))
    dtype = DTYPES[draws(st.sampled_from(dtypes))]
    channels = groups * group_in
    arguments: dict[str, Any] = {
        "input_sizes": [batch, *sides, channels],
        "filter": draw(rng, (*window, group_in, groups * group_out), dtype),
        "out_backprop": draw(rng, (batch, *outs, groups * group_out), dtype),
        "strides": [1, *strides, 1],
        "padding": [[0, 0], *pads, [0, 0]] if word == "EXPLICIT" else word,
        "data_format": "NHWC",
        "dilations": [1, *dilations, 1],
    }
    if draws(st.booleans()):
        arguments["data_format"] = "NCHW"
        arguments["out_backprop"] = arguments["out_backprop"].transpose(0, 3, 1, 2)
        for name in ("input_sizes", "strides", "dilations", "padding"):
            if not isinstance(arguments[name], str):
                n, h, w, c = arguments[name]
                arguments[name] = [n, c, h, w]
    return arguments


@st.composite
def sequences(draws: Any, legal: bool = True) -> tuple[int, list[int]]:
    """Draw a side and a pooling sequence: as the forward op makes them, or any TensorFlow takes."""
    if legal:
        steps = draws(st.lists(st.integers(1, 4), min_size=1, max_size=6))
        sequence = [0, *np.cumsum(steps).tolist()]
        return sequence[-1], sequence
    entries = st.integers(1, 14)
    sequence = draws(st.lists(entries, min_size=2, max_size=7))
    return draws(st.integers(1, 12)), [draws(st.integers(0, 5)), *sequence]


@st.composite
def poolings(
    draws: Any, dtypes: tuple[str, ...] = _dtypes.POOL, legal: bool = True
) -> dict[str, Any]:
    """Draw the keyword arguments of a call of fractional_avg_pool_grad."""
    (rows, row_sequence), (cols, col_sequence) = draws(sequences(legal)), draws(sequences(legal))
    batch, depth = draws(st.integers(1, 3)), draws(st.integers(1, 5))
    rng = np.random.default_rng(draws(st.integers(0, 2**32 - 1)))
    dtype = DTYPES[draws(st.sampled_from(dtypes))]
    shape = (batch, len(row_sequence) - 1, len(col_sequence) - 1, depth)
    return {
        "orig_input_tensor_shape": [batch, rows, cols, depth],
        "out_backprop": draw(rng, shape, dtype),
        "row_pooling_sequence": row_sequence,
        "col_pooling_sequence": col_sequence,
        "overlapping": draws(st.booleans()),
    }
