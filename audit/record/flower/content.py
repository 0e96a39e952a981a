"""What a Flower message holds beside the arrays that are recorded, and whether clients got the same ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .mods import KEY

SUCCESS = ((0, ""), (0, "Success"))  # what the protocol of before puts into every reply, as a record *.status


def beside(content: Any, counts: Collection[str], arrays: int = 1) -> list[str]:
    """Names of what a reply holds that no recording has.

    Args:
        content: its RecordDict. counts: metrics that are its number of records. arrays: how many of its ArrayRecords
            are recorded, from the first on.
    """
    named = [str(name) for name in list(content.array_records)[arrays:]]
    named += [str(key) for record in content.metric_records.values() for key in record if key not in counts]
    for name, record in content.config_records.items():
        status = str(name).endswith(".status") and (record.get("code"), record.get("message")) in SUCCESS
        if name != KEY and not status:
            named += [str(key) for key in record]
    return named


def not_as_sent(messages: Sequence[Any]) -> str:
    """What messages to train hold beside the model of the first one, "" for nothing. What a config says is declared."""
    first, *others = [m.content for m in messages if m.content.array_records]
    for content in (first, *others):
        more = [*list(content.array_records)[1:], *content.metric_records]
        if more:
            return f"messages to clients hold {', '.join(map(repr, more))} beside the model"
    for content in others:
        if content is not first and not _same(first, content):
            return "clients got models that differ, and the first one alone is recorded"
    return ""


def _same(one: Any, other: Any) -> bool:
    a, b = (next(iter(content.array_records.values())) for content in (one, other))
    if list(a) != list(b):
        return False
    return all(x is b[n] or (x.dtype, x.shape, x.data) == (b[n].dtype, b[n].shape, b[n].data) for n, x in a.items())
