"""dp_accounting's RDP and PLD, of draws of noise (`draw.Draw`).

dp_accounting 0.6 takes replace-one's factor 2 differently by accountant, so each event is made here, once:

- plain Gaussian and Laplace: the whole sensitivity goes into the multiplier; a shift, which add/remove prices;
- Poisson, zero_out: `PoissonSampledDpEvent` under add/remove;
- Poisson, replace_one: PLD's REPLACE_ONE doubles by itself, so it gets the bound, not twice the bound. The pair it
  composes (a vector at +C, or at −C, drawn with probability q) dominates all others: move the origin to one of the two
  and it is the lemma on mixtures of Gaussians of arXiv:2310.15526. RDP refuses the event: there it is add/remove twice;
- a sample of fixed size: RDP's `SampledWithoutReplacementDpEvent` under replace-one wants σ/(2C), and PLD refuses it:
  there it is the pair of `fixed_cohort`, over 2C too.

PLD composes dominating pairs by FFT. Losses are rounded up, and what is cut off counts as infinite. The FFT itself
rounds masses to 1e-16 or so a draw, up or down: `ROUNDING` of them is taken off δ, and where δ is no larger, PLD is not
asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from math import ceil, exp, inf, isfinite, log, log1p, log2, sqrt

import numpy as np
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
)
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS, compute_epsilon
from scipy.special import logsumexp

from .discrete import discrete_renyi
from .draw import Draw, Draws, joint_ratio
from .fixed_cohort import fixed_cohort_pld, largest_loss
from .laplace_sum import LARGEST_RATIO, LEAST_RATIO, laplace_sum_pld
from .poisson import sampled_gaussian_pld
from .response import response_renyi
from .shuffled import shuffled_pld, shuffled_renyi

ADD_REMOVE, REPLACE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
ORDERS = np.array([1.015, 1.02, 1.03, 1.05, 1.07, *DEFAULT_RDP_ORDERS])  # rising; low orders matter at large ε
# The highest orders take the longest. Each block ends at an integer, at which the series of a sampled Gaussian end too.
BLOCKS = np.split(ORDERS, np.searchsorted(ORDERS, 2.0 ** np.arange(1, 10), side="right"))
PLD_UP_TO = 1e6  # beyond this ε the grid's steps are so wide that e^step overflows
CURVE_FROM = 0.005  # from this δ on a price is a point of a whole curve, whose points share few grids
ROUNDING = 1e-15  # per draw: ten times what is seen where the closed form is known
LARGEST_PMF = 200_000  # points of one draw's grid: dp_accounting makes a dict of them
SERIES_FROM, SERIES_TO = 1e-5, 1e5  # outside, dp_accounting's series under- or overflow: closed form only


def least_epsilon(draws: Draws, delta: float, known: tuple[float, str], use_pld: bool = True) -> tuple[float, str]:
    """The least of `known`, an ε that holds and whose it is, and of those that RDP and PLD prove at δ.

    Args:
        draws, delta: what is priced. use_pld: as for `composition.epsilon`.
    """
    if not all(_in_series(draw) for draw, _ in draws):
        return known
    best = min(known, (_rdp_epsilon(draws, delta, known[0]), "RDP"))
    discrete = any(draw.mechanism == "discrete" for draw, _ in draws)  # of which only the Rényi divergence is known
    if use_pld and 0 < best[0] <= PLD_UP_TO and not discrete:
        choices = {draws, tuple((draw.plain if draw.amplification == "fixed" else draw, n) for draw, n in draws)}
        pld_draws = (choice for choice in sorted(choices) if any(_pld_helps(draw) for draw, _ in choice))
        best = min(best, *((_pld_epsilon(choice, delta, best[0]), "PLD") for choice in pld_draws))
    return best


def _in_series(draw: Draw) -> bool:
    """Whether dp_accounting's series neither under- nor overflow, where it is they that are asked."""
    if draw.mechanism == "discrete":
        return True
    return all(SERIES_FROM <= value <= SERIES_TO for value in (draw.ratio, draw.inner or draw.ratio))


def _rdp_epsilon(draws: Draws, delta: float, known: float) -> float:
    """The least ε of any order, by blocks of orders until no higher one can be below it, or below `known`."""
    least, best = inf, known
    for block, orders in enumerate(BLOCKS):
        divergences = _composed(draws, block)
        least = min(least, float(compute_epsilon(orders, divergences, delta)[0]))
        best = min(best, least)
        if _at_least(draws, orders[-1], divergences[-1], delta) >= best:
            break
    return least


def _at_least(draws: Draws, order: float, divergence: float, delta: float) -> float:
    """What no order above `order` is below, 0 where that is not known. divergence: of all draws together at `order`.

    Rényi divergences rise with the order, and so do the bounds of sampled and of plain Gaussians. The bound of
    "poisson_pair" by two divergences rises but for its factor (α − ½)/(α − 1), by which the divergence is divided here.
    """
    above = ORDERS[order < ORDERS]
    rising = all(draw.mechanism == "gaussian" and draw.amplification != "fixed" for draw, _ in draws)
    if not rising or not isfinite(divergence) or delta == 0:
        return 0.0
    floor = divergence * (order - 1) / (order - 0.5)
    return min((compute_epsilon([a], [floor], delta)[0] for a in above), default=inf)


def renyi(draws: Draws) -> np.ndarray:
    """The Rényi divergences of all draws together, at `ORDERS`."""
    return np.concatenate([_composed(draws, block) for block in range(len(BLOCKS))])


def epsilon_of_renyi(divergences: np.ndarray, delta: float) -> float:
    """The ε at δ of whatever has these Rényi divergences at `ORDERS`, ∞ where nothing is known."""
    return float(compute_epsilon(ORDERS, divergences, delta)[0])


def _composed(draws: Draws, block: int) -> np.ndarray:
    """The Rényi divergences of all draws together, at one of `BLOCKS`."""
    orders = BLOCKS[block]
    total = np.zeros_like(orders)
    for draw, count in draws:
        if _in_series(draw):
            total = total + count * _rdp(draw, block)
        else:  # without amplification a Gaussian's is exact, and a Laplace's is at most its ε
            total = total + count * (orders * draw.ratio**2 / 2 if draw.mechanism == "gaussian" else draw.ratio)
    return total


@lru_cache(maxsize=4096)
def _rdp(draw: Draw, block: int) -> np.ndarray:
    """The Rényi divergences at one of `BLOCKS`: at each order the best of the plain and the amplified bounds."""
    orders = BLOCKS[block]
    if draw.mechanism == "response":
        if draw.senders > 1:
            return shuffled_renyi(draw.ratio, draw.senders, orders)
        return response_renyi(draw.ratio, orders, draw.fair)
    if draw.mechanism == "discrete":
        return discrete_renyi(draw.ratio, draw.steps, draw.senders, draw.numbers, orders)
    kind = GaussianDpEvent if draw.mechanism == "gaussian" else LaplaceDpEvent
    plain = _rdp_of(kind(1 / draw.ratio), ADD_REMOVE, orders)
    if draw.mechanism == "laplace" or not draw.amplification:
        return plain
    inner = GaussianDpEvent(1 / draw.inner)
    if draw.amplification == "fixed":
        return np.minimum(plain, _rdp_of_cohort(draw, inner, orders))
    one_way = _rdp_of_poisson(draw.rate, draw.inner, block)
    if draw.amplification == "poisson":
        return np.minimum(plain, one_way)
    # From P (with +C) to Q (with −C) through R (without both). Either Mironov 2017, Proposition 11 with p = q = 2, or
    # R ≤ Q/(1 − rate), so that the loss log(P/Q) is at most log(P/R) − log(1 − rate).
    event = PoissonSampledDpEvent(draw.rate, inner)
    there, back = (_rdp_of(event, ADD_REMOVE, twice) for twice in (2 * orders, 2 * orders - 1))
    return np.minimum.reduce([plain, (orders - 0.5) / (orders - 1) * there + back, one_way - log1p(-draw.rate)])


@lru_cache(maxsize=4096)
def _rdp_of_poisson(rate: float, ratio: float, block: int) -> np.ndarray:
    """Of a contribution that is there or not, which both adjacencies ask for."""
    return _rdp_of(PoissonSampledDpEvent(rate, GaussianDpEvent(1 / ratio)), ADD_REMOVE, BLOCKS[block])


def _rdp_of_cohort(draw: Draw, inner: GaussianDpEvent, orders: np.ndarray) -> np.ndarray:
    """Of what the observer knows of the cohort, which looks at no data, and of what it then sees: the divergences are
    means of exponentials.
    """
    parts, weights = [], []
    for weight, cohort, population in draw.rates:
        sampled: DpEvent = SampledWithoutReplacementDpEvent(population, cohort, inner)
        if cohort == population:  # 1/(2·noise) is what two contributions are apart
            parts.append(_rdp_of(GaussianDpEvent(inner.noise_multiplier), ADD_REMOVE, orders))
        else:
            parts.append(_rdp_of(sampled, REPLACE_ONE, orders) if cohort else np.zeros_like(orders))
        weights.append(weight)
    if len(parts) == 1:
        return parts[0]
    return logsumexp((orders - 1) * np.array(parts), b=np.array(weights)[:, None], axis=0) / (orders - 1)


def _rdp_of(event: DpEvent, neighbours: NeighboringRelation, orders: np.ndarray) -> np.ndarray:
    accountant = RdpAccountant(orders, neighbours)
    with _quiet(), np.errstate(over="ignore", invalid="ignore"):
        accountant.compose(event)
    # The series round to a few ulps of 1, below 0 too, which `compute_epsilon` would take for perfect privacy.
    return np.where(np.isnan(accountant.rdp), inf, np.maximum(accountant.rdp, 0) + 1e-14 / (orders - 1))


@contextmanager
def _quiet() -> Iterator[None]:
    """dp_accounting logs a warning for each order its series does not reach; that order comes back infinite, unused."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _pld_helps(draw: Draw) -> bool:
    return draw.mechanism != "gaussian" or draw.amplification != ""


def _pld_epsilon(draws: Draws, delta: float, known: float) -> float:
    """PLD with pessimistic rounding; infinite where δ is too small for the FFT, or the draws are too many for the grid.

    known: an ε > 0 that holds, which sets the grid.
    """
    count = sum(count for _, count in draws)
    rounding, interval = ROUNDING * (100 + count), _interval(draws, known)
    if delta >= CURVE_FROM:
        interval = 2.0 ** ceil(log2(interval))
    if delta <= 10 * rounding or count * interval**2 / 8 > known / 10:
        return inf
    return float(_composed_pld(draws, interval).get_epsilon_for_delta(delta - rounding))


@lru_cache(maxsize=16)  # a curve asks of five kinds of clients in turn, on two or three grids each
def _composed_pld(draws: Draws, interval: float) -> pld.PrivacyLossDistribution:
    plain = tuple((draw, count) for draw, count in draws if not _pld_helps(draw))
    total = pld.identity(interval)
    if plain:
        total = sampled_gaussian_pld(1.0, joint_ratio(plain), ADD_REMOVE, interval)
    with np.errstate(over="ignore"):  # masses that a double hardly holds, in a bound on how long the array must be
        for draw, times in draws:
            if _pld_helps(draw):
                total = total.compose(_pld(draw, interval).self_compose(times))
    return total


def _interval(draws: Draws, known: float) -> float:
    """The grid of privacy losses: fine enough to cost one part in 10⁴ of ε or so, coarse enough for the memory.

    Joining points h apart costs at most h²/8 of loss a draw. 10⁶ steps to ε and `LARGEST_PMF` to one draw's largest
    loss keep all below 1 GiB.
    """
    pairs = [(draw, count) for draw, count in draws if _pld_helps(draw)]
    finest = min(5e-5 * known, sqrt(8e-4 * known / sum(count for _, count in pairs)))
    return max(1e-4, finest, 1e-6 * known, max(map(_reach, (draw for draw, _ in pairs))) / LARGEST_PMF)


def _reach(draw: Draw) -> float:
    """About the largest loss of one draw that a grid must hold."""
    if draw.mechanism != "gaussian":
        return draw.ratio
    rate = draw.rate
    if draw.amplification == "fixed":
        rate = max(cohort / population for _, cohort, population in draw.rates)
    return (2 if draw.amplification == "poisson_pair" else 1) * largest_loss(rate, draw.inner)


@lru_cache(maxsize=32)
def _pld(draw: Draw, interval: float) -> pld.PrivacyLossDistribution:
    if draw.mechanism == "response" and draw.senders > 1:
        return shuffled_pld(draw.ratio, draw.senders, interval)
    if draw.fair:
        truth = -log1p(exp(-draw.ratio))
        answers, coin = {1: truth, 0: truth - draw.ratio}, {1: log(0.5), 0: log(0.5)}
        # The world with the subject is the upper one, as in the Gaussian's: else "remove" of one were composed with
        # "add" of the other.
        return pld.from_two_probability_mass_functions(coin, answers, True, interval, symmetric=False)
    if draw.mechanism == "response":
        lies = 2 / (exp(draw.ratio) + 1)  # of two answers, one at random in so many cases
        return pld.from_randomized_response(lies, 2, value_discretization_interval=interval)
    if draw.amplification == "fixed":
        rates = tuple((weight, cohort / population) for weight, cohort, population in draw.rates if cohort)
        return fixed_cohort_pld(rates, draw.inner, interval)
    if draw.scales and LEAST_RATIO <= draw.ratio <= LARGEST_RATIO:
        return laplace_sum_pld(draw.scales, interval)
    if draw.mechanism == "laplace":
        scale = 1 / (draw.inner if draw.amplification == "poisson" else draw.ratio)
        return pld.from_laplace_mechanism(scale, value_discretization_interval=interval, sampling_prob=draw.rate)
    neighbours = ADD_REMOVE if draw.amplification == "poisson" else REPLACE_ONE
    return sampled_gaussian_pld(draw.rate, draw.inner, neighbours, interval)
