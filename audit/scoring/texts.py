"""What was read of texts beside the truth, which goes to originals/KEY.json as the words that the page shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...attacks.base import Knowledge, ReadTexts
from ...attacks.cells import Cell
from ...defenses.data.partition import UNALIKE
from ...defenses.data.vocabulary import LACKED, Vocabulary
from ...metrics.text import TextsBeside, counted_words, score_texts
from ..files import write_json
from ..results.checks import COMPARABLE
from ..results.format import AttackResult, Method, Metrics
from ..say.warnings import EVERYTHING, NO_TRUTH
from ..setup.auditor import Auditor
from .line_ups import LineUps
from .questions import rows_of

PARTS = ("controls", "intervals", "p_values", "least_p_values", "pairs", "not_measured")  # beside the metrics
SHOWN = 30  # texts that the page shows of a message


def text_entry(
    auditor: Auditor, knowledge: Knowledge, cell: Cell, read: ReadTexts, output: Path, draws: tuple[int, int]
) -> AttackResult:
    """What was read, beside what needs no message.

    Args:
        auditor: with the truth, or without. knowledge: whose auxiliary texts anybody might guess by. cell: of the
            evidence. read: the attack's. output: where the texts go. draws: the seed, and how many of each test.
    """
    setup, truth = auditor.setup, auditor.truth
    if read.noise_over_gradient:
        noise = {"noise_over_gradient": read.noise_over_gradient}
    else:
        noise = {}
    entry = AttackResult(
        attack=read.attack,
        observer=read.observer,
        manner=read.manner,
        round=read.round,
        client=read.sender,
        n=len(read.texts),
        key=cell.key,
        assumed=read.assumed,
        methods=tuple(Method(name=name, why_not=why) for name, why in read.methods),
        settings=dict(cell.settings),
        metrics=Metrics.of(noise),
    )
    if truth is None:
        return entry.having(not_measured={EVERYTHING: NO_TRUTH})
    rows = rows_of(auditor, read)
    vocabulary = setup.vocabulary
    if not rows or vocabulary is None:
        why = "truth/ does not hold what this sender trained on; add the client to [capture] clients"
        return entry.having(not_measured={EVERYTHING: why})

    def lines(records: Any) -> list[tuple[str, ...]]:
        return [counted_words(vocabulary.spoken(record)) for record in records.tolist()]

    others, _ = LineUps(setup, truth, knowledge).others(rows)
    beside = TextsBeside(lines(truth.inputs[rows]), lines(others), lines(knowledge.auxiliary_inputs))
    told = counted_words(vocabulary.spoken(read.words.tolist()))
    scores = score_texts(beside, lines(read.texts), told, *draws)
    parts = {name: scores.pop(name) for name in PARTS}
    if setup.config.data.partition != "iid":
        why = f"a client's texts may resemble each other ({UNALIKE[setup.config.data.partition]})"
        parts["not_measured"] = {**parts["not_measured"], COMPARABLE: why}
    pairs = [(pair["original"], pair["reconstruction"]) for pair in parts["pairs"]]
    shown = {original: read.texts[made].tolist() for original, made in pairs}
    certain = {original: bool(read.certain[made]) for original, made in pairs}
    write_json(
        output / "originals" / f"{cell.key}.json",
        {
            "texts": [
                {
                    "original": vocabulary.spoken(truth.inputs[row].tolist()),
                    "rebuilt": _marked(vocabulary, truth.inputs[row].tolist(), shown.get(i, [])),
                    "certain": certain.get(i, False),
                }
                for i, row in enumerate(rows[:SHOWN])
            ],
            "words": vocabulary.spoken(read.words.tolist()),
        },
    )
    return entry.having(n=len(rows), **parts, metrics=Metrics.of({**scores, **noise}))


def _marked(vocabulary: Vocabulary, original: list[int], made: list[int]) -> list[list[Any]]:
    """The words of a reading, each with whether the original has it at that place."""
    own, read = vocabulary.plain(original), vocabulary.plain(made)
    right = [k < len(own) and own[k] == n and vocabulary.words[n] not in LACKED for k, n in enumerate(read)]
    return [[word, ok] for word, ok in zip(vocabulary.spoken(read), right, strict=True)]
