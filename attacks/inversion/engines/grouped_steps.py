"""Local training simulated on convolutions and linear layers one behind the other, all candidates in one pass, by hand.

After a step each candidate has weights of its own, so that its convolutions are a group's (`candidate_weights.py`). A
step's gradient g(w, x) is found forwards and backwards, and everything it went through is kept. With a the derivative
by the weights after the step, and v what that makes of it by the gradient (`LocalSteps.backward`), what is lacking is
the derivative of ⟨g(w, x), v⟩, the loss's slope along v: one pass of tangents forward and one of their change back, as
in `convolved.py`, give it by the images, and two products more by the weights. So nothing is recorded.

Cost of a step for a layer, in units of its one product: forward 1, errors back 1, gradient 1, tangent forward 2,
tangent back 2, by the weights 2: 9, of the first step 7; on the first layer 6 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from ....defenses.layout import Layout
from ..match.batches import CHUNK_NUMBERS
from ..match.objective import Matching, Products
from ..read.local_steps import LocalSteps
from ..read.target import Target
from ..settings import Name
from .candidate_weights import OwnConvolution, OwnLayer, OwnLinear
from .convolved import Stage, open_stages, shapes_of
from .grouped import runs_fast
from .output_error import ErrorChange, output_error
from .parts import along, bent, compare
from .passage import Passage


@dataclass(frozen=True, eq=False)
class _Step:
    """What a step went through, layer by layer: weights, inputs, errors; of each activation its slopes and curves,
    what the passage behind it has seen, and the errors that came back to it; and how the last error changes.
    """

    weights: list[Tensor]
    inputs: list[Tensor]
    errors: list[Tensor]
    slopes: list[Tensor]
    curves: list[Tensor | None]
    seen: list[tuple[Tensor, ...]]
    grown: list[Tensor]
    changed: ErrorChange


class GroupedSteps:
    """The objective of the updates that several candidates' images would have made; what `Simulated` computes of each.

    Args:
        stages, constants: of `open_stages`. layout: of the network's parameters.
        targets: of one recipe, a candidate each; weights may differ. matching: how updates are compared, of them all.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        constants: tuple[Tensor, Tensor],
        layout: Layout,
        targets: Sequence[Target],
        matching: Matching,
    ) -> None:
        recipe, where, T = targets[0].recipe, targets[0].weights, len(targets)
        if recipe is None or any(one.recipe != recipe or one.sparse is not None for one in targets):
            raise ValueError("targets are of different recipes, or of one that is not known, or sparse")
        self.recipe, self.matching, self.stages = recipe, matching, stages
        self.mean, self.std = (c.to(where) for c in constants)
        self.loss, self.plain = targets[0].minimised, targets[0].loss == "cross_entropy"
        self.bends = [stage.bend for stage in stages if stage.bend is not None]  # of all but the last
        named = [layout.split(one.weights) for one in targets]
        observed = [layout.split(one.gradient) for one in targets]
        self.layers: list[OwnLayer] = []
        shapes: dict[str, tuple[int, ...]] = {}
        convolutions = iter(shapes_of(stages))
        for stage in stages:
            if isinstance(stage.layer, nn.Conv2d):
                self.layers.append(OwnConvolution(next(convolutions), T, where))
            else:
                self.layers.append(OwnLinear(stage.layer, stage.takes if len(stage.takes) > 1 else None))
            shapes[stage.weight] = self.layers[-1].shape
            if stage.bias is not None:
                shapes[stage.bias] = (self.layers[-1].outputs,)
        self.passages = [_passage(stage, layer, after) for stage, layer, after in zip(stages, self.layers, stages[1:])]
        self.layout = Layout(tuple(shapes), tuple(shapes.values()))
        self.start = torch.stack([self._filled(one) for one in named])
        self.observed = torch.stack([self._filled(one) for one in observed])
        self.squares = torch.stack([h.square().sum(1) for h in self.observed.split(self.layout.sizes, 1)], 1)

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,) and its gradient with respect to images (T, E·n, *shape) with labels (T, E·n)."""
        walk, entrance = LocalSteps(self.recipe, self.start), self.layers[0]
        assert isinstance(entrance, OwnConvolution)
        sizes = list(self.recipe.sizes)
        steps: list[_Step] = []
        entered = entrance.geometry.enter((images - self.mean).div_(self.std))
        for x, y in zip(entered.split(sizes), labels.split(sizes, 1)):
            step, gradient = self._gradient(walk.weights, x, y)
            steps.append(step)
            walk.forward(gradient)
        values, cotangent = self._matched(walk.weights - self.start)
        backward, parts = walk.backward(), []
        for k in range(len(steps) - 1, -1, -1):
            of_gradient, cotangent = backward(cotangent)
            parts.append(self._curvature(steps.pop(), of_gradient, cotangent if k else None))
        slope = entrance.geometry.leave(torch.cat(parts[::-1]), len(images))
        return values, slope.div_(self.std)

    def _matched(self, moved: Tensor) -> tuple[Tensor, Tensor]:
        """The objective (T,), and its derivative (T, d) by what the weights moved (T, d)."""
        scale, matching = -1 / self.recipe.scale, self.matching
        own, observed = ([each[:, part] for part in self.layout.slices] for each in (moved, self.observed))
        if matching.name == "absolute" or matching.needs_absolute:
            one = [[scale * u[t] for u in own] for t in range(len(moved))]
            found = [matching.direction(t, u, [h[t] for h in observed]) for t, u in enumerate(one)]
            return torch.stack([v for v, _ in found]), torch.stack([scale * torch.cat(d) for _, d in found])
        compared = [compare(u, h) for u, h in zip(own, observed)]
        dot, square = (torch.stack(each, 1) for each in zip(*compared))
        value, partial = matching.derivatives(Products(scale * dot, scale**2 * square, self.squares))
        of_dot, of_square = (scale * partial.dot).unbind(1), (scale**2 * partial.square).unbind(1)
        each = zip(own, observed, of_dot, of_square)
        return value, torch.cat([along(u, h, p, q) for u, h, p, q in each], 1)

    def _gradient(self, weights: Tensor, x: Tensor, labels: Tensor) -> tuple[_Step, Tensor]:
        """A step on what entered, x, and labels (T, n), and its gradient (T, d)."""
        own = self._ready(weights)
        biases = self._biases(weights)
        inputs: list[Tensor] = []
        slopes: list[Tensor] = []
        curves: list[Tensor | None] = []
        seen: list[tuple[Tensor, ...]] = []
        for k, (layer, bend) in enumerate(zip(self.layers, self.bends)):
            inputs.append(x)
            x, slope, curve = bend(layer.forth(x, own[k], biases[k]))
            slopes.append(slope)
            curves.append(curve)
            x, way = self.passages[k].first(x)
            seen.append(way)
        inputs.append(x)
        error, changed = self._error(self.layers[-1].forth(x, own[-1], biases[-1]), labels)
        errors: list[Tensor] = [error]
        grown: list[Tensor] = []
        gradient = torch.empty_like(weights)
        into = self.layout.split(gradient)
        for k in range(len(self.layers) - 1, -1, -1):
            layer, stage = self.layers[k], self.stages[k]
            layer.outer(error, inputs[k], into[stage.weight], add=False)
            if stage.bias is not None:
                into[stage.bias].copy_(layer.sums(error))
            if k:
                grown.insert(0, self.passages[k - 1].back(layer.back(error, inputs[k], own[k]), seen[k - 1]))
                error = grown[0] * slopes[k - 1]
                errors.insert(0, error)
        return _Step(own, inputs, errors, slopes, curves, seen, grown, changed), gradient

    def _error(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ErrorChange]:
        """Of the loss at outputs (T, n, C), and how it changes along a tangent of theirs."""
        if not self.plain:
            error, changed = output_error(self.loss, outputs.flatten(0, 1), labels)
            return error.view_as(outputs), lambda tangent: changed(tangent.flatten(0, 1)).view_as(tangent)
        (T, n), p = labels.shape, outputs.softmax(2)
        error = p.scatter_add(2, labels[..., None], outputs.new_full((T, n, 1), -1.0)).div_(n)
        return error, lambda tangent: (tangent - torch.linalg.vecdot(p, tangent)[..., None]).mul_(p).div_(n)

    def _curvature(self, step: _Step, along: Tensor, of_weights: Tensor | None) -> Tensor:
        """The derivative of ⟨gradient, along⟩, `along` (T, d), by what entered; that by the weights is added to
        `of_weights` (T, d).
        """
        own = self._ready(along)
        biases = self._biases(along)
        inputs, weights, last = step.inputs, step.weights, len(self.layers) - 1
        tangents: list[Tensor] = []
        moved: list[Tensor | None] = [None]  # of each layer's inputs; the images do not move
        for k, layer in enumerate(self.layers):
            tangent, way = layer.forth(inputs[k], own[k], biases[k]), moved[k]
            tangents.append(tangent if way is None else tangent.add_(layer.forth(way, weights[k], None)))
            if k < last:
                moved.append(self.passages[k].forth(tangents[k] * step.slopes[k], step.seen[k]))
        change = step.changed(tangents[-1])
        into = None if of_weights is None else self.layout.split(of_weights)
        for k in range(last, -1, -1):
            layer, stage, error, way = self.layers[k], self.stages[k], step.errors[k], moved[k]
            if into is not None:
                layer.outer(change, inputs[k], into[stage.weight], add=True)
                if way is not None:
                    layer.outer(error, way, into[stage.weight], add=True)
                if stage.bias is not None:
                    into[stage.bias].add_(layer.sums(change))
            back = layer.back(change, inputs[k], weights[k]).add_(layer.back(error, inputs[k], own[k]))
            if k:
                back = self.passages[k - 1].back(back, step.seen[k - 1])
                change = bent(back, step.slopes[k - 1], step.curves[k - 1], tangents[k - 1], step.grown[k - 1])
        return back

    def _filled(self, named: dict[str, Tensor]) -> Tensor:
        """The network's parameters in the layers' arrangement, flat."""
        parts: dict[str, Tensor] = {}
        for layer, stage in zip(self.layers, self.stages):
            parts[stage.weight] = layer.fill(named[stage.weight])
            if stage.bias is not None:
                parts[stage.bias] = layer.fill_bias(named[stage.bias])
        return self.layout.join(parts)

    def _ready(self, flat: Tensor) -> list[Tensor]:
        """Each layer's weights."""
        named = self.layout.split(flat)
        return [layer.ready(named[stage.weight]) for layer, stage in zip(self.layers, self.stages)]

    def _biases(self, flat: Tensor) -> list[Tensor | None]:
        named = self.layout.split(flat)
        return [None if stage.bias is None else named[stage.bias] for stage in self.stages]


def _passage(stage: Stage, layer: OwnLayer, after: Stage) -> Passage:
    """From a stage to the one after it."""
    if not isinstance(layer, OwnConvolution) or isinstance(after.layer, nn.Conv2d):
        return Passage(stage.pool)
    height, width, _ = after.takes
    return Passage(stage.pool, layer.rows, lambda rows: layer.images(rows, (height, width)))


def alike(network: nn.Module, targets: Sequence[Target], shape: Sequence[int]) -> list[list[int]]:
    """Which targets (positions) may be simulated together: those of one recipe that the same objective compares in the
    same way, where the network is one that `GroupedSteps` takes; else each by itself.

    Args:
        network: in evaluation mode. targets: as of `update_of`. shape: of an image.
    """
    kinds: dict[tuple, list[int]] = {}
    stages = _opened(network, targets[0].weights, shape)
    for i, one in enumerate(targets):
        together = stages is not None and one.sparse is None
        own = (one.loss, one.recipe, one.count, one.clip_order, one.per_layer, one.scale_known) if together else (i,)
        kinds.setdefault(own, []).append(i)
    return list(kinds.values())


def grouped_steps(
    network: nn.Module, layout: Layout, targets: Sequence[Target], name: Name, shape: Sequence[int]
) -> list[GroupedSteps]:
    """Of targets in order, so many at a time as fit in memory; none where they cannot be grouped.

    Args:
        network: in evaluation mode. layout: of its parameters. targets: `alike`.
        name: of the objective. shape: of an image.
    """
    opened = _opened(network, targets[0].weights, shape)
    if opened is None or targets[0].sparse is not None:
        return []
    size = max(1, CHUNK_NUMBERS // _numbers(opened[0], targets[0]))
    chunks = [targets[first : first + size] for first in range(0, len(targets), size)]
    return [GroupedSteps(*opened, layout, some, Matching.of(name, some)) for some in chunks]


def _opened(
    network: nn.Module, where: Tensor, shape: Sequence[int]
) -> tuple[tuple[Stage, ...], tuple[Tensor, Tensor]] | None:
    """The stages of a network whose steps are faster as groups; measured, of LeNet and CNN6, for one image as for 16,
    and one candidate as for 8.
    """
    opened = open_stages(network, shape, pools=True)
    return opened if opened is not None and runs_fast(shapes_of(opened[0]), where) else None


def _numbers(stages: Sequence[Stage], target: Target) -> int:
    """About how many numbers a candidate keeps: of every step its weights, what a clip and Adam or RMSprop were given
    and made of it (`LocalSteps`, `Walk`), of every image what each layer takes and, for its outputs, the activation,
    its error and what is left of both.
    """
    recipe = target.recipe
    assert recipe is not None
    shapes = shapes_of(stages)
    filled = sum(prod((s.outputs, s.channels, *s.kernel)) - s.layer.weight.numel() for s in shapes)
    kept = 1 + (recipe.step_clip is not None) + 4 * (not recipe.linear)
    image = shapes[0].channels * prod(shapes[0].entered) + sum(6 * shape.numbers for shape in shapes)
    return len(recipe.sizes) * kept * (len(target.weights) + filled) + sum(recipe.sizes) * image
