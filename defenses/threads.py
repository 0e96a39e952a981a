"""The threads that a process's work on large vectors is dealt to, each with one thread of torch's own.

What a thread computes hangs on its task alone, so that results are the same, byte for byte, for every number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

THREADED = 2**15  # numbers of a vector: torch adds up fewer of them by one thread, however many there are

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


@contextmanager
def one_thread(numbers: int) -> Iterator[None]:
    """Torch uses one thread for vectors of so few numbers: to wake another takes longer than it saves (a canary audit
    of 2,410 numbers took 29 s by two threads, 11 s by one).
    """
    threads = torch.get_num_threads()
    if numbers < THREADED:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _one_thread() -> None:
    """Both are settings of the calling thread."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
