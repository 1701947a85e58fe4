"""Whether memory is backed by pages yet: fresh memory from the system is not.

The system clears a page when it is first written to, which brings the page into the caches: what is
stored past them would have to clear it out again.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray


@lru_cache(maxsize=1)
def _mincore() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None).mincore
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    return function


def are_there(array: NDArray[Any]) -> bool:
    """Tell whether pages at both ends and in the middle of a contiguous array are there."""
    mincore = _mincore()
    if mincore is None or array.nbytes == 0:
        return False
    found = ctypes.create_string_buffer(1)
    for offset in (0, array.nbytes // 2, array.nbytes - 1):
        page = (array.ctypes.data + offset) // mmap.PAGESIZE * mmap.PAGESIZE
        if mincore(page, 1, found) != 0 or not found.raw[0] & 1:
            return False
    return True
