"""Membership from captured uploads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ..base import Knowledge, MembershipScores, Part, Progress, PublicFacts, Seen, View
from ..cost import CALL, forward_operations
from ..inversion.read.clipped_weights import MADE_LONG, clips_weights
from .captured import MIN_REFERENCES, descent, fedmia, gradient_difference, gradient_sum, local_model
from .common import (
    CANDIDATES,
    among,
    check_candidates,
    global_models,
    losses,
    others_of,
    own_value,
    report_progress,
    sees_start,
)
from .products import cosines, norms, products
from .projection import projection_residuals, span_operations

Statistic = Literal["cosine", "gradient-difference", "local-loss", "loss-trajectory", "fedmia", "projection"]
PASSES = {  # over a candidate
    "cosine": 6,
    "gradient-difference": 6,
    "fedmia": 6,
    "local-loss": 1,
    "loss-trajectory": 1,
    "projection": 3,  # in double precision, once a round
}


@dataclass(frozen=True)
class CapturedMembership:
    """Whose records a captured message carries. For every upload of a sender, with g_x the candidate's gradient at the
    round's global model and v the descent direction of the message (`captured.descent`):

    statistic: cosine of g_x and v | gradient-difference: 2⟨g_x, v⟩ − ‖g_x‖² with v scaled to the sum of the sender's
      gradients (plain SGD only) | fedmia: how far the cosine lies above that with the other clients' messages of the
      round | local-loss: −loss of the sender's own model after local training (updates or weights) | loss-trajectory:
      −loss of the global models, averaged over rounds; about the whole federation, so no sender | projection: minus the
      share of the record's inputs to linear layers outside of the message's span (`projection.py`).

    All candidates' inner products with a message come from one forward-mode pass. Norms need no gradients in chains of
    linear layers; in other networks gradients are formed for them, many records at a time.
    """

    statistic: Statistic = "cosine"

    def __post_init__(self) -> None:
        among("statistic", self.statistic, get_args(Statistic))

    @property
    def name(self) -> str:
        return f"membership-{self.statistic}"

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One part a sender; one in all for the loss trajectory.

        Raises:
            ValueError: there are no candidates, or the observer sees no message that gives this statistic.
        """
        check_candidates(view, knowledge)
        forward = forward_operations(view.module, view.input_shape)
        one = CALL + PASSES[self.statistic] * len(knowledge.candidate_ids) * forward
        if self.statistic == "loss-trajectory":
            models = global_models(view)
            return [Part("global-models", len(models) * one, tuple(models))]
        usable = self._usable(view)
        work = dict.fromkeys((m.id for m in usable), one)
        if self.statistic == "projection":
            in_round = Counter(m.round for m in usable)
            work = {m.id: one // in_round[m.round] + span_operations(view) for m in usable}
        by_sender: dict[str, list[Seen]] = defaultdict(list)
        for message in usable:
            by_sender[message.sender].append(message)
        return [
            Part(messages[0].id, sum(work[m.id] for m in messages), tuple(messages), self._shared(view, sender))
            for sender, messages in by_sender.items()
        ]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> MembershipScores:
        del seed
        messages: Sequence[Seen] = part.content
        total = torch.zeros(len(knowledge.candidate_ids), dtype=torch.float64)
        for done, message in enumerate(messages, 1):
            total += self._of(message, view, knowledge)
            report_progress(progress, done, len(messages))
        sender = "" if self.statistic == "loss-trajectory" else messages[0].sender
        what = "global models" if self.statistic == "loss-trajectory" else "rounds" if len(messages) > 1 else "round"
        note = f"mean over {len(messages)} {what}"
        return MembershipScores(
            self.name,
            view.observer,
            "all-rounds",
            sender,
            knowledge.candidate_ids,
            total / len(messages),
            self._assumed(messages, view.facts),
            note,
        )

    def _shared(self, view: View, sender: str) -> str:
        """FedMIA compares cosines, which are kept (`products.cosines`)."""
        return f"cosines of {sender} seen by {view.observer}" if self.statistic in ("cosine", "fedmia") else ""

    def _of(self, message: Seen, view: View, knowledge: Knowledge) -> Tensor:
        """The statistic (n,) of one message."""
        if self.statistic == "loss-trajectory":
            return -losses(view, knowledge, message, message.load())
        seen_start = sees_start(view, message)
        if self.statistic == "local-loss":
            return -losses(
                view,
                knowledge,
                message,
                local_model(
                    message, message.load(), view.global_model(message.round) if seen_start else None, view.facts
                ),
            )
        match self.statistic:
            case "cosine":
                return cosines(view, knowledge, message)
            case "gradient-difference":
                direction = descent(message, message.load(), view.global_model(message.round), view.facts)
                total = gradient_sum(message, direction, view.facts)
                return gradient_difference(
                    products(view, knowledge, message.round, total), norms(view, knowledge, message.round)
                )
            case "projection":
                return -projection_residuals(view, knowledge, message)
            case _:
                others = torch.stack([cosines(view, knowledge, m) for m in others_of(view, message)])
                return fedmia(cosines(view, knowledge, message), others)

    def _usable(self, view: View) -> list[Seen]:
        uploads = sorted((m for m in view.messages if own_value(m, view)), key=lambda m: m.round)
        if not uploads:
            raise ValueError(
                f"the observer {view.observer!r} sees no uploads, which {self.name!r} is about; membership-loss and"
                " membership-loss-trajectory need the global models only"
            )
        if self.statistic == "local-loss":
            usable = [m for m in uploads if m.kind == "weights" or (m.kind == "update" and sees_start(view, m))]
            wanted = "weights, or updates of a global model it saw (a gradient does not give its sender's model)"
        else:
            usable = [m for m in uploads if sees_start(view, m)]
            wanted = "messages of rounds whose global model it saw (a candidate has a gradient only at known weights)"
            if self.statistic == "fedmia" and usable:
                usable = [m for m in usable if len(others_of(view, m)) >= MIN_REFERENCES]
                wanted = (
                    f"rounds with messages of at least {MIN_REFERENCES + 1} clients, of which one is attacked and the"
                    " others show what non-members look like ([capture] clients says whose messages are kept)"
                )
        if not usable:
            raise ValueError(f"{self.name!r} needs {wanted}; none was captured for the observer {view.observer!r}")
        if self.statistic == "gradient-difference":
            for message in usable:
                gradient_sum(message, torch.zeros(1), view.facts)
        return usable

    def _assumed(self, messages: Sequence[Seen], facts: PublicFacts) -> tuple[str, ...]:
        assumed = [CANDIDATES]
        kinds = {m.kind for m in messages}
        if self.statistic in ("cosine", "gradient-difference", "fedmia", "projection"):
            assumed.append("network in evaluation mode")
            if kinds - {"gradient"}:
                assumed.append(
                    "the weights hardly move during local training: an update is read as the gradient's direction at"
                    " the global model"
                )
        if "weights" in kinds and clips_weights(facts) and self.statistic != "loss-trajectory":
            assumed.append(MADE_LONG)
        if self.statistic == "gradient-difference":
            known = "the update's scale: lr, local steps and the sender's record count known"
            assumed.append(known if clips_weights(facts) and "weights" in kinds else f"{known}, no clip active")
        if self.statistic == "fedmia":
            assumed.append("no record is held by two clients")
        return tuple(assumed)
