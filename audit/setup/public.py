"""The one door to the public half of a setup: what is not of these kinds goes to auditor/ or truth/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

from ..files import write_bytes, write_json, write_lines, write_tensors
from .format import BASE, DRAWN_LABELS

PublicKind = Literal[
    "manifest",
    "environment",
    "messages",
    "tensors",
    "base",
    "participants",
    "knowledge",
    "labels",
    "auxiliary",
    "candidates",
    "observers",
]

# Kind -> its file, and why it is public: what it tells is priced, or is no function of what the clients hold.
PUBLIC: dict[PublicKind, tuple[str, str]] = {
    "manifest": ("setup.json", "the config, and public facts of the training; digests of public files alone"),
    "environment": ("environment.json", "when and where it was trained, on what machine"),
    "messages": ("messages.jsonl", "who sent what kind of message when, and how many records it says it is of"),
    "tensors": ("tensors/round-*.safetensors", "the messages themselves, whose releases the ledger has"),
    "base": (BASE, "the parameters that nobody trains, as everybody has them before the first round"),
    "participants": ("rounds.csv", "how many took part in each round, which no record decides"),
    "knowledge": ("knowledge/knowledge.json", "the list of what attacks are given"),
    "labels": ("knowledge/labels.json", "given to attacks that assume them; written only where no coin draws batches"),
    "auxiliary": ("knowledge/auxiliary.safetensors", "records that nobody trained on"),
    "candidates": ("knowledge/candidates.safetensors", "records whose membership is asked for, and not who is one"),
    "observers": ("knowledge/observers.json", "an observer's own addresses, which it knows"),
}
assert set(PUBLIC) == set(get_args(PublicKind))


@dataclass(frozen=True)
class Public:
    """Writes into the public half of the setup in `folder`."""

    folder: Path

    def write(self, kind: PublicKind, content: Any, round: int | None = None) -> None:
        """Content is tensors by name, rows (messages), bytes or whatever JSON has, by the kind's file."""
        if round is None:
            name = PUBLIC[kind][0]
        else:
            name = PUBLIC[kind][0].replace("*", f"{round:04d}")
        path = self.folder / name
        if isinstance(content, bytes):
            write_bytes(path, content)
        elif path.suffix == ".safetensors":
            write_tensors(path, content)
        elif path.suffix == ".jsonl":
            write_lines(path, content)
        else:
            write_json(path, content)

    def write_labels(self, labels: Mapping[str, Sequence[int]], drawn_by_coins: bool) -> list[dict[str, str]]:
        """The labels behind each captured upload; returns what `knowledge.json` lists of them.

        drawn_by_coins: ε counts on that nobody knows which records a batch took, so its labels are the auditor's.
        """
        if drawn_by_coins:
            write_json(self.folder / DRAWN_LABELS, labels)
            return []
        self.write("labels", labels)
        words = "the labels of the examples behind each captured upload"
        return [{"item": "labels", "file": "labels.json", "words": words}]


def strangers(names: Sequence[str]) -> list[str]:
    """Of the files of a public half, those that no kind is for.

    >>> strangers(["setup.json", "tensors/round-0003.safetensors", "knowledge/labels.json", "norms.csv"])
    ['norms.csv']
    """
    return [name for name in names if not any(fnmatchcase(name, pattern) for pattern, _ in PUBLIC.values())]
