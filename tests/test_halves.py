"""float16 and bfloat16 in convolutions: widened when read, rounded once when stored."""

import numpy as np
import pytest
from accuracy import DTYPES
from hypothesis import given, settings
from strategies import convolutions

from numba_gradops import conv2d_backprop_input

ALL = np.arange(2**16, dtype=np.uint16)
# Input channels and groups for which lanes are input channels (one or two vectors, and a part of
# one), output channels, and channels of groups.
FORMS = ((37, 1), (12, 1), (3, 1), (40, 40))


def rounded(values, dtype):
    """Round float32 to the nearest half, ties to even."""
    with np.errstate(all="ignore"):
        return values.astype(dtype)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_is_read_and_every_product_rounded_right(dtype, data_format):
    """A product of two halves is a float32; with one term it is all there is to round."""
    values = ALL.view(DTYPES[dtype])
    largest = np.finfo(np.float32).max if dtype == "bfloat16" else 65504.0
    factors = np.array([1, -1, 1.0078125, 1.3, 0.0117, 2.0**-14, 2.0**9, largest])
    for channels, groups in FORMS:
        weights = rounded(np.resize(factors, (1, 1, channels // groups, groups)), DTYPES[dtype])
        # Some pixels beyond a multiple of a tile's, and of a vector's.
        gradient = np.resize(values, (1, 331, 199, 1))
        gradient = np.ascontiguousarray(np.broadcast_to(gradient, (1, 331, 199, groups)))
        sizes, order = [1, 331, 199, channels], (0, 1, 2, 3)
        if data_format == "NCHW":
            order = (0, 3, 1, 2)
            gradient = np.ascontiguousarray(gradient.transpose(order))
            sizes = [1, channels, 331, 199]
        with np.errstate(all="ignore"):
            result = conv2d_backprop_input(
                sizes, weights, gradient, [1, 1, 1, 1], "VALID", data_format=data_format
            )
            by = weights.reshape(1, 1, 1, channels).astype(np.float32).transpose(order)
            exact = rounded(np.float32(0) + gradient.astype(np.float32) * by, DTYPES[dtype])
        number = ~np.isnan(exact)
        assert np.isnan(result[~number]).all()
        np.testing.assert_array_equal(result[number].view(np.uint16), exact[number].view(np.uint16))


@given(convolutions(("float16", "bfloat16")))
@settings(max_examples=60)
def test_halves_are_computed_as_float32_is(arguments):
    names = "filter", "out_backprop"
    wide = arguments | {name: arguments[name].astype(np.float32) for name in names}
    exact = conv2d_backprop_input(**wide, algorithm="direct")
    result = conv2d_backprop_input(**arguments)
    np.testing.assert_array_equal(result, rounded(exact, result.dtype))
