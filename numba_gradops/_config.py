"""What a bug report needs to know: versions, processor, threads, cache, CUDA."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any


def configuration() -> dict[str, dict[str, Any]]:
    """Collect the facts as a dict of sections; starts no threads and compiles nothing."""
    import llvmlite
    import llvmlite.binding as llvm
    import numba
    import numpy as np

    from . import __version__, _cache, _device

    try:
        layer = numba.threading_layer()
    except ValueError:  # no parallel loop has run yet
        layer = f"{numba.config.THREADING_LAYER} (not started)"
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
        "threads": {"layer": layer, "limit": numba.config.NUMBA_NUM_THREADS},
        "cache": {
            "on": _cache.is_on(),
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
    ['cache', 'cpu', 'cuda', 'threads', 'versions']
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
