"""The loops that bring arrays to the computing dtype, and gradients to NHWC order."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from ._compile import helper, loop
from ._copy_runs import copy_run
from ._halves import get
from ._scalars import next_number
from ._transpose import lanes_of, transpose


@helper
def _copy_block(
    source: Any,
    target: Any,
    at: int,
    to: int,
    rows: int,
    cols: int,
    source_row: int,
    target_row: int,
) -> None:
    """Copy rows x cols elements to cols x rows, and widen halves."""
    for p in range(cols):
        for c in range(rows):
            target[to + p * target_row + c] = get(source, at + c * source_row + p)


def _turn(
    source: Any,
    target: Any,
    at: int,
    to: int,
    rows: int,
    cols: int,
    source_row: int,
    target_row: int,
) -> None:
    """Do what `_copy_block` does, floats in registers."""
    raise NotImplementedError  # the overload below is what gets compiled


@overload(_turn)  # type: ignore[untyped-decorator]
def _turn_compiled(
    source: Any,
    target: Any,
    at: Any,
    to: Any,
    rows: Any,
    cols: Any,
    source_row: Any,
    target_row: Any,
) -> Any:
    if not isinstance(target.dtype, types.Float):

        def by_elements(
            source: Any,
            target: Any,
            at: Any,
            to: Any,
            rows: Any,
            cols: Any,
            source_row: Any,
            target_row: Any,
        ) -> Any:
            _copy_block(source, target, at, to, rows, cols, source_row, target_row)

        return by_elements

    def by_vectors(
        source: Any,
        target: Any,
        at: Any,
        to: Any,
        rows: Any,
        cols: Any,
        source_row: Any,
        target_row: Any,
    ) -> Any:
        step, size, to_size = lanes_of(target), source.itemsize, target.itemsize
        if rows < step or cols < step:
            _copy_block(source, target, at, to, rows, cols, source_row, target_row)
            return
        # The last blocks are full too: they copy again some of what those before them did.
        for number in range((rows + step - 1) // step):
            row = min(number * step, rows - step)
            for other in range((cols + step - 1) // step):
                col = min(other * step, cols - step)
                transpose(
                    source,
                    target,
                    source.ctypes.data + (at + row * source_row + col) * size,
                    source_row * size,
                    target.ctypes.data + (to + col * target_row + row) * to_size,
                    target_row * to_size,
                )

    return by_vectors


# Pixels that are copied at once: their lines in the target stay in the first-level cache.
_STRIP = 64


@helper
def copy_pixels(
    channels_first: bool,
    channels: int,
    image_pixels: int,
    image: int,
    first: int,
    count: int,
    source: Any,
    target: Any,
    to: int,
) -> None:
    """Copy pixels of an image, from NCHW or NHWC, to [pixel, channel] and widen halves."""
    at = image * channels * image_pixels
    if channels_first and channels > 1:
        for lead in range(0, count, _STRIP):
            strip = min(_STRIP, count - lead)
            start, then = at + first + lead, to + lead * channels
            _turn(source, target, start, then, channels, strip, image_pixels, channels)
        return
    copy_run(source, target, at + first * channels, to, count * channels)


@helper
def copy_run_of_pixels(
    channels_first: bool,
    channels: int,
    image_pixels: int,
    image: int,
    first: int,
    count: int,
    source: Any,
    target: Any,
    to: int,
) -> None:
    """Do what `copy_pixels` does for NHWC."""
    at = (image * image_pixels + first) * channels
    copy_run(source, target, at, to, count * channels)


@loop
def to_channels_last(
    counter: Any, channels: int, pixels: int, strip: int, source: Any, target: Any
) -> None:
    """Copy [image, channel, pixel] to [image, pixel, channel] and widen halves, strip by strip."""
    strips = (pixels + strip - 1) // strip
    images = source.size // (channels * pixels)
    while True:
        task = next_number(counter.ctypes.data)
        if task >= images * strips:
            break
        first = task % strips * strip
        image, count = task // strips, min(strip, pixels - first)
        to = (image * pixels + first) * channels
        copy_pixels(True, channels, pixels, image, first, count, source, target, to)


@loop
def widen(counter: Any, strip: int, source: Any, target: Any) -> None:
    """Copy elements, strip by strip, and widen halves: less to compile than `to_channels_last`."""
    while True:
        first = next_number(counter.ctypes.data) * strip
        if first >= source.size:
            break
        copy_run(source, target, first, first, min(strip, source.size - first))
