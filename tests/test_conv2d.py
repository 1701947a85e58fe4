"""conv2d_backprop_input against the float64 reference, over everything that can vary."""

import numpy as np
import pytest
from accuracy import DTYPES, assert_close, draw
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import convolutions

from numba_gradops import _dtypes, _reference, conv2d_backprop_input
from numba_gradops.cpu import _threads, _tiled_loops, _vectors

# Documented bounds of the error over the largest exact value.
WINOGRAD = {"float32": 3e-5, "float64": 1e-13}

EXPLICIT = {"NHWC": [[0, 0], [2, 1], [0, 3], [0, 0]], "NCHW": [[0, 0], [0, 0], [2, 1], [0, 3]]}


def sides(rows, cols, window, strides, dilations, padding):
    """Give the gradient's two sides, for rows and columns apart."""
    result = []
    for at, size in enumerate((rows, cols)):
        span = (window[at] - 1) * dilations[at] + 1
        extra = 0
        if padding == "SAME":
            result.append(-(-size // strides[at]))
            continue
        if padding != "VALID":
            extra = sum(((2, 1), (0, 3))[at])
        result.append(max(0, (size + extra - span) // strides[at] + 1))
    return result


def call(rng, dtype, data_format, padding, channels, outputs, group_in, **geometry):
    """Draw data for one call; return its keyword arguments."""
    batch, rows, cols = 2, 9, 7
    window = geometry.get("window", (3, 2))
    strides, dilations = geometry.get("strides", (1, 1)), geometry.get("dilations", (1, 1))
    out = sides(rows, cols, window, strides, dilations, padding)
    arguments = {
        "input_sizes": [batch, rows, cols, channels],
        "filter": draw(rng, (*window, group_in, outputs), dtype),
        "out_backprop": draw(rng, (batch, *out, outputs), dtype),
        "strides": [1, *strides, 1],
        "dilations": [1, *dilations, 1],
        "padding": EXPLICIT[data_format] if padding == "EXPLICIT" else padding,
        "data_format": data_format,
    }
    if data_format == "NCHW":
        arguments["out_backprop"] = np.ascontiguousarray(
            arguments["out_backprop"].transpose(0, 3, 1, 2)
        )
        for name in ("input_sizes", "strides", "dilations"):
            n, h, w, c = arguments[name]
            arguments[name] = [n, c, h, w]
    return arguments


def check(arguments, **extra):
    result = conv2d_backprop_input(**arguments, **extra)
    exact = _reference.conv2d_backprop_input(**arguments)
    assert_close(result, exact, arguments["filter"].dtype)


@pytest.mark.parametrize("padding", ["SAME", "VALID", "EXPLICIT"])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", _dtypes.CONV2D)
@pytest.mark.parametrize(
    ("channels", "outputs", "group_in"),
    [(11, 5, 11), (3, 9, 3), (1, 1, 1), (18, 6, 9), (12, 24, 1), (10, 10, 1), (4, 8, 2)],
)
def test_every_dtype_layout_and_padding(
    rng, dtype, data_format, padding, channels, outputs, group_in
):
    check(call(rng, DTYPES[dtype], data_format, padding, channels, outputs, group_in))


@pytest.mark.parametrize("padding", ["SAME", "VALID", "EXPLICIT"])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dilations", [(1, 1), (2, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (1, 3), (2, 2), (4, 3)])
@pytest.mark.parametrize(("channels", "group_in"), [(9, 9), (2, 2), (8, 1)])
def test_every_stride_and_dilation(
    rng, strides, dilations, data_format, padding, channels, group_in
):
    arguments = call(
        rng,
        np.dtype(np.float32),
        data_format,
        padding,
        channels,
        8,
        group_in,
        strides=strides,
        dilations=dilations,
    )
    check(arguments)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Note which loops are used."""
    seen: set[str] = set()
    original = _threads.run

    def spy(loop, tasks, work, arguments, scratch=0):
        plan = next((a for a in arguments if isinstance(a, tuple)), None)
        module = loop.py_func.__module__.rpartition(".")[2]
        seen.add(f"{module} {type(plan).__name__}" if plan else module)
        original(loop, tasks, work, arguments, scratch)

    monkeypatch.setattr(_threads, "run", spy)
    return seen


WIDE, NARROW = -1, -2  # one vector of channels more than a whole number of wide tiles, or less


def channels_for(kind: int, size: int) -> int:
    """Give a number of channels that takes full tiles of a kind, whatever the width of vectors."""
    wide = _tiled_loops.width_of(_tiled_loops.Wide, size)
    narrow = _tiled_loops.width_of(_tiled_loops.Narrow, size)
    return 2 * wide - 1 if kind == WIDE else wide + narrow - 1


def made_for_these_vectors(way: str, group_in: int, outs: int, size: int) -> bool:
    """Tell whether a kind of tile is one for the width that is compiled for."""
    if "Grouped" in way:
        return group_in < _vectors.lanes(size)
    return "Terms" not in way or _tiled_loops.by_terms(group_in, 9 * outs, size)


@pytest.mark.parametrize(
    ("channels", "group_in", "outs", "way"),
    [
        (WIDE, WIDE, 24, "_tiled_loops Wide"),
        (NARROW, NARROW, 24, "_tiled_loops Narrow"),
        (1, 1, 160, "_tiled_loops Terms1"),
        (2, 2, 160, "_tiled_loops Terms2"),
        (6, 3, 160, "_tiled_loops Terms3"),
        (4, 4, 160, "_tiled_loops Terms4"),
        (5, 5, 160, "_tiled_loops Terms4"),
        (40, 1, 40, "_tiled_loops Grouped1"),
        (44, 2, 44, "_tiled_loops Grouped2"),
        (44, 4, 44, "_tiled_loops Grouped4"),
        (40, 8, 40, "_tiled_loops Grouped8"),
        (40, 1, 80, "_tiled_loops Terms1"),
        (3, 3, 2, "_exact_loops"),
    ],
)
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", ["SAME", "VALID", "EXPLICIT"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_each_kind_of_loop_is_taken_and_right(
    rng, ways, channels, group_in, outs, way, data_format, padding, dtype
):
    size = _dtypes.accumulator(DTYPES[dtype]).itemsize
    if channels in {WIDE, NARROW}:
        channels = group_in = channels_for(channels, size)
    arguments = call(
        rng, DTYPES[dtype], data_format, padding, channels, outs, group_in, window=(3, 3)
    )
    result = conv2d_backprop_input(**arguments)
    if way.endswith("Grouped1") and data_format == "NHWC":
        way = "_depthwise_loops Plan"
    if made_for_these_vectors(way, group_in, outs * group_in // channels, size):
        assert way in ways
    assert_close(result, _reference.conv2d_backprop_input(**arguments), DTYPES[dtype])


@settings(max_examples=300)
@given(convolutions())
def test_arbitrary_small_geometries(arguments):
    check(arguments)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_two_sizes_take_the_rest_from_the_arrays(rng, data_format):
    full = call(rng, np.dtype(np.float32), data_format, "SAME", 5, 4, 5, strides=(2, 1))
    short = full | {"input_sizes": [9, 7]}
    np.testing.assert_array_equal(conv2d_backprop_input(**short), conv2d_backprop_input(**full))


@pytest.mark.parametrize("algorithm", ["auto", "direct"])
@pytest.mark.parametrize("channels", [16, 37, 2])
def test_long_sums_stay_within_the_documented_error(rng, algorithm, channels):
    """4608 products of one sign: a plain float32 sum would drift past the bound."""
    arguments = {
        "input_sizes": [1, 12, 11, channels],
        "filter": rng.uniform(0.5, 1.5, (3, 3, channels, 512)).astype(np.float32),
        "out_backprop": rng.uniform(0.5, 1.5, (1, 12, 11, 512)).astype(np.float32),
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
    }
    result = conv2d_backprop_input(**arguments, algorithm=algorithm)
    exact = _reference.conv2d_backprop_input(**arguments)
    bound = 3e-6 if algorithm == "direct" or channels < 32 else WINOGRAD["float32"]
    assert np.abs(result - exact).max() <= bound * np.abs(exact).max()


@pytest.mark.parametrize("channels", [32, 16, 2])
@pytest.mark.parametrize("outs", [9000, 20011])
def test_very_long_sums_are_carried_to_grand_totals(channels, outs):
    """Equal terms are the worst case: rounding errors of a plain sum all have the same sign."""
    arguments = {
        "input_sizes": [1, 5, 5, channels],
        "filter": np.full((2, 3, channels, outs), 0.1, np.float32),
        "out_backprop": np.full((1, 5, 5, outs), 0.7, np.float32),
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
    }
    result = conv2d_backprop_input(**arguments, algorithm="direct")
    exact = _reference.conv2d_backprop_input(**arguments)
    assert np.abs(result - exact).max() <= 3e-6 * np.abs(exact).max()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("channels", "group_in"), [(9, 9), (2, 2), (8, 1)])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_value_that_is_not_finite_reaches_what_depends_on_it_only(
    rng, dtype, channels, group_in, value
):
    arguments = call(
        rng, DTYPES[dtype], "NHWC", "SAME", channels, 8, group_in, window=(3, 3), strides=(2, 1)
    )
    for name, at in (("filter", (0, 2, 0, 3)), ("out_backprop", (1, 2, 3, 4))):
        spoiled = arguments | {name: arguments[name].copy()}
        spoiled[name][at] = value
        check(spoiled)
        result = conv2d_backprop_input(**spoiled)
        assert not np.isfinite(result.astype(np.float64)).all()
        assert np.isfinite(result.astype(np.float64)).any()


@pytest.mark.parametrize("channels", [9, 2])
@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3, 5, 7, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pixels_that_nothing_reaches_lie_between_others(rng, stride, dilation, outputs, channels):
    """Large dilations and few gradients leave holes in a row, also at both ends of a group."""
    arguments = {
        "filter": rng.standard_normal((2, 3, channels, 2)).astype(np.float32),
        "out_backprop": rng.standard_normal((40, outputs, outputs, 2)).astype(np.float32),
        "strides": [1, stride, stride, 1],
        "dilations": [1, dilation, dilation, 1],
        "padding": "VALID",
    }
    rows, cols = ((outputs - 1) * stride + (k - 1) * dilation + 1 for k in (2, 3))
    check(arguments | {"input_sizes": [40, rows, cols, channels]})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_a_batch_that_is_copied_in_several_passes(rng, dtype, data_format):
    """Gradients of another layout or dtype are copied a few images at a time, 8 MiB together."""
    images, rows, cols = 3, 500, 600
    gradient = draw(rng, (images, rows, cols, 8), DTYPES[dtype])
    sizes, strides = [images, rows, cols, 5], [1, 1, 1, 1]
    if data_format == "NCHW":
        gradient, sizes = gradient.transpose(0, 3, 1, 2), [images, 5, rows, cols]
    arguments = {
        "input_sizes": sizes,
        "filter": draw(rng, (1, 1, 5, 8), DTYPES[dtype]),
        "out_backprop": gradient,
        "strides": strides,
        "padding": "SAME",
        "data_format": data_format,
    }
    check(arguments)
    spoiled = arguments["filter"].copy()
    spoiled[0, 0, 0, 0] = np.inf  # the exact loops
    check(arguments | {"filter": spoiled})


def test_taps_in_the_padding_are_never_multiplied(rng):
    weights = rng.standard_normal((3, 3, 9, 2)).astype(np.float32)
    weights[0] = np.nan  # with one row, padding 1 and one gradient row: only row 1 counts
    weights[2] = np.inf
    gradient = rng.standard_normal((1, 1, 6, 2)).astype(np.float32)
    for inner in (9, 2):
        result = conv2d_backprop_input(
            [1, 1, 6, inner], weights[:, :, :inner], gradient, [1, 1, 1, 1], "SAME"
        )
        assert np.isfinite(result).all()


@pytest.mark.parametrize("dtype", _dtypes.CONV2D)
@pytest.mark.parametrize(
    ("sizes", "filter_shape", "gradient_shape", "padding", "strides"),
    [
        ((0, 4, 5, 2), (3, 3, 2, 3), (0, 4, 5, 3), "SAME", (1, 1)),
        ((2, 0, 5, 2), (3, 3, 2, 3), (2, 0, 5, 3), "SAME", (1, 1)),
        ((2, 4, 0, 2), (3, 3, 2, 3), (2, 4, 0, 3), "SAME", (1, 1)),
        ((2, 4, 5, 0), (3, 3, 2, 3), (2, 4, 5, 3), "SAME", (1, 1)),
        ((2, 4, 5, 2), (3, 3, 2, 0), (2, 4, 5, 0), "SAME", (1, 1)),
        ((2, 4, 5, 2), (0, 3, 2, 3), (2, 5, 3, 3), "VALID", (1, 1)),
        ((2, 4, 5, 2), (3, 0, 2, 3), (2, 2, 6, 3), "VALID", (1, 1)),
        ((3, 1, 1, 2), (1, 3, 2, 3), (3, 1, 0, 3), "VALID", (1, 2)),
    ],
)
def test_empty_arrays_give_zeros_or_an_empty_result(
    dtype, sizes, filter_shape, gradient_shape, padding, strides
):
    result = conv2d_backprop_input(
        sizes,
        np.ones(filter_shape, DTYPES[dtype]),
        np.ones(gradient_shape, DTYPES[dtype]),
        (1, *strides, 1),
        padding,
    )
    assert result.shape == sizes
    assert result.dtype == DTYPES[dtype]
    assert not result.astype(np.float64).any()


@pytest.mark.parametrize("window", [(24, 24), (64, 64)])
@pytest.mark.parametrize("channels", [1, 40])
@pytest.mark.parametrize("finite", [True, False], ids=["tiles", "exact loops"])
def test_sums_over_large_filters_do_not_drift(window, channels, finite):
    """Constant numbers: every rounding error has the same sign."""
    weights = np.full((*window, 1, channels), 0.1, np.float32)
    gradient = np.full((1, *window, channels), 0.1, np.float32)
    sizes = [1, *(2 * k - 1 for k in window), channels]
    if not finite:  # a tap that no checked element depends on
        weights[0, 0] = np.inf
    result = conv2d_backprop_input(sizes, weights, gradient, [1, 1, 1, 1], "VALID")
    middle = result[0, window[0] - 1, window[1] - 1]
    if finite:
        exact = np.float64(np.float32(0.1)) ** 2 * window[0] * window[1]
        assert (np.abs(middle - exact) <= 3e-6 * exact).all()
    else:
        assert np.isinf(middle).all()
        exact = np.float64(np.float32(0.1)) ** 2
        assert np.abs(result[0, -1, -1] - exact).max() <= 1e-6 * exact


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_summed_in_float32_and_rounded_once(dtype):
    """A sum in halves would stop growing at 2048, or 256."""
    ones = np.ones((1, 1, 8, 4097), DTYPES[dtype])
    gradient = np.ones((1, 3, 3, 4097), DTYPES[dtype])
    for weights in (ones, ones[:, :, :2]):
        result = conv2d_backprop_input(
            [1, 3, 3, weights.shape[2]], weights, gradient, [1, 1, 1, 1], "VALID"
        )
        assert (result == np.float64(4097).astype(DTYPES[dtype])).all()


def test_float16_overflows_to_infinity_without_a_warning():
    big = np.full((1, 1, 1, 2), 60000, np.float16)
    result = conv2d_backprop_input([1, 1, 1, 1], big, big, [1, 1, 1, 1], "VALID")
    assert result.item() == np.inf


def test_int32_wraps_around():
    weights = np.full((1, 1, 1, 3), 2**30, np.int32)
    gradient = np.array([3, 1, 2**31 - 1], np.int32).reshape(1, 1, 1, 3)
    result = conv2d_backprop_input([1, 1, 1, 1], weights, gradient, [1, 1, 1, 1], "VALID")
    expected = (2**30 * (3 + 1 + 2**31 - 1) + 2**31) % 2**32 - 2**31
    assert result.item() == expected


def test_subnormal_numbers_are_kept():
    tiny = np.full((1, 1, 1, 1), 1e-42, np.float32)
    one = np.ones((1, 1, 1, 1), np.float32)
    assert conv2d_backprop_input([1, 1, 1, 1], one, tiny, [1, 1, 1, 1], "VALID") == tiny


@pytest.mark.parametrize(
    ("stride", "dilation"),
    [(2**31 - 1, 1), (2**30, 1), (1, 2**31 - 1), (2**31 - 1, 2**31 - 1), (2, 2**31 - 2)],
)
def test_strides_and_dilations_near_two_to_the_31(rng, stride, dilation):
    for channels in (9, 2):
        size = 5
        arguments = {
            "input_sizes": [1, size, size, channels],
            "filter": draw(rng, (3, 3, channels, 4), np.float64),
            "out_backprop": draw(rng, (1, -(-size // stride), -(-size // stride), 4), np.float64),
            "strides": [1, stride, stride, 1],
            "dilations": [1, dilation, dilation, 1],
            "padding": "SAME",
        }
        check(arguments)


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_an_images_result_does_not_depend_on_its_neighbours(batch, seed):
    rng = np.random.default_rng(seed)
    for group_in, channels in ((9, 9), (3, 3), (1, 8)):
        arguments = call(rng, np.dtype(np.float32), "NHWC", "SAME", channels, 8, group_in)
        gradient = np.concatenate([arguments["out_backprop"]] * batch)
        together = conv2d_backprop_input(
            **arguments | {"input_sizes": [2 * batch, 9, 7, channels], "out_backprop": gradient}
        )
        for image in range(2 * batch):
            alone = conv2d_backprop_input(
                **arguments
                | {
                    "input_sizes": [1, 9, 7, channels],
                    "out_backprop": gradient[image : image + 1],
                }
            )
            np.testing.assert_array_equal(alone[0], together[image])
