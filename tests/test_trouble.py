"""After trouble the next call works: interrupts, failed compilations, full disks, no memory."""

import sys

import pytest
from processes import run, run_plain

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and limits of POSIX")


@pytest.mark.alone
@posix
def test_after_an_interrupt_in_a_long_call_the_next_one_is_right():
    code = """
import _thread, threading, time
import numba
filter, image = np.ones((5, 5, 128, 128), np.float32), np.ones((8, 64, 64, 128), np.float32)
def long():
    return conv2d_backprop_input(image.shape, filter, image, [1, 1, 1, 1], "SAME")
expected, small = long(), both()
for threads in (2, 1):
    numba.set_num_threads(threads)
    start = time.perf_counter()
    long()
    middle = (time.perf_counter() - start) / 2
    threading.Timer(middle, _thread.interrupt_main).start()
    try:
        for _ in range(100):
            long()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no interrupt")
    assert both() == small
    assert (long() == expected).all()
"""
    run(code)


def test_after_a_failed_compilation_the_next_call_compiles_again():
    code = """
from numba.core import codegen
right = codegen.CPUCodeLibrary.finalize
def failing(self):
    if "gather" in self.name:
        raise MemoryError("no memory for LLVM")
    right(self)
codegen.CPUCodeLibrary.finalize = failing
for _ in range(2):
    try:
        fractional_avg_pool_grad([16, 40, 40, 32], gradient, ends, ends)
    except MemoryError as error:
        assert "LLVM" in str(error)
    else:
        raise AssertionError("it compiled")
codegen.CPUCodeLibrary.finalize = right
result = fractional_avg_pool_grad([16, 40, 40, 32], gradient, ends, ends)
assert np.array_equal(result[:, ::2, ::2] * 4, gradient)
"""
    run(code, NUMBA_GRADOPS_CACHE="0")


@posix
@pytest.mark.parametrize("limit", [100, 20_000])
def test_a_directory_that_takes_no_more_bytes_is_no_trouble(limit, tmp_path):
    """Files end at `limit` bytes, as on a full disk; what is left there is never believed.

    Numba needs the lower one itself, for a semaphore in shared memory.
    """
    code = """
import numpy as np, resource, signal, sys
from numba_gradops import fractional_avg_pool_grad
def check():
    gradient = np.full((1, 1, 2, 1), 6.0, np.float32)
    result = fractional_avg_pool_grad([1, 1, 5, 1], gradient, [0, 1], [0, 2, 5])
    assert result.ravel().tolist() == [3, 3, 2, 2, 2], result
"""
    limited = f"""
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
check()
"""
    run_plain(code + limited, NUMBA_CACHE_DIR=str(tmp_path))
    run_plain(code + "check()", NUMBA_CACHE_DIR=str(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_result_beyond_the_limit_of_memory_is_an_error_with_its_bytes():
    code = """
import resource
expected = both()
with open("/proc/self/statm") as file:
    used = 4096 * int(file.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
small = np.ones((1, 1, 1, 32), np.float32)
sizes = [1, 4096, 4096, 32]
for call in (
    lambda: conv2d_backprop_input(sizes, weights[:1, :1], small, [1, 4096, 4096, 1], "SAME"),
    lambda: fractional_avg_pool_grad(sizes, small, [0, 4096], [0, 4096]),
):
    try:
        call()
    except MemoryError as error:
        assert str(4096 * 4096 * 32 * 4) + " bytes" in str(error), error
    else:
        raise AssertionError("no error")
    assert both() == expected
"""
    run(code)
