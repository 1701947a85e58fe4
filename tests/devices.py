"""Where the tests of CUDA kernels run: on the PTX emulator, or on a GPU. Both run planned launches.

Without a GPU the emulator runs each kernel's real PTX and checks every access; on a GPU the same
test bodies show that the hardware agrees.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

import gpuless
import numpy as np
import ptx
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

_ALIGNMENT = 256  # of device memory


class Device(Protocol):
    """What runs a launch; `shift` puts the arrays so many elements behind an aligned address."""

    name: str

    def run(self, launch: Any, arrays: Arrays, *, shift: int = 0) -> None:
        """Run a launch on copies of host arrays; write back the one called "result"."""


@cache
def gpu_missing() -> str | None:
    """Say why there is no GPU to test on; None if there is one."""
    if find_spec("numba_cuda") is None:
        return "no GPU can be used: numba-cuda is not installed"
    try:
        from numba import cuda

        if cuda.is_available() and cuda.gpus[0].compute_capability:
            return None
        reason = str(cuda.cuda_error() or "no driver, or no NVVM").strip().splitlines()[0]
    except Exception as error:  # noqa: BLE001 - whatever a broken driver raises
        reason = f"{type(error).__name__}: {error}"
    return f"no GPU can be used: {reason}"


@cache
def ptx_of(variant: Any) -> str:
    """Compile a variant's kernel to PTX, once a process."""
    from numba_gradops.cuda import _kernels

    kernel = _kernels.kernel(variant)
    return gpuless.ptx(kernel.function, kernel.signature, kernel.launch_bounds)


@cache
def program(variant: Any) -> ptx.Program:
    """Read a variant's PTX, once a process."""
    return ptx.parse(ptx_of(variant))


def placed(array: NDArray[Any], shift: int) -> NDArray[Any]:
    """Copy an array to where device memory would begin, or `shift` elements behind."""
    memory = np.empty(array.nbytes + 2 * _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT + shift * array.itemsize
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Emulator:
    """The PTX emulator."""

    name = "emulator"

    def run(
        self,
        launch: Any,
        arrays: Arrays,
        *,
        shift: int = 0,
        text: str | None = None,
        blocks: range | None = None,
    ) -> None:
        """Run a launch, or other PTX in its place."""
        chosen = ptx.parse(text) if text else program(launch.variant)
        copies = {name: placed(array, shift) for name, array in arrays.items()}
        buffers = [
            ptx.Buffer(copies[name], "w" if name == "result" else "r")
            if name in copies
            else ptx.Buffer(placed(launch.table, 0))
            for name in launch.arguments
        ]
        ptx.launch(
            chosen,
            launch.grid,
            launch.block,
            buffers,
            dynamic_shared=launch.shared,
            blocks=blocks,
        )
        arrays["result"][...] = copies["result"]


class Gpu:
    """The GPU that CUDA sees first."""

    name = "gpu"

    def run(self, launch: Any, arrays: Arrays, *, shift: int = 0) -> None:
        """Run a launch on copies in the device's memory."""
        from numba import cuda

        from numba_gradops.cuda import _kernels

        kernel = _kernels.kernel(launch.variant)
        dispatcher = cuda.jit(kernel.signature, launch_bounds=kernel.launch_bounds)(kernel.function)
        kept, addresses = {}, []
        for name in launch.arguments:
            array = launch.table if name == "table" else arrays[name]
            moved = 0 if name == "table" else shift * array.itemsize
            # What lies around an array is NaN, too: nothing may be computed from it.
            data = np.full(math.prod(array.shape) * array.itemsize + 2 * _ALIGNMENT, 0xFF, np.uint8)
            data[moved : moved + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
            kept[name] = cuda.to_device(data)
            addresses.append(np.int64(kept[name].device_ctypes_pointer.value + moved))
        dispatcher[launch.grid, launch.block, 0, launch.shared](*addresses)
        result, moved = arrays["result"], shift * arrays["result"].itemsize
        raw = kept["result"].copy_to_host()
        assert (raw[:moved] == 0xFF).all()
        assert (raw[moved + result.nbytes :] == 0xFF).all()
        result[...] = raw[moved : moved + result.nbytes].view(result.dtype).reshape(result.shape)


DEVICES: dict[str, type[Emulator | Gpu]] = {"emulator": Emulator, "gpu": Gpu}
