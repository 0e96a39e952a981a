"""A data set whose auxiliary split stands in for all of it, so that what training on it tells costs nobody anything."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..randomness import generator
from .dataset import DEALT_BY_LOT, Dataset, digest

LEAST = 50  # records of each other split, below which neither an accuracy nor a line-up says much


def most_of_auxiliary(data: Dataset) -> int:
    """How many of the auxiliary records the clients can have, as so many are left for each other split."""
    return max(0, len(data.auxiliary_inputs) - 3 * LEAST)


def of_auxiliary(data: Dataset, samples: int, seed: int) -> Dataset:
    """The auxiliary records, dealt by lot as training, test and auxiliary records; the mean and std stay.

    Args:
        data: with an auxiliary split.
        samples: how many the clients need; a third of the others is left over beside them, as outsiders, a third tests,
            and a third is the attacker's.
        seed: of the lot.

    Raises:
        ValueError: there are too few.
    """
    count = len(data.auxiliary_inputs)
    share = (count - samples) // 3
    if samples > most_of_auxiliary(data):
        raise ValueError(
            f'train_on = "auxiliary": {data.name} has {count} auxiliary records, but {samples + 3 * LEAST} are needed:'
            f" {samples} for clients and {3 * LEAST} set aside; at most {most_of_auxiliary(data)} can go to clients"
        )
    rows = torch.randperm(count, generator=generator(seed, "stand-in"))
    parts = rows.split([count - 2 * share, share, share])
    x, y = data.auxiliary_inputs, data.auxiliary_targets
    (train, train_y), (test, test_y), (rest, rest_y) = ((x[part].contiguous(), y[part]) for part in parts)
    facts = {
        **data.description,
        "sha256": digest(train, train_y),
        "test_sha256": digest(test, test_y),
        "auxiliary_sha256": digest(rest, rest_y),
        "sizes": {"training": len(train), "test": len(test), "auxiliary": len(rest)},
        "test": DEALT_BY_LOT,
        "train_on": "auxiliary",
    }
    return replace(
        data,
        inputs=train,
        targets=train_y,
        test_inputs=test,
        test_targets=test_y,
        auxiliary_inputs=rest,
        auxiliary_targets=rest_y,
        description=facts,
        groups=None,
        test_groups=None,
        group_names=(),
        extra={},
    )
