"""Sums of Laplace noises: against closed densities, in one coordinate and in two, and composed."""

import math

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems import composition
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proof.theorems.laplace_sum import laplace_sum_pld, laplace_sum_profile

LOSSES = np.linspace(0, 2.5, 26)


def single_tail(x, b):
    """P(bL > x)."""
    return np.where(x > 0, np.exp(-np.abs(x) / b) / 2, 1 - np.exp(-np.abs(x) / b) / 2)


def tail(x, scales):
    """P(Z > x), by hand: of one scale, of two equal ones, or of two different ones by partial fractions."""
    if len(scales) == 1:
        return single_tail(x, scales[0])
    a, b = scales
    if a == b:
        right = np.exp(-np.abs(x) / a) * (2 + np.abs(x) / a) / 4
        return np.where(x > 0, right, 1 - right)
    return (a * a * single_tail(x, a) - b * b * single_tail(x, b)) / (a * a - b * b)


def truth(scales, losses):
    """δ(ε) = max over x of P(Z + 1 > x) − e^ε·P(Z > x): half lines are the best tests, as Z is log-concave."""
    x = np.linspace(-40, 60, 400_001)
    there, here = tail(x - 1, scales), tail(x, scales)
    return np.array([max(0.0, (there - math.exp(loss) * here).max()) for loss in losses])


@pytest.mark.parametrize("scales", [(1.0,), (0.4,), (1.0, 1.0), (0.5, 0.5), (1.0, 2.0), (0.4, 3.0), (2.0, 0.01)])
def test_the_profile_is_at_or_just_above_the_closed_form(scales):
    expected, found = truth(scales, LOSSES), laplace_sum_profile(scales, LOSSES)
    assert (found >= expected - 1e-12).all()
    assert found == pytest.approx(expected, rel=2e-3, abs=1e-6)


def density(x, scales):
    a, b = scales
    if a == b:
        return np.exp(-np.abs(x) / a) * (1 + np.abs(x) / a) / (4 * a)
    return (a * np.exp(-np.abs(x) / a) - b * np.exp(-np.abs(x) / b)) / (2 * (a * a - b * b))


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1.0, 0.3)])
def test_the_whole_shift_in_one_coordinate_is_the_worst(scales):
    """Every way to split an L1 distance of 1 over two coordinates, by integration over the plane."""
    x = np.linspace(-13, 14, 1081)
    cell = (x[1] - x[0]) ** 2
    here = np.outer(density(x, scales), density(x, scales))
    for loss in (0.0, 0.2, 0.5, 0.8):
        bound = laplace_sum_profile(scales, np.array([loss]))[0]
        for part in (0.0, 0.1, 0.25, 0.5):
            moved = np.outer(density(x - part, scales), density(x - (1 - part), scales))
            for p, q in ((moved, here), (here, moved)):
                split = np.maximum(p - math.exp(loss) * q, 0).sum() * cell
                assert split <= bound * (1 + 1e-3)
                assert part == 0 or split < 0.99 * bound


def epsilon(draw, count, delta=1e-5, use_pld=True):
    return composition.epsilon(((draw, count),), delta, use_pld)


def test_a_sum_of_one_is_the_laplace():
    assert Draw.laplace_sum([3.0]) == Draw("laplace", 1 / 3.0)
    one = laplace_sum_pld([3.0], 1e-3).self_compose(20).get_epsilon_for_delta(1e-5)
    assert one == pytest.approx(epsilon(Draw("laplace", 1 / 3.0), 20)[0], rel=1e-3)


def test_more_noise_never_costs_more():
    single = epsilon(Draw("laplace", 0.5), 30)[0]
    two, unequal = (epsilon(Draw.laplace_sum(scales), 30)[0] for scales in ((2.0, 2.0), (2.0, 0.2)))
    assert two < unequal < single


def test_the_sum_of_many_is_nearly_the_gaussian_of_its_variance():
    """300 equal noises: of variance 2·300·b²; a single upload's Laplace of ratio 2 would cost twenty times as much."""
    many, accountant = epsilon(Draw.laplace_sum([0.5] * 300), 30)
    assert accountant == "PLD"
    assert many == pytest.approx(gaussian_epsilon(0.5 * math.sqrt(600) / math.sqrt(30), 1e-5), rel=5e-3)
    assert epsilon(Draw("laplace", 2.0), 30)[0] > 20 * many


def test_without_pld_the_largest_noise_stands_alone():
    draw = Draw.laplace_sum([0.5, 2.0, 1.0])
    assert epsilon(draw, 10, use_pld=False) == epsilon(Draw("laplace", 0.5), 10, use_pld=False)
    assert epsilon(draw, 10, delta=0.0) == (5.0, "linear composition")
    assert draw.with_noise_times(2.0) == Draw.laplace_sum([1.0, 4.0, 2.0])


@pytest.mark.parametrize("scale", [5000.0, 1e-4])
def test_beyond_the_grid_it_counts_as_its_largest_part(scale):
    assert epsilon(Draw.laplace_sum([scale, scale]), 10) == epsilon(Draw("laplace", 1 / scale), 10)


@pytest.mark.parametrize("scales", [(0.01,) * 50, (0.0101, 0.0001), (999.0, 1.0)])
def test_at_the_ends_of_the_grid_no_number_is_lost(scales):
    found = laplace_sum_profile(scales, np.linspace(0, 1 / max(scales), 50))
    assert np.isfinite(found).all() and (np.diff(found) <= 1e-12).all() and 0 <= found[-1] < 1e-3 < found[0] * 10
