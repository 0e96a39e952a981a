"""The central baseline of the thesis's chapter 5.

Source: THESIS 5.2-5.4, table 5.4, after DP-FedAvg of McMahan et al. 2018, arXiv:1710.06963.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from ..local import LocalTraining
from ..scheme import Scheme
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from . import ldp
from .base import Population, Preset, update_rule
from .thesis import ThesisParameters


class BaselineParameters(ThesisParameters):
    """Chapter 5's, with the sensitivity of chapter 3 (`ldp`) or 5 (5.4)."""

    clip: float = Field(default=1.0, gt=0, description="C, L2 norm of an update, in parameter units")
    sigma: float = Field(default=2.0, gt=0, description="σ: noise_std = σ·sensitivity")
    sensitivity: Literal["C/n", "2C/n"] = Field(
        default="C/n", description="what σ is multiplied by, n records a client; in parameter units"
    )


def build(parameters: BaselineParameters, local: LocalTraining, population: Population) -> Scheme:
    """A server, updates clipped to C = 1, N(0, (σC/n)²) with σ = 2 on each, uniform mean.

    Reading: the thesis says "base noise variance set to two with other unchanged", which by (5.3)-(5.4) would be a std
    of 2Cσ/n; that is the option.
    Assumes Δ = C/n (or 2C/n) of one release. Claim, either way, as `ldp`: ε = T/(2σ²) + √(2T ln(1/δ))/σ.
    Provable: multiplier σ/n for the client (2σ/n with "2C/n"), half of it for a record.

    σ = 2, 20 releases, δ = 1e-5: 20/8 + √(40·11.513)/2 = 13.23.

    >>> scheme = PRESET.scheme(BaselineParameters(), LocalTraining(), Population((600,) * 100))
    >>> round(scheme.claim.epsilon(20, 1e-5), 2)
    13.23
    """
    factor = 1 if parameters.sensitivity == "C/n" else 2
    claim = ldp.gaussian_claim(parameters.sigma)
    return Scheme(
        name="thesis-baseline",
        source=PRESET.source,
        local=local,
        client=(Clip(parameters.clip), Perturb(noise_multiplier=factor * parameters.sigma, divided_by="records")),
        update=update_rule("update", local),
        schedule=parameters.schedule(),
        participation=parameters.participation(population),
        claim=replace(
            claim,
            sentence=(
                f"THESIS Def. 7 (RDP) with σ = {parameters.sigma:g} over an assumed sensitivity of"
                f" {parameters.sensitivity}"
            ),
        ),
        min_clients=parameters.participants or 1,
    )


PRESET = Preset(
    name="thesis-baseline",
    title="The central baseline of chapter 5: clipped updates with Gaussian noise at σ = 2, C = 1",
    source="Weng 2025 (THESIS) 5.4, table 5.4",
    parameters=BaselineParameters,
    build=build,
    needs="C and σ (defaults 1 and 2)",
    claimed_unit="client (zero_out), Δ = C/n assumed (as ldp)",
    provable="yes",
    why="multiplier σ/n for a client, σ/(2n) for a record",
    shares=("update",),
    noise=("sigma",),
    group="baselines",
)
