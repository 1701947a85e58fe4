"""The names, signatures and import behaviour that users build on."""

import inspect
import pkgutil
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

import numba_gradops
import numba_gradops as tf


def test_public_names():
    assert numba_gradops.__all__ == [
        "__version__",
        "compat",
        "conv2d_backprop_input",
        "fractional_avg_pool_grad",
        "raw_ops",
        "show_config",
        "warmup",
    ]
    public = [
        module.name
        for module in pkgutil.walk_packages(numba_gradops.__path__)
        if not module.name.startswith("_")
    ]
    assert sorted(public) == ["compat", "cpu", "cuda", "raw_ops"]


def test_dotted_paths_of_tensorflow():
    assert tf.compat.v1.nn.conv2d_backprop_input is tf.conv2d_backprop_input
    assert tf.compat.v1.raw_ops is tf.raw_ops
    assert tf.raw_ops.__all__ == ["Conv2DBackpropInput", "FractionalAvgPoolGrad"]


def parameters(function):
    return [
        (p.name, p.default if p.default is not p.empty else "required", p.kind.name)
        for p in inspect.signature(function).parameters.values()
    ]


def test_signature_of_the_convolution_is_tensorflows_and_ours_after_it():
    anywhere, by_name = "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"
    assert parameters(tf.conv2d_backprop_input) == [
        ("input_sizes", "required", anywhere),
        ("filter", None, anywhere),
        ("out_backprop", None, anywhere),
        ("strides", None, anywhere),
        ("padding", None, anywhere),
        ("use_cudnn_on_gpu", True, anywhere),
        ("data_format", "NHWC", anywhere),
        ("dilations", [1, 1, 1, 1], anywhere),
        ("name", None, anywhere),
        ("filters", None, anywhere),
        ("device", None, by_name),
        ("algorithm", "auto", by_name),
        ("out", None, by_name),
    ]


def test_signature_of_the_pool_is_tensorflows_and_ours_after_it():
    anywhere, by_name = "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"
    assert parameters(tf.fractional_avg_pool_grad) == [
        ("orig_input_tensor_shape", "required", anywhere),
        ("out_backprop", "required", anywhere),
        ("row_pooling_sequence", "required", anywhere),
        ("col_pooling_sequence", "required", anywhere),
        ("overlapping", False, anywhere),
        ("name", None, anywhere),
        ("device", None, by_name),
        ("out", None, by_name),
    ]


def test_raw_ops_take_keywords_only():
    for function in (tf.raw_ops.Conv2DBackpropInput, tf.raw_ops.FractionalAvgPoolGrad):
        assert {kind for _, _, kind in parameters(function)} == {"KEYWORD_ONLY"}


@pytest.mark.parametrize("empty", [None, []])
def test_raw_convolution_equals_the_other_spelling(rng, empty):
    weights = rng.standard_normal((3, 2, 4, 5))
    gradient = rng.standard_normal((2, 7, 9, 5))
    pads = [[0, 0], [1, 1], [2, 0], [0, 0]]
    common = {"input_sizes": [2, 7, 8, 4], "filter": weights, "out_backprop": gradient}
    common |= {"strides": [1, 1, 1, 1]}
    np.testing.assert_array_equal(
        tf.raw_ops.Conv2DBackpropInput(
            padding="EXPLICIT", explicit_paddings=[0, 0, 1, 1, 2, 0, 0, 0], **common
        ),
        tf.conv2d_backprop_input(padding=pads, **common),
    )
    common["out_backprop"] = gradient[:, :, :8]
    np.testing.assert_array_equal(
        tf.raw_ops.Conv2DBackpropInput(padding="SAME", explicit_paddings=empty, **common),
        tf.conv2d_backprop_input(padding="SAME", **common),
    )


def test_ignored_arguments_and_default_spellings_change_nothing(rng):
    weights, gradient = rng.standard_normal((3, 3, 2, 3)), rng.standard_normal((1, 4, 5, 3))
    plain = tf.conv2d_backprop_input([1, 4, 5, 2], weights, gradient, [1, 1, 1, 1], "SAME")
    for change in (
        {"name": object()},
        {"use_cudnn_on_gpu": False},
        {"use_cudnn_on_gpu": None},
        {"use_cudnn_on_gpu": np.bool_(True)},
        {"data_format": None},
        {"data_format": b"NHWC"},
        {"dilations": None},
        {"dilations": (1, 1.0, True, np.int8(1))},
        {"padding": b"SAME"},
        {"padding": np.str_("SAME")},
        {"device": "cpu"},
        {"algorithm": "direct"},
    ):
        call = {"strides": [1, 1, 1, 1], "padding": "SAME"} | change
        np.testing.assert_array_equal(
            tf.conv2d_backprop_input([1, 4, 5, 2], weights, gradient, **call), plain
        )
    np.testing.assert_array_equal(
        tf.conv2d_backprop_input(
            [1, 4, 5, 2], None, gradient, [1, 1, 1, 1], "SAME", filters=weights
        ),
        plain,
    )


class TensorShape:
    """What is needed of TensorFlow's."""

    def __init__(self, sizes):
        self.sizes = sizes

    def as_list(self):
        return self.sizes


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


@pytest.mark.parametrize(
    "make",
    [
        list, tuple, np.array, TensorShape,
        lambda v: np.array(v, np.uint8), lambda v: np.array(v, ">i4"),
        lambda v: np.array(v, object), lambda v: [np.int16(x) for x in v],
        lambda v: [np.array(x) for x in v], lambda v: [Index(x) for x in v],
        lambda v: memoryview(bytes(v)),
    ],
    ids=[
        "list", "tuple", "array", "TensorShape", "uint8", "big-endian", "objects", "scalars",
        "0-d arrays", "__index__", "memoryview",
    ],
)  # fmt: skip
def test_sizes_and_sequences_come_in_many_forms(rng, make):
    gradient = rng.standard_normal((1, 2, 3, 2))
    expected = tf.fractional_avg_pool_grad([1, 4, 5, 2], gradient, [0, 2, 4], [0, 2, 4, 5])
    result = tf.fractional_avg_pool_grad(
        make([1, 4, 5, 2]), gradient, make([0, 2, 4]), make([0, 2, 4, 5])
    )
    np.testing.assert_array_equal(result, expected)


def test_sequences_may_be_ranges_columns_and_bools(rng):
    gradient = rng.standard_normal((1, 2, 1, 2))
    expected = tf.fractional_avg_pool_grad([1, 4, 1, 2], gradient, [0, 2, 4], [0, 1])
    for rows in (range(0, 6, 2), [[0], [2], [4]], np.array([[0, 2, 4]])):
        result = tf.fractional_avg_pool_grad([1, 4, 1, 2], gradient, rows, [False, np.bool_(True)])
        np.testing.assert_array_equal(result, expected)


def test_the_version_is_that_of_the_distribution():
    assert metadata.version("numba-gradops") == numba_gradops.__version__


def test_the_package_says_that_it_is_typed():
    assert (pkgutil.get_data("numba_gradops", "py.typed")) == b""


def test_a_plain_install_needs_numba_and_numpy_only():
    needed = [r for r in metadata.requires("numba-gradops") or [] if "extra ==" not in r]
    assert sorted(r.split(">")[0] for r in needed) == ["numba", "numpy"]


def test_import_compiles_nothing_and_loads_neither_numba_nor_extras():
    code = (
        "import sys, threading, numba_gradops\n"
        "loaded = {'numba', 'llvmlite', 'ml_dtypes', 'numba_cuda'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
