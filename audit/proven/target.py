"""`[scheme] target_epsilon`: the noise that a scheme needs for a proven ε, in place of that parameter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ...defenses.presets import KNOWN, PRESETS
from ..errors import BadInput, bad_input
from ..setup import experiment
from ..setup.config import ClaimTable, Config, parse_config
from ..setup.experiment import Experiment, with_scheme
from ..setup.planned import planned_ledger
from .rows import check_observers
from .views import Views

ENOUGH = 0.999  # of the target: less noise would not be seen in four digits
TRIES = 8  # noise decides how far values are rounded, and in a scheme with a budget who takes part


def build(config: Config, base: Path, allow_model: str | None = None) -> Experiment:
    """`experiment.build`, for a config that may ask for a target_epsilon.

    Its noise is then the one with which ε, for [audit]'s observer, unit, adjacency and δ, is proven to be at most the
    target and hardly less. The experiment's config has this noise and no target, as if it had been typed, and claims
    nothing that nobody stated. It holds for any key (`setup.any_key`).

    Raises:
        BadInput: in one sentence, also where no noise gives that ε.
    """
    asked = config.parameters()
    target = asked.target_epsilon
    if target is None:
        return experiment.build(config, base, allow_model)
    preset = KNOWN[config.preset_name]
    place = f"[scheme] target_epsilon = {target:g}"
    if not preset.noise:
        able = ", ".join(name for name, other in PRESETS.items() if other.noise)
        raise BadInput(f"{place}: {preset.name!r} has no noise that is decided by one number; those of {able} are")
    if given := [name for name in preset.noise if name in config.scheme]:
        raise BadInput(
            f"{place} computes the noise, which {given[0]} decides too; give one of them (--set scheme.{given[0]}="
            " unsets it)"
        )
    noise = 1.0
    if preset.noise[0] == "noise_std":
        noise = _first_guess(asked)
    made = experiment.build(_with_noise(config, noise), base, allow_model)
    for _ in range(TRIES):
        with bad_input(place):
            reached, factor = _needed(made, target)
        if ENOUGH * target <= reached <= target:
            if config.claim is None:
                return _claiming_nothing(made)
            return made
        noise *= factor
        made = with_scheme(_with_noise(config, noise), made.data, made.module, made.clients)
    raise BadInput(f"{place}: no noise was reached that proves it; the last was {preset.noise[0]} = {noise:.4g}")


def _needed(made: Experiment, target: float) -> tuple[float, float]:
    """The ε proven now, and the factor on all noise that brings it to the target. Raises ValueError and BadInput."""
    asked = made.config.audit
    ledger = planned_ledger(made, any_key=True)
    check_observers(ledger, [asked.observer])
    terms: dict[str, Any] = {"unit": asked.unit, "adjacency": asked.adjacency, "delta": asked.delta}
    sights = Views(ledger, asked.honest).of(asked.observer, asked.unit, asked.adjacency)
    factor = max((sight.noise_scale(**terms, target_epsilon=target) for sight in sights), default=0.0)
    if factor == 0:
        raise ValueError(f"{asked.observer.words} sees nothing of anybody, with any noise")
    return max(sight.price(**terms).epsilon for sight in sights), factor


def _first_guess(parameters: Any) -> float:
    """A noise_std of about the size of what it hides."""
    norm = getattr(parameters, "clip", 1.0)
    if isinstance(norm, int | float):
        return float(norm)
    return 1.0


def _claiming_nothing(made: Experiment) -> Experiment:
    """Without the paper's formula: nobody asked for its σ. A claim that is the accountant's own stays."""
    if made.claim is None or made.claim.whose == "accountant":
        return made
    return replace(made, config=made.config.model_copy(update={"claim": ClaimTable(whose="none")}))


def _with_noise(config: Config, noise: float) -> Config:
    """The config with the noise in the place of the target."""
    preset = PRESETS[config.preset_name]
    scheme = {**{k: v for k, v in config.scheme.items() if k != "target_epsilon"}, preset.noise[0]: noise}
    return parse_config({**config.model_dump(), "scheme": scheme})
