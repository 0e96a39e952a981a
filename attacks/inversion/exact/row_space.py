"""The space that a client's images span, read off the first layer's update.

A linear layer z = W a + b has the gradient [G_W | G_b] = Σ_i δ_i [a_iᵀ | 1], δ_i the loss's derivative at image i's
outputs. So the rows of what SGD or momentum SGD adds to [W | b], over any number of steps and epochs, in any order of
batches, lie in the span of the n vectors [a_i | 1] of *all* images, and n directions of thousands are left to search
(Geiping et al. 2020, arXiv:2003.14053, prop. 3.1 for one image; Kariyappa et al. 2023, arXiv:2209.05578). A clip only
scales it; noise hides its weakest directions. An image that a client has twice has one direction, whatever its labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ....defenses.randomness import generator

CLEAR = 3  # a direction over the noise's largest, for anything to be tried
APART = 10  # the weakest one over it, where the directions beyond it are taken for nothing
ROUNDED = 1e-7  # of the strongest: below, and below APART, a direction may be rounding, whose errors are not alike
SPARE, POWERS = 10, 3  # of the randomised decomposition (Halko et al. 2011, arXiv:0909.4061, algorithm 4.4)


@dataclass(frozen=True, eq=False)
class RowSpace:
    """[G_W | G_b] ≈ left · diag(values) · rightᵀ, float64, of the rank asked for.

    left: (o, r), orthonormal columns. values: (r,), falling. right: (i + 1, r), orthonormal columns; its last row
    belongs to the bias. noise_std: of the noise in each entry, the known one or what is beside these r directions.
    """

    left: Tensor
    values: Tensor
    right: Tensor
    noise_std: float

    @property
    def clearness(self) -> float:
        """The weakest direction over what noise alone would have, noise_std (√o + √(i + 1)) (the edge of Marchenko and
        Pastur 1967); 0 for a direction that is nothing but rounding of the strongest.
        """
        return float(self._clear[-1])

    @property
    def _clear(self) -> Tensor:
        """(r,), `clearness` of every direction."""
        edge = self.noise_std * (len(self.left) ** 0.5 + len(self.right) ** 0.5)
        return torch.where(self.values > 1e-9 * self.values[0], self.values / max(edge, 1e-300), 0.0)

    def told(self, least: float) -> RowSpace | None:
        """Those directions that are something, the others being noise or rounding: fewer than asked for where images
        are copies of one another. None where the weakest is less than `least` times what noise alone would have; or,
        of fewer than asked for, less than `APART` times.
        """
        clear = self._clear
        beside = self.noise_std * (len(self.left) * len(self.right)) ** 0.5
        untold = beside < 3e-8 * float(self.values.norm())  # a difference of squares that float64 cannot tell
        rounding = ((clear < APART) | untold) & (self.values < ROUNDED * self.values[0])
        rank = int(((clear >= CLEAR) & ~rounding).sum())
        if rank == 0 or clear[rank - 1] < (least if rank == len(clear) else max(least, APART)):
            return None
        return RowSpace(self.left[:, :rank], self.values[:rank], self.right[:, :rank], self.noise_std)

    def rules(self, mix: Tensor) -> Tensor:
        """(m, r), what coordinates (r,) of every other image are orthogonal to, by the combinations `mix` (m, r) of the
        left directions that are one image's own.
        """
        return mix / self.values

    def coordinates(self, inputs: Tensor) -> Tensor:
        """(n, r) of the points of the span with a last entry of 1 that are nearest to [inputs | 1], inputs (n, i)."""
        bias = self.right[-1]
        found = inputs.double() @ self.right[:-1] + bias
        return found + ((1 - found @ bias) / bias.square().sum())[:, None] * bias

    def inputs(self, coordinates: Tensor) -> Tensor:
        """The layer's inputs (n, i) at `coordinates` (n, r)."""
        return coordinates @ self.right[:-1].T

    def project(self, inputs: Tensor) -> Tensor:
        """The nearest inputs (n, i) in the span."""
        return self.inputs(self.coordinates(inputs)).to(inputs)


def row_space(gradient: Tensor, rank: int, noise_std: float = 0.0) -> RowSpace:
    """The span of the `rank` strongest directions of [G_W | G_b] (o, i + 1).

    What is beside them tells nothing about the noise where nearly all directions are taken: those few are the weakest
    of the noise's own. So what is known of it counts as well.

    Args:
        gradient: (o, i + 1). rank: r. noise_std: of the noise in each entry, as far as it is known.

    Raises:
        ValueError: the matrix has no such rank.
    """
    if not 1 <= rank <= min(gradient.shape):
        raise ValueError(f"rank is {rank}, it must be from 1 to {min(gradient.shape)}, the matrix's smaller side")
    matrix = gradient.double()
    width = min(rank + SPARE, *matrix.shape)
    start = torch.randn(matrix.shape[1], width, generator=generator(0, "span", *matrix.shape, rank), dtype=matrix.dtype)
    basis = torch.linalg.qr(matrix @ start.to(matrix.device))[0]
    for _ in range(POWERS):
        basis = torch.linalg.qr(matrix @ torch.linalg.qr(matrix.T @ basis)[0])[0]
    left, values, right = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
    beside = (matrix.square().sum() - values[:rank].square().sum()).clamp_min(0) / matrix.numel()
    noise = max(float(beside.sqrt()), noise_std)
    return RowSpace(basis @ left[:, :rank], values[:rank], right[:rank].T, noise)
