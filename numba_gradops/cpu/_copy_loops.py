"""The loop that brings gradients to NHWC order and to the computing dtype."""

from __future__ import annotations

from typing import Any

from numba import prange

from ._compile import loop, parallel_loop
from ._halves import get
from ._microkernel import next_number


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
        image = task // strips * channels * pixels
        last = min(first + strip, pixels)
        for lead in range(0, channels, 16):
            for p in range(first, last):
                for c in range(lead, min(lead + 16, channels)):
                    target[image + p * channels + c] = get(source, image + c * pixels + p)


@parallel_loop
def to_channels_last_parallel(
    threads: int, counter: Any, channels: int, pixels: int, strip: int, source: Any, target: Any
) -> None:
    """Have `threads` threads copy."""
    for _ in prange(threads):
        to_channels_last(counter, channels, pixels, strip, source, target)
