"""Results of more than 2**31 elements, on sparse files: only the pages touched take memory.

The compiled loops are run for the last block of a very large result; an offset cut to 32 bits
would write elsewhere, or crash.
"""

from pathlib import Path

import numpy as np
import pytest

from numba_gradops import _geometry
from numba_gradops.cpu import (
    _exact,
    _exact_loops,
    _fractional_pool_loops,
    _irregular_pool_loops,
    _tiled,
    _tiled_loops,
)
from numba_gradops.cpu._call import Call
from numba_gradops.cpu._plans import write_down

IMAGES, ROWS, COLS, CHANNELS = 2, 2**14, 2**12, 17  # 2**31 + 2**27 elements


@pytest.fixture
def sparse(tmp_path: Path):
    """Give a factory of float32 arrays of zeros in sparse files."""

    def make(name: str, elements: int) -> np.ndarray:
        try:
            return np.asarray(np.memmap(tmp_path / name, np.float32, "w+", shape=(elements,)))
        except OSError as error:
            pytest.skip(f"no sparse file of {4 * elements} bytes: {error}")

    return make


def frozen(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def call_of(sparse, data_format: str) -> tuple[Call, tuple[int, ...]]:
    """Make a 1x1 convolution that triples the gradient; only its last pixel is not zero."""
    order = (0, 1, 2, 3) if data_format == "NHWC" else (0, 3, 1, 2)
    shape = (IMAGES, ROWS, COLS, CHANNELS)
    sizes = tuple(shape[axis] for axis in order)
    weights = np.eye(CHANNELS, dtype=np.float32).reshape(1, 1, CHANNELS, CHANNELS) * 3
    geometry = _geometry.conv2d(
        sizes, weights.shape, sizes, (1,) * 4, (1,) * 4, "SAME", data_format
    )
    gradient = sparse("gradient", IMAGES * ROWS * COLS * CHANNELS)
    gradient[-CHANNELS:] = np.arange(1, CHANNELS + 1)  # in the order that the loops read
    result = sparse("result", IMAGES * ROWS * COLS * CHANNELS)
    return Call(geometry, weights, gradient, data_format, result.reshape(sizes)), sizes


def assert_last_pixel_is_right(call: Call, sizes: tuple[int, ...]) -> None:
    result = call.result.reshape(sizes)
    last = result[-1, -1, -1] if call.data_format == "NHWC" else result[-1, :, -1, -1]
    np.testing.assert_array_equal(last, 3 * np.arange(1, CHANNELS + 1))


@pytest.mark.parametrize(
    ("data_format", "form"),
    [
        ("NHWC", _exact_loops.CHANNELS),
        ("NCHW", _exact_loops.CHANNELS),
        ("NHWC", _exact_loops.DOT),
    ],
)
def test_offsets_of_the_exact_loops_are_64_bit(sparse, data_format, form):
    call, sizes = call_of(sparse, data_format)
    tasks, plan = _exact._plan(call.geometry, form, data_format == "NHWC", IMAGES)
    _exact_loops.gather(
        np.array([tasks - 1]),
        plan,
        frozen(call.filter.ravel()),
        frozen(call.gradient),
        call.result.reshape(-1),
    )
    assert_last_pixel_is_right(call, sizes)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_offsets_of_the_tiles_are_64_bit(sparse, data_format):
    call, sizes = call_of(sparse, data_format)
    for planned in _tiled._planned(call, None, plain=True):
        tile_groups = planned.plan[_tiled_loops.Plan._fields.index("tile_groups")]
        for last in range(tile_groups, planned.kind.tasks + 1, tile_groups):
            _tiled_loops.work(
                np.array([last - 1]),
                planned.kind._replace(tasks=last),
                planned.form,
                planned.plan,
                _tiled.packed(call, planned),
                frozen(call.gradient),
                call.result.reshape(-1),
            )
    assert_last_pixel_is_right(call, sizes)


def test_pooling_offsets_are_64_bit(sparse):
    gradient = sparse("gradient", IMAGES * ROWS * COLS * CHANNELS)
    gradient[-CHANNELS:] = np.arange(1, CHANNELS + 1)
    result = sparse("result", IMAGES * ROWS * COLS * CHANNELS)
    # Every element is a cell; a task is a row, or, in the other loops, a strip of alike rows.
    tasks = IMAGES * ROWS
    plan = _fractional_pool_loops.Plan(
        tasks, ROWS, COLS, ROWS, COLS, CHANNELS, 0, 0, 1, COLS, CHANNELS, 1, past_caches=0
    )
    cells = [
        _geometry._cells("rows", np.arange(size + 1), size, size, overlapping=False)
        for size in (ROWS, COLS)
    ]
    _fractional_pool_loops.gather(
        np.array([tasks - 1]),
        write_down(plan),
        cells[0].first,
        cells[1].first,
        frozen(gradient),
        result,
    )
    np.testing.assert_array_equal(result[-CHANNELS:], np.arange(1, CHANNELS + 1))
    result[-CHANNELS:] = 0
    axes = [
        _irregular_pool_loops.Axis(*one, *_geometry.segments(one, size))
        for one, size in zip(cells, (ROWS, COLS), strict=True)
    ]
    _irregular_pool_loops.gather_irregular(
        np.array([tasks - 1]),
        tasks,
        _irregular_pool_loops.Sizes(ROWS, COLS, ROWS, COLS, CHANNELS),
        *axes,
        np.arange(ROWS + 1),
        frozen(gradient),
        result,
    )
    np.testing.assert_array_equal(result[-CHANNELS:], np.arange(1, CHANNELS + 1))
