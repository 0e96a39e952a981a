"""`audit run --explain`: of every method of an inversion, whether it ran and why not, as results.json has it."""

from __future__ import annotations

import json
from pathlib import Path

from command import called
from dpfl_audit.attacks.inversion.plan import PLAN
from dpfl_audit.audit.results.format import AttackResult, Method, Results
from dpfl_audit.audit.results.methods import explained_methods
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build

NAMES = [strategy.name for strategy in PLAN]
CONFIG = {
    "data": {"name": "digits", "clients": 2, "samples_per_client": 4},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 4},
    "scheme": {"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 0.01, "rounds": 1, "share": "gradient"},
    "capture": {"clients": [0], "auxiliary": 9},  # too few for reference classifiers
    "attack": {"inversion": {"iterations": 2, "objective": "euclidean", "manners": ["one-round"]}},
}


def test_the_terminal_says_what_the_results_hold(tmp_path: Path, capsys) -> None:
    train(build(parse_config(CONFIG), tmp_path), tmp_path / "setup")
    asked = ("run", tmp_path / "setup", "-o", tmp_path / "r", "--attack", "inversion", "--device", "cpu")
    code, plain, err = called(capsys, *asked)
    assert code == 0, err
    code, out, _ = called(capsys, *asked, "--explain")  # of results that are there
    lines = [line for line in out.splitlines() if line not in plain.splitlines()]
    results = json.loads((tmp_path / "r" / "results.json").read_text())
    (entry,) = results["attacks"]
    why = {method["name"]: method["why_not"] for method in entry["methods"]}
    assert code == 0 and list(why) == NAMES
    ran = {name for name, clause in why.items() if not clause}
    assert {"first layer", "search"} <= ran and not {"softened search", "features", "simulated training"} & ran
    table = {line[2:].split("  ")[0].strip(): line.split("  ")[-1].strip() for line in lines[1:]}
    assert table == {name: f"no: {clause}" if clause else "ran" for name, clause in why.items()}
    assert len(lines) == 1 + len(NAMES) and "euclidean" in lines[0]


def entry(**methods: str) -> AttackResult:
    made = tuple(Method(name=name, why_not=why) for name, why in methods.items())
    return AttackResult(attack="inversion", observer="server", manner="one-round", methods=made)


def test_where_messages_differ_each_clause_says_of_how_many() -> None:
    alike = {"search": "", "polish": "kinks"}
    results = Results.model_construct(attacks=(entry(**alike), entry(**alike), entry(search="x", polish="kinks")))
    _, search, polish = explained_methods(results)
    shares = [part.split(": ", 1) for part in search.split("  ")[-1].split("; ")]
    assert [(share.split()[0], clause) for share, clause in shares] == [("2", "ran"), ("1", "no: x")]
    assert polish.split("  ")[-1] == "no: kinks"
    assert explained_methods(Results.model_construct(attacks=(entry(),))) == ()
