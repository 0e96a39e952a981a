"""What a layer does to its candidates by hand, in the passes of `convolved.py`; what is compared of its gradient; and
the product that all passes spend their time in.

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


class Linear:
    """rows ↦ rows @ weight.T (+ bias) for a weight (o, i) used hundreds of times with batches of about `rows` rows.

    On a CPU, in float32, oneDNN's kernel is called directly and the weight laid out for it once. It is the same
    arithmetic in full float32; but PyTorch sends `addmm` to MKL, which on AMD processors does not use AVX-512: for 25
    rows and 3072 × 1024 numbers we measured 90 GFLOP/s there and 260 here on one core. Both operators are those that
    `torch.compile` emits for such a layer. Everything else (float64, other devices, a PyTorch without oneDNN) uses
    `addmm`.

    >>> Linear(torch.tensor([[1.0, 2.0]]), rows=1)(torch.tensor([[3.0, 4.0]]))
    tensor([[11.]])
    """

    def __init__(self, weight: Tensor, rows: int) -> None:
        self.packed = _onednn(weight)
        weight = weight.contiguous()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, rows) if self.packed else weight

    def __call__(self, rows: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(rows, self.weight, bias, "none", [], "")
        return torch.nn.functional.linear(rows, self.weight, bias)


def _onednn(weight: Tensor) -> bool:
    wanted = ("_reorder_linear_weight", "_linear_pointwise")
    return bool(
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkldnn.enabled
        and all(hasattr(torch.ops.mkldnn, name) for name in wanted)
    )
