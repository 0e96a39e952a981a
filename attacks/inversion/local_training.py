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

BETAS, EPS = (0.9, 0.999), 1e-8  # torch's, which `defenses.update.make_optimiser` takes
LINEAR = ("sgd", "momentum")


@dataclass(frozen=True)
class Recipe:
    """A client's local training, as everybody knows it. The optimiser's state starts at zero.

    optimiser: sgd | momentum | adam | rmsprop. lr: of every step. sizes: how many records each step takes. epochs: how
    often each record is used, None where the steps are not whole epochs.
    momentum, smoothing: the constants of momentum SGD and of RMSprop.
    """

    optimiser: str
    lr: float
    sizes: tuple[int, ...]
    epochs: int | None
    momentum: float = 0.9
    smoothing: float = 0.99

    def __post_init__(self) -> None:
        if self.optimiser not in (*LINEAR, "adam", "rmsprop") or not self.sizes or not self.lr > 0:
            raise ValueError(
                f"a recipe of {len(self.sizes)} steps of {self.optimiser!r} at learning rate {self.lr}: it needs a"
                " step, a positive rate, and sgd, momentum, adam or rmsprop"
            )

    @property
    def linear(self) -> bool:
        """Whether the update is a weighted sum of the gradients."""
        return self.optimiser in LINEAR

    @property
    def shares(self) -> tuple[float, ...]:
        """−lr times these, each step's gradient is in the update (linear optimisers): 1, or with momentum μ at step k
        of K the sum 1 + μ + … + μ^(K − k).

        >>> Recipe("momentum", 0.1, (8, 8, 8), 1, momentum=0.5).shares
        (1.75, 1.5, 1.0)
        """
        steps = len(self.sizes)
        momentum = self.momentum if self.optimiser == "momentum" else 0.0
        return tuple(sum(momentum**j for j in range(steps - k)) for k in range(steps))


def moved(recipe: Recipe, gradients: Sequence[Tensor], softening: float | Tensor = 0.0) -> Tensor:
    """What the weights have moved by after steps with these gradients (each of any one shape), by torch's formulas.

    Args:
        recipe: the optimiser. gradients: of the steps so far, the first first.
        softening: what is added to ε (Adam, RMSprop): makes the steps smooth in the gradients.
    """
    return linearised(recipe, gradients, softening)[0]


def linearised(
    recipe: Recipe, gradients: Sequence[Tensor], softening: float | Tensor = 0.0
) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
    """`moved`, and a function: cotangent c -> the derivatives of ⟨c, moved⟩ with respect to each gradient, the others
    held fixed. Arguments as of `moved`.
    """
    if recipe.linear:
        shares = [-recipe.lr * share for share in recipe.shares[-len(gradients) :]]
        total = torch.zeros_like(gradients[0])
        for share, gradient in zip(shares, gradients):
            total.add_(gradient, alpha=share)
        return total, lambda cotangent: [share * cotangent for share in shares]
    below, kept = _decays(recipe), []
    total = mean = square = torch.zeros_like(gradients[0])
    for k, gradient in enumerate(gradients, 1):
        scale = _scales(recipe, k)
        mean = below[0] * mean + (1 - below[0]) * gradient
        square = below[1] * square + (1 - below[1]) * gradient * gradient
        root = (square / scale[1]).sqrt_()
        size = root + (EPS + softening)
        kept.append((mean / size, size, root))
        total = total - (recipe.lr / scale[0]) * kept[-1][0]

    def back(cotangent: Tensor) -> list[Tensor]:
        first = second = torch.zeros_like(cotangent)
        derivatives: list[Tensor] = []
        for k in range(len(gradients), 0, -1):
            ratio, size, root = kept[k - 1]
            scale = _scales(recipe, k)
            of_mean = cotangent / size * (-recipe.lr / scale[0])
            of_square = -of_mean * ratio / (2 * scale[1] * root.clamp_min(1e-20))
            first, second = first * below[0] + of_mean, second * below[1] + of_square
            derivatives.insert(0, (1 - below[0]) * first + 2 * (1 - below[1]) * gradients[k - 1] * second)
        return derivatives

    return total, back


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
    shrink = 1.0 if recipe.optimiser == "adam" else (1 - recipe.smoothing) ** 0.5
    whole = recipe.lr / shrink
    if not scale_known:
        whole = float(update.abs().max())
    if not whole > 0:
        return -update
    after = (weights + update).abs()
    last_place = torch.nextafter(after, torch.full_like(after, torch.inf)) - after
    precision = (last_place.double() / 2 + noise_std) / whole + torch.finfo(update.dtype).eps
    part = update.double() / whole
    lacking = torch.maximum(1 - part.abs(), 3 * precision)
    return (-EPS / shrink * part / lacking).to(update.dtype)
