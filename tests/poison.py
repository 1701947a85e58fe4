"""Results before anything is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate memory full of NaN, or of an unlikely number."""
    if np.dtype(dtype).kind in "iu":
        return np.full(shape, np.int64(-123456789).astype(dtype))
    return np.full(shape, np.nan, dtype)
