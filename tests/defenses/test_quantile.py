"""Adaptive clipping: the goldens of TF-Privacy's and pfl's own tests, the path of C, and what a round costs."""

from __future__ import annotations

from math import exp, log, sqrt
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.accounting import worst
from dpfl_audit.audit.proven.target import build
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.worlds.federation.case import CanaryCase, Question
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.defenses.federation import run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.presets.adaptive_clip import AdaptiveClipParameters
from dpfl_audit.defenses.schedule import RoundPlan
from dpfl_audit.defenses.scheme import Context
from dpfl_audit.defenses.steps.quantile import CountWithin, PerturbQuantile, QuantileClip, update_multiplier
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import SERVER, Message, Parcel, Wire

DELTA = 1e-5


def context(memory: dict, noise: float = 0.0, round: int = 0, told: dict | None = None) -> Context:
    return Context(
        seed=7,
        round=round,
        party=SERVER,
        plan=RoundPlan(noise=noise),
        layout=Layout(("w",), ((1,),)),
        num_examples=1,
        subjects=frozenset({0, 1}),
        start=torch.zeros(1),
        senders=2,
        hub=True,
        memory=memory,
        told=told or {},
    )


def received(values: list[float], start: float, here: Context) -> Parcel:
    """The sum of clipped values, their bits counted."""
    clipped = [QuantileClip(start)(Parcel(torch.tensor([v], dtype=torch.float64)), here) for v in values]
    CountWithin()(clipped, here)
    return Parcel(sum(p.vector for p in clipped), clipped[0].bound, clip_norm=clipped[0].clip_norm)


def run(values: list[float], start: float, quantile: float, lr: float, rounds: int) -> tuple[list[float], list[float]]:
    """The norms C_1, C_2, … and the sums of the clipped values, without noise."""
    noise = PerturbQuantile(1.0, 1.0, len(values), quantile, lr)
    norms, sums, told = [], [], {}
    for t in range(rounds):
        here = context({}, round=t, told=told)
        made = noise(received(values, start, here), here)
        sums.append(float(made.vector))
        told = made.side
        norms.append(told["clip_norm"])
    return norms, sums


@pytest.mark.parametrize(
    ("values", "start", "quantile", "norms", "sums"),
    [
        ([5, -2.5], 16.0, 0.0, [8, 4, 2.828, 2, 2], [2.5, 2.5, 1.5, 0.328, 0]),
        ([-1.5, 3], 0.5, 1.0, [1, 2, 2.828, 4, 4], [0, 0, 0.5, 1.328, 1.5]),
    ],
)
def test_the_goldens_of_tf_privacy(values, start, quantile, norms, sums):
    """quantile_adaptive_clip_sum_query_test.py, geometric updates with rate ln 2, without noise."""
    got = run(values, start, quantile, log(2), 5)
    assert got[0] == pytest.approx(norms, abs=1e-3) and got[1] == pytest.approx(sums, abs=1e-3)


def test_the_goldens_of_pfl():
    """Noise .6 in all and 1 on its indicator of ± 1 (σ_c = 2σ_b): .75; C 3, η .2, γ .2 at b̃ = .5."""
    assert update_multiplier(0.6, 0.5) == pytest.approx(0.75, abs=1e-12)
    norms, _ = run([1.0, 5.0], 3.0, 0.2, 0.2, 1)
    assert norms[0] == pytest.approx(2.825293600752746, rel=1e-12)


def test_where_all_are_clipped_the_norm_grows_tenfold_in_23_rounds():
    """Section 2.2: γ = .5, η = .2: e^(.1·23) = 9.97."""
    norms, _ = run([1e9, 1e9], 1.0, 0.5, 0.2, 23)
    assert norms[-1] == pytest.approx(exp(2.3), rel=1e-9)


def test_who_sends_nothing_is_not_counted_and_what_is_not_finite_counts_as_longer():
    memory: dict = {}
    sent = [QuantileClip(1.0)(Parcel(torch.tensor([v])), context({})) for v in (0.0, float("nan"), 0.5, 2.0)]
    assert [p.vector.item() for p in sent] == [0.0, 0.0, 0.5, 1.0]
    assert [p.side["within"] for p in sent] == [0.5, 0.0, 1.0, 0.0]
    CountWithin()(sent, context(memory))
    assert memory["within"] == -0.5


def test_the_count_has_the_noise_that_is_priced():
    """ln C' − ln C = −η(½ + (Σ(b − ½) + N(0, σ_b²))/m − γ): its spread over 600 rounds is ησ_b/m."""
    noise = PerturbQuantile(1.5, 3.0, 2, 0.5, 0.1)
    moves = []
    for t in range(600):
        here = context({}, noise=1.0, round=t)
        moves.append(log(noise(received([0.5, 2.0], 1.0, here), here).side["clip_norm"]))
    moves = torch.tensor(moves, dtype=torch.float64)
    assert moves.std().item() == pytest.approx(0.1 * 3.0 / 2, rel=5 / sqrt(1200))
    assert abs(moves.mean().item()) < 5 * 0.15 / sqrt(600)


def experiment(**scheme) -> Experiment:
    raw = {
        "data": {"name": "digits", "clients": 4, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10},
        "scheme": {"name": "adaptive-clip", "rounds": 3, **scheme},
    }
    return build(parse_config(raw), Path())


@pytest.mark.parametrize("count_std", [None, 2.0, 50.0])
def test_a_round_costs_what_one_gaussian_of_multiplier_z_costs(count_std):
    """Theorem 1, with whatever noise the count has; a client and, twice as far, a record."""
    ledger = planned_ledger(experiment(noise_multiplier=2.5, **({"count_std": count_std} if count_std else {})))
    seen = ledger.seen_by(Observer("downlink"))
    for unit, factor in (("client", 1), ("record", 2)):
        price = worst(seen, range(4), unit=unit, adjacency="zero_out", delta=DELTA)
        assert price.epsilon == pytest.approx(gaussian_epsilon(2.5 / factor / sqrt(3), DELTA), rel=1e-6)


def test_the_next_norm_goes_out_beside_the_model_and_a_killed_run_knows_it():
    messages: list[Message] = []
    made = experiment()
    (state,) = run_many([made.federation(Wire(messages.append))])
    sides = [m.side for m in messages if m.sender_party == SERVER]
    assert sides[0] == {} and all(set(side) == {"clip_norm"} for side in sides[1:])
    assert sides[-1]["clip_norm"] == state.models[SERVER].side["clip_norm"] != 0.1


def test_a_canary_sees_the_norm_too():
    question = Question(Observer("downlink"), "client", "zero_out", DELTA)
    case = CanaryCase.of(experiment(), CanarySettings(draws=20, rounds=1), question, 0)
    (trials,) = case.messages()
    (without, present), drawn = trials.expected(), trials.draw(1, [1, 2], True)
    assert sum(trials.sizes) == drawn.shape[1] == len(present.centre) == case.experiment.layout.dim + 1
    assert without.centre[-1] < present.centre[-1]  # a canary is longer than C, so C grows


@pytest.mark.parametrize(
    ("key", "value"), [("clip_lr", 1e6), ("noise_multiplier", 1e200), ("clip", 1e-310), ("clip", 1e308)]
)
def test_values_whose_clip_or_noise_float32_cannot_hold_are_refused(key, value):
    """e^10⁶, (10²⁰⁰)⁻² and a denormal clip ended in internal errors, or in a setup that its own check refused."""
    with pytest.raises(ValueError, match=key):
        AdaptiveClipParameters(**{key: value})
