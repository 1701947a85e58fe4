"""Run the PTX of our CUDA kernels on the CPU, with every access checked. A tool of the tests.

    program = parse(text)
    launch(program, grid, block, [Buffer(gradient), Buffer(result, "w"), 5])

What is modelled, for just the instructions in `arithmetic` and `memory_access` (any other, or any
other modifier of them, is an error when a program is loaded, never ignored):

* all threads of a launch, blocks side by side, in lockstep where they agree and apart where not;
* registers, predicates, parameters, global, shared and local memory, with PTX's rounding: fused
  multiply-adds round once, conversions saturate, shifts clamp;
* barriers of a whole block.

What is checked, on every access and in every thread:

=========================  ======================================================================
`OutOfBoundsError`         outside of the array that the address was made from; outside of shared
                           or local memory
`MisalignedError`          a vector or scalar at an address that its size does not divide
`UninitialisedError`       shared memory, or an output, read before it was written
`RaceError`                shared memory touched by two threads, one of them writing, with no
                           barrier between; an output element written by two threads
`ReadOnlyError`            an input written, or an output read through the read-only cache
`DivergentBarrierError`    a barrier that not all threads of the block reach
`EndlessLoopError`         more steps than any of our kernels takes
`UnknownInstructionError`  something that is not modelled
=========================  ======================================================================

Registers, local memory and outputs start as nonsense (NaN), so what is never computed shows.

What is not modelled: time; caches and the order in which other threads see what was written,
beyond barriers; what ptxas makes of the PTX (it may fuse a product and a sum that carry no
rounding modifier: `fusible` lists them); warps that run ahead of each other between barriers, other
than by the race check; drivers.
"""

from .counters import Counters
from .errors import (
    DivergentBarrierError,
    EmulationError,
    EndlessLoopError,
    MisalignedError,
    OutOfBoundsError,
    RaceError,
    ReadOnlyError,
    UninitialisedError,
    UnknownInstructionError,
)
from .global_memory import Buffer
from .launch import launch
from .mutations import barriers, fusible, replaced, without
from .parser import Program, parse

__all__ = [
    "Buffer",
    "Counters",
    "DivergentBarrierError",
    "EmulationError",
    "EndlessLoopError",
    "MisalignedError",
    "OutOfBoundsError",
    "Program",
    "RaceError",
    "ReadOnlyError",
    "UninitialisedError",
    "UnknownInstructionError",
    "barriers",
    "fusible",
    "launch",
    "parse",
    "replaced",
    "without",
]
