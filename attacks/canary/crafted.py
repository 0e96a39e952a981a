"""A canary record for the largest possible move of the update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call

from ...defenses.local import LocalJob
from ...defenses.losses import loss_of
from ...defenses.randomness import generator
from .base import another_target, table_of_words, with_record


@dataclass(frozen=True)
class CraftedRecord:
    """A record from gradient ascent on its effect on the client's mean gradient G + g_x/n at the round's start.

    aim: "direction" maximises the turn ‖(G + g_x/n)/‖G + g_x/n‖ − G/‖G‖‖, which counts where the value is clipped;
      "length" maximises ‖g_x‖, for values without a clip.
    steps: of sign ascent. size: of a step, as a share of the range of the client's own inputs (and 0); the record stays
      within that range.
    The ascent uses the broadcast model, the architecture and the client's own records, which an auditor has, and
    nothing of the noise. It is a surrogate of the influence on a whole local training (the audit then measures that),
    so it need not give the best record there is; compare arXiv:2412.01756, arXiv:2507.15836.
    """

    aim: Literal["direction", "length"] = "direction"
    steps: int = 20
    size: float = 0.1

    @property
    def name(self) -> str:
        return f"crafted-{self.aim}"

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        if table_of_words(job) is not None:
            raise ValueError("a text is no record to ascend in, its words being whole numbers; plant new words")
        rng = generator(seed, "canary label", row)
        target = another_target(job, row, classes, rng)
        inputs = job.inputs.to(job.start.dtype)
        others = mean_gradient(job, inputs, job.targets, skip=row).detach()
        low, high = inputs.amin(0).clamp_max(0.0), inputs.amax(0).clamp_min(0.0)
        record = low + (high - low) * torch.rand(low.shape, generator=rng).to(low)
        best, most = record, -1.0
        for _ in range(self.steps):
            record = record.detach().requires_grad_()
            own = mean_gradient(job, record[None], target[None], create_graph=True) / len(inputs)
            influence = own.norm() if self.aim == "length" else (_unit(others + own) - _unit(others)).norm()
            if influence.item() > most:
                best, most = record.detach(), influence.item()
            (slope,) = torch.autograd.grad(influence, record)
            record = (record.detach() + self.size * (high - low) * slope.sign()).clamp(low, high)
        return with_record(job, row, best, target)


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm().clamp_min(torch.finfo(vector.dtype).tiny)


def mean_gradient(
    job: LocalJob, inputs: Tensor, targets: Tensor, skip: int | None = None, create_graph: bool = False
) -> Tensor:
    """The mean gradient (d,) at the round's start.

    Args:
        job: whose model, weights and loss. inputs, targets: records (n, …) of it.
        skip: the number of one that is left out of the sum, and counts among n. create_graph: for a gradient of it.
    """
    named = {name: value.clone().requires_grad_() for name, value in job.layout.split(job.start).items()}
    losses = loss_of(job.training.loss).values(functional_call(job.module, named, (inputs,)), targets)
    if skip is not None:
        losses = losses[torch.arange(len(losses)) != skip]
    grads = torch.autograd.grad(losses.sum() / len(inputs), list(named.values()), create_graph=create_graph)
    return job.layout.join(dict(zip(named, grads)))
