"""`dpfl_audit.audit_mechanism`: a lower bound on the ε of somebody's own function, by telling two worlds apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...defenses.progress import Progress
from ...defenses.randomness import generator
from ..options.option import called_with, part
from ..options.own_code import MechanismOptions
from ..owners_code import guarded
from ..setup.description import versions
from ..two_worlds.draws import audit_draws
from ..two_worlds.estimators.separate import Separate
from ..two_worlds.levels import Levels
from ..two_worlds.likelihood import Deviations, Expected, deviations
from ..two_worlds.measured import measured_of
from ..two_worlds.rounds import RoundShape
from ..two_worlds.sequential import BoundRule
from ..two_worlds.vector_scores import Both, VectorScores
from .calls import PAIRED, REPEATED, Calls, as_vector
from .federation.plan import calibrating, needed_draws
from .outcome import About, OwnAudit
from .ranges import check_bounds_asked, check_draws_asked, check_function, check_vector_asked, check_words_asked
from .saved import SavedBatches
from .search import SEARCHED, SearchedCanary, measured_shift, named_candidates
from .source import files_of

DRAWS = 1000  # tested a world, where no more are needed
MOST_PLANNED = 20_000  # tested draws a world that nobody asked for
SPREADS = 20  # pairs of draws that tell which numbers have less noise, where nothing else is to be learned
ZERO = torch.zeros((), dtype=torch.float64)
MARGIN = 0.25  # by which the ceiling is to exceed the claim


@dataclass(frozen=True, eq=False)
class MechanismCall(MechanismOptions):
    """What `audit_mechanism` is called with."""

    update_fn: Callable[..., Any]
    _: KW_ONLY
    name: str = ""
    code: str = ""
    files: Sequence[tuple[str, str]] = ()
    work: Path | None = None
    progress: Progress | None = None


@called_with(MechanismCall, check=False)
def audit_mechanism(asked: MechanismCall) -> OwnAudit:
    """A lower bound on the ε of your own mechanism, by telling apart two neighbouring inputs of your choice.

    Which canary? The one that moves what is sent furthest, since the bound is about the worst record or client. Under
    per-example clipping that is a record whose gradient is longer than the clip in every step and points where no other
    record's does: mislabelled (one of your own with a wrong label: the model keeps resisting it), blank (zeros with any
    label: only biases feel it) or crafted (large values in places that are 0 elsewhere). For a whole client it is an
    update of any direction, longer than the clip: 10 times the clip in one coordinate. Under `replace_one` it is two
    opposite ones, as the worlds then lie twice as far apart. Not sure? Give several as `candidates`: the best is found
    on draws that count for nothing else, so that looking at many costs nothing but time.

    A canary that moves little shows little, and says nothing of others: a small bound is no proof.

    Args:
        update_fn: (world, seed) → what an observer gets, a vector (d,) (tensor, array or list of numbers, read as
            float64), with fresh randomness of `seed`, a number below 2³²; world is True with your canary, False
            without (with `candidates`: the candidate, or None). It should run the very code that is to be trusted, and
            give the same for the same world and seed: a state kept between calls would tell the worlds apart by when
            they were drawn. The worlds are drawn in random order, and some calls made twice. Steps of torch optimisers
            are counted; other code may return (vector, steps). Only how far each number lies from its mean in either
            world is looked at, and which are finite: a leak in the last bits of large noise (Mironov 2012), or in how
            the numbers of one draw depend on each other, is not seen. Give such bits, or such a statistic, as numbers
            of their own.
        delta: of the bounds, in [0, 1); 0 for pure DP.
        claim: the ε that is claimed, for `finding()` and the report.
        candidates: canaries to choose from, by name or in a list.
        noiseless: world → the same without noise, if you know it. Else the attacker learns it from `calibration` pairs
            of draws more. Both worlds of a pair get the same seed, so where noise follows from the seed alone the
            direction is known exactly; else from K pairs up to √(2d/K) noise standard deviations.
        draws: tested trials a world, at most; 1,000 can show ε = 5.7 at most by counting.
            None: 1,000, or twice as many as counting needs to exceed the claim, where 20,000 are enough and `gaussian`
            is False.
        calibration: trials a world to fit the score and make the first bets on; None: a quarter of `draws`, 50 to 100.
        sizes: how many numbers each tensor of the vector has, if the noise may differ between them; None: one tensor.
        rounds: the vector is so many messages of equal length, one after the other, each with noise of its own.
        rate: the chance that the canary is in a message at all, drawn anew for each in secret (Poisson sampling).
        confidence: of the bounds; where there are two, both hold together with it.
        seed: of all draws.
        gaussian: True only where you know that the mechanism is Gaussian noise of one size on a sum, with nothing
            sampled and nothing nonlinear after it (a clamp, a quantiser, Adam).
            Then `if_gaussian` is measured too. It holds on that condition alone: for Laplace noise it exceeds the true
            ε.
        stop: end the draws as soon as the claim is refuted or cannot be; False: take all, for the closest bound.
        unit, adjacency, observer: what the ε is about: for the report, and to compare like with like.
        same_steps: refuse worlds of which one always takes more steps than the other.
        name, code: what the function is called on the page, and the SHA-256 of its file.
        files: name and SHA-256 of all files that the draws hang on, by which `work` knows the same question again; ():
            those of update_fn and noiseless, and what is imported from the same folders.
        work: a folder that keeps finished batches of draws, with which a killed call of the same question goes on, to
            the same bytes; None keeps none.
        progress: called with the calls done and about their number.

    Raises:
        ValueError: a number is out of its range (`asked`), vectors are not one-dimensional or change their length,
            sizes do not add up, a call made twice gave two results, one world takes more steps, numbers are complex or
            whole ones beyond 2^53, or the canary changes nothing.

    Guarantees: if update_fn is (ε, δ)-DP between these two worlds, `counted.epsilon` exceeds ε with probability
    1 − confidence at most, whatever the noise and whenever the draws end: directions and spreads come from draws that
    are not tested, and what is bet on a draw was learned before it.

    >>> import numpy as np
    >>> def noisy_sum(world, seed):
    ...     return np.random.default_rng(seed).normal(size=3) + [3.0 * world, 0, 0]
    >>> audit = audit_mechanism(noisy_sum, delta=1e-5, draws=300, gaussian=True)
    >>> 1.5 < audit.counted.epsilon < audit.if_gaussian.epsilon < 18.5        # the truth: 18.45
    True
    >>> audit.finding(claimed=1.0).level, audit.finding(claimed=5.0).level    # counting can show 4.3 here, no more
    ('violated', 'violated on a condition')
    """
    _check(asked)
    confidence = asked.confidence
    if asked.gaussian and asked.delta > 0:  # two bounds, either of which may refute
        confidence = (1 + confidence) / 2
    tested = planned_draws(asked.claim, asked.delta, confidence, asked.gaussian) if asked.draws is None else asked.draws
    spare = calibrating(tested) if asked.calibration is None else asked.calibration
    named = {} if asked.candidates is None else named_candidates(asked.candidates)
    saved = SavedBatches.of(asked.work, _question(asked, tested, spare, confidence, [*named]))
    calls = Calls(guarded(asked.update_fn, "update_fn"), same_steps=asked.same_steps, progress=asked.progress)
    learning = spare if asked.noiseless is None else SPREADS
    calls.planned = 2 * (tested + spare + learning + PAIRED + REPEATED) + 2 * SEARCHED * len(named) * (len(named) > 1)
    canary, searched = "own", tuple[SearchedCanary, ...]()
    if named:
        canary, searched = _best(calls, named, asked.seed, saved)
        calls.worlds = (None, named[canary])
    saved.batch(calls, "differ", lambda: _checked(calls, spare, asked.seed))
    moments = saved.batch(calls, "centres", lambda: [one.numpy() for one in _learned(calls, learning, asked.seed)])
    *means, without, present = (torch.from_numpy(one) for one in moments)
    if asked.noiseless is None:
        centres = means
    else:
        centres = [as_vector(guarded(asked.noiseless, "noiseless")(w)) for w in calls.worlds]
    whole = RoundShape.of(centres, asked.sizes, asked.rounds)
    # A mixture's own spread is not its noise's.
    least = [v.reshape(asked.rounds, -1).amin(0) for v in ((without, present) if asked.rate == 1 else (without,))]
    levels = Levels.of(least, whole.sizes)
    shape, order = RoundShape(levels.sizes, asked.rounds), whole.each_round(levels.order)
    expected = _expected([centre[order] for centre in centres], asked.rate)

    def drawn(purpose: str, first: int, end: int) -> list[tuple[Deviations, Deviations]]:
        def flat() -> list[Deviations]:
            worlds = _drawn(calls, order, expected, shape.parts, purpose, range(first, end), asked.seed)
            return [one for world in worlds for one in world]

        name = f"{purpose.replace(' ', '-')}-{first}-{end}"
        a, b, c, d = saved.batch(calls, name, flat)
        return [(a, b), (c, d)]

    own = drawn("calibration draw", 0, spare)
    scores = VectorScores.fitted(own, shape, levels, asked.rate)

    def draw(first: int, end: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        without, present = drawn("tested draw", first, end)
        return scores(*present), scores(*without)

    targets = () if asked.claim is None or not asked.stop else (asked.claim,)
    rule = BoundRule(asked.delta, confidence, gaussian=asked.gaussian, targets=targets)
    past, shift = Separate(scores(*own[1]), scores(*own[0])), scores.shift(own, asked.rate)
    audit = audit_draws(draw, past, tested, rule, shift=shift, one_size=scores.one_size)
    calls.repeat()
    calls.check_steps()
    why_not = "nobody said that the noise is Gaussian (`gaussian`)" if asked.delta > 0 and not asked.gaussian else ""
    about = About(
        name=asked.name or getattr(asked.update_fn, "__name__", "a function"),
        delta=asked.delta,
        unit=asked.unit,
        adjacency=asked.adjacency,
        observer=asked.observer,
        claim=asked.claim,
        told=_told(spare if asked.noiseless is None else 0, asked.rate),
        canary=canary,
        searched=searched,
        draws=tested,
        calibration=spare,
        seed=asked.seed,
        code=asked.code,
    )
    manner = "all-rounds" if asked.rounds > 1 else "one-round"
    return OwnAudit(about, audit, measured_of(audit, len(audit.scores_in), manner, why_not), calls.not_finite)


def _check(asked: MechanismCall) -> None:
    """Raises ValueError for what is out of its range."""
    check_function("update_fn", asked.update_fn)
    if asked.noiseless is not None:
        check_function("noiseless", asked.noiseless)
    check_bounds_asked(delta=asked.delta, claim=asked.claim, confidence=asked.confidence, seed=asked.seed)
    check_draws_asked(asked.draws, asked.calibration)
    check_vector_asked(asked.sizes, asked.rounds, asked.rate)
    flags = part(asked, ("gaussian", "stop", "same_steps"))
    check_words_asked(asked.unit, asked.adjacency, asked.observer, **flags)
    if asked.gaussian and asked.rate < 1:
        raise ValueError("gaussian=True cannot hold where the canary is drawn by lot (rate < 1): that is a mixture")


def _question(
    asked: MechanismCall, tested: int, spare: int, confidence: float, candidates: Sequence[str]
) -> dict[str, Any]:
    """All that finished draws hang on."""
    behind = asked.files or (() if asked.work is None else files_of([asked.update_fn, asked.noiseless]))
    same = ("name", "code", "claim", "rounds", "rate", "seed", "delta", "gaussian", "stop", "same_steps")
    return {
        **part(asked, same),
        "files": [[*file] for file in behind],
        "candidates": candidates,
        "noiseless": asked.noiseless is not None,
        "tested": tested,
        "spare": spare,
        "sizes": None if asked.sizes is None else [*asked.sizes],
        "confidence": confidence,
        "versions": versions(),
    }


def planned_draws(claim: float | None, delta: float, confidence: float, gaussian: bool) -> int:
    """Tested draws a world, where nobody says how many.

    >>> planned_draws(8.0, 1e-5, 0.95, gaussian=False), planned_draws(None, 1e-5, 0.95, gaussian=False)
    (20000, 1000)
    """
    if claim is None or gaussian or not isfinite(claim):
        return DRAWS
    needed = needed_draws(claim + MARGIN, delta, confidence)
    if needed is None or needed > MOST_PLANNED:
        return DRAWS
    return max(DRAWS, min(2 * needed, MOST_PLANNED))


def _told(learned: int, rate: float) -> str:
    """The protocol in words."""
    known = "was told"
    if learned:
        known = f"learned from {learned:,} pairs of draws that count for nothing else"
    lot = ""
    if rate != 1:
        lot = f"; whether the canary was drawn, at rate {rate:g}, nobody tells"
    return (
        "the function drawn anew in every trial; the attacker knows everything but its randomness, and"
        f" {known} what either world gives on average{lot}"
    )


def _best(
    calls: Calls, named: Mapping[str, Any], seed: int, saved: SavedBatches
) -> tuple[str, tuple[SearchedCanary, ...]]:
    """The candidate that moves most; nothing is drawn where there is no choice."""
    if len(named) == 1:
        return next(iter(named)), ()
    found = []
    for i, (name, candidate) in enumerate(named.items()):
        calls.worlds = (None, candidate)
        shift = saved.batch(calls, f"candidate-{i}", partial(_shift_of, calls, seed, name))
        calls.kept.clear()
        found.append(SearchedCanary(name, float(shift[0][0])))
    return max(found, key=lambda one: one.shift).name, tuple(found)


def _shift_of(calls: Calls, seed: int, name: str) -> list[NDArray[np.float64]]:
    shift = measured_shift(calls, SEARCHED, seed, name)
    calls.forget()
    return [np.array([shift])]


def _checked(calls: Calls, count: int, seed: int) -> list[NDArray[np.float64]]:
    calls.differ(count, seed)
    return []


def _learned(calls: Calls, count: int, seed: int) -> list[Tensor]:
    """The means of both worlds and their variances, of `count` draws of each, of the same seeds and in random order:
    number by number of the draws in which it is finite, NaN where it never is.
    """
    moments = [_Moments(), _Moments()]
    seeds = [calls.seed(seed, "centre draw", i) for i in range(count)]
    for k in torch.randperm(2 * count, generator=generator(seed, "centre order")).tolist():
        world, i = divmod(k, count)
        moments[world] = moments[world].with_one(calls(world, seeds[i]))
    return [*(world.mean for world in moments), *(world.variance for world in moments)]


@dataclass(frozen=True, eq=False)
class _Moments:
    """Sums of vectors' finite numbers about a finite value of each, so that equal numbers vary by 0 exactly."""

    about: Tensor | None = None
    count: Tensor = ZERO
    total: Tensor = ZERO
    squares: Tensor = ZERO

    def with_one(self, vector: Tensor) -> _Moments:
        finite = torch.isfinite(vector)
        if self.about is None:
            before = torch.full_like(vector, torch.nan)
        else:
            before = self.about
        about = torch.where(before.isnan() & finite, vector, before)
        apart = torch.where(finite, vector - about, 0.0)
        return _Moments(about, self.count + finite.double(), self.total + apart, self.squares + apart.square())

    @property
    def mean(self) -> Tensor:
        assert self.about is not None
        return self.about + self.total / self.count

    @property
    def variance(self) -> Tensor:
        return (self.squares / self.count - (self.total / self.count).square()).clamp_min(0)


def _expected(centres: Sequence[Tensor], rate: float) -> tuple[Expected, Expected]:
    """At a rate below 1 the mean with the canary is a mixture's; the score wants it with the canary drawn."""
    without, present = centres
    if rate < 1:
        present = torch.where(torch.isfinite(present - without), without + (present - without) / rate, present)
    return Expected(without), Expected(present)


def _drawn(
    calls: Calls,
    order: Tensor,
    expected: tuple[Expected, Expected],
    parts: Sequence[int],
    purpose: str,
    numbers: range,
    seed: int,
) -> list[Both]:
    """The deviations of draws of world 0, and of world 1, from what either world expects.

    Args:
        calls, seed: of the draws. numbers: which. purpose: what for. order, parts: of a vector's numbers.
    """
    found: list[list[list[Deviations]]] = [[[], []], [[], []]]
    count, random = len(numbers), generator(seed, purpose, "order", numbers.start)
    for k in torch.randperm(2 * count, generator=random).tolist():
        world, i = k // count, numbers[k % count]
        vector = calls(world, calls.seed(seed, purpose, world, i))[None, order]
        for w in (0, 1):
            found[world][w].append(deviations(vector, expected[w], parts))
    return [(np.concatenate(from_0), np.concatenate(from_1)) for from_0, from_1 in found]
