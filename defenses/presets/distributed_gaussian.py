"""Distributed DP under secure aggregation: the distributed discrete Gaussian (Kairouz, Liu and Steinke 2021)."""

from __future__ import annotations

from math import ceil, floor, log2, sqrt

from pydantic import Field

from ..discrete import MOST_STEPS
from ..local import LocalTraining
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.clip import Clip
from ..steps.discrete import PerturbDiscrete, RoundToSteps
from ..terms import Observer
from .base import Parameters, Population, Preset, cohort_field, update_rule

LEAST_STEPS = 1e-3  # of noise: below, every number of it is 0
HEADROOM = 4  # of the modulus over participants·clip: sums up to half of it, and as much again for noise


class DistributedGaussianParameters(Parameters):
    """Alg. 1's."""

    clip: float = Field(default=1.0, gt=0, description="C (the paper's c), L2 norm of an update, in parameter units")
    noise_multiplier: float = Field(
        default=1.0,
        gt=0,
        description="z of the sum over C: noise_std = z·C/√participants of each client's discrete Gaussian",
    )
    participants: int | None = cohort_field("n, clients a round")
    bits: int = Field(default=18, ge=2, le=24, description="of a number sent: sums are taken modulo m = 2^bits steps")
    granularity: float | None = Field(
        default=None,
        gt=0,
        description="γ, the step that numbers are rounded to, in parameter units, rounded down to a power of two; the"
        " least with 2^bits·γ ≥ 4·participants·clip, so that hardly any sum goes round",
    )
    beta: float = Field(
        default=0.6065, ge=0, lt=1, description="β: chance at most that a rounding exceeds its norm and is done again"
    )


def build(parameters: DistributedGaussianParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clients clip their update to C, round it to whole steps γ by chance, add discrete Gaussian noise of z·C/√n and
    send it modulo m; the server sees the sum modulo m alone and divides it by the number of senders.

    Readings: without the random rotation, which spreads large numbers so that fewer bits do, and whose padding a
    model's message has no place for; all clients weigh the same. Clients that drop out take their noise with them, and
    what is proven is what those who sent add up to.
    Assumes secure aggregation (the observer aggregate) and clients who draw their noise honestly and keep it to
    themselves; of the others the share [audit] honest. Claim: what the accountant proves towards the aggregate, a
    little less than Theorem 1 does by Rényi divergences.
    Provable: towards the aggregate, and whoever sees less, a discrete Gaussian of multiplier z for a client, rounding
    added to C; towards a server that sees single uploads each client's own noise, √n times less.

    n = 100, z = 1, C = 1: noise_std .1 each; 18 bits hold sums up to ±200 in steps of 2^-9.

    Raises ValueError where the noise is too few or too many steps to be drawn.

    >>> parameters = DistributedGaussianParameters(participants=100)
    >>> _, rounded, noise = PRESET.scheme(parameters, LocalTraining(), Population((60,) * 1000)).client
    >>> noise.noise_std, noise.modulus, rounded.step == 2.0**-9
    (0.1, 262144, True)
    """
    p = parameters
    cohort = p.participants or population.clients
    modulus = 2**p.bits
    least = HEADROOM * cohort * p.clip / modulus
    step = 2.0 ** (ceil(log2(least)) if p.granularity is None else floor(log2(p.granularity)))
    noise_std = p.noise_multiplier * p.clip / sqrt(cohort)
    if not LEAST_STEPS <= noise_std / step <= MOST_STEPS:
        raise ValueError(
            f"granularity {step:.3g} ({p.bits} bits) and noise_std {noise_std:.3g} of each client: noise of"
            f" {noise_std / step:.3g} steps, where {LEAST_STEPS:g} to {MOST_STEPS:g} can be drawn; change bits or"
            " granularity"
        )
    return Scheme(
        name="distributed-gaussian",
        source=PRESET.source,
        local=local,
        client=(Clip(p.clip), RoundToSteps(step, p.beta), PerturbDiscrete(noise_std, modulus)),
        update=update_rule("update", local),
        schedule=FixedRounds(p.rounds),
        participation=drawn(p.participants, population.clients),
        claim=Claim(
            None,
            f"what it proves of sums of discrete Gaussian noise of {p.noise_multiplier:g} times the clip norm together",
            Observer("aggregate"),
            whose="accountant",
        ),
    )


PRESET = Preset(
    name="distributed-gaussian",
    title="Distributed DP: rounded updates with discrete Gaussian noise, sums modulo m by secure aggregation",
    source="Kairouz, Liu and Steinke 2021, arXiv:2102.06387, Alg. 1, Thm 1",
    parameters=DistributedGaussianParameters,
    build=build,
    needs="the clip C, the noise multiplier z of the sum over C, and the bits of a number sent",
    claimed_unit="client (zero_out), towards the aggregate: what is proven",
    provable="yes",
    why="aggregate: a discrete Gaussian of multiplier z; server: each client's own noise, √n times less",
    shares=("update",),
    noise=("noise_multiplier",),
    group="production",
)
