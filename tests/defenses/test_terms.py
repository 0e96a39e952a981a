"""Observers: which of a federation's messages each sees, and how they are written."""

from __future__ import annotations

import re

import pytest
from dpfl_audit.defenses.terms import KINDS, Observer

UP = {"from_server": False, "to_server": True}
DOWN = {"from_server": True, "to_server": False}
ACROSS = {"from_server": False, "to_server": False}
SEEN = {  # (upload of round 0, upload of round 4, broadcast of round 0, final model, client to client)
    "server": (True, True, True, True, False),
    "aggregate": (False, False, True, True, False),
    "downlink": (False, False, True, True, False),
    "uplink": (True, True, False, False, True),
    "uplink(3)": (True, False, False, False, True),
    "model": (False, False, False, True, False),
}


@pytest.mark.parametrize(("text", "expected"), SEEN.items())
def test_who_sees_what(text, expected):
    observer = Observer.parse(text)
    ways = [(UP, 0), (UP, 4), (DOWN, 0), (DOWN, 5), (ACROSS, 0)]
    assert tuple(observer.sees(**way, round=round, last_round=5) for way, round in ways) == expected


def test_every_kind_is_in_the_table_above_or_sees_its_own_mail():
    assert {Observer.parse(text).name for text in SEEN} | {n for n, kind in KINDS.items() if kind.party} == set(KINDS)


@pytest.mark.parametrize("text", [*KINDS, "uplink(1)", "uplink(25)"])
def test_an_observer_is_written_as_it_is_read(text):
    observer = Observer.parse(text)
    assert str(observer) == text and Observer.parse(str(observer)) == observer and observer.words


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("fly", "known are server, aggregate"),
        ("", "known are server, aggregate"),
        ("uplink()", "did you mean 'uplink(L)'"),
        ("uplink(0)", "did you mean 'uplink(L)'"),
        ("uplink(-1)", "did you mean 'uplink(L)'"),
        ("uplink(²)", "did you mean 'uplink(L)'"),
        ("server(2)", "did you mean 'server'"),
        ("Server", "did you mean 'server'"),
    ],
)
def test_anything_else_is_named_beside_what_is_meant_or_known(text, instead):
    with pytest.raises(ValueError, match=re.escape(f"observer {text!r} is unknown; {instead}")):
        Observer.parse(text)
    with pytest.raises(ValueError, match="is unknown"):
        Observer("downlink", 3)


def test_who_sees_sums_alone_is_told_from_what_it_sees():
    assert [name for name in KINDS if Observer(name).sees_merged_only] == ["aggregate", "downlink", "model"]
    assert [name for name in KINDS if Observer(name).needs_server] == ["server", "aggregate", "downlink", "model"]
