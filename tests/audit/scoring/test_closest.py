"""A ceiling in decibels beside pictures: that of the noise that was proven, above all that attacks make, else none."""

from __future__ import annotations

from math import log, sqrt

import dpfl_audit
import pytest
import torch
from dpfl_audit.audit.proof.theorems.pictures import decibels, even_error
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.say.words import at_most
from dpfl_audit.audit.scoring.closest import variances
from scipy.special import log_ndtr, ndtri

LDP = {"name": "ldp", "share": "gradient", "rounds": 2, "clip": 1.0, "noise_std": 4.0}


def results(scheme, folder):
    config = {
        "data": {"name": "digits", "clients": 4, "samples_per_client": 4},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "batch_size": 4, "steps": 1},
        "scheme": scheme,
        "capture": {"clients": [0], "auxiliary": 19},
        "attack": {"inversion": {"iterations": 20}},
    }
    setup = dpfl_audit.train(config, folder / "setup", noise_key="published", quiet=True).folder
    dpfl_audit.run(setup, folder / "results", attacks=["inversion"], quiet=True)
    return Results.read(folder / "results")


def test_it_is_that_of_the_gaussians_seen_so_far_and_no_picture_is_above_it(tmp_path):
    """A record moves a clipped vector by 2: μ is 2/4 after a round, √2 as much after two. Four pictures share the 5 %
    that may be above, and each of the four that come back may be closest.
    """
    entries = results(LDP, tmp_path).attacks
    page = str(render([tmp_path / "results"]))
    assert {entry.round for entry in entries} == {0, 1} and all(len(entry.pairs) == 4 for entry in entries)
    for entry in entries:
        rounds = 2 if entry.manner == "all-rounds" else entry.round + 1
        ln_kappa = float(log_ndtr(ndtri(0.05 / 4) - 0.5 * sqrt(rounds))) - log(4)
        expected = decibels(even_error(ln_kappa, 64))
        assert entry.value("psnr_ceiling_even") == pytest.approx(expected, abs=1e-4)
        most = entry.value("psnr_ceiling")
        assert most is not None and 10 < expected < most < 30
        assert all(pair.psnr < most for pair in entry.pairs)
    assert any(f"{at_most(entry.value('psnr_ceiling'))} dB" in page for entry in entries)


@pytest.mark.full
def test_without_a_proof_nothing_is_said(tmp_path):
    found = results({"name": "fedavg", "rounds": 1, "share": "gradient"}, tmp_path)
    names = {name for entry in found.attacks for name in entry.numbers}
    assert "psnr" in names and not any(name.startswith("psnr_ceiling") for name in names)


def test_variances_are_those_of_the_covariance_about_the_mean_of_a_label():
    """An attacker who knows the labels does not guess between their means (a review: 24 to 77 % passed the ceiling)."""
    rng = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(50, 1, 2, 3, generator=rng), torch.randint(3, (50,), generator=rng)
    flat = rows.flatten(1).double()
    about = torch.cat([flat[labels == label] - flat[labels == label].mean(0) for label in range(3)])
    expected = torch.linalg.eigvalsh(about.T @ about / 47).flip(0)
    assert torch.allclose(variances(rows + 10 * labels[:, None, None, None], labels), expected)
    for few, known in ((rows[:1], labels[:1]), (rows[:3], torch.arange(3)), (rows, torch.rand(50))):
        assert len(variances(few, known)) == 0
