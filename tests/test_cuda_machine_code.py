"""What NVIDIA's assembler makes of the kernels, for each generation of GPUs: no cliff unseen.

The numbers stand in a table at the end of the test run.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import gpuless
import pytest
from machine_report import ROWS

from numba_gradops.cuda import _conv2d_plan, _pool_plan

pytestmark = pytest.mark.nvdisasm

FLOAT_TILE, DOUBLE_TILE = _conv2d_plan._TILES[4][0], _conv2d_plan._TILES[8][0]


def tiled(dtype: str, channels_last: bool, vector: bool = True, wide: bool = False) -> Any:
    tile = DOUBLE_TILE if dtype == "float64" else FLOAT_TILE
    return _conv2d_plan.TiledVariant(dtype, channels_last, vector, wide, tile)


KERNELS = {
    "tiled float32 NHWC": tiled("float32", channels_last=True),
    "tiled float32 NCHW": tiled("float32", channels_last=False),
    "tiled float32 NHWC, scalars": tiled("float32", channels_last=True, vector=False),
    "tiled float32 NHWC, 64 bits": tiled("float32", channels_last=True, wide=True),
    "tiled float64 NHWC": tiled("float64", channels_last=True),
    "tiled bfloat16 NHWC": tiled("bfloat16", channels_last=True),
    "tiled int32 NHWC": tiled("int32", channels_last=True),
    "channels float32": _conv2d_plan.ChannelsVariant("float32", True, 4, False),
    "pixels float32": _conv2d_plan.PixelsVariant("float32", True, 3, 4, False),
    "any float32": _conv2d_plan.AnyVariant("float32", True),
    "pool float32": _pool_plan.PoolVariant("float32", _pool_plan.ONE_CELL, 4, False),
    "pool float64": _pool_plan.PoolVariant("float64", _pool_plan.ONE_CELL, 2, False),
    "pool float32, overlapping": _pool_plan.PoolVariant(
        "float32", _pool_plan.LISTED_CELLS, 4, False
    ),
}
MAIN = ("tiled float32 NHWC", "pool float32")


@cache
def machine_code(name: str, capability: tuple[int, int]) -> gpuless.MachineCode:
    from numba_gradops.cuda import _compile

    start = time.perf_counter()
    image = _compile.compile_kernel(KERNELS[name], capability)
    seconds = time.perf_counter() - start
    code = gpuless.machine_code(image)
    products = [op for op in ("FFMA", "FFMA2", "DFMA") if code.count(op)] or ["IMAD"]
    ROWS.append(
        (
            name,
            f"sm_{capability[0]}{capability[1]}",
            code.registers,
            code.spills(),
            code.shared,
            code.count("LDG", "128", loop=False),
            code.count("LDS", "128"),
            f"{code.share(*products):.0%} of {code.loop.total()}",
            f"{seconds:.1f}",
        )
    )
    return code


# The only accesses to local memory: one word, so that six blocks share a multiprocessor.
SPILLS = {("pool float32", (12, 0)): 2}


def assert_nothing_spilled(name: str, capability: tuple[int, int]) -> None:
    code = machine_code(name, capability)
    known = SPILLS.get((name, capability), 0)
    assert code.spills() == known
    assert code.stack <= 4 * known


def each(*names: str) -> pytest.MarkDecorator:
    """Try kernels for all GPUs; what takes long is left to the thorough run."""
    choices = [
        pytest.param(
            name,
            capability,
            marks=() if name in MAIN or capability == (9, 0) else pytest.mark.thorough,
            id=f"{name}-sm_{capability[0]}{capability[1]}",
        )
        for name in names
        for capability in gpuless.CAPABILITIES
    ]
    return pytest.mark.parametrize(("name", "capability"), choices)


@each("tiled float32 NHWC", "tiled float32 NCHW")
def test_the_inner_loop_is_multiply_adds_on_wide_shared_loads(
    name: str, capability: tuple[int, int]
) -> None:
    code = machine_code(name, capability)
    assert code.registers <= 128, "two blocks of 256 threads share a multiprocessor"
    assert_nothing_spilled(name, capability)
    products = code.count("FFMA") + 2 * code.count("FFMA2")
    assert products == 8 * 8 * 8
    # Two of 16 bytes each for rows and columns, for each of the 8 slices; what is narrower tells
    # where a pixel lies (row, column, position), and is read where a tap begins.
    assert code.count("LDS", "128") == 4 * 8
    assert code.count("LDS") == code.count("LDS", "128") + 3
    assert code.share("FFMA", "FFMA2") >= 0.7


@each(*(name for name in KERNELS if name not in {"tiled float32 NHWC", "tiled float32 NCHW"}))
def test_no_kernel_needs_more_registers_than_there_are(
    name: str, capability: tuple[int, int]
) -> None:
    code = machine_code(name, capability)
    threads, blocks = KERNELS[name].launch_bounds
    assert code.registers * threads * blocks <= 2**16
    assert_nothing_spilled(name, capability)
    assert code.shared <= 48 * 1024
    if name.startswith("pool"):
        assert code.count("LDG", "128", loop=False) >= 1
        assert code.count("STG", "128", loop=False) >= 1
        assert code.registers <= 64, "enough threads to hide the latency of memory"


MOST_SECONDS = 3  # on a machine of usual speed


@pytest.mark.thorough
@pytest.mark.parametrize("name", KERNELS)
def test_no_kernel_takes_long_to_compile(name: str, slowness: float) -> None:
    """In the best of up to three tries: what else the machine does is no fault of the kernel's."""
    limit = slowness * MOST_SECONDS
    from numba_gradops.cuda import _compile, _kernels

    _compile.compile_kernel(KERNELS["pool float64"], (8, 0))  # what only the first one pays
    taken = []
    for _ in range(3):
        _kernels.kernel.cache_clear()
        start = time.process_time()
        _compile.compile_kernel(KERNELS[name], (8, 0))
        taken.append(time.process_time() - start)
        if taken[-1] < limit:
            return
    pytest.fail(f"compiling took {min(taken):.1f} s of a processor, at most {limit:.1f} allowed")
