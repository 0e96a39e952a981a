"""Noise that is correlated over the rounds: which white noise goes into which round, as a factorisation.

A run releases x_t + η_t in round t, x_t the hub's value. With white noise Z, one vector a row, η = D Z for a decoder D
with D C = I: whoever sees all rounds sees D(C x + Z), so no more than C x + Z, one Gaussian release of the strategy
matrix C. The models are sums of the increments, A(x + η) with A the prefix sums, and C is chosen so that A D Z is small
(the matrix mechanism: Denisov et al. 2022, arXiv:2202.08312; tree aggregation: Kairouz et al. 2021, arXiv:2103.00039).

Everything streams: a round needs what the hub has kept, and one white vector for each row of C that ends in it.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .banded import banded_optimum

_Column = tuple[tuple[int, float], ...]  # of C: row number and value, where it is not 0
_White = Callable[[int], Tensor]  # the number of a row of C -> its white noise (d,)
_Kept = MutableMapping[str, Tensor]
KEPT = "correlated noise"  # names begin with it, among what a hub keeps


class NoiseStrategy(Protocol):
    """A strategy matrix C with a decoder.

    rounds: how many columns C has. A row of C is 0 for all rounds after the one in which its noise is first used, so
    that values may follow from what was released before (arXiv:2202.08312, Theorem 2.1).
    """

    @property
    def rounds(self) -> int: ...

    def column(self, round: int) -> _Column:
        """Into which rows of C the round's value goes."""
        ...

    def noise(self, round: int, white: _White, kept: _Kept) -> Tensor:
        """η of the round (d,). kept: by names that begin with `KEPT`, as the round before left them; changed."""
        ...


@dataclass(frozen=True)
class BandMF:
    """The b-banded lower triangular C with columns of norm 1 that has the least ‖A C⁻¹‖_F (arXiv:2306.08153).

    A client whose participations are at least b rounds apart moves rows that no other of its participations does: its
    k participations have sensitivity √k.

    rounds: n ≥ 1. bands: b from 1 (independent noise) to n.
    """

    rounds: int
    bands: int

    @cached_property
    def matrix(self) -> np.ndarray:
        """C, (n, n)."""
        return banded_optimum(self.rounds, self.bands)

    def column(self, round: int) -> _Column:
        rows = range(round, min(round + self.bands, self.rounds))
        return tuple((row, float(self.matrix[row, round])) for row in rows)

    def noise(self, round: int, white: _White, kept: _Kept) -> Tensor:
        """Solves C η = Z forwards (arXiv:2306.08153, Alg. 9): η_t = (z_t − Σ_{j<t} C_tj η_j)/C_tt."""
        row, own = self.matrix[round], white(round)
        past = kept.get(KEPT, own.new_zeros(0, len(own)))
        if len(past) != min(round, self.bands - 1):
            raise ValueError(f"the noise of round {round} needs that of the rounds before it, which is not kept")
        for j, earlier in enumerate(past, round - len(past)):
            own = own.sub(earlier, alpha=float(row[j]))
        own = own / float(row[round])
        if self.bands > 1:
            kept[KEPT] = torch.cat([past, own[None]])[-(self.bands - 1) :]
        return own


@dataclass(frozen=True)
class Tree:
    """Binary trees over the rounds, one after the other, with white noise on every node.

    A prefix sum is that of the largest complete nodes that make it up. With `honaker` each of these is estimated from
    all noisy nodes below it too, with the least variance (Honaker 2015; arXiv:2103.00039, appendix B): a node of height
    h weighs 1/(2 − 2^−h) against its two children together.

    A round shows one number of the tree that was not known: its largest complete node, of height h, beside the left
    children in it that earlier rounds showed. The noises of the nodes that end with the round are in that number alone,
    so that C has one row a round, and not one for each node:

    - by Honaker the node is Σ_j ((2^(j+1) − 1)/(2^(h+1) − 1)) times the estimated left child of height j, plus noise of
      variance Σ_{i ≤ h} 4^i/(2^(h+1) − 1)² = (2^(h+1) + 1)/(3(2^(h+1) − 1)), the weights' products being such shares;
    - without it the node is its own noisy value, variance 1.

    A round in the left child of height j is so in that row with 1 less the child's share, the node's last round with 1,
    each over the noise's std. The released noise has the law that noise on all nodes gives it, and less is priced.

    rounds: n ≥ 1. restart: leaves of a tree, ≥ 1; then a new one begins.
    """

    rounds: int
    restart: int
    honaker: bool = True

    def column(self, round: int) -> _Column:
        tree, leaf = divmod(round, self.restart)
        leaves = min(self.restart, self.rounds - tree * self.restart)
        height = _merged(leaf)
        column = [(self._row(tree, height, leaf), 1 / self._std(height))]
        while (end := ((leaf >> (height + 1)) + 1) << (height + 1)) <= leaves:
            child, height = height, _merged(end - 1)
            value = (1 - self._share(child, height)) / self._std(height)
            column.append((self._row(tree, height, end - 1), value))
        return tuple(column)

    def noise(self, round: int, white: _White, kept: _Kept) -> Tensor:
        """The noise of this prefix sum less that of the one before. Kept is one vector for every complete node of the
        prefix, by its height, as in a binary counter.
        """
        tree, leaf = divmod(round, self.restart)
        held = {name: kept.pop(name) for name in list(kept) if name.startswith(KEPT)}
        stack = {} if leaf == 0 else {int(name.removeprefix(KEPT)): value for name, value in held.items()}
        if len(stack) != leaf.bit_count():
            raise ValueError(f"the noise of round {round} needs that of the rounds before it, which is not kept")
        before, height = list(stack.values()), _merged(leaf)
        node = white(self._row(tree, height, leaf)) * self._std(height)
        for child in range(height):
            node = node + stack.pop(child) * self._share(child, height)
        stack[height] = node
        kept.update({f"{KEPT}{h}": value for h, value in stack.items()})
        return torch.stack(list(stack.values())).sum(0) - (torch.stack(before).sum(0) if before else 0.0)

    def _row(self, tree: int, height: int, leaf: int) -> int:
        """The number of the node with this leaf: those of a tree lie between its leaves, in order."""
        return tree * 2 * self.restart + ((leaf >> height) << (height + 1)) + (1 << height) - 1

    def _share(self, child: int, height: int) -> float:
        """Of a left child's estimate in that of the node of this height that both end in one round."""
        return (2.0 ** (child + 1) - 1) / (2.0 ** (height + 1) - 1) if self.honaker else 0.0

    def _std(self, height: int) -> float:
        """Of what is new in a node's estimate."""
        return sqrt((2.0 ** (height + 1) + 1) / (3 * (2.0 ** (height + 1) - 1))) if self.honaker else 1.0


def _merged(leaf: int) -> int:
    """The height of the largest node that ends with a leaf: how many ones its number ends with.

    >>> [_merged(leaf) for leaf in range(8)]
    [0, 1, 0, 2, 0, 1, 0, 3]
    """
    return (leaf ^ (leaf + 1)).bit_length() - 1


@dataclass(frozen=True)
class BLT:
    """A buffered linear Toeplitz C: c_0 = 1, c_i = Σ_j ω_j θ_j^(i−1) (`buffered`).

    rounds: n ≥ 1. decays, scales: θ and ω, (d) each.
    """

    rounds: int
    decays: tuple[float, ...]
    scales: tuple[float, ...]

    @cached_property
    def coefficients(self) -> tuple[float, ...]:
        """c_0 to c_(n−1)."""
        after = [sum(w * q**i for w, q in zip(self.scales, self.decays)) for i in range(self.rounds - 1)]
        return (1.0, *after)

    def column(self, round: int) -> _Column:
        return tuple(zip(range(round, self.rounds), self.coefficients))

    def noise(self, round: int, white: _White, kept: _Kept) -> Tensor:
        """Solves C η = Z forwards (arXiv:2408.08868, Alg. 3): η_t = z_t − Σ ω_j s_j, then s_j ← θ_j s_j + η_t. Kept are
        the d buffers s_j.
        """
        own = white(round)
        past = kept.get(KEPT) if round else own.new_zeros(len(self.scales), len(own))
        if past is None or past.shape != (len(self.scales), len(own)):
            raise ValueError(f"the noise of round {round} needs that of the rounds before it, which is not kept")
        own = own - own.new_tensor(self.scales) @ past
        kept[KEPT] = past * own.new_tensor(self.decays)[:, None] + own
        return own


@dataclass(frozen=True)
class Matrix:
    """A lower triangular C that somebody gives.

    lower: its rows, of row t the first t + 1 numbers, the last of them not 0.
    """

    lower: tuple[tuple[float, ...], ...]

    @property
    def rounds(self) -> int:
        return len(self.lower)

    def column(self, round: int) -> _Column:
        return tuple((row, self.lower[row][round]) for row in range(round, self.rounds) if self.lower[row][round])

    def noise(self, round: int, white: _White, kept: _Kept) -> Tensor:
        """Solves C η = Z forwards. Kept is the noise of every round before."""
        own, row = white(round), self.lower[round]
        past = kept.get(KEPT, own.new_zeros(0, len(own)))
        if len(past) != round:
            raise ValueError(f"the noise of round {round} needs that of the rounds before it, which is not kept")
        own = (own - own.new_tensor(row[:-1]) @ past) / row[-1]
        kept[KEPT] = torch.cat([past, own[None]])
        return own


def decoder_of(strategy: NoiseStrategy) -> np.ndarray:
    """D, (n, rows): what of each white vector is in the noise of each round; D C is the identity.

    >>> np.cumsum(decoder_of(Tree(4, 4, honaker=False)), axis=0)[-1].tolist()      # of four rounds the root alone
    [0.0, 0.0, 1.0, 0.0]
    """
    rows = sorted({row for t in range(strategy.rounds) for row, _ in strategy.column(t)})
    unit = dict(zip(rows, torch.eye(len(rows), dtype=torch.float64)))
    kept: dict[str, Tensor] = {}
    return torch.stack([strategy.noise(t, unit.__getitem__, kept) for t in range(strategy.rounds)]).numpy()
