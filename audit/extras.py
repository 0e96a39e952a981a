"""Packages that only some users have. They are imported where they are needed, and nothing else needs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from .errors import BadInput


def needed(module: str, what: str, extra: str) -> ModuleType:
    """An optional package. what: needs it, in words. extra: of dpfl-audit, which installs it.

    >>> needed("no_such_package", "audit_opacus", "opacus")
    Traceback (most recent call last):
    dpfl_audit.audit.errors.BadInput: audit_opacus needs no_such_package: pip install 'dpfl-audit[opacus]'

    Raises:
        BadInput: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is there, and lacks something of its own
        raise BadInput(f"{what} needs {module}: pip install 'dpfl-audit[{extra}]'") from None
