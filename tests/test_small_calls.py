"""Calls of few elements take microseconds, and what is kept between calls hides no wrong one."""

import timeit

import numpy as np
import pytest

from numba_gradops import _geometry, conv2d_backprop_input, fractional_avg_pool_grad

F32 = np.float32
GRADIENT, WEIGHTS = np.ones((1, 4, 4, 1), F32), np.ones((3, 3, 1, 1), F32)
ENDS = np.arange(5)


def convolve(sizes=(1, 4, 4, 1), strides=(1, 1, 1, 1)):
    return conv2d_backprop_input(sizes, WEIGHTS, GRADIENT, strides, "SAME")


def pool(sizes=(1, 4, 4, 1), ends=(0, 1, 2, 3, 4)):
    return fractional_avg_pool_grad(sizes, GRADIENT, ends, [0, 1, 2, 3, 4])


def least(call) -> float:
    """Give the seconds of a call in its best run of many: what else the machine does drops out."""
    return min(timeit.repeat(call, number=20, repeat=100)) / 20


@pytest.mark.alone
@pytest.mark.parametrize("call", [pool, convolve])
def test_small_calls_take_no_longer_than_a_short_python_loop(call):
    """Measured 14 and 20 us beside 41 for the loop; a pooling took 130 when nothing was kept."""
    call()

    def loop():
        number = 0
        for i in range(1400):
            number += i

    assert least(call) < least(loop)


def test_a_pooling_seen_before_is_not_worked_out_again():
    arguments = (1, 4, 4, 1), (1, 4, 4, 1)
    first = _geometry.pool(*arguments, ENDS, ENDS, overlapping=False)
    assert _geometry.pool(*arguments, ENDS.copy(), ENDS, overlapping=False) is first
    assert _geometry.pool(*arguments, ENDS, ENDS, overlapping=True) is not first
    assert not any(array.flags.writeable for array in (*first.rows, *first.cols))


def test_long_sequences_are_not_kept():
    ends = np.arange(_geometry._LONGEST_KEPT)
    arguments = (1, 4, 4, 1), (1, 4, 4, 1), ends, ends
    first = _geometry.pool(*arguments, overlapping=False)
    assert _geometry.pool(*arguments, overlapping=False) is not first


@pytest.mark.parametrize("call", [convolve, pool])
@pytest.mark.parametrize("one", [1.0, np.float32(1), "1", None])
def test_equal_numbers_of_another_type_are_refused_after_a_call_with_ints(call, one):
    """1 == 1.0, also as the key of a cache."""
    expected = call()
    with pytest.raises(TypeError):
        call(sizes=[one, 4, 4, 1])
    for same in (True, np.True_, np.int64(1)):
        np.testing.assert_array_equal(call(sizes=[same, 4, 4, 1]), expected)


@pytest.mark.parametrize("ends", [np.arange(5), np.arange(5, dtype=">i2"), range(5), [[*range(5)]]])
def test_sequences_of_any_kind_give_the_same(ends):
    np.testing.assert_array_equal(pool(ends=ends), pool())


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_is_as_good_a_sequence():
    np.testing.assert_array_equal(pool(ends=np.matrix(range(5))), pool())


def test_a_list_changed_between_calls_is_read_again():
    sizes, ends = [1, 4, 4, 1], [0, 1, 2, 3, 4]
    pool(sizes, ends)
    ends[4] = 5
    sizes[1] = 5
    assert pool(sizes, ends).shape == (1, 5, 4, 1)
    sizes[1] = 4.0
    with pytest.raises(TypeError, match="orig_input_tensor_shape"):
        pool(sizes, ends)
