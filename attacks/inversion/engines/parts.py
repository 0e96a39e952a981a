"""What a layer does to its candidates by hand, in the passes of `convolved.py`; and what is compared of its gradient.

Where tangents come in, each candidate has a direction of its own, v = p G* + 2q G, beside the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Of one tensor ⟨G, G*⟩ and ‖G‖², or the objective's partial derivatives by them; each (T,).
DotAndSquare = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Some:
    """Candidates `first`, … of all; `repeat` of one target follow each other."""

    first: int
    many: int
    repeat: int

    def of(self, observed: Tensor) -> Tensor:
        """Each one's own (many, …), of every target's (targets, …)."""
        if len(observed) == 1:
            return observed.expand(self.many, *observed.shape[1:])
        if self.repeat == 1:
            return observed[self.first : self.first + self.many]
        return observed[torch.arange(self.first, self.first + self.many, device=observed.device) // self.repeat]

    def shares(self) -> list[tuple[int, int]]:
        """Which targets they are of, and how many of each."""
        counts: dict[int, int] = {}
        for candidate in range(self.first, self.first + self.many):
            target = candidate // self.repeat
            counts[target] = counts.get(target, 0) + 1
        return list(counts.items())


def bent(back: Tensor, slope: Tensor, curve: Tensor | None, tangent: Tensor, grown: Tensor) -> Tensor:
    """back · f'(z) + f''(z) · tangent · grown.

    Args:
        back, tangent: behind and at the activation; both are overwritten. slope, curve: of its `chain.bend`.
        grown: the error before the slope.
    """
    change = back.mul_(slope)
    return change if curve is None else change.addcmul_(tangent.mul_(curve), grown)


def compare(own: Tensor, observed: Tensor) -> DotAndSquare:
    """What is compared of gradients (T, numbers) that were formed."""
    return torch.linalg.vecdot(own, observed), torch.linalg.vecdot(own, own)


def along(own: Tensor, observed: Tensor, of_dot: Tensor, of_square: Tensor) -> Tensor:
    """v (T, numbers) of gradients that were formed. of_dot, of_square: derivatives (T,) by what was compared."""
    return (of_dot[:, None] * observed).addcmul_(of_square[:, None], own, value=2)
