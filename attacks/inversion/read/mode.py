"""The network as clients ran it: in training a BatchNorm normalises by the statistics of the batch at hand."""

from __future__ import annotations

import copy

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ..settings import Mode


def as_run(module: nn.Module, mode: Mode) -> nn.Module:
    """A copy of a network that draws nothing and keeps no statistics. With "train" each BatchNorm takes the mean and
    the biased variance of what it gets, with "eval" its running ones; Dropout does nothing, as its masks are unknown.

    >>> import torch
    >>> norm = nn.BatchNorm1d(1)
    >>> as_run(norm, "train")(torch.tensor([[1.0], [3.0]])).flatten().round().tolist()
    [-1.0, 1.0]
    """
    own = copy.deepcopy(module).eval()
    if mode == "train":
        for part in own.modules():
            if isinstance(part, _BatchNorm):  # without running statistics PyTorch takes the batch's
                part.running_mean = part.running_var = part.num_batches_tracked = None
                part.track_running_stats = False
    return own


def mode_assumed(module: nn.Module, mode: Mode, recorded: bool) -> list[str]:
    """What `as_run` takes for granted of this network, in plain words. recorded: it was trained by others' code, whose
    stack of layers may have had a Dropout that a recording leaves out.
    """
    said = []
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    if norms:
        said.append(
            "BatchNorm normalised each batch by its own images' statistics, and a batch was the message's images"
            if mode == "train"
            else "BatchNorm normalised by fixed statistics"
        )
    if any(isinstance(part, _DropoutNd) and part.p > 0 for part in module.modules()):
        said.append("no Dropout, whose masks nobody knows: the network without it stands for its mean")
    elif recorded:
        said.append("no Dropout in local training")
    return said
