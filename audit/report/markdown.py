"""Markdown of texts that may be a stranger's."""

from __future__ import annotations

from unicodedata import category


def escaped(text: str) -> str:
    """Text of strangers stays text: no HTML, no links, no extra table cells, no line of its own, nothing invisible.

    >>> escaped("<b>a|b</b>\\n# [c](d)")
    '&lt;b>a\\\\|b&lt;/b> # \\\\[c\\\\](d)'
    """
    seen = "".join(" " if category(sign).startswith("C") else sign for sign in text)
    flat = " ".join(seen.split()).replace("&", "&amp;").replace("<", "&lt;")
    return "".join("\\" + sign if sign in "|[]`*_\\" else sign for sign in flat)


def markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table with an empty one behind it; none without rows."""
    if not rows:
        return []
    return ["| " + " | ".join(escaped(cell) for cell in row) + " |" for row in (head, ["---"] * len(head), *rows)] + [
        ""
    ]
