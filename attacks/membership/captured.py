"""What a captured message says of a candidate: statistics of one message, at the model its sender started from."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import PublicFacts, Seen
from ..inversion.read.clipped_weights import stretched
from ..inversion.read.local_steps import modelled
from ..inversion.read.target import recipe_of

MIN_REFERENCES = 4  # clients for the estimate of a record's null distribution; with fewer it is mostly guesswork


def descent(message: Seen, value: Tensor, start: Tensor | None, facts: PublicFacts) -> Tensor:
    """The descent direction (d,) of a message, with the sign of a gradient: the gradient of a record that
    took part has a positive product with it. For a gradient: the value; for an update: −value; for weights: start −
    value, with `start` the global model of the round; clipped ones made as long again (`clipped_weights.stretched`).
    """
    if message.kind == "gradient":
        return value
    if message.kind == "update":
        return -value
    if start is None:
        raise ValueError(
            f"message {message.id} carries weights, and without the global model of round {message.round} they are no"
            " update"
        )
    return start - unclipped(message, value, start, facts)


def unclipped(message: Seen, value: Tensor, start: Tensor, facts: PublicFacts) -> Tensor:
    """Weights that a message carries as long as they were before a clip shortened them."""
    own = facts.of_round(message.round)
    return value * stretched(value, start, own, own.noise_std)


def local_model(message: Seen, value: Tensor, start: Tensor | None, facts: PublicFacts) -> Tensor:
    """The sender's model (d,) after its local training, clipped weights as of `descent` where `start` was seen."""
    if message.kind == "weights":
        return value if start is None else unclipped(message, value, start, facts)
    if message.kind == "gradient" or start is None:
        raise ValueError(
            f"message {message.id} carries"
            f" {'a gradient' if message.kind == 'gradient' else 'an update of an unseen model'}, which does not give"
            " its sender's model; use the cosine"
        )
    return start + value


def gradient_sum(message: Seen, direction: Tensor, facts: PublicFacts) -> Tensor:
    """The sum of the sender's records' gradients: n·direction, over what local training multiplied their mean
    by where the message is what it moved.

    Raises:
        ValueError: the optimiser rescales gradients, so that an update does not give their sum, or the sender keeps
            the number of its records to itself.
    """
    if not message.num_records:
        raise ValueError(
            "the gradient difference needs the number of a sender's records, which anonymous senders do not tell; use"
            " the cosine"
        )
    if message.kind == "gradient":
        return message.num_records * direction
    own = facts.of_round(message.round)
    recipe = recipe_of(own, message.num_records)
    if recipe is None or not recipe.linear:
        raise ValueError(
            f"the gradient difference needs the scale of an update, which {facts.optimiser!r} does not keep; use the"
            " cosine"
        )
    return direction * (message.num_records / modelled(recipe, own, message.num_records).scale)


def gradient_cosine(products: Tensor, squared_norms: Tensor, direction: Tensor) -> Tensor:
    """⟨g_x, v⟩ / (‖g_x‖ ‖v‖) (n,); 0 where a norm is 0. Li et al., ICLR 2023; "grad-cosine" of FedMIA."""
    size = squared_norms.double().sqrt() * direction.double().norm()
    return torch.where(size > 0, products.double() / size, 0.0)


def gradient_difference(products: Tensor, squared_norms: Tensor) -> Tensor:
    """‖v‖² − ‖v − g_x‖² = 2⟨g_x, v⟩ − ‖g_x‖² (n,), v the sum of the sender's gradients: what leaving x out would save.

    For gradients in independent directions it is ‖g_x‖² for members and −‖g_x‖² for others (Li et al., ICLR 2023;
    "grad-diff" of FedMIA).
    """
    return 2 * products.double() - squared_norms.double()


def fedmia(own: Tensor, others: Tensor) -> Tensor:
    """Φ((own − μ) / s) (n,): how far a client's statistic lies above that of the other clients, none of whom has the
    record (Zhu et al., CVPR 2025, arXiv:2402.06289, eq. 7-12).

    own: (n,). others (m, n): the same statistic of m other clients' messages, free shadow models without the record.
    Per record, values above μ + 3s do not count (the record may belong to that client), then μ and s (with m − 1) are
    computed again from the rest.

    >>> others = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> fedmia(torch.tensor([2.0]), others).item()
    0.5

    Raises:
        ValueError: there are fewer than four other clients.
    """
    if len(others) < MIN_REFERENCES:
        raise ValueError(
            f"FedMIA needs messages of at least {MIN_REFERENCES} other clients in the same round, and there are"
            f" {len(others)}; capture more clients"
        )
    values = others.double()
    usual = values <= values.mean(0) + 3 * values.std(0)
    counts = usual.sum(0)
    mean = torch.where(usual, values, 0.0).sum(0) / counts
    spread = (torch.where(usual, values - mean, 0.0).square().sum(0) / (counts - 1)).sqrt()
    return torch.special.ndtr((own.double() - mean) / spread.clamp_min(1e-15))
