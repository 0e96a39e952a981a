"""Membership from all captured updates of a sender at once: their likelihood ratio under the known noise."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..base import Knowledge, MembershipScores, Part, Progress, PublicFacts, Seen, View
from ..cost import CALL, forward_operations
from ..inversion.read.clipped_weights import MADE_LONG, clips_weights, longer_than_clip
from .captured import descent, gradient_sum
from .common import CANDIDATES, check_candidates, own_value, report_progress, sees_start
from .gradients import gram, inner_products
from .network import started_with
from .products import once

PASSES = 9  # over a candidate, a round
MOST = 10_000  # candidates: a matrix of their products is held
MISFIT = 0.1  # of a sum's length, by which a message may differ from the sum of gradients beside the noise


@dataclass(frozen=True)
class SequenceMembership:
    """ln P[the sender's messages | x among its records] − ln P[the same | x not among them], of all rounds together.

    A message scaled to the sum of its sender's gradients is N(κ Σ b_x g_x, s²): b_x says whether the candidate x took
    part, s is the known noise and κ what clipping leaves. Its products with the candidates' gradients are D = κ K b +
    noise of covariance s²K, with K = ⟨g_x, g_y⟩. Independent b of variance π(1 − π) about π, the share of the
    candidates that a sender can hold, then have a Gaussian posterior of precision Σ κ²K/s² + prior (rounds add up), and
    what it says of one b beyond its prior, all others left open, is a normal likelihood of 1 against 0. So a record is
    not taken for a member because it resembles one, which a cosine cannot tell, and the noise of T rounds averages out.

    Best where local training is one step, and only a score elsewhere. Compare SeMI* (Michel, Basu and Kaufmann,
    arXiv:2602.16596), which is optimal for means whose other members are in the dark.
    """

    name: str = field(default="membership-sequence", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One part a sender.

        Raises:
            ValueError: there are no candidates or more than `MOST`, the observer sees no upload with the model it began
                from, or an upload does not give the sum of its sender's gradients.
        """
        check_candidates(view, knowledge)
        n = len(knowledge.candidate_ids)
        if n > MOST:
            raise ValueError(
                f"{self.name!r} compares all candidates with each other, at most {MOST:,}, and there are {n:,}"
            )
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
        one = CALL + n * (PASSES * forward_operations(view.module, view.input_shape) + n * 2000)
        return [Part(sent[0].id, one * len(sent) + n**3, tuple(sent)) for sent in by_sender.values()]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> MembershipScores:
        del seed
        messages: tuple[Seen, ...] = part.content
        belief = _belief(view, knowledge, messages)
        seen = belief.prior.precision(len(belief.variance)) @ torch.full_like(belief.variance, belief.prior.share)
        for done, message in enumerate(messages, 1):
            start = view.global_model(message.round).double()
            own = gradient_sum(message, descent(message, message.load().double(), start, view.facts), view.facts)
            inputs, targets = knowledge.candidate_inputs.double(), knowledge.candidate_targets
            along = inner_products(started_with(view, message.round), start, own, inputs, targets, view.facts.loss)
            seen += along * belief.weights[done - 1]
            report_progress(progress, done, len(messages))
        scores = log_ratio(belief, seen)
        assumed = (
            CANDIDATES,
            "network in evaluation mode",
            "the update's scale: lr, local steps and the sender's record count known",
            "the size of the noise known" if view.facts.noise_std is not None else "no noise",
            *([MADE_LONG] if clips_weights(view.facts) else ()),
        )
        sender, note = messages[0].sender, f"all {len(messages)} rounds together"
        return MembershipScores(
            self.name, view.observer, "all-rounds", sender, knowledge.candidate_ids, scores, assumed, note
        )


@dataclass(frozen=True)
class Prior:
    """b before any message: each of mean `share` and variance share·(1 − share), all together moved by `common`."""

    share: float
    common: float

    @property
    def own(self) -> float:
        return self.share * (1 - self.share)

    def precision(self, n: int) -> Tensor:
        """(n, n): the inverse of own·1 + common·(all ones)."""
        apart = torch.eye(n, dtype=torch.float64) - self.common / (self.own + n * self.common)
        return apart / self.own


@dataclass(frozen=True, eq=False)
class Belief:
    """A Gaussian posterior of b, but for its mean: factor (n, n) of its precision, as of Cholesky; variance (n,) of
    each b. weights: κ/s² of each round.
    """

    prior: Prior
    factor: Tensor
    variance: Tensor
    weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, prior: Prior, precision: Tensor, weights: tuple[float, ...] = ()) -> Belief:
        factor = torch.linalg.cholesky(precision)
        return cls(prior, factor, torch.cholesky_inverse(factor).diagonal(), weights)


def _belief(view: View, knowledge: Knowledge, messages: tuple[Seen, ...]) -> Belief:
    """Once for all senders of the same rounds and as many records: nothing of it is in what they sent."""
    n, records = len(knowledge.candidate_ids), max(m.num_records for m in messages)
    key = ("sequence", repr([(m.round, m.num_records) for m in messages]))

    def compute() -> Belief:
        prior = Prior(min(0.5, records / n), (records / n) ** 2)
        precision, weights = prior.precision(n), []
        for message in messages:
            products, kept, variance = _round(message, view, knowledge)
            precision += products * (kept**2 / variance)
            weights.append(kept / variance)
        return Belief.of(prior, precision, tuple(weights))

    return once(view, knowledge, key, compute)


def _round(message: Seen, view: View, knowledge: Knowledge) -> tuple[Tensor, float, float]:
    """K (n, n) at the round's model, κ and s²."""
    start, facts = view.global_model(message.round).double(), view.facts.of_round(message.round)
    network = started_with(view, message.round)
    products = gram(network, start, knowledge.candidate_inputs.double(), knowledge.candidate_targets, facts.loss)
    scale, records = float(gradient_sum(message, torch.ones(1), facts)), message.num_records
    # ‖Σ g‖² of so many records like the candidates: n²‖mean‖² + n(mean ‖g‖² − ‖mean‖²)
    squares, middle = float(products.diagonal().mean()), float(products.mean())
    length = (records**2 * middle + records * max(squares - middle, 0.0)) ** 0.5
    kept = _kept(facts, scale, length)
    longer = longer_than_clip(start, facts)  # what clipped weights are multiplied by to be read, and their noise
    variance = ((facts.noise_std or 0.0) * longer * scale) ** 2 + (MISFIT * kept * length) ** 2 / len(start)
    return products, kept, max(variance, torch.finfo(torch.float64).tiny)


def _kept(facts: PublicFacts, scale: float, length: float) -> float:
    """κ: a public clip of the whole message over the length that it clips, at most 1."""
    if facts.clip_norm is None or facts.clip_order != 2 or facts.per_layer or length == 0 or clips_weights(facts):
        return 1.0
    return min(1.0, facts.clip_norm * scale / length)


def log_ratio(belief: Belief, seen: Tensor) -> Tensor:
    """The log-likelihood ratio (n,) of b = 1 against b = 0 that a posterior of mean precision⁻¹·seen holds for each b
    beyond its prior: τ(h − ½), for a likelihood of precision τ = 1/v − 1/(own + common) about h.

    One candidate whose g is 1 long, once seen with noise 2 at D = 1: the ratio of N(1, 4) against N(0, 4) at 1.

    >>> belief = Belief.of(prior := Prior(0.5, 0.0), prior.precision(1) + 1 / 4)
    >>> round(log_ratio(belief, prior.precision(1) @ torch.tensor([0.5]).double() + 1 / 4).item(), 6)
    0.125
    """
    mean = torch.cholesky_solve(seen[:, None], belief.factor)[:, 0]
    before = belief.prior.own + belief.prior.common
    return (mean / belief.variance - belief.prior.share / before) - (1 / belief.variance - 1 / before) / 2
