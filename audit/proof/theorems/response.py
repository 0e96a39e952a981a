"""Randomised responses: the exact ε of many that are alike.

Of a client that is zeroed out nothing is left but the answers that 0 has: fair coins, where responses are about 0. The
answers of any value lie between those of the two extremes, which are the same up to naming, so either world is no
further from the other than a coin that lies with probability l is from a fair one, number by number: at most
ln(1/2l) = ln((e^ε + 1)/2) apart, and less than ε.

A mechanism of pure ε-DP tells no more than a coin that says which of two worlds it is in and lies with probability
1/(e^ε + 1) (Kairouz, Oh and Viswanath 2015, arXiv:1311.0776, Theorem 3.3). Of m such coins only the number k of those
that tell the truth counts, and the loss is (2k − m)ε.
"""

from __future__ import annotations

from math import ceil, exp, floor, log, log1p, sqrt

import numpy as np
from scipy.special import gammaln


def response_epsilon(epsilon: float, count: int, delta: float, fair: bool = False) -> float:
    """The least ε' at δ of `count` mechanisms of pure ε-DP, whichever they are: reached by randomised responses.

    fair: of responses against fair coins instead, the larger one of both orders.

    δ(ε') = Σ_k P(k) (1 − e^(ε' − loss))₊ with P binomial; ε' is rounded up by one part in 10⁹.

    Args:
        epsilon: > 0, of each. count: at least 1. delta: in [0, 1).

    >>> response_epsilon(1.0, 5, 0.0), round(response_epsilon(1.0, 100, 1e-5), 2)
    (5.0, 79.84)
    """
    whole = pure(epsilon, fair) * count
    if delta == 0:
        return whole
    kept, beyond = _likely(count, 1 / (1 + exp(-epsilon)), delta)
    if not fair:
        return _least(*_losses(epsilon, count, kept), whole, delta - beyond)
    there = _least(*_fair_losses(epsilon, count, kept)[0], whole, delta - beyond)
    kept, beyond = _likely(count, 0.5, delta)
    return max(there, _least(*_fair_losses(epsilon, count, kept)[1], whole, delta - beyond))


def _likely(count: int, probability: float, delta: float) -> tuple[np.ndarray, float]:
    """How many of `count` coins may come up, and the probability of all other numbers at most, which δ must hold too:
    a part in 10¹² of δ by Hoeffding's inequality (1963, doi:10.1080/01621459.1963.10500830, theorem 1), or 0 of all
    numbers. Of 5·10⁷ coins these are some 6·10⁴ numbers.
    """
    beyond = delta * 1e-12
    if beyond < 1e-300:  # so small a δ that a share of it is no float: all numbers
        return np.arange(count + 1), 0.0
    reach = sqrt(count / 2 * log(2 / beyond))
    low, high = max(0, floor(count * probability - reach)), min(count, ceil(count * probability + reach))
    return np.arange(low, high + 1), 0.0 if high - low == count else beyond


def pure(epsilon: float, fair: bool) -> float:
    """The largest loss of one answer."""
    if fair:
        return epsilon - log(2) + log1p(exp(-epsilon))
    return epsilon


def _least(losses: np.ndarray, log_mass: np.ndarray, whole: float, delta: float) -> float:
    def delta_at(target: float) -> float:
        beyond = losses > target
        return float(np.sum(np.exp(log_mass[beyond]) * -np.expm1(target - losses[beyond])))

    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, whole
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def response_renyi(epsilon: float, orders: np.ndarray, fair: bool = False) -> np.ndarray:
    """The Rényi divergences of one mechanism of pure ε-DP at `orders` > 1: those of a randomised response,
    ln(p^α q^(1−α) + q^α p^(1−α))/(α − 1), p = e^ε/(e^ε + 1), q = 1 − p; or of one and a fair coin, the larger way.

    >>> bool(np.isclose(response_renyi(1.0, np.array([1.0001]))[0], np.tanh(0.5), rtol=1e-3))
    True
    """
    truth, lie = -log1p(exp(-epsilon)), -epsilon - log1p(exp(-epsilon))
    if fair:
        half = log(0.5)
        there = np.logaddexp(orders * truth, orders * lie) + (1 - orders) * half
        back = np.logaddexp((1 - orders) * truth, (1 - orders) * lie) + orders * half
        return np.minimum(np.maximum(there, back) / (orders - 1), pure(epsilon, fair))
    one, other = orders * truth + (1 - orders) * lie, orders * lie + (1 - orders) * truth
    return np.minimum(np.logaddexp(one, other) / (orders - 1), epsilon)


def _fair_losses(
    epsilon: float, count: int, k: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The same of responses against fair coins, and of these against responses."""
    truth = -log1p(exp(-epsilon))
    told = k * truth + (count - k) * (truth - epsilon)
    tossed = np.full(len(k), count * log(0.5))
    choose = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
    return (told - tossed, choose + told), (tossed - told, choose + tossed)


def _losses(epsilon: float, count: int, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Losses and the logarithms of their probabilities, by how many coins tell the truth."""
    choose = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
    truth = -log1p(exp(-epsilon))
    return (2 * k - count) * epsilon, choose + k * truth + (count - k) * (truth - epsilon)
