"""Which words stand in one text, by what attention did with them: the error of a word's query is a sum of the keys
of its own text, few of all (ours).
"""

from __future__ import annotations

import torch
from torch import Tensor

SWEEPS = 10  # of reweighting, each of which counts a key more that the last one used more
POWER = 1.5  # of what was used: between 1, the least sum of shares, and 2, the fewest keys
RIDGE = 1e-8  # of the keys' mean square
LEAST = 1e-6  # of the largest weight, so that a key may come back


def kin_of(query_errors: Tensor, keys: Tensor, heads: int) -> Tensor:
    """How much each word's query error is made of each key, (k, m), in [0, 1].

    A sum over few keys, the same for all heads, by reweighted least squares (Gorodnitsky, Rao 1997). What a softmax's
    errors count for sums to zero, one more equation for each head.

    Args:
        query_errors: (k, width). keys: (m, width). heads: of attention.
    """
    k, width = query_errors.shape
    errors = query_errors.view(k, heads, width // heads).transpose(0, 1)
    by_head = keys.view(len(keys), heads, width // heads).transpose(0, 1)
    ones = by_head.square().sum(2).mean(1).sqrt()[:, None, None].expand(heads, len(keys), 1)
    by_head, errors = torch.cat([by_head, ones], 2), torch.cat([errors, errors.new_zeros(heads, k, 1)], 2)
    ridge = RIDGE * by_head.square().sum((1, 2)) / by_head.shape[2]
    same = torch.eye(by_head.shape[2], dtype=keys.dtype)
    weights = torch.ones(k, len(keys), dtype=keys.dtype)
    for _ in range(SWEEPS):
        used = torch.zeros_like(weights)
        for own, of, least in zip(errors, by_head, ridge, strict=True):
            products = (of[:, :, None] * of[:, None]).flatten(1)
            gram = (weights @ products).view(k, *same.shape) + least * same
            counts = weights * (torch.linalg.solve(gram, own[..., None])[..., 0] @ of.T)
            used += counts.square() / own.square().sum(1, keepdim=True).clamp_min(1e-300)
        share = used.sqrt()
        weights = (share / share.amax(1, keepdim=True).clamp_min(1e-300)).clamp_min(LEAST) ** POWER
    return weights
