"""Membership from all captured updates of a sender at once: their likelihood ratio under the known noise."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from ..base import Knowledge, MembershipScores, Part, Progress, Seen, View
from ..cost import CALL, forward_operations
from .captured import MIN_REFERENCES, descent, gradient_sum
from .common import CANDIDATES, check_candidates, others_of, own_value, report_progress, scores_of, sees_start
from .gradients import mean_gradient
from .products import norms, products

PASSES = 9  # over a candidate: a product, a norm and a share in the mean gradient
_NORMAL = 1.4826  # of a normal distribution: standard deviation over median absolute deviation


@dataclass(frozen=True)
class SequenceMembership:
    """ln P[the sender's messages | x among its records] − ln P[the same | x not among them], the sum over rounds.

    A message with known noise, scaled to the sum of its sender's gradients, is N(Σ g, s²) there. Taking away what the
    sender's other records are expected to add leaves D = ⟨g_x, sum − expected⟩ with mean κ‖g_x‖² where x took part and
    0 where it did not, and a variance of ‖g_x‖²(s² + b²): s of the noise, which is public, and b of the other records,
    measured over all candidates. A round then adds (κD − κ²‖g_x‖²/2)/(s² + b²), so that rounds in which the record
    speaks loudly count for more, which an average of cosines forgets. κ: what clipping leaves of a gradient.

    What the other records add is read off the other clients' messages of the round where there are four or more, else
    off the candidates' mean gradient. The signal of one round is small under noise of a useful size; that of T rounds
    is √T times as large over the noise (compare SeMI*, Michel, Basu and Kaufmann, arXiv:2602.16596, which is optimal
    for means).
    """

    @property
    def name(self) -> str:
        return "membership-sequence"

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One part a sender.

        Raises:
            ValueError: there are no candidates, the observer sees no upload with the model it began from, or an upload
                does not give the sum of its sender's gradients.
        """
        check_candidates(view, knowledge)
        usable = sorted((m for m in view.messages if own_value(m, view) and sees_start(view, m)), key=lambda m: m.round)
        if not usable:
            raise ValueError(
                f"{self.name!r} needs uploads of rounds whose global model was seen too, and the observer"
                f" {view.observer!r} has none"
            )
        by_sender: dict[str, list[Seen]] = defaultdict(list)
        for message in usable:
            gradient_sum(message, torch.zeros(1), view.facts)
            by_sender[message.sender].append(message)
        one = CALL + PASSES * len(knowledge.candidate_ids) * forward_operations(view.module, view.input_shape)
        return [Part(sent[0].id, one * len(sent), tuple(sent)) for sent in by_sender.values()]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> MembershipScores:
        """The scores of one part's candidates.

        Args:
            part: of `parts`. view, knowledge, seed, progress: as for `Attack.run_part`; there is nothing random.
        """
        del seed
        total = torch.zeros(len(knowledge.candidate_ids), dtype=torch.float64)
        for done, message in enumerate(part.content, 1):
            total += _evidence(message, view, knowledge)
            report_progress(progress, done, len(part.content))
        noise = view.facts.noise_std
        assumed = (
            CANDIDATES,
            "network in evaluation mode",
            "the update's scale: lr, local steps and the sender's record count known",
            "the size of the noise known" if noise is not None else "the size of the noise not known",
        )
        note = f"sum over {len(part.content)} rounds"
        return scores_of(self.name, view, knowledge, "all-rounds", part.content[0].sender, total, assumed, note)


def _evidence(message: Seen, view: View, knowledge: Knowledge) -> Tensor:
    """The log-likelihood ratio (n,) of one message."""
    start, facts = view.global_model(message.round), view.facts

    def summed(one: Seen) -> Tensor:
        return gradient_sum(one, descent(one, one.load(), start), facts)

    scale = float(gradient_sum(message, torch.ones(1), facts))  # of the sum over the message
    squares = norms(view, knowledge, message.round).double()
    mean = mean_gradient(view.module, start, knowledge.candidate_inputs, knowledge.candidate_targets, facts.loss)
    own, others = summed(message), others_of(view, message)
    noise = (facts.noise_std or 0.0) * scale
    clip = facts.clip_norm if facts.clip_order == 2 and not facts.per_layer else None
    kept = _kept(own, noise, mean, squares, message.num_records, clip, scale)
    if len(others) >= MIN_REFERENCES:
        expected, spread = torch.stack([summed(other) for other in others]).mean(0), noise * sqrt(1 + 1 / len(others))
    else:
        expected, spread = kept * message.num_records * mean, noise
    apart = products(view, knowledge, message.round, own - expected).double()
    return log_ratio(apart, squares, spread, kept)


def _kept(
    own: Tensor, noise: float, mean: Tensor, squares: Tensor, records: int, clip: float | None, scale: float
) -> float:
    """κ: how much of a record's gradient a message holds, by how long it may be over how long the sum of so many
    records' gradients is expected to be: ‖Σ g‖² ≈ n²‖ḡ‖² + n(mean ‖g‖² − ‖ḡ‖²). It may be as long as the clip, or,
    where there is none, as it is without its noise, whose own length is known to 2 in √(d/2).
    """
    middle = float(mean.double().square().sum())
    expected = records**2 * middle + records * max(float(squares.mean()) - middle, 0.0)
    seen = float(own.double().square().sum()) - (len(own) - 2 * sqrt(2 * len(own))) * noise**2
    length = clip * scale if clip is not None else sqrt(max(seen, 0.0))
    return min(1.0, length / sqrt(expected)) if expected > 0 else 1.0


def log_ratio(apart: Tensor, squares: Tensor, noise: float, kept: float) -> Tensor:
    """(κD − κ²‖g‖²/2)/(s² + b²) (n,): the log-likelihood ratio of N(κ‖g‖², ‖g‖²(s² + b²)) against N(0, same).

    b² is what the candidates' D/‖g‖ spread beyond the noise, by their median absolute deviation: most of them are no
    members of any one sender.

    Args:
        apart: D, (n,). squares: ‖g‖², (n,). noise: s, of the message minus what is expected. kept: κ.

    >>> log_ratio(torch.tensor([4.0, 0.0]), torch.tensor([4.0, 4.0]), noise=2.0, kept=1.0).tolist()
    [0.5, -0.5]
    """
    along = apart / squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
    seen = (_NORMAL * float((along - along.median()).abs().median())) ** 2
    variance = max(noise**2, seen, 1e-30)
    return (kept * apart - kept**2 * squares / 2) / variance
