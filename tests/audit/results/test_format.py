"""results.json: its schema is on file, its frame has a row a metric, ∞ goes to disk and back."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import dpfl_audit
import pandas
import pytest
from dpfl_audit.audit.files import json_text
from dpfl_audit.audit.report.facts import read_settings
from dpfl_audit.audit.results.format import AttackResult, Epsilon, Metrics, Results, Verdict, schema
from dpfl_audit.audit.results.gates import outcome, parse_gate

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_schema_on_file_is_the_codes():
    """Write it again with `python -m dpfl_audit.audit.results.format > docs/results.schema.json`."""
    assert (DOCS / "results.schema.json").read_text(encoding="utf-8") == json_text(schema())


@pytest.mark.parametrize("model", [Results, Verdict, Epsilon, AttackResult])
def test_every_field_is_explained(model):
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    fields = {field.alias or name for name, field in model.model_fields.items()}
    assert [name for name in fields if f"`{name}`" not in page] == []


def test_a_frame_has_one_row_a_metric(make_results, tmp_path):
    results = dpfl_audit.Results.read(make_results(tmp_path, n=3))
    frame = results.frame()
    assert len(frame) == sum(len(attack.numbers) for attack in results.attacks)
    attack = results.attacks[0]
    row = frame[(frame.metric == "psnr") & (frame["round"] == attack.round)].iloc[0]
    assert (row.value, row.low, row.control_gray) == (
        attack.value("psnr"),
        attack.intervals["psnr"][0],
        attack.controls["gray"]["psnr"],
    )
    assert pandas.isna(frame[frame.metric == "attack_loss"].low).all()
    assert list(results.epsilon_frame().proven) == [row.proven for row in results.epsilon]


def test_infinity_goes_to_disk_and_back(make_results, tmp_path):
    folder = make_results(tmp_path, n=2)
    results = Results.read(folder)
    row = results.epsilon[0].having(proven=inf, multiplier=inf)
    attack = results.attacks[0].having(metrics=Metrics.of({"epsilon": inf}), settings={"influence": inf})
    (folder / "results.json").write_text(results.having(epsilon=(row,), attacks=(attack,)).text(), encoding="utf-8")
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert content["epsilon"][0]["proven"] == "inf" == content["attacks"][0]["settings"]["influence"]
    read = Results.read(folder)
    assert read.epsilon[0].proven == inf == read.attacks[0].value("epsilon")


OLD_NOTE = (
    "Demonstrated by gdp on canary 'random-update' (client 0), protocol {protocol}: the message's noise drawn anew; if"
    " {condition}{more}."
)


@pytest.mark.parametrize(
    ("condition", "now", "more"),
    [
        ("the mechanism is Gaussian-shaped", "the noise is Gaussian", ""),
        (
            "every round is Gaussian-shaped",
            "the noise of every round is Gaussian",
            "; of the rounds planned for client 0, 12 of them composed by closed form",
        ),
    ],
)
def test_a_condition_that_only_a_note_told_is_read_into_its_field(condition, now, more):
    """Rows written by versions without the field: what they call demonstrated is not so in any case."""
    place = {"observer": "server", "unit": "client", "adjacency": "zero_out", "delta": 1e-5, "proven": 800.0}
    old = {**place, "claimed": 26.0, "demonstrated": 55.0, "confidence": 0.95, "ceiling": 56.0}
    note = OLD_NOTE.format(protocol="'mechanism'", condition=condition, more=more)
    row = Epsilon.model_validate({**old, "notes": ["Claim violated.", note]})
    assert (row.condition, row.demonstrated_on_condition, row.ceiling_on_condition) == (now, 55.0, 56.0)
    assert row.demonstrated is row.ceiling is None and row.claimed == 26.0
    assert Epsilon.model_validate(row.model_dump()) == row
    counted = Epsilon.model_validate({**old, "notes": [note.replace("by gdp", "by clopper-pearson")]})
    assert (counted.demonstrated, counted.condition) == (55.0, "")


def test_a_verdict_says_no_more_than_the_rows_beside_it(make_results, tmp_path):
    """Old results call a claim refuted by a number that holds on a condition. Read today, verdict and table agree; a
    verdict on rows that keep their meaning stays as it was written.
    """
    folder = make_results(tmp_path, n=2)
    path = folder / "results.json"
    content = json.loads(path.read_text())
    place = {"observer": "server", "unit": "client", "adjacency": "zero_out", "delta": 1e-5, "proven": 800.0}
    note = OLD_NOTE.format(protocol="'mechanism'", condition="the mechanism is Gaussian-shaped", more="")
    old = {
        **place,
        "asked": False,
        "claimed": 26.0,
        "demonstrated": 55.0,
        "confidence": 0.95,
        "ceiling": 56.0,
        "notes": [note],
    }
    severe = {
        "level": "severe",
        "proof": "weak",
        "measured": True,
        "attacked": False,
        "sentences": ["The claim of this setup is refuted.", "55 was demonstrated.", "Stop."],
    }
    path.write_text(json.dumps({**content, "attacks": [], "epsilon": [old], "verdict": severe}))
    judged = Results.read(folder).verdict
    assert judged.level == "high" and "refuted if the noise is Gaussian" in judged.sentences[0]
    counted = {**old, "notes": [note.replace("by gdp", "by clopper-pearson")]}
    path.write_text(json.dumps({**content, "attacks": [], "epsilon": [counted], "verdict": severe}))
    assert Results.read(folder).verdict.level == "severe"
    assert list(Results.read(folder).verdict.sentences) == severe["sentences"]


def test_gates_tell_a_bound_from_one_on_a_condition(make_results, tmp_path):
    """A gate on `demonstrated` fails by what holds in any case alone."""
    results = Results.read(make_results(tmp_path, n=2))
    more = {"condition": "the mechanism is Gaussian-shaped", "demonstrated_on_condition": 55.0}
    results = results.having(epsilon=(results.epsilon[0].having(demonstrated=8.6, **more),))
    assert not outcome(parse_gate("demonstrated > 9"), results).failed
    assert outcome(parse_gate("demonstrated > 8"), results).failed
    assert outcome(parse_gate("demonstrated_on_condition > 54"), results).failed


def test_a_changed_copy_is_checked(make_results, tmp_path):
    with pytest.raises(ValueError, match="lower limit first"):
        Results.read(make_results(tmp_path, n=2)).attacks[0].having(intervals={"psnr": (2.0, 1.0)})


@pytest.mark.parametrize(("old", "proven", "proof"), [("low", 159.0, "weak"), ("none shown", 7.3, "proven")])
def test_a_verdict_of_before_proofs_is_read_by_the_rows_beside_it(make_results, row, tmp_path, old, proven, proof):
    """One level stood for both answers; "low" beside a proven 159 read as if it were safe."""
    folder = make_results(tmp_path, n=6, quality=0.0, noise_std=0.3, epsilon=[row(proven=proven)])
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    content["verdict"] = {"level": old, "sentences": ["a", "b", "c"]}
    (folder / "results.json").write_text(json.dumps(content), encoding="utf-8")
    read = Results.read(folder).verdict
    assert (read.level, read.proof, read.proven, read.measured, read.attacked) == (
        "none found",
        proof,
        proven,
        True,
        True,
    )
    assert read.sentences[0].startswith("No attack got more than its control")


def test_results_of_before_asked_are_judged_by_the_row_that_the_config_asks_about(make_results, row, tmp_path):
    """A proof for records was the verdict on a config that asks about clients (a review's ask.toml)."""
    rows = [row(proven=0.5), row(unit="client", proven=285.0)]
    for table, proof in (({"unit": "client"}, "weak"), ({"unit": "record"}, "proven"), ({}, "weak"), ("?", "weak")):
        folder = make_results(
            tmp_path / f"{table}"[:12], n=2, quality=0.0, epsilon=rows, setup={"config": {"audit": table}}
        )
        content = json.loads((folder / "results.json").read_text())
        content["verdict"] = {**content["verdict"], "level": "none found", "proof": "proven", "sentences": ["", "", ""]}
        for entry in content["epsilon"]:
            entry.pop("asked", None)
        (folder / "results.json").write_text(json.dumps(content))
        assert Results.read(folder).verdict.proof == proof
        new = make_results(
            tmp_path / f"new {table}"[:12],
            n=2,
            quality=0.0,
            epsilon=[{**entry, "asked": entry["unit"] == "client"} for entry in rows],
            setup={"digest": content["setup"]["digest"], "config": {"audit": table}},
        )
        for order in ([folder, new], [new, folder]):
            assert read_settings(order)[0].results.verdict.proof == "weak"
