"""Low-rank adapters beside linear layers (LoRA, Hu et al. 2022, arXiv:2106.09685), by peft's names."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any, TypeGuard

from torch import Tensor, nn

ADAPTER = "default"  # peft's name of the only one
TRAINED_WHOLE = "head"  # a classifier that nobody trained before; what peft calls modules_to_save


class LoraLinear(nn.Module):
    """base(x) + scale · B A x, with A (rank, in) as torch draws a linear layer, and B (out, rank) 0 at the start."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base_layer, self.scale = base, scale
        self.lora_A = nn.ModuleDict({ADAPTER: nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({ADAPTER: nn.Linear(rank, base.out_features, bias=False)})
        nn.init.kaiming_uniform_(self.lora_A[ADAPTER].weight, a=sqrt(5))  # type: ignore[arg-type]
        nn.init.zeros_(self.lora_B[ADAPTER].weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.scale * self.lora_B[ADAPTER](self.lora_A[ADAPTER](x))


def adapt(module: nn.Module, given: object) -> None:
    """Freezes `module` but for its head, and puts adapters beside some of its linear layers.

    Args:
        module: a network. given: rank; targets, the last part of the layers' names, such as ["query", "value"]; and
            alpha, of which α/rank is the scale (rank where nobody says).

    Raises:
        ValueError: one sentence: an unknown key, a value out of range, or no such layer.
    """
    table: dict[str, Any] = {}
    if isinstance(given, Mapping):
        table = {"alpha": given.get("rank"), **given}
    rank, targets, alpha = (table.get(name) for name in ("rank", "targets", "alpha"))
    if table.keys() - {"rank", "targets", "alpha"} or not _counts(rank) or not _names(targets) or not _positive(alpha):
        raise ValueError(
            f"lora = {str(given)[:80]}: expected {{rank = 8, targets = ['query', 'value']}}, with a whole number from 1"
            " on, names of linear layers and, if need be, alpha above 0"
        )
    linear = {path: layer for path, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    chosen = {path: layer for path, layer in linear.items() if path.rpartition(".")[2] in targets}
    if missing := [name for name in targets if not any(path.rpartition(".")[2] == name for path in chosen)]:
        known = ", ".join(dict.fromkeys(path.rpartition(".")[2] for path in linear))
        raise ValueError(f"lora: no linear layer is called {missing[0]!r}; there are {known}")
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(TRAINED_WHOLE in name.split("."))
    for path, layer in chosen.items():
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, LoraLinear(layer, rank, alpha / rank))


def _counts(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _names(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(name, str) for name in value)
