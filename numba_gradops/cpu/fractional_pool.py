"""Launcher of fractional_avg_pool_grad on the CPU: arrays in the loops' form, tasks for threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._geometry import Cells, segments
from . import _fractional_pool_loops as loops
from . import _threads
from ._adopt import adopt, target
from ._halves import as_bits


def fractional_avg_pool_grad(
    rows: Cells, cols: Cells, out_backprop: NDArray[Any], result: NDArray[Any]
) -> None:
    """Fill `result`, whose arguments have all been checked.

    Beside the result this allocates a few integers for each cell row and column.
    """
    batch, height, width, depth = result.shape
    sizes = loops.Sizes(height, width, rows.first.size, cols.first.size, depth)
    row_axis = loops.Axis(*rows, *segments(rows, height))
    strips = -(-np.diff(row_axis.starts) // loops.STRIP)
    first_strips = np.concatenate([[0], np.cumsum(strips)]).astype(np.int64)
    tasks = batch * int(first_strips[-1])
    with target(result) as flat:
        arguments = (
            tasks,
            sizes,
            row_axis,
            loops.Axis(*cols, *segments(cols, width)),
            first_strips,
            adopt(as_bits(out_backprop)),
            as_bits(flat),
        )
        run = loops.gather, loops.gather_parallel
        _threads.run(*run, tasks, 0.2 * flat.size, arguments, scratch=8 * depth)
