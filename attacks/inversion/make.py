"""Inversion attacks from their config table; and those that run beside ones whose prior grows with known noise, where a
table names no prior: no prior is the strongest at everything.

A total variation that grows makes pictures look more like the originals, and smooths away what tells these from each
other: on `photos` (mlp 256-256, .01·C of noise, 16 images) the cosine's is 3 dB nearer and picks out 0 to 2 images, a
fixed one of .01 picks out 8 or 9. Where most of a message is noise, what the attacker's own records have for a
spectrum, and images averaged over what is uncertain of them, are 1 to 6 dB nearer than either
(benchmarks/measured/inversion.md). Looks and re-identification each need their strongest attack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, cast

from ...defenses.complaint import one_of
from ..base import Attack, Knowledge, Part, PublicFacts, View
from ..settings import check_keys, check_types
from .attack import Inversion
from .match.features import FEATURES
from .match.softened import TIMES
from .match.wiener import RECORDS
from .presets.automatic import AUTO, Suiting, pick, told_by
from .presets.published import PRESETS
from .read.statistics import STATISTICS
from .read.target import Aim
from .settings import Name
from .strategies.learned_prior import STRONG

TV = 0.01  # of the fixed prior

# Where the table says nothing: both objectives (a clip harms one and not the other) and a prior that grows with the
# noise (without it the same attack is 5 to 8 dB weaker under strong noise), beside it a fixed one and the auxiliary
# records' spectrum (`Beside`); and whatever can be made exact is. A weak attack reports false safety.
DEFAULTS: dict[str, Any] = {
    "objective": ["cosine", "euclidean"],
    "tv": "noise-aware",
    "exact": True,
    "features": FEATURES,
    "batch_statistics": STATISTICS,
    "softened": TIMES,
}

# Of what is attacked, where and how often.
OF_ALL = ("labels", "records", "mode", "manners", "messages", "device", "restarts")


@dataclass(frozen=True)
class Beside(Inversion):
    """An inversion of some messages alone, which names itself.

    prior: tells its entries from the others' in results.
    """

    prior: str = field(default="", init=False)


@dataclass(frozen=True)
class FixedPrior(Beside):
    """The inversion on messages with noise of known size alone: without it, one whose prior grows is the same."""

    prior: str = field(default="fixed", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Those of `Inversion` whose noise is known; none where there is none. Raises ValueError as that one does."""
        return [
            part
            for part in super().parts(view, knowledge)
            if any(target.noise_std > 0 for target in part.content.targets)
        ]


@dataclass(frozen=True)
class SpectrumPrior(Beside):
    """The inversion with the auxiliary records' spectrum for a prior, on what is noise for at least half."""

    prior: str = field(default="spectrum", init=False)

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """Those of `Inversion` that have so much noise of known size, all messages of the same images together where
        they are read together (`Target.noise_share`); none where there is none, or where the attacker has too few
        records of the same kind. Raises ValueError as that one does.
        """
        return super().parts(view, knowledge) if len(knowledge.auxiliary_inputs) >= RECORDS else []

    def _with_known_noise(self, aims: Sequence[Aim], facts: PublicFacts) -> list[Aim]:
        return [aim for aim in aims if all(t.noise_share >= STRONG and t.noise_known for t in aim.targets)]


QUICKER = 3  # times fewer iterations in a --quick run


def make_inversions(settings: Mapping[str, Any], quick: bool, device: str) -> list[Attack]:
    """One attack per objective named in `objective`, a name or a list of names. Where the prior grows with the noise,
    and the table does not say so itself, the cosine runs with a fixed one too, and the Euclidean distance with the
    auxiliary records' spectrum. `quick` runs a third of the iterations, on one message where the table does not say on
    how many.

    settings: fields of `Inversion`; `preset` names a published attack (`presets.PRESETS`) whose settings stand where
    the table says nothing.

    Raises:
        ValueError: an unknown key or preset, or a value out of range, in one sentence.
    """
    known = {f.name for f in fields(Inversion) if f.init} - {"device"}
    check_keys(settings, known | {"preset"})
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
    if not quick:
        return list(made)
    return [replace(one, iterations=max(1, one.iterations // QUICKER), messages=one.messages or 1) for one in made]


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
