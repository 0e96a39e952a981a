"""What a client does to its gradients before it sends them, run forwards and, for one step, backwards.

SGD and momentum add gradients up. Adam (Kingma and Ba 2015, arXiv:1412.6980, algorithm 1) and RMSprop divide them by
their own size, so that a first step is ±lr wherever |g| ≫ ε: it tells signs. But not signs alone: torch's formulas
give lr·g/(|g| + ε), and what is lacking to lr, of the order of ε/|g|, survives in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....defenses.local import Proximal, StepClip

BETAS, EPS = (0.9, 0.999), 1e-8  # torch's, which `defenses.update.make_optimiser` takes
LINEAR = ("sgd", "momentum")
PIECE = 2**18  # components that are undone at once: what is held of them stays in a core's memory
SIGNS = 0.8  # of the energy of a gradient's signs is not the gradient's: .34 to .78 measured on our networks
PENALTIES, SCALE = "terms added to the loss", "scaled gradients"  # what a client may do besides, in words
RECORDS, TRUNCATED = "a clip of every record's gradient", "components cut one by one"
CLIPS = {"gradient": "a clip of every step's gradient", "weights": "a clip of the weights after every step"}


@dataclass(frozen=True)
class Recipe:
    """A client's local training, as everybody knows it. The optimiser's state starts at zero.

    optimiser: sgd | momentum | adam | rmsprop. lr: of every step. sizes: how many records each step takes. epochs: how
    often each record is used, None where the steps are not whole epochs.
    momentum, smoothing: the constants of momentum SGD and of RMSprop.
    factor: what the loss's gradient is multiplied by. penalties: terms added to the loss, 0 in the first step.
    step_clip: of every step, in gradient or parameter units. left_out: what the client did besides that is not
    modelled, in words. rates: factors of lr at every step, () for 1.
    """

    optimiser: str
    lr: float
    sizes: tuple[int, ...]
    epochs: int | None
    momentum: float = 0.9
    smoothing: float = 0.99
    factor: float = 1.0
    penalties: tuple[Proximal, ...] = ()
    step_clip: StepClip | None = None
    left_out: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        positive = self.lr > 0 and self.factor > 0
        if self.optimiser not in (*LINEAR, "adam", "rmsprop") or not self.sizes or not positive:
            raise ValueError(
                f"a recipe of {len(self.sizes)} steps of {self.optimiser!r} at learning rate {self.lr}, gradients times"
                f" {self.factor}: it needs a step, a positive rate and factor, and sgd, momentum, adam or rmsprop"
            )

    def rate(self, step: int) -> float:
        """The factor of lr at a step, from 0."""
        return self.rates[step] if self.rates else 1.0

    @property
    def linear(self) -> bool:
        """Whether the update is a weighted sum of the gradients."""
        return self.optimiser in LINEAR

    @property
    def own_gradients(self) -> bool:
        """Whether what a layer has moved by is, of SGD, a weighted sum of its gradients with one weight a step for all
        its tensors; not where weights themselves are scaled, components are cut, or a term of the loss is not modelled.
        """
        scaled = self.step_clip is not None and self.step_clip.what == "weights"
        others = (PENALTIES, TRUNCATED, CLIPS["weights"])
        return not (scaled or any(words in self.left_out for words in others))

    @property
    def scaled(self) -> bool:
        """Whether the weights of that sum are public: a clip of several steps hides them."""
        clipped = self.step_clip is not None and len(self.sizes) > 1
        return self.own_gradients and not clipped and not self.left_out and sum(self.shares) > 0

    @property
    def shares(self) -> tuple[float, ...]:
        """`shares_after` all steps.

        >>> Recipe("momentum", 0.1, (8, 8, 8), 1, momentum=0.5).shares
        (1.75, 1.5, 1.0)
        >>> Recipe("sgd", 0.5, (8, 8), 1, penalties=(Proximal(0.5),)).shares
        (0.75, 1.0)
        """
        return self.shares_after(len(self.sizes))

    def shares_after(self, steps: int) -> tuple[float, ...]:
        """−lr·factor times these, each step's gradient is in what `steps` steps of a linear optimiser add to the
        weights: 1, or with momentum μ at step k of K the sum 1 + μ + … + μ^(K − k), each times the rate of the step at
        which it acts. A proximal term takes lr·μ of the way so far off a step.
        """
        momentum = self.momentum if self.optimiser == "momentum" else 0.0
        pull = self.lr * sum(penalty.mu for penalty in self.penalties)
        way, speed = [0.0] * steps, [0.0] * steps
        for now in range(steps):
            speed = [momentum * v + (k == now) - pull * w for k, (v, w) in enumerate(zip(speed, way))]
            way = [w + self.rate(now) * v for w, v in zip(way, speed)]
        return tuple(way)

    @property
    def scale(self) -> float:
        """What an update is divided by, its sign turned, to be read as a gradient: of a linear optimiser lr·factor
        times the sum of its shares (the number of steps where a proximal term makes that no positive number), else 1.
        """
        if not self.linear:
            return 1.0
        total = sum(self.shares)
        return self.lr * self.factor * (total if total > 0 else len(self.sizes))


def moved(recipe: Recipe, gradients: Sequence[Tensor], softening: float | Tensor = 0.0) -> Tensor:
    """What the weights have moved by after steps with these gradients (each of any one shape), by torch's formulas.

    Args:
        recipe: the optimiser. gradients: that it was given in the steps so far, the first first.
        softening: what is added to ε (Adam, RMSprop): makes the steps smooth in the gradients.
    """
    return linearised(recipe, gradients, softening)[0]


def linearised(
    recipe: Recipe, gradients: Sequence[Tensor], softening: float | Tensor = 0.0
) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
    """`moved`, and a function: cotangent c -> the derivatives of ⟨c, moved⟩ with respect to each gradient, the others
    held fixed. Arguments as of `moved`.
    """
    walk = Walk(recipe, softening)
    total = torch.zeros_like(gradients[0])
    for gradient in gradients:
        total = total + walk.forward(gradient)

    def back(cotangent: Tensor) -> list[Tensor]:
        backward = walk.backward()
        return [backward(cotangent) for _ in gradients][::-1]

    return total, back


class Walk:
    """A client's optimiser alone, step by step, and its derivative step by step backwards; `local_steps.LocalSteps` has
    what comes before and after it.

    Args:
        recipe: the optimiser. softening: what is added to ε (Adam, RMSprop).
    """

    def __init__(self, recipe: Recipe, softening: float | Tensor = 0.0) -> None:
        self.recipe, self.softening = recipe, softening
        self.momentum = recipe.momentum if recipe.optimiser == "momentum" else 0.0
        self.first: Tensor | float = 0.0  # the running means of gradients and of their squares
        self.second: Tensor | float = 0.0
        self.kept: list[tuple[Tensor, ...]] = []

    def forward(self, gradient: Tensor) -> Tensor:
        """What the next step adds to the weights, its gradient being this."""
        recipe, lr = self.recipe, self.recipe.lr * self.recipe.rate(len(self.kept))
        if recipe.linear:
            return -lr * self._sped(gradient)
        below, scale = _decays(recipe), _scales(recipe, len(self.kept) + 1)
        self.first = below[0] * self.first + (1 - below[0]) * gradient
        self.second = below[1] * self.second + (1 - below[1]) * gradient * gradient
        root = (self.second / scale[1]).sqrt()
        size = root + (EPS + self.softening)
        ratio = self.first / size
        self.kept.append((ratio, size, root, gradient))
        return -(lr / scale[0]) * ratio

    def moved(self, weights: Tensor, gradient: Tensor) -> Tensor:
        """The weights after the next step, in one pass over memory where that does."""
        if self.recipe.linear:
            lr = self.recipe.lr * self.recipe.rate(len(self.kept))
            return torch.add(weights, self._sped(gradient), alpha=-lr)
        return weights + self.forward(gradient)

    def _sped(self, gradient: Tensor) -> Tensor:
        """A linear optimiser's running sum."""
        self.first = self.momentum * self.first + gradient if self.momentum and self.kept else gradient
        self.kept.append(())
        return self.first

    def backward(self) -> Callable[[Tensor], Tensor]:
        """A function to call once a step, the last first: the derivative with respect to what the step adds -> that
        with respect to its gradient, which later steps depend on too.
        """
        recipe, below = self.recipe, _decays(self.recipe)
        first: Tensor | float = 0.0
        second: Tensor | float = 0.0
        step = len(self.kept)

        def back(cotangent: Tensor) -> Tensor:
            nonlocal first, second, step
            lr = recipe.lr * recipe.rate(step - 1)
            if recipe.linear:
                first = self.momentum * first - lr * cotangent if self.momentum else -lr * cotangent
                step -= 1
                return first
            ratio, size, root, gradient = self.kept[step - 1]
            scale = _scales(recipe, step)
            of_mean = cotangent / size * (-lr / scale[0])
            of_square = -of_mean * ratio / (2 * scale[1] * root.clamp_min(1e-20))
            first, second = first * below[0] + of_mean, second * below[1] + of_square
            step -= 1
            return (1 - below[0]) * first + 2 * (1 - below[1]) * gradient * second

        return back


def _decays(recipe: Recipe) -> tuple[float, float]:
    return BETAS if recipe.optimiser == "adam" else (0.0, recipe.smoothing)


def _scales(recipe: Recipe, step: int) -> tuple[float, float]:
    """Adam's bias corrections of the running means at step 1, 2, …; RMSprop has none."""
    if recipe.optimiser != "adam":
        return 1.0, 1.0
    return 1 - BETAS[0] ** step, 1 - BETAS[1] ** step


def undone(recipe: Recipe, update: Tensor, weights: Tensor, noise_std: float, scale_known: bool) -> Tensor:
    """The gradient behind one step of Adam or RMSprop, as far as the message's precision shows its size.

    With v = |update|/lr a gradient of size ε·v/(1 − v) made that step (RMSprop: lr and ε over √(1 − γ)). 1 − v is known
    to `precision`: half a unit in the last place of the new weight, and the noise, over lr; three times that is the
    least that is believed, so that larger gradients all come out as the largest that could still be told from it. Under
    much noise this is −update but for a scale: the signs alone.

    Args:
        recipe: of one step. update, weights: (d,), what was added and to what. noise_std: of each component of the
            update. scale_known: False where the update was scaled by an unknown number: then its largest entry is one
            whole step, which it is to ε over the largest gradient.
    """
    whole = _whole(recipe, update, scale_known)
    if not whole > 0:
        return -update
    gradient = torch.empty_like(update)
    for piece in range(0, len(update), PIECE):
        at = slice(piece, piece + PIECE)
        part, least, epsilon = _told(recipe, update[at], weights[at], noise_std, whole)
        gradient[at] = -epsilon * part / torch.maximum(1 - part.abs(), least)
    return gradient


def noise_undone(recipe: Recipe, update: Tensor, weights: Tensor, noise_std: float, scale_known: bool) -> float:
    """About which share of the energy of the gradient `undone` is not the true one's, in [0, 1]; 0 without noise.

    The noise's own share of the update's energy; and where noise hides what ε tells, signs are left, which are as far
    from a gradient (`SIGNS`).

    Args:
        recipe, update, weights, noise_std, scale_known: as of `undone`.
    """
    whole = _whole(recipe, update, scale_known)
    if not noise_std > 0 or not whole > 0:
        return 0.0
    part, least, _ = _told(recipe, update, weights, noise_std, whole)
    lacking = 1 - part.abs()
    energy = (part / torch.maximum(lacking, least)).square()
    signs = lacking < 3 * least  # told to a tenth at best, or no better than the largest of all, whose noise is luck
    own = min(1.0, len(update) * noise_std**2 / float(update.double().square().sum()))
    return 1 - (1 - own) * (1 - SIGNS * float(energy[signs].sum() / energy.sum()))


def _told(
    recipe: Recipe, update: Tensor, weights: Tensor, noise_std: float, whole: float
) -> tuple[Tensor, Tensor, float]:
    """Of one step, or a piece of it: which part of a whole one each component is; the least that it is believed to lack
    of that; and ε in units of gradients. whole: of `_whole`; the others as of `undone`.
    """
    after = (weights + update).abs()
    last_place = torch.nextafter(after, torch.full_like(after, torch.inf)) - after
    precision = (last_place.double() / 2 + noise_std) / whole + torch.finfo(update.dtype).eps
    return update.double() / whole, 3 * precision, EPS / _shrink(recipe)


def _whole(recipe: Recipe, update: Tensor, scale_known: bool) -> float:
    """A whole step of one component; 0 where nothing moved."""
    if not update.any():
        return 0.0
    return recipe.lr / _shrink(recipe) if scale_known else float(update.abs().max())


def _shrink(recipe: Recipe) -> float:
    return 1.0 if recipe.optimiser == "adam" else (1 - recipe.smoothing) ** 0.5
