"""The loops that bring the filter's weights to the order in which register tiles read them.

Halves are widened on the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .._geometry import Axis
from ._compile import helper, loop
from ._halves import get
from ._plans import reader
from ._scalars import next_number
from ._tiles import tap_place
from ._transpose import lanes_of, transpose


class Packing(NamedTuple):
    """What the loops need to know."""

    taps: int
    groups: int
    group_in: int
    group_out: int
    first_channel: int  # of block 0, in its group
    block: int
    blocks: int


_read_plan = reader(Packing, Axis, Axis)


@helper
def _not_finite(values: Any, start: int, stop: int) -> int:
    """Count values that are NaN or infinite."""
    count = 0
    for i in range(start, stop):
        count += 0 if values[i] - values[i] == 0 else 1
    return count


@helper
def _place(tap: int, rows: Axis, cols: Axis) -> Any:
    return tap_place(tap // cols.window, rows) * cols.window + tap_place(tap % cols.window, cols)


@loop
def pack(counter: Any, numbers: Any, weights: Any, packed: Any, odd: Any) -> None:
    """Reorder weights from [tap, in, out] to [group, block, place, out in group, in within block].

    Channels that the last block has too many become 0. Sets `odd` if a weight is not finite.
    """
    packing, rows, cols = _read_plan(numbers)
    size, step = packed.itemsize, lanes_of(packed)
    outs = packing.groups * packing.group_out
    block, terms = packing.block, packing.group_out
    while True:
        task = next_number(counter.ctypes.data)
        if task >= packing.groups * packing.blocks * packing.taps:
            break
        tap, panel = task % packing.taps, task // packing.taps
        group, first = panel // packing.blocks, panel % packing.blocks * block
        first += packing.first_channel
        to = (panel * packing.taps + _place(tap, rows, cols)) * terms * block
        for lead in range(0, block, step):
            channels = min(step, max(0, packing.group_in - first - lead))
            source = (tap * packing.group_in + first + lead) * outs + group * terms
            target = to + lead
            whole = terms // step * step if channels == step else 0
            for o in range(0, whole, step):
                transpose(
                    weights,
                    packed,
                    weights.ctypes.data + (source + o) * weights.itemsize,
                    outs * weights.itemsize,
                    packed.ctypes.data + (target + o * block) * size,
                    block * size,
                )
            for o in range(whole, terms):
                for c in range(step):
                    value = get(weights, source + c * outs + o) if c < channels else 0
                    packed[target + o * block + c] = value
        if _not_finite(packed, to, to + terms * block) != 0:
            odd[0] = 1


@loop
def pack_by_terms(numbers: Any, weights: Any, packed: Any, odd: Any) -> None:
    """Reorder weights from [tap, in, out] to [group, block, in within block, place, out in group].

    Sets `odd` if a weight is not finite.
    """
    packing, rows, cols = _read_plan(numbers)
    terms, outs = packing.group_out, packing.groups * packing.group_out
    for tap in range(packing.taps):
        place = _place(tap, rows, cols)
        for group in range(packing.groups):
            for c in range(packing.blocks * packing.block):
                source = (tap * packing.group_in + packing.first_channel + c) * outs + group * terms
                row = group * packing.blocks * packing.block + c
                target = (row * packing.taps + place) * terms
                for o in range(terms):
                    packed[target + o] = get(weights, source + o)
    odd[0] = _not_finite(packed, 0, packed.size)


@loop
def pack_groups(numbers: Any, weights: Any, packed: Any, odd: Any) -> None:
    """Reorder weights of small groups to [block of all channels, place, out in group, channel].

    A group has as many outputs as inputs. Sets `odd` if a weight is not finite.
    """
    packing, rows, cols = _read_plan(numbers)
    size, block = packing.group_in, packing.block
    channels = packing.groups * size
    for tap in range(packing.taps):
        place = _place(tap, rows, cols)
        for channel in range(packing.blocks * block):
            first = channel // block * packing.taps + place
            for o in range(size):
                value = packed.dtype.type(0)
                if channel < channels:
                    source = (tap * size + channel % size) * channels + channel // size * size + o
                    value = get(weights, source)
                packed[(first * size + o) * block + channel % block] = value
    odd[0] = _not_finite(packed, 0, packed.size)
