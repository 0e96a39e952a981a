"""Canaries under correlated noise: a trial is the whole sequence, decorrelated; one round after the other is wrong."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.proven.target import build
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.worlds.federation.case import CanaryCase, Question
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.audit.worlds.federation.rows import demonstrate
from dpfl_audit.audit.worlds.federation.sequence import SequenceTrials
from dpfl_audit.defenses.terms import Observer
from stated import strategy_of
from tiers import quick

DELTA = 1e-5
SETTINGS = CanarySettings(draws=120, places=1)


def experiment(name: str = "band-mf", **scheme) -> Experiment:
    """Six clients of 12 records of 10 features by 2 classes, each in every third round of nine."""
    raw = {
        "data": {"name": "breast_cancer", "clients": 6, "samples_per_client": 12},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 12},
        "scheme": {"name": name, "rounds": 9, "participants": 2, "noise_multiplier": 1.0, **scheme},
    }
    return build(parse_config(raw), Path())


def case(made: Experiment, claimed: float | None = None) -> CanaryCase:
    return CanaryCase.of(made, SETTINGS, Question(Observer("downlink"), "client", "zero_out", DELTA, claimed), 0)


def test_a_trial_is_all_rounds_decorrelated():
    """The worlds are √k standard deviations apart, C's columns being of norm 1, and the noise of either is white."""
    found = case(experiment())
    (trials,) = found.messages()
    assert isinstance(trials, SequenceTrials) and sorted(trials.hubs) == [0, 3, 6] and trials.rounds == 9
    (chain,) = found.federation.scheme.server
    assert torch.allclose(trials.whitening, torch.from_numpy(strategy_of(chain.correlated.strategy)), atol=1e-9)
    without, present = trials.expected()
    apart = (present.centre - without.centre).norm() / chain.noise_std
    assert float(apart) == pytest.approx(1.0, rel=1e-4)  # μ = 1/σ: noise of std σ·√k·C/m, moved by C/m in k rounds
    noise = ((trials.draw(0, range(60), True) - without.centre) / chain.noise_std).view(60, 9, -1)
    assert float(noise.std()) == pytest.approx(1.0, rel=0.03)
    rounds = torch.corrcoef(noise.transpose(0, 1).flatten(1))
    assert float((rounds - torch.eye(9)).abs().max()) < 5 / sqrt(noise[:, 0].numel())


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "scheme"),
    quick([("band-mf", {}), ("dp-ftrl", {"noise_multiplier": 2.0}), ("dp-ftrl", {"honaker": False})], 0),
)
def test_it_is_consistent_with_what_is_proven_and_refutes_half_of_its_mu(name, scheme):
    """By the ledger's μ: half of it is refuted, and what is proven is not."""
    made = experiment(name, rounds=6, **scheme)
    (row,) = rows(planned_ledger(made), None, DELTA, [Observer("downlink")], ["client"], ["zero_out"])
    mu = 1 / row.multiplier
    question = Question(Observer("downlink"), "client", "zero_out", DELTA, row.proven, row.proven)
    shown = demonstrate(made, SETTINGS, question).row
    assert shown is not None and shown.notes[0].startswith("Consistent")
    assert gaussian_epsilon(2 / mu, DELTA) < shown.demonstrated_on_condition <= row.proven


def test_the_first_round_alone_tells_less_than_the_sequence():
    """A score of each round by itself either counts noise twice or gives it away: such protocols are refused."""
    question = Question(Observer("downlink"), "client", "zero_out", DELTA)
    coins = demonstrate(experiment(), replace(SETTINGS, protocols=("rounds",)), question)
    assert coins.row is None and "no round" in coins.not_measured


def test_a_server_that_sees_uploads_is_audited_round_by_round():
    found = CanaryCase.of(experiment(), SETTINGS, Question(Observer("server"), "client", "zero_out", DELTA), 0)
    assert not found.whole and not any(isinstance(t, SequenceTrials) for t in found.messages())
