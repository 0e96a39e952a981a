"""What a gate says: whether it failed, by what value; or why nothing was gated."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ..results.format import Epsilon
from .words import at_most, number

PUBLISHED = "the noise key is published"
NOT_CLAIMED = "no ε is claimed"
NOT_PRICED = "no ε was priced in this run"


def row_place(epsilon: Epsilon) -> str:
    return f"{epsilon.unit}, {epsilon.observer}, {epsilon.adjacency}, δ = {epsilon.delta:g}"


def claim_place(epsilon: Epsilon, secret: bool) -> str:
    """Where a claim was judged, and by what."""
    if epsilon.proven is None or epsilon.proven == inf:
        proven = "nothing"
    else:
        proven = f"ε ≤ {at_most(epsilon.proven)}"
    known = "" if secret else f"; {PUBLISHED}"
    return f"{row_place(epsilon)}; {number(epsilon.claimed)} claimed, {proven} proven{known}"


def gate_sentence(gate: str, failed: bool, value: str, where: str) -> str:
    verb = "passed"
    if failed:
        verb = "failed"
    return f"gate {verb}: {gate} ({', '.join(filter(None, (value, where)))})"


def nothing_gated(gate: str, why: str) -> str:
    return f"--fail-if '{gate}': {why}, so nothing was gated"


def not_everywhere(gate: str, metric: str, where: str) -> str:
    return f"--fail-if '{gate}': {metric} was not measured for {where}, so that it passes elsewhere says nothing"


def passes_unpriced(gate: str) -> str:
    return f"--fail-if '{gate}': ε was not priced, so that it passes says nothing"


def passes_blind(gate: str, epsilon: Epsilon, most: str) -> str:
    """most: what the row's test could have shown."""
    return (
        f"--fail-if '{gate}': the test of {row_place(epsilon)} could have shown {most} at most, so that it passes says"
        " nothing; take more draws"
    )


def metric_not_measured(metric: str) -> str:
    return f"no {metric} was measured in this run"


def without_value(metric: str) -> str:
    return f"no row has a {metric} ε"


def no_such_row(rows: Sequence[Epsilon]) -> str:
    known = dict.fromkeys(f"[{each.unit},{each.observer},{each.adjacency}]" for each in rows)
    return f"there is no such row; rows are {', '.join(known)}"


def parts_unfinished(attack: str) -> str:
    return f"the parts of {attack} that did not fit into the minutes"
