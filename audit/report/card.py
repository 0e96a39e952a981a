"""`audit report --card`: the claim card of one setup, as Markdown, or as YAML for OpenDP's registry of deployments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import BadInput
from ..results.format import Epsilon, Results
from ..say import words
from ..say.card import NOT_STATED
from ..say.statement import statement
from ..say.verdict import sentences
from .facts import epsilon_table, notices
from .markdown import escaped, markdown_table
from .owner import read_owner
from .points import POINTS, ClaimCard, make_card
from .registry import registry_yaml


def card_text(folders: Sequence[Path], output: Path, owner: Path | None = None) -> str:
    """The card that `output` will hold. owner: the TOML file of what only the owner knows.

    Raises BadInput: a name that ends neither in .md nor in .yaml, results of several setups, or what the registry
    cannot do without.
    """
    if output.suffix not in _FORMS:
        raise BadInput(f"--card {str(output)!r}: a claim card is written to a file that ends in .md or .yaml")
    return _FORMS[output.suffix](make_card(folders, None if owner is None else read_owner(owner)))


def card_markdown(card: ClaimCard) -> str:
    """The card for people."""
    results = card.results
    lines = [f"# Claim card: {escaped(card.owner.name or results.setup.title)}", ""]
    of = ""
    if card.runs > 1:
        of = f"{card.runs} runs on one setup; "
    lines += [f"By `audit report --card` from {of}setup {escaped(results.setup.digest)}.", ""]
    if card.owner.intended_use:
        lines += [f"Intended use: “{escaped(card.owner.intended_use)}”", ""]
    lines += [f"> {escaped(text)}\n" for text in (*card.refuted, *notices(results))]
    lines += ["## The guarantee in words", ""]
    for text in (*statement(results.epsilon), " ".join(sentences(card.judgement))):
        lines += [escaped(text), ""]
    lines += ["## Claimed, proven, demonstrated", "", *_rows(results)]
    reasons = epsilon_table(card.judgement)["reasons"]
    lines += [*(f"- {escaped(' '.join([f'{where}:', *said]))}" for where, said in reasons), *([""] if reasons else [])]
    lines += ["## NIST SP 800-226, point by point", ""]
    for point in POINTS:
        lines += [f"### {point.title}", "", *(f"- {escaped(text)}" for text in point.answered(card)), ""]
    open_points = [f"`{point.key}`" for point in POINTS if point.answered(card) == [NOT_STATED] and point.key]
    if open_points:
        lines += [f"What is not stated its owner can say, in the file of `--card-from`: {', '.join(open_points)}.", ""]
    return "\n".join(lines)


def _rows(results: Results) -> list[str]:
    head = ["observer", "unit", "adjacency", "δ", "claimed ε", "proven ε, at most", "without a secret draw"]
    return markdown_table(
        [*head, "demonstrated ε, at least", "by"],
        [
            [
                words.observer(row.observer),
                row.unit,
                row.adjacency,
                words.number(row.delta),
                f"{words.at_most(row.claimed)} {words.claimant(row.claimed_by)}".rstrip(),
                words.proven_if_secret(row.proven, row.secret_key),
                words.at_most(row.proven_without_sampling),
                _demonstrated(row),
                row.accountant or words.MISSING,
            ]
            for row in results.epsilon
        ],
    ) or ["No ε was priced.", ""]


def _demonstrated(row: Epsilon) -> str:
    counted, conditional = words.at_least(row.demonstrated), words.on_condition(row)
    said = "; ".join(filter(None, (conditional, words.chosen_briefly(row))))
    if said:
        return f"{counted} ({said})"
    return counted


_FORMS: dict[str, Callable[[ClaimCard], str]] = {".md": card_markdown, ".yaml": registry_yaml}
