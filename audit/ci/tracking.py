"""Numbers of results for MLflow or TensorBoard, where one of them is installed: `--log-to`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from ...defenses.nearest import instead
from ..errors import BadInput
from ..extras import needed
from ..judge.judgement import judgement_of
from ..results.format import LEVELS, PROOFS, Epsilon, Results

Tracker = Callable[[Results], None]

TRACKERS = ("mlflow", "tensorboard:DIR")


def opened_trackers(texts: Sequence[str]) -> list[Tracker]:
    """What `--log-to` asks for, one sender each; found out before a long run.

    Raises:
        BadInput: it names no tracker, or one that is not installed.
    """
    return [_opened(text) for text in texts]


def _opened(text: str) -> Tracker:
    name, _, where = text.partition(":")
    if name == "mlflow" and not where:
        return _mlflow(needed("mlflow", "--log-to mlflow", "mlflow"))
    if name == "tensorboard" and where:
        needed("tensorboard", "--log-to tensorboard", "tensorboard")
        return _tensorboard(Path(where))
    if name == "tensorboard":
        hint = "; a folder is missing: tensorboard:DIR"
    else:
        hint = instead(text, TRACKERS)
    raise BadInput(f"--log-to {text!r} is no tracker{hint}")


def tracked(results: Results) -> dict[str, float]:
    """Every finite number of results by a name of its own: ε by row, metrics by attack, and the verdict's places.

    Names have letters, digits, `_`, `-`, `.` and `/` alone, as MLflow wants. What is infinite goes as a text: `words`.
    """
    return {name: value for name, value in _numbers(results).items() if isfinite(value)}


def untracked(results: Results) -> dict[str, str]:
    """What is no finite number, in words: infinite ε, the verdict, what was audited."""
    infinite = {name: "inf" for name, value in _numbers(results).items() if not isfinite(value)}
    judgement = judgement_of(results)
    said = {"level": judgement.level, "proof": judgement.proof, "measured": str(judgement.measured).lower()}
    for row in results.epsilon:
        if row.demonstrated_from:
            said[_allowed(f"{_place(row)}/demonstrated_from")] = row.demonstrated_from
    return {**said, "setup": results.setup.title, "setup_digest": results.setup.digest, **infinite}


def _numbers(results: Results) -> dict[str, float]:
    judgement = judgement_of(results)
    found: dict[str, float] = {
        "verdict/level": LEVELS.index(judgement.severity),
        "verdict/proof": PROOFS.index(judgement.proof),
    }
    for name in ("test_accuracy", "majority_accuracy"):
        if (share := getattr(results.setup, name)) is not None:
            found[name] = share
    for row in results.epsilon:
        for what in ("claimed", "proven", "demonstrated", "demonstrated_on_condition", "ceiling"):
            if (value := getattr(row, what)) is not None:
                found[f"{_place(row)}/{what}"] = value
    for attack in results.attacks:
        parts = [
            attack.attack,
            attack.observer,
            attack.manner,
            None if attack.round is None else f"round{attack.round}",
        ]
        place = "/".join(part for part in (*parts, attack.client) if part)
        for name, value in attack.numbers.items():
            if value is not None:
                _put(found, f"{place}/{name}", value)
        for point in attack.tpr_points:
            _put(found, f"{place}/tpr_at_fpr_{point.fpr:g}", point.tpr)
    return {_allowed(name): float(value) for name, value in found.items()}


def _place(row: Epsilon) -> str:
    place = f"epsilon/{row.observer}/{row.unit}/{row.adjacency}/{'' if row.delta is None else f'{row.delta:g}'}"
    return place.rstrip("/")


def _put(found: dict[str, float], name: str, value: float) -> None:
    """Under a name of its own: entries may differ in their settings alone."""
    k, own = 1, name
    while own in found:
        k, own = k + 1, f"{name}-{k + 1}"
    found[own] = value


def _allowed(name: str) -> str:
    """
    >>> _allowed("epsilon/uplink(2)/record")
    'epsilon/uplink_2_/record'
    """
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-./ ") else "_" for c in name)


def _mlflow(mlflow: Any) -> Tracker:
    """Into the run that is active, else into one of its own; where it goes is MLflow's own setting."""

    def log(results: Results) -> None:
        own = mlflow.active_run() is None
        if own:
            mlflow.start_run(run_name=f"dpfl-audit {results.setup.title}")
        try:
            mlflow.log_metrics(tracked(results))
            mlflow.set_tags({f"dpfl-audit.{name}": text for name, text in untracked(results).items()})
        finally:
            if own:
                mlflow.end_run()

    return log


def _tensorboard(folder: Path) -> Tracker:
    def log(results: Results) -> None:
        writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(str(folder))
        for name, value in tracked(results).items():
            writer.add_scalar(f"dpfl-audit/{name}", value)
        for name, text in untracked(results).items():
            writer.add_text(f"dpfl-audit/{name}", text)
        writer.close()

    return log
