"""Run Python code in a process of its own, where the process itself is what is tested."""

import os
import subprocess
import sys
from pathlib import Path

# A call of each function that is large enough for threads.
CALLS = """
import numpy as np
from numba_gradops import conv2d_backprop_input, fractional_avg_pool_grad
rng = np.random.default_rng(0)
weights = rng.standard_normal((3, 3, 32, 32)).astype(np.float32)
gradient = rng.standard_normal((16, 20, 20, 32)).astype(np.float32)
ends = np.arange(0, 41, 2)
def both():
    conv = conv2d_backprop_input([16, 20, 20, 32], weights, gradient, [1, 1, 1, 1], "SAME")
    pool = fractional_avg_pool_grad([16, 40, 40, 32], gradient, ends, ends)
    return conv.tobytes() + pool.tobytes()
"""


def run_plain(
    code: str, *, check: bool = True, cwd: Path | None = None, **env: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `code` with warnings as errors; a variable given as None is unset."""
    environment = {**os.environ, **env}
    if environment.get("NUMBA_THREADING_LAYER") == "tbb":
        # Where pip puts the library, and no loader looks for it.
        known = environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(
            [*filter(None, known), f"{sys.prefix}/lib"]
        )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
        env={name: value for name, value in environment.items() if value is not None},
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def run(code: str, **options: str | None) -> subprocess.CompletedProcess[str]:
    """Run `code` after `CALLS`, on two threads unless told otherwise."""
    return run_plain(CALLS + code, **{"NUMBA_NUM_THREADS": "2", **options})
