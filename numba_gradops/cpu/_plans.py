"""Plans as arrays of numbers: Numba takes microseconds to look through NamedTuples in a call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ._emitter import constant


def write_down(*parts: tuple[int, ...]) -> NDArray[np.int64]:
    """Put the numbers of several NamedTuples into one read-only array."""
    numbers = np.array([number for part in parts for number in part], np.int64)
    numbers.flags.writeable = False
    return numbers


def reader(*parts: Any) -> Any:
    """Make the compiled function that gives the NamedTuples of these classes back."""
    kinds = [types.NamedUniTuple(types.int64, len(part._fields), part) for part in parts]

    def read(typingctx: Any, numbers: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            (array,) = signature.args
            first = context.make_array(array)(context, builder, arguments[0]).data
            found, at = [], 0
            for kind in kinds:
                places = [builder.gep(first, [constant(at + i)]) for i in range(kind.count)]
                values = [builder.load(place) for place in places]
                found.append(context.make_tuple(builder, kind, values))
                at += kind.count
            return context.make_tuple(builder, signature.return_type, found)

        return types.Tuple(kinds)(numbers), codegen

    return intrinsic(read)
