"""Canary records that need no computation."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...defenses.local import LocalJob
from ...defenses.randomness import generator
from .base import another_target, with_record


@dataclass(frozen=True)
class Existing:
    """The client's own record as it is: what an ordinary person in the data has at stake. Nothing is replaced."""

    name: str = "existing"

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        return job


@dataclass(frozen=True)
class Mislabelled:
    """The client's own record under a wrong label: a large loss that no other record shares (the usual black-box
    canary, e.g. Steinke et al., arXiv:2305.08846).
    """

    name: str = "mislabelled"

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        rng = generator(seed, "canary label", row)
        return with_record(job, row, None, another_target(job, row, classes, rng))


@dataclass(frozen=True)
class Blank:
    """An empty record (all inputs 0: a black image) under a random label."""

    name: str = "blank"

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        rng = generator(seed, "canary label", row)
        return with_record(job, row, torch.zeros_like(job.inputs[row]), another_target(job, row, classes, rng))


@dataclass(frozen=True)
class Filled:
    """A record with every input at the largest value any of the client's has (a white image) under a random label: it
    speaks where the client's own records are all silent.
    """

    name: str = "filled"

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        rng = generator(seed, "canary label", row)
        return with_record(
            job, row, torch.full_like(job.inputs[row], float(job.inputs.max())), another_target(job, row, classes, rng)
        )
