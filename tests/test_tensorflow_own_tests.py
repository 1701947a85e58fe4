"""TensorFlow's own tests of the two gradients, replayed from tests/data/tf_tests.json."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import forward
import golden
import numpy as np
import pytest
from numpy.typing import NDArray

import numba_gradops

ENTRIES = golden.tensorflow_tests()
Entry = dict[str, Any]


def named(entry: Entry) -> str:
    """TensorFlow's method and where it stands in the file, as one method may be several entries."""
    method = entry["test"].split(".")[-1].replace(" ", "-")
    return f"{ENTRIES.index(entry)}-{method}"


def each(kind: str) -> pytest.MarkDecorator:
    entries = [entry for entry in ENTRIES if entry["kind"] == kind]
    return pytest.mark.parametrize("entry", entries, ids=named)


def in_format(data_format: str, values: Sequence[Any]) -> list[Any]:
    """Put one value per dimension, given in NHWC order, into data_format order."""
    return [values[i] for i in ((0, 1, 2, 3) if data_format == "NHWC" else (0, 3, 1, 2))]


def geometry(entry: Entry, data_format: str) -> dict[str, Any]:
    """The arguments that are lists over dimensions, from the height and width of the entry."""
    padding = entry["padding"]
    if not isinstance(padding, str):
        padding = in_format(data_format, [[0, 0], *padding, [0, 0]])
    return {
        "strides": in_format(data_format, [1, *entry["strides_hw"], 1]),
        "dilations": in_format(data_format, [1, *entry.get("dilations_hw", [1, 1]), 1]),
        "padding": padding,
        "data_format": data_format,
    }


def transposed(data_format: str, nhwc: NDArray[Any]) -> NDArray[Any]:
    return nhwc if data_format == "NHWC" else nhwc.transpose(0, 3, 1, 2)


def test_every_entry_is_there() -> None:
    assert len(ENTRIES) == 74
    assert Counter(entry["kind"] for entry in ENTRIES) == {
        "numbers": 47,
        "adjoint_of_forward_conv": 14,
        "dilated_equals_upsampled_filter": 1,
        "error": 7,
        "equals_avg_pool_grad": 2,
        "adjoint_of_forward_fractional_avg_pool": 3,
    }


def number_calls() -> Iterator[Any]:
    for entry in ENTRIES:
        if entry["kind"] == "numbers":
            for data_format, dtype in product(entry["data_formats"], entry["dtypes"]):
                name = f"{named(entry)}-{data_format}-{dtype}"
                yield pytest.param(entry, data_format, dtype, id=name)


@pytest.mark.parametrize(("entry", "data_format", "dtype"), list(number_calls()))
def test_numbers_asserted_by_tensorflow(entry: Entry, data_format: str, dtype: str) -> None:
    def filled(name: str) -> NDArray[Any]:
        fill = entry[f"{name}_fill"].replace("arange1", "arange")
        return golden.array(dtype, entry[f"{name}_shape"], fill)

    sizes, weights = entry["input_sizes"], filled("filter")
    spatial_only = len(sizes) == 2
    result = numba_gradops.conv2d_backprop_input(
        input_sizes=sizes if spatial_only else in_format(data_format, sizes),
        filter=weights,
        out_backprop=transposed(data_format, filled("out_backprop")),
        **geometry(entry, data_format),
    )
    if spatial_only:
        sizes = [entry["out_backprop_shape"][0], *sizes, weights.shape[2]]
    expected = transposed(data_format, np.array(entry["expected_nhwc"], dtype).reshape(sizes))
    np.testing.assert_allclose(result, expected, rtol=0, atol=entry["tolerance"], strict=True)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@each("adjoint_of_forward_conv")
def test_gradient_is_the_transposed_convolution(entry: Entry, data_format: str) -> None:
    """TensorFlow estimates the Jacobian; as both passes are linear it can be had exactly.

    A batch of all unit images gives the Jacobian of the forward pass row by row, and a batch of
    all unit gradients gives that of the backward pass column by column.
    """
    arguments = geometry(entry, data_format)
    weights = fractions(
        *entry["filter_hw"], entry["in_depth"] // entry["groups"], entry["out_depth"]
    )
    image = tuple(in_format(data_format, [1, *entry["input_hw"], entry["in_depth"]])[1:])
    passed = forward.conv2d(units(image), weights, **arguments)
    jacobian = passed.reshape(math.prod(image), -1)
    result = numba_gradops.conv2d_backprop_input(
        [jacobian.shape[1], *image],
        weights.astype(np.float32),
        units(passed.shape[1:]).astype(np.float32),
        **arguments,
    )
    np.testing.assert_allclose(result.reshape(jacobian.T.shape), jacobian.T, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@each("adjoint_of_forward_conv")
def test_convolution_and_gradient_agree_on_inner_products(entry: Entry, data_format: str) -> None:
    arguments = geometry(entry, data_format)
    weights = fractions(
        *entry["filter_hw"], entry["in_depth"] // entry["groups"], entry["out_depth"]
    )
    images = transposed(
        data_format, fractions(entry["batch"], *entry["input_hw"], entry["in_depth"])
    )
    passed = forward.conv2d(images, weights, **arguments)
    gradient = np.random.default_rng(1).standard_normal(passed.shape)
    result = numba_gradops.conv2d_backprop_input(images.shape, weights, gradient, **arguments)
    np.testing.assert_allclose(np.vdot(images, result), np.vdot(passed, gradient), rtol=1e-12)


def fractions(*shape: int) -> NDArray[np.float64]:
    """TensorFlow's fill of its gradient tests: the element's number over the element count."""
    size = math.prod(shape)
    return (np.arange(size) / size).reshape(shape)


def units(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """One array for each position, 1 there and 0 elsewhere, stacked along a new first axis."""
    return np.eye(math.prod(shape)).reshape(-1, *shape)


def dilation_grid() -> Iterator[Any]:
    (entry,) = (entry for entry in ENTRIES if entry["kind"] == "dilated_equals_upsampled_filter")
    names = ("widths", "kernel_heights", "kernel_widths", "rates", "paddings")
    for values in product(*(entry[name] for name in names)):
        yield pytest.param(entry, *values, id="w{}-k{}x{}-rate{}-{}".format(*values))


@pytest.mark.parametrize(
    ("entry", "width", "f_rows", "f_cols", "rate", "padding"), list(dilation_grid())
)
def test_dilation_equals_a_filter_with_zeros_between_its_taps(
    entry: Entry, width: int, f_rows: int, f_cols: int, rate: int, padding: str
) -> None:
    weights = golden.array("float32", [f_rows, f_cols, 2, 2], "arange", start=0)
    gradient = golden.array("float32", [2, entry["height"], width, 2], "arange", start=0)
    spread = np.zeros(((f_rows - 1) * rate + 1, (f_cols - 1) * rate + 1, 2, 2), np.float32)
    spread[::rate, ::rate] = weights
    rows, cols = entry["height"], width
    if padding == "VALID":
        rows, cols = rows + spread.shape[0] - 1, cols + spread.shape[1] - 1
    dilated, upsampled = (
        numba_gradops.conv2d_backprop_input(
            [2, rows, cols, 2],
            taps,
            gradient,
            strides=[1, 1, 1, 1],
            padding=padding,
            dilations=dilations,
        )
        for taps, dilations in ((weights, [1, rate, rate, 1]), (spread, [1, 1, 1, 1]))
    )
    np.testing.assert_allclose(dilated, upsampled, rtol=entry["rtol"], atol=entry["atol"])


@each("error")
def test_call_refused_by_tensorflow_is_refused(entry: Entry) -> None:
    expected = tuple(golden.EXCEPTIONS[name] for name in entry["expect"])
    with pytest.raises(expected, match=r"must"):
        getattr(numba_gradops, entry["op"])(**golden.build(entry["args"]))


def window_grid() -> Iterator[Any]:
    names = ("batches", "row_windows", "col_windows", "channels")
    for entry in ENTRIES:
        if entry["kind"] == "equals_avg_pool_grad":
            for values in product(*(entry[name] for name in names)):
                name = "{}-b{}-w{}x{}-c{}".format(named(entry), *values)
                yield pytest.param(entry, *values, id=name)


@pytest.mark.parametrize(("entry", "batch", "tall", "wide", "channels"), list(window_grid()))
def test_regular_cells_give_the_gradient_of_plain_average_pooling(
    entry: Entry, batch: int, tall: int, wide: int, channels: int
) -> None:
    out_rows, out_cols = 5, 7
    shared = 1 if entry["overlapping"] else 0
    down, right = tall - shared, wide - shared
    rows, cols = out_rows * down + shared, out_cols * right + shared
    rng = np.random.default_rng(2)
    gradient = rng.uniform(0, 1000, (batch, out_rows, out_cols, channels))
    expected = np.zeros((batch, rows, cols, channels))
    for r, c in product(range(out_rows), range(out_cols)):
        cell = np.s_[:, r * down : r * down + tall, c * right : c * right + wide]
        expected[cell] += gradient[:, r, None, c, None] / (tall * wide)
    result = numba_gradops.fractional_avg_pool_grad(
        expected.shape,
        gradient,
        # The last entry is the image's edge, where an overlapping cell ends as well.
        [*range(0, out_rows * down, down), rows],
        [*range(0, out_cols * right, right), cols],
        entry["overlapping"],
    )
    np.testing.assert_allclose(result, expected, rtol=0, atol=entry["tolerance"])


def pooled_shapes() -> Iterator[Any]:
    for entry in ENTRIES:
        if entry["kind"] == "adjoint_of_forward_fractional_avg_pool":
            for shape, overlapping in product(entry["input_shapes"], [False, True]):
                name = f"{named(entry)}-{'x'.join(map(str, shape))}-{overlapping}"
                yield pytest.param(entry, shape, overlapping, id=name)


@pytest.mark.parametrize(("entry", "shape", "overlapping"), list(pooled_shapes()))
def test_gradient_is_the_transposed_pooling(
    entry: Entry, shape: list[int], overlapping: bool
) -> None:
    rng = np.random.default_rng(3)
    ratios = [math.sqrt(int(ratio.removeprefix("sqrt"))) for ratio in entry["pooling_ratio_hw"]]
    batch, *size, channels = shape
    rows, cols = (
        forward.pooling_sequence(rng, extent, int(extent / ratio))
        for extent, ratio in zip(size, ratios, strict=True)
    )
    passed = forward.fractional_avg_pool(units((*size, 1)), rows, cols, overlapping)
    jacobian = passed.reshape(math.prod(size), -1)
    gradients = units(passed.shape[1:])
    result = numba_gradops.fractional_avg_pool_grad(
        [len(gradients), *size, 1], gradients, rows, cols, overlapping
    )
    np.testing.assert_allclose(result.reshape(jacobian.T.shape), jacobian.T, rtol=1e-15)

    images = rng.standard_normal(shape)
    passed = forward.fractional_avg_pool(images, rows, cols, overlapping)
    gradient = rng.standard_normal((batch, *passed.shape[1:3], channels))
    result = numba_gradops.fractional_avg_pool_grad(shape, gradient, rows, cols, overlapping)
    np.testing.assert_allclose(np.vdot(images, result), np.vdot(passed, gradient), rtol=1e-12)
