"""Images behind convolutions from one gradient without noise, layer by layer from the classifier down.

Where every activation can be undone (leaky ReLU), an image's features before the classifier tell that layer's outputs z
and, with the errors behind it, the errors δ of every image at z. The layer's inputs u then solve *linear* equations:
W u_i + b = z_i for each image by itself, and Σ_i δ_i ⋆ u_i = G over the batch, G the layer's gradient. Their solution
are the outputs of the layer below, and so on down to the pixels: R-GAP (Zhu and Blaschko 2021, arXiv:2010.07733), here
for several images, in four parts:

1. *Features*. Images of one label have nearly equal errors, so the classifier hardly tells them apart
   (`features.py`). But the layer before it, where it has more outputs than inputs, can only give some of all vectors,
   which the features of each image by itself must be among.
2. The inputs of that layer from the gradients of both, by Gauss and Newton's steps: no more unknowns than equations.
3. Each layer below by conjugate gradients. An output near 0 has a slope that rounding decides; the slopes of the least
   sure ones are unknowns beside the inputs, until they are seen.
4. The first two layers together, in pixels, since the second alone is not determined: slopes of the first layer as
   they come out, by steps that find smooth changes first.

What each step leaves over is small if the step before it was right; where it is not, nothing is returned.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....defenses.layout import Layout
from ..engines.convolved import open_stages
from ..engines.curves import Straight
from ..exact.layer_inputs import RIGHT, Doubted, Equations, LeakyLayer, inputs_of_layer, smooth
from ..match.evaluate import evaluator, placed, tv_weight
from ..match.features import SolvedFeatures, told_by_places, with_features
from ..match.optimise import with_prior
from ..match.prior import into_box
from ..match.solution import Solution
from ..read.conjugate_gradients import conjugate_gradients
from ..read.target import Target

if TYPE_CHECKING:
    from ..attack import Inversion

PEELED = 1800  # about so many iterations of a search it costs
TICKS = 15  # of which come about so many times
QUIET = 1e-9  # share of a message's energy that may be noise: of what is more, nothing came out
_Told = tuple[Tensor, ...]
LARGEST = 6000  # outputs of the last convolution for an image
BETTER = 0.5  # share of a guess's distance
ENOUGH = 0.98  # of what a step leaves over: no further one
AMONG = 0.01  # what being among a layer's outputs counts beside the classifier's equations
SURER = 30.0  # the last convolution's gradient than its outputs
PLACED, TOP = 60, (8, 100)  # steps of Levenberg and Marquardt, and of Gauss and Newton with those of each
PIXELS = (60, 60, 100, 100, 200, 200, 400, 800, 800, 800, 800)  # of conjugate gradients, for each step
PATIENCE = 3  # steps that are no better than the best
SURE, UNSURE = 3, 100  # steps in pixels before slopes are doubted, and how many


def peels(network: nn.Module, shape: Sequence[int]) -> bool:
    """Whether a network is normalisation, at least three convolutions with leaky ReLUs, the last with more outputs
    than inputs, and a linear classifier.

    Args:
        network: in evaluation mode. shape: of an image.
    """
    opened = open_stages(network, shape)
    if opened is None:
        return False
    *before, last = opened[0]
    if len(before) < 3 or not isinstance(last.layer, nn.Linear) or last.bias is None:
        return False
    for stage in before:
        bent = isinstance(stage.curve, Straight) and 0 < stage.curve.left < 1
        if not isinstance(stage.layer, nn.Conv2d) or stage.layer.dilation != (1, 1) or not bent or stage.bias is None:
            return False
    return prod(before[-1].takes) < prod(last.takes) <= LARGEST


def peeled(
    network: nn.Module,
    layout: Layout,
    target: Target,
    guess: Solution,
    features: SolvedFeatures | None,
    settings: Inversion,
    tick: Callable[[], None],
) -> Solution:
    """The images that a gradient's equations give layer by layer, or the guess, unless the former leave less than half
    of the distance from what was sent. The prior is no judge of that: it has smooth images before the true ones, and
    there is no noise that a smooth image would explain better. Where there is some, the guess stays.

    Args:
        network: in evaluation mode, one that `peels`. layout: of its parameters. target: what was sent.
        guess: where layers' inputs and images begin. features: of the images; without them the guess stays.
        settings: the attack's. tick: called after each layer and each step.
    """
    if features is None or target.noise_share > QUIET:
        return guess
    ready = placed(target, replace(settings, along=0.0), precise=True)
    own = copy.deepcopy(network).to(settings.device, torch.float64)
    labels, shape = guess.labels.to(settings.device), guess.images.shape[1:]
    matched = evaluator(own, layout, [ready], labels[None], 1, settings.objective, shape)

    def far(images: Tensor) -> float:
        return matched(images[None])[0].item()

    start = guess.images.to(ready.weights)
    found = _Peel.of(own, layout, ready, labels, features, shape).images(start, far, tick)
    if found is None or not far(found) < BETTER * far(start):
        return guess
    prior = with_prior(matched, start.new_tensor([tv_weight(target, settings)]))
    loss = with_features(prior, [features.at(own, ready)], settings.features)(found[None])[0].item()
    said = f"{guess.features_by}, and from them the inputs of every layer, down to the images"
    return replace(guess, images=found.float().cpu(), loss=loss, features_by=said)


@dataclass(frozen=True, eq=False)
class _Peel:
    """layers: from the first. weight, bias, gradient, of_bias: the classifier's, (classes, width) and (classes,).
    hot: (n, classes), labels. directions: (n, width), orthonormal. places: (n, n), about where the features are in
    them. mean, std: of the normalisation.
    """

    layers: tuple[LeakyLayer, ...]
    weight: Tensor
    bias: Tensor
    gradient: Tensor
    of_bias: Tensor
    hot: Tensor
    directions: Tensor
    places: Tensor
    mean: Tensor
    std: Tensor

    @classmethod
    def of(
        cls,
        network: nn.Module,
        layout: Layout,
        target: Target,
        labels: Tensor,
        features: SolvedFeatures,
        shape: Sequence[int],
    ) -> _Peel:
        opened = open_stages(network, shape)
        assert opened is not None
        (*before, last), constants = opened
        at, sent = layout.split(target.weights), layout.split(target.gradient / features.scale)
        layers = []
        for stage in before:
            conv, curve = stage.layer, stage.curve
            assert isinstance(conv, nn.Conv2d) and isinstance(curve, Straight) and stage.bias is not None
            stride, padding = ((int(pair[0]), int(pair[1])) for pair in (conv.stride, conv.padding))
            own = at[stage.weight], at[stage.bias], sent[stage.weight], sent[stage.bias]
            layers.append(LeakyLayer(*own, stride, padding, curve.left))
        assert last.bias is not None
        gradient = sent[last.weight]
        directions = torch.linalg.svd(gradient, full_matrices=False)[2][: len(labels)]
        return cls(
            tuple(layers),
            at[last.weight],
            at[last.bias],
            gradient,
            sent[last.bias],
            F.one_hot(labels, len(gradient)).to(gradient),
            directions,
            features.places.to(gradient) @ features.directions.to(gradient) @ directions.T,
            *(constant.to(gradient) for constant in constants),
        )

    def images(self, start: Tensor, far: Callable[[Tensor], float], tick: Callable[[], None]) -> Tensor | None:
        """(n, *shape) in [0, 1]; None where equations are not fulfilled on the way.

        Args:
            start: where they begin. far: how far images are from explaining the gradient; of those on the way the best
                are returned. tick: called after each layer, and each step in pixels.
        """
        inputs = [(start - self.mean) / self.std]  # of each layer
        for layer in self.layers[:-1]:
            z = layer.outputs(inputs[-1])
            inputs.append(z * layer.slopes(z))
        u = self._last_inputs(inputs[-1])
        tick()
        if u is None:
            return None
        errors = _End(self, u).errors
        for k in range(len(self.layers) - 2, 1, -1):
            found = inputs_of_layer(self.layers[k], u, self.layers[k + 1].back(errors, u), inputs[k])
            tick()
            if found is None:
                return None
            u, errors = found
        return self._pixels(u, self.layers[2].back(errors, u), start, far, tick)

    def _last_inputs(self, like: Tensor) -> Tensor | None:
        """Those of the last convolution; None where no such features are among what it gives."""
        layer, numbers = self.layers[-1], like[0].numel()
        matrix = layer.matrix(like.shape[1:])
        base, triangle = torch.linalg.qr(matrix, mode="complete")
        bias = layer.bias.repeat_interleave(len(matrix) // len(layer.bias))
        never, constant = base[:, numbers:], bias @ base[:, numbers:]  # what it cannot give
        places = self._placed(never, constant)
        features = places @ self.directions
        z = features / layer.slopes(features)
        if not float((z @ never - constant).norm() / z.norm()) < RIGHT:
            return None
        along = (z - bias) @ base[:, :numbers]
        u = torch.linalg.solve_triangular(triangle[:numbers], along.T, upper=True).T.reshape(like.shape)
        features = features.view(len(u), *layer.outputs(u).shape[1:])
        pulled = ((places @ self.directions @ self.weight.T + self.bias).softmax(1) - self.hot) / len(u) @ self.weight
        found = inputs_of_layer(layer, features, pulled.view_as(features), u, SURER)
        return None if found is None else self._by_gradients(found[0])

    def _placed(self, never: Tensor, constant: Tensor) -> Tensor:
        """Places (n, n) of the features, by Levenberg and Marquardt's steps: errors at them make the classifier's
        gradient, and none asks the layer before for outputs that it never has.
        """
        n, norm = len(self.hot), float(self.gradient.norm())
        along, shown = self.weight @ self.directions.T, self.gradient @ self.directions.T
        slopes_of = self.layers[-1].slopes
        first = self.places @ self.directions
        among = AMONG / float((first / slopes_of(first)).norm() / n**0.5)

        def rest(places: Tensor) -> tuple[Tensor, Tensor]:
            features = places @ self.directions
            off = among * (features / slopes_of(features) @ never - constant)
            errors = ((places @ along.T + self.bias).softmax(1) - self.hot) / n
            told = torch.cat([(errors.T @ places - shown).flatten(), errors.sum(0) - self.of_bias]) / norm
            return off, told

        def far(left: tuple[Tensor, Tensor]) -> Tensor:
            return left[0].square().sum() + left[1].square().sum()

        def normal(places: Tensor, left: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            """Of the least squares. What an image's outputs ask moves with its own place alone."""
            slopes, p = slopes_of(places @ self.directions), (places @ along.T + self.bias).softmax(1)
            told = told_by_places(places, p, (p - self.hot) / n, along) / norm
            square, right = told.T @ told, (told.T @ left[1]).view_as(places)
            blocks = square.view(*places.shape, *places.shape).diagonal(dim1=0, dim2=2)  # (r, r, n)
            for i, own in enumerate(slopes):
                off = among * ((self.directions / own) @ never)  # (r, numbers)
                blocks[:, :, i] += off @ off.T
                right[i] += off @ left[0][i]
            return square, right.flatten()

        places, left, damping = self.places, rest(self.places), 1e-3
        square, right = normal(places, left)
        for _ in range(PLACED):
            damped = square + damping * square.diagonal().clamp_min(1e-30).diag()
            there = places - torch.linalg.solve(damped, right).view_as(places)
            beyond = rest(there)
            if far(beyond) < far(left):
                places, left, damping = there, beyond, max(damping / 4, 1e-14)
                square, right = normal(places, left)
            else:
                damping *= 5
        return places

    def _by_gradients(self, u: Tensor) -> Tensor:
        """The last convolution's inputs by its gradient and the classifier's, from about there."""
        sent = (self.gradient, self.of_bias, self.layers[-1].gradient, self.layers[-1].of_bias)
        norms = tuple(float(sent[k].norm()) for k in (0, 0, 2, 2))

        def off(told: _Told) -> _Told:
            return tuple((one - other) / norm**2 for one, other, norm in zip(told, sent, norms))

        def far(told: _Told) -> float:
            return sum(float((one - other).norm() / norm) ** 2 for one, other, norm in zip(told, sent, norms)) ** 0.5

        end = _End(self, u)
        for _ in range(TOP[0]):

            def normal(x: Tensor, end: _End = end) -> Tensor:
                moved = end.moved(x.view_as(end.u))
                return end.pulled(tuple(one / norm**2 for one, norm in zip(moved, norms))).flatten()

            step = conjugate_gradients(normal, -end.pulled(off(end.told)).flatten(), TOP[1])
            there = _End(self, end.u + step.view_as(u))
            before, after = far(end.told), far(there.told)
            if after < before:
                end = there
            if not after < ENOUGH * before:
                break
        return end.u

    def _pixels(
        self,
        outputs: Tensor,
        pulled: Tensor,
        start: Tensor,
        far: Callable[[Tensor], float],
        tick: Callable[[], None],
    ) -> Tensor:
        """Images by the second layer's outputs and its gradient. outputs, pulled: as of `Doubted`."""
        first, second = self.layers[0], self.layers[1]
        doubted = Doubted(second, outputs, pulled, 0)
        z = outputs / doubted.slopes
        weights = float(z.norm()) ** -2, float(second.gradient.norm()) ** -2
        waves = smooth(start.shape[1:], start)
        images, best, least, worse = start, start, far(start), 0
        for done, steps in enumerate(PIXELS):
            if done == SURE:
                doubted.doubt(UNSURE)
            below = first.outputs((images - self.mean) / self.std)
            slopes = first.slopes(below)
            asked = Equations(second, slopes * below, z, doubted, weights)
            forth, back = partial(self._forth, slopes, images), partial(self._back, slopes, images)
            moved, doubts = asked.step(steps, forth, back, waves)
            images = into_box(images + moved.view_as(images))
            doubted.settle(doubts)
            tick()
            if (now := far(images)) < least:
                best, least, worse = images, now, 0
            elif (worse := worse + 1) == PATIENCE:
                break
        return best

    def _forth(self, slopes: Tensor, like: Tensor, moved: Tensor) -> Tensor:
        """How the second layer's inputs move with pixels, the first layer's slopes as they are."""
        return slopes * self.layers[0].of(moved.view_as(like) / self.std)

    def _back(self, slopes: Tensor, like: Tensor, wanted: Tensor) -> Tensor:
        """The transpose of `_forth`."""
        return self.layers[0].back(slopes * wanted, like) / self.std


class _End:
    """The last convolution and the classifier at inputs u. errors: (n, …) of the convolution. told: the gradients of
    the classifier's weights and biases and of the convolution's.
    """

    def __init__(self, peel: _Peel, u: Tensor) -> None:
        self.u, self.layer, self.weight, n = u, peel.layers[-1], peel.weight, len(u)
        z = self.layer.outputs(u)
        self.slopes = self.layer.slopes(z)
        self.features = (self.slopes * z).flatten(1)
        self.p = (self.features @ self.weight.T + peel.bias).softmax(1)
        self.last = (self.p - peel.hot) / n
        self.errors = self.slopes * (self.last @ self.weight).view_as(z)
        self.told: _Told = (
            self.last.T @ self.features,
            self.last.sum(0),
            self.layer.product(self.errors, u),
            self.errors.sum((0, 2, 3)),
        )

    def _softmax(self, x: Tensor) -> Tensor:
        """How the errors move with the logits."""
        return self.p * (x - (self.p * x).sum(1, keepdim=True)) / len(x)

    def moved(self, v: Tensor) -> _Told:
        """How `told` moves as u moves by v."""
        features = (self.slopes * self.layer.of(v)).flatten(1)
        last = self._softmax(features @ self.weight.T)
        errors = self.slopes * (last @ self.weight).view_as(self.slopes)
        return (
            last.T @ self.features + self.last.T @ features,
            last.sum(0),
            self.layer.product(errors, self.u) + self.layer.product(self.errors, v),
            errors.sum((0, 2, 3)),
        )

    def pulled(self, parts: _Told) -> Tensor:
        """The transpose of `moved`."""
        weight, bias, kernel, shift = parts
        before = self.slopes * (self.layer.of(self.u, kernel) + shift[:, None, None])
        last = self._softmax(self.features @ weight.T + bias + before.flatten(1) @ self.weight.T)
        features = self.last @ weight + last @ self.weight
        through = self.layer.back(self.slopes * features.view_as(self.slopes), self.u)
        return through + self.layer.back(self.errors, self.u, kernel)
