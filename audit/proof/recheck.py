"""A second way to the same number, slow and short: explicit worlds below, Rényi divergences above.

It shares with what priced them which releases an observer has something of (`Views`, `Exposure`), the facts of a
release with its ratio (`Counted`), and the closed form of a Gaussian. How far a subject moves a release, what a draw
hides, which releases are of one draw, and how all of them compose, it works out by code and caches of its own.

Below, each draw becomes a pair of explicit outputs of two neighbours, binned, which is post-processing; losses are
rounded down, tails dropped, and draws that it has no pair for count as nothing: a smaller ε is false.
Above stand Rényi divergences without any sampling but coins for the unit itself: a larger ε is needlessly so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom, hypergeom

from ...defenses.progress import Progress
from ...defenses.releases import CorrelatedLaw, DiscreteLaw, GaussianLaw, LaplaceLaw, NoiseFact, ResponseLaw, Sampling
from ...defenses.terms import Adjacency, Observer, Unit
from ..proof.theorems.gaussian import gaussian_epsilon
from ..proven.accounting import Exposure
from ..proven.views import Views
from ..results.format import Epsilon
from ..setup.counted import Counted
from .certificate import premises_of

_Array = NDArray[np.float64]
_Pair = tuple[_Array, _Array]
Mixture = tuple[tuple[float, float], ...]  # weights and means, over the noise's standard deviation
REACH, CELLS = 9.0, 6000  # standard deviations beyond the means, and bins
FOLDS, SURE = 16, 1e6  # of the integral of a sum of Laplace noises: how far, and masses over their error that count
TINY = 1e-290  # in the place of a mass that a double does not hold
LEAST = 1e-3  # sensitivity over the largest scale, below which that would take too many bins
MOST_CELLS = 2**18  # of the losses of several draws
MOST_DRAWS = 4000  # that count below; fewer are post-processing
FINE = 4e-3  # of ε that rounding losses down may cost, or so
SLACK = 1e-11  # of δ, which FFTs may have made of nothing
BELOW, ABOVE = 1e-6, 1e-2  # relative: of what is refused, and of what is called loose
KEPT = 512  # of what was worked out last: equal rounds, clients and observers need one look
ORDERS = np.concatenate([1 + np.geomspace(1e-2, 1, 40), np.geomspace(2.1, 4000, 120)])


@dataclass(frozen=True)
class _Fact:
    """Of a release all that its draw hangs on, so releases that differ in nothing else are looked at once."""

    law: NoiseFact
    ratio: float
    bound_norm: float | None
    bound_of: Unit
    records: int
    anywhere: bool
    sampling: Sampling | None
    steps: int
    secret: bool
    coalition: int

    @classmethod
    def of(cls, r: Counted) -> _Fact:
        return cls(**{each.name: getattr(r, each.name) for each in fields(cls)})


@dataclass(frozen=True, eq=False)
class _Draw:
    """One draw as two worlds. masses: of its outcomes in each, None where it counts below through `shift` alone.

    shift: of Gaussian noise, over its standard deviation. renyi: at `ORDERS`. pure: its ε at δ = 0.
    """

    times: int
    shift: float = 0.0
    masses: _Pair | None = None
    renyi: _Array | None = None
    pure: float = inf


def recheck_rows(rows: Sequence[Epsilon], views: Views, progress: Progress | None = None) -> list[str]:
    """What is wrong with stored proofs, a sentence each: of other facts than these, below what an attack learns, or
    needlessly loose. Rows without a finite ε prove nothing, and nothing is wrong with them.
    """
    wrong = []
    for i, row in enumerate(rows):
        if progress is not None:
            progress(i, len(rows), "checking proofs")
        if row.proven is None or row.proven == inf or row.delta is None:
            continue
        where = f"ε = {row.proven:.6g} per {row.unit} towards {row.observer} ({row.adjacency})"
        if row.ledger != views.ledger.digest:
            wrong.append(f"{where} is of another ledger than this one, so here it is no proof")
            continue
        observer = Observer.parse(row.observer)
        if set(row.premises) != premises_of(views, observer, row.unit, row.adjacency):
            wrong.append(f"{where} names other premises than these facts have")
            continue
        low, high = bracket(views, observer, row.unit, row.adjacency, row.delta)
        for name, epsilon in _stored_with(row):
            if epsilon < low * (1 - BELOW) - BELOW * row.delta:
                wrong.append(f"{where}: its {name} stands for {epsilon:.6g}, and an explicit attack learns {low:.6g}")
        for delta, epsilon in row.profile[-1:]:  # of the average attack; the others are between it and ε
            if epsilon < bracket(views, observer, row.unit, row.adjacency, delta)[0] * (1 - BELOW) - BELOW * delta:
                wrong.append(f"{where}: at δ = {delta:g} it says {epsilon:.6g}, and an explicit attack learns more")
        if row.proven < low * (1 - BELOW) - BELOW * row.delta:
            wrong.append(f"{where} is below {low:.6g}, which an explicit attack learns")
        elif row.proven > high * (1 + ABOVE) + BELOW:
            wrong.append(f"{where} is above {high:.6g}, which holds too: it is loose")
    return wrong


def _stored_with(row: Epsilon) -> Iterator[tuple[str, float]]:
    """What a row says beside its ε, each as an ε at its δ, which may not be below what an attack learns either."""
    if row.proven_without_sampling is not None:
        yield "ε without secret draws", row.proven_without_sampling
    if row.mu is not None and row.delta:
        yield "μ", gaussian_epsilon(1 / row.mu, row.delta) if row.mu > 0 else 0.0


def bracket(views: Views, observer: Observer, unit: Unit, adjacency: Adjacency, delta: float) -> tuple[float, float]:
    """Below and above which no ε of these facts lies.

    Args:
        views: of the ledger. observer, unit, adjacency, delta: of the ε.
    """
    low = high = 0.0
    for sight in views.of(observer, unit, adjacency):
        ends = [_ends(exposure, unit, adjacency, delta) for exposure, _ in sight.alternatives]
        low, high = max(low, min(a for a, _ in ends)), max(high, min(b for _, b in ends))
    return low, high


def _ends(exposure: Exposure, unit: Unit, adjacency: Adjacency, delta: float) -> tuple[float, float]:
    made = {_of_history(about, unit, adjacency) for _, about in exposure.histories}
    ends = [(inf, inf) if draws is None else _ends_of(draws, delta) for draws in made]
    return max((low for low, _ in ends), default=0.0), max((high for _, high in ends), default=0.0)


@lru_cache(KEPT)
def _ends_of(draws: tuple[_Draw, ...], delta: float) -> tuple[float, float]:
    high = above(draws, delta)
    return below(draws, delta, high), high


# --- facts as worlds


def _of_history(about: Sequence[Counted], unit: Unit, adjacency: Adjacency) -> tuple[_Draw, ...] | None:
    """None where something is seen that nothing hides."""
    if any(r.problem or not r.ratio < inf for r in about):
        return None
    rounds: dict[tuple[int, int], list[Counted]] = {}
    for r in about:
        rounds.setdefault((r.training, r.round), []).append(r)
    chains: dict[str, list[Counted]] = {}
    slots: dict[str, list[Counted]] = {}
    draws: Counter[_Draw] = Counter()
    for r in (r for seen in rounds.values() for r in _of_round(seen, unit, adjacency)):
        if isinstance(r.law, CorrelatedLaw):
            chains.setdefault(r.law.chain, []).append(r)
        elif unit == "record" and r.slot:
            slots.setdefault(r.slot, []).append(r)
        else:
            draws[_draw(_Fact.of(r), unit, adjacency)] += 1
    for alike in slots.values():
        draws[_of_slot(tuple(dict.fromkeys(_draw(_Fact.of(r), unit, adjacency) for r in alike)))] += 1
    for chain in chains.values():
        draws[_of_chain(chain, unit, adjacency)] += 1
    return tuple(_repeated(draw, count) for draw, count in draws.items())


@lru_cache(KEPT)
def _repeated(draw: _Draw, count: int) -> _Draw:
    return replace(draw, times=draw.times * count)


def _of_round(seen: Sequence[Counted], unit: Unit, adjacency: Adjacency) -> Sequence[Counted]:
    """What is released of a subject in one round. Gaussians of one named draw are one, as long a vector as all of them
    (the subject moves each by its bound). Anything else may tell who was drawn: nothing is amplified.
    """
    if len(seen) == 1 or not any(map(_is_hidden, seen)):
        return seen
    first = replace(seen[0], anywhere=all(r.anywhere for r in seen), slot="")
    if first.lot and all(map(_is_gaussian, seen)) and len({(r.lot, r.sampling, r.steps, r.secret) for r in seen}) == 1:
        size = sqrt(sum((_moved(r, unit, adjacency) * r.ratio) ** 2 for r in seen)) / _moved(first, unit, adjacency)
        return [replace(first, law=GaussianLaw(1.0), bound_norm=size)]
    return [replace(r, secret=False) for r in seen]


def _is_gaussian(r: Counted | _Fact) -> bool:
    """Whether all its noise is its own."""
    return isinstance(r.law, GaussianLaw) and not r.law.terms and r.law.earlier == 0


@lru_cache(KEPT)
def _of_slot(alike: tuple[_Draw, ...]) -> _Draw:
    """A record is in one of them, nobody says which: below counts the one that moves furthest, above the largest of all
    divergences.
    """
    most = max(alike, key=lambda draw: (draw.shift, draw.pure if draw.pure < inf else 0.0))
    known = [draw.times * draw.renyi for draw in alike if draw.renyi is not None]
    renyi = None if len(known) < len(alike) else np.maximum.reduce(known) / most.times
    return replace(most, renyi=renyi, pure=max(draw.times * draw.pure for draw in alike) / most.times)


def _moved(r: Counted | _Fact, unit: Unit, adjacency: Adjacency) -> float:
    """How far a subject moves the value, in bounds, from the two neighbours that are furthest apart."""
    if r.bound_of == "client":
        if (unit, adjacency, r.anywhere) == ("client", "zero_out", False):
            return 1.0
        return 2.0
    lot = r.sampling
    batch = (
        0.0 if lot is None or lot.unit != "record" else float(lot.population if lot.kind == "poisson" else lot.cohort)
    )
    records = 1.0
    if unit == "client":
        records = max(float(r.records), np.ceil(batch))
    return records * (1.0 if adjacency == "zero_out" else 2.0)


@lru_cache(KEPT)
def _draw(r: _Fact, unit: Unit, adjacency: Adjacency) -> _Draw:
    moved, lot, times = _moved(r, unit, adjacency), r.sampling, r.steps
    if lot is not None and lot.kind == "partition" and unit == lot.unit:  # whole epochs, of which each has it once
        times = max(1, times // -(-lot.population // int(lot.cohort)))
    size = r.ratio * moved
    plain = _Draw(times, size, None, ORDERS * size**2 / 2)
    if isinstance(r.law, ResponseLaw):
        lies = 1 / (exp(r.ratio) + 1)
        fair = r.law.about_zero and (unit, adjacency, r.anywhere) == ("client", "zero_out", False)
        other = np.array([0.5, 0.5]) if fair else np.array([1 - lies, lies])
        others = max(1, sum(n for _, n in r.law.terms)) - 1
        pair = _shuffled(np.array([lies, 1 - lies]), lies, others), _shuffled(other, lies, others)
        return _Draw(times, 0.0, pair, np.full_like(ORDERS, r.ratio), r.ratio)
    if isinstance(r.law, LaplaceLaw):
        return _Draw(times, 0.0, _of_laplace(r, unit, adjacency, size), np.full_like(ORDERS, size), size)
    if isinstance(r.law, DiscreteLaw):
        alone = size * sqrt(sum(n for _, n in r.law.terms) or 1)  # behind one sender's noise
        return _Draw(times, 0.0, _discrete(r, moved), ORDERS * alone**2 / 2)
    if lot is None or not _is_hidden(r) or not _is_gaussian(r) or (unit == "client" and lot.unit == "record"):
        return plain
    if lot.unit == "client":  # one cohort for all steps
        size, times = size * sqrt(times), 1
    if lot.kind == "without_replacement":
        return _Draw(times, 0.0, _of_fixed(r, unit, adjacency, size), plain.renyi)
    rate, whole = lot.cohort / lot.population, unit == lot.unit and adjacency == "zero_out"
    here: Mixture = ((1 - rate, 0.0), (rate, size if whole or r.anywhere else size / 2))
    there: Mixture = ((1.0, 0.0),) if whole or r.anywhere else ((1 - rate, 0.0), (rate, -size / 2))
    pair = _binned(here, there)
    return _Draw(times, 0.0, pair, _divergence(*pair) if whole else plain.renyi)


def _is_hidden(r: Counted | _Fact) -> bool:
    """Whether the observer does not see who, or what, was drawn."""
    lot = r.sampling
    return lot is not None and lot.kind != "partition" and r.secret and lot.cohort < lot.population


def _of_laplace(r: _Fact, unit: Unit, adjacency: Adjacency, size: float) -> _Pair | None:
    """Of a sum of noises, or of one; a subject that coins draw, in every step anew, is in it or is not."""
    scales = [std for std, n in r.law.terms or ((r.law.std, 1),) for _ in range(n)]
    pair, lot = _laplace(size, np.array(scales) / max(scales)), r.sampling
    if pair is None or lot is None or not _is_hidden(r):
        return pair
    whole = lot.kind == "poisson" and unit == lot.unit and adjacency == "zero_out"
    if not whole or len(scales) > 1 or (unit == "client" and r.steps > 1):
        return None
    rate, (here, there) = lot.cohort / lot.population, pair
    return rate * here + (1 - rate) * there, there


def _of_fixed(r: _Fact, unit: Unit, adjacency: Adjacency, size: float) -> _Pair:
    """The subject at one end of its bound, or at the other one (or at 0) as all others are, who are drawn in its place.

    What those who collude know of the draw is an outcome too.
    """
    lot = r.sampling
    assert lot is not None
    known = 0
    if lot.unit == "client":
        known = min(r.coalition, lot.population - 1)
    left, cohort = lot.population - known, int(lot.cohort)
    worlds: list[_Pair] = []
    for j in range(max(0, cohort - left), min(known, cohort) + 1):
        weight, rate = float(hypergeom.pmf(j, lot.population, known, cohort)), (cohort - j) / left
        one, other = _binned(((1 - rate, 0.0), (rate, size)), ((1.0, 0.0),))
        worlds.append((weight * one, weight * other))
    return np.concatenate([one for one, _ in worlds]), np.concatenate([other for _, other in worlds])


def _of_chain(chain: Sequence[Counted], unit: Unit, adjacency: Adjacency) -> _Draw:
    """A client in all rounds from the first on that are far enough apart, each value at its bound."""
    laws = {r.round: r.law for r in chain if isinstance(r.law, CorrelatedLaw)}
    first = next(iter(laws.values()))
    last, inside = -inf, list[Counted]()
    for r in sorted(chain, key=lambda r: r.round):
        if r.round - last >= first.separation and len(inside) < (first.most or inf):
            inside.append(r)
            last = r.round

    def moves(rounds: Sequence[Counted], signs: tuple[int, ...]) -> float:
        """How far Z is moved, where each value has the sign that moves it further; 0: all columns point one way."""
        rows: dict[int, float] = {}
        for r in rounds:
            size = _moved(r, unit, adjacency) * (r.bound_norm or 0.0)
            ways = []
            for sign in signs:
                turned = {i: (sign * v if sign else abs(v)) * size for i, v in laws[r.round].column}
                ways.append({**rows, **{i: rows.get(i, 0.0) + v for i, v in turned.items()}})
            rows = max(ways, key=lambda way: sum(v * v for v in way.values()))
        return sqrt(sum(v * v for v in rows.values()))

    low, high = moves(inside, (1, -1)) / first.std, moves(chain, (0,)) / first.std
    return _Draw(1, low, None, ORDERS * high**2 / 2)


def _binned(here: Mixture, there: Mixture) -> _Pair:
    means = [mean for mixture in (here, there) for _, mean in mixture]
    edges = np.linspace(min(means) - REACH, max(means) + REACH, CELLS)

    def masses(mixture: Mixture) -> _Array:
        found = np.zeros(CELLS - 1)
        for weight, mean in mixture:
            low, high = edges[:-1] - mean, edges[1:] - mean
            found += weight * np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
        return np.maximum(found, TINY)  # in the other world: the loss is rounded down

    return masses(here), masses(there)


def _shuffled(answer: _Array, lies: float, others: int) -> _Array:
    """How many answers are up, by the chances of the subject's; everybody else holds what is answered by a down."""
    return np.convolve(binom.pmf(np.arange(others + 1), others, lies), answer)


def _laplace(size: float, scales: _Array) -> _Pair | None:
    """One number moves by `size`. scales: of all noises in its sum, over the largest."""
    if len(scales) > 1:
        if size > LEAST:
            return _laplace_sum(size, scales)
        return None
    edges = np.linspace(-40, size + 40, 2 * CELLS)

    def masses(x: _Array) -> _Array:
        beyond = -np.diff(np.exp(-np.maximum(x, 0))) / 2  # on either side of 0, where differences from 1 are none
        return np.maximum(beyond + np.diff(np.exp(np.minimum(x, 0))) / 2, TINY)

    return masses(edges - size), masses(edges)


def _laplace_sum(size: float, scales: _Array) -> _Pair | None:
    """The same of several: bins' masses are integrals of the characteristic function Π 1/(1 + b²t²), by a sum at points
    that are folded as their cosines repeat. Bins whose mass is not far above the error of that are dropped; None where
    all are, of a size that no noise hides.
    """
    reach = 40 + size + REACH * sqrt(2 * float((scales**2).sum()))
    shift = max(1, round(size * CELLS / reach))
    cell = size / shift
    points, half = 2 ** int(np.ceil(np.log2(4 * reach / cell))), int(reach / cell)
    t = 2 * np.pi / (points * cell) * np.arange(FOLDS * points)
    logs = sum((-n * np.log1p((b * t) ** 2) for b, n in zip(*np.unique(scales, return_counts=True))), np.zeros(1))
    parts = np.exp(logs) * np.sinc(t * cell / (2 * np.pi)) * np.where(t > 0, 2, 1) / points
    masses = np.fft.fft(parts.reshape(FOLDS, points).sum(axis=0)).real
    least = SURE * max(1e-15, float(np.exp(logs[-1])))
    here = masses[np.arange(-half, half + shift + 1)]
    there = masses[np.arange(-half - shift, half + 1)]
    kept = (here > least) & (there > least)
    if kept.any():
        return (here[kept], there[kept])
    return None


def _discrete(r: _Fact, moved: float) -> _Pair | None:
    """All that moves, moves one number, by whole steps."""
    law = r.law
    assert isinstance(law, DiscreteLaw)
    ((std, senders),) = law.terms or ((law.std, 1),)
    sigma, shift = std / law.step, int(moved * (r.bound_norm or 0.0) / law.step)
    half = int(np.ceil(REACH * sigma)) + 1
    if half * senders > 10**6:
        return None
    noise = _sum_of(np.exp(-(np.arange(-half, half + 1) ** 2) / (2 * sigma**2)), senders)
    here, there = np.concatenate([np.zeros(shift), noise]), np.concatenate([noise, np.zeros(shift)])
    least = float(SURE * 1e-15 * noise.max())  # far above what a transform's rounding leaves of a mass
    kept = np.maximum(here, there) > least
    return np.maximum(here[kept], least), np.maximum(there[kept], least)


def _sum_of(one: _Array, senders: int) -> _Array:
    """The masses of a sum of so many independent numbers with masses proportional to `one`."""
    power, total, left = one / one.sum(), np.array([1.0]), senders
    while left:
        total = fftconvolve(total, power) if left & 1 else total
        left >>= 1
        power = fftconvolve(power, power) if left else power
    return total


# --- worlds as ε


def below(draws: Sequence[_Draw], delta: float, high: float) -> float:
    """What an explicit attack learns of all of them, in the better of both orders. high: no ε is larger."""
    count = sum(draw.times for draw in draws if draw.masses is not None)
    shift = sqrt(sum(draw.times * draw.shift**2 for draw in draws))
    if high == 0:
        return 0.0
    if count == 0:
        return _least(lambda at: _of_shift(shift, at), delta)
    grid = max(1e-7, FINE * min(high, 1e4) / min(count, MOST_DRAWS))
    return max(_least(_profile(draws, shift, grid, turn), delta) for turn in (False, True))


def _of_shift(shift: float, at: float) -> float:
    if shift <= 0:
        return 0.0
    return float(ndtr(shift / 2 - at / shift) - exp(at + log_ndtr(-shift / 2 - at / shift)))


def _profile(draws: Sequence[_Draw], shift: float, grid: float, turn: bool):  # type: ignore[no-untyped-def]
    """δ at each ε of all losses together, rounded down to the grid."""
    pairs = [(draw.masses, draw.times) for draw in draws if draw.masses is not None]
    if shift > 0:
        pairs.append((_binned(((1.0, shift),), ((1.0, 0.0),)), 1))
    total, sure, left = _Losses(0, np.array([1.0])), 0.0, MOST_DRAWS
    for (here, there), times in pairs:
        there, here = (here, there) if turn else (there, here)
        inside = (here > 1e-18) & (there > 1e-300)
        lost = float(here[(here > 1e-12) & (there == 0)].sum())
        if not inside.any():  # so far apart that no bin holds both
            total, sure = _Losses(0, np.zeros(1)), 1 - (1 - sure) * (1 - lost) ** min(times, left)
            continue
        losses = np.floor((np.log(here[inside]) - np.log(there[inside])) / grid).astype(np.int64)
        losses = np.maximum(losses, -(10**6))
        first = int(losses.min())
        masses: _Array = np.asarray(np.bincount(losses - first, weights=here[inside]), dtype=np.float64)
        often = min(times, left)
        left -= often
        sure = 1 - (1 - sure) * (1 - lost) ** often
        if often:
            total = total.and_also(_Losses(first, masses).of_many(often))
    at = (total.begin + np.arange(len(total.masses))) * grid * 2**total.level
    chances = total.masses
    return lambda epsilon: sure + float(np.sum(chances[at > epsilon] * -np.expm1(epsilon - at[at > epsilon]))) - SLACK


@dataclass(frozen=True, eq=False)
class _Losses:
    """Chances of privacy losses from `begin` on, in cells of the grid's width times 2^level; losses are rounded down to
    wider cells, never up. Many draws need wider ones, and where they are wide the rounding is done fewer times.
    """

    begin: int
    masses: _Array
    level: int = 0

    def of_many(self, times: int) -> _Losses:
        """Of so many of these draws, at least one."""
        total, power = None, self
        while times:
            if times & 1:
                total = power if total is None else total.and_also(power)
            times >>= 1
            power = power.and_also(power) if times else power
        assert total is not None
        return total

    def and_also(self, other: _Losses) -> _Losses:
        """Of both together."""
        one, level = self, max(self.level, other.level)
        while one.level < level:
            one = one._wider()
        while other.level < level:
            other = other._wider()
        masses = np.maximum(fftconvolve(one.masses, other.masses), 0)
        kept = np.flatnonzero(masses > 1e-17)
        first, last = (int(kept[0]), int(kept[-1])) if len(kept) else (0, 0)
        total = _Losses(one.begin + other.begin + first, masses[first : last + 1], level)
        while len(total.masses) > MOST_CELLS:
            total = total._wider()
        return total

    def _wider(self) -> _Losses:
        odd = self.begin % 2
        masses = np.pad(self.masses, (odd, (len(self.masses) + odd) % 2))
        return _Losses(self.begin // 2, masses.reshape(-1, 2).sum(axis=1), self.level + 1)


def _least(profile, delta: float) -> float:  # type: ignore[no-untyped-def]
    """The ε at which a falling δ is reached."""
    if profile(0.0) <= delta:
        return 0.0
    high = 1.0
    while profile(high) > delta:
        if high > 1e5:
            return high
        high *= 2
    return float(brentq(lambda at: profile(at) - delta, 0.0, high, xtol=1e-10, rtol=1e-12))


def above(draws: Sequence[_Draw], delta: float) -> float:
    """An ε that holds: a sum of pure ones, or of Rényi divergences (Canonne, Kamath and Steinke, arXiv:2004.00010)."""
    pure = sum(draw.times * draw.pure for draw in draws)
    if any(draw.renyi is None for draw in draws) or delta == 0:
        return pure
    total = sum((draw.times * draw.renyi for draw in draws if draw.renyi is not None), np.zeros_like(ORDERS))
    found = total + np.log1p(-1 / ORDERS) - (log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return min(pure, max(0.0, float(found.min())))


def _divergence(here: _Array, there: _Array) -> _Array:
    """The larger Rényi divergence of both orders, with what the tails beyond the bins may add."""
    kept = (here > 0) & (there > 0)
    p, q = np.log(here[kept]), np.log(there[kept])
    both = [
        [np.logaddexp.reduce(order * a + (1 - order) * b) / (order - 1) for order in ORDERS]
        for a, b in ((p, q), (q, p))
    ]
    return np.maximum(0.0, np.max(both, axis=0)) * 1.001
