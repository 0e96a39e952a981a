"""What is planned in place of what happened: the worst path of a schedule that follows the test loss, and all rounds of
training that diverged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path

import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon, gaussian_multiplier
from dpfl_audit.audit.proven import rows as epsilon
from dpfl_audit.audit.proven.rows import setup_rows
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.run import RunOptions, opened
from dpfl_audit.audit.run.pricing import priced
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.planned import UNPLANNED, planned_ledger, priced_ledger
from dpfl_audit.defenses.schedule import FixedRounds, Geometric, RoundPlan, reads_history
from dpfl_audit.defenses.terms import Observer

DELTA = 1e-3
GEOMETRIC = {"rounds": 30, "tau": 5, "clip": 1.0, "epsilon": 1.0, "delta": DELTA, "ratio": 0.9, "shorten": 0.5}


def experiment(**scheme):
    """geo.toml of the review: 5 clients of 2 digits."""
    raw = {
        "name": "geo",
        "seed": 0,
        "data": {"name": "digits", "clients": 5, "samples_per_client": 2},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.2},
        "scheme": {"name": "geometric", **GEOMETRIC, **scheme},
        "audit": {"delta": DELTA, "unit": "client", "adjacency": "zero_out", "observer": "server"},
    }
    return build(parse_config(raw), Path())


def proven(ledger, observer="server"):
    rows = epsilon.rows(ledger, None, DELTA, [Observer.parse(observer)], ["client"], ["zero_out"])
    return rows[0].proven


def path_cost(made, rng, members) -> float:
    """ε of one path of losses, with the noise that the schedule gives it, over the rounds that somebody is in."""
    schedule = made.scheme.schedule
    multiplier = made.scheme.client[1].noise_multiplier / 2  # over n = 2 records
    spent, losses, loss, share = 0.0, [], 100.0, rng.random()
    while (plan := schedule.plan(len(losses), {"test_loss": losses})) is not None:
        if len(losses) in members:
            spent += (multiplier * plan.noise) ** -2
        loss -= float(rng.random() < share)
        losses.append(loss)
    return gaussian_epsilon(1 / sqrt(spent), DELTA) if spent else 0.0


def rounds_of(made) -> list[set[int]]:
    """The rounds each client is in, of all that can be."""
    fixed = replace(made, scheme=replace(made.scheme, schedule=FixedRounds(made.parameters.rounds)))
    uploads = planned_ledger(fixed).uploads
    return [{m.round for m in uploads.get(client, ())} for client in range(5)]


def test_golden_of_the_review():
    """Paths cost .170 to .646 there; every observer is priced the worst, an eavesdropper of one upload too."""
    ledger = planned_ledger(experiment())
    for observer in ("server", "downlink", "model", "uplink", "uplink(1)"):
        assert proven(ledger, observer) == pytest.approx(0.6460030876413557, rel=1e-6)


@pytest.mark.parametrize("scheme", [{}, {"shorten": 0.8}, {"ratio": 1.05, "shorten": 0.9}, {"rounds": 9, "ratio": 0.6}])
def test_no_path_costs_more_than_what_is_proven(scheme):
    made = experiment(**scheme)
    worst = proven(planned_ledger(made))
    taken = [path_cost(made, random.Random(seed), range(30)) for seed in range(200)]
    assert max(taken) <= worst * (1 + 1e-9) and min(taken) < worst


@pytest.mark.parametrize("shorten", [0.5, 0.9])
def test_by_lot_the_worst_path_is_that_of_the_rounds_a_client_is_in(shorten):
    made = experiment(participants=2, shorten=shorten, rounds=12)
    worst = proven(planned_ledger(made))
    taken = [path_cost(made, random.Random(seed), own) for own in rounds_of(made) for seed in range(60)]
    assert 0.9 * worst < max(taken) <= worst * (1 + 1e-9)


@dataclass(frozen=True)
class Unforeseen:
    """A schedule that follows the loss, and says nothing of its paths."""

    def plan(self, round, history):
        losses = history.get("test_loss", ())
        return RoundPlan() if round < 3 and not (losses and losses[-1] > 100) else None


def test_a_schedule_that_does_not_know_its_paths_is_not_priced():
    made = experiment()
    blind = replace(made, scheme=replace(made.scheme, schedule=Unforeseen()))
    assert proven(planned_ledger(blind)) == inf
    ledger = planned_ledger(blind)
    assert {r.problem for r in ledger.count(ledger.releases.values())} == {UNPLANNED}


def test_which_schedules_read_the_history():
    def first(rounds, done):
        return 1.0

    assert reads_history(Geometric(5, 0.9, first, 0.5)) and reads_history(Unforeseen())
    assert not reads_history(Geometric(5, 0.9, first)) and not reads_history(FixedRounds(5))


def test_a_trained_setup_is_priced_as_planned_and_what_happened_is_called_ex_post(tmp_path):
    """The realised path of the review's runs cost .27 to .37; the mechanism costs .646."""
    made = experiment()
    train(made, tmp_path / "setup")
    auditor = Auditor(open_setup(tmp_path / "setup"))
    taken = proven(auditor.ledger)
    assert taken < 0.64
    (row,) = setup_rows(auditor, DELTA, [Observer("server")], ["client"], ["zero_out"])
    assert row.proven == proven(priced_ledger(auditor)) == pytest.approx(0.6460030876413557, rel=1e-6)
    assert any(f"{taken:.4g} (ex post" in note for note in row.notes)
    asked = {"unit": "client", "adjacency": "zero_out", "observers": ("server",), "target_epsilon": 0.3}
    found = table(tmp_path / "setup", **asked)
    assert found.rows == (row.having(asked=True),)
    factor = gaussian_multiplier(0.3, DELTA) / gaussian_multiplier(0.6460030876413557, DELTA)
    assert found.targets[0].noise_factor == pytest.approx(factor, rel=1e-6)
    audited = priced(opened(tmp_path / "setup", RunOptions()), None)
    (shown,) = [r for r in audited.rows if (r.observer, r.unit, r.adjacency) == ("server", "client", "zero_out")]
    assert (shown.proven, shown.notes) == (row.proven, row.notes)


def test_training_that_diverged_is_priced_for_all_its_rounds(tmp_path):
    """That it ended was decided by what was released: ten rounds were promised."""
    raw = {
        "data": {"name": "digits", "clients": 2, "samples_per_client": 1},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 1},
        "scheme": {"name": "ldp", "rounds": 10, "clip": 3e34, "sigma": 4.0},
        "audit": {"delta": DELTA},
    }
    made = build(parse_config(raw), Path())
    train(made, tmp_path / "setup")
    auditor = Auditor(open_setup(tmp_path / "setup"))
    assert auditor.setup.manifest.status == "diverged" and auditor.setup.manifest.rounds < 10
    (row,) = setup_rows(auditor, DELTA, [Observer("server")], ["client"], ["zero_out"])
    assert row.proven == proven(planned_ledger(made)) > proven(auditor.ledger)
    assert row.releases == 10 and "ex post" in row.notes[0]


def test_a_plan_that_overflows_is_refused_not_priced_at_nothing():
    """A review: two-valued noise near float32's end stopped the rehearsal in round 0, and the model's row said 0."""
    raw = {
        "data": {"name": "digits", "clients": 4, "samples_per_client": 2},
        "scheme": {"name": "ldp-fl", "rounds": 3, "radius": 3e38, "epsilon": 1.0},
    }
    with pytest.raises(BadInput, match="round 0 is too large for 32-bit numbers"):
        planned_ledger(build(parse_config(raw), Path()))
