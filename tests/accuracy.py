"""How far a result may be from the float64 reference, by dtype: the one table of tolerances."""

from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": BFLOAT16,
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
}

# Relative to the largest exact value: half a unit in the last place of a half, twice for the
# float32 sum before it; the documented bound of float32; integers are exact.
RESOLUTION = {
    "float16": 2**-10,
    "bfloat16": 2**-7,
    "float32": 3e-6,
    "float64": 1e-14,
    "int32": 0.0,
    "int64": 0.0,
}


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Draw numbers of about 1, or of about 1000 for integers."""
    values = rng.standard_normal(shape)
    dtype = np.dtype(dtype)
    return (values * 1000 if dtype.kind == "i" else values).astype(dtype)


def assert_close(result: Any, exact: np.ndarray, dtype: Any) -> None:
    """Check shape, dtype, the places of NaN and infinity, and the error of what is finite."""
    dtype = np.dtype(dtype)
    assert isinstance(result, np.ndarray)
    assert result.dtype == dtype
    assert result.shape == exact.shape
    if dtype.kind == "i":
        np.testing.assert_array_equal(result, exact.astype(np.int64).astype(dtype))  # wraps
        return
    got = result.astype(np.float64)
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(got[infinite], rounded[infinite])
    finite = np.isfinite(rounded)
    if finite.any():
        error = np.abs(got[finite] - exact[finite]).max()
        assert error <= RESOLUTION[dtype.name] * np.abs(exact[finite]).max(), error
