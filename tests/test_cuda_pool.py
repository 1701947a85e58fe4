"""The pooling kernels, as PTX on the emulator or a GPU: the bits of the CPU, thus TensorFlow's."""

from __future__ import annotations

from typing import Any

import golden
import numpy as np
import ptx
import pytest
from accuracy import DTYPES, draw
from cuda_calls import pool, pool_launch
from devices import Device, program

from numba_gradops import fractional_avg_pool_grad

GOLDEN = [case for case in golden.cases() if case.op == "fractional_avg_pool_grad"]


def thorough(*values: str) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.thorough) for value in values]


# Rows and columns of unequal number; cells that overlap, leave gaps, come twice, end outside.
SEQUENCES: dict[str, tuple[tuple[int, int], list[int], list[int]]] = {
    "ascending": ((9, 13), [0, 2, 3, 6, 9], [0, 1, 4, 6, 9, 13]),
    "one cell": ((3, 2), [0, 3], [0, 2]),
    "with gaps": ((12, 9), [2, 4, 7], [1, 3, 4, 8]),
    "past the end": ((6, 5), [0, 4, 9], [0, 3, 8, 9]),
    "decreasing": ((8, 7), [0, 5, 3, 8], [4, 1, 7]),
    "nothing": ((3, 3), [5, 7], [4, 9]),
}
DEPTHS = [1, 3, 8, 40]


def call(
    rng: np.random.Generator, dtype: str, name: str, overlapping: bool, depth: int, batch: int = 2
) -> dict[str, Any]:
    (rows, cols), row_sequence, col_sequence = SEQUENCES[name]
    shape = (batch, len(row_sequence) - 1, len(col_sequence) - 1, depth)
    return {
        "orig_input_tensor_shape": (batch, rows, cols, depth),
        "out_backprop": draw(rng, shape, DTYPES[dtype]),
        "row_pooling_sequence": row_sequence,
        "col_pooling_sequence": col_sequence,
        "overlapping": overlapping,
    }


def assert_same_bits(result: np.ndarray, arguments: dict[str, Any]) -> None:
    """Compare with the CPU; a NaN may have other bits, and nothing else may."""
    exact = fractional_avg_pool_grad(**arguments)
    if exact.dtype.kind != "i":
        nan = np.isnan(exact.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(result.astype(np.float64)), nan)
        result, exact = result[~nan], exact[~nan]
    bits = f"u{exact.itemsize}"
    np.testing.assert_array_equal(
        np.ascontiguousarray(result).view(bits), np.ascontiguousarray(exact).view(bits)
    )


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize(
    "dtype", ["float32", "int64", *thorough("float16", "bfloat16", "float64", "int32")]
)
def test_every_dtype_and_kind_of_sequence(
    device: Device, rng: np.random.Generator, dtype: str, name: str, overlapping: bool, depth: int
) -> None:
    arguments = call(rng, dtype, name, overlapping, depth)
    assert_same_bits(pool(device, arguments), arguments)


@pytest.mark.parametrize("dtype", ["float32", *thorough("float16", "float64")])
@pytest.mark.parametrize("shift", [1, 2])
def test_arrays_that_are_not_aligned(
    device: Device, rng: np.random.Generator, dtype: str, shift: int
) -> None:
    arguments = call(rng, dtype, "ascending", False, 8)
    assert pool_launch(arguments).variant.vector > 1
    assert pool_launch(arguments, aligned=False).variant.vector == 1
    assert_same_bits(pool(device, arguments, shift=shift), arguments)


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("depth", [3, 8])
def test_positions_of_64_bits(
    device: Device, rng: np.random.Generator, overlapping: bool, depth: int
) -> None:
    arguments = call(rng, "float32", "ascending", overlapping, depth)
    assert pool_launch(arguments, wide=True).variant.wide
    assert not pool_launch(arguments).variant.wide
    assert_same_bits(pool(device, arguments, wide=True), arguments)


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("dtype", ["float32", *thorough("float16", "bfloat16", "float64")])
def test_special_and_extreme_numbers(
    device: Device, rng: np.random.Generator, dtype: str, overlapping: bool
) -> None:
    """Subnormal quotients, the largest numbers, infinities, NaN, and both zeros."""
    arguments = call(rng, dtype, "ascending", overlapping, 8)
    gradient = arguments["out_backprop"]
    flat = gradient.reshape(-1)
    limits = np.finfo(np.float32 if dtype == "bfloat16" else dtype)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, limits.max, -limits.max, limits.tiny]
    special += [limits.smallest_subnormal, -limits.smallest_subnormal, 3 * limits.tiny]
    with np.errstate(over="ignore", under="ignore"):
        flat[:] = flat * 2.0 ** rng.integers(-100, 100, flat.size).astype(np.float64)
    flat[rng.permutation(flat.size)[: 3 * len(special)]] = special * 3
    with np.errstate(all="ignore"):
        assert_same_bits(pool(device, arguments), arguments)


@pytest.mark.parametrize("dtype", ["int64", *thorough("int32")])
def test_integers_that_do_not_fit_become_the_lowest(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    arguments = call(rng, dtype, "ascending", True, 8)
    limits = np.iinfo(dtype)
    arguments["out_backprop"][:] = rng.choice(
        [limits.min, limits.max, limits.max - 1, 0, -1], arguments["out_backprop"].shape
    )
    assert_same_bits(pool(device, arguments), arguments)


def test_many_rows_and_wide_rows(device: Device, rng: np.random.Generator) -> None:
    """More than a block in both directions."""
    steps = np.resize([0, 1, 2, 2], 61).cumsum()
    arguments = {
        "orig_input_tensor_shape": (3, int(steps[-1]), int(steps[-1]), 24),
        "out_backprop": draw(rng, (3, 60, 60, 24), np.float32),
        "row_pooling_sequence": steps,
        "col_pooling_sequence": steps,
        "overlapping": False,
    }
    assert pool_launch(arguments).grid > 100
    assert_same_bits(pool(device, arguments), arguments)


def test_cells_too_many_to_list(
    device: Device, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba_gradops import _geometry

    monkeypatch.setattr(_geometry, "_LONGEST_INDEX", 0)
    _geometry._pool.cache_clear()
    arguments = call(rng, "float32", "decreasing", True, 5)
    assert pool_launch(arguments).variant.cells == "all cells"
    result = pool(device, arguments)
    monkeypatch.undo()
    assert_same_bits(result, arguments)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.id)
def test_results_are_tensorflows(device: Device, case: golden.Case) -> None:
    if np.prod(case.expected().shape) > 2**17 and device.name == "emulator":
        pytest.skip("too large to emulate")
    result = pool(device, case.arguments())
    case.check(result)
    zero = result == 0
    np.testing.assert_array_equal(np.signbit(result[zero]), np.signbit(case.expected()[zero]))


@pytest.mark.nvvm
@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("dtype", ["float32", *thorough("float16", "bfloat16", "float64", "int32")])
def test_no_product_can_be_fused_into_a_sum(
    rng: np.random.Generator, dtype: str, overlapping: bool
) -> None:
    """The assembler may fuse them where the PTX does not say how to round: other bits."""
    launch = pool_launch(call(rng, dtype, "ascending", overlapping, 8))
    # The negation of a product is exact either way.
    sums = [line for line in ptx.fusible(program(launch.variant)) if "8000000" not in line]
    assert not sums


@pytest.mark.nvvm
@pytest.mark.thorough
def test_the_end_of_a_result_of_more_than_two_to_the_31_elements(
    rng: np.random.Generator,
) -> None:
    """Memory that is never touched is never there: 4 GiB of a result, of which an image is run."""
    batch, side, depth = 2**11 + 1, 32, 2**10
    gradient = np.zeros((batch, 8, 8, depth), np.float16)
    gradient[-1] = draw(rng, gradient.shape[1:], np.float16)
    steps = list(range(0, side + 1, 4))
    arguments = {
        "orig_input_tensor_shape": (batch, side, side, depth),
        "out_backprop": gradient,
        "row_pooling_sequence": steps,
        "col_pooling_sequence": steps,
    }
    result = np.zeros((batch, side, side, depth), np.float16)
    assert result.size > 2**31
    launch = pool_launch(arguments)
    assert launch.variant.wide
    blocks = launch.grid // batch
    assert launch.grid == batch * blocks
    ptx.launch(
        program(launch.variant),
        launch.grid,
        launch.block,
        [ptx.Buffer(gradient), ptx.Buffer(result, "rw"), ptx.Buffer(launch.table)],
        blocks=range(launch.grid - blocks, launch.grid),
    )
    last = arguments | {
        "orig_input_tensor_shape": (1, side, side, depth),
        "out_backprop": gradient[-1:],
    }
    assert_same_bits(result[-1:], last)
    assert not result[-2].any()
