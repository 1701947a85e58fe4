"""Depthwise convolutions: a way of their own, through rows of pixels at constant distances."""

import numpy as np
import pytest
from accuracy import DTYPES, assert_close, draw
from hypothesis import given, settings
from hypothesis import strategies as st

from numba_gradops import _dtypes, _reference, conv2d_backprop_input
from numba_gradops.cpu import _depthwise, _threads

# Parts of a vector, one, two and more of them, in any dtype and on any processor.
CHANNELS = (2, 3, 4, 7, 8, 16, 17, 32, 35, 64, 65)
FLOATS = [name for name in _dtypes.CONV2D if not name.startswith("int")]


@st.composite
def depthwise(draws):
    """Draw the keyword arguments of a call, some of whose numbers may not be finite."""
    small, pad = st.integers(1, 5), st.integers(0, 6)
    sides, outs, window, strides, dilations, pads = [], [], [], [], [], []
    for _ in range(2):
        k, stride, dilation = draws(small), draws(small), draws(small)
        before, after = draws(pad), draws(pad)
        span = (k - 1) * dilation + 1
        smallest = max(1, span - before - after)
        size = draws(st.integers(smallest, smallest + 20))
        sides.append(size)
        outs.append((size + before + after - span) // stride + 1)
        window.append(k)
        strides.append(stride)
        dilations.append(dilation)
        pads.append([before, after])
    channels, batch = draws(st.sampled_from(CHANNELS)), draws(st.integers(1, 3))
    rng = np.random.default_rng(draws(st.integers(0, 2**32 - 1)))
    dtype = DTYPES[draws(st.sampled_from(FLOATS))]
    arguments = {
        "input_sizes": [batch, *sides, channels],
        "filter": draw(rng, (*window, 1, channels), dtype),
        "out_backprop": draw(rng, (batch, *outs, channels), dtype),
        "strides": [1, *strides, 1],
        "padding": [[0, 0], *pads, [0, 0]],
        "dilations": [1, *dilations, 1],
    }
    for name in ("filter", "out_backprop"):
        if draws(st.booleans()):
            flat = arguments[name].reshape(-1)
            flat[rng.integers(flat.size)] = draws(st.sampled_from([np.nan, np.inf]))
    return arguments


@given(depthwise())
@settings(max_examples=200)
def test_any_depthwise_geometry(arguments):
    """Padding contributes nothing, whatever the weights."""
    with np.errstate(all="ignore"):
        exact = _reference.conv2d_backprop_input(**arguments)
    dtype, channels = arguments["filter"].dtype, arguments["input_sizes"][3]
    # Room around the result, which stays as it is.
    memory = np.full(exact.size + 2 * channels, 7, dtype)
    out = memory[channels:-channels].reshape(exact.shape)
    assert conv2d_backprop_input(**arguments, out=out) is out
    assert (memory[:channels] == 7).all()
    assert (memory[-channels:] == 7).all()
    assert_close(out, exact, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_threads, "SERIAL_BELOW", 0)
        again = conv2d_backprop_input(**arguments)
    np.testing.assert_array_equal(out.astype(float), again.astype(float))
    batch = arguments["input_sizes"][0]
    last = arguments | {
        "input_sizes": [1, *arguments["input_sizes"][1:]],
        "out_backprop": arguments["out_backprop"][batch - 1 :],
    }
    alone = conv2d_backprop_input(**last)
    np.testing.assert_array_equal(out[-1:].astype(float), alone.astype(float))


@pytest.mark.parametrize("channels", [5, 40])
def test_nothing_around_gradient_and_filter_is_read(rng, channels):
    """What would be read there is NaN."""
    shapes = {"filter": (3, 3, 1, channels), "out_backprop": (2, 9, 11, channels)}
    arguments = {"input_sizes": [2, 9, 11, channels], "strides": [1, 1, 1, 1], "padding": "SAME"}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        memory = np.full(size + 400, np.nan, np.float32)
        memory[200:-200] = draw(rng, size, np.dtype(np.float32))
        arguments[name] = memory[200:-200].reshape(shape)
    result = conv2d_backprop_input(**arguments)
    exact = _reference.conv2d_backprop_input(**arguments)
    assert_close(result, exact, np.dtype(np.float32))


def test_long_sums_and_many_classes_are_left_to_others(rng):
    """Their sums need totals, or their lists would be long."""
    for side, stride in ((17, 1), (3, 17)):
        arguments = {
            "input_sizes": [1, 40, 40, 8],
            "filter": draw(rng, (side, side, 1, 8), np.dtype(np.float32)),
            "out_backprop": draw(rng, (1, -(-40 // stride), -(-40 // stride), 8), np.dtype("f4")),
            "strides": [1, stride, stride, 1],
            "padding": "SAME",
        }
        result = conv2d_backprop_input(**arguments)
        assert_close(result, _reference.conv2d_backprop_input(**arguments), np.dtype(np.float32))
    assert _depthwise._MOST_TAPS < 17 * 17
    assert _depthwise._MOST_CLASSES < 17 * 17


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("rows", [1, 3])
def test_few_long_rows_are_cut_for_several_threads(rng, monkeypatch, rows, stride):
    """Where they are cut changes no bit."""
    cols = 5003
    arguments = {
        "input_sizes": [1, rows, cols, 32],
        "filter": draw(rng, (1, 9, 1, 32), np.dtype("f4")),
        "out_backprop": draw(rng, (1, -(-rows // stride), -(-cols // stride), 32), np.dtype("f4")),
        "strides": [1, stride, stride, 1],
        "padding": "SAME",
    }
    plans = []
    plan_of = _depthwise._plan
    monkeypatch.setattr(_depthwise, "_plan", lambda *a: plans.append(plan_of(*a)) or plans[-1])
    cut = conv2d_backprop_input(**arguments)
    monkeypatch.setattr(_depthwise, "_PART_BYTES", 2**40)
    whole = conv2d_backprop_input(**arguments)
    assert [plan.tasks for plan in plans][1] == rows < 16 < plans[0].tasks
    np.testing.assert_array_equal(cut.view(np.uint32), whole.view(np.uint32))
    assert_close(cut, _reference.conv2d_backprop_input(**arguments), np.dtype("f4"))
