"""`audit run --ablate`: what each piece of knowledge is worth, beside the attacks that the verdict is on and not among
them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import dpfl_audit
import numpy as np
import pytest
from command import called, content
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.report.page import _worth
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.report.together import combined
from dpfl_audit.audit.results.ablation import stronger_without, worth, worth_lines
from dpfl_audit.audit.results.format import SCORING, AttackResult, AuditedSetup, Metrics, Results
from dpfl_audit.audit.run import RunOptions, opened, run
from dpfl_audit.audit.say.verdict import judged
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from scipy.stats import binomtest

RAW: dict[str, Any] = {
    "seed": 4,
    "data": {"name": "digits", "clients": 2, "samples_per_client": 6},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 6},
    "scheme": {"name": "local-gaussian", "clip": 0.5, "noise_multiplier": 0.01, "rounds": 1, "share": "gradient"},
    "capture": {"clients": [0, 1], "auxiliary": 19},  # too few for reference classifiers, which take a minute
    "attack": {"inversion": {"iterations": 6, "objective": "euclidean"}},
}
ABLATE = RunOptions(ablate=True, device="cpu", pixels_only=True)
PLAIN = RunOptions(attacks=("inversion",), device="cpu", pixels_only=True)
WITHOUT = ["labels", "noise", "clip", "normalisation statistics"]
TITLE = "What each piece of knowledge is worth"


def trained(folder: Path, **tables: Any) -> Path:
    return train(build(parse_config({**RAW, **tables}), folder), folder / "setup")


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("ablate"))


@pytest.fixture(scope="module")
def results(setup: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(setup, tmp_path_factory.mktemp("ablated") / "r", ABLATE)


@pytest.fixture(scope="module")
def plain(setup: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(setup, tmp_path_factory.mktemp("plain") / "r", PLAIN)


def test_no_number_of_the_audit_changes(results: Results, plain: Results) -> None:
    """An ablated attack is no further try: every p-value, check and sentence is what it is without them."""
    assert results.attacks == plain.attacks
    assert results.verdict == plain.verdict and results.epsilon == plain.epsilon
    assert plain.ablated == () and plain.not_withheld == {}
    assert not any("without" in entry.settings for entry in results.attacks)


def test_the_headline_stands_whatever_the_ablated_get(results: Results) -> None:
    from dpfl_audit.audit.report.decision.leak import strongest
    from dpfl_audit.audit.report.facts import ReportedSetting

    def headline(made: Results) -> Any:
        leak = strongest([ReportedSetting(Path(), made, "", ((Path(), made),), None)])
        assert leak is not None
        return leak.found, leak.said, leak.value, leak.attack

    def all_at(value: float) -> Results:
        metrics = {"reidentified": value, "psnr": 100 * value, "psnr_margin": 100 * value}
        got = {"intervals": {name: (own, own) for name, own in metrics.items()}, "p_values": {}}
        return results.having(
            ablated=tuple(e.having(metrics=Metrics.of({**e.numbers, **metrics}), **got) for e in results.ablated)
        )

    for other in (all_at(0.0), all_at(1.0)):
        assert headline(other) == headline(results)
        assert combined([other]).verdict == results.verdict


def test_each_message_is_attacked_without_each_piece(results: Results) -> None:
    of = {what: [e for e in results.ablated if e.settings["without"] == what] for what in WITHOUT}
    assert sum(map(len, of.values())) == len(results.ablated)
    for what, entries in of.items():
        assert [(e.client, e.round, e.manner, e.n) for e in entries] == [
            (e.client, e.round, e.manner, e.n) for e in results.attacks
        ]
        for entry, whole in zip(entries, results.attacks):
            labels = "inferred" if what == "labels" else "known"
            assert entry.settings == {**whole.settings, "labels": labels, "without": what}
    assert list(results.not_withheld) == ["local training"] and "gradient" in results.not_withheld["local training"]


def test_the_table_counts_all_messages_images(results: Results) -> None:
    (table,) = worth(results)
    assert [row.without for row in table.rows] == ["", *WITHOUT]
    assert (table.observer, table.manner, table.objective) == ("server", "one-round", "euclidean")
    for row in table.rows:
        entries = [e for e in (*results.attacks, *results.ablated) if e.settings.get("without", "") == row.without]
        psnrs = [pair.psnr for e in entries for pair in e.pairs]
        assert row.images == len(psnrs) == 12
        assert row.psnr.value == pytest.approx(np.mean(psnrs))
        assert row.margin.value == pytest.approx(np.mean([e.value("psnr_margin") for e in entries]))
        low, high = np.array([e.intervals["psnr_margin"] for e in entries]).T - row.margin.value
        assert row.margin.interval is not None and row.psnr.interval is not None
        assert row.margin.interval[0] <= row.margin.value <= row.margin.interval[1]
        assert row.margin.interval[1] - row.margin.interval[0] < (high - low).max()  # two messages say more than one
        assert row.psnr.interval[0] < row.psnr.value < row.psnr.interval[1]
        hits = round(12 * (row.reidentified.value or 0))
        exact = binomtest(hits, 12).proportion_ci(0.95, "exact")
        assert row.reidentified.interval == pytest.approx((exact.low, exact.high))


def test_one_message_has_its_own_intervals() -> None:
    numbers = {"psnr": 20.0, "psnr_margin": 4.0, "reidentified": 0.5, "reidentified_chance": 0.1}
    pairs = tuple({"original": i, "reconstruction": i, "psnr": 20.0} for i in range(4))
    whole = AttackResult(
        attack="inversion", observer="server", manner="one-round", n=4, settings={"labels": "known"},
        metrics=Metrics.of(numbers), intervals={"psnr_margin": (2.5, 5.0)}, pairs=pairs,
    )  # fmt: skip
    # without labels the settings differ in two fields, and it is the same attack
    less = whole.having(settings={"labels": "inferred", "without": "labels"})
    rows = _with([whole], [less])
    (table,) = worth(rows)
    assert [row.margin.interval for row in table.rows] == [(2.5, 5.0)] * 2
    assert [row.name for row in table.rows] == ["full knowledge", "without labels"]
    assert [row.psnr.interval for row in table.rows] == [(20.0, 20.0)] * 2
    assert stronger_without(rows) == []
    better = less.having(pairs=tuple({**pair, "psnr": 21.0} for pair in pairs))
    (sentence,) = stronger_without(_with([whole], [better]))
    assert "without labels" in sentence
    of_table = [entry.having(metrics=Metrics.of({**numbers, "cells_right": 0.5})) for entry in (whole, less)]
    assert worth_lines(rows)[0].endswith("4 images):")
    rows_of_table = _with(of_table[:1], of_table[1:])
    assert worth_lines(rows_of_table)[0].endswith("4 rows):")
    assert [_worth(results)["thing"] for results in (rows, rows_of_table)] == ["image", "row"]  # type: ignore[index]
    other = whole.having(observer="uplink")  # an attack of somebody else is no other half
    assert worth(_with([other], [less])) == ()


def _with(attacks: list[AttackResult], ablated: list[AttackResult]) -> Results:
    return judged(
        scoring=SCORING,
        setup=AuditedSetup(digest="", scheme="fedavg"),
        epsilon=(),
        attacks=tuple(attacks),
        ablated=tuple(ablated),
    )


def test_terminal_json_and_page_have_the_table(setup: Path, tmp_path: Path, capsys) -> None:
    where = tmp_path / "r"
    code, out, err = called(capsys, "run", setup, "-o", where, "--ablate", "--device", "cpu")
    assert code == 0, err
    (title,) = [line for line in out.splitlines() if line.startswith(TITLE)]
    assert "euclidean" in title and "12 images" in title
    for name in ("full knowledge", *(f"without {what}" for what in WITHOUT)):
        assert f"\n  {name} " in out
    assert any(line.startswith("Nothing to") and "local training" in line for line in out.splitlines())
    code, out, _ = called(capsys, "run", setup, "-o", where, "--ablate", "--device", "cpu", "--json")
    (table,) = json.loads(out)["worth"]
    assert [row["without"] for row in table["rows"]] == ["", *WITHOUT]
    render([where], tmp_path / "page.html", "html")
    page = (tmp_path / "page.html").read_text()
    assert TITLE in page and "normalisation statistics" in page
    assert re.search("Nothing to withhold: .*local training", page)


def test_results_without_ablated_attacks_have_no_table(setup: Path, plain: Results, tmp_path: Path, capsys) -> None:
    code, out, _ = called(
        capsys, "run", setup, "-o", tmp_path / "r", "--attack", "inversion", "--device", "cpu", "--json"
    )
    assert code == 0 and "worth" not in json.loads(out)
    read = Results.read(tmp_path / "r")
    assert worth(read) == () and worth_lines(read) == []
    render([tmp_path / "r"], tmp_path / "page.html", "html")
    assert TITLE not in (tmp_path / "page.html").read_text()


@pytest.mark.full
def test_a_killed_run_goes_on_to_the_same_bytes(
    setup: Path, results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved, calls = Inversion.run_group, 0

    def killed(self: Inversion, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return solved(self, *arguments, **named)

    whole = run(setup, tmp_path / "whole", ABLATE)
    with monkeypatch.context() as patch:
        patch.setattr(Inversion, "run_group", killed)
        with pytest.raises(KeyboardInterrupt):
            run(setup, tmp_path / "killed", ABLATE)
    assert not (tmp_path / "killed" / "results.json").exists()
    assert run(setup, tmp_path / "killed", ABLATE) == whole == results
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    with pytest.raises(BadInput, match="other results"):  # they answer another question
        run(setup, tmp_path / "whole", PLAIN)


@pytest.mark.full
def test_settings_and_presets_go_with_it(setup: Path, tmp_path: Path) -> None:
    overrides = ("inversion.iterations=7", 'inversion.objective=["cosine", "euclidean"]')
    job = opened(setup, RunOptions(ablate=True, attacks=("auto",), overrides=overrides))
    assert {s["iterations"] for s in (chosen.settings for chosen in (*job.attacks, *job.ablated))} == {7}
    assert {chosen.settings["preset"] for chosen in job.ablated} == {"noise-aware"}
    assert any("clip" in what and "cosine" in what for what in job.not_withheld)
    both = [(c.settings["objective"], c.settings["without"]) for c in job.ablated]
    assert len(set(both)) == len(both) == 7
    found = dpfl_audit.run(setup, tmp_path / "api", ablate=True, device="cpu", quiet=True)
    assert [*dict.fromkeys(entry.settings["without"] for entry in found.ablated)] == WITHOUT


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attacks": ("membership-loss",)}, "membership-loss is none"),
        ({"attacks": ("inversion", "canary")}, "canary is none"),
        ({"minutes": 3.0}, "give one of the two"),
        ({"attacks": ("inversio",)}, "did you mean 'inversion'"),
        ({"overrides": ("membership-loss.preset=3",)}, "does not run here"),
    ],
)
def test_what_cannot_be_is_one_sentence(setup: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        opened(setup, RunOptions(ablate=True, **options))
    assert "\n" not in str(refused.value)


def test_nothing_to_withhold_at_all_is_refused_before_anything_is_written(tmp_path: Path, capsys) -> None:
    bare = trained(
        tmp_path,
        data={**RAW["data"], "mean": [0.0], "std": [1.0]},
        scheme={"name": "fedavg", "rounds": 1, "share": "gradient"},
    )
    code, out, err = called(capsys, "run", bare, "-o", tmp_path / "r", "--ablate", "--set", "inversion.preset=idlg")
    assert (code, out) == (2, "") and not (tmp_path / "r").exists()
    assert err.startswith("audit: --ablate: nothing to withhold: labels (they are inferred as it is), noise (there is")
