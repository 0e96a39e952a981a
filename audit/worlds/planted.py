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
from torch import Tensor
from torch.utils.data import Dataset


@dataclass(eq=False)
class PlantedDataset(Dataset):
    """`records`, with `canary` at `place`; left out of every batch unless `present`.

    drawn: how often the place was drawn. batches: how many batches were taken. empty: whether the last one was.
    """

    records: Any
    place: int
    canary: Any
    present: bool
    drawn: int = 0
    batches: int = 0
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
        self.drawn += places.count(self.place)
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
    """Canaries in the place of `record`, an (input, label) pair of a classifier: the record itself, mislabelled, blank
    and crafted. Only itself where it is no such pair.

    The crafted one has a large value of random sign everywhere, which no record has, so that its gradient is longer
    than any clip and points where no other record's does.
    """
    canaries = {"existing": record}
    if not (isinstance(record, tuple | list) and len(record) == 2 and isinstance(record[0], Tensor)):
        return canaries
    inputs, label = record
    whole = isinstance(label, int) or (isinstance(label, Tensor) and not label.is_floating_point() and label.ndim == 0)
    if not (inputs.is_floating_point() and whole):
        return canaries
    labels = sorted({int(other[1]) for other in others})
    wrong = next((other for other in labels if other != int(label)), int(label))
    label_as = (lambda value: torch.tensor(value)) if isinstance(label, Tensor) else int
    size = max(1.0, float(torch.stack([other[0].abs().max() for other in others]).max()))
    signs = torch.randint(2, inputs.shape, generator=generator).to(inputs.dtype) * 2 - 1
    return {
        **canaries,
        "mislabelled": (inputs, label_as(wrong)),
        "blank": (torch.zeros_like(inputs), label_as(wrong)),
        "crafted": (3 * size * signs, label_as(wrong)),
    }
