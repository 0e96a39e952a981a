"""`dpfl_audit.audit_dpsgd`: a canary record in somebody's own DP-SGD, which is watched step by step.

The accountant of DP-SGD promises its ε to whoever sees the noised gradient of every step, so that is who attacks here.
Two bounds come out of the same trainings:

- by counting, of whole trainings with and without the canary's record: whatever the code does. Thousands of trainings
  would be needed to show much.
- if every step is alike, its noise Gaussian and each record drawn by a coin of its own: from single steps in which the
  record was drawn or was not, of the same world. One step's μ and the rate of draws, both by their lower limits, are
  composed over the steps (`coin_ledger.composed`, which rounds down). Of a training that clips to C and adds noise of
  σC no step's μ exceeds 1/σ, whatever the model does, so that this bound refutes a true claim no more often than it
  states. Between the worlds it could: where other records follow the model, as at a saddle, a late step tells of every
  draw before it, and composing such steps counts each of these again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import chi2
from torch import Tensor

from ...defenses.progress import Progress
from ...defenses.randomness import generator
from ..canary.coin_ledger import composed
from ..canary.likelihood import Deviations, Expected, LikelihoodRatio, deviations
from ..canary.measured import Measured, measured_of
from ..canary.mechanism import MechanismAudit, audit_scores
from ..demonstrated import LowerBound
from ..demonstrated.clopper_pearson import perfect_limits, upper_limit
from ..demonstrated.gdp import mu_limit
from ..demonstrated.mean_shift import mean_shift
from ..demonstrated.separate import Separate
from ..owners_code import owners
from ..say.words import at_least
from .asked import LEAST_DRAWS, check_bounds_asked, check_function, real, whole
from .calls import Calls
from .levels import Levels
from .outcome import About, OwnAudit
from .planted import PlantedDataset, default_canaries
from .rounds import RoundShape
from .search import SearchedCanary
from .transcript import Trainings, own_randomness_kept

ALIKE = "every step is alike, its noise Gaussian and each record drawn by a coin of its own"
PAIRS = 40  # of trainings with the same seed, to learn where the canary points
SEARCHED = 6  # pairs for each candidate
CALIBRATION = 40  # further trainings a world, for spreads and thresholds
TRAININGS = 300  # tested, a world
ZERO = torch.zeros(1, dtype=torch.float64)
LEAST_STEPS = 30  # tested steps with the canary's record in them
NOT_COINS = 1e-4  # a p-value below which the record is not drawn by coins


@dataclass(frozen=True)
class DpSgdNumbers:
    """What is declared of a DP-SGD training: what its accountant was told.

    noise_multiplier: σ, the noise's standard deviation over the clip norm. max_grad_norm: C, of each record's gradient.
    sample_rate: q, the chance that a record is in a step. steps: how many. Raises ValueError out of their ranges.
    """

    noise_multiplier: float
    max_grad_norm: float
    sample_rate: float
    steps: int

    def __post_init__(self) -> None:
        real("noise_multiplier", self.noise_multiplier, "a finite number from 0 on", least=0)
        real("max_grad_norm", self.max_grad_norm, "a finite number above 0", above=0)
        real("sample_rate", self.sample_rate, "a number in (0, 1]", above=0, below=np.nextafter(1, 2))
        whole("steps", self.steps, 1)

    @property
    def parameters(self) -> dict[str, Any]:
        """For the page."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "clip_norm": self.max_grad_norm,
            "sample_rate": self.sample_rate,
            "steps": self.steps,
            "sensitivity": f"C = {self.max_grad_norm:g} (each record's gradient in a step; record, zero_out)",
        }


def audit_dpsgd(
    train: Callable[[Any], Any],
    dataset: Any,
    *,
    numbers: DpSgdNumbers | None = None,
    noise_multiplier: float = nan,
    max_grad_norm: float = nan,
    sample_rate: float = nan,
    steps: int = 0,
    delta: float,
    claim: float | None = None,
    canaries: Mapping[str, Any] | None = None,
    place: int = 0,
    trainings: int = TRAININGS,
    confidence: float = 0.95,
    seed: int = 0,
    name: str = "",
    progress: Progress | None = None,
) -> OwnAudit:
    """A lower bound on the ε of your own DP-SGD per record, `zero_out`, against whoever sees every step.

    `train` is called some hundreds of times, with a data set in which one record's place holds a canary, or is left out
    of every batch it is drawn into; its length, and with it the number of steps, is the same in either world. What the
    optimiser is given at each step is watched from outside. All of torch's, NumPy's and Python's own randomness is
    seeded before each call, so train must not seed anything itself, and must start from the same weights each time.

    Args:
        train: dataset → anything; your whole training, with a torch optimiser and a DataLoader in this process. Other
            code takes its batches by `dataset.__getitems__(indices)` and returns `dpfl_audit.Steps(released, drawn)`.
        dataset: what you train on, map-style.
        numbers: what your accountant was told; or, instead:
        noise_multiplier, max_grad_norm, sample_rate, steps: these one by one.
        delta: of the bounds.
        claim: the ε that your accountant states.
        canaries: records to try in the place, by name; the one that moves steps most, on trainings that count for
            nothing else, is planted. None: for pairs of input and label the record itself, mislabelled, blank and
            crafted (`planted.default_canaries`).
        place: whose place it is.
        trainings: tested, in either world. 300 of 10 steps at q = .2 showed .71 of ε at σ = 1, .47 at σ = 2.
        confidence: of both bounds together.
        seed: of all trainings.
        name: on the page.
        progress: called with the trainings done and about their number.

    Raises:
        ValueError: a number is out of its range, nothing of the training is to be seen, it seeds itself or starts from
            other weights, its number of steps follows the canary, no canary changes anything, or too few steps have
            one.

    Guarantees: if the training is (ε, δ)-DP per record against whoever sees its steps, counting exceeds ε with
    probability 1 − confidence at most. The other bound does so if its condition holds as well.
    """
    declared = DpSgdNumbers(noise_multiplier, max_grad_norm, sample_rate, steps) if numbers is None else numbers
    if not isinstance(declared, DpSgdNumbers):
        raise ValueError(f"numbers is a {type(declared).__name__}; expected DpSgdNumbers(noise_multiplier, …)")
    check_dpsgd_asked(
        train, dataset, place, canaries, trainings, delta=delta, claim=claim, confidence=confidence, seed=seed
    )
    rng = generator(seed, "canary record")
    with owners("dataset"):
        others = [dataset[i] for i in range(min(len(dataset), 200))]
        named = dict(canaries) if canaries is not None else default_canaries(dataset[place], others, rng)
    if not named:
        raise ValueError("canaries are empty; give at least one record to plant")
    with own_randomness_kept():
        watching = _Watching(train, dataset, place, named, seed, progress)
        watching.planned = 2 * (PAIRS + CALIBRATION + trainings + SEARCHED * len(named) * (len(named) > 1)) + 20
        canary, searched = watching.search()
        learned = watching.learn(canary)
        own, judged = learned.scored("calibration", CALIBRATION), learned.scored("tested", trainings)
        learned.calls.repeat()
    return _judged(own, judged, learned, declared, delta, confidence).about(
        name or getattr(train, "__name__", "train"), claim, canary, searched, trainings, seed
    )


def check_dpsgd_asked(
    train: object, dataset: Any, place: object, canaries: object, trainings: object, **bounds: object
) -> None:
    """What `audit_dpsgd` is asked.

    Args:
        train, dataset, place, canaries, trainings: of `audit_dpsgd`. bounds: what `check_bounds_asked` takes.

    Raises:
        ValueError: something is of another type, or out of its range.
    """
    check_function("train", train)
    check_bounds_asked(**bounds)
    whole("trainings", trainings, LEAST_DRAWS)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ValueError(f"dataset is a {type(dataset).__name__}; expected a map-style data set, with a length")
    if len(dataset) == 0:
        raise ValueError("dataset is empty; expected the records that you train on")
    whole("place", place, 0, len(dataset) - 1)
    if canaries is not None and not isinstance(canaries, Mapping):
        raise ValueError(f"canaries are a {type(canaries).__name__}; expected a dict of records by name")


@dataclass(frozen=True, eq=False)
class StepScores:
    """Trainings of one world each: steps (runs, steps) of log-likelihood ratios of one step, and where the record was
    drawn.
    """

    steps: tuple[NDArray[np.float64], NDArray[np.float64]]
    drawn: tuple[NDArray[np.bool_], NDArray[np.bool_]]

    @property
    def apart(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Single steps with the canary in them and without, both of trainings that have it: what earlier draws did to
        the weights, and by them to other records' gradients, is the same whether or not this step's coin draws it.
        Where fewer steps are without it than there are trainings, the first steps of both worlds, before which it did
        nothing.
        """
        without, present = self.steps
        drawn = self.drawn[1]
        if (~drawn).sum() < len(without):
            return present[drawn[:, 0], 0], without[:, 0]
        return present[drawn], present[~drawn]

    def whole(self, world: int, rate: float) -> NDArray[np.float64]:
        """Of whole trainings: the log-likelihood ratio, the draws being nobody's to see."""
        if rate == 1:
            return self.steps[world].sum(1)
        return np.logaddexp(np.log1p(-rate), np.log(rate) + self.steps[world]).sum(1)


@dataclass(eq=False)
class _Watching:
    """Calls of a user's training with one canary after the other."""

    train: Callable[[Any], Any]
    dataset: Any
    place: int
    canaries: Mapping[str, Any]
    seed: int
    progress: Progress | None
    planned: int = 0
    made: int = 0

    def calls(self, canary: str) -> tuple[Calls, Trainings]:
        def world(present: bool) -> PlantedDataset:
            return PlantedDataset(self.dataset, self.place, self.canaries[canary], present)

        watch = Trainings(self.train, world)

        def step(done: int, total: int, /, words: str = "") -> None:
            self.made += 1
            if self.progress is not None:
                self.progress(self.made, max(self.made, self.planned), "telling the two worlds apart, trainings")

        return Calls(watch, progress=step), watch

    def search(self) -> tuple[str, tuple[SearchedCanary, ...]]:
        if len(self.canaries) == 1:
            return next(iter(self.canaries)), ()
        found = []
        for name in self.canaries:
            calls, watch = self.calls(name)
            pairs = _pairs(calls, watch, SEARCHED, self.seed, "search", name)
            found.append(SearchedCanary(name, pairs.strength))
        return max(found, key=lambda one: one.shift).name, tuple(found)

    def learn(self, canary: str) -> _Learned:
        calls, watch = self.calls(canary)
        pairs = _pairs(calls, watch, PAIRS, self.seed, "pairs")
        if pairs.strength == 0:
            raise ValueError(
                f"the canary {canary!r} changes no step of {PAIRS} pairs of trainings, so there is nothing to"
                " audit; plant one that does"
            )
        calls.check_steps()
        levels = Levels.of([pairs.variance], pairs.shape.sizes)
        shape, order = RoundShape(levels.sizes, pairs.shape.rounds), pairs.shape.each_round(levels.order)
        expected = Expected(pairs.centre[order]), Expected((pairs.centre + pairs.direction)[order])
        return _Learned(calls, watch, shape, order, expected, self.seed)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """What pairs of trainings with the same seed tell.

    centre: (steps · d,) the mean without the canary; direction: what it adds to each step it is drawn into. variance:
    (d,) of a step's numbers, the mean over steps.
    """

    shape: RoundShape
    centre: Tensor
    direction: Tensor
    variance: Tensor

    @property
    def strength(self) -> float:
        """How far the canary moves a step that it is in, in standard deviations of each tensor's noise: the mean of the
        steps. A tensor without noise counts for what it shows.
        """
        moved = self.direction.reshape(self.shape.rounds, -1).square()
        sizes = list(self.shape.sizes)
        parts = zip(moved.split(sizes, 1), self.variance.split(sizes))
        total = torch.stack([part.sum(1) / float(variance.mean()) for part, variance in parts if part.any()] or [ZERO])
        return float(total.sum(0).sqrt().mean())


def _pairs(calls: Calls, watch: Trainings, count: int, seed: int, *purpose: object) -> _Pairs:
    """Raises ValueError where the training does not follow the seed it is given."""
    total = squares = changes = times = torch.zeros(())
    first: Tensor | None = None
    for i in range(count):
        both = calls.seed(seed, *purpose, i)
        absent, present = calls(0, both), calls(1, both)
        if first is not None and torch.equal(first, absent):
            raise ValueError(
                "train does the same with another seed, so it seeds its noise itself; leave seeding (torch.manual_seed,"
                " generators of its own) out of it, as a noise that is always the same hides nothing"
            )
        first = absent if first is None else first
        drawn = torch.from_numpy(watch.drawn[True, both]).double()
        change = (present - absent).reshape(len(drawn), -1) * drawn[:, None]
        total, squares = total + absent, squares + absent.square()
        changes, times = changes + change, times + drawn
    assert watch.first is not None
    rounds = len(watch.first.drawn)
    if rounds == 0 or float(times.sum()) == 0:
        raise ValueError(f"the canary's record was never drawn in {count} pairs of trainings, so nothing is to be seen")
    mean = changes.sum(0) / times.sum()
    # A step of its own direction, where it was drawn often enough; else that of all steps.
    own = torch.where(times[:, None] >= 3, changes / times.clamp_min(1)[:, None], mean)
    spread = (squares / count - (total / count).square()) * count / max(count - 1, 1)
    variance = spread.clamp_min(0).reshape(rounds, -1).mean(0)
    shape = RoundShape(watch.first.sizes, rounds)
    return _Pairs(shape, total / count, own.reshape(-1), variance)


@dataclass(eq=False)
class _Learned:
    """What the attacker knows before the trainings that count. order: of the numbers, those of one level together."""

    calls: Calls
    watch: Trainings
    shape: RoundShape
    order: Tensor
    expected: tuple[Expected, Expected]
    seed: int
    ratio: LikelihoodRatio | None = None

    def scored(self, purpose: str, count: int) -> StepScores:
        """Fresh trainings of both worlds, in random order; the first ones fit how large the noise of each tensor is."""
        apart: list[list[tuple[Deviations, Deviations]]] = [[], []]
        drawn: list[list[NDArray[np.bool_]]] = [[], []]
        for k in torch.randperm(2 * count, generator=generator(self.seed, purpose, "order")).tolist():
            world, i = divmod(k, count)
            seed = self.calls.seed(self.seed, purpose, world, i)
            vector = self.calls(world, seed)[None, self.order]
            from_0, from_1 = (deviations(vector, self.expected[w], self.shape.parts) for w in (0, 1))
            apart[world].append((from_0, from_1))
            drawn[world].append(self.watch.drawn[bool(world), seed])
        if self.ratio is None:
            self.ratio = self._fitted(np.concatenate([from_0 for from_0, _ in apart[0]]))
        steps = [
            np.stack([self._ratios(*(np.concatenate(side) for side in zip(*apart[world])))], 0)[0] for world in (0, 1)
        ]
        return StepScores((steps[0], steps[1]), (np.stack(drawn[0]), np.stack(drawn[1])))

    def _fitted(self, without: Deviations) -> LikelihoodRatio:
        """The noise's size in each tensor's levels, all steps alike."""
        each = [self.shape.of_round(without, columns) for columns in self.shape.columns]
        pooled = np.concatenate(each)
        return LikelihoodRatio.fitted(pooled, pooled, self.shape.sizes)

    def _ratios(self, from_0: Deviations, from_1: Deviations) -> NDArray[np.float64]:
        """(runs, steps)."""
        assert self.ratio is not None
        sides = [[self.shape.of_round(d, columns) for columns in self.shape.columns] for d in (from_0, from_1)]
        return np.stack([self.ratio(*pair) for pair in zip(*sides)], 1)


@dataclass(frozen=True, eq=False)
class _Judged:
    audit: MechanismAudit
    measured: Measured
    declared: DpSgdNumbers
    delta: float
    not_finite: int
    notes: tuple[str, ...]

    def about(
        self,
        name: str,
        claim: float | None,
        canary: str,
        searched: tuple[SearchedCanary, ...],
        trainings: int,
        seed: int,
    ) -> OwnAudit:
        about = About(
            name=name,
            delta=self.delta,
            unit="record",
            adjacency="zero_out",
            claim=claim,
            protocol="dp-sgd",
            told=(
                "whole trainings with the record and without it, and the single steps it was drawn into; the attacker"
                " sees the noised gradient of every step, as the accountant assumes, and knows the other records and"
                " the weights they start from, but not who is drawn"
            ),
            canary=canary,
            searched=searched,
            draws=trainings,
            calibration=CALIBRATION,
            seed=seed,
            parameters=self.declared.parameters,
            notes=self.notes,
        )
        return OwnAudit(about, self.audit, self.measured, self.not_finite)


def _judged(
    own: StepScores, judged: StepScores, learned: _Learned, declared: DpSgdNumbers, delta: float, confidence: float
) -> _Judged:
    """A fifth of the risk of error goes to counting, which shows little of so few trainings, three to one step's μ and
    one to the rate of draws.
    """
    fifth, rate = (1 - confidence) / 5, declared.sample_rate
    audit = audit_scores(
        judged.whole(1, rate),
        judged.whole(0, rate),
        Separate(own.whole(1, rate), own.whole(0, rate)),
        delta=delta,
        confidence=1 - fifth,
        shift=nan,
    )
    steps_in, steps_out = judged.apart
    if len(steps_in) < LEAST_STEPS:
        raise ValueError(
            f"of {len(judged.steps[1])} trainings only {len(steps_in)} steps had the canary's record in them, and at"
            f" least {LEAST_STEPS} are needed; take more trainings"
        )
    draws = np.concatenate(judged.drawn)
    low = 1 - float(upper_limit(draws.size - draws.sum(), draws.size, fifth))
    high = float(upper_limit(draws.sum(), draws.size, fifth))
    why_not, notes = _why_not_composed(draws, delta), _checks(draws, low, high, declared)
    measured = measured_of(audit, len(judged.steps[1]), "all-rounds", why_not)
    if not why_not:
        middle = (np.median(steps_in) + np.median(steps_out)) / 2
        mu = mean_shift(steps_in, steps_out, 3 * fifth, middle)
        most = float(mu_limit(*perfect_limits(len(steps_in), len(steps_out), 3 * fifth)))
        measured = _with_composed(measured, min(mu, most), most, low, draws.shape[1], 4 * fifth)
    return _Judged(audit, measured, declared, delta, learned.calls.not_finite, tuple(notes))


def _with_composed(measured: Measured, mu: float, most: float, rate: float, steps: int, risk: float) -> Measured:
    """One step's μ over all steps, at the least rate of draws; `most` is the largest μ so many steps can show."""
    delta = measured.counted.delta
    value, how = composed([(mu, rate)] * steps, delta)
    bound = LowerBound(
        epsilon=value,
        delta=delta,
        confidence=1 - risk,
        method="one step's μ, composed",
        direction="both",
        counts={"steps": steps},
        threshold=None,
        ceiling=max(value, composed([(most, rate)] * steps, delta)[0]),
        assumption=ALIKE,
    )
    more = {"epsilon_if_gaussian": value, "epsilon_if_gaussian_ceiling": bound.ceiling, "mu": mu}
    told = f"one step's μ of at least {at_least(mu)}, drawn with a chance of at least {at_least(rate)}"
    return replace(
        measured,
        if_gaussian=bound,
        metrics={**measured.metrics, **more},
        intervals={**measured.intervals, "epsilon_if_gaussian": (value, inf)},
        how=f"{told}, composed over {steps} steps by {how}",
    )


def _why_not_composed(draws: NDArray[np.bool_], delta: float) -> str:
    """Why steps may not be composed as if each drew the record by a coin of its own; "" where they may."""
    if delta == 0:
        return "no Gaussian ε is finite at δ = 0"
    rate = float(draws.mean())
    if rate in (0.0, 1.0):
        return ""
    counts, expected = draws.sum(1), draws.shape[1] * rate
    spread = float(((counts - expected) ** 2).sum() / (expected * (1 - rate)))
    p = 2 * min(chi2.cdf(spread, len(counts) - 1), chi2.sf(spread, len(counts) - 1))
    if p < NOT_COINS:
        return (
            "the record is not drawn by a coin of its own in each step (how often it is drawn in a training varies too"
            " little, or too much), as Poisson sampling would"
        )
    return ""


def _checks(draws: NDArray[np.bool_], low: float, high: float, declared: DpSgdNumbers) -> list[str]:
    """What was declared beside what was seen."""
    steps, seen = draws.shape[1], f"{int(draws.sum()):,} of {draws.size:,} steps"
    notes = []
    if steps != declared.steps:
        notes.append(f"Contradicted: {declared.steps} steps are declared, and each training takes {steps}.")
    fits = low <= declared.sample_rate <= high
    said = "Checked" if fits else "Contradicted"
    notes.append(
        f"{said}: a sample rate of {declared.sample_rate:.4g} is declared, and the record was drawn in {seen}"
        f" ({low:.3g} to {high:.3g})."
    )
    return notes


__all__ = ["ALIKE", "DpSgdNumbers", "StepScores", "audit_dpsgd"]
