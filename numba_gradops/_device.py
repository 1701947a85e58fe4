"""Which device computes a call, and the backend with that device's two functions.

A backend has `conv2d_backprop_input`, `fractional_avg_pool_grad`, and `arrays`, which reads array
arguments and allocates results. It is imported when it is first needed: `import numba_gradops`
alone loads neither Numba nor CUDA.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np

from ._arguments import describe
from ._fork import no_fork

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_NAME = re.compile(r"cpu|cuda(:\d+)?")
_INSTALL = "pip install 'numba-gradops[cuda]', which is CUDA 13, or [cuda12] for older drivers"


def _owner(array: Any) -> str:
    """Name the device whose memory an array lies in; what is no device array is the CPU's."""
    try:
        # DLPack first: a PyTorch tensor that requires a gradient refuses the other question.
        if hasattr(array, "__dlpack_device__"):
            return "cuda" if array.__dlpack_device__()[0] in _DLPACK_CUDA else "cpu"
        if hasattr(array, "__cuda_array_interface__"):
            return "cuda"
    except Exception:  # noqa: BLE001 - not an array we know: the contract will say what it is
        return "cpu"
    return "cpu"


# What CUDA_SUCCESS, CUDA_ERROR_NO_DEVICE are to the driver.
_SUCCESS, _NO_DEVICE = 0, 100


def _driver_problem() -> str | None:
    """Ask the driver itself, which needs no package."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return (
            "no NVIDIA driver was found (libcuda could not be loaded): install one of version 580 "
            "or newer, or 525 or newer for CUDA 12"
        )
    status = driver.cuInit(0)
    if status == _NO_DEVICE:
        return "the NVIDIA driver found no GPU (is CUDA_VISIBLE_DEVICES set?)"
    if status != _SUCCESS:
        return f"the NVIDIA driver could not be started (cuInit gave error {status})"
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return _version_problem(version.value, _toolkit())


def _toolkit() -> tuple[int, str] | None:
    """Give the major and full version of the installed CUDA compilers, if they are packages."""
    for name in ("nvidia-nvvm", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvrtc-cu12"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return int(version.partition(".")[0]), version
    return None


def _version_problem(driver: int, toolkit: tuple[int, str] | None) -> str | None:
    """Compare the newest CUDA that the driver runs, 1000 * major + 10 * minor, with the compilers'.

    A driver runs code of any compilers of its own major version or an older one.
    """
    if toolkit is None or driver // 1000 >= toolkit[0]:
        return None
    return (
        f"the NVIDIA driver is too old: it runs CUDA up to {driver // 1000}.{driver % 1000 // 10}, "
        f"the installed compilers are CUDA {toolkit[1]}; install a newer driver (580 for CUDA 13), "
        f"or compilers for it (pip install 'numba-gradops[cuda{driver // 1000}]')"
    )


def _package_problem() -> str | None:
    if importlib.util.find_spec("numba_cuda") is None:
        return f"numba-cuda is not installed ({_INSTALL})"
    try:
        from cuda import pathfinder

        for library in ("nvvm", "nvJitLink", "nvrtc"):
            pathfinder.load_nvidia_dynamic_lib(library)
    except ImportError as error:
        return f"numba-cuda is not complete: {error} ({_INSTALL})"
    except Exception:  # noqa: BLE001 - pathfinder's own class, which says where it looked
        return f"the CUDA compilers are not installed: {library} was not found ({_INSTALL})"
    return None


def cuda_problems() -> list[str]:
    """List what keeps CUDA from being used; an empty list means that it can be."""
    return [each for each in (_package_problem(), _driver_problem()) if each]


# Arguments that lie in the host's memory for sure.
_ON_HOST = {np.ndarray, type(None)}


@cache
def _cpu() -> Any:
    with no_fork:
        from . import cpu  # loads Numba

    return cpu


@cache
def _cuda_count() -> int:
    """Make sure that CUDA can be used; give the number of devices."""
    problems = cuda_problems()
    if problems:
        raise RuntimeError("; ".join(problems))
    with no_fork:
        from .cuda import backend

    return backend.device_count()


def _cuda(name: str, owners: dict[str, str]) -> Any:
    number = int(name[5:]) if name != "cuda" else None
    try:
        count = _cuda_count()
        if number is not None and number >= count:
            msg = f"there are {count} GPUs, counted from 0"
            raise RuntimeError(msg)
    except (RuntimeError, ImportError) as error:
        msg = (
            f"device {name!r} is not available: {error}. "
            "Leave device out, or give device='cpu', to compute on the CPU."
        )
        raise RuntimeError(msg) from None
    here = frozenset(argument for argument, owner in owners.items() if owner == "cuda")
    for argument in owners:
        if here and argument not in here:
            msg = f"{argument} must be on the device, as {min(here)} is, got a host array"
            raise ValueError(msg)
    from .cuda import backend

    return backend.Backend(number, here)


def backend(device: Any, arrays: dict[str, Any]) -> Any:
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
    return _cuda(name, owners)
