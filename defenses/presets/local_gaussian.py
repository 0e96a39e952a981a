"""Local DP as it is run in practice: clip the update, add Gaussian noise of a multiple of the clip norm."""

from __future__ import annotations

from pydantic import Field

from ..local import LocalTraining
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from ..terms import Observer, Unit
from .base import Parameters, Population, Preset, cohort_field, update_rule


class LocalGaussianParameters(Parameters):
    """No number of records is in any formula."""

    clip: float = Field(default=1.0, gt=0, description="C, L2 norm of what a client sends, in parameter units")
    noise_multiplier: float = Field(default=1.0, gt=0, description="z: noise_std = z·C on what each client sends")
    unit: Unit = Field(default="client", description='whom the ε is about: "client", or "record" (sensitivity 2C)')
    participants: int | None = cohort_field("clients a round")


def build(parameters: LocalGaussianParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clip to C, then N(0, (zC)²) on every component; uniform mean.

    Assumes nothing beyond the clip. Claim: what the accountant proves towards the server, zero_out.
    Provable: multiplier z for a client, z/2 for a record, which can turn a whole clipped vector around.

    C = 2, z = 3: noise_std 6, whatever the number of records.

    >>> parameters = LocalGaussianParameters(clip=2.0, noise_multiplier=3.0)
    >>> PRESET.scheme(parameters, LocalTraining(), Population((600,) * 100)).client[1].noise_std
    6.0
    """
    p = parameters
    return Scheme(
        name="local-gaussian",
        source=PRESET.source,
        local=local,
        share=p.share,
        client=(Clip(p.clip), Perturb(noise_std=p.noise_multiplier * p.clip)),
        update=update_rule(p.share, local),
        schedule=FixedRounds(p.rounds),
        participation=drawn(p.participants, population.clients),
        claim=Claim(
            None,
            f"what it proves of Gaussian noise of {p.noise_multiplier:g} times the clip norm on each message",
            Observer("server"),
            p.unit,
            whose="accountant",
        ),
    )


PRESET = Preset(
    name="local-gaussian",
    title="Clipped updates with Gaussian noise of a multiple of the clip norm, added by each client",
    source="Dwork and Roth 2014, Theorem A.1; Balle and Wang 2018, arXiv:1805.06530",
    parameters=LocalGaussianParameters,
    build=build,
    needs="the clip C and the noise multiplier z over C",
    claimed_unit='client (zero_out), or record (zero_out) with unit = "record": what is proven',
    provable="yes",
    why="multiplier z for a client, z/2 for a record",
    noise=("noise_multiplier",),
    group="production",
)
