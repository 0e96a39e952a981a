"""How likely a text is before any message is seen: words and pairs of neighbours, counted in the attacker's texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import torch
from torch import Tensor

Text = tuple[int, ...]
ANY = 0.25  # of the probability, evenly over the vocabulary: the attacker's texts lack most words of others
FEW = 5.0  # times that a word was seen, from which its pairs count for half (Witten, Bell 1991, simplified)


@dataclass(frozen=True, eq=False)
class Bigrams:
    """words, pairs: how often each stands in the attacker's texts. vocabulary: number of words. begins, ends: whether
    all of these texts begin, or end, with the same word, as a tokenizer's marks.
    """

    words: Mapping[int, int]
    pairs: Mapping[tuple[int, int], int]
    vocabulary: int
    begins: bool
    ends: bool

    @classmethod
    def of(cls, texts: Sequence[Text], vocabulary: int) -> Bigrams:
        words = Counter(word for text in texts for word in text)
        pairs = Counter(pair for text in texts for pair in zip(text, text[1:], strict=False))
        begins, ends = (len({text[at] for text in texts}) == 1 for at in (0, -1))
        return cls(words, pairs, vocabulary, begins, ends)

    @cached_property
    def _all(self) -> int:
        return sum(self.words.values())

    def log(self, text: Text) -> float:
        """The logarithm of its probability, its first word taken as given.

        >>> round(Bigrams.of([(0, 1), (0, 1)], 4).log((0, 1)), 3)  # .75 · (2/7 · 1 + 5/7 · 1/2) + .25/4
        -0.603
        """
        chances = []
        for before, word in zip(text, text[1:], strict=False):
            seen = self.words.get(before, 0)
            follows = self.pairs.get((before, word), 0) / (seen + FEW)
            chances.append((1 - ANY) * (follows + FEW / (seen + FEW) * self.words.get(word, 0) / self._all))
        return sum(log(chance + ANY / self.vocabulary) for chance in chances)

    def of_words(self) -> Tensor:
        """The logarithm of each word's probability wherever it stands, (vocabulary,)."""
        shares = torch.zeros(self.vocabulary)
        shares[[*self.words]] = torch.tensor([count / self._all for count in self.words.values()])
        return ((1 - ANY) * shares + ANY / self.vocabulary).log()
