"""Winograd's algorithm: its bounds, its exactness where numbers are not finite, its refusals."""

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


@settings(max_examples=60)
@given(
    rows=st.integers(1, 14),
    cols=st.integers(1, 14),
    channels=st.integers(1, 70),
    vectors=st.integers(1, 3),
    padding=st.one_of(
        st.just("SAME"), st.tuples(*[st.integers(0, 4)] * 4).filter(lambda p: min(p) >= 0)
    ),
    dtype=st.sampled_from(DTYPES),
    data_format=st.sampled_from(["NHWC", "NCHW"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_size_and_padding(rows, cols, channels, vectors, padding, dtype, data_format, seed):
    rng = np.random.default_rng(seed)
    outs = 16 * vectors
    out = (rows, cols)
    pads = padding
    if padding != "SAME":
        top, bottom, left, right = padding
        out = (rows + top + bottom - 2, cols + left + right - 2)
        if min(out) < 1:
            return
        pads = [[0, 0], [top, bottom], [left, right], [0, 0]]
    gradient = rng.standard_normal((2, *out, outs)).astype(dtype)
    sizes = [2, rows, cols, channels]
    if data_format == "NCHW":
        gradient, sizes = gradient.transpose(0, 3, 1, 2), [2, channels, rows, cols]
        if padding != "SAME":
            pads = [pads[0], pads[3], pads[1], pads[2]]
    arguments = {
        "input_sizes": sizes,
        "filter": rng.standard_normal((3, 3, channels, outs)).astype(dtype),
        "out_backprop": gradient,
        "strides": [1, 1, 1, 1],
        "padding": pads,
        "data_format": data_format,
    }
    check(arguments, dtype)


DATA = {
    "one sign": lambda rng, shape: rng.uniform(0.5, 1.5, shape),
    "wide range": lambda rng, shape: rng.standard_normal(shape) * 10 ** rng.uniform(-6, 6, shape),
    "alternating": lambda _, shape: np.where(np.indices(shape).sum(0) % 2, 1.0, -1.0),
    "constant": lambda _, shape: np.full(shape, 1.1),
}


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("dtype", DTYPES)
def test_documented_bounds_hold_on_hard_data(rng, kind, dtype):
    arguments = {
        "input_sizes": [1, 17, 14, 64],
        "filter": DATA[kind](rng, (3, 3, 64, 256)).astype(dtype),
        "out_backprop": DATA[kind](rng, (1, 17, 14, 256)).astype(dtype),
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
    }
    check(arguments, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, "huge"])
@pytest.mark.parametrize("where", ["filter", "out_backprop"])
def test_what_is_not_finite_reaches_what_depends_on_it_only(rng, dtype, data_format, value, where):
    """The transforms would spread it over its tile, and overflow where the result does not."""
    arguments = call(rng, np.dtype(dtype), data_format, "SAME", 40, 32, 40, window=(3, 3))
    spoiled = arguments[where].copy()
    place = (1, 3, 2, 5) if where == "out_backprop" and data_format == "NHWC" else None
    place = place or ((1, 5, 3, 2) if where == "out_backprop" else (0, 2, 7, 9))
    spoiled[place] = np.finfo(dtype).max / 8 if value == "huge" else value
    result = check(arguments | {where: spoiled}, dtype)
    if value != "huge":
        assert not np.isfinite(result).all()
    assert np.isfinite(result).any()


def test_it_is_faster_only_where_it_may_be_used(rng):
    for change, text in (
        ({"window": (3, 2)}, "needs a 3x3 filter, got 3x2"),
        ({"window": (3, 3), "strides": (1, 2)}, "needs strides and dilations of 1"),
        ({"window": (3, 3), "dilations": (2, 1)}, "needs strides and dilations of 1"),
    ):
        arguments = call(rng, np.dtype("f4"), "NHWC", "SAME", 8, 32, 8, **change)
        with pytest.raises(ValueError, match=f"algorithm='winograd' {text}"):
            conv2d_backprop_input(**arguments, algorithm="winograd")
    for dtype, channels, outs, group_in, text in (
        ("f2", 8, 32, 8, "needs dtype float32 or float64, got float16"),
        ("i4", 8, 32, 8, "needs dtype float32 or float64, got int32"),
        ("f4", 8, 32, 4, "needs one group, got 2"),
        ("f4", 8, 33, 8, "needs a multiple of .* output channels, got 33"),
    ):
        arguments = call(
            rng, np.dtype(dtype), "NHWC", "SAME", channels, outs, group_in, window=(3, 3)
        )
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
        ([1, 2, 2, 1], "auto", 1),
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
