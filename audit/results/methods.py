"""`audit run --explain`: which methods of an inversion ran, and why the others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..say import words
from .format import AttackResult, Method, Results

RAN = "ran"


def explained_methods(results: Results) -> tuple[str, ...]:
    """A table for each inversion, one line a method; nothing where none ran."""
    groups: dict[str, list[AttackResult]] = {}
    for entry in results.attacks:
        if entry.methods:
            name = words.attack_entry(entry.variant, entry.manner or "", entry.observer)
            groups.setdefault(name, []).append(entry)
    return tuple(line for name, entries in groups.items() for line in _table(name, entries))


def _table(name: str, entries: Sequence[AttackResult]) -> list[str]:
    width = max(len(method.name) for method in entries[0].methods)
    rows = zip(*(entry.methods for entry in entries), strict=True)
    lines = [f"Methods of the inversion ({name}):"]
    return lines + [f"  {row[0].name:{width}}  {_why(row)}" for row in rows]


def _why(row: Sequence[Method]) -> str:
    """Why a method ran or not; where messages differ, on how many."""
    counts = Counter(RAN if not method.why_not else f"no: {method.why_not}" for method in row)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{count} of {len(row)}: {clause}" for clause, count in counts.items())
