"""Run one compiled loop on several threads: with the only parallel function that there is.

Were there a parallel function for each loop, which calls it, LLVM would optimise the loop a second
time as a part of that function, and so double the time of first calls. This one calls a loop by its
address, and is compiled once, whatever the loops and dtypes. Address and arguments come with the
call: nothing of them is in the compiled code or in the cache.

A loop is called as Numba calls it: with two pointers, for what is returned and for an exception,
and then with all numbers and pointers that the arguments consist of. `_address` checks that a loop
expects just these. What is returned is ignored: a thread that failed leaves tasks to others, and
`_threads` sees if any are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from .._fork import no_fork
from ._compile import parallel_loop
from ._emitter import I32, I64, constant

# Numbers and pointers of a call, at most. Every call hands over as many: what a function does not
# expect it does not see, as the caller takes arguments off the stack on all 64-bit systems.
_MOST = 160


@intrinsic  # type: ignore[untyped-decorator]
def _call(typingctx: Any, address: Any, block: Any) -> Any:
    """Call the function at an address with the numbers of a block as its arguments."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[1]
        first = context.make_array(kind)(context, builder, arguments[1]).data
        values = [builder.load(builder.gep(first, [constant(i)])) for i in range(_MOST)]
        # Where the function may put what it returns, and a pointer to its exception.
        room = [builder.ptrtoint(cgutils.alloca_once(builder, I64), I64) for _ in range(2)]
        function = ir.FunctionType(I32, [I64] * (2 + _MOST)).as_pointer()
        builder.call(builder.inttoptr(arguments[0], function), room + values)
        return context.get_dummy_value()

    return types.void(types.intp, block), codegen


@parallel_loop
def _spread(threads: int, address: int, block: Any) -> None:
    for _ in prange(threads):
        _call(address, block)


def _numbers(argument: Any) -> Iterator[int]:
    """List what Numba passes for an argument: for arrays an owner, a parent, sizes, and places."""
    if isinstance(argument, np.ndarray):
        yield from (0, 0, argument.size, argument.itemsize, argument.ctypes.data)
        yield from argument.shape
        yield from argument.strides
    elif isinstance(argument, tuple):
        for part in argument:
            yield from _numbers(part)
    else:
        yield int(argument)


def _kind(argument: Any) -> Any:
    """Give what the compiled code of a call depends on."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.writeable
    parts = map(_kind, argument) if isinstance(argument, tuple) else ()
    return type(argument), *parts


_addresses: dict[Any, int] = {}


def compile_once() -> None:
    """Compile what is compiled once; starts no threads."""
    _spread.compile((types.intp, types.intp, types.Array(types.int64, 1, "C")))


def _address(loop: Any, arguments: tuple[Any, ...], count: int) -> int:
    """Find, or compile, the code of a loop; 0 if it does not expect `count` numbers."""
    kinds = tuple(map(numba.typeof, arguments))
    loop.compile(kinds)
    compiled = loop.overloads[kinds]
    function = compiled.fndesc
    context = compiled.target_context
    expected = context.call_conv.get_function_type(function.restype, function.argtypes).args[2:]
    whole = all(kind.is_pointer or kind == I64 for kind in expected)
    if not (whole and len(expected) == count <= _MOST and types.intp.bitwidth == 64):
        return 0
    return int(compiled.library.get_pointer_to_function(function.llvm_func_name))


def prepare(loop: Any, arguments: tuple[Any, ...]) -> tuple[int, NDArray[np.int64]] | None:
    """Compile what is needed and write the arguments down; None if a loop takes others."""
    numbers = [number for argument in arguments for number in _numbers(argument)]
    key = loop, tuple(map(_kind, arguments))
    address = _addresses.get(key)
    if address is None:
        with no_fork:
            compile_once()
            address = _addresses[key] = _address(loop, arguments, len(numbers))
    if address == 0:
        return None
    block = np.zeros(_MOST, np.int64)
    block[: len(numbers)] = numbers
    return address, block


def spread(threads: int, address: int, block: NDArray[np.int64]) -> None:
    """Call a loop once on each of several threads; its arrays must be kept alive."""
    _spread(threads, address, block)
