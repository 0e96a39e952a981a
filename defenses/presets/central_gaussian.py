"""Central DP as it is run in practice: DP-FedAvg (McMahan et al. 2018, arXiv:1710.06963, Alg. 1)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..aggregate import FixedMean
from ..local import LocalTraining
from ..participation import Poisson, drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from ..terms import Observer
from .base import Parameters, Population, Preset, update_rule


class CentralGaussianParameters(Parameters):
    """Alg. 1's."""

    clip: float = Field(default=1.0, gt=0, description="C (the paper's S), L2 norm of an update, in parameter units")
    noise_multiplier: float = Field(
        default=1.0, gt=0, description="z: noise_std = z·C on the sum of updates, z·C/participants on their mean"
    )
    participants: int | None = Field(
        default=None,
        ge=1,
        description="qN, clients a round (with Poisson sampling on average); all where it is not given",
    )
    sampling: Literal["poisson", "fixed"] = Field(
        default="poisson", description='"poisson": a coin for each client; "fixed": exactly so many, by lot'
    )


def build(parameters: CentralGaussianParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clients clip their update to C; the server divides the sum by the expected cohort qN and adds N(0, (zC/(qN))²).

    Readings: every client weighs the same (the paper's w_k = 1), and flat clipping of the whole update.
    Assumes a server that is trusted with raw updates and with who takes part. Claim: what the accountant proves
    towards the downlink, as the paper's moments accountant does.
    Provable: nothing towards the server; the downlink is a sampled Gaussian of multiplier z for a client, 2 times
    weaker for a record.

    C = 1, z = 1, 10 of 100 clients: noise_std .1 on the mean.

    >>> parameters = CentralGaussianParameters(participants=10)
    >>> PRESET.scheme(parameters, LocalTraining(), Population((600,) * 100)).server[0].noise_std
    0.1
    """
    p, clients = parameters, population.clients
    cohort = p.participants or clients
    participation = drawn(p.participants, clients)
    if p.sampling == "poisson" and cohort < clients:
        participation = Poisson(cohort / clients)
        if p.dropout > 0:
            raise ValueError(f'dropout = {p.dropout:g}: with sampling = "poisson" lower participants instead')
    return Scheme(
        name="central-gaussian",
        source=PRESET.source,
        local=local,
        client=(Clip(p.clip),),
        aggregate=FixedMean(cohort),
        server=(Perturb(noise_std=p.noise_multiplier * p.clip / cohort),),
        update=update_rule("update", local),
        schedule=FixedRounds(p.rounds),
        participation=participation,
        claim=Claim(
            None,
            f"what it proves of Gaussian noise of {p.noise_multiplier:g} times the clip norm on each round's sum",
            Observer("downlink"),
            whose="accountant",
        ),
    )


PRESET = Preset(
    name="central-gaussian",
    title="DP-FedAvg: clipped updates, Gaussian noise on their sum by a trusted server",
    source="McMahan et al. 2018, arXiv:1710.06963, Alg. 1",
    parameters=CentralGaussianParameters,
    build=build,
    needs="the clip C, the noise multiplier z over C, and a cohort size for amplification",
    claimed_unit="client (zero_out), towards the downlink: what is proven",
    provable="depends",
    why="server: nothing (raw updates); downlink: a sampled Gaussian of multiplier z",
    shares=("update",),
    noise=("noise_multiplier",),
    group="production",
)
