"""What a message holds that no noise need be on, and what it holds without the noise that it needs.

A state dict has more than what is trained. A tensor that never changes tells nothing; a BatchNorm's counter of batches
tells what everybody knows, where it hangs on the number of records alone. Its running statistics are the mean and the
variance of a client's batches: they need a clip and noise like everything else, and noise on gradients is none on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor

from .network import Network

TensorSpan = tuple[str, int, int]  # name, first and end in a vector
PLAIN = 1e-3  # of the noise: how near to a value without noise all numbers of a tensor are where none was added
LEAST_PLAIN = 3  # numbers that are as near by chance once in a billion tensors
ANY = 2**60  # no limit to a batch


@dataclass(frozen=True)
class Outside:
    """Names of tensors of a round. harmless: no noise need be on them. plain: running statistics that were sent without
    any. moved: all those that somebody changes. wrong: what a counter tells, "" for nothing.
    """

    harmless: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    wrong: str = ""

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.harmless, *self.plain))


WHOLE = slice(None)


@dataclass(frozen=True, eq=False)
class SentValue:
    """A message beside what it would be without noise. client: its number, -1 for the server. value: (d,). start: (d,),
    the model that it is to replace, None of a value that is added to it. raw: (d,), the same without noise, None where
    nobody told. records: how many are behind it.
    """

    client: int
    value: Tensor
    start: Tensor | None
    raw: Tensor | None
    records: int

    def change(self, part: slice | Tensor = WHOLE) -> Tensor:
        """What it adds to the model."""
        if self.start is None:
            return self.value[part]
        return self.value[part] - self.start[part]

    def bare(self, part: slice = WHOLE) -> Tensor | None:
        """The same of what nobody added noise to."""
        if self.raw is None or self.start is None:
            if self.raw is None:
                return None
            return self.raw[part]
        return self.raw[part] - self.start[part]


def outside(network: Network, spans: Sequence[TensorSpan], sent: Sequence[SentValue], noise_std: float) -> Outside:
    """Of the messages of a round, all of them. spans: of the tensors. noise_std: as declared."""
    untrained = {name: name not in network.parameters for name in network.untrained}  # True: a buffer
    places = {name: slice(first, end) for name, first, end in spans}
    twins = {name: places.get(twin) for name, twin in network.twins.items()}
    harmless, plain, moved, wrong = list[str](), list[str](), list[str](), ""
    for name, first, end in spans:
        twin = twins.get(name)
        if twin is not None and all(torch.equal(one.change(places[name]), one.change(twin)) for one in sent):
            harmless.append(name)
        if name not in untrained or name in harmless:
            continue
        changes = [one.change(slice(first, end)) for one in sent]
        if not any(bool(change.any()) for change in changes):
            harmless.append(name)
        elif name in network.whole and end == first + 1 and all(_counted(one, first, noise_std) for one in sent):
            harmless.append(name)
            counts = [(one.records, round(float(change))) for one, change in zip(sent, changes)]
            if not wrong and not counts_batches(counts):
                wrong = f"{name!r}, which has no noise, went on by {_few(counts)}: no size of a batch gives that"
        elif untrained[name]:
            moved.append(name)
            told = [one for one in sent if one.raw is not None]
            if told and end - first >= LEAST_PLAIN and all(_bare(one, first, end, noise_std) for one in told):
                plain.append(name)
    return Outside(tuple(harmless), tuple(plain), tuple(moved), wrong)


def _counted(one: SentValue, place: int, noise_std: float) -> bool:
    change = float(one.change(slice(place, place + 1)))
    return change == round(change) or _bare(one, place, place + 1, noise_std)


def _bare(one: SentValue, first: int, end: int, noise_std: float) -> bool:
    bare = one.bare(slice(first, end))
    return bare is not None and bool(((one.change(slice(first, end)) - bare).abs() < PLAIN * noise_std).all())


def counts_batches(counts: Sequence[tuple[int, int]]) -> bool:
    """Whether numbers of batches hang on numbers of records alone: the same for all, or E·⌈n/B⌉, or E·⌊n/B⌋.

    Args:
        counts: of each message its records n, and its batches.

    >>> [counts_batches(counts) for counts in ([(20, 4), (500, 4)], [(20, 8), (7, 4), (33, 14)], [(20, 4), (20, 5)])]
    [True, True, False]
    """
    if len({batches for _, batches in counts}) == 1:
        return True
    if any(batches < 0 for _, batches in counts):
        return False
    common = gcd(*(batches for _, batches in counts))
    for epochs in (e for e in range(1, common + 1) if common % e == 0):
        each = [(n, batches // epochs) for n, batches in counts]
        # ⌈n/B⌉ = k where n/k ≤ B < n/(k − 1), and ⌊n/B⌋ = k where n/(k + 1) < B ≤ n/k.
        up = [(-(-n // k), (n - 1) // (k - 1) if k > 1 else ANY) for n, k in each if k]
        down = [(n // (k + 1) + 1, n // k if k else ANY) for n, k in each]
        if any(len(r) == len(each) and max(b for b, _ in r) <= min(b for _, b in r) for r in (up, down)):
            return True
    return False


def _few(counts: Sequence[tuple[int, int]]) -> str:
    least, most = min(counts, key=lambda c: c[1]), max(counts, key=lambda c: c[1])
    return f"{least[1]} of {least[0]} records and by {most[1]} of {most[0]}"


def without(value: Tensor, spans: Sequence[TensorSpan], names: frozenset[str]) -> Tensor:
    """The value with these tensors as zeros."""
    if not names:
        return value
    kept = torch.clone(value)
    for name, first, end in spans:
        if name in names:
            kept[first:end] = 0
    return kept
