"""`labels = "inferred"` end to end: the method in what is assumed, and label accuracy beside its chance, by round."""

from __future__ import annotations

from pathlib import Path

from dpfl_audit.audit.report.facts import metric_rows
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build

RAW = {
    "seed": 4,
    "data": {"name": "digits", "clients": 2, "samples_per_client": 6},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 6},
    "scheme": {"name": "fedavg", "rounds": 2, "share": "gradient"},
    "capture": {"clients": [0]},
    "attack": {"inversion": {"iterations": 2, "objective": "cosine", "labels": "inferred", "manners": ["one-round"]}},
}


def test_label_accuracy_is_in_the_results_of_every_round(tmp_path: Path) -> None:
    setup = train(build(parse_config(RAW), tmp_path), tmp_path / "setup")
    options = RunOptions(attacks=("inversion",), device="cpu", pixels_only=True)
    found = run(setup, tmp_path / "inferred", options).attacks
    assert [entry.round for entry in found] == [0, 1]
    for entry in found:
        assert any(said.startswith("labels inferred: counts by the classifier") for said in entry.assumed)
        chance, accuracy = entry.value("label_chance"), entry.value("label_accuracy")
        assert chance is not None and accuracy is not None and chance <= accuracy <= 1
        rows = {row["name"]: row for row in metric_rows(entry, [])}
        assert "label_accuracy" in rows and "label_chance" not in rows
