"""Gradient matching on convolutions and linear layers one behind the other, all candidates in one pass, by hand.

`Ghost`'s four passes (forward, errors back, tangents along v forward, their change back), by layers of several kinds
(`parts.py`): linear ones as in `Ghost`, convolutions as grouped ones (`grouped.py`). A convolution has far
more positions than outputs, so its gradient is formed, and with it v = p G* + 2q G, where linear layers avoid both.
Nothing is recorded.

Cost for a layer of P positions, K numbers a window and O outputs, in units of its one product of 2·P·K·O operations an
image: forward 1, errors back 1, gradient 1, tangent forward 2, tangent back 2, on the first layer 5 instead of 7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn

from ....defenses.chain import Bend, bend
from ....defenses.layout import Layout, frozen_of
from ....defenses.models import Normalise
from ..match.objective import Matching, Products
from ..read.target import Target
from .candidate_products import Messages, OwnProducts
from .grouped import Grouped, GroupShape, groups_pay, takes
from .output_error import output_error
from .parts import DotAndSquare, Linear, Some, bent
from .passage import Pool, pooled, takes_pool

_CHUNK = 2**19  # numbers of a layer's output at a time: 2 MB; half or twice as much makes little difference


@dataclass(frozen=True)
class Stage:
    """A layer, then `bend` (None on the last), then `pool`. weight, bias: names; the latter None where there is none.
    takes: the shape of an image's input, (h, w, C) or (numbers,).
    """

    weight: str
    bias: str | None
    layer: nn.Conv2d | nn.Linear
    takes: tuple[int, ...]
    bend: Bend | None = None
    pool: Pool | None = None


class Convolved:
    """Objective and image gradient for `repeat` candidates of each of several targets that share weights and count.

    stages: of `open_stages`, without pools, that `pays`. labels: (targets, n). Same interface as `Ghost`, and the same
    ValueError.
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
        if matching.needs_absolute:
            raise ValueError("the clip order is 1, whose norm cannot be had from activations: use `DoubleBackward`")
        self.labels, self.repeat, self.matching = labels, repeat, matching
        self.loss, self.plain = targets[0].minimised, targets[0].loss == "cross_entropy"
        where, n = targets[0].weights, targets[0].count
        self.mean, self.std = (c.to(where) for c in constants)
        self.bends = [stage.bend for stage in stages if stage.bend is not None]  # of all but the last
        weights = layout.split(where)
        gradients = [t.gradient for t in targets]
        observed = layout.split(torch.stack(gradients))
        messages = Messages.of(gradients, repeat * n, [t.noise_share for t in targets])
        basis, kind = layout.split(messages.basis), (messages.coefficients, repeat * n, len(targets), n)
        shapes = shapes_of(stages)
        self.chunk = max(1, _CHUNK // (n * max(shape.numbers for shape in shapes)))
        self.parts: list[Grouped | LinearRows] = []
        squares = []
        for k, stage in enumerate(stages):
            own, other = weights[stage.weight], observed[stage.weight]
            bias, other_bias = (None, None) if stage.bias is None else (weights[stage.bias], observed[stage.bias])
            squares += [g.flatten(1).square().sum(1) for g in (other, other_bias) if g is not None]
            if k < len(shapes):
                self.parts.append(Grouped(shapes[k], own, bias, other, other_bias))
                continue
            before, candidates, common = self.parts[-1], min(self.chunk, repeat * len(targets)), basis[stage.weight]
            ways = () if isinstance(before, LinearRows) else (before.rows, before.images)
            if ways:
                own, common = _channels_last(own, stage.takes), _channels_last(common, stage.takes)
            products = OwnProducts.both_ways(common, *kind)
            self.parts.append(LinearRows(own, bias, *products, other_bias, n, candidates, *ways))
        self.squares = torch.stack(squares, 1)  # (targets, tensors)

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to `images` (T, n, *shape)."""
        size = self.chunk
        parts = [self._some(images[first : first + size], first) for first in range(0, len(images), size)]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([loss for loss, _ in parts]), torch.cat([gradient for _, gradient in parts])

    def _some(self, images: Tensor, first: int) -> tuple[Tensor, Tensor]:
        (T, n), last = images.shape[:2], len(self.parts) - 1
        some, entrance = Some(first, T, self.repeat), self.parts[0]
        assert not isinstance(entrance, LinearRows)
        x = entrance.enter((images - self.mean) / self.std)
        slopes: list[Tensor] = []
        curves: list[Tensor | None] = []
        for part, bend_of in zip(self.parts, self.bends):
            x, slope, curve = bend_of(part.forth(x, some))
            slopes.append(slope)
            curves.append(curve)
        z = self.parts[-1].forth(x, some)
        if self.plain:
            probabilities = z.softmax(1)
            error = probabilities.clone()
            error[torch.arange(len(z), device=z.device), some.of(self.labels).flatten()] -= 1
            error.div_(n)
        else:
            error, changed = output_error(self.loss, z, some.of(self.labels))
        grown: list[Tensor] = []  # errors before the slope, of the last layer but one first
        for k in range(last, -1, -1):
            below = self.parts[k].back(error, k > 0)
            if k:
                grown.append(below)
                error = below * slopes[k - 1]

        compared = [tensor for part in self.parts for tensor in part.compared]
        dot, square = (torch.stack(each, 1) for each in zip(*compared))
        products = Products(dot, square, some.of(self.squares))
        value, partial = self.matching.those(slice(first, first + T)).derivatives(products)
        partials = iter(zip(partial.dot.unbind(1), partial.square.unbind(1)))
        for part in self.parts:
            part.turn([next(partials) for _ in part.compared])

        tangents: list[Tensor] = []
        moved: Tensor | None = None  # of a layer's input; the images have none
        for k, part in enumerate(self.parts):
            tangents.append(part.tangent(moved))
            if k < last:
                moved = tangents[k] * slopes[k]

        if self.plain:
            change = probabilities * (tangents[-1] - (probabilities * tangents[-1]).sum(1, keepdim=True)) / n
        else:
            change = changed(tangents[-1])
        for k in range(last, -1, -1):
            back = self.parts[k].home(change)
            if k:
                change = bent(back, slopes[k - 1], curves[k - 1], tangents[k - 1], grown[last - k])
        return value, entrance.leave(back, T) / self.std


class LinearRows:
    """A linear layer, z = a Wᵀ + b for rows a (T·n, i); a `HandLayer` whose gradient is not formed, as in `Ghost`.

    Args:
        weight: (o, i). bias: (o,) or None. observed: products with every target's. observed_back: the same transposed.
        observed_bias: of every target, (targets, o). count: n. candidates: about so many at a time.
        into, out: from what comes in to rows, and the way back; None for rows.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        observed: OwnProducts,
        observed_back: OwnProducts,
        observed_bias: Tensor | None,
        count: int,
        candidates: int,
        into: Callable[[Tensor], Tensor] | None = None,
        out: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.bias, self.observed_bias, self.count = bias, observed_bias, count
        self.into, self.out = into, out
        rows = count * candidates
        self.there, self.home_way = Linear(weight, rows), Linear(weight.T, rows)
        self.observed, self.observed_back = observed, observed_back

    def forth(self, x: Tensor, some: Some) -> Tensor:
        self.some, self.a = some, x if self.into is None else self.into(x)
        return self.there(self.a, self.bias)

    def back(self, error: Tensor, wanted: bool) -> Tensor:
        self.A, self.D = (x.view(self.some.many, self.count, -1) for x in (self.a, error))
        self.reached = self.observed(self.a, self.some)  # a G*ᵀ
        self.gram_a, self.gram_d = self.A @ self.A.mT, self.D @ self.D.mT
        self.compared = [((self.reached * self.D).sum((1, 2)), (self.gram_a * self.gram_d).sum((1, 2)))]
        if self.observed_bias is not None:
            self.sums, c = self.D.sum(1), self.some.of(self.observed_bias)
            self.compared.append(((self.sums * c).sum(1), self.sums.square().sum(1)))
        pulled = self.home_way(error)
        return pulled if self.out is None else self.out(pulled)

    def turn(self, partials: Sequence[DotAndSquare]) -> None:
        self.partials = [(p[:, None, None], 2 * q[:, None, None]) for p, q in partials]

    def tangent(self, moved: Tensor | None) -> Tensor:
        p, q = self.partials[0]
        tangent = torch.baddbmm(p * self.reached, q * self.gram_a, self.D)
        if self.observed_bias is not None:
            p, q = self.partials[1]
            tangent += p * self.some.of(self.observed_bias)[:, None] + q * self.sums[:, None]
        tangent = tangent.flatten(0, 1)
        if moved is not None:
            tangent += self.there(moved if self.into is None else self.into(moved))
        return tangent

    def home(self, change: Tensor) -> Tensor:
        p, q = self.partials[0]
        back = torch.bmm(q * self.gram_d, self.A).flatten(0, 1)
        back += self.home_way(change)
        back += self.observed_back((p * self.D).flatten(0, 1), self.some).flatten(0, 1)
        return back if self.out is None else self.out(back)


def pays(stages: Sequence[Stage], targets: Sequence[Target], repeat: int) -> bool:
    """Whether `Convolved` is faster than `DoubleBackward` for `repeat` candidates of each target."""
    return groups_pay(shapes_of(stages), targets[0].weights, repeat * len(targets) * targets[0].count)


def shapes_of(stages: Sequence[Stage]) -> list[GroupShape]:
    """Of a network's convolutions."""
    return [
        GroupShape(stage.layer, stage.takes[0], stage.takes[1], first=not k)
        for k, stage in enumerate(stages)
        if isinstance(stage.layer, nn.Conv2d)
    ]


def _channels_last(weight: Tensor, takes: tuple[int, ...]) -> Tensor:
    """Weights (…, O, C·h·w) of the network's in the order (h, w, C); `takes`: (h, w, C)."""
    h, w, channels = takes
    return weight.unflatten(-1, (channels, h, w)).movedim(-3, -1).flatten(-3)


def open_stages(
    module: nn.Module, shape: Sequence[int], pools: bool = False
) -> tuple[tuple[Stage, ...], tuple[Tensor, Tensor]] | None:
    """The stages of nested `nn.Sequential`s of [normalisation], convolution or linear layer, [activation], …, linear
    layer; and the normalisation's mean and std. None for any other network, for one without convolutions, and for one
    that is not trained whole.

    Args:
        module: in evaluation mode, where a Dropout does nothing. shape: (channels, height, width) of an image.
        pools: whether a convolution's activation may have a pooling behind it (`passage.takes_pool`).
    """
    if frozen_of(module):
        return None
    mean, std = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    stages: list[Stage] = []
    at: tuple[int, ...] = (shape[1], shape[2], shape[0])
    flat, closed = False, True
    for name, part in _layers(module):
        if isinstance(part, Normalise) and not stages:
            mean, std = part.mean, part.std
        elif isinstance(part, nn.Identity | nn.Dropout) and not part.training:
            continue
        elif type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1) and stages:
            flat = True
        elif type(part) is nn.Conv2d and takes(part) and not flat and part.in_channels == at[2]:
            stages, closed = _closed(stages, closed), False
            stages.append(Stage(f"{name}.weight", _bias(name, part), part, at))
            out = GroupShape(part, at[0], at[1], False).out
            at = (*out, part.out_channels)
        elif type(part) is nn.Linear and flat and part.in_features == prod(at):
            stages, closed = _closed(stages, closed), False
            stages.append(Stage(f"{name}.weight", _bias(name, part), part, at))
            at = (part.out_features,)
        elif pools and stages and not flat and stages[-1].pool is None and takes_pool(part):
            stages, closed = _closed(stages, closed), True
            stages[-1] = replace(stages[-1], pool=part)
            at = (*pooled(part, at[0], at[1]), at[2])
        elif stages and not closed and (own := bend(part)) is not None:
            stages[-1], closed = replace(stages[-1], bend=own), True
        else:
            return None
    if not stages or isinstance(stages[-1].layer, nn.Conv2d) or closed:
        return None
    return tuple(stages), (mean, std)


def _closed(stages: list[Stage], closed: bool) -> list[Stage]:
    """With an activation behind the last, which changes nothing where there is none."""
    if closed or not stages:
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
