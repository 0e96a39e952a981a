"""`audit advise`: what the config says reaches the analysis of its scheme."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner
from dpfl_audit import cli
from dpfl_audit.audit.errors import BadInput

BASE = """
[data]
name = "digits"
clients = 20
[model]
name = "logistic"
[scheme]
"""


def advised(folder, scheme, *overrides):
    config = folder / "c.toml"
    config.write_text(BASE + scheme)
    given = [part for override in overrides for part in ("--set", override)]
    shown = CliRunner().invoke(cli.audit, ["advise", str(config), "--json", *given])
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.output)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_mu_and_lam_of_the_iteration_schemes_are_convexity_and_smoothness(tmp_path, mechanism):
    """Theorem 3 with nothing but the start left of it (no gradient, no divergence, hardly any noise): after T steps
    Y_T = γY_0/(T + γ), γ = max(8λ/μ, E).
    """
    scheme = f'name = "iteration-{mechanism}"\nrounds = 24\nb = 20\nE = 1\nepsilon = 1e9\nzeta = 1e-6\n'
    alone = ("theory.gradient_norm=0", "theory.noniid=0", "theory.initial_distance=5")
    for mu, lam in ((1.0, 1.0), (0.5, 1.0), (0.5, 3.0)):
        [steps, rounds] = advised(tmp_path, scheme, *alone, f"scheme.mu={mu}", f"scheme.lam={lam}")
        gamma = 8 * lam / mu
        assert dict(steps["curve"])[1.0] == pytest.approx(gamma * 5 / (24 + gamma), rel=1e-6)
        assert dict(rounds["curve"])[200.0] == pytest.approx(gamma * 5 / (200 + gamma), rel=1e-6)
        assert f"smoothness = {lam:g}," in steps["remarks"][0]


def test_the_theory_table_goes_before_the_scheme(tmp_path):
    scheme = 'name = "iteration-laplace"\nrounds = 24\nb = 20\nmu = 0.5\n'
    [steps, _] = advised(tmp_path, scheme, "theory.convexity=0.25")
    assert "0.25" in steps["remarks"][0]


def test_the_clip_and_noise_of_ldp_reach_the_reconstruction_theory(tmp_path):
    """(4.5), (4.11) with s = 1/4: no step is left from k1 = 3 on, that is min(1, C/g) + σC/(√n·g) = 3."""
    scheme = 'name = "ldp"\nsigma = 8.0\nclip = 0.5\nrounds = 2\n'
    [noise] = advised(tmp_path, scheme, "theory.gradient_norm=2", "data.samples_per_client=36")
    assert noise["value"] == pytest.approx((3 - 0.25) * math.sqrt(36) * 2 / 0.5)
    assert any(remark.startswith("At σ = 8 k3 = ") for remark in noise["remarks"])


def test_a_median_clip_has_no_theory(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text(BASE + 'name = "ldp"\nsigma = 8.0\nclip = "median"\nrounds = 2\n')
    with pytest.raises(Exception, match="the theory of ldp needs a number, not the median"):
        CliRunner().invoke(cli.audit, ["advise", str(config), "--debug"], catch_exceptions=False)


@pytest.mark.parametrize("override", ["theory.epsilon=1e-300", "theory.smoothness=1e300", "theory.learning_rate=1e18"])
def test_a_bound_beyond_the_numbers_is_refused(tmp_path, override):
    config = tmp_path / "c.toml"
    config.write_text(BASE + 'name = "geometric"\nrounds = 24\n')
    assert isinstance(CliRunner().invoke(cli.audit, ["advise", str(config), "--set", override]).exception, BadInput)
