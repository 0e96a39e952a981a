"""NaAFL, noising after aggregation: the comparison NbAFL is held against.

Source: NBA, Wei et al., arXiv:1911.00222, II-C, eq. 4.
"""

from __future__ import annotations

from pydantic import Field

from ..aggregate import Mean
from ..claims import nbafl_epsilon, nbafl_uplink_std
from ..local import LocalTraining
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from ..terms import Observer
from ..update import Replace
from ..wire import Kind
from .base import Parameters, Population, Preset


class NaaflParameters(Parameters):
    """Theorem 1's, or the noise itself."""

    rounds: int = Field(default=25, ge=1, description="T, how many rounds")
    share: Kind = Field(default="weights", description='a client\'s message: "weights"')
    epsilon: float = Field(
        default=50.0,
        gt=0,
        description="ε, the target: noise_std = √(2 ln(1.25/δ))·T·(2C/|D|)/ε, |D| all clients' records",
    )
    delta: float = Field(default=0.01, gt=0, lt=1, description="δ of that formula")
    clip: float = Field(default=1.0, gt=0, description="C, L2 norm of the weights sent, in parameter units")
    noise_std: float | None = Field(
        default=None, gt=0, description="instead of epsilon: of the server's noise on the mean, in parameter units"
    )


def build(parameters: NaaflParameters, local: LocalTraining, population: Population) -> Scheme:
    """Weights clipped to C and sent raw; the server adds N(0, σ²) to Σ p_i w_i, p_i = |D_i|/|D| (eq. 4).

    The paper leaves σ open. Ours: what its own Theorem 1 asks of the downlink when the uploads bring no noise, σ =
    cTΔ_D/ε with Δ_D = max p_i·2C/|D_i| = 2C/|D| (eq. 7), or noise_std.
    Assumes Δ_D = 2C/|D|. Claim: ε over T broadcasts, one record replaced, linear in their number.
    Provable: nothing towards the server (raw weights); the downlink is a Gaussian over the bound 2C·max p_i for a
    record, not 2C/|D|.

    N = 50, |D_i| = 1,000, T = 25, C = 1, (50, .01): c = √(2 ln 125) = 3.1075, σ = c·25·(2/50,000)/50 = 6.215e-5.

    >>> scheme = PRESET.scheme(NaaflParameters(), LocalTraining(), Population((1000,) * 50))
    >>> f"{scheme.server[0].noise_std:.3e}"
    '6.215e-05'
    """
    total = sum(population.records)
    noise_std = parameters.noise_std or nbafl_uplink_std(
        epsilon=parameters.epsilon,
        delta=parameters.delta,
        clip=parameters.clip,
        records=total,
        exposures=parameters.rounds,
    )

    def epsilon(releases: int, delta: float) -> float:
        return nbafl_epsilon(noise_std=noise_std, delta=delta, clip=parameters.clip, records=total, exposures=releases)

    return Scheme(
        name="naafl",
        source=PRESET.source,
        local=local,
        share="weights",
        client=(Clip(parameters.clip),),
        aggregate=Mean(weighted=True),
        server=(Perturb(noise_std=noise_std),),
        update=Replace(),
        schedule=FixedRounds(parameters.rounds),
        claim=Claim(
            epsilon,
            f"NbAFL Theorem 1 without uplink noise, Δ = 2C/|D| with |D| = {total}",
            Observer("downlink"),
            "record",
            "replace_one",
            "rounds",
        ),
    )


PRESET = Preset(
    name="naafl",
    title="Raw clipped weights, noise after aggregation only",
    source="Wei et al., arXiv:1911.00222, II-C, eq. 4",
    parameters=NaaflParameters,
    build=build,
    needs="(ε, δ) or noise_std, and the weights' clip C",
    claimed_unit="record (replace_one) towards the downlink",
    provable="depends",
    why="server: nothing (raw weights); downlink: a Gaussian over 2C·max p_i for a record",
    shares=("weights",),
    noise=("noise_std", "epsilon"),
)
