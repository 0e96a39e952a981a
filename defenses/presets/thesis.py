"""What the federations of Weng 2025 (THESIS) chapters 3 and 5 share: a cohort a round, a learning rate that decays."""

from __future__ import annotations

from pydantic import Field

from ..participation import Participation, drawn
from ..schedule import FixedRounds
from .base import Parameters, Population


class ThesisParameters(Parameters):
    """The run ends when fewer than `participants` have budget left; Alg. 3.2 prints ≤ m, which would end one with
    everybody in it at once (and lets clients drop out while their loss is *below* the budget: inverted).
    """

    participants: int | None = Field(
        default=None, ge=1, description="m, clients drawn each round; all where it is not given"
    )
    lr_decay: float = Field(default=1.0, gt=0, le=1, description="what the learning rate is multiplied by each round")
    lr_decay_rounds: int | None = Field(
        default=None, ge=0, description="for so many rounds; for all where it is not given"
    )

    def schedule(self, at_most: int | None = None) -> FixedRounds:
        rounds = self.rounds if at_most is None else min(self.rounds, at_most)
        return FixedRounds(rounds, self.lr_decay, decays=self.lr_decay_rounds)

    def participation(self, population: Population) -> Participation:
        return drawn(self.participants, population.clients)
