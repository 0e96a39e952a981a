"""`audit report --statement`: two pages for a board, as Markdown or HTML; every line once, the record's ε first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import inf
from pathlib import Path

from ..errors import BadInput
from ..results.checks import USEFUL_EPSILON
from ..results.format import Epsilon
from ..say import board as say
from ..say.accuracy import accuracy_said, only_ranks, useless, without_noise
from ..say.card import NOT_STATED
from ..say.statement import NOT_PRICED, counts_on_a_draw, draw_line, holds_if
from ..say.warnings import not_run, set_aside
from ..say.words import NO_SECRET
from .decision import decision_on
from .decision.sharing import with_spent
from .facts import ReportedSetting, read_settings
from .markdown import escaped, markdown_table
from .owner import Owner, read_owner

Section = tuple[str, list[str]]  # a title and its paragraphs
STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}p{overflow-wrap:anywhere}"
    "h2{margin-bottom:0}"
    "td{padding:.3rem .6rem .3rem 0;border-bottom:1px solid #ccc;vertical-align:top}"
    "@media(max-width:40rem){td{padding-right:.3rem;font-size:.75rem}}"
    "table{display:block;overflow-x:auto}@page{margin:14mm}"
    "@media print{body{font-size:10pt;line-height:1.35;margin:0;max-width:none}td{padding:.1rem .6rem .1rem 0}}"
    "@media print{h1{font-size:16pt}h2{font-size:12pt;margin-top:.8em;break-after:avoid}p{margin:.3em 0}}"
)


def statement_text(folders: Sequence[Path], output: Path, owner: Path | None = None) -> str:
    """The statement that `output` will hold, .md or .html. owner: the TOML file of what only they know.

    Raises BadInput: another ending, or results of several setups.
    """
    if output.suffix not in (".md", ".html"):
        raise BadInput(f"--statement {str(output)!r}: a statement is written to a file that ends in .md or .html")
    settings = read_settings(folders)
    if len(settings) != 1:
        raise BadInput(f"--statement is about one setup, and these are results of {len(settings)}; give one of them")
    known = Owner() if owner is None else read_owner(owner)
    title = f"Privacy statement: {known.name or settings[0].results.setup.title}"
    sections = _sections(settings[0], known)
    return (_markdown if output.suffix == ".md" else _html)(title, _once(sections))


def _sections(setting: ReportedSetting, owner: Owner) -> list[Section]:
    results, judgement = setting.results, setting.judgement
    decision = decision_on([setting])
    units = dict.fromkeys(
        row.unit for row in results.epsilon if row.proven is not None and row.proven <= USEFUL_EPSILON
    )
    covered = [*map(say.covered, units)] or [say.NOBODY]
    return [
        (decision.share.question, [f"{decision.share.sentence}.", decision.share.because]),
        (
            "Accuracy",
            [
                accuracy_said(results.setup, without_noise(setting.no_noise_accuracy)),
                *filter(None, [useless(results.setup), only_ranks(results.setup)]),
            ],
        ),
        ("What an attacker got, and what follows", [setting.sentences[0], setting.sentences[2]]),
        ("What any attack can do", _proven(setting, owner)),
        ("Who is covered", [*covered, *set_aside(results.setup)]),
        (
            "What has to hold",
            [
                *holds_if(results.epsilon),
                *([say.SPENT_APART] if results.setup.spent else []),
                *([say.declared(judgement.stated)] if judgement.stated else []),
            ],
        ),
        ("What was not looked at", not_run(results)),
        (
            "Purpose, owner, review",
            [
                f"Purpose: {owner.intended_use or NOT_STATED}",
                f"Owner: {', '.join(owner.data_curators or []) or NOT_STATED}",
                f"Date: {owner.publication_date or NOT_STATED}",
                f"Harm if a person is recognised: {owner.harm or NOT_STATED}",
                f"Review: {owner.review or NOT_STATED}",
                f"Setup: {results.setup.digest}" + ("" if results.setup.secret_key else "; its noise key is published"),
            ],
        ),
    ]


def _once(sections: Sequence[Section]) -> list[Section]:
    """Without what an earlier section has, and without sections that have nothing left."""
    earlier, kept = "", list[Section]()
    for heading, paragraphs in sections:
        if fresh := [text for text in paragraphs if text not in earlier]:
            kept.append((heading, fresh))
            earlier += "".join(fresh)
    return kept


def _proven(setting: ReportedSetting, owner: Owner) -> list[str]:
    if not setting.judgement.secret:
        return [NO_SECRET]
    rows = _asked_rows(setting)
    if not rows:
        return [NOT_PRICED]
    setup, first, lines = setting.results.setup, rows[0], [say.proof_line(rows[0])]
    useful = first.proven is not None and first.proven <= USEFUL_EPSILON
    if owner.people and useful and (first.asked or not setup.spent):
        held = {"record": setup.training_records, "client": setup.clients}[first.unit]
        lines.append(say.people_line(first.unit, owner.people, held, say.most_recognised(first)))
    if setup.spent and useful and first.asked:
        epsilon, delta = with_spent(first, setup)
        lines.append(say.spent_too(epsilon, delta, say.most_recognised_at(epsilon, delta)))
    if counts_on_a_draw(first):
        lines.append(draw_line([first]))
    return [*lines, *map(say.proof_line, rows[1:])]


def _asked_rows(setting: ReportedSetting) -> list[Epsilon]:
    """The largest proven ε of each unit, of the observers whom the run is about; records first."""
    counted = [row for row in setting.results.epsilon if not row.aside]
    asked = {row.observer for row in counted if row.asked} or {row.observer for row in counted}
    kept = [row for row in counted if row.observer in asked]
    units = sorted(dict.fromkeys(row.unit for row in kept), reverse=True)
    return [
        max((r for r in kept if r.unit == unit), key=lambda r: inf if r.proven is None else r.proven) for unit in units
    ]


def _table() -> list[list[str]]:
    return [[asked or say.NOT_COVERED for asked in line] for line in say.ASKED]


def _markdown(title: str, sections: Sequence[Section]) -> str:
    lines = [f"# {escaped(title)}", ""]
    for heading, paragraphs in sections:
        lines += [f"## {escaped(heading)}", ""]
        for text in paragraphs:
            lines += [escaped(text), ""]
    return "\n".join([*lines, "## What asks for these lines", "", *markdown_table(list(say.SOURCES), _table())])


def _html(title: str, sections: Sequence[Section]) -> str:
    head = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    parts = [f"{head}<title>{escape(title)}</title><style>{STYLE}</style>"]
    parts.append(f"<h1>{escape(title)}</h1>")
    for heading, paragraphs in sections:
        parts.append(f"<h2>{escape(heading)}</h2>" + "".join(f"<p>{escape(text)}</p>" for text in paragraphs))
    rows = [list(say.SOURCES), *_table()]
    cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return "\n".join([*parts, f"<h2>What asks for these lines</h2><table>{cells}</table>", ""])
