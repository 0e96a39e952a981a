"""A killed `audit mechanism` goes on where it was, to the same bytes; another question there is one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import call, called, content
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.worlds.function import audit_mechanism
from dpfl_audit.audit.worlds.source import own_code

CODE = """
import os
import numpy as np
LEFT = [int(os.environ.get("CALLS_LEFT", "100000"))]


def update(canary, seed):
    LEFT[0] -= 1
    if LEFT[0] < 0:
        os._exit(9)
    rng = np.random.default_rng(seed)
    shift = 0.0 if canary in (None, False) else 3.0 * float(canary)
    return rng.normal(size=4) + [shift, 0, 0, 0]


def canaries():
    return {"small": 0.1, "large": 1.0}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(CODE)
    return tmp_path


def typed(output: str, *more: str) -> list[str]:
    return ["mechanism", "own.py:update", "--delta", "1e-5", "--draws", "60", "-o", output, "--quiet", *more]


SEARCH = ("--candidates", "own.py:canaries")


@pytest.mark.parametrize(
    ("calls", "more"),
    [(400, SEARCH), (150, ("--claim", "1"))],  # which is refuted by few calls
)
@pytest.mark.full
def test_killed_anywhere_it_ends_with_the_same_bytes(calls, more, folder):
    """A real process, which dies in the middle of a call, again and again."""
    assert call(*typed("whole", *more)) == 0
    command = [sys.executable, "-m", "dpfl_audit.cli", *typed("killed", *more)]
    codes = []
    for _ in range(20):
        codes.append(subprocess.run(command, env={**os.environ, "CALLS_LEFT": str(calls)}, check=False).returncode)
        if codes[-1] == 0:
            break
        assert codes[-1] == 9 and (folder / "killed" / ".work").is_dir()
    assert codes[-1] == 0 and len(codes) > 1
    assert content(folder / "killed") == content(folder / "whole")


def killed(folder: Path, monkeypatch, *more: str) -> None:
    """Draws that are not finished: saving is what fails."""
    monkeypatch.setattr("dpfl_audit.audit.worlds.outcome.OwnAudit.save", lambda *_, **__: 1 / 0)
    assert call(*typed("out", *more)) == 70
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert (folder / "out" / ".work" / "asked.json").is_file() and not (folder / "out" / "results.json").exists()


@pytest.mark.full
@pytest.mark.parametrize("changed", ["update", "mean"])
def test_from_python_the_functions_own_files_are_looked_at(changed, folder):
    """`work` alone, without a word of which files: what is another function in either place is refused."""
    files = {"update": folder / "first.py", "mean": folder / "second.py"}
    files["update"].write_text(CODE)
    (folder / "elsewhere").mkdir()
    files["mean"] = folder / "elsewhere" / "second.py"
    files["mean"].write_text("def mean(world):\n    return [3.0 * world, 0, 0, 0]\n")

    def asked() -> dict[str, Any]:
        update, mean = own_code("first.py:update"), own_code("elsewhere/second.py:mean")
        return {"update_fn": update.value, "noiseless": mean.value, "delta": 1e-5, "draws": 50, "work": folder / "work"}

    first = audit_mechanism(**asked())
    assert audit_mechanism(**asked()).counted == first.counted
    files[changed].write_text(files[changed].read_text().replace("3.0", "-3.0"))
    with pytest.raises(BadInput, match="unfinished draws of another function"):
        audit_mechanism(**asked())


def test_what_is_not_the_same_question_is_refused_in_one_sentence(folder, capsys, monkeypatch):
    """Another seed, claim, shape or search, another function, and draws that are damaged."""
    killed(folder, monkeypatch)
    before = content(folder / "out")
    for more in (("--seed", "1"), ("--claim", "3"), ("--gaussian",), ("--calibration", "60"), SEARCH):
        code, _, said = called(capsys, *typed("out", *more))
        assert code == 2 and "another function" in said and said.count("\n") == 0
    (folder / "own.py").write_text(CODE.replace("3.0", "2.0"))
    code, _, said = called(capsys, *typed("out"))
    assert code == 2 and "another function" in said
    (folder / "own.py").write_text(CODE)
    assert content(folder / "out") == before
    (folder / "out" / ".work" / "centres.safetensors").write_bytes(b"half")
    code, _, said = called(capsys, *typed("out"))
    assert code == 2 and "--force" in said and "\n" not in said
    assert call(*typed("out", "--seed", "1", "--force")) == 0 and not (folder / "out" / ".work").exists()


@pytest.mark.full
@pytest.mark.parametrize("changed", ["imported", "tried", "mean"])
def test_another_file_that_the_draws_hang_on_is_noticed(changed, folder, capsys, monkeypatch):
    """An import of the function's, the candidates' file, and the one that tells the means."""
    imported = f"imported_where_{changed}_changes"  # a process imports a name once
    file = folder / (f"{imported}.py" if changed == "imported" else f"{changed}.py")
    (folder / "own.py").write_text(f"import {imported}\n{CODE}")
    (folder / f"{imported}.py").write_text("SHIFT = 3.0\n")
    (folder / "tried.py").write_text("canaries = {'small': 0.1, 'large': 1.0}\n")
    (folder / "mean.py").write_text("def mean(canary):\n    return [0.0 if canary is None else 3 * canary, 0, 0, 0]\n")
    more = ("--candidates", "tried.py:canaries", "--noiseless", "mean.py:mean")
    killed(folder, monkeypatch, *more)
    file.write_text(file.read_text() + "# changed\n")
    code, _, said = called(capsys, *typed("out", *more))
    assert code == 2 and "another function" in said
    file.write_text(file.read_text().replace("# changed\n", ""))
    assert call(*typed("out", *more)) == 0
