"""Strided layers with few channels, computed as blocks of their results."""

import numpy as np
import pytest
from accuracy import DTYPES, assert_close, draw
from hypothesis import given, settings
from poison import poisoned
from strategies import convolutions

from numba_gradops import _geometry, _reference, conv2d_backprop_input
from numba_gradops.cpu import _depth_to_space, _exact, _threads, _tiled, conv2d

FIRST_LAYERS = [  # sizes, window, out channels, strides, padding
    ((2, 37, 45, 3), (11, 11), 16, (4, 4), "VALID"),
    ((2, 33, 30, 3), (7, 7), 16, (2, 2), "SAME"),
    ((1, 20, 22, 1), (3, 5), 24, (2, 3), "SAME"),
    ((2, 32, 32, 3), (16, 16), 40, (16, 16), "VALID"),
    ((1, 40, 40, 21), (16, 16), 21, (8, 8), "SAME"),
    ((3, 9, 31, 5), (1, 6), 33, (1, 3), "SAME"),
]


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Take blocks wherever they are possible, and cut even small calls into tasks."""
    monkeypatch.setattr(_depth_to_space, "_costs_less", lambda *_: True)
    monkeypatch.setattr(_tiled, "_TOO_LITTLE_WORK", 0)
    monkeypatch.setattr(_threads, "SERIAL_BELOW", 0)
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget():
    _depth_to_space.as_blocks.cache_clear()
    _tiled.plans.cache_clear()
    conv2d._ways.cache_clear()


def call(rng, layer, data_format, dtype):
    sizes, window, outs, strides, padding = layer
    sides = [
        -(-size // step) if padding == "SAME" else (size - tap) // step + 1
        for size, tap, step in zip(sizes[1:3], window, strides, strict=True)
    ]
    gradient = draw(rng, (sizes[0], *sides, outs), dtype)
    steps = (1, *strides, 1)
    if data_format == "NCHW":
        gradient = np.ascontiguousarray(gradient.transpose(0, 3, 1, 2))
        sizes, steps = ((v[0], v[3], v[1], v[2]) for v in (sizes, steps))
    return {
        "input_sizes": sizes,
        "filter": draw(rng, (*window, layer[0][3], outs), dtype),
        "out_backprop": gradient,
        "strides": steps,
        "padding": padding,
        "data_format": data_format,
    }


@pytest.mark.parametrize("layer", FIRST_LAYERS)
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_blocks_are_taken_and_right(rng, monkeypatch, layer, data_format, dtype):
    taken = []
    original = _tiled.regrouped
    monkeypatch.setattr(_tiled, "regrouped", lambda *a, **k: taken.append(1) or original(*a, **k))
    arguments = call(rng, layer, data_format, DTYPES[dtype])
    out = poisoned(arguments["input_sizes"], DTYPES[dtype])
    result = conv2d_backprop_input(**arguments, out=out)
    assert taken
    assert_close(result, _reference.conv2d_backprop_input(**arguments), DTYPES[dtype])


@given(convolutions(("float32", "float64", "float16")))
@settings(max_examples=200, deadline=None)
def test_any_call_is_right(arguments):
    result = conv2d_backprop_input(**arguments, algorithm="direct")
    dtype = result.dtype
    with np.errstate(all="ignore"):
        assert_close(result, _reference.conv2d_backprop_input(**arguments), dtype)


@pytest.mark.parametrize("layer", FIRST_LAYERS)
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_what_depends_on_it(rng, layer, data_format, value):
    arguments = call(rng, layer, data_format, np.dtype(np.float32))
    gradient = arguments["out_backprop"]
    for _ in range(3):
        gradient[tuple(rng.integers(0, size) for size in gradient.shape)] = value
    with np.errstate(invalid="ignore"):
        exact = _reference.conv2d_backprop_input(**arguments)
    assert_close(conv2d_backprop_input(**arguments), exact, np.float32)


def test_rows_are_computed_again_only_where_zeros_were_added(rng, monkeypatch):
    again = []
    monkeypatch.setattr(_exact, "compute_rows", lambda _, rows, *__: again.append(rows.tolist()))
    for layer in FIRST_LAYERS:
        arguments = call(rng, layer, "NHWC", np.dtype(np.float32))
        conv2d_backprop_input(**arguments)
        assert not again
        arguments["out_backprop"][-1, 0, 0, 0] = np.nan
        conv2d_backprop_input(**arguments)
        whole = all(w % s == 0 for w, s in zip(layer[1], layer[3], strict=True))
        assert bool(again) != whole
        again.clear()


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_an_image_does_not_depend_on_its_neighbours(rng, data_format):
    arguments = call(rng, FIRST_LAYERS[0], data_format, np.dtype(np.float32))
    arguments["out_backprop"][0, 1, 1, 1] = np.nan
    both = conv2d_backprop_input(**arguments)
    arguments["input_sizes"] = (1, *arguments["input_sizes"][1:])
    gradient = arguments.pop("out_backprop")
    for image in (0, 1):
        one = conv2d_backprop_input(**arguments, out_backprop=gradient[image : image + 1])
        np.testing.assert_array_equal(one[0], both[image])


def test_a_result_of_another_memory_order_keeps_all_rows(rng):
    arguments = call(rng, FIRST_LAYERS[0], "NHWC", np.dtype(np.float32))
    arguments["out_backprop"][0, 1, 1, 1] = np.inf
    out = np.asfortranarray(poisoned(arguments["input_sizes"], np.float32))
    conv2d_backprop_input(**arguments, out=out)
    np.testing.assert_array_equal(out, conv2d_backprop_input(**arguments))


def test_blocks_follow_the_padding():
    rows = _geometry._axis("rows", 10, 5, 5, 2, 1, (1, 2))
    blocks, outside = _depth_to_space._axis(rows)
    # Result element y is element (y + 1) % 2 of block (y + 1) // 2: eleven places, six blocks.
    assert (blocks.input, blocks.window, blocks.pad, outside) == (6, 3, 0, 1)
    rows = _geometry._axis("rows", 10, 5, 5, 2, 1, (3, 0))
    blocks, outside = _depth_to_space._axis(rows)
    assert (blocks.input, blocks.window, blocks.pad, outside) == (6, 3, 1, 1)
