"""`audit list`: one line an entry in a pipe, a readable block in a terminal, the same fields as JSON."""

from __future__ import annotations

import json
import os
import sys

import pytest
from command import call
from dpfl_audit.audit.catalogue import NARROWEST, catalogue, text
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


def test_every_field_of_a_scheme_starts_in_one_column():
    lines = text(catalogue("schemes"), 80).splitlines()
    for label in ("paper", "needs", "claims", "provable"):
        starts = [line for line in lines if line.split()[:1] == [label] and line.startswith(" ")]
        assert len(starts) == len(PRESETS)
        assert (
            len({len(line) - len(line[: line.index(label)].lstrip() + line[line.index(label) :]) for line in starts})
            == 1
        )


def test_a_terminal_that_says_it_has_no_columns_is_not_believed():
    assert text(catalogue("schemes"), 0) == text(catalogue("schemes"), NARROWEST)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_the_command_asks_whether_it_writes_to_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    assert call("list", "schemes") == 0
    piped = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert call("list", "schemes") == 0
    shown = capsys.readouterr().out.rstrip("\n")
    assert os.environ["COLUMNS"] == "100"
    assert shown == text(catalogue("schemes"), 100) != piped.rstrip("\n")
