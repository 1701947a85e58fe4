"""float16 and bfloat16 as bits: Numba does not compute in them, so loops convert while they copy.

Arrays of float16 are seen as uint16, arrays of bfloat16 as int16: two types for Numba, so that the
compiled code knows which is which. Only integer and float32 operations are used, which every
processor has as vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from .._dtypes import name_of
from ._compile import helper
from ._scalars import bits_of, from_bits


def as_bits(array: NDArray[Any]) -> NDArray[Any]:
    """View an array of halves as the integers that stand for them here; others as they are."""
    if array.dtype.itemsize != 2:
        return array
    return array.view(np.uint16 if name_of(array.dtype) == "float16" else np.int16)


@helper
def _from_float16(bits: int) -> Any:
    """Widen; exact."""
    magnitude = np.uint32(bits & 0x7FFF) << np.uint32(13)
    # The exponent is 112 too small after the shift; multiplying corrects it, subnormals included.
    finite = bits_of(from_bits(np.uint32(magnitude)) * np.float32(2.0**112))
    special = np.uint32(magnitude | np.uint32(0x7F800000))
    wide = finite if magnitude < np.uint32(0x7C00 << 13) else special
    return from_bits(np.uint32(wide | np.uint32((bits & 0x8000) << 16)))


@helper
def _to_float16(value: float) -> Any:
    """Round to nearest, ties to even."""
    bits = bits_of(np.float32(value))
    magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
    # Normal: rebias the exponent by -112, add half a unit less one and the odd bit, cut.
    odd = np.uint32((magnitude >> np.uint32(13)) & np.uint32(1))
    normal = np.uint32(magnitude - np.uint32(112 << 23) + np.uint32(0xFFF) + odd) >> np.uint32(13)
    # Subnormal: adding 0.5 lines the last bit of the result up with that of the sum.
    lined_up = bits_of(np.float32(from_bits(magnitude) + np.float32(0.5)))
    subnormal = np.uint32(lined_up - np.uint32(0x3F000000))
    half = normal if magnitude >= np.uint32(113 << 23) else subnormal
    half = half if magnitude < np.uint32(0x47800000) else np.uint32(0x7C00)  # 2**16 and above
    half = half if magnitude <= np.uint32(0x7F800000) else np.uint32(0x7E00)  # NaN
    return np.uint16(half | ((bits >> np.uint32(16)) & np.uint32(0x8000)))


@helper
def _from_bfloat16(bits: int) -> Any:
    """Widen; exact."""
    return from_bits(np.uint32(np.uint32(np.uint16(bits)) << np.uint32(16)))


@helper
def _to_bfloat16(value: float) -> Any:
    """Round to nearest, ties to even."""
    bits = bits_of(np.float32(value))
    odd = np.uint32((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.uint32(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
    quiet = np.uint32((bits >> np.uint32(16)) | np.uint32(0x40))
    is_nan = np.uint32(bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.int16(np.uint16(quiet if is_nan else rounded))


@helper
def round_to_odd(value: float) -> Any:
    """Shorten float64 to float32 so that a second rounding, to a half, is as good as one.

    A result that is not exact is made to end in an odd last bit, which no later tie can be mistaken
    for (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    short = np.float32(value)
    back = np.float64(short)
    if back == value or not np.isfinite(value):
        return short
    bits = bits_of(short)
    # Toward zero first: one step in magnitude is one step in the bits.
    if abs(back) > abs(value):
        bits -= np.uint32(1)
    return from_bits(np.uint32(bits | np.uint32(1)))


def get(array: Any, at: int) -> Any:
    """Read an element, widened to float32 if it is a half."""
    raise NotImplementedError  # `_get` below is what gets compiled


@overload(get)  # type: ignore[untyped-decorator]
def _get(array: Any, at: Any) -> Any:
    if array.dtype == types.uint16:

        def from_float16(array: Any, at: Any) -> Any:
            return _from_float16(array[at])

        return from_float16
    if array.dtype == types.int16:

        def from_bfloat16(array: Any, at: Any) -> Any:
            return _from_bfloat16(array[at])

        return from_bfloat16

    def plain(array: Any, at: Any) -> Any:
        return array[at]

    return plain


def put(array: Any, at: int, value: Any) -> None:
    """Write an element, rounded once if it is a half."""
    raise NotImplementedError  # `_put` below is what gets compiled


@overload(put)  # type: ignore[untyped-decorator]
def _put(array: Any, at: Any, value: Any) -> Any:
    if array.dtype == types.uint16:

        def to_float16(array: Any, at: Any, value: Any) -> Any:
            array[at] = _to_float16(value)

        return to_float16
    if array.dtype == types.int16:

        def to_bfloat16(array: Any, at: Any, value: Any) -> Any:
            array[at] = _to_bfloat16(value)

        return to_bfloat16

    def plain(array: Any, at: Any, value: Any) -> Any:
        array[at] = value

    return plain
