"""What the third hostile review found: each was proven too small, or stood beside a false sentence."""

from __future__ import annotations

from math import exp
from pathlib import Path

import numpy as np
import pytest
from dpfl_audit.audit.proof.certificate import (
    ProofQuestion,
    prove,
    prove_together,
    row_of,
    together_without_secret_draws,
)
from dpfl_audit.audit.proof.recheck import recheck_rows
from dpfl_audit.audit.proven.accounting import proven
from dpfl_audit.audit.proven.views import Views
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.ledger import Ledger
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.releases import GaussianLaw, ResponseLaw, Sampling
from dpfl_audit.defenses.terms import Observer
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.stats import norm
from stated import proven_otherwise, stated
from tiers import quick


def planned(scheme: dict, clients: int = 40):
    tables = {
        "data": {"name": "digits", "clients": clients, "samples_per_client": 4},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 4},
        "capture": {"clients": [0]},
    }
    return planned_ledger(build(parse_config({**tables, "scheme": scheme}), Path()), any_key=True)


@pytest.mark.parametrize(
    ("epsilon", "answers", "rate", "std", "rounds", "delta"),
    quick([(2.0, 5, 0.05, 0.7, 10, 1e-2), (6.0, 2, 0.05, 0.5, 20, 0.1), (4.0, 2, 0.2, 0.8, 4, 0.1)], 2),
)
def test_responses_and_drawn_gaussians_compose_in_one_order(epsilon, answers, rate, std, rounds, delta):
    """An oracle of its own: losses of both, rounded down, in either order of the worlds."""
    releases = [stated(ResponseLaw(1.0, epsilon, (), True), 1.0, steps=answers)]
    lot = Sampling("poisson", 100, 100 * rate)
    releases += [stated(GaussianLaw(std), 1.0, round=1 + i, sampling=lot) for i in range(rounds)]
    price = proven(releases, subject=0, unit="client", adjacency="zero_out", delta=delta)
    grid, x = 2e-4, np.linspace(-12 * std - 1, 12 * std + 2, 200_001)
    here = np.diff((1 - rate) * norm.cdf(x / std) + rate * norm.cdf((x - 1) / std))
    there = np.diff(norm.cdf(x / std))
    inside = (here > 1e-30) & (there > 1e-300)
    lies = 1 / (exp(epsilon) + 1)
    pairs = [((1 - lies, lies), (0.5, 0.5)), (here[inside], there[inside])]
    best = 0.0
    for order in (1, -1):
        first, masses = 0, np.array([1.0])
        for pair, times in zip(pairs, (answers, rounds)):
            a, b = (np.asarray(part) for part in pair[::order])
            losses = np.floor(np.log(a / b) / grid).astype(int)
            counts = np.bincount(losses - losses.min(), weights=a)
            for _ in range(times):
                masses, first = np.maximum(fftconvolve(masses, counts), 0), first + losses.min()
        at = (first + np.arange(len(masses))) * grid

        def divergence(value: float, masses=masses, at=at) -> float:
            return float((masses * np.maximum(0, -np.expm1(np.minimum(value - at, 0)))).sum()) - 1e-10

        best = max(best, brentq(lambda value: divergence(value) - delta, 0, 60))
    assert 0 < best <= price.epsilon


def test_another_clients_responses_are_not_against_fair_coins():
    """Whoever catches uploads may catch another client's, whose value the subject turns from any to any other."""
    ledger = planned({"name": "ldp-fl", "epsilon": 1.0, "rounds": 40}, clients=4)
    ask = {unit: Views(ledger) for unit in ("zero_out", "replace_one")}
    prices = {
        adjacency: max(
            sight.price(unit="client", adjacency=adjacency, delta=1e-5).epsilon
            for sight in views.of(Observer.parse("uplink(1)"), "client", adjacency)
        )
        for adjacency, views in ask.items()
    }
    assert prices["zero_out"] == pytest.approx(prices["replace_one"], rel=1e-9)


@pytest.mark.parametrize(("ranged", "fair"), [("fixed", True), ("adaptive", False)])
def test_a_range_of_the_model_is_about_zero_for_no_model(ranged, fair):
    """A plan's stand-in model is zero everywhere; those that train are not, and then no coin of theirs is fair."""
    ledger = planned({"name": "ldp-fl", "epsilon": 1.0, "rounds": 2, "range": ranged}, clients=4)
    laws = [release.law for release in ledger.releases.values() if isinstance(release.law, ResponseLaw)]
    assert laws and {law.about_zero for law in laws} == {fair}


def test_a_population_that_cohorts_are_drawn_from_counts_whole():
    """Of a recording that saw 60 of 1,000 clients all others may collude."""
    lot = Sampling("without_replacement", 1000, 10)
    release = stated(1.0, 1.0, sampling=lot)
    ledger = Ledger(releases={release.id: release}, messages={}, models={})
    assert ledger.count_of_clients == 1000


def test_trainings_together_say_what_their_draws_hide():
    ledger = planned(
        {
            "name": "central-gaussian",
            "clip": 1.0,
            "noise_multiplier": 1.0,
            "rounds": 5,
            "participants": 4,
            "sampling": "poisson",
        }
    )
    question = ProofQuestion(Observer.parse("downlink"), "client", "zero_out", 1e-5)
    views = [Views(ledger), Views(ledger)]
    openly, hidden = together_without_secret_draws(views, question), prove_together(views, question).epsilon
    assert openly > 1.5 * hidden > 0


EDITS = {
    "mu": {"mu": 1e-4},
    "openly": {"proven_without_sampling": 1e-4},
    "premises": {"premises": ()},
    "proven": {"proven": 1e-2},
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_stored_proof_is_rechecked_in_all_that_it_says(edit):
    ledger = planned({"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 5.0, "rounds": 2}, clients=3)
    views = Views(ledger)
    row = row_of(prove(views, ProofQuestion(Observer.parse("server"), "client", "zero_out", 1e-5)))
    assert recheck_rows([row], views) == []
    assert len(recheck_rows([proven_otherwise(row, **EDITS[edit])], views)) == 1
