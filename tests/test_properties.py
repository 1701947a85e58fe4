"""What must hold whatever the numbers are: adjointness, linearity, conservation."""

import forward
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import convolutions, poolings

from numba_gradops import conv2d_backprop_input, fractional_avg_pool_grad

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=150)
@given(convolutions(dtypes=("float64",)), SEEDS)
def test_convolution_gradient_is_the_adjoint_of_the_forward_convolution(arguments, seed):
    """<conv(x), g> = <x, gradient(g)>; fails for any wrong tap, stride, pad or group."""
    images = np.random.default_rng(seed).standard_normal(arguments["input_sizes"])
    outputs = forward.conv2d(
        images,
        arguments["filter"],
        arguments["strides"],
        arguments["padding"],
        arguments["data_format"],
        arguments["dilations"],
    )
    gradient = conv2d_backprop_input(**arguments)
    left = np.vdot(outputs, arguments["out_backprop"])
    right = np.vdot(images, gradient)
    scale = np.linalg.norm(images) * np.linalg.norm(gradient) + 1
    assert abs(left - right) <= 1e-13 * scale


@settings(max_examples=150)
@given(poolings(dtypes=("float64",)), SEEDS)
def test_pool_gradient_is_the_adjoint_of_the_forward_pool(arguments, seed):
    images = np.random.default_rng(seed).standard_normal(arguments["orig_input_tensor_shape"])
    outputs = forward.fractional_avg_pool(
        images,
        arguments["row_pooling_sequence"],
        arguments["col_pooling_sequence"],
        arguments["overlapping"],
    )
    gradient = fractional_avg_pool_grad(**arguments)
    left, right = np.vdot(outputs, arguments["out_backprop"]), np.vdot(images, gradient)
    assert abs(left - right) <= 1e-13 * (np.linalg.norm(images) * np.linalg.norm(gradient) + 1)


@settings(max_examples=100)
@given(poolings(dtypes=("float64",)))
def test_pool_gradient_keeps_the_total_of_each_image_and_channel(arguments):
    gradient = arguments["out_backprop"]
    result = fractional_avg_pool_grad(**arguments)
    np.testing.assert_allclose(result.sum((1, 2)), gradient.sum((1, 2)), rtol=1e-12, atol=1e-12)


@settings(max_examples=100)
@given(convolutions(dtypes=("float64",)), SEEDS)
def test_convolution_gradient_is_linear_in_gradient_and_filter(arguments, seed):
    rng = np.random.default_rng(seed)
    for name in ("out_backprop", "filter"):
        other = rng.standard_normal(arguments[name].shape)
        mixed = conv2d_backprop_input(**arguments | {name: 3 * arguments[name] - other})
        apart = 3 * conv2d_backprop_input(**arguments) - conv2d_backprop_input(
            **arguments | {name: other}
        )
        np.testing.assert_allclose(mixed, apart, rtol=1e-11, atol=1e-11)


@settings(max_examples=100)
@given(poolings(dtypes=("float64",)), SEEDS)
def test_pool_gradient_is_linear(arguments, seed):
    gradient = arguments["out_backprop"]
    other = np.random.default_rng(seed).standard_normal(gradient.shape)
    mixed = fractional_avg_pool_grad(**arguments | {"out_backprop": 3 * gradient - other})
    apart = 3 * fractional_avg_pool_grad(**arguments) - fractional_avg_pool_grad(
        **arguments | {"out_backprop": other}
    )
    np.testing.assert_allclose(mixed, apart, rtol=1e-12, atol=1e-12)


@settings(max_examples=60)
@given(poolings(), st.integers(0, 2))
def test_pool_images_do_not_depend_on_each_other(arguments, image):
    gradient = arguments["out_backprop"]
    image %= gradient.shape[0]
    together = fractional_avg_pool_grad(**arguments)
    alone = fractional_avg_pool_grad(
        **arguments
        | {
            "orig_input_tensor_shape": [1, *arguments["orig_input_tensor_shape"][1:]],
            "out_backprop": gradient[image : image + 1],
        }
    )
    np.testing.assert_array_equal(alone[0], together[image])


@settings(max_examples=60)
@given(convolutions())
def test_layouts_agree_to_the_bit(arguments):
    other = dict(arguments)
    order = (0, 3, 1, 2) if arguments["data_format"] == "NHWC" else (0, 2, 3, 1)
    for name in ("input_sizes", "strides", "dilations", "padding"):
        if not isinstance(other[name], str):
            other[name] = [arguments[name][axis] for axis in order]
    other["out_backprop"] = arguments["out_backprop"].transpose(order)
    other["data_format"] = "NCHW" if arguments["data_format"] == "NHWC" else "NHWC"
    np.testing.assert_array_equal(
        conv2d_backprop_input(**other), conv2d_backprop_input(**arguments).transpose(order)
    )
