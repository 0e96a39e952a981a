"""What a network's classifier tells of its inputs: the features of every image, solved for from one gradient.

The classifier's gradient is G = Σ_i δ_i (a_i, 1)ᵀ with errors δ_i that the features themselves decide, of a
cross-entropy (softmax(W a_i + b) − y_i)/n. Its rows span the features, so with r visible directions an image has r
unknown numbers, and G tells r + 1 numbers for every class: more than enough for fewer images than classes. The system
is solved by least squares (Levenberg and Marquardt). Images of one label have almost equal errors in an untrained
network, which then tells their sum and hardly what tells them apart; so directions count by how well the system
determines them. This is the first step of R-GAP (Zhu and Blaschko 2021, arXiv:2010.07733), which solves single images
layer by layer, for several images.

Features are a demand on every image by itself, where a gradient is one on their sum: behind convolutions it is the
better guide, beside the gradient.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....defenses.chain import open_chain
from ....defenses.layout import Layout
from ....defenses.randomness import generator
from ..engines.output_error import output_error
from ..labels.classifier import Head, find_classifier, probe
from ..read.target import Target
from .optimise import Objective, with_distances
from .span import inputs_of

FEATURES = 0.003  # beside a gradient's distance; ours, picked on six batches of eight photographs and two networks
STARTS = 32
ENOUGH = 0.75  # of what may be left over: no further start is tried
EVALUATIONS = 600  # of a start
LARGEST = 2**24  # numbers of the system's Jacobian
ROUNDING = 1e-5  # of the gradient's norm: what places change by less is not told; ours, on the same batches
SOLVED = 5e-7  # of the gradient's norm, at most left over where there is no noise


@dataclass(frozen=True, eq=False)
class SolvedFeatures:
    """The features of n images as far as one gradient determines them.

    directions: (r, width), orthonormal, what the gradient shows of them. places: (n, r), where the images are.
    sure: (k, n·r), orthonormal directions of all places together. weights: (k,) in [0, 1], how far each is determined.
    outside: weight in [0, 1] of what an image has outside of `directions`. spread: mean squared distance of the
    features from their mean, a single image's from 0. scale: of what was sent, in gradients; 1 where it is known.
    """

    network: nn.Module
    layer: str
    parameters: dict[str, Tensor]
    directions: Tensor
    places: Tensor
    sure: Tensor
    weights: Tensor
    outside: float
    spread: float
    scale: float = 1.0

    @classmethod
    def of(
        cls, network: nn.Module, layout: Layout, target: Target, labels: Tensor, shape: tuple[int, ...]
    ) -> SolvedFeatures | None:
        """Of the images behind a target; None where they are not determined, or where something else says more.

        That is: several messages, or one of some components alone; several local steps, or an optimiser's that is no
        gradient; a network of linear layers alone, whose first layer tells the images; no linear classifier; as many
        images as classes, or more; a clip of every tensor by itself; noise that hides what tells labels apart; and a
        system that no start solves. Nor of what is not finite.

        Args:
            network: in evaluation mode. layout: of its parameters. target: what was sent. labels: (n,) int64.
            shape: of an image.
        """
        if (
            target.others
            or target.sparse is not None
            or target.per_layer
            or not one_gradient(target)
            or not bool(target.gradient.isfinite().all())
            or open_chain(network) is not None
        ):
            return None
        own = copy.deepcopy(network).float().cpu()
        try:
            head = find_classifier(own, shape)
        except ValueError:
            return None
        system = _System.of(network, layout, target, labels, head)
        if system is None:
            return None
        starts = probe(own, dict(layout.split(target.weights.float().cpu())), head, shape).outputs.double()
        found = system.solved(starts.softmax(1) if system.plain else starts)
        if found is None:
            return None
        return cls._of(network, layout, target, head, system, found)

    @classmethod
    def _of(
        cls, network: nn.Module, layout: Layout, target: Target, head: Head, system: _System, found: Tensor
    ) -> SolvedFeatures | None:
        places, noise = found[: system.unknown].view(-1, system.rank), system.noise
        _, slopes, sure = torch.linalg.svd(system.jacobian(found)[:, : system.unknown], full_matrices=False)
        off = places if len(places) == 1 else places - places.mean(0)
        spread = float(off.square().sum(1).mean())
        if not spread > 0:
            return None
        error = (noise / slopes.clamp_min(1e-300)).square()
        weights = 1 / (1 + error * len(places) / spread)
        turned = (places.square() * (system.edge / system.sizes).square()).sum(1).mean()
        to = target.weights
        return cls(
            network,
            head.name,
            dict(layout.split(to)),
            system.directions.to(to),
            places.to(to),
            sure.to(to),
            weights.to(to),
            float(1 / (1 + turned / spread)) if system.rank == target.count else 0.0,  # else some directions are hidden
            spread,
            float(found[-1].exp()) if system.scaled else 1.0,
        )

    @property
    def said(self) -> str:
        """In words."""
        share = float(self.weights.sum()) / self.places.numel()
        return (
            f"the classifier's inputs solved for from its gradient ({len(self.directions)} directions,"
            f" {share:.0%} of the images' places in them determined)"
        )

    def at(self, network: nn.Module, target: Target) -> SolvedFeatures:
        """The same in another precision or on another device: those of a network and of a target's weights."""
        to = target.weights
        names = {name: p.to(to) for name, p in self.parameters.items()}
        moved = {name: getattr(self, name).to(to) for name in ("directions", "places", "sure", "weights")}
        return replace(self, network=network, parameters=names, **moved)

    def of_images(self, images: Tensor) -> Tensor:
        """(n, width) of images (n, *shape)."""
        return inputs_of(self.network, self.parameters, self.layer, images)[-1]

    def distance(self, images: Tensor) -> Tensor:
        """How far the images' features (n, *shape) are from the determined ones, in shares of their spread; ()."""
        own = self.of_images(images)
        inside = own @ self.directions.T
        off = (self.sure @ (inside - self.places).flatten()).square() @ self.weights
        outside = own.square().sum() - inside.square().sum()
        return (off + self.outside * outside) / (len(images) * self.spread)


def one_gradient(target: Target) -> bool:
    """Whether a target is one gradient, as it was sent or behind one step."""
    recipe = target.recipe
    return recipe is None or (recipe.linear and recipe.own_gradients and len(recipe.sizes) == 1)


def with_features(objective: Objective, features: Sequence[SolvedFeatures | None], weight: float) -> Objective:
    """`objective` plus `weight` times each candidate's distance from its target's features.

    Args:
        objective: of T candidates. features: of each, None for one without. weight: at least 0.
    """
    return with_distances(objective, [None if one is None else one.distance for one in features], weight)


def told_by_places(places: Tensor, moves: Tensor, errors: Tensor) -> Tensor:
    """How a classifier's gradient moves with the places of its inputs: (classes·r + classes, n·r), that of its weights
    along r directions, and that of its biases.

    Args:
        places: (n, r). moves: (n, classes, r), how an image's error moves with its place. errors: (n, classes).
    """
    products = torch.einsum("ik,icl->ckil", places, moves)
    products.diagonal(dim1=1, dim2=3).add_(errors.T[:, :, None])
    return torch.cat([products.flatten(0, 1).flatten(1), moves.transpose(0, 1).flatten(1)])


Moves = Callable[[], Tensor]  # how errors move with places, (n, classes, r)


class _System:
    """Equations of places c (n, r), and of the logarithm of a scale nobody told: eˢ Σ_i δ_i(c_i) (c_i, 1) = what was
    sent, along the directions it shows.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        sent: Tensor,
        of_bias: Tensor | None,
        target: Target,
        labels: Tensor,
        scaled: bool,
        rank: int,
    ) -> None:
        noise, self.loss, self.plain = target.noise_std, target.minimised, target.loss == "cross_entropy"
        left, sizes, directions = torch.linalg.svd(sent, full_matrices=False)
        self.rank, self.sizes, self.directions = rank, sizes[:rank], directions[:rank]
        self.edge = noise * sum(side**0.5 for side in sent.shape)
        shown = (left[:, :rank] * self.sizes).flatten()
        self.sent = shown if of_bias is None else torch.cat([shown, of_bias])  # (equations,)
        self.along, self.bias = weight @ self.directions.T, bias  # (classes, r), (classes,)
        self.has_bias = of_bias is not None
        self.labels = labels
        self.unknown, self.scaled = len(labels) * rank, scaled
        norm = float(shown.norm())
        self.noise = (noise**2 + (ROUNDING * norm) ** 2) ** 0.5
        self.left = SOLVED * norm + 1.5 * noise * len(self.sent) ** 0.5

    @classmethod
    def of(cls, network: nn.Module, layout: Layout, target: Target, labels: Tensor, head: Head) -> _System | None:
        """None where the equations are fewer than the unknowns, too many, or hidden by noise."""
        at, sent = layout.split(target.weights.double().cpu()), layout.split(target.gradient.double().cpu())
        weight, own, n = at[head.weight], sent[head.weight], target.count
        bias = weight.new_zeros(len(weight)) if head.bias is None else at[head.bias]
        of_bias = None if head.bias is None else sent[head.bias]
        sizes = torch.linalg.svdvals(own)
        edge = 2 * target.noise_std * sum(side**0.5 for side in own.shape)
        rank = min(n, int((sizes > max(edge, 3e-7 * float(sizes[0]))).sum()))
        clipped = target.clip_norm is not None and target.gradient.norm(target.clip_order) >= 0.999 * target.clip_norm
        equations = len(weight) * (rank + (of_bias is not None))
        too_many = equations * n * rank > LARGEST
        if n >= len(weight) or rank < max(1, len(labels.unique())) or equations < n * rank + 1 or too_many:
            return None
        scaled = clipped or not target.scale_known
        return cls(weight, bias, own, of_bias, target, labels.cpu(), scaled, rank)

    def _errors(self, flat: Tensor) -> tuple[Tensor, Moves, Tensor, Tensor]:
        places = flat[: self.unknown].view(-1, self.rank)
        outputs = places @ self.along.T + self.bias
        errors, moves = self._of_softmax(outputs.softmax(1)) if self.plain else self._of_outputs(outputs)
        scale = flat[-1].clamp(-50, 50).exp() if self.scaled else flat.new_ones(())
        return places, moves, errors, scale

    def _of_outputs(self, outputs: Tensor) -> tuple[Tensor, Moves]:
        """The errors of the loss at outputs (n, classes), and how they move with places."""
        errors, changed = output_error(self.loss, outputs, self.labels[None])
        return errors, lambda: torch.stack([changed(way.expand_as(outputs)) for way in self.along.T], 2)

    def _of_softmax(self, p: Tensor) -> tuple[Tensor, Moves]:
        """Those of a cross-entropy, by its probabilities (n, classes)."""
        n, along = len(p), self.along
        hot = F.one_hot(self.labels, p.shape[1]).to(p)
        return (p - hot) / n, lambda: p[:, :, None] * (along[None] - (p @ along)[:, None]) / n

    def _made(self, flat: Tensor) -> Tensor:
        places, _, errors, scale = self._errors(flat)
        made = (errors.T @ places).flatten()
        return scale * (torch.cat([made, errors.sum(0)]) if self.has_bias else made)

    def residual(self, flat: Tensor) -> Tensor:
        """What the places would have sent less what was, (equations,)."""
        return self._made(flat) - self.sent

    def jacobian(self, flat: Tensor) -> Tensor:
        """(equations, unknowns)."""
        places, moves, errors, scale = self._errors(flat)
        matrix = scale * told_by_places(places, moves(), errors)[: len(self.sent)]
        return torch.cat([matrix, self._made(flat)[:, None]], 1) if self.scaled else matrix

    def solved(self, predictions: Tensor) -> Tensor | None:
        """Places, and the scale's logarithm if it is unknown, that leave no more than rounding and the known noise.

        predictions: (m, classes), of random images, probabilities of a cross-entropy, else outputs; starts take them,
        their mean or any others for the images' own.
        """
        n, mean = len(self.labels), predictions.mean(0)
        shown = self.sent[: len(self.along) * self.rank].view(-1, self.rank)
        best, least, draw = None, float("inf"), generator(0, "features")
        for start in range(STARTS):
            spread = torch.randn(n, len(mean), generator=draw, dtype=mean.dtype) * (1 + start % 3)
            of_random = predictions[(torch.arange(n) + start * n) % len(predictions)]
            others = spread.softmax(1) if self.plain else spread
            own = mean.expand(n, -1) if start == 0 else of_random if start % 4 == 1 else others
            errors, _ = self._of_softmax(own) if self.plain else self._of_outputs(own)
            places = torch.linalg.lstsq(errors.T, shown, rcond=1e-6, driver="gelsd").solution
            found = self._from(torch.cat([places.flatten(), places.new_zeros(int(self.scaled))]))
            left = float(self.residual(found).norm())
            if left < least:
                best, least = found, left
            if least <= ENOUGH * self.left:
                break
        return best if least <= self.left else None

    def _from(self, flat: Tensor) -> Tensor:
        """By Levenberg and Marquardt's steps, in torch: scipy's answers hang on where in memory an array lies."""
        damping, residual = 1e-3, self.residual(flat)
        jacobian, sizes = self.jacobian(flat), flat.new_full((len(flat),), 1e-12)
        for _ in range(EVALUATIONS):
            if damping > 1e12 or float(residual.norm()) < 0.01 * self.left:
                break
            sizes = sizes.maximum(jacobian.square().sum(0).sqrt())
            stacked = torch.cat([jacobian, damping**0.5 * sizes.diag()])
            aim = torch.cat([-residual, residual.new_zeros(len(flat))])
            step = torch.linalg.lstsq(stacked, aim[:, None]).solution[:, 0]
            there = self.residual(flat + step)
            if there.isfinite().all() and there.norm() < residual.norm():
                flat, residual, damping = flat + step, there, max(damping / 3, 1e-15)
                jacobian = self.jacobian(flat)
            else:
                damping *= 4
        return flat
