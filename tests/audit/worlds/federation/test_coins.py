"""Coins in a run: what one round's μ says of the very ledger a row is about never exceeds what is true of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb, exp, expm1, inf, log, log1p, nan, sqrt
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution as pld
from dpfl_audit.attacks.canary import RandomUpdate
from dpfl_audit.audit.proof.theorems.composition import epsilon as proven_epsilon
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven import rows as epsilon
from dpfl_audit.audit.proven.accounting import proven
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.two_worlds.coin_ledger import Round, composed, planned_rounds, recorded, with_a_draw
from dpfl_audit.audit.two_worlds.estimators import clopper_pearson
from dpfl_audit.audit.two_worlds.likelihood import Expected
from dpfl_audit.audit.two_worlds.sequential import BoundRule
from dpfl_audit.audit.worlds.federation.client_round import client_worlds
from dpfl_audit.audit.worlds.federation.coins import (
    CoinRun,
    Flip,
    Prolonged,
    _of_one_ratio,
    _score,
    coin_flips,
    enough_flips,
    judge_flips,
)
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.audit.worlds.federation.rows import Question, demonstrate
from dpfl_audit.defenses.releases import Release, Sampling
from dpfl_audit.defenses.schedule import FixedRounds, Geometric
from dpfl_audit.defenses.terms import Adjacency, Observer, Unit
from scipy.stats import beta, binom
from stated import stated
from tiers import quick

DELTA = 1e-5
WORLDS = 250


def experiment(scheme: dict, local: dict | None = None, clients: int = 3, seed: int = 0) -> Experiment:
    """Clients of 20 records of 30 features and a linear model, full batches."""
    return build(
        parse_config(
            {
                "seed": seed,
                "data": {"name": "breast_cancer", "clients": clients, "samples_per_client": 20},
                "model": {"name": "logistic"},
                "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 20, **(local or {})},
                "scheme": {"rounds": 1, **scheme},
                "capture": {"auxiliary": 10},
            }
        ),
        Path("."),
    )


def row_of(made: Experiment, observer: str, unit: Unit, adjacency: Adjacency) -> dict:
    who = (Observer.parse(observer),)
    return epsilon.rows(planned_ledger(made), made.scheme.claim, DELTA, who, (unit,), (adjacency,))[0]


def by_coins(made: Experiment, observer: str, unit: str, adjacency: str, rounds: int, claim: bool = True):
    """claim: False to judge by the proof alone."""
    row = row_of(made, observer, unit, adjacency)
    claimed = row.claimed if claim else None
    settings = CanarySettings(
        protocols=("rounds",), coin_rounds=rounds, places=1, confidence=0.9
    )  # 95 % for each bound
    proven = row.proven
    question = Question(Observer.parse(observer), unit, adjacency, DELTA, claimed=claimed, proven=proven)
    return row, demonstrate(made, settings, question)


# --- whole audits ---


@pytest.mark.full
def test_a_client_of_some_rounds_is_charged_for_these_rounds_alone():
    """Two of five clients a round, and the server sees which: one round's μ over all 12 would "refute" the proof."""
    made = experiment(
        {"name": "ldp", "rounds": 12, "participants": 2, "clip": 1.0, "noise_std": 0.5}, clients=5, seed=2
    )
    ledger = planned_ledger(made)  # under seed 2 nobody is in more than six rounds
    row, found = by_coins(made, "server", "client", "zero_out", 500, claim=False)
    own = len(planned_rounds(ledger, 0, Observer("server")))
    assert own == ledger.participations()[0] <= row.releases < 12
    metrics = found.attacks[0].numbers
    over_all = gaussian_epsilon(1 / (metrics["mu"] * sqrt(12)), DELTA)
    assert 0 < found.row.demonstrated_on_condition <= gaussian_epsilon(0.5 / sqrt(own), DELTA) <= row.proven < over_all
    assert f"client 0, {own}" in " ".join(found.row.notes)


@pytest.mark.full
def test_rounds_of_falling_noise_count_with_their_own_noise():
    """GEO, ϑ = .64: round 15 has a 23rd of round 1's std; its μ over all 15 rounds would "refute" the proof."""
    made = experiment(
        {"name": "geometric", "rounds": 15, "ratio": 0.64, "epsilon": 2.0, "delta": 1e-3, "clip": 5.0, "tau": 1}
    )
    row, found = by_coins(made, "server", "client", "zero_out", 160)
    metrics = found.attacks[0].numbers
    over_all = gaussian_epsilon(1 / (metrics["mu"] * sqrt(15)), DELTA)
    assert 0.15 * row.proven < found.row.demonstrated_on_condition <= row.proven < over_all
    assert found.attacks[0].n == 146  # the 14 rounds before the last plan have more noise


@pytest.mark.full
def test_coins_under_a_secret_draw_stay_below_what_is_proven():
    """The coins fall where the client is drawn; its μ is composed at the cohort's rate of 2 in 3, from below."""
    made = experiment({"name": "cdp", "sigma": 0.5, "clip": 1.0, "participants": 2, "rounds": 2})
    row, found = by_coins(made, "downlink", "client", "zero_out", 180)
    (entry,) = found.attacks
    assert 0.1 * row.proven < found.row.demonstrated_on_condition <= row.proven
    assert "in secret" in " ".join(found.row.notes)
    assert (
        entry.value("epsilon_if_gaussian") < gaussian_epsilon(1 / entry.value("mu"), DELTA)
        and "epsilon_one_run" not in entry.numbers
    )
    refused = by_coins(made, "downlink", "client", "replace_one", 180)[1]
    assert "secret draw" in refused.not_measured


@pytest.mark.full
def test_coins_are_told_what_comes_beside_a_model():
    """An adaptive clip's next norm goes out with the model, and both worlds say what it would be."""
    made = experiment({"name": "adaptive-clip", "noise_multiplier": 1.0, "rounds": 2})
    row, found = by_coins(made, "downlink", "client", "zero_out", 180)
    assert found.row is not None and max(found.row.demonstrated, found.row.demonstrated_on_condition) <= row.proven


def test_a_shift_that_moves_with_the_model_is_not_composed():
    """A record of the client's own changes the update ever differently: its μ in one round says nothing of the next."""
    made = experiment({"name": "ldp", "noise_std": 0.02, "rounds": 4, "clip": 5.0}, {"lr": 0.5})
    _, found = by_coins(made, "server", "record", "replace_one", 120)
    assert found.attacks[0].manner == "one-round"
    assert "not composed" in " ".join(found.row.notes)
    assert found.row.demonstrated_on_condition == found.attacks[0].value("epsilon_if_gaussian")


def test_so_many_coins_have_twelve_of_either_kind_in_both_parts_but_for_one_run_in_a_hundred():
    def missed(coins: int) -> float:
        return 2 * sum(comb(coins, k) for k in range(12)) / 2**coins

    n = enough_flips()
    assert missed(n // 3) + missed(n - n // 3) <= 0.01 < missed((n - 1) // 3) + missed(n - 1 - (n - 1) // 3)


def test_coins_measure_one_rounds_mu_and_compose_it():
    """Multiplier 1/3: shift 3 a round. The one-run bound is of one round, the composed one of the client's two."""
    made = experiment({"name": "ldp", "noise_std": 1 / 3, "rounds": 2})
    planned = planned_rounds(planned_ledger(made), 0, Observer("server"))
    found = coin_flips(
        made.federation(),
        0,
        lambda m: client_worlds(m, RandomUpdate(), "zero_out", 0),
        CoinRun(150, planned, aggregate=False),
        BoundRule(DELTA, gaussian=True),
    )
    assert found.per_round.shift == pytest.approx(3.0, rel=1e-4) and found.steady
    assert found.flips == found.measured == 150
    assert 1.5 < found.mu < 3.0
    assert found.composed(planned, DELTA)[0] == pytest.approx(
        gaussian_epsilon(1 / (found.mu * 2**0.5), DELTA), rel=1e-3
    )
    assert 1 < found.one_run.epsilon < gaussian_epsilon(1 / 3, DELTA)


@pytest.mark.full
def test_coins_want_enough_rounds_and_an_observer_of_rounds():
    """The number advised is larger than what was too few, and enough for this very audit."""
    made = experiment({"name": "ldp", "sigma": 1.0, "rounds": 2})
    refused = by_coins(made, "server", "client", "zero_out", 20)[1].not_measured
    assert "20 rounds" in refused
    advised = int(refused.rpartition("coin_rounds = ")[2])
    assert advised > 20 and by_coins(made, "server", "client", "zero_out", advised)[1].row is not None
    advice = """--set 'canary.protocols=["end-to-end"]' audits it"""
    assert advice in by_coins(made, "model", "client", "zero_out", 20)[1].not_measured


@pytest.mark.full
def test_what_coins_count_holds_beside_what_they_compose():
    """One round's ε by counting needs no condition and stays below one round's proof; the composed one names its."""
    made = experiment({"name": "ldp", "noise_std": 0.5, "rounds": 4, "clip": 1.0})
    row, found = by_coins(made, "server", "client", "zero_out", 300, claim=False)
    assert "every round" in found.row.condition
    assert 0 < found.row.demonstrated <= gaussian_epsilon(0.5, DELTA) < row.proven
    assert found.row.demonstrated < found.row.demonstrated_on_condition <= row.proven
    claimed = by_coins(made, "server", "client", "zero_out", 300)[1].row  # of 1.21: one round alone can show more
    assert (claimed.demonstrated, claimed.condition) == (found.row.demonstrated, found.row.condition)


@pytest.mark.parametrize("flips", [30, 60, 100])
def test_the_number_of_rounds_advised_is_enough_in_nearly_all_runs(flips):
    """At least 12 coins of either kind in the first third and in the rest, in (nearly) 99 % of runs of the advised
    length. Of ten rounds the client is in six, so that the run must be longer by as much.
    """
    too_few = [Flip(0.0, i % 2 == 0, 1.0, 1.0) for i in range(flips // 3)]
    others = [Flip(0.0, True, 1.0, 9.0)] * (flips - flips // 3)  # rounds that say more than the planned ones
    with pytest.raises(ValueError, match="too few") as refused:
        judge_flips([*too_few, *others], 1.0, True, DELTA, run=flips * 10 // 6)
    text = str(refused.value)
    advised, run = int(text.partition("about ")[2].split()[0]), int(text.rpartition("coin_rounds = ")[2])
    assert advised > len(too_few) and run > flips * 10 // 6
    assert run - flips * 10 // 6 >= (advised - len(too_few)) * 10 // 6
    parts = (advised // 3, advised - advised // 3)
    assert np.prod([binom.cdf(n - 12, n, 0.5) - binom.cdf(11, n, 0.5) for n in parts]) > 0.98


# --- the ledger ---


@pytest.mark.parametrize(
    ("scheme", "observer", "clients"),
    [
        ({"name": "ldp", "sigma": 5.0, "rounds": 9, "participants": 2}, "server", 5),
        ({"name": "ldp", "sigma": 5.0, "rounds": 9, "dropout": 0.5}, "downlink", 5),
        ({"name": "geometric", "rounds": 9, "ratio": 0.8, "epsilon": 2.0, "delta": 1e-3}, "server", 3),
        ({"name": "anonymous-leader", "rounds": 6, "train_share": 1.0}, "leader", 4),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else str(value),
)
def test_the_planned_rounds_are_those_that_are_proven(scheme, observer, clients):
    """Composed at their full ratios, a client's rounds cost what the accountant proves of that client, no more."""
    ledger = planned_ledger(experiment(scheme, clients=clients))
    for client in set(ledger.subjects(Observer(observer))):
        rounds = planned_rounds(ledger, client, Observer(observer))
        price = proven(
            ledger.seen_by(Observer(observer)), subject=client, unit="client", adjacency="zero_out", delta=DELTA
        ).epsilon
        assert composed([(r.ratio, r.rate) for r in rounds], DELTA)[0] <= price * (1 + 1e-9)
        if observer != "leader":
            assert composed([(r.ratio, r.rate) for r in rounds], DELTA)[0] == pytest.approx(price)


def test_an_uplink_of_l_messages_holds_the_l_that_say_most():
    ledger = planned_ledger(experiment({"name": "geometric", "rounds": 9, "ratio": 0.8, "epsilon": 2.0, "delta": 1e-3}))
    assert [r.round for r in planned_rounds(ledger, 1, Observer("uplink", 2))] == [7, 8]
    assert planned_rounds(ledger, 1, Observer("uplink")) == planned_rounds(ledger, 1, Observer("server"))
    drawn = planned_ledger(experiment({"name": "cdp", "participants": 2, "rounds": 2}))
    rates = {r.rate for r in planned_rounds(drawn, 0, Observer("downlink"))}
    assert rates == {2 / 3}


def release(name: str, ratio: float, parents: tuple[str, ...] = (), **facts) -> Release:
    return stated(1.0, ratio, id=name, parents=frozenset(parents), **facts)


def test_what_is_recorded_of_a_round():
    """3 and 4 make 5; steps count; what is made from what is seen says nothing; what is not known is infinite; others'
    and earlier ones do not count.
    """
    three, four = release("a", 3.0), release("b", 4.0)
    assert recorded([three, four], 0, 0) == Round(0, 5.0)
    assert recorded([three, release("c", 9.0, ("a",))], 0, 0) == Round(0, 3.0)
    assert recorded([release("c", 9.0, ("z",), steps=4)], 0, 0) == Round(0, 18.0)
    assert recorded([release("c", 9.0, problem="no bound")], 0, 0) == Round(0, inf)
    assert recorded([release("c", 9.0, sampling=Sampling("poisson", 8, 2.0))], 0, 0) == Round(0, 9.0, 0.25)
    assert recorded([three], 1, 0) is recorded([three], 0, 1) is None


def test_a_prolonged_schedule_repeats_the_round_it_is_told():
    plans = Prolonged(Geometric(5, 4.0, lambda rounds, done: 1.0), 8, 2)
    assert [plans.plan(r, {}).noise for r in range(8)] == [1, 2, 4, 8, 16, 4, 4, 4] and plans.plan(8, {}) is None
    assert Prolonged(FixedRounds(5), 3, 4).plan(3, {}) is None


@pytest.mark.parametrize(
    ("without", "present", "heard", "says"),
    [
        ([0.0, 1.0], [nan, 1.0], [nan, 1.3], True),
        ([0.0, 1.0], [nan, 1.0], [0.2, 1.3], False),
        ([nan, 1.0], [0.0, 1.0], [0.2, 1.3], True),
        ([0.0, 1.0], [5.0, 1.0], [nan, 1.3], False),  # neither world sends it; a score may not say "with the canary"
    ],
)
def test_a_value_that_is_not_finite_tells_the_worlds_apart_for_certain(without, present, heard, says):
    worlds = Expected(torch.tensor(without)), Expected(torch.tensor(present))
    score, change = _score(torch.tensor(heard), SimpleNamespace(expected=lambda: worlds), 1.0)
    assert abs(score) > 1e6 and (score > 0) == says and change == inf


# --- composition from below ---


@pytest.mark.parametrize("delta", [1e-5, pytest.param(1e-2, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("mu", "rate", "rounds"),
    quick(
        [(1, 0.9, 20), (3, 0.5, 20), (5, 0.5, 4), (0.3, 0.1, 100), (1, 0.02, 50), (10, 0.9, 3), (0.5, 1, 7)], 2, 5, 6
    ),
)
def test_composed_is_below_every_accountants_upper_limit(mu, rate, rounds, delta):
    """And near PLD's, rounded up, where there is one; with a draw the answer is never the closed form without."""
    value, how = composed([(mu, rate)] * rounds, delta)
    upper, _ = proven_epsilon(
        ((Draw("gaussian", mu, "poisson" if rate < 1 else "", rate * 1000, 1000, mu), rounds),), delta
    )
    grid = max(1e-4, upper * 1e-4)
    above = (
        pld.from_gaussian_mechanism(1 / mu, sampling_prob=rate, value_discretization_interval=grid)
        .self_compose(rounds)
        .get_epsilon_for_delta(delta)
    )
    assert value <= upper * (1 + 1e-12) and value <= above
    assert value > 0.95 * above - 0.05 and (rate < 1) == (how != "closed form")


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.3), (4.0, 0.05), (3.0, 0.9), (30.0, 0.5)])
def test_one_round_with_a_draw_by_hand(mu, rate):
    """(1 − q)·Q + q·P against Q costs ln(1 + q(e^ε − 1)) at q·δ, where P against Q costs ε at δ."""
    plain = gaussian_epsilon(1 / mu, DELTA / rate)
    truth = plain + log(rate) if plain > 500 else log1p(rate * expm1(plain))
    value = composed([(mu, rate)], DELTA)[0]
    assert truth * (1 - 2e-3) - 1e-3 < value <= truth * (1 + 1e-12)


def binom_upper(count: int, of: int) -> float:
    """Clopper and Pearson's upper limit, 97.5 %."""
    return beta.ppf(0.975, count + 1, of - count)


def test_nothing_composes_to_nothing():
    assert composed([], DELTA)[0] == composed([(0.0, 0.5), (1.0, 0.0)], DELTA)[0] == 0


def test_a_draw_lowers_what_is_counted():
    """Without one nothing changes; with one, ln(1 − q + q(TPR − δ/q)/FPR) at the limits of both rates."""
    bound = clopper_pearson(np.ones(500), np.zeros(500), delta=DELTA, threshold=0.5)
    same = with_a_draw(bound, 1.0)
    assert (same.epsilon, same.ceiling) == pytest.approx((bound.epsilon, bound.ceiling))
    limit = 1 - 0.025 ** (1 / 500)
    assert with_a_draw(bound, 0.3).epsilon == pytest.approx(log(0.7 + (0.3 * (1 - limit) - DELTA) / limit))
    assert exp(with_a_draw(bound, 1e-3).epsilon) < 1.2


def test_a_draw_lowers_what_is_counted_the_other_way_round_too():
    """Never missed and half of the alarms false: who is silent was out, (TNR − δ) over q·FNR + 1 − q at the limits."""
    scores = np.concatenate([np.ones(250), np.zeros(250)])
    bound = clopper_pearson(np.ones(500), scores, delta=DELTA, threshold=0.5)
    missed, alarms = 1 - 0.025 ** (1 / 500), float(binom_upper(250, 500))
    assert with_a_draw(bound, 0.9).epsilon == pytest.approx(log((1 - alarms - DELTA) / (0.9 * missed + 0.1)))


def test_ratios_above_the_largest_that_is_planned_are_left_out():
    """However many they are: the rounds in question are no better than the planned ones."""
    tossed = [Flip(0.0, True, 1.0, ratio) for ratio in (1.0, 1.0, 1.9, 1.9, 1.9)]
    assert [flip.ratio for flip in _of_one_ratio(tossed, 1.0)] == [1.0, 1.0]


# --- how often it is wrong ---


def flips(rng: np.random.Generator, ratios: np.ndarray, mus: np.ndarray, changes: np.ndarray) -> list[Flip]:
    """Scores as `coin_flips` makes them: N(0, 1)·change/μ without the canary and moved by `change` with it, where
    `change` is in declared stds.
    """
    coins = rng.random(len(ratios)) < 0.5
    noise = np.divide(changes, mus, out=np.ones_like(mus), where=mus > 0)
    scores = coins * (changes if mus.any() else 0) + noise * rng.normal(size=len(ratios))
    return [Flip(*one) for one in zip(scores.tolist(), coins.tolist(), changes.tolist(), ratios.tolist())]


def wrong(
    truth: float, planned: list[Round], ratios: np.ndarray, mus: np.ndarray, changes: np.ndarray
) -> tuple[float, float]:
    """The share of worlds whose bound exceeds the truth, and the median bound."""
    found = []
    for world in range(WORLDS):
        audit = judge_flips(
            flips(np.random.default_rng(world), ratios, mus, changes), max(r.ratio for r in planned), True, DELTA
        )
        found.append(audit.composed(planned, DELTA)[0])
    return float(np.mean(np.array(found) > truth + 1e-9)), float(np.median(found))


# 20 rounds of falling noise, the last one's going on.
FALLING = np.concatenate([0.2 * 1.12 ** np.arange(20), np.full(180, 0.2 * 1.12**19)])


@pytest.mark.parametrize("part", [slice(0, 100), slice(100, 300)], ids=["threshold", "test"])
@pytest.mark.parametrize("side", [False, True])
def test_coins_that_all_fall_on_one_side_are_refused(part, side):
    """The first third fixes the threshold and the rest is tested: each needs both kinds."""
    rng, steady = np.random.default_rng(0), np.full(300, 2.0)
    tossed = flips(rng, steady, steady, steady)
    tossed[part] = [replace(flip, inserted=side) for flip in tossed[part]]
    with pytest.raises(ValueError, match="too few for coin flips"):
        judge_flips(tossed, 2.0, True, DELTA)


@pytest.mark.parametrize(
    ("fault", "own"), quick(product((0.0, 1.0, 3.0), (slice(0, 20), slice(3, 20, 8))), 1, 2), ids=str
)
def test_the_composed_bound_exceeds_the_truth_in_one_world_of_twenty_at_most(fault, own):
    """fault: the declared noise over the real one (0: the canary changes nothing at all).

    Known μ in every round, other noise in every round.
    """
    planned = [Round(t, float(r)) for t, r in enumerate(FALLING[:20])][own]
    again = planned[-1].ratio
    ratios = np.where(np.arange(200) < 20, FALLING, again)
    truth = gaussian_epsilon(1 / (fault * sqrt(sum(r.ratio**2 for r in planned))), DELTA) if fault else 0.0
    share, median = wrong(truth, planned, ratios, fault * ratios, ratios)
    assert share <= 0.05
    assert median > 0.3 * truth if fault else median == 0


@pytest.mark.full
def test_with_a_secret_draw_too():
    """μ = 1.5 where the client is drawn, at 1 in 2, in 5 rounds: the truth from below is `composed` itself, within a
    hundredth of PLD's upper limit.
    """
    planned, sure = [Round(t, 1.5, 0.5) for t in range(5)], np.full(150, 1.5)
    audits = sorted(
        (judge_flips(flips(np.random.default_rng(w), sure, sure, sure), 1.5, True, DELTA) for w in range(WORLDS)),
        key=lambda a: a.mu,
    )
    # It grows with μ.
    low, at_limit = (audits[int(share * WORLDS)].composed(planned, DELTA)[0] for share in (0.5, 0.95))
    assert 1 < low < at_limit <= composed([(1.5, 0.5)] * 5, DELTA)[0]


@pytest.mark.full
def test_a_shift_that_differs_is_bounded_by_its_largest_round():
    """Pooled rounds of μ = .5 to 3 with one ratio: not composed, and never above the round that says most."""
    mus = np.linspace(0.5, 3.0, 200)
    share, median = wrong(
        gaussian_epsilon(1 / 3, DELTA), [Round(t, 3.0) for t in range(200)], np.full(200, 3.0), mus, mus
    )
    assert share <= 0.05 and median > 0


def test_small_differences_are_given_away():
    """A shift within 5 % is composed, at its least; rounds that say more than the client's own are not measured."""
    rng, ratios = np.random.default_rng(0), np.full(200, 2.0)
    changes = np.linspace(1.96, 2.04, 200)
    audit = judge_flips(flips(rng, ratios, changes, changes), 2.0, True, DELTA)
    assert audit.unsteady == pytest.approx(2.04 / 1.96 - 1) and audit.steady
    assert audit.composed([Round(0, 2.0)], DELTA)[0] == pytest.approx(gaussian_epsilon(2.04 / 1.96 / audit.mu, DELTA))
    mixed = np.tile([1.0, 1.9, 1.95, 4.0], 100)
    audit = judge_flips(flips(rng, mixed, mixed, mixed), 2.0, True, DELTA)
    assert (audit.ratio, audit.measured, audit.flips) == (1.95, 200, 400)
    with pytest.raises(ValueError, match="too few"):
        judge_flips(flips(rng, mixed, mixed, mixed), 0.5, True, DELTA)
    near = np.tile([1.96, 2.04], 200)  # equal enough, but half of them say more than the client's own
    audit = judge_flips(flips(rng, near, near, near), 2.0, True, DELTA)
    assert (audit.ratio, audit.measured, audit.flips) == (1.96, 200, 400)
    unknown = judge_flips([replace(flip, ratio=inf) for flip in flips(rng, mixed, mixed, mixed)], inf, True, DELTA)
    assert "known beforehand" in unknown.composed([Round(0, inf)], DELTA)[1]
