"""A linear layer whose weights few steps of each candidate moved: what moves them is rows, so no weights are formed.

A step's gradient is errorᵀ·input, n rows; what steps of SGD or momentum make of all is a sum (`ghost_steps.py`).
So are the derivatives that come back: the objective's is a multiple of the observed value and of the update, and a
step's, by the weights that it began with, 2n rows more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ..read.local_training import Recipe
from .candidate_weights import OwnLinear
from .matmul import Linear

RowPair = tuple[Tensor, Tensor]  # (T, r, outputs) and (T, r, inputs): leftᵀ·right


@dataclass(frozen=True, eq=False)
class LowRank:
    """A matrix of each candidate: one that is given by what it does to rows (T, n, inputs), and back, plus pairs."""

    there: Callable[[Tensor], Tensor]
    home: Callable[[Tensor], Tensor]
    pairs: list[RowPair]

    @cached_property
    def rows(self) -> RowPair | None:
        """All pairs in one; None for none."""
        if not self.pairs:
            return None
        left, right = (torch.cat(parts, 1) for parts in zip(*self.pairs))
        return left, right

    def forth(self, x: Tensor) -> Tensor:
        z = self.there(x)
        return z if self.rows is None else z.baddbmm_(x @ self.rows[1].mT, self.rows[0])

    def back(self, error: Tensor) -> Tensor:
        x = self.home(error)
        return x if self.rows is None else x.baddbmm_(error @ self.rows[0].mT, self.rows[1])


class LowRankLinear(OwnLinear):
    """As `OwnLinear`, of weights that are `LowRank`; `outer` adds a pair to a list.

    gradients, curvatures: of every step, the pairs that its gradient is, and the derivative of its product with a
    direction by the weights.

    Args:
        layer, before: as of `OwnLinear`. weight: (O, numbers), with which all candidates begin.
        observed: (T, O, numbers). recipe: of a linear optimiser with `own_gradients` and without a clip.
    """

    def __init__(
        self, layer: nn.Linear, before: tuple[int, ...] | None, weight: Tensor, observed: Tensor, recipe: Recipe
    ) -> None:
        super().__init__(layer, before)
        self.observed, self.squares = observed, observed.square().sum((1, 2))
        rows = len(observed) * max(recipe.sizes)
        self.there, self.home = Linear(weight, rows), Linear(weight.T, rows)
        factor, steps = recipe.lr * recipe.factor, len(recipe.sizes)
        self.moves = [[-factor * share for share in recipe.shares_after(k)] for k in range(steps + 1)]
        self.begin()

    def begin(self) -> None:
        """Forgets all steps."""
        self.gradients: list[list[RowPair]] = [[] for _ in self.moves[1:]]
        self.curvatures: list[list[RowPair]] = [[] for _ in self.moves[1:]]

    def at(self, step: int) -> LowRank:
        """The weights that a step begins with."""
        return LowRank(
            lambda x: self.there(x.flatten(0, 1)).unflatten(0, x.shape[:2]),
            lambda error: self.home(error.flatten(0, 1)).unflatten(0, error.shape[:2]),
            [_times(by, pair) for by, own in zip(self.moves[step], self.gradients) for pair in own],
        )

    def compared(self) -> tuple[Tensor, Tensor]:
        """⟨moved, observed⟩ and ‖moved‖², (T,), of what all steps have moved."""
        pairs = [_times(by, pair) for by, own in zip(self.moves[-1], self.gradients) for pair in own]
        self.left, self.right = (torch.cat(parts, 1) for parts in zip(*pairs))
        dot = (torch.bmm(self.right, self.observed.mT) * self.left).sum((1, 2))
        return dot, ((self.left @ self.left.mT) * (self.right @ self.right.mT)).sum((1, 2))

    def turn(self, of_dot: Tensor, of_square: Tensor) -> None:
        """Takes in the objective's derivatives (T,) by what was compared."""
        self.of_dot, self.of_square = of_dot[:, None, None], of_square[:, None, None]

    def along(self, step: int) -> LowRank:
        """The objective's derivative by a step's gradient, when those by all later steps' weights are known."""
        by = self.moves[-1][step]
        later = range(step + 1, len(self.gradients))
        return LowRank(
            lambda x: torch.bmm(x, self.observed.mT).mul_(by * self.of_dot),
            lambda error: torch.bmm(error, self.observed).mul_(by * self.of_dot),
            [
                (2 * by * self.of_square * self.left, self.right),
                *(_times(self.moves[k][step], pair) for k in later for pair in self.curvatures[k]),
            ],
        )

    def forth(self, x: Tensor, weights: LowRank, bias: Tensor | None) -> Tensor:
        z = weights.forth(x)
        return z if bias is None else z.add_(bias[:, None])

    def back(self, error: Tensor, x: Tensor, weights: LowRank) -> Tensor:
        return weights.back(error)

    def outer(self, error: Tensor, x: Tensor, into: list[RowPair], add: bool) -> None:
        into.append((error, x))


def _times(factor: float, pair: RowPair) -> RowPair:
    return factor * pair[0], pair[1]
