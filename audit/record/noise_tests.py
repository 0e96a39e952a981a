"""Whether what was sent is what was declared: the norm of what noise hides, the law of the noise, its independence.

Residuals are what is left of a message when the clipped raw value is taken off, in declared standard deviations. Each
test says "contradicted" by chance less than once in a hundred thousand recordings, and "checked" only where it would
have noticed two thirds, or three halves, of the noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom, binomtest, gamma, kstest, norm, poisson

Status = str  # declared | checked | contradicted
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
MOST_PAIRED = 1024  # messages whose noises are compared with each other


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

    status: Status
    why: str


@dataclass(frozen=True)
class TensorPart:
    """A tensor of a message. looked_at: how many of its numbers `LeftOver.values` has. numbers: all of them. silent:
    how many of all came with next to no noise; expected: how many of all do where the noise is as declared.
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


@dataclass(frozen=True, eq=False)
class LeftOver:
    """The noise of one message as it is left over, in declared standard deviations.

    values: (m,), of the same coordinates for every message; NaN where float32 is too coarse to tell.
    name: whose and when, for sentences. exact: raw values were at hand; else it is the difference of two runs of a
      round, which also holds whatever else differs between them.
    session: coordinates are those of messages of the same session alone. law: declared, a name in `LAWS`.
    parts: the tensors, in the order of `values`, which are shuffled within each. alike: neighbouring tensors.
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

    @property
    def known(self) -> NDArray[np.float64]:
        return self.values[np.isfinite(self.values)]


def noise_law(residuals: Sequence[LeftOver]) -> Tested:
    """Kolmogorov and Smirnov's test of every message's residual, and of all of a law together, against the declared law
    of standard deviation 1.

    >>> rng = np.random.default_rng(0)
    >>> [noise_law([LeftOver(s * rng.standard_normal(4000), "one")]).status for s in (1, 2 / 3, 3 / 2)]
    ['checked', 'contradicted', 'contradicted']
    """
    pools = [residual.known for residual in residuals]
    if not sum(map(len, pools)):
        return Tested("declared", "no raw value and no second run of a round was recorded")
    if wrong := _without_noise(residuals) or _never_noisy(residuals):
        return Tested("contradicted", wrong)
    laws = dict.fromkeys(residual.law for residual in residuals)
    by_law = {law: np.concatenate([own for r, own in zip(residuals, pools) if r.law == law]) for law in laws}
    deviation = float(np.sqrt(np.mean(np.square(np.concatenate(pools)))))
    each = [(residual, residual.law, own) for residual, own in zip(residuals, pools)]
    both = [
        *each,
        *((tensor, law, own) for (tensor, law), own in _by_tensor(residuals).items()),
        *([] if len(pools) == 1 else [(None, law, own) for law, own in by_law.items()]),
    ]
    alike = f"{deviation:.3g} of what is declared"
    for residual, law, own in both:
        if len(own) < 20:
            continue
        some = own if len(own) <= MOST else own[np.linspace(0, len(own) - 1, MOST).astype(int)]
        p = float(kstest(some, LAWS[law]).pvalue) * len(both)
        if p >= RARE:
            continue
        own_deviation = float(np.sqrt(np.mean(np.square(own))))
        of = "all messages together" if residual is None else f"the tensor {residual!r} in all messages together"
        of, exact = (
            (residual.name, residual.exact)
            if isinstance(residual, LeftOver)
            else (of, all(r.exact for r in residuals if r.law == law))
        )
        if not exact and own_deviation > 1:
            return Tested(
                "declared",
                f"two runs of a round differ by more than the noise ({own_deviation:.3g} times), as training that is"
                " drawn anew does; record raw values",
            )
        return Tested(
            "contradicted",
            f"the noise of {of} has standard deviation {own_deviation:.3g} times the declared one (Kolmogorov-Smirnov"
            f" p = {p:.1g}, {len(own)} numbers)",
        )
    least, law = min((len(own) / ENOUGH[law], law) for law, own in by_law.items())
    if least < 1:
        return Tested("declared", f"{len(by_law[law])} numbers are too few to tell it from two thirds of it")
    return Tested(
        "checked",
        f"{sum(map(len, pools))} numbers of {len(residuals)} messages fit (Kolmogorov-Smirnov; standard deviation"
        f" {alike})",
    )


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
    return f" (in {residual.parts[int(np.searchsorted(ends, place, side='right'))].tensor!r})" if len(ends) else ""


def _by_tensor(residuals: Sequence[LeftOver]) -> dict[tuple[str, str], NDArray[np.float64]]:
    """The numbers of each tensor in all messages together, by law; none where there is one tensor alone."""
    rows: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
    for r in residuals:
        ends = np.cumsum([part.looked_at for part in r.parts])
        for part, own in zip(r.parts, np.split(r.values, ends[:-1]) if len(r.parts) > 1 else ()):
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
        along = sum(w.along * w.twice for w in own) / power if power > 0 else 0.0
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
    spread: the noise's standard deviation over C. name: whose and when.
    """

    raw: float
    along: float
    spread: float
    name: str


def norm_bound(projections: Sequence[Projection]) -> Tested:
    """Whether raw values longer than C came out no longer than C, along their own direction: checked where √2 of C, as
    a clip of each of two tensors by itself leaves, would have been noticed.

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
            f"no raw value was longer than the bound (the longest: {longest.raw:.3g} of it), so none shows that longer"
            " ones are clipped",
        )
    spread = sqrt(sum(p.spread**2 for p in beyond)) / len(beyond)
    mean = sum(p.along for p in beyond) / len(beyond)
    if mean > 1 + FAR * spread:
        return Tested("contradicted", f"raw values longer than the bound came out {mean:.3g} times as long as it")
    came = (
        f"{len(beyond)} raw values of up to {longest.raw:.3g} times the bound came out {mean:.3g} times as long as it"
    )
    if sum(min(p.raw, sqrt(2)) for p in beyond) / len(beyond) < 1 + (FAR + LIKELY) * spread:
        return Tested("declared", f"{came}, and the noise would hide √2 of it")
    return Tested("checked", came)


def independent(residuals: Sequence[LeftOver]) -> Tested:
    """Whether the noises of several messages have nothing to do with each other: correlations between all pairs, beyond
    what values of norm `LeftOver.beside` explain.

    >>> noise = np.random.default_rng(0).standard_normal((2, 4000))
    >>> one, other = (LeftOver(row, name) for row, name in zip(noise, ("one", "other")))
    >>> independent([one, other]).status, independent([one, LeftOver(one.values, "again")]).status
    ('checked', 'contradicted')
    """
    within, short = _tensors_alike(residuals)
    if within:
        return Tested("contradicted", within)
    if len(residuals) < 2:
        return Tested("declared", "the noise of two messages is needed, from raw values or second runs")
    pick = np.unique(np.linspace(0, len(residuals) - 1, min(len(residuals), MOST_PAIRED)).astype(int))
    some = [residuals[i] for i in pick]
    values = np.stack([r.values for r in some])
    seen = np.isfinite(values)
    values = np.where(seen, values, 0.0)
    shared = seen.astype(float) @ seen.T.astype(float)
    held = np.array([r.beside for r in some])
    explained = held[:, None] * held + HEAVY * (FAR + 1) * (held[:, None] + held)  # what values add to the products
    norms = np.sqrt(np.square(values) @ seen.T.astype(float))  # (i, j): of i, where j is known too
    with np.errstate(invalid="ignore", divide="ignore"):
        products = values @ values.T
        correlation = np.sign(products) * np.maximum(0.0, np.abs(products) - explained) / (norms * norms.T)
    correlation = np.nan_to_num(correlation)
    np.fill_diagonal(correlation, 0.0)
    far = np.abs(correlation) * np.sqrt(np.maximum(shared, 1))
    far[shared < 20] = 0.0
    sessions = np.array([r.session for r in some])
    far[sessions[:, None] != sessions[None, :]] = 0.0
    i, j = np.unravel_index(int(np.argmax(far)), far.shape)
    pairs = int((sessions[:, None] == sessions[None, :]).sum() - len(some)) // 2
    if far[i, j] > FAR + 1:
        what = "is the same" if correlation[i, j] > 0.999 else f"correlates by {correlation[i, j]:.2g}"
        return Tested("contradicted", f"the noise of {some[i].name} and of {some[j].name} {what}")
    if not pairs:
        return Tested("declared", "no two messages of one session show their noise")
    if float(np.median(shared)) < ENOUGH["gaussian"]:
        return Tested("declared", f"{int(np.median(shared))} numbers a message are too few to tell")
    found = f"the noises of {len(some)} messages do not correlate ({pairs} pairs)"
    if len(some) < len(residuals):
        return Tested("declared", f"{found}; those of {len(residuals) - len(some)} others were not compared")
    if len(set(sessions.tolist())) > 1:
        return Tested("declared", f"{found}; those of before a restart cannot be compared with those after it")
    if short:
        return Tested("declared", f"{found}; the tensor {short!r} is too short to compare it with another of a message")
    return Tested("checked", found)


def _tensors_alike(residuals: Sequence[LeftOver]) -> tuple[str, str]:
    """What is wrong where two tensors of a message have the same noise, as of a generator that is seeded anew for each;
    and a tensor that is too short to tell, where all of them but the largest are. Signs agree by a coin.
    """
    pairs: dict[tuple[str, str], list[Alike]] = {}
    for r in residuals:
        for pair in r.alike:
            pairs.setdefault((pair.tensor, pair.other), []).append(pair)
    short, long = "", False
    for (one, other), own in pairs.items():
        agreeing, of = sum(p.agreeing for p in own), sum(p.of for p in own)
        if of and float(binomtest(agreeing, of).pvalue) * len(pairs) < RARE:
            return (
                f"the noises of two tensors of a message, {one!r} and {other!r}, agree in {agreeing} signs of {of}",
                "",
            )
        enough = bool(of) and 2.0 ** (1 - of) * len(pairs) < RARE
        short, long = short if enough else short or other, long or enough
    return "", "" if long else short


@dataclass(frozen=True)
class SentTensor:
    """A tensor of a message as it was sent, without a raw value. numbers: of it. size: of Gaussian noise ‖·‖₂²/2σ², of
    Laplace noise ‖·‖₁/b, which of noise alone is Gamma(numbers/2), or Gamma(numbers), and is as large at least with
    any value beside it (Anderson 1955). law: declared. name: of the message.
    """

    tensor: str
    numbers: int
    size: float
    law: str
    name: str

    @property
    def shape(self) -> float:
        return self.numbers / 2 if self.law == "gaussian" else float(self.numbers)


def tensors_long_enough(sent: Sequence[SentTensor]) -> str:
    """Which tensor, of one message or of all together, is shorter than its noise alone would be; "" for none.

    >>> tensors_long_enough([SentTensor("bias", 10, 5.0, "gaussian", "one")] * 9)
    ''
    >>> tensors_long_enough([SentTensor("bias", 10, 0.01, "gaussian", "one")])[:39]
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
    if chance[least] * len(rows) >= RARE:
        return ""
    tensor, name, *_ = rows[least]
    return f"the tensor {tensor!r} of {name} is shorter than noise of that size (p = {chance[least]:.1g})"


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
    what = "shorter than noise of that size" if length < least else "longer than the bound and noise of that size"
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
    return often if chance < RARE else ""


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
