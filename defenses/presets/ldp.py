"""Local DP as the thesis writes it: clip the update, add Gaussian noise of std σC/n.

Source: THESIS 4.1-4.2, 3.8-3.11, 2.28.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ..claims import rdp_gaussian
from ..local import LocalTraining
from ..scheme import Claim, Scheme
from ..steps.clip import Clip, MedianClip
from ..steps.perturb import Perturb
from .base import Population, Preset, update_rule
from .thesis import ThesisParameters

CLIP = 'C, L2 norm of what a client sends, in parameter units; or "median" of its own past norms'


class LdpParameters(ThesisParameters):
    """The noise is σ, or its standard deviation (exactly one; 0 is no noise), or follows from target_epsilon."""

    clip: Annotated[float, Field(gt=0)] | Literal["median"] = Field(default=1.0, description=CLIP)
    sigma: float | None = Field(
        default=None, ge=0, description="σ, the paper's noise: noise_std = σ·C/n, n records a client"
    )
    noise_std: float | None = Field(
        default=None, ge=0, description="standard deviation of the noise on each number sent, in parameter units"
    )
    per_layer: bool = Field(
        default=False, description="clip and noise tensor by tensor: the whole has norm C·√(tensors)"
    )

    @model_validator(mode="after")
    def _one_noise(self) -> LdpParameters:
        if self.clip == "median" and self.target_epsilon is not None:
            raise ValueError('target_epsilon needs a fixed clip: with clip = "median" nothing can be proven')
        if (self.sigma is None) == (self.noise_std is None) and (self.sigma is not None or self.target_epsilon is None):
            given = "both" if self.sigma is not None else "neither"
            raise ValueError(f"give exactly one of sigma and noise_std ({given} given)")
        if self.clip == "median" and self.noise_std is not None:
            raise ValueError('with clip = "median" the noise follows the clip; give sigma instead of noise_std')
        return self


def build(parameters: LdpParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clip to C (whole, or each tensor), then N(0, (σC/n)²) on every component, n = the client's records; uniform mean.

    Assumes Δ = C/n. Claim, where σ is given: one release is then a Gaussian of multiplier σ, and T of a client's own
    releases cost ε = T/(2σ²) + √(2T ln(1/δ))/σ (THESIS Def. 7, minimised over α).
    Provable: the clip bounds the whole vector, so the sensitivity really guaranteed is C (client, zero_out), 2C
    (record, or replace_one): multipliers σ/n and σ/(2n), ÷√Λ per layer; with the median clip nothing is proven.

    σ = 1, δ = 1e-5: one release costs 1/2 + √(2·11.513) = 5.30, 15 cost 15/2 + √(30·11.513) = 26.08.

    >>> scheme = PRESET.scheme(LdpParameters(sigma=1.0), LocalTraining(), Population((600,) * 100))
    >>> [round(scheme.claim.epsilon(releases, 1e-5), 2) for releases in (1, 15)]
    [5.3, 26.08]
    """
    if parameters.clip == "median":
        clip: Clip | MedianClip = MedianClip(per_layer=parameters.per_layer)
    else:
        clip = Clip(float(parameters.clip), per_layer=parameters.per_layer)
    if parameters.sigma is not None:
        noise, sigma = Perturb(noise_multiplier=parameters.sigma, divided_by="records"), parameters.sigma
    else:
        assert parameters.noise_std is not None
        noise, sigma = Perturb(noise_std=parameters.noise_std), sigma_of(parameters, population)
    noisy = sigma > 0
    return Scheme(
        name="ldp",
        source=PRESET.source,
        local=local,
        share=parameters.share,
        client=(clip, noise) if noisy else (clip,),
        update=update_rule(parameters.share, local),
        schedule=parameters.schedule(),
        participation=parameters.participation(population),
        claim=gaussian_claim(sigma) if noisy else None,
        min_clients=parameters.participants or 1,
    )


def sigma_of(parameters: LdpParameters, population: Population) -> float:
    """σ as it was given, or σ = noise_std·n/C for the smallest client."""
    if parameters.sigma is not None:
        return parameters.sigma
    return (parameters.noise_std or 0.0) * min(population.records) / float(parameters.clip)


def gaussian_claim(sigma: float) -> Claim:
    """The thesis's claim for a noise multiplier σ over the sensitivity it assumes, C/n."""

    def epsilon(releases: int, delta: float) -> float:
        return rdp_gaussian(sigma, releases, delta)

    return Claim(
        epsilon, f"THESIS Def. 7 (RDP) with noise multiplier {sigma:g} over an assumed sensitivity of C/n per release"
    )


PRESET = Preset(
    name="ldp",
    title="Local DP with Gaussian noise of std σC/n on the clipped update",
    source="Weng 2025 (THESIS) 4.1-4.2, 3.8-3.11, 2.28",
    parameters=LdpParameters,
    build=build,
    needs='a clip norm C (or "median") and σ (or noise_std)',
    claimed_unit="client (zero_out), Δ = C/n assumed",
    provable="depends",
    why=(
        "fixed clip: multiplier σ/n for a client, σ/(2n) for a record, ÷√Λ per layer; median clip: nothing (the bound"
        " is private data)"
    ),
    noise=("noise_std", "sigma"),
    example={"sigma": 1.0},
)
