"""The kernel that computes conv2d_backprop_input as a product of matrices, tile by tile.

Rows of the first matrix are pixels of a stride class, columns of the second the input channels of a
group; what is summed over are the class's taps, and the output channels of each. A block fetches
a slice of 8 of these for its tile into registers while it multiplies the slice before, which lies
in shared memory as [depth][pixel] and [depth][channel].

A pixel that a tap does not reach has zeros in its slice. They are multiplied, so an infinite or NaN
weight makes NaN where there should be a number: a thread that sees a NaN among its sums computes it
again from the products that belong to it, in the same order. So a finite call pays one test an
element, and a NaN comes out exactly where one belongs.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda import types

from . import _intrinsics
from . import _tables as tables
from ._conv2d_plan import MOST_ROWS, TiledVariant
from ._helpers import helper
from ._tables import class_of, divide, field, inside, read, remainder

int32, int64 = types.int32, types.int64

# Numbers between the rows of a tile in shared memory: the neighbours that a thread stores one
# below the other then lie in different banks.
_PAD = 4
# A row that no tap reaches.
_NOWHERE = -MOST_ROWS


def make(variant: TiledVariant) -> Any:
    """Make the kernel of a variant."""
    dtype, tile, channels_last = variant.dtype, variant.tile, variant.channels_last
    register = _intrinsics.accumulator(dtype)
    number = _intrinsics.register_type(register)
    index = int64 if variant.wide else int32
    flat, short_flat = _intrinsics.flats(64 if variant.wide else 32), _intrinsics.flats(32)
    vector = variant.vector
    neighbours = 2 if register == "float64" else 4
    repairs = register != "int32"

    threads, rows, cols, depth = tile.threads, tile.rows, tile.cols, tile.depth
    thread_rows, thread_cols = tile.thread_rows, tile.thread_cols
    row_threads, col_threads = rows // thread_rows, cols // thread_cols
    row_pitch, col_pitch = rows + (_PAD if channels_last else 0), cols + _PAD
    row_slice, col_slice = depth * row_pitch, depth * col_pitch
    row_numbers, col_numbers = 2 * row_slice, 2 * col_slice
    sums_count = thread_rows * thread_cols
    row_step = rows // (thread_rows // neighbours)
    col_step = cols // (thread_cols // neighbours)

    # Threads that fetch side by side along the depth, and what each then fetches of a slice.
    side = depth // neighbours
    apart = threads // side
    row_fetches, col_fetches = rows * side // threads, cols * side // threads
    # Channels first: neighbouring threads fetch neighbouring pixels, one number each.
    deep_apart = max(1, threads // rows)
    deep_fetches = depth // deep_apart
    row_staged = row_fetches * neighbours if channels_last else deep_fetches
    col_staged = col_fetches * neighbours
    if threads % side or rows % apart or cols % apart or (not channels_last and threads % rows):
        msg = f"{tile} cannot be shared evenly among its threads"
        raise ValueError(msg)

    multiply = _intrinsics.tile_products(
        _intrinsics.TileShape(
            depth,
            row_pitch,
            col_pitch,
            thread_rows,
            thread_cols,
            row_step,
            col_step,
            neighbours,
        )
    )
    fetch = _intrinsics.fetches(dtype, neighbours, register, vector)
    fetch_one = _intrinsics.fetches(dtype, 1, register, False)
    place_rows = _intrinsics.places(neighbours, row_pitch)
    place_cols = _intrinsics.places(neighbours, col_pitch)
    place_one = _intrinsics.places(1, row_pitch)
    save = _intrinsics.saves(dtype, neighbours)
    save_one = _intrinsics.saves(dtype, 1)
    load = _intrinsics.loads(dtype, 1, register)
    load_result = _intrinsics.loads(dtype, 1, register, constant=False)
    store_one = _intrinsics.stores(dtype, 1)
    dot = _intrinsics.dot(1, register)
    zero = _intrinsics.zeros(1, register)

    @helper
    def exact(
        gradient: Any,
        weights: Any,
        table: Any,
        base: Any,
        i: Any,
        j: Any,
        group: Any,
        channel: Any,
        here: Any,
    ) -> Any:
        """Sum up the products that belong to one element, in the order of the tiles."""
        out_rows, out_cols = read(table, tables.OUT_ROWS), read(table, tables.OUT_COLS)
        group_in, group_out = read(table, tables.GROUP_IN), read(table, tables.GROUP_OUT)
        out_channels = int32(group_out * read(table, tables.GROUPS))
        first = int32(group * group_out)
        total = zero()[0]
        tap_at = tables.first_tap(table, here)
        for _ in range(field(table, here, tables.TAPS)):
            row_shift = field(table, tap_at, tables.ROW_SHIFT)
            col_shift = field(table, tap_at, tables.COL_SHIFT)
            if inside(i, row_shift, out_rows) and inside(j, col_shift, out_cols):
                line = flat(read(table, tap_at), group_in, channel)
                from_weights = flat(line, out_channels, first)
                shift = short_flat(row_shift, out_cols, col_shift)
                if channels_last:
                    source = flat(shift, out_channels, base)
                    step = index(1)
                else:
                    source = index(base + shift)
                    step = flat(out_rows, out_cols, 0)
                k = int32(0)
                while k < group_out and total == total:  # noqa: PLR0124 - a NaN stays one
                    one = load(gradient, flat(k, step, source))
                    total = dot(total, one, load(weights, flat(k, 1, from_weights)))
                    k = int32(k + 1)
            tap_at = int32(tap_at + tables.TAP_SIZE)
        return total

    def conv2d_tiled(gradient: Any, weights: Any, result: Any, table: Any) -> None:
        row_tile = cuda.shared.array(row_numbers, number, alignment=16)
        col_tile = cuda.shared.array(col_numbers, number, alignment=16)
        # Of each pixel; not in registers, which are short, because few of its reads matter.
        origins = cuda.shared.array(rows, index)  # in the result, or -1
        bases = cuda.shared.array(rows, index)  # in the gradient, for a tap that shifts nothing
        pixel_rows = cuda.shared.array(rows, int32)  # in the class
        pixel_cols = cuda.shared.array(rows, int32)
        sums = cuda.local.array(sums_count, number)
        staged_rows = cuda.local.array(row_staged, number)
        staged_cols = cuda.local.array(col_staged, number)
        col_at = cuda.local.array(col_fetches, index)
        for i in range(sums_count):
            sums[i] = number(0)

        thread = int32(cuda.threadIdx.x)
        block = int32(cuda.blockIdx.x)
        groups = read(table, tables.GROUPS)
        group_in = read(table, tables.GROUP_IN)
        group_out = read(table, tables.GROUP_OUT)
        out_rows = read(table, tables.OUT_ROWS)
        out_cols = read(table, tables.OUT_COLS)
        in_rows = read(table, tables.IN_ROWS)
        in_cols = read(table, tables.IN_COLS)
        out_channels = int32(group_out * groups)
        channels = int32(group_in * groups)

        col_tiles = read(table, tables.COL_TILES)
        group_tile = divide(block, col_tiles)
        first_col = int32(remainder(block, col_tiles) * cols)
        tile_index = divide(group_tile, groups)
        group = remainder(group_tile, groups)
        here = class_of(table, tile_index)
        class_rows = field(table, here, tables.CLASS_ROWS)
        class_cols = field(table, here, tables.CLASS_COLS)
        first_row = int32((tile_index - field(table, here, tables.FIRST_TILE)) * rows)
        pixels = field(table, here, tables.PIXELS)
        taps = field(table, here, tables.TAPS)
        first_tap = tables.first_tap(table, here)

        # Where the pixels lie.
        first_in, first_out = int32(group * group_in), int32(group * group_out)
        at = thread
        while at < rows:
            m = int32(first_row + at)
            origin = index(-1)
            base = index(0)
            i, j = int32(_NOWHERE), int32(0)
            if m < pixels:
                line = divide(m, class_cols)
                j = remainder(m, class_cols)
                image = divide(line, class_rows)
                i = remainder(line, class_rows)
                h, w = tables.row_of(table, here, i), tables.col_of(table, here, j)
                if channels_last:
                    pixel = flat(flat(image, in_rows, h), in_cols, w)
                    origin = flat(pixel, channels, first_in)
                    pixel = flat(flat(image, out_rows, i), out_cols, j)
                    base = flat(pixel, out_channels, first_out)
                else:
                    plane = flat(image, channels, first_in)
                    origin = flat(flat(plane, in_rows, h), in_cols, w)
                    plane = flat(image, out_channels, first_out)
                    base = flat(flat(plane, out_rows, i), out_cols, j)
            origins[at] = origin
            bases[at] = base
            pixel_rows[at] = i
            pixel_cols[at] = j
            at = int32(at + threads)
        cuda.syncthreads()

        # What this thread fetches of every slice.
        lane_row = divide(thread, int32(side))
        lane_depth = int32(remainder(thread, int32(side)) * neighbours)
        first_lane = int32(first_col + lane_row)
        row_place = short_flat(lane_depth, row_pitch, lane_row)
        col_place = short_flat(lane_depth, col_pitch, lane_row)
        if channels_last:
            row_at = cuda.local.array(row_fetches, index)
            row_limit = cuda.local.array(row_fetches, int32)
        else:
            deep = divide(thread, int32(rows))
            pixel_row = remainder(thread, int32(rows))
            plane_size = flat(out_rows, out_cols, 0)
            one_at = index(0)
            one_limit = int32(0)

        row_lane = remainder(thread, int32(row_threads))
        col_lane = divide(thread, int32(row_threads))
        if channels_last:
            row_lane = divide(thread, int32(col_threads))
            col_lane = remainder(thread, int32(col_threads))
        row_lane = int32(row_lane * neighbours)
        col_lane = int32(col_lane * neighbours)

        slices = int32(taps * divide(int32(group_out + (depth - 1)), int32(depth)))
        tap_at = first_tap
        done = int32(0)  # output channels of the current tap
        half = int32(0)
        for step in range(int32(slices + 1)):
            fetches = step < slices
            if fetches:
                if done == 0:  # a new tap
                    tap = read(table, tap_at)
                    row_shift = field(table, tap_at, tables.ROW_SHIFT)
                    col_shift = field(table, tap_at, tables.COL_SHIFT)
                    tap_at = int32(tap_at + tables.TAP_SIZE)
                    shift = short_flat(row_shift, out_cols, col_shift)
                    if channels_last:
                        to_lane = flat(shift, out_channels, lane_depth)
                        for x in range(row_fetches):
                            pixel = short_flat(x, apart, lane_row)
                            reaches = inside(pixel_rows[pixel], row_shift, out_rows) and inside(
                                pixel_cols[pixel], col_shift, out_cols
                            )
                            row_limit[x] = group_out if reaches else int32(0)
                            row_at[x] = index(bases[pixel] + to_lane)
                    else:
                        reaches = inside(pixel_rows[pixel_row], row_shift, out_rows) and inside(
                            pixel_cols[pixel_row], col_shift, out_cols
                        )
                        one_limit = group_out if reaches else int32(0)
                        one_at = flat(deep, plane_size, bases[pixel_row] + shift)
                    for x in range(col_fetches):
                        channel = short_flat(x, apart, first_lane)
                        line_of = flat(tap, group_in, channel)
                        col_at[x] = flat(line_of, out_channels, first_out + lane_depth)
                if channels_last:
                    for x in range(row_fetches):
                        left = int32(row_limit[x] - int32(done + lane_depth))
                        fetch(staged_rows, x * neighbours, gradient, row_at[x], left)
                        row_at[x] = index(row_at[x] + depth)
                else:
                    for x in range(deep_fetches):
                        left = int32(one_limit - int32(done + deep + x * deep_apart))
                        spot = flat(x * deep_apart, plane_size, one_at)
                        fetch_one(staged_rows, x, gradient, spot, left)
                    one_at = flat(depth, plane_size, one_at)
                for x in range(col_fetches):
                    channel = short_flat(x, apart, first_lane)
                    left = int32(group_out - int32(done + lane_depth))
                    left = left if channel < group_in else int32(0)
                    fetch(staged_cols, x * neighbours, weights, col_at[x], left)
                    col_at[x] = index(col_at[x] + depth)
                done = int32(done + depth)
                if done >= group_out:
                    done = int32(0)
            if step > 0:
                multiply(
                    sums,
                    row_tile,
                    short_flat(half, row_slice, row_lane),
                    col_tile,
                    short_flat(half, col_slice, col_lane),
                )
                half = int32(half ^ 1)
            if fetches:
                if channels_last:
                    for x in range(row_fetches):
                        spot = short_flat(half, row_slice, row_place)
                        spot = short_flat(x, apart, spot)
                        place_rows(row_tile, spot, staged_rows, x * neighbours)
                else:
                    for x in range(deep_fetches):
                        spot = short_flat(half, row_slice, pixel_row)
                        spot = short_flat(short_flat(x, deep_apart, deep), row_pitch, spot)
                        place_one(row_tile, spot, staged_rows, x)
                for x in range(col_fetches):
                    spot = short_flat(half, col_slice, col_place)
                    spot = short_flat(x, apart, spot)
                    place_cols(col_tile, spot, staged_cols, x * neighbours)
            cuda.syncthreads()

        channel_step = index(1) if channels_last else flat(in_rows, in_cols, 0)
        has_nan = False
        for i in range(thread_rows):
            origin = origins[short_flat(i // neighbours, row_step, i % neighbours + row_lane)]
            if origin >= 0:
                if channels_last and vector:
                    for j in range(thread_cols // neighbours):
                        channel = short_flat(j, col_step, first_col + col_lane)
                        if channel < group_in:
                            spot = index(origin + channel)
                            nan = save(result, spot, sums, i * thread_cols + j * neighbours)
                            has_nan = has_nan or nan
                else:
                    for j in range(thread_cols):
                        channel = short_flat(j // neighbours, col_step, first_col + col_lane)
                        channel = int32(channel + j % neighbours)
                        if channel < group_in:
                            spot = flat(channel, channel_step, origin)
                            nan = save_one(result, spot, sums, i * thread_cols + j)
                            has_nan = has_nan or nan
        if repairs and has_nan:
            for i in range(thread_rows):
                row = short_flat(i // neighbours, row_step, i % neighbours + row_lane)
                origin = origins[row]
                for j in range(thread_cols):
                    channel = short_flat(j // neighbours, col_step, first_col + col_lane)
                    channel = int32(channel + j % neighbours)
                    if origin >= 0 and channel < group_in:
                        spot = flat(channel, channel_step, origin)
                        number_there = load_result(result, spot)[0]
                        if number_there != number_there:  # noqa: PLR0124 - NaN
                            total = exact(
                                gradient,
                                weights,
                                table,
                                bases[row],
                                pixel_rows[row],
                                pixel_cols[row],
                                group,
                                channel,
                                here,
                            )
                            store_one(result, spot, (total,))

    return conv2d_tiled
