"""Recordings of trainings in which one thing that is declared is false: what stands as checked must be so.

A world is a training of a few rounds by hand, recorded with a clip and Gaussian noise on every upload as its declared
mechanism. What the sentence about the false thing is called decides what must be proven: "contradicted" proves nothing
finite, "declared" is the owner's word, so that the declared facts are the truth, and "checked" is the tool's own: then
the real ones are.

Nothing here comes from `audit.proven`, or looks at a release.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path

import torch
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.defenses.terms import Adjacency
from torch import Tensor

from .losses import View, epsilon, joined, shifted

LIES = {  # what is false -> the declaration that it is about
    "nothing": "",
    "half the noise": "noise",
    "no noise on a tensor": "noise",
    "another law": "noise",
    "longer values": "norm bound",
    "noise twice": "independence",
}
DELTA = 1e-3


@dataclass(frozen=True)
class Recorded:
    """lie: a key of `LIES`. raw: whether the values before the noise are recorded too."""

    seed: int
    lie: str
    clients: int
    rounds: int
    numbers: int
    clip: float
    std: float
    raw: bool

    def __str__(self) -> str:
        return f"recorded, false: {self.lie}; {self.clients} clients, {self.rounds} rounds, {self.numbers} numbers"


def draw(seed: int) -> Recorded:
    rng = random.Random(f"recorded {seed}")
    clip = rng.uniform(0.3, 2.0)
    return Recorded(
        seed,
        list(LIES)[seed % len(LIES)],
        rng.randint(2, 4),
        rng.randint(2, 6),
        rng.choice((300, 600, 1200)),
        clip,
        clip * rng.uniform(0.5, 4.0),
        rng.random() < 0.8,
    )


def record(c: Recorded, folder: Path) -> None:
    """The training, recorded in `folder`."""
    dice = torch.Generator().manual_seed(c.seed)
    model = {"a": torch.zeros(c.numbers), "b": torch.zeros(c.numbers // 3)}
    mechanism = Gaussian(clip=c.clip, noise_std=c.std, by="client")
    kept: dict[int, Tensor] = {}
    with Recorder(folder, model, mechanism=mechanism) as rec:
        for t in range(c.rounds):
            rec.broadcast(t, model)
            total = {name: torch.zeros_like(value) for name, value in model.items()}
            for client in range(c.clients):
                value, noise = _value(c, dice), _noise(c, dice)
                if c.lie == "noise twice" and client == 0:
                    noise = kept.setdefault(client, noise)
                upload, raw = _tensors(c, value + noise), _tensors(c, value)
                rec.upload(t, client, upload, num_examples=5)
                if c.raw:
                    rec.raw(t, client, raw)
                total = {name: total[name] + part / c.clients for name, part in upload.items()}
            model = {name: model[name] + part for name, part in total.items()}
        rec.broadcast(c.rounds, model)


def _value(c: Recorded, dice: torch.Generator) -> Tensor:
    value = torch.randn(c.numbers + c.numbers // 3, generator=dice)
    return value * (c.clip * (2 if c.lie == "longer values" else 1) * 0.999 / value.norm())


def _noise(c: Recorded, dice: torch.Generator) -> Tensor:
    noise = torch.randn(c.numbers + c.numbers // 3, generator=dice) * c.std
    if c.lie == "half the noise":
        return noise / 2
    if c.lie == "no noise on a tensor":
        noise[c.numbers :] = 0.0
    if c.lie == "another law":
        flat = torch.rand(len(noise), generator=dice).clamp(1e-7, 1 - 1e-7) - 0.5
        return -c.std / sqrt(2) * flat.sign() * torch.log1p(-2 * flat.abs())
    return noise


def _tensors(c: Recorded, vector: Tensor) -> dict[str, Tensor]:
    return {"a": vector[: c.numbers].clone(), "b": vector[c.numbers :].clone()}


def status_of(c: Recorded, folder: Path) -> str:
    """What the tool calls the sentence that is false; "nothing" where none is."""
    declared = {one.what: one.status for one in check_setup(folder)[1].declared}
    return declared[LIES[c.lie]] if c.lie != "nothing" else "nothing"


def truth(c: Recorded, folder: Path, adjacency: Adjacency) -> tuple[float, str]:
    """What whoever sees the uploads learns at least of a client, and what the lie is called."""
    status = status_of(c, folder)
    moved = (1 if adjacency == "zero_out" else 2) * c.clip / c.std
    if status == "contradicted":
        return inf, status
    if status != "checked":
        return epsilon(View(joined([moved] * c.rounds)), DELTA), status
    return epsilon(_real(c, moved), DELTA), status


def _real(c: Recorded, moved: float) -> View:
    if c.lie in ("noise twice", "no noise on a tensor"):
        return View(inf)
    if c.lie == "another law":
        return View(pairs=((shifted("laplace", sqrt(2) * moved), c.rounds),))
    return View(joined([2 * moved] * c.rounds))
