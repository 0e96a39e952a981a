"""What is asked of a run: the attacks, and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...attacks import ATTACKS, AUTO
from ...defenses.nearest import instead
from ..errors import BadInput
from ..options.attack import AttackOptions
from ..setup.config import CANARY, toml_value
from ..setup.folder import Setup

INVERSION = "inversion"


@dataclass(frozen=True, kw_only=True)
class RunOptions(AttackOptions):
    """What to attack with.

    canaries: False leaves them out of what minutes choose from. pixels_only: without LPIPS and reference classifiers,
    which need networks and decide nothing. shares_only: without tests of shares either, which nobody reads who compares
    settings by their shares.
    """

    canaries: bool = True
    pixels_only: bool = False
    shares_only: bool = False


def settings_of(name: str, setup: Setup, options: RunOptions) -> dict[str, Any]:
    """An attack's settings: the config's table, then the overrides."""
    names = (*ATTACKS, CANARY)
    overrides: dict[str, Any] = {}
    for text in options.overrides:
        key, separator, value = text.partition("=")
        attack, dot, entry = key.removeprefix("attack.").partition(".")
        if not separator or not dot:
            raise BadInput(f"--set {text!r}: expected ATTACK.KEY=VALUE, e.g. inversion.iterations=1000")
        if attack not in names:
            raise BadInput(f"--set {text!r}: {attack!r} is not an attack{instead(attack, names)}")
        if attack == name:
            overrides[entry] = toml_value(value) if value.strip() else None
    table = {**setup.config.attack.get(name, {}), **overrides}
    return {key: value for key, value in table.items() if value is not None}


def check_settings(overrides: Sequence[str], names: Sequence[str], named: bool) -> None:
    """That no setting is of an attack that does not run, and so without effect. Raises BadInput."""
    for text in overrides:
        attack = text.partition("=")[0].removeprefix("attack.").partition(".")[0]
        if attack not in names:
            if named:
                how = f"add --attack {attack}"
            else:
                how = f"name it with --attack {attack}"
            raise BadInput(f"--set {text!r}: {attack} does not run here; {how}")


def spelled_out(options: RunOptions, setup: Setup) -> RunOptions:
    """`--attack auto` as what it is short for. Raises BadInput."""
    if AUTO not in options.attacks:
        return options
    if INVERSION in options.attacks:
        raise BadInput(f"--attack {AUTO} is an inversion by a preset that suits; give it or --attack {INVERSION}")
    named = settings_of(INVERSION, setup, options).get("preset", AUTO)
    if named != AUTO:
        raise BadInput(
            f"--attack {AUTO} picks the preset, which is {named!r} already; use --attack {INVERSION} for that"
        )
    names = tuple(INVERSION if name == AUTO else name for name in options.attacks)
    return replace(options, attacks=names, overrides=(*options.overrides, f"{INVERSION}.preset={AUTO}"))
