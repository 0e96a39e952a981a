"""Targets of one network solved together: labels, what the first layer tells, the search, simulated training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...defenses.chain import open_chain
from ...defenses.data.unit_scale import words_of
from ...defenses.layout import Layout
from ...defenses.progress import part_of
from ..base import Progress
from .engines.kernels import exact_kernels
from .exact.exact import Reading, made_exact, read_first_layer
from .labels.infer import Inferred, infer_together
from .match.batches import batches, numbers_per_image
from .match.consensus import with_consensus
from .match.evaluate import evaluator, loss_at, placed, tv_weight
from .match.features import SolvedFeatures, with_features
from .match.halving import halved
from .match.joint import weighed
from .match.optimise import Objective, adam, lbfgs, with_prior
from .match.polish import STAGES, carried_on, is_smooth
from .match.softened import Softly, annealed, softens, softly_matched
from .match.solution import Solution, start_images
from .match.span import InputSpan, with_span
from .match.told_statistics import told_moments, with_statistics
from .read.length import cut_short, lengthened
from .read.mode import as_run
from .read.statistics import as_broadcast
from .read.step_factors import ticks
from .read.surrogate import Surrogate
from .read.target import Target
from .settings import Settings
from .strategies.by_step import ROUNDS, one_step, read_at_once, read_by_step, readable, reads_at_once
from .strategies.learned_prior import noise_alone, solve_with_prior
from .strategies.row_fit import OwnRows, nearer, with_fit
from .strategies.row_search import with_rows
from .strategies.simulated import can_simulate
from .strategies.simulating import nearest_update, simulate, tried
from .strategies.with_words import as_shares, with_words

if TYPE_CHECKING:
    from .strategies.denoiser import Denoiser


APART = 40  # iterations take about as long as one tick of the steps taken apart


@exact_kernels()
def solve(
    module: nn.Module,
    targets: Sequence[Target],
    input_shape: tuple[int, ...],
    settings: Settings,
    seed: int,
    progress: Progress | None = None,
    denoisers: Sequence[Denoiser] | None = None,
    own_rows: Sequence[OwnRows | None] | None = None,
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
        denoisers: the learned prior of each target with `settings.learned`, whose noise is then of known size; left
            where it is.

    Raises:
        ValueError: inputs are no images, a target does not fit the network, or labels cannot be inferred.
    """
    if settings.mode == "eval" and any(target.statistics for target in targets):  # each has a network of its own
        if len(targets) > 1:
            return _one_by_one(module, targets, input_shape, settings, seed, progress, denoisers, own_rows)
        module = as_broadcast(module, targets[0].statistics)
    cut = [i for i, target in enumerate(targets) if read_twice(target, settings)]
    if not cut or denoisers is not None:
        return _solve(module, targets, input_shape, settings, seed, progress, denoisers, own_rows)
    rest = [i for i in range(len(targets)) if i not in cut]
    share = len(rest) / (len(rest) + 2 * len(cut))
    found: dict[int, Solution] = {}
    if rest:
        part, rows = part_of(progress, 0.0, share), own_rows and [own_rows[i] for i in rest]
        ready = _solve(module, [targets[i] for i in rest], input_shape, settings, seed, part, None, rows)
        found.update(zip(rest, ready))
    twice = _solve_twice(module, [targets[i] for i in cut], input_shape, settings, seed, part_of(progress, share, 1.0))
    found.update(zip(cut, twice))
    if progress is not None:
        progress(1000, 1000)  # as of `part_of`; where nothing was left to simulate, not all was to be done
    return [found[i] for i in range(len(targets))]


def _one_by_one(
    module: nn.Module,
    targets: Sequence[Target],
    input_shape: tuple[int, ...],
    settings: Settings,
    seed: int,
    progress: Progress | None,
    denoisers: Sequence[Denoiser] | None,
    own_rows: Sequence[OwnRows | None] | None,
) -> list[Solution]:
    found = []
    for k, target in enumerate(targets):
        part, own = part_of(progress, k / len(targets), (k + 1) / len(targets)), denoisers and denoisers[k : k + 1]
        rows = own_rows and own_rows[k : k + 1]
        found += solve(module, [target], input_shape, settings, seed, part, own, rows)
    return found


def _counted(progress: Progress | None, total: int) -> Callable[[], None]:
    """Called once an iteration, of so many."""
    done = count(1)

    def tick() -> None:
        if progress is not None:
            progress(min(next(done), total), total)

    return tick


def read_twice(target: Target, settings: Settings) -> bool:
    """Whether a target is read before its local training and on the way through it, see `_solve_twice`."""
    return bool(settings.simulated and settings.along) and can_simulate(target) and target.on_the_way


def _solve_twice(
    module: nn.Module,
    targets: Sequence[Target],
    input_shape: tuple[int, ...],
    settings: Settings,
    seed: int,
    progress: Progress | None,
) -> list[Solution]:
    """Targets read before their local training and on the way through it, which is better where training is slow and
    worse where it is not. Training is simulated from both readings for a while, and to the end from what then makes the
    update nearer to the one sent. (By the readings' own updates, which nothing was done to yet, the worse one was kept
    of long trainings.) Where a clip hides how long the way was, training on the first reading says it (`length.py`).
    """
    plain = replace(settings, simulated=0, reorder=False)
    network = as_run(module, settings.mode).to(settings.device)
    layout = Layout.of(network)
    before = replace(plain, along=0.0, along_rate=0.0)
    found = _solve(module, targets, input_shape, before, seed, part_of(progress, 0.0, 0.4))
    left = [i for i, first in enumerate(found) if not first.determined]
    if not left:
        return found
    longer = [targets[i] for i in left]
    times: list[float | None] = [None] * len(left)
    for k, (i, target) in enumerate(zip(left, longer)):
        if cut_short(target):
            longer[k], times[k] = lengthened(
                network, layout, target, found[i].images, found[i].labels, seed, settings.device
            )
    again = _solve(module, longer, input_shape, plain, seed, part_of(progress, 0.4, 0.8))
    second = {i: replace(one, longer=more) for i, one, more in zip(left, again, times)}
    found = [second[i] if i in second and second[i].determined else first for i, first in enumerate(found)]
    both = [i for i in left if not second[i].determined]
    if not both:
        return found
    own, trial = [targets[i] for i in both], replace(settings, simulated=tried(settings.simulated))
    tick = _counted(part_of(progress, 0.8, 1.0), (2 * trial.simulated + settings.simulated) * len(own))
    begun = [replace(found[i], longer=second[i].longer) for i in both] + [second[i] for i in both]
    tries = simulate(network, layout, [*own, *own], begun, trial, seed, tick)
    kept = [
        nearest_update(network, layout, target, pair, settings, seed)
        for target, *pair in zip(own, tries, tries[len(own) :])
    ]
    ended = dict(zip(both, simulate(network, layout, own, kept, settings, seed, tick)))
    return [ended.get(i, first) for i, first in enumerate(found)]


def _solve(
    module: nn.Module,
    targets: Sequence[Target],
    input_shape: tuple[int, ...],
    settings: Settings,
    seed: int,
    progress: Progress | None = None,
    denoisers: Sequence[Denoiser] | None = None,
    own_rows: Sequence[OwnRows | None] | None = None,
) -> list[Solution]:
    """As `solve`, every target read as it is."""
    if len(input_shape) != 3:
        raise ValueError(
            "gradient inversion reconstructs images (channels, height, width); the setup's inputs have shape"
            f" {tuple(input_shape)}"
        )
    torch.set_flush_denormal(True)
    at_home = as_run(module, settings.mode)  # where the targets are
    network = as_run(module, settings.mode).to(settings.device)
    if denoisers is not None:
        denoisers = _on_device(denoisers, settings.device)
    layout = Layout.of(network)
    for target in targets:
        if len(target.gradient) != layout.dim:
            raise ValueError(
                f"target {target.key!r} has {len(target.gradient)} numbers, the network has {layout.dim} parameters"
            )
    inferred = [_labels(at_home, layout, target, input_shape, settings) for target in targets]
    labels = [found.labels for found in inferred]
    targets = [
        weighed(at_home, layout, target, own, input_shape, settings.objective) for target, own in zip(targets, labels)
    ]
    readings: dict[int, Reading] = {}
    if settings.exact:
        found = [
            read_first_layer(network, layout, t, of, input_shape, settings, seed) for t, of in zip(targets, labels)
        ]
        readings = {i: reading for i, reading in enumerate(found) if reading is not None}
    solutions = {i: r.solution for i, r in readings.items() if r.solution is not None and r.certain}
    at_once = [i for i, target in enumerate(targets) if settings.exact and reads_at_once(network, target)]
    early, progress = (part_of(progress, 0.0, 0.5), part_of(progress, 0.5, 1.0)) if at_once else (None, progress)
    for k, i in enumerate(at_once):
        ahead, before = part_of(early, k / len(at_once), (k + 1) / len(at_once)), solutions.get(i)
        sure = read_at_once(network, layout, targets[i], before, labels[i], input_shape, settings, seed, ahead)
        if sure is not None:
            solutions[i] = sure
    by_rows: dict[int, Solution] = {}
    fits: dict[int, Solution] = {}
    sought = [i for i in range(len(targets)) if i not in solutions] if settings.exact and denoisers is None else []
    if sought and words_of(network):
        early, progress = part_of(progress, 0.0, 0.8), part_of(progress, 0.8, 1.0)
        for k, i in enumerate(sought):
            one_by_one, together = (
                part_of(early, (k + start) / len(sought), (k + end) / len(sought))
                for start, end in ((0, 0.2), (0.2, 1))
            )
            rest = partial(_solve_rest, module, input_shape, replace(settings, labels="known"), seed)
            rows = with_rows(network, layout, targets[i], labels[i], input_shape, settings, seed, rest, one_by_one)
            if rows is not None:
                (solutions if rows.determined else by_rows)[i] = rows
            likes = own_rows[i] if own_rows is not None and rows is None else None
            if likes is not None:
                fit = with_fit(network, layout, targets[i], labels[i], settings, seed, likes, together)
                fits |= {} if fit is None else {i: fit}
    left = [i for i in range(len(targets)) if i not in solutions]
    guided = bool(settings.features) and denoisers is None
    features = {
        i: SolvedFeatures.of(network, layout, targets[i], labels[i], input_shape) if guided else None for i in left
    }
    smooth = guided and open_chain(network) is None and is_smooth(network)
    jobs = [
        ([left[k] for k in members], restarts)
        for members, restarts in batches(
            [placed(targets[i], settings) for i in left], settings.restarts, numbers_per_image(network, input_shape)
        )
    ]
    alone = settings.optimiser == "lbfgs" or denoisers is not None
    soft = bool(settings.softened) and not alone and softens(network, input_shape)
    steps = settings.iterations * (settings.softened if soft else 1)
    total = steps * sum(len(b) * len(r) if alone else 1 for b, r in jobs)
    total += settings.iterations * len(left) * (denoisers is not None)
    total += settings.simulated * sum(can_simulate(targets[i]) for i in left)
    total += settings.iterations * len(STAGES) * len(left) * smooth
    several = [i for i in left if settings.exact and readable(network, targets[i]) and not one_step(targets[i])]
    total += APART * ticks(ROUNDS) * len(several)
    total, done = max(1, total), 0  # at least 1: nothing may be left

    def tick(steps: int = 1) -> None:
        nonlocal done
        before, done = done, min(done + steps, total - 1)
        if progress is not None and done > before:
            progress(done, total)

    guesses: dict[int, Solution] = {}
    for members, restarts in jobs:
        batch = [placed(targets[i], settings) for i in members]
        starts = torch.stack([start_images(seed, t.key, r, t.count, input_shape) for t in batch for r in restarts])
        network, moving = network.to(batch[0].weights.dtype), None
        if denoisers is None:
            of_batch = torch.stack([labels[i] for i in members]).to(settings.device)
            known = [of and of.at(network, at) for of, at in zip((features[i] for i in members), batch)]
            if settings.along_rate and not soft and any(t.on_the_way and not t.others for t in batch):
                moving = Surrogate(network, layout, batch, of_batch, len(restarts), settings)
            images, losses = _solve_batch(
                network, layout, batch, of_batch, starts.to(batch[0].weights), known, settings, soft, tick, moving
            )
        else:
            own = [(targets[i], labels[i], denoisers[i], r) for i in members for r in restarts]
            images, losses = _solve_with_prior(network, layout, own, settings, seed, tick)
        best = losses.view(len(batch), -1).argmin(1)
        for k, i in enumerate(members):
            chosen = k * len(restarts) + int(best[k])
            solution = Solution(
                images[chosen].float().cpu(),
                starts[chosen],
                labels[i],
                losses[chosen].item(),
                place=None if moving is None or not targets[i].on_the_way else moving.place[chosen].item(),
            )
            if i not in guesses or solution.loss < guesses[i].loss:
                guesses[i] = solution
    if denoisers is not None:
        guesses = {
            i: _beside_noise(network, layout, targets[i], guess, denoisers[i], settings, seed, tick)
            for i, guess in guesses.items()
        }
    for i, guess in guesses.items():
        reading = readings.get(i)
        kept = guess if reading is None else made_exact(network, layout, targets[i], guess, reading, settings, seed)
        of = features[i]
        if of is not None:
            kept = replace(kept, features_by=of.said)
        if smooth:
            kept = carried_on(network, layout, targets[i], kept, of, settings, tick)
        if settings.exact and readable(network, targets[i]):
            kept = read_by_step(network, layout, targets[i], kept, settings, seed, lambda: tick(APART))
        solutions[i] = kept
    for i, fit in fits.items():
        solutions[i] = nearer(network, layout, targets[i], solutions[i], fit, settings)
    for i, rows in by_rows.items():
        if rows.loss < solutions[i].loss:
            solutions[i] = rows
    onward = [i for i in guesses if _goes_on(targets[i], solutions[i], settings)]
    if onward:
        begun = [solutions[i] for i in onward]
        ended = simulate(network, layout, [targets[i] for i in onward], begun, settings, seed, tick)
        solutions.update(zip(onward, ended))
    if progress is not None:
        progress(total, total)
    return [replace(solutions[i], labels_by=inferred[i].said) for i in range(len(targets))]


def _solve_rest(
    module: nn.Module, input_shape: tuple[int, ...], settings: Settings, seed: int, target: Target
) -> Solution:
    return _solve(module, [target], input_shape, settings, seed)[0]


def _goes_on(target: Target, found: Solution, settings: Settings) -> bool:
    """Whether local training is simulated from there."""
    return bool(settings.simulated) and can_simulate(target) and not (found.by_step or found.determined)


def _solve_batch(
    network: nn.Module,
    layout: Layout,
    targets: Sequence[Target],
    labels: Tensor,
    starts: Tensor,
    features: Sequence[SolvedFeatures | None],
    settings: Settings,
    soft: bool,
    tick: Callable[[], None],
    moving: Surrogate | None = None,
) -> tuple[Tensor, Tensor]:
    """Candidates in targets' order, all restarts of one together: best images (T, n, *shape) and their losses (T,).
    moving: the objective at places that are learned.
    """
    repeat = len(starts) // len(targets)
    tv = starts.new_tensor([tv_weight(t, settings) for t in targets])
    spans = [InputSpan.of(network, layout, t) if settings.span else None for t in targets]
    told, words = [told_moments(network, layout, t, settings) for t in targets], words_of(network)
    if settings.optimiser != "lbfgs":

        def asked(found: Objective, weight: Tensor, restarts: int) -> Objective:
            total = with_prior(found, weight)
            total = with_span(total, [span for span in spans for _ in range(restarts)], settings.span)
            total = with_features(total, [own for own in features for _ in range(restarts)], settings.features)
            total = with_statistics(total, [own for own in told for _ in range(restarts)])
            return with_words(with_consensus(total, labels, restarts, settings.consensus), words)

        def together(restarts: int) -> Objective:
            found = moving or evaluator(
                network, layout, targets, labels, restarts, settings.objective, starts.shape[2:]
            )
            return asked(found, tv.repeat_interleave(restarts), restarts)

        def softly(mode: Softly, weight: Tensor) -> Objective:
            found = softly_matched(network, layout, targets, labels, repeat, settings.objective, mode)
            return asked(found, weight, repeat)

        signed = settings.optimiser == "signed-adam"
        if soft:
            steps = settings.softened * settings.iterations
            found = annealed(softly, starts, tv.repeat_interleave(repeat), steps, settings.lr, signed, tick)
            return as_shares(found, words), together(repeat)(found)[0].nan_to_num(float("inf"), float("inf"))
        if settings.halving:
            found, least = halved(together, starts, len(targets), settings.iterations, settings.lr, signed, tick)
        else:
            found, least = adam(together(repeat), starts, settings.iterations, settings.lr, signed, tick)
        return as_shares(found, words), least
    images, losses = [], []
    for k, target in enumerate(targets):
        objective = evaluator(network, layout, [target], labels[k : k + 1], 1, settings.objective, starts.shape[2:])
        total = with_span(with_prior(objective, tv[k : k + 1]), [spans[k]], settings.span)
        total = with_features(total, [features[k]], settings.features)
        total = with_words(with_statistics(total, [told[k]]), words)
        best, lowest = lbfgs(total, starts[k * repeat : (k + 1) * repeat], settings.iterations, tick)
        images.append(as_shares(best, words))
        losses.append(lowest)
    return torch.cat(images), torch.cat(losses)


def _on_device(denoisers: Sequence[Denoiser], device: str) -> list[Denoiser]:
    """Copies there, as others share what is given: one of each, however many targets have it."""
    copies = {id(one): copy.deepcopy(one).to(device) for one in denoisers}
    return [copies[id(one)] for one in denoisers]


def _solve_with_prior(
    network: nn.Module,
    layout: Layout,
    candidates: Sequence[tuple[Target, Tensor, Denoiser, int]],
    settings: Settings,
    seed: int,
    tick: Callable[[], None],
) -> tuple[Tensor, Tensor]:
    """As `_solve_batch`, of targets with their labels, priors and the number of the restart, one after the other."""
    images, losses = [], []
    for target, labels, denoiser, restart in candidates:
        found = solve_with_prior(network, layout, target, labels, denoiser, settings, seed, restart, tick)
        images.append(found)
        losses.append(found.new_tensor(loss_at(network, layout, target, labels, found, settings)))
    return torch.stack(images), torch.stack(losses)


def _beside_noise(
    network: nn.Module,
    layout: Layout,
    target: Target,
    found: Solution,
    denoiser: Denoiser,
    settings: Settings,
    seed: int,
    tick: Callable[[], None],
) -> Solution:
    """The solution with what the prior makes of noise alone in the place of its start."""
    nothing = noise_alone(target, seed)
    alone = solve_with_prior(network, layout, nothing, found.labels, denoiser, settings, seed, "noise alone", tick)
    return replace(found, start=alone.float().cpu())


def _labels(network: nn.Module, layout: Layout, target: Target, shape: tuple[int, ...], settings: Settings) -> Inferred:
    if settings.labels == "inferred":
        return infer_together(network, layout, target.messages, shape)
    if target.labels is None:
        raise ValueError(f"the labels of {target.key!r} are not known to the attacker; use labels = 'inferred'")
    return Inferred(target.labels, "", "")
