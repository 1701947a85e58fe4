"""What every test gets: poisoned result memory and reproducible random numbers."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from numba_gradops import _arrays

# One fixed sequence of examples, on any machine: a failure can be repeated, a pass means the same
# everywhere. No deadline: the first example of a dtype compiles.
settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("fixed")


def poisoned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate memory full of NaN, or of an unlikely number."""
    if np.dtype(dtype).kind in "iu":
        return np.full(shape, np.int64(-123456789).astype(dtype))
    return np.full(shape, np.nan, dtype)


@pytest.fixture(autouse=True)
def _poison_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an element that no loop writes show as NaN (or a number nobody expects)."""
    monkeypatch.setattr(_arrays, "_allocate", poisoned)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)
