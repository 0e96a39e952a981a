"""Errors of a table's rows by their words: of each column of words exactly one feature of a row is 1.

A first layer's update tells the span of all rows [z | 1] (`row_space.py`), and in a span of r dimensions of hundreds
few points have words in every column. So every choice of words is tried, with the numbers solved away. What fits are
the rows, and sums and differences of rows that happen to have words, too. Of each the weights tell the error that it
would have behind the first layer; those whose error lies nearest to the span of the batch's are followed to a column
that is 0 where they leave neurons off (`columns.py`), and every one that is found leaves fewer dimensions for the next.

The published attack, TabLeak (Vero et al. 2023, arXiv:2210.01785), descends with a softmax for each column instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod

import torch
from torch import Tensor, nn

from ....defenses.chain import open_chain
from ....defenses.layout import Layout
from ....defenses.randomness import generator
from ..read.target import Target
from .columns import Columns, columns_of, fitted, least, polished, reduced, sparsest
from .first_layer import FirstLayer
from .row_space import RowSpace

Words = Sequence[tuple[int, int]]  # of each column of words the first feature and how many there are

NEAR = 0.02  # a row's distance from the span, in standard deviations of a feature
CHANCE = 1e-3  # choices that fit by chance, at most, for any to be believed
MOST, AT_ONCE = 2 * 10**8, 2**24  # choices tried in all, and together
FITTING = 2 * 10**5  # choices that fit, at most
DRAWS, ROWS = 64, 2 * 10**5  # of numbers that words leave open, for each choice; rows in all
ABSENT = 1e-4  # of a feature's deviation, by which the rows of a batch differ in a word that none has
WORK = 10**11  # operations of it all, about, where much fits
LIKELY = 512  # rows that are followed to a column
TOLD = 1e-4  # weight of the error that the weights tell beside the neurons that are off
RARE = 0.02  # least frequency that words are drawn by
EVEN, BEYOND = 0.3, 0.25  # of numbers drawn, how many are spread evenly; beyond [0, 1]


def columns_by_words(layer: FirstLayer, columns: Columns, words: Words, labels: Tensor, seed: int) -> Columns:
    """More of the rows' own columns than those known; as many as the span has dimensions, where all are found.

    Args:
        layer: what a message tells of the first layer. columns: that are known already, or none.
        words: the table's columns of words; every other feature is a number. labels: (n,) of each row.
        seed: of draws of numbers.
    """
    if not words or len(columns) == layer.rank:
        return columns
    for begun in (columns, columns.at(torch.zeros(0, dtype=torch.long))):  # a known one may be of two rows
        found = _grown(layer, begun, words, labels, seed)
        if len(found) == layer.rank:
            return found
    return columns


def _grown(layer: FirstLayer, columns: Columns, words: Words, labels: Tensor, seed: int) -> Columns:
    """`columns` and all that are found from there."""
    span, pool, before = layer.span, columns, -1
    while before < len(pool) < layer.rank:
        before, rules = len(pool), span.rules(pool.mix)
        free = torch.linalg.qr(rules.T, mode="complete")[0][:, len(pool) :]  # of the rows that are not found yet
        rows = _rows(layer, torch.linalg.qr(span.right @ free)[0], words, seed)
        if rows is None:
            break
        inputs, errors = _likely(layer, rows, labels)
        outputs = layer.outputs(inputs.float()).double()
        found = _own_columns(span, outputs, errors)
        robust = polished(columns_of(fitted(span, outputs), span), span)  # some may be on at a step in between
        grown = reduced(sparsest(pool + polished(found, span) + robust), span)
        if len(grown) == len(pool) and len(found) == layer.rank - len(pool):
            return pool + found  # as many as are missing, though too few neurons are off to tell
        pool = grown
    return pool


def _rows(layer: FirstLayer, right: Tensor, words: Words, seed: int) -> Tensor | None:
    """What the layer sees, (m, i), of all choices of words with numbers that the span `right` (i + 1, q) has; None
    where these are too many, or none.
    """
    mean, std = (value.double().flatten() for value in (layer.chain.mean, layer.chain.std))
    outside = torch.linalg.qr(right, mode="complete")[0][:, right.shape[1] :]  # (i + 1, k): 0 of every row
    weight, rest = outside[:-1].T / std, outside[:-1].T @ (mean / std) - outside[-1]  # weight @ row = rest
    number = torch.ones(len(mean), dtype=torch.bool)
    for first, width in words:
        number[first : first + width] = False
    chosen = _choices(weight, rest, number, [_there(right, mean, std, first, width) for first, width in words])
    if chosen is None or not 1 <= len(chosen) <= FITTING:
        return None
    rows = torch.zeros(len(chosen), len(mean), dtype=torch.float64).scatter_(1, chosen, 1.0)
    if number.any():
        left, values, turned = torch.linalg.svd(weight[:, number], full_matrices=False)
        sure = values > NEAR / std[number].max()
        rows[:, number] = (rest - rows @ weight.T) @ (left[:, sure] / values[sure]) @ turned[sure]
        rows = _drawn(rows, number, turned[~sure], mean, std, seed)
    return (rows - mean) / std


def _there(right: Tensor, mean: Tensor, std: Tensor, first: int, width: int) -> list[int]:
    """Which of a column's words some row of the batch has: of any other the feature is the same number in all rows."""
    own = torch.arange(first, first + width)
    moved = right[own] + (mean / std)[own, None] * right[-1]
    return own[moved.norm(dim=1) > ABSENT * right[-1].norm() / std[own].clamp_max(1)].tolist()


def _choices(weight: Tensor, rest: Tensor, number: Tensor, choices: Sequence[Sequence[int]]) -> Tensor | None:
    """(m, columns) the features of every choice of words that some numbers complete to a point of the span; None where
    there are too many, or where they would fit by chance.
    """
    if not all(choices) or prod(len(own) for own in choices) > MOST:
        return None
    numbers = weight[:, number]
    free = torch.linalg.qr(numbers, mode="complete")[0][:, numbers.shape[1] :].T  # what no number reaches
    told, wanted = free @ weight, free @ rest
    used = [feature for own in choices for feature in own]
    basis, values, _ = torch.linalg.svd(torch.cat([told[:, used], wanted[:, None]], 1), full_matrices=False)
    sure = values > NEAR
    told, wanted = basis[:, sure].T @ told, basis[:, sure].T @ wanted
    by_chance = sum(log(len(own)) for own in choices) + float((NEAR / values[sure]).log().sum())
    if not sure.any() or by_chance > log(CHANCE):
        return None
    return _fitting([told[:, own].T for own in choices], choices, wanted)


def _fitting(parts: Sequence[Tensor], choices: Sequence[Sequence[int]], wanted: Tensor) -> Tensor:
    """(m, columns) features of the choices, one of each column, whose parts (own, k) sum to `wanted` (k,)."""
    half, size = 1, prod(len(own) for own in choices)
    while half < len(parts) and prod(len(own) for own in choices[:half]) ** 2 < size:
        half += 1
    left, of_left = _sums(parts[:half], choices[:half], -wanted)
    right, of_right = _sums(parts[half:], choices[half:], torch.zeros_like(wanted))
    found, many = [], max(1, AT_ONCE // len(right))
    for start in range(0, len(left), many):
        some = left[start : start + many]
        distance = torch.cdist(some, -right, compute_mode="use_mm_for_euclid_dist")
        near = (distance < 10 * NEAR).nonzero()  # a product of matrices loses digits
        near = near[(some[near[:, 0]] + right[near[:, 1]]).norm(dim=1) < NEAR]
        found.append(torch.cat([of_left[start + near[:, 0]], of_right[near[:, 1]]], 1))
    return torch.cat(found)


def _sums(parts: Sequence[Tensor], choices: Sequence[Sequence[int]], sums: Tensor) -> tuple[Tensor, Tensor]:
    """The sums (m, k) of `sums` (k,) and every choice of one row of each part, and the features (m, columns) of it."""
    sums, chosen = sums[None], torch.zeros(1, 0, dtype=torch.long)
    for part, own in zip(parts, choices):
        many, more = len(sums), torch.tensor(own)
        sums = (sums[:, None] + part[None]).flatten(0, 1)
        chosen = torch.cat([chosen.repeat_interleave(len(own), 0), more.repeat(many)[:, None]], 1)
    return sums, chosen


def _drawn(rows: Tensor, numbers: Tensor, open_: Tensor, mean: Tensor, std: Tensor, seed: int) -> Tensor:
    """Rows (m, features) with what words leave open of their numbers, along `open_` (k, numbers), drawn several times:
    two rows of the same words have every number between theirs in the span.
    """
    if not len(open_):
        return rows
    draws = max(1, min(DRAWS, ROWS // len(rows)))
    drawn = torch.randn(draws, int(numbers.sum()), generator=generator(seed, "numbers"), dtype=rows.dtype)
    drawn = (mean[numbers] + std[numbers] * drawn).clamp(0, 1)
    rows = rows.repeat(draws, 1)
    at, rest = rows[:, numbers], drawn.repeat_interleave(len(rows) // draws, 0)
    rows[:, numbers] = at + (rest - at) @ open_.T @ open_
    return rows


def _likely(layer: FirstLayer, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Of inputs (m, i) the `LIKELY` whose error, by the weights before training, is nearest to the span of the batch's;
    and these errors, of length 1, in coordinates of that span (k, r).
    """
    kinds, found = labels.unique(), []
    whole, first = layer.span.left.float(), len(layer.gradient)
    if len(layer.weights[layer.chain.layers[-1].weight]) == 2:
        kinds = kinds[:1]  # the other class's error is the opposite
    for own in inputs.float().split(2**16):
        errors = torch.stack([layer.chain.first_errors(layer.weights, own, kind.expand(len(own))) for kind in kinds])
        inside = errors @ whole if len(whole) == first else of_all_messages(errors, whole[:first])
        inside = inside / errors.norm(dim=2, keepdim=True).clamp_min(1e-30)
        near, kind = inside.norm(dim=2).max(0)
        best = near.argsort(descending=True)[:LIKELY]
        found.append((near[best], own[best], inside[kind[best], best]))
    near, inputs, inside = (torch.cat(part) for part in zip(*found))
    best = near.argsort(descending=True)[:LIKELY]
    return inputs[best], inside[best].double()


def of_all_messages(errors: Tensor, left: Tensor) -> Tensor:
    """Errors (c, m, o) in the first of several messages, in coordinates (c, m, r) of the span of all, and as long as
    what of them lies in that span. left: (o, r), the first message's part of it.
    """
    found = errors @ torch.linalg.pinv(left).T
    return torch.nn.functional.normalize(found, dim=2) * (found @ left.T).norm(dim=2, keepdim=True)


def _own_columns(span: RowSpace, outputs: Tensor, errors: Tensor) -> Columns:
    """The columns (m) that are 0 where the outputs (m, o) are off; of several, as where fewer are off than the span has
    dimensions, those nearest to the errors (m, r) that the weights tell.
    """
    off = (outputs < 0).to(span.left)
    squares = torch.einsum("oa,mo,ob->mab", span.left, off, span.left) - TOLD * errors[:, :, None] * errors[:, None]
    return columns_of(least(squares), span)


@dataclass(frozen=True, eq=False)
class RowCells:
    """What rows of a batch may be.

    mean, std: (f,) of features in [0, 1]. cells: of each column of words the features that some row of the batch has;
    then of each number its feature alone. numbers: (k,), features that are numbers.
    """

    mean: Tensor
    std: Tensor
    cells: tuple[Tensor, ...]
    numbers: Tensor

    @classmethod
    def of(cls, home: nn.Module, layout: Layout, target: Target, words: Words) -> RowCells | None:
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
        """Rows (many, f): words by how often a column has them; numbers normal, and some spread evenly over all that
        the column's own rows had and a little more.
        """
        rows = torch.zeros(many, len(self.mean))
        for own in self.cells[: len(self.cells) - len(self.numbers)]:
            place = torch.multinomial(self.mean[own].clamp_min(RARE), many, True, generator=draw)
            rows[torch.arange(many), own[place]] = 1
        for k in self.numbers.tolist():
            normal = self.mean[k] + self.std[k] * torch.randn(many, generator=draw)
            even = torch.rand(many, generator=draw) * (1 + 2 * BEYOND) - BEYOND
            rows[:, k] = torch.where(torch.rand(many, generator=draw) < EVEN, even, normal)
        return rows
