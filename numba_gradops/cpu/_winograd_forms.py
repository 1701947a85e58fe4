"""Winograd's minimal filtering F(4, r): 4 outputs of a filter with r taps from r + 3 products.

The direct sum has 4 r products. Gradients, filter and products are transformed by linear forms,
along columns and then along rows. F(4, 1) is there so that one program serves all: its gradients
and products are left as they are.

With products at the points 0, 1, -1, 2, -2 and infinity (Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, 2016) all factors are small, and so are the rounding errors.
"""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from . import _winograd_kernels
from ._emitter import Tile
from ._vectors import lanes, pixels_beside
from ._winograd_kernels import Forms

MOST_TAPS = 3
MOST_POINTS = MOST_TAPS + 3
_VECTORS = 2  # in the channels of a block

_SAME = tuple(tuple(int(i == j) for j in range(4)) for i in range(4))

# A matrix for each number of taps: a row is a linear form in the inputs.
_GRADIENT: tuple[Forms, ...] = (
    _SAME,
    (
        (2, -1, -2, 1, 0),
        (0, -2, -1, 1, 0),
        (0, 2, -3, 1, 0),
        (0, -1, 0, 1, 0),
        (0, 2, -1, -2, 1),
    ),
    (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
)
_FILTER: tuple[Forms, ...] = (
    ((1,),),
    (
        (1 / 2, 0),
        (-1 / 2, -1 / 2),
        (-1 / 6, 1 / 6),
        (1 / 6, 1 / 3),
        (0, 1),
    ),
    (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
)
_RESULT: tuple[Forms, ...] = (
    _SAME,
    (
        (1, 1, 1, 1, 0),
        (0, 1, -1, 2, 0),
        (0, 1, 1, 4, 0),
        (0, 1, -1, 8, 1),
    ),
    (
        (1, 1, 1, 1, 1, 0),
        (0, 1, -1, 2, -2, 0),
        (0, 1, 1, 4, 4, 0),
        (0, 1, -1, 8, -8, 1),
    ),
)


def block_width(itemsize: int) -> int:
    """Give the number of channels in a block."""
    return _VECTORS * lanes(itemsize)


def tile_of(itemsize: int) -> Tile:
    """Give the shape of the register tile that multiplies."""
    return Tile(pixels_beside(_VECTORS), _VECTORS, lanes(itemsize))


def _forms(choices: tuple[Forms, ...], check: bool) -> Any:
    return _winograd_kernels.linear_forms(lanes, choices, check)


evaluate_gradient = _forms(_GRADIENT, check=False)
evaluate_filter = _forms(_FILTER, check=True)
evaluate_result = _forms(_RESULT, check=True)
multiply = _winograd_kernels.matrix_tile(tile_of)


def sizes(array: Any) -> tuple[int, int, int]:
    """Give the rows and channels of a register tile, and the lanes of a vector."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(sizes)  # type: ignore[untyped-decorator]
def _sizes_compiled(array: Any) -> Any:
    size = array.dtype.bitwidth // 8
    rows, width, step = tile_of(size).pixels, block_width(size), lanes(size)

    def constants(array: Any) -> Any:
        return rows, width, step

    return constants
