"""A schedule that follows the test loss: the worst of all its paths, against every sequence of losses."""

import itertools
import random

import pytest
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.presets import PRESETS, Population
from dpfl_audit.defenses.presets.geometric import GeometricParameters
from dpfl_audit.defenses.schedule import Adaptive, FixedRounds, Geometric


def geometric(rounds, ratio, shorten) -> Geometric:
    parameters = GeometricParameters(rounds=rounds, ratio=ratio, shorten=shorten, epsilon=1.0)
    return PRESETS["geometric"].scheme(parameters, LocalTraining(), Population((10,) * 4)).schedule


def path(schedule, fell) -> list[float]:
    """The noise of each round, where fell[r] says whether the loss of round r fell."""
    noise, losses, loss = [], [], 100.0
    while (plan := schedule.plan(len(noise), {"test_loss": losses})) is not None:
        loss -= 1.0 if fell[len(noise)] else 0.0
        noise.append(plan.noise)
        losses.append(loss)
    return noise


def cost(noise) -> float:
    return sum(n**-2 for n in noise)


SCHEDULES = [(M, ratio, shorten) for M in (1, 2, 3, 9) for ratio in (0.7, 1.0, 1.3) for shorten in (0.5, 0.8, 0.95)]


@pytest.mark.parametrize(("rounds", "ratio", "shorten"), SCHEDULES)
def test_no_sequence_of_losses_costs_more_and_one_costs_as_much(rounds, ratio, shorten):
    schedule = geometric(rounds, ratio, shorten)
    paths = [path(schedule, fell) for fell in itertools.product((False, True), repeat=rounds)]
    worst = [plan.noise for plan in schedule.worst(range(rounds))]
    assert cost(worst) == pytest.approx(max(map(cost, paths)), rel=1e-12)
    assert any(p == pytest.approx(worst, rel=1e-12) for p in paths)
    assert [plan.noise for plan in schedule.least()] == pytest.approx(
        [min(p[r] for p in paths if r < len(p)) for r in range(rounds)], rel=1e-12
    )


@pytest.mark.parametrize("counted", [{0}, {4}, {8}, {1, 2, 7}, {0, 3, 4, 8}])
def test_only_the_rounds_somebody_is_in_count_for_it(counted):
    schedule = geometric(9, 0.7, 0.8)
    paths = [path(schedule, fell) for fell in itertools.product((False, True), repeat=9)]
    most = max(cost(n for r, n in enumerate(p) if r in counted) for p in paths)
    worst = schedule.worst(counted)
    assert cost(plan.noise for r, plan in enumerate(worst) if r in counted) == pytest.approx(most, rel=1e-12)


@pytest.mark.few(2)
@pytest.mark.parametrize(("rounds", "ratio", "shorten"), [(30, 0.9, 0.5), (30, 1.05, 0.8), (100, 0.97, 0.9)])
def test_random_losses_never_cost_more(rounds, ratio, shorten):
    schedule = geometric(rounds, ratio, shorten)
    worst, least = cost(p.noise for p in schedule.worst(range(rounds))), [p.noise for p in schedule.least()]
    for seed in range(300):
        rng = random.Random(seed)
        share = rng.random()
        taken = path(schedule, [rng.random() < share for _ in range(rounds)])
        assert cost(taken) <= worst * (1 + 1e-12)
        assert all(noise >= low * (1 - 1e-12) for noise, low in zip(taken, least, strict=False))


def test_without_adjustment_there_is_one_path():
    schedule = geometric(5, 0.9, None)
    assert schedule.worst(range(5)) == schedule.least() == [schedule.plan(r, {}) for r in range(5)]


def test_who_knows_its_paths():
    assert isinstance(geometric(5, 0.9, 0.5), Adaptive) and not isinstance(FixedRounds(5), Adaptive)
