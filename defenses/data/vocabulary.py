"""A text's words as numbers: which number is which word, and how a text becomes numbers by words alone.

A record of text is (length,) int64: the numbers of its words, and `PAD` behind its end, which is its mask. Whoever uses
the model must know which number is which word, so the vocabulary is as public as the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..losses import IGNORED

PAD = -1  # no word's number, as some models pad with a word that texts have too
UNKNOWN = "[UNK]"
LACKED = (UNKNOWN, "<unk>")  # stand for a word of a text, which nobody can read
SPECIAL = ("[PAD]", *LACKED, "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<|endoftext|>", "<|im_end|>")
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Vocabulary:
    """The words of a model, by number; a part of a word begins with "##" where WordPiece cut it.

    >>> vocabulary = Vocabulary(("[UNK]", "a", "cat", "##s", "."))
    >>> vocabulary.text([1, 2, 3, 4, PAD]), vocabulary.records(["a cat.", "a dog"], 4).tolist()
    ('a cats.', [[1, 2, 4, -1], [1, 0, -1, -1]])
    >>> vocabulary.text([1, 0, PAD])
    'a [UNK]'
    """

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def special(self) -> frozenset[int]:
        """The numbers of what stands for no word of a text."""
        named = {i for i, word in enumerate(self.words) if word in SPECIAL}
        return frozenset(named | {i for i, word in enumerate(self.words) if re.fullmatch(r"\[unused\d+\]", word)})

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def plain(self, record: Iterable[int]) -> list[int]:
        """A record's numbers without padding and what is special; an unknown word is one of the text."""
        return [n for n in record if n >= 0 and (n not in self.special or self.words[n] in LACKED)]

    def spoken(self, record: Iterable[int]) -> list[str]:
        """The words of a record as they are read, special ones left out."""
        return [self.words[number].replace("Ġ", "").replace("▁", "") for number in self.plain(record)]

    def text(self, record: Iterable[int]) -> str:
        """A record as a line."""
        line = " ".join(self.spoken(record)).replace(" ##", "")
        return re.sub(r" ([.,;:!?])", r"\1", line)

    def records(self, texts: Sequence[str], length: int) -> Tensor:
        """Texts by their words and marks, (n, length) int64; a word that is not here is `UNKNOWN`, what is too long is
        cut.
        """
        unknown = self._numbers[UNKNOWN]
        return padded([[self._numbers.get(word, unknown) for word in WORD.findall(text)] for text in texts], length)

    def as_facts(self) -> dict[str, Any]:
        """What joins a data set's description; `vocabulary_of` reads it."""
        return {"vocabulary": list(self.words)}


def vocabulary_of(facts: Mapping[str, Any]) -> Vocabulary | None:
    """The vocabulary that a data set's description tells; None of data that is no text."""
    words = facts.get("vocabulary")
    return Vocabulary(tuple(map(str, words))) if isinstance(words, list) and words else None


def read_tokenizer(path: Path) -> Vocabulary:
    """The vocabulary of a tokenizer.json, which is read as text. Raises ValueError in one sentence."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        held = content["model"]["vocab"]
        if isinstance(held, list):  # of pairs of a word and its score
            held = {word: number for number, (word, _) in enumerate(held)}
        words = {number: word for word, number in held.items()}
        words |= {token["id"]: token["content"] for token in content.get("added_tokens") or ()}
        return Vocabulary(tuple(words.get(number, f"[unused{number}]") for number in range(max(words) + 1)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = " ".join(str(error).split())[:80]
        raise ValueError(f"tokenizer = {str(path)!r}: expected a tokenizer.json with a vocabulary ({why})") from None


def next_words(inputs: Tensor) -> Tensor:
    """Of each place of texts (n, length) the word behind it, `IGNORED` where there is none.

    >>> next_words(torch.tensor([[5, 6, 7, PAD]])).tolist()
    [[6, 7, -100, -100]]
    """
    behind = torch.cat([inputs[:, 1:], inputs.new_full((len(inputs), 1), PAD)], 1)
    return torch.where(behind < 0, IGNORED, behind)


def padded(rows: Sequence[Sequence[int]], length: int) -> Tensor:
    """Rows of numbers as records (n, length) int64."""
    made = torch.full((len(rows), length), PAD, dtype=torch.int64)
    for place, row in enumerate(rows):
        made[place, : min(len(row), length)] = torch.tensor(row[:length], dtype=torch.int64)
    return made
