"""Anything at all as an argument: a right result, or one of three exceptions; nothing else."""

import datetime
import decimal
import warnings
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from accuracy import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from strategies import convolutions, poolings

from numba_gradops import (
    _reference,
    conv2d_backprop_input,
    fractional_avg_pool_grad,
    raw_ops,
)

ALLOWED = (ValueError, TypeError, MemoryError, NotImplementedError)


class Hostile:
    """Raises wherever it is touched."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def __len__(self):
        raise KeyError("len")

    def __iter__(self):
        raise OSError("iter")

    def __eq__(self, other):
        raise ArithmeticError("eq")

    def __hash__(self):
        return 0

    def __repr__(self):
        return "Hostile"


class ThrowingList(list):
    """A list that is not to be looked at."""

    def __len__(self):
        raise KeyError("len")

    def __iter__(self):
        raise OSError("iter")

    __getitem__ = __iter__


class ThrowingText(str):
    __slots__ = ()

    def __eq__(self, other):
        raise ArithmeticError("eq")

    def __repr__(self):
        raise RuntimeError("repr")

    __hash__ = str.__hash__


class Endless(list):
    """A list that lies about its length."""

    def __len__(self):
        return 4


class BadIndex:
    def __index__(self):
        raise OverflowError("index")


def recursive():
    """A list that contains itself."""
    result: list[Any] = []
    result.append(result)
    return result


INTEGERS = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**32 + 4, 2**63 - 1, 2**63, -(2**63), 10**30]),
    st.integers(),
)
ODD_DTYPES = st.one_of(
    arrays.scalar_dtypes(),
    st.sampled_from(
        [
            np.dtype(ml_dtypes.bfloat16),
            np.dtype(ml_dtypes.float8_e4m3fn),
            np.dtype(ml_dtypes.int4),
            np.dtype([("a", "f4"), ("b", "i4")]),
            np.dtype("V7"),
            np.dtype("O"),
            np.dtype("U3"),
        ]
    ),
)


@st.composite
def odd_arrays(draws: Any) -> np.ndarray:
    shape = draws(arrays.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=4))
    return np.zeros(shape, draws(ODD_DTYPES))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    INTEGERS,
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=6),
    st.binary(max_size=6),
    st.sampled_from(["SAME", "VALID", "EXPLICIT", "NHWC", "NCHW", b"SAME", np.str_("VALID")]),
    st.sampled_from([Fraction(1, 2), decimal.Decimal(3), datetime.date(2000, 1, 1), np.float32(2)]),
    st.sampled_from([np.bool_(True), np.int8(-1), np.uint64(2**64 - 1), np.datetime64("NaT", "s")]),
    st.builds(Hostile),
    st.builds(BadIndex),
    st.builds(object),
)
ANYTHING = st.one_of(
    SCALARS,
    odd_arrays(),
    st.lists(INTEGERS, max_size=6),
    st.lists(INTEGERS, min_size=4, max_size=4),
    st.lists(st.lists(INTEGERS, max_size=3), max_size=5),
    st.tuples(SCALARS, SCALARS, SCALARS, SCALARS),
    st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=10),
    st.builds(range, st.integers(-3, 5), st.integers(-3, 2**70), st.integers(2**40, 2**69)),
    st.dictionaries(st.integers(0, 3), st.integers(0, 3), max_size=4),
    st.frozensets(st.integers(0, 9), max_size=4),
    st.builds(recursive),
    st.builds(ThrowingList, st.lists(st.integers(0, 4), min_size=4, max_size=4)),
    st.builds(ThrowingText, st.sampled_from(["SAME", "VALID", "NHWC", ""])),
    st.builds(Endless, st.lists(st.integers(0, 4), max_size=2)),
    st.builds(memoryview, st.binary(max_size=5)),
    st.builds(iter, st.lists(st.integers(0, 3))),
)

CONV_NAMES = (
    "input_sizes", "filter", "out_backprop", "strides", "padding", "use_cudnn_on_gpu",
    "data_format", "dilations", "name", "filters", "algorithm", "out",
)  # fmt: skip
POOL_NAMES = (
    "orig_input_tensor_shape", "out_backprop", "row_pooling_sequence", "col_pooling_sequence",
    "overlapping", "name", "out",
)  # fmt: skip


def survives(function, reference, arguments):
    """Call; if it returns, compare with the reference where that can be asked."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = function(**arguments)
    except ALLOWED:
        return
    assert isinstance(result, np.ndarray)
    plain = {k: v for k, v in arguments.items() if k in reference.__code__.co_varnames}
    if all(isinstance(v, list | str | np.ndarray | bool) for v in plain.values()):
        exact = reference(**plain)
        assert_close(result, np.trunc(exact) if result.dtype.kind == "i" else exact, result.dtype)


@settings(max_examples=400)
@given(convolutions(), st.dictionaries(st.sampled_from(CONV_NAMES), ANYTHING, min_size=1))
def test_convolution_with_anything_in_place_of_some_arguments(arguments, changes):
    survives(conv2d_backprop_input, _reference.conv2d_backprop_input, arguments | changes)


@settings(max_examples=400)
@given(poolings(), st.dictionaries(st.sampled_from(POOL_NAMES), ANYTHING, min_size=1))
def test_pooling_with_anything_in_place_of_some_arguments(arguments, changes):
    survives(fractional_avg_pool_grad, _reference.fractional_avg_pool_grad, arguments | changes)


@settings(max_examples=300)
@given(st.fixed_dictionaries(dict.fromkeys(CONV_NAMES, ANYTHING)))
def test_convolution_of_nothing_but_anything(arguments):
    survives(conv2d_backprop_input, _reference.conv2d_backprop_input, arguments)


@settings(max_examples=300)
@given(st.fixed_dictionaries(dict.fromkeys(POOL_NAMES, ANYTHING)))
def test_pooling_of_nothing_but_anything(arguments):
    survives(fractional_avg_pool_grad, _reference.fractional_avg_pool_grad, arguments)


@settings(max_examples=200)
@given(
    convolutions(),
    st.fixed_dictionaries(
        {"padding": SCALARS | st.just("EXPLICIT"), "explicit_paddings": ANYTHING}
    ),
)
def test_raw_convolution_with_any_padding(arguments, changes):
    survives(raw_ops.Conv2DBackpropInput, _reference.conv2d_backprop_input, arguments | changes)


SIZES = st.lists(INTEGERS, min_size=4, max_size=4)


@settings(max_examples=400)
@given(
    sizes=st.one_of(SIZES, st.lists(INTEGERS, min_size=2, max_size=2)),
    filter_shape=arrays.array_shapes(min_dims=4, max_dims=4, min_side=0, max_side=3),
    gradient_shape=arrays.array_shapes(min_dims=4, max_dims=4, min_side=0, max_side=3),
    strides=SIZES,
    dilations=SIZES,
    padding=st.one_of(
        st.sampled_from(["SAME", "VALID"]),
        st.lists(st.lists(INTEGERS, min_size=2, max_size=2), min_size=4, max_size=4),
    ),
    data_format=st.sampled_from(["NHWC", "NCHW"]),
)
def test_convolution_with_integers_of_any_size(
    sizes, filter_shape, gradient_shape, strides, dilations, padding, data_format
):
    arguments = {
        "input_sizes": sizes,
        "filter": np.ones(filter_shape, np.float32),
        "out_backprop": np.ones(gradient_shape, np.float32),
        "strides": strides,
        "dilations": dilations,
        "padding": padding,
        "data_format": data_format,
    }
    survives(conv2d_backprop_input, _reference.conv2d_backprop_input, arguments)


@settings(max_examples=400)
@given(
    shape=SIZES,
    gradient_shape=arrays.array_shapes(min_dims=4, max_dims=4, min_side=0, max_side=3),
    rows=st.lists(INTEGERS, max_size=5),
    cols=st.lists(INTEGERS, max_size=5),
    overlapping=st.booleans(),
)
def test_pooling_with_integers_of_any_size(shape, gradient_shape, rows, cols, overlapping):
    arguments = {
        "orig_input_tensor_shape": shape,
        "out_backprop": np.ones(gradient_shape, np.float32),
        "row_pooling_sequence": rows,
        "col_pooling_sequence": cols,
        "overlapping": overlapping,
    }
    survives(fractional_avg_pool_grad, _reference.fractional_avg_pool_grad, arguments)
