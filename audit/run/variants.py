"""An attack as it was asked for, in all its variants."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

from ...attacks import ATTACKS, AUTO
from ...attacks.cells import ChosenAttack
from ...defenses.nearest import instead
from ..devices import device_named
from ..errors import BadInput, bad_input
from ..setup.config import CANARY
from .options import settings_of
from .public_half import PublicHalf


def variants_of(name: str, half: PublicHalf) -> tuple[ChosenAttack, ...]:
    """An attack as the config's table and the options want it, in all its variants."""
    if name not in ATTACKS:
        raise BadInput(f"--attack {name!r} is unknown{instead(name, (*ATTACKS, AUTO, CANARY))}")
    kind, options = ATTACKS[name], half.options
    settings, said, variants = settings_of(name, half.setup, options), dict[str, Any](), []
    with bad_input(f"[attack.{name}]"):
        if kind.pick is not None and settings.get("preset") == AUTO:
            picked = kind.pick(settings, half.ground.views, half.ground.knowledge)
            settings, said = dict(picked.settings), {"preset": picked.settings["preset"], "picked": picked.why}
        for attack in kind.make(settings, options.quick, device_named(options.device)):
            values = asdict(cast(Any, attack)).items()
            plain: dict[str, Any] = {  # a GPU rounds otherwise, so that its results are others than the CPU's
                k: list(v) if isinstance(v, tuple) else v
                for k, v in values
                if k != "name" and (k, v) != ("device", "cpu")
            }
            variants.append(ChosenAttack(name, attack, {**plain, **said}))
    return tuple(variants)
