"""How much longer this machine compiles than the one that limits of compile times are for."""

import pytest
from processes import run_plain

# Nothing of this package is in it. The machine that the limits are for takes 4 seconds.
REFERENCE = """
import time
start = time.process_time()
import numba
import numpy as np
@numba.njit
def multiply(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total
    return np.sort(c.ravel())[::-1].copy(), c.sum(axis=0), np.argmax(c)
x = np.ones((8, 8))
multiply(x, x, x.copy())
print(time.process_time() - start)
"""


@pytest.fixture(scope="session")
def slowness() -> float:
    """Give how many times longer than in the limits this machine compiles, or 1."""
    return max(1, min(float(run_plain(REFERENCE).stdout) for _ in range(2)) / 4)
