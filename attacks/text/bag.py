"""Which words a batch has: read off the rows of the embedding, or told by the span of the first layer's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from scipy.stats import chi2
from torch import Tensor

from .layers import Layers
from .span import SpanOfInputs

CHANCE = 0.05  # that any absent word is taken for one that is there, over the whole vocabulary


@dataclass(frozen=True, eq=False)
class Bag:
    """The words that are certain to be there. by: how they were told, in words; why_none: why nothing could be told;
    pairs: (places, k), which of them can stand where, None where that was not told with them.
    """

    words: Tensor  # (k,) int64, rising
    by: str = ""
    why_none: str = ""
    pairs: Tensor | None = None


def bag_of_rows(rows: Tensor, noise_std: float | None) -> Bag:
    """From the embedding's rows (words, width) of what was sent: the row of a word that no text has is exactly 0, or
    noise alone, of which ‖row‖²/σ² is χ² of as many degrees as the width.

    Args:
        rows: a gradient's or an update's. noise_std: of every component, 0.0 for none, None where it is not known to
            be Gaussian of one size.
    """
    if noise_std is None:
        return Bag(
            torch.zeros(0, dtype=torch.int64),
            why_none="the noise is not Gaussian or its size not public, or numbers were cut",
        )
    sizes = rows.double().square().sum(1)
    some = sizes > 0
    if noise_std > 0:
        limit = chi2.isf(CHANCE / len(rows), rows.shape[1]) * noise_std**2
        return Bag(torch.nonzero(sizes > limit).flatten(), "rows of the embedding above their noise (χ² test)")
    if int(some.sum()) * 2 <= len(rows):
        return Bag(torch.nonzero(some).flatten(), "rows of the embedding that are not 0")
    return Bag(
        torch.zeros(0, dtype=torch.int64),
        why_none="most rows of the embedding moved, as where it also tells the next word",
    )


def bag_of_adapters(layers: Layers, spans: Sequence[SpanOfInputs], vocabulary: int, length: int) -> Bag:
    """By the spans of what adapters' B read, a word's inputs times A: narrow ones, so several must tell together, and
    no more than `CHANCE` pairs of a word and a place may fit all of them by chance.

    Args:
        layers: a network. spans: of its groups of single words behind the first, in their order.
        vocabulary: number of words. length: of a record.
    """
    telling = SpanOfInputs.most_telling(dict(enumerate(spans, 1)))
    by_chance = vocabulary * length * prod(span.by_chance for span in telling.values())
    if not telling or by_chance > CHANCE:
        width = max((len(span.basis) for span in spans), default=0)
        why = f"what adapters' B of rank {width} read tells fewer words than that, and here are too many"
        return Bag(torch.zeros(0, dtype=torch.int64), why_none=why)
    found, places = [], []
    for part, inputs in layers.of_words(torch.arange(vocabulary), length):
        fits = [span.outside(layers.behind(inputs, depth)) < span.rounding for depth, span in telling.items()]
        pairs = torch.stack(fits).all(0)
        found.append(part[pairs.any(1)])
        places.append(pairs[pairs.any(1)])
    return Bag(torch.cat(found), "spans of what adapters' B read", pairs=torch.cat(places).T.expand(length, -1))


def bag_of_span(layers: Layers, span: SpanOfInputs, vocabulary: int, length: int) -> Bag:
    """By the first group's span: a word is there if what the group reads of it lies in the span, at some place."""
    if not span.clear:
        return Bag(torch.zeros(0, dtype=torch.int64), why_none=_why_unclear(span))
    found = [
        part[span.outside(inputs).amin(1) < span.same]
        for part, inputs in layers.of_words(torch.arange(vocabulary), length)
    ]
    words = torch.cat(found)
    if not len(words) and span.part:
        left = " above the rounding of their weights" if span.rounded and span.rank < span.rows else ""
        why = f"no word lies in the {span.rank} dimensions that adapters of {span.rows} ranks together tell{left}"
        return Bag(words, why_none=why)
    return Bag(words, "span of the first layer's inputs")


def _why_unclear(span: SpanOfInputs) -> str:
    if span.rounded:
        return "what the step moved of the first layer's adapters is about as small as the rounding of their weights"
    if span.adapters and not span.gap:
        return "the adapters' B is 0, so that nothing moves their A"
    return "the first layer's inputs leave no gap in its gradient"
