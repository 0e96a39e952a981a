"""How many rounds there are and how noise and learning rate change over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RoundPlan:
    """A round's public factors: what the noise's standard deviation and the learning rate are multiplied by.

    lr_by_step: further factors for the local steps 0, 1, … of this round, () for none.
    """

    noise: float = 1.0
    lr: float = 1.0
    lr_by_step: tuple[float, ...] = ()


History = Mapping[str, Sequence[float]]      # what everybody knows of the rounds before: test_loss, test_accuracy, a value a round


class Schedule(Protocol):
    def plan(self, round: int, history: History) -> RoundPlan | None:
        """The plan of round 0, 1, …, None to stop. It is computed anew from the history each time: nothing is remembered."""
        ...


@dataclass(frozen=True)
class FixedRounds:
    """A fixed number of rounds; the learning rate is multiplied by `lr_decay` every `decay_every` rounds."""

    rounds: int
    lr_decay: float = 1.0
    decay_every: int = 1

    def plan(self, round: int, history: History) -> RoundPlan | None:
        del history
        return RoundPlan(lr=self.lr_decay ** (round // self.decay_every)) if round < self.rounds else None
