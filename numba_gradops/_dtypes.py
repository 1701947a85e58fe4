"""Which dtypes each gradient takes, in what they are summed, and what untyped lists become.

========  ============================================  =========================================
op        dtypes (the result has the gradient's)        summed in
========  ============================================  =========================================
conv2d    float16, bfloat16, float32, float64, int32    float32 for halves and float32, float64;
                                                        int32 wraps around
pool      float32, float64, int32, int64                float64, cut to integers at the end
          float16, bfloat16 (not in TensorFlow)         float64, rounded once
========  ============================================  =========================================
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

HALVES = ("float16", "bfloat16")
CONV2D = ("float16", "bfloat16", "float32", "float64", "int32")
POOL = ("float32", "float64", "int32", "int64", "float16", "bfloat16")


@lru_cache(maxsize=64)
def name_of(dtype: np.dtype[Any]) -> str:
    """Give a dtype's name; NumPy puts it together anew each time, which takes a microsecond."""
    return dtype.name


@lru_cache(maxsize=64)
def is_one_of(dtype: np.dtype[Any], supported: tuple[str, ...]) -> bool:
    """Tell whether a dtype is supported, and in the machine's byte order."""
    return dtype.isnative and dtype.name in supported


def require(dtype: np.dtype[Any], supported: tuple[str, ...], name: str) -> np.dtype[Any]:
    """Refuse a dtype outside `supported`; return it in the machine's byte order."""
    # bfloat16 is known by its name: ml_dtypes registers it, and is never imported here.
    if name_of(dtype) not in supported:
        msg = f"{name} must have one of the dtypes {', '.join(supported)}; got {dtype}"
        raise TypeError(msg)
    return dtype if dtype.isnative else dtype.newbyteorder("=")


@lru_cache(maxsize=64)
def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Give the dtype in which convolution products of `dtype` are summed."""
    return np.dtype(np.float32) if dtype.name in HALVES else dtype
