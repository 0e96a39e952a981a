"""Whether what was sent is what was declared: the norm of what noise hides, and the law of the noise.

Residuals are what is left of a message when the clipped raw value is taken off, in declared standard deviations. Each
test says "contradicted" by chance less than once in a hundred thousand recordings, and "checked" only where it would
have noticed two thirds, or three halves, of the noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom, binomtest, chi2, gamma, kstest, norm, poisson

RARE = 1e-6  # a p-value below which something is no chance
ENOUGH = {  # numbers: 2/3 or 3/2 of the noise is then below RARE, as sup|F(x) − F(2x/3)| is .097, .074 or .084
    "gaussian": 1000,
    "laplace": 1750,
    "two laplaces": 1350,
}
FAR = 6.0  # standard deviations, which one draw in 10⁹ passes
HEAVY = 2.5  # Laplace noise passes 15 of its standard deviations as rarely as Gaussian noise 6
SELDOM = 1e-9  # the same for laws of other tails
MOST = 20_000  # numbers that are tested together: beyond, rounding to float32 would be noticed
MOST_SIZED = 2000  # numbers whose size is tested: beyond, a std that was rounded where it was declared would be noticed
SHOWN = 1 / 4  # the share of its noise that would be noticed in every tensor by itself, where all is checked


def _laplace(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distribution function of Laplace noise of standard deviation 1."""
    tail = np.exp(-np.sqrt(2) * np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


def _two_laplaces(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the difference of two, over √2: its density is (1 + |x|/b)·e^(−|x|/b)/4b with b = ½."""
    far = 2 * np.abs(x)
    tail = (2 + far) * np.exp(-far) / 4
    return np.where(x < 0, tail, 1 - tail)


LAWS = {"gaussian": ndtr, "laplace": _laplace, "two laplaces": _two_laplaces}


@dataclass(frozen=True)
class Tested:
    """What a test found: declared where it could not tell, and why in a sentence without a full stop."""

    status: str  # declared | checked | contradicted
    why: str


@dataclass(frozen=True)
class TensorPart:
    """A tensor of a message. looked_at: how many of its numbers `LeftOver.values` has. numbers: all of them, 0 of one
    that no noise need be on. silent: how many of all came with next to no noise; expected: how many of all do where the
    noise is as declared.
    """

    tensor: str
    looked_at: int
    numbers: int
    silent: int
    expected: float


@dataclass(frozen=True)
class Alike:
    """How often the noises of two tensors have the same sign, number by number from their beginnings."""

    tensor: str
    other: str
    agreeing: int
    of: int


@dataclass(frozen=True)
class Repeat:
    """Where the noise of a message is most like itself further on: `lag` numbers on, `agreeing` signs of `of` are the
    same. tried: how many lags were.
    """

    lag: int
    agreeing: int
    of: int
    tried: int


@dataclass(frozen=True, eq=False)
class LeftOver:
    """The noise of one message as it is left over, in declared standard deviations.

    values: (m,), of the same coordinates for every message; NaN where float32 is too coarse to tell.
    name: whose and when, for sentences. exact: raw values were at hand; else it is the difference of two runs of a
      round, which also holds whatever else differs between them.
    session: coordinates are those of messages of the same session alone. law: declared, a name in `LAWS`.
    parts: the tensors, in the order of `values`, which are shuffled within each. alike: neighbouring tensors.
    repeat: within the message, None where that was not looked at.
    beside: the most L2 norm of what `values` hold besides noise; above 0 where no raw value was at hand, so that they
      are those of the whole message, of which correlations alone are looked at.
    """

    values: NDArray[np.float64]
    name: str
    exact: bool = True
    session: str = ""
    law: str = "gaussian"
    parts: tuple[TensorPart, ...] = ()
    alike: tuple[Alike, ...] = ()
    beside: float = 0.0
    repeat: Repeat | None = None

    @property
    def known(self) -> NDArray[np.float64]:
        return self.values[np.isfinite(self.values)]


def noise_law(residuals: Sequence[LeftOver]) -> Tested:
    """Tests of every message's residual, of each tensor in all messages, and of all of a law together, against the
    declared law of standard deviation 1: Kolmogorov and Smirnov's, of the size (which few numbers show), and of the
    largest number (which noise that ends somewhere has not).

    >>> rng = np.random.default_rng(0)
    >>> [noise_law([LeftOver(s * rng.standard_normal(4000), "one")]).status for s in (1, 2 / 3, 3 / 2)]
    ['checked', 'contradicted', 'contradicted']
    """
    if not sum(len(residual.known) for residual in residuals):
        return Tested("declared", "no raw value and no second run of a round was recorded")
    if wrong := _without_noise(residuals) or _never_noisy(residuals):
        return Tested("contradicted", wrong)
    pools = _pools(residuals)
    for pool in pools:
        rarest = min(pool.chances().items(), key=lambda item: item[1])
        if rarest[1] * len(pools) * 3 >= RARE:
            continue
        if not pool.exact and pool.deviation > 1:
            return Tested(
                "declared",
                f"two runs of a round differ by more than the noise ({pool.deviation:.3g} times), as training that is"
                " drawn anew does; record raw values",
            )
        return Tested("contradicted", pool.sentence(*rarest))
    by_law = {law: sum(len(r.known) for r in residuals if r.law == law) for law in {r.law for r in residuals}}
    least, law = min((count / ENOUGH[law], law) for law, count in by_law.items())
    if least < 1:
        return Tested("declared", f"{by_law[law]} numbers are too few to tell the noise from two thirds of it")
    deviation = float(np.sqrt(np.mean(np.square(np.concatenate([r.known for r in residuals])))))
    fit = (
        f"{sum(by_law.values())} numbers of {len(residuals)} messages fit (Kolmogorov-Smirnov; standard deviation"
        f" {deviation:.3g} of what is declared)"
    )
    few = [pool for pool in pools if pool.tensor and pool.least_share(len(pools)) < SHOWN]
    if few:
        pool = min(few, key=lambda pool: len(pool.values))
        said = (
            f"the {len(pool.values)} numbers of the tensor {pool.tensor!r} are too few to tell it from a quarter of it"
        )
        return Tested("declared", f"{fit}; {said}")
    return Tested("checked", fit)


@dataclass(frozen=True, eq=False)
class _Pool:
    """Numbers that are tested together, in declared standard deviations. of: what they are of, for a sentence.
    tensor: its name where they are one tensor's in all messages. exact: as of `LeftOver`, of all of them.
    """

    values: NDArray[np.float64]
    law: str
    of: str
    exact: bool
    tensor: str = ""

    @property
    def deviation(self) -> float:
        if len(self.values):
            return float(np.sqrt(np.mean(np.square(self.values))))
        return 1.0

    def chances(self) -> dict[str, float]:
        """By test, the chance that honest noise is as far off."""
        if len(self.values):
            found = {"size": 2 * min(_size_chance(_some(self.values, MOST_SIZED), self.law))}
        else:
            found = {}
        if len(self.values) >= 20:
            found["law"] = float(kstest(_some(self.values, MOST), LAWS[self.law]).pvalue)
        return {**found, "largest": self._chance_of_largest()}

    def _chance_of_largest(self) -> float:
        if not len(self.values):
            return 1.0
        beyond = 2 * float(LAWS[self.law](-np.abs(self.values).max()))  # of one number, to be as large
        none_larger = float(np.exp(len(self.values) * np.log1p(-min(beyond, 1 - 1e-16))))
        return 2 * min(none_larger, min(1.0, len(self.values) * beyond))

    def least_share(self, tests: int) -> float:
        """Which share of its noise would be noticed, 19 times in 20, by one of so many tests."""
        shape = _shape(len(_some(self.values, MOST_SIZED)), self.law)
        share = 0.0
        if shape:
            share = float(gamma.ppf(RARE / 6 / tests, shape) / gamma.ppf(0.95, shape))
        if self.law == "gaussian":
            return sqrt(share)
        return share

    def sentence(self, test: str, p: float) -> str:
        if test == "largest":
            at = float(np.abs(self.values).max())
            expected = len(self.values) * 2 * float(LAWS[self.law](np.float64(-at)))
            return (
                f"the largest of {len(self.values)} numbers of the noise of {self.of} is {at:.3g} standard deviations,"
                f" beyond which {expected:.2g} are expected"
            )
        name = "p"
        if test == "law":
            name = "Kolmogorov-Smirnov p"
        return (
            f"the noise of {self.of} has standard deviation {self.deviation:.3g} times the declared one ({name} ="
            f" {p:.1g}, {len(self.values)} numbers)"
        )


def _some(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(int)]


def _shape(numbers: int, law: str) -> float:
    """Of the gamma law that the size of so many numbers has; of two Laplaces' difference the mean one."""
    return numbers * {"gaussian": 0.5, "laplace": 1.0, "two laplaces": 1.5}[law]


def _size_chance(values: NDArray[np.float64], law: str) -> tuple[float, float]:
    """The chances of noise as small, and as large, as these numbers of standard deviation 1: Σx²/2 of Gaussian noise
    and Σ|x|/b of Laplace noise are Gamma; |x|/b of the difference of two Laplaces is one exponential, or by a coin two.
    """
    if law == "two laplaces":
        size, coins = 2 * float(np.abs(values).sum()), np.arange(len(values) + 1)
        weights = binom.pmf(coins, len(values), 0.5)
        shapes = len(values) + coins
        return float(weights @ gamma.cdf(size, shapes)), float(weights @ gamma.sf(size, shapes))
    if law == "gaussian":
        size = float(np.square(values).sum()) / 2
    else:
        size = sqrt(2) * float(np.abs(values).sum())
    shape = _shape(len(values), law)
    return float(gamma.cdf(size, shape)), float(gamma.sf(size, shape))


def _pools(residuals: Sequence[LeftOver]) -> list[_Pool]:
    """Each message, each tensor in all messages, and all messages of a law."""
    pools = [_Pool(r.known, r.law, r.name, r.exact) for r in residuals]
    exact = {law: all(r.exact for r in residuals if r.law == law) for law in dict.fromkeys(r.law for r in residuals)}
    pools += [
        _Pool(own, law, f"the tensor {tensor!r} in all messages together", exact[law], tensor)
        for (tensor, law), own in _by_tensor(residuals).items()
    ]
    if len(residuals) > 1:
        for law in exact:
            own = np.concatenate([r.known for r in residuals if r.law == law])
            pools.append(_Pool(own, law, "all messages together", exact[law]))
    return pools


def _without_noise(residuals: Sequence[LeftOver]) -> str:
    """Which tensor, of one message or of all, has more numbers with next to no noise than noise leaves by chance."""
    rows = [(r.name, part) for r in residuals for part in r.parts]
    if not rows:
        return ""
    tensors = list(dict.fromkeys(part.tensor for _, part in rows))
    together = [("all messages together", _summed(t, [part for _, part in rows if part.tensor == t])) for t in tensors]
    every = [*together, *rows]
    chance = poisson.sf([part.silent - 1 for _, part in every], [part.expected for _, part in every])
    least = int(np.argmin(chance))
    if chance[least] * len(every) >= RARE:
        return ""
    name, part = every[least]
    return f"{part.silent} of the {part.numbers} numbers of the tensor {part.tensor!r} of {name} have no noise"


def _summed(tensor: str, parts: Sequence[TensorPart]) -> TensorPart:
    numbers, silent = (sum(getattr(part, key) for part in parts) for key in ("numbers", "silent"))
    return TensorPart(tensor, 0, numbers, silent, sum(part.expected for part in parts))


DENSEST = sqrt(0.5)  # of the laws' densities at 0, Laplace's


def _never_noisy(residuals: Sequence[LeftOver]) -> str:
    """Numbers with next to no noise in every message of a session: n draws all within ±x have a chance of (2fx)ⁿ."""
    for session in dict.fromkeys(r.session for r in residuals):
        own = [r for r in residuals if r.session == session]
        if len(own) < 2 or len({len(r.values) for r in own}) > 1:
            continue
        values = np.abs(np.stack([r.values for r in own]))
        seen = np.isfinite(values).sum(0)
        most = np.where(np.isfinite(values), values, 0.0).max(0)
        chance = np.where(seen > 0, np.minimum(1.0, 2 * DENSEST * most) ** seen, 1.0)
        silent = chance * len(chance) < RARE
        if silent.any():
            which = _tensor_at(own[0], int(np.argmax(silent)))
            return f"{int(silent.sum())} of {len(silent)} numbers{which} have no noise in any of {len(own)} messages"
    return ""


def _tensor_at(residual: LeftOver, place: int) -> str:
    ends = np.cumsum([part.looked_at for part in residual.parts])
    if len(ends):
        return f" (in {residual.parts[int(np.searchsorted(ends, place, side='right'))].tensor!r})"
    return ""


def _by_tensor(residuals: Sequence[LeftOver]) -> dict[tuple[str, str], NDArray[np.float64]]:
    """The numbers of each tensor in all messages together, by law; none where there is one tensor alone."""
    rows: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for r in residuals:
        ends = np.cumsum([part.looked_at for part in r.parts])
        for part, own in zip(r.parts, np.split(r.values, ends[:-1]) if len(r.parts) > 1 else ()):
            if part.numbers:
                rows.setdefault((part.tensor, r.law), []).append(own[np.isfinite(own)])
    return {key: np.concatenate(own) for key, own in rows.items()}


@dataclass(frozen=True)
class Weighed:
    """How much more of a client the mean holds than its weight, as a share of that weight: along/twice, in which the
    noise of `along` is standard normal. client: -1 for the mean as a whole.
    """

    client: int
    along: float
    twice: float
    name: str


def weights_kept(weighed: Sequence[Weighed]) -> Tested:
    """Whether clients have the weights that are said: checked where twice the weight of any would have been seen.

    >>> weights_kept([Weighed(0, 0.3, 20.0, "one")]).status, weights_kept([Weighed(0, 20.3, 20.0, "one")]).status
    ('checked', 'contradicted')
    """
    if not weighed:
        return Tested("declared", "no model with Gaussian noise was recorded after a round's uploads, to compare it")
    hidden, clients = 0, list(dict.fromkeys(w.client for w in weighed))
    far = float(norm.isf(RARE / 2 / (len(clients) + len(weighed))))
    for client in clients:
        own = [w for w in weighed if w.client == client]
        power = sqrt(sum(w.twice**2 for w in own))
        along = 0.0
        if power > 0:
            along = sum(w.along * w.twice for w in own) / power
        if max([abs(along), *(abs(w.along) for w in own)]) > far:
            whose = "the mean as a whole" if client < 0 else f"client {client}"
            most = max(own, key=lambda w: abs(w.along))
            factor = 1 + (along / power if abs(along) > far else most.along / most.twice)
            return Tested("contradicted", f"{whose} weighs about {factor:.3g} times as much as is said")
        hidden += client >= 0 and power < far + LIKELY
    if hidden:
        return Tested("declared", f"the noise would hide twice the weight of {hidden} of {len(clients) - 1} clients")
    return Tested("checked", "twice the weight of any client would have been seen")


LIKELY = 1.645  # standard deviations below which 95 % of normal draws are not


@dataclass(frozen=True)
class Projection:
    """How much of a raw value a message holds. raw: its norm over C; along: the message's length along it over C;
    spread: the noise's standard deviation over C. name: whose and when. law: of a client's own noise, "" of a
    server's.
    """

    raw: float
    along: float
    spread: float
    name: str
    law: str = ""


def noise_along_values(projections: Sequence[Projection], weighed: Sequence[Weighed], least: float = 1.0) -> str:
    """What is wrong where Gaussian noise leaves out the directions of the values it is added to, "" for nothing: all
    else of it may be right, and the values' lengths are told as if there were none.

    What a message holds along its value, less the value, has the noise's own law, whatever the value; more than the
    value there makes its square larger. So the squares' sum is below χ²'s rare quantile by chance less often than that.

    Args:
        projections: of clients' own noise. weighed: of a server's; those of the mean as a whole count.
        least: eigenvalue of their correlation, below 1 of noises that hang together.

    >>> noise_along_values([Projection(3.0, 1.0, 0.5, "client 0 in round 0", "gaussian")], [])
    'the noise leaves out the direction of the value it is added to (client 0 in round 0)'
    >>> noise_along_values([Projection(3.0, 1.3, 0.5, "client 0 in round 0", "gaussian")], [])
    ''
    """
    own = [(p.name, (p.along - min(p.raw, 1)) / p.spread) for p in projections if p.law == "gaussian" and p.raw > 0]
    own += [(w.name, w.along) for w in weighed if w.client < 0 and w.twice > 0]
    if not own or not least or float(chi2.cdf(sum(far**2 for _, far in own) / least, len(own))) >= RARE:
        return ""
    if len(own) == 1:
        where = own[0][0]
    else:
        where = f"{own[0][0]} and {len(own) - 1} more messages"
    return f"the noise leaves out the direction of the value it is added to ({where})"


def norm_bound(projections: Sequence[Projection]) -> Tested:
    """Whether raw values longer than C came out no longer than C, along their own direction: checked where √2 of C, as
    a clip of each of two tensors by itself leaves, would have been noticed.

    All messages count together by their likelihood, with √2 of C (or what is raw, where that is less) against C: no
    other test of its level finds that more often (Neyman and Pearson 1933), and honest ones reach it most often with a
    length of exactly C.

    >>> one = Projection(raw=7.0, along=7.1, spread=0.1, name="client 0 in round 0")
    >>> norm_bound([one]).status, norm_bound([Projection(7.0, 1.1, 0.05, "one")]).status
    ('contradicted', 'checked')
    """
    if not projections:
        return Tested("declared", "no raw value was recorded")
    longest = max(projections, key=lambda p: p.raw)
    for p in projections:
        if p.along > 1 + FAR * p.spread:
            return Tested(
                "contradicted", f"{p.name} sent a value of {p.along:.3g} times the bound, along its own raw value"
            )
    beyond = [p for p in projections if p.raw > 1 + 1e-4]  # one that was clipped already may be rounded up
    if not beyond:
        return Tested(
            "declared",
            f"no raw value was longer than the bound (the longest: {longest.raw:.3g} of it), so that no clip was seen;"
            " record values as they are before the clip",
        )
    more = [min(p.raw, sqrt(2)) - 1 for p in beyond]
    power = sqrt(sum((m / p.spread) ** 2 for m, p in zip(more, beyond)))  # how far √2 of C moves `found`, a standard
    found = sum(m * (p.along - 1) / p.spread**2 for m, p in zip(more, beyond)) / power  # normal one at most without
    far = float(norm.isf(RARE))
    mean = sum(p.along for p in beyond) / len(beyond)
    came = (
        f"{len(beyond)} raw values of up to {longest.raw:.3g} times the bound came out {mean:.3g} times as long as it,"
        " along their own direction"
    )
    if found > far:
        return Tested("contradicted", came)
    if power < far + LIKELY:
        return Tested("declared", f"{came}, and the noise would hide √2 of it")
    return Tested("checked", came)


@dataclass(frozen=True)
class SentTensor:
    """A tensor of a message as it was sent, without a raw value. numbers: of it. size: of Gaussian noise ‖·‖₂²/2σ², of
    Laplace noise ‖·‖₁/b, which of noise alone is Gamma(numbers/2), or Gamma(numbers), and is as large at least with
    any value beside it (Anderson 1955). law: declared. name: of the message. bound: of a value beside it, over σ or b.
    """

    tensor: str
    numbers: int
    size: float
    law: str
    name: str
    bound: float = inf

    @property
    def shape(self) -> float:
        if self.law == "gaussian":
            return self.numbers / 2
        return float(self.numbers)

    @property
    def least(self) -> float:
        """What noise alone is at least as large as."""
        if self.law == "laplace":
            return max(0.0, self.size - self.bound)
        return max(0.0, sqrt(2 * self.size) - self.bound) ** 2 / 2


def tensors_as_long(sent: Sequence[SentTensor]) -> str:
    """Which tensor, of one message or of all together, is shorter than its noise alone would be, or longer than any
    value within the bound makes it; "" for none.

    >>> tensors_as_long([SentTensor("bias", 10, 5.0, "gaussian", "one")] * 9)
    ''
    >>> tensors_as_long([SentTensor("bias", 10, 0.01, "gaussian", "one")])[:39]
    "the tensor 'bias' of one is shorter tha"
    """
    rows = [(one.tensor, one.name, one.shape, one.size) for one in sent]
    by_tensor: dict[tuple[str, str], list[SentTensor]] = {}
    for one in sent:
        by_tensor.setdefault((one.tensor, one.law), []).append(one)
    rows += [
        (tensor, "all messages together", sum(p.shape for p in own), sum(p.size for p in own))
        for (tensor, _), own in by_tensor.items()
        if len(own) > 1
    ]
    if not rows:
        return ""
    chance = gamma.cdf([row[3] for row in rows], [row[2] for row in rows])
    least = int(np.argmin(chance))
    if chance[least] * len(rows) < RARE:
        tensor, name, *_ = rows[least]
        return f"the tensor {tensor!r} of {name} is shorter than noise of that size (p = {chance[least]:.1g})"
    over = gamma.sf([one.least for one in sent], [one.shape for one in sent])
    most = int(np.argmin(over))
    if over[most] * len(sent) < RARE:
        one = sent[most]
        return (
            f"the tensor {one.tensor!r} of {one.name} is longer than the bound and noise of that size (p ="
            f" {over[most]:.1g})"
        )
    return ""


def length_of_sent(
    length: float, numbers: int, clip: float, noise: float, name: str, law: str = "gaussian"
) -> Tested | None:
    """Whether a message can be a value of norm ≤ `clip` and noise, by its length alone; None where it can. A length
    that fits proves nothing, as a value without noise may have it too.

    Args:
        length: ‖message‖₂; for Laplace ‖message‖₁, as that of its noise over its scale is Gamma(d).
        numbers: of the message, d. clip: as declared. noise: its standard deviation; of Laplace noise its scale.
        name: whose and when. law: gaussian | laplace.

    >>> length_of_sent(1.0, 10_000, 1.0, 0.5, "one").status
    'contradicted'
    >>> length_of_sent(5000.0, 10_000, 1.0, 0.5, "one", "laplace")  # ‖noise‖₁ is d·b on average
    >>> length_of_sent(90.0, 100, 1.0, 0.5, "one", "laplace").why
    'the message of one is 90 long, longer than the bound and noise of that size (50 expected)'
    """
    typical = noise * sqrt(numbers)
    least = noise * sqrt(max(0.0, numbers - FAR * sqrt(2 * numbers)))
    most = clip + noise * (sqrt(numbers) + FAR)
    if law == "laplace":
        typical = noise * numbers
        least, most = noise * float(gamma.ppf(SELDOM, numbers)), clip + noise * float(gamma.isf(SELDOM, numbers))
    if least <= length <= most:
        return None
    what = "longer than the bound and noise of that size"
    if length < least:
        what = "shorter than noise of that size"
    return Tested("contradicted", f"the message of {name} is {length:.3g} long, {what} ({typical:.3g} expected)")


def drawn_as_said(counts: Sequence[int], population: int, cohort: float, kind: str) -> Tested:
    """Whether the numbers of participants fit a declared lot; that it was secret, nobody can tell.

    Args:
        counts: participants, a round each. population, cohort, kind: as declared.

    >>> drawn_as_said([10, 9, 12], 100, 10, "poisson").status, drawn_as_said([99, 98], 100, 10, "poisson").status
    ('declared', 'contradicted')
    """
    if not counts:
        return Tested("declared", "no round was recorded")
    if kind == "without_replacement":
        if max(counts) > cohort:
            return Tested("contradicted", f"a round had {max(counts)} participants, more than {cohort:g}")
        return Tested(
            "declared",
            f"no round had more than {cohort:g} participants; whether who was drawn stays secret, nobody can tell"
            " from a recording",
        )
    places = population * len(counts)
    p = float(binomtest(min(sum(counts), places), places, cohort / population).pvalue)
    if p < RARE:
        expected = f"{cohort * len(counts):.3g} are expected (p = {p:.1g})"
        return Tested("contradicted", f"{sum(counts)} uploads in {len(counts)} rounds, where {expected}")
    return Tested(
        "declared",
        f"{sum(counts)} uploads in {len(counts)} rounds fit the rate; whether who was drawn stays secret, nobody can"
        " tell from a recording",
    )


def drawn_too_evenly(cohorts: Sequence[Collection[int]], population: int, cohort: float, kind: str) -> str:
    """What is too even in a lot: clients who wait for their turn, or as many participants every round; "" for nothing.

    By independent draws each of a round's participants was in the round before with a chance of cohort/population, and
    a Poisson round has a binomial number of them. Of a draw of so many exactly a return is a bit less seldom still.

    Args:
        cohorts: who took part, a round each, in their order. population, cohort, kind: as declared.

    >>> drawn_too_evenly([{0, 1}, {2, 3}] * 12, 4, 2, "poisson")
    'of 46 who took part, 0 had taken part in the round before, where 23 are expected'
    >>> drawn_too_evenly([{0, 1}, {0, 2}, {1}, {3, 2, 1}], 4, 2, "poisson")
    ''
    """
    rate = cohort / population
    returned = sum(len(set(now) & set(before)) for before, now in pairwise(cohorts))
    places = sum(map(len, cohorts[1:]))
    if rate < 1 and binom.cdf(returned, places, rate) < RARE:
        return (
            f"of {places} who took part, {returned} had taken part in the round before, where {places * rate:.3g} are"
            " expected"
        )
    counts, spread = [len(c) for c in cohorts], sqrt(cohort * (1 - rate))
    inside = binom.cdf(cohort + spread / 2, population, rate) - binom.cdf(
        np.nextafter(cohort - spread / 2, -np.inf), population, rate
    )
    near = sum(abs(count - cohort) <= spread / 2 for count in counts)
    if kind == "poisson" and rate < 1 and binom.sf(near - 1, len(counts), inside) < RARE:
        return f"{near} of {len(counts)} rounds had {cohort:g} participants or nearly, as coins seldom give"
    return ""


def drawn_too_often(times: Mapping[int, int], rounds: int, population: int, cohort: float) -> str:
    """Who took part more often than so seldom a draw gives, as clients do who are fewer than is said; "" for nobody.

    Args:
        times: by client, in how many of `rounds` it took part. population, cohort: as declared.

    >>> drawn_too_often({0: 12}, 100, 100, 10), drawn_too_often({0: 50}, 100, 100, 10)
    ('', 'client 0 took part in 50 of 100 rounds, at a rate of 0.1')
    """
    if not times:
        return ""
    client = max(times, key=lambda c: times[c])
    chance = float(binom.sf(times[client] - 1, rounds, cohort / population)) * population
    often = f"client {client} took part in {times[client]} of {rounds} rounds, at a rate of {cohort / population:.3g}"
    if len(times) > population:
        return f"{len(times)} clients took part, more than {population}"
    if chance < RARE:
        return often
    return ""


def records_as_said(counts: Sequence[int], steps: int, population: int, cohort: float, kind: str) -> Tested:
    """Whether numbers of records fit a declared lot of records: a client has the population, or more, or tells how many
    records its steps drew, one by one or each once. Of fewer, the same batch takes a larger share than is priced.

    Args:
        counts: num_examples of each upload. steps: of one upload. population, cohort, kind: as declared.

    >>> [records_as_said([n], 20, 600, 60, "poisson").status for n in (600, 900, 1190, 530, 100)]
    ['declared', 'declared', 'declared', 'declared', 'contradicted']
    """
    rate, chances = cohort / population, steps * population
    for count in sorted({n for n in counts if n < population}):
        if kind == "poisson":
            drawn = float(binomtest(count, chances, rate).pvalue)
            once = float(binomtest(count, population, 1 - (1 - rate) ** steps).pvalue)
            fits = max(drawn, once) * len(counts) >= RARE
        else:
            fits = cohort <= count <= steps * cohort and (count == steps * cohort or steps > 1)
        if not fits:
            said = f"an upload is of {count} records, and of {population} each step draws {cohort:g}"
            return Tested("contradicted", f"{said}: neither as many as there are nor as many as are drawn")
    return Tested("declared", "which records a step took is not recorded")
