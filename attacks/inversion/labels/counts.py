"""How often each class occurs behind the gradient of a classifier's bias, or behind what several steps of an optimiser
added to it, or behind the errors of any other loss; and labels.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ....defenses.losses import Loss
from ....defenses.randomness import generator
from ..read.local_training import Recipe, moved
from .classifier import KNOW_THEM

DEALS = 128  # of a class's records to the steps' batches, to average over


def nearest_counts(estimate: Tensor, count: int) -> Tensor:
    """The whole numbers (classes,) from 0 on, of sum `count`, nearest to an estimate (classes,) in squared distance.

    Nearest because steps of one, each where it costs least, are optimal for a separable convex cost. Of equal ones the
    lower class.

    Raises:
        ValueError: the estimate is not a finite vector, or the count is below 1.

    >>> nearest_counts(torch.tensor([1.6, 0.7, -0.4, 1.1]), 3).tolist()
    [1, 1, 0, 1]
    """
    if estimate.dim() != 1 or count < 1 or not torch.isfinite(estimate).all():
        raise ValueError(
            f"an estimate of shape {tuple(estimate.shape)} for a count of {count}: expected finite numbers (classes,)"
            " and a count of at least 1"
        )
    wanted = estimate.detach().double().cpu().clamp_min(0)
    counts = wanted.floor()
    while counts.sum() < count:
        counts[int((wanted - counts).argmax())] += 1
    while counts.sum() > count:
        spare = torch.where(counts > 0, wanted - counts, torch.inf)
        counts[int(spare.argmin())] -= 1
    return counts.long()


def as_labels(counts: Tensor) -> Tensor:
    """Sorted labels (n,) of counts (classes,).

    >>> as_labels(torch.tensor([2, 0, 1])).tolist()
    [0, 0, 2]
    """
    return torch.repeat_interleave(torch.arange(len(counts)), counts.long().cpu())


def labels_from_bias(bias_gradient: Tensor, count: int) -> Tensor:
    """The `count` labels (n,), sorted, repeats allowed, that explain the gradient (classes,) of a classifier's bias.

    For a mean cross-entropy the gradient at class c is (mean probability of c) − n_c/n: only present classes can be
    negative, and each label of a class adds the same amount m = Σ_{negative} gradient / n. Every negative class gets
    one label, most negative first, and is raised by −m; then the lowest class gets one until there are `count` (Wainakh
    et al. 2022, arXiv:2105.09369, as corrected to biases and repeats in JonasGeiping/breaching, "bias-corrected"). Only
    the entries' ratios matter, so an unknown scale does not. It weakens with training and fails under noise whose std
    comes near 1/classes. If no entry is negative (noise alone can do that) m is −Σ|gradient| / n.

    >>> labels_from_bias(torch.tensor([0.25, -0.5, 0.25, -0.25, 0.25]), 3).tolist()
    [1, 1, 3]
    """
    if bias_gradient.dim() != 1 or count < 1:
        raise ValueError(
            f"bias_gradient has shape {tuple(bias_gradient.shape)} and count is {count}, expected (classes,) and at"
            " least 1"
        )
    left = bias_gradient.detach().double().clone()
    negative = left < 0
    impact = (left[negative].sum() if negative.any() else -left.abs().sum()) / count
    present = left.argsort()[: min(count, int(negative.sum()))]
    left[present] -= impact
    labels = present.tolist()
    while len(labels) < count:
        lowest = int(left.argmin())
        labels.append(lowest)
        left[lowest] -= impact
    return torch.tensor(sorted(labels))


def predicted_counts(gradient: Tensor, start: Tensor, end: Tensor, count: int) -> Tensor:
    """Counts (classes,) behind the mean gradient g of the bias over SGD's or momentum's steps, or behind one gradient:
    n·(p − g), p the mean of the predicted probabilities at the weights before and after (Geng et al. 2021,
    arXiv:2110.09074; Dimitrov et al. 2022, arXiv:2206.12395). Exact where p is the batches' own mean and the steps use
    each record equally.

    Args:
        gradient: (classes,), of known scale. start, end: (classes,) mean softmax at the two weights. count: n ≥ 1.

    >>> even = torch.full((4,), 0.25)
    >>> predicted_counts(even - torch.tensor([0.5, 0.5, 0, 0]), even, even, 4).tolist()
    [2, 2, 0, 0]
    """
    return nearest_counts(count * ((start + end).double() / 2 - gradient.double()), count)


def dealt_counts(
    update: Tensor, start: Tensor, end: Tensor, recipe: Recipe, count: int, noise_std: float = 0.0
) -> Tensor:
    """The likeliest counts (classes,) behind any optimiser's update of the bias.

    A class with m of n records has at a step whose batch of B got x of them the gradient p − x/B; p moves evenly from
    `start` to `end`. Dealing m records to the batches by lot many times, and running the optimiser on each deal
    (`local_training.moved`), gives the mean and variance of the update for every m; of all whole numbers of sum n those
    of the greatest Gaussian likelihood are found by dynamic programming. Ours; it is what is left to say of Adam, whose
    first step tells signs alone.

    Args:
        update: (classes,), in parameter units. start, end: (classes,) mean softmax at the two weights.
        recipe: of the training. count: n ≥ 1. noise_std: in each component of `update`.
    """
    mean, spread = _moves(start.double(), end.double(), recipe, count)
    variance = spread + noise_std**2 + (0.1 * recipe.lr) ** 2  # p is a guess: a tenth of a step, not to trust it more
    cost = (update.double()[:, None] - mean).square() / variance + variance.log()
    return torch.as_tensor(_cheapest(cost.numpy(), count))


def _moves(start: Tensor, end: Tensor, recipe: Recipe, count: int) -> tuple[Tensor, Tensor]:
    """(classes, n + 1) each: mean and variance of a class's update, if it has 0, 1, …, n records."""
    steps = len(recipe.sizes)
    shares = torch.as_tensor(_deals(recipe, count)).unbind(2)
    means, variances = [], []
    for before, after in zip(start.tolist(), end.tolist()):  # a class at a time, for memory
        predicted = [before + (k + 0.5) / steps * (after - before) for k in range(steps)]
        by_deal = moved(recipe, [recipe.factor * (p - share) for p, share in zip(predicted, shares)])
        means.append(by_deal.mean(0))
        variances.append(by_deal.var(0, unbiased=False))
    return torch.stack(means), torch.stack(variances)


def _deals(recipe: Recipe, count: int) -> np.ndarray:
    """(deals, n + 1, steps): the share of a class with m records in each step's batch; a pass after the other."""
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator(0, "label deals"))))
    shares = np.zeros((DEALS, count + 1, len(recipe.sizes)))
    for deal in range(DEALS):
        first = count
        for step, size in enumerate(recipe.sizes):
            if first >= count:
                order, first = rng.permutation(count), 0  # record i is of the class where i < m
            batch = order[first : first + size]
            shares[deal, :, step] = (batch[:, None] < np.arange(count + 1)).mean(0)
            first += size
    return shares


def _cheapest(cost: np.ndarray, count: int) -> np.ndarray:
    """m_c for each class, of sum `count` and least sum of cost[c, m_c]. cost: (classes, count + 1)."""
    best, chosen = np.full(count + 1, np.inf), []
    best[0] = 0.0
    for row in cost:
        # totals (t) by how many this class has (m): those before it have t − m
        table = np.full((count + 1, count + 1), np.inf)
        for m in range(count + 1):
            table[m:, m] = best[: count + 1 - m] + row[m]
        chosen.append(table.argmin(1))
        best = table.min(1)
    counts = np.zeros(len(cost), dtype=np.int64)
    left = count
    for c in range(len(cost) - 1, -1, -1):
        counts[c] = chosen[c][left]
        left -= counts[c]
    return counts


def labels_by_errors(gradient: Tensor, outputs: Tensor, loss: Loss, count: int, scaled: bool) -> Tensor:
    """The `count` labels (n,), sorted, behind the gradient (outputs,) of a classifier's bias, of any loss: the mean of
    records' errors at the outputs. What the error of a class is on average, the network says of random images.

    Args:
        gradient: of unknown positive scale unless `scaled`. outputs: (m, outputs), of random images. loss: what was
            minimised. count: n ≥ 1.

    Raises:
        ValueError: the gradient does not tell them.
    """
    width = outputs.shape[1]
    if count == 1 and loss.several:
        return ((gradient < 0).long() << torch.arange(width)).sum()[None]
    if loss.several or (width == 1 and count > 1 and not scaled):
        what = "of sets of labels the gradient tells how often each stands, not which stand together"
        why = what if loss.several else "one output's gradient of unknown size tells the label of one record alone"
        raise ValueError(f"labels cannot be inferred: {why}; {KNOW_THEM}")
    if count == 1:
        return gradient.argmin()[None] if width > 1 else (gradient < 0).long()
    if loss.softmax and not scaled:
        return labels_from_bias(gradient, count)
    errors, weights = _errors(outputs, loss)
    off = errors - weights[:, None] * gradient  # whose sum over the batch is 0
    if not scaled:
        unit = gradient / gradient.norm().clamp_min(1e-300)
        off = errors - (errors @ unit)[:, None] * unit
    system = torch.cat([off.T, off.new_ones(1, len(off)) * off.abs().max()])
    aim = torch.cat([off.new_zeros(width), off.new_full((1,), count) * off.abs().max()])
    estimate = torch.linalg.lstsq(system, aim[:, None], driver="gelsd").solution[:, 0]
    return as_labels(nearest_counts(estimate, count))


def _errors(outputs: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """(classes, outputs), the mean error of a record of each class, and (classes,), what it counts for."""
    z, many = outputs.double().requires_grad_(), len(outputs)
    classes = torch.arange(max(2, outputs.shape[1]))
    with torch.enable_grad():
        errors = [torch.autograd.grad(loss.values(z, c.expand(many)).sum(), z)[0].mean(0) for c in classes]
    return torch.stack(errors), loss.size(classes[:, None]).double()
