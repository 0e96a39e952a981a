"""Trainings watched step by step: what the optimiser is given, and whether the canary's record was in the batch."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..owners_code import owners
from ..tensors import dense_tensor, real_numbers
from .planted import PlantedDataset, training_on

Private = Callable[[torch.optim.Optimizer], bool]


@dataclass(frozen=True, eq=False)
class Transcript:
    """One training. vector: (steps · d,) of what went into each step, gradients with their noise. sizes: of the
    parameters. drawn: (steps,), whether the canary's place was. start: the parameters before the first step, None where
    train tells what it releases by itself.
    """

    vector: Tensor
    sizes: tuple[int, ...]
    drawn: NDArray[np.bool_]
    start: Tensor | None


@dataclass(eq=False)
class Trainings:
    """A user's training in two worlds. `transcripts` remembers of each call what beside the vector is needed.

    train: a data set → anything; or what it releases, a vector a step, (steps, d). world: whether the canary is there.
    private: as of `watched`. taken: of trainings whose steps are made of batches, how many records those had in all.
    """

    train: Callable[[PlantedDataset], Any]
    world: Callable[[bool], PlantedDataset]
    private: Private | None = None
    drawn: dict[tuple[bool, int], NDArray[np.bool_]] = field(default_factory=dict)
    first: Transcript | None = None
    most: int = 0  # how often a batch had the record
    taken: list[int] = field(default_factory=list)

    def __call__(self, present: bool, seed: int) -> tuple[Tensor, int]:
        """As `Calls` wants it: the vector, and the number of steps."""
        dataset = self.world(present)
        made = watched(self.train, dataset, seed, self.private)
        self.most = max(self.most, dataset.most)
        if self.first is None:
            self.first = made
        elif self.first.start is not None and made.start is not None and not torch.equal(self.first.start, made.start):
            raise ValueError(
                "train starts from other weights with another seed; start it from the same ones (a copy of one model),"
                " which the attacker knows"
            )
        self.drawn[present, seed] = made.drawn
        if made.start is not None or dataset.drawn == made.drawn.sum():
            self.taken.append(dataset.taken)
        return made.vector, len(made.drawn)


def watched(
    train: Callable[[PlantedDataset], Any], dataset: PlantedDataset, seed: int, private: Private | None = None
) -> Transcript:
    """One training, with all of torch's, NumPy's and Python's own randomness from `seed`.

    Args:
        private: whether an optimiser's steps are those that are claimed of; None where all are.

    Raises:
        ValueError: it raises something, or nothing is to be seen of it: no step of a torch optimiser and nothing
            returned, or batches that worker processes took.
    """
    steps: list[list[Tensor]] = []
    drawn: list[bool] = []
    start: list[Tensor] = []

    def step(optimiser: torch.optim.Optimizer, *_: object) -> None:
        if private is not None and not private(optimiser):
            return
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        if not start:
            start.append(torch.cat([p.detach().reshape(-1) for p in parameters]))
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        steps.append([real_numbers(gradient, "a gradient", torch.float64).reshape(-1) for gradient in gradients])
        drawn.append(dataset.drawn > before[-1])
        before.append(dataset.drawn)

    before = [0]
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    handle = register_optimizer_step_pre_hook(step)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same thousands of times
            with training_on([dataset]), owners("train"):
                given = train(dataset)
    finally:
        handle.remove()
    told = _told(given)
    if told is not None:
        if told.released.ndim != 2 or len(told.released) != len(told.drawn):
            raise ValueError(
                f"train told of {len(told.drawn)} steps and of releases of shape {tuple(told.released.shape)}; expected"
                " (steps, d)"
            )
        return Transcript(told.released.reshape(-1), (told.released.shape[1],), told.drawn, None)
    if not steps:
        raise ValueError(
            "train took no step of a torch optimiser, so there is nothing to watch; let it return"
            " dpfl_audit.Steps(released, drawn)"
        )
    if dataset.batches == 0:
        raise ValueError(
            "train took no batch of the data set it was given in this process; take batches by a DataLoader with"
            " num_workers=0, or by dataset.__getitems__(indices)"
        )
    sizes = tuple(len(part) for part in steps[0])
    if any(tuple(len(part) for part in parts) != sizes for parts in steps):
        raise ValueError(
            "train steps optimisers of several sizes, and nothing tells which of them meets records; let it return"
            " dpfl_audit.Steps(released, drawn) of those that do"
        )
    vector = torch.cat([part for parts in steps for part in parts])
    return Transcript(vector, sizes, np.array(drawn), start[0])


@dataclass(frozen=True, eq=False)
class Steps:
    """What a training that uses no torch optimiser tells: released (steps, d), with noise; drawn (steps,), whether the
    place of the canary was drawn.
    """

    released: Tensor
    drawn: Any


def _told(given: Any) -> Steps | None:
    if not isinstance(given, Steps):
        return None
    drawn = dense_tensor(given.drawn, "Steps.drawn").reshape(-1).bool().numpy()
    return replace(given, released=real_numbers(given.released, "Steps.released", torch.float64), drawn=drawn)


@contextmanager
def own_randomness_kept() -> Iterator[None]:
    """The caller's own global randomness goes on afterwards as if nothing had been drawn."""
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(python_state)
