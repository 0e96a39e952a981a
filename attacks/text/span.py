"""What the gradient of linear layers tells of their inputs: it is a sum of error times input, so its rows lie in the span
of the inputs, and an input that was not there does not (DAGER, arXiv:2405.15586, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

CLEAR = 100.0  # the least ratio of neighbouring singular values that counts as a gap; of noise it is below 2
SAME = 1e-3  # an input's share outside the span from which it was not there: true ones have 1e-14 to 1e-5, others 1e-2
FLOOR = 1e-15  # of the largest singular value: float64's rounding


@dataclass(frozen=True, eq=False)
class Span:
    """The span of the inputs of some linear layers. basis: (width, rank). gap: the ratio of the singular values at the
    rank's end. full: as many inputs as the width, or more, so that nothing is told.
    """

    basis: Tensor
    gap: float

    @property
    def rank(self) -> int:
        return self.basis.shape[1]

    @property
    def clear(self) -> bool:
        """Whether inputs that were there are told from others."""
        return self.gap >= CLEAR and self.rank < len(self.basis)

    @classmethod
    def of(cls, gradients: Sequence[Tensor]) -> Span:
        """Of layers (outputs, width) that read the same: stacked, each divided by its norm, as a sentence's errors of
        keys sum to zero, so that keys alone span differences of inputs alone.
        """
        stack = torch.cat([g.double() / g.double().norm().clamp_min(torch.finfo(torch.float64).tiny) for g in gradients])
        _, sizes, right = torch.linalg.svd(stack, full_matrices=False)
        if not float(sizes[0]) > 0:
            return cls(right[:0].T, 0.0)
        sizes = torch.cat([sizes, sizes.new_zeros(1)]).clamp_min(FLOOR * float(sizes[0]))
        ratios = sizes[:-1] / sizes[1:]
        rank = int(ratios.argmax()) + 1
        return cls(right[:rank].T, float(ratios[rank - 1]))

    def outside(self, inputs: Tensor) -> Tensor:
        """The share of each input (..., width) that lies outside, in [0, 1]."""
        rest = inputs - (inputs @ self.basis) @ self.basis.T
        return rest.norm(dim=-1) / inputs.norm(dim=-1)


def errors_of(gradient: Tensor, inputs: Tensor) -> Tensor:
    """The errors (k, outputs) of k independent inputs (k, width), whose products with them add up to the gradient
    (outputs, width).
    """
    return torch.linalg.lstsq(inputs.T, gradient.double().T).solution


def texts_of(errors: Tensor, texts: int) -> Tensor:
    """How far any two of k words belong to one text, (k, k), by their keys' errors (k, outputs).

    Attention's weights sum to 1, so the errors of keys sum to zero over every text: what the errors are blind to are
    the texts' indicators (ours). 1/length for two words of one text, 0 for others.
    """
    left, sizes, _ = torch.linalg.svd(errors / errors.norm().clamp_min(torch.finfo(torch.float64).tiny))
    blind = left[:, len(errors) - texts :]
    del sizes
    return blind @ blind.T
