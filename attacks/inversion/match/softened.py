"""Images behind residual sums and normalisations, sought where the network's kinks are soft, and ever less so.

The gradient of a ReLU network jumps wherever an image moves a ReLU's input over zero, and its slope with respect to the
image says nothing of that: a search that follows it stays among wrong masks. A softplus T·log(1 + exp(z/T)) has masks
σ(z/T) with a slope, so that they move with the image. T begins at the spread of each ReLU's own inputs, at which all
is smooth, and falls to a small part of it, at which the network is nearly the client's; the total variation falls with
it. This is graduated optimisation (Blake and Zisserman 1987). What was sent stays as it is, and so does the objective
that images are judged by in the end.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ....defenses.chain import open_chain
from ....defenses.layout import Layout
from ..engines.convolved import open_stages
from ..engines.double_backward import DoubleBackward
from ..read.target import Target
from ..settings import Name
from .joint import Joint, joint
from .objective import Matching
from .optimise import BETAS, EPS, Objective
from .prior import into_box

TIMES = 6  # the attack's iterations; ours, as all below, on CIFAR-10 images and networks of the seeds 100 to 103
SOFTNESS = (1.0, 0.03)  # of the spread of a ReLU's inputs, first and last
TV = (0.2, 0.01)  # at least so much total variation, first and last
RELU = (F.relu, torch.relu, Tensor.relu)
_HAS_RELUS: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], bool]] = WeakKeyDictionary()
RELU_IN_PLACE = (torch.relu_, Tensor.relu_)


class Softly(TorchFunctionMode):
    """Every ReLU called inside is a softplus of `softness` standard deviations of its inputs; leaky ones keep their
    leak. met: how many there were.

    >>> with Softly(1e-3):
    ...     torch.relu(torch.tensor([-2.0, 0.0, 2.0])).round(decimals=2).tolist()
    [0.0, 0.0, 2.0]
    """

    def __init__(self, softness: float) -> None:
        super().__init__()
        self.softness, self.met = softness, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As torch asks of such a mode."""
        kwargs = kwargs or {}
        if func in RELU or func in RELU_IN_PLACE:
            z = args[0] if args else kwargs["input"]
            made = self._soft(z)
            return z.copy_(made) if func in RELU_IN_PLACE or kwargs.get("inplace") or args[1:] == (True,) else made
        if func is F.leaky_relu:
            z = args[0] if args else kwargs["input"]
            leak = args[1] if len(args) > 1 else kwargs.get("negative_slope", 0.01)
            made = leak * z + (1 - leak) * self._soft(z)
            return z.copy_(made) if kwargs.get("inplace") or args[2:] == (True,) else made
        return func(*args, **kwargs)

    def _soft(self, z: Tensor) -> Tensor:
        self.met += 1
        # of float64, and where z is: a GPU is not waited for
        temperature = z.detach().std(correction=0).double().mul_(self.softness).add_(1e-12)
        return F.softplus(z / temperature) * temperature


def softens(network: nn.Module, shape: Sequence[int]) -> bool:
    """Whether a network has ReLUs, and is not just linear layers and convolutions one behind the other, where searching
    among hard masks is good enough, and faster.

    Args:
        network: in evaluation mode. shape: (channels, height, width) of an image.
    """
    if open_chain(network) is not None or open_stages(network, shape) is not None:
        return False
    known = _HAS_RELUS.setdefault(network, {})
    if tuple(shape) not in known:
        weights = next(network.parameters())
        with torch.no_grad(), Softly(1.0) as softly:
            network(weights.new_zeros(2, *shape))  # statistics of a batch want two numbers
        known[tuple(shape)] = softly.met > 0
    return known[tuple(shape)]


def softly_matched(
    network: nn.Module,
    layout: Layout,
    targets: Sequence[Target],
    labels: Tensor,
    repeat: int,
    objective: Name,
    softly: Softly,
) -> DoubleBackward | Joint:
    """As `evaluate.evaluator`, of the network under a mode whose softness may change from call to call.

    Args:
        network: in evaluation mode. layout: of its parameters. targets: T, of equal count n.
        labels: (T, n) int64. repeat: candidates for each target. objective: what they are compared by.
        softly: the mode.
    """
    if targets[0].others:
        return joint(
            targets, repeat, lambda own: softly_matched(network, layout, own, labels, repeat, objective, softly)
        )
    own = run_softly(network, softly)
    return DoubleBackward(own, layout, targets, labels, repeat, Matching.of(objective, targets, repeat))


def run_softly(network: nn.Module, softly: Softly) -> nn.Module:
    """A copy of a network that runs under a mode."""
    own = copy.deepcopy(network)
    inner = own.forward

    def forward(images: Tensor) -> Tensor:
        with softly:
            return inner(images)

    own.forward = forward  # type: ignore[method-assign]
    return own


def annealed(
    objective: Callable[[Softly, Tensor], Objective],
    starts: Tensor,
    tv: Tensor,
    iterations: int,
    lr: float,
    signed: bool = True,
    tick: Callable[[], None] | None = None,
) -> Tensor:
    """Where Adam in the box ends while the network hardens, for T candidates at once: images (T, n, c, h, w).

    A candidate stays where its gradient is not finite.

    Args:
        objective: with the total variation's weight (T,), of images (T, n, c, h, w).
        starts: (T, n, c, h, w). tv: (T,), the weight of the total variation that is never gone below.
        iterations: steps. lr: the first step size, of pixels; it falls by a cosine.
        signed: as of `optimise.adam`. tick: called once an iteration.
    """
    images, softly = into_box(starts.clone()), Softly(SOFTNESS[0])
    weight = tv.clamp_min(TV[0])
    total = objective(softly, weight)
    mean, square = torch.zeros_like(images), torch.zeros_like(images)
    for iteration in range(iterations):
        done = iteration / iterations
        softly.softness = _between(SOFTNESS, min(1.0, done / 0.9))
        weight.copy_(tv.clamp_min(_between(TV, done)))
        gradient = total(images)[1].nan_to_num(0.0, 0.0, 0.0)
        if signed:
            gradient.sign_()
        mean.lerp_(gradient, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        scale = (square / (1 - BETAS[1] ** (iteration + 1))).sqrt_().add_(EPS)
        rate = lr * (1 + math.cos(math.pi * done)) / 2
        moved = torch.addcdiv(images, mean, scale, value=-rate / (1 - BETAS[0] ** (iteration + 1)))
        images = into_box(torch.where(moved.isfinite(), moved, images))  # a rate may be too large for numbers
        if tick is not None:
            tick()
    return images


def _between(ends: tuple[float, float], share: float) -> float:
    """From the first to the last, geometrically."""
    return ends[0] * (ends[1] / ends[0]) ** share
