"""What workers of pytest-xdist do not have by themselves: turns at the machine, one closing table.

A test marked ``alone`` measures time, so nothing else may run beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import machine_report
import pytest

try:
    import fcntl
except ImportError:  # no POSIX: tests marked `alone` are not
    fcntl = None


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    with (folder / "turn").open("w") as turn, (folder / "machine").open("w") as machine:
        # Who waits to be alone keeps the others from passing.
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Closing would not do: a child that a test forked has the file open, too.
            fcntl.flock(machine, fcntl.LOCK_UN)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a test, with its fixtures, in its turn."""
    if fcntl is None or not is_worker(item.config):
        return (yield)
    # The run's own folder; each worker has one in it.
    folder = Path(item.config.option.basetemp).parent
    with turn(folder, alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's rows of the closing table to the process that prints it."""
    if is_worker(session.config):
        session.config.workeroutput["rows"] = machine_report.ROWS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Collect them there. A worker that died has none."""
    machine_report.ROWS += map(tuple, getattr(node, "workeroutput", {}).get("rows", ()))
