"""`--ablate`: an inversion without each piece of what it knows, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...attacks import ATTACKS, AUTO
from ...attacks.cells import ChosenAttack
from ..errors import BadInput
from ..say.knowledge import nothing_said
from ..say.words import listed
from ..setup.config import CANARY
from .options import INVERSION, RunOptions
from .public_half import PublicHalf


def to_ablate(options: RunOptions) -> RunOptions:
    """The attacks named that knowledge is withheld from; an inversion where none is. Raises BadInput."""
    if options.minutes is not None:
        raise BadInput("--minutes chooses among all attacks, and --ablate is about one; give one of the two")
    able = (*(name for name, kind in ATTACKS.items() if kind.ablate is not None), AUTO)
    for name in options.attacks:
        if name not in able and name in (*ATTACKS, CANARY):
            raise BadInput(
                f"--ablate withholds knowledge from an inversion, and {name} is none; run it by itself, without"
                " --ablate"
            )
    return replace(options, attacks=options.attacks or (INVERSION,))


def without_knowledge(
    attacks: Sequence[ChosenAttack], half: PublicHalf
) -> tuple[tuple[ChosenAttack, ...], dict[str, str]]:
    """The attacks without each piece of their knowledge; and by piece, why nothing can be withheld.

    Raises BadInput where that is true of every piece.
    """
    found: list[ChosenAttack] = []
    reasons: dict[str, dict[str, str]] = {}
    for chosen in attacks:
        kind = ATTACKS[chosen.name]
        assert kind.ablate is not None  # others were refused
        able = kind.ablate(chosen.attack, half.ground.views, half.ground.knowledge)
        for what, ablated in able.attacks.items():
            said = {"labels": ablated.weaker.labels, "without": what}
            found.append(ChosenAttack(chosen.name, ablated, {**chosen.settings, **said}))
        for what, why in able.nothing.items():
            reasons.setdefault(what, {})[str(chosen.settings.get("objective"))] = why
    done = {chosen.settings["without"] for chosen in found}
    nothing = {
        what if what not in done else f"{what} for {listed(list(by_objective))}": next(iter(by_objective.values()))
        for what, by_objective in reasons.items()
    }
    if not found:
        raise BadInput(f"--ablate: {nothing_said(nothing)}")
    return tuple(found), nothing
