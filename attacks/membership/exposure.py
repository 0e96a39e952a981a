"""How exposed the secrets of texts are: numbers, which a lot might have made any other of the same length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2, nan

import torch
from torch import Tensor

from ...defenses.data.vocabulary import Vocabulary, next_words
from ...defenses.losses import loss_of
from ...defenses.randomness import generator
from ..base import Knowledge, MembershipScores, Part, Progress, View
from ..cost import CALL, forward_operations
from . import signals
from .common import CANDIDATES, check_candidates, global_models, report_progress
from .network import network_sent

ALTERNATIVES = 255  # numbers that a secret is compared with, drawn by lot where there are more
FEWEST = 32  # numbers of a length, from which one of them is a secret
METRIC = "exposure"  # in `audit.say.metrics`


@dataclass(frozen=True)
class ExposedNumbers:
    """log2 R − log2 of the rank that a text's number has among R that might stand in its place, by the final model's
    loss of the text, in [0, log2 R] bits (Carlini et al. 2019, arXiv:1802.08232, definition 5).

    A number that the model knows nothing of has every rank alike, which is log2 e = 1.44 bits on average; so have those
    of texts that nobody trained on, if the same lot drew them.

    R − 1 are `ALTERNATIVES`, or fewer; of a text with several numbers the last one is asked for, and one without any
    gets no score.
    """

    name: str = field(default="membership-exposure", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """One part.

        Raises:
            ValueError: there are no candidates, they are no texts of a model that tells the next word, the vocabulary
                has too few numbers of any length, or no global model is seen.
        """
        check_candidates(view, knowledge)
        if view.vocabulary is None or not view.target_shape:
            raise ValueError(f"{self.name!r} needs texts, and a model of their next words (loss 'next_token')")
        if not numbers_by_length(view.vocabulary):
            raise ValueError(f"{self.name!r} needs {FEWEST} numbers of one length in the vocabulary")
        runs = len(knowledge.candidate_ids) * (1 + ALTERNATIVES)
        work = CALL + runs * forward_operations(view.module, view.input_shape)
        return [Part("final-model", work, global_models(view)[-1])]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> MembershipScores:
        """Raises ValueError where no candidate has a number of which the vocabulary has enough others."""
        assert view.vocabulary is not None
        weights, network = part.content.load(), network_sent(view, part.content)
        signal = signals.loss_signal(loss_of(view.facts.loss))
        numbers, rng = numbers_by_length(view.vocabulary), generator(seed, "alternatives of secrets")
        secrets = secrets_of(knowledge.candidate_inputs, numbers)
        if not secrets:
            raise ValueError(f"no candidate has a number of which the vocabulary has {FEWEST} of the same length")
        bits = torch.full((len(knowledge.candidate_ids),), nan, dtype=torch.float64)
        for done, (row, (place, length)) in enumerate(secrets.items(), 1):
            record, alike = knowledge.candidate_inputs[row], numbers[length]
            others = alike[alike != record[place]]
            others = others[torch.randperm(len(others), generator=rng)][:ALTERNATIVES]
            texts = record.repeat(1 + len(others), 1)
            texts[1:, place] = others
            losses = signals.of_model(signal, network, weights, texts, next_words(texts))
            bits[row] = exposure(losses)
            report_progress(progress, done, len(secrets))
        note = f"of {len(secrets)} candidates the last number, among up to {1 + ALTERNATIVES}; others have none"
        ids, assumed = knowledge.candidate_ids, (CANDIDATES, "which part of a text is a secret, and how it was drawn")
        return MembershipScores(self.name, view.observer, "final-model", "", ids, bits, assumed, note, METRIC)


def exposure(losses: Tensor) -> float:
    """Of the first of R losses (R,), in bits; of equal ones it has the last rank.

    >>> exposure(torch.tensor([0.1, 0.5, 0.2, 0.3])), exposure(torch.tensor([0.5, 0.5, 0.2, 0.3]))
    (2.0, 0.0)
    """
    return log2(len(losses)) - log2(int((losses <= losses[0]).sum()))


def numbers_by_length(vocabulary: Vocabulary) -> Mapping[int, Tensor]:
    """The numbers among a vocabulary's words, by how many digits they have, where there are enough of them."""
    found: dict[int, list[int]] = {}
    for place, word in enumerate(vocabulary.words):
        if word.isdecimal():
            found.setdefault(len(word), []).append(place)
    return {length: torch.tensor(places) for length, places in found.items() if len(places) >= FEWEST}


def secrets_of(records: Tensor, numbers: Mapping[int, Tensor]) -> dict[int, tuple[int, int]]:
    """Of texts (n, length) the place of the last number, and its digits, by row; texts without one are left out. Not
    the first word, which no word before it tells.
    """
    digits = {int(word): length for length, words in numbers.items() for word in words}
    found = {}
    for row, record in enumerate(records.tolist()):
        places = [place for place, word in enumerate(record) if place and word in digits]
        if places:
            found[row] = places[-1], digits[record[places[-1]]]
    return found
