"""What a second linear layer's gradient tells of every image by itself.

The gradient is a sum over n images of (error) × (input, 1). So where the layer has more inputs and neurons than that,
each image's input lies in the span of n rows, and its error in that of n columns, whatever the other images are (of a
transformer's layers Petrov et al. 2024, DAGER, arXiv:2405.15586, test tokens so). Of a table the first layer tells
less: its rows have no more rank than their words leave, 45 to 60 in Adult.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....defenses.chain import Chain, open_chain
from ....defenses.layout import Layout
from ..match.features import one_gradient
from ..read.target import Target

CLEAR = 0.5  # the first direction that is none over the last that is one, at most
ALIKE = 8  # of so many images one, at most, tells the layer nothing new, as its errors are another's
DAMPING = 0.1  # of the mean of a second moment's eigenvalues, beside each
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class SecondLayer:
    """The gradient of n images' second layer, whitened: what makes inputs and errors of any images alike differ counts
    as much as what they have in common.

    chain, weights: the network, on the CPU in float32. forth (i + 1, i + 1), back (o, o): what whitens inputs and
    errors. gradient: (o, i + 1), whitened. left (o, o), values, right (i + 1, i + 1): its singular directions.
    count: how many of them are of images that are not known yet.
    kinds: labels that an image may have; of two classes one, as the other's error is its opposite but for size.
    """

    chain: Chain
    weights: dict[str, Tensor]
    forth: Tensor
    back: Tensor
    gradient: Tensor
    left: Tensor
    values: Tensor
    right: Tensor
    count: int
    kinds: Tensor

    @classmethod
    def of(cls, module: nn.Module, target: Target, labels: Tensor, like: Tensor) -> SecondLayer | None:
        """None unless the network is a chain of at least three linear layers with biases in its first two, the target
        one gradient of fewer images than these have neurons, and no noise hides its span.

        Args:
            module: on the CPU. target: what was sent. labels: (n,) int64. like: (m, f) any images, which whiten.
        """
        chain = open_chain(module)
        if chain is None or len(chain.layers) < 3 or target.others or target.sparse is not None:
            return None
        if not one_gradient(target) or any(layer.bias is None for layer in chain.layers[:2]):
            return None
        layout, second = Layout.of(module), chain.layers[1]
        named = layout.split(target.gradient.cpu().double())
        gradient = torch.cat([named[second.weight], named[str(second.bias)][:, None]], 1)
        if target.count >= min(len(gradient), gradient.shape[1] - 1):
            return None
        kinds, empty = labels.unique(), gradient.new_zeros(0)
        weights = layout.split(target.weights.cpu().float())
        if len(weights[chain.layers[-1].weight]) == 2:
            kinds = kinds[:1]
        plain = cls(chain, weights, empty, empty, gradient, empty, empty, empty, target.count, kinds)
        inputs, errors = plain.seen(like)
        forth, back = whitening(inputs.double()), whitening(errors.flatten(0, 1).double())
        found = replace(plain, forth=forth, back=back, gradient=back @ gradient @ forth).decomposed()
        for count in range(target.count, target.count - target.count // ALIKE - 1, -1):
            if found.values[count] < CLEAR * found.values[count - 1]:
                return replace(found, count=count)
        return None

    def decomposed(self) -> SecondLayer:
        """With the singular directions of its gradient."""
        left, values, right = torch.linalg.svd(self.gradient)
        return replace(self, left=left, values=values, right=right.T)

    def without(self, images: Tensor, labels: Tensor, size: float) -> SecondLayer:
        """What is left of other images, where these (m, f), of labels (m,), are known to be there.

        size: an image's share of the gradient, in units of its own.
        """
        inputs, errors = self._white(images, labels)
        rest = replace(self, gradient=self.gradient - size * errors.T @ inputs, count=self.count - len(images))
        return rest.decomposed()

    def seen(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Of images (m, f): the layer's inputs and a one, (m, i + 1), and errors by each of `kinds`, (k, m, o)."""
        seen, slopes = [self._standard(images)], []
        for layer in self.chain.layers:
            bias = self.weights[layer.bias] if layer.bias else None
            value = F.linear(seen[-1], self.weights[layer.weight].to(images), bias if bias is None else bias.to(images))
            if layer.bend is not None:
                value, slope, _ = layer.bend(value)
                slopes.append(slope)
            seen.append(value)
        errors = seen[-1].softmax(1) - F.one_hot(self.kinds, seen[-1].shape[1])[:, None]
        for layer, slope in zip(self.chain.layers[:1:-1], slopes[:0:-1]):
            errors = (errors @ self.weights[layer.weight].to(images)) * slope
        return torch.cat([seen[1], seen[1].new_ones(len(images), 1)], 1), errors

    def outside(self, images: Tensor) -> Tensor:
        """How much of images' inputs and errors lies outside, (m,) in [0, 2], by the label that fits best."""
        inputs, errors = self.seen(images)
        far = (inputs @ self._other_inputs.to(images)).square().sum(1)
        far = far / (inputs @ self.forth.to(images)).square().sum(1)
        off = (errors @ self._other_errors.to(images)).square().sum(2)
        return far + (off / (errors @ self.back.to(images)).square().sum(2).clamp_min(TINY)).amin(0)

    def pulled(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Images (m, f) with the features `numbers` (k,) where the inputs are nearest to their span, as far as the
        first layer's slopes stay as they are.
        """
        first = self.chain.layers[0]
        weight, bias = (self.weights[str(name)].to(images) for name in (first.weight, first.bias))
        assert first.bend is not None
        value, slope, _ = first.bend(self._standard(images) @ weight.T + bias)
        std, other = self.chain.std.flatten()[numbers].to(images), self._other_inputs.to(images)
        moved = torch.einsum("mh,hk,hq->mqk", slope, weight[:, numbers], other[:-1])  # by standard deviations
        far = value @ other[:-1] + other[-1]
        square = moved.mT @ moved
        square = square + (1e-6 * square.diagonal(dim1=1, dim2=2).mean(1) + TINY)[:, None, None] * torch.eye(
            len(numbers)
        ).to(images)
        step = torch.linalg.solve(square, moved.mT @ far[:, :, None])[:, :, 0]
        images = images.clone()
        images[:, numbers] = images[:, numbers] - step * std
        return images

    def shares(self, images: Tensor, labels: Tensor) -> Tensor:
        """(m, m): eᵢᵀ G⁺ aⱼ of images (m, f) of labels (m,), with errors e and inputs a. If all are in G, it is 0 off
        the diagonal, and on it one over an image's share of G (as of a matrix that loses one of its rank with it,
        Wedderburn 1934).
        """
        inputs, errors = self._white(images, labels)
        n = self.count
        return (errors @ self.left[:, :n]) / self.values[:n] @ (inputs @ self.right[:, :n]).T

    @property
    def _other_inputs(self) -> Tensor:
        return self.forth @ self.right[:, self.count :]

    @property
    def _other_errors(self) -> Tensor:
        return self.back @ self.left[:, self.count :]

    def _white(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        kinds, which = labels.unique(return_inverse=True)
        inputs, errors = replace(self, kinds=kinds).seen(images.double())
        return inputs @ self.forth, errors[which, torch.arange(len(labels))] @ self.back

    def _standard(self, images: Tensor) -> Tensor:
        return (images - self.chain.mean.flatten().to(images)) / self.chain.std.flatten().to(images)


def whitening(rows: Tensor, damping: float = DAMPING) -> Tensor:
    """(d, d) by which rows (m, d) have about the identity for a second moment. damping: of its mean eigenvalue."""
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    values = values.clamp_min(0)
    return vectors * (values + damping * values.mean() + TINY).rsqrt() @ vectors.T
