"""Compile CUDA kernels where there is no GPU and no driver, and read machine code.

Numba asks the driver only for the device to compile for; told a compute capability instead, its
compiler and NVIDIA's libraries do all the rest here.
"""

from __future__ import annotations

import re
import subprocess
import warnings
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

# Turing, Ampere, Hopper, and Blackwell for data centers and for desktops.
CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0), (12, 0))


class MachineCode(NamedTuple):
    """What ptxas made of a kernel."""

    registers: int
    stack: int  # bytes of local memory
    shared: int  # bytes
    opcodes: Counter[str]  # of the whole kernel, with all their modifiers
    loop: Counter[str]  # of the innermost loop that does most of the arithmetic

    def count(self, start: str, *parts: str, loop: bool = True) -> int:
        """Count instructions by the first part of their names and others that follow."""
        chosen = self.loop if loop else self.opcodes
        return sum(
            number
            for name, number in chosen.items()
            if name.split(".")[0] == start and {*parts} <= {*name.split(".")}
        )

    def spills(self) -> int:
        """Count the accesses to local memory: no kernel needs any, so registers were too few."""
        return self.count("LDL", loop=False) + self.count("STL", loop=False)

    def share(self, *starts: str) -> float:
        """Give which part of the loop's instructions these are."""
        return sum(map(self.count, starts)) / max(1, self.loop.total())


@cache
def missing() -> str | None:
    """Say why nothing can be compiled; None if it can."""
    if find_spec("numba_cuda") is None:
        return "numba-cuda is not installed (pip install 'numba-cuda[cu13]')"
    try:
        from numba.cuda.cudadrv import nvrtc, nvvm

        if not nvvm.is_available():
            return "libNVVM was not found (pip install 'numba-cuda[cu13]')"
        nvrtc.get_supported_ccs()
    except Exception as error:  # noqa: BLE001 - whatever an incomplete installation raises
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


@cache
def tools_missing() -> str | None:
    """Say why machine code cannot be read; None if it can."""
    if missing():
        return missing()
    absent = [name for name in ("nvdisasm", "cuobjdump") if _tool(name) is None]
    if absent:
        packages = " ".join(f"nvidia-cuda-{name}" for name in absent)
        return f"{' and '.join(absent)} not found (pip install {packages})"
    return None


def _tool(name: str) -> str | None:
    from cuda.pathfinder import find_nvidia_binary_utility

    found = find_nvidia_binary_utility(name)
    return None if found is None else str(found)


def ptx(
    function: Any, signature: Any, bounds: Any = None, capability: tuple[int, int] = (9, 0)
) -> str:
    """Compile a kernel to PTX."""
    from numba import cuda

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text, _ = cuda.compile(
            function,
            signature,
            device=False,
            abi="numba",
            cc=capability,
            launch_bounds=bounds,
        )
    return str(text)


def machine_code(image: bytes) -> MachineCode:
    """Read machine code: what registers it takes, and what its instructions are."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(image)

        def output(tool: str, option: str) -> str:
            command = [str(_tool(tool)), option, str(path)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        report = output("cuobjdump", "-res-usage")
        listing = output("nvdisasm", "-c")
    usage = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", report)
    if usage is None:
        msg = f"cuobjdump reported in an unknown way: {report}"
        raise RuntimeError(msg)
    registers, stack, shared = map(int, usage.groups())
    opcodes, loop = _instructions(listing)
    return MachineCode(registers, stack, shared, opcodes, loop)


_LABEL = re.compile(r"\s*(\.L_[\w$]+):")
_LINE = re.compile(
    r"\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(?:@!?U?P(?:\d|T)\s+)?([A-Z][A-Z0-9_.]+)\s*(.*?);"
)


def _instructions(listing: str) -> tuple[Counter[str], Counter[str]]:
    """Count the opcodes of a disassembly: all, and those of the loop with most multiply-adds."""
    places: dict[str, int] = {}
    code: list[tuple[str, str]] = []
    for line in listing.splitlines():
        label = _LABEL.match(line)
        if label:
            places[label[1]] = len(code)
            continue
        found = _LINE.match(line)
        if found:
            code.append((found[2], found[3]))
    # What follows an unconditional branch to itself at the end is padding.
    names = [name for name, _ in code if name != "NOP"]
    best: list[str] = []
    most = (0, 0.0)
    for at, (name, operands) in enumerate(code):
        target = re.search(r"`\((\.L_[\w$]+)\)", operands)
        if name.split(".")[0] != "BRA" or target is None:
            continue
        start = places.get(target[1], at + 1)
        if start > at:
            continue
        body = [opcode for opcode, _ in code[start : at + 1]]
        products = sum(opcode.split(".")[0] in {"FFMA", "DFMA", "IMAD"} for opcode in body)
        fused = sum(opcode.split(".")[0] in {"FFMA", "FFMA2", "DFMA"} for opcode in body)
        # Most multiply-adds, and of nested loops the innermost.
        key = (fused or products, -len(body))
        if key > most:
            most, best = key, body
    return Counter(names), Counter(best)
