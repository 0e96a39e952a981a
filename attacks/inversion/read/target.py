"""The aim of an inversion attack: a message, read as "the mean gradient at these weights"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from ....defenses.losses import Loss, loss_of
from ....defenses.update import OPTIMISERS
from ...base import Knowledge, PublicFacts, Seen, View
from .clipped_weights import MADE_LONG, stretched
from .local_steps import modelled, without_idle_clip
from .local_training import LINEAR, Recipe, noise_undone, undone
from .sparse import Sparse, components_sent
from .statistics import Statistics, statistics_told


@dataclass(frozen=True, eq=False)
class Target:
    """One observed value as a mean gradient of a loss at known weights, freed of an update's sign and scale.

    key: names the target; random starts derive from it, so results do not depend on what else is solved with it.
    weights, gradient: (d,), same dtype. count: number of images n ≥ 1. labels: (n,) int64, or None where the attack has
    to infer them.
    clip_norm: the public clip in *gradient* units that the value went through, None for none. clip_order: 1 or 2.
    per_layer: the clip held for every tensor by itself. scale_known: False when the value is the gradient times an
    unknown positive number (with `per_layer`, one number for every tensor); the Euclidean objective then profiles the
    scale out. noise_std: of the noise in each component of `gradient`, in its units, as far as the attacker knows it
    (0: none or unknown).
    noise_sent: of that in each component of `update`, in its units, where one step of an optimiser that rescales
    gradients was undone; None where it is noise_std, or that times the recipe's scale.
    recipe, update: the local training that `gradient` was read from and what it sent, (d,) in parameter units; None for
    a gradient that was sent as it is. sent_to_scale: `update` is told to its scale but for the public clip, though what
    it is read as, `gradient`, is not.
    others: further messages of the same images in the same order, each at weights of its own (`rounds.py`).
    trust: what the message counts for beside those; 1 of a message alone.
    sparse: which components were sent where the others were left out; None for all.
    stretched: what weights that a clip had shortened were multiplied by, before `gradient` was read from them.
    statistics: what was sent beside parameters tells of BatchNorm layers' inputs; None for nothing.
    loss: that was minimised, as `defenses.losses.loss_of` reads it.
    """

    key: str
    weights: Tensor
    gradient: Tensor
    labels: Tensor | None
    count: int
    clip_norm: float | None = None
    clip_order: int = 2
    per_layer: bool = False
    scale_known: bool = True
    noise_std: float = 0.0
    recipe: Recipe | None = None
    update: Tensor | None = None
    sent_to_scale: bool = False
    others: tuple[Target, ...] = ()
    trust: float = 1.0
    sparse: Sparse | None = None
    noise_sent: float | None = None
    stretched: float = 1.0
    statistics: Statistics | None = None
    loss: str = "cross_entropy"

    @property
    def minimised(self) -> Loss:
        return loss_of(self.loss)

    @property
    def messages(self) -> tuple[Target, ...]:
        """Itself, without the others, and the others."""
        return (replace(self, others=()), *self.others)

    def sparse_by(self, objective: str) -> Sparse | None:
        """What an objective makes of components that were left out; None where they are zeros to it, as smaller ones
        nearly are.

        Of the largest that were sent, zeros are compared as such where the scale is open or a clip acts: then nobody
        knows how small the others are beside a candidate's.
        """
        if self.sparse is None or not self.sparse.largest:
            return self.sparse
        scaled = objective != "cosine" and self.scale_known and self.clip_norm is None
        return self.sparse if scaled else None

    @property
    def on_the_way(self) -> bool:
        """Whether there are weights between those before and after local training, at which a gradient may stand for
        it. Of one step there are none: its update is the gradient before it.
        """
        return self.update is not None and (self.recipe is None or len(self.recipe.sizes) > 1)

    @property
    def known_weights(self) -> tuple[Tensor, ...]:
        """The weights before local training, and after it where an update tells them (but for a clip and noise)."""
        return (self.weights,) if self.update is None else (self.weights, self.weights + self.update)

    @property
    def noise_moved(self) -> float:
        """The standard deviation of the noise in an update of Adam or RMSprop."""
        return self.noise_std if self.noise_sent is None else self.noise_sent

    @property
    def noise_known(self) -> bool:
        """Whether every message has noise of known size."""
        return all(one.noise_std > 0 for one in self.messages)

    @cached_property
    def noise_share(self) -> float:
        """The share of ‖gradient‖² that is noise, d·noise_std²/‖gradient‖², in [0, 1]; of several messages that of
        their mean by `trust`, where what they say of the images adds up and the noises do not.
        """
        if self.others:
            return Pooled.of(self.messages).noise_share
        energy = self.gradient.square().sum().item()
        numbers = len(self.gradient) if self.sparse is None else int(self.sparse.sent.sum())
        return min(1.0, numbers * self.noise_std**2 / energy) if energy > 0 else 0.0

    def __post_init__(self) -> None:
        if self.weights.shape != self.gradient.shape or self.weights.dim() != 1:
            raise ValueError(
                f"target {self.key!r}: weights {tuple(self.weights.shape)} and gradient {tuple(self.gradient.shape)}"
                " must be flat and of equal length"
            )
        if self.count < 1:
            raise ValueError(f"target {self.key!r}: count is {self.count}, it must be at least 1")
        if self.labels is not None and self.labels.shape != (self.count,):
            raise ValueError(
                f"target {self.key!r}: labels have shape {tuple(self.labels.shape)}, expected ({self.count},)"
            )
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(
                f"target {self.key!r}: clip_norm is {self.clip_norm}, it must be positive, or None for no clip"
            )
        if self.clip_order not in (1, 2):
            raise ValueError(f"target {self.key!r}: clip_order is {self.clip_order}, it must be 1 or 2")
        if any(one.others or one.count != self.count for one in self.others):
            raise ValueError(f"target {self.key!r}: messages of the same images have equal counts, and no others again")


@dataclass(frozen=True)
class Pooled:
    """What several messages of the same images, each divided by its norm, come to in their mean by `trust`.

    signal, noise: of the mean's energy, where one message alone has signal + noise = 1.

    >>> Pooled.mean([0.75] * 4, [0.25] * 4)
    Pooled(signal=0.25, noise=0.1875)
    """

    signal: float
    noise: float

    @classmethod
    def of(cls, messages: Sequence[Target]) -> Pooled:
        whole = sum(one.trust for one in messages)
        return cls.mean([one.noise_share for one in messages], [one.trust / whole for one in messages])

    @classmethod
    def mean(cls, noises: Sequence[float], weights: Sequence[float]) -> Pooled:
        """Of messages with these shares of noise; weights sum to 1."""
        signal = sum(weight * (1 - noise) ** 0.5 for noise, weight in zip(noises, weights)) ** 2
        return cls(signal, sum(weight**2 * noise for noise, weight in zip(noises, weights)))

    @property
    def energy(self) -> float:
        return self.signal + self.noise

    @property
    def noise_share(self) -> float:
        return self.noise / self.energy if self.energy > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Aim:
    """What to attack, and its source: the messages (in rounds' order) of one sender address.

    targets: each of images of its own, solved apart. own_model: the weights are the observer's own model of that round,
    standing in for the sender's (decentralised schemes). summed: the messages are steps of the server, each of all
    clients that took part (`sums.py`).
    """

    manner: str  # one-round | all-rounds
    targets: tuple[Target, ...]
    messages: tuple[Seen, ...]
    own_model: bool = False
    summed: bool = False

    @property
    def target(self) -> Target:
        """The first."""
        return self.targets[0]

    @property
    def key(self) -> str:
        return "+".join(one.key for target in self.targets for one in target.messages)

    @property
    def count(self) -> int:
        """Of images."""
        return sum(target.count for target in self.targets)

    @property
    def labelled(self) -> bool:
        """Whether the labels of all images are known."""
        return all(target.labels is not None for target in self.targets)


def one_round(view: View, knowledge: Knowledge) -> list[Aim]:
    """Every upload by itself.

    share = gradient: as it is. weights: minus the round's global model, then as an update. update: −update /
    (lr·steps), the mean gradient at the global model if the weights hardly move during local training (momentum counts
    a step as often as it acts); one step of Adam or RMSprop undone (`local_training.undone`); several of theirs −update
    of unknown scale (see `assumptions`). Two kinds of messages do not count: those of rounds whose global model this
    observer did not see, since without weights there is nothing to match; and those of anonymous senders, who keep the
    number of their records to themselves, where neither labels tell it nor somebody assumes one (`Inversion.records`).
    """
    aims = []
    models: dict[int, Tensor | None] = {}
    for message in _uploads(view):
        if not message.num_records and message.id not in knowledge.labels:
            continue
        if message.round not in models:
            models[message.round] = _global_model(view, message.round)
        weights = models[message.round]
        if weights is None:
            continue
        value = message.load()
        sparse = components_sent(value, view.layout, view.facts)
        target = target_of(message, value, weights, view.facts.of_round(message.round), knowledge, sparse)
        target = replace(target, statistics=statistics_told(view, message))
        sent = next(m for m in view.messages if m.broadcast and m.round == message.round)
        aims.append(Aim("one-round", (target,), (message,), own_model=sent.receivers == (sent.sender,)))
    return aims


def assumptions(facts: PublicFacts, steps: int = 0, by_step: bool = False, stretched: bool = False) -> tuple[str, ...]:
    """What turning a message of so many local steps (0: unknown) into a mean gradient takes for granted, in plain
    words. by_step: whether the steps of Adam or RMSprop were taken apart (`by_step.py`) instead, and one step read
    by its rank (`one_step.py`). stretched: whether weights were made as long again first, whose one step is not undone.
    """
    loss = loss_of(facts.loss)
    assumed = [loss.words + ("" if loss.words.endswith("loss") else " loss") + loss.text.removeprefix(loss.name)]
    own = facts.scheme != "recorded"  # of a recording what a client adds to the model is clipped, and not its weights
    if facts.share == "weights" and facts.clip_norm is not None and own:
        assumed.append(
            MADE_LONG
            if not facts.per_layer
            else "the clip of the weights was not active (it would move the model the gradient is read from)"
        )
    if facts.share in ("update", "weights"):
        if facts.optimiser in ("sgd", "momentum"):
            assumed.append(
                "the weights hardly move during local training: the update is read as −lr·steps·(mean gradient)"
            )
        elif steps == 1 and facts.noise_std is not None and not facts.per_layer and (by_step or not stretched):
            assumed.append(
                f"the one step of {facts.optimiser} undone: sizes of gradients by what ε leaves of them"
                + (", and by the first layer's rank, the number of images" if by_step else "")
            )
        elif by_step:
            assumed.append(
                f"the steps of {facts.optimiser} taken apart: the learning rate, the batches' sizes and the optimiser's"
                " constants known, their order not"
            )
        elif facts.optimiser not in OPTIMISERS:
            assumed.append(
                "the direction of the update is read as the negative gradient's; how clients train is unknown"
            )
        else:
            assumed.append(
                "the direction of the update is read as the negative gradient's, which is not true of"
                f" {facts.optimiser}: it rescales every component"
                + ("" if steps == 1 else "; its steps are not undone, which is weak: a small gain shows no safety")
            )
    return tuple(assumed)


def _global_model(view: View, round: int) -> Tensor | None:
    try:
        return view.global_model(round)
    except LookupError:
        return None


def _uploads(view: View) -> list[Seen]:
    return sorted((m for m in view.messages if not m.broadcast), key=lambda m: m.round)


def target_of(
    message: Seen,
    value: Tensor,
    weights: Tensor,
    facts: PublicFacts,
    knowledge: Knowledge,
    sparse: Sparse | None = None,
    each: int | None = None,
    clients: int = 1,
) -> Target:
    """A message as a mean gradient at `weights`.

    Args:
        message, value: an upload, or what stands for one. weights: (d,) of the model it was made from.
        facts: how it was made, of its round. knowledge: of its labels.
        sparse: which components of the value were sent. clients: whose mean it is. each: how many records each of them
            holds, 0 where nobody knows or they differ; None: those that the message tells.
    """
    labels = knowledge.labels.get(message.id)
    labels = None if labels is None else labels.long()
    count = message.num_records if labels is None else len(labels)
    noise = facts.noise_std or 0.0
    scale_known = not facts.clip_unknown  # clipped to a private norm: the direction is all there is
    clip = None if message.kind == "weights" else facts.clip_norm  # a clip of weights is no clip of the update
    clipped = clip, facts.clip_order, facts.per_layer
    read = Target(
        message.id, weights, value, labels, count, *clipped, scale_known, noise, sparse=sparse, loss=facts.loss
    )
    if message.kind == "gradient":
        return read
    update, factor = value, 1.0
    if message.kind == "weights":
        update, factor = value - weights, stretched(value, weights, facts, facts.noise_std)
    recipe = recipe_of(facts, message.num_records or count)
    if recipe is not None:
        recipe = modelled(recipe, facts, message.num_records if each is None else each, clients)
        if clip is None and scale_known:  # else weights after training are not told
            recipe = without_idle_clip(recipe, weights, update, noise)
    own = update  # as the simulation of steps makes it, with the clip of each
    if factor > 1:
        update, noise = factor * value - weights, factor * noise
        if recipe is None or recipe.step_clip is None or recipe.step_clip.what != "weights":
            own = update
    if recipe is not None and recipe.linear:
        step = replace(
            read,
            gradient=-update / recipe.scale,
            clip_norm=None if clip is None else clip / recipe.scale,
            scale_known=scale_known and recipe.scaled,
            noise_std=noise / recipe.scale,
            recipe=recipe,
            update=own,
            sent_to_scale=scale_known and not recipe.scaled and not recipe.left_out,
            sparse=None if sparse is None else sparse.scaled(1 / recipe.scale),
            stretched=factor,
        )
        return _with_step_clip(step)
    gradient, whole = -update, scale_known and (clip is None or update.norm(facts.clip_order) < 0.999 * clip)
    sent = None
    one = recipe is not None and len(recipe.sizes) == 1 and factor == 1  # what is lacking to a step is far too little
    if recipe is not None and one and facts.noise_std is not None and not facts.per_layer:
        gradient = undone(recipe, update, weights, noise, scale_known=whole) / recipe.factor
        share = noise_undone(recipe, update, weights, noise, scale_known=whole)
        size = float(gradient.double().norm()) if share else 0.0
        noise, sent = size * (share / len(gradient)) ** 0.5, noise
    return replace(
        read,
        gradient=gradient,
        clip_norm=None,
        per_layer=facts.per_layer and (clip is not None or not scale_known),
        scale_known=False,
        noise_std=noise,
        recipe=recipe,
        update=own if whole else None,
        noise_sent=sent,
        stretched=factor,
    )


def _with_step_clip(target: Target) -> Target:
    """The target of one linear step with the clip that the step itself went through: the tighter of the two where the
    message's is another of the same kind. Of unlike ones nobody knows which acted, and the scale is open.
    """
    recipe = target.recipe
    if recipe is None or recipe.step_clip is None or not recipe.scaled or not target.scale_known:
        return target
    own, order = recipe.step_clip.norm / recipe.factor, recipe.step_clip.order
    if target.clip_norm is None:
        return replace(target, clip_norm=own, clip_order=order, per_layer=False)
    if target.per_layer or target.clip_order != order:
        return replace(target, scale_known=False)
    return replace(target, clip_norm=min(target.clip_norm, own))


def sums_gradients(facts: PublicFacts) -> bool:
    """Whether what is sent is a gradient or a weighted sum of gradients."""
    return facts.share == "gradient" or facts.optimiser in LINEAR


def most_steps(facts: PublicFacts, aims: Sequence[Aim]) -> int:
    """The most local steps behind any message of these; 1 for a gradient, 0 where nobody knows."""
    if facts.share == "gradient":
        return 1
    recipes = [one.recipe for aim in aims for target in aim.targets for one in target.messages]
    return max((0 if recipe is None else len(recipe.sizes) for recipe in recipes), default=0)


def recipe_of(facts: PublicFacts, num_records: int) -> Recipe | None:
    """The local training of a client of `num_records` records, from the public facts of a round; None where nobody
    knows it. Batches that are drawn in secret are not simulated, as not even their sizes are known.

    >>> recipe_of(PublicFacts("fedavg", "update", "sgd", 0.1, batch_size=20, epochs=2, steps=None), 50).sizes
    (20, 20, 10, 20, 20, 10)
    """
    if facts.optimiser not in OPTIMISERS:
        return None
    size = min(facts.batch_size, num_records)
    epoch = [min(size, num_records - first) for first in range(0, num_records, size)]
    steps = local_steps(facts, num_records)
    sizes = tuple(epoch[k % len(epoch)] for k in range(steps))
    whole = steps % len(epoch) == 0
    return Recipe(
        facts.optimiser,
        facts.lr,
        sizes,
        steps // len(epoch) if whole and not facts.secret_batches else None,
        momentum=facts.momentum,
        smoothing=facts.smoothing,
        rates=facts.lr_by_step,
    )


def local_steps(facts: PublicFacts, num_records: int) -> int:
    """How many optimiser steps a client of `num_records` records takes in one round, from public facts.

    >>> local_steps(PublicFacts("fedavg", "update", "sgd", 0.1, batch_size=20, epochs=5, steps=None), 100)
    25
    """
    if facts.steps is not None:
        return facts.steps
    return (facts.epochs or 1) * -(-num_records // facts.batch_size)
