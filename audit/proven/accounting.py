"""The ε that can be proven from what an observer saw: the one place where releases become accountants' events.

A `Release` holds facts only. Here it is priced for one unit ("record" or "client") and one adjacency: "zero_out" (the
unit's contribution gets weight 0; counts, batches and noise stay) or "replace_one" (of a client: by another of as many
records). What a bound gives (C bounds the vector, or one record's contribution to it; n is the number of records in the
vector):

    sensitivity                         client, zero_out   client, replace_one   record, zero_out   record, replace_one
    whole vector clipped (of="client")  C, or 2C (*)       2C                    2C                 2C
    each record clipped (of="record")   nC                 2nC                   C                  2C

(*) Where noise or others' values were in what was clipped (`Bound.anywhere`): without the client it is not 0.

A whole vector clipped to C never gives C/n: one record can turn it around. What cannot be priced is infinite, and the
reason is said. The events themselves stand in `composition`, the exact Gaussian curve in `gaussian`. Rounds whose noise
is correlated are no events of their own: together they are one (`correlated`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, hypot, inf, isfinite, isnan, log, sqrt

import numpy as np
from scipy.optimize import brentq

from ...defenses.releases import CorrelatedLaw, DiscreteLaw, Facts, GaussianLaw, LaplaceLaw, ResponseLaw, Sampling
from ...defenses.terms import Adjacency, Unit
from ..proof.theorems.composition import epsilon, gaussian_mu, is_exact
from ..proof.theorems.correlated import chain_ratio
from ..proof.theorems.draw import Draw, Draws, joint_ratio
from ..proof.theorems.gaussian import gaussian_multiplier
from ..proof.theorems.tradeoff import gaussian_ceiling, success_ceiling
from ..say.words import at_most, listed
from ..setup.counted import Counted, Counting
from .lots import amplified, factor, goes_to_zero, group_size

MOST_SHUFFLED = 50.0  # ε of an answer, beyond which no others' hide it
MOST_LISTED = 12  # clients whose ε a reason names
MOST_TERMS = 200  # Laplace noises of a sum that are counted; leaving some out is post-processing of the rest


@dataclass(frozen=True)
class Price:
    """What is proven of one subject.

    epsilon: at the δ asked for; infinite where nothing can be proven.
    accountant: which one gave it; "none" for infinity, and for 0 where nothing was to be priced.
    multiplier: the least noise / sensitivity of any one release (Laplace: scale / L1 sensitivity), None where unknown.
    releases: how many draws of noise were composed (a local DP-SGD run counts its steps).
    mu: of the Gaussian whose trade-off curve bounds every attack on any subject (`composition.gaussian_mu`); None where
      no such curve is known, and (ε, δ) is all there is.
    reasons: in plain words: what was assumed, why it is infinite, why it differs from a naive reading.
    profile: further (δ, ε) that hold too, where there is no mu.
    """

    epsilon: float
    accountant: str
    multiplier: float | None
    releases: int
    mu: float | None
    reasons: tuple[str, ...]
    profile: tuple[tuple[float, float], ...] = ()


def _seen(releases: Iterable[Facts]) -> tuple[list[Counted], int]:
    """The releases that count, and how many do not: whoever has all parents of a release could have made it himself."""
    by_id = {facts.id: facts if isinstance(facts, Counted) else Counting().count(facts) for facts in releases}
    kept = []
    for one in sorted(by_id.values(), key=lambda r: (r.round, r.id)):
        parents = one.parents - {one.id}
        if not parents or not parents <= by_id.keys():
            kept.append(replace(one, secret=not parents & by_id.keys()))
    return kept, len(by_id) - len(kept)


def proven(
    releases: Iterable[Facts], *, subject: int, unit: Unit, adjacency: Adjacency, delta: float, times: int = 1
) -> Price:
    """The ε proven of `subject` towards an observer whose messages reveal `releases`.

    Releases about others, and releases computed from others that are all seen, cost nothing; the rest are composed.

    Args:
        releases: what the messages reveal.
        subject: a client's number.
        unit, adjacency: of the ε. delta: in [0, 1).
        times: how often all of it was released, with noise and samples of its own each time, ≥ 1.

    Raises:
        ValueError: an unknown unit or adjacency, a δ out of range, or a release whose facts cannot be.
    """
    _check(unit, adjacency, delta)
    kept, free = _seen(releases)
    return _price([s for s in kept if subject in s.subjects], free, subject, unit, adjacency, delta, times)


@dataclass(frozen=True, eq=False)
class Exposure:
    """What an observer saw of each of several subjects, prepared for pricing: subjects of whom the same was seen are
    one history, priced once whatever their number.

    Args:
        histories: the first subject of each history, and what was seen of it, in the order of the subjects.
        subjects: how many there are.
        free: how many releases were computed from others that are seen too.
        place: the number of each subject's history; of nobody where a history is one of several choices.
    """

    histories: tuple[tuple[int, Sequence[Counted]], ...]
    subjects: int
    free: int
    place: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, releases: Iterable[Facts], subjects: Iterable[int], coalition: int = 0) -> Exposure:
        """What `releases` say of each subject. coalition: how many other clients tell the observer all they know."""
        kept, free = _seen(releases)
        kept = [r.told_by(coalition) for r in kept]
        drawn = {(r.training, r.round) for r in kept if _is_secret(r.sampling)}
        about: dict[int, list[Counted]] = {subject: [] for subject in subjects}
        kinds: dict[tuple[object, ...], int] = {}  # facts, by order of appearance
        alone: dict[int, list[int]] = defaultdict(list)
        lots: dict[int, dict[tuple[int, int], list[tuple[int, str]]]] = defaultdict(lambda: defaultdict(list))
        for seen in kept:
            kind, at = kinds.setdefault(_kind(seen), len(kinds)), (seen.training, seen.round)
            for subject in about.keys() & seen.subjects:
                about[subject].append(seen)
                if at in drawn:
                    lots[subject][at].append((kind, seen.lot))
                else:
                    alone[subject].append(kind)
        numbers: dict[tuple[object, ...], int] = {}
        first: dict[int, int] = {}
        place: dict[int, int] = {}
        for subject in about:
            together = sorted(_as_numbers(lot) for lot in lots[subject].values())
            shape = tuple(sorted(alone[subject])), tuple(together)
            place[subject] = numbers.setdefault(shape, len(numbers))
            first.setdefault(place[subject], subject)
        return cls(tuple((subject, about[subject]) for subject in first.values()), len(about), free, place)

    @classmethod
    def of_choices(cls, choices: Iterable[Sequence[Counted]], subjects: int) -> Exposure:
        """Of subjects of whom one of several lists is seen, nobody says which: each list is a history of whom it is
        about.
        """
        first: dict[object, tuple[int, Sequence[Counted]]] = {}
        for kept, _ in map(_seen, choices):
            for subject in sorted(frozenset().union(*(r.subjects for r in kept))):
                about = [r for r in kept if subject in r.subjects]
                first.setdefault(frozenset(Counter(map(_kind, about)).items()), (subject, about))
        return cls(tuple(first.values()), subjects, 0)

    @classmethod
    def joined(cls, trainings: Sequence[Sequence[Exposure]]) -> Exposure | None:
        """What is seen of each subject in several trainings, which go by the same numbers in all of them; None where a
        training does not say what is seen of whom.

        trainings: of each, what is seen of some of the subjects, of nobody twice.
        """
        seen: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)  # by subject and training
        for i, several in enumerate(trainings):
            for j, one in enumerate(several):
                for subject, at in one.place.items():
                    if i in seen[subject]:
                        return None
                    seen[subject][i] = j, at
                if one.histories and not one.place:
                    return None
        first: dict[tuple[tuple[int, tuple[int, int]], ...], int] = {}
        for subject in sorted(seen):
            first.setdefault(tuple(seen[subject].items()), subject)
        histories = [
            (subject, [r.of_training(i) for i, (j, at) in places for r in trainings[i][j].histories[at][1]])
            for places, subject in first.items()
        ]
        place = {subject: list(first).index(tuple(places.items())) for subject, places in seen.items()}
        return cls(tuple(histories), len(seen), sum(one.free for several in trainings for one in several), place)

    @property
    def drawn_in_secret(self) -> bool:
        """Whether something was drawn by a lot that the observer did not see."""
        return any(s.secret and _is_secret(s.sampling) for _, about in self.histories for s in about)

    @property
    def drawn_openly(self) -> Exposure:
        """The same, seen by somebody who knows who, and what, was drawn."""
        known = ((subject, [replace(seen, secret=False) for seen in about]) for subject, about in self.histories)
        return replace(self, histories=tuple(known))

    def worst(self, *, unit: Unit, adjacency: Adjacency, delta: float) -> Price:
        """The price of the worst-off subject, the first of equals. Raises as `proven` does, and where there is
        nobody.
        """
        _check(unit, adjacency, delta)
        if not self.histories:
            raise ValueError("there is no subject to price; name at least one client")
        curves = [_cost(about, unit, adjacency, delta) for _, about in self.histories]
        costs = [cost for cost, _ in curves]
        subject, about = self.histories[costs.index(max(costs))]
        price = _price(about, self.free, subject, unit, adjacency, delta)
        price = replace(price, mu=worst_mu(mu for _, mu in curves))
        if len(set(costs)) == 1 or not self.place:
            return price
        worst = f"Client {subject} is the worst off of {self.subjects}"
        if unit == "record" and len(costs) == self.subjects <= MOST_LISTED:
            pairs = zip(self.histories, costs)
            worst += ": ε is " + listed([f"{at_most(cost)} of client {who}" for (who, _), cost in pairs])
        return replace(price, reasons=(f"{worst}.", *price.reasons))

    def worst_renyi(self, *, unit: Unit, adjacency: Adjacency) -> np.ndarray:
        """The largest Rényi divergence of any subject, at each of `accountants.ORDERS`: ∞ where nothing can be
        proven.
        """
        from ..proof.theorems.accountants import ORDERS

        curves = [_renyi(about, unit, adjacency) for _, about in self.histories]
        if curves:
            return np.maximum.reduce(curves)
        return np.zeros_like(ORDERS)

    def worst_ceiling(self, kappa: float, *, unit: Unit, adjacency: Adjacency) -> float:
        """How often an attack on the worst-off subject succeeds at most, where any output made without it succeeds with
        `kappa` (`tradeoff.success_ceiling`): 1 where nothing can be proven.
        """
        return max((_ceiling(about, kappa, unit, adjacency) for _, about in self.histories), default=kappa)

    def worst_noise_scale_for(self, *, unit: Unit, adjacency: Adjacency, delta: float, target_epsilon: float) -> float:
        """The factor all noise must be multiplied by for the proven ε of the worst-off subject to come to the target,
        never above it: exact for Gaussians without sampling, else at most one part in 10⁴ more than needed; below 1
        where the target is above what is proven now; 0 if no release is about a subject.

        Args:
            unit, adjacency, delta: of the ε. target_epsilon: above 0 and finite.

        Raises:
            ValueError: no amount of noise helps.
        """
        _check(unit, adjacency, delta)
        scales: dict[Draws, float] = {}
        most = 0.0
        for _, about in self.histories:
            draws = _scalable(about, unit, adjacency, target_epsilon)
            if draws not in scales:
                scales[draws] = _noise_scale(draws, delta, target_epsilon)
            shares = [s.rounding / s.bound_norm for s in about if s.bound_norm]
            most = max(most, _with_rounding(scales[draws], max(shares, default=0.0)))
        return most


def worst_mu(mus: Iterable[float | None]) -> float | None:
    """The largest μ, None where one is missing: curves of other laws may cross at another δ."""
    known = list(mus)
    if None in known:
        return None
    return max(mu for mu in known if mu is not None)


def _is_secret(sampling: Sampling | None) -> bool:
    return sampling is not None and sampling.kind != "partition"


def _kind(r: Counted) -> tuple[object, ...]:
    """All of a release that its price depends on: everything but its name, its round and whom it is about."""
    bound = (r.bound_norm, r.bound_order, r.bound_of, r.records, r.anywhere, r.rounding)
    return (r.law, *bound, r.sampling, r.steps, r.problem, r.slot, r.secret, r.coalition)


def sort_and_size(seen: Sequence[Counted]) -> tuple[object, float]:
    """Of what is seen together: among all of one sort, whatever has the larger size tells no less, beside anything
    else. Several Gaussians have a joint size; of one law and otherwise alike, the larger bound over noise tells more.
    """
    sorts: set[tuple[object, ...]] = set()
    size = 0.0
    for r in seen:
        law, times, facts = r.law, r.steps, (r.problem, r.bound_order, r.bound_of, r.records, r.anywhere, r.sampling)
        if isinstance(law, ResponseLaw):
            law = replace(law, std=0.0, epsilon=1.0)
        elif isinstance(law, GaussianLaw) and r.sampling is None:
            law, times, size = GaussianLaw(1.0), 1, hypot(size, sqrt(r.steps) * r.ratio)
        elif isinstance(law, LaplaceLaw) and not law.terms:
            law = LaplaceLaw(1.0)
        sorts.add((law, times, *facts))
    if len(seen) == 1:
        return sorts.pop(), size or seen[0].ratio
    if len(sorts) == 1 and all(isinstance(r.law, GaussianLaw) and r.sampling is None for r in seen):
        return sorts.pop(), size
    return frozenset(Counter(map(_kind, seen)).items()), 0.0


def _as_numbers(lot: Sequence[tuple[int, str]]) -> tuple[tuple[int, int], ...]:
    """The releases of a round by their kinds, and which of them name the same lot; -1 where nobody names it."""
    names = {"": -1}
    return tuple((kind, names.setdefault(name, len(names))) for kind, name in sorted(lot))


def worst(
    releases: Iterable[Facts], subjects: Iterable[int], *, unit: Unit, adjacency: Adjacency, delta: float
) -> Price:
    """The price of the worst-off of `subjects`, the first of equals.

    Args:
        releases: what an observer's messages reveal. subjects: clients' numbers.
        unit, adjacency: of the ε. delta: in [0, 1).
    """
    return Exposure.of(releases, subjects).worst(unit=unit, adjacency=adjacency, delta=delta)


def _scalable(about: Sequence[Counted], unit: Unit, adjacency: Adjacency, target: float) -> Draws:
    """The draws whose noise is to grow. Raises ValueError for a target out of range, or where one cannot be priced."""
    if not 0 < target < inf:
        raise ValueError(f"the target epsilon is {target}; it must be above 0 and finite")
    for seen in about:
        if why := _problem(seen):
            raise ValueError(f"no noise gives epsilon {target:g}, because in round {seen.round} {why}")
        if seen.mechanism == "response":
            raise ValueError(f"a response has no amount of noise; lower the ε of its numbers to reach {target:g}")
    return _draws(_one_of_each_slot(about, unit)[0], unit, adjacency)


def _with_rounding(scale: float, share: float) -> float:
    """A factor on the noise, and a little more: the grid grows with the noise, by powers of two, and with it what
    rounding adds to a bound, now its `share`. Raises ValueError where it would be as large as the bound.
    """
    if scale <= 1:
        return scale
    if not 4 * share * scale < 1:
        raise ValueError(f"{scale:.3g} times the noise needs a grid on which rounding is as large as the bound")
    return scale / (1 - 2 * share * scale)


def _noise_scale(draws: Draws, delta: float, target: float) -> float:
    if not draws:
        return 0.0
    if delta == 0 and any(draw.mechanism in ("gaussian", "discrete") for draw, _ in draws):
        raise ValueError("no Gaussian noise gives delta = 0; ask for a delta above 0")

    def at(factor: float, use_pld: bool = True) -> float:
        scaled = tuple((draw.with_noise_times(factor), count) for draw, count in draws)
        return epsilon(scaled, delta, use_pld)[0]

    if is_exact(draws):
        exact = gaussian_multiplier(target, delta) * joint_ratio(draws)
        return _not_above(at, exact, target, step=1e-16)
    rough = _root(lambda factor: at(factor, use_pld=False), 1.0, target, step=2.0, tolerance=0.05)
    return _root(at, rough, target, step=1.25, tolerance=1e-4)


# --- from facts to draws


def _price(
    about: Sequence[Counted], free: int, subject: int, unit: Unit, adjacency: Adjacency, delta: float, times: int = 1
) -> Price:
    also = (f"{free} releases were computed from others that are seen too, and cost nothing.",) if free else ()
    if not about:
        return Price(0.0, "none", None, 0, 0.0, (f"Nothing that is seen is about client {subject}.", *also))
    count = times * sum(seen.steps for seen in about)
    about, apart = _one_of_each_slot(about, unit)
    if problems := Counter(why for seen in about if (why := _problem(seen))):
        reasons = (f"Nothing can be proven: {why} ({n} of {len(about)} releases)." for why, n in problems.items())
        return Price(inf, "none", None, count, None, (*reasons, *also))
    draws = tuple((draw, times * number) for draw, number in _draws(about, unit, adjacency))
    value, accountant = epsilon(draws, delta)
    words = dict.fromkeys(_sensitivity_words(about, unit, adjacency))
    words |= dict.fromkeys(how.words for how in amplified(about, unit, adjacency))
    words |= dict.fromkeys((_sum_words(about), apart))
    words[_chain_words(about)] = None
    words[_discrete_words(draws)] = None
    words[_composition_words(draws, times * sum(seen.steps for seen in about), accountant)] = None
    said = [1 / draw.ratio for draw, _ in draws if draw.mechanism != "response"]
    multiplier = min(said, default=None if draws else inf)
    return Price(value, accountant, multiplier, count, gaussian_mu(draws), (*filter(None, words), *also))


def _cost(about: Sequence[Counted], unit: Unit, adjacency: Adjacency, delta: float) -> tuple[float, float | None]:
    """ε and μ, as of a `Price`."""
    if any([_problem(seen) for seen in about]):  # a list: every release's facts are checked
        return inf, None
    draws = _draws(_one_of_each_slot(about, unit)[0], unit, adjacency)
    return epsilon(draws, delta)[0], gaussian_mu(draws)


def _renyi(about: Sequence[Counted], unit: Unit, adjacency: Adjacency) -> np.ndarray:
    from ..proof.theorems.accountants import ORDERS, renyi  # half a second, which a closed form need not wait for

    if any([_problem(seen) for seen in about]):
        return np.full_like(ORDERS, inf)
    return renyi(_draws(_one_of_each_slot(about, unit)[0], unit, adjacency))


def _ceiling(about: Sequence[Counted], kappa: float, unit: Unit, adjacency: Adjacency) -> float:
    about = _one_of_each_slot(about, unit)[0]
    if any([_problem(seen) for seen in about]):
        return 1.0
    draws = _draws(about, unit, adjacency)
    if (mu := gaussian_mu(draws)) is not None:
        return gaussian_ceiling(mu, kappa)
    return success_ceiling(lambda delta: epsilon(draws, delta)[0], kappa)


def _problem(release: Counted) -> str:
    """Why nothing can be proven of a release, or "". Raises ValueError for facts that cannot be."""
    facts = f"release {release.id} of round {release.round}"
    if isnan(release.ratio) or release.ratio < 0 or release.steps < 1 or release.records < 1:
        numbers = f"ratio {release.ratio}, steps {release.steps}, records {release.records}"
        raise ValueError(f"{facts} has {numbers}; ratio must be at least 0, steps and records at least 1")
    sampling = release.sampling
    if sampling is not None and not 0 < sampling.cohort <= sampling.population:
        drawn = f"{sampling.cohort} of {sampling.population}"
        raise ValueError(f"{facts} samples {drawn}; the sample must be above 0 and fit in the population")
    if release.problem:
        return release.problem
    if release.mechanism == "none":
        return "a value is sent without noise"
    if isinstance(release.law, DiscreteLaw):
        if not release.law.step > 0 or release.law.numbers < 1 or len(release.terms) > 1:
            raise ValueError(f"{facts} is discrete; it must have a step above 0, numbers, and one size of noise")
        if release.sampling is not None and release.sampling.kind != "partition":
            return "nothing is proven of discrete noise on a sample"
    if release.mechanism == "response":
        if isfinite(release.ratio) and release.ratio > 0:
            return ""
        return "there is no noise where the value may vary"
    if release.bound_norm is None or release.bound_order not in (1, 2):
        return "nothing bounds the value the noise was added to"
    if release.mechanism == "laplace" and release.bound_order != 1:
        return "Laplace noise protects an L1 bound, and the value's bound is L2"
    if isfinite(release.ratio):
        return ""
    return "there is no noise where the bound lets the value vary"


def _draws(about: Sequence[Counted], unit: Unit, adjacency: Adjacency) -> Draws:
    counts: Counter[Draw] = Counter()
    chains: dict[str, list[Counted]] = defaultdict(list)
    lots: dict[tuple[int, int], list[tuple[Draw, int]]] = defaultdict(list)
    for seen, hidden in zip(about, amplified(about, unit, adjacency)):
        sampling, times = seen.sampling, _times(seen, unit)
        if isinstance(seen.law, CorrelatedLaw):
            chains[seen.law.chain].append(seen)
            continue
        draw = _draw(seen, unit, adjacency)
        if sampling is None or not hidden.kind:
            if draw.ratio > 0:
                counts[draw] += times
            continue
        draw = replace(
            draw,
            amplification=hidden.kind,
            cohort=sampling.cohort,
            population=sampling.population,
            inner=hidden.inner,
            known=hidden.known,
        )
        if sampling.unit == "client":  # one cohort for all steps: they are one Gaussian, sampled once
            draw, times = draw.with_noise_times(1 / sqrt(times)), 1
        if draw.ratio > 0:
            lots[seen.training, seen.round].append((draw, times))
    for lot in lots.values():
        counts[Draw.of_one_lot([draw for draw, _ in lot])] += lot[0][1]
    for chain in chains.values():
        ratio = chain_ratio(chain, [(r.bound_norm or 0.0) * factor(r, unit, adjacency) for r in chain])
        if ratio > 0:
            counts[Draw("gaussian", ratio)] += 1
    return tuple(sorted(counts.items()))


def _draw(seen: Counted, unit: Unit, adjacency: Adjacency) -> Draw:
    """One draw of its noise, without amplification."""
    law, mechanism = seen.law, seen.mechanism
    assert mechanism != "none" and mechanism != "correlated"
    draw = Draw(mechanism, seen.ratio * factor(seen, unit, adjacency))
    if mechanism == "laplace" and seen.terms and seen.bound_norm:
        draw = _laplace_sum(seen, factor(seen, unit, adjacency))
    if isinstance(law, ResponseLaw):
        senders = sum(count for _, count in law.terms) or 1
        fair = law.about_zero and senders == 1 and goes_to_zero(seen, unit, adjacency)
        draw = replace(draw, senders=senders if seen.ratio <= MOST_SHUFFLED else 1, fair=fair)
    if isinstance(law, DiscreteLaw):
        ((std, senders),) = law.terms or ((law.std, 1),)
        draw = replace(draw, steps=std / law.step, senders=senders, numbers=law.numbers)
    return draw


def _times(release: Counted, unit: Unit) -> int:
    """How many of a release's steps are about one subject: of a partition's a record is in one an epoch, and in the
    part of an epoch at either end.
    """
    sampling = release.sampling
    if sampling is None or sampling.kind != "partition" or unit != sampling.unit:
        return release.steps
    batches = ceil(sampling.population / sampling.cohort)
    return min(release.steps, ceil(release.steps / batches) + (release.steps % batches > 0))


def _laplace_sum(release: Counted, moved: int) -> Draw:
    """The draw of a sum of Laplace noises; beyond the first ones, the largest, more of them change next to nothing."""
    stds = [std for std, count in reversed(release.terms) for _ in range(min(count, MOST_TERMS))][:MOST_TERMS]
    assert release.bound_norm is not None
    return Draw.laplace_sum(std / sqrt(2) / (moved * release.bound_norm) for std in stds)


def _one_of_each_slot(about: Sequence[Counted], unit: Unit) -> tuple[list[Counted], str]:
    """What is to be composed for a record: of the releases of a slot only the one that tells most, as a record is in no
    more than one of them (parallel composition, McSherry 2009); and that in words. Everything for a client.

    Who sees all the releases, or all the models between them, knows where each began; whoever does not must not use
    this.
    """
    slots: dict[str, list[Counted]] = {}
    for seen in about:
        slots.setdefault(seen.slot if unit == "record" else "", []).append(seen)
    kept = slots.pop("", [])
    apart = 0
    for alike in slots.values():
        ranked = [sort_and_size([seen]) for seen in alike]
        if len({sort for sort, _ in ranked}) > 1 or any(seen.sampling or seen.steps > 1 for seen in alike):
            kept += alike
            continue
        kept.append(max(zip(ranked, alike), key=lambda one: one[0][1])[1])
        apart += len(alike) - 1
    if not apart:
        return kept, ""
    words = (
        f"The batches of an epoch have no record in common: of each epoch's releases one counts, {len(kept)} in all."
    )
    return sorted(kept, key=lambda seen: (seen.round, seen.id)), words


# --- words


def _sensitivity_words(releases: Sequence[Counted], unit: Unit, adjacency: Adjacency) -> list[str]:
    """One sentence a reason, with the least and the largest bound it is about."""
    bounds: dict[tuple[str, str], list[float]] = {}
    for release in (r for r in releases if r.mechanism != "response"):
        bounds.setdefault(_sensitivity_reason(release, unit, adjacency), []).append(release.bound_norm or 0.0)
    sentences = []
    for (size, why), norms in bounds.items():
        least, most = f"{min(norms):.4g}", f"{max(norms):.4g}"
        sentences.append(f"Sensitivity is {size} ({least if least == most else f'{least} to {most}'}): {why}.")
    if answered := {release.steps for release in releases if release.mechanism == "response"}:
        numbers = f"all {max(answered):,} numbers of a message"
        sentences.append(f"Each number hides itself alone, and one {unit} can change {numbers}.")
    return sentences


def _sensitivity_reason(release: Counted, unit: Unit, adjacency: Adjacency) -> tuple[str, str]:
    times = factor(release, unit, adjacency)
    size = "the bound" if times == 1 else f"{times} times the bound"
    if release.bound_of == "client":
        if unit == "record":
            why = "one record can turn a whole clipped vector around, so it is never the bound over the record count"
        elif adjacency == "zero_out" and release.anywhere:
            why = "what was clipped holds noise or others' values, so one client can turn it around"
        elif adjacency == "zero_out":
            why = "a whole clipped vector goes, so it is never the bound over the record count"
        else:
            why = "another client's clipped vector, of as many records, can point the opposite way"
    elif unit == "client":
        who = "a client, as another in its place,"
        if adjacency == "zero_out":
            who = "a client"
        why = f"{who} is a group of {group_size(release)} records, each bounded by itself"
    else:
        why = "each record's contribution is bounded by itself"
    return size, why


def _sum_words(releases: Sequence[Counted]) -> str:
    counts = [sum(count for _, count in release.terms) for release in releases if release.terms]
    if not counts or max(counts) == 1:
        return ""
    return (
        f"Only sums are seen, and the noise of {min(counts)} senders in each adds up, if they draw it honestly and tell"
        " nobody ([audit] honest is the share of all other clients who do)."
    )


def _chain_words(releases: Sequence[Counted]) -> str:
    chained = [release.law for release in releases if isinstance(release.law, CorrelatedLaw)]
    if not chained:
        return ""
    apart, most = chained[0].separation, chained[0].most
    said = f"The noise of the {len(chained)} rounds is correlated: they are one Gaussian release, and none by itself."
    rules = []
    if apart > 1:
        rules.append(f"in some of them that are at least {apart} apart")
    if most is not None:
        rules.append(f"in at most {most} of them")
    if not rules:
        return said
    return f"{said} A client is {', '.join(rules)}."


def _discrete_words(draws: Draws) -> str:
    discrete = [draw for draw, _ in draws if draw.mechanism == "discrete"]
    if not discrete:
        return ""
    least = min(draw.steps for draw in discrete)
    return (
        f"Each sender's noise is discrete Gaussian, of {least:.4g} steps or more; its sums hide as much as continuous"
        " Gaussian noise that is a little smaller."
    )


def _composition_words(draws: Draws, count: int, accountant: str) -> str:
    noun = "draws"
    if count == 1:
        noun = "draw"
    if not draws:
        return "The bound is 0: nothing the subject holds changes what is seen."
    if accountant == "closed form" and draws[0][0].mechanism == "response":
        coins = ""
        if draws[0][0].fair:
            coins = ", against fair coins where the client is left out"
        pure = f"{draws[0][0].pure:.4g}"
        return f"{count} {noun} of one of two values compose exactly, each of pure ε = {pure}{coins}."
    if is_exact(draws):
        joint = 1 / joint_ratio(draws)
        verb = "compose"
        if count == 1:
            verb = "composes"
        return f"{count} {noun} of Gaussian noise {verb} exactly, to one of noise multiplier {joint:.4g}."
    dropped = accountant not in ("RDP", "PLD") and any(draw.amplification for draw, _ in draws)
    without = ""
    if dropped:
        without = " without amplification"
    return f"{count} {noun} of noise composed by {accountant}{without}, the least of the bounds that hold."


# --- scaling


def _not_above(value: Callable[[float], float], scale: float, target: float, step: float) -> float:
    """`scale`, or as little more as brings a falling `value` down to the target."""
    while value(scale) > target:
        scale, step = scale * (1 + step), 2 * step
    return scale


def _root(value: Callable[[float], float], start: float, target: float, step: float, tolerance: float) -> float:
    """The scale at which a falling `value` passes the target, at or below it, with at most `tolerance` too much.

    The bracket grows from `start` by factors of `step`.
    """
    low = high = start
    while value(high) > target:
        low, high = high, step * high
    if low == high:
        low = start / step
        while value(low) <= target:
            low, high = low / step, low

    def gap(x: float) -> float:
        return log(max(value(exp(x)), 1e-12) / target)  # nearly a line, as ε falls nearly like a power

    at = exp(brentq(gap, log(low), log(high), xtol=tolerance / 5, rtol=1e-12))
    return _not_above(value, at, target, step=tolerance / 5)


def _check(unit: Unit, adjacency: Adjacency, delta: float) -> None:
    if unit not in ("record", "client"):
        raise ValueError(f"the unit is {unit!r}; it must be 'record' or 'client'")
    if adjacency not in ("zero_out", "replace_one"):
        raise ValueError(f"the adjacency is {adjacency!r}; it must be 'zero_out' or 'replace_one'")
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta}; it must be at least 0 and below 1")
