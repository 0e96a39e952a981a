"""What an owner's code raises, as one sentence with its place: a fault there is none of this tool's."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from .errors import BadInput

ROOT = Path(__file__).parent.parent
SCRIPTS, CLICK = Path(sysconfig.get_path("scripts")), Path(sysconfig.get_path("purelib")) / "click"  # call the commands
OURS = (str(SCRIPTS), str(CLICK), *(str(ROOT / part) for part in ("audit", "attacks", "defenses", "metrics", "cli.py")))
INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
MOST = 200  # characters of what somebody else's error says


@contextmanager
def owners(whose: str) -> Iterator[None]:
    """Around a call of somebody else's code. whose: the code's name in a sentence.

    Raises:
        ValueError: it raised something, or left the process.
    """
    try:
        yield
    except (BadInput, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ValueError(f"{whose} raised {in_words(error)}") from error


def guarded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, whose errors become one ValueError each, with what it was called with."""

    @wraps(function)
    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (BadInput, KeyboardInterrupt):
            raise
        except BaseException as error:
            given = ", ".join(f"{argument!r:.40}" for argument in arguments)
            raise ValueError(f"{name}({given}) raised {in_words(error)}") from error

    return called


def in_words(error: BaseException) -> str:
    """An error's kind, what it says, and where the owner's own file raised it: else where a library did.

    >>> try:
    ...     1 / 0
    ... except ZeroDivisionError as error:
    ...     in_words(error).partition(" (")[0]
    'ZeroDivisionError: division by zero'
    """
    place = _place([(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)])
    message = f"{type(error).__name__}: {' '.join(str(error).split())[:MOST]}"
    if place:
        return f"{message} ({place})"
    return message


def files_of_owner() -> list[Path]:
    """Of all modules that are loaded those that are neither installed nor this tool's."""
    held = {file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    return [Path(f) for f in sorted(held) if not f.startswith((*OURS, "<", *INSTALLED)) and Path(f).is_file()]


def line_of_call() -> str:
    """FILE:LINE of the owner's code that is running; "" where there is none."""
    return _place([(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)][::-1])


def _place(frames: list[tuple[str, int]]) -> str:
    """The last of these, outermost first, that is the owner's: else a library's, else "" for none."""
    others = [(file, line) for file, line in frames if not file.startswith((*OURS, "<frozen"))]
    owner = [(file, line) for file, line in others if not file.startswith(INSTALLED)]
    if not others:
        return ""
    file, line = (owner or others)[-1]
    place = next((file.removeprefix(home).lstrip("/") for home in INSTALLED[1:] if file.startswith(home)), file)
    return f"{place.removeprefix(f'{Path.cwd()}/')}:{line}"
