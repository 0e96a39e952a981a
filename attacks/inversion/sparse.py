"""Messages of which only some components were sent, the others being exact zeros: those say nothing of the images."""

from __future__ import annotations

from torch import Tensor

from ...defenses.layout import Layout
from ..base import PublicFacts

MOSTLY = 0.5  # of a recording's numbers: more zeros than that, where a network leaves none, are numbers not sent
RECORDED = "recorded"


def components_sent(value: Tensor, layout: Layout, facts: PublicFacts) -> Tensor | None:
    """Which components of a gradient or update (d,) were sent, (d,) bool; None for all.

    Where the scheme is known to send a share of them, those that are not 0. A recorded training's scheme is not known:
    its zeros count where they are most of the first layer's weights, without the rows of neurons that no image
    switches on and the columns of inputs that are 0 in all images, which zeros of a network's own making fill.

    >>> scheme = PublicFacts("recorded", "update", "sgd", 0.1, 8, 1, None)
    >>> layout = Layout(("weight",), ((3, 4),))
    >>> dead = torch.ones(3, 4).index_fill_(0, torch.tensor([0, 2]), 0).flatten()
    >>> components_sent(dead, layout, scheme) is None
    True
    >>> components_sent(torch.tensor([1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1]), layout, scheme).sum().item()
    4
    """
    sent = value != 0
    if not sent.any():
        return None
    if facts.sent_share < 1:
        return sent
    if facts.scheme != RECORDED or facts.share == "weights":
        return None
    first = next((name for name, shape in zip(layout.names, layout.shapes) if len(shape) > 1), None)
    if first is None:
        return None
    rows = layout.split(sent.float())[first].flatten(1)
    used = rows[rows.any(1)][:, rows.any(0)]
    return sent if used.numel() and 1 - used.mean().item() > MOSTLY else None
