"""results.json: its schema is on file, its frame has a row a metric, ∞ goes to disk and back."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import dpfl_audit
import pandas
import pytest
from dpfl_audit.audit.files import json_text
from dpfl_audit.audit.results.format import AttackResult, Epsilon, Metrics, Results, Verdict, schema
from dpfl_audit.audit.results.gates import outcome, parse_gate
from stated import proven_otherwise

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
    row = proven_otherwise(results.epsilon[0], proven=inf, multiplier=inf)
    attack = results.attacks[0].having(metrics=Metrics.of({"epsilon": inf}), settings={"influence": inf})
    (folder / "results.json").write_text(results.having(epsilon=(row,), attacks=(attack,)).text(), encoding="utf-8")
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert content["epsilon"][0]["proven"] == "inf" == content["attacks"][0]["settings"]["influence"]
    read = Results.read(folder)
    assert read.epsilon[0].proven == inf == read.attacks[0].value("epsilon")


def test_gates_tell_a_bound_from_one_on_a_condition(make_results, tmp_path):
    """A gate on `demonstrated` fails by what holds in any case alone."""
    results = Results.read(make_results(tmp_path, n=2))
    more = {"condition": "the noise is Gaussian", "demonstrated_on_condition": 55.0}
    results = results.having(epsilon=(results.epsilon[0].having(demonstrated=8.6, **more),))
    assert not outcome(parse_gate("demonstrated > 9"), results).failed
    assert outcome(parse_gate("demonstrated > 8"), results).failed
    assert outcome(parse_gate("demonstrated_on_condition > 54"), results).failed


def test_a_changed_copy_is_checked(make_results, tmp_path):
    with pytest.raises(ValueError, match="lower limit first"):
        Results.read(make_results(tmp_path, n=2)).attacks[0].having(intervals={"psnr": (2.0, 1.0)})
