"""A solution made exact through the first layer, where that is linear with a ReLU behind it."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from ...defenses.chain import Chain, open_chain
from ...defenses.layout import Layout
from .row_space import row_space
from .target import Target
from .unmix import unmix

CLEAR = 3  # the weakest direction over the noise's, for anything to be tried
CLEAR_UNCHECKED = 100  # where the guess's own objective is of a rough reading and cannot say which images are better
OUT, OFTEN = 0.02, 0.01  # a pixel outside of [0, 1] by more than OUT; in a wrong image more than OFTEN of them are


def made_exact(module: nn.Module, target: Target, labels: Tensor, images: Tensor, seed: int) -> Tensor | None:
    """Images (n, *shape) in [0, 1] in the order of `labels`, those that could be made exact in the place of `images`.

    None where nothing could be: the network is no chain of linear layers that begins with a ReLU, several steps of Adam
    or RMSprop, noise or too many images hide the span, or no image was found. An image counts as found if its pixels
    lie in [0, 1] by themselves, which nothing makes those of a wrong one do.

    Args:
        module: the network. target: of as many images. labels: (n,) of each. images: (n, *shape), a solution near
            enough that it leaves off about the right neurons. seed: of the draws.
    """
    chain = open_chain(module)
    recipe = target.recipe
    if chain is None or not chain.rectified or (recipe and not recipe.linear and len(recipe.sizes) > 1):
        return None
    layer, layout = chain.layers[0], Layout.of(module)
    observed = layout.split(target.gradient)
    if layer.bias is None or target.count >= min(observed[layer.weight].shape):
        return None
    gradient = torch.cat([observed[layer.weight], observed[layer.bias][:, None]], 1).cpu()
    span = row_space(gradient, target.count, target.noise_std)
    one_step = recipe is None or len(recipe.sizes) == 1
    if span.clearness < (CLEAR if one_step else CLEAR_UNCHECKED):
        return None
    known = [layout.split(w.cpu()) for w in target.known_weights]
    mean, std = chain.mean.to(images), chain.std.to(images)

    def outputs_of(inputs: Tensor) -> Tensor:
        return torch.stack([inputs @ w[layer.weight].T + w[layer.bias or ""] for w in known]).amax(0)

    guess = ((images - mean) / std).flatten(1)
    unmixed = unmix(span, guess, outputs_of, seed)
    found = unmixed.inputs.view_as(images) * std + mean
    outside = ((found < -OUT) | (found > 1 + OUT)).flatten(1).float().mean(1)
    right = unmixed.found & (outside < OFTEN)
    if not right.any():
        return None
    order = _by_label(chain, known[0], gradient, unmixed.inputs, labels) if right.all() else torch.arange(len(images))
    return torch.where(right.view(-1, 1, 1, 1), found, images).clamp(0, 1)[order]


def _by_label(chain: Chain, weights: dict[str, Tensor], gradient: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """The order (n,) of the inputs in which each has the label whose error fits its share of the gradient best."""
    n = len(inputs)
    errors = torch.linalg.lstsq(torch.cat([inputs, torch.ones(n, 1)], 1).double().T, gradient.double().T).solution
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
