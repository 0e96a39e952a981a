"""Gradients of single rows in a distance that makes rows alike differ, never formed: each layer's is a product.

A row's gradient of a linear layer is (error) × (input, 1). With inputs and errors whitened by those of other rows (as
K-FAC whitens, Martens and Grosse 2015, arXiv:1503.05671), what few rows have counts as much as what all have, and the
inner product of two rows' gradients is one of their inputs times one of their errors, summed over layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....defenses.chain import Chain, open_chain
from ....defenses.layout import Layout
from ..exact.words import Words
from ..read.target import Target

NOISE = 3  # times as much damping as noise asks for; chosen on two batches (32 and 64 rows)
IDLE = 0.9  # of a clip's norm, up to which it did nothing
TINY = 1e-12

Matrices = Sequence[Tensor]  # of each layer (o, i + 1)


@dataclass(frozen=True, eq=False)
class Factors:
    """Gradients of rows: of each layer whitened inputs (m, i + 1) and errors (m, o)."""

    inputs: tuple[Tensor, ...]
    errors: tuple[Tensor, ...]

    @property
    def squares(self) -> Tensor:
        """(m,) squared lengths."""
        every = zip(self.inputs, self.errors)
        return torch.stack([(a * a).sum(1) * (e * e).sum(1) for a, e in every]).sum(0)

    def with_sum(self, of: Matrices) -> Tensor:
        """(m,) the inner product of each with one gradient."""
        every = zip(self.inputs, self.errors, of)
        return torch.stack([((errors @ own) * inputs).sum(1) for inputs, errors, own in every]).sum(0)

    def sum(self) -> list[Tensor]:
        """Of each layer (o, i + 1), all rows together."""
        return [errors.T @ inputs for inputs, errors in zip(self.inputs, self.errors)]

    def at(self, rows: Tensor) -> Factors:
        return Factors(tuple(a[rows] for a in self.inputs), tuple(e[rows] for e in self.errors))


@dataclass(frozen=True, eq=False)
class RowMetric:
    """A network of a table at the weights of a message.

    chain, weights: on the CPU in float32. shift, scale (f,): a number is standardised, a word is 0 or 1, so that rare
    words are not worth more than others. forth, back: of each layer, what whitens its inputs and errors. goal: of each
    layer, the whitened gradient of all rows together. open_scale: it is known but for its length, which is about that
    of so many rows.
    """

    chain: Chain
    weights: dict[str, Tensor]
    shift: Tensor
    scale: Tensor
    forth: tuple[Tensor, ...]
    back: tuple[Tensor, ...]
    goal: tuple[Tensor, ...]
    open_scale: bool

    @classmethod
    def of(
        cls,
        module: nn.Module,
        target: Target,
        words: Words,
        batch: Tensor,
        images: Tensor,
        labels: Tensor,
        damping: float,
    ) -> RowMetric | None:
        """None unless the network is a chain of linear layers with biases, at least two.

        Args:
            module: on the CPU. target: what was sent. words: the table's. batch: (n,) labels of the rows that
                were sent. images: (m, f) of rows that whiten. labels: (m,) of them. damping: of whitening, at
                least, in means of a second moment's eigenvalues.
        """
        chain = open_chain(module)
        if chain is None or len(chain.layers) < 2 or any(layer.bias is None for layer in chain.layers):
            return None
        chain, layout = replace(chain, loss=target.minimised), Layout.of(module)
        shift, scale = chain.mean.flatten().float().clone(), chain.std.flatten().float().clone()
        for first, width in words:
            shift[first : first + width], scale[first : first + width] = 0, 1
        named = layout.split(target.count * target.gradient.cpu().double())
        sums = [torch.cat([named[x.weight], named[str(x.bias)][:, None]], 1) for x in chain.layers]
        mean, std = chain.mean.flatten().double(), chain.std.flatten().double()
        slope, shifted = std / scale, (mean - shift) / scale  # of the first layer's inputs, to ours
        sums[0] = torch.cat([sums[0][:, :-1] * slope + sums[0][:, -1:] * shifted, sums[0][:, -1:]], 1)
        weights = layout.split(target.weights.cpu().float())
        plain = cls(chain, weights, shift, scale, (), (), (), scale_open(target))
        seen = [(a.double(), e.double()) for a, e in zip(*plain._seen(images, labels))]
        size = 1.0
        if plain.open_scale:
            energy = (1 - target.noise_share) * sum(own.square().sum() for own in sums)
            usual = _usual_energy(batch, Factors(*(tuple(part) for part in zip(*seen))), labels)
            size = (usual / energy).sqrt().item()
        noise = NOISE * size * target.count**0.5 * target.noise_std  # a row's part of it in each component
        damped = [max(damping, noise / (a.square().mean() * e.square().mean()).sqrt().item()) for a, e in seen]
        forth = [whitening(a, own) for (a, _), own in zip(seen, damped)]
        back = [whitening(e, own) for (_, e), own in zip(seen, damped)]
        goal = tuple((size * b @ own @ f).float() for b, own, f in zip(back, sums, forth))
        return replace(plain, forth=tuple(f.float() for f in forth), back=tuple(b.float() for b in back), goal=goal)

    def factors(self, images: Tensor, labels: Tensor) -> Factors:
        """Of images (m, f) of labels (m,)."""
        inputs, errors = self._seen(images, labels)
        return Factors(
            tuple(own @ f for own, f in zip(inputs, self.forth)), tuple(own @ b for own, b in zip(errors, self.back))
        )

    def moved(self, images: Tensor, numbers: Tensor) -> list[Tensor]:
        """Of each layer (m, k, i + 1): what its whitened inputs move by as each of the features `numbers` (k,) does, as
        far as slopes stay as they are.
        """
        value = (images - self.chain.mean.flatten()) / self.chain.std.flatten()
        first = torch.eye(len(self.shift))[numbers] / self.scale[numbers, None]
        found = [(first @ self.forth[0][:-1]).expand(len(images), -1, -1)]
        move = (torch.eye(len(self.shift))[numbers] / self.chain.std.flatten()[numbers, None]).expand(
            len(images), -1, -1
        )
        for layer, forth in zip(self.chain.layers, self.forth[1:]):
            assert layer.bend is not None
            value = F.linear(value, self.weights[layer.weight], self.weights[str(layer.bias)])
            value, slope, _ = layer.bend(value)
            move = (move @ self.weights[layer.weight].T) * slope[:, None]
            found.append(move @ forth[:-1])
        return found

    def _seen(self, images: Tensor, labels: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Of each layer, before whitening, inputs and a one (m, i + 1), and errors (m, o)."""
        value = (images - self.chain.mean.flatten()) / self.chain.std.flatten()
        inputs, slopes = [(images - self.shift) / self.scale], []
        for layer in self.chain.layers:
            value = F.linear(value, self.weights[layer.weight], self.weights[str(layer.bias)])
            if layer.bend is not None:
                value, slope, _ = layer.bend(value)
                slopes.append(slope)
                inputs.append(value)
        errors = [self.chain.errors(value, labels)]
        for (_, layer), slope in zip(reversed(list(pairwise(self.chain.layers))), reversed(slopes)):
            errors.append((errors[-1] @ self.weights[layer.weight]) * slope)
        one = images.new_ones(len(images), 1)
        return [torch.cat([own, one], 1) for own in inputs], errors[::-1]


def scale_open(target: Target) -> bool:
    """Whether nobody says how long a target's gradient was: a clip may have shortened it."""
    bound = target.clip_norm
    if not target.scale_known or (bound is not None and (target.per_layer or target.clip_order != 2)):
        return True
    return bound is not None and (1 - target.noise_share) ** 0.5 * target.gradient.norm().item() > IDLE * bound


def _usual_energy(batch: Tensor, known: Factors, labels: Tensor) -> Tensor:
    """What the squared length of the gradient of so many rows is on average, whose labels are `batch` (n,), if they are
    like those of `known`, of labels (m,).
    """
    mean, spread = [0.0 * own for own in known.at(torch.arange(1)).sum()], torch.zeros(())
    for kind in batch.unique():
        alike, many = known.at(labels == kind), int((batch == kind).sum())
        count = max(1, int((labels == kind).sum()))
        own = [part / count for part in alike.sum()]
        spread = spread + many * (alike.squares.sum() / count - sum(part.square().sum() for part in own))
        mean = [total + many * part for total, part in zip(mean, own)]
    return spread + sum(part.square().sum() for part in mean)


def whitening(rows: Tensor, damping: float) -> Tensor:
    """(d, d) by which rows (m, d) have about the identity for a second moment. damping: of its mean eigenvalue."""
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    values = values.clamp_min(0)
    return vectors * (values + damping * values.mean() + TINY).rsqrt() @ vectors.T
