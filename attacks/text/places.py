"""Where words stand, by the rows of two embeddings: a word's row and its place's get the same errors, so the row of a place
is the sum of the rows of the words that stand there, as far as these stand once.
"""

from __future__ import annotations

import torch
from torch import Tensor

LIKELY = 0.3  # a word's coefficient at a place from which it may stand there; of a word that stands once it is 1


def shares_of_places(word_rows: Tensor, place_rows: Tensor) -> Tensor:
    """How much of each place's row (places, width) each word's (words, width) explains, by least squares: (places,
    words).
    """
    words, places = word_rows.double(), place_rows.double()
    return torch.linalg.lstsq(words.T, places.T, driver="gelsd").solution.T


def guesses(words: Tensor, shares: Tensor, allowed: Tensor, texts: int) -> list[Tensor]:
    """First guesses of so many texts: at each place the word that explains most of its row; for the k-th text the k-th.

    Args:
        words: (k,). shares: (places, k). allowed: (places, k), whether a word can stand at a place. texts: how many.
    """
    ranked = torch.where(allowed, shares, -torch.inf).sort(1, descending=True)
    made = []
    for text in range(texts):
        column = min(text, shares.shape[1] - 1)
        likely = ranked.values[:, column] > LIKELY
        length = int(torch.nonzero(likely).max()) + 1 if bool(likely.any()) else 1
        picks = torch.where(likely, ranked.indices[:, column], ranked.indices[:, 0])
        made.append(words[picks[:length]])
    return made
