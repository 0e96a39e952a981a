"""What a proof rests on and no accountant looks at: sealed in its row, so that no other part of a file decides it."""

from __future__ import annotations

from enum import Enum


class Premise(Enum):
    """A row names it by its label; the words go on from "This holds if"."""

    SECRET_KEY = "the noise's key is secret"
    PUBLISHED_KEY = "nobody draws the noise again, whose key is published"
    SECRET_DRAW = "nobody but those who collude knows who, or what, is drawn"
    HONEST_SHARE = "the clients who do not collude draw their noise and tell nobody"
    COUNTS_STAY = "numbers of records are known anyway, so that another in a client's place has as many"
    COLUMNS_KNOWN = (
        "which columns of the table are numbers, words or dates, and how they are written, is known anyway, as all of"
        " its rows decided it"
    )
    DECLARED = "what the owner declares is so"
    DRAWN_AT_RANDOM = "who takes part in a round is drawn at random, each round apart from all others"
    APART = "the noises of one recorded training are not those of another, as with a seed that both have"
    ANY_KEY = "the key is drawn, and not chosen"
    NOTHING_ELSE_PUBLISHED = (
        "nothing else that was computed from the data gets out: no losses, no other training, no setting that was"
        " chosen by trying"
    )

    @property
    def label(self) -> str:
        return self.name.lower()
