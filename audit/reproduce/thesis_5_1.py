"""THESIS table 5.1: accuracy of the pseudo-central framework (an elected leader, no server) by clip, IID."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from ...defenses.claims.anonymous import anonymous_variance
from ...defenses.engine import batched
from ...defenses.federation import Federation, RoundRecord, run_many
from ...defenses.local import LocalJob, LocalResult
from ...defenses.progress import Progress, part_of
from ...defenses.schedule import rounds_planned
from ..say.words import times
from .federations import experiments_of, stand_in, training_name
from .table import FilledTable, Request
from .trends import Trend, TrialFigures
from .trial_table import Measure, TableCell, TrialPlan, TrialTable

# (data set, C) → accuracy; THESIS table 5.1: 100 clients, m_tcs = 70, T = 20, ε = 8, δ = 1e-5.
PUBLISHED: dict[tuple[str, float], float] = {
    ("IID-MNIST", 0.5): 0.3855,
    ("IID-MNIST", 1.0): 0.4123,
    ("IID-MNIST", 2.0): 0.1849,
    ("IID-MNIST", 4.0): 0.1253,
    ("IID-CIFAR10", 0.5): 0.3776,
    ("IID-CIFAR10", 1.0): 0.3840,
    ("IID-CIFAR10", 2.0): 0.3836,
    ("IID-CIFAR10", 4.0): 0.3724,
}
CLIPS = (0.5, 1.0, 2.0, 4.0)
OPTIMISERS = ("sgd", "adam")  # the thesis names none in chapter 5, Adam in chapter 4
BEST = Measure("best_accuracy", "best local accuracy", 4, least=0, most=1)
ROUNDS = 20
BETTER = 0.005  # of an accuracy: a smaller difference counts as none
CIFAR = "cifar-10-batches-py"


@dataclass(frozen=True)
class LeaderScale:
    """Of one data set's federation. records: of a client. epochs: of local training, in batches of 10."""

    clients: int
    records: int
    epochs: int
    rounds: int = ROUNDS


WHOLE = {"IID-MNIST": LeaderScale(100, 600, 1), "IID-CIFAR10": LeaderScale(100, 200, 1)}
SMALL = {"IID-MNIST": LeaderScale(10, 60, 10), "IID-CIFAR10": LeaderScale(6, 20, 5, 8)}


def leader_cell_name(data: str, optimiser: str, clip: float) -> str:
    return f"{data} {optimiser} C={clip:g}"


def leader_cells(name: str, data: str, tables: Mapping[str, Any], noise: Mapping[float, float]) -> list[TableCell]:
    """A row of the table.

    Args:
        name: of its data set there. data: what it is measured on. tables: of its config.
        noise: noise_std by C where eq. 5.3's is not taken.
    """
    return [
        TableCell(
            leader_cell_name(name, optimiser, clip),
            {"data set": name, "optimiser": optimiser, "C": f"{clip:g}"},
            {
                **tables,
                "local": {**tables["local"], "optimiser": optimiser},
                "scheme": {**tables["scheme"], "clip": clip, **({"noise_std": noise[clip]} if clip in noise else {})},
            },
            {"best_accuracy": PUBLISHED[name, clip]},
            data=data,
        )
        for optimiser in OPTIMISERS
        for clip in CLIPS
    ]


def published_noise(clip: float, records: int) -> float:
    """2Cσ/n (eq. 5.3) of the published federation, n its records a client."""
    variance = anonymous_variance(8.0, 1e-5, ROUNDS, 0.7, 100, 1)
    return 2 * clip * sqrt(variance) / records


def table_5_1(request: Request) -> FilledTable:
    """The table in the size asked for. Raises BadInput where the data are not there."""
    digits = stand_in(request, "MNIST", {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}, "digits")
    there = request.data_root is not None and (request.data_root / CIFAR).is_dir()
    other = replace(request, data=None, data_root=request.data_root if there else None)
    photos = stand_in(other, "CIFAR10", {"cifar10": CIFAR}, "photos")
    small = request.quick or digits.name == "digits", request.quick or photos.name == "photos"
    grey, colour = ((SMALL if each else WHOLE)[name] for name, each in zip(WHOLE, small))
    cells = []
    for name, data, scale, model, published_records, reduced in (
        ("IID-MNIST", digits, grey, {"name": "mlp", "options": {"widths": [200, 200]}}, 600, small[0]),
        ("IID-CIFAR10", photos, colour, leader_cnn(small[1]), 500, small[1]),
    ):
        tables = {
            "data": {**data.table, "clients": scale.clients, "samples_per_client": scale.records},
            "model": model,
            "local": {"epochs": scale.epochs},
            "scheme": {"rounds": scale.rounds},
        }
        noise = {clip: published_noise(clip, published_records) for clip in CLIPS if reduced}
        cells += leader_cells(name, data.shown, tables, noise)
    base = {
        "local": {"lr": 0.001, "batch_size": 10},
        "scheme": {"name": "anonymous-leader", "epsilon": 8.0, "delta": 1e-5, "train_share": 0.7},
        "claim": "none",
    }
    setting = (
        f"{_federation('IID-MNIST', grey)}; {_federation('IID-CIFAR10', colour)}; 70 % train a round, learning rate"
        " .001, batches of 10."
    )
    plan = TrialPlan(
        setting,
        "",
        [base, list(small), digits.files, photos.files],
        lambda *work: _work(base, *work),
        SMALLER if any(small) else (),
    )
    return TrialTable("thesis-5.1", cells, (BEST,), TRENDS, NOTES, lambda _: plan, trials=3, quick_trials=3).run(
        request
    )


def leader_cnn(small: bool) -> dict[str, Any]:
    """THESIS 5.4.1: two 5×5 convolutions with pools and a hidden layer."""
    channels, hidden = ([4, 8], 32) if small else ([16, 32], 512)
    return {"name": "cnn", "options": {"channels": channels, "kernels": [5, 5], "paddings": [2, 2], "hidden": [hidden]}}


def _federation(name: str, scale: LeaderScale) -> str:
    epochs = times(scale.epochs, "epoch")
    return f"{name}: {scale.clients} clients × {scale.records} records, T = {scale.rounds}, {epochs}"


def _work(
    base: Mapping[str, Any], cells: Sequence[TableCell], seed: int, folder: Path, progress: Progress | None
) -> Mapping[str, Mapping[str, float]]:
    del folder
    experiments = experiments_of(base, cells, seed)
    figures = {}
    for number, (name, made) in enumerate(experiments.items()):
        part = part_of(progress, number / len(experiments), (number + 1) / len(experiments))
        figures[name] = {BEST.key: best_local_accuracy(made.federation(), part)}
    return {cell.name: figures[training_name(cell)] for cell in cells}


def best_local_accuracy(federation: Federation, progress: Progress | None = None) -> float:
    """THESIS 5.4.1: "the largest value in all training clients' local test accuracy" of the last round, before
    (as trained, not noised yet) and after aggregation.

    Args:
        federation: to be trained. progress: called with rounds done and planned.
    """
    last, best = rounds_planned(federation.scheme.schedule) - 1, 0.0
    round = 0

    def engine(jobs: Sequence[LocalJob]) -> list[LocalResult]:
        nonlocal best
        results = batched(jobs)
        if round == last:
            best = max(_accuracy(federation, job.start + result.value) for job, result in zip(jobs, results))
        return results

    def on_round(_: int, record: RoundRecord) -> None:
        nonlocal best, round
        if record.round == last:
            models = {id(m := record.state.models[c].vector): m for c in record.participants}
            best = max(best, *(_accuracy(federation, model) for model in models.values()))
        round = record.round + 1
        if progress is not None:
            progress(round, last + 1, "training rounds")

    run_many([replace(federation, evaluate=False)], engine, on_round=on_round)
    return best


def _accuracy(federation: Federation, weights: Tensor) -> float:
    data, parts = federation.data, federation.layout.split(weights)
    with torch.no_grad():
        outputs = functional_call(federation.module, parts, (data.test_inputs.to(weights.dtype),))
    return (outputs.argmax(1) == data.test_targets).double().mean().item()


def _gain(data: str, optimiser: str, less: float) -> Callable[[TrialFigures], float]:
    def contrast(trial: TrialFigures) -> float:
        one, other = (trial[leader_cell_name(data, optimiser, clip)][BEST.key] for clip in (1.0, less))
        return one - other

    return contrast


TRENDS = tuple(
    Trend(
        f"Does C = 1 beat C = {other:g} ({data}, {optimiser})?",
        "yes",
        f"accuracy of C = 1 less that of {other:g}",
        _gain(data, optimiser, other),
        least=BETTER,
    )
    for data in ("IID-MNIST", "IID-CIFAR10")
    for optimiser in OPTIMISERS
    for other in (0.5, 4.0)
)

SMALLER = (
    (
        "Smaller than published: with fewer clients and records an update keeps its noise, 2Cσ/n with σ² for 100"
        " clients of 600 (500) records and 20 rounds, and an IID-MNIST client its 60 local steps a round; the CNN is"
        " narrower."
    ),
)
NOTES = (
    (
        "The thesis gives neither optimiser, batch size nor local epochs: SGD or Adam, 10 and 1 are ours. It publishes"
        " averages of several runs, of the best local model of a round before or after aggregation; ours is of the last"
        " round."
    ),
    "CIFAR-10 at hand has 20,000 of 50,000 training images: 200 a client instead of 500, so σ/n is larger.",
)
