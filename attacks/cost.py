"""What an attack costs, in floating-point operations, by a rule on shapes: progress and `audit run --minutes` go by it.

No clock is asked, so every machine says the same. An estimate is right to a factor of about three.
"""

from __future__ import annotations

import copy
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ..defenses.layout import Layout

CALL = 10**8  # of one call of a network, whatever it computes: a few milliseconds
A_MINUTE = 18 * 10**11  # two cores' worth
NOISE = 150  # of one number of noise
CLIPPED = 200  # of one number of a record's own gradient, which is measured, scaled, rounded and added

_FORWARD: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], int]] = WeakKeyDictionary()


def forward_operations(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Of the network's outputs for one record of `shape`: two for each product, and no fewer than two a parameter.

    >>> forward_operations(nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU()), (4,))
    24
    """
    known = _FORWARD.setdefault(module, {})
    if shape not in known:
        network = copy.deepcopy(module).eval()  # statistics of a batch are not to move
        records = next(network.parameters()).new_zeros(2, *shape)  # a batch's statistics want two
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(records)
        known[shape] = max(counter.get_total_flops() // 2, 2 * Layout.of(network).dim)
    return known[shape]


def minutes(operations: int) -> float:
    """About how long they take on two cores.

    >>> minutes(A_MINUTE)
    1.0
    """
    return operations / A_MINUTE
