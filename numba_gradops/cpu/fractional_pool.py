"""Launcher of fractional_avg_pool_grad on the CPU: arrays in the loops' form, tasks for threads."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from .._geometry import Cells, Pool, segments
from . import _fractional_pool_loops as loops
from . import _irregular_pool_loops as irregular_loops
from . import _threads
from ._adopt import adopt, target
from ._halves import as_bits
from ._pages import are_there
from ._plans import write_down

# Elements of a panel: a few rows of them in float64 fit in the first-level cache. Pixels of more
# channels than a part has are done part by part.
_PANEL, _PART = 1024, 4096
# Bytes of a task: few tasks repeat the row that they begin with, many share the work well.
_SMALLEST_TASK, _LARGEST_TASK, _TASKS = 2**15, 2**19, 64
# Result bytes from which the caches would not hold the result anyway.
_PAST_CACHES = 2**23
# Nanoseconds that a byte of the result takes on one thread, and a pixel at least.
_BYTE_TIME, _PIXEL_TIME = 0.1, 3


def _is_regular(cells: Cells, size: int) -> bool:
    """Tell whether cells cover the axis in order, as the forward op makes them."""
    first, last = cells
    covers = first[0] == 0 and first[-1] < size and last[-1] == size - 1
    return bool(covers and (first[1:] > first[:-1]).all())


class _Plan(NamedTuple):
    """What follows from the geometry alone."""

    as_row: bool  # one column lies in memory as a row does, and rows are what loops are good at
    rows: Cells
    cols: Cells
    irregular: _Irregular | None  # for cells that do not cover the image in order
    small: dict[int, _Regular]  # by the size of an element: of calls that one thread computes


class _Regular(NamedTuple):
    """How the regular loops' work is cut up."""

    tasks: int
    work: float
    plan: NDArray[np.int64]
    scratch: int


class _Irregular(NamedTuple):
    """What the irregular loops need to know beside the arrays."""

    tasks: int
    sizes: irregular_loops.Sizes
    rows: irregular_loops.Axis
    cols: irregular_loops.Axis
    first_strips: NDArray[np.int64]


# Kept as long as the geometry is.
_plans: WeakKeyDictionary[Pool, _Plan] = WeakKeyDictionary()


def _plan(geometry: Pool) -> _Plan:
    found = _plans.get(geometry)
    if found is None:
        batch, height, width, depth = geometry.input_sizes
        rows, cols = geometry.rows, geometry.cols
        as_row = width == 1 and cols.first.size == 1
        if as_row:
            rows, cols, height, width = cols, rows, width, height
        in_order = _is_regular(rows, height) and _is_regular(cols, width)
        irregular = None
        if not in_order or height * width >= loops.CELL_LIMIT:
            irregular = _irregular_plan(rows, cols, (batch, height, width, depth))
        found = _plans[geometry] = _Plan(as_row, rows, cols, irregular, {})
    return found


def _irregular_plan(rows: Cells, cols: Cells, shape: tuple[int, int, int, int]) -> _Irregular:
    batch, height, width, depth = shape
    row_axis = irregular_loops.Axis(*rows, *segments(rows, height))
    strips = -(-np.diff(row_axis.starts) // irregular_loops.STRIP)
    first_strips = np.concatenate([[0], np.cumsum(strips)]).astype(np.int64)
    return _Irregular(
        batch * int(first_strips[-1]),
        irregular_loops.Sizes(height, width, rows.first.size, cols.first.size, depth),
        row_axis,
        irregular_loops.Axis(*cols, *segments(cols, width)),
        first_strips,
    )


def fractional_avg_pool_grad(
    geometry: Pool, out_backprop: NDArray[Any], result: NDArray[Any]
) -> None:
    """Fill `result`, whose arguments have all been checked."""
    plan = _plan(geometry)
    if plan.as_row:
        out_backprop, result = out_backprop.swapaxes(1, 2), result.swapaxes(1, 2)
    if plan.irregular is None:
        _regular(plan, out_backprop, result)
    else:
        _irregular(plan.irregular, out_backprop, result)


def _regular(plan: _Plan, out_backprop: NDArray[Any], result: NDArray[Any]) -> None:
    """Have gradient rows divided once, and their sums stored as often as they occur.

    Each thread allocates working memory for a few rows of a panel, which is less than 1 MiB.
    """
    with target(result) as flat:
        found = plan.small.get(result.itemsize) or _cut(plan, result, flat)
        gradient = adopt(as_bits(out_backprop))
        arguments = found.plan, plan.rows.first, plan.cols.first, gradient, as_bits(flat)
        _threads.run(loops.gather, found.tasks, found.work, arguments, found.scratch)


def _cut(found: _Plan, result: NDArray[Any], flat: NDArray[Any]) -> _Regular:
    """Cut up the work, and keep how for calls that are too small for threads."""
    rows, cols = found.rows.first, found.cols.first
    batch, height, width, depth = result.shape
    part = min(depth, _PART)
    # Neighbouring panels divide the column between them twice, and each looks up its cells.
    elements = _PANEL if height >= 8 else 8 * _PANEL
    panel = min(width, max(4, elements // depth)) if part == depth else 1
    task = min(max(result.nbytes // _TASKS, _SMALLEST_TASK), _LARGEST_TASK)
    strip = min(height, max(1, task // (panel * part * result.itemsize)))
    tasks = batch * -(-height // strip) * -(-width // panel) * -(-depth // part)
    work = max(_BYTE_TIME * result.nbytes, _PIXEL_TIME * batch * height * width)
    plan = loops.Plan(
        tasks,
        height,
        width,
        rows.size,
        cols.size,
        depth,
        int(rows.size > 1 and found.rows.last[0] == rows[1]),
        int(cols.size > 1 and found.cols.last[0] == cols[1]),
        strip,
        panel,
        part,
        _threads.at_most(tasks, work),
        int(result.nbytes >= _PAST_CACHES and are_there(flat)),
    )
    cut = _Regular(tasks, work, write_down(plan), 48 * (panel + 4) * (part + 64))
    if work < _threads.SERIAL_BELOW:
        found.small[result.itemsize] = cut
    return cut


def _irregular(plan: _Irregular, out_backprop: NDArray[Any], result: NDArray[Any]) -> None:
    """Have each pixel look for its cells.

    Beside the result this allocates a few integers for each cell row and column.
    """
    gradient = adopt(as_bits(out_backprop))
    with target(result) as flat:
        arguments = (*plan, gradient, as_bits(flat))
        work, scratch = 0.2 * flat.size, 8 * plan.sizes.depth
        _threads.run(irregular_loops.gather_irregular, plan.tasks, work, arguments, scratch)
