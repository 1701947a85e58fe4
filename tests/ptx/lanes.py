"""The threads that run an instruction, and what its operands mean for all of them at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import UnknownInstructionError
from .parser import Program
from .scalars import NUMPY, Values, literal, raw

# Where generic addresses of shared and local memory begin; global ones are far above.
SHARED_WINDOW = 1 << 36
LOCAL_WINDOW = 2 << 36

_ADDRESS = re.compile(r"\[\s*([^\]+\s]+)\s*(?:\+\s*(-?\w+)\s*)?\]")


class Active:
    """Some lanes: as a mask, as indices, and as NumPy's `where`.

    `complete` says that all lanes that are still running are among them: then whole registers may
    be written, which is much faster, since nobody will look at those of the others.
    """

    def __init__(self, mask: NDArray[np.bool_], complete: bool) -> None:
        self.mask = mask
        self.where: Any = True if complete else mask
        self._indices: NDArray[np.int64] | None = None

    @property
    def indices(self) -> NDArray[np.int64]:
        if self._indices is None:
            self._indices = np.flatnonzero(self.mask)
        return self._indices

    def pick(self, values: Values) -> Values:
        """Give the values of these lanes only; one value is everybody's."""
        return values[self.indices] if values.size > 1 else np.repeat(values, self.indices.size)


def bits(values: Values, size: int) -> Values:
    """Give the bits of values, extended to a register of `size` bytes."""
    if values.dtype == np.bool_:
        return values
    if values.dtype.itemsize < size:
        kind = "i" if values.dtype.kind == "i" else "u"
        if values.dtype.kind == "f":
            values = values.view(f"u{values.dtype.itemsize}")
        values = values.astype(f"{kind}{size}")
    return values.view(f"u{size}")


class Operands:
    """The registers of all lanes, and the meaning of an instruction's operands."""

    def __init__(self, program: Program, count: int, special: dict[str, Values]) -> None:
        self.count = count
        self._program = program
        self._special = special
        self._registers: dict[str, Values] = {}

    def register(self, name: str) -> Values:
        """Give a register's bits, one entry a lane."""
        if name in self._special:
            return self._special[name]
        if name not in self._registers:
            kind = self._program.registers.get(name)
            if kind is None:
                raise UnknownInstructionError(f"register {name} is not declared")
            dtype = raw(kind)
            nonsense = False if kind == "pred" else np.array(-1).astype(dtype)
            self._registers[name] = np.full(self.count, nonsense, dtype)
        return self._registers[name]

    def source(self, text: str, kind: str) -> Values:
        """View an operand as type `kind`: a register's (low) part, or one number for all."""
        if text.startswith("%"):
            register, dtype = self.register(text), NUMPY[kind]
            if register.dtype == dtype:
                return register
            if np.bool_ in {register.dtype.type, dtype.type}:
                raise UnknownInstructionError(f"{text} used as {kind}")
            ratio = register.dtype.itemsize // dtype.itemsize
            if ratio == 0:
                raise UnknownInstructionError(f"{text} is narrower than {kind}")
            return register.view(dtype)[::ratio]
        number = literal(text, kind)
        if number is not None:
            return number
        for offsets in (self._program.shared, self._program.local):
            if text in offsets:
                return np.array([offsets[text]]).astype(NUMPY[kind])
        raise UnknownInstructionError(f"operand {text}")

    def address(self, text: str) -> Callable[[Active], NDArray[np.int64]]:
        """Give what computes the addresses of an operand like ``[%rd1+16]``."""
        found = _ADDRESS.fullmatch(text)
        if not found:
            raise UnknownInstructionError(f"address {text}")
        base, offset = found[1], int(found[2] or "0", 0)
        if base.startswith("%"):
            register = self.register(base)
            # A 32-bit address wraps around; below zero is how a fault shows best.
            register = register.view(f"i{register.dtype.itemsize}")
            return lambda active: active.pick(register).astype(np.int64) + offset
        start = self.source(base, "s64") + offset
        return lambda active: np.repeat(start, active.indices.size)

    def destination(self, text: str, kind: str) -> Values | None:
        """View a register as the output of a ufunc; None if its size is not that of `kind`."""
        register = self.register(text)
        if register.dtype == np.bool_:
            return register if kind == "pred" else None
        dtype = NUMPY[kind]
        return register.view(dtype) if register.dtype.itemsize == dtype.itemsize else None

    def assign(self, text: str) -> Callable[[Values, Active], None]:
        """Give what writes values for all lanes to a register, in the active ones."""
        register = self.register(text)
        size = register.dtype.itemsize

        def write(values: Values, active: Active) -> None:
            np.copyto(register, bits(values, size), where=active.where)

        return write
