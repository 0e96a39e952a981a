"""`audit epsilon`: the three-number table of a config (nothing is trained) or of a setup, as data and as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...defenses.progress import Progress
from ...defenses.scheme import Claim
from ...defenses.terms import ADJACENCIES, UNITS, Adjacency, Observer, Unit
from ..errors import BadInput, bad_input
from ..results.format import Epsilon, Results
from ..results.words import NO_SECRET, at_least, at_most, claimant, listed, number, on_condition
from ..setup.any_key import any_key_words
from ..setup.auditor import Auditor
from ..setup.config import parse_config, read_config
from ..setup.description import with_key
from ..setup.folder import open_setup
from ..setup.key import PUBLISHED
from ..setup.planned import planned_ledger, priced_ledger
from .numbers import Numbers, noise_for, number_rows
from .rows import observers_of, rows, setup_rows
from .target import build
from .views import Views

NUMBERS = "numbers"  # the source of a table without a config
HEAD = ("observer", "unit", "adjacency", "claimed", "proven", "demonstrated", "multiplier", "accountant")


@dataclass(frozen=True)
class NoiseTarget:
    """By how much all noise must grow for a proven ε of `target_epsilon` in one row. noise_factor: None where no noise
    was given, or no amount helps, and `why`; noise_std: in parameter units, None where noises differ.
    """

    observer: str
    unit: str
    adjacency: str
    delta: float | None
    target_epsilon: float
    noise_factor: float | None
    noise_std: float | None
    why: str


@dataclass(frozen=True)
class EpsilonTable:
    """Rows as in results.json; targets: one a row, where a target was asked for. unseen: a claim that is about none of
    the rows, in a sentence; "" where there is none. secret: whether the noise's key is; what is proven holds for such
    a one alone.
    """

    source: str
    delta: float
    rows: tuple[Epsilon, ...]
    targets: tuple[NoiseTarget, ...] | None = None
    unseen: str = ""
    secret: bool = True

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        targets = {} if self.targets is None else {"targets": [vars(target) for target in self.targets]}
        return {
            "source": self.source,
            "delta": self.delta,
            "rows": [row.model_dump() for row in self.rows],
            **({"unseen": self.unseen} if self.unseen else {}),
            **({} if self.secret else {"noise_key": "published"}),
            **targets,
        }


def table(
    source: Path,
    *,
    delta: float | None = None,
    unit: str = "both",
    adjacency: str = "both",
    observers: Sequence[str] = (),
    target_epsilon: float | None = None,
    results: Path | None = None,
    overrides: Sequence[str] = (),
    key: str | None = None,
    progress: Progress | None = None,
) -> EpsilonTable:
    """The table of a config file or a setup folder.

    Args:
        source: a config, priced without training, or a setup.
        delta: None for the config's.
        unit: record, client or both. adjacency: zero_out, replace_one or both.
        observers: names, () for those that the federation has by default, the claim's and the config's.
        target_epsilon: also by how much the noise must grow for this proven ε.
        results: a results folder whose demonstrated ε to put beside.
        overrides: "table.key=value", for a config.
        key: plan a config for the training with this key; None for any.
        progress: called with the rows priced and in all.

    Raises:
        BadInput: a source, observer or number that cannot be, or results of another setup.
    """
    _check_delta(delta)
    if target_epsilon is not None:
        _check_target(target_epsilon)
    with bad_input(""):
        asked = tuple(Observer.parse(name) for name in observers)
    if source.is_dir():
        if overrides:
            raise BadInput("--set changes a config; a setup's values are what was trained")
        if key is not None:
            raise BadInput("--noise-key is for a config; a setup has the key it was trained with")
        setup = open_setup(source)
        auditor = Auditor(setup)
        priced = priced_ledger(auditor)
        if priced is None:
            raise BadInput(f"{source} has no auditor/ folder; ε is priced from the releases in it")
        ledger, config, fill, claim = priced, setup.config, partial(setup_rows, auditor), setup.claim
        scheme = setup.scheme
        noisy = any(release.mechanism != "none" for release in ledger.releases.values())
        said, secret = "", not noisy or auditor.key_is_secret
    else:
        experiment = build(read_config(source, overrides), source.parent)
        experiment = experiment if key is None else with_key(experiment, key)
        config, ledger = experiment.config, planned_ledger(experiment, any_key=key is None)
        claim, scheme, secret = experiment.claim, experiment.scheme, key != PUBLISHED
        said = "" if key is not None else any_key_words(experiment)
        fill = partial(rows, ledger, experiment.claim, honest=config.audit.honest)
        asked = asked or observers_of(ledger, experiment.claim, config.audit.observer)
    delta = config.audit.delta if delta is None else delta
    filled = fill(delta, asked or None, *_places(unit, adjacency), progress=progress)
    place = (str(config.audit.observer), config.audit.unit, config.audit.adjacency)
    filled = [row.having(asked=(row.observer, row.unit, row.adjacency) == place) for row in filled]
    if said:
        filled = [row.having(notes=(*row.notes, said)) for row in filled]
    if results is not None:
        filled = _with_demonstrated(filled, results, config.model_dump(mode="json"))
    views = Views(ledger, config.audit.honest)
    targets = None
    if target_epsilon is not None:
        why = _LASTING.format(f"{target_epsilon:g}") if scheme.budget is not None else ""
        targets = tuple(_target(views, row, target_epsilon, why) for row in filled)
    return EpsilonTable(str(source), delta, tuple(filled), targets, _unseen(claim, filled), secret)


def _unseen(claim: Claim | None, filled: Sequence[Epsilon]) -> str:
    """Where the claim stands in none of the rows, what it is about: it must not vanish with an option."""
    if claim is None or (claim.observer, claim.unit, claim.adjacency) in {
        (Observer.parse(row.observer), row.unit, row.adjacency) for row in filled
    }:
        return ""
    whose = claimant(claim.whose)
    return (
        f"An ε is claimed {whose} per {claim.unit} towards {claim.observer} ({claim.adjacency}), which is none of these"
        " rows."
    )


def numbers_table(
    numbers: Numbers,
    *,
    claimed: float | None = None,
    delta: float | None = None,
    unit: str = "both",
    adjacency: str = "both",
    target_epsilon: float | None = None,
    noise_given: bool = True,
) -> EpsilonTable:
    """The table of bare numbers, without a config.

    Args:
        numbers: clip, noise and rounds. noise_given: whether that noise is somebody's, so that a factor on it says
            anything. claimed: the ε that somebody states of them.
        delta: None for 1e-5. unit, adjacency: as for `table`.
        target_epsilon: also which noise proves this ε, and the rows at the most noise that any of them takes.

    Raises:
        BadInput: a number out of its range.
    """
    _check_delta(delta)
    at = 1e-5 if delta is None else delta
    units, adjacencies = _places(unit, adjacency)
    if target_epsilon is None:
        return EpsilonTable(NUMBERS, at, tuple(number_rows(numbers, claimed, at, units, adjacencies)))
    _check_target(target_epsilon)
    noise = {(u, a): noise_for(numbers, target_epsilon, at, u, a) for u in units for a in adjacencies}
    rows = number_rows(replace(numbers, noise_std=max(noise.values())), claimed, at, units, adjacencies)
    targets = tuple(
        NoiseTarget(
            row.observer,
            row.unit,
            row.adjacency,
            at,
            target_epsilon,
            noise[row.unit, row.adjacency] / numbers.noise_std if noise_given else None,
            noise[row.unit, row.adjacency],
            "",
        )
        for row in rows
    )
    return EpsilonTable(NUMBERS, at, tuple(rows), targets)


def _check_delta(delta: float | None) -> None:
    if delta is not None and not 0 < delta < 1:
        raise BadInput(f"--delta {delta}: δ must lie between 0 and 1")


def _check_target(target: float) -> None:
    if not 0 < target < math.inf:
        raise BadInput(f"--target-epsilon {target}: a target must be above 0 and finite")


def _places(unit: str, adjacency: str) -> tuple[tuple[Unit, ...], tuple[Adjacency, ...]]:
    """The units and adjacencies of two options, each of which may say "both"."""
    units = tuple(u for u in UNITS if unit in ("both", u))
    return units, tuple(a for a in ADJACENCIES if adjacency in ("both", a))


_LASTING = (
    "with more noise the scheme's budget lasts longer, so no factor on these releases tells; [scheme] target_epsilon ="
    " {} in its config computes it"
)


def _target(views: Views, row: Epsilon, target: float, why: str = "") -> NoiseTarget:
    """why: no factor is one for this scheme; "" where one may be."""
    observer = Observer.parse(row.observer)
    place = (row.observer, row.unit, row.adjacency, row.delta, target)
    assert row.delta is not None
    if why:
        return NoiseTarget(*place, None, None, why)
    try:
        with bad_input(row.observer):
            scales = [
                sight.noise_scale(unit=row.unit, adjacency=row.adjacency, delta=row.delta, target_epsilon=target)
                for sight in views.of(observer, row.unit, row.adjacency)
            ]
    except BadInput as error:
        return NoiseTarget(*place, None, None, str(error))
    seen = views.ledger.seen_by(observer)
    own = sorted({r.noise_std for r in seen if r.mechanism != "none" and not r.terms})
    factor = max(scales, default=1.0)
    return NoiseTarget(*place, factor, own[0] * factor if len(own) == 1 else None, "")


def _with_demonstrated(table: Sequence[Epsilon], results: Path, config: dict[str, Any]) -> list[Epsilon]:
    audited = Results.read(results)
    own = {"claim": config["claim"], **audited.setup.config}  # older ones lack newer keys
    if parse_config(own, str(results)).model_dump(mode="json") != config:
        raise BadInput(f"{results} holds the results of another setup; its config is not that of the source")

    def place(row: Epsilon) -> tuple[Any, ...]:
        return row.observer, row.unit, row.adjacency, row.delta

    numbers = (
        "demonstrated",
        "confidence",
        "ceiling",
        "condition",
        "demonstrated_on_condition",
        "ceiling_on_condition",
    )
    shown = {place(row): {k: getattr(row, k) for k in numbers} for row in audited.epsilon}
    return [row.having(**shown.get(place(row), {})) for row in table]


def text(table: EpsilonTable) -> str:
    """The table for a terminal, with the reasons below."""
    lines = [HEAD] + [tuple(_cell(row, name) for name in HEAD) for row in table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    out = [f"ε at δ = {table.delta:g}; - is not claimed or not measured"]
    out += ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines]
    about: dict[str, list[Epsilon]] = {}  # note -> the rows that it is about
    for row in table.rows:
        for note in dict.fromkeys(row.notes):
            about.setdefault(note, []).append(row)
    out += [f"{_about(own, table.rows)}: {note}" for note, own in about.items()]
    if not table.secret:
        out.insert(1, f"{NO_SECRET} What is proven would hold with a secret one.")
    if table.unseen:
        out.append(table.unseen)
    for target in table.targets or ():
        place = f"{target.observer}, {target.unit}, {target.adjacency}"
        if target.why:
            out.append(f"{place}: no noise factor gives a proven ε of {target.target_epsilon:g}: {target.why}")
        else:
            std = f" (noise_std {at_most(target.noise_std, 6)})" if target.noise_std else ""
            needed = f"{at_most(target.noise_factor, 6)} times the noise{std}"
            if table.source == NUMBERS:
                needed = f"noise_std {at_most(target.noise_std, 4)}"
            out.append(f"{place}: proven ε = {target.target_epsilon:g} at δ = {table.delta:g} needs {needed}")
    return "\n".join(out)


def _about(some: Sequence[Epsilon], every: Sequence[Epsilon]) -> str:
    """Which rows, in as few words as can be: an observer's name alone stands for all of its rows."""
    if len(some) == len(every) > 1:
        return "all rows"
    of_observer: dict[str, list[str]] = {}
    for row in some:
        of_observer.setdefault(row.observer, []).append(f"{row.unit} {row.adjacency}")
    alike: dict[str, list[str]] = {}
    for observer, own in of_observer.items():
        whole = len(own) == sum(row.observer == observer for row in every) > 1
        alike.setdefault("" if whole else f" ({', '.join(own)})", []).append(observer)
    return "; ".join(f"{listed(names)}{place}" for place, names in alike.items())


def _said(value: float, rounded: Callable[[float, int], str] = number) -> str:
    """An ε to the second decimal, or to four digits where it is huge or tiny."""
    digits = max(3, math.floor(math.log10(value)) + 3) if 1e-2 <= value < 1e5 else 4
    return rounded(value, digits)


def _cell(row: Epsilon, name: str) -> str:
    value = getattr(row, name)
    if name == "demonstrated" and (conditional := on_condition(row)) is not None:
        return conditional if value is None else f"{_said(value, at_least)}, {conditional}"
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        if value == math.inf:
            return "∞"
        said = f"{value:.4g}"  # a multiplier
        if name == "demonstrated":
            said = _said(value, at_least)
        elif name != "multiplier":
            said = _said(value, number if name == "claimed" and row.claimed_by != "accountant" else at_most)
        return f"{said} ({row.claimed_by})" if name == "claimed" and row.claimed_by else said
    return str(value)
