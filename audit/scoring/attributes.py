"""Guesses of a hidden column beside the truth: how many more are right of members than of outsiders, judged as in
membership (`membership_entries`), and what a guess from auxiliary records alone gets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
from torch import Tensor

from ...attacks.base import GuessedValues, Knowledge
from ...attacks.cells import CellEvidence
from ...attacks.membership.hidden_column import HiddenColumn, hidden_column
from ...defenses.terms import Observer
from ...metrics.attribute import advantage
from ...metrics.intervals import clopper_pearson_interval
from ..results.checks import COMPARABLE
from ..results.format import AttackResult, Metrics
from ..setup.auditor import Auditor
from .limits import Limits
from .membership_entries import judges_of

TREES = 100  # of the imputer


def attribute_entries(
    auditor: Auditor, knowledge: Knowledge, collected: Sequence[CellEvidence], limits: Limits | None, seed: int
) -> list[AttackResult]:
    """An entry for each column, settings and observer.

    Args:
        auditor: with the truth, or without. knowledge: the attacker's, with the candidates. collected: any evidence.
        limits: None where no proof bounds any attack, as of membership. seed: of who judges whom, and of the imputer.
    """
    groups: dict[str, list[tuple[CellEvidence, GuessedValues]]] = {}
    for item in collected:
        if isinstance(item.evidence, GuessedValues):
            found = item.evidence
            name = json.dumps([found.observer, found.manner, found.column, dict(item.cell.settings)], sort_keys=True)
            groups.setdefault(name, []).append((item, found))
    entries = [_entry(auditor, knowledge, parts, seed) for parts in groups.values()]
    if limits is None:
        return entries
    ceilings = [limits.advantage(Observer.parse(entry.observer)) for entry in entries]
    bounded = [{**entry.numbers, "attribute_ceiling": most} for entry, most in zip(entries, ceilings)]
    return [entry.having(metrics=Metrics.of(numbers)) for entry, numbers in zip(entries, bounded)]


def _entry(
    auditor: Auditor, knowledge: Knowledge, parts: Sequence[tuple[CellEvidence, GuessedValues]], seed: int
) -> AttackResult:
    (first, found), guesses = parts[0], [guessed for _, guessed in parts]
    entry = AttackResult(
        attack=found.attack,
        observer=found.observer,
        manner=found.manner,
        n=len(found.ids),
        key=first.cell.key,
        evidence=tuple(item.cell.key for item, _ in parts),
        assumed=tuple(dict.fromkeys(said for each in guesses for said in each.assumed)),
        settings={**first.cell.settings, "column": found.column},
    )
    dealt = judges_of(auditor, knowledge, [each.sender for each in guesses], seed)
    if isinstance(dealt, str):
        return entry.having(metrics=Metrics.of({"attribute": None}), not_measured={"attribute": dealt})
    hidden = hidden_column(auditor.setup.columns, knowledge.auxiliary_inputs, found.column)
    rows, member = dealt.rows, dealt.member
    true = hidden.read(knowledge.candidate_inputs)[rows]
    right = torch.stack([each.guesses for each in guesses])[dealt.judge[rows], rows] == true
    scored = advantage(right[member], right[~member])
    imputed = _imputed(hidden, knowledge, seed)[rows][member]
    controls = {
        "outsiders": scored.others,
        "most_frequent": float((true[member] == 0).double().mean()),
        "imputed": float((true[member] == imputed).double().mean()),
    }
    numbers = {
        "attribute": scored.members,
        "attribute_advantage": scored.difference,
        "n_members": int(member.sum()),
        "n_nonmembers": int((~member).sum()),
    }
    entry = entry.having(n=len(rows), assumed=entry.assumed + dealt.said, metrics=Metrics.of(numbers))
    if not dealt.lot.comparable:
        return entry.having(not_measured={COMPARABLE: dealt.lot.sentence})
    return entry.having(
        controls={name: {"attribute": share} for name, share in controls.items()},
        intervals={
            "attribute": clopper_pearson_interval(int(right[member].sum()), int(member.sum())),
            "attribute_advantage": scored.interval,
        },
        p_values={"attribute_advantage": scored.p_value},
        least_p_values={"attribute_advantage": scored.least},
    )


def _imputed(hidden: HiddenColumn, knowledge: Knowledge, seed: int) -> Tensor:
    """(n,) the value that a random forest of auxiliary records, without any message, guesses of each candidate."""
    from sklearn.ensemble import RandomForestClassifier  # slow to import

    def known(records: Tensor, targets: Tensor) -> Tensor:
        return torch.cat([hidden.without(records), targets.view(len(records), -1).to(records)], 1)

    forest = RandomForestClassifier(TREES, random_state=seed)
    forest.fit(
        known(knowledge.auxiliary_inputs, knowledge.auxiliary_targets).numpy(),
        hidden.read(knowledge.auxiliary_inputs).numpy(),
    )
    return torch.from_numpy(forest.predict(known(knowledge.candidate_inputs, knowledge.candidate_targets).numpy()))
