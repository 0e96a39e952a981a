"""What tests of attacks share: a network's weights and gradient as vectors, how near pictures are, fewer candidates."""

from __future__ import annotations

from dataclasses import replace

import torch
from dpfl_audit.attacks.base import Knowledge
from dpfl_audit.defenses.layout import Layout
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F


def flat(module: nn.Module) -> Tensor:
    """Its weights, (d,)."""
    return Layout.of(module).join({name: p.detach() for name, p in module.named_parameters()})


def gradient(module: nn.Module, weights: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """Of the mean cross-entropy at these weights, (d,)."""
    named = {name: w.clone().requires_grad_() for name, w in Layout.of(module).split(weights).items()}
    loss = F.cross_entropy(torch.func.functional_call(module, named, (images,)), labels)
    return Layout.of(module).join(dict(zip(named, torch.autograd.grad(loss, list(named.values())))))


def decibels(found: Tensor, images: Tensor) -> Tensor:
    """The PSNR (n,) of images after the best matching, peak 1, at most 100."""
    errors = (found[:, None] - images[None]).square().flatten(2).mean(2).clamp_min(1e-10)
    return -10 * errors[linear_sum_assignment(errors.numpy())].log10()


def psnr(found: Tensor, images: Tensor) -> float:
    """Their mean."""
    return float(decibels(found, images).mean())


def with_candidates(known: Knowledge, rows: slice | Tensor) -> Knowledge:
    """The same attacker, asked about `rows` of its candidates, in their order."""
    fields = ("candidate_inputs", "candidate_targets", "candidate_ids")
    return replace(known, **{field: getattr(known, field)[rows] for field in fields})
