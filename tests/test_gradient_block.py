"""Gradients that tasks copy to blocks of their own: where they lie must not show in the result."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from strategies import convolutions

from numba_gradops import _geometry, conv2d_backprop_input
from numba_gradops._geometry import Conv2D
from numba_gradops.cpu import _gradient_block, _threads, _tiled, _tiled_loops, conv2d
from numba_gradops.cpu._gradient_block_loops import task_rows


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """Let a task be a tile or two, so that what it copies begins anywhere."""
    monkeypatch.setattr(_threads, "SERIAL_BELOW", 0)
    monkeypatch.setattr(_tiled, "_TASKS", 10**6)
    monkeypatch.setattr(_tiled, "_CLASS_TILES", 1)
    monkeypatch.setattr(_tiled, "_TOO_LITTLE_WORK", 0)
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget():
    _tiled.plans.cache_clear()
    conv2d._ways.cache_clear()


@njit
def rows_found(plan, rows, cols, pixels, group):
    return task_rows(plan, rows, cols, pixels, group)


def with_blocks(arguments, most_classes):
    """Compute with blocks where there are at most so many stride classes."""
    before = _gradient_block._MOST_CLASSES, _gradient_block._MOST_COPIES
    _gradient_block._MOST_CLASSES, _gradient_block._MOST_COPIES = most_classes, 10**6
    forget()
    try:
        return conv2d_backprop_input(**arguments, algorithm="direct")
    finally:
        _gradient_block._MOST_CLASSES, _gradient_block._MOST_COPIES = before


@given(convolutions(("float32", "float64", "float16")))
@settings(max_examples=80, deadline=None)
def test_blocks_change_no_bit(arguments):
    result = with_blocks(arguments, 64)
    again = with_blocks(arguments, 0)
    np.testing.assert_array_equal(again, result)
    numbers = ~np.isnan(result)
    np.testing.assert_array_equal(np.signbit(again)[numbers], np.signbit(result)[numbers])


@st.composite
def axes(draw):
    """Draw an axis with elements, and gradients for them."""
    window, stride, dilation, before, after = (draw(st.integers(1, top)) for top in (5, 4, 3, 4, 4))
    span = (window - 1) * dilation + 1
    size = draw(st.integers(max(1, span - before - after), 30))
    output = (size + before + after - span) // stride + 1
    padding = (before, after)
    return _geometry._axis("rows", size, output, window, stride, dilation, padding)


@given(axes(), axes(), *[st.integers(1, top) for top in (3, 12, 9)], st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_plan_knows_the_rows_that_each_task_reads(rows, cols, batch, pixels, groups, padded):
    geometry = Conv2D(batch, 4, 8, 1, rows, cols)
    found = _gradient_block.in_blocks(
        geometry, batch, pixels, groups, 1, 32, channels_first=True, padded=padded
    )
    if found is None:
        return
    reading, groups = found
    first, last = _gradient_block.rows_of_tasks(geometry, batch, pixels, groups, reading)
    assert reading.block_rows == max(0, (last - first).max() + 1)
    plan = _tiled_loops.Plan(*[0] * len(_tiled_loops.Plan._fields))._replace(
        batch=batch,
        tile_groups=groups,
        classes=min(rows.stride, rows.input) * min(cols.stride, cols.input),
        class_columns=min(cols.stride, cols.input),
        **reading._asdict(),
    )
    for group in range(groups):
        some = rows_found(plan, rows, cols, pixels, group)
        if last[group] < 0:  # it reads none
            assert some[0] > some[1]
        else:
            assert some == (first[group], last[group])


@pytest.mark.parametrize("dilation", [1, 16, 32])
def test_blocks_are_small(dilation):
    """Though a task reads more rows than its own: as many as the filter spans."""
    side = 1024
    axis = _geometry._axis("rows", side, side, 3, 1, dilation, "SAME")
    geometry = Conv2D(1, 64, 64, 1, axis, axis)
    plans = _tiled.plans(geometry, 64, 4, 1, channels_last=False, plain=False)
    assert all(planned.scratch < 5 * 2**20 for planned in plans)
    assert bool(plans) == (dilation == 1)


def test_the_sign_of_an_underflow_does_not_depend_on_the_batch():
    """A product that is too small is -0; for other pixels of the tile more products may follow."""
    cols = 19  # not a multiple of a tile: the second image is cut elsewhere than the first
    weights = np.full((3, 3, 40, 4), 1e-30, np.float32)
    gradient = np.full((2, 2, cols, 4), -1e-30, np.float32)
    both = conv2d_backprop_input([2, 2, cols, 40], weights, gradient, [1, 1, 1, 1], "SAME")
    assert (both == 0).all()
    for image in range(2):
        one = gradient[image : image + 1]
        alone = conv2d_backprop_input([1, 2, cols, 40], weights, one, [1, 1, 1, 1], "SAME")
        np.testing.assert_array_equal(np.signbit(both[image : image + 1]), np.signbit(alone))
