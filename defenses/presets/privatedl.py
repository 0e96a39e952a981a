"""Noise by an estimated sensitivity, without a clip: ours, after the abstract of Han et al. 2021 (PrivateDL)."""

from __future__ import annotations

from math import log, sqrt
from typing import Literal

from pydantic import Field

from ..local import LocalTraining
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.clip import SampledSpread
from ..steps.perturb import Perturb
from ..terms import Observer
from ..wire import Kind
from .base import Parameters, Population, Preset, cohort_field, update_rule


class PrivatedlParameters(Parameters):
    """All ours: no source at hand gives a formula."""

    share: Kind = Field(default="gradient", description='a client\'s message: one batch\'s "gradient", or an "update"')
    epsilon: float = Field(
        default=1.0, gt=0, description="ε over all T rounds: noise_std = Δ·√(2 ln(1.25T/δ))·T/(ε·B·virtual), B a batch"
    )
    delta: float = Field(default=1e-5, gt=0, lt=1, description="δ of that formula")
    mechanism: Literal["gaussian", "laplace"] = Field(
        default="gaussian", description='"laplace": of scale Δ·T/(ε·B·virtual) instead'
    )
    factor: float = Field(
        default=3.0, gt=0, description="Δ = factor·(std of the sampled components), in parameter units; 3: PauTa"
    )
    sampled: float = Field(default=0.1, gt=0, le=1, description="share of the components that the std is taken of")
    virtual: float = Field(
        default=1.0, ge=1, description="the virtual batch over the real one, which the noise is divided by"
    )
    participants: int | None = cohort_field("clients a round")


def build(parameters: PrivatedlParameters, local: LocalTraining, population: Population) -> Scheme:
    """A batch's mean gradient plus noise by Δ/B, Δ three standard deviations of a random sample of its components (the
    PauTa criterion), estimated anew each time; nothing is clipped.

    Ours, after the abstract, the figures and ADN's one sentence; neither text nor code was at hand. Factor, sample
    rate, a Δ for each component and an ε split evenly over the rounds are ours. Of the paper's larger batch of critical
    points there is its size alone (virtual).
    Assumes that Δ is the sensitivity and public. Claim: ε/T a release (the classical Gaussian mechanism, or Laplace),
    summed.
    Provable: nothing. No record is bounded, and the noise tells of the values it is scaled by.

    ε = 1, T = 10, δ = 1e-5, batches of 20: z = √(2 ln(1.25·10⁶))·10/20 = 2.65 times Δ.

    >>> federation = LocalTraining(batch_size=20), Population((100,) * 10)
    >>> scheme = PRESET.scheme(PrivatedlParameters(rounds=10), *federation)
    >>> round(scheme.client[1].noise_multiplier, 2), round(scheme.claim.epsilon(10, 1e-5), 9)
    (2.65, 1.0)
    """
    p = parameters
    batch = min(local.batch_size, *population.records) * p.virtual

    def at(epsilon: float, rounds: int, delta: float) -> float:
        """Noise over Δ/B: of one of so many releases that share ε and δ."""
        return rounds / epsilon * (1.0 if p.mechanism == "laplace" else sqrt(2 * log(1.25 * rounds / delta)))

    noise = at(p.epsilon, p.rounds, p.delta)

    def epsilon(releases: int, delta: float) -> float:
        return at(1.0, releases, delta) / noise if releases else 0.0

    return Scheme(
        name="privatedl",
        source=PRESET.source,
        local=local,
        share=p.share,
        client=(SampledSpread(p.sampled, p.factor), Perturb(noise_multiplier=noise / batch, mechanism=p.mechanism)),
        update=update_rule(p.share, local),
        schedule=FixedRounds(p.rounds),
        participation=drawn(p.participants, population.clients),
        claim=Claim(
            epsilon,
            f"ours: basic composition of {p.rounds} {p.mechanism} releases by an estimated sensitivity",
            Observer("server"),
            "record",
            "zero_out",
        ),
    )


PRESET = Preset(
    name="privatedl",
    title="Gradients noised by a sensitivity estimated from their own components (ours, after an abstract)",
    source="ours, after the abstract of Han et al. 2021 (PrivateDL), TPDS 32(9) 2231-2247, and ADN VI-B",
    parameters=PrivatedlParameters,
    build=build,
    needs="(ε, δ), the factor on the estimated standard deviation, the share of components sampled",
    claimed_unit="record (zero_out), the estimate taken for the sensitivity",
    provable="no",
    why="nothing bounds what is sent, and its noise is scaled by a private estimate",
    shares=("gradient", "update"),
    group="comparators",
)
