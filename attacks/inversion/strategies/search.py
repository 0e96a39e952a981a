"""The search for images whose gradient is the one sent: candidates of many cases at once, in batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from ..match.batches import batches, numbers_per_image
from ..match.case import Case
from ..match.consensus import with_consensus
from ..match.evaluate import evaluator, placed, tv_weight
from ..match.features import SolvedFeatures, with_features
from ..match.optimise import Objective, Tick, adam, lbfgs, with_prior
from ..match.softened import Softly, annealed, softens, softly_matched
from ..match.solution import Solution, start_images
from ..match.span import InputSpan, with_span
from ..match.told_statistics import ToldMoments, told_moments, with_statistics
from ..read.surrogate import Surrogate
from ..read.target import Target
from ..settings import Settings
from .simulated import read_twice
from .strategy import Found, Strategy, StrategyWork, counted, solved_together
from .with_words import as_shares, with_words


@dataclass(frozen=True, eq=False)
class CaseBatch:
    """Cases of one network and the same settings, of equal count, at equal weights; all restarts of one together.

    network: in the precision of the weights. targets: T, as they are read. restarts: their numbers.
    labels: (T, n). starts: (T·restarts, n, *shape). features: of each case, None without.
    """

    cases: Sequence[Case]
    network: nn.Module
    targets: Sequence[Target]
    restarts: range
    labels: Tensor
    starts: Tensor
    features: Sequence[SolvedFeatures | None]

    @classmethod
    def of(cls, cases: Sequence[Case], found: Sequence[Found], restarts: range) -> CaseBatch:
        targets = [placed(case.target, case.settings) for case in cases]
        starts = torch.stack(
            [start_images(c.seed, c.target.key, r, c.target.count, c.shape) for c in cases for r in restarts]
        )
        network = cases[0].network.to(targets[0].weights.dtype)
        known = [each.features and each.features.at(network, at) for each, at in zip(found, targets)]
        labels = torch.stack([case.labels for case in cases]).to(cases[0].settings.device)
        return cls(cases, network, targets, restarts, labels, starts, known)

    @property
    def settings(self) -> Settings:
        return self.cases[0].settings

    @property
    def candidates(self) -> Tensor:
        """The starts where they are searched."""
        return self.starts.to(self.targets[0].weights)

    @property
    def words(self) -> tuple[tuple[int, int], ...]:
        return self.cases[0].words

    @cached_property
    def tv(self) -> Tensor:
        """(T,), of the total variation."""
        return self.targets[0].weights.new_tensor([tv_weight(t, self.settings) for t in self.targets])

    @cached_property
    def spans(self) -> list[InputSpan | None]:
        asked = self.settings.span
        return [InputSpan.of(self.network, self.cases[0].layout, t) if asked else None for t in self.targets]

    @cached_property
    def statistics(self) -> list[list[ToldMoments]]:
        return [told_moments(self.network, self.cases[0].layout, t, self.settings) for t in self.targets]

    def alone(self, k: int) -> CaseBatch:
        """One of the cases."""
        many, one = len(self.restarts), slice(k, k + 1)
        return replace(
            self,
            cases=self.cases[one],
            targets=self.targets[one],
            labels=self.labels[one],
            starts=self.starts[k * many : (k + 1) * many],
            features=self.features[one],
        )

    def matched(self, restarts: int) -> Objective:
        """How far so many restarts of each case are from what was sent."""
        layout, objective = self.cases[0].layout, self.settings.objective
        return evaluator(self.network, layout, self.targets, self.labels, restarts, objective, self.starts.shape[2:])

    def asked(self, objective: Objective, tv: Tensor, restarts: int) -> Objective:
        """`objective` of so many restarts of each case, and all else that is asked of images."""
        total = with_prior(objective, tv)
        total = with_span(total, [span for span in self.spans for _ in range(restarts)], self.settings.span)
        total = with_features(total, [of for of in self.features for _ in range(restarts)], self.settings.features)
        total = with_statistics(total, [of for of in self.statistics for _ in range(restarts)])
        return with_words(with_consensus(total, self.labels, restarts, self.settings.consensus), self.words)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Where a batch's candidates end: images (T·restarts, n, *shape), their losses (T·restarts,), and where on the way
    of local training each was read in the end, None where that was not learned.
    """

    images: Tensor
    losses: Tensor
    places: Tensor | None = None


class CaseSearch(Strategy):
    """One of the searches, of which each case gets one."""

    phase = "search"

    @abstractmethod
    def steps(self, case: Case) -> int:
        """Of all restarts of a case together."""

    def ticks(self, settings: Settings, candidates: int) -> int:
        """How often `descend` ticks of so many candidates: once an iteration, as all move at once."""
        return settings.iterations

    @abstractmethod
    def descend(self, batch: CaseBatch, tick: Tick) -> Candidates:
        """From a batch's starts on. tick: called after every iteration."""

    def cost(self, case: Case) -> int:
        return self.steps(case) * case.step_operations

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        made = list(found)
        todo = list(_batches(cases))
        total = sum(self.ticks(cases[m[0]].settings, len(m) * len(restarts)) for m, restarts in todo)
        tick = counted(work.progress, total)
        for members, restarts in todo:
            batch = CaseBatch.of([cases[i] for i in members], [found[i] for i in members], restarts)
            ended = self.descend(batch, tick)
            best = ended.losses.view(len(batch.cases), -1).argmin(1)
            for k, i in enumerate(members):
                chosen = k * len(batch.restarts) + int(best[k])
                solution = _solution(batch, ended, k, chosen)
                before = made[i].solution
                if before is None or solution.loss < before.loss:
                    made[i] = replace(made[i], solution=solution)
        return made

    def assumed(self, case: Case, solution: Solution) -> tuple[str, ...]:
        """Where one gradient was read on the way of training; of whichever search it was."""
        settings, place = case.settings, solution.place
        if self.applies(case) or not case.target.on_the_way or not (settings.along or place is not None):
            return ()
        at, learned, twice = f"{settings.along:g}", "", ""
        if place is not None:
            at = f"{place:.2g}"
            learned = f", which the attack learned together with the images, from {settings.along:g} on"
        if read_twice(case):
            twice = ", and before it; of both readings the one whose simulated training comes nearer to what was sent"
        return (f"the gradient read at {at} of the way that training moved the weights{learned}{twice}",)


class PixelDescent(CaseSearch):
    """Adam, or L-BFGS, on the network as it is."""

    name = "search"

    def applies(self, case: Case) -> str:
        if case.settings.learned:
            return "the search is by a learned prior"
        return "" if Softened().applies(case) else "the search is with softened kinks"

    def steps(self, case: Case) -> int:
        return case.settings.iterations * case.settings.restarts

    def ticks(self, settings: Settings, candidates: int) -> int:
        return settings.iterations * (candidates if settings.by_line_search else 1)

    def descend(self, batch: CaseBatch, tick: Tick) -> Candidates:
        settings = batch.settings
        if settings.by_line_search:
            return _line_search(batch, tick)
        moving, many, signed = _at_learned_places(batch), len(batch.restarts), settings.optimiser == "signed-adam"
        objective = batch.asked(moving or batch.matched(many), batch.tv.repeat_interleave(many), many)
        images, least = adam(objective, batch.candidates, settings.iterations, settings.lr, signed, tick)
        return Candidates(as_shares(images, batch.words), least, None if moving is None else moving.place)


class Softened(CaseSearch):
    """Adam on a network whose kinks are soft, and ever less so (`match.softened`)."""

    name = "softened search"

    def applies(self, case: Case) -> str:
        if not case.settings.softened:
            return "softened = 0"
        if case.settings.by_line_search or case.settings.learned:
            return "neither L-BFGS nor a learned prior goes with softened kinks"
        if not softens(case.network, case.shape):
            return "the network is layers one behind the other, or has no ReLU"
        return ""

    def steps(self, case: Case) -> int:
        return case.settings.softened * case.settings.iterations * case.settings.restarts

    def ticks(self, settings: Settings, candidates: int) -> int:
        return settings.softened * settings.iterations

    def descend(self, batch: CaseBatch, tick: Tick) -> Candidates:
        settings, layout, many = batch.settings, batch.cases[0].layout, len(batch.restarts)

        def softly(mode: Softly, weight: Tensor) -> Objective:
            soft = softly_matched(batch.network, layout, batch.targets, batch.labels, many, settings.objective, mode)
            return batch.asked(soft, weight, many)

        steps, tv = settings.softened * settings.iterations, batch.tv.repeat_interleave(many)
        images = annealed(softly, batch.candidates, tv, steps, settings.lr, settings.optimiser == "signed-adam", tick)
        hard = batch.asked(batch.matched(many), tv, many)
        losses = hard(images)[0].nan_to_num(float("inf"), float("inf"))
        return Candidates(as_shares(images, batch.words), losses)


def _batches(cases: Sequence[Case]) -> Iterator[tuple[list[int], range]]:
    """Which cases form a batch, by their places, and which restarts."""
    for members in solved_together(cases):
        first = cases[members[0]]
        size = numbers_per_image(first.network, first.shape)
        targets = [placed(cases[i].target, first.settings) for i in members]
        for places, restarts in batches(targets, first.settings.restarts, size):
            yield [members[k] for k in places], restarts


def _solution(batch: CaseBatch, ended: Candidates, k: int, chosen: int) -> Solution:
    """The one that was chosen of a case's candidates."""
    features = batch.features[k]
    learned = ended.places is not None and batch.cases[k].target.on_the_way
    return Solution(
        ended.images[chosen].float().cpu(),
        batch.starts[chosen],
        batch.cases[k].labels,
        ended.losses[chosen].item(),
        features_by="" if features is None else features.said,
        place=ended.places[chosen].item() if learned and ended.places is not None else None,
    )


def _at_learned_places(batch: CaseBatch) -> Surrogate | None:
    """The objective at places on the way that are learned; None where none is."""
    if not batch.settings.along_rate or not any(t.on_the_way and not t.others for t in batch.targets):
        return None
    layout, many = batch.cases[0].layout, len(batch.restarts)
    return Surrogate(batch.network, layout, batch.targets, batch.labels, many, batch.settings)


def _line_search(batch: CaseBatch, tick: Tick) -> Candidates:
    """L-BFGS, one candidate after the other."""
    images, losses = [], []
    for k in range(len(batch.cases)):
        alone = batch.alone(k)
        total = alone.asked(alone.matched(1), alone.tv, 1)
        best, lowest = lbfgs(total, alone.candidates, batch.settings.iterations, tick)
        images.append(as_shares(best, batch.words))
        losses.append(lowest)
    return Candidates(torch.cat(images), torch.cat(losses))
