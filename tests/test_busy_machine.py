"""Another process that keeps a core busy: short calls must not wait for a thread on that core."""

import subprocess
import sys
import time
from collections.abc import Iterator

import numba
import pytest
from processes import run_plain

from numba_gradops.cpu import _threads

pytestmark = pytest.mark.alone

several = pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one thread only")

# 80 calls of 0.06 GFLOP, on one thread and on two in turn, as best of a few windows: this test is
# about what a busy core costs, and not about how much else runs beside.
CODE = """
import statistics, time
import numpy as np, numba
from numba_gradops import conv2d_backprop_input
weights, gradient = np.ones((3, 3, 64, 64), np.float32), np.ones((1, 28, 28, 64), np.float32)
def times(threads):
    numba.set_num_threads(threads)
    taken = []
    for _ in range(80):
        start = time.perf_counter()
        conv2d_backprop_input(
            gradient.shape, weights, gradient, [1, 1, 1, 1], "SAME", algorithm="direct")
        taken.append(time.perf_counter() - start)
    return statistics.median(taken), statistics.mean(taken)
times(2)
ratios = []
while len(ratios) < 12 and not (ratios and max(min(ratios)) < 1.3):
    serial, parallel = times(1), times(2)
    ratios.append((parallel[1] / serial[1], parallel[0] / serial[0]))
print(*min(ratios), numba.threading_layer())
"""


@pytest.fixture
def busy_core() -> Iterator[None]:
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    hog.kill()
    hog.wait()


@several
@pytest.mark.usefixtures("busy_core")
@pytest.mark.parametrize("layer", ["omp", "workqueue", "tbb"])
def test_calls_beside_a_busy_process_take_little_longer_than_alone(layer):
    done = run_plain(CODE, check=False, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2")
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"Numba cannot load the {layer} threading layer here")
    assert done.returncode == 0, done.stderr
    mean, median, loaded = done.stdout.split()
    assert loaded == layer
    assert float(mean) < 1.3
    assert float(median) < 1.3


@pytest.fixture
def patience(monkeypatch):
    """Give one whose process has had to give way as often as the list's last entry says."""
    switches = [5]
    monkeypatch.setattr(_threads, "_involuntary_switches", lambda: switches[-1])
    return _threads._Patience(), switches


def note(patience, seconds: float, work: float = 400_000, loop: str = "a loop") -> None:
    patience.note(loop, work, 2, time.perf_counter() - seconds)


def test_a_late_loop_after_a_thread_gave_way_keeps_threads_out_for_a_while(patience):
    patience, switches = patience
    switches.append(6)
    note(patience, 0.008)
    assert patience.lasts()
    assert patience._until - time.perf_counter() < 20 * 0.009
    note(patience, 0.008)  # late, but no thread gave way since
    assert not patience.lasts()


def test_a_loop_in_time_does_not_keep_threads_out(patience):
    patience, switches = patience
    switches.append(6)
    note(patience, 0.0003)
    assert not patience.lasts()


def test_an_estimate_that_is_several_times_too_low_does_not_keep_threads_out(patience):
    """Threads give way some forty times a second on an idle machine."""
    patience, switches = patience
    for seconds in (0.0022, 0.0023, 0.0021):
        switches.append(switches[-1] + 1)
        note(patience, seconds)
        assert not patience.lasts()
    switches.append(switches[-1] + 1)
    note(patience, 0.009)
    assert patience.lasts()


def test_how_long_a_loop_takes_is_learnt_for_each(patience):
    patience, switches = patience
    for loop, seconds in (("fast", 0.0003), ("slow", 0.0025)):
        note(patience, seconds, loop=loop)
    for loop, late in (("fast", True), ("slow", False)):
        switches.append(switches[-1] + 1)
        note(patience, 0.003, loop=loop)
        assert patience.lasts() is late


def test_loops_without_end_are_not_all_remembered(patience):
    patience, _ = patience
    for number in range(2 * patience._KEPT):
        note(patience, 0.001, loop=str(number))
    assert len(patience._alone) <= patience._KEPT


def test_threads_are_kept_out_for_half_a_second_at_most(patience):
    patience, switches = patience
    switches.append(6)
    note(patience, 100)
    assert 0.4 < patience._until - time.perf_counter() <= 0.5


@several
@pytest.mark.parametrize(("work", "threads"), [(_threads.LONG - 1, 0), (_threads.LONG, 2)])
def test_long_loops_have_threads_all_the_same(monkeypatch, work, threads):
    seen = [0]
    monkeypatch.setattr(_threads._patience, "_until", time.perf_counter() + 60)
    monkeypatch.setattr(_threads, "prepare", lambda *_: (0, None))
    monkeypatch.setattr(_threads, "spread", lambda threads, *_: seen.append(threads))
    with pytest.raises(MemoryError):  # nobody took the tasks
        _threads.run(lambda *_: None, 2, work, (0,))
    assert seen[-1] == threads
