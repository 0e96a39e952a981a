"""What a client sends beside its vector is part of its message: a canary that moves it is seen."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, build
from dpfl_audit.audit.worlds.federation.case import CanaryCase
from dpfl_audit.audit.worlds.federation.plan import CanarySettings
from dpfl_audit.audit.worlds.federation.rows import Question, demonstrate
from dpfl_audit.defenses.terms import Observer

DELTA = 1e-5
# One record of 80 is left out, or not: what that does to the noise's size is not seen in so few trials.
ONE = CanarySettings(draws=300, redrawn=200, coin_rounds=100, places=1, canaries=("existing",))
QUESTION = Question(Observer("server"), "record", "zero_out", DELTA, claimed=0.36, proven=inf)


def lcdp(noise: float = 400.0) -> Experiment:
    """Noise of so many norms on the update, which hides a record of 80, and the update's norm in the clear: ε = ∞."""
    return build(
        parse_config(
            {
                "data": {"name": "breast_cancer", "clients": 2, "samples_per_client": 80},
                "model": {"name": "logistic"},
                "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 80, "epochs": 1},
                "scheme": {"name": "lcdp", "rounds": 1, "sigma_ldp": noise, "sigma_cdp": 0.0, "top": 1.0},
                "capture": {"auxiliary": 10},
            }
        ),
        Path("."),
    )


@pytest.mark.parametrize("protocol", ["mechanism", "mechanism-redrawn"])
def test_a_norm_sent_in_the_clear_gives_the_worlds_away(protocol):
    """The claim of .36 is refuted by a record that no vector shows."""
    row = demonstrate(lcdp(), replace(ONE, protocols=(protocol,)), QUESTION).row
    assert row is not None and row.demonstrated == pytest.approx(row.ceiling, rel=0.01)  # no draw was an error
    assert row.demonstrated > 0.36 and row.notes[0].startswith("Claim violated")


@pytest.mark.full
def test_coins_hear_the_norm_too():
    """Less noise, lest the model drown in it after a round and the record change nothing."""
    row = demonstrate(lcdp(2.0), replace(ONE, protocols=("rounds",)), QUESTION).row
    assert row is not None and row.demonstrated > 1 and row.condition == ""


def test_the_trial_is_the_whole_message():
    """The vector, then the very norm that the client sends, in either world and in every draw."""
    case = CanaryCase.of(lcdp(), CanarySettings(places=1), QUESTION, 0)
    (trials,) = case.messages()
    dim = case.experiment.layout.dim
    for world in (0, 1):
        sent = trials.parcels(world, [1, 2])
        drawn = trials.draw(world, [1, 2], True)
        assert drawn.shape == (2, dim + 1) == (2, sum(trials.sizes))
        assert drawn[:, :dim].equal(torch.stack([parcel.vector.float().double() for parcel in sent]))
        assert drawn[:, dim].tolist() == [parcel.side["norm"] for parcel in sent]
        assert trials.expected()[world].centre[dim] == sent[0].side["norm"]
