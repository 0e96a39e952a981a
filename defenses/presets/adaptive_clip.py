"""DP-FedAvg with a clip that follows a quantile of the updates' norms (Andrew et al. 2021, arXiv:1905.03871)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..aggregate import FixedMean
from ..local import LocalTraining
from ..participation import Poisson, drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.momentum import Momentum
from ..steps.quantile import CountWithin, PerturbQuantile, QuantileClip, update_multiplier
from ..terms import Observer
from .base import Parameters, Population, Preset, update_rule


class AdaptiveClipParameters(Parameters):
    """Alg. 1's, with the defaults of section 3."""

    noise_multiplier: float = Field(
        default=1.0,
        gt=0,
        le=1e9,
        description="z of a round, its count included; noise_std = z_Δ·C_t/participants, z_Δ = (z^-2 − (2σ_b)^-2)^-½",
    )
    participants: int | None = Field(
        default=None,
        ge=1,
        description="m, clients a round (with Poisson sampling on average); all where it is not given",
    )
    sampling: Literal["fixed", "poisson"] = Field(
        default="fixed", description='"fixed": exactly so many, by lot; "poisson": a coin for each client'
    )
    clip: float = Field(
        default=0.1, ge=1e-9, le=1e9, description="C_0, the first clip: L2 norm of an update, in parameter units"
    )
    quantile: float = Field(default=0.5, ge=0, le=1, description="γ, the share of updates that is not to be clipped")
    clip_lr: float = Field(
        default=0.2, gt=0, le=10, description="η_C: C becomes C·exp(−η_C(b̃ − γ)), b̃ the share not clipped"
    )
    count_std: float | None = Field(
        default=None, gt=0, description="σ_b, noise on the count of updates not clipped; m/20, but at least z"
    )
    beta: float = Field(default=0.9, ge=0, lt=1, description="β, the server's momentum: V becomes βV + (1 − β)·mean")


def build(parameters: AdaptiveClipParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clients clip their update to C_t and say whether it was within; the server adds noise to the sums of both,
    divides by m, and moves C_t towards the quantile γ.

    Readings: C_t goes out beside the model, the bits come back beside the updates. The paper takes σ_b = m/20 for
    cohorts of 100; where that is below z, σ_b = z (then z_Δ = 1.155z).
    Assumes a server that is trusted with raw updates and with who takes part. Claim: what the accountant proves towards
    the downlink, every round a Gaussian of multiplier z whatever C_t is.
    Provable: nothing towards the server; the downlink as `central-gaussian`, at the same z.

    z = 1, m = 100 of 1,000: z_Δ = 1.005 (section 3), so the mean gets noise_std 1.005·.1/100 in the first round.

    >>> scheme = PRESET.scheme(AdaptiveClipParameters(participants=100), LocalTraining(), Population((60,) * 1000))
    >>> round(scheme.server[0].noise_multiplier, 5), scheme.server[0].count_std
    (1.00504, 5.0)
    """
    p, clients = parameters, population.clients
    cohort = p.participants or clients
    participation = drawn(p.participants, clients)
    if p.sampling == "poisson" and cohort < clients:
        participation = Poisson(cohort / clients)
        if p.dropout > 0:
            raise ValueError(f'dropout = {p.dropout:g}: with sampling = "poisson" lower participants instead')
    count_std = p.count_std or max(cohort / 20, p.noise_multiplier)
    multiplier = update_multiplier(p.noise_multiplier, count_std)
    noise = PerturbQuantile(multiplier, count_std, cohort, p.quantile, p.clip_lr)
    return Scheme(
        name="adaptive-clip",
        source=PRESET.source,
        local=local,
        client=(QuantileClip(p.clip),),
        gather=(CountWithin(),),
        aggregate=FixedMean(cohort),
        server=(noise, Momentum(p.beta)) if p.beta else (noise,),
        update=update_rule("update", local),
        schedule=FixedRounds(p.rounds),
        participation=participation,
        claim=Claim(
            None,
            f"what it proves of rounds that are each one Gaussian release of multiplier {p.noise_multiplier:g}",
            Observer("downlink"),
            whose="accountant",
        ),
    )


PRESET = Preset(
    name="adaptive-clip",
    title="DP-FedAvg with a clip that follows a quantile of the updates' norms, estimated with noise",
    source="Andrew et al. 2021, arXiv:1905.03871, Alg. 1, Thm 1",
    parameters=AdaptiveClipParameters,
    build=build,
    needs="the noise multiplier z over the clip, and a cohort size for amplification; no clip needs to be chosen",
    claimed_unit="client (zero_out), towards the downlink: what is proven",
    provable="depends",
    why="server: nothing (raw updates); downlink: a sampled Gaussian of multiplier z, the clip's own path included",
    shares=("update",),
    noise=("noise_multiplier",),
    group="production",
)
