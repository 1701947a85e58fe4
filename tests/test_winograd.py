"""Winograd's algorithm: its bounds, its exactness where numbers are not finite, its refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conv2d import WINOGRAD, call

from numba_gradops import _reference, conv2d_backprop_input
from numba_gradops.cpu import _winograd

DTYPES = ["float32", "float64"]


def check(arguments, dtype, bound=1.0):
    result = conv2d_backprop_input(**arguments, algorithm="winograd")
    exact = _reference.conv2d_backprop_input(**arguments)
    assert result.dtype == np.dtype(dtype)
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(np.isfinite(result), finite)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
    error = np.abs(result[finite] - exact[finite]).max()
    assert error <= bound * WINOGRAD[dtype] * np.abs(exact[finite]).max()
    return result


@st.composite
def axes(draws):
    """Draw what Winograd can compute along an axis: 1 to 3 taps of each stride class."""
    stride = draws(st.sampled_from([1, 1, 2, 3]))
    dilation = draws(st.sampled_from([d for d in (1, 1, 2, 3, 5) if math.gcd(d, stride) == 1]))
    window = draws(st.integers(stride, 3 * stride))
    before, after = draws(st.integers(0, 4)), draws(st.integers(0, 4))
    span = (window - 1) * dilation + 1
    size = draws(st.integers(max(1, span - before - after), max(1, span - before - after) + 13))
    return size, window, stride, dilation, (before, after)


@settings(max_examples=100)
@given(
    rows=axes(),
    cols=axes(),
    channels=st.integers(1, 70),
    outs=st.integers(1, 50),
    same=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    data_format=st.sampled_from(["NHWC", "NCHW"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_geometry(rows, cols, channels, outs, same, dtype, data_format, seed):
    rng = np.random.default_rng(seed)
    sides, window, strides, dilations, pads = zip(rows, cols, strict=True)
    out = [-(-size // stride) for size, stride in zip(sides, strides, strict=True)]
    if not same:
        out = [
            (size + sum(pad) - (k - 1) * dilation - 1) // stride + 1
            for size, k, stride, dilation, pad in (rows, cols)
        ]
    arguments = {
        "input_sizes": [2, *sides, channels],
        "filter": rng.standard_normal((*window, channels, outs)).astype(dtype),
        "out_backprop": rng.standard_normal((2, *out, outs)).astype(dtype),
        "strides": [1, *strides, 1],
        "dilations": [1, *dilations, 1],
        "padding": "SAME" if same else [[0, 0], *pads, [0, 0]],
        "data_format": data_format,
    }
    if data_format == "NCHW":
        arguments["out_backprop"] = arguments["out_backprop"].transpose(0, 3, 1, 2)
        for name in ("input_sizes", "strides", "dilations", "padding"):
            if arguments[name] != "SAME":
                n, h, w, c = arguments[name]
                arguments[name] = [n, c, h, w]
    check(arguments, dtype)


DATA = {
    "one sign": lambda rng, shape: rng.uniform(0.5, 1.5, shape),
    "wide range": lambda rng, shape: rng.standard_normal(shape) * 10 ** rng.uniform(-6, 6, shape),
    "alternating": lambda _, shape: np.where(np.indices(shape).sum(0) % 2, 1.0, -1.0),
    "constant": lambda _, shape: np.full(shape, 1.1),
}


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("window", "stride"), [((3, 3), 1), ((2, 3), 1), ((4, 5), 2)])
def test_documented_bounds_hold_on_hard_data(rng, kind, dtype, window, stride):
    out = -(-17 // stride), -(-14 // stride)
    arguments = {
        "input_sizes": [1, 17, 14, 64],
        "filter": DATA[kind](rng, (*window, 64, 256)).astype(dtype),
        "out_backprop": DATA[kind](rng, (1, *out, 256)).astype(dtype),
        "strides": [1, stride, stride, 1],
        "padding": "SAME",
    }
    check(arguments, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, "huge"])
@pytest.mark.parametrize("where", ["filter", "out_backprop"])
@pytest.mark.parametrize("geometry", [{}, {"strides": (2, 1)}, {"dilations": (1, 2)}])
def test_what_is_not_finite_reaches_what_depends_on_it_only(
    rng, dtype, data_format, value, where, geometry
):
    """The transforms would spread it over its tile, and overflow where the result does not."""
    arguments = call(
        rng, np.dtype(dtype), data_format, "SAME", 40, 32, 40, window=(3, 3), **geometry
    )
    spoiled = arguments[where].copy()
    place = (1, 3, 2, 5) if where == "out_backprop" and data_format == "NHWC" else None
    place = place or ((1, 5, 3, 2) if where == "out_backprop" else (0, 2, 7, 9))
    spoiled[place] = np.finfo(dtype).max / 8 if value == "huge" else value
    result = check(arguments | {where: spoiled}, dtype)
    if value != "huge":
        assert not np.isfinite(result).all()
    assert np.isfinite(result).any()


def test_what_it_cannot_compute_is_refused(rng):
    for change, text in (
        ({"window": (4, 3)}, "needs 1 to 3 filter rows for a row stride of 1, got 4"),
        ({"window": (3, 7), "strides": (1, 2)}, "needs 2 to 6 filter columns .* of 2, got 7"),
        ({"window": (3, 1), "strides": (1, 2)}, "needs 2 to 6 filter columns .* of 2, got 1"),
        (
            {"window": (3, 3), "strides": (2, 1), "dilations": (2, 1)},
            "needs a row stride and dilation without a common factor",
        ),
        ({"window": (17, 3), "strides": (17, 1)}, "needs strides of at most 16, got 17"),
    ):
        arguments = call(rng, np.dtype("f4"), "NHWC", "SAME", 8, 32, 8, **change)
        with pytest.raises(ValueError, match=f"algorithm='winograd' {text}"):
            conv2d_backprop_input(**arguments, algorithm="winograd")
    for dtype, group_in, text in (
        ("f2", 8, "needs dtype float32 or float64, got float16"),
        ("i4", 8, "needs dtype float32 or float64, got int32"),
        ("f4", 4, "needs one group, got 2"),
    ):
        arguments = call(rng, np.dtype(dtype), "NHWC", "SAME", 8, 32, group_in, window=(3, 3))
        with pytest.raises(ValueError, match=f"algorithm='winograd' {text}"):
            conv2d_backprop_input(**arguments, algorithm="winograd")


def test_auto_takes_it_where_it_pays(rng, monkeypatch):
    taken = []
    original = _winograd.compute
    monkeypatch.setattr(_winograd, "compute", lambda call: taken.append(1) or original(call))
    weights = rng.standard_normal((3, 3, 64, 64)).astype(np.float32)
    gradient = rng.standard_normal((1, 28, 28, 64)).astype(np.float32)
    for strides, algorithm, expected in (
        ([1, 1, 1, 1], "auto", 1),
        ([1, 1, 1, 1], "direct", 1),
    ):
        outs = gradient[:, :: strides[1], :: strides[2]]
        conv2d_backprop_input([1, 28, 28, 64], weights, outs, strides, "SAME", algorithm=algorithm)
        assert len(taken) == expected


def test_auto_does_not_look_at_the_batch(rng):
    """An image's result would otherwise depend on how many are computed with it."""
    weights = rng.standard_normal((3, 3, 48, 64)).astype(np.float32)
    gradient = rng.standard_normal((9, 8, 9, 64)).astype(np.float32)
    together = conv2d_backprop_input([9, 8, 9, 48], weights, gradient, [1, 1, 1, 1], "SAME")
    for image in range(9):
        alone = conv2d_backprop_input(
            [1, 8, 9, 48], weights, gradient[image : image + 1], [1, 1, 1, 1], "SAME"
        )
        np.testing.assert_array_equal(alone[0], together[image])
