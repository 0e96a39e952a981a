"""Randomised responses of which only the sum is seen: amplification by shuffling.

n clients answer a number with one of two values, pure ε-DP each: "up" with a probability between q = 1/(e^ε + 1) and
1 − q, whatever the client holds. Every such answer is a fair coin with probability 2q, and else something of the
client's own that does not matter (the clones of Feldman, McMillan and Talwar 2021, arXiv:2012.12803, section 3, with
the larger share of arXiv:2208.04591 that two values have). Who sees how many are up, and is told what the others
answered who tossed no coin, has k = Bin(C, ½) + A left, C the number of coins among the n − 1 others, binomial with 2q,
which is told too, and A the subject's own answer. Of A only whether it is up with 1 − q or with q is the worst: any two
answers are mixtures of these. So

    P: C ~ Bin(n − 1, 2q), k ~ Bin(C, ½) + Bernoulli(1 − q),    Q: the same with Bernoulli(q)

dominate the two worlds, whatever the others answer for and was released before. Turning k into C + 1 − k turns P into
Q. The subject must answer once, and all weigh the same: then a sum is a function of how many are up. More coins are
post-processing, so leaving senders out is sound.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, exp

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom

from .symmetric import symmetric_pld

MOST_SENDERS = 1000  # that are counted
RARE = 1e-18  # of the masses of C; its ends are left out
_Array = NDArray[np.float64]


@lru_cache(maxsize=64)
def _pair(epsilon: float, senders: int) -> tuple[_Array, _Array]:
    """P's masses, and the losses log P/Q, of all (C, k)."""
    lie = 1 / (exp(epsilon) + 1)
    others = min(senders, MOST_SENDERS) - 1
    coins = np.arange(others + 1)
    weights = binom.pmf(coins, others, 2 * lie)
    kept = weights > RARE
    left = max(0.0, 1 - float(weights[kept].sum()))  # counts as no coins at all, which tells the most
    masses, losses = [np.array([left * (1 - lie), left * lie])], [np.array([epsilon, -epsilon])]
    for count, weight in zip(coins[kept], weights[kept]):
        k = np.arange(count + 2)
        heads = binom.pmf(np.arange(-1, count + 2), count, 0.5)
        masses.append(weight * ((1 - lie) * heads[:-1] + lie * heads[1:]))
        up, down = k, count + 1 - k  # what the two binomial coefficients are to each other
        losses.append(np.log(((1 - lie) * up + lie * down) / (lie * up + (1 - lie) * down)))
    return np.concatenate(masses), np.concatenate(losses)


def shuffled_renyi(epsilon: float, senders: int, orders: np.ndarray) -> np.ndarray:
    """The Rényi divergences at `orders` > 1 of one number's answers, the subject's among them.

    Args:
        epsilon: > 0, of one answer. senders: n ≥ 1.

    >>> from .response import response_renyi
    >>> orders = np.array([2.0, 8.0])
    >>> bool(np.allclose(shuffled_renyi(1.0, 1, orders), response_renyi(1.0, orders)))
    True
    """
    masses, losses = _pair(epsilon, senders)
    found = np.array([logsumexp((order - 1) * losses, b=masses) / (order - 1) for order in orders])
    return np.clip(found + 1e-14 / (orders - 1), 0.0, epsilon)  # 1e-14: sums of float64


def shuffled_profile(epsilon: float, senders: int, levels: np.ndarray) -> np.ndarray:
    """δ at each of `levels` ≥ 0 of one number's answers.

    >>> bool(np.isclose(shuffled_profile(1.0, 1, np.array([0.0]))[0], np.tanh(0.5)))
    True
    """
    masses, losses = _pair(epsilon, senders)
    order = np.argsort(losses)
    masses, losses = masses[order], losses[order]
    above = np.concatenate([np.cumsum(masses[::-1])[::-1], [0.0]])
    other = np.concatenate([np.cumsum((masses * np.exp(-losses))[::-1])[::-1], [0.0]])
    first = np.searchsorted(losses, levels, side="right")
    return np.maximum(above[first] - np.exp(levels) * other[first], 0.0)


def shuffled_pld(epsilon: float, senders: int, interval: float) -> pld.PrivacyLossDistribution:
    """The privacy loss distribution, rounded up.

    Args:
        epsilon, senders: as for `shuffled_renyi`. interval: the grid of privacy losses, > 0.
    """
    steps = max(1, ceil(epsilon / interval))
    return symmetric_pld(shuffled_profile(epsilon, senders, interval * np.arange(steps + 1)), interval)
