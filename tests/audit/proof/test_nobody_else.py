"""Ten attempts to make a proven number that nothing proves. Each is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from command import call
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proof.certificate import Premise, ProofQuestion, Proven, Unproven, prove
from dpfl_audit.audit.proof.recheck import recheck_rows
from dpfl_audit.audit.proven.numbers import Numbers, number_rows
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.proven.together import together
from dpfl_audit.audit.proven.views import Views
from dpfl_audit.audit.results.format import Epsilon, Results
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.key import PUBLISHED
from dpfl_audit.audit.setup.ledger import Ledger, release_of, release_row
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.releases import GaussianLaw, Release
from dpfl_audit.defenses.terms import ADJACENCIES, UNITS, Observer
from stated import marked, proven_otherwise

QUESTION = ProofQuestion(Observer("server"), "client", "zero_out", 1e-5)
RAW = {
    "data": {"name": "digits", "clients": 3, "samples_per_client": 5},
    "model": {"name": "linear"},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
    "scheme": {"name": "local-gaussian", "noise_multiplier": 4.0, "clip": 1.0, "rounds": 2},
}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proof") / "setup"
    train(build(parse_config(RAW), Path()), folder, key="1" * 64)
    return folder


@pytest.fixture
def ledger(setup: Path) -> Ledger:
    found = Auditor(open_setup(setup)).ledger
    assert found is not None
    return found


@pytest.fixture
def proof(ledger: Ledger) -> Proven:
    made = prove(Views(ledger), QUESTION)
    assert isinstance(made, Proven) and 0 < made.epsilon < inf
    return made


def test_a_proof_says_of_whom_by_what_and_of_which_facts(proof: Proven, ledger: Ledger) -> None:
    assert (proof.question, proof.method, proof.ledger) == (QUESTION, "closed form", ledger.digest)
    assert proof.premises == {Premise.SECRET_KEY, Premise.NOTHING_ELSE_PUBLISHED}
    louder = {i: release_of({**release_row(r), "noise_std": 9.0}) for i, r in ledger.releases.items()}
    assert replace(ledger, releases=louder).digest != ledger.digest


def test_what_all_rows_of_a_table_decide_is_a_premise_beside_epsilon(tmp_path: Path) -> None:
    """Planned and trained alike, and part of what a stored proof is compared with."""
    rows = [f"{20 + i % 50},{'ab'[i % 2]},{i % 2}" for i in range(120)]
    (tmp_path / "own.csv").write_text("\n".join(["age,ward,outcome", *rows]))
    data = {"name": "csv", "root": str(tmp_path / "own.csv"), "target": "outcome", "clients": 2}
    local = {"optimiser": "sgd", "lr": 0.1, "batch_size": 8}
    config = {**RAW, "data": {**data, "samples_per_client": 20}, "model": {"name": "logistic"}, "local": local}
    experiment = build(parse_config(config), Path())
    train(experiment, tmp_path / "setup", key="1" * 64)
    trained = Auditor(open_setup(tmp_path / "setup")).ledger
    assert trained is not None
    for ledger in (trained, planned_ledger(experiment)):
        made = prove(Views(ledger), QUESTION)
        assert isinstance(made, Proven) and Premise.COLUMNS_KNOWN in made.premises
        assert replace(ledger, columns_known=False).digest != ledger.digest


def test_1_a_proof_is_not_built_by_hand(proof: Proven) -> None:
    made: Callable[..., Proven] = Proven
    facts = (QUESTION, 0.1, "closed form", frozenset(), proof.ledger, proof.price)
    with pytest.raises(TypeError, match="maker"):
        made(*facts)
    with pytest.raises(TypeError, match="made by `prove`"):
        made(*facts, maker=object())


def test_2_a_proof_is_not_rewritten(proof: Proven) -> None:
    with pytest.raises(ValueError, match="maker"):
        replace(proof, epsilon=0.1)


def test_3_nor_its_number_set(proof: Proven) -> None:
    with pytest.raises(AttributeError):
        proof.epsilon = 0.1  # type: ignore[misc]


def test_4_a_release_is_not_rewritten(ledger: Ledger) -> None:
    release = next(iter(ledger.releases.values()))
    with pytest.raises(ValueError, match="maker"):
        replace(release, law=GaussianLaw(100.0))
    for maker in ("emit", "declare", object()):
        with pytest.raises(TypeError, match="`declare`"):
            replace(release, law=GaussianLaw(100.0), maker=maker)


def test_5_nor_made_by_anybody() -> None:
    facts = {"id": "a", "round": 0, "law": GaussianLaw(9.0), "bound_norm": 1.0, "bound_order": 2, "bound_of": "client"}
    with pytest.raises(TypeError, match="`declare`"):
        Release(**facts, records=1, subjects=frozenset({0}), maker="me")  # type: ignore[arg-type]


def test_6_a_ratio_in_releases_jsonl_is_no_fact(setup: Path, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(setup, tmp_path / "setup")
    path = copy / "auditor" / "releases.jsonl"
    rows = [json.loads(line) | {"ratio": 0.1} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match="ratio"):
        table(copy)


def test_7_a_row_is_not_given_another_number(proof: Proven, setup: Path) -> None:
    row = table(setup, observers=["server"], unit="client", adjacency="zero_out").rows[0]
    assert row.proven == proof.epsilon and row.having(asked=True).proven == proof.epsilon
    for change in ({"proven": 1.0}, {"mu": 0.1}, {"delta": 0.1}, {"observer": "model"}, {"ledger": "0" * 32}):
        with pytest.raises(TypeError, match="belongs to a proof"):
            row.having(**change)


def test_8_an_unknown_field_is_not_read_from_results(make_results: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_results(tmp_path / "results", "a")
    path = folder / "results.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "proven_epsilon": 0.1}))
    with pytest.raises(BadInput, match="proven_epsilon"):
        Results.read(folder)


def test_9_a_stored_proof_beside_another_ledger_is_none(setup: Path, ledger: Ledger) -> None:
    row = table(setup, observers=["server"], unit="client", adjacency="zero_out").rows[0]
    assert recheck_rows([row], Views(ledger)) == []
    louder = {i: release_of({**release_row(r), "noise_std": 9.0}) for i, r in ledger.releases.items()}
    (wrong,) = recheck_rows([row], Views(replace(ledger, releases=louder)))
    assert "another ledger" in wrong


def test_10_a_stored_number_that_nothing_proves_is_refused(setup: Path, ledger: Ledger) -> None:
    row = table(setup, observers=["server"], unit="client", adjacency="zero_out").rows[0]
    smaller = 0.9 * (row.proven or 0.0)
    for written in ({**row.model_dump(), "proven": smaller}, {**row.model_dump(), "proof": ""}):
        with pytest.raises(ValueError, match="made, with its mark"):
            Epsilon.model_validate(written)
    (wrong,) = recheck_rows([proven_otherwise(row, proven=smaller)], Views(ledger))
    assert "below" in wrong


EDITS: dict[str, Callable[[dict], None]] = {
    "a smaller number": lambda content: content["epsilon"][0].update(proven=0.5),
    "a row of nobody's": lambda content: content["epsilon"].append(
        {"observer": "model", "unit": "client", "adjacency": "zero_out", "delta": 1e-5, "proven": 0.5}
    ),
    "other premises": lambda content: content["epsilon"][0].update(premises=["any_key"]),
    "another verdict": lambda content: content["verdict"].update(proof="proven", proven=0.5),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("edit", EDITS)
def test_no_command_believes_a_number_that_was_typed_into_results(
    edit: str, setup: Path, make_results: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [row.model_dump() for row in table(setup, observers=["server"]).rows]
    results = make_results(tmp_path / "results", "a", n=2, noise_std=0.1, epsilon=rows, setup={"noise_key": "secret"})
    page, card = tmp_path / "page.html", tmp_path / "card.md"
    calls = (
        ("report", results, "-o", page),
        ("report", results, "--card", card),
        ("diff", results, results),
        ("check", setup, "--results", results),
    )
    assert [call(*words, "--quiet") for words in calls] == [0, 0, 0, 0]
    page.unlink()
    card.unlink()
    content = json.loads((results / "results.json").read_text())
    EDITS[edit](content)
    (results / "results.json").write_text(json.dumps(content))
    assert [call(*words, "--quiet") for words in calls] == [2, 2, 2, 2]
    assert not page.exists() and not card.exists()


def test_check_refuses_a_stored_number_and_takes_the_right_one(
    setup: Path, make_results: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [row.model_dump() for row in table(setup, observers=["server"]).rows]
    results = make_results(tmp_path / "results", "a", epsilon=rows, setup={"noise_key": "secret"})
    assert call("check", setup, "--results", results, "--quiet") == 0
    path = results / "results.json"
    content = json.loads(path.read_text())
    content["epsilon"] = [marked({**row, "proven": 0.8 * row["proven"]}) for row in content["epsilon"]]
    content["verdict"] |= {"proof": "none", "proven": None}
    path.write_text(json.dumps(content))
    assert call("check", setup, "--results", results, "--quiet") == 2


@pytest.mark.parametrize("part", [{"noise_key": "secret"}, {"noise_key": "published", "recorded": "Flower"}])
def test_check_refuses_another_key_and_other_declarations(
    part: dict[str, str], make_results: Callable[..., Path], tmp_path: Path
) -> None:
    """Results that were edited to "secret" were whole, beside a setup whose key is published."""
    train(build(parse_config(RAW), Path()), tmp_path / "setup", key=PUBLISHED)
    rows = [row.model_dump() for row in table(tmp_path / "setup", observers=["server"]).rows]
    assert all("published_key" in row["premises"] and "secret_key" not in row["premises"] for row in rows)
    for setup, code in (({"noise_key": "published"}, 0), (part, 2)):
        results = make_results(tmp_path / str(code), "a", epsilon=rows, setup={"noise_key": "published"})
        content = json.loads((results / "results.json").read_text())
        content["setup"] |= setup
        (results / "results.json").write_text(json.dumps(content))
        assert call("check", tmp_path / "setup", "--results", results, "--quiet") == code


def test_another_in_a_clients_place_has_as_many_records(setup: Path, ledger: Ledger) -> None:
    """Counts of 1, 100, 100 that became 1, 10000, 100 cost 24.05 beside a printed 9.94, by the weights of the mean."""
    views = Views(ledger)
    bare = number_rows(Numbers(1.0, 2.0), None, 1e-5, UNITS, ADJACENCIES)
    for rows in (table(setup).rows, bare, together([setup, setup]).rows):
        resting = {(row.unit, row.adjacency) for row in rows if Premise.COUNTS_STAY.label in row.premises}
        assert resting == {("client", "replace_one")} and len(rows) >= len(UNITS) * len(ADJACENCIES)
    assert not recheck_rows(table(setup, observers=["server"]).rows, views)


def test_what_cannot_be_proven_is_no_proof() -> None:
    raw = {**RAW, "scheme": {"name": "fedavg", "rounds": 1}}
    from dpfl_audit.audit.setup.planned import planned_ledger

    made = prove(Views(planned_ledger(build(parse_config(raw), Path()))), QUESTION)
    assert isinstance(made, Unproven) and "without noise" in made.reasons[0]
