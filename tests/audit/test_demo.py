"""`audit demo`: its three trainings, and a folder that holds another demo."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tomlkit
from command import called
from dpfl_audit import Results
from dpfl_audit.audit import demo as demonstration
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.report.texts import read_texts
from dpfl_audit.audit.setup.config import Config, parse_config

WHOLE = demonstration.config


def small(setting: demonstration.DemoSetting, quick: bool = False) -> Config:
    """Ten clients, two rounds, a few iterations and draws."""
    raw = WHOLE(replace(setting, captured=(0,) if setting.captured else tuple(range(10))), quick).model_dump()
    raw["data"] |= {"clients": 10}
    raw["model"] |= {"options": {"width": 80, "layers": 1} if setting.data is demonstration.NOTES else {"widths": [8]}}
    raw["scheme"] |= {"rounds": 2}
    raw["capture"] |= {"rounds": 1, "candidates": 40}
    raw["attack"] = {"inversion": {"iterations": 6, "labels": "inferred"}, "canary": {"draws": 50}}
    return parse_config(raw, "demo")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demonstration, "config", small)


def digests(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): json.loads(p.read_text())["digest"] for p in folder.rglob("results.json")}


def times(folder: Path) -> set[int]:
    return {p.stat().st_mtime_ns for p in folder.rglob("results.json")}


@pytest.mark.full
def test_a_folder_of_another_demo_is_made_anew_and_its_own_kept(short, tmp_path, capsys) -> None:
    """There is no --force to ask for: other options and another version make other results."""
    demo = ("demo", "-o", tmp_path / "demo", "--quiet")
    assert called(capsys, *demo, "--quick")[0] == 0
    first, when = digests(tmp_path), times(tmp_path)
    assert called(capsys, *demo, "--quick")[0] == 0 and times(tmp_path) == when
    assert called(capsys, *demo)[0] == 0 and digests(tmp_path) != first
    manifest = tmp_path / "demo" / "bare" / "setup" / "setup.json"
    for other in (json.dumps(json.loads(manifest.read_text()) | {"digest": "0" * 64}), "{}", "no JSON"):
        manifest.write_text(other)
        assert called(capsys, *demo, "--quick") == (0, f"{tmp_path.resolve() / 'demo' / 'report.html'}\n", "")
        assert len(json.loads(manifest.read_text())["digest"]) == 64


def test_three_answers_and_a_page(short, tmp_path, capsys) -> None:
    code, out, _ = called(capsys, "demo", "--quick", "-o", tmp_path / "demo", "--json")
    told = json.loads(out)
    assert code == 0 and told["report"] == str(tmp_path.resolve() / "demo" / "report.html")
    bare, published, recommended = (Results.read(Path(folder)) for folder in told["results"])
    assert bare.verdict.proof == "none" and published.setup.config["claim"] == "paper"
    assert [bool(r.setup.secret_key) for r in (bare, published, recommended)] == [True] * 3
    assert len(told["answers"]) == 3 and Path(told["report"]).stat().st_size > 10_000


@pytest.mark.full
def test_notes_come_back_bare_and_stand_on_the_page_with_their_words_marked(short, tmp_path, capsys) -> None:
    code, out, _ = called(capsys, "demo", "--text", "-o", tmp_path / "demo", "--json")
    told = json.loads(out)
    bare, recommended = (Results.read(Path(folder)) for folder in told["results"])
    read = next(attack for attack in bare.attacks if attack.thing == "text")
    assert code == 0 and (read.value("whole"), bare.verdict.level) == (1.0, "severe")
    assert all(control["whole"] == 0 for control in read.controls.values()) and len(read.controls) == 2
    assert "recommended" in str(recommended.folder) and bare.setup.data["name"] == "notes"
    page = Path(told["report"]).read_text()
    first = read_texts(bare.folder, read).texts[0]
    assert " ".join(f"<b>{word}</b>" for word in first.original) in page


@pytest.mark.full
def test_of_notes_less_than_eight_is_proven_of_the_recommended_training(tmp_path) -> None:
    path = tmp_path / "recommended.toml"
    path.write_text(tomlkit.dumps(WHOLE(demonstration.TEXTS[-1]).model_dump(mode="json", exclude_none=True)))
    rows = [row for row in table(path).rows if row.observer == "aggregate"]
    assert len(rows) == 4 and max(row.proven for row in rows) <= 8


def test_the_three_differ_in_noise_clip_and_observer_alone_and_eight_is_proven_of_the_last(tmp_path) -> None:
    """For a client and for a record, removed or replaced, towards whoever sees sums, at δ below 1/n."""
    first, *others = (WHOLE(setting) for setting in demonstration.SETTINGS)
    for other in others:
        assert (other.data, other.model, other.local, other.seed) == (first.data, first.model, first.local, first.seed)
    assert 1 / (demonstration.DIGITS.people * demonstration.DIGITS.records) >= demonstration.DELTA
    path = tmp_path / "recommended.toml"
    path.write_text(tomlkit.dumps(WHOLE(demonstration.SETTINGS[-1]).model_dump(mode="json", exclude_none=True)))
    rows = [row for row in table(path).rows if row.observer == "aggregate"]
    assert len(rows) == 4 and max(row.proven for row in rows) <= 8
