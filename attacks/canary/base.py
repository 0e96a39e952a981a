"""What a canary is: a record in a client's training, or a client's whole update. All of it follows from a seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from ...defenses.local import LocalJob


class Canary(Protocol):
    """A record canary."""

    @property
    def name(self) -> str: ...

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        """`job` with the canary as record number `row` of its data, in a copy: the job's own data do not change.

        classes: number of labels, 0 for regression.

        Raises:
            ValueError: the job does not allow this canary, in one sentence.
        """
        ...


class UpdateCanary(Protocol):
    """A client canary: what a client hands to its steps instead of what it trained."""

    @property
    def name(self) -> str: ...

    def update(self, dim: int, norm: float, order: int, seed: int) -> Tensor:
        """The update (dim,), of the given L1 or L2 norm if it has one; the same for a seed, so nobody stores it."""
        ...


def with_record(job: LocalJob, row: int, record: Tensor | None, target: Tensor | float | int) -> LocalJob:
    """`job` with another record `row`, in a copy of its data. record: (*shape) or None to keep the input."""
    inputs, targets = job.inputs.clone(), job.targets.clone()
    if record is not None:
        inputs[row] = record.to(inputs.dtype)
    targets[row] = torch.as_tensor(target).to(targets.dtype)
    return replace(job, inputs=inputs, targets=targets)


def another_target(job: LocalJob, row: int, classes: int, rng: torch.Generator) -> Tensor:
    """A class other than the record's own, at random; in regression the target furthest from it among the client's. Of
    next words, which are targets by place, those that are ignored stay so.
    """
    if classes > 1:
        shift, own = int(torch.randint(1, classes, (1,), generator=rng)), job.targets[row]
        return torch.where(own < 0, own, (own + shift) % classes)
    return job.targets[(job.targets - job.targets[row]).abs().argmax()]


def table_of_words(job: LocalJob) -> nn.Embedding | None:
    """The embedding that reads a text's words, the network's first; None of records that are no texts."""
    if job.inputs.is_floating_point():
        return None
    return next((part for part in job.module.modules() if isinstance(part, nn.Embedding)), None)
