"""What tests of attacks share: a network's weights and gradient as vectors, one message of a client as the server sees
it and as an inversion reads it, how near pictures are, fewer candidates.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from dpfl_audit.attacks.base import Knowledge, PublicFacts, Seen, View
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.dataset import Dataset
from dpfl_audit.defenses.data.vocabulary import Vocabulary, vocabulary_of
from dpfl_audit.defenses.engine import looped
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining, batch_order
from dpfl_audit.defenses.wire import Kind
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F


def flat(module: nn.Module) -> Tensor:
    """Its weights, (d,)."""
    return Layout.of(module).join({name: p.detach() for name, p in module.named_parameters()})


def gradient(module: nn.Module, weights: Tensor, images: Tensor, labels: Tensor, graph: bool = False) -> Tensor:
    """Of the mean cross-entropy at these weights, (d,). graph: it can be differentiated again."""
    named = {name: w.clone().requires_grad_() for name, w in Layout.of(module).split(weights).items()}
    loss = F.cross_entropy(torch.func.functional_call(module, named, (images,)), labels)
    return Layout.of(module).join(dict(zip(named, torch.autograd.grad(loss, list(named.values()), create_graph=graph))))


def target_of(
    module: nn.Module, images: Tensor, labels: Tensor, noise_std: float = 0.0, clip: float | None = None, key: str = "t"
) -> Target:
    """Of the mean gradient at the network's own weights, cut to `clip` times its norm, then noised."""
    sent = gradient(module, flat(module), images, labels)
    bound = None if clip is None else clip * float(sent.norm())
    noise = torch.randn(len(sent), generator=torch.Generator().manual_seed(9), dtype=sent.dtype)
    sent = sent * (1.0 if clip is None else clip) + noise_std * noise
    return Target(key, flat(module), sent, labels, len(images), bound, noise_std=noise_std)


def client_sends(
    module: nn.Module,
    training: LocalTraining,
    records: tuple[Tensor, Tensor],
    rows: Tensor,
    share: Kind = "update",
    at: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What the client who has these rows of the records really sends, by the engine of `audit train`, and its batches
    (steps, batch). It begins at the network's own weights or `at`.
    """
    layout, start = Layout.of(module), flat(module) if at is None else at
    batches = batch_order(training, share, rows, 0, lambda epoch: torch.Generator().manual_seed(100 + epoch))
    job = LocalJob(module, layout, training, start, *records, batches, share, training.lr, num_examples=len(rows))
    return looped([job])[0].value, batches


def facts_of(training: LocalTraining, share: str = "update", noise_std: float | None = 0.0, **more: Any) -> PublicFacts:
    """What everybody knows of such a client's training."""
    own = {field.name for field in fields(PublicFacts)} & {field.name for field in fields(LocalTraining)}
    told = {name: getattr(training, name) for name in own}
    return PublicFacts(scheme="fedavg", share=share, noise_std=noise_std, **{**told, **more})


def view_of(
    module: nn.Module,
    value: Tensor,
    facts: PublicFacts,
    count: int,
    shape: tuple[int, ...],
    classes: int,
    at: Tensor | None = None,
    **more: Any,
) -> View:
    """The server's, of one client "a": the model "w", at the network's own weights or `at`, and the client's "u"."""
    weights = flat(module) if at is None else at
    down = Seen("w", 0, "server", ("a",), "weights", 0, lambda: weights, True)
    up = Seen("u", 0, "a", ("server",), facts.share, count, lambda: value, False)
    return View("server", (down, up), module, Layout.of(module), facts, shape, classes, **more)


def transformer(data: Dataset, **options: Any) -> tuple[nn.Module, Vocabulary]:
    """A small one for the texts of a data set, and their words."""
    words = vocabulary_of(data.description)
    about = {"input_shape": data.input_shape, "classes": data.classes, "mean": (), "std": (), "seed": 1}
    return models.build("transformer", **{**about, "vocabulary": len(words), **options}), words


NOTHING = Knowledge({}, torch.zeros(0), torch.zeros(0))


def knowing(**labels: Tensor) -> Knowledge:
    """What an attacker knows who has the labels of these messages and nothing else."""
    return replace(NOTHING, labels=labels)


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
