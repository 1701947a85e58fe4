"""Calls drawn at random, on a made-up driver that has the emulator run the kernels."""

import pytest
from accuracy import assert_close
from fake_gpu import emulator
from hypothesis import given, settings
from strategies import convolutions, poolings

from numba_gradops import _reference, conv2d_backprop_input, fractional_avg_pool_grad

pytestmark = pytest.mark.nvvm


@pytest.fixture
def device(driver):
    driver.execute = emulator()


def check_convolution(arguments):
    result = conv2d_backprop_input(**arguments, device="cuda")
    assert_close(result, _reference.conv2d_backprop_input(**arguments), result.dtype)


def check_pool(arguments):
    on_device = fractional_avg_pool_grad(**arguments, device="cuda")
    assert on_device.tobytes() == fractional_avg_pool_grad(**arguments).tobytes()


@pytest.mark.usefixtures("device")
@settings(max_examples=15)
@given(convolutions(("float32",)))
def test_any_convolution_is_right(arguments):
    check_convolution(arguments)


@pytest.mark.usefixtures("device")
@settings(max_examples=15)
@given(poolings(("float32",)))
def test_any_pooling_has_the_bits_of_the_cpu(arguments):
    check_pool(arguments)


@pytest.mark.thorough
@pytest.mark.usefixtures("device")
@settings(max_examples=60)
@given(convolutions(("float16", "float32", "float64", "int32")))
def test_many_convolutions_are_right(arguments):
    check_convolution(arguments)


@pytest.mark.thorough
@pytest.mark.usefixtures("device")
@settings(max_examples=60)
@given(poolings())
def test_many_poolings_have_the_bits_of_the_cpu(arguments):
    check_pool(arguments)
