"""Rows of a table, each sought by itself, where a second layer's spans tell whether it is one of the batch.

A row is a word of every column and some numbers, which may lie beyond [0, 1] until it is known. From rows drawn by the
columns' own frequencies one cell after the other is put to what brings the row nearer to the spans (`second_layer.py`),
at a temperature that falls, and numbers are solved for. Rows that are in the gradient are taken out of it, which leaves
a smaller batch; what is not found that way, as rows that are alike behind a layer, is solved for as a batch of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....defenses.chain import open_chain
from ....defenses.data.unit_scale import words_of
from ....defenses.layout import Layout
from ....defenses.progress import Progress, part_of
from ....defenses.randomness import generator
from ..exact.second_layer import SecondLayer
from ..exact.words import ABSENT, Words
from ..match.case import Auxiliary, Case
from ..match.evaluate import explained, loss_at
from ..match.solution import Solution, start_images
from ..read.target import Target
from .strategy import Found, Strategy, StrategyWork

STARTS, SWEEPS = 300, 15  # rows at once; times that each cell is put
ROUNDS, IDLE = 12, 3  # searches at most; in vain one after the other
FEWEST, MOST = 16, 2 * 10**11  # rows at once and operations of a search, at least and at most
HOT, COLD, COOLED = 0.03, 0.001, 0.8  # temperatures, in shares of what is outside; when it is 0, in shares of sweeps
DRAWS = 5  # numbers drawn anew, and as many near by
EVEN, BEYOND = 0.3, 0.25  # of numbers drawn, how many are spread evenly; beyond [0, 1]
WIDE, NARROW = 0.5, 0.005  # how near, in standard deviations, at first and in the end
INSIDE = 1e-3  # of a row's input and error outside of the spans, at most
SAME, APART = 0.1, 0.3  # how far a row's share is from its own, and from another's
RARE = 0.02  # least frequency that words are drawn by
LIKE = 1000  # rows that whiten
SEARCHED = 0.5  # of the time, about, before a batch of the others is solved for
FIXED = 8  # times that numbers are pulled in the end


def search_operations(parameters: int, features: int) -> int:
    """About how many operations the searches take, of a network of so many parameters and rows of so many features."""
    return ROUNDS // 3 * min(MOST, STARTS * SWEEPS * features * 6 * parameters)


@dataclass(frozen=True, eq=False)
class FoundRows:
    """Rows of a batch that are found: images (m, f) float64, labels (m,), size: each one's share of the gradient."""

    images: Tensor
    labels: Tensor
    size: float

    def rest(self, module: nn.Module, layout: Layout, target: Target, labels: Tensor) -> Target:
        """The batch without them, as a target of its own.

        Args:
            module: the network; layout: of its parameters. target: the batch. labels: (n,) of it.
        """
        many = target.count - len(self.images)
        weights = {name: value.double() for name, value in layout.split(target.weights.cpu()).items()}
        own = copy.deepcopy(module).cpu().double()
        own.load_state_dict(weights, strict=False)
        mean = F.cross_entropy(own(self.images[:, :, None, None]), self.labels)
        slopes = dict(zip(weights, torch.autograd.grad(mean, [own.get_parameter(name) for name in weights])))
        left = target.gradient.cpu().double() / self.size - len(self.images) * layout.join(slopes)
        counts = torch.bincount(labels) - torch.bincount(self.labels, minlength=int(labels.max()) + 1)
        return Target(
            f"{target.key} without {len(self.images)}",
            target.weights,
            (left / many).to(target.gradient),
            torch.repeat_interleave(torch.arange(len(counts)), counts),
            many,
            noise_std=target.noise_std / (self.size * many),
        )

    def beside(self, others: Tensor, kinds: Tensor, labels: Tensor) -> Tensor:
        """All images (n, f, 1, 1) in the order of `labels`, with others (n − m, f, 1, 1) of labels `kinds`."""
        every = torch.cat([self.images.float()[:, :, None, None], others])
        placed = torch.empty_like(every)
        placed[labels.sort(stable=True)[1]] = every[torch.cat([self.labels, kinds]).sort(stable=True)[1]]
        return placed


def rows_by_search(
    network: nn.Module, layout: Layout, target: Target, labels: Tensor, seed: int, progress: Progress | None = None
) -> FoundRows | None:
    """The rows of a table that are found; None where there are none.

    Args:
        network: in evaluation mode, of a table (`UnitScale.module`). layout: of its parameters. target: what was sent.
        labels: (n,) int64. seed: of draws. progress: called with sweeps done and in all, at most.
    """
    words, draw = words_of(network), generator(seed, "rows", target.key)
    if not words:
        return None
    home = copy.deepcopy(network).float().cpu()
    search = RowSearch.of(home, layout, target, words)
    layer = None if search is None else SecondLayer.of(home, target, labels, search.drawn(LIKE, draw))
    size = 1 / target.count if target.scale_known and target.clip_norm is None else None
    return None if search is None or layer is None else search.found(layer, labels, size, draw, progress)


class RowsOneByOne(Strategy):
    """Rows of a table, each sought by itself; those that are left are solved for as a batch of their own."""

    name = "row search"
    phase = "read"

    def applies(self, case: Case) -> str:
        if not case.settings.exact:
            return "exact = false"
        if case.settings.learned:
            return "the search is by a learned prior"
        if not case.words:
            return "no table with columns of words was attacked"
        return "" if open_chain(case.network) else "the network is no chain of linear layers"

    def cost(self, case: Case) -> int:
        return search_operations(case.layout.dim, prod(case.shape))

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        made = []
        for k, (case, each) in enumerate(zip(cases, found)):
            rows = with_rows(case, replace(work, progress=part_of(work.progress, k / len(cases), (k + 1) / len(cases))))
            if rows is not None and rows.determined:
                each = replace(each, solution=rows, sure=True)
            made.append(replace(each, unsure=None if each.sure else rows))
        return made


def with_rows(case: Case, work: StrategyWork) -> Solution | None:
    """A solution of rows that are found, and of what solving makes of a batch of the others; None where fewer than half
    are found.
    """
    target, labels = case.target, case.labels
    progress = part_of(work.progress, 0.0, SEARCHED)
    found = rows_by_search(case.network, case.layout, target, labels, case.seed, progress)
    if found is None or 2 * len(found.images) < target.count:  # so few may be there by chance
        return None
    others, kinds = torch.zeros(0, *case.shape), labels[:0]
    if len(found.images) < target.count:
        left = found.rest(case.network, case.layout, target, labels)
        alone = replace(case.asked(labels="known"), target=left, labels_by="", auxiliary=Auxiliary())
        (rest,) = work.solve([alone], part_of(work.progress, SEARCHED, 1.0))
        others, kinds = rest.best.images, rest.best.labels
    images = found.beside(others, kinds, labels)
    start = start_images(case.seed, target.key, 0, target.count, case.shape)
    loss, sure = loss_at(case, images), explained(case, images)
    return Solution(images.clamp(0, 1), start, labels, loss, determined=sure)


@dataclass(frozen=True, eq=False)
class RowSearch:
    """What rows may be.

    mean, std: (f,) of features in [0, 1]. cells: of each column of words the features that some row of the batch has;
    then of each number its feature alone. numbers: (k,), features that are numbers.
    """

    mean: Tensor
    std: Tensor
    cells: tuple[Tensor, ...]
    numbers: Tensor

    @classmethod
    def of(cls, home: nn.Module, layout: Layout, target: Target, words: Words) -> RowSearch | None:
        """None where the network is no chain of layers with a bias in the first, or a column has no word."""
        chain = open_chain(home)
        if chain is None or chain.layers[0].bias is None:
            return None
        named = layout.split(target.gradient.cpu().double())
        weight, bias = named[chain.layers[0].weight], named[chain.layers[0].bias]
        mean, std = chain.mean.flatten(), chain.std.flatten()
        there = (weight * std + bias[:, None] * mean).norm(dim=0) > ABSENT * bias.norm()  # 0 of a feature that is 0
        cells = [first + there[first : first + width].nonzero()[:, 0] for first, width in words]
        if not all(len(own) for own in cells):
            return None
        of_words = {first + k for first, width in words for k in range(width)}
        numbers = torch.tensor([k for k in range(len(mean)) if k not in of_words], dtype=torch.long)
        return cls(mean, std, (*cells, *numbers[:, None]), numbers)

    def drawn(self, many: int, draw: torch.Generator) -> Tensor:
        """Rows (many, f): words by how often a column has them, numbers normal."""
        rows = torch.zeros(many, len(self.mean))
        for own in self.cells[: len(self.cells) - len(self.numbers)]:
            place = torch.multinomial(self.mean[own].clamp_min(RARE), many, True, generator=draw)
            rows[torch.arange(many), own[place]] = 1
        for k in self.numbers.tolist():
            rows[:, k] = self._numbers(k, (many,), draw)
        return rows

    def found(
        self,
        layer: SecondLayer,
        labels: Tensor,
        size: float | None,
        draw: torch.Generator,
        progress: Progress | None = None,
    ) -> FoundRows | None:
        """Rows of a batch, as many as are found; None where there are none.

        Args:
            layer: whose spans tell. labels: (n,) of the batch. size: a row's share of the gradient, None where it is
                not known. draw: of all draws. progress: called with sweeps done and in all, at most.
        """
        missing = {int(kind): int((labels == kind).sum()) for kind in labels.unique()}
        images, kinds, idle = [], [], 0
        for once in range(ROUNDS):

            def swept(sweeps: int, before: int = once * SWEEPS) -> None:
                if progress is not None:
                    progress(before + sweeps, ROUNDS * SWEEPS)

            rows = self._sought(layer, draw, swept)
            size = size or _size(layer, rows, labels)
            new = [] if size is None else _accepted(layer, rows, missing, size)
            idle = 0 if new else idle + 1
            if new:
                images.append(torch.stack([row for row, _ in new]))
                kinds.append(torch.tensor([kind for _, kind in new]))
            if idle == IDLE or len(new) == layer.count:
                break
            if new and size is not None:
                layer = layer.without(images[-1], kinds[-1], size)
        return FoundRows(torch.cat(images), torch.cat(kinds), size) if images and size is not None else None

    def _sought(self, layer: SecondLayer, draw: torch.Generator, swept: Callable[[int], None]) -> Tensor:
        """Rows (m, f) in float64 that are inside of the spans, the nearest first. swept: called after each sweep."""
        once = 6 * sum(value.numel() for value in layer.weights.values())
        tries = SWEEPS * (sum(len(own) for own in self.cells) + 2 * DRAWS * len(self.numbers))
        rows = self.drawn(max(FEWEST, min(STARTS, MOST // (once * tries))), draw)
        best, least = rows, layer.outside(rows)
        for sweep in range(SWEEPS):
            done = sweep / (COOLED * SWEEPS)
            heat = HOT * (COLD / HOT) ** done if done < 1 else 0.0
            near = WIDE * (NARROW / WIDE) ** (sweep / SWEEPS)
            for place in torch.randperm(len(self.cells), generator=draw).tolist():
                rows, far = self._put(layer, rows, place, heat, near, draw)
            rows, far = self._pulled(layer, rows, far)
            better = far < least
            best, least = torch.where(better[:, None], rows, best), torch.where(better, far, least)
            swept(sweep + 1)
        best = best.double()
        least = layer.outside(best)
        for _ in range(FIXED):
            best, least = self._pulled(layer, best, least)
        order = least.argsort()
        return best[order[least[order] < INSIDE]]

    def _put(
        self, layer: SecondLayer, rows: Tensor, place: int, heat: float, near: float, draw: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Rows (m, f) with one cell put anew, and how far they are then."""
        own, many = self.cells[place], len(rows)
        if place < len(self.cells) - len(self.numbers):
            tried = rows[:, None].repeat(1, len(own), 1)
            tried[:, :, own] = torch.eye(len(own))
        else:
            (k,) = own.tolist()
            tried = rows[:, None].repeat(1, 2 * DRAWS + 1, 1)
            tried[:, :DRAWS, k] = self._numbers(k, (many, DRAWS), draw)
            moved = near * self.std[k] * torch.randn(many, DRAWS, generator=draw)
            tried[:, DRAWS:-1, k] += moved
        far = layer.outside(tried.flatten(0, 1)).view(many, -1)
        drawn = far + heat * torch.empty_like(far).exponential_(generator=draw).log() if heat else far
        chosen, each = drawn.argmin(1), torch.arange(many)  # by Gumbel's trick ∝ exp(−far / heat)
        return tried[each, chosen], far[each, chosen]

    def _pulled(self, layer: SecondLayer, rows: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
        """Rows with their numbers pulled where that brings them nearer, and how far (m,) they are then."""
        if not len(self.numbers):
            return rows, far
        tried = layer.pulled(rows, self.numbers)
        now = layer.outside(tried)
        return torch.where((now < far)[:, None], tried, rows), torch.minimum(now, far)

    def _numbers(self, feature: int, size: tuple[int, ...], draw: torch.Generator) -> Tensor:
        """Most are normal, and some spread evenly over all that the column's own rows had and a little more."""
        normal = self.mean[feature] + self.std[feature] * torch.randn(*size, generator=draw)
        even = torch.rand(*size, generator=draw) * (1 + 2 * BEYOND) - BEYOND
        return torch.where(torch.rand(*size, generator=draw) < EVEN, even, normal)


def _size(layer: SecondLayer, rows: Tensor, labels: Tensor) -> float | None:
    """A row's share of the gradient, as most of the rows (m, f) have it: a clip leaves it open."""
    if not len(rows):
        return None
    each = torch.stack([layer.shares(rows, kind.expand(len(rows))).diagonal() for kind in labels.unique()])
    return 1 / each[each > 0].median().item() if (each > 0).any() else None


def _accepted(layer: SecondLayer, rows: Tensor, missing: dict[int, int], size: float) -> list[tuple[Tensor, int]]:
    """Those of rows (m, f) whose share is an image's own, each once, with their labels. missing: how many there may be
    of each label, which is counted down.
    """
    if not len(rows):
        return []
    shares = {kind: size * layer.shares(rows, torch.full((len(rows),), kind)) for kind in missing}
    taken: list[tuple[int, int]] = []
    for i in range(len(rows)):
        for kind, own in shares.items():
            if missing[kind] == 0 or abs(own[i, i] - 1) > SAME:
                continue
            if all(own[i, j].abs() < APART and shares[of][j, i].abs() < APART for j, of in taken):
                taken.append((i, kind))
                missing[kind] -= 1
                break
    return [(rows[i], kind) for i, kind in taken]
