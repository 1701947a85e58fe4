"""Memory that goes back to the system when it is freed, so that the next call gets new pages.

The allocator otherwise keeps up to 32 MiB of what was freed, pages and all: a call finds its result
of the time before there again, and its working memory in what an earlier call left.
"""

import ctypes
import platform

_M_MMAP_THRESHOLD = -3  # in glibc's malloc.h
_BYTES = 65536


def free_at_once() -> None:
    """Have glibc ask the system for each large block; elsewhere, skip the benchmark."""
    if platform.libc_ver()[0] != "glibc":
        msg = "only glibc can be told to free at once"
        raise NotImplementedError(msg)
    if ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _BYTES) != 1:
        msg = "mallopt failed"
        raise OSError(msg)
