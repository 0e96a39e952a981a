"""What a recorder refuses while a training runs: it must not end its owner's training."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from ..errors import BadInput

P = ParamSpec("P")
TELLS_OF_SENT = ("broadcast", "unnoised", "declare", "defect")  # refused, they leave out what was sent or what ran


class OutOfTurn(BadInput):
    """A call for a round or a client that cannot be, so that what was sent is not even counted."""


def refusing(method: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[Any, P], None]:
    """A recorder's method, whose BadInput goes to the recorder's `_refused`, with whether something was sent that
    nothing counts.
    """

    @wraps(method)
    def called(recorder: Any, /, *args: P.args, **options: P.kwargs) -> None:
        try:
            method(recorder, *args, **options)
        except BadInput as error:
            name = method.__name__
            breaks = name in TELLS_OF_SENT or (name == "upload" and isinstance(error, OutOfTurn))
            recorder._refused(error, breaks)

    return called
