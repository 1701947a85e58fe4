"""fractional_avg_pool_grad against the float64 reference: equal to the bit."""

import time

import numpy as np
import pytest
from accuracy import BFLOAT16, DTYPES, draw
from hypothesis import given, settings
from strategies import poolings

from numba_gradops import _dtypes, _geometry, _reference, fractional_avg_pool_grad
from numba_gradops.cpu import _irregular_pool_loops

EXACT = ("float32", "float64", "int32", "int64")


def expected(arguments):
    """Cast the exact float64 sums as TensorFlow does; halves are rounded once."""
    sums = _reference.fractional_avg_pool_grad(**arguments)
    dtype = arguments["out_backprop"].dtype
    if dtype.kind != "i":
        with np.errstate(over="ignore"):
            return nearest_bfloat16(sums) if dtype == BFLOAT16 else sums.astype(dtype)
    lowest = np.iinfo(dtype).min
    fits = (sums > float(lowest) - 1) & (sums < -float(lowest))
    return np.where(fits, np.trunc(np.where(fits, sums, 0)), lowest).astype(dtype)


def nearest_bfloat16(values):
    """Round float64 to bfloat16 by comparing with both neighbours, in float64."""
    with np.errstate(all="ignore"):
        guess = values.astype(np.float32).view(np.uint32) & 0xFFFF0000
        candidates = np.stack([guess, guess + 0x10000]).astype(np.uint32)
        distance = np.abs(candidates.view(np.float32).astype(np.float64) - values)
    even = (candidates >> 16) % 2 == 0
    tie = distance[0] == distance[1]
    second = np.where(tie, even[1], distance[1] < distance[0])
    chosen = np.where(second, candidates[1], candidates[0])
    return chosen.view(np.float32).astype(BFLOAT16)


def check(arguments):
    result = fractional_avg_pool_grad(**arguments)
    exact = expected(arguments)
    assert result.dtype == arguments["out_backprop"].dtype
    np.testing.assert_array_equal(result, exact)
    if result.dtype.kind == "f":  # -0.0 too: TensorFlow adds to +0.0
        np.testing.assert_array_equal(np.signbit(result), np.signbit(exact))


@settings(max_examples=300)
@given(poolings())
def test_sequences_of_the_forward_op(arguments):
    check(arguments)


@settings(max_examples=300)
@given(poolings(dtypes=EXACT, legal=False))
def test_any_sequence_that_tensorflow_takes(arguments):
    check(arguments)


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("dtype", _dtypes.POOL)
def test_every_dtype_on_a_layer_large_enough_for_threads(rng, dtype, overlapping):
    ends = np.sort(rng.choice(np.arange(1, 61), 40, replace=False))
    rows, cols = np.r_[0, ends, 61], np.r_[0, ends[::2], 61]
    shape = (3, rows.size - 1, cols.size - 1, 33)
    check(
        {
            "orig_input_tensor_shape": [3, 61, 61, 33],
            "out_backprop": draw(rng, shape, DTYPES[dtype]),
            "row_pooling_sequence": rows,
            "col_pooling_sequence": cols,
            "overlapping": overlapping,
        }
    )


def test_sequences_that_go_back_and_forth_cost_what_their_cells_do():
    """And if their cells overlap each other everywhere, memory stays small all the same."""
    n = 60_000
    rows = np.arange(n + 1)
    rows[5] = 3
    gradient = np.arange(1, n + 1, dtype=np.float64).reshape(1, n, 1, 1)
    start = time.perf_counter()
    check(
        {
            "orig_input_tensor_shape": [1, n, 1, 1],
            "out_backprop": gradient,
            "row_pooling_sequence": rows,
            "col_pooling_sequence": [0, 1],
            "overlapping": False,
        }
    )
    assert time.perf_counter() - start < 20


def test_cells_that_all_overlap_are_looked_at_one_by_one(rng, monkeypatch):
    monkeypatch.setattr(_geometry, "_LONGEST_INDEX", 10)
    for overlapping in (False, True):
        check(
            {
                "orig_input_tensor_shape": [2, 20, 18, 3],
                "out_backprop": rng.standard_normal((2, 6, 5, 3)),
                "row_pooling_sequence": [3, 20, 1, 18, 2, 30, 9],
                "col_pooling_sequence": [9, 10, 2, 18, 5, 17],
                "overlapping": overlapping,
            }
        )


def test_a_long_axis_needs_no_memory_beside_the_result():
    result = fractional_avg_pool_grad(
        [1, 10**7, 1, 1], np.full((1, 1, 1, 1), 1e4, np.float16), [0, 1], [0, 1]
    )
    assert result[0, 0] == np.float16(1e4)
    assert not result[0, 1:].any()


def test_integers_are_cut_after_the_sum():
    """Four quarters are 1, one alone is 0."""
    gradient = np.ones((1, 2, 2, 1), np.int32)
    result = fractional_avg_pool_grad([1, 3, 3, 1], gradient, [0, 1, 2], [0, 1, 2], True)
    assert result[0, 1, 1, 0] == 1
    assert result[0, 0, 0, 0] == 0


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_that_do_not_fit_become_the_lowest(dtype):
    highest = np.iinfo(dtype).max
    gradient = np.full((1, 2, 1, 1), highest, dtype)
    result = fractional_avg_pool_grad([1, 3, 1, 1], gradient, [0, 1, 2], [0, 1], True)
    assert result[1 - 1, 1, 0, 0] == (highest if dtype == "int32" else np.iinfo(dtype).min)
    one = fractional_avg_pool_grad([1, 1, 1, 1], gradient[:, :1], [0, 1], [0, 1])
    assert one.item() == (highest if dtype == "int32" else np.iinfo(dtype).min)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("overlapping", [False, True])
def test_a_value_that_is_not_finite_stays_in_its_cell(rng, dtype, value, overlapping):
    gradient = draw(rng, (1, 3, 3, 2), DTYPES[dtype])
    gradient[0, 1, 1, 0] = value
    result = fractional_avg_pool_grad(
        [1, 7, 8, 2], gradient, [0, 2, 4, 7], [0, 3, 5, 8], overlapping
    )
    bad = ~np.isfinite(result.astype(np.float64))
    last = 1 if overlapping else 0
    assert bad[0, 2 : 4 + last, 3 : 5 + last, 0].all()
    assert bad.sum() == (2 + last) ** 2


def test_negative_zero_becomes_positive_zero():
    result = fractional_avg_pool_grad([1, 1, 2, 1], np.full((1, 1, 1, 1), -0.0), [0, 1], [0, 2])
    assert not np.signbit(result).any()


def test_subnormal_numbers_are_kept():
    gradient = np.full((1, 1, 1, 1), 5e-324)
    assert fractional_avg_pool_grad([1, 1, 1, 1], gradient, [0, 1], [0, 1]) == gradient


def test_rounding_to_bfloat16_is_one_rounding():
    """By way of float32 the first of these would become a tie and go to the even neighbour."""
    tie = 2.0**-8  # halfway between 1 and its neighbour in bfloat16
    tiny = 2.0**-134  # the same for the smallest subnormal
    ties = [1 + tie, 1 + 3 * tie, tiny, 3 * tiny]
    beside = [1 + tie + 2**-40, 1 + tie - 2**-40, -(1 + tie + 2**-40), 3 * tiny + 2**-180]
    large = [3.3895313892515355e38, 1e300, np.inf, -np.inf, 3.4e38]
    values = np.array([*beside, *ties, 3.0, tiny + 2**-180, *large])
    # A pool of one cell of one element leaves each value as it is, but for the rounding.
    rounded = np.empty(values.shape, BFLOAT16)
    ends = np.array([0, 1])
    one = _irregular_pool_loops.Axis(ends[:1], ends[:1], ends, ends, ends[:1])
    sizes = _irregular_pool_loops.Sizes(1, 1, 1, 1, values.size)
    counter, bits = np.zeros(1, np.int64), rounded.view(np.int16)
    _irregular_pool_loops.gather_irregular(counter, 1, sizes, one, one, ends, values, bits)
    finite = np.isfinite(rounded.astype(np.float64))
    np.testing.assert_array_equal(rounded[finite], nearest_bfloat16(values)[finite])
    assert rounded[0] == np.float32(1 + 2**-7)
    np.testing.assert_array_equal(
        rounded[~finite].astype(np.float64), [np.inf, np.inf, -np.inf, np.inf]
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_and_the_ties_between_them_are_read_and_rounded_right(dtype):
    """All 65536 bit patterns through the loops' conversions, and what lies between them."""
    halves = np.arange(65536, dtype=np.uint16).view(DTYPES[dtype])
    with np.errstate(invalid="ignore"):  # half of the NaNs are signalling ones
        wide = halves.astype(np.float64)
        result = fractional_avg_pool_grad(
            [1, 1, 1, 65536], halves.reshape(1, 1, 1, -1), [0, 1], [0, 1]
        )
        kept = result.ravel().astype(np.float64)
    np.testing.assert_array_equal(kept, wide)
    assert not np.signbit(kept[wide == 0]).any()
    # Two rows, overlapping: the middle is (a + b) / 2, a tie where a and b are neighbours.
    finite = np.sort(wide[np.isfinite(wide)])
    pairs = np.stack([finite[:-1], finite[1:]]).reshape(1, 2, 1, -1)
    result = fractional_avg_pool_grad(
        [1, 3, 1, pairs.shape[3]], pairs.astype(DTYPES[dtype]), [0, 1, 2], [0, 1], True
    )
    sums = pairs[0, 0, 0] / 2 + pairs[0, 1, 0] / 2
    exact = nearest_bfloat16(sums) if dtype == "bfloat16" else sums.astype(np.float16)
    np.testing.assert_array_equal(result[0, 1, 0].astype(np.float64), exact.astype(np.float64))
