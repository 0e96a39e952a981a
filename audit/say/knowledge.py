"""What each piece of an attacker's knowledge is worth."""

from __future__ import annotations

from collections.abc import Mapping

from .words import times


def got_more_without(attack: str, without: str) -> str:
    """attack: how it ran. without: what it lacked."""
    return (
        f"The inversion ({attack}) got more {without} than with all it knows; the verdict counts the latter alone, and"
        " may say too little."
    )


def nothing_said(not_withheld: Mapping[str, str]) -> str:
    """Which pieces of knowledge were not withheld, and why, in a sentence without its full stop; "" where all were.

    >>> nothing_said({"noise": "there is none", "labels": "they are not known"})
    'nothing to withhold: noise (there is none), labels (they are not known)'
    """
    named = ", ".join(f"{what} ({why})" for what, why in not_withheld.items())
    if named:
        return f"nothing to withhold: {named}"
    return ""


def knowledge_title(attack: str, images: int, thing: str) -> str:
    return f"What each piece of knowledge is worth ({attack}, {times(images, thing)}):"


def more_tables(count: int) -> str:
    return f"  {times(count, 'more table')} like this in `audit report` and --json."
