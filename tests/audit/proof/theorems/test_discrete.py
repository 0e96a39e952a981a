"""Discrete Gaussian noise and sums of it: what is priced is never below the divergence itself, by brute force."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, isinf, log, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems.accountants import ORDERS
from dpfl_audit.audit.proof.theorems.composition import epsilon
from dpfl_audit.audit.proof.theorems.discrete import as_continuous, discrete_renyi, sum_off
from dpfl_audit.audit.proof.theorems.draw import Draw
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.accounting import Exposure, proven
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.ledger import release_of, release_row
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.releases import DiscreteLaw, Release, Sampling
from dpfl_audit.defenses.terms import Observer
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm
from stated import changed, stated

DELTA = 1e-5


def log_law(std: float, senders: int, reach: int) -> np.ndarray:
    """Logarithms of the masses at −reach..reach of the sum of discrete Gaussians, by convolution."""
    k = np.arange(-reach, reach + 1)
    one = -(k**2) / (2 * std**2)
    one -= logsumexp(one)
    far = np.subtract.outer(k, k)
    steps = np.where(np.abs(far) <= reach, one[np.clip(far, -reach, reach) + reach], -np.inf)
    whole = one
    for _ in range(senders - 1):
        whole = logsumexp(steps + whole, axis=1)
    return whole


@pytest.mark.parametrize("std", [0.4, 0.5, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("senders", [2, 3, 10])
def test_a_sums_masses_are_within_what_is_said_of_a_single_ones(std, senders):
    reach = int(9 * std * sqrt(senders)) + 2
    k = np.arange(-reach, reach + 1)
    inner = np.abs(k) <= 5 * std * sqrt(senders)  # where no mass was cut off
    single = np.exp(-(k**2) / (2 * senders * std**2))
    off = np.abs(log_law(std, senders, reach) - np.log(single / single.sum()))[inner].max()
    assert off <= sum_off(std, senders) * (1 + 1e-6) + 1e-12
    assert senders > 2 or off >= 0.4 * sum_off(std, senders)  # it is no empty bound
    if std >= 0.5:
        paper = 10 * sum(exp(-2 * pi**2 * std**2 * i / (i + 1)) for i in range(1, senders))
        assert sum_off(std, senders) <= paper


@pytest.mark.few(6)
@pytest.mark.parametrize(("std", "senders"), [(0.4, 2), (0.4, 5), (0.6, 3), (1.0, 1), (1.0, 4), (3.0, 10)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_the_divergence_itself_is_never_above_what_is_priced(std, senders, shift):
    """Rényi divergences, and δ at ε, of a shifted sum against the sum, in one number and in two."""
    reach = int(16 * std * sqrt(senders)) + 10 * shift
    p = log_law(std, senders, reach)
    p, q = p[shift:], p[:-shift]
    losses = p - q
    for numbers in (1, 2):
        ratio = sqrt(numbers) * shift / (sqrt(senders) * std)
        priced = discrete_renyi(ratio, std, senders, numbers, ORDERS)
        for order, most in zip(ORDERS, priced):
            if order <= 8:
                exact = numbers * logsumexp(p + (order - 1) * losses) / (order - 1)
                assert exact <= most * (1 + 1e-9) + 1e-9
                assert exact >= 0.9 * most or senders > 1 or std * shift < 2  # by Prop. 5 it is nearly that
        draw = Draw("discrete", ratio, steps=std, senders=senders, numbers=numbers)
        both = losses if numbers == 1 else (losses[:, None] + losses[None]).ravel()
        mass = np.exp(p) if numbers == 1 else np.exp(p[:, None] + p[None]).ravel()
        for delta in (1e-3, 1e-6):
            eps, accountant = epsilon(((draw, 1),), delta)
            assert accountant in ("RDP", "closed form")
            assert float(np.sum(mass * -np.expm1(np.minimum(eps - both, 0)))) <= delta


@pytest.mark.parametrize(("std", "senders"), [(6.0, 1), (3.0, 5)])
def test_a_discrete_gaussian_is_a_continuous_one_processed(std, senders):
    """Y given X, X ~ N(0, nσ² − s²), by quadrature: its masses are within what is said of the sum's."""
    factor, off = as_continuous(std, senders, 1)
    whole = senders * std**2
    smooth = whole * (1 - factor**-2)
    reach = int(10 * sqrt(whole))
    k = np.arange(-reach, reach + 1)
    x = np.arange(-12 * sqrt(whole), 12 * sqrt(whole), 1 / 64)
    given = np.exp(-((k[:, None] - x) ** 2) / (2 * smooth))
    y = (given / given.sum(0) * norm.pdf(x, scale=sqrt(whole - smooth))).sum(1) / 64
    inner = np.abs(k) <= 5 * sqrt(whole)
    masses = np.exp(log_law(std, senders, reach))
    assert np.allclose(y[inner] / masses[inner], 1, atol=1e-8)
    assert 1 < smooth < 2 and 0 < off < 2e-12
    assert as_continuous(1.0, 1, 10**6)[0] == inf


@pytest.mark.parametrize(("std", "senders", "shift", "draws"), [(6.0, 1, 8, 1), (3.0, 4, 9, 1), (3.0, 4, 5, 3)])
def test_an_epsilon_is_hardly_above_the_exact_one(std, senders, shift, draws):
    """By brute force over one number, or the composition of several: never below, and some per cent above where s² is
    that share of the variance.
    """
    reach = int(16 * std * sqrt(senders)) + 10 * shift
    p = log_law(std, senders, reach)
    losses, mass = p[shift:] - p[:-shift], np.exp(p[shift:])
    both, weight = losses, mass
    for _ in range(draws - 1):
        keep = mass > 1e-13
        both = np.add.outer(both, losses[keep]).ravel()
        weight = np.multiply.outer(weight, mass[keep]).ravel()
        keep = weight > 1e-13
        both, weight = both[keep], weight[keep]

    def delta_at(eps: float) -> float:
        return float(np.sum(weight * -np.expm1(np.minimum(eps - both, 0))))

    exact = brentq(lambda eps: delta_at(eps) - 1e-4, 0, 50)
    draw = Draw("discrete", shift / (sqrt(senders) * std), steps=std, senders=senders, numbers=1)
    value, accountant = epsilon(((draw, draws),), 1e-4)
    share = as_continuous(std, senders, 1)[0]
    assert exact <= value <= exact * share**2 * 1.02 and accountant == "closed form"


def test_it_costs_little_more_than_the_gaussian_of_the_same_size():
    """A million numbers at 80 steps, ten times: four in 10⁴ more of ε."""
    draw = Draw("discrete", 0.5, steps=8.0, senders=100, numbers=10**6)
    value, accountant = epsilon(((draw, 10),), DELTA)
    exact = gaussian_epsilon(2 / sqrt(10), DELTA)
    assert exact < value < exact * (1 + 4e-4) and accountant == "closed form"
    assert np.allclose(discrete_renyi(0.5, 8.0, 100, 10**6, ORDERS), ORDERS * 0.125)
    both = epsilon(((draw, 5), (Draw("gaussian", 0.5), 5)), DELTA)[0]
    assert exact < both < value


def test_noise_of_too_few_steps_counts_as_ones_own_alone():
    """σ = .2 steps: nothing is known of the sum, and what the others add is post-processing."""
    assert isinf(sum_off(0.2, 3)) and sum_off(0.2, 1) == 0
    three, one = (epsilon(((Draw("discrete", 5 / sqrt(n), steps=0.2, senders=n), 1),), DELTA)[0] for n in (3, 1))
    assert three == pytest.approx(one)


def release(senders: int = 1, std: float = 2.0, **changes) -> Release:
    terms = ((std, senders),) if senders > 1 else ()
    return changed(stated(DiscreteLaw(0.0 if senders > 1 else std, 0.25, 50, terms), id="a"), **changes)


def priced(*releases: Release, **terms) -> float:
    asked = {"subject": 0, "unit": "client", "adjacency": "zero_out", "delta": DELTA, **terms}
    return proven(releases, **asked).epsilon


def test_the_ledger_prices_it_by_unit_adjacency_and_who_is_honest():
    one = priced(release(4))
    assert one == epsilon(((Draw("discrete", 0.25, steps=8.0, senders=4, numbers=50), 1),), DELTA)[0]
    assert priced(release(4), adjacency="replace_one") == pytest.approx(priced(release(4, bound_norm=2.0)))
    assert priced(release(4), unit="record") == priced(release(4), adjacency="replace_one")
    assert priced(release(4, anywhere=True)) == priced(release(4), adjacency="replace_one")
    assert priced(release(4), release(4, id="b")) > one
    assert isinf(priced(release(4), delta=0.0))
    assert isinf(priced(release(std=0.0)))
    assert isinf(priced(release(sampling=Sampling("poisson", 10, 5))))


@pytest.mark.parametrize("changes", [{"step": 0.0}, {"numbers": 0}, {"terms": ((1.0, 1), (2.0, 1))}])
def test_facts_that_cannot_be_are_refused(changes):
    with pytest.raises(ValueError, match="discrete"):
        priced(changed(release(4), law=replace(release(4).law, **changes)))


def test_a_release_survives_its_line_of_json():
    assert release_row(release(4))["lattice"] == {"step": 0.25, "numbers": 50}
    assert release_of(release_row(release(4))).law == release(4).law
    assert "lattice" not in release_row(stated())


def test_the_noise_for_a_target_is_found_and_not_more():
    asked = {"unit": "client", "adjacency": "zero_out", "target_epsilon": 0.5}
    exposed = Exposure.of([release(4)], [0])
    scale = exposed.worst_noise_scale_for(delta=DELTA, **asked)
    reached = priced(release(4, std=2.0 * scale))
    assert 0.499 < reached <= 0.5
    with pytest.raises(ValueError, match="delta"):
        exposed.worst_noise_scale_for(delta=0.0, **asked)


def experiment(tmp_path: Path, audit: dict[str, object] | None = None, **scheme: object) -> Experiment:
    raw = {
        "data": {"name": "digits", "clients": 20, "samples_per_client": 10},
        "model": {"name": "logistic"},
        "scheme": {"name": "distributed-gaussian", "rounds": 3, "noise_multiplier": 4.0, **scheme},
        "audit": {"observer": "aggregate", **(audit or {})},
    }
    return build(parse_config(raw), tmp_path)


def of(made: Experiment, observer: str, honest: float = 1.0) -> float:
    (row,) = rows(
        planned_ledger(made, any_key=True), None, DELTA, [Observer(observer)], ["client"], ["zero_out"], honest
    )
    return row.proven


def test_a_scheme_is_priced_at_its_multiplier_towards_the_aggregate(tmp_path):
    """z = 4 over three rounds, rounding added; a server that sees single uploads has √20 times less noise before it."""
    made = experiment(tmp_path)
    exact = gaussian_epsilon(4 / sqrt(3), DELTA)
    assert exact < of(made, "aggregate") < 1.001 * exact
    assert of(made, "downlink") == of(made, "model") == of(made, "aggregate")
    alone = gaussian_epsilon(4 / sqrt(3 * 20), DELTA)
    assert alone < of(made, "server") < 1.001 * alone


def test_colluders_and_dropouts_take_their_noise_along(tmp_path):
    made = experiment(tmp_path)
    honest = [of(made, "aggregate", share) for share in (1.0, 0.5, 0.0)]
    assert honest[0] < honest[1] < honest[2] == pytest.approx(of(made, "server"), rel=1e-9)
    half = gaussian_epsilon(4 * sqrt(10 / 20) / sqrt(3), DELTA)  # itself and 9 of the 19 others
    assert half < honest[1] < 1.001 * half
    assert of(experiment(tmp_path, dropout=0.3), "aggregate") > honest[0]


@pytest.mark.full
def test_coarse_steps_cost_what_rounding_adds(tmp_path):
    """650 numbers at γ = 2⁻⁴: Δ² = 1 + .635 + …, by Theorem 1."""
    fine, coarse = (of(experiment(tmp_path, granularity=g), "aggregate") for g in (2.0**-14, 2.0**-4))
    gamma, d = 2.0**-4, 650
    wider = sqrt(1 + gamma**2 * d / 4 + sqrt(-2 * log(0.6065)) * gamma * (1 + gamma * sqrt(d) / 2))
    assert wider > 1.2
    at = epsilon(((Draw("discrete", wider / 4, steps=16 * 4 / sqrt(20), senders=20, numbers=d), 3),), DELTA)[0]
    assert coarse == pytest.approx(at, rel=1e-9) and fine < coarse


def test_a_target_epsilon_is_met(tmp_path):
    from dpfl_audit.audit.proven import target

    raw = experiment(tmp_path).config.model_dump()
    raw["scheme"] = {"name": "distributed-gaussian", "rounds": 3, "target_epsilon": 2.0}
    made = target.build(parse_config(raw), tmp_path)
    assert 1.99 < of(made, "aggregate") <= 2.0
