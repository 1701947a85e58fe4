"""Kernels of fractional_avg_pool_grad: each result element is gathered, once, by one thread.

A thread computes vectors of channels of one row, some blocks of threads apart. What follows from
the row alone is looked up once. TensorFlow's arithmetic to the bit: each gradient is divided by the
size of its cell, an element adds its terms by ascending cell row and column to +0.0 in float64,
and the sum is cast once. Where there is one term, the quotient in float32, correctly rounded, is
the same.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda import types

from . import _intrinsics
from ._helpers import helper
from ._pool_plan import _ITEMS as ITEMS
from ._pool_plan import ALL_CELLS, ONE_CELL, THREADS, Header, PoolVariant

int32, int64, uint32 = types.int32, types.int64, types.uint32

# Positions in the header.
(
    ROWS,
    IMAGE_ROWS,
    ROW_VECTORS,
    PIXEL_VECTORS,
    MULTIPLIER,
    SHIFT,
    CELL_ROWS,
    CELL_COLS,
    ROW_LANES,
    ROW_CHUNKS,
    ROW_UNITS,
    ROW_TABLE,
    ROW_CELLS,
    COL_TABLE,
    COL_CELLS,
) = range(len(Header._fields))


def make(variant: PoolVariant) -> Any:
    """Make the kernel of a variant."""
    return _one_cell(variant) if variant.cells == ONE_CELL else _several_cells(variant)


def _divided(wide: bool) -> Any:
    """Make ``divide(a, b, multiplier, shift)`` for what `_plan.division` has prepared."""

    def exact(a: Any, b: Any, multiplier: Any, shift: Any) -> Any:  # noqa: ARG001
        return a // b

    def by_multiplication(a: Any, b: Any, multiplier: Any, shift: Any) -> Any:  # noqa: ARG001
        return int32((int64(uint32(a)) * int64(uint32(multiplier))) >> int64(shift))

    return helper(exact if wide else by_multiplication)


def _one_cell(variant: PoolVariant) -> Any:
    dtype, vector = variant.dtype, variant.vector
    index = int64 if variant.wide else int32
    read = _intrinsics.reads("int64" if variant.wide else "int32")
    store = _intrinsics.stores(dtype, vector)
    pixel_of = _divided(variant.wide)
    if dtype in ("float32", "float16", "bfloat16"):
        load = _intrinsics.loads(dtype, vector, "float32")
        zero = _intrinsics.zeros(vector, "float32")
        divide = _intrinsics.quotients(vector)
    else:
        load = _intrinsics.loads(dtype, vector, "float64")
        zero = _intrinsics.zeros(vector, "float64")
        add = _intrinsics.added_quotients(dtype, vector)

        @helper
        def divide(values: Any, size: Any) -> Any:
            return add(zero(), values, size)

    def pool_one_cell(gradient: Any, result: Any, table: Any) -> None:
        lanes = read(table, ROW_LANES)
        chunks = read(table, ROW_CHUNKS)
        units = read(table, ROW_UNITS)
        rows = read(table, ROWS)
        image_rows = read(table, IMAGE_ROWS)
        row_vectors = read(table, ROW_VECTORS)
        pixel_vectors = read(table, PIXEL_VECTORS)
        multiplier = read(table, MULTIPLIER)
        shift = read(table, SHIFT)
        cell_cols = read(table, CELL_COLS)
        row_table = read(table, ROW_TABLE)
        col_table = read(table, COL_TABLE)
        thread = index(cuda.threadIdx.x)
        block = index(cuda.blockIdx.x)
        unit = index(block // chunks)
        chunk = index(block - unit * chunks)
        lane = index(thread & index((index(1) << lanes) - 1))
        start = index(lane + ((chunk * ITEMS) << lanes))
        rows_at_once = index(THREADS >> lanes)
        row = index(unit * rows_at_once + (thread >> lanes))
        while row < rows:
            image = index(row // image_rows)
            entry = index(row_table + index(row - image * image_rows) * 2)
            cell_row = read(table, entry)
            height = read(table, index(entry + 1))
            source_row = index(index(index(image * read(table, CELL_ROWS)) + cell_row) * cell_cols)
            target_row = index(row * row_vectors)
            for item in range(ITEMS):
                x = index(start + (index(item) << lanes))
                if x < row_vectors:
                    pixel = pixel_of(x, pixel_vectors, multiplier, shift)
                    entry = index(col_table + pixel * 2)
                    cell_col = read(table, entry)
                    width = read(table, index(entry + 1))
                    target = index(target_row + x) * index(vector)
                    if cell_row >= 0 and cell_col >= 0:
                        channel = index(x - pixel * pixel_vectors)
                        source = index(index(source_row + cell_col) * pixel_vectors + channel)
                        values = load(gradient, index(source * index(vector)))
                        store(result, index(target), divide(values, int32(height * width)))
                    else:
                        store(result, index(target), zero())
            row = index(row + index(units * rows_at_once))

    return pool_one_cell


def _several_cells(variant: PoolVariant) -> Any:
    dtype, vector = variant.dtype, variant.vector
    tries_all = variant.cells == ALL_CELLS
    index = int64 if variant.wide else int32
    read = _intrinsics.reads("int64" if variant.wide else "int32")
    load = _intrinsics.loads(dtype, vector, "float64")
    store = _intrinsics.stores(dtype, vector)
    zero = _intrinsics.zeros(vector, "float64")
    add = _intrinsics.added_quotients(dtype, vector)
    pixel_of = _divided(variant.wide)

    @helper
    def holds(table: Any, entry: Any, position: Any) -> Any:
        if tries_all:
            first = read(table, index(entry + 2))
            last = read(table, index(entry + 3))
            return first <= position <= last
        return True

    def pool_several_cells(gradient: Any, result: Any, table: Any) -> None:
        lanes = read(table, ROW_LANES)
        chunks = read(table, ROW_CHUNKS)
        units = read(table, ROW_UNITS)
        rows = read(table, ROWS)
        image_rows = read(table, IMAGE_ROWS)
        row_vectors = read(table, ROW_VECTORS)
        pixel_vectors = read(table, PIXEL_VECTORS)
        multiplier = read(table, MULTIPLIER)
        shift = read(table, SHIFT)
        cell_rows = read(table, CELL_ROWS)
        cell_cols = read(table, CELL_COLS)
        row_table = read(table, ROW_TABLE)
        row_cells = read(table, ROW_CELLS)
        col_table = read(table, COL_TABLE)
        col_cells = read(table, COL_CELLS)
        thread = index(cuda.threadIdx.x)
        block = index(cuda.blockIdx.x)
        unit = index(block // chunks)
        chunk = index(block - unit * chunks)
        lane = index(thread & index((index(1) << lanes) - 1))
        start = index(lane + ((chunk * ITEMS) << lanes))
        rows_at_once = index(THREADS >> lanes)
        row = index(unit * rows_at_once + (thread >> lanes))
        while row < rows:
            image = index(row // image_rows)
            y = index(row - image * image_rows)
            row_begin = read(table, index(row_table + y * 2))
            row_end = read(table, index(row_table + y * 2 + 1))
            target_row = index(row * row_vectors)
            for item in range(ITEMS):
                x = index(start + (index(item) << lanes))
                if x < row_vectors:
                    pixel = pixel_of(x, pixel_vectors, multiplier, shift)
                    channel = index(x - pixel * pixel_vectors)
                    col_begin = read(table, index(col_table + pixel * 2))
                    col_end = read(table, index(col_table + pixel * 2 + 1))
                    sums = zero()
                    i = row_begin
                    while i < row_end:
                        row_entry = index(row_cells + i * 4)
                        i = index(i + 1)
                        if holds(table, row_entry, y):
                            height = read(table, index(row_entry + 1))
                            cell_row = index(image * cell_rows + read(table, row_entry))
                            source_row = index(cell_row * cell_cols)
                            j = col_begin
                            while j < col_end:
                                entry = index(col_cells + j * 4)
                                j = index(j + 1)
                                if holds(table, entry, pixel):
                                    width = read(table, index(entry + 1))
                                    cell = index(source_row + read(table, entry))
                                    source = index(cell * pixel_vectors + channel)
                                    values = load(gradient, index(source * index(vector)))
                                    sums = add(sums, values, int64(height) * int64(width))
                    store(result, index(index(target_row + x) * index(vector)), sums)
            row = index(row + index(units * rows_at_once))

    return pool_several_cells
