"""What a program can do wrong, one exception for each kind."""


class EmulationError(Exception):
    """A program did what no correct program does."""


class OutOfBoundsError(EmulationError):
    """An access outside of the memory that the address belongs to."""


class MisalignedError(EmulationError):
    """An access at an address that its size does not divide."""


class UninitialisedError(EmulationError):
    """A read of memory that nothing was written to."""


class RaceError(EmulationError):
    """Two threads touch the same memory, one of them writes, and nothing orders them."""


class ReadOnlyError(EmulationError):
    """A write to an input, or a read of what is written through the read-only cache."""


class DivergentBarrierError(EmulationError):
    """A barrier that some threads of the block wait at, and others never reach."""


class EndlessLoopError(EmulationError):
    """More steps than the limit."""


class UnknownInstructionError(EmulationError):
    """An instruction, modifier or directive that is not modelled."""
