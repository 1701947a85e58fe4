"""What the pool's loops do with a row of columns: divide, add up, put in place.

Helpers that take addresses, so that no array's references are counted, and choose the kernel.
`like_...` are numbers of the type that is read or written.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from ._compile import helper
from ._pool_kernels import add_columns, divide_columns, place_columns, stream_bytes
from ._scalars import bits_of_float64, copy_bytes, float64_from_bits, fused_multiply_add
from ._vectors import has_instruction, vectors

WIDTH = vectors().width
FUSED = has_instruction("fma") or platform.machine() in ("aarch64", "arm64")
_LANES = WIDTH // 8
# Up to this many channels, or bytes, half the work of a full vector would be for nothing.
FEW, _FEW_BYTES = 4, 16
# Below 2**-800 the product with the lower part of a reciprocal may be subnormal: `divide_columns`
# gives the least magnitude as this integer.
_SMALL = np.uint64(2 * ((1023 - 800) << 52) - 1)

_divide_few, _divide_tiny_few = (divide_columns(FEW, fused, True) for fused in (FUSED, False))
_divide_many, _divide_tiny_many = (divide_columns(_LANES, fused, False) for fused in (FUSED, False))
_add_few, _add_rows_few = (add_columns(FEW, rows, True) for rows in (1, 2))
_add_many, _add_rows_many = (add_columns(_LANES, rows, False) for rows in (1, 2))
_add_past_caches, _add_rows_past_caches = (
    add_columns(_LANES, rows, False, past_caches=True) for rows in (1, 2)
)
_place_few = place_columns(_FEW_BYTES, True)
_place_many = place_columns(WIDTH, False)
_place_past_caches = place_columns(WIDTH, False, past_caches=True)
_stream_bytes = stream_bytes(WIDTH)


@helper
def split_reciprocal(size: float) -> tuple[float, float]:
    """Give 1 / size as the sum of two numbers above zero, the first of them rounded down."""
    high = 1.0 / size
    rest = fused_multiply_add(-size, high, 1.0)
    if rest < 0.0:
        high = float64_from_bits(bits_of_float64(high) - 1)
        rest = fused_multiply_add(-size, high, 1.0)
    return high, rest / size if rest > 0.0 else high * 2.0**-106


@helper
def divide(
    like_source: Any,
    like_target: Any,
    depth: int,
    source: int,
    target: int,
    columns: int,
    source_bytes: int,
    target_bytes: int,
    divisors: int,
    high: int,
    low: int,
) -> None:
    """Divide columns by their divisors; no quotient is -0.0."""
    blocks = (depth + _LANES - 1) // _LANES
    run = source, target, columns, source_bytes, target_bytes, blocks, divisors, high, low
    if depth <= FEW:
        if _divide_few(like_source, like_target, *run) < _SMALL:
            _divide_tiny_few(like_source, like_target, *run)
    elif _divide_many(like_source, like_target, *run) < _SMALL:
        _divide_tiny_many(like_source, like_target, *run)


@helper
def add(
    like_target: Any,
    depth: int,
    past_caches: bool,
    two: bool,
    target: int,
    columns: int,
    target_bytes: int,
    firsts: int,
    seconds: int,
    row: int,
    next_row: int,
) -> None:
    """Add up two columns of a row, or of two rows, for each column of the target."""
    blocks = (depth + _LANES - 1) // _LANES
    run = target, columns, target_bytes, blocks, firsts, seconds, row, next_row
    if past_caches:
        if two:
            _add_rows_past_caches(like_target, *run)
        else:
            _add_past_caches(like_target, *run)
    elif depth <= FEW:
        if two:
            _add_rows_few(like_target, *run)
        else:
            _add_few(like_target, *run)
    elif two:
        _add_rows_many(like_target, *run)
    else:
        _add_many(like_target, *run)


@helper
def place(
    past_caches: bool, target: int, source: int, columns: int, column_bytes: int, origins: int
) -> None:
    """Copy columns to where they belong."""
    blocks = (column_bytes + WIDTH - 1) // WIDTH
    if past_caches:
        _place_past_caches(target, source, columns, column_bytes, blocks, origins)
    elif column_bytes <= _FEW_BYTES:
        _place_few(target, source, columns, column_bytes, blocks, origins)
    else:
        _place_many(target, source, columns, column_bytes, blocks, origins)


@helper
def copy_row(past_caches: bool, target: int, source: int, size: int) -> None:
    """Copy bytes."""
    if not past_caches or size < 4 * WIDTH:
        copy_bytes(target, source, size)
        return
    head = -target % WIDTH
    blocks = (size - head) // WIDTH
    tail = head + blocks * WIDTH
    copy_bytes(target, source, head)
    _stream_bytes(target + head, source + head, blocks)
    copy_bytes(target + tail, source + tail, size - tail)
