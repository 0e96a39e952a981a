"""Initial weights from which a canary shows as much as it can in a final model."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...defenses.layout import Layout
from ...defenses.losses import loss_of
from ..cost import CALL, forward_operations

ROWS = 1024  # records that go through the model together


@dataclass(frozen=True)
class CraftedStart:
    """Weights at which every record but the canary has next to no gradient, after Annamalai and De Cristofaro
    (arXiv:2405.14106, section 4: pretrained until the average gradient is small).

    A privacy proof of DP-SGD holds whatever weights the training starts from, so an auditor may choose them. From these
    the other records hardly answer what the canary and the noise do to the model: the canary adds up over the steps.
    Beyond the paper, the canary's input is learned under another record's label, so that its own label stays wrong, its
    gradient above the clip norm and its direction the same.

    steps: of Adam on all records at once, at most. lr: its learning rate. enough: mean loss to stop at. still: norm of
    the mean gradient to stop at, where further steps change nothing; a model that comes to it before it fits all
    records, or to neither, keeps the last weights, from which canaries show less.
    """

    steps: int = 2000
    lr: float = 0.05
    enough: float = 1e-5
    still: float = 1e-6

    def operations(self, module: nn.Module, shape: tuple[int, ...], records: int) -> int:
        """At most about how many it takes: three passes over each record of `shape` in every step."""
        calls = -(-records // ROWS)
        return self.steps * (3 * records * forward_operations(module, shape) + calls * CALL)

    def weights(
        self,
        module: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        canary: tuple[Tensor, Tensor] | None,
        *,
        classes: int,
        loss: str = "cross_entropy",
    ) -> Tensor:
        """The weights (d,), from the module's own ones; nothing of them is drawn.

        Args:
            module: the model. inputs (n, *shape), targets (n,): all records of the training but the canary.
            canary: its input (*shape) and label; None for one that is no record.
            classes: number of labels, 0 for regression (where the canary's input is not learned).
            loss: as `loss_of` reads it.

        Raises:
            ValueError: there is no record beside the canary, or weights that fit them are not finite.
        """
        if not len(inputs):
            raise ValueError("crafted initial weights need a record beside the canary to be fitted to")
        layout = Layout.of(module)
        vector = layout.join({n: p.detach() for n, p in module.named_parameters()}).clone().requires_grad_()
        if canary is not None and classes > 1 and bool((targets != canary[1]).any()):
            inputs, targets = _with_wrong(inputs, targets, canary)
        inputs = inputs.to(vector.dtype)
        optimiser = torch.optim.Adam([vector], self.lr)
        for _ in range(self.steps):
            mean, vector.grad = 0.0, torch.zeros_like(vector)
            for some, labels in zip(inputs.split(ROWS), targets.split(ROWS)):
                losses = loss_of(loss).values(functional_call(module, layout.split(vector), (some,)), labels)
                part = losses.sum() / len(inputs)
                vector.grad += torch.autograd.grad(part, vector)[0]
                mean += part.item()
            if not isfinite(mean):
                raise ValueError("crafted initial weights are not finite: this model cannot be fitted to its records")
            if mean <= self.enough or vector.grad.norm().item() <= self.still:
                break
            optimiser.step()
        if not bool(torch.isfinite(vector).all()):
            raise ValueError("crafted initial weights are not finite: this model cannot be fitted to its records")
        return vector.detach()


def _with_wrong(inputs: Tensor, targets: Tensor, canary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The records, and the canary's input with the label of the nearest record whose label is not the canary's."""
    record, label = canary
    others = (targets != label).nonzero().squeeze(1)
    apart = (inputs[others].double() - record.double()).flatten(1).norm(dim=1)
    nearest = others[apart.argmin()]
    return torch.cat([inputs, record[None].to(inputs.dtype)]), torch.cat([targets, targets[nearest][None]])
