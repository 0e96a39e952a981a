"""The one kind of error a user is meant to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class BadInput(ValueError):
    """Something given to us is wrong. The message is one sentence: what was wrong, where, and what would be right. Exit
    code 2.
    """


@contextmanager
def bad_input(where: str) -> Iterator[None]:
    """Turns the ValueErrors of the other rooms, one sentence each, into BadInput that says where the value came
    from.
    """
    try:
        yield
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{where}: {error}" if where else str(error)) from error
