"""Make a fork wait while another thread holds a lock for a call of ours.

A lock that another thread holds during `os.fork` stays closed in the child for ever: that of a
module being imported, of Numba's compiler, or of Numba while it starts its threads. Calls import
and compile what they need, so whoever forks waits until they have.
"""

from __future__ import annotations

# Forks take the lock of `logging` too, and the hook registered last is run first. Imports need
# that lock, so ours must be taken before it: else the fork would wait for an import that waits
# for the fork.
import logging  # noqa: F401 - registers its hook
import os
from threading import RLock
from typing import Any

# Held by a thread that imports, compiles or starts threads: `with no_fork: ...`.
no_fork = RLock()

_locks: list[Any] = [no_fork]


def add_lock(lock: Any) -> None:
    """Have forks wait for one more lock, which no thread holds while it waits for `no_fork`."""
    with no_fork:
        _locks.append(lock)


def _acquire() -> None:
    # The first one is `no_fork`: with it, the list stays as it is until `_release`.
    for lock in _locks:
        lock.acquire()


def _release() -> None:
    for lock in reversed(_locks):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
