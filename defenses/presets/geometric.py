"""Amplitude-varying perturbation: noise variances in geometric progression.

Source: GEO, Yuan et al., Alg. 1, Thm 1-2, eq. 2-9.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from ..aggregate import Mean
from ..claims import geometric_adjusted_multiplier, geometric_epsilon, geometric_multiplier
from ..local import LocalTraining, StepClip
from ..participation import drawn
from ..schedule import Geometric
from ..scheme import Claim, Scheme
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from ..terms import Observer
from ..update import Replace
from ..wire import Kind
from .base import Parameters, Population, Preset, cohort_field


class GeometricParameters(Parameters):
    """Theorem 1's; with a noise_std of one's own its (8) and (9) are at the ε whose noise it is."""

    per_round = ("ratio",)

    rounds: int = Field(default=30, ge=1, description="M, how many rounds")
    share: Kind = Field(default="weights", description='a client\'s message: "weights"')
    epsilon: float = Field(
        default=10.0, gt=0, description="ε, the paper's target: noise_std = (2C/n)·√(2q·S·ln(1/δ))/ε in round 1 (eq. 8)"
    )
    delta: float = Field(default=1e-3, gt=0, lt=1, description="δ of that formula")
    noise_std: float | None = Field(
        default=None, gt=0, description="instead of epsilon: of the noise in round 1, in parameter units"
    )
    clip: float = Field(
        default=5.0, gt=0, description="C, L2 norm of the weights after every local step, in parameter units"
    )
    ratio: float = Field(default=1.05, gt=0, description="ϑ, what the noise's variance is multiplied by each round")
    tau: int = Field(default=5, ge=1, description="τ, local steps a round")
    participants: int | None = cohort_field("K of U clients a round")
    shorten: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="α_d, what M is multiplied by when the test loss has not fallen; never where it is not given",
    )


def build(parameters: GeometricParameters, local: LocalTraining, population: Population) -> Scheme:
    """τ full-batch descent steps, weights clipped to C after each; N(0, ϑ^(m−1)σ²) in round m; aggregate Σ p_k w_k.

    σ = (Δ/ε)√(2q·S·ln(1/δ)), S = (ϑ − ϑ^(1−M))/(ϑ − 1), or M at ϑ = 1 (8); Δ = 2C/n_k, q = K/U. The paper's Table II
    does not follow from it (there σ rises as √ϑ). Online adjustment (Thm 2): whenever the test loss has not fallen, M ←
    ⌈α_d M⌉ and later rounds take σ' of (9) at the rounds done, which prices those as if they had used σ'; M' ≤ m ends
    the run. Our reading: again and again, each time from the M in force. It needs the test loss in the history (public:
    the server's own data on a model that everybody has).
    Assumes Δ = 2C/n_k, and that a client takes part qM times. Claim: (8) solved for ε after the rounds done; with
    adjustment ε itself.
    Provable: Theorem 1 drops a term −ε/2, so even with its Δ the claim fails above ε ≈ 7 at δ = 1e-3, and it counts qM
    draws where the busiest client has more; with the bound that holds, 2C, it is n times weaker. The accountant prices
    each round with the noise really used; with adjustment, the path of the largest Σ 1/σ² that the losses can lead to,
    over the client's own rounds, whichever path was taken.
    The local training prescribed: plain gradient descent, full batch, τ steps, the clip.

    U = 100, K = 10, n = 600, C = 5, δ = 1e-3, M = 30, ε = 10: σ of the first round at ϑ = .9, 1 and 1.1.

    >>> ratios = [GeometricParameters(ratio=ratio, participants=10) for ratio in (0.9, 1.0, 1.1)]
    >>> schemes = [PRESET.scheme(parameters, LocalTraining(), Population((600,) * 100)) for parameters in ratios]
    >>> [round(5 / 600 * scheme.client[1].noise_multiplier, 5) for scheme in schemes]
    [0.02793, 0.01073, 0.00631]
    """
    p, clients = parameters, population.clients
    rate = (p.participants or clients) / clients
    target = p.epsilon
    if p.noise_std is not None:  # (8) and (9) are proportional to 1/ε
        own = p.noise_std * min(population.records) / (2 * p.clip)
        target = geometric_multiplier(1.0, p.delta, p.rounds, p.ratio, rate) / own

    def first(rounds: int, done: int) -> float:
        if done == 0:
            return geometric_multiplier(target, p.delta, rounds, p.ratio, rate)
        return geometric_adjusted_multiplier(target, p.delta, rounds, done, p.ratio, rate)

    sigma = first(p.rounds, 0)
    noise = Perturb(noise_multiplier=2 * sigma, divided_by="records")
    if p.noise_std is not None:
        noise = Perturb(noise_std=p.noise_std)

    def epsilon(releases: int, delta: float) -> float:
        if releases == 0:
            return 0.0
        return geometric_epsilon(sigma, delta, p.rounds if p.shorten is not None else releases, p.ratio, rate)

    return Scheme(
        name="geometric",
        source=PRESET.source,
        local=full_batch(local, p.tau, StepClip("weights", p.clip), population),
        share="weights",
        client=(Clip(p.clip), noise),
        aggregate=Mean(weighted=True),
        update=Replace(),
        schedule=Geometric(p.rounds, p.ratio, first, p.shorten),
        participation=drawn(p.participants, clients),
        claim=Claim(
            epsilon,
            f"GEO Theorem 1 with ϑ = {p.ratio:g}, q = {rate:g}, σ = {sigma:.4g}·2C/n",
            Observer("server"),
            "record",
            "zero_out",
            "rounds",
        ),
    )


def full_batch(local: LocalTraining, steps: int, clip: StepClip, population: Population) -> LocalTraining:
    """`steps` steps of plain gradient descent on all of a client's data, clipped at each."""
    return replace(local, optimiser="sgd", batch_size=max(population.records), epochs=None, steps=steps, step_clip=clip)


PRESET = Preset(
    name="geometric",
    title="Weights clipped at every local step, noise that grows or shrinks by a factor each round",
    source="Yuan et al. (GEO), Alg. 1, Thm 1-2, eq. 2-9",
    parameters=GeometricParameters,
    build=build,
    needs="(ε, δ), the weights' clip C, the ratio ϑ, local steps τ and the cohort K; α_d to shorten online",
    claimed_unit="record (zero_out), Δ = 2C/n assumed",
    provable="yes",
    why="a Gaussian over 2C, n times the paper's Δ: vacuous at its noise",
    shares=("weights",),
    noise=("noise_std", "epsilon"),
)
