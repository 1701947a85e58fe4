"""PTX text to a program: one entry, its parameters, registers, memory layout and instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from .errors import UnknownInstructionError
from .scalars import NUMPY


class Instruction(NamedTuple):
    """One line of the program; `guard` is a predicate that must hold, or not if `negated`."""

    guard: str | None
    negated: bool
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    text: str

    @property
    def name(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


class Parameter(NamedTuple):
    """Where a parameter lies in the parameter memory, in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class Program:
    """A parsed kernel, ready to be launched any number of times."""

    name: str
    target: str
    text: str
    parameters: dict[str, Parameter]
    registers: dict[str, str]  # to their types
    shared: dict[str, int]  # to their offsets
    shared_bytes: int
    local: dict[str, int]
    local_bytes: int
    code: tuple[Instruction, ...]
    labels: dict[str, int] = field(default_factory=dict)


# What may stand outside of the entry, or at its beginning, and means nothing here.
_PREAMBLE = re.compile(
    r"\.(version|address_size|target)\b[^\n]*"
    r"|\.common\s+\.global[^;]*;"  # Numba's environment, which kernels never read
    r"|\.(maxntid|minnctapersm|reqntid|maxnreg)\b[^\n]*"
)
_SHARED = re.compile(r"(\.extern\s+)?\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d*)\]\s*;")
_LOCAL = re.compile(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]\s*;")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{;]*)\{(.*)\}", flags=re.S)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+([^;]+);")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+"
    r"(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?([\w$]+)(?:\[(\d+)\])?"
)
_INSTRUCTION = re.compile(r"(?:@(!?)(%[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", flags=re.S)


def split_operands(text: str) -> tuple[str, ...]:
    """Split at the commas that are not within braces or brackets."""
    return tuple(part.strip() for part in re.split(r",(?![^{\[]*[}\]])", text) if part.strip())


def _place(found: list[tuple[int, str, int]]) -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for align, name, size in found:
        offsets[name] = end = -(-end // align) * align
        end += size
    return offsets, -(-end // 16) * 16


def _parameters(text: str) -> dict[str, Parameter]:
    parameters, end = {}, 0
    for declared in split_operands(text):
        found = _PARAMETER.fullmatch(declared)
        if not found:
            raise UnknownInstructionError(f"parameter: {declared}")
        align, kind, name, count = found.groups()
        size = NUMPY[kind].itemsize * int(count or 1)
        boundary = int(align or NUMPY[kind].itemsize)
        end = -(-end // boundary) * boundary
        parameters[name] = Parameter(end, size)
        end += size
    return parameters


def _registers(body: str) -> dict[str, str]:
    registers: dict[str, str] = {}
    for kind, names in _REGISTERS.findall(body):
        for name in split_operands(names):
            many = re.fullmatch(r"(%[\w$]+)<(\d+)>", name)
            group = [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]
            for register in group:
                if registers.setdefault(register, kind) != kind:
                    raise UnknownInstructionError(f"register {register} has two types")
    return registers


def _instructions(body: str) -> tuple[list[Instruction], dict[str, int]]:
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    body = re.sub(r"([$\w]+):(?!:)", r"\1:;", body)
    # Braces around a statement are scopes of inline assembly; those within hold operands.
    body = re.sub(r"(^|;)\s*[{}]+", r"\1", body)
    for statement in body.split(";"):
        line = " ".join(statement.split()).strip("{} " if "{" not in statement.strip("{ ") else " ")
        if not line:
            continue
        if line.endswith(":"):
            labels[line[:-1]] = len(code)
            continue
        found = _INSTRUCTION.fullmatch(line)
        if not found:
            raise UnknownInstructionError(f"cannot be read: {line}")
        bang, guard, name, operands = found.groups()
        opcode, *modifiers = name.replace("::", "__").split(".")
        code.append(
            Instruction(guard, bool(bang), opcode, (*modifiers,), split_operands(operands), line)
        )
    return code, labels


def parse(text: str) -> Program:
    """Parse what NVVM writes for one kernel; anything unexpected is `UnknownInstructionError`."""
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    entries = _ENTRY.findall(plain)
    if len(entries) != 1 or ".func" in plain:
        raise UnknownInstructionError(
            f"expected one entry and no function, got {len(entries)} entries"
        )
    name, parameters, directives, body = entries[0]
    target = re.search(r"\.target\s+(\w+)", plain)
    outside = _SHARED.sub("", _PREAMBLE.sub("", _ENTRY.sub("", plain) + directives))
    if outside.replace(".visible", "").replace(".weak", "").strip():
        raise UnknownInstructionError(f"outside of the entry: {outside.strip()}")
    static = [(int(a), n, int(s)) for ext, a, n, s in _SHARED.findall(plain) if s and not ext]
    shared, shared_bytes = _place(static)
    shared |= {n: shared_bytes for ext, _, n, s in _SHARED.findall(plain) if ext or not s}
    local, local_bytes = _place([(int(a), n, int(s)) for a, n, s in _LOCAL.findall(body)])
    registers = _registers(body)
    for declaration in (_REGISTERS, _LOCAL, _SHARED):
        body = declaration.sub("", body)
    body = re.sub(r"\.(pragma|loc)\b[^;\n]*;?", "", body)
    code, labels = _instructions(body)
    return Program(
        name,
        target[1] if target else "",
        text,
        _parameters(parameters),
        registers,
        shared,
        shared_bytes,
        local,
        local_bytes,
        tuple(code),
        labels,
    )
