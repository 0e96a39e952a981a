"""Clients who tell an observer all they know: whose draws, noise and models it then has, and what that costs."""

from __future__ import annotations

from math import comb, exp, sqrt
from pathlib import Path

import numpy as np
import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proof.theorems.cohort import shares
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_delta, gaussian_epsilon
from dpfl_audit.audit.proven.accounting import Exposure
from dpfl_audit.audit.proven.numbers import Numbers, number_rows
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.ledger import Ledger
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.releases import Sampling
from dpfl_audit.defenses.terms import KINDS, Adjacency, Observer, ObserverKind
from scipy.optimize import brentq
from scipy.stats import hypergeom
from stated import stated
from tiers import quick

DELTA = 1e-5


def ledger(clients: int, scheme: dict[str, object]) -> Ledger:
    raw = {
        "data": {"name": "digits", "clients": clients, "samples_per_client": 4},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 4},
        "scheme": scheme,
    }
    return planned_ledger(build(parse_config(raw), Path()), any_key=True)


def proven(what: Ledger, observer: str, adjacency: Adjacency = "zero_out", honest: float = 1.0) -> float:
    value = rows(what, None, DELTA, [Observer.parse(observer)], ["client"], [adjacency], honest)[0].proven
    assert value is not None
    return value


def in_some_rounds(multiplier: float, rounds: int, rate: float) -> float:
    """ε of who is in each round with this chance, and is seen to be: Σ_k P(k) δ_k(ε) = δ."""

    def excess(epsilon: float) -> float:
        chances = (comb(rounds, k) * rate**k * (1 - rate) ** (rounds - k) for k in range(1, rounds + 1))
        deltas = (gaussian_delta(multiplier=multiplier / sqrt(k), epsilon=epsilon) for k in range(1, rounds + 1))
        return sum(p * d for p, d in zip(chances, deltas)) - DELTA

    return float(brentq(excess, 0, 400))


@pytest.mark.full
def test_another_client_knows_its_own_draw() -> None:
    """One of two a round: "downlink" was said to cover a client's view of the other, who knows when it is its turn."""
    scheme = {"name": "central-gaussian", "sampling": "fixed", "participants": 1, "rounds": 10, "noise_multiplier": 1.0}
    (row,) = rows(ledger(2, scheme), None, DELTA, [Observer("downlink")], ["client"], ["replace_one"])
    truth = in_some_rounds(0.5, 10, 0.5)
    (limit,) = [float(note.split()[-3]) for note in row.notes if note.startswith("Another client")]
    assert row.proven is not None and row.proven < 0.9 * truth < truth <= limit < 1.01 * truth
    bare = Numbers(1.0, 1.0, rounds=10, clients=2, cohort=1, noise_on="sum")
    (of_numbers,) = number_rows(bare, None, DELTA, ["client"], ["replace_one"])
    assert [note for note in of_numbers.notes if note in row.notes and str(limit) in note]


@pytest.mark.parametrize(("rounds", "multiplier"), quick([(20, 1.0), (5, 4.0)], 1))
def test_all_others_know_when_the_last_one_was_drawn(rounds: int, multiplier: float) -> None:
    """One of ten a round: 16.11 was printed for whoever asked, and the nine others together have 28.73."""
    scheme = {"name": "central-gaussian", "sampling": "fixed", "participants": 1, "rounds": rounds}
    drawn = ledger(10, {**scheme, "noise_multiplier": multiplier})
    exact = in_some_rounds(multiplier / 2, rounds, 0.1)
    assert proven(drawn, "downlink+9", "replace_one") == pytest.approx(exact, rel=2e-3)
    assert proven(drawn, "downlink+9", "replace_one") >= exact
    assert proven(drawn, "downlink", "replace_one", honest=0.0) == proven(drawn, "downlink+9", "replace_one")
    few = [proven(drawn, f"downlink+{k}", "replace_one") for k in (1, 3, 6)]
    assert sorted(few) == few and proven(drawn, "downlink", "replace_one") < few[0] < few[-1] < exact


def test_what_is_known_of_a_cohort_against_all_its_outcomes() -> None:
    """Three of six, two of whom collude: the exact divergence of (how many of the two were drawn, what is seen)."""
    sigma, line = 1.5, np.linspace(-14, 14, 28_001)

    def density(at: float) -> np.ndarray:
        return np.exp(-((line - at) ** 2) / 2) / sqrt(2 * np.pi) * (line[1] - line[0])

    worlds = []
    for own in (1.0, -1.0):  # the others, who do not collude, are at −1: the worst for this pair
        parts = []
        for j in range(3):
            left, rate = 3 - j, (3 - j) / 4
            there = density((own - (left - 1)) / sigma) if left else density(0.0)
            parts.append(hypergeom.pmf(j, 6, 2, 3) * (rate * there + (1 - rate) * density(-left / sigma)))
        worlds.append(np.concatenate(parts))
    one = stated(sigma, subjects=frozenset(range(6)), sampling=Sampling("without_replacement", 6, 3))
    found = Exposure.of([one], range(6), coalition=2).worst(unit="client", adjacency="replace_one", delta=DELTA).epsilon
    p, q = worlds
    assert np.maximum(p - exp(found) * q, 0).sum() <= DELTA * (1 + 1e-5)  # of the integration
    assert np.maximum(p - exp(found * 0.98) * q, 0).sum() > DELTA


@pytest.mark.parametrize(("population", "cohort", "known"), [(10, 4, 3), (7, 7, 2), (30, 12, 29), (5, 1, 0)])
def test_the_shares_are_hypergeometric(population: int, cohort: int, known: int) -> None:
    made = shares(population, cohort, known)
    assert sum(chance for chance, _, _ in made) == pytest.approx(1)
    for chance, left, of in made:
        assert of == population - known and 0 <= left <= of
        assert chance == pytest.approx(hypergeom.pmf(cohort - left, population, known, cohort))


def test_many_outcomes_are_merged_upwards() -> None:
    made = shares(10_000, 3_000, 5_000)
    assert len(made) <= 42 and sum(chance for chance, _, _ in made) == pytest.approx(1)
    mean = sum(chance * left for chance, left, _ in made)
    assert 1_500 <= mean <= 1_520


@pytest.mark.parametrize(("clients", "cohort", "honest", "left"), [(21, 5, 0.5, 1), (21, 5, 0.9, 3), (5, 5, 0.5, 3)])
def test_honest_is_a_share_of_all_clients(clients: int, cohort: int, honest: float, left: int) -> None:
    """Ten of twenty may be all four others of a cohort of five: 2.34 was printed, as of two honest ones among them."""
    scheme = {"name": "local-gaussian", "noise_multiplier": 1.0, "clip": 1.0, "rounds": 1, "participants": cohort}
    found = proven(ledger(clients, scheme), "aggregate", honest=honest)
    assert found == pytest.approx(gaussian_epsilon(sqrt(left), DELTA), rel=1e-6)
    assert proven(ledger(clients, scheme), f"aggregate+{cohort - left}") == pytest.approx(found)


def test_who_is_sent_the_models_shows_them() -> None:
    """Towards one who has the last model alone, a client that colludes adds all the others."""
    scheme = {"name": "central-gaussian", "noise_multiplier": 3.0, "clip": 1.0, "rounds": 4}
    three, caught = ledger(3, scheme), ledger(3, {**scheme, "name": "local-gaussian"})
    assert proven(three, "model+1") == proven(three, "downlink+1") == proven(three, "downlink")
    assert proven(caught, "uplink(1)+1") == proven(caught, "uplink") > proven(caught, "uplink(1)")


def test_who_collude_hand_on_every_model_whatever_the_observer_sees(monkeypatch) -> None:
    """A kind that is not in any list but `KINDS`; that the first model alone is seen would prove ε = 0."""
    monkeypatch.setitem(KINDS, "late", ObserverKind("a late one", "the final model", broadcasts="last"))
    what = ledger(4, {"name": "central-gaussian", "clip": 1.0, "noise_multiplier": 1.0, "rounds": 4})
    least = proven(what, "downlink+1")
    assert all(proven(what, f"{name}+1") >= least > 0 for name in ("late", "model", "server", "aggregate"))
    assert not Observer("late").sees_every_round and Observer("server").sees_every_round


def test_peers_who_collude_have_each_others_mail() -> None:
    gossip = ledger(4, {"name": "anonymous-gossip", "rounds": 6, "neighbours": 2})
    assert proven(gossip, "peer") <= proven(gossip, "peer+1")


def test_more_than_there_are_are_refused() -> None:
    with pytest.raises(BadInput, match="2 clients can collude"):
        proven(ledger(3, {"name": "central-gaussian", "rounds": 1}), "downlink+3")
    with pytest.raises(ValueError, match="--colluding"):
        parse_config({"audit": {"observer": "server+1"}})
