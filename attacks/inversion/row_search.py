"""Rows of a table, each sought by itself, where a second layer's spans tell whether it is one of the batch.

A row is a word of every column and some numbers. From rows drawn by the columns' own frequencies one cell after the
other is put to what brings the row nearer to the spans (`second_layer.py`), at a temperature that falls, and numbers
are solved for. Rows that are in the gradient are taken out of it, which leaves a smaller batch.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...defenses.chain import open_chain
from ...defenses.data.unit_scale import words_of
from ...defenses.layout import Layout
from ...defenses.randomness import generator
from .evaluate import loss_at
from .exact import explained
from .second_layer import SecondLayer
from .solution import Solution, start_images
from .target import Target
from .words import ABSENT, Words

if TYPE_CHECKING:
    from .attack import Inversion

STARTS, SWEEPS = 300, 15  # rows at once; times that each cell is put
ROUNDS, IDLE = 12, 3  # searches at most; in vain one after the other
FEWEST, MOST = 16, 2 * 10**11  # rows at once and operations of a search, at least and at most
HOT, COLD, COOLED = 0.03, 0.001, 0.8  # temperatures, in shares of what is outside; when it is 0, in shares of sweeps
DRAWS = 5  # numbers drawn anew, and as many near by
WIDE, NARROW = 0.5, 0.005  # how near, in standard deviations, at first and in the end
INSIDE = 1e-3  # of a row's input and error outside of the spans, at most
SAME, APART = 0.1, 0.3  # how far a row's share is from its own, and from another's
RARE = 0.02  # least frequency that words are drawn by
LIKE = 1000  # rows that whiten
FIXED = 8  # pulls of numbers in the end


def operations(parameters: int, features: int) -> int:
    """About how many operations the searches take, of a network of so many parameters and rows of so many features."""
    return ROUNDS // 3 * min(MOST, STARTS * SWEEPS * features * 6 * parameters)


def rows_by_search(
    network: nn.Module,
    layout: Layout,
    target: Target,
    labels: Tensor,
    shape: tuple[int, ...],
    settings: Inversion,
    seed: int,
) -> Solution | None:
    """All rows of a table; None unless all are found, and the message itself says so.

    Args:
        network: in evaluation mode, of a table (`UnitScale.module`). layout: of its parameters. target: what was sent.
        labels: (n,) int64. shape: of a row's image. settings: the attack's. seed: of draws.
    """
    words, draw = words_of(network), generator(seed, "rows", target.key)
    if not words:
        return None
    home = copy.deepcopy(network).float().cpu()
    search = RowSearch.of(home, layout, target, words)
    layer = None if search is None else SecondLayer.of(home, target, labels, search.drawn(LIKE, draw))
    found = None if search is None or layer is None else search.all_rows(layer, labels, draw)
    if found is None:
        return None
    images = found[:, :, None, None].float()
    if not explained(network, layout, target, labels, images, settings):
        return None
    loss = loss_at(network, layout, target, labels, images, settings)
    start = start_images(seed, target.key, 0, target.count, shape)
    return Solution(images, start, labels, loss, determined=True)


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

    def all_rows(self, layer: SecondLayer, labels: Tensor, draw: torch.Generator) -> Tensor | None:
        """All rows (n, f) of a batch, in the order of `labels`; None unless all are found."""
        found, kinds, idle = [], [], 0
        missing = {int(kind): int((labels == kind).sum()) for kind in labels.unique()}
        size = None
        for _ in range(ROUNDS):
            rows = self._sought(layer, draw)
            size = size or _size(layer, rows, labels)
            if size is None:
                break
            new = _accepted(layer, rows, missing, size)
            idle = 0 if new else idle + 1
            if idle == IDLE:
                break
            if new:
                images, of = torch.stack([row for row, _ in new]), torch.tensor([kind for _, kind in new])
                found.append(images)
                kinds.append(of)
                if len(new) == layer.count:
                    every, order = torch.cat(found), torch.cat(kinds).sort(stable=True)[1]
                    placed = torch.empty_like(every)
                    placed[labels.sort(stable=True)[1]] = every[order]
                    return placed
                layer = layer.without(images, of, size)
        return None

    def _sought(self, layer: SecondLayer, draw: torch.Generator) -> Tensor:
        """Rows (m, f) in float64 that are inside of the spans, the nearest first."""
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
            tried[:, DRAWS:-1, k] = (tried[:, DRAWS:-1, k] + moved).clamp(0, 1)
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
        return (self.mean[feature] + self.std[feature] * torch.randn(*size, generator=draw)).clamp(0, 1)


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
