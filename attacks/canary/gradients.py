"""A canary gradient, for mechanisms that clip every record's gradient by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ...defenses.local import LocalJob
from ...defenses.randomness import generator


@dataclass(frozen=True)
class DiracGradient:
    """A record whose gradient is the clip norm on one coordinate and 0 elsewhere (Nasr et al., arXiv:2302.07956); where
    tensors are clipped apart, on one coordinate of each.

    The worst record there can be under per-record clipping: whatever else is in the data, it moves the sum by the clip
    norm. Whether a real record has such a gradient does not matter to the guarantee, which is about any vector of that
    norm. The coordinate follows from the seed.
    """

    name: str = "dirac-gradient"

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        rule = job.training.per_example
        if rule is None:
            raise ValueError(
                "a canary gradient needs per-record clipping, which this scheme does not have; plant a record instead"
            )
        gradient = torch.zeros(job.layout.dim)
        rng = generator(seed, "canary coordinate")
        for part in rule.parts(job.layout):
            gradient[part.start + int(torch.randint(part.stop - part.start, (1,), generator=rng))] = rule.clip_norm
        return replace(job, planted=((row, gradient),))
