"""What of a message is left without some of its texts. A text's part is a sum of its logits' gradients, times as many
numbers, whatever its label and the loss; the row of a word that stands in no other text tells them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .layers import Layers

MOST_LOGITS = 32  # each is one more run backwards
GONE = 1e-3  # of a row, which is float32's rounding in a hundred additions and more


@dataclass(frozen=True, eq=False)
class Left:
    """words (k,), with their rows (k, width) and those of places (places, width); weights: gradients of the linear
    layers at `paths`. first: the lengths of the words' rows in the whole message.
    """

    layers: Layers
    paths: tuple[str, ...]
    words: Tensor
    rows: Tensor
    places: Tensor
    weights: tuple[Tensor, ...]
    first: Tensor

    @classmethod
    def of(cls, layers: Layers, words: Tensor, rows: Tensor, places: Tensor, weights: Sequence[Tensor]) -> Left:
        """A whole message.

        Args:
            layers: of the network. words: (k,), rising, that the message has. rows: theirs, (k, width). places: rows of
                all places. weights: gradients of the first two groups' layers, in their order.
        """
        paths = tuple(path for group in layers.groups[:2] for path in group)
        rows = rows.double()
        return cls(layers, paths, words, rows, places.double(), tuple(w.double() for w in weights), rows.norm(dim=1))

    @property
    def some(self) -> Tensor:
        """Which of the words are left, bool (k,)."""
        return self.rows.norm(dim=1) > GONE * self.first

    @property
    def length(self) -> int:
        """The number of places that are left."""
        sizes = self.places.norm(dim=1)
        return int(torch.nonzero(sizes > GONE * sizes.max()).max()) + 1

    def without(self, text: Tensor) -> tuple[Left, float]:
        """Without a text (length,), and how much of a row that tells its part is no such part, in [0, 1]: above `GONE`
        it was not there, or has no word of its own, and nothing is taken away.
        """
        errors, gradients = _by_logit(self.layers, text, self.paths)
        at = torch.searchsorted(self.words, text)
        parts = torch.zeros(len(errors), *self.rows.shape, dtype=torch.float64).index_add_(1, at, errors)
        own = at.unique()
        if not len(errors) or not bool(self.some[own].all()):
            return self, 1.0
        columns, wanted = parts[:, own].permute(1, 2, 0), self.rows[own, :, None]
        numbers = torch.linalg.lstsq(columns, wanted, driver="gelsd").solution
        rests = (columns @ numbers - wanted).norm(dim=1)[:, 0] / wanted.norm(dim=1)[:, 0]
        rest, numbers = float(rests.min()), numbers[int(rests.argmin()), :, 0]
        if rest > GONE:
            return self, rest
        places = self.places.clone()
        places[: len(text)] -= torch.einsum("c,cte->te", numbers, errors)
        weights = [w - torch.einsum("c,coi->oi", numbers, g) for w, g in zip(self.weights, gradients, strict=True)]
        rows = self.rows - torch.einsum("c,cke->ke", numbers, parts)
        return replace(self, rows=rows, places=places, weights=tuple(weights)), rest


def _by_logit(layers: Layers, text: Tensor, paths: Sequence[str]) -> tuple[Tensor, list[Tensor]]:
    """Of each logit: the errors at the words' embeddings (logits, length, width), and the gradients of linear layers
    (logits, outputs, width); of no logit where there are too many.
    """
    network, caught = layers.network, []

    def leaf(table: torch.nn.Module, given: tuple[Tensor, ...], made: Tensor) -> Tensor:
        caught.append(made.detach().requires_grad_())
        return caught[0]

    trained = [network.get_parameter(f"{path}.weight") for path in paths]
    hook = network.get_submodule(layers.words).register_forward_hook(leaf)
    try:
        for weight in trained:
            weight.requires_grad_(True)
        logits = network(text[None]).flatten()
        used = range(len(logits) if len(logits) <= MOST_LOGITS else 0)
        made = [torch.autograd.grad(logits[c], [caught[0], *trained], retain_graph=True) for c in used]
    finally:
        hook.remove()
        for weight in trained:
            weight.requires_grad_(False)
    if not made:
        return torch.zeros(0, *caught[0].shape[1:], dtype=torch.float64), []
    errors, *gradients = (torch.stack(parts) for parts in zip(*made, strict=True))
    return errors[:, 0], gradients
