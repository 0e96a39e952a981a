"""What `audit choose` and `dpfl_audit.choose` can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated

import click

from ..errors import BadInput
from .choices import BESTS, Best, Rows, Search
from .option import Option
from .shared import MODEL_NAME, Device, Overrides


@dataclass(frozen=True, kw_only=True)
class GoalLimits:
    """Limits that a setting has to keep; None: no such limit.

    accuracy_at_least: of the final model. auc_at_least: of the final model of two classes, of which accuracy says
    little where one is frequent. reidentified_at_most: the share of images, or rows of a table, that any inversion
    picks out. words_told_at_most: the share of a text's words that any inversion tells, whether or not it tells their
    order. leakage_at_most: the share of records that any attack singles out, beyond its control.
    none_above_control: whether no attack may be clearly above its control. epsilon_at_most: proven, for what [audit]
    asks.
    best: of the settings that keep them, the one with the highest accuracy (or AUC, where that is limited), or the one
    that leaks least.
    """

    accuracy_at_least: Annotated[float | None, Option("Of the final model on test records, such as 0.7.")] = None
    auc_at_least: Annotated[
        float | None, Option("Of the final model of two classes, such as 0.7. Settings are then compared by it.")
    ] = None
    reidentified_at_most: Annotated[
        float | None, Option("Images, texts, or rows of a table, that an inversion picks out.")
    ] = None
    words_told_at_most: Annotated[
        float | None, Option("Of a text's words those that an inversion tells, in whatever order.")
    ] = None
    leakage_at_most: Annotated[
        float | None, Option("Records that any attack singles out, beyond chance. 0.1 if no limit is given at all.")
    ] = None
    none_above_control: Annotated[bool, Option("No attack may be clearly above its control.")] = False
    epsilon_at_most: Annotated[float | None, Option("Proven, for [audit]'s observer, unit, adjacency and δ.")] = None
    best: Annotated[Best, Option("Of the settings that keep these, by accuracy or by privacy.", show_default=True)] = (
        "accuracy"
    )

    def __post_init__(self) -> None:
        shares = ("accuracy_at_least", "auc_at_least", "reidentified_at_most", "words_told_at_most", "leakage_at_most")
        for name in shares:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise BadInput(f"--{name.replace('_', '-')} {value:g}: expected a number from 0 to 1, such as 0.1")
        if self.epsilon_at_most is not None and not (self.epsilon_at_most > 0 and isfinite(self.epsilon_at_most)):
            raise BadInput(f"--epsilon-at-most {self.epsilon_at_most:g}: expected a number above 0")
        if self.best not in BESTS:
            raise BadInput(f"--best {self.best}: expected accuracy or privacy")


@dataclass(frozen=True, kw_only=True)
class SpaceOptions:
    """What may vary, each as after --vary."""

    vary: Annotated[
        Sequence[str],
        Option(
            "What may change: values (scheme.clip=0.1,1,10) or a range (scheme.noise_std=1e-4..1e-1); may be repeated.",
            metavar="TABLE.KEY=VALUES",
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What is asked of a study, beside its config and its limits.

    rows: whose records are trained on; None for auxiliary ones where there are enough, which cost the clients nothing.
    search: auto (a grid to begin with, then Optuna's TPE) or random. minutes: counted from shapes.
    baseline: None: on auxiliary records, as it reveals whatever it is trained on.
    """

    trials: Annotated[int, Option("How many settings to look at.", show_default=True)] = 24
    rows: Annotated[
        Rows | None,
        Option(
            "Whose records to try settings on. Default: auxiliary ones, which cost the clients no ε, where there are"
            " enough.",
            flags="--on",
        ),
    ] = None
    search: Annotated[
        Search, Option("auto: a grid to begin with, then what it taught; random: by lot.", show_default=True)
    ] = "auto"
    seeds: Annotated[int, Option("How often the best setting is trained again.", show_default=True)] = 3
    minutes: Annotated[
        float,
        Option(
            "For the study: a quarter for the search's attacks, a quarter for those on the best setting, as much for"
            " each further one, or for more seeds where only wide intervals stand in the way. Counted from shapes, for"
            " two cores.",
            show_default=True,
        ),
    ] = 10.0
    baseline: Annotated[
        bool | None,
        Option(
            "Also train it without clip and noise, to compare accuracy with. Default: on auxiliary records, as it"
            " reveals what it is trained on.",
            flags="--baseline/--no-baseline",
        ),
    ] = None
    overrides: Overrides = ()
    allow_model: Annotated[
        str | None,
        Option(
            "Import this model of yours, from here or installed, by repeating the config's [model] name.",
            metavar=MODEL_NAME,
        ),
    ] = None
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class StudyFolderOptions:
    """What is asked of a study's folder."""

    noise_key: Annotated[
        str | Path | None,
        Option(
            "Draw noise with keys made of this one (64 hex digits; `published` for one that is no secret). Default: a"
            " fresh one, kept in STUDY/auditor/noise-key.",
            check=click.STRING,
            metavar="FILE",
        ),
    ] = None
    force: Annotated[bool, Option("Replace a different study in the output folder.")] = False


@dataclass(frozen=True, kw_only=True)
class ChooseOptions(StudyFolderOptions, SearchOptions, GoalLimits, SpaceOptions):
    """All that `audit choose` is asked beside the config and the folder."""
