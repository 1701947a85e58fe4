"""The convolution kernels, as PTX on the emulator or on a GPU, against the float64 reference."""

from __future__ import annotations

import itertools
from typing import Any

import golden
import numpy as np
import pytest
from accuracy import DTYPES, assert_close
from cuda_calls import Convolution, convolution_launch, convolve
from devices import Device

from numba_gradops import _dtypes, _reference
from numba_gradops.cuda import _conv2d_plan

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")

CASES = (
    Convolution("3x3", (2, 9, 10, 20), (3, 3), 12),
    Convolution("3x3/2", (2, 11, 13, 32), (3, 3), 16, (2, 2)),
    Convolution("1x1/2 valid", (2, 9, 9, 16), (1, 1), 24, (2, 2), padding="VALID"),
    Convolution("5x5/3 valid", (1, 17, 14, 16), (5, 5), 8, (3, 3), padding="VALID"),
    Convolution("dilated", (1, 12, 11, 16), (3, 2), 8, (1, 1), (2, 3)),
    Convolution("dilated/2", (1, 9, 11, 16), (3, 3), 4, (2, 1), (2, 3), "VALID"),
    Convolution("2x1", (1, 12, 9, 20), (3, 3), 12, (2, 1)),
    Convolution("explicit", (1, 6, 8, 18), (2, 3), 5, padding=((0, 0), (2, 1), (0, 3), (0, 0))),
    Convolution("all padding", (1, 2, 3, 16), (1, 2), 4, padding=((0, 0), (3, 3), (2, 2), (0, 0))),
    Convolution("stride beyond the filter", (1, 10, 10, 16), (2, 2), 8, (3, 3), padding="VALID"),
    Convolution("tail without gradient", (1, 8, 9, 17), (2, 2), 3, (4, 5), padding="VALID"),
    Convolution("groups", (2, 6, 5, 64), (3, 3), 24, groups=4),
    Convolution("odd", (1, 9, 9, 21), (3, 3), 7, (2, 2), groups=1),
    Convolution("one pixel", (1, 1, 1, 17), (3, 3), 3),
    Convolution("more channels than a tile", (1, 3, 4, 70), (3, 3), 9),
    Convolution("one in, one out", (1, 5, 4, 16), (2, 2), 1),
)
THIN = (
    Convolution("depthwise", (2, 8, 7, 8), (3, 3), 8, (2, 2), groups=8),
    Convolution("depthwise 3", (1, 5, 8, 3), (3, 3), 3, padding="VALID", groups=3),
    Convolution("depthwise, two out", (1, 6, 6, 4), (3, 2), 8, (1, 1), (2, 1), groups=4),
    Convolution("groups of 2", (1, 5, 6, 12), (3, 3), 24, groups=6),
    Convolution("groups of 5", (1, 5, 6, 15), (3, 3), 6, (2, 3), groups=3),
    Convolution("first 7x7/2", (1, 16, 15, 3), (7, 7), 16, (2, 2)),
    Convolution("gray", (2, 6, 7, 1), (5, 5), 6),
    Convolution("tail", (1, 8, 8, 2), (2, 2), 3, (4, 5), padding="VALID"),
)
ALL = {case.name: case for case in (*CASES, *THIN)}


def check(device: Device, call: dict[str, Any], **forced: Any) -> None:
    result = convolve(device, call, **forced)
    assert_close(result, _reference.conv2d_backprop_input(**call), call["filter"].dtype)


def poison(rng: np.random.Generator, call: dict[str, Any]) -> None:
    """Put NaN and infinities into a few places of the gradient and of the filter."""
    for name in ("filter", "out_backprop"):
        flat = call[name].reshape(-1)
        for value in (np.nan, np.inf, -np.inf):
            flat[rng.integers(flat.size)] = value


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_geometry_in_tiles(
    device: Device, rng: np.random.Generator, case: Convolution, shift: int, data_format: str
) -> None:
    call = case.arguments(rng, "float32", data_format)
    check(device, call, kind="tiled", shift=shift)
    poison(rng, call)
    check(device, call, kind="tiled", shift=shift)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("case", THIN, ids=lambda case: case.name)
def test_every_thin_geometry_directly(
    device: Device, rng: np.random.Generator, case: Convolution, shift: int, data_format: str
) -> None:
    call = case.arguments(rng, "float32", data_format)
    check(device, call, shift=shift)
    poison(rng, call)
    check(device, call, shift=shift)


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("case", [*CASES, *THIN], ids=lambda case: case.name)
def test_every_geometry_without_tables(
    device: Device, rng: np.random.Generator, case: Convolution, data_format: str
) -> None:
    call = case.arguments(rng, "float32", data_format)
    poison(rng, call)
    check(device, call, kind="any")


# A half, a double and an integer in each kind of kernel; the others take long.
SOME = {
    ("3x3/2", "NHWC", "bfloat16"),
    ("odd", "NCHW", "float64"),
    ("depthwise", "NHWC", "float16"),
    ("groups of 2", "NCHW", "int32"),
    ("first 7x7/2", "NHWC", "float64"),
}


@pytest.mark.parametrize(
    ("name", "data_format", "dtype"),
    [
        pytest.param(*choice, marks=() if choice in SOME else pytest.mark.thorough)
        for choice in itertools.product(
            ("3x3/2", "odd", "depthwise", "groups of 2", "first 7x7/2"),
            ("NHWC", "NCHW"),
            _dtypes.CONV2D,
        )
    ],
)
def test_every_dtype(
    device: Device, rng: np.random.Generator, dtype: str, data_format: str, name: str
) -> None:
    call = ALL[name].arguments(rng, dtype, data_format)
    check(device, call)
    if np.dtype(DTYPES[dtype]).kind != "i":
        poison(rng, call)
        check(device, call)


@pytest.mark.parametrize(
    "dtype", ["int32", *(pytest.param(d, marks=pytest.mark.thorough) for d in _dtypes.CONV2D[:4])]
)
def test_every_dtype_without_tables(device: Device, rng: np.random.Generator, dtype: str) -> None:
    check(device, ALL["groups of 5"].arguments(rng, dtype), kind="any")


def test_all_kernels_give_the_same_bits(device: Device, rng: np.random.Generator) -> None:
    """So which one is planned does not show."""
    call = ALL["groups of 2"].arguments(rng, "float32")
    results = {kind: convolve(device, call, kind=kind) for kind in ("tiled", "direct", "any")}
    assert len({result.tobytes() for result in results.values()}) == 1


@pytest.mark.parametrize("data_format", ["NHWC", pytest.param("NCHW", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", ["3x3/2", "depthwise", "groups of 2"])
def test_positions_of_64_bits(
    device: Device, rng: np.random.Generator, name: str, data_format: str
) -> None:
    call = ALL[name].arguments(rng, "float32", data_format)
    assert convolution_launch(call, wide=True).variant.wide
    assert not convolution_launch(call).variant.wide
    check(device, call, wide=True)


@pytest.mark.parametrize(
    ("dtype", "tile"),
    [
        pytest.param(
            dtype, tile, marks=() if tile.rows == 128 == tile.cols else pytest.mark.thorough
        )
        for dtype in ("float32", "float64")
        for tile in _conv2d_plan._TILES[DTYPES[dtype].itemsize]
    ],
)
def test_every_tile(
    device: Device, rng: np.random.Generator, dtype: str, tile: _conv2d_plan.Tile
) -> None:
    """Several tiles each way, the last ones partly filled."""
    case = Convolution("", (1, 13, 14, tile.cols + 4), (2, 2), 12, (1, 2))
    call = case.arguments(rng, dtype)
    launch = convolution_launch(call, kind="tiled", tile=tile)
    assert launch.variant.tile == tile
    assert launch.grid > 2
    check(device, call, kind="tiled", tile=tile)


def test_an_image_does_not_depend_on_the_images_beside_it(
    device: Device, rng: np.random.Generator
) -> None:
    call = Convolution("", (3, 5, 7, 18), (3, 3), 12, (2, 1)).arguments(rng, "float32")
    whole = convolve(device, call)
    alone = call | {
        "input_sizes": (1, *call["input_sizes"][1:]),
        "out_backprop": call["out_backprop"][1:2].copy(),
    }
    np.testing.assert_array_equal(convolve(device, alone)[0], whole[1])


def test_a_weight_that_only_padding_meets_reaches_nothing(device: Device) -> None:
    """The border's zeros must not be multiplied by an infinite weight."""
    case = Convolution("", (1, 4, 4, 16), (3, 3), 4, padding=((0, 0), (1, 1), (1, 1), (0, 0)))
    call = case.arguments(np.random.default_rng(0), "float32")
    call["filter"][0, 0] = np.inf
    exact = _reference.conv2d_backprop_input(**call)
    assert np.isfinite(exact[0, 3, 3]).all()
    for kind in ("tiled", "any"):
        check(device, call, kind=kind)


@pytest.mark.parametrize(
    ("sizes", "window", "outs"),
    [((2, 3, 4, 16), (2, 2), 0), ((1, 2, 3, 16), (0, 2), 3), ((1, 2, 3, 4), (2, 0), 3)],
    ids=["no output channels", "no filter rows", "no filter columns"],
)
def test_empty_sums_are_zero(
    device: Device, sizes: tuple[int, int, int, int], window: tuple[int, int], outs: int
) -> None:
    call = Convolution("", sizes, window, outs).arguments(np.random.default_rng(0), "float32")
    result = convolve(device, call)
    assert not result.any()
    assert not np.signbit(result).any()


def test_no_gradient_pixels_give_zeros(device: Device, rng: np.random.Generator) -> None:
    case = Convolution("", (1, 2, 2, 16), (3, 3), 4, padding="VALID")
    call = case.arguments(rng, "float32")
    assert call["out_backprop"].size == 0
    assert not convolve(device, call).any()


GOLDEN = [case for case in golden.cases() if case.op == "conv2d_backprop_input"]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, marks=() if case.dtype == "float32" else pytest.mark.thorough, id=case.id
        )
        for case in GOLDEN
    ],
)
def test_results_are_tensorflows(device: Device, case: golden.Case) -> None:
    call = case.arguments()
    if 0 in case.expected().shape:
        pytest.skip("nothing to compute")
    result = convolve(device, call)
    case.check(result.reshape(case.expected().shape))
