"""Where words stand, by the rows of two embeddings: a word's row and its place's get the same errors, so a place's row
is the sum of the rows of the words that stand there, as far as these stand once.
"""

from __future__ import annotations

import torch
from torch import Tensor


def shares_of_places(word_rows: Tensor, place_rows: Tensor) -> Tensor:
    """How much of each place's row (places, width) each word's (words, width) explains, by least squares: (places,
    words), 1 for a word that stands there alone.
    """
    words, places = word_rows.double(), place_rows.double()
    return torch.linalg.lstsq(words.T, places.T, driver="gelsd").solution.T
