"""A data set with a canary in one record's place, or with nothing there: its length is the same in either world.

A record more would change the number of steps and the batch sizes of most training code, and that tells the worlds
apart though the claim is about neighbours of one size. So the canary takes a record's place, and in the other world the
place is drawn like any other and left out of its batch: the record's weight is 0 (`zero_out`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from ..labelled import LabelledRecord, labelled_record


@dataclass(eq=False)
class PlantedDataset(Dataset):
    """`records`, with `canary` at `place`; left out of every batch unless `present`.

    drawn: how often the place was drawn, and most: in one batch at most. batches: how many batches were taken, and
    taken: how many records in all, the place among them in either world. empty: whether the last one was.
    """

    records: Any
    place: int
    canary: Any
    present: bool
    drawn: int = 0
    most: int = 0
    batches: int = 0
    taken: int = 0
    empty: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        """A record by itself, the real one in the canary's place too: loaders look at shapes so. Who trains on records
        taken so never sees a canary, and is told that it changes nothing.
        """
        return self.records[index]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch, as torch's DataLoader takes it; the place is counted in either world."""
        self.batches += 1
        places = [int(i) % len(self) for i in indices]
        self.taken += len(places)
        self.drawn += places.count(self.place)
        self.most = max(self.most, places.count(self.place))
        kept = [i for i in places if self.present or i != self.place]
        self.empty = not kept
        return [self.canary if i == self.place else self.records[i] for i in kept]


@contextmanager
def training_on(datasets: Sequence[Any]) -> Iterator[None]:
    """Around a training on these: what fails at a batch of which nothing is left says so. Raises ValueError."""
    try:
        yield
    except ValueError as error:
        if not any(isinstance(one, PlantedDataset) and one.empty for one in datasets):
            raise
        raise ValueError(
            f"the canary's record is alone in a batch, which is empty without it, and then {error}; take another place,"
            " or larger batches"
        ) from error


def default_canaries(record: Any, others: Sequence[Any], generator: torch.Generator) -> dict[str, Any]:
    """Canaries in the place of `record`, an input and a label in any form that `labelled` reads: the record itself,
    mislabelled, blank and crafted. Of inputs without real numbers, as token ids, itself and mislabelled; of any other
    record itself alone.

    The crafted one has a large value of random sign everywhere, which no record has, so that its gradient is longer
    than any clip and points where no other record's does; of pixels of 8 bits the least or the most.
    """
    canaries, own = {"existing": record}, labelled_record(record)
    if own is None:
        return canaries
    known = [one for other in others if (one := labelled_record(other)) is not None]
    wrong = _another_label(own, known)
    canaries["mislabelled"] = own.remade(None, wrong)
    if own.inputs is None:
        return canaries
    signs = torch.randint(2, own.inputs.shape, generator=generator).double() * 2 - 1
    size = max([1.0, *(float(one.inputs.abs().max()) for one in known if one.inputs is not None)])
    crafted = 255 * (signs + 1) / 2 if own.whole else 3 * size * signs
    return {**canaries, "blank": own.remade(torch.zeros_like(own.inputs), wrong), "crafted": own.remade(crafted, wrong)}


def _another_label(own: LabelledRecord, others: Sequence[LabelledRecord]) -> Any:
    """The first of other classes; of real numbers the furthest; its own where there is none."""
    different = sorted((one for one in others if one.key != own.key), key=lambda one: one.key[::-1])
    if not different:
        return own.label
    first, key = different[0], own.key
    if len(key) == 1 and all(isinstance(k, float) and k % 1 for k in (key[0], first.key[0])):
        first = max(different, key=lambda one: abs(float(one.key[0]) - float(key[0])))
    return first.label
