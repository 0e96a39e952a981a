"""Cohorts of fixed size: the dominating pair against explicit mixtures and a privacy loss accountant in plain numpy."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems import composition
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.fixed_cohort import fixed_cohort_pld, fixed_cohort_profile, largest_loss
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_delta, gaussian_epsilon
from scipy.stats import norm as normal

DELTA = 1e-5


def fixed(population, cohort, sigma, zero_out=False) -> Draw:
    """C = 1: replace_one moves a contribution by 2, zero_out by 1; amplification always wants 2."""
    return Draw("gaussian", (1 if zero_out else 2) / sigma, "fixed", cohort, population, 2 / sigma)


def epsilon(*draws, delta=DELTA, use_pld=True):
    return composition.epsilon(tuple(sorted(draws)), delta, use_pld)


@pytest.mark.few(3)
@pytest.mark.parametrize("zero_out", [False, True])
@pytest.mark.parametrize(
    "population, cohort, sigma, rounds, by_rdp, golden",
    [
        (100, 10, 4.0, 100, 5.38, 2.54),
        (100, 10, 1.0, 30, 32.27, 19.03),
        (20, 1, 2.0, 50, 4.78, 2.85),
        (1000, 10, 1.0, 200, 12.30, 8.05),
    ],
)
def test_golden_of_the_issue(population, cohort, sigma, rounds, by_rdp, golden, zero_out):
    draws = (fixed(population, cohort, sigma, zero_out), rounds)
    value, accountant = epsilon(draws)
    assert value == pytest.approx(golden, rel=0.002) and accountant == "PLD"
    assert epsilon(draws, use_pld=False)[0] == pytest.approx(by_rdp, rel=0.001)


def test_where_amplification_only_costs_it_is_dropped():
    """50 of 100 under zero_out: 19.2 over the distance 2C, 11.97 over C without amplification."""
    draws = (fixed(100, 50, 1.18, zero_out=True), 11)
    assert epsilon(draws, delta=1e-3) == (pytest.approx(11.966, abs=1e-3), "closed form")
    assert epsilon((fixed(100, 50, 1.18), 11), delta=1e-3)[0] == pytest.approx(19.217, abs=2e-3)


# --- the theorem: the profile is above every pair of data sets


def released(values, cohort, sigma, cells=3600):
    """The sum of `cohort` of `values` plus noise, by cells: post-processing, so no divergence is too large."""
    edges = np.concatenate([[-np.inf], np.linspace(-18, 18, cells + 1), [np.inf]])
    sums = [sum(chosen) for chosen in itertools.combinations(values, cohort)]
    return np.mean([np.diff(normal.cdf(edges, total, sigma)) for total in sums], axis=0)


def hockey_stick(p, q, alpha):
    return float(np.maximum(p - alpha * q, 0).sum())


NEIGHBOURS = [
    ((1, -1, -1), (-1, -1, -1), 1),
    ((1, 1, 1), (-1, 1, 1), 1),
    ((1, -1, 1), (-1, -1, 1), 1),
    ((1, 0, -0.5), (0, 0, -0.5), 1),  # zeroed out
    ((1, -1, -1), (0, -1, -1), 1),
    ((1, -1, -1, -1), (-1, -1, -1, -1), 2),
    ((1, 1, 0.3, -1), (-1, 1, 0.3, -1), 2),
    ((1, -1, -1, -1, -1), (-1, -1, -1, -1, -1), 4),
]


@pytest.mark.parametrize("sigma", [0.7, 1.5, 4.0])
@pytest.mark.parametrize("one, other, cohort", NEIGHBOURS)
def test_no_pair_of_data_sets_is_above_the_profile(one, other, cohort, sigma):
    rate, p, q = cohort / len(one), released(one, cohort, sigma), released(other, cohort, sigma)
    for loss in np.linspace(0, 4, 9):
        above = float(fixed_cohort_profile(np.array([loss]), rate, 2 / sigma)[0])
        for a, b in ((p, q), (q, p)):
            assert hockey_stick(a, b, math.exp(loss)) <= above + 1e-14
            assert hockey_stick(a, b, math.exp(-loss)) <= 1 - math.exp(-loss) * (1 - above) + 1e-14


@pytest.mark.few(3)
@pytest.mark.parametrize("sigma", [1.0, 2.0])
@pytest.mark.parametrize("pairs", [(0, 0), (1, 2), (0, 4), (3, 5), (5, 6), (0, 7)])
def test_two_rounds_of_any_data_are_never_above_the_price(pairs, sigma):
    """δ of the product of two explicit rounds, over cells of the plane, at the ε that was priced for 10⁻³."""
    first, second = (NEIGHBOURS[i] for i in pairs)
    draws = [(fixed(len(one), cohort, sigma), 1) for one, _, cohort in (first, second)]
    draws = draws if draws[0] != draws[1] else [(draws[0][0], 2)]
    alpha = math.exp(epsilon(*draws, delta=1e-3)[0])
    p, q = (np.outer(*(released(data[side], data[2], sigma, cells=600) for data in (first, second))) for side in (0, 1))
    assert max(hockey_stick(a, b, alpha) for a, b in ((p, q), (q, p))) <= 1e-3


def test_the_largest_pair_reaches_the_profile():
    """The subject far from all the others: at α ≥ 1 it is the profile itself, so nothing smaller could be proven."""
    p, q = released((1, -1, -1), 1, 1.0), released((-1, -1, -1), 1, 1.0)
    for loss in (0.0, 0.5, 1.5):
        above = fixed_cohort_profile(np.array([loss]), 1 / 3, 2.0)[0]
        assert hockey_stick(p, q, math.exp(loss)) == pytest.approx(above, rel=1e-4)


@pytest.mark.parametrize("rate, mu, interval", [(0.01, 2.0, 1e-3), (0.5, 0.3, 1e-3), (0.9, 5.0, 0.1), (1e-6, 9.0, 0.5)])
def test_the_grid_is_a_distribution_above_the_profile(rate, mu, interval):
    grid = fixed_cohort_pld([(1.0, rate)], mu, interval)
    for loss in np.linspace(0, largest_loss(rate, mu), 37):
        above = float(fixed_cohort_profile(np.array([loss]), rate, mu)[0])
        assert grid.get_delta_for_epsilon(loss) >= above - 1e-15
        assert grid.get_delta_for_epsilon(-loss) >= 1 - math.exp(-loss) * (1 - above) - 1e-14
    assert grid.get_delta_for_epsilon(-60.0) <= 1 + 1e-12


def test_a_profile_of_everybody_is_the_gaussian():
    losses = np.array([0.0, 0.3, 2.0, 30.0, 700.0, 1500.0])
    for mu in (0.1, 1.0, 40.0):
        found = fixed_cohort_profile(losses, 1 - 1e-15, mu)
        expected = [gaussian_delta(multiplier=1 / mu, epsilon=loss) for loss in losses]
        assert found == pytest.approx(expected, abs=1e-13)


# --- composition, against an accountant of our own: losses rounded down, so that its ε is below the truth


def oracle(parts, delta, step=2e-3, reach=60.0):
    """ε of products of explicit pairs (p, q, times), losses rounded down to a grid, convolved by FFT in plain numpy."""
    bins = int(reach / step)
    length = 1 << (4 * bins).bit_length()
    answers = []
    for direction in (0, 1):
        total = np.ones(length, dtype=complex)
        for p, q, times in parts:
            p, q = (p, q) if direction == 0 else (q, p)
            keep = (p > 0) & (q > 0)
            at = np.clip(np.floor(np.log(p[keep] / q[keep]) / step).astype(int), -bins, bins)
            masses = np.zeros(length)
            np.add.at(masses, at % length, p[keep])
            total *= np.fft.fft(masses) ** times
        masses = np.fft.ifft(total).real
        losses = np.fft.fftfreq(length, 1 / length) * step

        def excess(value, masses=masses, losses=losses):
            above = losses > value
            return float(-np.expm1(value - losses[above]) @ masses[above])

        low, high = 0.0, reach
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > delta else (low, middle)
        answers.append(low)
    return max(answers)


def cells(*means_and_weights, sigma):
    """Masses of a mixture of normals on 200,000 cells."""
    edges = np.linspace(-12 * sigma - 3, 12 * sigma + 3, 200_001)
    return sum(weight * np.diff(normal.cdf(edges, mean, sigma)) for mean, weight in means_and_weights)


def pair(rate, sigma):
    """The dominating pair as its definition says: the right half, its mirror image, one atom."""
    edges = np.concatenate([[1.0], np.linspace(1, 12 * sigma + 3, 200_001)[1:]])
    out, member = np.diff(normal.cdf(edges, 0, sigma)), np.diff(normal.cdf(edges, 2, sigma))
    sampled = (1 - rate) * out + rate * member
    rest = 1 - sampled.sum() - out.sum()
    return np.concatenate([sampled, out, [rest]]), np.concatenate([out, sampled, [rest]])


@pytest.mark.few(2)
@pytest.mark.parametrize("population, cohort, sigma, rounds", [(100, 10, 4.0, 100), (20, 1, 2.0, 50), (6, 3, 2.0, 3)])
def test_the_composition_is_that_of_an_accountant_of_our_own(population, cohort, sigma, rounds):
    below = oracle([(*pair(cohort / population, sigma), rounds)], DELTA, step=2e-4, reach=15.0)
    assert below <= epsilon((fixed(population, cohort, sigma), rounds))[0] <= below * 1.005 + 2e-4 * rounds


@pytest.mark.full
def test_composed_with_other_draws_it_stays_above_the_accountant_of_our_own():
    """Fixed cohorts, Poisson (there or not), plain Gaussian and Laplace, of one subject, in one price."""
    draws = [
        (fixed(20, 1, 1.0, zero_out=True), 10),
        (Draw("gaussian", 1.0, "poisson", 1, 10, 1.0), 10),
        (Draw("gaussian", 0.25), 4),
        (Draw("laplace", 0.5), 2),
    ]
    t = np.linspace(-40, 40, 200_001)
    laplace = [np.exp(-np.abs(t - shift)) for shift in (0.5, 0.0)]
    parts = [
        (*pair(1 / 20, 1.0), 10),
        (cells((0, 0.9), (1, 0.1), sigma=1.0), cells((0, 1.0), sigma=1.0), 10),
        (cells((1, 1.0), sigma=4.0), cells((0, 1.0), sigma=4.0), 4),
        (laplace[0] / laplace[0].sum(), laplace[1] / laplace[1].sum(), 2),
    ]
    below = oracle(parts, DELTA, step=5e-4, reach=40.0)
    value, accountant = epsilon(*draws)
    assert accountant == "PLD" and below <= value <= below * 1.01 + 5e-4 * 26
    assert value < epsilon(*[(draw.plain if draw.amplification == "fixed" else draw, n) for draw, n in draws])[0]


# --- how far PLD reaches


@pytest.mark.full
def test_pld_above_epsilon_100():
    """RDP alone gave 127.2, 126.9, 1479 and, for cohorts of one in 1,000, 9,958."""
    pairs = (Draw("gaussian", 2 / 0.6, "poisson_pair", 1, 5, 1 / 0.6), 200)
    assert epsilon(pairs)[0] == pytest.approx(82.7, abs=0.1) and epsilon(pairs, use_pld=False)[0] > 127
    assert epsilon((fixed(20, 1, 0.7), 40))[0] == pytest.approx(31.4, abs=0.1)
    assert epsilon((Draw("gaussian", 20.0, "poisson", 1, 10, 20.0), 10))[0] == pytest.approx(1300, abs=1)
    assert epsilon((fixed(1000, 1, 0.4), 3000))[0] == pytest.approx(99.5, abs=0.2)


@pytest.mark.parametrize(
    "kind, mu, rounds, delta",
    [
        ("poisson_pair", 0.3, 100, 1e-13),
        ("poisson_pair", 0.02, 10_000, 1e-11),
        ("poisson", 0.02, 10_000, 1e-13),
        ("poisson_pair", 0.01, 100_000, 1e-13),
    ],
)
def test_the_rounding_of_the_fft_is_not_taken_for_privacy(kind, mu, rounds, delta):
    """All but one in 10¹² are drawn, so the closed form is the truth; PLD alone was up to .6 below it."""
    ratio = mu if kind == "poisson" else 2 * mu
    draw = Draw("gaussian", ratio, kind, 10**12 - 1, 10**12, mu)
    assert epsilon((draw, rounds), delta=delta)[0] >= gaussian_epsilon(1 / (ratio * math.sqrt(rounds)), delta) - 1e-6


MEMORY = """
import re
from pathlib import Path
from dpfl_audit.audit.proof.theorems.composition import epsilon
from dpfl_audit.audit.proof.theorems.draw import Draw
for kind in ("poisson_pair", "fixed"):
    for mu, population, count in ((7.0, 10**11, 30), (50.0, 1000, 300)):
        epsilon(((Draw("gaussian", 2 * mu, kind, 1, population, mu), count),), 1e-5)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])  # of this program, not of its parent
"""


@pytest.mark.full
def test_pricing_stays_below_a_gibibyte():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=600)
    assert int(done.stdout) < 2**20  # KiB
