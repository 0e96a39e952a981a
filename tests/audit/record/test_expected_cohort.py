"""A server that divides by the cohort that is expected, and one that divides by the cohort that came."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.record.mechanism import Gaussian
from dpfl_audit.audit.record.recorder import Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.defenses.releases import Sampling
from scipy.optimize import brentq
from scipy.stats import norm

DIM, POPULATION, COHORT = 2000, 50, 10.0
LOT = Sampling("poisson", POPULATION, COHORT)


def recorded(
    folder: Path, average: str, divisor: str, on: str, std_of_sum: float = 1.0, rounds: int = 8, seed: int = 0
):
    """Clients drawn by coins, clipped to 1 and summed, noise on the sum, divided by the expected or the true cohort."""
    rng = np.random.default_rng(seed)
    std = std_of_sum / (COHORT if on == "mean" else 1)
    noise = Gaussian(clip=1.0, noise_std=std, by="server", on=on, sampling=LOT)
    model = np.zeros(DIM)
    with Recorder(
        folder, {"w": torch.zeros(DIM)}, clients=POPULATION, average=average, mechanism=noise, strict=True
    ) as rec:
        for t in range(rounds + 1):
            rec.broadcast(t, {"w": torch.tensor(model).float()})
            if t == rounds:
                break
            drawn = np.flatnonzero(rng.random(POPULATION) < COHORT / POPULATION) if t != 3 else []
            total = std_of_sum * rng.standard_normal(DIM)
            for c in drawn:
                update = rng.standard_normal(DIM)
                update *= 3 / np.linalg.norm(update)
                rec.upload(t, int(c), torch.tensor(update).float(), num_examples=5)
                total += update / 3
            model = model + total / (COHORT if divisor == "expected" else max(1, len(drawn)))
    return check_setup(folder)[1]


def downlink(folder: Path) -> float:
    row = next(r for r in table(folder).rows if (r.observer, r.unit, r.adjacency) == ("downlink", "client", "zero_out"))
    return row.proven


@pytest.mark.parametrize("on", ["sum", "mean"])
def test_what_divides_by_the_expected_cohort_is_checked_and_priced_alike(tmp_path, on):
    auditor = recorded(tmp_path / "s", "expected", "expected", on, 0.05)
    found = {d.what: d for d in auditor.declared}
    assert [found[what].status for what in ("norm bound", "noise", "independence", "average")] == ["checked"] * 4
    drawn = [r for r in auditor.ledger.releases.values() if r.mechanism == "gaussian"]
    assert len(drawn) == 8 and {r.sampling for r in drawn} == {LOT}  # of a round for which nobody was drawn as well
    assert {round(r.ratio, 9) for r in drawn} == {20}


@pytest.mark.parametrize(("average", "divisor"), [("expected", "actual"), ("mean", "expected")])
def test_the_wrong_divisor_is_contradicted(tmp_path, average, divisor):
    found = {d.what: d.status for d in recorded(tmp_path / "s", average, divisor, "sum", 0.05).declared}
    assert "contradicted" in (found["noise"], found["average"])


@pytest.mark.full
def test_a_mean_of_those_that_came_is_not_amplified_as_poisson(tmp_path):
    """Every coin moves what it divides by. The others hold the mean back, at −C however many they are, the subject
    sends C or nothing: known to have n in the round, whoever sees the next model learns the ε that is computed here,
    more than by Poisson sampling of clients over a number that is fixed.
    """
    recorded(tmp_path / "expected", "expected", "expected", "mean", rounds=1)
    auditor = recorded(tmp_path / "mean", "mean", "actual", "mean", rounds=1)
    assert next(d for d in auditor.declared if d.what == "sampling").why.endswith("(average = 'expected' is less)")
    n = next(r.sampling for r in auditor.ledger.releases.values() if r.mechanism == "gaussian").cohort
    rate, unit = n / POPULATION, COHORT / n  # C/n over the noise, C/COHORT
    x, step = np.linspace(-25, 25, 200_001, retstep=True)
    with_it, without = ((1 - rate) * norm.pdf(x) + rate * norm.pdf(x, far * unit) for far in (2, 1))

    def delta(epsilon: float) -> float:
        return float(np.maximum(with_it - np.exp(epsilon) * without, 0).sum() * step) - 1e-5

    shown = brentq(delta, 0, 50)
    assert downlink(tmp_path / "expected") < shown <= downlink(tmp_path / "mean")


def test_expected_needs_a_draw_by_the_server(tmp_path):
    for noise in (Gaussian(1.0, 1.0), Gaussian(1.0, 1.0, by="server")):
        with pytest.raises(BadInput, match="divides by the cohort of its mechanism's sampling"):
            Recorder(tmp_path / "s", {"w": torch.zeros(3)}, mechanism=noise, average="expected", strict=True)
    with Recorder(tmp_path / "s", {"w": torch.zeros(3)}, average="expected", strict=True) as rec:
        with pytest.raises(BadInput, match="divides by the cohort"):
            rec.broadcast(0, {"w": torch.zeros(3)}, mechanism=Gaussian(1.0, 1.0, by="server"))
        rec.broadcast(0, {"w": torch.zeros(3)})
        rec.upload(0, 0, torch.zeros(3), num_examples=1)
