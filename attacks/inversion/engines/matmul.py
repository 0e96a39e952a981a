"""Products of many batches of rows with the same matrix."""

from __future__ import annotations

import torch
from torch import Tensor


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
