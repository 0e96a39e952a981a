"""Gradient matching on convolutions and linear layers one behind the other, all candidates in one pass, by hand.

`Ghost`'s four passes (forward, errors back, tangents along v forward, their change back) with a convolution's windows
(`windows.py`) in the place of a linear layer's inputs. A convolution has far more positions than outputs, so its
gradient is formed, and with it v = p G* + 2q G, where `Ghost` avoids both. Nothing is recorded, and all arrays lie with
their channels last.

Cost for a layer of P positions, K numbers a window and O outputs, in units of its one product of 2·P·K·O operations an
image: forward 1, errors back 1, gradient 1, tangent forward 2, tangent back 2, on the first layer 5 instead of 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn

from ...defenses.chain import Bend, bend
from ...defenses.layout import Layout
from ...defenses.models import Normalise
from .objective import Matching, Products
from .target import Target
from .windows import Windows, takes

_CHUNK = 2**21  # numbers of windows at a time: 8 MB, near what a core's cache holds


@dataclass(frozen=True)
class Stage:
    """z = windows(a) Wᵀ + b, then `bend` (None on the last). windows: None for a linear layer, whose window is its
    whole input. takes: the shape of an image's input, (h, w, C) or (numbers,).
    """

    weight: str
    bias: str | None
    windows: Windows | None
    takes: tuple[int, ...]
    bend: Bend | None = None

    @property
    def numbers(self) -> int:
        """Of an image's windows."""
        return prod(self.takes) if self.windows is None else self.windows.numbers

    def forth(self, images: Tensor) -> Tensor:
        """Windows (rows, K)."""
        return images.flatten(1) if self.windows is None else self.windows.forth(images)

    def back(self, errors: Tensor) -> Tensor:
        """Windows on the way back, of errors (N, h, w, O) or (N, O)."""
        return errors if self.windows is None else self.windows.back(errors)

    def backwards(self, weight: Tensor) -> Tensor:
        """What those are multiplied by, for weights (…, O, K)."""
        return weight if self.windows is None else self.windows.backwards(weight)

    def put(self, numbers: Tensor) -> Tensor:
        """Images (N, *takes) of what came back."""
        return numbers.view(-1, *self.takes) if self.windows is None else self.windows.put(numbers)

    def shaped(self, rows: Tensor) -> Tensor:
        """Outputs (N, h, w, O), or (N, O), of rows (N·P, O)."""
        if self.windows is None:
            return rows
        return rows.view(-1, self.windows.rows.out, self.windows.columns.out, rows.shape[1])

    def ordered(self, weight: Tensor) -> Tensor:
        """Weights (…, O, K) in the order of windows, of the network's (…, O, C, kh, kw) or (…, O, C·h·w)."""
        if self.windows is not None:
            return weight.movedim(-3, -1).flatten(-3)
        if len(self.takes) == 1:
            return weight
        h, w, channels = self.takes
        return weight.unflatten(-1, (channels, h, w)).movedim(-3, -1).flatten(-3)


class Convolved:
    """Objective and image gradient for `repeat` candidates of each of several targets that share weights and count.

    stages: of `open_stages`. labels: (targets, n). Same interface as `Ghost`.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        constants: tuple[Tensor, Tensor],
        layout: Layout,
        targets: Sequence[Target],
        labels: Tensor,
        repeat: int,
        matching: Matching,
    ) -> None:
        self.stages, self.labels, self.repeat, self.matching = stages, labels, repeat, matching
        where = targets[0].weights
        self.mean, self.std = (c.to(where) for c in constants)
        weights = layout.split(where)
        observed = layout.split(torch.stack([t.gradient for t in targets]))
        own = [s.ordered(weights[s.weight]) for s in stages]
        self.there = [w.T.contiguous() for w in own]  # windows @ there
        self.home = [s.backwards(w).contiguous() for s, w in zip(stages, own)]
        self.home[0] = self.home[0] / self._spread(self.home[0])  # pixels are what the normalisation divides
        self.biases = [None if s.bias is None else weights[s.bias] for s in stages]
        self.observed = [s.ordered(observed[s.weight]).contiguous() for s in stages]
        self.observed_bias = [None if s.bias is None else observed[s.bias] for s in stages]
        self.numbers = sum(s.numbers for s in stages)

    def _spread(self, backwards: Tensor) -> Tensor:
        """The std of each column of a first convolution's weights on the way back."""
        std = self.std.flatten().expand(self.stages[0].takes[2])
        return std.repeat(backwards.shape[-1] // len(std))

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to `images` (T, n, *shape)."""
        size = max(1, _CHUNK // (images.shape[1] * self.numbers))
        parts = [self._some(images[first : first + size], first) for first in range(0, len(images), size)]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([loss for loss, _ in parts]), torch.cat([gradient for _, gradient in parts])

    def _some(self, images: Tensor, start: int) -> tuple[Tensor, Tensor]:
        (T, n), stages, last = images.shape[:2], self.stages, len(self.stages) - 1
        which = torch.arange(start, start + T, device=images.device) // self.repeat
        taken, slopes, curves = [], [], []
        x = ((images.flatten(0, 1) - self.mean) / self.std).permute(0, 2, 3, 1).contiguous()
        for stage, weight, bias in zip(stages, self.there, self.biases):
            taken.append(stage.forth(x))
            z = taken[-1] @ weight if bias is None else torch.addmm(bias, taken[-1], weight)
            if stage.bend is not None:
                value, slope, curve = stage.bend(z)
                x = stage.shaped(value)
                slopes.append(slope)
                curves.append(curve)
        probabilities = z.softmax(1)

        change = probabilities.clone()
        change[torch.arange(len(z)), self.labels[which].flatten()] -= 1
        errors = [change.div_(n)]  # (rows, O)
        pulled: list[Tensor] = []  # before the slope
        sent: list[Tensor] = []  # windows on the way back
        for k in range(last, 0, -1):
            sent.insert(0, stages[k].back(stages[k].shaped(errors[0])))
            pulled.insert(0, stages[k].put(sent[0] @ self.home[k]).reshape(-1, slopes[k - 1].shape[1]))
            errors.insert(0, pulled[0] * slopes[k - 1])
        sent.insert(0, stages[0].back(stages[0].shaped(errors[0])))

        inputs = [a.view(T, -1, a.shape[1]) for a in taken]
        outputs = [d.view(T, -1, d.shape[1]) for d in errors]
        own, observed = [], []
        for k in range(last + 1):
            own.append(torch.bmm(outputs[k].mT, inputs[k]))
            observed.append(self.observed[k][which])
            if (c := self.observed_bias[k]) is not None:
                own.append(outputs[k].sum(1))
                observed.append(c[which])
        value, along = _direction(self.matching.those(slice(start, start + T)), own, observed)

        direction: list[Tensor] = []
        tangents: list[Tensor] = []
        moved: Tensor | None = None  # of a stage's input; the images have none
        for k in range(last + 1):
            direction.append(along.pop(0))
            tangent = torch.bmm(inputs[k], direction[k].mT)
            if self.biases[k] is not None:
                tangent += along.pop(0)[:, None]
            tangent = tangent.flatten(0, 1)
            if moved is not None:
                tangent.addmm_(stages[k].forth(moved), self.there[k])
            tangents.append(tangent)
            moved = stages[k].shaped(tangent * slopes[k]) if k < last else None

        change = probabilities * (tangents[-1] - (probabilities * tangents[-1]).sum(1, keepdim=True)) / n
        for k in range(last, -1, -1):
            along_way = stages[k].backwards(direction[k])
            if k == 0:
                along_way = along_way / self._spread(along_way)
            way = torch.bmm(sent[k].view(T, -1, sent[k].shape[1]), along_way).flatten(0, 1)
            back = stages[k].put(way.addmm_(stages[k].back(stages[k].shaped(change)), self.home[k]))
            if k:
                change = back.reshape(-1, slopes[k - 1].shape[1]) * slopes[k - 1]
                curve = curves[k - 1]
                if curve is not None:
                    change.addcmul_(curve * tangents[k - 1], pulled[k - 1])
        return value, back.permute(0, 3, 1, 2).reshape(images.shape)


def _direction(matching: Matching, own: Sequence[Tensor], observed: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The objective (T,) and its derivative with respect to gradients (T, …), tensor by tensor."""
    flat = [(g.flatten(1), h.flatten(1)) for g, h in zip(own, observed)]
    products = Products(
        torch.stack([torch.linalg.vecdot(g, h) for g, h in flat], 1),
        torch.stack([torch.linalg.vecdot(g, g) for g, _ in flat], 1),
        torch.stack([torch.linalg.vecdot(h, h) for _, h in flat], 1),
        torch.stack([g.abs().sum(1) for g, _ in flat], 1) if matching.needs_absolute else None,
    )
    value, partial = matching.derivatives(products)
    direction = []
    for k, (g, h) in enumerate(zip(own, observed)):
        shape = (-1, *[1] * (g.ndim - 1))
        v = partial.dot[:, k].view(shape) * h
        v.addcmul_(partial.square[:, k].view(shape), g, value=2)
        if partial.absolute is not None:
            v.addcmul_(partial.absolute[:, k].view(shape), g.sign())
        direction.append(v)
    return value, direction


def open_stages(module: nn.Module, shape: Sequence[int]) -> tuple[tuple[Stage, ...], tuple[Tensor, Tensor]] | None:
    """The stages of nested `nn.Sequential`s of [normalisation], convolution or linear layer, [activation], …, linear
    layer; and the normalisation's mean and std. None for any other network, and for one without convolutions.

    Args:
        module: in evaluation mode, where a Dropout does nothing. shape: (channels, height, width) of an image.
    """
    mean, std = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    stages: list[Stage] = []
    at: tuple[int, ...] = (shape[1], shape[2], shape[0])
    flat, bent = False, True
    for name, part in _layers(module):
        if isinstance(part, Normalise) and not stages:
            mean, std = part.mean, part.std
        elif isinstance(part, nn.Identity | nn.Dropout) and not part.training:
            continue
        elif type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1) and stages:
            flat = True
        elif type(part) is nn.Conv2d and takes(part) and not flat and part.in_channels == at[2]:
            stages, bent = _bent(stages, bent), False
            windows = Windows(part, at[0], at[1])
            stages.append(Stage(f"{name}.weight", _bias(name, part), windows, at))
            at = (windows.rows.out, windows.columns.out, part.out_channels)
        elif type(part) is nn.Linear and flat and part.in_features == prod(at):
            stages, bent = _bent(stages, bent), False
            stages.append(Stage(f"{name}.weight", _bias(name, part), None, at))
            at = (part.out_features,)
        elif stages and not bent and (own := bend(part)) is not None:
            stages[-1], bent = replace(stages[-1], bend=own), True
        else:
            return None
    if not stages or stages[-1].windows is not None or bent:
        return None
    return tuple(stages), (mean, std)


def _bent(stages: list[Stage], bent: bool) -> list[Stage]:
    """With an activation behind the last, which changes nothing where there is none."""
    if bent or not stages:
        return stages
    return [*stages[:-1], replace(stages[-1], bend=bend(nn.Identity()))]


def _bias(name: str, part: nn.Conv2d | nn.Linear) -> str | None:
    return None if part.bias is None else f"{name}.bias"


def _layers(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    if type(module) is not nn.Sequential:
        return [(prefix, module)]
    return [
        found
        for name, part in module.named_children()
        for found in _layers(part, f"{prefix}.{name}" if prefix else name)
    ]
