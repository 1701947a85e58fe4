"""One test for each error text: which argument, what was expected, what was given."""

import numpy as np
import pytest

from numba_gradops import (
    conv2d_backprop_input,
    fractional_avg_pool_grad,
    raw_ops,
    show_config,
    warmup,
)

F32 = np.float32
CONV = {
    "input_sizes": [1, 4, 6, 2],
    "filter": np.ones((3, 3, 2, 3), F32),
    "out_backprop": np.ones((1, 4, 6, 3), F32),
    "strides": [1, 1, 1, 1],
    "padding": "SAME",
}
POOL = {
    "orig_input_tensor_shape": [1, 4, 6, 2],
    "out_backprop": np.ones((1, 2, 3, 2), F32),
    "row_pooling_sequence": [0, 2, 4],
    "col_pooling_sequence": [0, 2, 4, 6],
}
HUGE = 2**62


class Unreadable:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no")


class UnknownShape:
    def as_list(self):
        raise ValueError("as_list() is not defined on an unknown TensorShape")


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        # sizes
        ({"input_sizes": None}, TypeError, "input_sizes must be integers in a list.*got None"),
        ({"input_sizes": "1462"}, TypeError, "input_sizes must be integers.*got str '1462'"),
        ({"input_sizes": 4}, ValueError, "input_sizes must be one-dimensional.*got 0 dimensions"),
        ({"input_sizes": [1, 4, 6]}, ValueError, "input_sizes must have 4 or 2 entries.*got 3"),
        ({"input_sizes": [[1, 4], [6, 2]]}, ValueError, "input_sizes must be one-dimensional"),
        (
            {"input_sizes": [1, [4], 6, 2]},
            ValueError,
            "input_sizes must be a list of integers or a rectangular nest",
        ),
        ({"input_sizes": [1, 4.0, 6, 2]}, TypeError, "every entry of input_sizes .* got float 4.0"),
        ({"input_sizes": np.array([1.0, 4, 6, 2])}, TypeError, "input_sizes must hold integers"),
        (
            {"input_sizes": np.ma.array([1, 4, 6, 2])},
            TypeError,
            "input_sizes must not be a masked array",
        ),
        ({"input_sizes": [1, 2**70, 6, 2]}, ValueError, "an entry of input_sizes must fit in 64"),
        ({"input_sizes": [1, 10**5000, 6, 2]}, ValueError, "got int of 16610 bits"),
        (
            {"input_sizes": np.array([1, 2**63, 6, 2], np.uint64)},
            ValueError,
            "input_sizes must fit in 64 bits, got 9223372036854775808",
        ),
        ({"input_sizes": [1, -4, 6, 2]}, ValueError, "input_sizes must be between 0 and .*-4"),
        ({"input_sizes": [1, 2**31, 6, 2]}, ValueError, "input_sizes must be between 0 and"),
        ({"input_sizes": UnknownShape()}, ValueError, "input_sizes must be a fully known shape"),
        ({"input_sizes": Unreadable()}, TypeError, "input_sizes could not be read as an integer"),
        # filter
        ({"filter": None}, TypeError, "filter must be given"),
        ({"filters": CONV["filter"]}, ValueError, "filter and filters are two names"),
        ({"filter": Unreadable()}, TypeError, "filter could not be read as an array: RuntimeError"),
        ({"filter": [[1.0], [1.0, 2.0]]}, ValueError, "filter could not be read as an array"),
        ({"filter": np.ma.ones((3, 3, 2, 3))}, TypeError, "filter must not be a masked array"),
        (
            {"filter": np.ones((3, 3, 2, 3), np.int64)},
            TypeError,
            "filter must have one of the dtypes float16, .*; got int64",
        ),
        ({"filter": np.ones((3, 3, 2), F32)}, ValueError, "filter must have 4 dimensions.*3, 2"),
        ({"filter": np.ones((3, 3, 0, 3), F32)}, ValueError, "at least 1 input channel"),
        (
            {"filter": np.ones((3, 3, 4, 3), F32)},
            ValueError,
            "filter must have an input channel count .* divides the 2 channels .* got 4",
        ),
        (
            {"filter": np.ones((3, 3, 1, 3), F32)},
            ValueError,
            r"filter .* multiple of the 2 groups \(2 channels / 1\), got 3",
        ),
        # gradient
        ({"out_backprop": None}, TypeError, "out_backprop must be given"),
        ({"out_backprop": F32(1)}, ValueError, "out_backprop must have 4 dimensions, got shape"),
        (
            {"out_backprop": np.ones((1, 4, 6, 3))},
            TypeError,
            "filter and out_backprop must have the same dtype, got float32 and float64",
        ),
        (
            {"out_backprop": np.ones((2, 4, 6, 3), F32)},
            ValueError,
            "out_backprop must have batch 1 as input_sizes, got 2",
        ),
        (
            {"out_backprop": np.ones((1, 5, 6, 3), F32)},
            ValueError,
            r"out_backprop must have 4 rows, got 5 \(input 4, filter 3, stride 1, dilation 1, pad",
        ),
        (
            {"out_backprop": np.ones((1, 4, 5, 3), F32)},
            ValueError,
            r"out_backprop must have 6 columns, got 5 \(input 6",
        ),
        (
            {"out_backprop": np.ones((1, 4, 6, 4), F32)},
            ValueError,
            "out_backprop must have the 3 channels that filter gives .*, got 4",
        ),
        # strides and dilations
        ({"strides": None}, TypeError, "strides must be a list or tuple of 4 integers, got None"),
        ({"strides": np.ones(4, int)}, TypeError, "strides must be a list or tuple.*got ndarray"),
        ({"strides": [1, 1]}, ValueError, "strides must have 4 entries in data_format order.*2"),
        ({"strides": [1, "1", 1, 1]}, TypeError, "every entry of strides must be .* got str '1'"),
        ({"strides": [1, 1.5, 1, 1]}, TypeError, "every entry of strides .* got float 1.5"),
        ({"strides": [1, np.float32(1.5), 1, 1]}, TypeError, "every entry of strides must be an"),
        (
            {"strides": [1, np.longdouble(2) - np.longdouble(2) ** -60, 1, 1]},
            TypeError,
            "every entry of strides must be an integer, got longdouble",
        ),
        ({"strides": [1, np.nan, 1, 1]}, TypeError, "every entry of strides .* got float nan"),
        ({"strides": [1, 1e300, 1, 1]}, ValueError, "every entry of strides must fit in 64 bits"),
        ({"strides": [2, 1, 1, 1]}, ValueError, "strides must be 1 in the batch and channel"),
        ({"strides": [1, 0, 1, 1]}, ValueError, "strides must be between 1 and 2147483647"),
        ({"strides": [1, 2**31, 1, 1]}, ValueError, "strides must be between 1 and 2147483647"),
        ({"dilations": [1, 0, 1, 1]}, ValueError, "dilations must be between 1 and 2147483647"),
        ({"dilations": [1, 1, 1, 2]}, ValueError, "dilations must be 1 in the batch and channel"),
        ({"dilations": 2}, TypeError, "dilations must be a list or tuple of 4 integers, got int"),
        # padding
        ({"padding": None}, TypeError, "padding must be 'SAME', 'VALID' or a list.*got None"),
        (
            {"padding": "same"},
            ValueError,
            "padding .* or a list .* got str 'same'",
        ),
        ({"padding": b"\xff"}, ValueError, r"padding must be .*got str '\\\\xff'"),
        (
            {"padding": "EXPLICIT"},
            ValueError,
            "got str 'EXPLICIT': give the pairs",
        ),
        ({"padding": [[1, 1]] * 3}, ValueError, "padding .*; got a list of 3"),
        ({"padding": [0, 0, 1, 1]}, ValueError, "padding .*; got int 0 as one of the pairs"),
        ({"padding": [[0, 0], [1], [1, 1], [0, 0]]}, ValueError, "padding .* got a list of 1 as"),
        ({"padding": np.zeros((4, 2), int)}, ValueError, "padding .*, not a NumPy array"),
        ({"padding": [[0, 0], [1, "1"], [1, 1], [0, 0]]}, TypeError, "every entry of padding"),
        ({"padding": [[0, 0], [-1, 3], [1, 1], [0, 0]]}, ValueError, "padding must not be negat"),
        ({"padding": [[0, 0], [1, 1], [1, 1], [1, 0]]}, ValueError, "padding must be 0 in the b"),
        (
            {"padding": [[0, 0], [5, 0], [1, 1], [0, 0]]},
            ValueError,
            r"out_backprop must have 7 rows, got 4 .*padding \[5, 0\]",
        ),
        (
            {
                "input_sizes": [1, 1, 1, 2],
                "out_backprop": np.ones((1, 0, 1, 3), F32),
                "padding": "VALID",
            },
            ValueError,
            "filter is too large for input_sizes: it would give -1 rows",
        ),
        (
            {
                "padding": [[0, 0], [HUGE, HUGE], [1, 1], [0, 0]],
                "out_backprop": np.ones((1, 0, 6, 3), F32),
            },
            ValueError,
            "out_backprop must have 9223372036854775810 rows",
        ),
        # the rest
        ({"use_cudnn_on_gpu": 1}, TypeError, "use_cudnn_on_gpu must be True or False, got int 1"),
        ({"data_format": "nhwc"}, ValueError, "data_format must be one of 'NHWC', 'NCHW'"),
        ({"data_format": 3}, TypeError, "data_format must be a string, one of NHWC, NCHW; got int"),
        ({"algorithm": "fft"}, ValueError, "algorithm must be one of 'auto', 'direct', 'winograd'"),
        ({"algorithm": None}, TypeError, "algorithm must be a string"),
        ({"device": "gpu"}, ValueError, "device must be None, 'cpu', 'cuda' or 'cuda:N', got str"),
        ({"device": 0}, TypeError, "device must be None, 'cpu', 'cuda' or 'cuda:N', got int 0"),
        ({"device": "cuda"}, RuntimeError, "device 'cuda' is not available: .*pip install"),
        ({"device": "cuda:1"}, RuntimeError, "device 'cuda:1' is not available"),
    ],
)
def test_convolution(change, error, text):
    with pytest.raises(error, match=text):
        conv2d_backprop_input(**CONV | change)


def test_convolution_that_reaches_too_far():
    """Only a filter of billions of taps gets here, so it is made of one number."""
    gradient = np.ones((0, 0, 0, 1), F32)
    weights = np.broadcast_to(F32(1), (2**33, 1, 1, 1))
    with pytest.raises(ValueError, match="reach too far in rows"):
        conv2d_backprop_input(
            [0, 0, 0, 1], weights, gradient, [1, 1, 1, 1], "SAME", dilations=[1, 2**31 - 1, 1, 1]
        )


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"padding": "EXPLICIT"}, ValueError, "explicit_paddings must have 8 entries.*got 0"),
        (
            {"explicit_paddings": [0] * 8},
            ValueError,
            "explicit_paddings must be empty unless padding is 'EXPLICIT', got 8",
        ),
        ({"explicit_paddings": 3}, TypeError, "explicit_paddings must be a list of 8 integers"),
        (
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, "1", 1, 1, 1, 0, 0]},
            TypeError,
            "every entry of explicit_paddings must be an integer",
        ),
        ({"padding": [[0, 0]] * 4}, TypeError, "padding must be a string, got list"),
        ({"padding": "SOME"}, ValueError, "padding must be 'SAME', 'VALID' or a list"),
    ],
)
def test_raw_convolution(change, error, text):
    with pytest.raises(error, match=text):
        raw_ops.Conv2DBackpropInput(**CONV | change)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            {"orig_input_tensor_shape": [1, 4, 6]},
            ValueError,
            r"orig_input_tensor_shape must have 4 entries, \(batch, rows, cols, depth\); got 3",
        ),
        (
            {"orig_input_tensor_shape": [1, 0, 6, 2]},
            ValueError,
            "orig_input_tensor_shape must be positive",
        ),
        (
            {"orig_input_tensor_shape": [1, 2**62, 6, 2]},
            ValueError,
            r"orig_input_tensor_shape must have a product below 2\*\*60",
        ),
        ({"out_backprop": None}, TypeError, "out_backprop must be given"),
        (
            {"out_backprop": np.ones((1, 2, 3, 2), np.uint8)},
            TypeError,
            "out_backprop must have one of the dtypes float32, .*; got uint8",
        ),
        ({"out_backprop": np.ones((2, 3, 2))}, ValueError, "out_backprop must have 4 dimensions"),
        ({"out_backprop": np.ones((1, 0, 3, 2))}, ValueError, "out_backprop must not be empty"),
        (
            {"out_backprop": np.ones((2, 2, 3, 2))},
            ValueError,
            "out_backprop must have batch 1 as orig_input_tensor_shape, got 2",
        ),
        (
            {"out_backprop": np.ones((1, 2, 3, 1))},
            ValueError,
            "out_backprop must have depth 2 as orig_input_tensor_shape, got 1",
        ),
        (
            {"row_pooling_sequence": [0, 2]},
            ValueError,
            "row_pooling_sequence must have at least 3 entries.* 2 rows .*; got 2",
        ),
        (
            {"col_pooling_sequence": 3},
            ValueError,
            "col_pooling_sequence must have at least 4 entries.* 3 columns .*; got 1",
        ),
        (
            {"row_pooling_sequence": [0, 2.0, 4]},
            TypeError,
            "every entry of row_pooling_sequence must be an integer, got float 2.0",
        ),
        (
            {"row_pooling_sequence": [[0, 2], [4]]},
            ValueError,
            "row_pooling_sequence must be a list of integers or a rectangular nest",
        ),
        (
            {"row_pooling_sequence": range(-1, 2**70, 2**69)},
            ValueError,
            "an entry of row_pooling_sequence must fit in 64 bits",
        ),
        (
            {"row_pooling_sequence": range(-(2**63) - 1, 2**63, 2**62)},
            ValueError,
            "an entry of row_pooling_sequence must fit in 64 bits",
        ),
        (
            {"orig_input_tensor_shape": [1, 2**60, 1, 2]},
            ValueError,
            r"orig_input_tensor_shape must have a product below 2\*\*60",
        ),
        ({"row_pooling_sequence": {0, 2, 4}}, TypeError, "row_pooling_sequence .* got set"),
        (
            {"row_pooling_sequence": [-10, 2, 4]},
            ValueError,
            "row_pooling_sequence .* entries -10 and 2 for cell 0",
        ),
        (
            {"col_pooling_sequence": [0, 2, 0, 6]},
            ValueError,
            r"col_pooling_sequence .* entries 2 and 0 for cell 1 \(elements 2 to -1\)",
        ),
        ({"overlapping": 1}, TypeError, "overlapping must be True or False, got int 1"),
        ({"device": "cuda"}, RuntimeError, "device 'cuda' is not available"),
    ],
)
def test_pooling(change, error, text):
    with pytest.raises(error, match=text):
        fractional_avg_pool_grad(**POOL | change)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fractional_avg_pool_grad(
            [1, 2**40, 1, 1], np.ones((1, 1, 1, 1), F32), [0, 1], [0, 1]
        ),
        lambda: conv2d_backprop_input(
            [1, 2**31 - 1, 2**31 - 1, 1],
            np.ones((1, 1, 1, 1), F32),
            np.ones((1, 1, 1, 1), F32),
            [1, 2**31 - 1, 2**31 - 1, 1],
            "SAME",
        ),
    ],
    ids=["pool", "convolution"],
)
def test_a_refused_allocation_says_how_many_bytes_it_needed(call, monkeypatch):
    monkeypatch.setattr("numba_gradops._arrays._allocate", np.empty)
    with pytest.raises(MemoryError, match=r"the result of shape .* needs \d+ bytes of memory"):
        call()


def test_memory_that_is_not_there_is_not_asked_for(monkeypatch):
    """Linux would grant it, and end the process when it is used."""
    monkeypatch.setattr("numba_gradops._arrays._available_bytes", lambda: 2**20)
    monkeypatch.setattr("numba_gradops._arrays._allocate", None)  # would be a TypeError
    with pytest.raises(MemoryError, match="needs 4294967296 bytes"):
        fractional_avg_pool_grad([1, 2**30, 1, 1], np.ones((1, 1, 1, 1), F32), [0, 1], [0, 1])


class DeviceArray:
    """Claims to lie on a GPU."""

    shape = (1, 2, 3, 2)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": "<f4", "data": (0, True), "version": 3}


class DLPackArray:
    def __dlpack_device__(self):
        return (2, 0)


@pytest.mark.parametrize("array", [DeviceArray(), DLPackArray()], ids=["interface", "dlpack"])
def test_arrays_on_a_gpu_are_not_computed_elsewhere(array):
    with pytest.raises(RuntimeError, match="device 'cuda' is not available"):
        fractional_avg_pool_grad(**POOL | {"out_backprop": array})
    with pytest.raises(ValueError, match="out_backprop must be a host array for device='cpu'"):
        fractional_avg_pool_grad(**POOL | {"out_backprop": array, "device": "cpu"})


def test_other_functions():
    with pytest.raises(ValueError, match="mode must be 'stdout' or 'dicts', got 'json'"):
        show_config("json")
    with pytest.raises(ValueError, match=r"dtypes must be names among .*; got str 'int8'"):
        warmup(["int8"])
