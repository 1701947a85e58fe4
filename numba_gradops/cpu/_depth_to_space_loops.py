"""How finished tiles of blocks (see `_depth_to_space`) get to the pixels of the result."""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from ._compile import helper
from ._halves import get
from ._scalars import copy_bytes, store_byte

# Elements from which copying them is left to the C library.
_MANY = 16


def _not_finite(values: Any, start: int, stop: int) -> int:
    """Count values that are NaN or infinite."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_not_finite)  # type: ignore[untyped-decorator]
def _not_finite_compiled(values: Any, start: Any, stop: Any) -> Any:
    def count(values: Any, start: Any, stop: Any) -> Any:
        found = 0
        for i in range(start, stop):
            value = get(values, i)
            found += 0 if value - value == 0 else 1
        return found

    return count


@helper
def depth_to_space(
    plan: Any,
    scratch: Any,
    row: int,
    first: int,
    lanes: int,
    start: int,
    count: int,
    in_row: int,
    in_image: int,
    result: Any,
    noted: int,
) -> None:
    """Copy channels `first` and following of `count` blocks to where they belong in the result.

    The blocks, of which `row` elements are in `scratch` for each, are counted through all images
    from `start` on. A *segment* is what lies side by side in the result: a row of a block, or with
    channels first, a row of one channel. Notes rows that are not finite at an address, if not 0.
    """
    unit = plan.space_channels if plan.channel_step == 1 else 1
    length = plan.space_cols * unit
    segments_of_row = 1 if plan.channel_step == 1 else plan.space_channels
    size = result.itemsize
    wrong = noted != 0 and _not_finite(scratch, 0, count * row) != 0
    p = 0
    while p < count:
        image, i, j = (
            (start + p) // in_image,
            (start + p) % in_image // in_row,
            (start + p) % in_row,
        )
        run = min(count - p, in_row - j)
        top = i * plan.space_rows - plan.space_above
        left = j * plan.space_cols - plan.space_before
        if wrong:
            for q in range(p, p + run):
                if _not_finite(scratch, q * row, q * row + lanes) != 0:
                    for y in range(max(0, top), min(plan.space_height, top + plan.space_rows)):
                        store_byte(noted + image * plan.space_height + y, 1)
        for segment in range(first // length, (first + lanes - 1) // length + 1):
            y = top + segment // segments_of_row
            if y < 0 or y >= plan.space_height:
                continue
            at = image * plan.image_step + y * plan.row_step
            at += segment % segments_of_row * plan.channel_step
            lead = segment * length
            low, high = max(first - lead, 0), min(first + lanes - lead, length)
            for q in range(run):
                x = (left + q * plan.space_cols) * unit
                begin, end = max(low, -x), min(high, plan.space_width * unit - x)
                source, to = (p + q) * row + lead - first, at + x
                if end - begin >= _MANY:
                    copy_bytes(
                        result.ctypes.data + (to + begin) * size,
                        scratch.ctypes.data + (source + begin) * size,
                        (end - begin) * size,
                    )
                else:
                    for e in range(begin, end):
                        result[to + e] = scratch[source + e]
        p += run
