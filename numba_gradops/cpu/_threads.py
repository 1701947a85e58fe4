"""When a loop runs on Numba's threads, and when on the caller's alone.

Some of these would otherwise end or stop the process, one would only be slow:

* GNU OpenMP ends a forked child that uses threads after its parent did.
* The workqueue layer aborts when two Python threads start parallel loops at once, or one starts
  inside another. So one loop at a time may be parallel; whoever finds the threads taken
  computes alone, which on a busy machine costs nothing.
* A child forked while another thread compiles would wait for that thread for ever (`_fork`).
* Waking threads takes longer than a small loop.
* Where another process keeps a core busy, a thread may wait some milliseconds for its turn, and all
  others for that thread at the end of the loop (`_Patience`).

The result never depends on the choice: the same compiled body works on the same tasks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

import numba
import numpy as np
import numpy.ma  # Numba would do so in the first call, while another thread may fork
from numba.core.compiler_lock import global_compiler_lock
from numba.np.ufunc import parallel as numba_threads
from numpy.typing import NDArray

from .._fork import add_lock, no_fork
from ._spread import prepare, spread

# Estimated nanoseconds on one thread below which a call stays there. Waking a thread that sleeps
# takes up to 0.1 ms, and far more where another process keeps its core busy.
SERIAL_BELOW = 200_000

# And above which a thread that waits for its turn no longer matters much.
LONG = 5_000_000

_threads_free = threading.Lock()
_forked = False
_started = False


class _Patience:
    """Keeps short loops on one thread for a while after a core was found to be taken.

    That is so if a loop took longer than it should have taken alone, and a thread of this process
    had to give way to another process since the last loop. Threads give way some ten times a
    second on an idle machine too, and estimates of small loops are several times too low: how long
    a loop takes alone is therefore learnt, from the fastest time that several threads took for it.
    """

    # As many times as long as the loop that was late: its lateness is then a few percent of all.
    _FACTOR = 20
    _LONGEST = 0.5  # seconds
    # Estimates are not more times too low: what a loop seen for the first time is judged by.
    _TOO_LOW = 8
    # Loops whose times are kept.
    _KEPT = 256

    def __init__(self) -> None:
        self._switches = _involuntary_switches()
        self._until: float = 0
        self._alone: dict[Hashable, float] = {}

    def lasts(self) -> bool:
        return self._until > 0 and time.perf_counter() < self._until

    def note(self, loop: Hashable, work: float, threads: int, start: float) -> None:
        """Look at a loop that has just been run on several threads."""
        switches, now = _involuntary_switches(), time.perf_counter()
        took, self._until = now - start, 0
        alone = min(self._alone.get(loop, self._TOO_LOW * work), 1e9 * took * threads)
        if 1e9 * took > alone and switches > self._switches:
            self._until = now + min(self._FACTOR * took, self._LONGEST)
        self._switches = switches
        if len(self._alone) >= self._KEPT:
            self._alone.clear()
        self._alone[loop] = alone


def _involuntary_switches() -> int:
    """Count how often threads of this process had to give way; 0 where that is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


_patience = _Patience()


def _after_fork_in_child() -> None:
    global _forked  # noqa: PLW0603 - one fact about the process, set once
    # Without the private flag of a Numba that changed, assume the worst: stay serial.
    _forked = _forked or getattr(numba_threads, "_is_initialized", True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
add_lock(global_compiler_lock)


def at_most(tasks: int, work: float) -> int:
    """Give how many threads `run` may use; Numba's are not started to find out that it is one."""
    if tasks < 2 or work < SERIAL_BELOW or _forked:
        return 1
    if not _started:
        _start()
    return int(min(numba.get_num_threads(), tasks))


def _start() -> None:
    """Start Numba's threads; in calls to come, nobody waits here for another's compilation."""
    global _started  # noqa: PLW0603 - one fact about the process, set once
    with no_fork:
        numba.get_num_threads()
        _started = True


def run(
    loop: Callable[..., None],
    tasks: int,
    work: float,
    arguments: tuple[Any, ...],
    scratch: int = 0,
) -> None:
    """Have one or several threads work on tasks that they number with a common counter.

    `loop` takes the counter and `arguments`. `work` is about how many nanoseconds all tasks take on
    one thread; `scratch` is the working memory in bytes that each thread allocates before it takes
    a task.
    """
    counter = np.zeros(1, np.int64)
    threads = at_most(tasks, work)
    alone = threads == 1 or (work < LONG and _patience.lasts())
    if not alone and _threads_free.acquire(blocking=False):
        try:
            if prepared := prepare(loop, (counter, *arguments)):
                start = time.perf_counter()
                spread(threads, *prepared)
                # What stands first tells apart what else is equal: steps of one call.
                first = arguments[0] if isinstance(arguments[0], int | tuple) else None
                _patience.note((loop, tasks, work, first), work, threads, start)
                _require_all(counter, tasks, scratch)
                return
        finally:
            _threads_free.release()
    _call(loop, (counter, *arguments))
    _require_all(counter, tasks, scratch)


def _call(loop: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    try:
        loop(*arguments)
    except SystemError as error:
        # How a failed allocation inside a loop without the GIL shows; the counter tells the rest.
        if not isinstance(error.__cause__, MemoryError):
            raise


def _require_all(counter: NDArray[np.int64], tasks: int, scratch: int) -> None:
    """Raise MemoryError if tasks are left: every thread failed to get its working memory."""
    if counter.item() < tasks:
        msg = f"the working memory of a thread needs {scratch} bytes"
        raise MemoryError(msg)
