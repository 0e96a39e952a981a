"""The network as a message describes it: with a BatchNorm's running statistics, where those were sent beside weights.

Candidates are asked in evaluation mode, where a BatchNorm normalises by them: by a fresh network's, mean 0 and variance
1, what the weights were trained for comes out as something else.
"""

from __future__ import annotations

from torch import nn

from ..base import Seen, View
from ..inversion.read.statistics import Statistics, as_broadcast, batchnorms, running_moments, untouched


def started_with(view: View, round: int) -> nn.Module:
    """The network of the global model of a round, which the observer saw."""
    return network_sent(view, next(m for m in view.messages if m.broadcast and m.round == round))


def network_sent(view: View, message: Seen) -> nn.Module:
    """The network of a model that was sent, or that an update makes of the round's model; with that model's statistics
    where a clip or noise stands on an upload's own. Variances below 0, which a server's noise has made, are not used.
    """
    layers = batchnorms(view.module)
    if not layers:
        return view.module
    start = next((m for m in view.messages if m.broadcast and m.round == message.round), None)
    before = {} if start is None else dict(start.beside())
    buffers = dict(message.beside())
    if not message.broadcast and not untouched(view.facts):
        buffers = before
    elif message.kind == "update":
        buffers = {name: before[name] + change for name, change in buffers.items() if name in before}
    told = running_moments(layers, buffers)
    return as_broadcast(view.module, Statistics(told, {})) if told else view.module
