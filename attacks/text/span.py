"""What the gradient of linear layers tells of their inputs: it is a sum of error times input, so its rows lie in the
inputs' span, and an input that was not there does not (DAGER, arXiv:2405.15586, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.stats import beta
from torch import Tensor

CLEAR = 100.0  # the least ratio of neighbouring singular values that counts as a gap; of noise it is below 2
SAME = 1e-3  # an input's share outside the span from which it was not there: true ones have 1e-14 to 1e-5, others 1e-2
FLOOR = 1e-15  # of the largest singular value: float64's rounding
SENT = 3e-8  # the same of a message in float32
LEEWAY = 10.0  # times the rounding that a true input lies outside, at most
WORD, TEXT = (
    0.1,
    0.01,
)  # the same through adapters' few rows: absent words have 0.3 and more, texts with a wrong word 0.03


@dataclass(frozen=True, eq=False)
class SpanOfInputs:
    """The span of the inputs of some linear layers. basis: (width, rank). gap: the ratio of the singular values at the
    rank's end. rows: of the layers' gradients together, more than which the rank cannot be. part: the basis is what
    lies clearly above rounding, and there may be more behind it. adapters: the layers are adapters, so rows are few and
    all may be needed. rounded: the rounding of weights decides what lies above it, and not that of the message.
    """

    basis: Tensor
    gap: float
    rows: int = 0
    part: bool = False
    adapters: bool = False
    rounded: bool = False

    @property
    def rank(self) -> int:
        return self.basis.shape[1]

    @property
    def clear(self) -> bool:
        """Whether inputs that were there are told from others. One row less than all is no gap of the inputs: errors in
        front of a LayerNorm sum to zero.
        """
        most = len(self.basis) if self.adapters else min(len(self.basis), self.rows - 1)
        return self.gap >= CLEAR and self.rank < most

    @classmethod
    def of(
        cls, gradients: Sequence[Tensor], rounding: Sequence[float] = (), part: bool = False, adapters: bool = False
    ) -> SpanOfInputs:
        """Of layers (outputs, width) that read the same: stacked, each divided by its norm, as a sentence's errors of
        keys sum to zero, so that keys alone span differences of inputs alone.

        rounding: of a number of each gradient, where more than float32's own is in it; it decides where the rows are
          fewer than the width, as adapters' are, and all of them may be needed. part: of so few rows take all that is
          clearly above rounding, where the spectrum may have no gap. adapters: as of the class. A gradient none of
          which is clearly above rounding is left out.
        """
        edges = [each * sum(side**0.5 for side in g.shape) for each, g in zip(rounding, gradients)]
        if any(edges):
            largest = [float(torch.linalg.matrix_norm(g.double(), 2)) for g in gradients]
            kept = [k for k, (size, edge) in enumerate(zip(largest, edges)) if size > CLEAR * edge]
            if not kept:
                return cls(gradients[0].double()[:0].T, 0.0, adapters=adapters, rounded=True)
            gradients, rounding = [gradients[k] for k in kept], [rounding[k] for k in kept]
        lengths = [g.double().norm().clamp_min(torch.finfo(torch.float64).tiny) for g in gradients]
        stack = torch.cat([g.double() / length for g, length in zip(gradients, lengths)])
        _, sizes, right = torch.linalg.svd(stack, full_matrices=False)
        if not float(sizes[0]) > 0:
            return cls(right[:0].T, 0.0, adapters=adapters)
        sizes = sizes.clamp_min(FLOOR * float(sizes[0]))
        if len(sizes) < stack.shape[1]:
            most = max((each / float(length) for each, length in zip(rounding, lengths)), default=0.0)
            edge = most * sum(side**0.5 for side in stack.shape)  # the largest singular value of noise alone
            floor = max(SENT * float(sizes[0]), edge)
            if part:
                rank = max(1, int((sizes >= CLEAR * floor).sum()))
                return cls(right[:rank].T, float(sizes[rank - 1]) / floor, len(stack), True, adapters, floor == edge)
            sizes = torch.cat([sizes.clamp_min(floor), sizes.new_tensor([floor])])
        ratios = sizes[:-1] / sizes[1:]
        rank = int(ratios.argmax()) + 1
        return cls(right[:rank].T, float(ratios[rank - 1]), len(stack), adapters=adapters)

    @staticmethod
    def most_telling(spans: Mapping[int, SpanOfInputs]) -> dict[int, SpanOfInputs]:
        """Of clear spans of adapters' B, by their groups, those of the greatest rank: a text's errors of keys sum to
        zero, so that a key's B tells differences of inputs alone, and no input lies in its span.
        """
        clear = {depth: span for depth, span in spans.items() if span.clear}
        most = max((span.rank for span in clear.values()), default=0)
        return {depth: span for depth, span in clear.items() if span.rank == most}

    @property
    def rounding(self) -> float:
        """The share outside up to which rounding of the message moves an input that was there, at most."""
        return LEEWAY / self.gap

    @property
    def same(self) -> float:
        """The share outside up to which an input was there: adapters' small singular values are rounded most."""
        if self.part:
            return WORD
        if self.rows < len(self.basis):
            return min(TEXT, self.rounding)
        return SAME

    @property
    def by_chance(self) -> float:
        """How probable a share outside below `rounding` is of an input in a direction drawn at random."""
        rest = len(self.basis) - self.rank
        return float(beta.cdf(self.rounding**2, rest / 2, self.rank / 2))

    def outside(self, inputs: Tensor) -> Tensor:
        """The share of each input (..., width) that lies outside, in [0, 1]."""
        rest = inputs - (inputs @ self.basis) @ self.basis.T
        return rest.norm(dim=-1) / inputs.norm(dim=-1)
