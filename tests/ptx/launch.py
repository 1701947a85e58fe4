"""Launch a program: grid, blocks and arguments as a driver takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .counters import Counters
from .global_memory import Buffer, GlobalMemory
from .machine import Machine
from .parser import Parameter, Program

_LANES = 4096  # that run side by side: long vectors for NumPy, small enough for the cache

Argument = Buffer | int | np.generic


def launch(
    program: Program,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Argument],
    *,
    blocks: range | None = None,
    dynamic_shared: int = 0,
    profile: bool = False,
    most_steps: int = 2_000_000,
) -> Counters:
    """Run all blocks of a grid, or those numbered in `blocks`.

    Parameters
    ----------
    program : Program
        What `parse` made.
    grid, block : int or up to three ints
        Blocks of the grid and threads of a block, x first.
    arguments : sequence
        Each a `Buffer`, for an array or a pointer, or an integer, or a typed NumPy scalar. An array
        of Numba's has 5 parameters and two more for each dimension; a lone parameter is a pointer.
    blocks : range, optional
        Blocks to run, all if left out; for a part of a huge problem.
    dynamic_shared : int, default 0
        Bytes of shared memory beyond the static ones.
    profile : bool, default False
        Whether to count memory traffic and instructions, which takes time.
    most_steps : int
        Steps of the blocks that run side by side after which a loop is taken to be endless.

    Returns
    -------
    Counters
        What was done, if asked for.
    """
    whole_grid, whole_block = _three(grid), _three(block)
    memory = GlobalMemory()
    parameters = _parameters(program, arguments, memory)
    threads = int(np.prod(whole_block))
    if not 0 < threads <= 1024:
        raise ValueError(f"a block has 1 to 1024 threads, got {threads}")
    if whole_grid[1] > 65535 or whole_grid[2] > 65535 or not 0 < whole_grid[0] < 2**31:
        raise ValueError(f"the grid {whole_grid} cannot be launched")
    wanted = blocks if blocks is not None else range(int(np.prod(whole_grid)))
    padded = -(-threads // 32) * 32
    width = max(1, min(len(wanted), _LANES // padded))
    machine = Machine(
        program,
        memory,
        parameters,
        whole_grid,
        whole_block,
        width,
        dynamic_shared,
        profile,
        most_steps,
    )
    for first in range(wanted.start, wanted.stop, width):
        machine.run(first, min(width, wanted.stop - first))
    return machine.counters


def _three(sizes: int | Sequence[int]) -> tuple[int, int, int]:
    width, height, depth = (*([sizes] if isinstance(sizes, int) else sizes), 1, 1)[:3]
    return int(width), int(height), int(depth)


def _flat(arguments: Sequence[Argument], count: int, memory: GlobalMemory) -> Iterator[Any]:
    """Give the values of all parameters, an array's as Numba passes it."""
    fields = [5 + 2 * a.array.ndim for a in arguments if isinstance(a, Buffer)]
    scalars = len(arguments) - len(fields)
    as_arrays = sum(fields) + scalars == count
    if not as_arrays and len(arguments) != count:
        raise ValueError(f"the kernel has {count} parameters, got {len(arguments)} arguments")
    for argument in arguments:
        if not isinstance(argument, Buffer):
            yield argument
            continue
        array, address = argument.array, memory.place(argument)
        if as_arrays:
            yield from (0, 0, array.size, array.itemsize)
        yield address
        if as_arrays:
            yield from array.shape
            yield from array.strides


def _parameters(program: Program, arguments: Sequence[Argument], memory: GlobalMemory) -> bytes:
    places: list[Parameter] = list(program.parameters.values())
    packed = bytearray(max((p.offset + p.size for p in places), default=0))
    values = _flat(arguments, len(places), memory)
    for value, place in zip(values, places, strict=True):
        if isinstance(value, np.generic):
            data = value.tobytes()
        else:
            data = int(value).to_bytes(place.size, "little", signed=value < 0)
        if len(data) != place.size:
            raise ValueError(f"a parameter of {place.size} bytes was given {value!r}")
        packed[place.offset : place.offset + place.size] = data
    return bytes(packed)
