"""The loss threshold: the simplest membership attack, and the baseline of all others."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..base import Knowledge, MembershipScores, Part, Progress, View
from ..cost import CALL, forward_operations
from .common import CANDIDATES, check_candidates, global_models, losses, report_progress


@dataclass(frozen=True)
class LossThreshold:
    """Members have a lower loss: the score is −loss of the final global model (Yeom et al. 2018, arXiv:1709.01604).
    Needs nothing but that model.
    """

    name: str = field(default="membership-loss", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One part. Raises ValueError where there are no candidates or the observer never sees the global model."""
        check_candidates(view, knowledge)
        work = CALL + len(knowledge.candidate_ids) * forward_operations(view.module, view.input_shape)
        return [Part("final-model", work, global_models(view)[-1])]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> MembershipScores:
        del seed
        scores = -losses(view, knowledge, part.content, part.content.load())
        report_progress(progress, 1, 1)
        return MembershipScores(
            self.name, view.observer, "final-model", "", knowledge.candidate_ids, scores, (CANDIDATES,)
        )
