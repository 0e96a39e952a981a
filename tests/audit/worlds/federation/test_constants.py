"""A mean and std of private rows: both worlds have their own, whoever sees the model sees them, a canary shows it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.worlds.federation.case import CanaryCase, NoDemonstration, experiment_of
from dpfl_audit.audit.worlds.federation.client_round import constants_apart
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.audit.worlds.federation.rows import Question, demonstrate
from dpfl_audit.defenses.data.dataset import statistics
from dpfl_audit.defenses.models import constants_of
from dpfl_audit.defenses.terms import Observer
from tiers import quick

DELTA = 1e-5
SETTINGS = CanarySettings(draws=300, replicas=60, places=1)
HIDDEN = 1.0  # less than 300 draws of DP-SGD with σ = 4 demonstrate, more than it proves


def table(folder: Path) -> Path:
    """A class that one feature tells, another that tells nothing: the hostile review's own table."""
    rng = np.random.default_rng(0)
    targets = np.arange(400) % 2
    inputs = np.stack([np.where(targets == 1, 1.0, -1.0) + 0.1 * rng.normal(size=400), rng.normal(size=400)], 1)
    np.savez(folder / "table.npz", inputs=inputs.astype(np.float32), targets=targets)
    return folder


DPSGD = {"name": "dpsgd", "clip": 1.0, "sigma": 4.0}
LDP = {"name": "ldp", "clip": 1.0, "noise_std": 4.0}


def made(folder: Path, scheme: dict = DPSGD, **data) -> Experiment:
    raw = {
        "data": {"name": "npz", "root": "table.npz", "clients": 2, **data},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.5, "batch_size": 40, "steps": 5},
        "scheme": {"rounds": 1, **scheme},
        "capture": {"auxiliary": 10},
    }
    return build(parse_config(raw), table(folder))


def asked(observer: str, unit: str = "record", adjacency: str = "replace_one") -> Question:
    return Question(Observer.parse(observer), unit, adjacency, DELTA)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observer", "unit", "adjacency", "protocol"),
    quick(
        [
            ("server", "record", "replace_one", "mechanism"),
            ("server", "record", "zero_out", "mechanism-redrawn"),
            ("server", "client", "zero_out", "mechanism"),
            ("downlink", "record", "zero_out", "mechanism"),
            ("model", "record", "replace_one", "end-to-end"),
        ],
        2,
    ),
)
def test_a_canary_is_not_blind_to_what_the_mean_and_std_tell(observer, unit, adjacency, protocol, tmp_path):
    """The worlds are told apart with certainty: as much is demonstrated as the number of trials allows. Of the same
    federation with constants of auxiliary rows, as little as noise of multiplier 4 lets through.
    """
    settings = replace(SETTINGS, protocols=(protocol,))
    scheme = DPSGD if unit == "record" else LDP
    seen = demonstrate(made(tmp_path, scheme, statistics="training"), settings, asked(observer, unit, adjacency)).row
    blind = demonstrate(made(tmp_path, scheme), settings, asked(observer, unit, adjacency)).row
    assert seen is not None and blind is not None
    assert seen.demonstrated == pytest.approx(seen.ceiling) and seen.ceiling > 2
    assert blind.demonstrated < HIDDEN


def test_each_world_has_the_mean_and_std_of_its_own_rows(tmp_path):
    """Without a record: of all the others. With another in its place: of these. Clients' records are only some."""
    experiment = made(tmp_path, statistics="training", samples_per_client=100)
    data, rows_of_client = experiment.data, experiment.clients[0]
    for adjacency in ("zero_out", "replace_one"):
        case = CanaryCase.of(
            experiment, replace(SETTINGS, canaries=("blank",)), asked("server", adjacency=adjacency), 0
        )
        without, present = case.worlds(case.rounds[0])
        assert case.place is not None
        row = int(rows_of_client[case.place])
        others = torch.arange(len(data.inputs)) != row
        blank = data.inputs.clone()
        blank[row] = present.job.inputs[case.place]
        zeroed = data.inputs[others] if adjacency == "zero_out" else data.inputs
        for world, inputs in ((without, zeroed), (present, blank)):
            constants = constants_of(world.job.module)
            assert constants is not None
            assert [tuple(part.flatten().tolist()) for part in constants] == [*statistics(inputs)]


@pytest.mark.full
def test_constants_that_no_training_row_moves_are_the_same_in_both_worlds(tmp_path):
    for data in ({}, {"mean": [0.0, 0.0], "std": [1.0, 2.0]}, {"statistics": "none"}):
        case = CanaryCase.of(made(tmp_path, **data), SETTINGS, asked("server"), 0)
        worlds = case.worlds(case.rounds[0])
        assert constants_apart(worlds) is None
        assert all(world.job.module is case.federation.module for world in worlds)


@pytest.mark.full
def test_a_client_who_holds_everything_can_be_left_out(tmp_path):
    experiment = made(tmp_path, statistics="training", clients=1)
    case = CanaryCase.of(experiment, SETTINGS, asked("server", "client", "zero_out"), 0)
    absent, _ = case.worlds(case.rounds[0])
    nobody = constants_of(absent.job.module)  # left are those of a set without statistics
    assert nobody is not None and [set(part.flatten().tolist()) for part in nobody] == [{0.0}, {1.0}]
    row = demonstrate(experiment, SETTINGS, asked("server", "client", "zero_out")).row
    assert row is not None and row.demonstrated == pytest.approx(row.ceiling)


@pytest.mark.full
def test_coins_say_why_they_decide_nothing(tmp_path):
    settings = replace(SETTINGS, protocols=("rounds",))
    shown = demonstrate(made(tmp_path, statistics="training"), settings, asked("server"))
    assert shown.row is None and "first round" in shown.not_measured


def test_what_a_canary_shows_of_told_constants_no_proof_denies(tmp_path):
    for row in rows(planned_ledger(made(tmp_path, statistics="training")), None, DELTA):
        assert row.proven == inf and "private data" in row.notes[0]


def test_a_setup_whose_auxiliary_records_are_others_is_not_built_again(tmp_path):
    experiment = made(tmp_path)
    train(experiment, tmp_path / "setup")
    auditor = Auditor(open_setup(tmp_path / "setup"))
    assert experiment_of(auditor).data.statistics_of == "auxiliary"
    public = auditor.setup

    def of(description):
        data = public.manifest.data.model_copy(update={"description": description})
        return Auditor(replace(public, manifest=public.manifest.model_copy(update={"data": data})))

    told = public.manifest.data.description
    unsaid = {name: value for name, value in told.items() if name != "sha256"}
    for others in ({**told, "auxiliary_sha256": "0"}, unsaid):
        with pytest.raises(NoDemonstration, match="no longer those"):
            experiment_of(of(others))
