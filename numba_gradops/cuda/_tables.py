"""How convolution kernels read their table: positions in it, and the class of a tile."""

from __future__ import annotations

from typing import Any

from numba.cuda import types

from . import _intrinsics
from ._conv2d_plan import CLASS_FIELDS, TAP_FIELDS, Header
from ._helpers import helper

int32 = types.int32

(
    CLASSES,
    IN_ROWS,
    IN_COLS,
    OUT_ROWS,
    OUT_COLS,
    GROUP_IN,
    GROUP_OUT,
    GROUPS,
    ROW_STRIDE,
    COL_STRIDE,
    COL_TILES,
    FIRST_TAP,
) = range(len(Header._fields))
HEADER = len(Header._fields)

# Positions in the entry of a class and of a tap.
LEAD_ROW, LEAD_COL, CLASS_ROWS, CLASS_COLS, TAPS, TAP_BEGIN, FIRST_TILE, PIXELS = range(
    len(CLASS_FIELDS)
)
CLASS_SIZE = len(CLASS_FIELDS)
TAP, ROW_SHIFT, COL_SHIFT = range(3)
TAP_SIZE = len(TAP_FIELDS)

read = _intrinsics.reads("int32")
field = _intrinsics.fields("int32")
divide, remainder, inside = _intrinsics.divide, _intrinsics.remainder, _intrinsics.inside


@helper
def class_of(table: Any, tile: Any) -> Any:
    """Find where in the table the class of a tile is described: the last that starts before."""
    low = int32(0)
    high = read(table, CLASSES)
    while int32(high - low) > 1:
        middle = int32((low + high) >> 1)
        if field(table, int32(middle * CLASS_SIZE), HEADER + FIRST_TILE) <= tile:
            low = middle
        else:
            high = middle
    return int32(HEADER + low * CLASS_SIZE)


@helper
def first_tap(table: Any, here: Any) -> Any:
    """Find where in the table the taps of a class start."""
    begin = field(table, here, TAP_BEGIN)
    return int32(read(table, FIRST_TAP) + begin * TAP_SIZE)


@helper
def row_of(table: Any, here: Any, i: Any) -> Any:
    """Find the row of the i-th row of a class in the image."""
    return int32(field(table, here, LEAD_ROW) + i * read(table, ROW_STRIDE))


@helper
def col_of(table: Any, here: Any, j: Any) -> Any:
    """Find the column of the j-th column of a class in the image."""
    return int32(field(table, here, LEAD_COL) + j * read(table, COL_STRIDE))
