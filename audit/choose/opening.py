"""A study as it is asked for: its options, checked and opened as a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...defenses.presets import PRESETS
from ..devices import device_named
from ..errors import BadInput
from ..options.option import part
from ..options.study import GoalLimits, SearchOptions, SpaceOptions, StudyFolderOptions
from ..setup.config import parse_config, read_toml, with_overrides
from ..setup.experiment import TooManyRecords
from ..setup.key import given_key
from .case import StudyCase
from .goals import Goals, with_defaults
from .narrowed import narrowed
from .possible import check_clients, check_goals
from .space import Setting, Space, parse_space

LEAST_SEEDS = SearchOptions.seeds
TARGET = "scheme.target_epsilon="  # as after --set: unset
TARGET_LEFT_OUT = "target_epsilon = {} of the config computes one noise; it is left out, as {} varies"


@dataclass(frozen=True, kw_only=True)
class StudyOptions(SearchOptions, SpaceOptions):
    """What is asked of a study, beside its config. goals: what is to be kept. key: of all noise, None for a fresh
    one.
    """

    goals: Goals = Goals()
    key: str | None = None


def options_of_study(typed: StudyFolderOptions, vary: Sequence[str]) -> StudyOptions:
    """From all options of `audit choose`, or of its function, which takes other forms of `vary`.

    Args:
        typed: limits, search and folder in one. vary: each as after --vary.

    Raises:
        BadInput: the noise key is none.
    """
    key = given_key(None if typed.noise_key is None else str(typed.noise_key))
    return StudyOptions(vary=vary, goals=Goals(**part(typed, GoalLimits)), key=key, **part(typed, SearchOptions))


def opened_case(
    config: Path | dict[str, Any], options: StudyOptions, key: str, base: Path, fewer: str = ""
) -> StudyCase:
    """A study asked for, checked.

    Args:
        config: a TOML file, or its tables. options: what is asked. key: of all noise. base: where relative paths start.
        fewer: why the clients have fewer records than the config asks for.

    Raises:
        BadInput: the config, the space or a goal is wrong; or no point of the space is a setting.
    """
    if isinstance(config, dict):
        raw = config
    else:
        raw = read_toml(config, "config file", "; `audit init ldp > config.toml` writes one")
    source = "" if isinstance(config, dict) else config.read_text(encoding="utf-8")
    raw = with_overrides(raw, options.overrides)
    space = parse_space(options.vary)
    if left_out := _target_left_out(raw, space):
        without = replace(options, overrides=(*options.overrides, TARGET))
        return replace(opened_case(config, without, key, base, fewer), target=left_out)
    if options.trials < 2:
        raise BadInput(f"--trials {options.trials}: two at least, to choose between")
    if options.seeds < 2:
        raise BadInput(f"--seeds {options.seeds}: two at least, or there is no interval; the default is {LEAST_SEEDS}")
    if not options.minutes > 0:
        raise BadInput(f"--minutes {options.minutes:g}: expected more than 0")
    goals = with_defaults(options.goals)
    case = StudyCase(
        raw=raw,
        base=base,
        space=space,
        goals=goals,
        rows=options.rows or "auxiliary",
        trials=options.trials,
        search=options.search,
        seeds=options.seeds,
        minutes=options.minutes,
        baseline=options.baseline if options.baseline is not None else options.rows != "training",
        key=key,
        allow_model=options.allow_model,
        device=device_named(options.device),
        source=source,
        overrides=tuple(options.overrides),
        fewer=fewer,
    )
    try:
        first = _first_setting(case)
    except TooManyRecords as why:
        if fewer or any(key.startswith("data.") for key in space.keys):
            raise
        fitting = (*options.overrides, f"data.samples_per_client={why.fit}")
        return opened_case(config, replace(options, overrides=fitting), key, base, str(why))
    if options.rows is None:
        try:
            case.to_train(first, case.config_of(first).seed)
        except BadInput as why:
            case = replace(
                case, rows="training", baseline=bool(options.baseline), parts={}, no_auxiliary=str(why).rstrip(".")
            )
    case.to_train(first, case.config_of(first).seed)
    check_goals(case)
    check_clients(case, first)
    space, cut_off = narrowed(case)
    return replace(case, first=first, space=space, cut_off=cut_off)


def _target_left_out(raw: dict[str, Any], space: Space) -> str:
    """That a config's target_epsilon gives way to a noise that varies, in a sentence; "" where nothing does."""
    scheme = raw.get("scheme")
    if not isinstance(scheme, dict) or "target_epsilon" not in scheme or scheme.get("name") not in PRESETS:
        return ""
    noise = [key for name in PRESETS[scheme["name"]].noise if (key := f"scheme.{name}") in space.keys]
    if noise:
        return TARGET_LEFT_OUT.format(scheme["target_epsilon"], noise[0])
    return ""


def _first_setting(case: StudyCase) -> Setting:
    """A point that is a setting. Raises BadInput, of the config or of the first one, where none is."""
    why: BadInput | None = None
    for point in case.space.design(max(case.trials, 16)) or case.space.grid(2):
        try:
            case.to_price(point)
        except BadInput as error:
            why = why or error
        else:
            return point
    assert why is not None
    if isinstance(why, TooManyRecords):
        raise why
    try:
        parse_config(case.raw)
    except BadInput as own:
        if str(own) == str(why):  # what varies has nothing to do with it
            raise
    raise BadInput(f"--vary: no combination of these values makes a valid setting; the first fails: {why}")
