"""Cosines and products of candidates' gradients with messages, once for all attacks and senders of a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor

from ..base import Knowledge, Seen, View
from .captured import descent, gradient_cosine
from .gradients import inner_products, squared_norms
from .network import started_with

_Kept = TypeVar("_Kept")
Memory = dict[tuple[str, int | str], Any]

# FedMIA needs every message's cosines once for each client. The memory lives as long as the view and the knowledge;
# results do not depend on it.
_MEMORIES: WeakKeyDictionary[View, WeakKeyDictionary[Knowledge, Memory]] = WeakKeyDictionary()


def cosines(view: View, knowledge: Knowledge, message: Seen) -> Tensor:
    """The cosine of every candidate's gradient at the round's global model and the message's descent: (n,), float64."""

    def compute() -> Tensor:
        direction = descent(message, message.load(), view.global_model(message.round), view.facts)
        return gradient_cosine(
            products(view, knowledge, message.round, direction), norms(view, knowledge, message.round), direction
        )

    return once(view, knowledge, ("cosine", message.id), compute)


def norms(view: View, knowledge: Knowledge, round: int) -> Tensor:
    """‖g_x‖² of every candidate at a round's global model: (n,)."""
    inputs, targets = knowledge.candidate_inputs, knowledge.candidate_targets
    return once(
        view,
        knowledge,
        ("norms", round),
        lambda: squared_norms(started_with(view, round), view.global_model(round), inputs, targets, view.facts.loss),
    )


def products(view: View, knowledge: Knowledge, round: int, direction: Tensor) -> Tensor:
    """⟨g_x, direction⟩ of every candidate at a round's global model: (n,)."""
    return inner_products(
        started_with(view, round),
        view.global_model(round),
        direction,
        knowledge.candidate_inputs,
        knowledge.candidate_targets,
        view.facts.loss,
    )


def once(view: View, knowledge: Knowledge, key: tuple[str, int | str], compute: Callable[[], _Kept]) -> _Kept:
    """What `compute` gives, computed once a view, knowledge and key."""
    memory = _MEMORIES.setdefault(view, WeakKeyDictionary()).setdefault(knowledge, {})
    if key not in memory:
        memory[key] = compute()
    return memory[key]
