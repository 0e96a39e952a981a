"""What a δ promises, whatever ε is."""

from __future__ import annotations

USEFUL_DELTA = 0.01  # with a larger one whatever publishes every hundredth record is private


def promise(delta: float, clients: int = 0) -> list[str]:
    """What to say of a δ at which no proof counts, or that is no less than one over the number of clients; nothing of
    one that is small enough.
    """
    if delta <= USEFUL_DELTA:
        if delta * clients < 1:
            return []
        return [
            f"δ = {delta:.3g} is no less than one over the number of clients, {clients}: it allows publishing all that"
            " one of them has; take a δ far below that."
        ]
    return [
        f"δ = {delta:.3g} promises nothing useful, whatever ε is: it allows publishing one in {1 / delta:.2g} records"
        " as they are; take a δ far below one over the number of records."
    ]
