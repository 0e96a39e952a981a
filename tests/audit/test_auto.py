"""`audit run --attack auto`: the same as the preset it names, with the reason in results, terminal and page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import called
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.match.softened import TIMES
from dpfl_audit.attacks.inversion.read import rounds
from dpfl_audit.attacks.inversion.read.statistics import STATISTICS
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.run import RunOptions, opened, run
from dpfl_audit.audit.run.planning import planned_cells
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.defenses.workers import HERE

RAW: dict[str, Any] = {
    "seed": 4,
    "data": {"name": "digits", "clients": 2, "samples_per_client": 6},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 6},
    "scheme": {"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 0.01, "rounds": 1, "share": "gradient"},
    "capture": {"clients": [0, 1], "auxiliary": 19},  # too few for reference classifiers, which take a minute
    "attack": {"inversion": {"iterations": 4}},
}
WHY = (
    "the standard deviation of the noise is known, so the prior grows with it; a fixed one, and where most of a message"
    " is noise the spectrum of the auxiliary records, are tried beside it"
)


def trained(folder: Path, **tables: Any) -> Path:
    return train(build(parse_config({**RAW, **tables}), folder), folder / "setup")


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("auto"))


def test_messages_are_read_once_for_choosing_and_planning(setup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large network that takes minutes, and it was done for each choice and again for the plan."""
    read = rounds.one_round
    seen: list[int] = []
    monkeypatch.setattr(rounds, "one_round", lambda *view: seen.append(1) or read(*view))
    job = opened(setup, RunOptions(minutes=0.01))
    assert job.half.ground.read and len(planned_cells(job, HERE).cells) and len(seen) == 1
    assert not job.half.ground.read  # what is left out is let go


def test_auto_is_the_preset_it_names_and_says_why(setup: Path, tmp_path: Path, capsys) -> None:
    code, out, err = called(capsys, "run", setup, "-o", tmp_path / "auto", "--attack", "auto", "--device", "cpu")
    assert code == 0, err
    assert any("noise-aware" in line and line.endswith(f"{WHY}.") for line in out.splitlines())
    named = (
        "inversion.preset=noise-aware",
        'inversion.objective=["cosine", "euclidean"]',
        "inversion.exact=true",
        f"inversion.features={FEATURES}",
        f"inversion.batch_statistics={STATISTICS}",
        f"inversion.softened={TIMES}",
    )
    other = run(setup, tmp_path / "named", RunOptions(attacks=("inversion",), overrides=named, device="cpu"))
    auto = json.loads((tmp_path / "auto" / "results.json").read_text())["attacks"]
    assert [a["metrics"] for a in auto] == [json.loads(a.metrics.model_dump_json()) for a in other.attacks]
    for own, a in zip(auto, other.attacks, strict=True):
        assert own["settings"] == {**a.settings, "preset": "noise-aware", "picked": WHY}
        assert own["attack"] == "inversion"
    render([tmp_path / "auto"], tmp_path / "page.html", "html")
    assert f"auto: {WHY}" in (tmp_path / "page.html").read_text()


def test_a_config_may_ask_for_it_and_minutes_choose_it(tmp_path: Path) -> None:
    setup = trained(tmp_path, attack={"inversion": {"preset": "auto", "iterations": 4}})
    settings = [
        chosen.settings
        for options in (RunOptions(), RunOptions(attacks=("inversion",)), RunOptions(attacks=("auto",)))
        for chosen in opened(setup, options).attacks
        if chosen.name == "inversion"
    ]
    assert len(settings) == 12
    assert {(s["preset"], s["picked"], s["iterations"]) for s in settings} == {("noise-aware", WHY, 4)}


@pytest.mark.parametrize(
    ("attacks", "overrides", "words"),
    [
        (("auto", "inversion"), (), "give it or --attack inversion"),
        (("auto",), ("inversion.preset=dlg",), "which is 'dlg' already"),
        (("auto",), ("inversion.iteration=3",), "unknown key 'iteration'"),
        (("autos",), (), "did you mean 'auto'"),
        (("inversion",), ("inversion.preset=autom",), "preset"),
        (("membership-loss",), ("membership-loss.preset=auto",), "preset"),
    ],
)
def test_what_cannot_be_is_one_sentence(setup: Path, attacks, overrides, words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        opened(setup, RunOptions(attacks=attacks, overrides=overrides))
    assert "\n" not in str(refused.value)


def test_an_option_of_what_was_taken_out_is_refused_in_one_sentence(setup: Path, tmp_path: Path, capsys) -> None:
    code, out, err = called(
        capsys, "run", setup, "-o", tmp_path / "r", "--attack", "auto", "--set", "inversion.ordered=true"
    )
    assert (code, out, err.count("\n")) == (2, "", 0) and "ordered" in err and not (tmp_path / "r").exists()
