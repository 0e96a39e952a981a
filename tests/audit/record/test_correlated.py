"""A server's noise that is correlated over the rounds: priced as one Gaussian release, and its matrix looked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Correlated, Gaussian, mechanism_of_plain, mechanisms_of
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.defenses.releases import Sampling
from scipy.optimize import brentq
from scipy.stats import norm

DIM, ROUNDS, STD = 2000, 6, 0.2
TOEPLITZ = [1.0, 0.5, 0.375, 0.3125, 0.2734375, 0.24609375]  # (1 − x)^(−1/2), arXiv:2211.05006
C = np.array([[TOEPLITZ[t - s] if t >= s else 0.0 for s in range(ROUNDS)] for t in range(ROUNDS)])
MEAN = {"average": "mean", "clients": 4, "strict": True}


def recorded(folder: Path, matrix, noise: np.ndarray, who=lambda t: range(4), **more):
    """Clients whose updates are clipped to 1 and averaged, beside this noise (rounds, DIM)."""
    rng = np.random.default_rng(1)
    model, declared = np.zeros(DIM), Correlated(clip=1.0, noise_std=STD, matrix=matrix)
    rounds = len(noise)
    with Recorder(folder, {"w": torch.zeros(DIM)}, mechanism=declared, **MEAN) as rec:
        for t in range(rounds + 1):
            rec.broadcast(t, {"w": torch.tensor(model).float()}, mechanism=more.get("of_round", {}).get(t))
            if t == rounds:
                break
            updates = rng.standard_normal((len(who(t)), DIM))
            updates *= 3 / np.linalg.norm(updates, axis=1, keepdims=True)
            for c, update in zip(who(t), updates):
                rec.upload(t, c, torch.tensor(update).float(), num_examples=5)
            model = model + updates.mean(0) / 3 + noise[t]
    return check_setup(folder)[1]


def by_matrix(matrix: np.ndarray, seed: int = 0) -> np.ndarray:
    white = STD * np.random.default_rng(seed).standard_normal((len(matrix), DIM))
    return np.linalg.solve(matrix, white)


def downlink(folder: Path) -> float:
    row = next(r for r in table(folder).rows if (r.observer, r.unit, r.adjacency) == ("downlink", "client", "zero_out"))
    return row.proven


def gaussian(mu: float, delta: float = 1e-5) -> float:
    """ε of one Gaussian of shift μ, by its closed form (Balle and Wang 2018)."""
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e + norm.logcdf(-mu / 2 - e / mu)) - delta, 0, 1e4, xtol=1e-9
    )


def statuses(auditor) -> dict[str, str]:
    return {d.what: d.status for d in auditor.declared}


def test_noise_of_the_declared_matrix_is_checked_and_priced_as_one_release(tmp_path):
    auditor = recorded(tmp_path / "s", TOEPLITZ, by_matrix(C))
    found = statuses(auditor)
    assert found["noise"] == found["correlation"] == "checked" and "contradicted" not in found.values()
    moved = np.sqrt(np.abs(C.T @ C).sum()) / 4  # of a client in all rounds, a quarter of each mean
    assert downlink(tmp_path / "s") == pytest.approx(gaussian(moved / STD), rel=1e-6)


def test_who_takes_part_seldom_is_priced_by_its_own_rounds(tmp_path):
    recorded(tmp_path / "s", C.tolist(), by_matrix(C), lambda t: [t % 3])
    moved = max(np.sqrt(np.abs(C.T @ C)[np.ix_(own, own)].sum()) for own in ([0, 3], [1, 4], [2, 5]))
    assert downlink(tmp_path / "s") == pytest.approx(gaussian(moved / STD), rel=1e-6)


@pytest.mark.parametrize(
    "noise",
    [
        np.diag([np.linalg.norm(row) for row in np.linalg.inv(C)]) @ by_matrix(np.eye(ROUNDS)),  # independent
        by_matrix(np.linalg.inv(C)),
        by_matrix(C)[::-1],
        np.repeat(by_matrix(np.eye(ROUNDS))[:1], ROUNDS, axis=0),
    ],
    ids=["independent", "inverse", "backwards", "the same"],
)
def test_a_declared_matrix_that_was_not_used_is_contradicted(tmp_path, noise):
    assert statuses(recorded(tmp_path / "s", TOEPLITZ, noise))["correlation"] == "contradicted"
    assert downlink(tmp_path / "s") == np.inf


def test_half_the_white_noise_is_contradicted(tmp_path):
    assert statuses(recorded(tmp_path / "s", TOEPLITZ, by_matrix(C) / 2))["noise"] == "contradicted"


@pytest.mark.parametrize("seed", range(3))
def test_strongly_correlated_noise_is_not_accused(tmp_path, seed):
    rng = np.random.default_rng(seed)
    matrix = np.tril(rng.uniform(-2, 2, (ROUNDS, ROUNDS)), -1) + np.diag(rng.uniform(0.3, 1, ROUNDS))
    found = statuses(recorded(tmp_path / "s", matrix, by_matrix(matrix, seed + 100)))
    assert "contradicted" not in found.values() and found["correlation"] == "checked"


@pytest.mark.parametrize(
    "named",
    [
        {"name": "dp-ftrl", "rounds": 6, "restart": 4},
        {"name": "band-mf", "rounds": 6, "bands": 3},
        {"name": "blt", "rounds": 6, "decays": [0.9, 0.4], "scales": [0.3, 0.2]},
    ],
    ids=lambda named: named["name"],
)
def test_a_mechanism_by_its_name_comes_back_from_json(named):
    one = Correlated(clip=1.0, noise_std=STD, matrix=named)
    assert mechanism_of_plain({**one.plain(), "by": "server"}) == mechanism_of_plain(one.plain()) == one
    assert one.strategy.rounds == 6


def test_a_tree_is_recorded_by_its_name(tmp_path):
    """Of 4 rounds, without Honaker's estimate: what is seen are the leaves 0 and 2, the first pair and the root, and a
    client in every round has ζ = 1 + 1 + 2² + 4² (of all nodes 28; arXiv:2103.00039, appendix B).
    """
    leaves, pairs, root = by_matrix(np.eye(7))[:4], by_matrix(np.eye(7))[4:6], by_matrix(np.eye(7))[6]
    prefixes = [leaves[0], pairs[0], pairs[0] + leaves[2], root]
    noise = np.diff(np.stack([np.zeros(DIM), *prefixes]), axis=0)
    tree = {"name": "dp-ftrl", "rounds": 4, "honaker": False}
    found = statuses(recorded(tmp_path / "s", tree, noise))
    assert found["correlation"] == found["noise"] == "checked"
    assert downlink(tmp_path / "s") == pytest.approx(gaussian(np.sqrt(22) / 4 / STD), rel=1e-6)


def test_a_round_beyond_the_matrix_or_with_other_noise_proves_nothing(tmp_path):
    late = np.concatenate([by_matrix(C), by_matrix(C)[:1]])
    assert statuses(recorded(tmp_path / "late", TOEPLITZ, late))["correlation"] == "contradicted"
    for t in (0, 2):
        other = {t: Gaussian(clip=1.0, noise_std=STD, by="server")}
        found = statuses(recorded(tmp_path / f"other{t}", TOEPLITZ, by_matrix(C), of_round=other))
        assert found["correlation"] == "contradicted" and downlink(tmp_path / f"other{t}") == np.inf


def test_live_epsilon_and_the_round_that_has_no_noise(tmp_path):
    noise = by_matrix(C)
    with Recorder(tmp_path / "s", {"w": torch.zeros(DIM)}, mechanism=Correlated(1.0, STD, TOEPLITZ), **MEAN) as rec:
        model = np.zeros(DIM)
        for t in range(ROUNDS):
            rec.broadcast(t, {"w": torch.tensor(model).float()})
            rec.upload(t, 0, torch.zeros(DIM), num_examples=5)
            model = model + noise[t]
            spent = [
                r.proven for r in rec.epsilon(observers=["downlink"]) if (r.unit, r.adjacency) == ("client", "zero_out")
            ]
            moved = np.sqrt(np.abs(C.T @ C)[: t + 1, : t + 1].sum())
            assert spent == [pytest.approx(gaussian(moved / STD), rel=1e-6)]
            assert rec.stop_at(1e6) == (t + 1 == ROUNDS)


@pytest.mark.filterwarnings("ignore:.*began again with another model")
def test_a_killed_round_whose_noise_nobody_knows_proves_nothing(tmp_path):
    noise, facts = by_matrix(C), {"mechanism": Correlated(1.0, STD, TOEPLITZ), **MEAN}
    rec = Recorder(tmp_path / "s", {"w": torch.zeros(DIM)}, **facts)
    for t in range(2):
        rec.broadcast(t, torch.tensor(noise[:t].sum(0)).float())
        rec.upload(t, 0, torch.zeros(DIM), num_examples=5)
    rec.abandon()  # in round 1, whose model may have gone out
    with Recorder(tmp_path / "s", {"w": torch.zeros(DIM)}, **facts) as rec:
        for t in range(1, 3):
            rec.broadcast(t, torch.tensor(noise[:t].sum(0) + 0.5 * (t == 1)).float())
            rec.upload(t, 0, torch.zeros(DIM), num_examples=5)
    assert downlink(tmp_path / "s") == np.inf


@pytest.mark.parametrize(
    "matrix",
    [
        [[1.0, 0.5], [0.0, 1.0]],
        [[1.0, 0.0]],
        [0.0, 1.0],
        [1.0, float("nan")],
        [],
        "tree",
        {"name": "dp-ftrl"},
        {"name": "band-mf", "rounds": 4, "bands": 9},
        {"name": "band-mf", "rounds": 4, "buffers": 2},
        {"name": "blt", "rounds": 4, "decays": [1.5], "scales": [1.0]},
        {"name": "blt", "rounds": 4, "decays": "ab", "scales": [1.0, 2.0]},
        {"name": ["band-mf"], "rounds": 4},
        {"name": "dp-ftrl", "rounds": 10**9},
    ],
)
def test_what_is_no_matrix_is_refused(matrix):
    with pytest.raises(BadInput, match="matrix"):
        Correlated(clip=1.0, noise_std=STD, matrix=matrix)


def test_correlated_noise_is_declared_alone():
    one = Correlated(clip=1.0, noise_std=STD, matrix=TOEPLITZ)
    with pytest.raises(BadInput, match="alone"):
        mechanisms_of([one, Gaussian(clip=1, noise_std=1)])
    assert replace(one, on="sum").strategy == one.strategy and one.sampling is None
    with pytest.raises(BadInput):
        mechanism_of_plain({**one.plain(), "sampling": Sampling("poisson", 9, 3)})
