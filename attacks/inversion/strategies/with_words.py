"""Searching a table's rows with words that are shares: of each column of words the features add up to 1.

What is searched stays in [0, 1] a feature; what the network is asked about is each column's features over their sum, as
TabLeak's softmax (Vero et al. 2023, arXiv:2210.01785, section 4) does with logits. Without it a search has 113 free
numbers of a row of Adult, and with it 14.
"""

from __future__ import annotations

from torch import Tensor

from ..exact.words import Words
from ..match.optimise import Objective

LEAST = 1e-6  # of a column's sum


def as_shares(images: Tensor, words: Words) -> Tensor:
    """(…, features, 1, 1), each column of words over its sum; a column of zeros is shared evenly.

    >>> import torch
    >>> shares = as_shares(torch.tensor([0.5, 0.3, 0.1]).view(1, 3, 1, 1), [(1, 2)])
    >>> [round(share, 3) for share in shares.flatten().tolist()]
    [0.5, 0.75, 0.25]
    """
    shares = images.clone()
    for first, width in words:
        own = images[..., first : first + width, :, :] + LEAST / width
        shares[..., first : first + width, :, :] = own / own.sum(-3, keepdim=True)
    return shares


def with_words(objective: Objective, words: Words) -> Objective:
    """The objective of `as_shares` of images (T, n, features, 1, 1)."""
    if not words:
        return objective

    def of_shares(images: Tensor) -> tuple[Tensor, Tensor]:
        shares = as_shares(images, words)
        value, slope = objective(shares)
        for first, width in words:
            part = slice(first, first + width)
            own = slope[..., part, :, :]
            total = images[..., part, :, :].sum(-3, keepdim=True) + LEAST
            slope[..., part, :, :] = (own - (own * shares[..., part, :, :]).sum(-3, keepdim=True)) / total
        return value, slope

    return of_shares
