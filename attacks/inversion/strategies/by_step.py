"""Images behind several steps of Adam or RMSprop, batch by batch, where a linear layer and a ReLU come first.

`step_factors.py` tells each step's gradient of the first layer, and by that the layer before each step. So every batch
is like one gradient: its errors are 0 where an image leaves a neuron off, and are found by that (`blind.py`), with a
tolerance, because the factors are not exact. Where they are not sharp, all images share one scale, which the box gives.
Then the first batch's labels are those whose errors have the signs that were found, its whole gradient can be computed,
the optimiser takes its step, and the second batch meets weights that are known.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ....defenses.chain import Chain, open_chain
from ....defenses.layout import Layout
from ....defenses.randomness import generator
from ..exact.blind import NEURONS, blind_columns
from ..exact.copies import errors_of
from ..exact.row_space import row_space
from ..exact.unmix import solved
from ..match.case import Case
from ..match.optimise import Tick
from ..match.solution import Solution, start_images
from ..read.local_steps import LocalSteps
from ..read.local_training import RECORDS, undone
from ..read.one_step import DOUBTS, one_step_factors, operations_at_once
from ..read.step_factors import PRECISE, WRONG, StepFactors, operations, step_factors, ticks
from ..read.target import Target
from .simulated import orders, update_distance
from .spectrum import Spectrum
from .strategy import UNCOUNTED, Found, Strategy, StrategyWork, counted

TOLERANCES = (0.03, 0.05, 0.07, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3)  # of a gradient's entries, for an error that is 0
FINE = (1e-5, 1e-4, 1e-3)  # of sharp factors, tried first
TOLD, SEARCHES, ENOUGH = (1.0, 0.5, 2.0), 2, 3  # times what gradients are off by; searches with each; that find all
MOST = 0.5  # of the images, whose errors a first search at the known tolerance finds, for another
REFITS = 8  # of errors and images in turns
AGREE, ALIKE = 0.8, 0.9  # of neurons, off where the error began as 0; of two errors, their cosine: one image twice
OUTSIDE = 0.01  # of the median image's pixels are not in [0, 1] by more than rounding
ROUNDS, GAIN = 2, 0.9  # of annealing, at most; of the distance, what is worth another
CLEAR = 0.03  # noise over lr, at most
ARITHMETIC = 1e-7  # of lr, what a step of float32 adds to rounding
MANY_AT_ONCE = 50  # images of one step: the fit's time grows with their square, 100 took more than 4 minutes of CPU
UNEXPLAINED = 1e-4  # of the update sent, by the cosine, where images of one step are sure
RECENT = 16  # targets


@dataclass(eq=False)
class _Rounds:
    """Images and labels of the rounds that were made; whom to tell of progress; the rounds to come."""

    made: list[tuple[Tensor, Tensor]]
    tick: Callable[[], None]
    more: Iterator[tuple[Tensor, Tensor]] = iter(())


_RECENT: dict[bytes, _Rounds] = {}


class OneAdaptiveStep(Strategy):
    """One step of Adam or RMSprop read by its rank, before anything is guessed."""

    name = "one adaptive step"
    phase = "read"

    def applies(self, case: Case) -> str:
        if not case.settings.exact:
            return "exact = false"
        if not one_step(case.target):
            return "what was sent is not known to be of one step"
        return unreadable(case.network, case.target)

    def needless(self, case: Case, found: Found) -> str:
        return ""  # what the first layer is sure of may come nearer yet

    def cost(self, case: Case) -> int:
        neurons, inputs = case.layout.shapes[0]
        return operations_at_once(neurons, inputs + 1, case.target.count)

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        tick = counted(work.progress, len(DOUBTS) * len(cases))
        return [read_at_once(case, each, tick) for case, each in zip(cases, found)]


class AdaptiveSteps(Strategy):
    """Steps of Adam or RMSprop taken apart, beside the guess."""

    name = "adaptive steps"
    phase = "refine"

    def applies(self, case: Case) -> str:
        if not case.settings.exact:
            return "exact = false"
        return unreadable(case.network, case.target)

    def cost(self, case: Case) -> int:
        recipe = case.target.recipe
        if recipe is None or one_step(case.target):
            return UNCOUNTED  # made already, by `OneAdaptiveStep`
        neurons, inputs = case.layout.shapes[0]
        return operations(neurons, inputs + 1, recipe.sizes, ROUNDS)

    def solve(self, cases: Sequence[Case], found: Sequence[Found], work: StrategyWork) -> list[Found]:
        tick = counted(work.progress, ticks(ROUNDS) * len(cases))
        return [replace(each, solution=read_by_step(case, each.best, tick)) for case, each in zip(cases, found)]


def readable(module: nn.Module, target: Target) -> bool:
    """Whether steps are taken apart, see `unreadable`."""
    return not unreadable(module, target)


def unreadable(module: nn.Module, target: Target) -> str:
    """ "" of one whole message, of one epoch of Adam's or RMSprop's steps, told to its scale and with next to no noise,
    of a chain of linear layers that begins with a ReLU and has neurons enough; else what it is not. Of a single step
    noise must not hide ε, and images be no more than `MANY_AT_ONCE`; of several the optimiser must have had gradients
    alone.
    """
    chain, recipe = open_chain(module), target.recipe
    if chain is None or not chain.rectified or chain.layers[0].bias is None:
        return "the network does not begin with a linear layer, its bias and a ReLU"
    if target.update is None or target.others or target.sparse is not None:
        return "it is not one whole update that is told to its scale"
    if recipe is None or recipe.linear or recipe.epochs != 1 or sum(recipe.sizes) != target.count:
        return "it is not one epoch of Adam or RMSprop"
    several = len(recipe.sizes) > 1
    if not recipe.own_gradients or recipe.rates or RECORDS in recipe.left_out:
        return "the optimiser was given more than gradients at one rate"
    if several and (recipe.penalties or recipe.step_clip):
        return "the optimiser was given more than gradients at one rate"
    if not several and target.count > MANY_AT_ONCE:
        return f"more than {MANY_AT_ONCE} images of one step take too long"
    first = Layout.of(module).split(target.update)[chain.layers[0].weight]
    if not any(map(Tensor.any, first)):  # every ReLU is dead; the first row tells nearly always
        return "the first layer did not move"
    clear = CLEAR if several else PRECISE
    if target.noise_moved > clear * recipe.lr:
        return "noise hides it"
    return "" if len(first) >= NEURONS * sum(recipe.sizes) else "the first layer has too few neurons for so many images"


def one_step(target: Target) -> bool:
    """Whether a target is known to be of one step."""
    return target.recipe is not None and len(target.recipe.sizes) == 1


def read_by_step(case: Case, guess: Solution, tick: Tick = lambda: None) -> Solution:
    """The guess, or what the steps taken apart give: whose update, simulated, is nearer to the one sent. The guess is
    simulated in an order of the attack's own, since it tells none. The loss is that distance.

    Args:
        case: one that is `readable`. guess: of the update read as one gradient.
        tick: called about `ticks(ROUNDS)` times, fewer where a round ends the search.
    """
    target, seed = case.target, case.seed
    order = orders(seed, target.key, 1, target.count)[0]
    network = case.network.to(target.weights.dtype)
    begun = update_distance(case, guess.images[order], guess.labels[order])
    best, plain = replace(guess, loss=begun), copy.deepcopy(network).float().cpu()
    rounds = _shared(plain, target, guess.labels, guess.images.shape[1:], seed, tick)
    for images, labels in islice(rounds, ROUNDS):
        found = update_distance(case, images, labels)
        over = best.by_step and found > GAIN * best.loss
        if found < best.loss:
            best = replace(guess, images=images, labels=labels, loss=found, by_step=True)
        if over:
            break
    return best


def read_at_once(case: Case, known: Found, tick: Tick = lambda: None) -> Found:
    """What one step gives before anything is guessed, where it leaves nothing to guess: the update of its images is the
    one sent but for `UNEXPLAINED`; else what is known already.

    Args:
        case: one that is `readable`, of one step. known: with images that are sure already, if any; the better ones
            are kept. tick: called `len(DOUBTS)` times.
    """
    start = start_images(case.seed, case.target.key, 0, case.target.count, case.shape)
    begun = known.solution or Solution(start, start, case.labels, float("inf"))
    found = read_by_step(case, begun, tick)
    rest = update_distance(case.asked(objective="cosine"), found.images, found.labels)
    return replace(known, solution=found, sure=True) if rest < UNEXPLAINED else known


def _shared(
    module: nn.Module, target: Target, labels: Tensor, shape: Sequence[int], seed: int, tick: Callable[[], None]
) -> Iterator[tuple[Tensor, Tensor]]:
    """`images_by_step`, each round made once in this process: attacks with other objectives ask for the same."""
    assert target.update is not None
    asked = (module, target.weights, target.update, target.recipe, target.noise_moved, labels, tuple(shape), seed)
    key = hashlib.sha256(b"".join(_told(part) for part in asked)).digest()
    if key not in _RECENT:
        while len(_RECENT) >= RECENT:
            del _RECENT[next(iter(_RECENT))]
        _RECENT[key] = rounds = _Rounds([], tick)
        rounds.more = images_by_step(module, target, labels, shape, seed, lambda: rounds.tick())
    rounds = _RECENT[key]
    rounds.tick = tick
    for number in count():
        if number == len(rounds.made):
            try:
                rounds.made.append(next(rounds.more))
            except StopIteration:
                return
            except BaseException:  # a generator that was stopped in the middle gives nothing more: begin anew
                _RECENT.pop(key, None)
                raise
        yield rounds.made[number]


def _told(part: object) -> bytes:
    if isinstance(part, nn.Module):
        return b"".join([repr(part).encode(), *(_told(value) for value in part.state_dict().values())])
    return part.detach().cpu().numpy().tobytes() if isinstance(part, Tensor) else repr(part).encode()


def images_by_step(
    module: nn.Module,
    target: Target,
    labels: Tensor,
    shape: Sequence[int],
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images (n, *shape) in [0, 1] and their labels (n,), in the order of the client's batches, after every round.

    Nothing says yet that they are right: the update that they would have made does, see `read_by_step`.

    Args:
        module: the network. target: one that is `readable`. labels: (n,) of the images, in any order.
        shape: (channels, height, width). seed: of the search. tick: of `step_factors`.
    """
    chain = open_chain(module)
    assert chain is not None and target.recipe is not None and target.update is not None
    mean, std = chain.mean.float(), chain.std.float()
    recipe = replace(target.recipe, factor=1.0)  # the factors are those of the gradients that the optimiser was given
    moved, precision, size = first_update(module, target, labels, shape)
    if one_step(target):
        alone = undone(recipe, target.update, target.weights, target.noise_moved, scale_known=True)
        begin = _first(chain, Layout.of(module).split(alone))
        every = iter([one_step_factors(moved, recipe, begin, precision, tick)])
    else:
        every = step_factors(moved, recipe, mean, std, tuple(shape), seed, precision, size, tick)
    for factors in every:
        found = images_of(factors, module, target, labels, shape, seed)
        if found is not None:
            yield found


def first_update(
    module: nn.Module, target: Target, labels: Tensor, shape: Sequence[int]
) -> tuple[Tensor, Tensor, float]:
    """The first layer's update (o, i + 1); the standard deviation of what each of its entries is told to, every step
    rounded and the noise; and about the root mean square of the first step's gradients, that of images drawn by
    `spectrum.py` with some of the labels. Arguments as of `images_by_step`.
    """
    chain, layout, recipe = open_chain(module), Layout.of(module), target.recipe
    assert chain is not None and recipe is not None and target.update is not None
    chain = replace(chain, loss=target.minimised)
    moved, start = _first(chain, layout.split(target.update)), _first(chain, layout.split(target.weights))
    after = (start + moved).abs()
    last_place = (torch.nextafter(after, torch.full_like(after, torch.inf)) - after).double()
    precision = (len(recipe.sizes) * last_place.square() / 12 + target.noise_moved**2).sqrt() + ARITHMETIC * recipe.lr
    draw = generator(0, "like images", *shape)
    count = recipe.sizes[0]
    some = labels[torch.randperm(len(labels), generator=draw)[:count]]
    images = Spectrum(tuple(shape)).images(torch.randn(count, *shape, generator=draw)).clamp(0, 1)
    seen = ((images - chain.mean.float()) / chain.std.float()).flatten(1)
    with torch.no_grad():
        errors = chain.first_errors(layout.split(target.weights), seen, some) / count
    gradient = errors.T @ torch.cat([seen, torch.ones(count, 1)], 1)
    return moved, precision, recipe.factor * float(gradient.square().mean().sqrt())


def images_of(
    factors: StepFactors, module: nn.Module, target: Target, labels: Tensor, shape: Sequence[int], seed: int
) -> tuple[Tensor, Tensor] | None:
    """The images behind a target's factors; the result is that of `images_by_step`, None where most of a step's errors
    are not found at the tolerance that its gradient is known to: wider ones find no more, and take minutes.

    Args:
        factors: of each step. module: the network. target: whose they are. labels: (n,) of the images, in any order.
        shape: (channels, height, width). seed: of the search.
    """
    chain, layout, recipe = open_chain(module), Layout.of(module), target.recipe
    assert chain is not None and recipe is not None
    chain = replace(chain, loss=target.minimised)
    start = _first(chain, layout.split(target.weights))
    mean, std = chain.mean.float(), chain.std.float()
    good = (factors.rest <= WRONG * factors.rest.median()).nonzero()[:, 0]
    gradients, planes = [g[good] for g in factors.gradients()], [p[good] for p in factors.planes(start)]
    unsure = None if factors.unsure is None else factors.unsure[good]
    parted = list[tuple[Tensor, Tensor]]()
    for gradient, plane, n in zip(gradients, planes, recipe.sizes):
        exact, share = _parted_exactly(gradient, plane, n, seed, unsure) if factors.sharp else (None, 1.0)
        if exact is None and share < MOST:
            return None
        parted.append(exact or _parted(gradient, plane, n, seed))
    scale = 1.0 if factors.sharp else _scale(torch.cat([inputs for _, inputs in parted]), mean, std, shape)
    walk, left = LocalSteps(recipe, target.weights), labels
    images, found = list[Tensor](), list[Tensor]()
    for errors, inputs in parted:
        seen = (scale * inputs.view(-1, *shape) * std + mean).clamp(0, 1)
        named = {name: w.detach().requires_grad_() for name, w in layout.split(walk.weights).items()}
        own = _labelled(chain, named, ((seen - mean) / std).flatten(1), errors, good, left)
        images.append(seen)
        found.append(left[own])
        with torch.enable_grad():
            loss = target.minimised.mean(functional_call(module, named, (seen,)), left[own])
            gradient = layout.join(dict(zip(named, torch.autograd.grad(loss, list(named.values())))))
        walk.forward(gradient)
        rest = torch.ones(len(left), dtype=torch.bool)
        rest[own] = False
        left = left[rest]
    return torch.cat(images), torch.cat(found)


def _first(chain: Chain, values: Mapping[str, Tensor]) -> Tensor:
    """(o, i + 1), [W | b] of the first layer."""
    layer = chain.layers[0]
    return torch.cat([values[layer.weight], values[layer.bias or ""][:, None]], 1)


def _of_one_size(gradient: Tensor) -> Tensor:
    """Rows scaled to a mean square of 1, float64."""
    return gradient.double() / gradient.double().square().mean(1, keepdim=True).sqrt().clamp_min(1e-300)


def _parted_exactly(
    gradient: Tensor, plane: Tensor, count: int, seed: int, unsure: Tensor | None
) -> tuple[tuple[Tensor, Tensor] | None, float]:
    """As `_parted`, of a gradient known with its scales: by columns that leave no choice, each image leaving off the
    neurons where its column is 0; None where they are not all found. Of several that fit, those whose errors are
    nearest to 0 there. And the share of the columns that the first search found, 1 where no tolerance is known.

    Args:
        unsure: (o,), about how far each neuron's gradient is off, if that is known: then that is the tolerance.
    """
    plane = plane.double()
    if unsure is None:
        rows, tries, enough = _of_one_size(gradient), [(tolerance, seed) for tolerance in FINE], 1
    else:  # each neuron in units of its own doubt, which is `count` numbers' and not one's of every entry
        rows, enough = gradient.double() / unsure.double().clamp_min(1e-300)[:, None], ENOUGH
        every = (gradient.shape[1] / count) ** 0.5
        tries = [(told * every, seed + search) for search in range(SEARCHES) for told in TOLD]
    best, least, found, share = None, float("inf"), 0, 1.0
    for turn, (tolerance, own) in enumerate(tries):
        span = row_space(rows, count, tolerance)
        columns = blind_columns(span, plane @ span.right, own)
        if turn == 0 and unsure is not None:
            share = len(columns) / count
        if share < MOST:
            break
        if len(columns) < count:
            continue
        answer = solved(columns, span, lambda x: x.double() @ plane[:, :-1].T + plane[:, -1])
        if not answer.found.all():
            continue
        seen = torch.cat([answer.inputs.double(), torch.ones(count, 1)], 1)
        errors = errors_of(answer.inputs, rows)
        off = seen @ plane.T < 0
        left = float(((errors * off).square().sum(1) * seen.square().sum(1)).sum())
        if left < least:
            best, least = (errors, answer.inputs), left
        found += 1
        if found == enough:
            break
    return best, share


def _parted(gradient: Tensor, plane: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """One step's errors (n, o) and normalised images (n, i), all up to one scale, from its gradient and [W | b] before
    it, (o, i + 1) each: by the tolerance at which most images leave off just the neurons where their error is 0.
    """
    rows = _of_one_size(gradient)
    plane, most = plane.double(), -1
    best = torch.empty(0), torch.empty(0)
    for tolerance in TOLERANCES:
        span = row_space(rows, count, tolerance)
        columns = blind_columns(span, plane @ span.right, seed)
        others = torch.linalg.svd(columns.mix, full_matrices=True)[2][len(columns) :]
        mix = torch.cat([columns.mix, others.to(columns.mix)])
        off = torch.cat([columns.zero, torch.zeros(len(others), len(rows), dtype=torch.bool)])
        errors, inputs, right = _refitted(rows, plane, (mix @ span.left.T) * ~off, off)
        if right > most:
            most, best = right, (errors, inputs)
        if most == count:
            break
    return best


def _refitted(rows: Tensor, plane: Tensor, errors: Tensor, off: Tensor) -> tuple[Tensor, Tensor, int]:
    """Errors and images fitted to the gradient in turns, errors 0 where the images leave neurons off; and how many
    images agree with the zeros that they began with. Neurons that fit badly count less.
    """
    began, weight, count = off, torch.ones(len(rows), dtype=rows.dtype), len(errors)
    for turn in range(REFITS):
        inputs = torch.linalg.lstsq((errors * weight).T, rows * weight[:, None], driver="gelsd").solution
        inputs = inputs / torch.where(inputs[:, -1:].abs() > 1e-12, inputs[:, -1:], 1e-12)
        if turn >= 2:
            off = inputs @ plane.T < 0
        on = (~off).to(rows).T
        squares = (inputs @ inputs.T) * on[:, :, None] * on[:, None] + torch.diag_embed(1 - on)
        squares += 1e-9 * (inputs.square().sum(1).mean() + 1e-300) * torch.eye(count, dtype=rows.dtype)
        errors = torch.linalg.solve(squares, ((rows @ inputs.T) * on)[..., None])[..., 0].T * on.T
        rest = (rows - errors.T @ inputs).square().mean(1)
        weight = (rest / rest.median().clamp_min(1e-300) + 1).rsqrt()
    likeness = F.normalize(errors, dim=1) @ F.normalize(errors, dim=1).T
    single = ~(likeness.abs().tril(-1) > ALIKE).any(1)
    agree = ((inputs @ plane.T < 0) == began).double().mean(1) > AGREE
    return errors, inputs[:, :-1].float(), int((single & agree).sum())


def _scale(inputs: Tensor, mean: Tensor, std: Tensor, shape: Sequence[int]) -> float:
    """The largest with which the median image has its pixels in [0, 1]."""
    largest = 0.0
    for scale in torch.logspace(-3, 2, 500).tolist():
        images = scale * inputs.view(-1, *shape) * std + mean
        if ((images < 0) | (images > 1)).flatten(1).float().mean(1).median() < OUTSIDE:
            largest = scale
    return largest


def _labelled(
    chain: Chain, weights: dict[str, Tensor], inputs: Tensor, errors: Tensor, neurons: Tensor, labels: Tensor
) -> Tensor:
    """Which of the labels (m,) the images (n, i) have, (n,) different places, by the signs of their errors (n, o)."""
    fit = torch.empty(len(inputs), len(labels))
    for label in labels.unique():
        with torch.no_grad():
            expected = chain.first_errors(weights, inputs, label.expand(len(inputs)))[:, neurons]
        fit[:, labels == label] = (expected.sign() * errors.sign()).float().mean(1, keepdim=True)
    return torch.as_tensor(linear_sum_assignment(fit.numpy(), maximize=True)[1])
