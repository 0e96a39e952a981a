"""The last words of a decoder's texts, which no layer reads, by the gradient of its head: a sum over places of error
times what the head reads, which is known of known texts (ours).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from .layers import Layers
from .sentences import FoundText

FITS = 1e-3  # of a row of the head, which the places of all texts make but for rounding
LEAST = 1e-4  # of the largest error, above rounding: those of words that were asked for are the only ones below 0


def with_last_words(texts: Sequence[FoundText], layers: Layers, gradient: Tensor) -> list[FoundText]:
    """Texts with the word behind their end, where the head tells it, and of places before it the words that are known
    to be there. Where the head is the embedding, too, rows of words that texts have tell nothing.

    Args:
        texts: all of the batch. layers: of the network. gradient: of its head, (words, width), times a number above 0.
    """
    head = head_of(layers)
    if head is None or not texts:
        return [*texts]
    read = [layers.read_by(head, text.tokens[None])[0] for text in texts]
    places, rows = torch.cat(read), gradient.double()
    if len(places) >= places.shape[1]:
        return [*texts]
    errors = torch.linalg.lstsq(places.T, rows.T, driver="gelsd").solution  # (places, words)
    rest = (errors.T @ places - rows).norm(dim=1)
    whole = rest <= FITS * rows.norm(dim=1)
    asked = (errors < -LEAST * errors[:, whole].abs().max()) & whole if bool(whole.any()) else whole.expand_as(errors)
    found = []
    for text, own in zip(texts, asked.split([*map(len, read)])):
        known, last = text.tokens[1:], own[-1].nonzero()[:, 0]
        agrees = own[:-1].gather(1, known[:, None])[:, 0] | ~whole[known] | ~own[:-1].any(1)
        alone = len(last) == 1 and bool(agrees.all())
        found.append(replace(text, tokens=torch.cat([text.tokens, last])) if alone else text)
    return found


def head_of(layers: Layers) -> str | None:
    """The path of the linear layer that scores each word, None where there is none."""
    table = layers.network.get_submodule(layers.words)
    assert isinstance(table, nn.Embedding)
    linear = {path: part for path, part in layers.network.named_modules() if isinstance(part, nn.Linear)}
    return next((path for path, part in linear.items() if part.out_features == table.num_embeddings), None)
