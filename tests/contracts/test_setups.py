"""One contract for the setups of all schemes: what was captured is what went over the wire, it replays byte for byte,
is attacked and priced by the code of `audit run` and `audit epsilon`, and a run that diverges keeps what was finite.
Star, gossip and leader; a new preset is in by itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import inf, isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from command import call, content
from configs import toml
from dpfl_audit.attacks import ATTACKS
from dpfl_audit.audit import run
from dpfl_audit.audit.files import write_lines, write_tensors
from dpfl_audit.audit.proven import rows as epsilon
from dpfl_audit.audit.proven import table as epsilon_table
from dpfl_audit.audit.report import facts
from dpfl_audit.audit.results.format import Epsilon, Results
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import Auditor, check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.folder import Setup
from dpfl_audit.audit.setup.ledger import Ledger, LedgerMessage, release_of, release_row
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses import engine as engines
from dpfl_audit.defenses.federation import RoundRecord, run_many, start_state
from dpfl_audit.defenses.presets import PRESETS
from dpfl_audit.defenses.releases import Release
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import SERVER, Lineage, Message, Wire, ancestry
from tiers import but

pytestmark = pytest.mark.usefixtures("without_closeness")
ROUNDS, CLIENTS, CAPTURED = 2, 5, [0, 1]
PARAMETERS: dict[str, dict[str, Any]] = {  # where the defaults want more clients or more records
    "fednore2": {"sigma": 1.0, "lam": 2.0},
    "fednore12": {"sigma": 1.0, "lam": 2.0},
    "anonymous-gossip": {"neighbours": 4, "train_share": 1.0},
    "anonymous-leader": {"train_share": 1.0},
}
SERVERLESS = {"anonymous-gossip": "peer", "anonymous-leader": "leader"}  # and who attacks them here
TOPOLOGIES = ["ldp", "anonymous-gossip", "anonymous-leader"]
POISSON = {"dpsgd", "adap-dpfl", "dp-dyns"}  # batches drawn in secret
EVERY = pytest.mark.parametrize("name", PRESETS)
# No server, shared gradients, batches by coins, noise of the server or of both.
TELLING = {"ldp", "cdp", "lcdp", "naafl", "privatedl", "dp-dyns", "anonymous-gossip", "anonymous-leader"}
ATTACKED = pytest.mark.parametrize("name", but(PRESETS, *({*PRESETS} - TELLING)))
# The price of a record's batches is long, and that of many Laplace steps.
PRICED = pytest.mark.parametrize("name", but(PRESETS, "adap-dpfl", "dpsgd", "iteration-laplace"))
OPTIONS = run.RunOptions(attacks=("inversion", "membership-cosine"), device="cpu", pixels_only=True)


def raw_config(name: str, **local: Any) -> dict[str, Any]:
    scheme = {**PRESETS[name].example, "rounds": ROUNDS, **PARAMETERS.get(name, {})}
    return {
        "seed": 3,  # with anonymous-leader: three parties are peer, leader of round 0 and leader of round 1
        "data": {"name": "digits", "clients": CLIENTS, "samples_per_client": 12},
        "model": {"name": "mlp", "options": {"widths": [8]}},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 4, **local},
        "scheme": {"name": name, **scheme},
        "capture": {"clients": CAPTURED, "auxiliary": 12, "candidates": 40},
        "audit": {"observer": SERVERLESS.get(name, "server")},
        "attack": {"inversion": {"objective": "cosine", "iterations": 2}},
    }


@dataclass(frozen=True, eq=False)
class Trained:
    """A setup on disk, and the same federation run straight off: its messages, each round's models, its records."""

    experiment: Experiment
    folder: Path
    messages: list[Message]
    starts: list[dict[int, torch.Tensor]]
    figures: list[dict[str, float]]

    @property
    def setup(self) -> Setup:
        return check_setup(self.folder)[0]

    @property
    def ledger(self) -> Ledger:
        ledger = Auditor(self.setup).ledger
        assert ledger is not None
        return ledger


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Callable[[str], Trained]:
    home = tmp_path_factory.mktemp("setups")

    @cache
    def of(name: str) -> Trained:
        experiment = build(parse_config(raw_config(name)), home)
        messages: list[Message] = []
        starts = [{p: m.vector.clone() for p, m in start_state(experiment.federation()).models.items()}]
        figures: list[dict[str, float]] = []

        def note(_: int, record: RoundRecord) -> None:
            figures.append(dict(record.figures))
            starts.append({p: m.vector.clone() for p, m in record.state.models.items()})

        run_many([experiment.federation(Wire(messages.append))], on_round=note)
        return Trained(experiment, capture.train(experiment, home / name), messages, starts, figures)

    return of


@pytest.fixture(scope="module")
def results(trained, tmp_path_factory) -> Callable[[str], tuple[dict[str, Any], Path]]:
    """`audit run` with an inversion and a membership attack on captured messages, by the config's observer."""
    home = tmp_path_factory.mktemp("results")
    os.environ["TORCH_HOME"] = str(home / "no-weights-here")  # a developer's own cache must not change the result

    @cache
    def of(name: str) -> tuple[dict[str, Any], Path]:
        return run.run(trained(name).folder, home / name, OPTIONS), home / name

    return of


def wanted(trained: Trained) -> dict[str, Message]:
    """The messages `[capture]` asks for: all that the server, an observer or an audited client sends or gets."""
    observers = set(trained.experiment.observer_parties.values())
    return {
        m.id: m
        for m in trained.messages
        if m.sender_party in (SERVER, *CAPTURED) or observers & set(m.receiver_parties)
    }


def revealed(value: Message | Lineage) -> list[Release]:
    """All releases behind a message or a version, by plain recursion: slow and obvious."""
    behind = value.inherits if isinstance(value, Message) else value.parents
    return [*value.releases, *(release for version in behind for release in revealed(version))]


# --- what is on disk is what was sent


@pytest.mark.few(16)
@EVERY
def test_the_captured_messages_are_those_sent_to_the_last_bit(name, trained):
    it = trained(name)
    setup, expected = it.setup, wanted(it)
    mail = {m.id: m for m in setup.messages if m.receivers != [m.sender]}
    assert mail.keys() == expected.keys() and len(setup.messages) >= 2 * ROUNDS
    for key, row in mail.items():
        sent = expected[key]
        assert torch.equal(setup.load(row), sent.vector)
        assert (row.round, row.sender, tuple(row.receivers), row.kind, row.num_examples) == (
            sent.round,
            sent.sender,
            sent.receivers,
            sent.kind,
            sent.num_examples,
        )
        assert row.side == dict(sent.side)


@pytest.mark.few(6)
@EVERY
def test_without_a_server_an_observer_has_its_own_model_of_every_round(name, trained):
    it = trained(name)
    setup, ledger = it.setup, it.ledger
    notes = {
        (ledger.messages[m.id].sender, m.round): setup.load(m) for m in setup.messages if m.receivers == [m.sender]
    }
    parties = set(it.experiment.observer_parties.values())
    assert notes.keys() == {(party, r) for party in parties for r in range(ROUNDS)}
    assert bool(parties) == (name in SERVERLESS)
    assert all(torch.equal(vector, it.starts[r][party]) for (party, r), vector in notes.items())


@EVERY
def test_the_ledger_holds_every_message_and_release_captured_or_not(name, trained):
    it = trained(name)
    ledger = it.ledger
    sent = {m.id: m for m in it.messages}
    mail = {i: m for i, m in ledger.messages.items() if m.receivers != (m.sender,)}
    assert mail.keys() == sent.keys()
    for key, row in mail.items():
        assert row == LedgerMessage.of(sent[key], it.experiment.scheme.share, captured=key in wanted(it))
        assert {r.id for r in ledger.revealed([row])} == {r.id for r in revealed(sent[key])}
    versions = ancestry(version for m in it.messages for version in m.inherits)
    sets = [revealed(m) for m in it.messages] + [version.mentioned for version in versions]
    releases = {r.id: r for some in sets for r in some}
    assert {i: asdict(r) for i, r in ledger.releases.items()} == {i: asdict(r) for i, r in releases.items()}


@EVERY
def test_the_rounds_figures_survive_the_csv(name, trained):
    it = trained(name)
    counted = it.experiment.data.test_targets.bincount()
    guess = {"majority_accuracy": int(counted.max()) / int(counted.sum())}
    hidden = {"balanced_accuracy", "test_auc"}
    rounds = [{k: v for k, v in row.items() if k not in hidden} for row in Auditor(it.setup).rounds]
    assert rounds == [{"round": float(i), **figures, **guess} for i, figures in enumerate(it.figures)]


@pytest.mark.few(12)
@EVERY
def test_the_same_seed_gives_the_same_bytes_and_saving_what_was_read_does_too(name, trained, tmp_path):
    it = trained(name)
    setup = it.setup
    before = content(it.folder)
    assert content(capture.train(it.experiment, tmp_path / "again")) == before
    assert capture.train(it.experiment, it.folder) == it.folder and content(it.folder) == before  # complete: left alone
    for path in (it.folder / "tensors").iterdir():
        rows = [m for m in setup.messages if path.stem == f"round-{m.round:04d}"]
        tensors = {f"{m.id}/{part}": value for m in rows for part, value in setup.layout.split(setup.load(m)).items()}
        write_tensors(tmp_path / path.name, tensors)
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    releases = [json.loads(line) for line in (it.folder / "auditor" / "releases.jsonl").read_text().splitlines()]
    write_lines(tmp_path / "releases.jsonl", [release_row(release_of(row)) for row in releases])
    assert (tmp_path / "releases.jsonl").read_bytes() == (it.folder / "auditor" / "releases.jsonl").read_bytes()


# --- it is attacked


@ATTACKED
def test_every_captured_upload_an_observer_sees_is_inverted_and_scored(name, trained, results):
    found, _ = results(name)
    setup = trained(name).setup
    truth = Auditor(setup).truth
    assert truth is not None
    seen = [m for m in setup.view(setup.config.audit.observer).messages if m.id in truth.messages]
    inversions = [a for a in found.attacks if a.attack == "inversion"]
    # Where noise is known, each message is tried a second time, with a fixed prior.
    first = [a for a in inversions if a.settings.get("prior") != "fixed"]
    assert seen and sum(a.manner == "one-round" for a in first) == len(seen)
    for attack in inversions:
        assert {"gray", "mean", "random"} <= set(attack.controls)
        assert attack.n == 1 or attack.intervals["psnr"]  # a Poisson batch of one record gives no interval
        assert isfinite(attack.value("psnr")) and isfinite(attack.value("attack_loss"))
        # Poisson batches leave some records out, a shared gradient is of one batch; all others train on all twelve.
        if name not in POISSON:
            batches = 4 * (1 if attack.manner == "one-round" else ROUNDS)
            assert attack.n == (batches if name == "privatedl" else 12)
        assert 0 < len(attack.pairs) <= attack.n


@ATTACKED
def test_membership_is_asked_of_the_captured_messages_and_scored(name, results):
    found, _ = results(name)
    memberships = [a for a in found.attacks if a.attack == "membership-cosine"]
    assert memberships and all(a.value("auc") is not None for a in memberships)
    for attack in memberships:
        assert 0 <= attack.value("auc") <= 1 and attack.controls["shuffled"]["auc"] == pytest.approx(0.5, abs=0.1)
        assert attack.value("n_members") > 0 and attack.value("n_nonmembers") > 0


@ATTACKED
def test_results_name_the_setup_and_its_price(name, trained, results):
    found, folder = results(name)
    manifest = trained(name).setup.manifest
    assert (found.setup.digest, found.setup.scheme, found.setup.rounds) == (manifest.digest, name, ROUNDS)
    assert found.epsilon and found.verdict.level
    assert Results.read(folder).setup.scheme == name


def test_an_unknown_number_of_examples_is_a_reason_and_not_a_crash(trained):
    """Anonymous senders do not tell how many records they have.

    Who knows no labels leaves their messages out, and what needs the number says so.
    """
    setup = trained("anonymous-gossip").setup
    view, knowledge = setup.view(Observer("peer")), setup.knowledge()
    assert {m.num_records for m in view.messages} == {0}
    inversion, *_ = ATTACKS["inversion"].make({"objective": "cosine"}, False, "cpu")
    attacked = {part.content.messages[0].id for part in inversion.parts(view, knowledge)}
    assert attacked == {m.id for m in view.messages if m.id in knowledge.labels}
    (difference,) = ATTACKS["membership-gradient-difference"].make({}, False, "cpu")
    with pytest.raises(ValueError, match="anonymous senders do not tell"):
        difference.parts(view, knowledge)


def test_a_model_that_a_leader_passes_on_is_nobodys_own_value(trained):
    """It was made of the others' updates; scoring it by the leader's own records would measure nothing."""
    setup, ledger = trained("anonymous-leader").setup, trained("anonymous-leader").ledger
    (cosine,) = ATTACKS["membership-cosine"].make({}, False, "cpu")
    passed_on = {i for i, m in ledger.messages.items() if m.kind == "weights"}
    leaders = {m.sender for m in ledger.messages.values() if m.kind == "weights" and m.receivers != (m.sender,)}
    assert len(leaders | {ledger.observers["peer"]}) == 3
    for observer in ("peer", "leader"):
        view = setup.view(Observer(observer))
        try:
            asked = {m.id for part in cosine.parts(view, setup.knowledge()) for m in part.content}
        except ValueError as error:
            assert "no uploads" in str(error)
            asked = set()
        assert asked == {m.id for m in view.messages} - passed_on


# --- it is priced


def to_eight_digits(row: Epsilon) -> dict[str, Any]:
    """Without notes. A clip that follows what was released lies elsewhere on the grid in a plan, by 1e-10 of it."""
    names = ("claimed", "proven", "proven_without_sampling", "multiplier", "mu")
    numbers = {name: getattr(row, name) for name in names}
    rounded = {k: None if v is None else float(f"{v:.8g}") for k, v in numbers.items()}
    return {**row.model_dump(exclude={"notes", "ledger", "proof"}), **rounded}  # ids of a plan's releases are its own


@PRICED
def test_audit_epsilon_gives_a_number_or_a_reason_and_the_same_before_and_after_training(name, trained):
    it = trained(name)
    rows = epsilon_table.table(it.folder).rows
    for row in rows:
        if row.proven == inf:
            assert any(note.startswith("Nothing can be proven: ") for note in row.notes)
        else:
            assert isinstance(row.proven, float) and row.proven > 0 and row.accountant
    ledger = replace(planned_ledger(it.experiment), published_key=True)  # as all of these trainings have it
    planned = epsilon.rows(ledger, it.experiment.scheme.claim, it.experiment.config.audit.delta)
    assert [to_eight_digits(row.having(asked=False)) for row in rows] == [to_eight_digits(row) for row in planned]
    asked = it.experiment.config.audit
    place = (str(asked.observer), asked.unit, asked.adjacency)
    assert [row.asked for row in rows] == [(row.observer, row.unit, row.adjacency) == place for row in rows]


@PRICED
def test_the_claim_stands_in_one_row_its_own(name, trained):
    claim = trained(name).experiment.scheme.claim
    if claim is None:
        assert name == "fedavg"
        return
    rows = epsilon_table.table(trained(name).folder, observers=(str(claim.observer),)).rows
    claimed = [(r.observer, r.unit, r.adjacency) for r in rows if r.claimed is not None]
    assert claimed == [(str(claim.observer), claim.unit, claim.adjacency)]


@pytest.mark.parametrize(
    ("name", "std"),
    [("cdp", "server_noise_std"), ("naafl", "server_noise_std"), ("lcdp", "server_noise_std"), ("ldp", None)],
)
def test_the_report_names_the_noise_the_server_adds(name, std, trained, results):
    """An upload without noise is not a scheme without noise."""
    said = {fact["name"]: fact for fact in facts.facts(Results.read(results(name)[1]))}
    assert ("server's noise_std" in said) == (std is not None)
    if std is not None:
        drawn = {
            r.noise_std
            for m in trained(name).messages
            if m.sender_party == SERVER
            for r in revealed(m)
            if r.mechanism != "none" and r.parents
        }
        shown = float(said["server's noise_std"]["value"])
        assert min(drawn) * 0.99 <= shown <= max(drawn) * 1.01 and "sends" in said["noise_std"]["note"]


# --- it diverges


def poison(patch: pytest.MonkeyPatch, rounds: int) -> None:
    """Local training is whole for so many rounds, and gives NaN from then on."""
    whole, calls = engines.ENGINES["batched"], []

    def poisoned(jobs):
        made = whole(jobs)
        calls.append(len(jobs))
        if len(calls) > rounds:
            for result in made:
                result.value.fill_(float("nan"))
        return made

    patch.setitem(engines.ENGINES, "batched", poisoned)


# What bounds a client's value makes 0 of one that is not finite; these send it as it is.
NOTHING_BOUNDS = {"fedavg", "dpsgd", "cdp", "lcdp", "privatedl"}  # a median of norms is NaN too
NOTHING_BOUNDS |= {"adap-dpfl", "fed-cdp", "fed-alpha-cdp", "dp-dyns"}  # what bounds records does so inside training


@pytest.mark.few(7)
@PRICED
def test_only_what_everybody_sees_ends_a_run(name, trained, tmp_path, monkeypatch):
    """Local training gives NaN in round 1. Where it reaches the model, that is the last round: no attack gets its
    uploads, and they count. Where a clip makes 0 of it, the run goes on: an end would tell of a client's own value.
    """
    it = trained(name)
    poison(monkeypatch, 1)
    folder = capture.train(it.experiment, tmp_path / "s")
    (found, auditor), whole = check_setup(folder), it.setup
    ledger, messages = auditor.ledger, it.ledger.messages
    assert ledger is not None and found.rounds[:1] == whole.rounds[:1]
    if name in NOTHING_BOUNDS:
        assert (found.manifest.status, found.manifest.rounds) == ("diverged", 1) and len(found.rounds) == 1
        kept = {m.id: m for m in whole.messages if m.round == 0 or (m.round == 1 and m.sender == "server")}
        assert {m.id: m for m in found.messages} == kept
        assert all(torch.equal(found.load(m), whole.load(m)) for m in kept.values())
        sent = {i for i, m in messages.items() if m.round <= 1}
        assert ledger.messages.keys() == sent
        assert all(ledger.messages[i].releases == messages[i].releases for i in sent)
    else:
        assert found.manifest.status == "complete" and found.manifest.rounds == whole.manifest.rounds
        assert ledger.messages.keys() == messages.keys()
    assert not (folder / ".work").exists()
    before = content(folder)
    assert capture.train(it.experiment, folder) == folder and content(folder) == before
    assert all(row.proven == inf or row.proven > 0 for row in epsilon_table.table(folder).rows)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["fedavg", *TOPOLOGIES])
def test_what_a_diverged_run_left_is_attacked_and_the_report_says_so(name, trained, tmp_path, monkeypatch):
    it = trained(name)  # before, or its own rounds would be the poisoned ones
    poison(monkeypatch, 1)
    folder = capture.train(it.experiment, tmp_path / "s")
    made = run.run(folder, tmp_path / "r", OPTIONS)
    if name in NOTHING_BOUNDS:
        assert made.attacks and all(a.round in (0, None) for a in made.attacks)  # None: of all rounds
        assert made.setup.status == "diverged" and any("diverged" in warning for warning in made.warnings)
    else:
        assert made.setup.status == "complete" and any("not finite" in warning for warning in made.warnings)


def test_a_huge_learning_rate_ends_with_one_sentence_and_exit_code_2(tmp_path, capsys):
    """The first round already diverges: a setup that opens, in which nothing can be proven and nothing be attacked."""
    (tmp_path / "c.toml").write_text(toml(raw_config("fedavg", lr=1e20)))
    assert call("train", tmp_path / "c.toml", "-o", tmp_path / "s") == 2
    error = capsys.readouterr().err
    assert "non-finite" in error and error.count("\n") == 1
    assert check_setup(tmp_path / "s")[0].manifest.status == "diverged"
    assert call("check", tmp_path / "s") == 0
    assert "round 0:" in capsys.readouterr().out
    assert call("epsilon", tmp_path / "s") == 0 and "∞" in capsys.readouterr().out
    for named in ([], ["--attack", "inversion"], ["--attack", "membership-loss"]):
        assert call("run", tmp_path / "s", "-o", tmp_path / "r", *named) == 2
        error = capsys.readouterr().err
        assert "round 0," in error and error.count("\n") == 1
    assert not (tmp_path / "r").exists()
