"""The attack on text: which words, where, and together, out of captured gradients, updates or weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...defenses.data.vocabulary import Vocabulary, padded
from ...defenses.progress import Progress
from ..base import Attack, Knowledge, Part, ReadTexts, View
from ..cost import forward_operations
from ..inversion.read.assumed import NOISE_KNOWN
from ..inversion.read.mode import mode_assumed
from ..inversion.read.rounds import every_round
from ..inversion.read.target import Aim, Target
from ..settings import check_keys
from .bag import Bag, bag_of_adapters, bag_of_rows, bag_of_span
from .by_attention import by_attention
from .by_head import TRIED as TRIED_HEAD
from .by_head import by_head, sought_by
from .decay import without_decay
from .last_words import head_of, with_last_words
from .layers import LORA_A, LORA_B, Layers
from .left import Left
from .noise import noise_over_gradient
from .places import shares_of_places
from .same_step import dealt_texts
from .sentences import FoundText, TextTrial, by_places, from_the_left
from .span import SpanOfInputs

NAME = "inversion-text"
EMBEDDED = 20  # words that are looked up in the time of a text's run
TRIED, TRIED_WHOLE = 2000, 200  # runs of a text, in which one is found; by attention, where embeddings are sent


@dataclass(frozen=True)
class TextInversion:
    """Read the words and sentences of a batch (DAGER, Petrov et al. 2024, arXiv:2405.15586).

    Words are read first, off the embedding's rows, or by the span of the first layer's inputs; then places and
    sentences, by the spans of layers behind it. A sentence is certain where all that it makes these layers read lies in
    their spans, which those of no other sentence do. Labels are not looked at.
    """

    name: str = field(default=NAME, init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Every message that the view allows.

        Raises:
            ValueError: the records are no text, there is no such message, or the network has no embedding.
        """
        vocabulary = _vocabulary(view)
        aims = every_round(view, knowledge)
        if not aims:
            raise ValueError(
                f"the observer {view.observer!r} saw no message to read: an upload of a round whose global model it saw"
            )
        layers = Layers.of(view.module, view.layout, torch.zeros(view.layout.dim), len(vocabulary), view.input_shape[0])
        each = forward_operations(view.module, view.input_shape)
        sent = {*view.layout.names}
        told = any(isinstance(m, nn.Embedding) and f"{p}.weight" in sent for p, m in view.module.named_modules())
        words, tried = (0, TRIED_WHOLE) if told else (len(vocabulary) // EMBEDDED, TRIED)
        made = []
        for aim in aims:
            noise, runs = view.facts.noise_is_known and aim.target.noise_std > 0, tried
            if noise and not isinstance(sought_by(layers, view, aim.target), str):
                runs += TRIED_HEAD
            made.append(Part(f"one-round:{aim.key}", (words + runs * aim.count) * each, aim))
        return made

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> ReadTexts:
        """What is read of one message.

        Args:
            part: of `parts`. view: what the observer saw. knowledge: its own texts, by which others are likely
                under noise. seed: of guesses, from which texts are sought. progress: called at the end, and after every
                sweep of the search under noise.
        """
        aim: Aim = part.content
        vocabulary, length = _vocabulary(view), view.input_shape[0]
        reader = _Reader.of(view, aim.target, len(vocabulary), length)
        bag, methods = reader.bag()
        texts: list[FoundText] = []
        if len(bag.words):
            texts, how = reader.texts(bag, aim.count, seed)
            methods = (*methods, *how)
        words, noise = bag.words, reader.noise_std is not None and aim.target.noise_std > 0
        if noise and not texts:
            texts, told, why = by_head(reader.layers, view, aim.target, knowledge.auxiliary_inputs, seed, progress)
            words = torch.tensor(sorted({*words.tolist(), *told}), dtype=torch.int64)
            methods = (*methods, ("texts by the head's gradient", why))
        texts = [text for text in texts if len(text.tokens)][: aim.count]
        if progress is not None:
            progress(1, 1)
        return ReadTexts(
            attack=self.name,
            observer=view.observer,
            manner=aim.manner,
            round=aim.messages[0].round,
            sender=aim.messages[0].sender,
            message_ids=tuple(m.id for m in aim.messages),
            words=words,
            texts=padded([text.tokens.tolist() for text in texts], length),
            certain=torch.tensor([text.certain for text in texts], dtype=torch.bool),
            assumed=(
                "how many texts the message is of",
                "the tokenizer, which is public",
                *((NOISE_KNOWN,) if noise else ()),
                *view.base_known,
                *mode_assumed(view.module, "eval", view.facts.scheme == "recorded"),
            ),
            methods=methods,
            noise_over_gradient=noise_over_gradient(aim.target),
        )


@dataclass(frozen=True, eq=False)
class _Reader:
    """One message, tensor by tensor, at the network that it was made at. rounding: of a number of each tensor, where it
    is more than float32's own. moved: whether it is what a step made of the gradient, which goes against it.
    """

    layers: Layers
    sent: Mapping[str, Tensor]
    noise_std: float | None
    length: int
    vocabulary: int
    rounding: Mapping[str, float] = field(default_factory=dict)
    moved: bool = False

    @classmethod
    def of(cls, view: View, target: Target, vocabulary: int, length: int) -> _Reader:
        layers = Layers.of(view.module, view.layout, target.weights, vocabulary, length)
        value, noise = target.gradient, target.noise_std
        if target.update is not None:  # as it was sent: what an optimiser does not move is 0 there
            value, noise = target.update, target.noise_moved
            if target.recipe is not None and target.recipe.linear:
                noise = target.noise_std * target.recipe.scale
        known = noise if view.facts.noise_is_known else None
        rounding: dict[str, float] = {}
        sent: Mapping[str, Tensor] = view.layout.split(value)
        if target.update is not None:  # a difference of weights, each of which is rounded by its own size
            named = view.layout.split(target.weights.double())
            rounding = {name: 2.0**-24 * float(part.square().mean().sqrt()) for name, part in named.items()}
            if not noise:
                sent = without_decay(sent, named, f"{layers.words}.weight", f"{layers.positions}.weight")
        return cls(layers, sent, known, length, vocabulary, rounding, target.update is not None)

    def bag(self) -> tuple[Bag, tuple[tuple[str, str], ...]]:
        table = self.sent.get(f"{self.layers.words}.weight")
        rows = Bag(torch.zeros(0, dtype=torch.int64), why_none="the embedding is frozen, so nobody sends it")
        if table is not None:
            rows = bag_of_rows(table[: self.vocabulary], self.noise_std)
        if not rows.why_none:
            return rows, (("words by the embedding's rows", ""),)
        span = self._span(0)
        found = bag_of_span(self.layers, span, self.vocabulary, self.length) if not self.noise_std else rows
        why = rows.why_none
        ran = (("words by the embedding's rows", why), ("words by the first layer's span", found.why_none))
        if not found.why_none or self.noise_std or self.layers.single == 1:
            return found, ran
        behind = [self._span(depth) for depth in range(1, self.layers.single)]
        found = bag_of_adapters(self.layers, behind, self.vocabulary, self.length)
        return found, (*ran, ("words by what adapters read", found.why_none))

    def _gradients(self, depth: int) -> list[Tensor]:
        return [self.layers.rows(self.sent, path) for path in self.layers.groups[depth]]

    def _span(self, depth: int) -> SpanOfInputs:
        rounding = [self.rounding.get(f"{path}.weight", 0.0) for path in self.layers.groups[depth]]
        adapters = any(name in self.layers.groups[depth][0] for name in (LORA_A, LORA_B))
        return SpanOfInputs.of(self._gradients(depth), rounding, depth == 0, adapters)

    def texts(self, bag: Bag, count: int, seed: int) -> tuple[list[FoundText], tuple[tuple[str, str], ...]]:
        """Texts, those that are certain first, and by which methods."""
        if guessed := self._of_steps(bag.words, count):
            return guessed, (("words that trained in one step, their order guessed", ""),)
        first = self._span(0)
        single = self.layers.single
        spans = [*[None] * single, *(self._span(depth) for depth in range(single, len(self.layers.groups)))]
        told = {depth: span for depth, span in enumerate(spans) if span is not None and span.clear}
        adapters = {depth: span for depth, span in told.items() if LORA_B in self.layers.groups[depth][0]}
        weak = adapters.keys() - SpanOfInputs.most_telling(adapters).keys()
        telling = tuple(None if depth in weak else told.get(depth) for depth in range(len(spans)))
        pairs = self._pairs(first, bag)
        trial = TextTrial(self.layers, telling, bag.words, pairs, self._weights(pairs, bag.words))
        left = self._left(bag.words)
        found = by_attention(trial, left, count) if left is not None else []
        if found:
            return found, (("sentences by attention", ""),)
        if not self.layers.causal and not first.clear and bag.pairs is None:
            why = "the first layer's inputs leave no gap in its gradient: too many words, several local steps, or noise"
            return [], (("sentences", why),)
        if not trial.telling:
            why = "no layer behind the first attention leaves a gap in its gradient: too many words, or noise"
            return [], (("sentences", why),)
        if self.layers.causal:
            begun = sorted(from_the_left(trial), key=lambda text: text.off)
            path = head_of(self.layers)
            if path is None:
                return begun, (("sentences from the left", ""),)
            head = self._head(path)
            if head is None:
                why = "the layer that scores each word is not sent, and no other tells the last word of a text"
                return begun, (("sentences from the left", ""), ("last words", why))
            return with_last_words(begun, self.layers, head), (("sentences from the left", ""), ("last words", ""))
        return by_places(trial, count, seed), (("sentences place by place", ""),)

    def _of_steps(self, words: Tensor, count: int) -> list[FoundText]:
        """Of what Adam moved, the words of each step; nothing of any other message."""
        table, places = (self.sent.get(f"{path}.weight") for path in (self.layers.words, self.layers.positions))
        if table is None or places is None or self.noise_std != 0 or not self.moved:
            return []
        texts = dealt_texts(table[words], places[: self._places()], count)
        return [FoundText(words[text], 1.0) for text in texts]

    def _head(self, path: str) -> Tensor | None:
        """The gradient, times a number above 0, of this layer, which scores each word; None where it is not sent."""
        held = self.layers.network.get_submodule(path).weight
        name = next(name for name, value in self.layers.network.named_parameters() if value is held)  # it may be tied
        sent = self.sent.get(name)
        return sent if sent is None or not self.moved else -sent

    def _left(self, words: Tensor) -> Left | None:
        """The whole message of an encoder that sends its embeddings, None of any other."""
        table, places = (self.sent.get(f"{path}.weight") for path in (self.layers.words, self.layers.positions))
        another = self.layers.causal or self.layers.single > 1 or len(self.layers.groups) < 2
        if table is None or places is None or self.noise_std or another:
            return None
        weights = [*self._gradients(0), *self._gradients(1)]
        return Left.of(self.layers, words, table[words], places[: self.length], weights)

    def _pairs(self, first: SpanOfInputs, bag: Bag) -> Tensor:
        """Whether each word can stand at each place, (places, words), up to the last place that the batch has."""
        places, words = self._places(), bag.words
        if bag.pairs is not None:
            return bag.pairs[:places]
        if not first.clear:
            return torch.ones(places, len(words), dtype=torch.bool)
        held = torch.cat([first.outside(read) < first.same for _, read in self.layers.of_words(words, places)]).T
        return held.expand(places, -1)

    def _places(self) -> int:
        rows = self.sent.get(f"{self.layers.positions}.weight")
        if rows is None or self.noise_std:
            return self.length
        moved = torch.nonzero(rows[: self.length].abs().sum(1))
        return int(moved.max()) + 1 if len(moved) else self.length

    def _weights(self, pairs: Tensor, words: Tensor) -> Tensor:
        """How likely each word stands at each place, (places, words)."""
        by_place = self.sent.get(f"{self.layers.positions}.weight")
        if by_place is None or f"{self.layers.words}.weight" not in self.sent:
            return pairs.double()
        rows = self.sent[f"{self.layers.words}.weight"][words]
        return shares_of_places(rows, by_place[: len(pairs)]).clamp(0.0, 1.0)


def _vocabulary(view: View) -> Vocabulary:
    if view.vocabulary is None:
        raise ValueError("the setup's records are no text; --attack inversion reads images and rows of a table")
    return view.vocabulary


def make_text_inversion(settings: Mapping[str, Any], quick: bool, device: str) -> list[Attack]:
    """The attack, which has no settings. Raises ValueError for any."""
    del quick, device
    check_keys(settings, (), gone=("sentences",))
    return [TextInversion()]
