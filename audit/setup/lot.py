"""Whether members and outsiders might as well have traded places, which every p-value of membership presupposes.

A message tells what kind of records a client holds, and a guarantee for single records does not hide that. Where kinds
are dealt on purpose (shards, dirichlet), members are therefore compared with outsiders of their own class, judged by
the same client: among these, who is a member is a matter of lot. Where nothing is dealt by lot there is no comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from ...defenses.data.dataset import DEALT_BY_LOT, OF_ONE_SET
from ...defenses.data.partition import BY_LOT, UNALIKE


@dataclass(frozen=True)
class Lot:
    """What a setup's members and outsiders have in common.

    comparable: whether some of them might have traded places. by_class: whether only those of one class, or of one
    holder, might.
    sentence: what a reader has to know of it, "" where any two of them might have.
    """

    comparable: bool
    by_class: bool
    sentence: str


def lot_of(partition: str, classes: int, test: object, by_holder: bool = False) -> Lot:
    """The lot by which members and outsiders were dealt.

    Args:
        partition: who holds which records, a name in `defenses.data.partition.PARTITIONS`.
        classes: how many there are, 0 where targets are no classes.
        test: what the data's description says of the test split, if the outsiders are of it.
        by_holder: whether the holder of each member and outsider is known, and a lot dealt the rows of each.

    >>> lot_of("iid", 10, DEALT_BY_LOT).sentence, lot_of("sorted", 10, DEALT_BY_LOT).comparable
    ('outsiders have the classes that members have, client by client', False)
    """
    if partition == "writer" and by_holder and test == DEALT_BY_LOT:
        return Lot(True, True, "outsiders are test rows of the members' holders and of their classes, client by client")
    if partition != "iid" and not (partition in BY_LOT and classes):
        return Lot(
            False,
            False,
            f"members and outsiders may differ in kind ({UNALIKE[partition]}), so scores"
            " that tell them apart say nothing of single records and have no control",
        )
    if test not in (DEALT_BY_LOT, OF_ONE_SET):
        return Lot(
            False,
            False,
            "outsiders are of a test split that may be of another kind than the members, so scores that tell them apart"
            " say nothing of single records and have no control; ask for fewer records a client, so that some are left"
            " over for outsiders",
        )
    sentences = []
    if matched := classes > 0:  # whoever is told the labels of a batch must learn nothing by them
        sentences.append("outsiders have the classes that members have, client by client")
    if test == OF_ONE_SET:
        sentences.append("outsiders are of the published test split, taken to be of one kind with the training split")
    return Lot(True, matched, "; ".join(sentences))


def strata(targets: Tensor, holders: Tensor, classes: int) -> Tensor:
    """(n,) a number for each holder and class; for each holder alone where targets are no classes."""
    if classes:
        return targets.long() + classes * holders
    return holders


def allowed(members: Sequence[int], outsiders: Sequence[int]) -> Fraction:
    """The largest factor by which outsiders can be as many as members, label by label; 0 where nobody is comparable.

    Labels that only one side has are not counted.

    >>> allowed([4, 2, 3], [2, 9, 0])
    Fraction(1, 2)
    """
    return min((Fraction(out, own) for own, out in zip(members, outsiders) if own and out), default=Fraction(0))


def proportional(members: Sequence[int], factor: Fraction, rng: torch.Generator) -> list[int]:
    """Whole numbers whose expectations are `factor` times the members', each rounded up or down, and so are the sums of
    neighbours (systematic sampling, Madow 1949).

    >>> proportional([4, 2, 6], Fraction(1, 2), torch.Generator())
    [2, 1, 3]
    """
    up, down = factor.numerator, factor.denominator
    total = int(torch.randint(down, (1,), generator=rng))
    counts = []
    for count in members:
        counts.append((total + up * count) // down - total // down)
        total += up * count
    return counts
