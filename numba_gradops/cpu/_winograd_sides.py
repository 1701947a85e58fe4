"""Stride classes along an axis, as Winograd's algorithm cuts them into tiles of 4 elements."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._geometry import Axis
from ._compile import helper
from ._tiles import stride_class


class Side(NamedTuple):
    """A stride class: element ``lead + i * stride``, and what `stride_class` tells about it.

    With a dilation, elements whose gradients are neighbours lie `cell_step` apart in the class. It
    then consists of so many shares, each of which is cut into tiles by itself.
    """

    lead: int
    tap: int
    taps: int
    cell: int
    elements: int
    share_tiles: int  # tiles of a share
    tiles: int  # of all shares
    filter_points: int


@lru_cache(maxsize=256)
def sides_of(axis: Axis) -> tuple[Side, ...]:
    """Describe the stride classes of an axis."""
    found = []
    for lead in range(min(axis.stride, axis.input)):
        _, elements, tap, taps, cell, _, _ = stride_class.py_func(lead, axis)
        share_tiles = -(-elements // (4 * axis.cell_step))
        tiles = share_tiles * min(axis.cell_step, elements)
        points = taps + 3 if taps > 1 else 1  # a single tap is left as it is
        found.append(Side(lead, tap, taps, cell, elements, share_tiles, tiles, points))
    return tuple(found)


def table_of(axis: Axis) -> NDArray[np.int64]:
    """Give the classes of an axis in the form that loops read."""
    table = np.array(sides_of(axis), np.int64)
    table.flags.writeable = False
    return table


@helper
def side_at(table: Any, number: int) -> Side:
    """Read a class from the table."""
    row = table[number]
    return Side(row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7])


@helper
def first_of_tile(tile: int, side: Side, axis: Axis) -> tuple[int, int, int]:
    """Give a tile's first element in its class, how many it has, and its first gradient."""
    share, number = tile // side.share_tiles, tile % side.share_tiles
    first = share + 4 * number * axis.cell_step
    count = max(0, min(4, (side.elements - 1 - first) // axis.cell_step + 1))
    return first, count, side.cell + first - (side.taps - 1) * axis.cell_step
