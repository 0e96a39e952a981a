"""Texts under noise, out of the gradient of a classifier's head: errors times what it reads, and most of the length of
what a training of adapters sends. Whole texts are sought by their likelihood: a text is run, and the noise's size says
how far its gradient may be from the message's (ours; words by gradients of embeddings as HotFlip, arXiv:1712.06751).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from random import Random

import torch
from scipy.stats import chi2
from torch import Tensor, nn

from ...defenses.data.vocabulary import PAD, padded
from ...defenses.progress import Progress
from ..base import View
from ..inversion.read.target import Target
from .layers import Layers
from .prior import Bigrams, WordNumbers
from .sentences import FoundText

MOST = 4  # texts of a message, each of which makes the others harder to find
SWEEPS = 60  # over all texts that are sought, in all
STILL, THOROUGH = 5, 2  # sweeps without a better text, from which another start is taken, or all neighbours are tried
WIDTH, NEAR = 4, 192  # texts that are changed in a sweep, and changed ones that are tried
LIKELY, INSERTED = 64, 4  # words at each place, the likeliest by the gradient, that are tried there, or put in
TRIED = SWEEPS * (NEAR + 3 * WIDTH)  # runs of a text in a search
RUNS = 128  # texts that are run at once
STEEP = 3.0  # what a standard deviation of the words' gains at a place counts for beside the logarithm of a prior
MISSED = 0.001  # that noise alone is longer than what counts as noise
SOUGHT, CERTAIN = 2.0, 10.0  # mean square of the head over the noise's, from which texts are sought, and told
CHANCE = 0.05  # of the likelihood of what was tried, that may be of texts without a word that is told


@dataclass(frozen=True, eq=False)
class TextGuess:
    """A text, its part of the head's gradient by the label that fits best, and the log of its likelihood and prior."""

    text: WordNumbers
    label: int
    gradient: Tensor
    score: float


@dataclass(frozen=True, eq=False)
class HeadSent:
    """A classifier's head, and the network in front of it, in float32. sent: its gradient, (classes, width), a bias as
    one column more. noise_std: of each number. count: texts of the batch. clipped: a text counts for a share of its
    gradient that nobody knows, up to 1. prior: of texts.
    """

    network: nn.Module
    linear: nn.Linear
    words: nn.Embedding
    sent: Tensor
    noise_std: float
    count: int
    clipped: bool
    prior: Bigrams

    @staticmethod
    def of(layers: Layers, sent: Mapping[str, Tensor]) -> tuple[nn.Module, nn.Linear, Tensor] | None:
        """The network, its last linear layer that was sent, and that gradient; None where it is no classifier."""
        network = copy.deepcopy(layers.network).float()
        linears = [(p, m) for p, m in network.named_modules() if isinstance(m, nn.Linear) and f"{p}.weight" in sent]
        path, linear = linears[-1] if linears else ("", nn.Linear(1, 1))
        read, made = _read(network, linear, [(0, 0)])
        if read.dim() != 2 or not torch.equal(made, network(torch.zeros(1, 2, dtype=torch.int64))):
            return None
        parts = [sent[name].float() for name in (f"{path}.weight", f"{path}.bias") if name in sent]
        return network, linear, torch.cat([part.view(len(part), -1) for part in parts], 1)

    def guesses(self, texts: Iterable[WordNumbers], rest: Tensor) -> dict[WordNumbers, TextGuess]:
        """Texts, each under the label by which it explains `rest` of the message best."""
        found = {}
        ordered = sorted({*texts}, key=lambda text: (len(text), text))
        for part in (ordered[start : start + RUNS] for start in range(0, len(ordered), RUNS)):
            gradients, fit = self._fitted(_read(self.network, self.linear, part)[0], rest)
            for text, own, by_label in zip(part, gradients, fit, strict=True):
                label = int(by_label.argmax())
                found[text] = TextGuess(text, label, own[label], float(by_label[label]) + self.prior.log(text))
        return found

    def likely(self, guess: TextGuess, rest: Tensor, barred: frozenset[int]) -> list[list[int]]:
        """Of each place the words worth a run there, by their gain to first order and the prior; none is barred."""
        caught: list[Tensor] = []

        def catch(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            caught.append(output.detach().requires_grad_(True))
            return caught[0]

        hook = self.words.register_forward_hook(catch)
        try:
            read, _ = _read(self.network, self.linear, [guess.text])
            (slopes,) = torch.autograd.grad(self._fitted(read, rest)[1][0, guess.label], caught[0])
        finally:
            hook.remove()
        gains = slopes[0] @ self.words.weight[: len(self.prior.words)].T
        gains = STEEP * gains / gains.std(1, keepdim=True).clamp_min(1e-30) + self.prior.words.log() / 2
        gains[:, sorted(barred)] = -torch.inf
        return gains.topk(min(LIKELY, gains.shape[1] - len(barred)), 1).indices.tolist()

    def _fitted(self, read: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Of texts, by what the head reads of them (n, width): gradients under each label, (n, labels, classes, width),
        and the logarithm of the likelihood that they make `rest`, (n, labels).
        """
        errors = self.linear(read).softmax(1)[:, None] - torch.eye(self.linear.out_features)
        ones = read.new_ones(len(read), self.sent.shape[1] - read.shape[1])
        gradients = errors[..., None] * torch.cat([read, ones], 1)[:, None, None] / self.count
        if self.clipped:
            share = (gradients * rest).sum((-1, -2)) / gradients.square().sum((-1, -2)).clamp_min(1e-30)
            gradients = gradients * share.clamp(0, 1)[..., None, None]
        return gradients, (rest - gradients).square().sum((-1, -2)) / (-2 * self.noise_std**2)


@dataclass(frozen=True, eq=False)
class HeadSearch:
    """For the texts of a message. own: the attacker's texts. most: words of a text. barred: words that are not tried,
    nor taken away, as a tokenizer's marks. progress: called after every sweep.
    """

    head: HeadSent
    own: tuple[WordNumbers, ...]
    most: int
    barred: frozenset[int]
    random: Random
    progress: Progress | None = None

    def run(self) -> tuple[list[TextGuess], list[dict[WordNumbers, TextGuess]]]:
        """The likeliest texts and, where they fit the noise, what was tried in the place of each beside the others."""
        best: list[TextGuess] = []
        left, used = SWEEPS, set[WordNumbers]()
        longest = float(chi2.isf(MISSED, self.head.sent.numel())) * self.head.noise_std**2
        while left > 0:
            guesses: list[TextGuess] = []
            for _ in range(self.head.count):  # the attacker's texts that explain most, none that began a search before
                guesses.append(_likeliest(self.head.guesses({*self.own} - used or self.own, self._rest(guesses)), 1)[0])
                used.add(guesses[-1].text)
            still, tried = 0, [dict.fromkeys(self.own[:WIDTH], guess) for guess in guesses]
            while left > 0 and still < STILL:
                before, left = self._score(guesses), left - 1
                if self.progress is not None:
                    self.progress(SWEEPS - left, SWEEPS)
                for at in range(len(guesses)):
                    tried[at] = self._tried(guesses, [*tried[at]][:WIDTH], at, still == THOROUGH)
                    guesses[at] = next(iter(tried[at].values()))
                still = 0 if self._score(guesses) > before else still + 1
                if still == THOROUGH + 1 and float(self._rest(guesses).square().sum()) < longest:
                    return guesses, tried
            best = max(best or guesses, guesses, key=self._score)
        return best, []

    def _tried(
        self, guesses: Sequence[TextGuess], beam: Sequence[WordNumbers], at: int, every: bool
    ) -> dict[WordNumbers, TextGuess]:
        """What is tried for one text, the likeliest first: those of before and neighbours, every or some."""
        rest = self._rest([guess for k, guess in enumerate(guesses) if k != at])
        pool = self.head.guesses({*beam, guesses[at].text}, rest)
        for guess in _likeliest(pool, 1 if every else WIDTH):
            likely = self.head.likely(guess, rest, self.barred)
            if every:
                near = self._neighbours(guess.text, likely)
            else:
                few = [row[: self.random.choice((4, 16, LIKELY))] for row in likely]
                near = [self.random.choice(self._neighbours(guess.text, few)) for _ in range(NEAR // WIDTH)]
                again = [text for text in near if self.random.random() < 0.4]
                near += [self.random.choice(self._neighbours(text, few)) for text in again]
            pool |= self.head.guesses({*near} - {*pool}, rest)
        return {guess.text: guess for guess in _likeliest(pool, len(pool))}

    def _neighbours(self, text: WordNumbers, likely: Sequence[Sequence[int]]) -> list[WordNumbers]:
        """By one word replaced, put in, left out, moved, or exchanged with another."""
        inner = [a for a, word in enumerate(text) if word not in self.barred]
        made = [(*text[:a], w, *text[a + 1 :]) for a in inner for w in likely[min(a, len(likely) - 1)]]
        if len(text) < self.most:
            at = (*inner, inner[-1] + 1)
            made += [(*text[:a], w, *text[a:]) for a in at for w in likely[min(a, len(likely) - 1)][:INSERTED]]
        for a in inner:
            rest = (*text[:a], *text[a + 1 :])
            made += [rest] * min(3, len(inner) - 1)
            made += [(*rest[:b], text[a], *rest[b:]) for b in inner]
            made += [(*text[:a], text[b], *text[a + 1 : b], text[a], *text[b + 1 :]) for b in inner if b > a]
        return made

    def _rest(self, guesses: Sequence[TextGuess]) -> Tensor:
        return self.head.sent - sum(guess.gradient for guess in guesses)

    def _score(self, guesses: Sequence[TextGuess]) -> float:
        away = float(self._rest(guesses).square().sum()) / (2 * self.head.noise_std**2)
        return sum(self.head.prior.log(guess.text) for guess in guesses) - away


def sought_by(layers: Layers, view: View, target: Target) -> tuple[nn.Module, nn.Linear, Tensor] | str:
    """What `HeadSent.of` gives of a message under noise of known size; or why no text of it is sought."""
    one_step = not target.on_the_way and (target.recipe is None or target.recipe.linear)
    found = HeadSent.of(layers, view.layout.split(target.gradient))
    if found is None or target.count > MOST or not one_step or target.loss != "cross_entropy":
        return f"it reads a classifier's head of one step of SGD on cross_entropy, of at most {MOST} texts"
    if float(found[2].square().mean()) < SOUGHT * target.noise_std**2:
        return "the head's gradient is shorter than the noise in it"
    return found


def by_head(
    layers: Layers, view: View, target: Target, own: Tensor, seed: int, progress: Progress | None = None
) -> tuple[list[FoundText], set[int], str]:
    """Texts of a message under noise of known size, those of their words that are told, and why nothing is.

    A word is told where the message fits its noise, and 95 % of the likelihood of all texts that were tried in its
    text's place is of those that have it; a text is certain where so much is its own. Texts that nobody tried do not
    count, so nothing is told where the head's gradient is not well above its noise.

    Args:
        layers: the network. view, target: the message. own: (m, length), the attacker's texts. seed: of what is tried.
        progress: called after every sweep of the search.
    """
    assert view.vocabulary is not None
    texts = [tuple(word for word in record if word != PAD) for record in own.tolist() if view.vocabulary.plain(record)]
    if not texts:
        return [], set(), "the attacker has no texts of its own, by which others would be likely"
    found = sought_by(layers, view, target)
    if isinstance(found, str):
        return [], set(), found
    network, linear, sent = found
    energy = float(sent.square().mean()) / target.noise_std**2
    clipped = target.clip_norm is not None or not target.scale_known or view.facts.record_clip
    words, prior = network.get_submodule(layers.words), Bigrams.of(texts, len(view.vocabulary))
    assert isinstance(words, nn.Embedding)
    head = HeadSent(network, linear, words, sent, target.noise_std, target.count, clipped, prior)
    own_texts, most = tuple(dict.fromkeys(texts)), view.input_shape[0]
    guesses, tried = HeadSearch(head, own_texts, most, view.vocabulary.special, Random(seed), progress).run()
    if not tried or energy < CERTAIN:
        why = "the texts are guesses: none that was tried fits the noise, or there is too much of it to tell them apart"
        return [FoundText(torch.tensor(guess.text), 1.0) for guess in guesses], set(), why
    sure = [_sure(guess, pool) for guess, pool in zip(guesses, tried)]
    made = [FoundText(torch.tensor(guess.text), float(not whole)) for guess, (_, whole) in zip(guesses, sure)]
    return made, set[int]().union(*(words for words, _ in sure)), ""


def _sure(top: TextGuess, tried: Mapping[WordNumbers, TextGuess]) -> tuple[set[int], bool]:
    weights = {text: exp(guess.score - top.score) for text, guess in tried.items()}
    most = CHANCE * sum(weights.values())
    words = {word for word in top.text if sum(w for text, w in weights.items() if word not in text) < most}
    return words, sum(weights.values()) - 1 < most


def _likeliest(pool: Mapping[WordNumbers, TextGuess], number: int) -> list[TextGuess]:
    return sorted(pool.values(), key=lambda guess: (-guess.score, guess.text))[:number]


def _read(network: nn.Module, layer: nn.Module, texts: Sequence[WordNumbers]) -> tuple[Tensor, Tensor]:
    """What a layer reads of texts, and what it makes of it; nothing where it is not run."""
    caught = [(torch.zeros(0), torch.zeros(0))]
    hook = layer.register_forward_hook(lambda _, inputs, output: caught.append((inputs[0], output)))
    try:
        network(padded(texts, max(map(len, texts))))
    finally:
        hook.remove()
    return caught[-1]
