"""Loops called by address on several threads: right arguments, and what Numba must not change."""

import numba
import numpy as np
import pytest
from numba import types

from numba_gradops.cpu import _compile, _spread
from numba_gradops.cpu._scalars import next_number


@_compile.loop
def note(counter, number, pair, matrix, row, answer):
    """Write down all that arrives."""
    place = next_number(counter.ctypes.data)
    answer[place, 0] = number
    answer[place, 1] = pair[0] - pair[1].size
    answer[place, 2] = matrix[1, 2] + matrix.shape[0] + matrix.strides[0]
    answer[place, 3] = row[-1]


def spread(threads, loop, arguments):
    prepared = _spread.prepare(loop, arguments)
    if prepared is not None:
        _spread.spread(threads, *prepared)
    return prepared is not None


def arguments_of(dtype, threads=2):
    matrix = np.arange(12, dtype=dtype).reshape(3, 4)
    row = np.arange(5, dtype=dtype)
    row.flags.writeable = False
    answer = np.full((threads, 4), -1, dtype)
    return np.zeros(1, np.int64), -7, (10**9, row), matrix, row, answer


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_each_thread_gets_the_arguments_as_they_are(dtype):
    arguments = arguments_of(dtype)
    assert spread(2, note, arguments)
    itemsize = np.dtype(dtype).itemsize
    expected = [-7, 10**9 - 5, 6 + 3 + 4 * itemsize, 4]
    np.testing.assert_array_equal(arguments[-1], np.array([expected] * 2, dtype))
    assert arguments[0] == 2


def test_a_loop_that_expects_anything_else_is_not_called():
    @_compile.loop
    def flagged(counter, flag):
        counter[0] = 1 if flag else 2

    counter = np.zeros(1, np.int64)
    assert not spread(2, flagged, (counter, True))
    assert counter == 0


def test_as_many_arguments_as_there_is_room_for():
    @_compile.loop
    def last(counter, numbers):
        counter[0] = numbers[-1]

    room = _spread._MOST - 7  # a one-dimensional array is 7 numbers
    for count, fits in ((room, True), (room + 1, False)):
        counter = np.zeros(1, np.int64)
        assert spread(2, last, (counter, tuple(range(count)))) is fits
        assert counter == (room - 1 if fits else 0)


def test_the_parallel_function_is_compiled_once_for_all_loops():
    for dtype in (np.float32, np.int64):
        spread(2, note, arguments_of(dtype))
    assert len(_spread._spread.signatures) == 1


def test_the_private_names_of_numba_that_this_needs_are_there():
    """Fails when Numba calls compiled functions in another way; adapt _spread.py."""
    arguments = arguments_of(np.float32)
    kinds = tuple(map(numba.typeof, arguments))
    note.compile(kinds)
    compiled = note.overloads[kinds]
    function = compiled.fndesc
    expected = compiled.target_context.call_conv.get_function_type(types.none, function.argtypes)
    assert [str(kind) for kind in expected.args[:2]] == ["i8**", "{i8*, i32, i8*, i8*, i32}**"]
    array, matrix = ["i8*", "i8*", "i64", "i64"], ["i64"] * 4
    assert [str(kind) for kind in expected.args[2:]] == [
        *[*array, "i64*", "i64", "i64"],
        "i64",
        *["i64", *array, "float*", "i64", "i64"],
        *[*array, "float*", *matrix],
        *[*array, "float*", "i64", "i64"],
        *[*array, "float*", *matrix],
    ]
    assert compiled.library.get_pointer_to_function(function.llvm_func_name)
