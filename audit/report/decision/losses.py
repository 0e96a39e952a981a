"""Which ε is claimed, proven and demonstrated, of what the config asks about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from ...results import words
from ...results.checks import most_demonstrated, refutations, refuted_on_condition
from ...results.format import Epsilon
from ..facts import ReportedSetting

CLAIM_OR_PROOF: tuple[Literal["claimed", "proven"], ...] = ("claimed", "proven")


@dataclass(frozen=True)
class Range:
    """What the settings have of one quantity. count: how many have it; least: the setting of the least, or "", where
    there is only one value.
    """

    low: float
    high: float
    count: int
    least: str = ""


@dataclass(frozen=True)
class Losses:
    """ε for one unit, observer, adjacency and δ, over all settings; None: not claimed, priced or measured in any.

    refuted: a sentence a setting of which more is demonstrated than is claimed or proven, of any unit and observer.
    claimed_by: whose the claims are, "" where the settings differ in it. demonstrated: the most in any setting, which
    `demonstrated_in` names; on_condition: the same in words, of a bound with a condition; chosen: what the adversary
    chose for either, in words. secret: whether every noise's
    key is. elsewhere: where nothing is claimed here, a claim about another unit or observer, a sentence. declared: a
    proof rests on what an owner says and nobody checked.
    """

    unit: str
    observer: str
    adjacency: str
    delta: float | None
    settings: int
    proven: Range | None
    claimed: Range | None
    claimed_by: str
    demonstrated: float | None
    demonstrated_in: str
    confidence: float | None
    on_condition: str
    chosen: str = ""
    refuted: tuple[str, ...] = ()
    secret: bool = True
    elsewhere: str = ""
    declared: bool = False


def losses_of(settings: Sequence[ReportedSetting], worst: ReportedSetting) -> Losses | None:
    """The ε that the config asks about; else the one that most claims are about, or that of the worst setting's
    headline where nothing is claimed.
    """
    asked = next((row for row in worst.results.epsilon if row.asked), None)
    claims = [place_of(row) for setting in settings for row in setting.results.epsilon if row.claimed is not None]
    head = worst.headline
    if head is None and not claims:
        head = next((setting.headline for setting in settings if setting.headline is not None), None)
        if head is None:
            return None
    refuted = [row for _, row in (*refutations(worst.results.epsilon), *refuted_on_condition(worst.results.epsilon))]
    refuted = [row for row in refuted if not row.aside]
    if refuted:
        place = place_of(refuted[0])
    elif asked is not None:
        place = place_of(asked)
    else:
        place = max(claims, key=claims.count) if claims else place_of(head)  # type: ignore[arg-type]
    rows = [(setting.label, row) for setting in settings for row in setting.results.epsilon if place_of(row) == place]
    first = rows[0][1]
    claimants = {row.claimed_by for _, row in rows if row.claimed is not None}
    most, shown = max(rows, key=lambda pair: (pair[1].demonstrated is not None, pair[1].demonstrated or 0.0))
    conditional = max((row for _, row in rows), key=lambda row: row.demonstrated_on_condition or -1.0)
    return Losses(
        unit=first.unit,
        observer=words.observer(first.observer),
        adjacency=first.adjacency,
        delta=first.delta,
        settings=len(settings),
        proven=_range([(label, row.proven) for label, row in rows]),
        claimed=_range([(label, row.claimed) for label, row in rows]),
        claimed_by=claimants.pop() if len(claimants) == 1 else "",
        demonstrated=shown.demonstrated,
        demonstrated_in=most if shown.demonstrated is not None and len(settings) > 1 else "",
        confidence=shown.confidence if shown.demonstrated is not None else None,
        on_condition=words.on_condition(conditional) or "",
        chosen=words.chosen_briefly(shown) or words.chosen_briefly(conditional),
        refuted=tuple(said for setting in settings if (said := _refuted(setting))),
        secret=all(setting.results.setup.secret_key for setting in settings),
        elsewhere=_claimed_elsewhere(worst, place),
        declared=any(setting.results.setup.unchecked for setting in settings),
    )


def _claimed_elsewhere(setting: ReportedSetting, place: tuple[object, ...]) -> str:
    """A claim that somebody states of another unit or observer, and what is proven there: it is not for want of one
    that none stands here.
    """
    stated = (row for row in setting.results.epsilon if row.claimed is not None and row.claimed_by != "accountant")
    row = next((row for row in stated if place_of(row) != place), None)
    if row is None or any(one.claimed is not None for one in setting.results.epsilon if place_of(one) == place):
        return ""
    held = row.proven is not None and row.proven < inf and setting.results.setup.secret_key
    proven = f"{words.at_most(row.proven)} is proven there" if held else "nothing is proven there"
    claim = words.claim(row.claimed, row.claimed_by)
    return f"{claim} is claimed {words.claimant(row.claimed_by)} {words.where(row)}; {proven}.".replace("  ", " ")


def _refuted(setting: ReportedSetting) -> str:
    """The setting's claim, else its proof, beside the most that refutes it; on a condition only where nothing else
    does; "" where nothing is refuted.
    """
    rows = setting.results.epsilon
    for on_condition in (False, True):
        for what in CLAIM_OR_PROOF:
            pairs = refutations(rows, what, on_condition)
            if not pairs:
                continue
            shown, limit = max(pairs, key=lambda pair: most_demonstrated(pair[0]))
            condition = f" if {shown.condition}" if on_condition else ""
            most = words.at_least(shown.demonstrated_on_condition if on_condition else shown.demonstrated)
            if what == "claimed":
                refuted = f"The claim ε = {words.number(limit.claimed)} of “{setting.label}” is refuted"
            else:
                refuted = f"The proof of ε ≤ {words.at_most(limit.proven)} of “{setting.label}” is contradicted"
            there = " on that condition" if on_condition else ""
            return (
                f"{refuted}{condition}: at least {most}{there} was demonstrated{words.chosen(shown)}, per {shown.unit}."
            )
    return ""


def place_of(row: Epsilon) -> tuple[str, str, str, float | None]:
    return row.observer, row.unit, row.adjacency, row.delta


def _range(values: Sequence[tuple[str, float | None]]) -> Range | None:
    known = [(value, label) for label, value in values if value is not None]
    if not known:
        return None
    (low, least), (high, _) = min(known, key=lambda pair: pair[0]), max(known, key=lambda pair: pair[0])
    return Range(low, high, len(known), least if low < high else "")
