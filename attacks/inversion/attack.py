"""The gradient-inversion attack: images out of captured gradients, updates or weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn

from ...defenses.chain import open_chain
from ...defenses.complaint import one_of
from ...defenses.layout import Layout
from ...defenses.randomness import generator
from ..base import Knowledge, Part, Progress, PublicFacts, Reconstruction, View
from ..cost import CALL, forward_operations
from .columns import Columns
from .double_backward import DoubleBackward
from .first_layer import FirstLayer
from .ghost import Ghost
from .labels.infer import Inferred, infer
from .objective import OBJECTIVES, Matching, Name
from .optimise import Objective, adam, lbfgs, with_prior
from .prior import tv_for_noise
from .simulated import INVARIANCE, Simulated, averaged_epochs, orders
from .span import InputSpan, with_span
from .target import Aim, Target, all_rounds, assumptions, one_round
from .unfolded import Unfolded, supports

Optimiser = Literal["signed-adam", "adam", "lbfgs"]

OPTIMISERS: tuple[Optimiser, ...] = ("signed-adam", "adam", "lbfgs")
MANNERS: dict[str, Callable[[View, Knowledge], list[Aim]]] = {"one-round": one_round, "all-rounds": all_rounds}
# A batch of candidates holds at most about this many numbers (0.5 GB in float32); a rule on shapes only.
CHUNK_NUMBERS = 2**27
UNEXPLAINED = 1e-3  # of a message's energy without its noise, at most, where images are certain
PASSES = 8  # of the network for the gradient of a gradient's distance: 6 by `Ghost`, some 9 by `DoubleBackward`


@dataclass(frozen=True)
class Inversion:
    """Gradient inversion (Geiping et al. 2020, arXiv:2003.14053): find the images whose gradient is the observed one.

    objective: cosine | euclidean (models the clip) | euclidean-naive; see `objective.Matching`.
    optimiser: signed-adam | adam | lbfgs; the step size of the first two falls tenfold at 3/8, 5/8 and 7/8 of the
      `iterations`. lbfgs ignores `lr`, computes in float64, and wants tv = 0.
    lr: step size in pixels, of [0, 1]. tv: weight of the total variation, see `prior.total_variation`; or
      "noise-aware", which raises it with the share of the observed value's energy that is noise, as far as the attacker
      knows the noise (`prior.tv_for_noise`).
    restarts: independent starts; the one with the lowest objective is kept, never by looking at the truth.
    labels: known (from the setup's knowledge) | inferred (from what was sent of the classifier, `labels.infer`).
    exact: images that the first layer determines are solved for (`first_layer.FirstLayer`), all of them before anything
      is optimised, or the rest out of what optimising finds.
    along: where the one gradient is read, between the weights before local training (0) and after it (1), as far as an
      update tells them.
    span: weight of what a linear layer behind others tells, see `span.InputSpan`.
    simulated: so many more iterations in which an update's local training is simulated, batches in an order of the
      attack's own, see `simulated.Simulated`; of what they give and what they began with the one is kept whose
      simulated update is nearer to the one sent. Nothing is simulated where a message is of one step or not of whole
      epochs.
    manners: one-round (each message alone) and all-rounds (all of one sender's together).
    device: where to compute, "cpu" or "cuda". Random starts are drawn on the CPU.
    """

    objective: Name = "cosine"
    optimiser: Optimiser = "signed-adam"
    iterations: int = 300
    lr: float = 0.1
    tv: float | Literal["noise-aware"] = 0.01
    restarts: int = 1
    labels: Literal["known", "inferred"] = "known"
    exact: bool = False
    along: float = 0.0
    span: float = 0.0
    simulated: int = 0
    manners: tuple[str, ...] = ("one-round", "all-rounds")
    device: str = "cpu"
    name: str = field(default="inversion", init=False)

    def __post_init__(self) -> None:
        for what, allowed in (("objective", OBJECTIVES), ("optimiser", OPTIMISERS), ("labels", ("known", "inferred"))):
            if getattr(self, what) not in allowed:
                raise ValueError(one_of(what, getattr(self, what), allowed))
        for manner in self.manners:
            if manner not in MANNERS:
                raise ValueError(one_of("manners", manner, MANNERS))
        if self.iterations < 1 or self.restarts < 1:
            raise ValueError(f"iterations is {self.iterations} and restarts {self.restarts}, both must be at least 1")
        if not self.lr > 0:
            raise ValueError(f"lr is {self.lr}, it must be positive")
        if not (0 <= self.along <= 1 and self.span >= 0 and self.simulated >= 0):
            raise ValueError(
                f"along is {self.along}, span {self.span} and simulated {self.simulated}: along must be between 0 and"
                " 1, the others at least 0"
            )
        if self.optimiser == "lbfgs" and self.simulated:
            raise ValueError("simulated: training is simulated with optimiser = 'signed-adam' or 'adam', not 'lbfgs'")
        if self.tv != "noise-aware" and not (isinstance(self.tv, int | float) and self.tv >= 0):
            raise ValueError(f"tv is {self.tv!r}, it must be a number from 0 on, or 'noise-aware'")

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Every message (one-round) and every sender of several messages (all-rounds) the view allows.

        It skips messages of rounds whose global model the observer did not see and, with known labels, messages whose
        labels the knowledge does not hold although it holds others' (averages that a hub passes on).

        Raises:
            ValueError: inputs are not images, there is no such message, or labels = "known" and the knowledge holds
                those of no message.
        """
        if view.classes < 2:
            raise ValueError(
                f"gradient inversion matches cross-entropy gradients; the setup has classes = {view.classes}, at least"
                " 2 are needed"
            )
        if view.facts.loss != "cross_entropy":
            raise ValueError(
                "gradient inversion matches cross-entropy gradients; the setup's model was trained with the loss"
                f" {view.facts.loss!r}"
            )
        if len(view.input_shape) != 3:
            raise ValueError(
                "gradient inversion reconstructs images (channels, height, width); the setup's inputs have shape"
                f" {view.input_shape}"
            )
        aims = [aim for manner in self.manners for aim in MANNERS[manner](view, knowledge)]
        if not aims:
            raise ValueError(
                f"the observer {view.observer!r} saw no message for gradient inversion: an upload, of a round whose"
                " global model it saw too"
            )
        if self.labels == "known":
            labelled = [aim for aim in aims if aim.target.labels is not None]
            if not labelled:
                raise ValueError(
                    "labels = 'known', but the setup's knowledge holds the labels of none of the messages"
                    f" {view.observer!r} saw; use labels = 'inferred'"
                )
            aims = labelled
        image, tries = PASSES * forward_operations(view.module, view.input_shape), self.iterations * self.restarts
        return [
            Part(
                f"{aim.manner}:{aim.target.key}",
                tries * (CALL + aim.target.count * image) + self._simulation(aim.target, image),
                aim,
            )
            for aim in aims
        ]

    def _simulation(self, target: Target, image: int) -> int:
        """Operations."""
        if not (self.simulated and target.recipe is not None and can_simulate(target)):
            return 0
        sizes = target.recipe.sizes
        return self.simulated * (len(sizes) * (CALL + PASSES * len(target.gradient)) + sum(sizes) * image)

    def groups(self, parts: Sequence[Part], view: View) -> list[list[Part]]:
        """Parts at equal weights and of equal count go together; see `batches`."""
        groups = {
            tuple(members)
            for members, _ in batches(
                [part.content.target for part in parts],
                self.restarts,
                _numbers_per_image(view.module, view.input_shape),
            )
        }
        return [[parts[i] for i in members] for members in sorted(groups)]

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> Reconstruction:
        """The reconstruction of one part.

        Args:
            part: of `parts`. view, knowledge, seed, progress: as for `Attack.run_part`; no knowledge is read here.

        Raises:
            ValueError: labels = "inferred", and no classifier is found that tells them.
        """
        return self.run_group([part], [view], [knowledge], seed, progress)[0]

    def run_group(
        self,
        parts: Sequence[Part],
        views: Sequence[View],
        knowledge: Sequence[Knowledge],
        seed: int,
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """The reconstructions of one group, in order.

        Args:
            parts: one list of `groups`. views, knowledge: of each. seed, progress: as for `run_part`.

        Raises:
            ValueError: as `run_part` does.
        """
        del knowledge
        aims: list[Aim] = [part.content for part in parts]
        first = views[0]
        solutions = solve(first.module, [aim.target for aim in aims], first.input_shape, self, seed, progress)
        return [
            Reconstruction(
                attack=self.name,
                observer=view.observer,
                manner=aim.manner,
                round=aim.messages[0].round,
                sender=aim.messages[0].sender,
                message_ids=tuple(m.id for m in aim.messages),
                images=solution.images,
                start=solution.start,
                labels=solution.labels,
                loss=solution.loss,
                assumed=self._assumed(aim, view.facts, solution.labels_by),
            )
            for aim, view, solution in zip(aims, views, solutions)
        ]

    def _assumed(self, aim: Aim, facts: PublicFacts, labels_by: str) -> tuple[str, ...]:
        recipe = aim.target.recipe
        assumed = ["the number of images", *assumptions(facts, 0 if recipe is None else len(recipe.sizes))]
        assumed.append(f"labels inferred: {labels_by}" if labels_by else "labels known")
        if self.objective == "euclidean" and not aim.target.scale_known:
            assumed.append(
                "scale of the gradient unknown, profiled out" + (" tensor by tensor" if aim.target.per_layer else "")
            )
        if self.objective == "euclidean" and aim.target.clip_norm is not None:
            assumed.append("clip norm known and modelled")
        if self.along and aim.target.update is not None:
            assumed.append(f"the gradient read at {self.along:g} of the way that training moved the weights")
        if self.simulated:
            assumed.append(
                "local training simulated, batches in an order of the attack's own"
                if can_simulate(aim.target)
                else "local training not simulated: not several steps of whole epochs"
            )
        if self.tv == "noise-aware" and aim.target.noise_std > 0:
            assumed.append("standard deviation of the noise known")
        if aim.own_model:
            assumed.append("the sender's model equals the observer's own of that round")
        if aim.manner == "all-rounds":
            assumed.append("all messages of one sender read as gradients at the first model seen")
        return tuple(assumed)


@dataclass(frozen=True, eq=False)
class Solution:
    """The best images of one target.

    images, start: (n, *input_shape) in [0, 1]. labels: (n,), of each image in the objective. loss: the objective, prior
    included, at `images`; infinite if it was never finite. labels_by: how they were inferred, in words, "" for
    known ones.
    """

    images: Tensor
    start: Tensor
    labels: Tensor
    loss: float
    labels_by: str = ""


def solve(
    module: nn.Module,
    targets: Sequence[Target],
    input_shape: tuple[int, ...],
    settings: Inversion,
    seed: int,
    progress: Progress | None = None,
) -> list[Solution]:
    """A solution for every target, in order.

    Targets at equal weights and of equal count form one batch, with all restarts. Calls
    `torch.set_flush_denormal(True)`: near convergence output errors become denormal numbers, which alone slow the loop
    manyfold.

    Args:
        module: the network of all targets, left as it is.
        targets: they may come from several views (noise cells, clip cells).
        input_shape: (channels, height, width) of an image.
        settings: `manners` has no effect here. seed: of the starts. progress: called as `progress(done, total)`.

    Raises:
        ValueError: inputs are no images, a target does not fit the network, or labels cannot be inferred.
    """
    if len(input_shape) != 3:
        raise ValueError(
            "gradient inversion reconstructs images (channels, height, width); the setup's inputs have shape"
            f" {tuple(input_shape)}"
        )
    torch.set_flush_denormal(True)
    network = copy.deepcopy(module).eval().to(settings.device)
    layout = Layout.of(network)
    for target in targets:
        if len(target.gradient) != layout.dim:
            raise ValueError(
                f"target {target.key!r} has {len(target.gradient)} numbers, the network has {layout.dim} parameters"
            )
    inferred = [_labels(network, layout, target, input_shape, settings) for target in targets]
    labels = [found.labels for found in inferred]
    readings: dict[int, _Reading] = {}
    if settings.exact:
        found = [_read(network, layout, t, of, input_shape, settings, seed) for t, of in zip(targets, labels)]
        readings = {i: reading for i, reading in enumerate(found) if reading is not None}
    solutions = {i: r.solution for i, r in readings.items() if r.solution is not None and r.certain}
    left = [i for i in range(len(targets)) if i not in solutions]
    jobs = [
        ([left[k] for k in members], restarts)
        for members, restarts in batches(
            [_ready(targets[i], settings) for i in left], settings.restarts, _numbers_per_image(network, input_shape)
        )
    ]
    total = settings.iterations * sum(len(b) * len(r) if settings.optimiser == "lbfgs" else 1 for b, r in jobs)
    total += settings.simulated * sum(can_simulate(targets[i]) for i in left)
    total, done = max(1, total), 0  # at least 1: nothing may be left

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None and done < total:
            progress(done, total)

    guesses: dict[int, Solution] = {}
    for members, restarts in jobs:
        batch = [_ready(targets[i], settings) for i in members]
        starts = torch.stack([start_images(seed, t.key, r, t.count, input_shape) for t in batch for r in restarts])
        images, losses = _solve_batch(
            network.to(batch[0].weights.dtype),
            layout,
            batch,
            torch.stack([labels[i] for i in members]).to(settings.device),
            starts.to(batch[0].weights),
            settings,
            tick,
        )
        best = losses.view(len(batch), -1).argmin(1)
        for k, i in enumerate(members):
            chosen = k * len(restarts) + int(best[k])
            solution = Solution(images[chosen].float().cpu(), starts[chosen], labels[i], losses[chosen].item())
            if i not in guesses or solution.loss < guesses[i].loss:
                guesses[i] = solution
    for i, guess in guesses.items():
        reading = readings.get(i)
        kept = guess if reading is None else _exact(network, layout, targets[i], guess, reading, settings, seed)
        if settings.simulated and can_simulate(targets[i]):
            kept = _simulate(network, layout, targets[i], kept, settings, seed, tick)
        solutions[i] = kept
    if progress is not None:
        progress(total, total)
    return [replace(solutions[i], labels_by=inferred[i].said) for i in range(len(targets))]


@dataclass(frozen=True, eq=False)
class _Reading:
    """What the first layer tells of a target before anything is guessed.

    columns: found so far. solution: of them alone, None where they are not all found. certain: the message itself, at
    its known noise, says that the solution is right.
    """

    layer: FirstLayer
    columns: Columns
    solution: Solution | None
    certain: bool


def _read(
    network: nn.Module,
    layout: Layout,
    target: Target,
    labels: Tensor,
    shape: tuple[int, ...],
    settings: Inversion,
    seed: int,
) -> _Reading | None:
    layer = FirstLayer.of(copy.deepcopy(network).float().cpu(), target)
    if layer is None:
        return None
    columns = layer.blind_columns(seed)
    images = layer.without_guess(columns, labels, shape)
    if images is None:
        return _Reading(layer, columns, None, False)
    loss = _loss(network, layout, target, labels, images, settings)
    solution = Solution(images, start_images(seed, target.key, 0, target.count, shape), labels, loss)
    certain = not layer.one_step or _explained(network, layout, target, labels, images, settings)
    return _Reading(layer, columns, solution, certain)


def _exact(
    network: nn.Module,
    layout: Layout,
    target: Target,
    guess: Solution,
    reading: _Reading,
    settings: Inversion,
    seed: int,
) -> Solution:
    """The guess with what the first layer makes exact, and its own objective there; itself where that is nothing."""
    best = guess
    if reading.solution is not None and reading.solution.loss < best.loss:
        best = reading.solution
    images = reading.layer.with_guess(reading.columns, best.labels, best.images, seed)
    if images is None:
        return best
    loss = _loss(network, layout, target, best.labels, images, settings)
    if reading.layer.one_step and loss > best.loss:  # the objective is what was sent, and decides
        return best
    return replace(best, images=images, loss=loss)


def can_simulate(target: Target) -> bool:
    """Whether a target is of several steps of whole epochs."""
    recipe = target.recipe
    return recipe is not None and bool(recipe.epochs) and len(recipe.sizes) > 1


def _simulate(
    network: nn.Module,
    layout: Layout,
    target: Target,
    guess: Solution,
    settings: Inversion,
    seed: int,
    tick: Callable[[], None],
) -> Solution:
    """What the simulation of its training makes of the guess, or the guess: whose update, simulated once more in
    another order, is nearer to the one sent, prior included. Its loss is that one's.
    """
    recipe, device = target.recipe, settings.device
    assert recipe is not None and recipe.epochs
    target = replace(
        target,
        weights=target.weights.to(device),
        gradient=(target.gradient if recipe.linear or target.update is None else -target.update).to(device),
    )
    matching = Matching.of(settings.objective, [target])
    tv = target.weights.new_tensor([_tv(target, settings)])
    span = InputSpan.of(network, layout, target) if settings.span else None

    def loss(labels: Tensor, order: Tensor, invariance: float) -> Objective:
        made = Simulated(network, layout, target, labels[order].to(device), matching, invariance)
        return with_span(with_prior(made, tv), [span], settings.span)

    own = orders(seed, target.key, recipe.epochs, target.count)
    started = guess.images[own].to(target.weights)
    objective = loss(guess.labels, own, INVARIANCE)
    found, _ = adam(
        objective, started.flatten(0, 1)[None], settings.simulated, settings.lr / 10, settings.optimiser != "adam", tick
    )
    images, labels = averaged_epochs(found[0].view_as(started), guess.labels[own])
    other = orders(seed, f"{target.key} judged", recipe.epochs, target.count)
    judged = []
    for x, y in ((guess.images, guess.labels), (images.cpu(), labels)):
        value, _ = loss(y, other, 0.0)(x[other].flatten(0, 1)[None].to(target.weights))
        judged.append(value.item())
    if judged[1] < judged[0]:
        return replace(guess, images=images.float().cpu(), labels=labels, loss=judged[1])
    return replace(guess, loss=judged[0])


def _tv(target: Target, settings: Inversion) -> float:
    return tv_for_noise(target.noise_share) if settings.tv == "noise-aware" else settings.tv


def _loss(
    network: nn.Module, layout: Layout, target: Target, labels: Tensor, images: Tensor, settings: Inversion
) -> float:
    """The objective, prior included, at images (n, *shape)."""
    ready = _ready(target, settings)
    where = ready.weights
    tv = where.new_tensor([_tv(target, settings)])
    objective = evaluator(
        network.to(where.dtype), layout, [ready], labels[None].to(settings.device), 1, settings.objective
    )
    spans = [InputSpan.of(network, layout, ready)] if settings.span else []
    return with_span(with_prior(objective, tv), spans, settings.span)(images[None].to(where))[0].item()


def _explained(
    network: nn.Module, layout: Layout, target: Target, labels: Tensor, images: Tensor, settings: Inversion
) -> bool:
    """Whether the images' gradient, at the scale that suits it best (a clip leaves no other), leaves no more of the
    message than the known noise, which must be the smaller part of it to tell.
    """
    ready = replace(_ready(target, settings), scale_known=False, clip_norm=None)
    where, noise = ready.weights, target.noise_share
    labels = labels[None].to(settings.device)
    objective = evaluator(network.to(where.dtype), layout, [ready], labels, 1, "euclidean")
    rest = objective(images[None].to(where))[0].item()
    chance = 5 * noise * (2 / len(target.gradient)) ** 0.5
    return noise < 0.5 and rest < noise + chance + UNEXPLAINED * (1 - noise)


def _labels(
    network: nn.Module, layout: Layout, target: Target, shape: tuple[int, ...], settings: Inversion
) -> Inferred:
    if settings.labels == "inferred":
        return infer(network, layout, target, shape)
    if target.labels is None:
        raise ValueError(f"the labels of {target.key!r} are not known to the attacker; use labels = 'inferred'")
    return Inferred(target.labels, "", "")


def _ready(target: Target, settings: Inversion) -> Target:
    """The target on the device at the weights it is read at, in float64 where a line search needs its precision."""
    dtype = torch.float64 if settings.optimiser == "lbfgs" else target.gradient.dtype
    weights = target.weights
    if settings.along and target.update is not None:
        weights = weights + settings.along * target.update
    return replace(
        target, weights=weights.to(settings.device, dtype), gradient=target.gradient.to(settings.device, dtype)
    )


def start_images(seed: int, key: str, restart: int, count: int, input_shape: tuple[int, ...]) -> Tensor:
    """A random start (count, *input_shape): pixels normal around .5 with standard deviation .25, cut off to [0, 1].

    It depends on nothing but its arguments, so a target's solution does not depend on what is solved beside it.

    Args:
        seed: of the attack. key: names the target. restart: the number of the restart, from 0.
        count: number of images n. input_shape: (channels, height, width).
    """
    noise = torch.randn(count, *input_shape, generator=generator(seed, "inversion start", key, restart))
    return (0.5 + 0.25 * noise).clamp_(0, 1)


def _numbers_per_image(module: nn.Module, input_shape: Sequence[int]) -> int:
    """About how many numbers a candidate's image takes: itself, its activations, what the optimiser keeps of both."""
    return 8 * (prod(input_shape) + sum(shape[0] for shape in Layout.of(module).shapes))


def batches(targets: Sequence[Target], restarts: int, numbers_per_image: int) -> list[tuple[list[int], range]]:
    """Which targets (positions) and restarts form a batch: equal weights, count, clip order, and clip and scale kind.

    A batch holds at most `CHUNK_NUMBERS` numbers (but at least one candidate): `numbers_per_image` for every image of
    every candidate, and every target's gradient. The rule sees shapes only, so the same targets always form the
    same batches.
    """
    models: list[Tensor] = []
    groups: dict[tuple, list[int]] = {}
    for i, target in enumerate(targets):
        model = next(
            (k for k, w in enumerate(models) if w is target.weights or torch.equal(w, target.weights)), len(models)
        )
        if model == len(models):
            models.append(target.weights)
        kind = (model, target.count, target.clip_order, target.per_layer, target.scale_known)
        groups.setdefault(kind, []).append(i)
    result = []
    for members in groups.values():
        per_candidate = targets[members[0]].count * numbers_per_image
        per_target = restarts * per_candidate + len(targets[members[0]].gradient)
        many = max(1, CHUNK_NUMBERS // per_target)
        few = min(restarts, max(1, CHUNK_NUMBERS // per_candidate))
        for first in range(0, len(members), many):
            for restart in range(0, restarts, few):
                result.append((members[first : first + many], range(restart, min(restart + few, restarts))))
    return result


def _solve_batch(
    network: nn.Module,
    layout: Layout,
    targets: Sequence[Target],
    labels: Tensor,
    starts: Tensor,
    settings: Inversion,
    tick: Callable[[], None],
) -> tuple[Tensor, Tensor]:
    """Candidates in targets' order, all restarts of one together: best images (T, n, *shape) and their losses (T,)."""
    repeat = len(starts) // len(targets)
    tv = starts.new_tensor([_tv(t, settings) for t in targets])
    spans = [InputSpan.of(network, layout, t) if settings.span else None for t in targets]
    if settings.optimiser != "lbfgs":
        objective = evaluator(network, layout, targets, labels, repeat, settings.objective, starts.shape[2:])
        total = with_prior(objective, tv.repeat_interleave(repeat))
        total = with_span(total, [span for span in spans for _ in range(repeat)], settings.span)
        return adam(total, starts, settings.iterations, settings.lr, settings.optimiser == "signed-adam", tick)
    images, losses = [], []
    for k, target in enumerate(targets):
        objective = evaluator(network, layout, [target], labels[k : k + 1], 1, settings.objective)
        total = with_span(with_prior(objective, tv[k : k + 1]), [spans[k]], settings.span)
        best, lowest = lbfgs(total, starts[k * repeat : (k + 1) * repeat], settings.iterations, tick)
        images.append(best)
        losses.append(lowest)
    return torch.cat(images), torch.cat(losses)


def evaluator(
    network: nn.Module,
    layout: Layout,
    targets: Sequence[Target],
    labels: Tensor,
    repeat: int,
    objective: Name,
    shape: Sequence[int] = (),
) -> Ghost | Unfolded | DoubleBackward:
    """`Ghost` where the network is a chain of linear layers and no L1 clip is modelled; `Unfolded` for several small
    candidates of a convolutional network; else `DoubleBackward`.

    Args:
        network: in evaluation mode. layout: of its parameters. targets: T, of equal count n.
        labels: (T, n) int64. repeat: candidates for each target. objective: what they are compared by.
        shape: of an image; () for one candidate at a time.
    """
    matching = Matching.of(objective, targets, repeat)
    chain = open_chain(network)
    if chain is None or matching.needs_absolute or matching.name == "absolute":
        if matching.name != "absolute" and shape and len(targets) * repeat > 1 and supports(network):
            together = Unfolded(network, layout, targets, labels, repeat, matching)
            if together.pays(shape, len(targets) * repeat):
                return together
        return DoubleBackward(network, layout, targets, labels, repeat, matching)
    return Ghost(chain, layout, targets, labels, repeat, matching)
