"""Images that a client has more than once: which they are, how often each, and with which labels.

Copies of an image have one direction in the span of the first layer's update (`row_space.py`), whatever their labels,
and switch on the same neurons. So they are found as one image, whose error is the sum of theirs. That sum is s Σ_y k_y
δ_y, with k_y copies of label y, δ_y the error of one, which the weights tell, and s the same for all images of a
gradient; the non-negative least squares of every image's error tell s k_y, and the sum of all k is the number of
images. After several steps the δ_y are those at the weights before them, so the numbers are a guess.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from scipy.optimize import nnls
from torch import Tensor

from ....defenses.chain import Chain

FITS = 4  # of numbers and their scale in turns
FEW = 0.01  # weight of the number of copies, in the least squares: copies of all labels, each as likely as the network
# takes it for, have no error, so any number of them explains the same


def errors_of(inputs: Tensor, gradient: Tensor) -> Tensor:
    """(r, o) in float64, by which these inputs (r, i) have the gradient of a layer's weights and bias (o, i + 1), or of
    its weights alone (o, i).
    """
    seen = torch.cat([inputs, torch.ones(len(inputs), gradient.shape[1] - inputs.shape[1])], 1).double()
    return torch.linalg.lstsq(seen.T, gradient.double().T).solution


def handed_out(chain: Chain, weights: Mapping[str, Tensor], gradient: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """(n,) which of the r different images each label belongs to; every image has one at least.

    Args:
        chain: the network. weights: of it, by name. gradient: (o, i + 1), of the first layer's weights and bias.
        inputs: (r, i), what that layer sees of the images, r at most n. labels: (n,) int64, of all images.
    """
    count, kinds = len(inputs), labels.unique()
    errors = errors_of(inputs, gradient)
    single = torch.stack([chain.first_errors(weights, inputs, kind.expand(count)).double() for kind in kinds], 2)
    few = FEW * single.norm(dim=1).mean(1)[:, None, None].expand(-1, 1, len(kinds))
    single, errors = torch.cat([single, few], 1), torch.cat([errors, errors.new_zeros(count, 1)], 1)
    shares = torch.stack([torch.as_tensor(nnls(own.numpy(), error.numpy())[0]) for own, error in zip(single, errors)])
    shares *= len(labels) / shares.sum().clamp_min(1e-300)
    totals = (labels[:, None] == kinds).sum(0)
    counts = whole_numbers(shares, totals)
    for _ in range(FITS):  # what is spread over labels by later steps is no copies, and must not make the others small
        shares *= (shares * counts).sum() / shares.square().sum().clamp_min(1e-300)
        counts = whole_numbers(shares, totals)
    owners = torch.empty(len(labels), dtype=torch.long)
    for place, kind in enumerate(kinds):
        owners[labels == kind] = torch.arange(count).repeat_interleave(counts[:, place])
    return owners


def whole_numbers(shares: Tensor, totals: Tensor) -> Tensor:
    """Whole numbers (r, c) near `shares` (r, c), by squares, whose columns sum to `totals` (c,) and each of whose rows
    to 1 or more. The sum of `totals` is at least r.

    >>> whole_numbers(torch.tensor([[1.9, 0.0], [0.2, 1.1]]), torch.tensor([2, 1])).tolist()
    [[2, 0], [0, 1]]
    """
    counts = torch.zeros(shares.shape, dtype=torch.long)
    for kind, total in enumerate(totals.tolist()):
        for _ in range(total):  # each where one more costs least
            counts[(counts[:, kind] - shares[:, kind]).argmin(), kind] += 1
    while not (counts.sum(1) > 0).all():  # an image without a label takes the one that costs least
        row = int(counts.sum(1).argmin())
        price = shares - counts - shares[row]
        price[(counts == 0) | (counts.sum(1, keepdim=True) < 2)] = torch.inf
        giver, kind = divmod(int(price.argmin()), len(totals))
        counts[giver, kind] -= 1
        counts[row, kind] += 1
    return counts
