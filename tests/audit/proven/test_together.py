"""Several trainings of the same people add up, in the table and on the page."""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from command import called
from dpfl_audit.audit.proof.certificate import Premise
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.proven.together import together
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder

CONFIG = """
data = {{ name = "digits", clients = 4, samples_per_client = 5 }}
model = {{ name = "linear" }}
local = {{ optimiser = "sgd", lr = 0.1, batch_size = 5 }}
scheme = {{ {} }}
audit = {{ delta = {} }}
"""


def config(folder: Path, name: str, scheme: str, delta: float = 1e-5) -> Path:
    (folder / name).write_text(CONFIG.format(scheme, delta), encoding="utf-8")
    return folder / name


def noised(folder: Path, multiplier: float, delta: float = 1e-5) -> Path:
    scheme = f'name = "local-gaussian", noise_multiplier = {multiplier}, clip = 1.0, rounds = 1'
    return config(folder, f"{multiplier}-{delta}.toml", scheme, delta)


ASKED = {"observers": ["server"], "unit": "client", "adjacency": "zero_out"}


def test_four_trainings_are_one_of_half_the_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ε = 4.38 each; whoever sees the four has 9.97, and 69.2 % was printed where Φ(1) = 84.1 % is true."""
    one = noised(tmp_path, 1.0)
    (row,) = together([one] * 4, **ASKED).rows
    assert row.proven == pytest.approx(gaussian_epsilon(0.5, 1e-5)) and row.mu == pytest.approx(2.0)
    words = ["--observer", "server", "--unit", "client", "--adjacency", "zero_out", "--json"]
    code, out, _ = called(capsys, "epsilon", *[str(one)] * 4, *words)
    assert code == 0 and json.loads(out)["rows"][0]["proven"] == row.proven


def test_that_recordings_share_no_noise_is_a_premise_of_their_joint_proof(tmp_path: Path) -> None:
    """One seed in two scripts: the uploads' difference has no noise, and every sentence beside ε = 4.38 was true."""
    for name in ("a", "b"):
        rng = np.random.default_rng(7)  # in both
        with Recorder(tmp_path / name, {"w": np.zeros(4000)}, mechanism=Gaussian(clip=1.0, noise_std=2.0)) as rec:
            for t in range(2):
                rec.broadcast(t, [np.zeros(4000)])
                for c in range(2):
                    rec.upload(t, c, [rng.normal(0, 2.0, 4000)], num_examples=5)
                    rec.raw(t, c, [np.zeros(4000)])
    (alone,), (joint,) = table(tmp_path / "a", **ASKED).rows, together([tmp_path / "a", tmp_path / "b"], **ASKED).rows
    assert joint.proven == pytest.approx(gaussian_epsilon(1.0, 1e-5))
    assert set(joint.premises) - set(alone.premises) == {"apart"}
    assert any(Premise.APART.value in note for note in joint.notes)
    (own,) = together([tmp_path / "a", noised(tmp_path, 1.0)], **ASKED).rows  # whose noise is of a key of its own
    assert "apart" not in own.premises


def test_batches_of_two_trainings_are_no_parts_of_one_epoch(tmp_path: Path) -> None:
    """A record is in one batch an epoch of each, and so in two of both."""
    scheme = 'name = "local-gaussian", share = "gradient", noise_multiplier = 2.0, clip = 1.0, rounds = 1'
    gradients = config(tmp_path, "gradients.toml", scheme)
    asked = {**ASKED, "unit": "record"}
    (once,), (twice,) = table(gradients, **asked).rows, together([gradients, gradients], **asked).rows
    assert once.proven == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-6)
    assert twice.proven == pytest.approx(gaussian_epsilon(1 / sqrt(2), 1e-5), rel=1e-6)


def test_where_nobody_says_who_is_who_the_price_is_between_the_best_known_and_a_sum(tmp_path: Path) -> None:
    turns = config(tmp_path, "turns.toml", 'name = "local-gaussian", clip = 1.0, rounds = 3, participants = 2')
    key = "00" * 32
    (row,) = together([turns, noised(tmp_path, 1.0)], key=key, **ASKED).rows
    alone = [table(one, key=key, delta=5e-6, **ASKED).rows[0].proven or 0.0 for one in (turns, noised(tmp_path, 1.0))]
    assert gaussian_epsilon(1 / (row.mu or 0.0), 1e-5) <= (row.proven or 0.0) <= sum(alone)


def test_one_delta_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "epsilon", str(noised(tmp_path, 1.0)), str(noised(tmp_path, 1.0, 1e-6)))
    assert code == 2 and "--delta" in err
    assert called(capsys, "epsilon", *[str(noised(tmp_path, 1.0))] * 2, "--target-epsilon", "2")[0] == 2
