"""How likely a text is before any message: words and pairs of neighbours, counted in the attacker's texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

WordNumbers = tuple[int, ...]
ANY = 0.25  # of the probability, evenly over the vocabulary: the attacker's texts lack most words of others
FEW = 5.0  # times that a word was seen, from which its pairs count for half


@dataclass(frozen=True, eq=False)
class Bigrams:
    """words: the probability of each word of a vocabulary. counts, pairs: how often each stands in the texts."""

    words: Tensor
    counts: Mapping[int, int]
    pairs: Mapping[WordNumbers, int]

    @classmethod
    def of(cls, texts: Sequence[WordNumbers], vocabulary: int) -> Bigrams:
        counts = Counter(word for text in texts for word in text)
        words = torch.full((vocabulary,), ANY / vocabulary, dtype=torch.float64)
        words[[*counts]] += (1 - ANY) * torch.tensor([*counts.values()]) / sum(counts.values())
        return cls(words, counts, Counter(pair for text in texts for pair in zip(text, text[1:])))

    def log(self, text: WordNumbers) -> float:
        """The logarithm of its probability, its first word taken as given.

        >>> round(Bigrams.of([(0, 1), (0, 1)], 4).log((0, 1)), 3)  # 2/7 · 0.75 + 5/7 · 0.375 + 0.25/4
        -0.608
        """
        total, least = 0.0, ANY / len(self.words)
        for pair in zip(text, text[1:]):
            times = self.counts.get(pair[0], 0) + FEW
            followed = (1 - ANY) * self.pairs.get(pair, 0) + FEW * (float(self.words[pair[1]]) - least)
            total += log(followed / times + least)
        return total
