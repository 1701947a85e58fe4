"""Loads and stores: which memory an instruction means, and vectors of it for the active lanes."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arithmetic import Handler
from .counters import Counters
from .errors import OutOfBoundsError, UnknownInstructionError
from .global_memory import GlobalMemory
from .lanes import LOCAL_WINDOW, SHARED_WINDOW, Active, Operands, bits
from .parser import Instruction, Program, split_operands
from .scalars import NUMPY, Values
from .shared_memory import SharedMemory

_CACHE = r"(?:\.(?:ca|cg|cs|lu|wb|wt|L1__\w+|L2__\w+))*"
_VECTOR = r"(?:\.v[24])?"
_KINDS = r"\.(?:[bus](?:8|16|32|64)|f(?:16|32|64))"
_PARAM = re.compile(rf"param{_VECTOR}{_KINDS}")

_Lanes = NDArray[np.int64]


class Memory(NamedTuple):
    """The memories that a running program can reach, and who its lanes are."""

    everywhere: GlobalMemory
    shared: SharedMemory
    local: Values  # bytes, one row a lane
    parameters: bytes
    blocks: _Lanes  # of a lane, counted from the first one that runs
    threads: _Lanes  # of a lane, counted from the first one of the launch
    counters: Counters | None


def vector_sizes(program: Program) -> set[int]:
    """List the sizes in bytes of all elements that the program keeps in shared memory."""
    accesses = (line for line in program.code if line.opcode in {"ld", "st"})
    return {
        NUMPY[line.modifiers[-1]].itemsize
        for line in accesses
        if line.modifiers[0] not in {"param", "global", "local"}
    }


def compile_access(
    line: Instruction, operands: Operands, program: Program, memory: Memory
) -> Handler:
    """Give what runs a load or store in the active lanes."""
    name = "." + ".".join(line.modifiers)
    space = line.modifiers[0] if line.modifiers[0] in {"global", "shared", "local"} else "generic"
    if line.opcode == "ld" and _PARAM.fullmatch(name[1:]):
        return _load_parameter(line, operands, program, memory.parameters)
    pattern = rf"(?:\.{space})?(?:\.nc)?{_CACHE}{_VECTOR}{_KINDS}"
    constant = "nc" in line.modifiers
    if not re.fullmatch(pattern, name) or (constant and (space, line.opcode) != ("global", "ld")):
        raise UnknownInstructionError(line.text)
    kind = NUMPY[line.modifiers[-1]]
    at, registers = line.operands if line.opcode == "st" else line.operands[::-1]
    address = operands.address(at)
    names = split_operands(registers.strip("{}"))
    if len(names) != (4 if "v4" in line.modifiers else 2 if "v2" in line.modifiers else 1):
        raise UnknownInstructionError(line.text)
    count = len(names)

    if line.opcode == "st":
        sources = [operands.source(text, line.modifiers[-1]) for text in names]

        def store(active: Active) -> None:
            rows = np.stack([active.pick(source) for source in sources], axis=1)
            addresses, lanes = address(active), active.indices
            for where, chosen in _spaces(space, addresses):
                _store(memory, where, addresses[chosen], lanes[chosen], rows[chosen])

        return store

    targets = [None if text == "_" else operands.register(text) for text in names]

    def load(active: Active) -> None:
        addresses, lanes = address(active), active.indices
        for where, chosen in _spaces(space, addresses):
            rows = _load(memory, where, addresses[chosen], lanes[chosen], kind, count, constant)
            for k, target in enumerate(targets):
                if target is not None:
                    target[lanes[chosen]] = bits(
                        np.ascontiguousarray(rows[:, k]), target.dtype.itemsize
                    )

    return load


def _load_parameter(
    line: Instruction, operands: Operands, program: Program, parameters: bytes
) -> Handler:
    target, at = line.operands
    found = re.fullmatch(r"\[\s*([\w$]+)\s*(?:\+\s*(\d+)\s*)?\]", at)
    if not found or found[1] not in program.parameters:
        raise UnknownInstructionError(line.text)
    kind = NUMPY[line.modifiers[-1]]
    start = program.parameters[found[1]].offset + int(found[2] or 0)
    names = split_operands(target.strip("{}"))
    assigns = [operands.assign(text) for text in names]
    values = np.frombuffer(parameters, kind, len(names), start)

    def load(active: Active) -> None:
        for k, assign in enumerate(assigns):
            assign(values[k : k + 1], active)

    return load


def _spaces(space: str, addresses: _Lanes) -> list[tuple[str, NDArray[np.intp] | slice]]:
    """Tell which memory the addresses lie in: as the instruction says, or each by its window."""
    if space != "generic":
        return [(space, slice(None))]
    found: list[tuple[str, NDArray[np.intp] | slice]] = []
    count = 0
    windows = (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW), ("global", 1 << 40))
    for (name, start), stop in zip(windows, (LOCAL_WINDOW, 1 << 40, 1 << 63), strict=True):
        inside = (addresses >= start) & (addresses < np.uint64(stop))
        count += int(inside.sum())
        if inside.any():
            found.append((f"generic {name}", np.flatnonzero(inside)))
    if count != addresses.size:
        raise OutOfBoundsError(f"address {int(addresses.min()):#x} belongs to no memory")
    return found


def _load(
    memory: Memory,
    space: str,
    addresses: _Lanes,
    lanes: _Lanes,
    kind: np.dtype[Any],
    count: int,
    constant: bool,
) -> Values:
    size = kind.itemsize * count
    if space.endswith("shared"):
        addresses = addresses - (SHARED_WINDOW if space.startswith("generic") else 0)
        if memory.counters:
            memory.counters.note_shared(addresses, lanes, size, "load")
        return memory.shared.load(addresses, memory.blocks[lanes], lanes, kind, count)
    if space.endswith("global"):
        if memory.counters:
            memory.counters.note_global(addresses, lanes, size)
        return memory.everywhere.load(addresses, memory.threads[lanes], kind, count, constant)
    places = _local_places(memory, space, addresses, lanes, size)
    return memory.local.reshape(-1).view(kind).reshape(-1, count)[places]


def _store(memory: Memory, space: str, addresses: _Lanes, lanes: _Lanes, rows: Values) -> None:
    size = rows.itemsize * rows.shape[1]
    if space.endswith("shared"):
        addresses = addresses - (SHARED_WINDOW if space.startswith("generic") else 0)
        if memory.counters:
            memory.counters.note_shared(addresses, lanes, size, "store")
        memory.shared.store(addresses, memory.blocks[lanes], lanes, rows)
    elif space.endswith("global"):
        if memory.counters:
            memory.counters.note_global(addresses, lanes, size)
        memory.everywhere.store(addresses, memory.threads[lanes], rows)
    else:
        places = _local_places(memory, space, addresses, lanes, size)
        memory.local.reshape(-1).view(rows.dtype).reshape(-1, rows.shape[1])[places] = rows


def _local_places(
    memory: Memory, space: str, addresses: _Lanes, lanes: _Lanes, size: int
) -> _Lanes:
    addresses = addresses - (LOCAL_WINDOW if space.startswith("generic") else 0)
    each = memory.local.shape[1]
    if int(addresses.min()) < 0 or int(addresses.max()) + size > each:
        raise OutOfBoundsError(f"{size} bytes at local byte {int(addresses.min())} of {each}")
    if int(np.bitwise_or.reduce(addresses)) & (size - 1):
        raise OutOfBoundsError(f"{size} bytes at a local byte that {size} does not divide")
    places: _Lanes = (lanes * each + addresses) // size
    return places
