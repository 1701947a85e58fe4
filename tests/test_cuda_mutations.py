"""The tests of CUDA kernels would notice a fault: kernels that were made faulty are caught."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import ptx
import pytest
from accuracy import assert_close
from cuda_calls import Convolution, convolution_launch, pool_launch
from devices import Emulator, ptx_of
from numpy.typing import NDArray
from poison import poisoned
from test_cuda_conv2d import ALL
from test_cuda_pool import assert_same_bits
from test_cuda_pool import call as pool_call

from numba_gradops import _reference

pytestmark = [
    pytest.mark.nvvm,
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
]

Attempt = Callable[[str], None]  # runs PTX and raises if anything is wrong


def convolution(case: Convolution, **forced: Any) -> tuple[str, Attempt]:
    """Give the PTX of a convolution, and what runs and checks PTX in its place."""
    rng = np.random.default_rng(0)
    call = case.arguments(rng, "float32")
    launch = convolution_launch(call, **forced)
    exact = _reference.conv2d_backprop_input(**call)

    def attempt(text: str) -> None:
        result = poisoned(call["input_sizes"], np.dtype(np.float32))
        arrays = {name: call[name] for name in ("filter", "out_backprop")} | {"result": result}
        Emulator().run(launch, arrays, text=text)
        assert_close(result, exact, np.float32)

    return ptx_of(launch.variant), attempt


def pooling(overlapping: bool) -> tuple[str, Attempt]:
    """Give the PTX of a pooling, and what runs and checks PTX in its place."""
    arguments = pool_call(np.random.default_rng(0), "float32", "with gaps", overlapping, 8)
    launch = pool_launch(arguments)

    def attempt(text: str) -> None:
        gradient = arguments["out_backprop"]
        result: NDArray[Any] = poisoned(arguments["orig_input_tensor_shape"], gradient.dtype)
        Emulator().run(launch, {"out_backprop": gradient, "result": result}, text=text)
        assert_same_bits(result, arguments)

    return ptx_of(launch.variant), attempt


def is_caught(attempt: Attempt, text: str) -> bool:
    try:
        attempt(text)
    except (ptx.EmulationError, AssertionError):
        return True
    return False


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_without_a_barrier_the_emulator_objects(data_format: str) -> None:
    """Not only the result may be wrong: on a device a race often goes well."""
    call = ALL["3x3/2"].arguments(np.random.default_rng(0), "float32", data_format)
    launch = convolution_launch(call, kind="tiled")
    text = ptx_of(launch.variant)
    count = ptx.barriers(text)
    assert count >= 1
    for number in range(count):
        arrays = {name: call[name] for name in ("filter", "out_backprop")}
        arrays["result"] = poisoned(tuple(call["input_sizes"]), np.dtype(np.float32))
        with pytest.raises((ptx.RaceError, ptx.UninitialisedError)):
            Emulator().run(launch, arrays, text=ptx.without(text, number))


SHIFTED = (
    r"((?:ld|st)\.(?:global|shared)[\w.:]*\s+(?:\{[^}]*\},\s*|%\w+,\s*)?\[%\w+)(?:\+(-?\d+))?\]"
)


def shifted(text: str, number: int, far: int = 0) -> str:
    """Move one of the accesses by its own size, or far away."""
    found = list(re.finditer(SHIFTED, text))[number]
    kind = re.search(r"\.(?:v(\d)\.)?[a-z](\d+)\s", found[0])
    assert kind is not None
    size = int(kind[1] or 1) * int(kind[2]) // 8
    moved = f"{found[1]}+{int(found[2] or 0) + (far or size)}]"
    return text[: found.start()] + moved + text[found.end() :]


def touches_data(attempt: Attempt, text: str, number: int, arrays: int) -> bool:
    """Tell whether an access is run at all, and is not one of the table's.

    A number of the table may well have an equal neighbour, or not matter for a small call.
    """
    try:
        attempt(shifted(text, number, far=2**30))
    except ptx.OutOfBoundsError as error:
        return f"array {arrays + 1}," not in str(error)
    return False


@pytest.mark.parametrize(
    "kernel",
    [
        "channels",
        "pool",
        *(
            pytest.param(k, marks=pytest.mark.thorough)
            for k in ("tiled", "pixels", "any", "overlapping")
        ),
    ],
)
def test_an_access_beside_the_right_one_is_caught(kernel: str) -> None:
    """Each load and each store of a kernel: an error of the emulator, or a wrong result."""
    text, attempt = {
        "tiled": lambda: convolution(ALL["3x3"], kind="tiled"),
        "channels": lambda: convolution(ALL["depthwise"]),
        "pixels": lambda: convolution(ALL["groups of 5"]),
        "any": lambda: convolution(ALL["dilated/2"], kind="any"),
        "pool": lambda: pooling(overlapping=False),
        "overlapping": lambda: pooling(overlapping=True),
    }[kernel]()
    attempt(text)
    accesses = list(re.finditer(SHIFTED, text))
    arrays = 2 if kernel in {"pool", "overlapping"} else 3
    data = [n for n in range(len(accesses)) if touches_data(attempt, text, n, arrays)]
    assert len(data) > 1
    missed = [accesses[n][0] for n in data if not is_caught(attempt, shifted(text, n))]
    assert not missed
