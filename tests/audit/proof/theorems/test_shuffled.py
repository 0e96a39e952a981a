"""Answers of which only the sum is seen: never below the divergence of any data, below the published closed form."""

from __future__ import annotations

from itertools import product
from math import exp, log, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proof.theorems.composition import epsilon
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.response import response_epsilon
from dpfl_audit.audit.proof.theorems.shuffled import shuffled_profile, shuffled_renyi
from dpfl_audit.audit.proven.accounting import proven
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.aggregate import Mean, weighted_sum
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.schedule import RoundPlan
from dpfl_audit.defenses.scheme import Context
from dpfl_audit.defenses.steps.perturb import summed_responses
from dpfl_audit.defenses.steps.respond import ClipRange, Respond
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import Parcel

DELTA = 1e-5
D = 5000
LAYOUT = Layout(("a",), ((D,),))


def ups(chances: list[float]) -> np.ndarray:
    """How many of independent answers are up: the masses of 0, 1, …"""
    whole = np.ones(1)
    for chance in chances:
        whole = np.convolve(whole, [1 - chance, chance])
    return whole


@pytest.mark.parametrize("eps", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("senders", [1, 2, 3, 5])
def test_no_data_of_the_others_tells_more(eps, senders):
    """Brute force: the others answer with any chances of a grid, the subject with the two extreme ones."""
    lie = 1 / (exp(eps) + 1)
    levels = np.linspace(0, eps, 7)
    said = shuffled_profile(eps, senders, levels)
    orders = np.array([1.5, 4.0, 20.0])
    renyi = shuffled_renyi(eps, senders, orders)
    worst = np.zeros_like(levels)
    for others in product([lie, 0.5 - (0.5 - lie) / 3, 1 - lie], repeat=senders - 1):
        p, q = ups([*others, 1 - lie]), ups([*others, lie])
        for a, b in ((p, q), (q, p)):
            worst = np.maximum(worst, [np.maximum(a - exp(level) * b, 0).sum() for level in levels])
            exact = np.log((a ** orders[:, None] * b ** (1 - orders[:, None])).sum(1)) / (orders - 1)
            assert (exact <= renyi + 1e-12).all()
    assert (worst <= said + 1e-12).all()
    assert worst[0] >= 0.6 * said[0]  # it is no empty bound


@pytest.mark.few(1)
@pytest.mark.parametrize(("eps", "senders"), [(0.5, 1000), (1.0, 1000), (2.0, 1000)])
def test_it_is_below_the_published_closed_form_and_above_what_data_reach(eps, senders):
    """Feldman, McMillan and Talwar 2021, Theorem 3.1:
    log(1 + (e^ε₀ − 1)/(e^ε₀ + 1)·(8√(e^ε₀ log(4/δ)/n) + 8e^ε₀/n)).
    """
    draw = Draw("response", eps, senders=senders)
    value, accountant = epsilon(((draw, 1),), 1e-6)
    published = log(
        1 + (exp(eps) - 1) / (exp(eps) + 1) * (8 * sqrt(exp(eps) * log(4e6) / senders) + 8 * exp(eps) / senders)
    )
    assert accountant in ("PLD", "RDP") and value < min(published, eps)
    lie = 1 / (exp(eps) + 1)
    reached = 0.0
    for up in (0, senders // 2, senders - 1):
        others = [1 - lie] * up + [lie] * (senders - 1 - up)
        p, q = ups([*others, 1 - lie]), ups([*others, lie])
        grid = np.linspace(0, eps, 400)
        deltas = np.array([np.maximum(p - exp(level) * q, 0).sum() for level in grid])
        reached = max(reached, float(grid[np.argmax(deltas <= 1e-6)]))
    assert 0.5 * value < reached <= value + eps / 400


def test_many_numbers_compose_and_never_cost_more_than_alone():
    alone = response_epsilon(1.0, 500, DELTA)
    values = [epsilon(((Draw("response", 1.0, senders=n), 500),), DELTA)[0] for n in (1, 2, 10, 100, 1000)]
    assert values[0] == alone and all(a >= b for a, b in zip(values, values[1:]))
    assert values[3] < 0.15 * alone
    assert epsilon(((Draw("response", 1.0, senders=5000), 500),), DELTA)[0] == pytest.approx(values[4], rel=1e-3)


def test_no_sender_is_a_randomised_response():
    assert shuffled_profile(1.0, 1, np.array([0.0, 0.5]))[1] == pytest.approx((exp(1) - exp(0.5)) / (exp(1) + 1))


def sent(party: int, eps: float = 1.0, value: float = 0.01) -> Parcel:
    within = ClipRange(0.013, 0.075)
    context = Context(3, 0, party, RoundPlan(), LAYOUT, 10, frozenset({party}), torch.zeros(D))
    parcel = Parcel(torch.full((D,), value, dtype=torch.float64))
    for step in (within, Respond(within, eps)):
        parcel = step(parcel, context)
    return parcel


HUB = Context(3, 0, -1, RoundPlan(), LAYOUT, 10, frozenset(range(9)), torch.zeros(D), hub=True)


def test_a_sum_is_a_function_of_how_many_are_up():
    """To the last bit, whoever they are: two values a number, and one sum a count."""
    parcels = [sent(i) for i in range(7)]
    high = max(float(p.vector.max()) for p in parcels)
    assert all(len(p.vector.unique()) == 2 for p in parcels)
    count = torch.stack([p.vector == high for p in parcels]).sum(0)
    for order in (parcels, parcels[::-1]):
        merged = weighted_sum(order, Mean().weights([1] * 7)).vector
        assert all(len(merged[count == k].unique()) == 1 for k in count.unique())
    assert len(count.unique()) > 5


def priced(parcels: list[Parcel], counts: tuple[int, ...] | None = None) -> float | None:
    releases = summed_responses(parcels, counts or (1,) * len(parcels), HUB)
    if releases is None:
        return None
    return proven(releases, subject=0, unit="client", adjacency="replace_one", delta=DELTA).epsilon


def test_only_answers_alike_are_shuffled():
    one = proven(sent(0).releases, subject=0, unit="client", adjacency="replace_one", delta=DELTA).epsilon
    both = priced([sent(0), sent(1)])
    assert priced([sent(0)]) == one and both is not None and both < one
    assert priced([sent(0), sent(1)], (1, 2)) is None
    assert priced([sent(0), sent(1, eps=0.5)]) is None
    assert priced([sent(0), Parcel(torch.zeros(D), releases=sent(1).releases)]) is None


def test_a_scheme_of_answers_costs_less_towards_a_server_that_sees_sums(tmp_path: Path):
    raw = {
        "data": {"name": "digits", "clients": 40, "samples_per_client": 10},
        "model": {"name": "logistic"},
        "scheme": {"name": "ldp-fl", "rounds": 2, "epsilon": 0.5},
    }
    ledger = planned_ledger(build(parse_config(raw), tmp_path), any_key=True)

    def of(observer: str, honest: float = 1.0) -> float:
        return rows(ledger, None, DELTA, [Observer(observer)], ["client"], ["replace_one"], honest)[0].proven

    assert of("server") == pytest.approx(response_epsilon(0.5, 2 * 650, DELTA), rel=1e-6)
    assert of("aggregate") < 0.2 * of("server")
    assert of("aggregate") < of("aggregate", 0.5) < of("aggregate", 0.0)
    assert of("aggregate", 0.0) == pytest.approx(of("server"), rel=1e-6)
    assert of("downlink") == pytest.approx(of("aggregate"))
