"""Launcher of fractional_avg_pool_grad on the CPU: arrays in the loops' form, tasks for threads."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .._geometry import Cells, segments
from . import _fractional_pool_loops as loops
from . import _irregular_pool_loops as irregular_loops
from . import _threads
from ._adopt import adopt, target
from ._halves import as_bits
from ._pages import are_there

# Elements of a panel: a few rows of them in float64 fit in the first-level cache. Pixels of more
# channels than a part has are done part by part.
_PANEL, _PART = 1024, 4096
# Bytes of a task: few tasks repeat the row that they begin with, many share the work well.
_SMALLEST_TASK, _LARGEST_TASK, _TASKS = 2**15, 2**19, 64
# Result bytes from which the caches would not hold the result anyway.
_PAST_CACHES = 2**23
# Nanoseconds that a byte of the result takes on one thread.
_BYTE_TIME = 0.1


def _is_regular(cells: Cells, size: int) -> bool:
    """Tell whether cells cover the axis in order, as the forward op makes them."""
    first, last = cells
    covers = first[0] == 0 and first[-1] < size and last[-1] == size - 1
    return bool(covers and (first[1:] > first[:-1]).all())


def fractional_avg_pool_grad(
    rows: Cells, cols: Cells, out_backprop: NDArray[Any], result: NDArray[Any]
) -> None:
    """Fill `result`, whose arguments have all been checked."""
    _, height, width, _ = result.shape
    if width == 1 and cols.first.size == 1:
        # A single column lies in memory as a row does, and rows are what the loops are good at.
        out_backprop, result = out_backprop.swapaxes(1, 2), result.swapaxes(1, 2)
        rows, cols, height, width = cols, rows, width, height
    in_order = _is_regular(rows, height) and _is_regular(cols, width)
    if in_order and height * width < loops.CELL_LIMIT:
        _regular(rows, cols, out_backprop, result)
    else:
        _irregular(rows, cols, out_backprop, result)


def _regular(rows: Cells, cols: Cells, out_backprop: NDArray[Any], result: NDArray[Any]) -> None:
    """Have gradient rows divided once, and their sums stored as often as they occur.

    Each thread allocates working memory for a few rows of a panel, which is less than 1 MiB.
    """
    batch, height, width, depth = result.shape
    part = min(depth, _PART)
    # Neighbouring panels divide the column between them twice, and each looks up its cells.
    elements = _PANEL if height >= 8 else 8 * _PANEL
    panel = min(width, max(4, elements // depth)) if part == depth else 1
    task = min(max(result.nbytes // _TASKS, _SMALLEST_TASK), _LARGEST_TASK)
    strip = min(height, max(1, task // (panel * part * result.itemsize)))
    tasks = batch * -(-height // strip) * -(-width // panel) * -(-depth // part)
    with target(result) as flat:
        plan = loops.Plan(
            height,
            width,
            rows.first.size,
            cols.first.size,
            depth,
            int(rows.first.size > 1 and rows.last[0] == rows.first[1]),
            int(cols.first.size > 1 and cols.last[0] == cols.first[1]),
            strip,
            panel,
            part,
            min(numba.get_num_threads(), tasks),
            result.nbytes >= _PAST_CACHES and are_there(flat),
        )
        arguments = tasks, plan, rows.first, cols.first, adopt(as_bits(out_backprop)), as_bits(flat)
        scratch = 48 * (panel + 4) * (part + 64)
        work = _BYTE_TIME * flat.nbytes
        _threads.run(loops.gather, loops.gather_parallel, tasks, work, arguments, scratch=scratch)


def _irregular(rows: Cells, cols: Cells, out_backprop: NDArray[Any], result: NDArray[Any]) -> None:
    """Have each pixel look for its cells.

    Beside the result this allocates a few integers for each cell row and column.
    """
    batch, height, width, depth = result.shape
    sizes = irregular_loops.Sizes(height, width, rows.first.size, cols.first.size, depth)
    row_axis = irregular_loops.Axis(*rows, *segments(rows, height))
    strips = -(-np.diff(row_axis.starts) // irregular_loops.STRIP)
    first_strips = np.concatenate([[0], np.cumsum(strips)]).astype(np.int64)
    tasks = batch * int(first_strips[-1])
    with target(result) as flat:
        arguments = (
            tasks,
            sizes,
            row_axis,
            irregular_loops.Axis(*cols, *segments(cols, width)),
            first_strips,
            adopt(as_bits(out_backprop)),
            as_bits(flat),
        )
        run = irregular_loops.gather_irregular, irregular_loops.gather_irregular_parallel
        _threads.run(*run, tasks, 0.2 * flat.size, arguments, scratch=8 * depth)
