"""Machine code of kernels: compiled once for a kind of device, and kept on disk.

The policy is that of the CPU's cache (`numba_gradops._cache`): the key covers this package, the
compilers and the device's kind, entries carry a checksum, and whatever goes wrong with the files
costs a compilation, never an exception.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from .. import _cache

Capability = tuple[int, int]

_COMPILERS = (
    "numba-cuda",
    "cuda-bindings",
    "nvidia-nvvm",
    "nvidia-nvjitlink",
    "nvidia-cuda-nvcc-cu12",
    "nvidia-nvjitlink-cu12",
)


class Code(NamedTuple):
    """Machine code, and the name of the function in it."""

    image: bytes
    name: str


@cache
def _compilers() -> str:
    versions = []
    for name in _COMPILERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return repr((versions, os.environ.get("CUDA_HOME")))


def _file(variant: Any, capability: Capability) -> Path:
    key = repr((variant, capability, _compilers())).encode()
    name = f"cuda-{hashlib.sha256(key).hexdigest()[:32]}.cubin"
    return _cache.directory() / _cache.stamp()[:20] / name


def _load(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, image = content[:32], content[32:]
    return image if hashlib.sha256(image).digest() == checksum else None


def _save(path: Path, image: bytes) -> None:
    with contextlib.suppress(OSError):  # full, read-only or vanished: go on without
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(image).digest() + image)
            Path(name).replace(path)  # whoever reads sees all of it or none
        except OSError:
            Path(name).unlink(missing_ok=True)


def _architecture(capability: Capability) -> Capability:
    """Choose what to compile for: code runs on devices of the same major and no lower minor."""
    from numba.cuda.cudadrv import nvrtc

    known = [tuple(each[:2]) for each in nvrtc.get_supported_ccs()]
    fitting = [each for each in known if each[0] == capability[0] and each <= capability]
    if not fitting:
        msg = (
            f"the installed CUDA compilers know no GPU of compute capability "
            f"{capability[0]}.{capability[1]} (they know "
            f"{', '.join(sorted({f'{major}.{minor}' for major, minor in known}))}): install others"
        )
        raise RuntimeError(msg)
    return max(fitting)


def compile_kernel(variant: Any, architecture: Capability) -> bytes:
    """Compile a kernel to machine code; needs neither a device nor a driver."""
    from cuda.bindings import nvjitlink
    from numba import cuda

    from . import _kernels

    kernel = _kernels.kernel(variant)
    intermediate, _ = cuda.compile(
        kernel.function,
        kernel.signature,
        device=False,
        abi="numba",
        cc=architecture,
        output="ltoir",
        launch_bounds=kernel.launch_bounds,
    )
    # The optimisation at link time makes better code than compiling to PTX first.
    options = ["-lto", f"-arch=sm_{architecture[0]}{architecture[1]}"]
    linker = nvjitlink.create(len(options), options)
    try:
        kind = nvjitlink.InputType.LTOIR
        nvjitlink.add_data(linker, kind, intermediate, len(intermediate), "kernel")
        nvjitlink.complete(linker)
        image = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, image)
    finally:
        nvjitlink.destroy(linker)
    return bytes(image)


def _name_in(image: bytes) -> str:
    """Find the kernel's name: each has a section with its parameters."""
    (name,) = set(re.findall(rb"\.nv\.constant0\.([A-Za-z0-9_$]+)", image))
    return str(name.decode())


@cache
def code(variant: Any, capability: Capability) -> Code:
    """Give the machine code of a kernel for a kind of device, from the disk if it is there."""
    path = _file(variant, capability) if _cache.is_on() else None
    image = _load(path) if path else None
    if image is None:
        image = compile_kernel(variant, _architecture(capability))
        if path:
            _save(path, image)
    return Code(image, _name_in(image))
