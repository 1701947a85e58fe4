"""Kernels of conv2d_backprop_input in which a thread sums up elements of its own, without tiles.

For groups of few channels, which would leave most of a tile empty, and for geometries whose
tables would be too large. Only products that belong to a sum are formed, in the order of the
tiled kernel: taps, then output channels.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda import types

from .. import _geometry
from . import _intrinsics
from . import _tables as tables
from ._conv2d_plan import THREADS, AnyVariant, ChannelsVariant, PixelsVariant
from ._helpers import helper
from ._tables import class_of, divide, read

int32, int64, uint32 = types.int32, types.int64, types.uint32


def make_channels(variant: ChannelsVariant) -> Any:
    """Make a kernel for one input channel a group.

    Channels last, neighbouring threads compute neighbouring groups; channels first, pixels.
    """
    dtype, channels_last, vector = variant.dtype, variant.channels_last, variant.vector
    register = _intrinsics.accumulator(dtype)
    index = int64 if variant.wide else int32
    load = _intrinsics.loads(dtype, vector, register)
    store = _intrinsics.stores(dtype, vector)
    zero = _intrinsics.zeros(vector, register)
    add = _intrinsics.scaled_sums(vector, register)

    def conv2d_channels(gradient: Any, weights: Any, result: Any, table: Any) -> None:
        tile = int32(cuda.blockIdx.x)
        here = class_of(table, tile)
        groups = read(table, tables.GROUPS)
        group_out = read(table, tables.GROUP_OUT)
        out_rows, out_cols = read(table, tables.OUT_ROWS), read(table, tables.OUT_COLS)
        in_rows, in_cols = read(table, tables.IN_ROWS), read(table, tables.IN_COLS)
        class_rows = read(table, int32(here + tables.CLASS_ROWS))
        class_cols = read(table, int32(here + tables.CLASS_COLS))
        lanes = divide(groups, int32(vector))
        first = int32((tile - read(table, int32(here + tables.FIRST_TILE))) * THREADS)
        m = int32(first + int32(cuda.threadIdx.x))
        if m < int32(read(table, int32(here + tables.PIXELS)) * lanes):
            if channels_last:
                pixel = divide(m, lanes)
                lane = int32(m - pixel * lanes)
                line = divide(pixel, class_cols)
                j = int32(pixel - line * class_cols)
                image = divide(line, class_rows)
                i = int32(line - image * class_rows)
            else:
                line = divide(m, class_cols)
                j = int32(m - line * class_cols)
                plane = divide(line, class_rows)
                i = int32(line - plane * class_rows)
                image = divide(plane, lanes)
                lane = int32(plane - image * lanes)
            group = int32(lane * vector)
            out_channels = int32(groups * group_out)
            first_out = int32(group * group_out)
            sums = zero()
            tap_at = tables.first_tap(table, here)
            for _ in range(read(table, int32(here + tables.TAPS))):
                out_i = int32(i + read(table, int32(tap_at + tables.ROW_SHIFT)))
                out_j = int32(j + read(table, int32(tap_at + tables.COL_SHIFT)))
                if uint32(out_i) < uint32(out_rows) and uint32(out_j) < uint32(out_cols):
                    tap = read(table, tap_at)
                    from_weights = index(index(tap) * out_channels + first_out)
                    if channels_last:
                        cell = index(index(index(image) * out_rows + out_i) * out_cols + out_j)
                        source = index(cell * out_channels + first_out)
                        step = index(1)
                    else:
                        channel = index(index(image) * out_channels + first_out)
                        source = index(index(channel * out_rows + out_i) * out_cols + out_j)
                        step = index(index(out_rows) * out_cols)
                    for o in range(group_out):
                        factors = load(weights, index(from_weights + index(o)))
                        values = load(gradient, index(source + index(index(o) * step)))
                        sums = add(sums, values, factors)
                tap_at = int32(tap_at + tables.TAP_SIZE)
            h = tables.row_of(table, here, i)
            w = tables.col_of(table, here, j)
            if channels_last:
                cell = index(index(index(image) * in_rows + h) * in_cols + w)
                target = index(cell * groups + group)
            else:
                channel = index(index(image) * groups + group)
                target = index(index(channel * in_rows + h) * in_cols + w)
            store(result, target, sums)

    return conv2d_channels


def make_pixels(variant: PixelsVariant) -> Any:
    """Make a kernel for groups of few channels.

    A thread computes some channels of a pixel, so that a gradient is loaded once for all of them.
    Channels last, neighbouring threads compute neighbouring groups; channels first, pixels.
    """
    dtype, channels_last = variant.dtype, variant.channels_last
    channels, vector = variant.channels, variant.vector
    register = _intrinsics.accumulator(dtype)
    number = _intrinsics.register_type(register)
    index = int64 if variant.wide else int32
    load = _intrinsics.loads(dtype, vector, register)
    store = _intrinsics.stores(dtype, 1)
    dot = _intrinsics.dot(vector, register)

    def conv2d_pixels(gradient: Any, weights: Any, result: Any, table: Any) -> None:
        sums = cuda.local.array(channels, number)
        at = cuda.local.array(channels, index)
        for c in range(channels):
            sums[c] = number(0)
        tile = int32(cuda.blockIdx.x)
        here = class_of(table, tile)
        groups = read(table, tables.GROUPS)
        group_in, group_out = read(table, tables.GROUP_IN), read(table, tables.GROUP_OUT)
        out_rows, out_cols = read(table, tables.OUT_ROWS), read(table, tables.OUT_COLS)
        in_rows, in_cols = read(table, tables.IN_ROWS), read(table, tables.IN_COLS)
        class_rows = read(table, int32(here + tables.CLASS_ROWS))
        class_cols = read(table, int32(here + tables.CLASS_COLS))
        parts = read(table, tables.COL_TILES)
        lanes = int32(groups * parts)
        first = int32((tile - read(table, int32(here + tables.FIRST_TILE))) * THREADS)
        m = int32(first + int32(cuda.threadIdx.x))
        if m < int32(read(table, int32(here + tables.PIXELS)) * lanes):
            if channels_last:
                pixel = divide(m, lanes)
                lane = int32(m - pixel * lanes)
                line = divide(pixel, class_cols)
                j = int32(pixel - line * class_cols)
                image = divide(line, class_rows)
                i = int32(line - image * class_rows)
            else:
                line = divide(m, class_cols)
                j = int32(m - line * class_cols)
                plane = divide(line, class_rows)
                i = int32(line - plane * class_rows)
                image = divide(plane, lanes)
                lane = int32(plane - image * lanes)
            group = divide(lane, parts)
            first_in = int32((lane - group * parts) * channels)
            out_channels = int32(groups * group_out)
            first_out = int32(group * group_out)
            tap_at = tables.first_tap(table, here)
            for _ in range(read(table, int32(here + tables.TAPS))):
                out_i = int32(i + read(table, int32(tap_at + tables.ROW_SHIFT)))
                out_j = int32(j + read(table, int32(tap_at + tables.COL_SHIFT)))
                if uint32(out_i) < uint32(out_rows) and uint32(out_j) < uint32(out_cols):
                    tap = read(table, tap_at)
                    for c in range(channels):
                        # Past the last channel the last one is computed again, and not stored.
                        channel = min(int32(first_in + c), int32(group_in - 1))
                        line_of = index(index(tap) * group_in + channel)
                        at[c] = index(line_of * out_channels + first_out)
                    if channels_last:
                        cell = index(index(index(image) * out_rows + out_i) * out_cols + out_j)
                        source = index(cell * out_channels + first_out)
                        step = index(vector)
                    else:
                        channel_of = index(index(image) * out_channels + first_out)
                        source = index(index(channel_of * out_rows + out_i) * out_cols + out_j)
                        step = index(index(out_rows) * out_cols)
                    for _ in range(divide(group_out, int32(vector))):
                        values = load(gradient, source)
                        for c in range(channels):
                            sums[c] = dot(sums[c], values, load(weights, at[c]))
                            at[c] = index(at[c] + vector)
                        source = index(source + step)
                tap_at = int32(tap_at + tables.TAP_SIZE)
            h = tables.row_of(table, here, i)
            w = tables.col_of(table, here, j)
            all_channels = int32(groups * group_in)
            for c in range(channels):
                channel = int32(first_in + c)
                if channel < group_in:
                    channel = int32(channel + group * group_in)
                    if channels_last:
                        cell = index(index(index(image) * in_rows + h) * in_cols + w)
                        target = index(cell * all_channels + channel)
                    else:
                        plane_of = index(index(image) * all_channels + channel)
                        target = index(index(plane_of * in_rows + h) * in_cols + w)
                    store(result, target, (sums[c],))

    return conv2d_pixels


first_contribution = helper(_geometry.first_contribution)
Axis = _geometry.Axis
_AXIS = len(Axis._fields)


def make_any(variant: AnyVariant) -> Any:
    """Make the kernel for every geometry; it finds the taps of each element as the CPU does."""
    dtype, channels_last = variant.dtype, variant.channels_last
    register = _intrinsics.accumulator(dtype)
    read_number = _intrinsics.loads("int64", 1, "int64")
    load = _intrinsics.loads(dtype, 1, register)
    store = _intrinsics.stores(dtype, 1)
    dot = _intrinsics.dot(1, register)
    zero = _intrinsics.zeros(1, register)

    @helper
    def number(table: Any, at: Any) -> Any:
        return read_number(table, at)[0]

    def conv2d_any(gradient: Any, weights: Any, result: Any, table: Any) -> None:
        group_in, group_out = number(table, 1), number(table, 2)
        groups = number(table, 3)
        elements, threads = number(table, 4), number(table, 5)
        rows = Axis(
            number(table, 6),
            number(table, 7),
            number(table, 8),
            number(table, 9),
            number(table, 10),
            number(table, 11),
            number(table, 12),
            number(table, 13),
            number(table, 14),
        )
        cols = Axis(
            number(table, 6 + _AXIS),
            number(table, 7 + _AXIS),
            number(table, 8 + _AXIS),
            number(table, 9 + _AXIS),
            number(table, 10 + _AXIS),
            number(table, 11 + _AXIS),
            number(table, 12 + _AXIS),
            number(table, 13 + _AXIS),
            number(table, 14 + _AXIS),
        )
        channels, out_channels = groups * group_in, groups * group_out
        element = int64(cuda.blockIdx.x) * THREADS + int64(cuda.threadIdx.x)
        while element < elements:
            if channels_last:
                pixel = element // channels
                channel = element - pixel * channels
                line = pixel // cols.input
                w = pixel - line * cols.input
                image = line // rows.input
                h = line - image * rows.input
            else:
                line = element // cols.input
                w = element - line * cols.input
                plane = line // rows.input
                h = line - plane * rows.input
                image = plane // channels
                channel = plane - image * channels
            group = channel // group_in
            total = zero()[0]
            row_tap, row_cell, row_count = first_contribution(h, rows)
            col_tap, col_cell, col_count = first_contribution(w, cols)
            for i in range(row_count):
                for j in range(col_count):
                    tap = (row_tap + i * rows.tap_step) * cols.window
                    tap += col_tap + j * cols.tap_step
                    out_i = row_cell - i * rows.cell_step
                    out_j = col_cell - j * cols.cell_step
                    line_of = tap * group_in + channel - group * group_in
                    from_weights = line_of * out_channels + group * group_out
                    for o in range(group_out):
                        out_channel = group * group_out + o
                        if channels_last:
                            cell = (image * rows.output + out_i) * cols.output + out_j
                            source = cell * out_channels + out_channel
                        else:
                            plane = image * out_channels + out_channel
                            source = (plane * rows.output + out_i) * cols.output + out_j
                        total = dot(total, load(gradient, source), load(weights, from_weights + o))
            store(result, element, (total,))
            element += threads

    return conv2d_any
