"""`audit epsilon`: the three-number table of a config (nothing is trained) or of a setup, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...defenses.progress import Progress
from ...defenses.scheme import Claim
from ...defenses.terms import Observer
from ..errors import BadInput, bad_input
from ..results.format import Epsilon, Results
from ..say.loss import impossible
from ..say.words import claimant
from ..setup.any_key import any_key_words
from ..setup.auditor import Auditor
from ..setup.config import Config, parse_config, read_config
from ..setup.description import with_key
from ..setup.experiment import Experiment
from ..setup.folder import open_setup
from ..setup.key import PUBLISHED
from ..setup.ledger import Ledger
from ..setup.planned import planned_ledger, priced_ledger
from .numbers_table import EpsilonTable, NoiseTarget, check_delta, check_target, row_places
from .rows import observers_of, rows, setup_rows
from .target import build
from .views import Views


def table(
    source: Path,
    *,
    delta: float | None = None,
    unit: str = "both",
    adjacency: str = "both",
    observers: Sequence[str] = (),
    colluding: int = 0,
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
        colluding: how many clients tell every one of them all they know.
        target_epsilon: also by how much the noise must grow for this proven ε.
        results: a results folder whose demonstrated ε to put beside.
        overrides: "table.key=value", for a config.
        key: plan a config for the training with this key; None for any.
        progress: called with the rows priced and in all.

    Raises:
        BadInput: a source, observer or number that cannot be, or results of another setup.
    """
    check_delta(delta)
    if target_epsilon is not None:
        check_target(target_epsilon)
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
        said = ""
    else:
        experiment, ledger = _planned(source, overrides, key)
        config, claim, scheme = experiment.config, experiment.claim, experiment.scheme
        said = "" if key is not None else any_key_words(experiment)
        fill = partial(rows, ledger, experiment.claim, honest=config.audit.honest)
        asked = asked or observers_of(ledger, experiment.claim, config.audit.observer)
    delta = config.audit.delta if delta is None else delta
    if colluding:
        asked = asked or observers_of(ledger, claim, config.audit.observer)
        asked = tuple(replace(observer, colluding=colluding) for observer in asked)
    filled = fill(delta, asked or None, *row_places(unit, adjacency), progress=progress)
    place = (str(config.audit.observer), config.audit.unit, config.audit.adjacency)
    filled = [row.having(asked=(row.observer, row.unit, row.adjacency) == place) for row in filled]
    filled = [row.having(notes=tuple(filter(None, (impossible(row), *row.notes, said)))) for row in filled]
    if results is not None:
        filled = _with_demonstrated(filled, results, config.model_dump(mode="json"))
    views = Views(ledger, config.audit.honest)
    targets = None
    if target_epsilon is not None:
        why = ""
        if scheme.budget is not None:
            why = _LASTING.format(f"{target_epsilon:g}")
        targets = tuple(_target(views, row, target_epsilon, why) for row in filled)
    before = config.audit.spent_before, config.audit.delta_before
    return EpsilonTable(str(source), delta, tuple(filled), targets, _unseen(claim, filled), *before)


def ledger_of(source: Path, overrides: Sequence[str] = (), key: str | None = None) -> tuple[Ledger, Config]:
    """What a config or a setup is priced by; arguments and errors are those of `table`."""
    if source.is_dir():
        auditor = Auditor(open_setup(source))
        if (ledger := priced_ledger(auditor)) is None:
            raise BadInput(f"{source} has no auditor/ folder; ε is priced from the releases in it")
        return ledger, auditor.setup.config
    experiment, ledger = _planned(source, overrides, key)
    return ledger, experiment.config


def _planned(source: Path, overrides: Sequence[str], key: str | None) -> tuple[Experiment, Ledger]:
    experiment = build(read_config(source, overrides), source.parent)
    experiment = experiment if key is None else with_key(experiment, key)
    return experiment, replace(planned_ledger(experiment, any_key=key is None), published_key=key == PUBLISHED)


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
    seen = views.ledger.count(views.ledger.seen_by(observer))
    own = sorted({r.noise_std for r in seen if r.mechanism != "none" and not r.terms})
    factor = max(scales, default=1.0)
    return NoiseTarget(*place, factor, own[0] * factor if len(own) == 1 else None, "")


def _with_demonstrated(table: Sequence[Epsilon], results: Path, config: dict[str, Any]) -> list[Epsilon]:
    audited = Results.read(results)
    if parse_config(audited.setup.config, str(results)).model_dump(mode="json") != config:
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
        "demonstrated_from",
    )
    shown = {place(row): {k: getattr(row, k) for k in numbers} for row in audited.epsilon}
    return [row.having(**shown.get(place(row), {})) for row in table]
