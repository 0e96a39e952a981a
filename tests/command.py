"""The command, called as a user would."""

from __future__ import annotations

import pytest
from dpfl_audit import cli


def call(*arguments: object) -> int:
    """Its exit code."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(a) for a in arguments])
    return int(stop.value.code or 0)


def called(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    capsys.readouterr()
    code = call(*arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err.strip()
