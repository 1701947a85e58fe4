"""Threads in lockstep: who runs next, branches, barriers, the end.

The lanes of several blocks form one long vector. Lanes with the same place in the program form a
group. The group that is furthest behind runs until it branches, meets another group, ends or
reaches a barrier; so lanes that diverged meet again as early as they can.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arithmetic import Handler, compile_arithmetic
from .counters import Counters
from .errors import DivergentBarrierError, EmulationError, EndlessLoopError, UnknownInstructionError
from .global_memory import GlobalMemory
from .lanes import Active, Operands
from .memory_access import Memory, compile_access, vector_sizes
from .parser import Program
from .scalars import Values
from .shared_memory import SharedMemory

_WARP = 32
_FLOW: dict[str, set[tuple[str, ...]]] = {
    "bra": {(), ("uni",)},
    "ret": {()},
    "exit": {()},
    "bar": {("sync",)},
}
_Mask = NDArray[np.bool_]


class Machine:
    """A program on `width` blocks at once, with their registers and memories."""

    def __init__(
        self,
        program: Program,
        everywhere: GlobalMemory,
        parameters: bytes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        width: int,
        dynamic_shared: int,
        profile: bool,
        most_steps: int,
    ) -> None:
        self._program = program
        self._grid = grid
        self._threads = block[0] * block[1] * block[2]
        self._padded = -(-self._threads // _WARP) * _WARP
        self._width = width
        self._most_steps = most_steps
        self.counters = Counters()
        self._profile = profile
        lane = np.arange(width * self._padded, dtype=np.int64)
        self._thread = lane % self._padded
        self._block = lane // self._padded
        self._special = self._special_registers(block)
        grain = min(vector_sizes(program), default=4)
        shared_bytes = -(-(program.shared_bytes + dynamic_shared) // 16) * 16
        self._shared = SharedMemory(width, shared_bytes, grain)
        self._memory = Memory(
            everywhere,
            self._shared,
            np.full((lane.size, program.local_bytes), 0xFF, np.uint8),
            parameters,
            self._block,
            np.zeros(lane.size, np.int64),
            self.counters if profile else None,
        )
        operands = Operands(program, lane.size, self._special)
        self._operands = operands
        self._handlers = [self._compile(place) for place in range(len(program.code))]
        self._guards = [
            None if line.guard is None else operands.source(line.guard, "pred")
            for line in program.code
        ]

    def _special_registers(self, block: tuple[int, int, int]) -> dict[str, Values]:
        width, height, _ = block
        thread = self._thread
        lanes = {
            "%tid.x": thread % width,
            "%tid.y": thread // width % height,
            "%tid.z": thread // (width * height),
            "%laneid": thread % _WARP,
            **{f"%ctaid.{axis}": np.zeros_like(thread) for axis in "xyz"},
        }
        for axis, size, count in zip("xyz", block, self._grid, strict=True):
            lanes[f"%ntid.{axis}"] = np.full_like(thread, size)
            lanes[f"%nctaid.{axis}"] = np.full_like(thread, count)
        return {name: values.astype(np.uint32) for name, values in lanes.items()}

    def _compile(self, place: int) -> Handler | None:
        line = self._program.code[place]
        if line.opcode in _FLOW:
            fits = line.modifiers in _FLOW[line.opcode]
            if line.opcode == "bra":
                fits = fits and line.operands[0] in self._program.labels
            if line.opcode == "bar":
                fits = fits and line.operands == ("0",) and line.guard is None
            if not fits:
                raise UnknownInstructionError(line.text)
            return None
        if line.opcode in {"ld", "st"}:
            return compile_access(line, self._operands, self._program, self._memory)
        return compile_arithmetic(line, self._operands)

    def run(self, first: int, count: int) -> None:
        """Run `count` blocks of the grid from block number `first` on, to their end."""
        number = first + self._block
        for axis, coordinate in zip(
            "xyz",
            np.unravel_index(number % np.prod(self._grid), self._grid[::-1])[::-1],
            strict=True,
        ):
            self._special[f"%ctaid.{axis}"][:] = coordinate
        self._memory.threads[:] = number * self._threads + self._thread
        self._shared.restart()
        self._memory.local[:] = 0xFF
        alive = (self._thread < self._threads) & (self._block < count)
        self._alive = int(alive.sum())
        self._steps = 0
        groups: dict[int, _Mask] = {0: alive}
        waiting: dict[int, _Mask] = {}
        with np.errstate(all="ignore"):
            while groups or waiting:
                if not groups:
                    self._check_barrier(waiting)
                    self._shared.barrier()
                    for place, mask in waiting.items():
                        _join(groups, place + 1, mask)
                    waiting = {}
                place = min(groups)
                self._advance(place, groups.pop(place), groups, waiting)

    def _advance(
        self, place: int, mask: _Mask, groups: dict[int, _Mask], waiting: dict[int, _Mask]
    ) -> None:
        """Run one group until it is no longer alone, or no longer one."""
        code, handlers, guards = self._program.code, self._handlers, self._guards
        active = Active(mask, int(mask.sum()) == self._alive)
        stop = min(groups, default=len(code))
        while True:
            if place >= len(code):
                raise EmulationError("the program runs past its end")
            line, guard = code[place], guards[place]
            self._steps += 1
            if self._steps > self._most_steps:
                raise EndlessLoopError(f"more than {self._most_steps} steps")
            handler = handlers[place]
            chosen = active
            if guard is not None:
                chosen = Active(mask & ~guard if line.negated else mask & guard, complete=False)
            if self._profile:
                self.counters.instructions[line.name] += _warps(chosen.mask)
            if handler is not None:
                if guard is None or chosen.indices.size:
                    self._run_one(handler, chosen, place)
                place += 1
            elif line.opcode == "bar":
                _join(waiting, place, mask)
                return
            elif line.opcode == "bra":
                target = self._program.labels[line.operands[0]]
                taken = int(chosen.mask.sum()) if guard is not None else -1
                if taken == 0:
                    place += 1
                elif guard is None or taken == active.indices.size:
                    place = target
                else:
                    _join(groups, target, chosen.mask)
                    _join(groups, place + 1, mask & ~chosen.mask)
                    return
            else:  # ret, exit
                self._alive -= chosen.indices.size
                mask = mask & ~chosen.mask
                if not mask.any():
                    return
                _join(groups, place + 1, mask)
                return
            if place >= stop or place in groups:
                _join(groups, place, mask)
                return

    def _run_one(self, handler: Handler, active: Active, place: int) -> None:
        try:
            handler(active)
        except EmulationError as error:
            line = self._program.code[place]
            raise type(error)(f"{error}\n  at instruction {place}: {line.text}") from None

    def _check_barrier(self, waiting: dict[int, _Mask]) -> None:
        """Nobody can run on: then whole blocks must wait, each at one barrier."""
        for place, mask in waiting.items():
            each = mask.reshape(self._width, self._padded).sum(axis=1)
            partly = (each > 0) & (each < self._threads)
            if partly.any():
                block = int(partly.argmax())
                raise DivergentBarrierError(
                    f"{int(each[block])} of the {self._threads} threads of a block wait at "
                    f"instruction {place}; the others wait elsewhere or have ended"
                )


def _join(groups: dict[int, _Mask], place: int, mask: _Mask) -> None:
    groups[place] = groups[place] | mask if place in groups else mask


def _warps(mask: _Mask) -> int:
    return int(mask.reshape(-1, _WARP).any(axis=1).sum())
