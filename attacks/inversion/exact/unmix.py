"""Exact images behind a first layer with ReLU, by the zeros of the errors, from columns alone or from a good guess.

The first layer's update is δᵀ[A | 1], with a row of A for each image and a column of δᵀ for its error, mixed together
by an unknown n × n matrix (`row_space.py`). Every column of δᵀ that is found by its zeros (`columns.py`) is a column of
that matrix's inverse. So the other images are known to be orthogonal to it, which makes their guesses better; with all
n columns the images are what they are, to the precision of the message. This asks for neither the order of batches nor
the number of steps: an error is 0 where the image leaves the neuron off at every step, about as at the weights before
and after training, both of which are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ....defenses.randomness import generator
from .columns import Columns, columns_of, fitted, least, polished, reduced, sampled, sparsest
from .row_space import RowSpace

ROUNDS, PATIENCE = 16, 4
STRAY = 0.3  # of a guess's length
REPAIRS = 4  # of columns by their own images
SAME = 0.95  # of the neurons, at least, are off where the column is 0


@dataclass(frozen=True, eq=False)
class Unmixed:
    """inputs: (n, i), one for each guess, in its order. found: (n,) bool, whose column was found; with all of them the
    inputs are exact.
    """

    inputs: Tensor
    found: Tensor


def unmix(
    span: RowSpace, guess: Tensor, outputs_of: Callable[[Tensor], Tensor], seed: int, known: Columns | None = None
) -> Unmixed:
    """The inputs behind `span`, from guesses of them.

    Args:
        span: of rank n, or less where images are copies of others: then so many guesses are improved. guess: (n, i),
            what the layer sees of the guessed images.
        outputs_of: inputs (n, i) -> (n, o), each neuron's largest output before the ReLU at the weights known to have
            been used.
        seed: of the draws. known: columns that are found already, some of n.
    """
    rng = generator(seed, "unmix", len(guess))
    first = span.coordinates(guess)
    coordinates, pool = first, columns_of(first[:0], span) if known is None else known
    found, idle, zeros = torch.zeros(len(guess), dtype=torch.bool), 0, 0.0
    for _ in range(ROUNDS):
        outputs = outputs_of(span.inputs(coordinates).to(guess)).double()
        tried = torch.cat([fitted(span, outputs), sampled(span, outputs, rng)])
        pool = reduced(sparsest(pool + polished(columns_of(tried, span), span)), span)
        owner = _owners(pool, outputs)
        found = torch.zeros(len(guess), dtype=torch.bool)
        found[owner] = True
        idle, zeros = (0, float(pool.zeros.sum())) if pool.zeros.sum() > zeros else (idle + 1, zeros)
        if idle == PATIENCE or (idle and found.sum() == min(found.numel(), span.left.shape[1])):
            break
        # Where nothing new turned up, the guesses of the rest move at random within what is left for them.
        stray = torch.randn(first.shape, generator=rng, dtype=first.dtype) * first.norm(dim=1, keepdim=True)
        stray *= (~found)[:, None] * STRAY * idle / first.shape[1] ** 0.5
        coordinates = _orthogonal(first + stray, span.rules(pool.mix), owner, span.right[-1])
    coordinates = _orthogonal(first, span.rules(pool.mix), owner, span.right[-1])
    return Unmixed(span.inputs(coordinates).to(guess), found)


def solved(columns: Columns, span: RowSpace, outputs_of: Callable[[Tensor], Tensor]) -> Unmixed:
    """The inputs that n independent columns leave no choice about, in the columns' order.

    A column of two images shows by the other's input, which is wrong; the first one's is right, and tells its column
    anew. `found` where the neurons that an input leaves off are those at which its column is 0, and no others: nothing
    makes a wrong one's agree.

    Args:
        columns: n. span, outputs_of: as of `unmix`.
    """
    for _ in range(REPAIRS):
        inverse = torch.linalg.lstsq(columns.mix.T, torch.diag(span.values), driver="gelsd").solution
        last = inverse @ span.right[-1]
        inputs = span.inputs(inverse / torch.where(last.abs() > 1e-300, last, 1e-300)[:, None])
        off = outputs_of(inputs.float()) < 0
        found = (off == columns.zero).double().mean(1) >= SAME
        if found.all():
            break
        again = columns_of(least(torch.einsum("oa,mo,ob->mab", span.left, off.to(span.left), span.left)), span)
        better = again.zeros > columns.zeros
        if not better.any():
            break
        columns = columns_of(torch.where(better[:, None], again.mix, columns.mix), span)
    return Unmixed(inputs.float(), found)


def _owners(columns: Columns, outputs: Tensor) -> Tensor:
    """(m,) the image of each column, so that images leave off the neurons where their columns are 0."""
    zero = columns.zero.to(outputs)
    zero = zero - zero.mean(1, keepdim=True)
    agreement = zero @ (outputs < 0).to(outputs).T
    column, image = linear_sum_assignment(agreement.numpy(), maximize=True)
    owner = torch.empty(len(columns), dtype=torch.long)
    owner[torch.as_tensor(column)] = torch.as_tensor(image)
    return owner


def _orthogonal(coordinates: Tensor, columns: Tensor, owner: Tensor, bias: Tensor) -> Tensor:
    """The nearest coordinates (n, r) that are orthogonal to every column (m, r) of another image and have an entry of
    1 for the bias.
    """
    nearest = []
    for image, one in enumerate(coordinates):
        others = columns[owner != image]
        rules = torch.cat([others / others.norm(dim=1, keepdim=True), bias[None] / bias.norm()])
        wanted = one.new_zeros(len(rules))
        wanted[-1] = 1 / bias.norm()
        nearest.append(one + torch.linalg.lstsq(rules, wanted - rules @ one, driver="gelsd").solution)
    return torch.stack(nearest)
