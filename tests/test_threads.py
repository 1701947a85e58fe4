"""The same bits for any number of threads; threads and forks of the caller's harm nobody."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from accuracy import DTYPES, draw
from processes import CALLS, run

from numba_gradops import _dtypes, conv2d_backprop_input, fractional_avg_pool_grad
from numba_gradops.cpu import _threads

several = pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one thread only")
can_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
LAYERS = ["omp", "workqueue", "tbb"]


@pytest.fixture
def parallel_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the threads of each parallel run, and let small calls be parallel too."""
    seen: list[int] = []
    monkeypatch.setattr(_threads, "SERIAL_BELOW", 0)
    monkeypatch.setattr(_threads, "LONG", 0)  # a core that is taken keeps none of them serial
    original = _threads.spread

    def spy(threads, *prepared):
        seen.append(threads)
        original(threads, *prepared)

    monkeypatch.setattr(_threads, "spread", spy)
    return seen


@several
@pytest.mark.parametrize("dtype", _dtypes.CONV2D)
@pytest.mark.parametrize(("channels", "group_in"), [(33, 33), (3, 3), (24, 1)])
def test_convolution_has_the_same_bits_for_one_and_two_threads(
    rng, dtype, channels, group_in, parallel_runs
):
    weights = draw(rng, (3, 3, group_in, 48), DTYPES[dtype])
    gradient = draw(rng, (2, 15, 13, 48), DTYPES[dtype])
    arguments = ([2, 15, 13, channels], weights, gradient, [1, 1, 1, 1], "SAME")
    with_all = conv2d_backprop_input(*arguments).tobytes()
    assert parallel_runs
    parallel_runs.clear()
    assert conv2d_backprop_input(*arguments).tobytes() == with_all
    numba.set_num_threads(1)
    try:
        parallel_runs.clear()
        assert conv2d_backprop_input(*arguments).tobytes() == with_all
        assert not parallel_runs
    finally:
        numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)


@several
@pytest.mark.parametrize("dtype", _dtypes.POOL)
@pytest.mark.parametrize("overlapping", [False, True])
def test_pool_has_the_same_bits_for_one_and_two_threads(rng, dtype, overlapping, parallel_runs):
    gradient = draw(rng, (2, 9, 8, 7), DTYPES[dtype])
    arguments = ([2, 19, 20, 7], gradient, [*range(0, 18, 2), 19], range(21), overlapping)
    with_all = fractional_avg_pool_grad(*arguments).tobytes()
    assert parallel_runs
    numba.set_num_threads(1)
    try:
        assert fractional_avg_pool_grad(*arguments).tobytes() == with_all
    finally:
        numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)


def test_small_calls_wake_no_threads(rng, monkeypatch):
    monkeypatch.setattr(_threads, "_threads_free", None)  # touching it would be an error
    weights, gradient = draw(rng, (1, 1, 2, 2), "f4"), draw(rng, (1, 3, 4, 2), "f4")
    conv2d_backprop_input([1, 3, 4, 2], weights, gradient, [1, 1, 1, 1], "SAME")
    fractional_avg_pool_grad([1, 3, 4, 2], gradient, range(4), range(5))


@several
def test_a_second_caller_computes_alone_while_the_threads_are_taken(rng, parallel_runs):
    gradient = draw(rng, (2, 9, 8, 7), "f4")
    arguments = ([2, 9, 8, 7], gradient, range(10), range(9))
    expected = fractional_avg_pool_grad(*arguments)
    assert len(parallel_runs) == 1
    with _threads._threads_free:
        np.testing.assert_array_equal(fractional_avg_pool_grad(*arguments), expected)
    assert len(parallel_runs) == 1
    fractional_avg_pool_grad(*arguments)
    assert len(parallel_runs) == 2


def test_the_threads_are_free_again_after_an_error(monkeypatch):
    def failing(*_):
        raise MemoryError

    monkeypatch.setattr(_threads, "SERIAL_BELOW", 0)
    monkeypatch.setattr(_threads, "prepare", failing)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 2)
    with pytest.raises(MemoryError):
        _threads.run(failing, 4, 4, ())
    assert _threads._threads_free.acquire(blocking=False)
    _threads._threads_free.release()


def run_on(layer: str, code: str) -> str:
    """Run on one threading layer, in a process of its own; skip if Numba cannot load it."""
    done = run(code, NUMBA_THREADING_LAYER=layer, check=False)
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"Numba cannot load the {layer} threading layer here")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("layer", LAYERS)
def test_many_python_threads_may_call_at_once(layer):
    """On workqueue alone, two parallel loops at once would abort the process."""
    code = """
from concurrent.futures import ThreadPoolExecutor
import numba
expected = both()
with ThreadPoolExecutor(8) as pool:
    assert all(result == expected for result in pool.map(lambda _: both(), range(200)))
print(numba.threading_layer())
"""
    assert run_on(layer, code).strip() == layer


FORKS = """
import os, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of any fork beside threads
expected = both()
def child():
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, b"same" if both() == expected else b"different")
        finally:
            os._exit(0)
    os.close(write)
    answer = os.read(read, 99)
    os.close(read)
    assert os.waitpid(pid, 0)[1] == 0
    assert answer == b"same", answer
"""


@can_fork
@pytest.mark.parametrize("layer", LAYERS)
def test_forked_children_compute_and_so_does_the_parent_afterwards(layer):
    """GNU OpenMP would end the child."""
    run_on(layer, FORKS + "child(); assert both() == expected; child(); child()")


@can_fork
@pytest.mark.parametrize("layer", LAYERS)
def test_a_child_forked_in_the_middle_of_a_parallel_run_computes(layer):
    code = """
import threading
stop = threading.Event()
def busy():
    while not stop.is_set():
        both()
thread = threading.Thread(target=busy)
thread.start()
for _ in range(10):
    child()
stop.set()
thread.join()
"""
    run_on(layer, FORKS + code)


@can_fork
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_workers_compute(method, tmp_path):
    script = tmp_path / "script.py"  # spawn imports it again, so it must be a file
    script.write_text(
        f"""{CALLS}
import multiprocessing
def work(_):
    return both()
if __name__ == "__main__":
    expected = both()
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert all(result == expected for result in pool.map(work, range(4)))
    assert both() == expected
"""
    )
    subprocess.run([sys.executable, script], check=True, timeout=120)


@pytest.mark.alone
def test_calls_release_the_gil(rng):
    """A Python thread goes on while another one is inside a single long call."""
    weights = draw(rng, (5, 5, 64, 128), "f8")
    gradient = draw(rng, (4, 64, 64, 128), "f8")
    arguments = ([4, 64, 64, 64], weights, gradient, [1, 1, 1, 1], "SAME")
    conv2d_backprop_input(*arguments)
    moments, stop = [], threading.Event()

    def note_the_time():
        while not stop.wait(0.001):
            moments.append(time.perf_counter())

    numba.set_num_threads(1)
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(note_the_time)
            start = time.perf_counter()
            conv2d_backprop_input(*arguments)
            end = time.perf_counter()
            stop.set()
    finally:
        numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    margin = (end - start) / 4
    assert sum(start + margin < moment < end - margin for moment in moments) >= 5


@can_fork
def test_a_child_forked_while_another_thread_compiles_does_not_wait_for_it():
    code = """
import os, threading, time
thread = threading.Thread(target=both)
thread.start()
time.sleep(1.0)  # in the middle of compiling
pid = os.fork()
if not pid:
    both()
    os._exit(0)
deadline = time.time() + 100
while os.waitpid(pid, os.WNOHANG) == (0, 0):
    assert time.time() < deadline, "the child hangs"
    time.sleep(0.1)
thread.join()
"""
    run("import warnings; warnings.simplefilter('ignore')\n" + code, NUMBA_GRADOPS_CACHE="0")


@can_fork
@pytest.mark.parametrize(
    ("module", "layer"),
    [
        ("numba_gradops.cpu.conv2d", "default"),
        ("numba", "default"),
        ("numpy.ma", "default"),
        ("numba.np.ufunc.omppool", "omp"),
        ("numba.np.ufunc.workqueue", "workqueue"),
    ],
)
def test_a_child_forked_while_another_thread_imports_does_not_wait_for_it(module, layer):
    """The lock of the module would stay closed in the child, or one held around the import."""
    code = f"""
import faulthandler, importlib.abc, os, sys, threading, time, warnings
warnings.simplefilter('ignore')
begun = threading.Event()
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r} and not begun.is_set():
            begun.set()
            time.sleep(0.5)
sys.meta_path.insert(0, Slow())
assert {module!r} not in sys.modules
thread = threading.Thread(target=both)
thread.start()
if not begun.wait(60):
    raise SystemExit({module!r} + ' is not imported')
pid = os.fork()
if not pid:
    faulthandler.dump_traceback_later(60, exit=True)
    both()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0, "the child hangs"
thread.join()
"""
    run(code, NUMBA_THREADING_LAYER=layer)


def test_working_memory_that_cannot_be_had_is_a_memory_error():
    """Inside a loop without the GIL it shows as tasks that nobody took."""

    def failing(_):
        raise SystemError from MemoryError()

    with pytest.raises(MemoryError, match="the working memory of a thread needs 4096 bytes"):
        _threads.run(failing, 4, 0, (), scratch=4096)
    with pytest.raises(SystemError):
        _threads.run(raise_system_error, 4, 0, ())


def raise_system_error(_):
    raise SystemError
