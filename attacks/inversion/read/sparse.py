"""Messages of which only some components were sent, the others being exact zeros.

Where the largest are sent, a zero says that a component is smaller than all of these. Where components were drawn, or
nobody knows how they were chosen, it says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from ....defenses.layout import Layout
from ...base import PublicFacts

MOSTLY = 0.5  # of a recording's numbers: more zeros than that, where a network leaves none, are numbers not sent
LARGEST = 0.1  # of the median size of what was sent: if the least is larger, the largest were sent


@dataclass(frozen=True, eq=False)
class Sparse:
    """sent: (d,) bool, which components were. least: no other is larger, in the value's units; infinite where those may
    have any size.
    """

    sent: Tensor
    least: float

    @property
    def largest(self) -> bool:
        """Whether the largest components were sent."""
        return self.least < inf

    def scaled(self, factor: float) -> Sparse:
        return replace(self, least=self.least * factor)

    def to(self, device: str) -> Sparse:
        return replace(self, sent=self.sent.to(device))


def components_sent(value: Tensor, layout: Layout, facts: PublicFacts) -> Sparse | None:
    """Which components of a gradient or update (d,) were sent; None for all.

    Where the scheme is known to send the largest, those that are not 0. A recorded training's scheme is not known: its
    zeros count where they are most of the first layer's weights, without the rows of neurons that no image switches on
    and the columns of inputs that are 0 in all images, which zeros of a network's own making fill.

    >>> recorded = PublicFacts("recorded", "update", "sgd", 0.1, 8, 1, None)
    >>> layout = Layout(("weight",), ((3, 4),))
    >>> dead = torch.ones(3, 4).index_fill_(0, torch.tensor([0, 2]), 0).flatten()
    >>> components_sent(dead, layout, recorded) is None
    True
    >>> components_sent(torch.tensor([2.0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1, 1]), layout, recorded)
    Sparse(sent=tensor([ True, False, False, False, False,  True, False, False, False, False,
             True,  True]), least=1.0)
    """
    if facts.sent_share < 1:
        sent = value != 0
        return Sparse(sent, value[sent].abs().min().item()) if sent.any() else None
    if facts.scheme != "recorded" or facts.share == "weights":
        return None
    first = next((name for name, shape in zip(layout.names, layout.shapes) if len(shape) > 1), None)
    if first is None:
        return None
    rows = (layout.split(value)[first] != 0).float().flatten(1)  # of millions of numbers these alone are looked at
    used = rows[rows.any(1)][:, rows.any(0)]
    if not used.numel() or 1 - used.mean().item() <= MOSTLY:
        return None
    sent = value != 0
    sizes = value[sent].abs()
    return Sparse(sent, sizes.min().item() if sizes.min() >= LARGEST * sizes.median() else inf)


def beyond_sent(own: Sequence[Tensor], sent: Sequence[Tensor], least: float) -> tuple[list[Tensor], list[Tensor]]:
    """A candidate's gradient as it is compared with what was sent, tensor by tensor, and where it depends on it (bool):
    of components that were not sent what is beyond `least`.
    """
    beyond = [torch.where(m, g, g.sign() * (g.abs() - least).clamp_min(0)) for g, m in zip(own, sent)]
    return beyond, [m | (g.abs() > least) for g, m in zip(own, sent)]
