"""The tables that CUDA kernels follow, against brute force. Needs no CUDA at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_calls import convolution_launch, pool_launch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import convolutions, poolings

from numba_gradops.cuda import _conv2d_plan, _plan, _pool_plan


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 100))
@settings(max_examples=500)
def test_division_by_a_multiplication(divisor: int, value: int, distance: int) -> None:
    """Also next to multiples of the divisor, where an error of one would show."""
    multiplier, shift = _plan.division(divisor)
    assert 0 <= multiplier < 2**32
    assert multiplier * (2**31 - 1) < 2**63
    near = value // divisor * divisor
    for n in (value, near - 1, near, near + distance, 2**31 - 1, 2**31 - 1 - distance):
        if 0 <= n < 2**31:
            assert n * multiplier >> shift == n // divisor


class Classes:
    """A convolution's table, taken apart."""

    def __init__(self, launch: Any) -> None:
        numbers = launch.table.tolist()
        width = len(_conv2d_plan.Header._fields)
        self.header = _conv2d_plan.Header(*numbers[:width])
        size, each = len(_conv2d_plan.CLASS_FIELDS), len(_conv2d_plan.TAP_FIELDS)
        described = numbers[width : self.header.first_tap]
        assert len(described) == size * self.header.classes
        self.classes = [
            dict(zip(_conv2d_plan.CLASS_FIELDS, described[i : i + size], strict=True))
            for i in range(0, len(described), size)
        ]
        rest = numbers[self.header.first_tap :]
        assert len(rest) % each == 0
        self.taps = [rest[i : i + each] for i in range(0, len(rest), each)]

    def contributions(self, batch: int) -> dict[tuple[int, int, int], list[tuple[int, int, int]]]:
        """List, for each pixel of the result, the tap and the gradient pixel of each product."""
        found: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        h = self.header
        for c in self.classes:
            assert c["pixels"] == batch * c["rows"] * c["cols"]
            for m in range(c["pixels"]):
                image, place = divmod(m, c["rows"] * c["cols"])
                i, j = divmod(place, c["cols"])
                y, x = c["lead_row"] + i * h.row_stride, c["lead_col"] + j * h.col_stride
                assert (image, y, x) not in found, "a pixel is computed twice"
                taps = self.taps[c["first_tap"] : c["first_tap"] + c["taps"]]
                found[image, y, x] = [
                    (tap, i + row, j + col)
                    for tap, row, col, _ in taps
                    if 0 <= i + row < h.out_rows and 0 <= j + col < h.out_cols
                ]
        return found


def expected_contributions(call: dict[str, Any]) -> dict[tuple[int, int], list[tuple[int, ...]]]:
    """Find the products of each result pixel by trying all taps and gradient pixels."""
    axes = (1, 2) if call["data_format"] == "NHWC" else (2, 3)
    sizes = [call["input_sizes"][axis] for axis in axes]
    outs = [call["out_backprop"].shape[axis] for axis in axes]
    strides = [call["strides"][axis] for axis in axes]
    dilations = [call["dilations"][axis] for axis in axes]
    window = call["filter"].shape[:2]
    pads = []
    for i, axis in enumerate(axes):
        if call["padding"] == "SAME":
            span = (window[i] - 1) * dilations[i] + 1
            pads.append(max(0, (outs[i] - 1) * strides[i] + span - sizes[i]) // 2)
        else:
            pads.append(0 if call["padding"] == "VALID" else call["padding"][axis][0])
    found: dict[tuple[int, int], list[tuple[int, ...]]] = {
        (y, x): [] for y in range(sizes[0]) for x in range(sizes[1])
    }
    for k in range(window[0]):
        for m in range(window[1]):
            for o in range(outs[0]):
                for p in range(outs[1]):
                    y = o * strides[0] + k * dilations[0] - pads[0]
                    x = p * strides[1] + m * dilations[1] - pads[1]
                    if (y, x) in found:
                        found[y, x].append((k * window[1] + m, o, p))
    return found


@given(call=convolutions(dtypes=("float32",)), kind=st.sampled_from(["tiled", "direct"]))
def test_tables_hold_each_product_of_a_convolution_once(call: dict[str, Any], kind: str) -> None:
    launch = convolution_launch(call, kind=kind)
    table = Classes(launch)
    batch = call["input_sizes"][0]
    expected = expected_contributions(call)
    found = table.contributions(batch)
    assert found.keys() == {(n, y, x) for n in range(batch) for y, x in expected}
    for (_, y, x), products in found.items():
        assert sorted(products) == sorted(expected[y, x])


@given(call=convolutions(dtypes=("float32", "float64", "bfloat16")))
def test_tiles_cover_all_pixels_channels_and_groups(call: dict[str, Any]) -> None:
    launch = convolution_launch(call, kind="tiled")
    table, tile = Classes(launch), launch.variant.tile
    h = table.header
    first = 0
    for c in table.classes:
        assert c["first_tile"] == first
        first += -(-c["pixels"] // tile.rows)
    assert h.col_tiles == -(-h.group_in // tile.cols)
    assert launch.grid == first * h.groups * h.col_tiles
    assert launch.block == tile.threads
    counts = [c["taps"] for c in table.classes]
    assert counts == sorted(counts, reverse=True), "long sums first"


@given(call=convolutions(dtypes=("float32", "float64", "float16")))
def test_vectors_are_only_planned_where_they_fit(call: dict[str, Any]) -> None:
    weights, channels_last = call["filter"], call["data_format"] == "NHWC"
    channels = call["input_sizes"][3 if channels_last else 1]
    group_in = weights.shape[2]
    groups = channels // group_in
    group_out = weights.shape[3] // groups
    width = 2 if weights.itemsize == 8 else 4
    for kind in ("tiled", "direct"):
        variant = convolution_launch(call, kind=kind).variant
        if isinstance(variant, _conv2d_plan.TiledVariant):
            fits = group_out % width == 0 and (not channels_last or group_in % width == 0)
            assert variant.vector == fits
        elif isinstance(variant, _conv2d_plan.ChannelsVariant):
            assert variant.vector == 1 or (group_out == 1 and groups % variant.vector == 0)
        else:
            assert group_out % variant.vector == 0
        assert convolution_launch(call, kind=kind, aligned=False).variant.vector in {False, 1}


def test_64_bit_positions_from_two_to_the_31_elements_on() -> None:
    for elements, wide in ((2**31 - 16, False), (2**31, True)):
        call = {
            "input_sizes": (1, 1, elements // 16, 16),
            "filter": np.empty((1, 1, 16, 16), np.float32),
            "out_backprop": np.broadcast_to(np.float32(0), (1, 1, elements // 16, 16)),
            "strides": (1, 1, 1, 1),
            "padding": "VALID",
        }
        assert convolution_launch(call, kind="tiled").variant.wide is wide
        pool = {
            "orig_input_tensor_shape": (elements // 2**10, 1, 1, 2**10),
            "out_backprop": np.broadcast_to(np.float32(0), (elements // 2**10, 1, 1, 2**10)),
            "row_pooling_sequence": [0, 1],
            "col_pooling_sequence": [0, 1],
        }
        assert pool_launch(pool).variant.wide is wide


def shaped(*shape: int) -> Any:
    """Give an array of a shape that takes no memory."""
    return np.broadcast_to(np.float32(0), shape)


@pytest.mark.parametrize("channels", [1, 16])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_gradients_that_32_bit_tables_cannot_count_are_left_to_the_kernel_without(
    channels: int, data_format: str
) -> None:
    """Padding makes a gradient larger than the result; weights of one tap have many channels."""

    def variant(out: int, rows: int, cols: int, pads: tuple[int, int]) -> Any:
        sizes = {"N": 1, "H": rows, "W": cols, "C": out}
        sides = {"H": (pads[0], pads[0]), "W": (pads[1], pads[1])}
        call = {
            "input_sizes": tuple({"C": channels}.get(axis, 1) for axis in data_format),
            "filter": shaped(1, 1, channels, out),
            "out_backprop": shaped(*(sizes[axis] for axis in data_format)),
            "strides": (1, 1, 1, 1),
            "padding": tuple(sides.get(axis, (0, 0)) for axis in data_format),
            "data_format": data_format,
        }
        return convolution_launch(call).variant

    fits, beyond = 10_000, 50_000
    for out, pads, has_table in (
        (2, (fits, fits), True),
        (2, (beyond, beyond), False),
        (2, (2**28, 0), False),
        (2**30 - 1, (0, 0), True),
        (2**30, (0, 0), False),
    ):
        found = variant(out, 2 * pads[0] + 1, 2 * pads[1] + 1, pads)
        assert isinstance(found, _conv2d_plan.AnyVariant) is not has_table


def test_poolings_count_in_64_bits_where_rows_or_tables_need_them() -> None:
    """A thread's next row may be twice as far as the last one."""
    for batch, wide in ((2**30 - 2**10, False), (2**30, True)):
        call = {
            "orig_input_tensor_shape": (batch, 1, 1, 1),
            "out_backprop": shaped(batch, 1, 1, 1),
            "row_pooling_sequence": [0, 1],
            "col_pooling_sequence": [0, 1],
        }
        launch = pool_launch(call)
        header = _pool_plan.Header(*launch.table[: len(_pool_plan.Header._fields)].tolist())
        rows_at_once = launch.block >> header.row_lanes
        last = header.rows + header.row_units * rows_at_once
        assert launch.variant.wide is wide
        assert wide or last < 2**31


@pytest.mark.parametrize("legal", [True, False])
def test_tables_hold_each_cell_of_a_pooling_once(legal: bool) -> None:
    @given(call=poolings(dtypes=("float32",), legal=legal))
    def check(call: dict[str, Any]) -> None:
        launch = pool_launch(call)
        numbers = launch.table.tolist()
        header = _pool_plan.Header(*numbers[: len(_pool_plan.Header._fields)])
        batch, rows, cols, depth = call["orig_input_tensor_shape"]
        vectors = depth // launch.variant.vector
        assert header[:4] == (batch * rows, rows, cols * vectors, vectors)
        parts = (
            (header.row_table, header.row_cells, rows, call["row_pooling_sequence"], 1),
            (header.col_table, header.col_cells, cols, call["col_pooling_sequence"], 2),
        )
        for table, cells, size, sequence, axis in parts:
            count = call["out_backprop"].shape[axis]
            for position in range(size):
                exact = []
                for cell in range(count):
                    last = sequence[cell + 1] - (0 if call["overlapping"] else 1)
                    last = min(last, size - 1)
                    if sequence[cell] <= position <= last:
                        exact.append((cell, last - sequence[cell] + 1))
                begin, end = numbers[table + 2 * position : table + 2 * position + 2]
                if launch.variant.cells == _pool_plan.ONE_CELL:
                    assert ([(begin, end)] if begin >= 0 else []) == exact
                    continue
                listed = [numbers[cells + 4 * i : cells + 4 * i + 4] for i in range(begin, end)]
                if launch.variant.cells == _pool_plan.ALL_CELLS:
                    listed = [entry for entry in listed if entry[2] <= position <= entry[3]]
                assert [(cell, length) for cell, length, *_ in listed] == exact

    check()


@given(call=poolings(dtypes=("float32", "float16", "float64")))
def test_blocks_of_a_pooling_cover_all_rows(call: dict[str, Any]) -> None:
    launch = pool_launch(call)
    header = _pool_plan.Header(*launch.table[: len(_pool_plan.Header._fields)].tolist())
    lanes = 1 << header.row_lanes
    assert launch.block % lanes == 0
    assert header.row_chunks * lanes * _pool_plan._ITEMS >= header.row_vectors
    assert header.row_units * (launch.block // lanes) >= header.rows
    assert launch.grid == header.row_units * header.row_chunks
