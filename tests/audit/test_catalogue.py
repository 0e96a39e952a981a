"""`audit list`: one line an entry in a pipe, a readable block in a terminal, the same fields as JSON."""

from __future__ import annotations

import json

import pytest
from command import call
from dpfl_audit.audit.catalogue import catalogue, text
from dpfl_audit.defenses.presets import GROUPS, PRESETS

FIELDS = ["name", "about", "group", "paper", "needs", "claims", "provable", "why"]
LISTS = ["schemes", "attacks", "metrics", "datasets", "models", "observers"]


def test_a_scheme_is_one_line_in_a_pipe_with_all_it_has(capsys):
    assert call("list", "schemes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(PRESETS)
    for line, preset in zip(lines, PRESETS.values()):
        for words in (
            preset.title,
            f"group: {preset.group}",
            f"paper: {preset.source}",
            f"needs: {preset.needs}",
            f"claims: {preset.claimed_unit}",
            f"; provable: {preset.provable} – {preset.why}",
        ):
            assert words in line


def test_json_holds_the_fields_that_the_lines_show(capsys):
    assert call("list", "schemes", "--json") == 0
    entries = json.loads(capsys.readouterr().out)
    assert all(list(entry) == FIELDS and all(entry.values()) for entry in entries)
    for entry, line in zip(entries, text(entries).splitlines()):
        assert all(value in line for value in entry.values())


@pytest.mark.parametrize("what", LISTS)
@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_gets_whole_words_within_its_columns(what, width):
    entries = catalogue(what)
    lines = text(entries, width).splitlines()
    assert max(map(len, lines)) <= width
    groups = dict.fromkeys(f"{e['group']}:" for e in entries if "group" in e)
    heads = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert [head for head in heads if head not in groups] == [e["name"] for e in entries]
    assert [head for head in heads if head in groups] == list(groups)
    shown = " ".join(" ".join(lines).split())
    for entry in entries:
        for key, value in entry.items():
            assert " ".join(str(value).split()) in shown, key


def test_schemes_are_listed_by_group_and_every_group_has_some():
    groups = [entry["group"] for entry in catalogue("schemes")]
    assert list(dict.fromkeys(groups)) == list(GROUPS) and groups == sorted(groups, key=list(GROUPS).index)
