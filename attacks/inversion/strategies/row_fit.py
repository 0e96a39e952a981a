"""All rows of a batch fitted together, each by what the others leave of the gradient.

A gradient has many more numbers than the rows behind it have cells, where no span tells them by their words
(`exact/words.py`), too. Rows are put one by one, the rest standing as the mean gradient of the attacker's own rows of
that label: from those that fit what is left best one cell after the other is put to what fits better, and numbers are
solved for, the slopes held (matching pursuit, Mallat and Zhang 1993). Then each row in turn is taken out and sought
anew, beginning with what it was and with rows of the attacker's own. Distances are those of `row_metric.py`, which the
attacker's own rows whiten, too: in the plain one the rows that are alike drown the rest. An attacker with too few rows
of its own draws some by the columns' frequencies.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import torch
from torch import Tensor, nn

from ....defenses.chain import open_chain
from ....defenses.progress import Progress, part_of
from ....defenses.randomness import generator
from ..exact.words import RowCells, Words
from ..match.case import Case
from ..match.evaluate import loss_at
from ..match.features import one_gradient
from ..match.solution import Solution, start_images
from ..match.wiener import RECORDS
from ..read.table import OwnRows
from ..read.target import Target
from .learned_prior import STRONG
from .row_metric import Factors, Matrices, RowMetric, scale_open
from .strategy import Found, Strategy, StrategyWork
from .with_words import as_shares

# In means of a second moment's eigenvalues: of few rows the one (32: 99.6 % of cells for 91.5), of many the other (128:
# 93 for 75 with more). Of no more rows than a layer has neurons both are tried, and the lower objective is kept; of
# more the other alone, as the objective is lower for the one there, and fewer cells are right.
DAMPINGS = (3.0, 0.1)
BEGUN, FIRST = 64, 3  # own rows that a new row begins with, and times that each of its cells is put
AGAIN, ONCE_MORE, EACH = 12, 2, 4  # rows gone over again, whenever so many are new, and how often their cells are put
SWEEPS, BESIDE = 20, 4  # times that every row is sought anew; own rows that it may begin with then
IDLE = 0.005  # of the distance, that a sweep gains at least
DRAWS, NEAR, NARROWER = 4, 0.3, 0.8  # numbers taken of own rows, and near by; how near, in deviations, and by sweep
STEPS = (1.0, 0.3)  # shares of the step to where numbers are solved for
RIDGE = 1e-3  # of the diagonal, as numbers of a row may move its gradient alike
MOST = 4 * 10**12  # operations, at most: some minutes
LIKE = 1000  # rows that whiten, at most


def fit_operations(target: Target, features: int, parameters: int) -> int:
    """About how many operations the fit of a target takes; 0 where there is none: what was sent is not one gradient, or
    clipped tensor by tensor; half of it or more is noise; rows are so many that it takes too long.
    """
    whole = target.sparse is None and not target.others and not (target.per_layer and scale_open(target))
    if not (whole and one_gradient(target)) or target.noise_share >= STRONG:
        return 0
    tries = BEGUN * FIRST + AGAIN * ONCE_MORE // EACH + SWEEPS * ONCE_MORE * (1 + BESIDE)
    many = len(DAMPINGS) * target.count * tries * features * 10 * parameters
    return many if many <= MOST else 0


class FitOfRows(Strategy):
    """A table's rows that fit what was sent together, beside the guess."""

    name = "row fit"
    phase = "refine"

    def applies(self, case: Case) -> str:
        if not case.settings.exact:
            return "exact = false"
        if case.settings.learned:
            return "the search is by a learned prior"
        if not case.words:
            return "no table with columns of words was attacked"
        if not open_chain(case.network):
            return "the network is no chain of linear layers"
        if not self.cost(case):
            return "it is not one whole gradient that is mostly signal, or of too many rows"
        return ""

    def cost(self, case: Case) -> int:
        return fit_operations(case.target, prod(case.shape), case.layout.dim)

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        made = []
        for k, (case, each) in enumerate(zip(cases, found)):
            fit = with_fit(case, part_of(work.progress, k / len(cases), (k + 1) / len(cases)))
            made.append(each if fit is None else replace(each, solution=nearer(case, each.best, fit)))
        return made

    def assumed(self, case: Case, solution: Solution) -> tuple[str, ...]:
        return (solution.rows_by,) if solution.rows_by else ()


def with_fit(case: Case, progress: Progress | None = None) -> Solution | None:
    """The rows of a table that fit one gradient together best; None where this is none of a chain of linear layers, or
    `fit_operations` says so. progress: called with what is done and what there is.
    """
    target, words = case.target, case.words
    if not words or fit_operations(target, prod(case.shape), case.layout.dim) == 0:
        return None
    home = copy.deepcopy(case.network).float().cpu()
    cells = RowCells.of(home, case.layout, target, words)
    if cells is None:
        return None
    rows, about = rows_like(case, cells)
    best: tuple[float, Tensor] | None = None
    dampings = dampings_of(target.count, home)
    for k, damping in enumerate(dampings):
        like = rows.images[:LIKE].flatten(1)
        metric = RowMetric.of(home, target, words, case.labels, like, rows.labels[:LIKE], damping)
        if metric is None:
            return None
        fit = RowFit(metric, cells, words, case.labels, rows, generator(case.seed, "row fit", target.key))
        fitted = fit.fitted(part_of(progress, k / len(dampings), (k + 1) / len(dampings)))[:, :, None, None]
        loss = loss_at(case, fitted)
        if best is None or loss < best[0]:
            best = loss, fitted
    assert best is not None
    loss, images = best
    start = start_images(case.seed, target.key, 0, target.count, tuple(images.shape[1:]))
    return Solution(images.clamp(0, 1), start, case.labels, loss, rows_by=about)


def rows_like(case: Case, cells: RowCells) -> tuple[OwnRows, str]:
    """Rows that are like those of a message, and what that takes for granted: the attacker's own, or, where these are
    too few, as many drawn by the columns' frequencies, with labels drawn from the message's.
    """
    own = case.auxiliary.rows
    if own is not None and len(own.images) >= RECORDS:
        return own, f"{min(len(own.images), LIKE)} auxiliary rows to be like those of the messages, see row_fit.py"
    draw = generator(case.seed, "rows", case.target.key)
    images = cells.drawn(LIKE, draw)[:, :, None, None].clamp(0, 1)
    labels = case.labels[torch.randint(len(case.labels), (LIKE,), generator=draw)]
    return OwnRows(images, labels), "rows of the messages to be as frequent as the table's columns say, see row_fit.py"


def dampings_of(rows: int, network: nn.Module) -> tuple[float, ...]:
    """Those of `DAMPINGS` to try for so many rows."""
    widths = [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)]
    return DAMPINGS[1:] if rows > max(widths[:-1], default=0) else DAMPINGS


def nearer(case: Case, guess: Solution, fit: Solution) -> Solution:
    """Of two solutions the one of the lower objective, where every column has one word: shares of words may follow
    noise, and mean a word.

    Args:
        case: of a table. guess: of any shares of words. fit: of one word a column.
    """
    shares = as_shares(guess.images, case.words)
    for first, width in case.words:
        part = shares[:, first : first + width]
        shares[:, first : first + width] = torch.zeros_like(part).scatter_(1, part.argmax(1, keepdim=True), 1.0)
    return fit if fit.loss < loss_at(replace(case, labels=guess.labels), shares) else guess


class RowFit:
    """Rows that change one by one, and what they leave.

    images: (n, f), as they are. scale: what the gradient is taken times. rest: of each layer, it less theirs.

    Args:
        metric: how gradients compare. cells: what rows may be. words: the table's. labels: (n,) of the rows.
        own: rows of the attacker's. draw: of all draws.
    """

    def __init__(
        self, metric: RowMetric, cells: RowCells, words: Words, labels: Tensor, own: OwnRows, draw: torch.Generator
    ) -> None:
        self.metric, self.words, self.labels, self.draw = metric, words, labels, draw
        self.cells, self.numbers, self.std = cells.cells, cells.numbers, cells.std.float()
        every = own.images[:LIKE].flatten(1)
        self.own = {}
        for kind in labels.unique().tolist():
            alike = every[own.labels[:LIKE] == kind]
            self.own[kind] = alike if len(alike) else every
        self.every = every
        self.known = {kind: metric.factors(rows, torch.full((len(rows),), kind)) for kind, rows in self.own.items()}
        self.squares = {kind: known.squares for kind, known in self.known.items()}
        self.mean = {kind: [part / len(self.own[kind]) for part in known.sum()] for kind, known in self.known.items()}
        self.images, self.scale, self.rest = torch.zeros(len(labels), every.shape[1]), 1.0, list(metric.goal)

    def fitted(self, progress: Progress | None = None) -> Tensor:
        """(n, f), numbers beyond [0, 1] where they fit so."""
        many, done = len(self.labels), 0
        total = many * (1 + SWEEPS)

        def tick() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, total)

        self._begin(tick)
        last = self._distance()
        for sweep in range(SWEEPS):
            for i in torch.randperm(many, generator=self.draw).tolist():
                self._again(i, BESIDE, NEAR * NARROWER**sweep)
                tick()
            last, before = self._distance(), last
            if last > (1 - IDLE) * before:
                break
        return self.images

    def _begin(self, tick: Callable[[], None]) -> None:
        """Every row once, those first that explain most."""
        open_ = {kind: (self.labels == kind).nonzero()[:, 0].tolist() for kind in self.own}
        for kind, mean in self.mean.items():
            self._leave(mean, -len(open_[kind]))
        filled: list[int] = []
        while any(open_.values()):
            best = None
            for kind in (kind for kind, places in open_.items() if places):
                mean = self.mean[kind]
                rest = [own + part for own, part in zip(self.rest, mean)]
                images, values = self._sought(kind, self._best(kind, rest, BEGUN // len(self.own)), rest, FIRST, NEAR)
                gained = values + sum(
                    float(((own + part).square() - own.square()).sum()) for own, part in zip(self.rest, mean)
                )
                if best is None or gained.min() < best[0]:
                    best = float(gained.min()), kind, images[gained.argmin()]
            assert best is not None
            _, kind, image = best
            self._leave(self.mean[kind], 1)
            filled.append(open_[kind].pop())
            self._put(filled[-1], image)
            if len(filled) % EACH == 0:
                drawn = torch.randint(len(filled), (AGAIN // 3,), generator=self.draw).tolist()
                for i in filled[-2 * AGAIN // 3 :] + [filled[k] for k in drawn]:
                    self._again(i, 0, NEAR)
            tick()

    def _distance(self) -> float:
        """What all rows leave, summed anew, as small errors of many sums add up."""
        made, goal = self.metric.factors(self.images, self.labels).sum(), self.metric.goal
        if self.metric.open_scale:
            along = sum((own * part).sum().item() for own, part in zip(goal, made))
            self.scale = sum(own.square().sum().item() for own in made) / along if along > 0 else self.scale
        self.rest = [self.scale * part - own for part, own in zip(goal, made)]
        return sum(own.square().sum().item() for own in self.rest)

    def _leave(self, of: Matrices, times: float) -> None:
        self.rest = [own + times * part for own, part in zip(self.rest, of)]

    def _put(self, i: int, image: Tensor) -> None:
        self.images[i] = image
        self._leave(self._factors(i).sum(), -1)

    def _factors(self, i: int) -> Factors:
        return self.metric.factors(self.images[i : i + 1], self.labels[i : i + 1])

    def _again(self, i: int, beside: int, near: float) -> None:
        """A row taken out and sought anew, from itself and so many own rows."""
        self._leave(self._factors(i).sum(), 1)
        kind, begun = int(self.labels[i]), self.images[i : i + 1]
        if beside:
            begun = torch.cat([begun, self._best(kind, self.rest, beside)])
        images, values = self._sought(kind, begun, self.rest, ONCE_MORE, near)
        self._put(i, images[values.argmin()])

    def _best(self, kind: int, rest: Matrices, many: int) -> Tensor:
        """So many own rows of a label, those that explain most of the rest."""
        value = self.squares[kind] - 2 * self.known[kind].with_sum(rest)
        return self.own[kind][value.argsort()[:many]]

    def _value(self, images: Tensor, kind: int, rest: Matrices) -> Tensor:
        """(m,) the squared distance of each image (m, f) from the rest, less the rest's square."""
        factors = self.metric.factors(images, torch.full((len(images),), kind))
        return factors.squares - 2 * factors.with_sum(rest)

    def _sought(self, kind: int, images: Tensor, rest: Matrices, times: int, near: float) -> tuple[Tensor, Tensor]:
        """Images (m, f), each with every cell put so many times to what is nearest to the rest, and their values."""
        value = self._value(images, kind, rest)
        for _ in range(times):
            for place in torch.randperm(len(self.cells), generator=self.draw).tolist():
                tried = self._tried(images, place, near)
                many = tried.shape[1]
                values = self._value(tried.flatten(0, 1), kind, rest).view(-1, many)
                least, chosen = values.min(1)
                better = least < value
                images = torch.where(better[:, None], tried[torch.arange(len(images)), chosen], images)
                value = torch.where(better, least, value)
            for share in STEPS if len(self.numbers) else ():
                tried = images.clone()
                tried[:, self.numbers] += share * self._step(images, kind, rest)
                now = self._value(tried, kind, rest)
                images = torch.where((now < value)[:, None], tried, images)
                value = torch.minimum(value, now)
        return images, value

    def _tried(self, images: Tensor, place: int, near: float) -> Tensor:
        """(m, tries, f): images with one cell put to all that it may be."""
        own, many = self.cells[place], len(images)
        if place < len(self.words):
            first, width = self.words[place]
            tried = images[:, None].repeat(1, len(own), 1)
            tried[:, :, first : first + width] = 0
            tried[:, torch.arange(len(own)), own] = 1
            return tried
        (k,) = own.tolist()
        tried = images[:, None].repeat(1, 2 * DRAWS, 1)
        tried[:, :DRAWS, k] = self.every[torch.randint(len(self.every), (many, DRAWS), generator=self.draw), k]
        tried[:, DRAWS:, k] += near * self.std[k] * torch.randn(many, DRAWS, generator=self.draw)
        return tried

    def _step(self, images: Tensor, kind: int, rest: Matrices) -> Tensor:
        """(m, k) to where numbers are nearest to the rest, as far as slopes and errors stay as they are."""
        factors = self.metric.factors(images, torch.full((len(images),), kind))
        square, slope = images.new_zeros(1), images.new_zeros(1)
        for moved, inputs, errors, own in zip(
            self.metric.moved(images, self.numbers), factors.inputs, factors.errors, rest
        ):
            size = errors.square().sum(1)
            square = square + size[:, None, None] * (moved @ moved.mT)
            slope = slope + (moved @ (errors @ own - size[:, None] * inputs)[:, :, None])[:, :, 0]
        diagonal = square.diagonal(dim1=1, dim2=2)
        square = square + torch.diag_embed(RIDGE * diagonal + torch.finfo(square.dtype).tiny)
        return torch.linalg.solve(square, slope[:, :, None])[:, :, 0]
