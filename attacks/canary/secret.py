"""A canary text with a planted secret: a number drawn by lot, which a model may come to like above its alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ...defenses.data.vocabulary import PAD, Vocabulary
from ...defenses.local import LocalJob
from ...defenses.losses import IGNORED
from ...defenses.randomness import generator
from ..membership.exposure import FEWEST, exposure, numbers_by_length, secrets_of
from .base import table_of_words, with_record


@dataclass(frozen=True, eq=False)
class PlantedSecret:
    """The client's own text with a number drawn by lot in the place of its last one, or of its last word where it has
    none (Carlini et al. 2019, arXiv:1802.08232). Its loss is of the secret alone, as in arXiv:2503.06808.

    The lot alone sets the secret apart from other numbers of its length, so whatever else a model likes it better by
    comes of training on it. A final model is judged by the secret's loss below the mean of its alternatives'.

    alternatives: at most so many, drawn by lot. numbers: of a vocabulary by their length, as `of` finds them.
    """

    alternatives: int = 63
    numbers: Mapping[int, Tensor] = field(default_factory=dict, repr=False)
    name: str = "planted-secret"

    def of(self, vocabulary: Vocabulary | None) -> PlantedSecret:
        """The same canary where the words are these; None of records that are no texts."""
        return self if vocabulary is None else replace(self, numbers=numbers_by_length(vocabulary))

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        texts, targets = self.texts(job, row, seed)
        return with_record(job, row, texts[0], targets[0])

    def texts(self, job: LocalJob, row: int, seed: int) -> tuple[Tensor, Tensor]:
        """The text with its secret, then with each of the alternatives, and their targets, all (R, length). The lot is
        one for all places.

        Raises:
            ValueError: the model tells no next words, has too few numbers, or the text has one word.
        """
        if table_of_words(job) is None or job.targets.dim() < 2 or not self.numbers:
            raise ValueError(
                f"a secret is planted in texts of a model that tells the next word and {FEWEST} numbers of one length"
            )
        record = job.inputs[row]
        most = max(self.numbers, key=lambda length: len(self.numbers[length]))
        last = int((record != PAD).sum()) - 1
        place, length = secrets_of(record[None], self.numbers).get(0, (last, most))
        if place < 1:
            raise ValueError("a text of one word has no place for a secret, which the words before it are to tell")
        numbers = self.numbers[length]
        lot = torch.randperm(len(numbers), generator=generator(seed, "planted secret"))[: 1 + self.alternatives]
        texts = record.repeat(len(lot), 1)
        texts[:, place] = numbers[lot].to(texts)
        targets = torch.full_like(texts, IGNORED)
        targets[:, place - 1] = texts[:, place]
        return texts, targets


def below_alternatives(losses: Tensor) -> Tensor:
    """(m,) how far m models' loss of a secret lies below its alternatives' mean; losses: (m, R), the secret's first.

    >>> below_alternatives(torch.tensor([[1.0, 2.0, 4.0]]))
    tensor([2.])
    """
    return losses[:, 1:].mean(1) - losses[:, 0]


def mean_exposure(losses: Tensor) -> float:
    """In bits, of losses (m, R) as of `below_alternatives`.

    >>> mean_exposure(torch.tensor([[1.0, 2.0, 4.0, 5.0], [2.0, 1.0, 4.0, 5.0]]))
    1.5
    """
    return sum(exposure(row) for row in losses) / len(losses)
