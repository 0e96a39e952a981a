"""Poisson cohorts: a coin for each client, rounds with nobody, and nothing public that hangs on how many came."""

from __future__ import annotations

import csv
from dataclasses import fields, replace
from math import sqrt
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.aggregate import FixedMean, Mean
from dpfl_audit.defenses.federation import run_many
from dpfl_audit.defenses.local import LocalTraining, poisson_batches
from dpfl_audit.defenses.participation import Poisson
from dpfl_audit.defenses.randomness import Keystream
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import SERVER, Message, Wire

ASKED = ("downlink", "client", "zero_out")


def experiment(rounds: int, participants: int = 1, clients: int = 8) -> Experiment:
    """At a rate of 1/8 of 8 clients, a third of the rounds has nobody."""
    raw = {
        "data": {"name": "digits", "clients": clients, "samples_per_client": 5},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
        "scheme": {"name": "central-gaussian", "rounds": rounds, "participants": participants, "clip": 0.5},
    }
    return build(parse_config(raw), Path())


def test_a_batch_of_coins_has_its_records_and_nothing_else():
    """Steps of batch/n: as many as an epoch has, where neither steps nor epochs are given; a short one is filled with
    −1, which is no record.
    """
    rows, training = torch.arange(10, 30), LocalTraining(batch_size=5, epochs=None)
    batches = poisson_batches(training, rows, Keystream(0, "batches"))
    assert len(batches) == 4 == len(poisson_batches(replace(training, epochs=1), rows, Keystream(0, "batches")))
    assert len(poisson_batches(replace(training, epochs=3), rows, Keystream(0, "batches"))) == 12
    taken = [row[row >= 0] for row in batches]
    assert all(set(own.tolist()) <= set(rows.tolist()) and len(own.unique()) == len(own) for own in taken)
    widths = [len(own) for own in taken]
    assert len(set(widths)) > 1 and (batches == -1).sum() == 4 * max(widths) - sum(widths)


def test_every_client_is_in_a_round_by_a_coin_of_its_own():
    """Over 4,000 rounds of 5 clients at .3: each is in 1,200, any two together in 360, within five deviations."""
    inside = torch.zeros(4000, 5)
    for round in range(4000):
        inside[round, list(Poisson(0.3).select(round, range(5), Keystream(1, "cohort", round)).members)] = 1
    assert (inside.sum(0) - 1200).abs().max() < 5 * sqrt(4000 * 0.3 * 0.7)
    together = inside.T @ inside
    assert (together[~torch.eye(5, dtype=torch.bool)] - 360).abs().max() < 5 * sqrt(4000 * 0.09 * 0.91)


def test_a_round_with_nobody_takes_place_and_shows_noise_alone():
    """What is broadcast then moves by noise of z·C/qN on every number, and by nothing else."""
    made = experiment(rounds=20)
    messages: list[Message] = []
    sizes: list[int] = []
    run_many(
        [made.federation(Wire(messages.append))], on_round=lambda _, record: sizes.append(len(record.participants))
    )
    models = [m.vector.double() for m in messages if m.sender_party == SERVER]
    empty = [after - before for before, after, n in zip(models, models[1:], sizes, strict=False) if n == 0]
    assert len(sizes) == 20 and len(models) == 21 and len(empty) >= 3
    moved = torch.cat(empty)
    assert moved.std().item() == pytest.approx(0.5, rel=5 / sqrt(2 * len(moved)))
    assert abs(moved.mean().item()) < 5 * 0.5 / sqrt(len(moved))


def moving_clip(rounds: int) -> Experiment:
    """Of 8 clients one a round, by coins; in five of 12 rounds nobody."""
    raw = {
        "seed": 1,
        "data": {"name": "digits", "clients": 8, "samples_per_client": 5},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
        "scheme": {"name": "adaptive-clip", "rounds": rounds, "participants": 1, "sampling": "poisson", "clip_lr": 1.0},
    }
    return build(parse_config(raw), Path())


def test_a_clip_that_moves_does_not_tell_a_round_with_nobody():
    """The noise of every round is that of the norm which went out before it: with the first norm's in rounds with
    nobody, whoever sees the models sees in which rounds a client was not, and amplification counts it as unseen
    (10 clients at a rate of .1, z = 1, 100 rounds: 7.04 proven, 8.92 exact).
    """
    made = moving_clip(12)
    messages: list[Message] = []
    sizes: list[int] = []
    run_many(
        [made.federation(Wire(messages.append))], on_round=lambda _, record: sizes.append(len(record.participants))
    )
    models = [m for m in messages if m.sender_party == SERVER]
    norms = [0.1, *(m.side["clip_norm"] for m in models[1:-1])]
    noises = [next(iter(m.inherits[0].releases)).noise_std for m in models[1:]]
    assert sizes.count(0) == 5
    multiplier = made.scheme.server[0].noise_multiplier
    assert noises == pytest.approx([multiplier * norm for norm in norms], rel=1e-9)


@pytest.mark.full
def test_a_training_for_which_nobody_was_drawn_costs_no_more_than_the_plan():
    made = experiment(rounds=1, clients=4)
    ledgers = (planned_ledger(replace(made, key=f"{i:064x}")) for i in range(200))
    empty = next(ledger for ledger in ledgers if not ledger.participations())
    observers = [Observer.parse(name) for name in ("server", "aggregate", "downlink", "model", "uplink", "uplink(2)")]
    planned = rows(planned_ledger(made, any_key=True), None, 1e-5, observers)
    for own, plan in zip(rows(empty, None, 1e-5, observers), planned, strict=True):
        assert own.proven <= plan.proven


@pytest.mark.parametrize(("aggregate", "problem"), [(FixedMean(1.0), ""), (Mean(), "divides by how many were drawn")])
def test_a_mean_over_those_who_came_is_not_priced_as_poisson(aggregate, problem):
    """Every coin moves its divisor; an adversary sees that (tests/audit/record/test_expected_cohort.py)."""
    made = experiment(rounds=6)
    ledger = planned_ledger(replace(made, scheme=replace(made.scheme, aggregate=aggregate)))
    noisy = [r for r in ledger.releases.values() if r.mechanism == "gaussian"]
    assert {bool(r.problem) for r in noisy} == {bool(problem)} and all(problem in r.problem for r in noisy)


def test_nothing_public_tells_how_many_came(tmp_path):
    """Every round's release has the same facts, its grid included, whoever was drawn; who was is the auditor's."""
    made = experiment(rounds=12)
    setup = open_setup(train(made, tmp_path / "setup"))
    ledger = Auditor(setup).ledger
    assert ledger is not None
    noisy = [r for r in ledger.releases.values() if r.mechanism == "gaussian"]
    others = {"id", "round", "parents"}
    facts = {tuple(getattr(r, f.name) for f in fields(r) if f.name not in others) for r in noisy}
    assert len(noisy) == 12 and len(facts) == 1
    assert {r.sampling.cohort for r in noisy if r.sampling is not None} == {1.0}
    assert "participants" not in (tmp_path / "setup" / "rounds.csv").read_text()
    rows = list(csv.DictReader((tmp_path / "setup" / "auditor" / "figures.csv").read_text().splitlines()))
    assert len({row["participants_drawn"] for row in rows}) > 1
