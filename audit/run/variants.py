"""An attack as it was asked for, in all its variants."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from ...attacks import ATTACKS, AUTO
from ...attacks.cells import ChosenAttack
from ...defenses.nearest import instead
from ..devices import device_named
from ..errors import BadInput, bad_input
from ..files import digest_of_file
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
            if weights := plain.get("prior_weights"):
                said["prior_weights_sha256"] = _digest_of_weights(Path(weights).expanduser())
            variants.append(ChosenAttack(name, attack, {**plain, **said}))
    return tuple(variants)


def _digest_of_weights(path: Path) -> str:
    try:
        return digest_of_file(path)
    except OSError as error:
        raise ValueError(f"prior_weights: {path} cannot be read ({error.strerror})") from None
