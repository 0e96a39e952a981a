"""A canary text of words that nobody else has."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...defenses.data.vocabulary import PAD, next_words
from ...defenses.local import LocalJob
from ...defenses.randomness import generator
from .base import another_target, table_of_words, with_record
from .crafted import mean_gradient


@dataclass(frozen=True)
class NewWords:
    """A text of words that no record of the client has (as new tokens in arXiv:2503.06808): where embeddings are
    trained, such a word's row moves by this record alone. Its label is another than the record's, or the next word.

    tried: texts drawn, as long as a record may be; the one with the longest gradient is taken, which clipping leaves at
      the clip norm. Where too few words are new, the rarest join them.
    """

    tried: int = 8
    name: str = "new-words"

    def insert(self, job: LocalJob, row: int, classes: int, seed: int) -> LocalJob:
        table = table_of_words(job)
        if table is None:
            raise ValueError("new words are for texts, and these records are none; plant another record")
        rng, length = generator(seed, "canary words", row), job.inputs.shape[1]
        others = torch.arange(len(job.inputs)) != row
        counts = torch.bincount(job.inputs[others][job.inputs[others] != PAD].long(), minlength=table.num_embeddings)
        best, most = job, -1.0
        for _ in range(self.tried):
            lot = torch.randperm(len(counts), generator=rng)
            text = lot[counts[lot].argsort(stable=True)][:length]
            record = torch.cat([text, text.new_full((length - len(text),), PAD)])
            target = next_words(record[None])[0] if job.targets.dim() > 1 else another_target(job, row, classes, rng)
            made = with_record(job, row, record, target)
            size = float(mean_gradient(job, made.inputs[row][None], made.targets[row][None]).norm())
            if size > most:
                best, most = made, size
        return best
