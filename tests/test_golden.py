"""The results TensorFlow 2.21 gives, to the bit for pooling and within rounding for convolution."""

from __future__ import annotations

from typing import Any

import golden
import numpy as np
import pytest
from numpy.typing import NDArray

import numba_gradops
from numba_gradops import _reference, raw_ops

CASES = golden.cases()
POOL_CASES = [case for case in CASES if case.op == "fractional_avg_pool_grad"]
EXPLICIT_CASES = [case for case in CASES if case.explicit_padding]


@pytest.fixture
def case(request: pytest.FixtureRequest) -> golden.Case:
    chosen: golden.Case = request.param
    if chosen.needs_ml_dtypes:
        pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    return chosen


def each(cases: list[golden.Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, indirect=True, ids=lambda case: case.id)


def test_every_golden_case_is_there() -> None:
    assert len({case.id for case in CASES}) == len(CASES) == 111
    assert len(POOL_CASES) == 38
    assert len(EXPLICIT_CASES) == 9


@each(CASES)
def test_result_is_tensorflows(case: golden.Case) -> None:
    case.check(getattr(numba_gradops, case.op)(**case.arguments()))


@each(POOL_CASES)
def test_pooling_gives_no_negative_zero_where_tensorflow_gives_none(case: golden.Case) -> None:
    result = numba_gradops.fractional_avg_pool_grad(**case.arguments())
    zero = result == 0
    np.testing.assert_array_equal(np.signbit(result[zero]), np.signbit(case.expected()[zero]))


@each(EXPLICIT_CASES)
def test_raw_op_takes_explicit_paddings_as_a_flat_list(case: golden.Case) -> None:
    arguments = case.arguments()
    flat = [amount for pair in arguments.pop("padding") for amount in pair]
    case.check(raw_ops.Conv2DBackpropInput(**arguments, padding="EXPLICIT", explicit_paddings=flat))


@each(CASES)
def test_float64_reference_agrees_with_tensorflow(case: golden.Case) -> None:
    """Otherwise the tests that compare with the reference would prove nothing."""
    with np.errstate(invalid="ignore"):  # the infinities and NaN of some gradients
        exact = getattr(_reference, case.op)(**case.arguments())
    case.check(_rounded_as_tensorflow(exact, case.expected().dtype, case.op))


def _rounded_as_tensorflow(
    exact: NDArray[np.float64], dtype: np.dtype[Any], op: str
) -> NDArray[Any]:
    """Pooling cuts integers off and gives the minimum out of range; convolution wraps around."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.kind != "i":
            return exact.astype(dtype)
        if op == "conv2d_backprop_input":
            return exact.astype(np.int64).astype(dtype)
        limits = np.iinfo(dtype)
        outside = (exact >= -float(limits.min)) | (exact < limits.min)
        return np.where(outside, limits.min, np.where(outside, 0, exact).astype(dtype))
