"""Images through the first layer, where that is linear with a ReLU behind it: with no guess, or out of a guess."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from ....defenses.chain import Chain, open_chain
from ....defenses.layout import Layout
from ..match.solution import Solution
from ..read.target import Target
from .blind import blind_columns
from .columns import Columns
from .copies import errors_of, handed_out
from .row_space import CLEAR, RowSpace, row_space
from .unmix import solved, unmix

# The weakest direction over the noise's, where the guess's own objective is of a rough reading and cannot say which
# images are better.
CLEAR_UNCHECKED = 100
OUT, OFTEN = 0.02, 0.01  # a pixel outside of [0, 1] by more than OUT; in a wrong image more than OFTEN of them are


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """What a message tells of a first layer that is linear with a ReLU behind it.

    chain: the network. gradient: (o, i + 1), [G_W | G_b] of the first message. span: of as many directions as images,
    but for copies; of several messages of the same images that of all rows, m·o of them, in units of their noise, as
    each message has errors of its own and the images are the same. weights: by name, those that the first message was
    made from.
    planes: (m·o, i + 1) each, [W | b] of the weights known to have been used, those before training first.
    one_step: whether it is one gradient, or several.
    """

    chain: Chain
    gradient: Tensor
    span: RowSpace
    weights: dict[str, Tensor]
    planes: tuple[Tensor, ...]
    one_step: bool

    @classmethod
    def of(cls, module: nn.Module, target: Target) -> FirstLayer | None:
        """None where the network is no chain of linear layers that begins with a ReLU and has a bias there, after
        several steps of Adam or RMSprop, where its tensors moved by more than gradients of one weight a step, where
        components were left out, and where noise or too many images hide the
        span.
        """
        chain, messages = open_chain(module), target.messages
        recipes = [one.recipe for one in messages if one.recipe is not None]
        if chain is None or not chain.rectified or any(not r.linear and len(r.sizes) > 1 for r in recipes):
            return None
        if not all(recipe.own_gradients for recipe in recipes):
            return None
        chain = replace(chain, loss=target.minimised)
        layer, layout = chain.layers[0], Layout.of(module)
        bias = layer.bias
        if bias is None or any(one.sparse is not None for one in messages):
            return None

        def rows(flat: Tensor) -> Tensor:
            named = layout.split(flat.cpu())
            return torch.cat([named[layer.weight], named[bias][:, None]], 1)

        gradients = [rows(one.gradient) for one in messages]
        if target.count >= min(len(gradients[0]), gradients[0].shape[1] - 1):
            return None
        if len(messages) == 1:
            span = row_space(gradients[0], target.count, target.noise_std)
        elif all(one.noise_std > 0 for one in messages):
            scaled = [gradient / one.noise_std for gradient, one in zip(gradients, messages)]
            span = row_space(torch.cat(scaled), target.count, 1.0)
        else:
            span = row_space(torch.cat([g / g.norm().clamp_min(1e-30) for g in gradients]), target.count)
        one_step = all(len(recipe.sizes) == 1 for recipe in recipes)
        told = span.told(CLEAR if one_step else CLEAR_UNCHECKED)
        if told is None:
            return None
        planes = tuple(
            torch.cat([rows(weights) for weights in known]) for known in zip(*(one.known_weights for one in messages))
        )
        return cls(chain, gradients[0], told, layout.split(target.weights.cpu()), planes, one_step)

    @property
    def rank(self) -> int:
        """How many different images there are."""
        return len(self.span.values)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, o), each neuron's largest output before the ReLU, of inputs (n, i)."""
        return torch.stack([inputs @ plane[:, :-1].T + plane[:, -1] for plane in self.planes]).amax(0)

    def blind_columns(self, seed: int) -> Columns:
        """The images' own columns, as far as they are found without a guess. seed: of the starts."""
        plane = torch.stack(self.planes).mean(0).double()
        return blind_columns(self.span, plane @ self.span.right, seed)

    def without_guess(self, columns: Columns, labels: Tensor, shape: tuple[int, ...]) -> Tensor | None:
        """Images (n, *shape) in [0, 1] in the order of `labels`, of columns alone; None unless all are found. Copies
        are handed out by what explains the gradient best.

        An image is found if its pixels lie in [0, 1] by themselves, and if it leaves off the very neurons where its
        column is 0: nothing makes those of a wrong one do either.

        Args:
            columns: of `blind_columns`. labels: (n,) of each image. shape: (channels, height, width).
        """
        if len(columns) < self.rank:
            return None
        answer = solved(columns, self.span, self.outputs)
        images = self._images(answer.inputs, shape)
        if not (answer.found & _boxed(images)).all():
            return None
        return images.clamp(0, 1)[self.by_label(answer.inputs, labels)]

    def with_guess(
        self, columns: Columns | None, labels: Tensor, images: Tensor, seed: int
    ) -> tuple[Tensor | None, Tensor | None]:
        """Images (n, *shape) in [0, 1] in the order of `labels`: those that could be made exact in the place of
        `images`, None where no image was found, by its pixels, which lie in [0, 1] by themselves; and, where all are
        found and are fewer than labels, copies of them for all labels, else None.

        Args:
            columns: some that are known, or none. labels: (n,) of each. images: (n, *shape), a solution near enough
                that it leaves off about the right neurons. seed: of the draws.
        """
        mean, std = self.chain.mean.to(images), self.chain.std.to(images)
        unmixed = unmix(self.span, ((images - mean) / std).flatten(1), self.outputs, seed, columns)
        shape, inputs = tuple(images.shape[1:]), unmixed.inputs
        found = self._images(inputs, shape)
        right = unmixed.found & _boxed(found)
        if not right.any():
            return None, None
        order = self.by_label(inputs, labels) if right.all() else torch.arange(len(images))
        copies = None
        if int(right.sum()) == self.rank < len(images):
            copies = found[right].clamp(0, 1)[self.by_label(inputs[right], labels)]
        return torch.where(right.view(-1, 1, 1, 1), found, images).clamp(0, 1)[order], copies

    def _images(self, inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
        return inputs.view(-1, *shape) * self.chain.std.to(inputs) + self.chain.mean.to(inputs)

    def by_label(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """(n,) which of the inputs (r, i) each label (n,) is of."""
        way = _by_label if len(inputs) == len(labels) else handed_out
        return way(self.chain, self.weights, self.gradient, inputs, labels)


def _boxed(images: Tensor) -> Tensor:
    """(n,) bool, whose pixels lie in [0, 1]."""
    inside = (images >= -OUT) & (images <= 1 + OUT)  # also false for what is not a number
    return (~inside).flatten(1).float().mean(1) < OFTEN


def _by_label(chain: Chain, weights: dict[str, Tensor], gradient: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """The order (n,) of the inputs in which each has the label whose error fits its share of the gradient best."""
    n = len(inputs)
    errors = errors_of(inputs, gradient)
    errors = errors / errors.norm(dim=1, keepdim=True).clamp_min(1e-30)
    fit = torch.empty(n, n, dtype=torch.float64)
    for label in labels.unique():
        expected = chain.first_errors(weights, inputs, label.expand(n)).double()
        expected = expected / expected.norm(dim=1, keepdim=True).clamp_min(1e-30)
        fit[:, labels == label] = (errors * expected).sum(1, keepdim=True)
    image, place = linear_sum_assignment(fit.numpy(), maximize=True)
    order = torch.empty(n, dtype=torch.long)
    order[torch.as_tensor(place)] = torch.as_tensor(image)
    return order


@dataclass(frozen=True, eq=False)
class Reading:
    """What the first layer tells of a target before anything is guessed.

    columns: found so far. solution: of them alone, None where they are not all found. certain: the message itself, at
    its known noise, says that the solution is right.
    """

    layer: FirstLayer
    columns: Columns
    solution: Solution | None
    certain: bool
