"""`audit advise`: a config's own numbers put into the papers' theory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...defenses.participation import RoundRobin, Uniform
from ..errors import BadInput, bad_input
from ..proven.target import build
from ..setup.config import read_config
from ..setup.experiment import Experiment
from .advise import SCHEMES, scheme_advice, theory_of
from .formula import Recommendation


def recommendations(path: Path, overrides: Sequence[str] = ()) -> list[Recommendation]:
    """The recommendations for a config's scheme. Constants of the analysis come from its [theory] table, which goes
    before what the scheme says.

    Raises: BadInput for a scheme without theory and for what the theory cannot use.
    """
    config = read_config(path, overrides)
    if config.preset_name not in SCHEMES:
        raise BadInput(f"there is no convergence theory for {config.preset_name!r}; there is for {', '.join(SCHEMES)}")
    experiment = build(config, path.parent)
    try:
        with bad_input("[theory]"):
            return scheme_advice(config.preset_name, {**_facts(experiment), **config.theory})
    except ArithmeticError as error:
        raise BadInput("a bound leaves the range of numbers: check the units in [scheme] and [theory]") from error


def _facts(experiment: Experiment) -> dict[str, Any]:
    """What the config says, by the theory's names; the theory takes what it knows."""
    theory, name = theory_of(experiment.preset.name), experiment.preset.name
    parameters = experiment.parameters.model_dump()
    facts = {
        theory.letters.get(key, key): value
        for key, value in parameters.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    rule = experiment.scheme.participation
    facts |= {
        "samples": min(len(c) for c in experiment.clients),
        "clients": len(experiment.clients),
        "participants": rule.size if isinstance(rule, Uniform | RoundRobin) else len(experiment.clients),
        "dimension": experiment.layout.dim,
        "learning_rate": experiment.scheme.local.lr,
        "total_steps": parameters["rounds"] * parameters.get("E", experiment.scheme.local.steps or 1),
    }
    if facts.get("proximal") == 0:
        facts.pop("proximal")  # the analysis wants μ > 0; its own default stands in, and is named in the remarks
    if parameters.get("clip") == "median":
        raise BadInput(f"[scheme] clip: the theory of {name} needs a number, not the median")
    names = theory.accepted()
    return {key: value for key, value in facts.items() if key in names}


def advice_document(advised: Sequence[Recommendation]) -> list[dict[str, Any]]:
    """Each recommendation for JSON: what, value (null for no optimum, "inf"), curve of [setting, bound], remarks."""
    return [
        {
            "what": r.what,
            "value": None if r.value != r.value else r.value,
            "curve": [[x, y if y == y else None] for x, y in r.curve],
            "remarks": list(r.remarks),
        }
        for r in advised
    ]


def advice_text(advised: Sequence[Recommendation], points: int = 9) -> str:
    """Each recommendation, some `points` of the curve behind it, and what it assumes."""
    lines = []
    for r in advised:
        lines.append(f"{r.what}: {'no optimum' if r.value != r.value else f'{r.value:g}'}")
        step = max(1, len(r.curve) // points)
        shown = list(r.curve[::step])
        if shown:
            lines.append("  bound at " + ", ".join(f"{x:g}: {'undefined' if y != y else f'{y:.4g}'}" for x, y in shown))
        lines += [f"  - {remark}" for remark in r.remarks]
    return "\n".join(lines)
