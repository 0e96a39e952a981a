"""What was measured of one setting, out of the results of one training or of several with seeds of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import asin, hypot, pi, sin, sqrt
from statistics import mean, stdev

from pydantic import BaseModel, ConfigDict
from scipy.stats import beta, t

from ..judge.judgement import Judgement, judgement_of
from ..results.checks import STRICT_FPR, Picked, picked, question_of, strict_point
from ..results.format import AttackResult, Number, Results
from ..say.accuracy import area_interval, beyond_said, only_ranks_said, unequal, useless_said
from ..say.words import between, percent

CONFIDENCE = 0.95  # of every limit, to its own side


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=True)


class SingledOut(_Frozen):
    """How many records one attack singles out: picks the original of a rebuilt image out of others, or finds a member
    where one in a hundred non-members is taken for one.

    what: in words. share: hits of n. control: what the attack's best control reaches, control_hits of the same n, or
    chance, which is known. shares: of each training. one_threshold: whether a few outsiders' scores decide about all
    records of a training, whose luck these then have in common. low, high: limits of the mean share of such trainings,
    each with a confidence of `CONFIDENCE` to its side: of records that are independent, and by Student's t over several
    trainings. Of a single one with one threshold nothing but its own share is known.
    ceiling: the most that the proof allows any attack; None where it says nothing.
    """

    attack: str
    what: str
    hits: float
    n: int
    chance: float
    control_hits: float = 0.0
    ceiling: float | None = None
    shares: tuple[float, ...] = ()
    one_threshold: bool = False

    @property
    def share(self) -> float:
        return self.hits / self.n

    @cached_property
    def low(self) -> float:
        return self._limit(_low(self.hits, self.n))

    @cached_property
    def high(self) -> float:
        return self._limit(_high(self.hits, self.n))

    def _limit(self, by_records: float) -> float:
        """The limit, of which `by_records` is that of independent records. A threshold that is the score of one or two
        outsiders of a hundred has as much luck as all members' scores together, and trainings' shares are then so
        skewed that Student's t wants a scale on which their spread does not hang on their mean: the arcsine of the
        root.
        """
        several = len(self.shares)
        if self.one_threshold and several < 2:
            if by_records < self.share:
                return 0.0
            return 1.0
        scale = _arcsine if self.one_threshold else float
        by_trainings = 0.0
        if several > 1:
            by_trainings = float(t.ppf(CONFIDENCE, several - 1)) * stdev(map(scale, self.shares)) / sqrt(several)
        here = scale(self.share)
        half = hypot((scale(by_records) - here) * (sqrt(2) if self.one_threshold else 1), by_trainings)
        limit = here + (half if by_records >= self.share else -half)
        if self.one_threshold:
            return sin(min(max(limit, 0.0), pi / 2)) ** 2
        return min(max(limit, 0.0), 1.0)

    @property
    def control(self) -> float:
        return max(self.chance, self.control_hits / self.n)

    @property
    def beyond(self) -> float:
        """The share beyond the control's."""
        return max(0.0, self.share - self.control)

    @cached_property
    def most_beyond(self) -> float:
        """Its upper limit: beyond what a control surely reaches, as the best of several may have had luck."""
        return max(0.0, self.high - max(self.chance, _low(self.control_hits, self.n)))


def _arcsine(share: float) -> float:
    return asin(sqrt(min(max(share, 0.0), 1.0)))


def _low(hits: float, n: int) -> float:
    """The lower limit of Clopper and Pearson's; `hits` may be a mean of several trainings."""
    if hits == 0:
        return 0.0
    return float(beta.ppf(1 - CONFIDENCE, hits, n - hits + 1))


def _high(hits: float, n: int) -> float:
    if hits == n:
        return 1.0
    return float(beta.ppf(CONFIDENCE, hits + 1, n - hits))


class Performance(_Frozen):
    """One setting, measured. None: not measured.

    accuracies: of the final model on test records, one a training; test_records: how many each is of. guessing: what
    always answering their most frequent class gets. balanced: of the same, the accuracy over classes; none where
    classes are about equal. areas: the AUC of two classes. losses: where there are no classes. leaks: one an attack.
    words_told: of texts, the share of their words, by the attack that tells the most.
    psnr_margin: the largest of any attack, in dB over its best control. demonstrated_from: as in the results.
    above_control: attacks of which some training's tests say that they are clearly above their control; None where
    nothing could have said so. noise_std, server_noise_std, clip_norm: as trained.
    """

    accuracies: tuple[float, ...] = ()
    test_records: int | None = None
    guessing: float | None = None
    balanced: tuple[float, ...] = ()
    areas: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    leaks: tuple[SingledOut, ...] = ()
    words_told: SingledOut | None = None
    psnr_margin: float | None = None
    demonstrated: Number | None = None
    demonstrated_from: str = ""
    contradicted: bool = False
    above_control: tuple[str, ...] | None = None
    noise_std: Number | None = None
    server_noise_std: Number | None = None
    clip_norm: Number | None = None

    @property
    def accuracy(self) -> float | None:
        if self.accuracies:
            return mean(self.accuracies)
        return None

    @property
    def loss(self) -> float | None:
        if self.losses:
            return mean(self.losses)
        return None

    @property
    def guess_and_balance(self) -> list[str]:
        """What guessing gets, and the accuracy over classes, each where it is known, in words."""
        known = []
        if self.guessing is not None:
            known.append(f"guessing {percent(self.guessing, 3)}")
        if self.balanced:
            known.append(beyond_said(mean(self.balanced), None, None))
        return known

    @property
    def beside_accuracy(self) -> list[str]:
        """What an accuracy is to be compared with, in words."""
        known = self.guess_and_balance
        if self.area is not None:
            known.append(beyond_said(None, self.area, self.area_limits))
        return known

    def accuracy_said(self, beside: Sequence[str]) -> str:
        """The accuracy with its limits and what it is to be compared with; "" where there is none."""
        if self.accuracy is None or self.accuracy_limits is None:
            return ""
        compared = "; ".join([between(self.accuracy_limits), *beside])
        return f"accuracy {percent(self.accuracy, 3)} ({compared})"

    @cached_property
    def accuracy_limits(self) -> tuple[float, float] | None:
        """Of the mean accuracy of such trainings."""
        if self.accuracy is None:
            return None
        n = self.test_records or 1
        hits = min(self.accuracy * n, n)
        return _limits_of_mean(self.accuracies, (_low(hits, n), _high(hits, n)))

    @property
    def area(self) -> float | None:
        if self.areas:
            return mean(self.areas)
        return None

    @cached_property
    def area_limits(self) -> tuple[float, float] | None:
        """Of the mean AUC of such trainings; by test records as on their pages, 95 % of both sides."""
        if self.area is None or self.test_records is None:
            return None
        by_records = area_interval(self.area, self.test_records, self.guessing)
        return _limits_of_mean(self.areas, by_records)

    @property
    def useless(self) -> str:
        """That the model is no better than none, a sentence; "" where it is shown to be, or is of no classes."""
        return useless_said(self.accuracy, self.accuracy_limits, self.guessing, self.area_limits)

    @property
    def only_ranks(self) -> str:
        """That it answers no better than a constant but ranks, a sentence; "" where that is not so."""
        return only_ranks_said(self.accuracy, self.accuracy_limits, self.guessing, self.area_limits)

    @cached_property
    def strongest(self) -> SingledOut | None:
        """The leak with the largest share beyond its control, of equals the one with the largest upper limit."""
        return max(self.leaks, key=lambda leak: (leak.beyond, leak.most_beyond), default=None)

    @property
    def leakage(self) -> float | None:
        """The share of records that the strongest attack singles out, beyond its control."""
        return None if self.strongest is None else self.strongest.beyond

    @cached_property
    def most_leakage(self) -> float | None:
        """The upper limit of any attack's."""
        return max((leak.most_beyond for leak in self.leaks), default=None)

    @property
    def reidentified(self) -> SingledOut | None:
        """Of the inversions, the one that picks the most."""
        own = [leak for leak in self.leaks if leak.attack.startswith("inversion")]
        return max(own, key=lambda leak: (leak.share, leak.high), default=None)


def _limits_of_mean(values: Sequence[float], by_records: tuple[float, float]) -> tuple[float, float]:
    """By Student's t over several trainings, and by the test records of one, as all may have been measured on the same.

    by_records: the limits of the mean, if it were of one training.
    """
    by_seeds = 0.0
    if len(values) > 1:
        by_seeds = float(t.ppf(CONFIDENCE, len(values) - 1)) * stdev(values) / sqrt(len(values))
    center, (low, high) = mean(values), by_records
    return max(0.0, center - hypot(center - low, by_seeds)), min(1.0, center + hypot(high - center, by_seeds))


def trained_together(outcomes: Sequence[Performance | None]) -> Performance | None:
    """What trainings of one setting tell before they are attacked; None where one diverged."""
    known = [outcome for outcome in outcomes if outcome is not None]
    if len(known) < len(outcomes):
        return None
    figures = ("accuracies", "balanced", "areas", "losses")
    joined = {name: tuple(chain.from_iterable(getattr(outcome, name) for outcome in known)) for name in figures}
    return known[0].model_copy(
        update={name: values if len(values) == len(known) else () for name, values in joined.items()}
    )


def outcome_of(results: Sequence[Results]) -> Performance:
    """The outcome of trainings of one setting, which differ in their seeds alone.

    Args:
        results: of each.
    """
    setup = results[0].setup
    accuracies = [r.setup.test_accuracy for r in results if r.setup.test_accuracy is not None]
    areas = [r.setup.test_auc for r in results if r.setup.test_auc is not None]
    losses = [r.rounds[-1]["test_loss"] for r in results if r.rounds and r.rounds[-1].get("test_loss") is not None]
    entries = [entry for r in results for entry in r.attacks]
    margins = [m for entry in entries if (m := entry.value("psnr_margin")) is not None]
    shown = [row for r in results for row in r.epsilon if row.asked and row.demonstrated is not None]
    most = max(shown, key=lambda row: row.demonstrated or 0.0, default=None)
    judged = [judgement_of(r) for r in results]
    return Performance(
        accuracies=tuple(accuracies) if len(accuracies) == len(results) else (),
        test_records=setup.test_records,
        guessing=setup.guessing_accuracy,
        balanced=_of_unequal(results, "balanced_accuracy"),
        areas=tuple(areas) if len(areas) == len(results) else (),
        losses=tuple(losses) if len(losses) == len(results) else (),
        leaks=tuple(_leaks(results)),
        words_told=_most_told(results),
        psnr_margin=max(margins, default=None),
        demonstrated=most.demonstrated if most else None,
        demonstrated_from=most.demonstrated_from if most else "",
        contradicted=any(judgement.contradicted for judgement in judged),
        above_control=_above_control(judged),
        noise_std=setup.noise_std,
        server_noise_std=results[0].server_noise_std,
        clip_norm=setup.clip_norm,
    )


def _above_control(judged: Sequence[Judgement]) -> tuple[str, ...] | None:
    attacks = [one for judgement in judged for one in judgement.attacks]
    above = dict.fromkeys(one.attack.attack for one in attacks if any(check.beats for check in one.checks))
    if not above and not all(judgement.measured for judgement in judged):
        return None
    return tuple(above)


def _of_unequal(results: Sequence[Results], name: str) -> tuple[float, ...]:
    """A figure of every training, none where classes are about equal or one training has none."""
    values = [getattr(r.setup, name) for r in results if unequal(r.setup)]
    if len(values) < len(results) or None in values:
        return ()
    return tuple(values)


Of = Callable[[AttackResult], Picked]
Trained = Sequence[AttackResult]  # the entries of one training that answer one question


def _leaks(results: Sequence[Results]) -> list[SingledOut]:
    """One leak for each attack in each manner and variant, over all messages and trainings."""
    leaks = [leak for own in _alike(results) for leak in (_rebuilt(own), _found(own)) if leak is not None]
    return sorted(leaks, key=lambda leak: (-leak.beyond, -leak.most_beyond, leak.attack, leak.what))


def _most_told(results: Sequence[Results]) -> SingledOut | None:
    """Of a text's words, whose control is to guess frequent ones; chance knows no words at all."""
    told = (_rebuilt(own, "words told", lambda _: Picked("words_told", "")) for own in _alike(results))
    return max(filter(None, told), key=lambda leak: (leak.share, leak.high), default=None)


def _alike(results: Sequence[Results]) -> list[list[Trained]]:
    """The entries of all trainings by the question that they answer."""
    alike: dict[str, list[Trained]] = {}
    for each in results:
        own: dict[str, list[AttackResult]] = {}
        for entry in each.attacks:
            own.setdefault(question_of(entry), []).append(entry)
        for question, entries in own.items():
            alike.setdefault(question, []).append(entries)
    return [*alike.values()]


def _rebuilt(trainings: Sequence[Trained], how: str = "re-identified", of: Of = picked) -> SingledOut | None:
    """As many images as there are records in the largest message of each training, as other messages may be of the
    same; all rounds together may have several pictures of a record. how: in words. of: which share, and its chance.
    """
    known = [[e for e in own if e.n and e.value(of(e).share) is not None] for own in trainings]
    known = [own for own in known if own]
    if not known:
        return None
    first = known[0][0]
    n = sum(max(len({pair.original for pair in e.pairs}) or e.n or 0 for e in own) for own in known)
    every = [e for own in known for e in own]
    controls = dict.fromkeys(name for e in every for name in e.controls)
    ceilings = [e.value("pool_ceiling") for e in every]
    several = ""
    if first.manner == "all-rounds":
        several = ", all rounds together"
    variant = ""
    if first.variant:
        variant = f" ({first.variant})"
    return SingledOut(
        attack=first.attack,
        what=f"{how} by {first.attack}{variant}{several}",
        hits=n * _mean(every, lambda e: e.value(of(e).share)),
        n=n,
        chance=_mean(every, lambda e: e.value(of(e).chance)),
        control_hits=n * max((_of_control(every, name, of) for name in controls), default=0.0),
        ceiling=None if any(c is None for c in ceilings) else max(c for c in ceilings if c is not None),
        shares=tuple(_mean(own, lambda e: e.value(of(e).share)) for own in known),
    )


def _of_control(entries: Trained, name: str, of: Of) -> float:
    """How many originals a picture that knows nothing picks, of all entries together."""
    return _mean(entries, lambda e: e.controls.get(name, {}).get(of(e).share))


def _mean(entries: Trained, value: Callable[[AttackResult], float | None]) -> float:
    """Over all images."""
    return sum((value(e) or 0.0) * (e.n or 0) for e in entries) / sum(e.n or 0 for e in entries)


@dataclass(frozen=True)
class _Point:
    """What an attack finds where hardly an outsider is taken for a member; chance: what guessing finds there."""

    tpr: float
    chance: float
    members: int
    where: str


def _point(entry: AttackResult) -> _Point | None:
    """At 1 % false alarms; of fewer than a hundred outsiders at none, where guessing finds one in so many and one."""
    members, outsiders = int(entry.value("n_members") or 0), int(entry.value("n_nonmembers") or 0)
    if not members or not outsiders:
        return None
    if (strict := strict_point(entry)) is not None:
        return _Point(
            strict.tpr, max(STRICT_FPR, strict.realised_fpr or 0.0), members, f"{percent(STRICT_FPR)} false alarms"
        )
    if (none := next((p for p in entry.tpr_points if p.fpr == 0), None)) is None:
        return None
    return _Point(none.tpr, 1 / (outsiders + 1), members, f"a threshold above all {outsiders} outsiders")


def _found(trainings: Sequence[Trained]) -> SingledOut | None:
    """The best point of each training; its members count once."""
    known = [[p for e in own if (p := _point(e)) is not None] for own in trainings]
    points = [max(own, key=lambda p: p.tpr) for own in known if own]
    if not points:
        return None
    first, n = trainings[0][0], sum(p.members for p in points)
    if len(points) == len(trainings):
        some = ""
    else:
        some = f" ({len(points)} of {len(trainings)} trainings)"
    return SingledOut(
        attack=first.attack,
        what=f"found by {first.attack} at {points[0].where}{some}",
        hits=sum(p.tpr * p.members for p in points),
        n=n,
        chance=sum(p.chance * p.members for p in points) / n,
        shares=tuple(p.tpr for p in points),
        one_threshold=True,
    )
