"""All sentences about judgements, in one file that a person has read."""

from __future__ import annotations

import re

from say.cases import SNAPSHOT, document


def test_sentences_are_those_of_the_snapshot() -> None:
    assert document() == SNAPSHOT.read_text(encoding="utf-8"), "read the difference, then: python tests/say/cases.py"


def test_no_number_lacks_its_zero_and_no_sentence_ends_twice() -> None:
    text = document()
    assert not re.search(r"(?<![\w.])\.\d|\.\.(?!\.)| ,|  |\bnan\b|None", text.replace("…", ""))
