"""The filter in the form that Winograd's products take: transformed, and in their order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from .._geometry import Axis
from ._compile import helper
from ._scalars import copy_bytes
from ._transpose import transpose_kernel
from ._winograd_forms import MOST_POINTS, MOST_TAPS, evaluate_filter, sizes
from ._winograd_sides import Side

# Tables of addresses, for the two passes of a transform: from where, and to where.
_TAPS_AT, _HALF_TO, _HALF_AT, _POINTS_TO = range(4)


class FilterRoom(NamedTuple):
    """A thread's working memory, and tables of addresses.

    For a vector of terms and a block of channels: the taps in order; then those transformed along
    columns; then all points, where the last vector of terms has too many.
    """

    tables: Any
    taps: Any


@helper
def filter_room(weights: Any) -> FilterRoom:
    """Allocate the working memory."""
    _, width, step = sizes(weights)
    part = step * width
    most = MOST_POINTS + MOST_TAPS
    taps = np.empty((most * MOST_TAPS + MOST_POINTS * MOST_POINTS) * part, weights.dtype)
    tables = np.empty((4, MOST_POINTS, MOST_POINTS), np.int64)
    for i in range(most):
        for j in range(MOST_TAPS):
            at = taps.ctypes.data + (i * MOST_TAPS + j) * part * weights.itemsize
            if i < MOST_TAPS:
                tables[_TAPS_AT, j, i] = at
            else:
                tables[_HALF_TO, j, i - MOST_TAPS] = at
                tables[_HALF_AT, i - MOST_TAPS, j] = at
    return FilterRoom(tables, taps)


def _transpose(array: Any, source: int, source_row: int, target: int, target_row: int) -> None:
    """Transpose a block of vector size between two addresses."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_transpose, inline="always")  # type: ignore[untyped-decorator]
def _transpose_compiled(
    array: Any, source: Any, source_row: Any, target: Any, target_row: Any
) -> Any:
    kernel = transpose_kernel(array.dtype, array.dtype)

    def run(array: Any, source: Any, source_row: Any, target: Any, target_row: Any) -> Any:
        kernel(source, source_row, target, target_row)

    return run


@helper
def _gather(
    channels: int, terms: int, tap: int, channel: int, term: int, weights: Any, target: Any, at: int
) -> None:
    """Turn weights [channel, term] of a block and a vector of terms into [term, channel]."""
    _, width, step = sizes(weights)
    size = weights.itemsize
    for lead in range(0, width, step):
        first = channel + lead
        source = (tap * channels + first) * terms + term
        if first + step <= channels and term + step <= terms:
            _transpose(
                weights,
                weights.ctypes.data + source * size,
                terms * size,
                target.ctypes.data + (at + lead) * size,
                width * size,
            )
            continue
        for o in range(step):
            for c in range(step):
                inside = first + c < channels and term + o < terms
                value = weights[source + c * terms + o] if inside else 0
                target[at + o * width + lead + c] = value


@helper
def transform_part(
    rows: Axis,
    cols: Axis,
    row_side: Side,
    col_side: Side,
    channels: int,
    terms: int,
    block: int,
    term: int,
    weights: Any,
    room: FilterRoom,
    points: int,
    point_bytes: int,
) -> int:
    """Transform the weights of a block and the vector of terms from `term` on.

    The filter is [tap, channel, term]; the points are written at an address, `point_bytes` from one
    to the next, as [point, term, channel in block]. Channels that the last block has too many
    become 0. Gives 0 if all weights are finite.
    """
    _, width, step = sizes(weights)
    size, part = weights.itemsize, step * width
    tables, taps = room.tables, room.taps
    table = np.int64(tables.ctypes.data)
    table_bytes = MOST_POINTS * MOST_POINTS * 8
    last = np.int64(taps.ctypes.data) + (MOST_POINTS + MOST_TAPS) * MOST_TAPS * part * size
    # The gradient of a convolution meets the filter back to front.
    for i in range(row_side.taps):
        row = row_side.tap + (row_side.taps - 1 - i) * rows.tap_step
        for j in range(col_side.taps):
            tap = row * cols.window + col_side.tap + (col_side.taps - 1 - j) * cols.tap_step
            at = (i * MOST_TAPS + j) * part
            _gather(channels, terms, tap, block * width, term, weights, taps, at)
    row_points, col_points = row_side.filter_points, col_side.filter_points
    whole = term + step <= terms
    for p in range(row_points):
        for q in range(col_points):
            point = p * col_points + q
            at = last + point * part * size
            if whole:
                at = points + point * point_bytes
            tables[_POINTS_TO, p, q] = at
    evaluate_filter(
        weights, row_side.taps - 1, col_side.taps, width,
        MOST_POINTS, table + _TAPS_AT * table_bytes, 0,
        MOST_POINTS, table + _HALF_TO * table_bytes, 0,
    )  # fmt: skip
    bad: int = evaluate_filter(
        weights, col_side.taps - 1, row_points, width,
        MOST_POINTS, table + _HALF_AT * table_bytes, 0,
        MOST_POINTS, table + _POINTS_TO * table_bytes, 0,
    )  # fmt: skip
    if not whole:
        for point in range(row_points * col_points):
            copy_bytes(
                points + point * point_bytes,
                last + point * part * size,
                (terms - term) * width * size,
            )
    return bad
