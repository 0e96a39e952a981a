"""Whole texts from the words of a batch: which words stand where, and together. What a text makes the layers behind the
first attention read tells whether it was there, so every answer is checked by running it, and never by the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...defenses.data.vocabulary import PAD
from ...defenses.randomness import generator
from .layers import Layers
from .span import SAME, SpanOfInputs

UNLIKELY = 0.05  # of a place's row, from which a word is taken to stand there
CLOSE = 0.2  # mean share outside of a text with few words wrong; one wrong word has 0.05, others 0.3 and more
TRIES = 4  # guesses for each text that is sought, each of which takes seconds
PREFIXES = 4096  # of texts that are carried on from the left; more mean that nothing is told
RUNS = 512  # texts that are run at once
SWEEPS = 6  # over all places of a text that is sought


@dataclass(frozen=True, eq=False)
class FoundText:
    """A text (length,) int64 without padding. off: the largest share of what it makes layers read that lies outside of
    what they read; below `SAME` it was there. mean: of all its places.
    """

    tokens: Tensor
    off: float
    mean: float = 0.0

    @property
    def certain(self) -> bool:
        return self.off < SAME


@dataclass(frozen=True, eq=False)
class TextTrial:
    """How texts are tried: layers behind the first attention, with their spans.

    spans: of each group, None where it tells nothing. pairs: (places, words of the bag), whether a word can stand at a
    place by itself. weights: (places, words), how likely it stands there, by the embeddings.
    """

    layers: Layers
    spans: tuple[SpanOfInputs | None, ...]
    words: Tensor
    pairs: Tensor
    weights: Tensor

    @property
    def likely(self) -> Tensor:
        """The pairs that are not unlikely, or all where none is likely."""
        found = self.pairs & (self.weights > UNLIKELY)
        return found if bool(found.any()) else self.pairs

    @property
    def telling(self) -> list[int]:
        return [depth for depth, span in enumerate(self.spans) if depth and span is not None]

    def off(self, texts: Tensor) -> Tensor:
        """The shares outside of texts (n, length): (n, length), the largest of all layers."""
        made = []
        depth = max(self.telling)
        for part in texts.split(RUNS):
            read = self.layers.inputs(part, depth)
            made.append(torch.stack([_at(self.spans[d], read[d]) for d in self.telling]).amax(0))
        return torch.cat(made)

    def last_fit(self, texts: Tensor) -> Tensor:
        """Which of texts (n, length) make each layer read at their last place what was there; layer by layer, as few
        texts come to the second.
        """
        fit = torch.arange(len(texts))
        for depth in self.telling:
            parts = texts[fit].split(RUNS) if len(fit) else ()
            read = [_at(self.spans[depth], self.layers.inputs(part, depth)[depth][:, -1]) for part in parts]
            fit = fit[torch.cat(read) < SAME] if read else fit
        return fit


def _at(span: SpanOfInputs | None, inputs: Tensor) -> Tensor:
    """Shares outside, of which those up to `SAME` were there."""
    assert span is not None
    return span.outside(inputs) * (SAME / span.same)


# --- from the left: each word hangs on those before it alone


def from_the_left(trial: TextTrial) -> list[FoundText]:
    """All texts of which every beginning was there, the longest of each; none where too many beginnings pass.

    Where attention alone knows places, a first word again and again makes it read what the word makes it read, so that
    it always passes: of that nothing but the word is told.
    """
    places = len(trial.pairs)
    begun, ended = torch.zeros(1, 0, dtype=torch.int64), []
    for place in range(places + 1):
        kept = begun[:0]
        grown = begun[:0]
        if place < places:
            words = trial.words[trial.pairs[place]]
            grown = torch.cat([begun.repeat_interleave(len(words), 0), words.repeat(len(begun))[:, None]], 1)
            if len(grown):
                kept = grown[trial.last_fit(grown)]
        carried = {tuple(row) for row in kept[:, :-1].tolist()} if len(kept) else set()
        ended += [row for row in begun.tolist() if row and tuple(row) not in carried]
        begun = kept
        if not len(begun) or len(begun) > PREFIXES:
            break
    if len(begun) > PREFIXES:
        return []
    if not trial.layers.placed:
        others = [row for row in ended if len({*row}) > 1]
        ended = others + [row[:1] for row in ended if len({*row}) == 1 and row[0] not in {text[0] for text in others}]
    return [FoundText(torch.tensor(row), float(trial.off(torch.tensor([row])).max())) for row in ended]


# --- place by place, from guesses


def by_places(trial: TextTrial, texts: int, seed: int) -> list[FoundText]:
    """Up to so many texts that lie nearer and nearer to the layers' spans, a word or an end changed at a time; those
    that are certain first.

    Args:
        texts: how many are wanted. seed: of guesses.
    """
    rng = generator(seed, "guesses of texts")
    found: list[FoundText] = []
    others: list[FoundText] = []
    narrow = replace(trial, pairs=trial.likely)
    for _ in range(TRIES * texts):
        begun = _begun(trial, found, rng)
        if begun is None or len(found) >= texts:
            break
        text = _descended(narrow, *begun)
        if SAME < text.mean < CLOSE:  # a word or two are not where they seemed likely
            text = _descended(trial, text.tokens, begun[1])
        if not any(torch.equal(text.tokens, known.tokens) for known in [*found, *others]):
            (found if text.certain else others).append(text)
    others.sort(key=lambda text: text.off)
    return [*found, *others[: max(0, texts - len(found))]]


def _begun(trial: TextTrial, known: Sequence[FoundText], rng: torch.Generator) -> tuple[Tensor, int] | None:
    """A guess out of the likely pairs, and its anchor's place, which no known text has; None where there is none."""
    pairs = trial.likely
    places = pairs.any(1)
    length = len(places) if bool(places.all()) else int((~places).float().argmax())
    if not length:
        return None
    likely = (torch.where(pairs, trial.weights, 0.0) + 1e-6 * pairs)[:length]
    open_ = likely.clone()
    for text in known:
        where = trial.words[None, :] == text.tokens[:length, None]
        open_[: len(where)][where] = 0
    if not bool((open_ > 0).any()):
        return None
    anchor = int(torch.multinomial(open_.flatten(), 1, generator=rng))
    place, word = divmod(anchor, open_.shape[1])
    fresh = torch.where((open_ > 0).any(1, keepdim=True), open_, likely)
    picks = torch.multinomial(fresh, 1, generator=rng)[:, 0]
    picks[place] = word
    return trial.words[picks], place


def _descended(trial: TextTrial, text: Tensor, anchor: int) -> FoundText:
    worth = _worth(trial, text[None])[0]
    for _ in range(SWEEPS):
        before = worth
        for place in range(len(trial.pairs)):
            if place == anchor or place > len(text):
                continue
            changed = _changed(trial, text, place, place > anchor)
            worths = _worths(trial, changed)
            best = int(worths.argmin())
            if worths[best] < worth:
                text, worth = changed[best][changed[best] != PAD], worths[best]
        if worth >= before or worth < SAME:
            break
    return FoundText(text, float(trial.off(text[None]).max()), float(worth))


def _changed(trial: TextTrial, text: Tensor, place: int, end: bool) -> Tensor:
    """The text with each word that can stand at a place, and where `end` is set, ended before it."""
    words = trial.words[trial.pairs[place]]
    rows = torch.full((len(words) + end, max(len(text), place + 1)), PAD)
    rows[:, : len(text)] = text
    rows[: len(words), place] = words
    if end:
        rows[-1, place:] = PAD
    return rows


def _worths(trial: TextTrial, rows: Tensor) -> Tensor:
    lengths = (rows != PAD).sum(1)
    worths = torch.full((len(rows),), 2.0, dtype=torch.float64)
    for length in lengths.unique().tolist():
        own = lengths == length
        worths[own] = _worth(trial, rows[own][:, :length])
    return worths


def _worth(trial: TextTrial, texts: Tensor) -> Tensor:
    """How far texts of one length are from having been there: the mean share outside."""
    return trial.off(texts).mean(1)
