"""Geometry in plain integers, against enumeration; no array of data and no Numba."""

import math
import subprocess
import sys
from itertools import product

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numba_gradops import _geometry
from numba_gradops._geometry import Axis, first_contribution, segments


def make_axis(size: int, window: int, stride: int, dilation: int, padding: object) -> Axis:
    """Build an axis with whatever output size fits; out_backprop's is tried until it does."""
    span = (window - 1) * dilation + 1
    if padding == "SAME":
        output = -(-size // stride)
    else:
        before, after = (0, 0) if padding == "VALID" else padding
        room = size + before + after - span
        output = room // stride + 1 if room >= 0 else 0
    return _geometry._axis("rows", size, output, window, stride, dilation, padding)


def contributions(position: int, axis: Axis) -> list[tuple[int, int]]:
    """List (tap, cell) pairs by trying all of them."""
    return [
        (tap, cell)
        for tap, cell in product(range(axis.window), range(axis.output))
        if cell * axis.stride + tap * axis.dilation - axis.pad == position
    ]


def unrolled(position: int, axis: Axis) -> list[tuple[int, int]]:
    tap, cell, count = first_contribution(position, axis)
    return [(tap + j * axis.tap_step, cell - j * axis.cell_step) for j in range(count)]


@pytest.mark.parametrize("padding", ["SAME", "VALID", (2, 1), (0, 7), (9, 4)])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6, 9])
def test_every_tap_that_reaches_an_element_is_found_once(stride, dilation, padding):
    for size, window in product([1, 2, 5, 8, 13], [1, 2, 3, 4, 7]):
        try:
            axis = make_axis(size, window, stride, dilation, padding)
        except ValueError:
            continue  # the filter does not fit
        for position in range(size):
            assert unrolled(position, axis) == contributions(position, axis)


@given(
    size=st.integers(1, 2**31 - 1),
    window=st.integers(1, 5),
    stride=st.integers(1, 2**31 - 1),
    dilation=st.integers(1, 2**31 - 1),
    data=st.data(),
)
def test_huge_strides_and_dilations_are_exact_and_stay_within_int64(
    size, window, stride, dilation, data
):
    axis = make_axis(size, window, stride, dilation, "SAME")
    tap = data.draw(st.integers(0, window - 1))
    cell = data.draw(st.integers(0, axis.output - 1))
    position = cell * stride + tap * dilation - axis.pad
    if 0 <= position < size:
        assert (tap, cell) in unrolled(position, axis)
    # What the compiled form computes in int64, at its largest.
    assert size + axis.pad < 2**63
    assert (axis.tap_step - 1) * axis.inverse < 2**63
    assert axis.tap_step * dilation < 2**63


def test_the_compiled_form_computes_what_the_plain_one_does():
    compiled = numba.njit(first_contribution)
    big = 2**31 - 1
    for size, window, stride, dilation in [
        (9, 3, 2, 1), (12, 4, 6, 4), (big, 5, big, big), (big, 3, 2, big), (big, 3, big, 2),
        (10**9, 7, 10**6, 10**8),
    ]:  # fmt: skip
        axis = make_axis(size, window, stride, dilation, "SAME")
        for position in {0, 1, 2, size // 2, size - 2, size - 1}:
            assert compiled(position, axis) == first_contribution(position, axis)


@pytest.mark.parametrize(
    ("size", "window", "stride", "padding", "output", "pad"),
    [
        (5, 3, 2, "SAME", 3, 1),
        (4, 3, 2, "SAME", 2, 0),  # the odd element of padding goes after
        (4, 2, 1, "SAME", 4, 0),
        (7, 1, 3, "SAME", 3, 0),
        (1, 5, 3, "VALID", 0, 0),  # C++ division: -1 / 3 is 0
        (3, 5, 4, (0, 0), 0, 0),
        (3, 5, 4, (3, 0), 1, 3),
        (0, 3, 2, "SAME", 0, 0),
    ],
)
def test_output_size_and_padding_are_those_of_tensorflow(
    size, window, stride, padding, output, pad
):
    axis = _geometry._axis("rows", size, output, window, stride, 1, padding)
    assert (axis.output, axis.pad) == (output, pad)


def test_a_filter_too_large_for_the_input_is_refused():
    with pytest.raises(ValueError, match="filter is too large for input_sizes"):
        _geometry._axis("rows", 1, 0, 5, 2, 1, "VALID")


@pytest.mark.parametrize(
    "sequence",
    [[0, 2, 3, 7], [0, 1, 1, 7], [3, 4, 9, 20], [0, 0, 0, 1], [0, 5, 2, 7], [9, 9, 9, 9]],
)
@pytest.mark.parametrize("overlapping", [False, True])
def test_the_elements_of_a_segment_lie_in_its_cells_in_ascending_order(sequence, overlapping):
    size = 8
    try:
        cells = _geometry._cells("row_pooling_sequence", np.array(sequence), 3, size, overlapping)
    except ValueError:
        assert sequence[1] == 0
        assert not overlapping
        return
    starts, begin, index = segments(cells, size)
    assert (starts[0], starts[-1]) == (0, size)
    for i in range(starts.size - 1):
        assert starts[i] < starts[i + 1]
        for y in range(starts[i], starts[i + 1]):
            holding = [c for c in range(3) if cells.first[c] <= y <= cells.last[c]]
            assert index[begin[i] : begin[i + 1]].tolist() == holding


def test_segments_of_a_long_axis_are_few():
    cells = _geometry._cells("rows", np.array([0, 2, 5, 2**40]), 3, 2**40, overlapping=True)
    assert segments(cells, 2**40).starts.tolist() == [0, 2, 3, 5, 6, 2**40]


def test_sequences_at_the_ends_of_int64_do_not_wrap_around():
    ends = np.array([-(2**63), 2**63 - 1, -(2**63)])
    with pytest.raises(ValueError, match="row_pooling_sequence"):
        _geometry._cells("row_pooling_sequence", ends, 2, 4, overlapping=False)
    cells = _geometry._cells("rows", np.array([0, 2**63 - 1]), 1, 4, overlapping=False)
    assert (cells.first[0], cells.last[0]) == (0, 3)


def test_products_are_checked_with_unbounded_integers():
    with pytest.raises(ValueError, match=r"below 2\*\*63"):
        _geometry.conv2d(
            (2**31 - 1,) * 4, (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), "SAME", "NHWC"
        )
    assert math.prod((2**31 - 1,) * 4) > 2**63


def test_geometry_is_imported_without_numba():
    code = "import numba_gradops._geometry, sys; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
