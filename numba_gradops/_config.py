"""What a bug report needs to know: versions, processor, threads, cache, CUDA."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from ._fork import no_fork

# What a user may set, and what explains times.
_THREAD_SETTINGS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "NUMBA_THREADING_LAYER")


def _tile(tile: tuple[int, int, int]) -> str:
    pixels, vectors, lanes = tile
    return f"{pixels} pixels x {vectors} vectors of {lanes}"


def _is_writable(directory: Path) -> bool:
    """Tell whether files can be made in a directory, or it could be made; nothing is written."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)


def configuration() -> dict[str, dict[str, Any]]:
    """Collect the facts as a dict of sections; starts no threads and compiles nothing."""
    with no_fork:
        import llvmlite
        import llvmlite.binding as llvm
        import numba
        import numpy as np

        from . import __version__, _cache, _device
        from .cpu import _tiled_loops, _vectors

    try:
        layer, number = numba.threading_layer(), numba.get_num_threads()
    except ValueError:  # no parallel loop has run yet; to ask for their number would start threads
        layer, number = f"{numba.config.THREADING_LAYER} (not started)", "the limit"
    features = llvm.get_host_cpu_features()
    problems = _device.cuda_problems()
    directory = _cache.directory()
    return {
        "versions": {
            "numba_gradops": __version__,
            "python": platform.python_version(),
            "numba": numba.__version__,
            "llvmlite": llvmlite.__version__,
            "numpy": np.__version__,
            "platform": platform.platform(),
        },
        "cpu": {
            "name": numba.config.CPU_NAME or llvm.get_host_cpu_name(),
            "features": numba.config.CPU_FEATURES
            or ",".join(sorted(name for name, there in features.items() if there)),
            "cores": os.cpu_count(),
        },
        "tiles": {
            "vector bytes": _vectors.vectors().width,
            "vector registers": _vectors.vectors().registers,
            "fused multiply-add": _vectors.vectors().fused,
            **{
                f"float{8 * size} {kind.__name__.lower()}": _tile(_tiled_loops.tile_of(kind, size))
                for size in (4, 8)
                for kind in _tiled_loops.BY_CHANNELS
            },
            "second-level cache": _vectors.second_cache(),
        },
        "threads": {
            "layer": layer,
            "limit": numba.config.NUMBA_NUM_THREADS,
            "set": number,
            **{name: os.environ[name] for name in _THREAD_SETTINGS if name in os.environ},
        },
        "cache": {
            "on": _cache.is_on(),
            "writable": _is_writable(directory),
            "directory": str(directory),
            "key": _cache.stamp()[:20],
            "entries": len(list((directory / _cache.stamp()[:20]).glob("*.nbc"))),
        },
        "cuda": {"available": not problems, "problems": problems},
    }


def show_config(mode: str = "stdout") -> dict[str, dict[str, Any]] | None:
    """Show versions, processor, threads, cache and CUDA state, for bug reports.

    Parameters
    ----------
    mode : {'stdout', 'dicts'}, default 'stdout'
        Print the facts, or return them.

    Returns
    -------
    dict or None
        The facts by section if `mode` is 'dicts'.

    Raises
    ------
    ValueError
        If `mode` is another word.

    Examples
    --------
    >>> from numba_gradops import show_config
    >>> sorted(show_config(mode="dicts"))
    ['cache', 'cpu', 'cuda', 'threads', 'tiles', 'versions']
    """
    if mode not in ("stdout", "dicts"):
        msg = f"mode must be 'stdout' or 'dicts', got {mode!r}"
        raise ValueError(msg)
    facts = configuration()
    if mode == "dicts":
        return facts
    for section, entries in facts.items():
        sys.stdout.write(f"{section}\n")
        for key, value in entries.items():
            text = "; ".join(value) if isinstance(value, list) else value
            sys.stdout.write(f"  {key}: {text}\n")
    return None
