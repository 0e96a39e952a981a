"""Whether what is sent is what training moves. Where an optimiser holds other parameters than the network's, as after a
move to a device behind its back, the loss falls, ε adds up, and all that is sent is the model as it was (opacus#820).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from ..setup.format import Declaration
from .network import Network
from .outside import SentValue, TensorSpan
from .values import first_few

WHAT = "what is trained"


def still_tensors(network: Network, spans: Sequence[TensorSpan], sent: Sequence[SentValue]) -> tuple[str, ...]:
    """Names of the trained tensors that no message of a round moves. spans: of the tensors."""
    held = [span for span in spans if span[0] in network.trained]
    return tuple(name for name, *ends in held if not any(bool(one.change(slice(*ends)).any()) for one in sent))


def nothing_trained(
    network: Network, names: Sequence[str], rounds: Iterable[tuple[int, Sequence[str]]], noise_inside: bool
) -> list[Declaration]:
    """That what is sent does not move, [] where it does. Noise on gradients would move it, so it was on other ones; all
    other noise hides what is sent, which has nothing of training in it.

    Args:
        network: the model. names: of what is sent. rounds: of each round with uploads, how many, and which tensors none
            of them moves.
        noise_inside: noise is on every record's gradient, so that it moves all tensors that are trained.
    """
    seen = [(count, set(still)) for count, still in rounds if count]
    trained = [name for name in network.trained if name in names]
    still = [name for name in trained if seen and all(name in held for _, held in seen)]
    if not still or (len(still) < len(trained) and not noise_inside):
        return []
    uploads = sum(count for count, _ in seen)
    why = (
        f"{first_few([*map(repr, still)], 1)} moved in none of {uploads} uploads: the parameters that were trained are"
        " not those of the network that is sent, as where it went to a device after its optimiser was made"
    )
    said = "the parameters that are sent are those that training moves"
    status: Literal["contradicted", "defect"] = "contradicted" if noise_inside else "defect"
    return [Declaration(what=WHAT, said=said, status=status, why=why)]
