"""Whole texts of an encoder, from words with a place of their own: which words attention joined them with (`kin.py`),
then changes of a word, an end or two words' places that bring the text nearer to what was read (`mixing.py`). What is
found is taken out of the message (`left.py`), so that words of several texts become words of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .kin import kin_of
from .left import Left
from .mixing import Mixing
from .places import shares_of_places
from .sentences import CLOSE, SAME, FoundText, TextTrial
from .span import SpanOfInputs

PLACED = 0.8  # of a place's row, from which a word is taken to stand there alone
UNLIKELY = 0.05  # of a place's row, below which a word is not taken to stand there at first
SWEEPS = 8  # over all places of a text
LESS = 1e-7  # of a share, from which a change is one: float32's rounding


@dataclass(frozen=True, eq=False)
class TextGuesses:
    """Texts as they are guessed from what is left of a message. likely: (places, words), which pairs are; anchors: (k,
    2), the places and words of pairs by themselves, the surest first. near: (k, places, words), how far each pair is of
    an anchor's text.
    """

    mixing: Mixing
    likely: Tensor
    anchors: Tensor
    near: Tensor

    @classmethod
    def of(cls, left: Left, least: float) -> TextGuesses | None:
        """None where no word has a place of its own, or the network's attention is of another kind.

        least: of a place's row, from which a pair is an anchor.
        """
        some = left.some
        if not bool(some.any()):
            return None
        span = SpanOfInputs.of(left.weights[-1:])
        rank = span.rank if span.clear else None
        mixing = Mixing.of(left.layers, left.words[some], left.length, left.weights[-1], rank)
        if mixing is None:
            return None
        shares = shares_of_places(left.rows[some], left.places[: left.length])
        most = shares.amax(0)
        likely = torch.where(most > PLACED, shares == most, shares > UNLIKELY)
        sure = torch.where(likely & (shares > least), (shares - 1).abs(), torch.inf)
        places, words = torch.nonzero(likely, as_tuple=True)
        order = sure[places, words].argsort(stable=True)
        order = order[: int(torch.isfinite(sure).sum())]
        if not len(order):
            return None
        read = mixing.read[places, words]
        errors = torch.linalg.lstsq(read.T, left.weights[0].T, driver="gelsd").solution[order]
        keys = left.layers.network.get_submodule(left.paths[1])(read)
        near = torch.zeros(len(order), *likely.shape, dtype=torch.float64)
        near[:, places, words] = kin_of(errors, keys, left.layers.heads)
        return cls(mixing, likely, torch.stack([places[order], words[order]], 1), near)

    def begun(self, k: int) -> Tensor:
        """The text (length,) of the words that are nearest to an anchor, and of the length that fits best."""
        place, word = self.anchors[k].tolist()
        text = self.near[k].argmax(1)
        text[place] = word
        worth = [float(self.mixing.shares(text[None, :end]).mean()) for end in range(place + 1, len(text) + 1)]
        return text[: place + 1 + worth.index(min(worth))]

    def found(self, k: int) -> tuple[Tensor, float]:
        """The text from an anchor, and its mean share outside."""
        text, worth = self.descended(self.begun(k), int(self.anchors[k, 0]), self.likely)
        if self.mixing.clear and SAME < worth < CLOSE:  # a word or two are not where they seemed likely
            text, worth = self.descended(text, int(self.anchors[k, 0]), torch.ones_like(self.likely))
        return text, worth

    def descended(self, text: Tensor, anchor: int, allowed: Tensor) -> tuple[Tensor, float]:
        """Without a change of one word, of two words' places or of the end that would bring it nearer."""
        worth = float(self.mixing.shares(text[None]).mean())
        for _ in range(SWEEPS):
            before = worth
            for change in (self._ended, self._replaced, self._exchanged):
                text, worth = change(text, worth, anchor, allowed)
                if worth < SAME:
                    return text, worth
            if worth > before - LESS:
                break
        return text, worth

    def _ended(self, text: Tensor, worth: float, anchor: int, allowed: Tensor) -> tuple[Tensor, float]:
        for end in range(anchor + 1, len(text)):
            less = float(self.mixing.shares(text[None, :end]).mean())
            if less < worth - LESS:
                return text[:end], less
        return text, worth

    def _replaced(self, text: Tensor, worth: float, anchor: int, allowed: Tensor) -> tuple[Tensor, float]:
        for place in range(self.mixing.places):
            words = torch.nonzero(allowed[place]).flatten()
            if place == anchor or place > len(text) or not len(words):
                continue
            worths = self.mixing.changed(text, place, words)
            best = int(worths.argmin())
            if float(worths[best]) < worth - LESS:
                worth = float(worths[best])
                text = torch.cat([text[:place], words[best : best + 1], text[place + 1 :]])
        return text, worth

    def _exchanged(self, text: Tensor, worth: float, anchor: int, allowed: Tensor) -> tuple[Tensor, float]:
        one, other = torch.triu_indices(len(text), len(text), 1)
        moved = (one != anchor) & (other != anchor) & (text[one] != text[other])
        one, other = one[moved], other[moved]
        if not len(one):
            return text, worth
        rows, number = text.repeat(len(one), 1), torch.arange(len(one))
        rows[number, one], rows[number, other] = text[other], text[one]
        worths = self.mixing.shares(rows).mean(1)
        best = int(worths.argmin())
        return (rows[best], float(worths[best])) if float(worths[best]) < worth - LESS else (text, worth)


def by_attention(trial: TextTrial, left: Left, count: int) -> list[FoundText]:
    """Up to `count` texts, those that are certain first: all that they make layers read lies in the layers' spans, or,
    where more words than the layers are wide leave no gap, their own part is just what a row of the message is.
    """
    found: list[FoundText] = []
    others: list[FoundText] = []
    held: list[FoundText] = []  # found, and not taken out as each of their words stands in another text too
    while len(found) < count:
        fresh, others = _fresh(trial, left, held, count - len(found))
        found += fresh
        if not fresh or len(found) == count:
            break
        left, held = _without(left, [*held, *fresh])
    others.sort(key=lambda text: text.mean)
    return [*found, *others[: count - len(found)]]


def _fresh(trial: TextTrial, left: Left, held: list[FoundText], count: int) -> tuple[list[FoundText], list[FoundText]]:
    """Up to `count` texts more that are certain, and others that were tried."""
    found: list[FoundText] = []
    others: list[FoundText] = []
    for least in (PLACED, UNLIKELY):  # the second where all texts share their words
        guesses = TextGuesses.of(left, least)
        if guesses is None:
            continue
        words = guesses.mixing.words
        known = {pair for text in held for pair in enumerate(torch.searchsorted(words, text.tokens).tolist())}
        tried = {tuple(text.tokens.tolist()) for text in held}
        for k, (place, word) in enumerate(guesses.anchors.tolist()):
            if (place, word) in known:
                continue
            text, mean = guesses.found(k)
            tokens = words[text]
            if tuple(tokens.tolist()) in tried:
                continue
            tried.add(tuple(tokens.tolist()))
            off = _off(trial, left, tokens, mean)
            (found if off < SAME else others).append(FoundText(tokens, off, mean))
            if off < SAME or SAME < mean < CLOSE:  # its words are no more anchors
                known |= set(enumerate(text.tolist()))
            if len(found) == count:
                return found, others
        if found or not guesses.mixing.clear:
            break
    return found, others


def _without(left: Left, texts: list[FoundText]) -> tuple[Left, list[FoundText]]:
    """What is left without texts, and those that could not be taken out."""
    held = texts
    while held:
        kept = []
        for text in held:
            before = left
            left, _ = left.without(text.tokens)
            if left is before:
                kept.append(text)
        if len(kept) == len(held):
            break
        held = kept
    return left, held


def _off(trial: TextTrial, left: Left, tokens: Tensor, mean: float) -> float:
    if trial.telling:
        return float(trial.off(tokens[None]).max()) if mean < SAME else mean
    return left.without(tokens)[1]
