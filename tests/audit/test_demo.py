"""`audit demo` in a folder that holds another demo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import called
from dpfl_audit.audit import demo as demonstration
from dpfl_audit.audit.setup.config import parse_config


@pytest.fixture
def short(shorter_study: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One setting, a few iterations, few draws."""
    setting, config = demonstration.configs()[0]
    small = {"name": "mlp", "options": {"widths": [8]}}
    raw = config.model_dump() | {"attack": {"inversion": {"iterations": 6}}, "model": small}
    canary = demonstration.canary_config().model_copy(update={"attack": {"canary": {"draws": 50}}})
    monkeypatch.setattr(demonstration, "configs", lambda: [(setting, parse_config(raw, "demo"))])
    monkeypatch.setattr(demonstration, "canary_config", lambda: canary)


def results(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.name == "results.json"}


def times(folder: Path) -> set[int]:
    return {p.stat().st_mtime_ns for p in folder.rglob("results.json")}


@pytest.mark.full
def test_a_folder_of_another_demo_is_made_anew_and_its_own_kept(short, tmp_path, capsys) -> None:
    """There is no --force to ask for: other options and another version make other results."""
    demo = ("demo", "-o", tmp_path / "demo", "--quiet")
    assert called(capsys, *demo, "--quick")[0] == 0
    first, when = results(tmp_path), times(tmp_path)
    assert called(capsys, *demo, "--quick")[0] == 0 and times(tmp_path) == when
    assert called(capsys, *demo)[0] == 0 and results(tmp_path) != first
    manifest = tmp_path / "demo" / "no-noise" / "setup" / "setup.json"
    for other in (json.dumps(json.loads(manifest.read_text()) | {"digest": "0" * 64}), "{}", "no JSON"):
        manifest.write_text(other)
        assert called(capsys, *demo, "--quick") == (0, f"{tmp_path.resolve() / 'demo' / 'report.html'}\n", "")
        assert len(json.loads(manifest.read_text())["digest"]) == 64 and results(tmp_path) == first


def test_the_demo_answers_which_noise_and_clip(short, tmp_path, capsys) -> None:
    code, out, _ = called(capsys, "demo", "-o", tmp_path / "demo")
    answer, study, _, page = out.splitlines()
    assert code == 0 and page == str(tmp_path.resolve() / "demo" / "report.html")
    assert answer.startswith("Which noise and clip? Take noise_multiplier ")
    assert "<h1>Take noise_multiplier" in Path(study).read_text()
    document = json.loads(called(capsys, "demo", "-o", tmp_path / "demo", "--json")[1])
    assert document["answer"] in answer and document["study"] == study
