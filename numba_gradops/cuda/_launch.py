"""Launching a plan on a device: its kernel and its table get there once, and stay."""

from __future__ import annotations

from collections import OrderedDict, deque
from threading import Lock
from typing import Any

from . import _compile, _driver
from ._plan import TABLE, Launch

# Bytes of tables that stay on a device. A table has a few KiB.
_TABLE_BYTES = 2**26

_lock = Lock()
_functions: dict[tuple[Any, int], int] = {}
# For each device: the table's address by the identity of the plan's array, which is kept alive.
_tables: dict[int, OrderedDict[int, tuple[int, Any]]] = {}
# Tables used once. Identities of arrays that are gone do no harm: a table is kept a call earlier.
_seen: deque[tuple[int, int]] = deque(maxlen=256)
# What must not be freed before a stream has got there, each with the event that tells.
_borrowed: deque[tuple[Any, Any]] = deque()
_borrowed_lock = Lock()


def _function(variant: Any, device: int) -> int:
    found = _functions.get((variant, device))
    if found is None:
        code = _compile.code(variant, _driver.capability(device))
        found = _functions[variant, device] = _driver.load(*code)
    return found


def load(variant: Any, device: int) -> None:
    """Have a kernel on the device in use before it is launched."""
    with _lock:
        _function(variant, device)


def _make_room(kept: OrderedDict[int, tuple[int, Any]], size: int) -> None:
    if sum(each.nbytes for _, each in kept.values()) + size <= _TABLE_BYTES:
        return
    _driver.synchronize_all()  # a kernel may still be reading
    while kept:
        address, _ = kept.popitem(last=False)[1]
        _driver.free(address)


def _kept_table(array: Any, device: int) -> int | None:
    """Give the address of a table that stays on the device; from its second use on.

    Pooling sequences are drawn anew for every call, shapes of convolutions come again.
    """
    kept = _tables.setdefault(device, OrderedDict())
    found = kept.get(id(array))
    if found is not None:
        kept.move_to_end(id(array))
        return found[0]
    if (device, id(array)) not in _seen and _driver.has_pools(device):
        _seen.append((device, id(array)))
        return None
    _make_room(kept, array.nbytes)
    address = _driver.allocate(array.nbytes)
    # On a stream of its own, for which alone the host waits: the caller's work goes on, and
    # whichever stream reads the table later finds it complete.
    stream = _driver.own_stream(device)
    _driver.upload(address, array, stream)
    _driver.synchronize(stream)
    kept[id(array)] = address, array
    return address


def launch(plan: Launch, device: int, stream: int, addresses: dict[str, int]) -> None:
    """Start a plan's kernel on a stream of the device in use; nothing waits for it."""
    with _lock:
        function = _function(plan.variant, device)
        table = _kept_table(plan.table, device)
        address = table
        if address is None:  # allocated, filled, read and freed in the order of the stream
            address = _driver.allocate_on(stream, plan.table.nbytes)
            _driver.upload(address, plan.table, stream)
        known = addresses | {TABLE: address}
        given = [known[name] for name in plan.arguments]
        _driver.launch(function, plan.grid, plan.block, plan.shared, stream, given)
        if table is None:
            _driver.free_on(stream, address)
            keep_until_done(plan.table, stream)


def keep_until_done(owner: Any, stream: int) -> None:
    """Keep arrays alive that a stream uses, where nobody else knows that it does."""
    done = []
    with _borrowed_lock:
        # An event that has happened is gone: one thread alone may ask.
        while _borrowed and _driver.has_happened(_borrowed[0][0]):
            done.append(_borrowed.popleft())
        _borrowed.append((_driver.record(stream), owner))
    del done  # what frees an array may be anybody's code: not while others wait
