"""What was measured of one setting, out of the results of one training or of several with seeds of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import sqrt
from statistics import mean, stdev

from pydantic import BaseModel, ConfigDict
from scipy.stats import beta, t

from ..results.checks import STRICT_FPR, beyond_proof, picked, refutations, strict_point
from ..results.format import AttackResult, Number, Results

CONFIDENCE = 0.95  # of every limit, to its own side


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=True)


class SingledOut(_Frozen):
    """How many records one attack singles out: picks the original of a rebuilt image out of others, or finds a member
    where one in a hundred non-members is taken for one.

    what: in words. share: hits of n. control: what the attack's best control reaches, control_hits of the same n, or
    chance, which is known. low, high: limits of the share, each with a confidence of `CONFIDENCE` to its side; records
    of one message are taken as independent.
    ceiling: the most that the proof allows any attack; None where it says nothing.
    """

    attack: str
    what: str
    hits: int
    n: int
    chance: float
    control_hits: int = 0
    ceiling: float | None = None

    @property
    def share(self) -> float:
        return self.hits / self.n

    @cached_property
    def low(self) -> float:
        return _low(self.hits, self.n)

    @cached_property
    def high(self) -> float:
        return 1.0 if self.hits == self.n else float(beta.ppf(CONFIDENCE, self.hits + 1, self.n - self.hits))

    @property
    def control(self) -> float:
        return max(self.chance, self.control_hits / self.n)

    @property
    def beyond(self) -> float:
        """The share beyond the control's."""
        return max(0.0, self.share - self.control)

    @cached_property
    def most_beyond(self) -> float:
        """Its upper limit: of a difference of two shares (Newcombe 1998, a hybrid of exact limits), as the control
        may have had luck too; beside chance, which has none, the share's own limit.
        """
        above = self.high - self.share
        if self.control <= self.chance:
            return max(0.0, self.high - self.chance)
        luck = self.control - max(self.chance, _low(self.control_hits, self.n))
        return max(0.0, self.share - self.control + sqrt(above**2 + luck**2))


def _low(hits: int, n: int) -> float:
    return 0.0 if hits == 0 else float(beta.ppf(1 - CONFIDENCE, hits, n - hits + 1))


class Performance(_Frozen):
    """One setting, measured. None: not measured.

    accuracies: of the final model on test records, one a training; test_records: how many each is of. chance: what
    guessing gets. losses: of the same, where there are no classes. leaks: one an attack. psnr_margin: the largest of
    any attack, in dB over its best control. noise_std, server_noise_std, clip_norm: as trained.
    """

    accuracies: tuple[float, ...] = ()
    test_records: int | None = None
    chance: float | None = None
    losses: tuple[float, ...] = ()
    leaks: tuple[SingledOut, ...] = ()
    psnr_margin: float | None = None
    demonstrated: Number | None = None
    contradicted: bool = False
    noise_std: Number | None = None
    server_noise_std: Number | None = None
    clip_norm: Number | None = None

    @property
    def accuracy(self) -> float | None:
        return mean(self.accuracies) if self.accuracies else None

    @property
    def loss(self) -> float | None:
        return mean(self.losses) if self.losses else None

    @cached_property
    def accuracy_limits(self) -> tuple[float, float] | None:
        """Of the mean accuracy of such trainings: by the test records of one; by Student's t over several, and no
        narrower than their test records allow.
        """
        p = self.accuracy
        if p is None:
            return None
        several, n = len(self.accuracies), (self.test_records or 1) * len(self.accuracies)
        half = 1.645 * sqrt(max(p * (1 - p), 1 / n) / n)
        if several > 1:
            half = max(half, float(t.ppf(CONFIDENCE, several - 1)) * stdev(self.accuracies) / sqrt(several))
        return max(0.0, p - half), min(1.0, p + half)

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

    @property
    def worth(self) -> float | None:
        """What is to be large: accuracy, or minus the loss where there is none."""
        if self.accuracy is not None:
            return self.accuracy
        return None if self.loss is None else -self.loss


def outcome_of(results: Sequence[Results]) -> Performance:
    """The outcome of trainings of one setting, which differ in their seeds alone.

    Args:
        results: of each.
    """
    setup = results[0].setup
    accuracies = [r.setup.test_accuracy for r in results if r.setup.test_accuracy is not None]
    losses = [r.rounds[-1]["test_loss"] for r in results if r.rounds and r.rounds[-1].get("test_loss") is not None]
    entries = [entry for r in results for entry in r.attacks]
    margins = [m for entry in entries if (m := entry.value("psnr_margin")) is not None]
    shown = [row.demonstrated for r in results for row in r.epsilon if row.asked and row.demonstrated is not None]
    return Performance(
        accuracies=tuple(accuracies) if len(accuracies) == len(results) else (),
        test_records=setup.test_records,
        chance=setup.chance_accuracy,
        losses=tuple(losses) if len(losses) == len(results) else (),
        leaks=tuple(_leaks(entries)),
        psnr_margin=max(margins, default=None),
        demonstrated=max(shown, default=None),
        contradicted=any(refutations(r.epsilon, "proven") or beyond_proof(r.attacks) for r in results),
        noise_std=setup.noise_std,
        server_noise_std=results[0].server_noise_std,
        clip_norm=setup.clip_norm,
    )


def _leaks(entries: Sequence[AttackResult]) -> list[SingledOut]:
    """One leak for each attack and manner, over all messages and trainings."""
    alike: dict[tuple[str, str | None], list[AttackResult]] = {}
    for entry in entries:
        alike.setdefault((entry.attack, entry.manner), []).append(entry)
    leaks = [leak for own in alike.values() for leak in (_rebuilt(own), _found(own)) if leak is not None]
    return sorted(leaks, key=lambda leak: (-leak.beyond, -leak.most_beyond, leak.attack, leak.what))


def _rebuilt(entries: Sequence[AttackResult]) -> SingledOut | None:
    known = [e for e in entries if e.n and e.value(picked(e).share) is not None]
    if not known:
        return None
    hits = [round((e.value(picked(e).share) or 0.0) * (e.n or 0)) for e in known]
    images = sum(e.n or 0 for e in known)
    ceilings = [e.value("pool_ceiling") for e in known]
    several = " all rounds together" if known[0].manner == "all-rounds" else ""
    return SingledOut(
        attack=known[0].attack,
        what=f"re-identified by {known[0].attack}{several}",
        hits=sum(hits),
        n=images,
        chance=sum((e.value(picked(e).chance) or 0.0) * (e.n or 0) for e in known) / images,
        control_hits=max(_control_hits(known).values(), default=0),
        ceiling=None if any(c is None for c in ceilings) else max(c for c in ceilings if c is not None),
    )


def _control_hits(entries: Sequence[AttackResult]) -> dict[str, int]:
    """By control, how many originals a picture that knows nothing picks, of all entries together."""
    hits: dict[str, int] = {}
    for entry in entries:
        for name, values in entry.controls.items():
            share = values.get(picked(entry).share)
            hits[name] = hits.get(name, 0) + round((share or 0.0) * (entry.n or 0))
    return hits


def _found(entries: Sequence[AttackResult]) -> SingledOut | None:
    points = [(e, p) for e in entries if (p := strict_point(e)) is not None and e.value("n_members")]
    if not points:
        return None
    members = [int(e.value("n_members") or 0) for e, _ in points]
    return SingledOut(
        attack=points[0][0].attack,
        what=f"found by {points[0][0].attack} at {STRICT_FPR:.0%} false alarms",
        hits=sum(round(p[0] * n) for (_, p), n in zip(points, members)),
        n=sum(members),
        chance=max(STRICT_FPR, sum(p[2] * n for (_, p), n in zip(points, members)) / sum(members)),
    )
