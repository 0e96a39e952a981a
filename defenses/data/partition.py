"""STOPGAP by the owner until helper's partition.py lands (overwrite me)."""
from __future__ import annotations

import torch

PARTITIONS = {"iid": "at random"}


def partition(kind, targets, clients, samples_per_client, generator, **options):
    if kind not in PARTITIONS:
        raise ValueError(f"unknown partition {kind!r}")
    each = samples_per_client or len(targets) // clients
    order = torch.randperm(len(targets), generator=generator)
    if each * clients > len(targets):
        raise ValueError(f"asks for {each * clients} examples, only {len(targets)} fit")
    return [order[i * each : (i + 1) * each] for i in range(clients)]
