"""From what an observer sees to a lower bound on ε, by plain arithmetic: binned views, their privacy losses, one FFT.

Nothing here comes from `audit.proven`, and every rounding goes down, so that what is printed is at most the truth:

- a view is only looked at through bins (post-processing, which never adds privacy loss);
- the loss log(P/Q) of a bin is rounded down to the grid, losses above its top are lowered to it;
- the probability of losses below its bottom is dropped;
- `SLACK` covers the rounding of the FFT.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb, factorial, inf, log, sqrt

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import log_ndtr, ndtr

Array = np.ndarray

BINS = 2**13  # of one view
CELLS = 2**16  # of the grid over the losses of one view
TAIL = 1e-14  # of a view's probability may lie outside of its grid
SLACK = 1e-10  # taken off every δ(ε)
TOP = 600.0  # no ε above this is computed

Mixture = tuple[tuple[float, float], ...]  # (probability, mean) of each part


@dataclass(frozen=True, order=True)
class Pair:
    """One real number with noise of unit size, around means that differ by world.

    Args:
        noise: "gaussian" (std 1), "laplace" (scale 1) or "discrete" (Gaussian on whole numbers, as are all means).
        summed: how many independent noises are added up (Laplace and discrete alone).
        p, q: with probability … the mean is …, in each of the two worlds.
        sigma, modulus: of discrete noise; modulus 0 for numbers that nothing is taken modulo.
    """

    noise: str
    p: Mixture
    q: Mixture
    summed: int = 1
    sigma: float = 1.0
    modulus: int = 0


@dataclass(frozen=True)
class View:
    """Independent parts of what an observer sees.

    Args:
        mu: distance over std of the Gaussians with one mean a world, all together; infinite: the worlds are told apart.
        pairs: everything else, with how many times each is seen.
    """

    mu: float = 0.0
    pairs: tuple[tuple[Pair, int], ...] = ()


def epsilon(view: View, delta: float) -> float:
    """The least ε ≥ 0 at which the two worlds are (ε, δ)-close in both directions, or somewhat less. δ in (0, 1)."""
    if view.mu == inf:
        return inf
    if not view.pairs:
        return _gaussian_epsilon(view.mu, delta)
    alike = all(len(pair.p) == len(pair.q) == 1 for pair, _ in view.pairs)  # then the other direction is its mirror
    # Beyond TOP the probabilities of a view's bins underflow in one world, and their losses are no longer exact.
    return min(TOP, max(_composed(view, delta, turned) for turned in ((False,) if alike else (False, True))))


@lru_cache(maxsize=65536)
def _gaussian_epsilon(mu: float, delta: float) -> float:
    """By bisection of δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), from below."""

    def above(eps: float) -> bool:
        return float(ndtr(mu / 2 - eps / mu) - np.exp(eps + log_ndtr(-mu / 2 - eps / mu))) > delta * (1 + 1e-9)

    if mu <= 0 or not above(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while above(high):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        low, high = (middle, high) if above(middle := (low + high) / 2) else (low, middle)
    return low


@lru_cache(maxsize=65536)
def _composed(view: View, delta: float, turned: bool) -> float:
    pairs = list(view.pairs)
    if view.mu > 0:
        pairs.append((Pair("gaussian", ((1.0, view.mu),), ((1.0, 0.0),)), 1))
    losses = [(*_losses(pair, turned), count) for pair, count in pairs]
    ranges = [_range(loss, mass) for loss, mass, _ in losses]
    width = max(max(high - low for low, high in ranges) / CELLS, 1e-7)
    total = _Grid(0, np.ones(1))
    for (loss, mass, count), (low, high) in zip(losses, ranges):
        inside = loss >= low
        cell = np.floor(np.minimum(loss[inside], high) / width - 1e-9).astype(int)
        first = int(cell.min())
        total = total.plus(_Grid(first, np.bincount(cell - first, weights=mass[inside])).times(count))
    return _least((total.first + np.arange(len(total.mass))) * width, total.mass, delta + SLACK)


@dataclass(frozen=True, eq=False)
class _Grid:
    """Probabilities of the losses first, first + 1, … on a grid."""

    first: int
    mass: Array

    def plus(self, other: _Grid) -> _Grid:
        """The loss of both together; its far tails are lowered and dropped, so that it stays short."""
        length = len(self.mass) + len(other.mass) - 1
        size = next_fast_len(length, real=True)
        mass = np.clip(irfft(rfft(self.mass, size) * rfft(other.mass, size), size)[:length], 0.0, None)
        low = int(np.searchsorted(np.cumsum(mass), TAIL))
        high = max(length - int(np.searchsorted(np.cumsum(mass[::-1]), TAIL)), low + 1)
        kept = mass[low:high].copy()
        kept[-1] += mass[high:].sum()
        return _Grid(self.first + other.first + low, kept)

    def times(self, count: int) -> _Grid:
        """`count` of them together, by squaring."""
        if count == 1:
            return self
        half = self.times(count // 2)
        whole = half.plus(half)
        return whole.plus(self) if count % 2 else whole


def _range(loss: Array, mass: Array) -> tuple[float, float]:
    """Where all but `TAIL` of the losses on either side lie; no more than ± `TOP`."""
    order = np.argsort(loss)
    total = np.cumsum(mass[order])
    low = loss[order[np.searchsorted(total, TAIL)]]
    high = loss[order[min(np.searchsorted(total, total[-1] - TAIL), len(order) - 1)]]
    return max(float(low), -TOP), min(max(float(high), float(low)), TOP)


def _least(loss: Array, mass: Array, delta: float) -> float:
    """The least ε ≥ 0 with Σ mass·(1 − e^(ε − loss))⁺ ≤ δ; `loss` ascends."""
    above = loss > 0
    loss, mass = loss[above], mass[above]
    if not len(loss):
        return 0.0
    whole = np.cumsum(mass[::-1])[::-1]  # of the losses from here on
    scaled = np.cumsum((mass * np.exp(-loss))[::-1])[::-1]
    if whole[0] - scaled[0] <= delta:
        return 0.0
    # Just below loss k, all losses from k on count; δ(ε) falls with ε, so the first k where it fits is the cell.
    at = whole - np.where(scaled > 0, np.exp(np.minimum(loss + np.log(np.maximum(scaled, 1e-300)), 0.0)), 0.0)
    k = int(np.argmax(at <= delta)) if (at <= delta).any() else len(loss) - 1
    if whole[k] <= delta or scaled[k] <= 0:
        return float(loss[k - 1]) if k else 0.0
    return float(max(0.0, min(log((whole[k] - delta) / scaled[k]), loss[k])))


@lru_cache(maxsize=4096)
def _losses(pair: Pair, turned: bool) -> tuple[Array, Array]:
    """Privacy losses of the bins of a view, and their probabilities in the first world."""
    first, second = (pair.q, pair.p) if turned else (pair.p, pair.q)
    if pair.noise == "discrete":
        return _log_ratios(_whole_masses(pair, first), _whole_masses(pair, second))
    means = [mean for _, mean in (*first, *second)]
    reach = 9.0 if pair.noise == "gaussian" else 40.0 + 3 * pair.summed
    edges = np.linspace(min(means) - reach, max(means) + reach, BINS)
    return _log_ratios(_masses(pair, first, edges), _masses(pair, second, edges))


def _log_ratios(mass: Array, other: Array) -> tuple[Array, Array]:
    kept = mass > 0
    return np.log(mass[kept]) - np.log(np.maximum(other[kept], 1e-300)), mass[kept]


def _masses(pair: Pair, parts: Mixture, edges: Array) -> Array:
    """The probability of each bin, the two beyond the edges included; differences of the smaller tail, so none is lost
    to rounding.
    """
    total = np.zeros(len(edges) + 1)
    for probability, mean in parts:
        x = edges - mean
        below, above = (_gaussian_tails if pair.noise == "gaussian" else _laplace_tails)(x, pair.summed)
        inner = np.where(x[:-1] >= 0, above[:-1] - above[1:], below[1:] - below[:-1])
        total += probability * np.concatenate([below[:1], inner, above[-1:]])
    return np.maximum(total, 0.0)


def _whole_masses(pair: Pair, parts: Mixture) -> Array:
    """The probabilities of whole numbers, of the same ones whatever the parts, or of the remainders 0 … modulus − 1.

    The law of a sum by adding up products, which loses no digits of small ones; beyond 39σ a noise's are below 10⁻³⁰⁰.
    """
    reach = ceil(39 * pair.sigma)
    k = np.arange(-reach, reach + 1)
    one = np.exp(-(k**2) / (2 * pair.sigma**2))
    one /= one.sum()
    law = one
    for _ in range(pair.summed - 1):
        law = np.convolve(law, one)
    furthest = int(max(abs(mean) for _, mean in (*pair.p, *pair.q)))
    total = np.zeros(len(law) + 2 * furthest)
    for probability, mean in parts:
        first = furthest + int(mean)
        total[first : first + len(law)] += probability * law
    if not pair.modulus:
        return total
    lowest = -(reach * pair.summed + furthest)
    return np.bincount((lowest + np.arange(len(total))) % pair.modulus, weights=total, minlength=pair.modulus)


def _gaussian_tails(x: Array, summed: int) -> tuple[Array, Array]:
    if summed != 1:
        raise ValueError("a sum of Gaussians is one Gaussian: give it as such")
    return ndtr(x), ndtr(-x)


def _laplace_tails(x: Array, summed: int) -> tuple[Array, Array]:
    """P[X ≤ x] and P[X > x] of a sum of n Laplace numbers, the difference of two gammas of shape n.

    For x ≥ 0, P[X > x] = e^−x Σ_{j<n} Σ_{k≤j} x^(j−k)/(j−k)! · C(n+k−1, k)/2^(n+k).
    """
    size = np.abs(x)
    outer = np.zeros_like(size)
    for j in range(summed):
        for k in range(j + 1):
            outer += size ** (j - k) / factorial(j - k) * comb(summed + k - 1, k) / 2.0 ** (summed + k)
    outer *= np.exp(-size)
    return np.where(x >= 0, 1 - outer, outer), np.where(x >= 0, outer, 1 - outer)


def shifted(noise: str, distance: float, summed: int = 1) -> Pair:
    """Noise around 0 in one world, and around `distance` in the other."""
    return Pair(noise, ((1.0, distance),), ((1.0, 0.0),), summed)


def sampled(noise: str, rate: float, first: float, second: float) -> Pair:
    """With probability `rate` the mean is `first` in one world and `second` in the other, else 0 in both."""
    return Pair(noise, ((1 - rate, 0.0), (rate, first)), ((1 - rate, 0.0), (rate, second)))


def counted(trials: int, rate: float, first: float, second: float) -> Pair:
    """As `sampled`, the sum of `trials` such means behind one Gaussian noise."""
    ways = [comb(trials, j) * rate**j * (1 - rate) ** (trials - j) for j in range(trials + 1)]
    return Pair(
        "gaussian",
        tuple((way, j * first) for j, way in enumerate(ways)),
        tuple((way, j * second) for j, way in enumerate(ways)),
    )


def turned_around(chance: float, otherwise: float, distance: float) -> Pair:
    """A Gaussian at `distance` rather than 0 with probability `chance` in one world, `otherwise` in the other."""
    return Pair("gaussian", ((chance, distance), (1 - chance, 0.0)), ((otherwise, distance), (1 - otherwise, 0.0)))


def joined(ratios: list[float]) -> float:
    """√Σ r²: many Gaussians are one."""
    return sqrt(sum(r * r for r in ratios))
