"""One gradient in the place of many local steps, read where it explains the update best.

Some weights between those before and those after local training have a gradient that points along the whole update,
more nearly than at either end (the surrogate model of Zhu et al. 2023, ICML, "Surrogate Model Extension"). Which these
are is learned together with the images. It costs what one gradient does, however many the steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ....defenses.layout import Layout
from ..engines.double_backward import DoubleBackward
from ..match.objective import Matching
from ..match.optimise import BETAS, EPS, step_size
from ..settings import Settings
from .target import Target

RATE = 1e-3  # theirs: Adam's first step size of the place, in shares of the way


class Surrogate:
    """As `DoubleBackward`, at weights w + α·(update) of every candidate's own α, which takes a step of Adam towards a
    lower objective with each call. It stays in [0, 1].

    place: (T,), every candidate's α now.
    """

    def __init__(
        self,
        network: nn.Module,
        layout: Layout,
        targets: Sequence[Target],
        labels: Tensor,
        repeat: int,
        settings: Settings,
    ) -> None:
        """Targets of one message; those that are not `on_the_way` are read where they are.

        Args:
            network, layout, labels, repeat: as of `evaluate.evaluator`.
            targets: T, `evaluate.placed`, so that their weights are those at `settings.along`, where α begins.
            settings: `along_rate` is α's first step size, which falls as the images' does.
        """
        matching = Matching.of(settings.objective, targets, repeat)
        self.plain = DoubleBackward(network, layout, targets, labels, repeat, matching)
        self.layout, self.repeat, self.begin = layout, repeat, settings.along
        self.weights = [t.weights for t in targets]
        self.ways = [
            t.update.to(t.weights) if t.update is not None and t.on_the_way else torch.zeros_like(t.weights)
            for t in targets
        ]
        self.rate, self.iterations, self.done = settings.along_rate, settings.iterations, 0
        self.place = self.weights[0].new_full((len(targets) * repeat,), self.begin)
        self.mean, self.square = torch.zeros_like(self.place), torch.zeros_like(self.place)

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to `images` (T, n, *shape), before the places' step."""
        values, slopes, pulls = [], [], []
        for t, own in enumerate(images):
            way = self.ways[t // self.repeat]
            weights = self.layout.split(self.weights[t // self.repeat] + (self.place[t] - self.begin) * way)
            value, slope, of_weights = self.plain.matched(own, t, weights)
            values.append(value)
            slopes.append(slope)
            pulls.append(torch.dot(self.layout.join(dict(zip(weights, of_weights))), way))
        self._step(torch.stack(pulls))
        return torch.stack(values), torch.stack(slopes)

    def _step(self, slope: Tensor) -> None:
        """Adam's, by the objective's slopes (T,) along the way; one that is not finite moves nothing."""
        slope = slope.nan_to_num(0.0, 0.0, 0.0)
        self.mean.lerp_(slope, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(slope, slope, value=1 - BETAS[1])
        rate = step_size(self.rate, self.done, self.iterations)
        self.done += 1
        mean, square = self.mean / (1 - BETAS[0] ** self.done), self.square / (1 - BETAS[1] ** self.done)
        self.place = (self.place - rate * mean / (square.sqrt() + EPS)).clamp_(0.0, 1.0)
