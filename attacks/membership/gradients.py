"""Inner products and norms of candidates' gradients, for all records at once and mostly without the gradients."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

from ...defenses.chain import Chain, open_chain
from ...defenses.layout import Layout
from ...defenses.losses import loss_of
from .signals import CHUNK_NUMBERS, numbers_per_record

HELD_NUMBERS = 2**28  # of gradients that are held at once

# With g_x the gradient of record x's loss at `weights`. The network runs in evaluation mode.


@torch.no_grad()
def inner_products(
    module: nn.Module, weights: Tensor, direction: Tensor, inputs: Tensor, targets: Tensor, loss: str = "cross_entropy"
) -> Tensor:
    """⟨g_x, u⟩ for every record: (n,).

    ⟨g_x, u⟩ = d/dε loss(x; w + εu) at ε = 0, the derivative of the per-record losses along u: one forward-mode pass
    gives it for all records (`torch.func.jvp`), at about three forward passes' cost.

    Args:
        module: the network. weights, direction: w and u, (d,), flat in `Layout.of(module)`'s order.
        inputs, targets: (n, *shape) and (n, …). loss: as `loss_of` reads it.
    """
    network, layout = _opened(module, weights)
    named, tangent = layout.split(weights), layout.split(direction.to(weights))
    slopes = []
    for x, y in _chunks(network, weights, inputs, targets):

        def losses(parameters: dict[str, Tensor], x: Tensor = x, y: Tensor = y) -> Tensor:
            return loss_of(loss).values(functional_call(network, parameters, (x,)), y)

        with warnings.catch_warnings():
            # torch calls its own deprecated torch.jit.script on the first use of forward mode: a DeprecationWarning in
            # 2.11, a FutureWarning in 2.15
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
            warnings.filterwarnings("ignore", "TF32 acceleration", UserWarning)  # which `flags` sets to what it was
            with _differentiable(network):
                slopes.append(jvp(losses, (named,), (tangent,))[1])
    return torch.cat(slopes)


def _differentiable(network: nn.Module) -> AbstractContextManager[None]:
    """Recurrent layers of oneDNN have no forward mode; torch's own have. Other networks are left to oneDNN."""
    return torch.backends.mkldnn.flags(enabled=False) if _recurrent(network) else nullcontext()


def _recurrent(network: nn.Module) -> bool:
    return any(isinstance(module, nn.RNNBase) for module in network.modules())


def squared_norms(
    module: nn.Module, weights: Tensor, inputs: Tensor, targets: Tensor, loss: str = "cross_entropy"
) -> Tensor:
    """‖g_x‖² for every record: (n,).

    In a chain of linear layers the gradient of one is δaᵀ (a: the layer's input, δ: the loss's derivative at its
    output), so ‖g_x‖² = Σ_layers ‖δ‖²(‖a‖² + 1), the 1 for a bias: a forward and a backward pass ("ghost norm",
    Goodfellow 2015, arXiv:1510.01799). Other networks need the gradients themselves, a chunk of records at a time.

    Args:
        module, weights, inputs, targets, loss: as for `inner_products`.
    """
    network, layout = _opened(module, weights)
    chain = open_chain(network)
    if chain is not None:
        return torch.cat(
            [_ghost(chain, layout.split(weights), x, y, loss) for x, y in _chunks(network, weights, inputs, targets)]
        )
    of_parts = _gradients(network, layout, weights, inputs, targets, loss)
    return torch.cat([torch.stack([part.square().sum(1) for part in parts]).sum(0) for parts in of_parts])


def gram(module: nn.Module, weights: Tensor, inputs: Tensor, targets: Tensor, loss: str = "cross_entropy") -> Tensor:
    """⟨g_x, g_y⟩ of all pairs of records: (n, n).

    In a chain of linear layers it is Σ_layers ⟨δ_x, δ_y⟩(⟨a_x, a_y⟩ + 1), as in `squared_norms`. Of other networks the
    gradients are formed and held.

    Args:
        module, weights, inputs, targets, loss: as for `inner_products`.

    Raises:
        ValueError: gradients would have to be held that are too many for memory.
    """
    network, layout = _opened(module, weights)
    inputs, chain = inputs.to(weights.dtype), open_chain(network)
    if chain is not None:
        total = torch.zeros(len(inputs), len(inputs), dtype=weights.dtype)
        for error, a, bias in _errors(chain, layout.split(weights), inputs, targets, loss):
            total += (error @ error.T) * (a @ a.T + bias)
        return total
    if len(inputs) * layout.dim > HELD_NUMBERS:
        raise ValueError(
            f"the gradients of {len(inputs):,} records by {layout.dim:,} parameters are too many to compare with each"
            f" other; ask about at most {HELD_NUMBERS // layout.dim:,} records"
        )
    gradients = torch.cat([torch.cat(g, 1) for g in _gradients(network, layout, weights, inputs, targets, loss)])
    return gradients @ gradients.T


def _gradients(
    network: nn.Module, layout: Layout, weights: Tensor, inputs: Tensor, targets: Tensor, loss: str
) -> Iterator[list[Tensor]]:
    """g_x in parts (k, numbers of a parameter), a chunk of records at a time.

    By parameter: the derivative of each slice of a flat vector is a vector as long as all parameters together. Where a
    chunk is one record, `vmap` would only copy: it takes 3 times as long (ResNet-18). Of LSTMs it fails in float64.
    """

    def of_record(named: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
        one = grad(lambda named: loss_of(loss).values(functional_call(network, named, (x[None],)), y[None])[0])
        return one(named)

    named, step = layout.split(weights), max(1, CHUNK_NUMBERS // layout.dim)
    of_records = vmap(of_record, (None, 0, 0))
    one_by_one = step == 1 or _recurrent(network)
    for big in _chunks(network, weights, inputs, targets):
        if one_by_one:
            for x, y in zip(*big):
                yield [part.flatten()[None] for part in of_record(named, x, y).values()]
            continue
        for x, y in zip(*(t.split(step) for t in big)):
            yield [part.flatten(1) for part in of_records(named, x, y).values()]


def _ghost(chain: Chain, named: dict[str, Tensor], inputs: Tensor, targets: Tensor, loss: str) -> Tensor:
    return sum(
        (
            error.square().sum(1) * (a.square().sum(1) + bias)
            for error, a, bias in _errors(chain, named, inputs, targets, loss)
        ),
        torch.zeros(()),
    )


def _errors(
    chain: Chain, named: dict[str, Tensor], inputs: Tensor, targets: Tensor, loss: str
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """δ (n, out), a (n, in) and 1 for a bias, 0 without, of every layer from the last on."""
    a = ((inputs - chain.mean.to(inputs)) / chain.std.to(inputs)).flatten(1)
    entered, slopes = list[Tensor](), list[Tensor | None]()
    for layer in chain.layers:
        entered.append(a)
        a = torch.nn.functional.linear(a, named[layer.weight], None if layer.bias is None else named[layer.bias])
        if layer.bend is not None:
            a, slope, _ = layer.bend(a)
            slopes.append(slope)
    outputs = a.detach().requires_grad_()
    (error,) = torch.autograd.grad(loss_of(loss).values(outputs, targets).sum(), outputs)
    slopes.append(None)
    for layer, into, bent in zip(reversed(chain.layers), reversed(entered), reversed(slopes)):
        if bent is not None:
            error = error * bent
        yield error, into, float(layer.bias is not None)
        error = error @ named[layer.weight]


def _opened(module: nn.Module, weights: Tensor) -> tuple[nn.Module, Layout]:
    layout = Layout.of(module)
    network = copy.deepcopy(module).eval().to(weights.dtype)
    if weights.shape != (layout.dim,):
        raise ValueError(f"the weights have shape {tuple(weights.shape)}, expected ({layout.dim},) for this network")
    return network, layout


def _chunks(network: nn.Module, weights: Tensor, inputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Pieces of the records, small enough by a rule on shapes alone."""
    step = max(1, CHUNK_NUMBERS // numbers_per_record(network, tuple(inputs.shape[1:])))
    return [(x.to(weights.dtype), y) for x, y in zip(inputs.split(step), targets.split(step))]
