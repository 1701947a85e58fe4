"""Compiled code kept on disk, so that a new process does not compile again.

Numba's own `cache=True` looks at the file of the outermost function only: after an edit of a
helper elsewhere it serves stale machine code. Here the key covers every source file of this
package, the versions of Numba, llvmlite and NumPy, and the settings that change generated code;
Numba itself adds the processor. Entries carry a checksum, and whatever goes wrong with the files
costs a compilation, never an exception.

Where: NUMBA_CACHE_DIR if set, else the user's cache directory. NUMBA_GRADOPS_CACHE=0 turns it off.

This module is the only one that builds on Numba's private caching classes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import caching, config

# Settings of Numba that end up in the machine code but not in Numba's own cache key.
_SETTINGS = ("BOUNDSCHECK", "OPT", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")


def is_on() -> bool:
    """Tell whether the environment allows the cache."""
    return os.environ.get("NUMBA_GRADOPS_CACHE", "1").strip().lower() not in ("0", "off", "no")


def directory() -> Path:
    """Name the directory of the cache, which need not exist."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "numba_gradops"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    # os.path's version leaves "~" alone where there is no home; pathlib's would raise.
    return Path(os.path.expanduser(base)) / "numba_gradops"  # noqa: PTH111


def _sources(folder: Traversable) -> Iterator[tuple[str, bytes]]:
    """List the package's source files in a fixed order, also where they lie in a zip file."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry.name, entry.read_bytes()


@lru_cache(maxsize=1)
def stamp() -> str:
    """Identify all that compiled code depends on, except the processor."""
    digest = hashlib.sha256()
    for name, source in _sources(resources.files("numba_gradops")):
        digest.update(name.encode())
        digest.update(source)
    settings = [getattr(config, name, None) for name in _SETTINGS]
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version_info[:2])
    digest.update(repr((versions, settings)).encode())
    return digest.hexdigest()


class _Locator(caching._CacheLocator):
    """Places all entries of one stamp in one directory."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file  # Numba names it in a warning
        self._function = function

    def get_cache_path(self) -> str:
        return str(directory() / stamp()[:20])

    def get_source_stamp(self) -> str:
        return stamp()

    def get_disambiguator(self) -> str:
        return str(self._function.__module__.replace(".", "-"))

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 - Numba's attribute

    def __init__(self, function: Callable[..., Any]) -> None:
        # As Numba's, without its look at NUMBA_CACHE_LOCATOR_CLASSES: those know other keys.
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(function, function.__code__.co_filename)
        abiflags = getattr(sys, "abiflags", "")
        self._filename_base = self.get_filename_base(function.__qualname__, abiflags)


class _CheckedFile(caching.IndexDataCacheFile):
    """Index and data files; the data start with their checksum."""

    def _save_data(self, name: str, data: Any) -> None:
        payload = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(payload).digest() + payload)

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            msg = f"{name} is damaged"
            raise OSError(msg)  # Numba takes this for a missing file
        return pickle.loads(content[32:])


class _FunctionCache(caching.FunctionCache):
    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file: Any = _CheckedFile(self._cache_path, self._impl.filename_base, stamp())


class _ForgivingCache(caching._Cache):
    """Opens the real cache at the first compilation, and lets no trouble of it out."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._opened: _FunctionCache | None = None
        self._enabled = True

    def _open(self) -> _FunctionCache:
        if self._opened is None:
            self._opened = _FunctionCache(self._function)
        return self._opened

    @property
    def cache_path(self) -> str | None:
        return str(directory() / stamp()[:20]) if self._enabled and is_on() else None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if not (self._enabled and is_on()):
            return None
        try:
            return self._open().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001 - a damaged file can fail in any way; compile anew
            self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if not (self._enabled and is_on()):
            return
        try:
            self._open().save_overload(sig, data)
        except Exception:  # noqa: BLE001 - full, read-only or vanished: go on without
            return

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        try:
            self._open().flush()
        except Exception:  # noqa: BLE001 - as in save_overload
            return


def enable(dispatcher: Any) -> Any:
    """Give a compiled function this cache; return the function."""
    dispatcher._cache = _ForgivingCache(dispatcher.py_func)
    return dispatcher
