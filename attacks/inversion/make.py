"""Inversion attacks from their config table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, cast

from ...defenses.complaint import one_of
from ...defenses.nearest import instead
from ..base import Attack, Knowledge, View
from ..settings import check_types
from .attack import Inversion
from .match.features import FEATURES
from .match.softened import TIMES
from .presets.automatic import AUTO, Suiting, pick, told_by
from .presets.beside import TV, FixedPrior, SpectrumPrior
from .presets.published import PRESETS
from .read.statistics import STATISTICS
from .settings import Name

# Where the table says nothing: both objectives (a clip harms one and not the other) and a prior that grows with the
# noise (without it the same attack is 5 to 8 dB weaker under strong noise), beside it a fixed one and the auxiliary
# records' spectrum (`beside.py`); and whatever can be made exact is. A weak attack reports false safety.
DEFAULTS: dict[str, Any] = {
    "objective": ["cosine", "euclidean"],
    "tv": "noise-aware",
    "exact": True,
    "features": FEATURES,
    "batch_statistics": STATISTICS,
    "softened": TIMES,
}

# Keys of pieces that were taken out, which the git tag lab-1 still has.
TAKEN_OUT = {"ordered": "the search for the order of batches behind BatchNorm was taken out"}

# Of what is attacked, where and how often.
OF_ALL = ("labels", "records", "mode", "manners", "rounds", "device", "restarts")


def make_inversions(settings: Mapping[str, Any], quick: bool, device: str) -> list[Attack]:
    """One attack per objective named in `objective`, a name or a list of names; `quick` runs a third of the iterations.
    Where the prior grows with the noise, and the table does not say so itself, the cosine runs with a fixed one too,
    and the Euclidean distance with the auxiliary records' spectrum.

    settings: fields of `Inversion`; `preset` names a published attack (`presets.PRESETS`) whose settings stand where
    the table says nothing.

    Raises:
        ValueError: an unknown key or preset, or a value out of range, in one sentence.
    """
    for name in TAKEN_OUT.keys() & settings:
        raise ValueError(f"{name}: {TAKEN_OUT[name]}; leave it out")
    known = {f.name for f in fields(Inversion) if f.init} - {"device"}
    unknown = sorted(set(settings) - known - {"preset"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}{instead(unknown[0], sorted(known | {'preset'}))}")
    own = {
        name: tuple(v) if name == "manners" and isinstance(v, list) else v
        for name, v in settings.items()
        if name != "preset"
    }
    check_types(Inversion, {name: v for name, v in own.items() if name != "objective"})
    base = DEFAULTS
    if "preset" in settings:
        if not isinstance(settings["preset"], str) or settings["preset"] not in PRESETS:
            raise ValueError(one_of("preset", settings["preset"], (*PRESETS, AUTO)))
        published = asdict(PRESETS[settings["preset"]].settings)
        base = {name: value for name, value in published.items() if name in known}
    values = {**base, **own, "device": device}
    objectives = values.pop("objective")
    if objectives in ([], ()):
        raise ValueError("objective = []: name at least one")
    if isinstance(objectives, list | tuple) and any(objectives.count(one) > 1 for one in objectives):
        raise ValueError(f"objective = {list(objectives)}: name each once, or its images count as often")
    made: list[Inversion] = []
    for objective in cast(list[Name], objectives if isinstance(objectives, list | tuple) else [objectives]):
        check_types(Inversion, {"objective": objective})
        made.append(Inversion(objective=objective, **values))
    grows = {one.objective for one in made if one.tv == "noise-aware" and "tv" not in own}
    if "cosine" in grows:
        made.append(FixedPrior(objective="cosine", **{**values, "tv": TV, "features": 0.0}))
    if grows >= {"cosine", "euclidean"}:
        made.append(_spectrum_prior(values))
    return [replace(one, iterations=max(1, one.iterations // 3)) if quick else one for one in made]


def _spectrum_prior(values: Mapping[str, Any]) -> SpectrumPrior:
    """With what the table says that is not of the search, as often begun, and no more iterations. Its `lr` is in other
    units, and its optimiser its own.
    """
    published = asdict(PRESETS["spectrum-prior"].settings)
    own = {f.name: published[f.name] for f in fields(Inversion) if f.init}
    own |= {name: values[name] for name in OF_ALL if name in values}
    return SpectrumPrior(**{**own, "iterations": min(own["iterations"], values.get("iterations", own["iterations"]))})


def picked_inversion(settings: Mapping[str, Any], views: Sequence[View], knowledge: Knowledge) -> Suiting:
    """The table with `preset = "auto"` settled by what the views tell; what else it says stands.

    Raises:
        ValueError: the table's preset is another one.
    """
    if settings.get("preset") != AUTO:
        raise ValueError(f"preset = {settings.get('preset')!r} is not picked, as {AUTO!r} is")
    found = pick(told_by(views, knowledge))
    own = {name: value for name, value in settings.items() if name != "preset"}
    return Suiting({**found.settings, **own}, found.why)
