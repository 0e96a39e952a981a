"""Texts of a RESULTS folder beside what an attack read of them, word by word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from ..errors import BadInput
from ..results.format import AttackResult, parse
from ..say.evidence import CONFIRMED, LIKELIEST, WORDS_CERTAIN, WORDS_LIKELY, noise_of
from ..setup.reading import plain_json, read_text

SHOWN_WORDS = 60  # of a text on the first screen


class ReadText(BaseModel):
    """An original's words, the words read of it, each with whether it is right at its place, and whether the network
    confirmed the reading without the truth.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    original: tuple[str, ...]
    rebuilt: tuple[tuple[str, bool], ...]
    certain: bool

    @property
    def right(self) -> int:
        return sum(ok for _, ok in self.rebuilt)


class Texts(BaseModel):
    """originals/KEY.json of an attack on text. words: those that the batch is said to have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    texts: tuple[ReadText, ...]
    words: tuple[str, ...]


def read_texts(folder: Path, attack: AttackResult) -> Texts | None:
    """The texts of one attack, worst leak first; None where they are not in the folder. Raises BadInput."""
    path = Path(folder) / "originals" / f"{attack.key}.json"
    if attack.key is None or not path.is_file():
        return None
    try:
        content = plain_json(read_text(path))
    except ValueError as error:
        raise BadInput(f"{path} is not valid JSON: {error}") from None
    found = parse(Texts, content, str(path))
    ranked = sorted(found.texts, key=lambda text: (-text.right, len(text.original)))
    return found.model_copy(update={"texts": tuple(ranked)})


def text_table(folder: Path, attack: AttackResult, multiplier: float | None = None) -> dict[str, Any]:
    """For the template: of each text its original, what was read and what is right; and how long the noise is."""
    noise = noise_of(attack, multiplier)
    found = read_texts(folder, attack)
    if found is None:
        return {"rows": [], "words": "", "noise": noise, "lack": "The texts are not in the folder: numbers alone."}
    sure, heading = (LIKELIEST, WORDS_LIKELY) if noise else (CONFIRMED, WORDS_CERTAIN)
    rows = [
        {
            "original": " ".join(text.original),
            "rebuilt": text.rebuilt[:SHOWN_WORDS],
            "said": f"{text.right} of {len(text.original)} words right at their place",
            "certain": text.certain,
        }
        for text in found.texts
    ]
    labels = {"sure": sure, "heading": heading, "noise": noise}
    return {"rows": rows, "words": " ".join(found.words), **labels, "lack": ""}
