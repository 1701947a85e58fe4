"""Gradients in the form that Winograd's products take: tiles of pixels turned into points."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._geometry import Axis
from ._compile import helper
from ._scalars import copy_bytes
from ._winograd_forms import MOST_POINTS, evaluate_gradient, sizes
from ._winograd_sides import Side, first_of_tile

# Vectors of gradients that are transformed along both axes while they are in the first cache.
_TOGETHER = 4


# Tables of addresses, for the two passes of a transform: from where, and to where.
_GRADIENT_AT, _REST_AT, _HALF_TO, _HALF_AT, _POINTS_TO = range(5)


class GradientRoom(NamedTuple):
    """A thread's working memory, and tables of addresses."""

    tables: Any
    zeros: Any  # a pixel outside of the image
    values: Any  # gradients that do not fill a vector; then those transformed along columns only


@helper
def gradient_room(terms: int, gradient: Any) -> GradientRoom:
    """Allocate the working memory."""
    _, _, step = sizes(gradient)
    size = gradient.itemsize
    most, together = MOST_POINTS * MOST_POINTS, _TOGETHER * step
    zeros = np.zeros(terms, gradient.dtype)
    values = np.zeros(most * (step + together), gradient.dtype)
    tables = np.empty((5, MOST_POINTS, MOST_POINTS), np.int64)
    half = np.int64(values.ctypes.data) + most * step * size
    for i in range(MOST_POINTS):
        for j in range(MOST_POINTS):
            number = i * MOST_POINTS + j
            tables[_GRADIENT_AT, i, j] = zeros.ctypes.data
            tables[_REST_AT, i, j] = values.ctypes.data + number * step * size
            tables[_HALF_AT, i, j] = half + number * together * size
            tables[_HALF_TO, j, i] = half + number * together * size
    return GradientRoom(tables, zeros, values)


@helper
def _find_gradients(
    rows: Axis,
    cols: Axis,
    row_side: Side,
    col_side: Side,
    tile: int,
    gradient: int,
    pixel_bytes: int,
    zeros: int,
    tables: Any,
) -> None:
    """Note the addresses of a tile's gradients, column by column."""
    _, _, top = first_of_tile(tile // col_side.tiles % row_side.tiles, row_side, rows)
    _, _, left = first_of_tile(tile % col_side.tiles, col_side, cols)
    image = tile // (row_side.tiles * col_side.tiles)
    for i in range(row_side.taps + 3):
        y = top + i * rows.cell_step
        row = gradient + (image * rows.output + y) * cols.output * pixel_bytes
        for j in range(col_side.taps + 3):
            x = left + j * cols.cell_step
            inside = y >= 0 and y < rows.output and x >= 0 and x < cols.output
            tables[_GRADIENT_AT, j, i] = row + x * pixel_bytes if inside else zeros


@helper
def _copy_rest(tables: Any, shift: int, nbytes: int) -> None:
    """Copy the gradients that do not fill a vector; what lies behind them stays zero."""
    for j in range(MOST_POINTS):
        for i in range(MOST_POINTS):
            copy_bytes(tables[_REST_AT, j, i], tables[_GRADIENT_AT, j, i] + shift, nbytes)


@helper
def transform_tiles(
    rows: Axis,
    cols: Axis,
    row_side: Side,
    col_side: Side,
    first: int,
    count: int,
    terms: int,
    gradient: Any,
    room: GradientRoom,
    points: int,
    point_bytes: int,
) -> None:
    """Write the points of `count` tiles of a class at an address: [point, tile, term].

    A point's tiles are `point_bytes` from those of the next. They are filled up with tiles of
    zeros, since a register tile is always full and numbers that mean nothing could be slow ones.
    """
    height, _, step = sizes(gradient)
    size, whole = gradient.itemsize, terms // step
    tables, zeros = room.tables, np.int64(room.zeros.ctypes.data)
    table = np.int64(tables.ctypes.data)
    table_bytes = MOST_POINTS * MOST_POINTS * 8
    row_points, col_points = row_side.taps + 3, col_side.taps + 3
    row_bytes = (terms + step - 1) // step * step * size
    for p in range(row_points):
        for q in range(col_points):
            tables[_POINTS_TO, p, q] = points + (p * col_points + q) * point_bytes
    for t in range((count + height - 1) // height * height):
        if t < count:
            _find_gradients(
                rows, cols, row_side, col_side, first + t,
                np.int64(gradient.ctypes.data), terms * size, zeros, tables,
            )  # fmt: skip
        else:
            for i in range(MOST_POINTS):
                for j in range(MOST_POINTS):
                    tables[_GRADIENT_AT, i, j] = zeros
        vector = 0
        while vector * step < terms:
            source, shift = table + _GRADIENT_AT * table_bytes, vector * step * size
            now = min(_TOGETHER, whole - vector)
            if now < 1:
                _copy_rest(tables, shift, (terms - whole * step) * size)
                source, shift, now = table + _REST_AT * table_bytes, 0, 1
            evaluate_gradient(
                gradient, row_side.taps - 1, col_points, now,
                MOST_POINTS, source, shift,
                MOST_POINTS, table + _HALF_TO * table_bytes, 0,
            )  # fmt: skip
            evaluate_gradient(
                gradient, col_side.taps - 1, row_points, now,
                MOST_POINTS, table + _HALF_AT * table_bytes, 0,
                MOST_POINTS, table + _POINTS_TO * table_bytes, t * row_bytes + vector * step * size,
            )  # fmt: skip
            vector += now
