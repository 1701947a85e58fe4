"""Shapes and positions in plain integers, for both gradients; every shape error is raised here.

No array is touched and Numba is not imported. The formulas are TensorFlow's, with Python's
unbounded integers in place of 32- and 64-bit arithmetic, so that nothing can overflow.

`first_contribution` is also compiled, as it stands, into the kernels of each device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._arguments import INT32_MAX, INT64_MAX, DataFormat, Padding

# Positions are computed in int64 by the kernels: they stay exact while padding and the reach of
# a dilated filter are below this. TensorFlow's own limits are far tighter.
_MAX_REACH = 2**62


class Axis(NamedTuple):
    """Rows or columns of a convolution: sizes, and how filter taps meet result elements.

    Result element y is reached by tap k from gradient element o where
    ``y + pad == o * stride + k * dilation``. For one y the solutions are an arithmetic
    progression: k grows by `tap_step` while o falls by `cell_step`.
    """

    input: int
    output: int
    window: int
    stride: int
    dilation: int
    pad: int
    tap_step: int  # stride / g        with g = gcd(stride, dilation)
    cell_step: int  # dilation / g
    inverse: int  # of cell_step, modulo tap_step


class Conv2D(NamedTuple):
    """A whole convolution, free of the memory layout."""

    batch: int
    channels: int
    out_channels: int
    groups: int
    rows: Axis
    cols: Axis


class Cells(NamedTuple):
    """Rows or columns of a fractional pooling: cell i covers elements first[i] to last[i]."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]


class Segments(NamedTuple):
    """An axis cut where a cell starts or ends: the elements of a segment lie in the same cells.

    Segment i is the elements starts[i] to starts[i + 1] - 1; they lie in the cells
    ``cells[begin[i]:begin[i + 1]]``, in ascending order. As long as the sequence, whatever the
    length of the axis.
    """

    starts: NDArray[np.int64]
    begin: NDArray[np.int64]
    cells: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pool:
    """The cells of a fractional pooling; equal to itself only, so that plans can be kept by it."""

    input_sizes: tuple[int, ...]
    rows: Cells
    cols: Cells


def first_contribution(position: int, axis: Axis) -> tuple[int, int, int]:
    """Find the first tap that reaches result element `position`, its cell, and how many follow.

    The j-th contribution is tap ``tap + j * axis.tap_step`` applied to gradient element
    ``cell - j * axis.cell_step``.
    """
    shared = axis.stride // axis.tap_step
    reach = position + axis.pad
    if reach % shared != 0:
        return 0, 0, 0
    # k * dilation = reach (modulo stride)  <=>  k = reach/g * (dilation/g)^-1 (modulo stride/g)
    tap = (reach // shared) % axis.tap_step * axis.inverse % axis.tap_step
    cell = (reach - tap * axis.dilation) // axis.stride
    if cell >= axis.output:
        skipped = (cell - axis.output) // axis.cell_step + 1
        tap += skipped * axis.tap_step
        cell -= skipped * axis.cell_step
    if cell < 0 or tap >= axis.window:
        return 0, 0, 0
    by_window = (axis.window - 1 - tap) // axis.tap_step + 1
    by_cells = cell // axis.cell_step + 1
    return tap, cell, min(by_window, by_cells)


class StrideClass(NamedTuple):
    """Result elements ``lead + i * stride`` of an axis: the same taps reach all of them.

    Tap ``taps[j]`` is applied to gradient element ``i + shifts[j]`` where there is one. Taps that
    find none for any element are left out.
    """

    lead: int
    size: int
    taps: tuple[int, ...]
    shifts: tuple[int, ...]


def stride_classes(axis: Axis) -> list[StrideClass]:
    """List the classes that an axis falls into, one for each element below its stride."""
    shared = axis.stride // axis.tap_step
    found = []
    for lead in range(min(axis.stride, axis.input)):
        size = (axis.input - lead + axis.stride - 1) // axis.stride
        reach = lead + axis.pad
        taps: range = range(0)
        shifts: range = range(0)
        if axis.output and reach % shared == 0:
            # As in `first_contribution`, of which this is the form for all elements of a class.
            tap = (reach // shared) % axis.tap_step * axis.inverse % axis.tap_step
            shift = (reach - tap * axis.dilation) // axis.stride
            # The last element of the class must reach the gradient, and the first not pass it.
            skipped = max(0, -((axis.output - 1 - shift) // axis.cell_step))
            by_window = (axis.window - 1 - tap) // axis.tap_step
            by_cells = (shift + size - 1) // axis.cell_step
            count = max(0, min(by_window, by_cells) + 1 - skipped)
            tap, shift = tap + skipped * axis.tap_step, shift - skipped * axis.cell_step
            taps = range(tap, tap + count * axis.tap_step, axis.tap_step)
            shifts = range(shift, shift - count * axis.cell_step, -axis.cell_step)
        found.append(StrideClass(lead, size, tuple(taps), tuple(shifts)))
    return found


def _divide_toward_zero(value: int, divisor: int) -> int:
    """C++'s integer division, on which TensorFlow's output sizes rest."""
    return value // divisor if value >= 0 else -(-value // divisor)


def _axis(
    name: str,
    input_size: int,
    output_size: int,
    window: int,
    stride: int,
    dilation: int,
    padding: str | tuple[int, int],
) -> Axis:
    span = (window - 1) * dilation + 1
    if padding == "SAME":
        expected = _divide_toward_zero(input_size + stride - 1, stride)
        before = max(0, (expected - 1) * stride + span - input_size) // 2
    else:
        before, after = (0, 0) if isinstance(padding, str) else padding
        expected = _divide_toward_zero(input_size + before + after - span + stride, stride)
    facts = (
        f"(input {input_size}, filter {window}, stride {stride}, dilation {dilation}, "
        f"padding {padding if isinstance(padding, str) else list(padding)})"
    )
    if expected < 0:
        msg = f"filter is too large for input_sizes: it would give {expected} {name} {facts}"
        raise ValueError(msg)
    if output_size != expected:
        msg = f"out_backprop must have {expected} {name}, got {output_size} {facts}"
        raise ValueError(msg)
    if max(span, before) > _MAX_REACH:
        msg = f"filter and dilations reach too far in {name} {facts}"
        raise ValueError(msg)
    shared = math.gcd(stride, dilation)
    tap_step, cell_step = stride // shared, dilation // shared
    inverse = pow(cell_step, -1, tap_step) if tap_step > 1 else 0
    return Axis(
        input_size, output_size, window, stride, dilation, before, tap_step, cell_step, inverse
    )


def _check_strides_and_padding(
    strides: Sequence[int], dilations: Sequence[int], padding: Padding, depth: int
) -> None:
    for name, values in (("strides", strides), ("dilations", dilations)):
        if values[0] != 1 or values[depth] != 1:
            msg = f"{name} must be 1 in the batch and channel dimensions, got {list(values)}"
            raise ValueError(msg)
        if min(values) < 1 or max(values) > INT32_MAX:
            msg = f"{name} must be between 1 and {INT32_MAX}, got {list(values)}"
            raise ValueError(msg)
    if isinstance(padding, str):
        return
    pairs = [list(pair) for pair in padding]
    if min(min(pair) for pair in pairs) < 0:
        msg = f"padding must not be negative, got {pairs}"
        raise ValueError(msg)
    if any(pairs[0]) or any(pairs[depth]):
        msg = f"padding must be 0 in the batch and channel dimensions, got {pairs}"
        raise ValueError(msg)


def _check_channels(channels: int, filter_shape: Sequence[int], gradient_channels: int) -> int:
    """Return the number of groups."""
    group_in, out_channels = filter_shape[2], filter_shape[3]
    if group_in == 0:
        msg = f"filter must have at least 1 input channel (its third axis), got {filter_shape}"
        raise ValueError(msg)
    if channels % group_in:
        msg = (
            f"filter must have an input channel count (its third axis) that divides the "
            f"{channels} channels of input_sizes, got {group_in}"
        )
        raise ValueError(msg)
    if gradient_channels != out_channels:
        msg = (
            f"out_backprop must have the {out_channels} channels that filter gives "
            f"(its fourth axis), got {gradient_channels}"
        )
        raise ValueError(msg)
    groups = channels // group_in
    if groups and out_channels % groups:
        msg = (
            f"filter must have an output channel count (its fourth axis) that is a multiple of "
            f"the {groups} groups ({channels} channels / {group_in}), got {out_channels}"
        )
        raise ValueError(msg)
    return groups


@lru_cache(maxsize=256)
def conv2d(
    input_sizes: tuple[int, ...],
    filter_shape: tuple[int, ...],
    gradient_shape: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    padding: Padding,
    data_format: DataFormat,
) -> Conv2D:
    """Check that sizes, filter, gradient and padding fit together; raise ValueError if not."""
    height, width, depth = (1, 2, 3) if data_format == "NHWC" else (2, 3, 1)
    _check_strides_and_padding(strides, dilations, padding, depth)
    for name, shape in (("filter", filter_shape), ("out_backprop", gradient_shape)):
        if len(shape) != 4:
            msg = f"{name} must have 4 dimensions, got shape {shape}"
            raise ValueError(msg)
    if min(input_sizes) < 0 or max(input_sizes) > INT32_MAX:
        msg = f"input_sizes must be between 0 and {INT32_MAX}, got {list(input_sizes)}"
        raise ValueError(msg)
    if len(input_sizes) == 2:
        (rows, cols), batch, channels = input_sizes, gradient_shape[0], filter_shape[2]
    else:
        batch, channels = input_sizes[0], input_sizes[depth]
        rows, cols = input_sizes[height], input_sizes[width]
    if batch * rows * cols * channels > INT64_MAX:
        msg = f"input_sizes must have a product below 2**63, got {list(input_sizes)}"
        raise ValueError(msg)
    if gradient_shape[0] != batch:
        msg = f"out_backprop must have batch {batch} as input_sizes, got {gradient_shape[0]}"
        raise ValueError(msg)
    groups = _check_channels(channels, filter_shape, gradient_shape[depth])
    axes = [
        _axis(
            name,
            size,
            gradient_shape[at],
            window,
            strides[at],
            dilations[at],
            padding if isinstance(padding, str) else padding[at],
        )
        for name, size, at, window in (
            ("rows", rows, height, filter_shape[0]),
            ("columns", cols, width, filter_shape[1]),
        )
    ]
    return Conv2D(batch, channels, filter_shape[3], groups, axes[0], axes[1])


def input_shape(geometry: Conv2D, data_format: DataFormat) -> tuple[int, int, int, int]:
    """Give the shape of the result of a convolution gradient."""
    batch, channels = geometry.batch, geometry.channels
    rows, cols = geometry.rows.input, geometry.cols.input
    return (batch, rows, cols, channels) if data_format == "NHWC" else (batch, channels, rows, cols)


def _cells(
    name: str, sequence: NDArray[np.int64], count: int, size: int, overlapping: bool
) -> Cells:
    first, bound = sequence[:count], sequence[1 : count + 1]
    # Compared before the subtraction below, which would wrap around at -2**63.
    bad = (first < 0) | (bound < (0 if overlapping else 1))
    if bad.any():
        at = int(bad.argmax())
        start, stop = int(first[at]), int(bound[at])
        msg = (
            f"{name} must give cells that start and end at 0 or later, got entries {start} and "
            f"{stop} for cell {at} (elements {start} to {stop if overlapping else stop - 1})"
        )
        raise ValueError(msg)
    cells = Cells(first.copy(), np.minimum(bound if overlapping else bound - 1, size - 1))
    for array in cells:
        array.flags.writeable = False  # later calls may get the same
    return cells


# Above this number of entries, the lists of a hand-made sequence hold all cells for every segment
# (once in memory), and the loops look at each.
_LONGEST_INDEX = 2**22


def segments(cells: Cells, size: int) -> Segments:
    """Cut an axis of `size` elements into segments."""
    first, last = cells
    used = np.flatnonzero((first <= last) & (first < size))
    ends = last[used] + 1
    cuts = np.unique(np.concatenate([[0, size], first[used], ends]))
    begin_at, end_at = np.searchsorted(cuts, first[used]), np.searchsorted(cuts, ends)
    lengths = end_at - begin_at
    count = cuts.size - 1
    if lengths.sum() > _LONGEST_INDEX:
        return Segments(cuts, np.full(count + 1, -1), used)
    # All (segment, cell) pairs, cell by cell; then sorted by segment.
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    segment = np.repeat(begin_at, lengths) + within
    order = np.argsort(segment, kind="stable")
    begin = np.searchsorted(segment[order], np.arange(count + 1))
    return Segments(cuts, begin, np.repeat(used, lengths)[order])


# Entries of both sequences, at most, of a pooling whose cells are kept for the next call.
_LONGEST_KEPT = 512


def pool(
    input_sizes: tuple[int, ...],
    gradient_shape: tuple[int, ...],
    row_sequence: NDArray[np.int64],
    col_sequence: NDArray[np.int64],
    overlapping: bool,
) -> Pool:
    """Check a pooling call and turn its sequences into row and column cells, or ValueError.

    Calls with the same numbers get the same object, for as long as it is kept.
    """
    keep = row_sequence.size + col_sequence.size <= _LONGEST_KEPT
    check = _pool if keep else _pool.__wrapped__
    sequences = row_sequence.tobytes(), col_sequence.tobytes()
    return check(input_sizes, gradient_shape, *sequences, overlapping)


@lru_cache(maxsize=64)
def _pool(
    input_sizes: tuple[int, ...],
    gradient_shape: tuple[int, ...],
    row_sequence: bytes,
    col_sequence: bytes,
    overlapping: bool,
) -> Pool:
    if len(gradient_shape) != 4:
        msg = f"out_backprop must have 4 dimensions, got shape {gradient_shape}"
        raise ValueError(msg)
    if 0 in gradient_shape:
        msg = f"out_backprop must not be empty, got shape {gradient_shape}"
        raise ValueError(msg)
    axes = (
        ("row_pooling_sequence", "rows", np.frombuffer(row_sequence, np.int64), 1),
        ("col_pooling_sequence", "columns", np.frombuffer(col_sequence, np.int64), 2),
    )
    for name, unit, sequence, at in axes:
        if sequence.size < gradient_shape[at] + 1:
            msg = (
                f"{name} must have at least {gradient_shape[at] + 1} entries, one more than the "
                f"{gradient_shape[at]} {unit} of out_backprop; got {sequence.size}"
            )
            raise ValueError(msg)
    if min(input_sizes) <= 0:
        msg = f"orig_input_tensor_shape must be positive, got {list(input_sizes)}"
        raise ValueError(msg)
    if math.prod(input_sizes) * 8 > INT64_MAX:
        msg = f"orig_input_tensor_shape must have a product below 2**60, got {list(input_sizes)}"
        raise ValueError(msg)
    for unit, at in (("batch", 0), ("depth", 3)):
        if gradient_shape[at] != input_sizes[at]:
            msg = (
                f"out_backprop must have {unit} {input_sizes[at]} as orig_input_tensor_shape, "
                f"got {gradient_shape[at]}"
            )
            raise ValueError(msg)
    rows, cols = (
        _cells(name, sequence, gradient_shape[at], input_sizes[at], overlapping)
        for name, _, sequence, at in axes
    )
    return Pool(input_sizes, rows, cols)
