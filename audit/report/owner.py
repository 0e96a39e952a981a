"""What a setup cannot know of itself and its owner can say: the TOML file of `audit report --card-from`.

It is no part of the config: most of it is decided after the training, which no word of it changes.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Literal
from unicodedata import category

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..errors import BadInput
from ..setup.config import read_toml
from ..setup.mistakes import sentence


def _text(text: str) -> str:
    """Lines without ends. Raises ValueError for nothing, and for what cannot be seen."""
    if any(category(sign).startswith("C") and sign not in "\n\t\r" for sign in text):
        raise ValueError("characters that cannot be seen; write what can be read")
    lines = "\n".join(" ".join(line.split()) for line in text.strip().splitlines())
    if not lines:
        raise ValueError("nothing is said; leave the key out")
    return lines


def _day(value: object) -> object:
    """TOML has dates; what is handed on is text."""
    if isinstance(value, date):
        return value.isoformat()
    return value


def _checked_day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("a day is written as 2026-01-31") from None


Text = Annotated[str, AfterValidator(_text)]
Names = Annotated[list[Text], Field(min_length=1)]
Day = Annotated[str, BeforeValidator(_day), AfterValidator(_checked_day)]
Sector = Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]


class Owner(BaseModel):
    """Free text by the names of the card's points; what is left out is "not stated".

    From `name` on: what OpenDP's registry of deployments asks of every one (its tier 1). tuning: how settings were
    chosen, and at which privacy cost. justification: why so. people, harm, review: of the statement for a board: how
    many people are in the training, what happens to one who is recognised, who looks at it again and when.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    unit: Text | None = None
    utility: Text | None = None
    bias: Text | None = None
    algorithm: Text | None = None
    correctness: Text | None = None
    side_channels: Text | None = None
    security: Text | None = None
    access_control: Text | None = None
    query_model: Text | None = None
    trust_model: Text | None = None
    data_collection: Text | None = None
    people: Annotated[int, Field(gt=0)] | None = None
    harm: Text | None = None
    review: Text | None = None
    tuning: Text | None = None
    justification: Text | None = None
    name: Text | None = None
    data_curators: Names | None = None
    intended_use: Text | None = None
    data_product_region: Text | None = None
    data_product_sector: Sector | None = None
    description: Text | None = None
    publication_date: Day | None = None
    registry_authors: Names | None = None


def read_owner(path: Path) -> Owner:
    """Raises BadInput in one sentence."""
    raw = read_toml(path, "file of --card-from")
    try:
        return Owner.model_validate(raw)
    except ValidationError as error:
        raise BadInput(sentence(error, raw, str(path), Owner)) from None
