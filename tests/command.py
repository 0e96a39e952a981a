"""The command, called as a user would, and what it wrote."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

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


def content(folder: Path, but: Collection[str] = ("environment.json",)) -> dict[str, bytes]:
    """The bytes of every file in a folder by relative path, but those of these names: when and where a setup was
    trained differs every time.
    """
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name not in but]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}
