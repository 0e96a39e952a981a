"""The first batch of several steps of Adam or RMSprop, without knowing which images were in it.

Each weight of the first layer moves by a known function of its gradients at the K steps (`local_training.linearised`),
and these gradients are matrices of low rank: (errors of a batch) × (its images and 1). So K pairs of thin factors are
fitted to the update by themselves, without a network, labels or an order of batches: 1024 × 3073 numbers for some
thousands of unknowns a batch. The first step moves every weight by a whole learning rate, so its factors come out
clearest. Their columns are demixed by the zeros behind the ReLU (`columns.py` says why), here blindly, as a batch is
small. What only the ratios of gradients tell stays open: a gain of each pixel, the same in all images, near 1 as the
fit begins at a solution. An image is believed where the network's own errors, for it and a label, are the column found.
"""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ...defenses.chain import Chain, open_chain
from ...defenses.layout import Layout
from ...defenses.randomness import generator
from .local_training import Recipe, linearised
from .target import Target

LARGEST, STEPS, ROWS = 12, 6, 512  # the largest batch and most steps tried; neurons of the first layer used
STAGES = ((0.3, 50), (0.1, 50), (0.03, 80))  # softening, in the size of gradients, and iterations
QUIET = 0.02  # noise of the update, in learning rates, above which nothing is tried
SUBSETS, TRIED, NEAR = 6000, 300, 0.08  # neurons' subsets drawn; the best kept; cosine below which a neuron may be off
APART = 0.3  # what of a column those before it leave unexplained
ALIKE = 0.5  # cosine of a column and the network's errors for its image; of wrong images it is about 0

Factors = tuple[Tensor, Tensor]  # images and 1 (b, i + 1), errors (b, o): a step's gradient is errorsᵀ · images


def first_batch(module: nn.Module, target: Target, labels: Tensor, images: Tensor, seed: int) -> Tensor | None:
    """Images (n, *shape) in [0, 1], those of the first batch that were found in the place of `images`; None if none
    was.

    Args:
        module: the network; with a linear first layer and a ReLU, or nothing is tried. target: of as many images.
        labels: (n,) of each. images: (n, *shape), a solution to begin at. seed: of all draws.
    """
    chain, recipe = open_chain(module), target.recipe
    if chain is None or not chain.rectified or chain.layers[0].bias is None or recipe is None or target.update is None:
        return None
    if recipe.linear or recipe.epochs is None or not 1 < len(recipe.sizes) <= STEPS or recipe.sizes[0] > LARGEST:
        return None
    if target.noise_std > QUIET * recipe.lr or sum(recipe.sizes) != len(images) * recipe.epochs:
        return None
    layout, layer = Layout.of(module), chain.layers[0]
    weights = target.weights.cpu()
    named = layout.split(target.update.cpu())
    observed = torch.cat([named[layer.weight], named[chain.layers[0].bias or ""][:, None]], 1)[:ROWS].contiguous()
    mean, std = chain.mean.to(images), chain.std.to(images)
    inputs = ((images - mean) / std).flatten(1)
    rng = generator(seed, "first batch", target.key)
    order = torch.cat([torch.randperm(len(images), generator=rng) for _ in range(recipe.epochs)])
    factors = _simulated(
        module, layout, chain, weights, recipe, images, inputs, labels, list(order.split(recipe.sizes))
    )
    for softening, iterations in STAGES:
        factors = _fit(observed, recipe, [_balanced(f) for f in factors], softening, iterations)
    found, errors = _demixed(*factors[0], rng)
    fit = torch.empty(len(found), len(labels), dtype=torch.float64)
    for label in labels.unique():
        expected = chain.first_errors(layout.split(weights), found.float(), label.expand(len(found)))[:, :ROWS].double()
        likely = F.cosine_similarity(errors, expected.sign() * expected.abs().sqrt(), dim=1)
        fit[:, labels == label] = likely[:, None]
    apart = torch.cdist(found.float(), inputs).double()
    column, place = linear_sum_assignment((fit - 1e-3 * apart / apart.mean()).numpy(), maximize=True)
    right = torch.as_tensor(fit.numpy()[column, place]) > ALIKE
    if not right.any():
        return None
    better = images.clone()
    seen = (found.float().view(-1, *images.shape[1:]) * std + mean).clamp(0, 1)
    better[torch.as_tensor(place)[right]] = seen[torch.as_tensor(column)[right]]
    return better


def _simulated(
    module: nn.Module,
    layout: Layout,
    chain: Chain,
    weights: Tensor,
    recipe: Recipe,
    images: Tensor,
    inputs: Tensor,
    labels: Tensor,
    batches: list[Tensor],
) -> list[Factors]:
    """The first layer's factors at every step of a client with these images and batches."""
    gradients: list[Tensor] = []
    factors, now = [], weights
    for rows in batches:
        named = {name: w.detach().requires_grad_() for name, w in layout.split(now).items()}
        with torch.enable_grad():
            loss = F.cross_entropy(functional_call(module, named, (images[rows],)), labels[rows])
            own = torch.autograd.grad(loss, list(named.values()))
        gradients.append(layout.join(dict(zip(named, own))))
        errors = chain.first_errors(layout.split(now), inputs[rows], labels[rows])[:, :ROWS] / len(rows)
        factors.append((torch.cat([inputs[rows], torch.ones(len(rows), 1)], 1), errors))
        now = weights + linearised(recipe, gradients)[0]
    return factors


def _balanced(factors: Factors) -> Factors:
    """The same product with the images' side orthogonal, in which the fit goes on fastest."""
    left, values, right = _decomposed(*factors)
    scale = values.mean().sqrt()
    return (right.T * scale).float(), (left * values / scale).T.float()


def _decomposed(images: Tensor, errors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """errorsᵀ · images = left · diag(values) · rightᵀ, of rank b."""
    right, r = torch.linalg.qr(images.T.double())
    left, s = torch.linalg.qr(errors.T.double())
    u, values, vt = torch.linalg.svd(s @ r.T)
    return left @ u, values, right @ vt.T


def _fit(observed: Tensor, recipe: Recipe, start: list[Factors], softening: float, iterations: int) -> list[Factors]:
    """The factors whose softened steps add up to `observed` (o, i + 1) best, by L-BFGS."""
    images, errors = ([f[side].clone().requires_grad_() for f in start] for side in (0, 1))
    soft = softening * float((start[0][1].T @ start[0][0]).square().mean().sqrt())
    total = observed.square().sum()
    search = torch.optim.LBFGS(
        [*images, *errors],
        max_iter=iterations,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=0,
        tolerance_change=0,
    )

    def distance() -> float:
        with torch.no_grad():
            update, back = linearised(recipe, [e.T @ x for x, e in zip(images, errors)], soft)
            left = update - observed
            for x, e, slope in zip(images, errors, back(left * (2 / total))):
                x.grad, e.grad = e @ slope, x @ slope.T
            return float(left.square().sum() / total)

    search.step(distance)
    return [(x.detach(), e.detach()) for x, e in zip(images, errors)]


def _demixed(images: Tensor, errors: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """What the first layer sees of each image found (m, i), and its errors (m, o), each neuron's scaled to about the
    same size, as the fit leaves a scale of each neuron open.
    """
    left, values, right = _decomposed(images, errors)
    neurons, turn = _even(left)
    rank = left.shape[1]
    rows = torch.rand(SUBSETS, len(neurons), generator=rng).argsort(1)[:, : rank - 1]
    mix = _least(neurons[rows].mT @ neurons[rows])
    mix = mix[_off(mix, neurons).argsort(descending=True, stable=True)[:TRIED]]
    for soft in (0.1, 0.08, 0.06, 0.06, 0.06, 0.06):
        cosine = (mix @ neurons.T).abs()
        weight = (cosine < 0.3) / (cosine.square() + soft**2)
        mix = _least(torch.einsum("oa,no,ob->nab", neurons, weight, neurons))
    kept, basis = list[int](), mix.new_zeros(0, rank)
    for row in _off(mix, neurons).argsort(descending=True, stable=True).tolist():
        rest = mix[row] - basis.T @ (basis @ mix[row])
        if len(kept) < rank and rest.norm() > APART:
            kept.append(row)
            basis = torch.cat([basis, (rest / rest.norm())[None]])
    # left diag(values) rightᵀ = (left turn) (turn⁻¹ diag(values) rightᵀ); images found are duals of their columns
    seen = torch.linalg.pinv(mix[kept].T) @ torch.linalg.solve(turn, torch.diag(values) @ right.T)
    return seen[:, :-1] / seen[:, -1:], mix[kept] @ neurons.T * seen[:, -1:].sign()


def _even(left: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of `left` (o, r) as unit vectors in a basis where they point everywhere alike, left · turn but for their
    lengths (Tyler 1987), and that turn (r, r). Else all that is orthogonal to the strongest image looks sparse.
    """
    turn = torch.eye(left.shape[1], dtype=left.dtype)
    for _ in range(20):
        neurons = F.normalize(left @ turn)
        values, vectors = torch.linalg.eigh(neurons.T @ neurons * (left.shape[1] / len(left)))
        turn = turn @ (vectors / values.clamp_min(1e-12).sqrt()) @ vectors.T
    return F.normalize(left @ turn), turn


def _off(mix: Tensor, neurons: Tensor) -> Tensor:
    """At how many neurons each combination is about 0."""
    return ((mix @ neurons.T).abs() < NEAR).sum(1)


def _least(squares: Tensor) -> Tensor:
    """The unit vector (…, r) that makes each quadratic form (…, r, r) smallest."""
    return torch.linalg.eigh(squares)[1][..., 0]
