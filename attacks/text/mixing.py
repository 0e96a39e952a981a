"""What the first attention makes of texts, out of the queries, keys and values of single words at their places: some
thousand texts a second, which a run of the network is too slow for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .layers import Layers

DIRECTIONS = 64  # outside of a span that shares are estimated by; fewer are not sharp, more are slower
WEAK = 16  # of the weakest, in place of those behind a gap, where there is none


@dataclass(frozen=True, eq=False)
class Mixing:
    """Of words (k,) at places; texts are places of `words`, (n, length), without padding.

    read: (places, words, width), what the first layers read. queries, keys, values: (places, words, heads, width/heads)
    float32. outside: (places, words, heads, directions), the values' part in directions that no text of the message has
    anything in. gain: from these directions to all that are outside. clear: whether a gap ends what texts have.
    """

    words: Tensor
    read: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor
    outside: Tensor
    gain: float
    clear: bool

    @classmethod
    def of(cls, layers: Layers, words: Tensor, places: int, gradient: Tensor, rank: int | None) -> Mixing | None:
        """None where the network's first attention is no softmax of queries times keys over a whole text.

        Args:
            layers: of the network. words: (k,), of which texts are. places: number of them.
            gradient: of the layer (outputs, width) that reads what attention made. rank: of the inputs that it tells,
                None where no gap ends them.
        """
        heads, paths = layers.heads, layers.groups[0]
        if len(paths) < 3 or not heads or len(layers.groups) < 2 or layers.causal:
            return None
        read = torch.cat([x for _, x in layers.of_words(words, places)]).transpose(0, 1)
        width = read.shape[2]
        made = [layers.network.get_submodule(path)(read) for path in paths[:3]]
        if width % heads or any(x.shape != read.shape for x in made) or gradient.shape[1] != width:
            return None
        right = torch.linalg.svd(gradient.double())[2]
        away = right[-WEAK:] if rank is None else right[rank:][:DIRECTIONS]
        by_head = [x.reshape(*read.shape[:2], heads, width // heads).float() for x in made]
        by_head[0] = by_head[0] * (width // heads) ** -0.5
        outside = torch.einsum("twhe,khe->twhk", by_head[2], away.float().view(-1, heads, width // heads)).contiguous()
        gain = 1.0 if rank is None else ((width - rank) / len(away)) ** 0.5
        queries, keys, values = by_head
        found = cls(words, read, queries, keys, values, outside, gain, rank is not None)
        return found if found._is_that_of(layers) else None

    def _is_that_of(self, layers: Layers) -> bool:
        text = torch.arange(min(len(self.words), len(self.read)))
        mine = _mixed(self._weights(text[None]), self._of(self.values, text[None]))[0].flatten(1).double()
        return torch.allclose(mine, layers.inputs(self.words[text][None], 1)[1][0], atol=1e-4, rtol=1e-3)

    @property
    def places(self) -> int:
        return len(self.read)

    def _of(self, values: Tensor, texts: Tensor) -> Tensor:
        """(n, length, heads, …), of each word at its place."""
        return values[torch.arange(texts.shape[1]), texts]

    def _weights(self, texts: Tensor) -> Tensor:
        """Of attention, (n, heads, length, length)."""
        scores = torch.einsum("nthe,nshe->nhts", self._of(self.queries, texts), self._of(self.keys, texts))
        return scores.softmax(-1)

    def shares(self, texts: Tensor) -> Tensor:
        """How much of what attention makes of each word lies outside, (n, length)."""
        weights = self._weights(texts)
        sizes = _mixed(weights, self._of(self.values, texts)).flatten(2).norm(dim=2)
        return self.gain * _mixed(weights, self._of(self.outside, texts)).sum(2).norm(dim=2) / sizes

    def changed(self, text: Tensor, place: int, words: Tensor) -> Tensor:
        """The mean shares (k,) of a text (length,) with each of the words at a place, its end among them."""
        kept = torch.arange(len(text))
        kept = kept[kept != place]
        own = text[kept]
        queries, keys, values = self.queries[kept, own], self.keys[kept, own], self.values[kept, own]
        away, new_key, new_value = self.outside[kept, own], self.keys[place, words], self.values[place, words]
        scores = torch.einsum("the,she->hts", queries, keys)
        fresh = torch.einsum("the,che->htc", queries, new_key)
        most = torch.maximum(scores.amax(2), fresh.amax(2))[..., None]
        scores, fresh = (scores - most).exp(), (fresh - most).exp()
        before = 1 / (scores.sum(2, keepdim=True) + fresh)  # of each other word's sum over the kept ones
        added = fresh * before
        sums, sums_away = (torch.einsum("hts,she->the", scores, part) for part in (values, away))
        rest = torch.einsum("htc,thk->tck", before, sums_away)
        rest += torch.einsum("htc,chk->tck", added, self.outside[place, words])
        sizes = (
            before.square() * sums.square().sum(2).T[..., None] + added.square() * new_value.square().sum(2).T[:, None]
        )
        sizes = (sizes + 2 * before * added * torch.einsum("the,che->htc", sums, new_value)).sum(0)
        others = rest.norm(dim=2) / sizes.sqrt()
        to_kept = torch.einsum("che,she->chs", self.queries[place, words], keys)
        to_own = (self.queries[place, words] * new_key).sum(2, keepdim=True)
        weights = torch.cat([to_kept, to_own], 2).softmax(2)
        of_own = torch.einsum("chs,she->che", weights[..., :-1], values) + weights[..., -1:] * new_value
        own_away = torch.einsum("chs,shk->ck", weights[..., :-1], away)
        own_away += torch.einsum("ch,chk->ck", weights[..., -1], self.outside[place, words])
        share = own_away.norm(dim=1) / of_own.flatten(1).norm(dim=1)
        return self.gain * (others.sum(0) + share) / (len(kept) + 1)


def _mixed(weights: Tensor, values: Tensor) -> Tensor:
    """(n, length, heads, …), of values of each word."""
    return torch.einsum("nhts,nshe->nthe", weights, values)
