"""Which words trained in one step of Adam: of a word in one step alone every weight moved by the same, which is how far
that step's momentum went on. Their order is not told, so the texts made of them are guesses.
"""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor

ALIKE = 0.01  # of a row's usual move that half of its weights may be off; of SGD's rows it is a half
APART = 1.05  # times as far moves a step that is another one; of ten steps of Adam the nearest are 1.1 apart


def words_of_steps(rows: Tensor) -> list[Tensor]:
    """The places among rows (k, width) of an embedding's update, step by step, the earliest first; rows of several
    steps are in none, nor is one that moved as no other did.
    """
    moved = rows.double().abs()
    sizes = moved.median(1).values
    alike = (moved - sizes[:, None]).abs().median(1).values <= ALIKE * sizes
    order = sizes.argsort(descending=True)
    order = order[alike[order]]
    ends = torch.nonzero(sizes[order][:-1] > APART * sizes[order][1:]).flatten() + 1
    return [part for part in order.tensor_split(ends) if len(part) > 1]


def dealt_texts(rows: Tensor, places: Tensor, count: int) -> list[Tensor]:
    """At most `count` texts, as places among the words with these rows (k, width): those of a step dealt in turn, in
    the order of the places (p, width) whose rows moved in the same direction as theirs in most weights.
    """
    steps = words_of_steps(rows)
    many = ceil(count / max(1, len(steps)))
    texts = []
    for step in steps:
        agree = rows[step].sign().double() @ places.sign().double().T
        order = step[agree.argmax(1).argsort(stable=True)]
        texts += [order[k::many] for k in range(many)]
    return texts[:count]
