"""The source of the pooling kernels, run as Python by Numba's simulator of CUDA.

Independent of the compiler and of the emulator: only what the source says. The simulator is
chosen when Numba is imported, so it runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nvvm  # for numba-cuda; the simulator itself needs no compiler

SCRIPT = Path(__file__).parent / "simulated_pool.py"


@pytest.mark.parametrize("overlapping", ["", "overlapping"])
def test_the_pooling_kernels_as_python(overlapping: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *overlapping.split()],
        env=os.environ
        | {
            "NUMBA_ENABLE_CUDASIM": "1",
            "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), str(SCRIPT.parent), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("right: ")
