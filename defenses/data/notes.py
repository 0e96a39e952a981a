"""Invented notes of a surgery, with names, dates and numbers: text that needs no download and concerns nobody."""

from __future__ import annotations

import numpy as np
import torch

from .dataset import DEALT_BY_LOT, Dataset
from .text import text_dataset
from .vocabulary import UNKNOWN, WORD, Vocabulary

FIRST = (
    *("Amina", "Bruno", "Chen", "Dalia", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kofi", "Lena", "Marek"),
    *("Nadia", "Omar", "Petra", "Quinn", "Rosa", "Samir", "Tessa", "Ulf", "Vera", "Wanda", "Xenia", "Yusuf", "Zoe"),
)
LAST = (
    *("Abbott", "Baker", "Castro", "Dvorak", "Eriksen", "Ferrari", "Garcia", "Haddad", "Ito", "Jensen", "Kowalski"),
    *("Larsen", "Moreau", "Novak", "Okafor", "Petrov", "Quist", "Rossi", "Schmidt", "Tanaka", "Urban", "Vargas"),
    *("Weber", "Xu", "Yilmaz", "Zhang"),
)
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
KINDS = {  # what a note is about, its label in this order: complaints, and what is done
    "lungs": (("asthma", "a cough", "bronchitis", "wheezing"), ("an inhaler", "steam", "a spray", "rest indoors")),
    "joints": (("a sprained ankle", "arthritis", "back pain", "a stiff neck"), ("ice", "exercise", "a brace", "heat")),
    "skin": (("eczema", "a rash", "psoriasis", "hives"), ("an ointment", "a cream", "a lotion", "cool water")),
    "sleep": (("insomnia", "nightmares", "snoring", "fatigue"), ("tea", "a diary", "a mask", "early evenings")),
}
FORMS = (
    "{first} {last} came on {day} {month} with {complaint}; advised {cure}. Phone {number}.",
    "On {day} {month} {first} {last} reported {complaint} and got {cure}, file {number}.",
    "Seen {day} {month}: {first} {last}, {complaint}. Given {cure}; room {number}.",
    "{complaint} again for {first} {last}, number {number}, since {day} {month}; now {cure}.",
)
NUMBERS = (100, 1000)  # of phones, files and rooms
DAYS = 28
LENGTH = 24  # the longest note has 21 words and marks
SIZES = (1200, 300, 500)  # to train, to test, auxiliary


def load(seed: int = 0) -> Dataset:
    """2,000 notes of up to 21 words and marks, dealt by lot: 1,200 to train, 300 to test, 500 auxiliary; four labels.

    The vocabulary is all that a note may have, whichever notes were drawn, so it tells nothing of them.
    """
    rng = np.random.default_rng(seed)
    kinds = rng.integers(len(KINDS), size=sum(SIZES))
    vocabulary = words_of_notes()
    records = vocabulary.records([_note(int(kind), rng) for kind in kinds], LENGTH)
    facts = {
        "source": "invented by dpfl-audit",
        "licence": "as dpfl-audit",
        "test": DEALT_BY_LOT,
        "seed": seed,
        "labels": list(KINDS),
        "read_as": "words and marks of a list that is no function of the notes",
    }
    parts = torch.arange(len(records)).split(list(SIZES))
    targets = torch.from_numpy(kinds).long()
    splits = [(records[part], targets[part]) for part in parts]
    return text_dataset("notes", (splits[0], splits[1], splits[2]), len(KINDS), vocabulary, facts)


def words_of_notes() -> Vocabulary:
    """Every word that a note may have."""
    texts = [*FIRST, *LAST, *MONTHS, *(FORM.replace("{", " ").replace("}", " ") for FORM in FORMS)]
    texts += [text for complaints, cures in KINDS.values() for text in (*complaints, *cures)]
    fields = {"first", "last", "day", "month", "complaint", "cure"}
    words = {word for text in texts for word in WORD.findall(text)} - fields
    words |= {str(number) for number in (*range(1, DAYS + 1), *range(*NUMBERS))}
    return Vocabulary((UNKNOWN, *sorted(words)))


def _note(kind: int, rng: np.random.Generator) -> str:
    complaints, cures = list(KINDS.values())[kind]
    return str(rng.choice(FORMS)).format(
        first=rng.choice(FIRST),
        last=rng.choice(LAST),
        day=rng.integers(1, DAYS + 1),
        month=rng.choice(MONTHS),
        complaint=rng.choice(complaints),
        cure=rng.choice(cures),
        number=rng.integers(*NUMBERS),
    )
