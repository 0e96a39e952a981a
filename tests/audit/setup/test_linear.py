"""A setup grows with the rounds and not with their square; and what its graph of versions says is what plain lists of
all inherited releases say, in every observer's row, for a star, a leader and gossip.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven import rows as epsilon
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import Auditor, check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import Setup
from dpfl_audit.audit.setup.ledger import Ledger, LedgerMessage, release_row
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.terms import Observer

SCHEMES: dict[str, dict[str, Any]] = {
    "star": {"name": "ldp", "clip": 1.0, "sigma": 1.0, "participants": 3},
    "star with a noisy server": {"name": "cdp", "participants": 3},
    "star of two noises": {"name": "naafl"},
    "star of private medians": {"name": "lcdp"},
    "leader": {"name": "anonymous-leader", "train_share": 1.0},
    "gossip": {"name": "anonymous-gossip", "neighbours": 2, "train_share": 1.0},
    "leader of some": {"name": "anonymous-leader"},
    "gossip of some": {"name": "anonymous-gossip", "neighbours": 2},
}
EVERY = pytest.mark.parametrize("scheme", SCHEMES)


def raw_config(scheme: str, rounds: int) -> dict[str, Any]:
    return {
        "data": {"name": "digits", "clients": 6, "samples_per_client": 10},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
        "scheme": {**SCHEMES[scheme], "rounds": rounds},
        "capture": {"clients": [0], "auxiliary": 5},
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Callable[[str, int], Path]:
    home = tmp_path_factory.mktemp("linear")

    @cache
    def of(scheme: str, rounds: int) -> Path:
        config = parse_config(raw_config(scheme, rounds))
        return capture.train(build(config, home), home / f"{scheme}-{rounds}")

    return of


def ledger_of(folder: Path) -> Ledger:
    ledger = check_setup(folder)[1].ledger
    assert ledger is not None
    return ledger


def flat(ledger: Ledger, observer: Observer | None = None) -> Ledger:
    """The same ledger with every inherited release listed in every message, as an observer sees it, by plain recursion:
    slow and obvious.
    """

    def behind(version: str) -> set[str]:
        model = ledger.models[version]
        return set(model.seen_by(observer)).union(*(behind(parent) for parent in model.parents))

    def all_of(message: LedgerMessage) -> tuple[str, ...]:
        return tuple(sorted(set(message.releases).union(*(behind(version) for version in message.inherits))))

    messages = {i: replace(m, releases=all_of(m), inherits=()) for i, m in ledger.messages.items()}
    return Ledger(ledger.releases, messages, {}, ledger.observers, published_key=ledger.published_key)


def observers(ledger: Ledger) -> list[Observer]:
    return [*ledger.default_observers, Observer("uplink"), Observer("uplink", 1), Observer("uplink", 2)]


def assert_costs(plain: Ledger, ledger: Ledger, who: list[Observer]) -> None:
    """Every observer's ε is that of plain lists. These know nothing of sums, so who sees sums alone may cost less; nor
    which of a message's releases are its own, so who catches some uploads may, too.
    """
    for one, other in zip(epsilon.rows(plain, None, 1e-5, who), epsilon.rows(ledger, None, 1e-5, who), strict=True):
        observer = Observer.parse(one.observer)
        if observer.sees_merged_only or observer.catches is not None:
            assert other.proven <= one.proven
        else:
            of_the_ledger = {"ledger": "", "proof": ""}
            assert {**other.model_dump(), **of_the_ledger} == {**one.model_dump(), **of_the_ledger}


@pytest.mark.few(2)
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if not name.endswith("of some")])  # whose number varies
def test_four_times_the_rounds_are_four_times_the_bytes(scheme, trained):
    """The auditor's files and the list of messages, with equally many messages in every round."""

    def size(rounds: int) -> int:
        folder = trained(scheme, rounds)
        return sum(p.stat().st_size for p in (*(folder / "auditor").iterdir(), folder / "messages.jsonl"))

    assert 3.5 < size(32) / size(8) < 4.2


@pytest.mark.few(4)
@EVERY
def test_what_is_seen_and_every_epsilon_are_those_of_plain_lists(scheme, trained):
    ledger = ledger_of(trained(scheme, 8))
    who = observers(ledger)
    for observer in who:
        assert ledger.seen_by(observer) == flat(ledger, observer).seen_by(observer)
    assert_costs(flat(ledger), ledger, who)


@EVERY
def test_clients_that_are_alike_are_planned_with_the_releases_training_gives_each(scheme, trained):
    """Messages and versions are the same; releases have the same facts, under names of their own. Only where nothing
    can be proven, a private median among them, do numbers follow the values that are sent.
    """
    ledger = ledger_of(trained(scheme, 8))
    planned = planned_ledger(build(parse_config(raw_config(scheme, 8)), Path()))
    notes = {i for i, m in ledger.messages.items() if m.receivers == (m.sender,)}

    def sent(whose: Ledger) -> dict[str, LedgerMessage]:
        return {i: replace(m, captured=False, releases=()) for i, m in whose.messages.items() if i not in notes}

    def facts(whose: Ledger, i: str) -> list[dict[str, Any]]:
        revealed = whose.revealed([whose.messages[i]])
        rows = [{**release_row(r), "id": "", "parents": len(r.parents)} for r in revealed]
        unknown = {"noise_std": None, "bound_norm": None, "earlier": None, "rounding": None}
        rows = [{**row, **unknown} if row["problem"] else row for row in rows]
        return sorted(rows, key=lambda r: (r["round"], r["subjects"], r["mechanism"], r["problem"]))

    assert sent(ledger) == sent(planned) and planned.models.keys() <= ledger.models.keys()
    assert len(planned.releases) == len(ledger.releases)
    assert all(facts(planned, i) == facts(ledger, i) for i in planned.messages)


@pytest.mark.few(3)
@EVERY
def test_an_interrupted_run_keeps_its_lineage(scheme, trained, tmp_path):
    class Stop(Exception):
        pass

    def stop(done: int, total: int, words: str) -> None:
        if done == 5:
            raise Stop

    def train(progress=None) -> Path:
        return capture.train(build(parse_config(raw_config(scheme, 8)), tmp_path), tmp_path / "s", progress=progress)

    with pytest.raises(Stop):
        train(stop)
    folder, whole = train(), trained(scheme, 8)
    for path in sorted((whole / "auditor").iterdir()):
        assert (folder / "auditor" / path.name).read_bytes() == path.read_bytes()
    sealed = json.loads((whole / "setup.json").read_text())["files"]
    assert json.loads((folder / "setup.json").read_text())["files"] == sealed


def test_the_state_of_a_killed_run_does_not_grow_with_the_releases(tmp_path):
    """From round 8 to round 32 only the public history grows, by two numbers a round."""
    sizes: dict[int, int] = {}
    state = tmp_path / "s" / ".work" / "state.safetensors"

    def measure(done: int, total: int, words: str) -> None:
        sizes[done] = state.stat().st_size if done else 0

    capture.train(build(parse_config(raw_config("gossip", 32)), tmp_path), tmp_path / "s", progress=measure)
    assert sizes[31] - sizes[8] < 23 * 60


@EVERY
def test_the_attackers_files_name_no_release_and_no_version(scheme, trained):
    """A version's id would link the messages of one anonymous party from round to round."""
    folder = trained(scheme, 8)
    ledger = ledger_of(folder)
    secret = ledger.releases.keys() | ledger.models.keys()
    files = [p for p in folder.rglob("*") if p.suffix in (".json", ".jsonl", ".csv") and p.parent.name != "auditor"]
    assert len(files) > 5 and not any(name in path.read_text() for path in files for name in secret)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_text(""), "which models.jsonl lacks"),
        (lambda path: path.write_text("\n".join(reversed(path.read_text().splitlines()))), "no line before it has"),
        (lambda path: path.write_text(path.read_text().replace('"releases": ["', '"releases": ["0', 1)), "releases.0"),
        (lambda path: path.write_text(path.read_text() + "\n"), "changed after training"),
    ],
)
def test_damaged_versions_are_one_sentence(harm, words, trained, tmp_path):
    shutil.copytree(trained("gossip", 8), tmp_path / "s")
    harm(tmp_path / "s" / "auditor" / "models.jsonl")
    with pytest.raises(BadInput, match=words) as error:
        check_setup(tmp_path / "s")
    assert "\n" not in str(error.value)


def test_nothing_leads_from_the_attackers_half_to_the_auditors(trained):
    setup, auditor = check_setup(trained("star", 8))
    assert isinstance(auditor, Auditor) and auditor.truth is not None and auditor.ledger is not None
    assert not {"truth", "ledger", "edited", "auditor"} & set(dir(Setup))
    assert not any(value is auditor or value is auditor.truth for value in vars(setup).values())
