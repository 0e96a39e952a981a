"""The Laplace mechanism of constant scale that GEO (Yuan et al., V-B, Fig. 2-3) compares itself with."""

from __future__ import annotations

from math import sqrt

from pydantic import Field

from ..aggregate import Mean
from ..local import LocalTraining, StepClip
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from ..terms import Observer
from ..update import Replace
from ..wire import Kind
from .base import Parameters, Population, Preset, cohort_field
from .geometric import full_batch


class LaplaceParameters(Parameters):
    """GEO's letters."""

    rounds: int = Field(default=30, ge=1, description="M, how many rounds")
    share: Kind = Field(default="weights", description='a client\'s message: "weights"')
    epsilon: float = Field(
        default=10.0,
        gt=0,
        description="ε, the target: scale = (K/U)·M·(2C/n)/ε, n records a client; noise_std = √2·scale",
    )
    noise_std: float | None = Field(
        default=None, gt=0, description="instead of epsilon: of the noise, √2 times its scale, in parameter units"
    )
    clip: float = Field(
        default=5.0, gt=0, description="C, L1 norm of the weights after every local step, in parameter units"
    )
    tau: int = Field(default=5, ge=1, description="τ, local steps a round")
    participants: int | None = cohort_field("K of U clients a round")


def build(parameters: LaplaceParameters, local: LocalTraining, population: Population) -> Scheme:
    """As `geometric` at ϑ = 1, the clip an L1 norm and the noise Laplace, of scale qM·Δ/ε with Δ = 2C/n_k, q = K/U.

    GEO gives no scale. Ours: its own Δ, and its own qM expected releases of a client, composed linearly.
    Assumes Δ = 2C/n_k in the L1 norm. Claim: ε-DP, linear in a client's own releases.
    Provable: the clip bounds the whole vector, so Δ = 2C for a record: n times the claim.
    The local training prescribed: plain gradient descent, full batch, τ steps, the clip.

    U = 100, K = 10, n = 600, C = 5, M = 30, ε = 10: qM = 3 releases of Δ = 10/600, scale 3Δ/ε = .005.

    >>> scheme = PRESET.scheme(LaplaceParameters(participants=10), LocalTraining(), Population((600,) * 100))
    >>> round(5 / 600 * scheme.client[1].noise_multiplier, 5), scheme.claim.epsilon(3, 0)
    (0.005, 10.0)
    """
    clients = population.clients
    releases_expected = (parameters.participants or clients) / clients * parameters.rounds
    multiplier, target = 2 * releases_expected / parameters.epsilon, parameters.epsilon
    noise = Perturb(noise_multiplier=multiplier, divided_by="records", mechanism="laplace")
    if parameters.noise_std is not None:
        noise = Perturb(noise_std=parameters.noise_std, mechanism="laplace")
        assumed = 2 * parameters.clip / min(population.records)  # Δ
        target = releases_expected * assumed / (parameters.noise_std / sqrt(2))

    def epsilon(releases: int, delta: float) -> float:
        del delta
        return target * releases / releases_expected

    return Scheme(
        name="laplace",
        source=PRESET.source,
        local=full_batch(local, parameters.tau, StepClip("weights", parameters.clip, order=1), population),
        share="weights",
        client=(Clip(parameters.clip, order=1), noise),
        aggregate=Mean(weighted=True),
        update=Replace(),
        schedule=FixedRounds(parameters.rounds),
        participation=drawn(parameters.participants, clients),
        claim=Claim(
            epsilon,
            f"linear composition of {releases_expected:g} releases expected, Δ = 2C/n",
            Observer("server"),
            "record",
            "zero_out",
        ),
    )


PRESET = Preset(
    name="laplace",
    title="Laplace noise of constant scale on weights clipped in the L1 norm",
    source="Yuan et al. (GEO), V-B, Fig. 2-3",
    parameters=LaplaceParameters,
    build=build,
    needs="ε, the weights' L1 clip C, local steps τ and the cohort K",
    claimed_unit="record (zero_out), Δ = 2C/n assumed, pure ε",
    provable="yes",
    why="Laplace over 2C for a record (C for the client), n times the claim",
    shares=("weights",),
    noise=("noise_std", "epsilon"),
    group="comparators",
)
