"""What weight decay adds to an update: the same share of every weight, at every step. Rows of words that no text has
moved by it and nothing else, and most words are such, so they tell its size; whoever trains need not.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

LEFT = 1 / 3  # of a usual row's way that decay may leave; of L2 inside Adam, sign(w), 0.6 is left, of others' ways all
ROUNDED = 10.0  # times what rounding leaves of a usual row that a row may be off; of a moved one 100 and more is left


def without_decay(
    sent: Mapping[str, Tensor], weights: Mapping[str, Tensor], words: str, places: str
) -> dict[str, Tensor]:
    """An update without what weight decay made of it, so that rows of absent words and places are exactly 0 again; as
    it is where most words' rows did not move, or did not move so (decoupled decay: Loshchilov and Hutter 2019,
    arXiv:1711.05101; of SGD and momentum both kinds are one).

    Args:
        sent: what each tensor moved by, (…). weights: before that. words, places: names of the embeddings of words
            (words, width) and places, which need not be there.
    """
    if words not in sent:
        return dict(sent)
    moved, held = sent[words].double(), weights[words].double()
    sizes, lengths = held.norm(dim=1), moved.norm(dim=1)
    usual = (sizes > 0) & (lengths > 0)
    if int(usual.sum()) * 2 <= len(moved):
        return dict(sent)
    share = float((-(moved * held).sum(1)[usual] / sizes[usual].square()).median())
    off = (moved + share * held).norm(dim=1)
    if share <= 0 or float((off[usual] / lengths[usual]).median()) > LEFT:
        return dict(sent)
    limit = ROUNDED * float((off[usual] / sizes[usual]).median())
    rest = {name: part.double() + share * weights[name].double() for name, part in sent.items()}
    for name in {words, places} & rest.keys():
        still = rest[name].norm(dim=1) <= limit * weights[name].double().norm(dim=1)
        rest[name] = torch.where(still[:, None], 0.0, rest[name])
    return rest
