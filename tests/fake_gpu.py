"""The package with two made-up GPUs, and small calls on them."""

import sys

import numpy as np
import pytest
from fake_driver import FakeArray, FakeDriver

from numba_gradops import _device, conv2d_backprop_input, fractional_avg_pool_grad

F32 = np.float32
LEGACY = 1
SHAPE = (2, 6, 6, 4)
ROWS = COLS = [0, 2, 4, 6]


def emulator():
    """Give a function that runs a launch in the emulator, or skip the test."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    ptx = pytest.importorskip("ptx", reason="the emulator is not here")
    from numba import cuda

    from numba_gradops.cuda import _kernels

    programs = {}

    def execute(launch, buffers):
        if launch.variant not in programs:
            kernel = _kernels.kernel(launch.variant)
            text, _ = cuda.compile(
                kernel.function,
                kernel.signature,
                device=False,
                abi="numba",
                cc=(9, 0),
                launch_bounds=kernel.launch_bounds,
            )
            programs[launch.variant] = ptx.parse(text)
        arguments = [ptx.Buffer(buffer) for buffer in buffers]
        arguments[-2] = ptx.Buffer(buffers[-2], "w")  # the result is before the table
        ptx.launch(programs[launch.variant], launch.grid, launch.block, arguments)

    return execute


@pytest.fixture
def driver(monkeypatch):
    """Make the package believe in two GPUs."""
    fake = FakeDriver()
    loaded = [name for name in sys.modules if name.startswith("numba_gradops.cuda")]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    package = sys.modules["numba_gradops"]
    monkeypatch.delattr(package, "cuda", raising=False)
    monkeypatch.setitem(sys.modules, "numba_gradops.cuda._driver", fake)
    monkeypatch.setattr(_device, "cuda_problems", list)
    _device._cuda_count.cache_clear()
    from numba_gradops.cuda import _compile

    monkeypatch.setattr(_compile, "code", lambda variant, _: _compile.Code(variant, "kernel"))
    from numba_gradops.cuda import _arrays

    def numba_empty(shape, dtype, device, stream):
        named = None if stream == LEGACY else stream
        return FakeArray(fake, np.full(shape, -77).astype(dtype), device, named)

    monkeypatch.setattr(_arrays, "_numba_empty", numba_empty)
    yield fake
    _device._cuda_count.cache_clear()
    for name in [name for name in sys.modules if name.startswith("numba_gradops.cuda")]:
        del sys.modules[name]
    if hasattr(package, "cuda"):
        del package.cuda


def gradient(dtype=F32):
    return np.arange(2 * 3 * 3 * 4).reshape(2, 3, 3, 4).astype(dtype)


def pool(array, **options):
    return fractional_avg_pool_grad(SHAPE, array, ROWS, COLS, **options)


def convolve(weights, array, **options):
    return conv2d_backprop_input(SHAPE, weights, array, [1, 2, 2, 1], "SAME", **options)


WEIGHTS = np.ones((3, 3, 4, 4), F32)
