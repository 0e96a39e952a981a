"""A small transformer for text: BERT's encoder (Devlin et al. 2019, arXiv:1810.04805), or one that looks back alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

MOST_TOKENS = 2**24  # numbers up to which float32, in which records are handed to a network, is exact


@dataclass(frozen=True)
class Sizes:
    """Of a transformer. causal: each word sees those before it alone. Raises ValueError."""

    width: int
    layers: int
    heads: int
    causal: bool

    def __post_init__(self) -> None:
        if min(self.width, self.layers, self.heads) < 1 or self.width % self.heads:
            raise ValueError(
                f"width = {self.width}, layers = {self.layers}, heads = {self.heads}: expected positive whole numbers,"
                " and a width that the heads divide"
            )


class Tokens(nn.Module):
    """Records of text as whole numbers, whatever type they came in; padding stays negative, or becomes a number of its
    own for a network that takes it so.
    """

    def __init__(self, pad: int | None = None) -> None:
        super().__init__()
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        return x.long() if self.pad is None else torch.where(x < 0, self.pad, x).long()


class Embedding(nn.Module):
    """The sum of a word's row and its position's, normalised: (n, length) int64 → (n, length, width)."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1])
        return self.norm(self.words(tokens.clamp_min(0)) + self.positions(places))


class EncoderLayer(nn.Module):
    """Attention and a feed-forward layer, each with its sum and its LayerNorm behind it."""

    def __init__(self, width: int, heads: int, inner: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.mixed, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.out_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        n, length, width = x.shape

        def by_head(y: Tensor) -> Tensor:
            return y.view(n, length, self.heads, width // self.heads).transpose(1, 2)

        query, key, value = by_head(self.query(x)), by_head(self.key(x)), by_head(self.value(x))
        scores = query @ key.transpose(-1, -2) / sqrt(width // self.heads)
        seen = mask[:, None, None, :]
        if self.causal:
            seen = seen & torch.ones(length, length, dtype=torch.bool).tril()
        scores = torch.where(seen, scores, -1e9)
        attended = (scores.softmax(-1) @ value).transpose(1, 2).reshape(n, length, width)
        x = self.norm(x + self.mixed(attended))
        return self.out_norm(x + self.outer(nn.functional.gelu(self.inner(x))))


class Transformer(nn.Module):
    """Class scores (n, classes) from the mean of the last layer over a text's words; or, where each place tells its
    next word, scores (n, length, classes).
    """

    def __init__(self, vocabulary: int, length: int, classes: int, sizes: Sizes) -> None:
        super().__init__()
        self.causal, self.by_place = sizes.causal, False
        self.embedding = Embedding(vocabulary, length, sizes.width)
        self.blocks = nn.ModuleList(
            EncoderLayer(sizes.width, sizes.heads, 4 * sizes.width, sizes.causal) for _ in range(sizes.layers)
        )
        self.head = nn.Linear(sizes.width, classes)

    def tell_next_words(self) -> None:
        """From now on each place tells its next word. Raises ValueError for an encoder."""
        if not self.causal:
            raise ValueError("an encoder sees the next word that it is to tell; take [model] options = {causal = true}")
        self.by_place = True

    def forward(self, tokens: Tensor) -> Tensor:
        mask = tokens >= 0
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, mask)
        if self.by_place:
            return self.head(x)
        shares = mask.to(x.dtype) / mask.sum(1, keepdim=True).clamp_min(1)
        return self.head((x * shares[..., None]).sum(1))
