"""Whole texts from the words of a batch: which words stand where, and together. What a text makes the layers behind the
first attention read tells whether it was there, so every answer is checked by running it, and never by the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...defenses.data.vocabulary import PAD
from .layers import Layers
from .span import SAME, Span, errors_of, texts_of

TOGETHER = 0.1  # of 1/length, from which two words count as of one text
PREFIXES = 4096  # of texts that are carried on from the left; more mean that nothing is told
RUNS = 512  # texts that are run at once
SWEEPS = 6  # over all places of a text that is sought


@dataclass(frozen=True, eq=False)
class Text:
    """A text (length,) int64 without padding. off: the largest share of what it makes layers read that lies outside of
    what they read; below `SAME` it was there.
    """

    tokens: Tensor
    off: float

    @property
    def certain(self) -> bool:
        return self.off < SAME


@dataclass(frozen=True, eq=False)
class Trial:
    """How texts are tried: layers behind the first attention, with their spans.

    spans: of each group, None where it tells nothing. pairs: (places, words of the bag), whether a word can stand at a
    place by itself.
    """

    layers: Layers
    spans: tuple[Span | None, ...]
    words: Tensor
    pairs: Tensor

    @property
    def telling(self) -> list[int]:
        return [depth for depth, span in enumerate(self.spans) if depth and span is not None]

    def off(self, texts: Tensor, last: bool = False) -> Tensor:
        """The shares outside of texts (n, length): (n, length), the largest of all layers; of the last place alone."""
        made = []
        depth = max(self.telling)
        for part in texts.split(RUNS):
            read = self.layers.inputs(part, depth)
            shares = [_at(self.spans[d], read[d][:, -1:] if last else read[d]) for d in self.telling]
            made.append(torch.stack(shares).amax(0))
        return torch.cat(made)


def _at(span: Span | None, inputs: Tensor) -> Tensor:
    assert span is not None
    return span.outside(inputs)


# --- from the left: each word hangs on those before it alone


def from_the_left(trial: Trial) -> list[Text]:
    """All texts of which every beginning was there, the longest of each; none where too many beginnings pass."""
    places = len(trial.pairs)
    begun, ended = torch.zeros(1, 0, dtype=torch.int64), []
    for place in range(places + 1):
        kept = begun[:0]
        grown = begun[:0]
        if place < places:
            words = trial.words[trial.pairs[place]]
            grown = torch.cat([begun.repeat_interleave(len(words), 0), words.repeat(len(begun))[:, None]], 1)
            if len(grown):
                kept = grown[trial.off(grown, last=True)[:, 0] < SAME]
        carried = {tuple(row) for row in kept[:, :-1].tolist()} if len(kept) else set()
        ended += [row for row in begun.tolist() if row and tuple(row) not in carried]
        begun = kept
        if not len(begun) or len(begun) > PREFIXES:
            break
    if len(begun) > PREFIXES:
        return []
    return [Text(torch.tensor(row), float(trial.off(torch.tensor([row])).max())) for row in ended]


# --- words that stand where they stand, told apart by text


def from_errors(trial: Trial, first: Span, gradients: Sequence[Tensor], texts: int) -> list[Text]:
    """Texts where the pairs of word and place are told one by one: their errors add up to zero over each text."""
    place, word = torch.nonzero(trial.pairs, as_tuple=True)
    if len(place) != first.rank:
        return []
    tokens = trial.words[word]
    inputs = _inputs_of_pairs(trial.layers, tokens, place)
    found: list[Text] = []
    for gradient in gradients:  # one of them is the keys'; nobody says which
        together = texts_of(errors_of(gradient, inputs), texts)
        for members in _components(together):
            row = _in_order(tokens[members], place[members])
            if row is not None and not any(torch.equal(row, text.tokens) for text in found):
                text = Text(row, float(trial.off(row[None]).max()))
                found += [text] if text.certain else []
    return found


def _inputs_of_pairs(layers: Layers, tokens: Tensor, places: Tensor) -> Tensor:
    length = int(places.max()) + 1
    read = layers.inputs(tokens[:, None].expand(-1, length).contiguous(), 0)[0]
    return read[torch.arange(len(tokens)), places]


def _components(together: Tensor) -> list[Tensor]:
    """The sets of words that are joined by what is more than rounding."""
    near = together.abs() > TOGETHER * together.diagonal().clamp_min(1e-12).sqrt().outer(
        together.diagonal().clamp_min(1e-12).sqrt()
    )
    left, parts = set(range(len(near))), []
    while left:
        part, new = set[int](), {min(left)}
        while new:
            part |= new
            new = set(torch.nonzero(near[sorted(new)].any(0)).flatten().tolist()) - part
        left -= part
        parts.append(torch.tensor(sorted(part)))
    return parts


def _in_order(tokens: Tensor, places: Tensor) -> Tensor | None:
    """The words by their places; None where these are not 0, 1, … once each."""
    order = places.argsort()
    return tokens[order] if torch.equal(places[order], torch.arange(len(places))) else None


# --- place by place, from a guess


def by_descent(trial: Trial, guesses: Sequence[Tensor], known: Sequence[Text], texts: int) -> list[Text]:
    """Texts that lie nearer and nearer to the layers' spans, a word or an end changed at a time, from guesses (length,)
    on; those that are certain, and the nearest others up to `texts` in all, without the `known` ones.
    """
    found = list(known)
    others: list[Text] = []
    for guess in guesses:
        if sum(text.certain for text in found) >= texts:
            break
        text = _descended(trial, guess)
        if any(torch.equal(text.tokens, other.tokens) for other in [*found, *others]):
            continue
        (found if text.certain else others).append(text)
    others.sort(key=lambda text: text.off)
    return [*found, *others[: max(0, texts - len(found))]]


def _descended(trial: Trial, guess: Tensor) -> Text:
    text, worth = guess, _worth(trial, guess[None])[0]
    for _ in range(SWEEPS):
        before = worth
        for place in range(len(trial.pairs)):
            if place > len(text):
                break
            changed = _changed(trial, text, place)
            worths = _worths(trial, changed)
            best = int(worths.argmin())
            if worths[best] < worth:
                text, worth = changed[best][changed[best] != PAD], worths[best]
        if worth >= before or worth < SAME:
            break
    return Text(text, float(trial.off(text[None]).max()))


def _changed(trial: Trial, text: Tensor, place: int) -> Tensor:
    """The text with each other word at a place, and ended before it."""
    words = trial.words[trial.pairs[place]]
    rows = torch.full((len(words) + 1, max(len(text), place + 1)), PAD)
    rows[:, : len(text)] = text
    rows[: len(words), place] = words
    rows[len(words), max(1, place) :] = PAD
    return rows


def _worths(trial: Trial, rows: Tensor) -> Tensor:
    lengths = (rows != PAD).sum(1)
    worths = torch.full((len(rows),), 2.0, dtype=torch.float64)
    for length in lengths.unique().tolist():
        own = lengths == length
        worths[own] = _worth(trial, rows[own][:, :length])
    return worths


def _worth(trial: Trial, texts: Tensor) -> Tensor:
    """How far texts of one length are from having been there: the mean share outside."""
    return trial.off(texts).mean(1)
