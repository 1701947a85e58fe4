"""Which device computes a call, and the module with that device's two functions.

A backend is a module that has `conv2d_backprop_input` and `fractional_avg_pool_grad`. It is
imported when it is first needed: `import numba_gradops` alone loads neither Numba nor CUDA.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from ._arguments import describe

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_NAME = re.compile(r"cpu|cuda(:\d+)?")


def _owner(array: Any) -> str:
    """Name the device whose memory an array lies in; what is no device array is the CPU's."""
    try:
        if hasattr(array, "__cuda_array_interface__"):
            return "cuda"
        if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] in _DLPACK_CUDA:
            return "cuda"
    except Exception:  # noqa: BLE001 - not an array we know: the contract will say what it is
        return "cpu"
    return "cpu"


def _driver_is_there() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def cuda_problems() -> list[str]:
    """List what keeps CUDA from being used; an empty list means that it can be."""
    problems = ["this version of numba_gradops has no CUDA kernels yet"]
    if importlib.util.find_spec("numba_cuda") is None:
        problems.append("numba-cuda is not installed (pip install 'numba-gradops[cuda]')")
    if not _driver_is_there():
        problems.append("no NVIDIA driver was found (libcuda could not be loaded)")
    return problems


# Arguments that lie in the host's memory for sure.
_ON_HOST = {np.ndarray, type(None)}


@cache
def _cpu() -> ModuleType:
    from . import cpu  # loads Numba

    return cpu


def backend(device: Any, arrays: dict[str, Any]) -> ModuleType:
    """Choose by the `device` argument, or by where the arrays are if it is None."""
    if device is None and {*map(type, arrays.values())} <= _ON_HOST:
        return _cpu()
    owners = {name: _owner(array) for name, array in arrays.items() if array is not None}
    if device is None:
        name = "cuda" if "cuda" in owners.values() else "cpu"
    elif not isinstance(device, str):
        msg = f"device must be None, 'cpu', 'cuda' or 'cuda:N', got {describe(device)}"
        raise TypeError(msg)
    elif not _NAME.fullmatch(device):
        msg = f"device must be None, 'cpu', 'cuda' or 'cuda:N', got {describe(device)}"
        raise ValueError(msg)
    else:
        name = device
    if name == "cpu":
        for argument, owner in owners.items():
            if owner != "cpu":
                msg = f"{argument} must be a host array for device='cpu', got one on {owner}"
                raise ValueError(msg)
        return _cpu()
    msg = (
        f"device {name!r} is not available: {'; '.join(cuda_problems())}. "
        "Leave device out, or give device='cpu', to compute on the CPU."
    )
    raise RuntimeError(msg)
