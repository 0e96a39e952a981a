"""Texts under noise, out of the gradient of a classifier's head: errors times what it reads, and most of the length of
what a training of adapters sends. Whole texts are sought by their likelihood: a text is run, and the noise's size says
how far its gradient may be from the message's (ours; moves by gradients of embeddings as HotFlip, arXiv:1712.06751).
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
from ..base import View
from ..inversion.read.target import Target
from .layers import Layers
from .prior import Bigrams, Text
from .sentences import FoundText

MOST = 4  # texts of a message, each of which makes the others harder to find
SWEEPS = 60  # over all texts that are sought, in all
STILL = 5  # sweeps in which nothing gets better, from which another start is taken
WIDTH, NEAR = 4, 192  # texts that are changed in a sweep, and changed ones that are tried
LIKELY = (4, 16, 64)  # of how many words at a place, the likeliest by the gradient, one is tried
FIRST = 8  # of the attacker's own texts, with which each is begun
RUNS = 128  # texts that are run at once
STEEP = 3.0  # what a standard deviation of the words' gains at a place counts for beside the logarithm of a prior
TRIED = SWEEPS * (NEAR + 3 * WIDTH)  # runs of a text in a search
THOROUGH = 2  # sweeps in which nothing gets better, from which all neighbours are tried
CHANCE = 0.05  # of the likelihood of what was tried, which may be of texts without a word that is told
SURE = PAD  # among what is told: the text
MISSED = 0.001  # that the texts that were there are said not to fit


@dataclass(frozen=True, eq=False)
class Guess:
    """One text of a message.

    gradient: the head's, of this text alone, (classes, width) over the batch's size, under the label that fits best.
    score: logarithm of likelihood and prior, but for a constant.
    """

    text: Text
    label: int
    gradient: Tensor
    score: float


@dataclass(frozen=True, eq=False)
class Head:
    """A classifier's head, and the network in front of it, in float32. sent: its gradient, (classes, width), with its
    bias as one column more. noise_std: of each number. count: texts of the batch. clipped: a text counts for a share of
    its gradient that nobody knows, up to 1.
    """

    network: nn.Module
    linear: nn.Linear
    words: nn.Embedding
    sent: Tensor
    noise_std: float
    count: int
    clipped: bool

    @classmethod
    def of(cls, layers: Layers, sent: Mapping[str, Tensor], noise_std: float, count: int, clipped: bool) -> Head | None:
        """None where no linear layer that was sent makes a network's outputs, or it reads more than one thing a text.

        Args:
            layers: of the network. sent: the gradient by name. noise_std, count, clipped: as of the class.
        """
        network = copy.deepcopy(layers.network).float()
        linear = {p: m for p, m in network.named_modules() if isinstance(m, nn.Linear) and f"{p}.weight" in sent}
        path = next(reversed(linear), None)
        if path is None:
            return None
        probe = torch.zeros(1, 2, dtype=torch.int64)
        read, made = _read(network, linear[path], probe)
        outputs = network(probe)
        if read.dim() != 2 or made.shape != outputs.shape or not torch.equal(made, outputs):
            return None
        parts = [sent[f"{path}.weight"].float()]
        if f"{path}.bias" in sent:
            parts.append(sent[f"{path}.bias"].float()[:, None])
        words = network.get_submodule(layers.words)
        assert isinstance(words, nn.Embedding)
        return cls(network, linear[path], words, torch.cat(parts, 1), noise_std, count, clipped)

    @property
    def clear(self) -> bool:
        """Whether the gradient is longer than the noise in it; below that far too many texts fit."""
        return float(self.sent.square().sum()) > 2 * self.sent.numel() * self.noise_std**2

    def fits(self, guesses: Sequence[Guess]) -> bool:
        """Whether what is left of the message is as long as noise; the batch's own texts are but for `MISSED`."""
        rest = self.sent - sum(guess.gradient for guess in guesses)
        return float(rest.square().sum()) < float(chi2.isf(MISSED, rest.numel())) * self.noise_std**2

    def guesses(self, texts: Iterable[Text], rest: Tensor, prior: Bigrams) -> dict[Text, Guess]:
        """Texts, each under the label by which it explains `rest` of the message best."""
        found = {}
        ordered = sorted(dict.fromkeys(texts), key=lambda text: (len(text), text))
        for start in range(0, len(ordered), RUNS):
            part = ordered[start : start + RUNS]
            gradients, fit = self._fitted(_read(self.network, self.linear, _padded(part))[0], rest)
            for text, own, by_label in zip(part, gradients, fit, strict=True):
                label = int(by_label.argmax())
                found[text] = Guess(text, label, own[label], float(by_label[label]) + prior.log(text))
        return found

    def gains(self, guess: Guess, rest: Tensor) -> Tensor:
        """What each word would gain at each place of a text, to first order: (places, words)."""
        caught: list[Tensor] = []

        def catch(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            caught.append(output.detach().requires_grad_(True))
            return caught[0]

        hook = self.words.register_forward_hook(catch)
        try:
            read, _ = _read(self.network, self.linear, _padded([guess.text]), learned=True)
            (slopes,) = torch.autograd.grad(self._fitted(read, rest)[1][0, guess.label], caught[0])
        finally:
            hook.remove()
        slopes, own = slopes[0], caught[0].detach()[0]
        return slopes @ self.words.weight.T - (slopes * own).sum(-1, keepdim=True)

    def _fitted(self, read: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Of each text, by what the head reads of it (n, width): its gradients under each label, (n, labels, classes,
        width), and the logarithm of the likelihood that it makes `rest`, (n, labels).
        """
        errors = self.linear(read).softmax(1)[:, None] - torch.eye(self.linear.out_features)
        ones = read.new_ones(len(read), self.sent.shape[1] - read.shape[1])
        gradients = errors[..., None] * torch.cat([read, ones], 1)[:, None, None] / self.count
        if self.clipped:
            share = (gradients * rest).sum((-1, -2)) / gradients.square().sum((-1, -2)).clamp_min(1e-30)
            gradients = gradients * share.clamp(0, 1)[..., None, None]
        return gradients, (rest - gradients).square().sum((-1, -2)) / (-2 * self.noise_std**2)


@dataclass(frozen=True, eq=False)
class Search:
    """For the texts of a message.

    own: the attacker's texts. most: words of a text. barred: words that are not tried.
    """

    head: Head
    prior: Bigrams
    own: tuple[Text, ...]
    most: int
    barred: tuple[int, ...]
    random: Random

    def run(self) -> tuple[list[Guess], list[set[int]]]:
        """The likeliest texts and, where they fit the noise, what is told of each; nothing where they do not."""
        best: list[Guess] = []
        left, used = SWEEPS, set[Text]()
        while left > 0:
            guesses = self._start(used)
            still, tried = 0, [dict[Text, Guess]() for _ in guesses]
            while left > 0 and still < STILL:
                before, left = self._score(guesses), left - 1
                for at in range(len(guesses)):
                    self._sweep(guesses, tried, at, still == THOROUGH)
                still = 0 if self._score(guesses) > before else still + 1
                if still > THOROUGH and self.head.fits(guesses):
                    return guesses, [*map(_told, tried)]
            best = max(best, guesses, key=self._score) if best else guesses
        return best, []

    def _start(self, used: set[Text]) -> list[Guess]:
        """The attacker's texts that explain the message best, one after the other, none that began a search before."""
        guesses: list[Guess] = []
        for _ in range(self.head.count):
            known = self.head.guesses(set(self.own) - used or self.own, self._rest(guesses), self.prior)
            guesses.append(max(known.values(), key=lambda guess: guess.score))
            used.add(guesses[-1].text)
        return guesses

    def _sweep(self, guesses: list[Guess], tried: list[dict[Text, Guess]], at: int, every: bool) -> None:
        """Changes one text where another is likelier beside the others.

        tried: what was, beside the same others. every: all neighbours of the text are tried, and not some by lot.
        """
        rest = self._rest([guess for k, guess in enumerate(guesses) if k != at])
        pool = tried[at]
        if not pool:
            own = _likeliest(self.head.guesses(self.own, rest, self.prior), FIRST)
            pool |= {guess.text: guess for guess in own} | self.head.guesses([guesses[at].text], rest, self.prior)
        front = _likeliest(pool, WIDTH)
        if every:
            near = self._neighbours(front[0].text, self._likely(front[0], rest))
        else:
            near = [text for guess in front for text in self._near(guess, rest, NEAR // len(front))]
        pool |= self.head.guesses((text for text in near if text not in pool), rest, self.prior)
        top = _likeliest(pool, 1)[0]
        if top.text != guesses[at].text:
            guesses[at] = top
            for k, others in enumerate(tried):
                if k != at:
                    kept = self._rest([guess for j, guess in enumerate(guesses) if j != k])
                    texts = [guess.text for guess in _likeliest(others, WIDTH)]
                    others.clear()
                    others |= self.head.guesses(texts, kept, self.prior)

    def _near(self, guess: Guess, rest: Tensor, number: int) -> list[Text]:
        likely = self._likely(guess, rest)
        return [self._changed(guess.text, likely) for _ in range(number)]

    def _likely(self, guess: Guess, rest: Tensor) -> list[list[int]]:
        """Of each place the words that are worth a run there, the likeliest first."""
        gains = self.head.gains(guess, rest)
        gains = gains / gains.std(1, keepdim=True).clamp_min(1e-30) * STEEP + self.prior.of_words() / 2
        gains[:, [*self.barred]] = -torch.inf
        return gains.topk(min(max(LIKELY), gains.shape[1] - len(self.barred)), 1).indices.tolist()

    def _neighbours(self, text: Text, likely: list[list[int]]) -> list[Text]:
        """All that differ by one word left out, exchanged with another, moved, or replaced by one that is worth it."""
        inner = range(int(self.prior.begins), len(text) - int(self.prior.ends))
        made = [(*text[:a], *text[a + 1 :]) for a in inner if len(inner) > 1]
        made += [(*text[:a], word, *text[a + 1 :]) for a in inner for word in likely[a]]
        for a in inner:
            rest = (*text[:a], *text[a + 1 :])
            made += [(*rest[:b], text[a], *rest[b:]) for b in inner]
            made += [(*text[:a], text[b], *text[a + 1 : b], text[a], *text[b + 1 :]) for b in inner if b > a]
        return made

    def _changed(self, text: Text, likely: list[list[int]]) -> Text:
        """One to three words replaced, put in, left out, exchanged or moved; marks at its ends stay."""
        words, random = [*text], self.random
        first, last = int(self.prior.begins), int(self.prior.ends)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            inner = range(first, len(words) - last)
            move = random.random()
            by_place = likely[random.randrange(first, len(likely) - last)] if len(likely) > first + last else likely[0]
            if not inner or (move < 0.2 and len(words) < self.most):
                words.insert(random.randrange(first, len(words) - last + 1), random.choice(by_place[: LIKELY[1]]))
            elif move < 0.62:
                at = random.choice(inner)
                words[at] = random.choice(likely[min(at, len(likely) - 1)][: random.choice(LIKELY)])
            elif move < 0.74 and len(inner) > 1:
                del words[random.choice(inner)]
            elif move < 0.87:
                a, b = random.choice(inner), random.choice(inner)
                words[a], words[b] = words[b], words[a]
            else:
                words.insert(random.choice(inner), words.pop(random.choice(inner)))
        return tuple(words)

    def _rest(self, guesses: Sequence[Guess]) -> Tensor:
        return self.head.sent - sum(guess.gradient for guess in guesses)

    def _score(self, guesses: Sequence[Guess]) -> float:
        away = float(self._rest(guesses).square().sum()) / (2 * self.head.noise_std**2)
        return sum(self.prior.log(guess.text) for guess in guesses) - away


def texts_by_head(
    layers: Layers, view: View, target: Target, own: Tensor, seed: int
) -> tuple[list[FoundText], set[int], str]:
    """Texts of a message under noise of known size, those of their words that are told, and why nothing is.

    A word is told where the whole message fits its noise, and 95 % of the likelihood of all texts that were tried in
    its text's place is of those that have it; a text is certain where so much is its own. Texts that nobody tried do
    not count.

    Args:
        layers: of the network. view: what was seen. target: the message, of one step. own: (m, length), the attacker's
            texts. seed: of what is tried.
    """
    texts = [text for record in own.tolist() if len(text := tuple(word for word in record if word != PAD)) > 1]
    recipe, vocabulary = target.recipe, view.vocabulary
    assert vocabulary is not None
    if not texts:
        return [], set(), "the attacker has no texts of its own, by which others would be likely"
    if target.on_the_way or not (recipe is None or recipe.linear) or target.loss != "cross_entropy":
        return [], set(), "it reads gradients of cross_entropy in one step of SGD"
    clipped = target.clip_norm is not None or not target.scale_known or view.facts.record_clip
    sent = view.layout.split(target.gradient)
    head = Head.of(layers, sent, target.noise_std, target.count, clipped)
    if head is None or target.count > MOST:
        return [], set(), f"it reads a classifier's head that is sent, of at most {MOST} texts"
    if not head.clear:
        return [], set(), "the head's gradient is shorter than the noise in it"
    prior = Bigrams.of(texts, len(vocabulary))
    barred = tuple(sorted(vocabulary.special))
    search = Search(head, prior, tuple(dict.fromkeys(texts)), view.input_shape[0], barred, Random(seed))
    guesses, told = search.run()
    sure = [SURE in own for own in told] or [False] * len(guesses)
    found = [FoundText(torch.tensor(guess.text), float(not s)) for guess, s in zip(guesses, sure, strict=True)]
    why = "" if told else "the likeliest texts fit the message worse than its noise allows, so they are guesses"
    return found, {word for own in told for word in own if word != SURE}, why


def _likeliest(pool: Mapping[Text, Guess], number: int) -> list[Guess]:
    return sorted(pool.values(), key=lambda guess: (-guess.score, guess.text))[:number]


def _told(tried: Mapping[Text, Guess]) -> set[int]:
    """Words of the likeliest text that 95 % of what was tried has, by likelihood; with `SURE`, where so much is of this
    text alone.
    """
    top = _likeliest(tried, 1)[0]
    weights = {text: exp(guess.score - top.score) for text, guess in tried.items()}
    most = CHANCE * sum(weights.values())
    told = {word for word in top.text if sum(w for text, w in weights.items() if word not in text) < most}
    return told | {SURE} if sum(weights.values()) - 1 < most else told


def _padded(texts: Sequence[Text]) -> Tensor:
    return padded([[*text] for text in texts], max(map(len, texts)))


def _read(network: nn.Module, layer: nn.Module, texts: Tensor, learned: bool = False) -> tuple[Tensor, Tensor]:
    """What a layer reads of texts, and what it makes of it."""
    caught: list[tuple[Tensor, Tensor]] = []
    hook = layer.register_forward_hook(lambda _, inputs, output: caught.append((inputs[0], output)))
    try:
        with torch.set_grad_enabled(learned):
            network(texts)
    finally:
        hook.remove()
    return caught[0]
