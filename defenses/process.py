"""What a process sets once, before it computes: none of it changes what is computed beyond denormal numbers."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

# malloc.h of glibc: parameters of mallopt.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, ARENA_MAX = -1, -2, -3, -8
KEPT = 2**30  # bytes: larger arrays, and more free memory than this at once, go back to the system
MORE = 2**26  # bytes that are asked for at a time


def ready() -> None:
    """Denormal numbers count as 0, as they slow training many times; and freed memory is kept for the next array.

    To be called before the first parallel region: threads that started earlier do not inherit the first.
    """
    import torch  # not above: the command line keeps memory before it is loaded

    torch.set_flush_denormal(True)
    keep_memory()


@cache
def keep_memory() -> None:
    """Freed memory is kept for the next array. To be called before there are threads, each with an arena of its own, of
    which only the first one holds large arrays.

    glibc gives arrays of megabytes back to the system at once, and asks for the next: a training by DP-SGD, which has a
    gradient for each record, took four times as long, most of it in the kernel (10 clients of 300 records, 50,890
    parameters, 5 rounds of 10 steps: 7.7 million page faults, and 0.2 million so).
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        for parameter, value in ((MMAP_THRESHOLD, KEPT), (TRIM_THRESHOLD, KEPT), (TOP_PAD, MORE), (ARENA_MAX, 1)):
            mallopt(parameter, value)
