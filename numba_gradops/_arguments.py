"""Plain arguments (sizes, sequences, strides, flags, names) turned into checked Python values.

Every function takes the argument's value and its name, and either returns a plain int, bool,
str, list or int64 array, or raises: TypeError for a wrong type, ValueError for a wrong value.
Nothing here knows what the numbers mean; that is geometry's job.
"""

from __future__ import annotations

import operator
from typing import Any, Literal, NoReturn, TypeGuard

import numpy as np
from numpy.typing import NDArray

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_LISTS = (list, tuple)
_ONLY_INTS = {int}

DataFormat = Literal["NHWC", "NCHW"]
Algorithm = Literal["auto", "direct", "winograd"]
# A padding word, or (before, after) for each of the four dimensions in data_format order.
Padding = Literal["SAME", "VALID"] | tuple[tuple[int, int], ...]


def describe(value: object) -> str:
    """Name a value's type, with the value itself where that is short and safe to print."""
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, bool | int | float | str | bytes):
        try:
            text = repr(value)
        except ValueError:  # an int with more digits than Python agrees to print
            return f"{kind} of {int(value).bit_length()} bits"
        except Exception:  # noqa: BLE001 - a subclass with a __repr__ of its own
            return kind
        return f"{kind} {text if len(text) <= 60 else text[:57] + '...'}"
    return kind


class _Reading:
    """Turns what an argument of a hostile type throws while it is read into a TypeError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(
            error, ValueError | TypeError | MemoryError
        ):
            msg = f"an argument could not be read: it raised {type(error).__name__}"
            raise TypeError(msg) from error


READING = _Reading()


def has(value: object, attribute: str) -> bool:
    """Tell whether an object of any kind has an attribute, even if asking makes it throw."""
    try:
        return hasattr(value, attribute)
    except Exception:  # noqa: BLE001 - hasattr lets all but AttributeError through
        return False


def _one_integer(value: Any, where: str) -> int:
    """Take Python ints, bools, NumPy integers and whatever else defines __index__."""
    if isinstance(value, np.bool_):
        return int(value)
    try:
        return operator.index(value)
    except Exception:  # noqa: BLE001 - TypeError, or whatever a foreign __index__ throws
        msg = f"{where} must be an integer, got {describe(value)}"
        raise TypeError(msg) from None


def _in_int64(value: int, where: str) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        msg = f"{where} must fit in 64 bits, got {describe(value)}"
        raise ValueError(msg)
    return value


def _not_integers(value: object, name: str) -> NoReturn:
    msg = f"{name} must be integers in a list, tuple or NumPy array, got {describe(value)}"
    raise TypeError(msg)


def _is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, _LISTS)


# What most calls give is read here in a fraction of the time, which counts where a call is small:
# exact lists and tuples of exact ints, and NumPy arrays of signed integers. The answer is None for
# everything else, down to a bool among ints; the general way reads it or says what is wrong.


def _four_plain(value: Any) -> tuple[int, int, int, int] | None:
    if type(value) in _LISTS and len(value) == 4:
        a, b, c, d = value
        # The bitwise or of numbers is in this range exactly if all of them are.
        if type(a) is type(b) is type(c) is type(d) is int and 0 <= a | b | c | d <= INT64_MAX:
            return a, b, c, d
    return None


def _plain_array(value: Any) -> NDArray[np.int64] | None:
    if type(value) in _LISTS:
        values = [*value]
        if {*map(type, values)} == _ONLY_INTS:
            try:
                return np.array(values, dtype=np.int64)
            except OverflowError:
                return None
    elif type(value) is np.ndarray and value.dtype.kind == "i":
        array: NDArray[np.int64] = value.astype(np.int64)
        return array
    return None


def _foreign_to_host(value: Any, name: str) -> Any:
    """Bring other libraries' shapes and integer arrays to lists or NumPy arrays."""
    if has(value, "as_list"):  # tf.TensorShape
        try:
            return value.as_list()
        except Exception as error:
            msg = f"{name} must be a fully known shape, got {type(value).__name__}: {error}"
            raise ValueError(msg) from error
    if isinstance(value, memoryview) or has(value, "__array__"):
        try:
            return np.asarray(value)
        except MemoryError:
            raise
        except Exception as error:
            msg = f"{name} could not be read as an integer array: {error}"
            raise TypeError(msg) from error
    return _not_integers(value, name)


def _from_array(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    if isinstance(array, np.ma.MaskedArray):
        msg = f"{name} must not be a masked array: the mask would be lost"
        raise TypeError(msg)
    if not array.size:  # NumPy's dtype for an empty list is float64
        return np.zeros(array.shape, np.int64)
    if array.dtype.kind not in "iub":
        msg = f"{name} must hold integers, got dtype {array.dtype}"
        raise TypeError(msg)
    if array.dtype.kind == "u" and int(array.max()) > INT64_MAX:
        msg = f"{name} must fit in 64 bits, got {int(array.max())}"
        raise ValueError(msg)
    return array.astype(np.int64)


def _from_range(values: range, name: str) -> NDArray[np.int64]:
    for end in values[:1], values[-1:]:
        for value in end:
            _in_int64(value, f"an entry of {name}")
    return np.arange(values.start, values.stop, values.step, dtype=np.int64)


def _from_list(values: Any, name: str) -> NDArray[np.int64]:
    """Nested lists of any depth, as long as they are rectangular and hold only integers."""
    if all(type(value) is int for value in values):
        flat, shape = list(values), (len(values),)
    else:
        try:
            boxed = np.array(values, dtype=object)
        except MemoryError:
            raise
        except Exception as error:
            msg = f"{name} must be a list of integers or a rectangular nest of such lists: {error}"
            raise ValueError(msg) from error
        flat, shape = boxed.ravel().tolist(), boxed.shape
        for value in flat:
            if _is_list(value):
                msg = f"{name} must be a list of integers or a rectangular nest of such lists"
                raise ValueError(msg)
        flat = [_one_integer(value, f"every entry of {name}") for value in flat]
    for value in flat:
        _in_int64(value, f"an entry of {name}")
    return np.array(flat, dtype=np.int64).reshape(shape)


def integer_array(value: Any, name: str, at_most: int | None = None) -> NDArray[np.int64]:
    """Read integers of any rank as int64; floats, text and None are refused.

    Of a range, which can be longer than memory, no more than the first `at_most` entries.
    """
    plain = _plain_array(value)
    if plain is not None:
        return plain
    if not isinstance(value, np.ndarray | np.generic | list | tuple | range | int):
        if value is None or isinstance(value, str | bytes | bytearray | float | complex):
            _not_integers(value, name)
        value = _foreign_to_host(value, name)
    if _is_list(value):
        return _from_list(value, name)
    if isinstance(value, range):
        return _from_range(value[:at_most], name)
    array = np.asanyarray(value, dtype=object if isinstance(value, int) else None)
    if array.dtype == object:
        return _from_list(array.ravel().tolist(), name).reshape(array.shape)
    return _from_array(array, name)


def shape_vector(value: Any, name: str, lengths: tuple[int, ...], meaning: str) -> tuple[int, ...]:
    """Read a one-dimensional list of sizes whose length is one of `lengths`, among them 4."""
    plain = _four_plain(value)
    if plain:
        return plain
    # The length is looked at first: a list of a million entries is not read to be refused.
    if isinstance(value, (list, tuple, range)) and len(value) not in lengths:
        count = len(value)
    else:
        array = integer_array(value, name)
        if array.ndim != 1:
            msg = f"{name} must be one-dimensional, {meaning}; got {array.ndim} dimensions"
            raise ValueError(msg)
        count = array.size
        if count in lengths:
            return tuple(array.tolist())
    expected = " or ".join(str(length) for length in lengths)
    msg = f"{name} must have {expected} entries, {meaning}; got {count}"
    raise ValueError(msg)


def four_integers(value: Any, name: str) -> tuple[int, ...]:
    """Read strides or dilations: a list or tuple of exactly four whole numbers."""
    plain = _four_plain(value)
    if plain:
        return plain
    if not _is_list(value):
        msg = f"{name} must be a list or tuple of 4 integers, got {describe(value)}"
        raise TypeError(msg)
    if len(value) != 4:
        msg = f"{name} must have 4 entries in data_format order, got {len(value)}"
        raise ValueError(msg)
    return tuple([_whole_number(entry, f"every entry of {name}") for entry in value])


def _whole_number(value: Any, where: str) -> int:
    # TensorFlow takes floats in these lists and cuts them off; we take those that lose nothing.
    if isinstance(value, float | np.floating) and np.isfinite(value) and int(value) == value:
        value = int(value)
    return _in_int64(_one_integer(value, where), where)


def flag(value: Any, name: str, default: bool) -> bool:
    """Read a bool or np.bool_; None means the default, as in TensorFlow."""
    if value is True or value is False:
        return bool(value)
    if value is None:
        return default
    if isinstance(value, bool | np.bool_):
        return bool(value)
    msg = f"{name} must be True or False, got {describe(value)}"
    raise TypeError(msg)


def _word(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """Read one of a few words, given as str or bytes; upper and lower case differ."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if not isinstance(value, str):
        msg = f"{name} must be a string, one of {', '.join(choices)}; got {describe(value)}"
        raise TypeError(msg)
    if value not in choices:
        msg = f"{name} must be one of {', '.join(map(repr, choices))}; got {describe(value)}"
        raise ValueError(msg)
    return str(value)


def data_format(value: Any) -> DataFormat:
    """Read 'NHWC' (also None) or 'NCHW'."""
    if value is None:
        return "NHWC"
    return "NHWC" if _word(value, "data_format", ("NHWC", "NCHW")) == "NHWC" else "NCHW"


def algorithm(value: Any) -> Algorithm:
    """Read the name of a way to compute the convolution."""
    word = _word(value, "algorithm", ("auto", "direct", "winograd"))
    return "auto" if word == "auto" else "direct" if word == "direct" else "winograd"


_PADDINGS = "padding must be 'SAME', 'VALID' or a list of four [before, after] pairs"


def padding(value: Any) -> Padding:
    """Read 'SAME', 'VALID', or four (before, after) pairs in data_format order."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        if value == "SAME":
            return "SAME"
        if value == "VALID":
            return "VALID"
        hint = ": give the pairs themselves" if value == "EXPLICIT" else ""
        msg = f"{_PADDINGS}; got {describe(value)}{hint}"
        raise ValueError(msg)
    if isinstance(value, np.ndarray):
        msg = f"{_PADDINGS}, not a NumPy array"
        raise ValueError(msg)  # noqa: TRY004 - TensorFlow's class
    if not _is_list(value):
        msg = f"{_PADDINGS}; got {describe(value)}"
        raise TypeError(msg)
    if len(value) != 4:
        msg = f"{_PADDINGS}; got a list of {len(value)}"
        raise ValueError(msg)
    pairs = []
    for pair in value:
        if not _is_list(pair) or len(pair) != 2:
            given = f"a list of {len(pair)}" if _is_list(pair) else describe(pair)
            msg = f"{_PADDINGS}; got {given} as one of the pairs"
            raise ValueError(msg)
        before, after = (_whole_number(entry, "every entry of padding") for entry in pair)
        pairs.append((before, after))
    return tuple(pairs)


def explicit_paddings(word: Any, value: Any) -> Padding:
    """Join the raw op's two arguments, `padding` and the flat list `explicit_paddings`."""
    values = [] if value is None else value
    if not _is_list(values):
        msg = f"explicit_paddings must be a list of 8 integers, got {describe(value)}"
        raise TypeError(msg)
    if isinstance(word, bytes):
        word = word.decode("utf-8", "backslashreplace")
    if not (isinstance(word, str) and word == "EXPLICIT"):
        if values:
            msg = (
                "explicit_paddings must be empty unless padding is 'EXPLICIT', "
                f"got {len(values)} entries with padding {describe(word)}"
            )
            raise ValueError(msg)
        if not isinstance(word, str):
            msg = f"padding must be a string, got {describe(word)}"
            raise TypeError(msg)
        return padding(word)
    if len(values) != 8:
        msg = (
            "explicit_paddings must have 8 entries, (before, after) for each dimension in "
            f"data_format order; got {len(values)}"
        )
        raise ValueError(msg)
    flat = [_whole_number(entry, "every entry of explicit_paddings") for entry in values]
    return tuple(zip(flat[0::2], flat[1::2], strict=True))
