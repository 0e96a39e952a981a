"""Which words stand in one text, by what attention did with them: the error of a word's query is a sum of the keys
of its own text, few of all (ours).
"""

from __future__ import annotations

import torch
from torch import Tensor

SWEEPS = 8  # of reweighting, each of which counts a key more that the last one used more
RIDGE = 1e-8  # of the keys' mean square


def kin_of(query_errors: Tensor, keys: Tensor, heads: int) -> Tensor:
    """How much each word's query error is made of each word's key, (k, k), symmetric, in [0, 1].

    A sum over few keys, the same for all heads, by reweighted least squares (Gorodnitsky, Rao 1997).

    Args:
        query_errors: (k, width). keys: (k, width), of the same words. heads: of attention.
    """
    k, width = keys.shape
    errors = query_errors.view(k, heads, width // heads).transpose(0, 1)
    by_head = keys.view(k, heads, width // heads).transpose(0, 1)
    ridge = RIDGE * by_head.square().sum((1, 2)) / by_head.shape[2]
    same = torch.eye(by_head.shape[2], dtype=keys.dtype)
    weights = torch.ones(k, k, dtype=keys.dtype)
    for _ in range(SWEEPS):
        used = torch.zeros_like(weights)
        for own, of, least in zip(errors, by_head, ridge, strict=True):
            gram = torch.einsum("ts,sa,sb->tab", weights, of, of) + least * same
            used += (weights * torch.linalg.solve(gram, own[..., None])[..., 0].matmul(of.T)).square()
        share = used.sqrt()
        weights = (share / share.amax(1, keepdim=True).clamp_min(1e-300)).clamp_min(1e-6)
    return (weights + weights.T) / 2
