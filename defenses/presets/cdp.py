"""Central DP on the client level (Geyer, Klein, Nabi 2017, arXiv:1712.07557, Alg. 1; THESIS 2.27, 3.3-3.5)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..claims import moments_epsilon
from ..local import LocalTraining
from ..scheme import Claim, Scheme
from ..steps.clip import ClipReceived
from ..steps.perturb import Perturb
from ..terms import Observer
from .base import Population, Preset, update_rule
from .thesis import ThesisParameters


class CdpParameters(ThesisParameters):
    """By default the paper's own."""

    sigma: float = Field(
        default=1.18, gt=0, description="σ, noise over the clip norm: the server's noise_std = σ·S/m, m clients"
    )
    clip: Annotated[float, Field(gt=0)] | Literal["median"] = Field(
        default="median",
        description='S, L2 norm in parameter units: "median" of the round\'s norms, or a public number',
    )
    noise_on: Literal["sum", "mean"] = Field(
        default="sum", description='"sum": the mean gets noise_std = σ·S/m; "mean": it gets σ·S'
    )


def build(parameters: CdpParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clients send raw updates; the server clips each to the round's median norm S, averages m and adds N(0, (Sσ/m)²).

    Readings: Geyer et al. put the noise on the sum, σ being the multiplier, which fits the published ε; the thesis's
    (3.3) adds Sσ to the mean (noise_on = "mean"), m times as much, with the same claim.
    Assumes that S is public and that the cohort is a Poisson sample of rate m/M.
    Claim: the moments accountant, moments 1 to 32, over the rounds.
    Provable: the server sees raw updates (∞); the median is a function of private data (∞ on the downlink too); with a
    public C the downlink is a Gaussian of multiplier σ (mσ on the mean), cohorts of exactly m drawn without
    replacement.

    THESIS table 3.1, 50 of 100 clients, σ = 1.18, 11 rounds, δ = 1e-3: 8.15 (printed as 8).

    >>> scheme = PRESET.scheme(CdpParameters(participants=50), LocalTraining(), Population((600,) * 100))
    >>> round(scheme.claim.epsilon(11, 1e-3), 2)
    8.15
    """
    cohort = parameters.participants or population.clients
    rate, sigma = cohort / population.clients, parameters.sigma

    def epsilon(releases: int, delta: float) -> float:
        return moments_epsilon(rate, sigma, releases, delta)

    sentence = f"moments accountant with q = {rate:g} and σ = {sigma:g}, a Poisson sample assumed"
    return Scheme(
        name="cdp",
        source=PRESET.source,
        local=local,
        gather=(ClipReceived(None if parameters.clip == "median" else parameters.clip),),
        server=(Perturb(noise_multiplier=sigma, divided_by="senders" if parameters.noise_on == "sum" else "nothing"),),
        update=update_rule("update", local),
        schedule=parameters.schedule(),
        participation=parameters.participation(population),
        claim=Claim(epsilon, sentence, observer=Observer("downlink"), counts="rounds"),
        min_clients=cohort,
    )


PRESET = Preset(
    name="cdp",
    title="Central DP: the server clips raw updates to their median norm and adds noise to the mean",
    source="Geyer et al. 2017, arXiv:1712.07557, Alg. 1; Weng 2025 (THESIS) 2.27, 3.3-3.5",
    parameters=CdpParameters,
    build=build,
    needs="σ, and a cohort size for amplification; a public clip C instead of the median for a proof",
    claimed_unit="client (zero_out), towards the downlink",
    provable="depends",
    why="server: nothing (raw updates); downlink: nothing with the median, a sampled Gaussian with a public clip",
    shares=("update",),
    noise=("sigma",),
    group="comparators",
)
