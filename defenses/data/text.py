"""The user's own texts: a table of two columns, `text` and `target`, and a tokenizer that numbers the words."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..nearest import instead
from .csv_table import LEAST, OF_FILE, deal_of, targets_of
from .dataset import DEALT_BY_LOT, Dataset, Records, digest
from .delimited import read_delimited
from .tabular import Deal
from .vocabulary import UNKNOWN, WORD, Vocabulary, next_words, padded, vocabulary_of

KNOWN_ENDS = (".csv", ".tsv", ".jsonl")
TOKENIZER = "tokenizer.json"
BY_WORDS = "words"  # of the auxiliary texts, in place of a tokenizer's file


def load(
    root: str | None,
    target: str | None,
    seed: int,
    *,
    tokenizer: str = "",
    length: int = 32,
    labels: Sequence[str] | None = None,
    **of_file: Any,
) -> Dataset:
    """Texts of a csv, tsv or jsonl file with a column `text` and one of classes, dealt by lot as `csv` deals rows.

    Args:
        root: the file. target: the column of classes, `target` where nobody says. seed: of the lot.
        tokenizer: the file tokenizer.json of the model, from the file's folder on ("": the one in that folder); or
            "words": words and marks as the auxiliary texts have them, every other one unknown.
        length: the most tokens of a record; longer texts are cut. The description is public, so it says how many of
            the auxiliary texts were.
        labels: the classes in their order, where the held-out rows do not have all. of_file: separator, header and
            encoding of a csv or tsv file (`read_delimited`).

    Raises:
        ValueError: one sentence: no such file or column, too few rows, no tokenizer.
    """
    if root is None:
        raise ValueError('text needs the file: [data] root = "my.csv", a table with the columns text and target')
    path, column = Path(root), target or "target"
    if not path.is_file() or path.suffix not in KNOWN_ENDS:
        raise ValueError(f"root = {root!r} is no file that ends in {', '.join(KNOWN_ENDS)}")
    if not isinstance(length, int) or length < 1:
        raise ValueError(f"length = {length!r}: expected a whole number, at least 1 token a record")
    if not isinstance(tokenizer, str):
        raise ValueError(f"tokenizer = {tokenizer!r}: expected the name of a file")
    if unknown := sorted(set(of_file) - {*OF_FILE}):
        known = ("tokenizer", "length", "labels", *OF_FILE)
        raise ValueError(f"text does not know the option {unknown[0]}{instead(unknown[0], known)}")
    table, notes = _read(path, of_file)
    for name in ("text", column):
        if name not in table.columns:
            raise ValueError(f"{root!r} has no column {name!r}{instead(name, list(map(str, table.columns)))}")
    if len(table) < LEAST:
        raise ValueError(f"{root!r} has {len(table) or 'no'} rows; at least {LEAST} are needed")
    texts, answers = (table[name].fillna("").astype(str) for name in ("text", column))
    if empty := int((texts.str.strip() == "").sum()):
        raise ValueError(f"{root!r}: the column 'text' is empty in {empty} rows; leave these rows out of the file")
    deal = deal_of(len(table), seed)
    held = np.concatenate([deal.test, deal.auxiliary])
    answers = answers.where(answers.str.strip() != "", None)
    targets, names = targets_of(root, answers, held, labels, None)
    if not names:
        raise ValueError(f"{root!r}: the column {column!r} has numbers that are not whole; text is told into classes")
    vocabulary, records, cut = _tokens(path, tokenizer, texts.tolist(), deal, length)
    facts = {
        "source": path.name,
        "test": DEALT_BY_LOT,
        "target": column,
        "labels": names,
        "tokenizer": tokenizer or TOKENIZER,
        "read_as": "; ".join(
            [*notes, f"at most {length} tokens; auxiliary texts that were cut: {cut} of {len(deal.auxiliary)}"]
        ),
    }
    parts = [torch.from_numpy(part.copy()) for part in (deal.train, deal.test, deal.auxiliary)]
    splits = [(records[part], torch.tensor(targets)[part]) for part in parts]
    return text_dataset("text", (splits[0], splits[1], splits[2]), len(names), vocabulary, facts)


def text_dataset(
    name: str,
    splits: tuple[Records, Records, Records],
    classes: int,
    vocabulary: Vocabulary,
    description: Mapping[str, Any],
) -> Dataset:
    """A checked data set of text: inputs (n, length) int64, no mean and no std.

    Args:
        name: of the set. splits: training, test and auxiliary records. classes: number of labels.
        vocabulary: of all models that train on it. description: facts about the set.

    Raises:
        ValueError: a record has no word at all, or a token that the vocabulary lacks.
    """
    for records, _ in splits:
        if len(records) and int(records.max()) >= len(vocabulary):
            raise ValueError(
                f"{name} has the token {int(records.max())}, and its vocabulary ends at {len(vocabulary) - 1}"
            )
        if bool((records < 0).all(1).any()):
            raise ValueError(f"a text of {name} has no token at all; leave it out")
    train, test, auxiliary = ((x.contiguous(), y.long().contiguous()) for x, y in splits)
    facts = {
        **description,
        **vocabulary.as_facts(),
        "sha256": digest(*train),
        "test_sha256": digest(*test),
        "auxiliary_sha256": digest(*auxiliary),
        "sizes": {"training": len(train[0]), "test": len(test[0]), "auxiliary": len(auxiliary[0])},
        "statistics_of": "none",
    }
    return Dataset(name, *train, *test, *auxiliary, classes, (), (), facts, statistics_of="none")


def told_by_next_words(data: Dataset) -> Dataset:
    """The same texts, whose targets are each place's next word, (n, length), and whose classes are the words.

    Raises:
        ValueError: the records are no text.
    """
    vocabulary = vocabulary_of(data.description)
    if vocabulary is None:
        raise ValueError(f"next_token tells the words of a text, and the records of {data.name} are none")
    return replace(
        data,
        targets=next_words(data.inputs),
        test_targets=next_words(data.test_inputs),
        auxiliary_targets=next_words(data.auxiliary_inputs),
        classes=len(vocabulary),
    )


def _read(path: Path, of_file: Mapping[str, Any]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The table, and what was decided of its file."""
    if path.suffix == ".tsv":
        of_file = {"separator": "\t", **of_file}
    if path.suffix != ".jsonl":
        read = read_delimited(path, **of_file)
        return read.table, read.notes
    try:
        return pd.read_json(path, lines=True, dtype=False), ()
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no file of one JSON object a line ({error})") from error


def _tokens(
    path: Path, tokenizer: str, texts: list[str], deal: Deal, length: int
) -> tuple[Vocabulary, torch.Tensor, int]:
    """The vocabulary, the records (n, length), and how many auxiliary texts were cut."""
    if tokenizer == BY_WORDS:
        known = sorted({word for row in deal.auxiliary for word in WORD.findall(texts[row])})
        vocabulary = Vocabulary((UNKNOWN, *known))
        cut = sum(len(WORD.findall(texts[row])) > length for row in deal.auxiliary)
        return vocabulary, vocabulary.records(texts, length), cut
    file = path.parent / (tokenizer or TOKENIZER)
    if not file.is_file():
        raise ValueError(
            f"{str(file)!r} is no file; name the model's tokenizer.json as tokenizer in [data] options, or take"
            f' tokenizer = "{BY_WORDS}"'
        )
    try:
        tokenizers = importlib.import_module("tokenizers")  # of the extra [text]
    except ModuleNotFoundError:
        raise ValueError(f"reading {file.name} needs the extra [text]: pip install 'dpfl-audit[text]'") from None
    try:
        reader = tokenizers.Tokenizer.from_file(str(file))
        reader.no_padding()
        reader.no_truncation()
        rows = [each.ids for each in reader.encode_batch(texts)]
    except Exception as error:  # the package raises nothing more exact
        raise ValueError(f"{str(file)!r} is no tokenizer of these texts ({str(error)[:80]})") from error
    words = {number: word for word, number in reader.get_vocab(with_added_tokens=True).items()}
    named = Vocabulary(tuple(words.get(number, f"[unused{number}]") for number in range(max(words) + 1)))
    last = {row[-1] for row in rows if row}
    ends = all(rows) and len(last) == 1 and last <= named.special  # such as [SEP], which a cut must keep
    kept = [[*row[: length - 1], row[-1]] if ends and len(row) > length else row for row in rows]
    return named, padded(kept, length), sum(len(rows[row]) > length for row in deal.auxiliary)
