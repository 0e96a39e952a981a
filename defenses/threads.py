"""The threads that a process's work on large vectors is dealt to, each with one thread of torch's own.

What a thread computes hangs on its task alone, so that results are the same, byte for byte, for every number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

_Task = TypeVar("_Task")
_Made = TypeVar("_Made")


def in_threads(function: Callable[[_Task], _Made], tasks: Iterable[_Task]) -> Iterator[_Made]:
    """function(task) of every task, in the tasks' order, by as many threads as torch may use."""
    return _pool(torch.get_num_threads()).map(function, tasks)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that live as long as the process.

    New ones would set up their memory and MKL anew in every round, 3 ms of 24 for 50 small jobs.
    """
    return ThreadPoolExecutor(threads, "dpfl-audit training", initializer=_one_thread)


def _one_thread() -> None:
    """Both are settings of the calling thread."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
