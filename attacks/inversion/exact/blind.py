"""Sparse columns with no guess of the images: every column of a span's left side, found by what a ReLU says twice.

An image's error is a combination L q of the left directions that is 0 wherever the image leaves a neuron off. And which
it leaves off is no secret but for r numbers: with the image at coordinates c of the span, neuron j is off where P_j c <
0, P the layer's known weights times the span's right side. So the zeros of a right q are all on one side of a plane.
SPEAR (Dimitrov et al. 2024, arXiv:2403.03945) draws neurons until r − 1 of them happen to be off together, at a price
of 2ʳ, and L1 alone (Spielman et al. 2012, arXiv:1206.5882) finds nothing at 100 images and 1,024 neurons; here q and c
are fitted in turns from random c, and nearly every start ends in an image's own column.

An image's c is orthogonal to the columns of all others (`unmix.py`). So what is found leaves fewer dimensions for the
next c, which cannot lead to the same image again.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ....defenses.randomness import generator
from .columns import WITHIN, Columns, columns_of, polished, reduced, sparsest
from .row_space import RowSpace

NEURONS = 4  # for an image at least: with fewer, a plane parts nearly any zeros from the rest
STARTS, PATIENCE = 32, 4  # a round; rounds without a new column, each twice as long as the one before
STEPS, LAST = 30, 10  # of a start; more while the softening falls to `HARD`
SOFT, HARD = 0.3, 1e-5  # of the fit's absolute values, in units of the root mean square
NEAR = 0.3  # an error this small, in those units, speaks for a neuron that is off
STEEP = 3.0  # how fast the chance that a neuron is off changes with its output, over the outputs' deviation
AGREE, AGREE_LATE = 0.9, 0.8  # of a column's zeros, and of the rest, on their sides of the plane; if nothing is new


def blind_columns(span: RowSpace, planes: Tensor, seed: int) -> Columns:
    """Columns of `span` that are one image's own, at most r; none where there are too many images for the neurons.

    Args:
        span: of rank r. planes: (o, q), each neuron's output before the ReLU as a function of an image's coordinates.
        seed: of the starts.
    """
    rank = span.left.shape[1]
    pool = columns_of(span.left.new_zeros(0, rank), span)
    if rank == 1:  # one image: there is nothing to part
        return columns_of(torch.ones(1, 1, dtype=span.left.dtype), span)
    if NEURONS * rank > len(span.left):
        return pool
    noise = span.noise_std * (1 / span.values).norm()
    live = span.left.norm(dim=1) > max(WITHIN * noise, HARD * span.left.norm(dim=1).max())  # on for some image
    if live.sum() < rank:
        return pool
    part, rng, idle = replace(span, left=span.left[live]), generator(seed, "blind", rank), 0
    pool = columns_of(pool.mix, part)
    while len(pool) < rank and idle < PATIENCE:
        sides, start = _free(part, planes[live], pool)
        drawn = torch.randn(min(STARTS, 2 * start.numel() + 2), start.numel(), generator=rng, dtype=start.dtype)
        drawn *= (drawn @ start).sign()[:, None]  # an image's last entry is 1, not −1
        found = polished(columns_of(_in_turns(part.left, sides, drawn, STEPS * 2**idle), part), part)
        new = found.at(_parted(found, sides) > (AGREE_LATE if idle else AGREE))
        before, pool = len(pool), reduced(sparsest(pool + new), part)
        idle = 0 if len(pool) > before else idle + 1
    return columns_of(pool.mix, span)


def _free(span: RowSpace, planes: Tensor, pool: Columns) -> tuple[Tensor, Tensor]:
    """(o, k), orthonormal, the outputs that images orthogonal to the pool's columns can give, and (k,), the last entry
    of [image | 1] as a function of the same coordinates.
    """
    rules = span.rules(pool.mix)
    free = torch.linalg.svd(rules, full_matrices=True)[2][len(pool) :].T if len(pool) else torch.eye(rules.shape[1])
    free = free.to(planes)
    sides, values, turned = torch.linalg.svd(planes @ free, full_matrices=False)
    return sides, turned @ (span.right[-1] @ free) / values.clamp_min(1e-300)


def _in_turns(left: Tensor, sides: Tensor, start: Tensor, steps: int) -> Tensor:
    """Combinations (m, r) from coordinates (m, k) of `sides`: the least squares fit of the signs that the errors
    suggest, then the errors made small where that fit says off, by reweighted least squares.
    """
    outputs, size = start @ sides.T, torch.ones(len(start), len(left), dtype=left.dtype)
    mix = F.normalize(torch.randn(len(start), left.shape[1], generator=generator(0, "mix"), dtype=left.dtype), dim=1)
    eye = torch.eye(left.shape[1], dtype=left.dtype)
    for step in range(-1, steps + LAST):
        if step >= 0:
            size = (mix @ left.T).abs()
            size /= size.square().mean(1, keepdim=True).sqrt().clamp_min(1e-300)
            outputs = ((1 - 2 * torch.exp(-((size / NEAR) ** 2))) @ sides) @ sides.T
        outputs /= outputs.std(1, keepdim=True).clamp_min(1e-300)
        soft = SOFT * (HARD / SOFT) ** (max(0, step - steps + 1) / LAST)
        weight = torch.sigmoid(-STEEP * outputs) / (size.square() + soft**2).sqrt()
        squares = (left.T * weight[:, None]) @ left
        trace = squares.diagonal(dim1=1, dim2=2).mean(1)
        factor = torch.linalg.cholesky(squares + 1e-13 * trace[:, None, None] * eye)
        for _ in range(2 if step >= 0 else 6):  # inverse iteration towards the least direction
            mix = F.normalize(torch.cholesky_solve(mix[..., None], factor)[..., 0], dim=1)
    return mix


def _parted(columns: Columns, sides: Tensor) -> Tensor:
    """(m,) how well a plane parts each column's zeros from the rest: the share on its side of the worse of the two."""
    zero = columns.zero
    outputs = (torch.where(zero, -1.0, 1.0).to(sides) @ sides) @ sides.T
    shares = [((outputs < 0) == zero).logical_and(kind).sum(1) / kind.sum(1).clamp_min(1) for kind in (zero, ~zero)]
    return torch.minimum(*shares)
