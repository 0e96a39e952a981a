"""Cases of one theorem: a few in `make test`, the others in `make full`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(cases: Iterable[Any], *kept: int) -> list[Any]:
    """The cases for `parametrize`, of which `make test` runs those with the numbers `kept`."""
    return [
        case if i in kept else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.full)
        for i, case in enumerate(cases)
    ]


def but(cases: Iterable[str], *long: str) -> list[Any]:
    """The names for `parametrize`, of which `make full` alone runs the `long` ones."""
    return [pytest.param(name, marks=pytest.mark.full) if name in long else name for name in cases]
