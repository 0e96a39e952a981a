"""NbAFL, noising before aggregation (NBA: Wei et al., arXiv:1911.00222, Alg. 1, Thm 1, Lemma 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from ..aggregate import Mean
from ..claims import nbafl_downlink_std, nbafl_epsilon, nbafl_uplink_std
from ..local import LocalTraining, Proximal
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme, Step
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from ..terms import Observer
from ..update import Replace
from ..wire import Kind
from .base import Parameters, Population, Preset, cohort_field


class NbaflParameters(Parameters):
    """Theorem 1's; with a noise_std of one's own the server's noise is that of the ε whose σ_U it is."""

    rounds: int = Field(default=25, ge=1, description="T, how many rounds")
    share: Kind = Field(default="weights", description='a client\'s message: "weights"')
    epsilon: float = Field(
        default=50.0,
        gt=0,
        description="ε, the paper's target: noise_std = √(2 ln(1.25/δ))·L·(2C/m)/ε, m the fewest records",
    )
    delta: float = Field(default=0.01, gt=0, lt=1, description="δ of that formula")
    noise_std: float | None = Field(
        default=None, gt=0, description="instead of epsilon: of the noise on a client's weights, in parameter units"
    )
    clip: float = Field(default=1.0, gt=0, description="C, L2 norm of the weights sent, in parameter units")
    exposures: int = Field(default=1, ge=1, description="L, how many of its uploads a client expects to be caught")
    mu: float = Field(default=0.0, ge=0, description="μ of the proximal term μ/2·‖w − w_t‖²")
    participants: int | None = cohort_field("K of N clients a round")


def build(parameters: NbaflParameters, local: LocalTraining, population: Population) -> Scheme:
    """Weights clipped to C, N(0, σ_U²) before upload, Σ p_i w_i with p_i = |D_i|/|D|, N(0, σ_D²) before the broadcast.

    σ_U = cLΔ/ε, Δ = 2C/m with m the smallest client's records, c = √(2 ln(1.25/δ)). σ_D is what Theorem 1 (all clients)
    or Lemma 5 (K of N, with its test first: none where T ≤ ε/γ) asks for beyond the noise that the uploads bring along.
    Readings: the formulas are re-derived, our copy had lost them; Lemma 5 inverts the weaker direction of
    amplification.
    Assumes Δ = 2C/m, and that at most L of a client's uploads are caught. Claim: ε for these L uploads, one record
    replaced, linear in their number.
    Provable: weights clipped whole have sensitivity 2C for a record, m times the paper's Δ; a server sees all T
    uploads, not L; the downlink adds σ_D to the clients' noise.
    The local training prescribed: the proximal term.

    N = 50, m = 1,000, T = 25, L = 1, C = 1, (50, .01): c = 3.1075, σ_U = c·(2/1,000)/50 = 1.243e-4, σ_D = 5.961e-5.

    >>> scheme = PRESET.scheme(NbaflParameters(), LocalTraining(), Population((1000,) * 50))
    >>> f"{scheme.client[1].noise_std:.3e} {scheme.server[0].noise_std:.3e}"
    '1.243e-04 5.961e-05'
    """
    p, m, clients = parameters, min(population.records), population.clients
    if p.exposures > p.rounds:
        raise ValueError(f"exposures = {p.exposures}: at most rounds = {p.rounds} uploads can be caught")
    caught: dict[str, Any] = {"delta": p.delta, "clip": p.clip, "records": m, "exposures": p.exposures}
    target = p.epsilon if p.noise_std is None else nbafl_epsilon(noise_std=p.noise_std, **caught)
    up = p.noise_std or nbafl_uplink_std(epsilon=target, **caught)
    down = nbafl_downlink_std(epsilon=target, **caught, rounds=p.rounds, clients=clients, cohort=p.participants)
    server: tuple[Step, ...] = (Perturb(noise_std=down),) if down > 0 else ()

    def epsilon(releases: int, delta: float) -> float:
        exposures = min(releases, p.exposures)
        return nbafl_epsilon(noise_std=up, delta=delta, clip=p.clip, records=m, exposures=exposures)

    return Scheme(
        name="nbafl",
        source=PRESET.source,
        local=replace(local, penalties=(*local.penalties, Proximal(p.mu))) if p.mu > 0 else local,
        share="weights",
        client=(Clip(p.clip), Perturb(noise_std=up)),
        aggregate=Mean(weighted=True),
        server=server,
        update=Replace(),
        schedule=FixedRounds(p.rounds),
        participation=drawn(p.participants, clients),
        claim=Claim(
            epsilon,
            f"NbAFL: {p.exposures} uploads caught, Δ = 2C/m with m = {m}",
            Observer("uplink", p.exposures),
            "record",
            "replace_one",
        ),
    )


PRESET = Preset(
    name="nbafl",
    title="Noise on clipped weights before the upload, and more before the broadcast",
    source="Wei et al., arXiv:1911.00222, Alg. 1, Thm 1, Lemma 5",
    parameters=NbaflParameters,
    build=build,
    needs="(ε, δ), the weights' clip C, expected exposures L, the proximal μ and the cohort K",
    claimed_unit="record (replace_one) towards whoever catches L of a client's uploads",
    provable="yes",
    why="a Gaussian over 2C, not the paper's 2C/m: vacuous at its noise; a server sees all T uploads",
    shares=("weights",),
    noise=("noise_std", "epsilon"),
)
