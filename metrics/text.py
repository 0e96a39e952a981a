"""How much of a batch's texts was read: ROUGE, words at their place, texts whole, each beside what needs no message.

ROUGE after Lin (2004): F of n-grams in common, and of the longest common subsequence, in lower case and any script
(the package rouge-score drops all but a to z and digits, and so scores other scripts 0), without stemming. Words are
what the tokenizer cuts a text into, marks left out. Texts are paired one to one, so that no reading counts twice, and a
text that nothing was read of counts 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .intervals import bootstrap_interval, clopper_pearson_interval
from .pool_test import PERMUTATIONS
from .reidentification import line_up
from .significance import LineUpTests

TextWords = tuple[str, ...]

UNKNOWN = ("[unk]", "<unk>")  # for any word that the tokenizer lacks: it is one of a text, and tells none
FEWEST = 3  # words of a text that comes back beyond doubt; a shorter one may be guessed
FREQUENT = 2  # texts' worth of the most frequent words, which stand for what everybody might say
PAIRS = 40_000  # of an original and a reading that are compared by the words' order too; more would take minutes
PER_TEXT = ("words_told", "rouge1", "rouge2", "rougeL", "in_place", "whole")


def counted_words(tokens: Iterable[str]) -> TextWords:
    """A text's words as they are counted.

    >>> counted_words(["Ann", "'", "s", "2", "cat", "##s", "."])
    ('ann', 's', '2', 'cat', '##s')
    """
    return tuple(token.lower() for token in tokens if re.search(r"\w", token))


def rouge_n(original: TextWords, made: TextWords, n: int) -> float:
    """F of the n-grams in common, each as often as both have it; of texts shorter than n words, whether they are equal.

    >>> round(rouge_n(("the", "cat", "sat"), ("the", "cat"), 1), 3), rouge_n(("a", "b", "c"), ("b", "c", "a"), 2)
    (0.8, 0.5)
    """
    grams = [Counter(zip(*(words[k:] for k in range(n)))) for words in (original, made)]
    counts = [sum(gram.values()) for gram in grams]
    if not all(counts):
        return float(original == made and len(made) > 0)
    return 2 * sum((grams[0] & grams[1]).values()) / sum(counts)


def rouge_l(original: TextWords, made: TextWords) -> float:
    """F of the longest common subsequence.

    >>> rouge_l(("a", "b", "c", "d"), ("a", "c", "d", "b"))
    0.75
    """
    if not original or not made:
        return 0.0
    row = [0] * (len(made) + 1)
    for word in original:
        before = row
        row = [0]
        for k, other in enumerate(made):
            row.append(before[k] + 1 if word == other else max(before[k + 1], row[k]))
    return 2 * row[-1] / (len(original) + len(made))


@dataclass(frozen=True, eq=False)
class TextsBeside:
    """What texts are compared with: the original ones, others of the kind that the attack did not get, and the
    attacker's own, whose frequent words anybody might guess.
    """

    originals: Sequence[TextWords]
    others: Sequence[TextWords]
    own: Sequence[TextWords]


def score_texts(
    beside: TextsBeside, made: Sequence[TextWords], told: Sequence[str], seed: int = 0, relabellings: int = PERMUTATIONS
) -> dict[str, Any]:
    """Every metric of what was read of one message, its controls, intervals and p-values, as plain numbers.

    Args:
        beside: the batch's texts, and others. made: what was read, at most as many. told: words that the batch is said
            to have, beside those of the texts.
        seed: of the intervals and the draws. relabellings: of the test of words.

    Returns:
        `PER_TEXT`, averaged over the originals: words_told (the share of its words that were told), ROUGE, words at
        their place, texts whole; words_wrong (the share of the words told that the batch lacks); exact (whole, of
        `FEWEST` words at least, and no other text or control is the same); with others, reidentified and its chance
        (`metrics.reidentification`, of word counts),
        controls {frequent, other_texts}, intervals, p_values and least_p_values {words_told, reidentified}, pairs and
        not_measured, as of `leakage.score_images`.
    """
    made = [_known(text) for text in made]
    said = {*_known(told), *(word for text in made for word in text)}
    values, pairs = _values(beside.originals, made, said)
    controls = _controls(beside, len(said), seed)
    measured = {name: _values(beside.originals, texts, {w for t in texts for w in t})[0] for name, texts in controls}
    guessed = {text for _, texts in controls for text in texts} | {*beside.others, *beside.own}
    whole = values["whole"] > 0
    doubtless = [
        bool(w) and len(text) >= FEWEST and text not in guessed for w, text in zip(whole, beside.originals, strict=True)
    ]
    there = {word for text in beside.originals for word in text}
    scores: dict[str, Any] = {name: float(value.mean()) for name, value in values.items()}
    scores["exact"] = sum(doubtless) / len(doubtless)
    scores["words_wrong"] = len(said - there) / len(said) if said else None
    intervals = {name: bootstrap_interval(value, seed=seed) for name, value in values.items()}
    intervals["whole"] = clopper_pearson_interval(int(whole.sum()), len(whole))
    p_values: dict[str, float] = {}
    leasts: dict[str, float] = {}
    missing: dict[str, str] = {}
    shown = {name: {n: float(v.mean()) for n, v in of.items()} for name, of in measured.items()}
    if beside.others:
        p_values["words_told"] = _p_value_of_words(beside, said, relabellings, seed)
        leasts["words_told"] = _p_value_of_words(beside, there, relabellings, seed)
        picked = _picked(beside, made or [tuple(told)], [texts for _, texts in controls], seed, relabellings)
        scores |= {"reidentified": picked.share, "reidentified_chance": picked.chance}
        intervals["reidentified"] = picked.interval
        p_values["reidentified"], leasts["reidentified"] = picked.p_value, picked.least
        for (name, _), share in zip(controls, picked.controls, strict=True):
            shown[name]["reidentified"] = share
    else:
        missing = dict.fromkeys(("reidentified", "words_test"), "a line-up needs other texts, and none were given")
    return {
        **scores,
        "controls": shown,
        "intervals": {name: None if limits is None else list(limits) for name, limits in intervals.items()},
        "p_values": p_values,
        "least_p_values": leasts,
        "pairs": [{"original": i, "reconstruction": j} for i, j in pairs],
        "not_measured": missing,
    }


def _known(words: Sequence[str]) -> TextWords:
    return tuple(word for word in words if word not in UNKNOWN)


def _values(
    originals: Sequence[TextWords], made: Sequence[TextWords], said: set[str]
) -> tuple[dict[str, Tensor], list[tuple[int, int]]]:
    """Of each original, by its name, and the pairs."""
    pairs = _paired(originals, made)
    values = {name: torch.zeros(len(originals), dtype=torch.float64) for name in PER_TEXT}
    for i, text in enumerate(originals):
        values["words_told"][i] = sum(word in said for word in set(text)) / max(1, len(set(text)))
    for i, j in pairs:
        a, b = originals[i], made[j]
        values["rouge1"][i], values["rouge2"][i] = rouge_n(a, b, 1), rouge_n(a, b, 2)
        values["rougeL"][i], values["whole"][i] = rouge_l(a, b), float(a == b)
        values["in_place"][i] = sum(x == y for x, y in zip(a, b, strict=False)) / max(1, len(a))
    return values, pairs


def _paired(originals: Sequence[TextWords], made: Sequence[TextWords]) -> list[tuple[int, int]]:
    if not made:
        return []
    if len(originals) * len(made) > PAIRS:
        likeness = _words_in_common(originals, made)
    else:
        likeness = np.array([[rouge_n(a, b, 1) + rouge_l(a, b) for b in made] for a in originals])
    rows, columns = linear_sum_assignment(-likeness)
    return [(int(i), int(j)) for i, j in zip(rows, columns) if likeness[i, j] > 0]


def _words_in_common(originals: Sequence[TextWords], made: Sequence[TextWords]) -> np.ndarray:
    """ROUGE-1 of each original and each reading."""
    place = {word: k for k, word in enumerate(sorted({word for text in (*originals, *made) for word in text}))}
    counts = np.zeros((len(originals) + len(made), max(1, len(place))), dtype=np.int16)
    for row, text in enumerate((*originals, *made)):
        np.add.at(counts[row], [place[word] for word in text], 1)
    own, other = counts[: len(originals)], counts[len(originals) :]
    sizes = other.sum(1)
    both = [2 * np.minimum(row, other).sum(1) / np.maximum(1, row.sum() + sizes) for row in own]
    return np.array(both)


def _controls(beside: TextsBeside, told: int, seed: int) -> list[tuple[str, list[TextWords]]]:
    """What one gets without the message: the most frequent words, as many as were told, and other texts by lot."""
    n, rng = len(beside.originals), np.random.default_rng(seed)
    made: list[tuple[str, list[TextWords]]] = []
    known = [_known(text) for text in beside.own or beside.others]
    if known:
        usual = round(sum(map(len, known)) / len(known))
        counts = Counter(word for text in known for word in text)
        words = [word for word, _ in counts.most_common(max(told, FREQUENT * usual))]
        made.append(("frequent", [tuple(words[k::n]) for k in range(n)]))
    if known:
        picks = rng.choice(len(known), size=min(n, len(known)), replace=False)
        made.append(("other_texts", [known[k] for k in picks]))
    return made


def _p_value_of_words(beside: TextsBeside, said: set[str], draws: int, seed: int) -> float:
    """That the words told are those of the batch and not of as many texts drawn by lot from it and the others: of so
    many draws the share in which they fit as well, by F of different words. Exact where a lot dealt the texts.
    """
    every, n = [*beside.originals, *beside.others], len(beside.originals)
    place = {word: k for k, word in enumerate(sorted({w for text in every for w in text}))}
    has = np.zeros((len(every), len(place)), dtype=bool)
    for row, text in enumerate(every):
        has[row, [place[word] for word in text]] = True
    known = np.zeros(len(place), dtype=bool)
    known[[place[word] for word in said if word in place]] = True
    if not known.any():
        return 1.0

    def fit(rows: np.ndarray) -> float:
        there = has[rows].any(0)
        return 2 * float((there & known).sum()) / float(there.sum() + len(said))

    rng, own = np.random.default_rng(seed), fit(np.arange(n))
    hits = sum(fit(rng.choice(len(every), size=n, replace=False)) >= own for _ in range(draws))
    return (1 + hits) / (1 + draws)


@dataclass(frozen=True)
class _Picked:
    """How many originals their readings pick out of the others, beside chance and controls, with its test."""

    share: float
    chance: float
    interval: tuple[float, float]
    controls: list[float]
    p_value: float
    least: float


def _picked(
    beside: TextsBeside, made: Sequence[TextWords], controls: Sequence[list[TextWords]], seed: int, relabellings: int
) -> _Picked:
    """By the words that texts have."""
    texts = [*beside.originals, *beside.others, *made, *(text for own in controls for text in own)]
    place = {word: k for k, word in enumerate(sorted({word for text in texts for word in text}))}

    def pictures(own: Sequence[TextWords]) -> Tensor:
        rows = torch.zeros(len(own), max(1, len(place)), 1, 1)
        for row, text in enumerate(own):
            rows[row, [place[word] for word in text]] = 1.0
        return rows

    originals, others = pictures(beside.originals), pictures(beside.others)
    ready = line_up(originals, others)
    picked, shares = ready.pick(pictures(made)), [ready.pick(pictures(own)).share for own in controls]
    tests = LineUpTests(originals, pictures(made), others, None, None, None, seed=seed)
    p_value, least = tests.reidentified(picked, shares, None, relabellings)
    return _Picked(picked.share, picked.chance, picked.interval, shares, p_value, least)
