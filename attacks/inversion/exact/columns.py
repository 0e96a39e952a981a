"""Sparse columns: which combinations of a layer's error directions are one image's own.

Behind a ReLU the error δ_i of an image is 0 at every neuron that the image does not switch on: about half of them. The
update's left side, `RowSpace.left`, mixes all δ_i; a combination of its columns that is 0 at far more neurons than a
combination of several images can be is the δ of one image (SPEAR, Dimitrov et al. 2024, arXiv:2403.03945; for
dictionaries: Spielman et al. 2012, arXiv:1206.5882). SPEAR looks for it by drawing neurons blindly, at a price
exponential in the number of images. Here a first guess of the image says which neurons it probably leaves off, so that
a few draws, or a fit that forgives wrong ones, are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .row_space import RowSpace

FIT_STEPS = 30  # of the reweighted fit
DRAWS, BEYOND = 128, 2  # at most so many subsets of neurons drawn for an image; neurons in each beyond the fewest
DRAWING = 3 * 10**8  # operations for them, by the rule n r³ a subset of each of n images
ZERO = 1e-4  # of a column's largest entry: what counts as 0 without noise
CHANCE = 8  # zeros more than any combination can have, before a column counts as one image's
COMMON, ALIKE = 5, 1e-3  # neurons whose ratios to another column agree by more than chance; how closely
WITHIN = 5  # standard deviations of the noise in an error that is 0


@dataclass(frozen=True, eq=False)
class Columns:
    """Combinations of a span's left directions.

    mix: (m, r), of length 1. errors: (m, o), the combinations, with 1 as the largest. tolerance: (m,), below which an
    error may be 0.
    """

    mix: Tensor
    errors: Tensor
    tolerance: Tensor

    def __len__(self) -> int:
        return len(self.mix)

    @property
    def zero(self) -> Tensor:
        """(m, o) bool, where an error may be 0."""
        return self.errors.abs() < self.tolerance[:, None]

    @property
    def zeros(self) -> Tensor:
        """(m,) at how many neurons an error is 0, less those that a wide tolerance brings by chance."""
        return self.zero.sum(1) - 2 * self.tolerance * self.errors.shape[1]

    def at(self, rows: Tensor) -> Columns:
        return Columns(self.mix[rows], self.errors[rows], self.tolerance[rows])

    def put(self, row: int, one: Columns) -> Columns:
        """With `one` (of length 1) in the place of a row."""
        return self.at(torch.arange(row)) + one + self.at(torch.arange(row + 1, len(self)))

    def __add__(self, other: Columns) -> Columns:
        return Columns(
            torch.cat([self.mix, other.mix]),
            torch.cat([self.errors, other.errors]),
            torch.cat([self.tolerance, other.tolerance]),
        )


def columns_of(mix: Tensor, span: RowSpace) -> Columns:
    """The columns of the combinations `mix` (m, r), of length 1 each."""
    errors = mix @ span.left.T
    largest = errors.abs().amax(1).clamp_min(1e-300)
    spread = span.noise_std * (mix / span.values).norm(dim=1) / largest
    return Columns(mix, errors / largest[:, None], (WITHIN * spread).clamp(ZERO, 0.5))


def fitted(span: RowSpace, outputs: Tensor) -> Tensor:
    """Combinations (n, r): for every image Σ_j π_j |error_j| made small over the unit sphere, π_j the chance that
    neuron j is off by a guess of its output, by reweighted least squares with a falling softening.

    Args:
        span: of rank r. outputs: (n, o), what each neuron gives for the guessed images before the ReLU.
    """
    left = span.left
    off = torch.sigmoid(-outputs / (0.1 * outputs.std()))
    weight = off.square()
    mix = left.new_zeros(len(outputs), left.shape[1])
    for step in range(FIT_STEPS):
        mix = least(torch.einsum("oa,no,ob->nab", left, weight, left))
        size = (mix @ left.T).abs()
        size /= size.amax(1, keepdim=True).clamp_min(1e-300)
        softening = 10 ** (-1 - 4 * min(1.0, step / (FIT_STEPS - 5)))
        weight = off / (size.square() + softening**2).sqrt()
    return mix


def sampled(span: RowSpace, outputs: Tensor, rng: torch.Generator) -> Tensor:
    """Combinations (at most n, r): for every image the sparsest of several that are 0 at a few neurons, drawn among
    those the guessed image leaves off, the surest most often; none for an image that leaves too few off. Arguments as
    of `fitted`.
    """
    left, rank = span.left, span.left.shape[1]
    few, draws = rank - 1 + BEYOND, min(DRAWS, DRAWING // (len(outputs) * rank**3))
    found = []
    for one in outputs:
        (off,) = (one < 0).nonzero(as_tuple=True)
        if draws and len(off) >= few:
            picked = left[off[torch.multinomial(-one[off].float().expand(draws, -1), few, generator=rng)]]
            mix = least(picked.mT @ picked)
            size = (mix @ left.T).abs()
            best = (size < ZERO * size.amax(1, keepdim=True)).sum(1).argmax()
            found.append(mix[best])
    return torch.stack(found) if found else left.new_zeros(0, rank)


def polished(columns: Columns, span: RowSpace) -> Columns:
    """The same columns with all their zeros used, and not only those they were found by."""
    for _ in range(2):
        weight = columns.zero.to(span.left)
        columns = columns_of(least(torch.einsum("oa,mo,ob->mab", span.left, weight, span.left)), span)
    return columns


def sparsest(columns: Columns) -> Columns:
    """The sparsest columns first, each that none of those before it explain, and none that chance explains."""
    rank = columns.mix.shape[1]
    basis, kept = columns.mix.new_zeros(0, rank), list[int]()
    for row in columns.zeros.argsort(descending=True, stable=True).tolist():
        if columns.zeros[row] < rank - 1 + CHANCE or len(kept) == rank:
            break
        rest = columns.mix[row] - basis.T @ (basis @ columns.mix[row])
        if rest.norm() > 1e-3:
            kept.append(row)
            basis = torch.cat([basis, (rest / rest.norm())[None]])
    return columns.at(torch.tensor(kept, dtype=torch.long))


def reduced(columns: Columns, span: RowSpace) -> Columns:
    """The columns of two images made the column of one: wherever subtracting a multiple of another column gives more
    zeros, it is subtracted. The multiple is the ratio that many neurons have in common.
    """
    for row in range(len(columns)):
        one = columns.at(torch.tensor([row]))
        there = ~columns.zero
        ratios = torch.where(there & ~one.zero, one.errors / columns.errors, torch.nan)
        ratios[row] = torch.nan
        ordered = ratios.sort(1)[0]  # nan last
        window = (there & one.zero).sum(1, keepdim=True) + COMMON  # more than the zeros that are lost
        start = torch.arange(ordered.shape[1]).expand_as(ordered)
        after = ordered.gather(1, (start + window).clamp_max(ordered.shape[1] - 1))
        spread = (after - ordered).masked_fill(start + window >= ordered.shape[1], torch.nan) / ordered.abs()
        tight, where = spread.nan_to_num(torch.inf).min(1)
        other = int(tight.argmin())
        if tight[other] < ALIKE:
            middle = ordered[other, int(where[other]) + int(window[other]) // 2]
            scale = (one.mix @ span.left.T).abs().max() / (columns.mix[other] @ span.left.T).abs().max()
            mix = one.mix[0] - middle * scale * columns.mix[other]
            better = polished(columns_of((mix / mix.norm())[None], span), span)
            if better.zeros[0] > one.zeros[0]:
                columns = columns.put(row, better)
    return columns


def least(squares: Tensor) -> Tensor:
    """The unit vector (…, r) that makes each quadratic form (…, r, r) smallest."""
    return torch.linalg.eigh(squares)[1][..., 0]
