"""Client-based DP-FedAvg with tuned iteration times (ITER: Fu et al., Alg. 1, Thm 1-3): Laplace and Gaussian noise on
the model.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Literal

from pydantic import Field

from ..aggregate import PopulationMean
from ..claims import (
    iteration_gaussian_epsilon,
    iteration_gaussian_std,
    iteration_laplace_epsilon,
    iteration_laplace_scale,
    iteration_sensitivity,
)
from ..local import LocalTraining, StepClip
from ..participation import RoundRobin
from ..schedule import HarmonicSteps
from ..scheme import Claim, Scheme
from ..steps.perturb import Perturb
from ..terms import Observer
from ..update import Replace
from ..wire import Kind
from .base import Parameters, Population, Preset, check_share
from .geometric import full_batch


class DpFedAvgParameters(Parameters):
    """rounds: T_g. epsilon: the target over all of a client's rounds. zeta: ζ, every full-batch gradient's norm bound.
    order: of that norm. E: local steps a round. b: clients a round, in turn (None: all). mu, lam: strong convexity μ
    and smoothness λ of the loss, from which the learning rates follow.
    """

    share: Kind = "weights"
    epsilon: float = Field(default=10.0, gt=0)
    zeta: float = Field(default=1.0, gt=0)
    order: Literal[1, 2] = 1
    E: int = Field(default=1, ge=1)
    b: int | None = Field(default=None, ge=1)
    mu: float = Field(default=1.0, gt=0)
    lam: float = Field(default=1.0, gt=0)


class GaussianParameters(DpFedAvgParameters):
    """delta: of the target. c2: the constant that Theorem 2 only says exists."""

    delta: float = Field(default=1e-4, gt=0, lt=1)
    c2: float = Field(default=sqrt(2), gt=0)


def build_laplace(parameters: DpFedAvgParameters, local: LocalTraining, population: Population) -> Scheme:
    """E steps of gradient descent on all of a client's data, gradients clipped to ‖·‖₁ ≤ ζ; Laplace noise of scale T_l
    Ξ1/ε on the weights.

    Ξ1 = η̃_t E ζ with η̃_t the round's largest rate (Thm 1: ζ is taken for the sensitivity ξ1), T_l = bT_g/N, rates η_k
    = 2/(μ(k + γ)), γ = max(8λ/μ, E) (Thm 3), b of N clients in turn, θ ← (N/b) Σ (n_l/n) θ_l.
    Claim: ε/T_l a release, summed. Provable: two data sets' sums of clipped steps differ by up to 2·Ση_kζ, not Ση_kζ,
    so 2ε for a record; the client's part (zero_out) is ≤ Ση_kζ. order = 2 bounds another norm than Laplace noise needs:
    ε = ∞.
    The local training prescribed: plain gradient descent, full batch, E steps, these rates, the clip.
    """
    schedule, own = _schedule(parameters), _own_rounds(parameters, population)
    sensitivity = iteration_sensitivity(schedule.rate(0), parameters.E, parameters.zeta)
    scale = iteration_laplace_scale(parameters.epsilon, own, sensitivity)

    def epsilon(releases: int, delta: float) -> float:
        del delta
        return iteration_laplace_epsilon(scale, releases, sensitivity)

    claim = Claim(
        epsilon,
        f"ITER Theorem 1, ε = {parameters.epsilon:g} over {own:g} releases, linear composition",
        Observer("server"),
        "record",
        "replace_one",
    )
    noise = Perturb(noise_std=sqrt(2) * scale, mechanism="laplace")
    return _build("dpfedavg-laplace", parameters, local, population, schedule, noise, claim)


def build_gaussian(parameters: GaussianParameters, local: LocalTraining, population: Population) -> Scheme:
    """As `dpfedavg-laplace` with Gaussian noise of std Ξ2·c2·√(T_l ln(1/δ))/ε (Thm 2, q = 1), Ξ2 = η̃_t E ζ.

    The paper clips by the L1 norm here too; order = 2 clips by the norm its proof has. c2 is never stated; √2 is our
    default.
    Claim: ε over T_l releases, growing with their root. Provable: multiplier c2·√(T_l ln(1/δ))/ε over T_l releases for
    the client (zero_out), half of it for a record; at δ = 1e-4 the claim needs c2 ≥ 1.50, 1.78, 1.99 for ε = 10, 20,
    30.
    """
    schedule, own = _schedule(parameters), _own_rounds(parameters, population)
    sensitivity = iteration_sensitivity(schedule.rate(0), parameters.E, parameters.zeta)
    noise_std = iteration_gaussian_std(parameters.epsilon, parameters.delta, own, sensitivity, parameters.c2)

    def epsilon(releases: int, delta: float) -> float:
        return iteration_gaussian_epsilon(noise_std, delta, releases, sensitivity, parameters.c2)

    sentence = (
        f"ITER Theorem 2 with c2 = {parameters.c2:.3g}, ({parameters.epsilon:g}, {parameters.delta:g}) over {own:g}"
        " releases"
    )
    claim = Claim(epsilon, sentence, Observer("server"), "record", "replace_one")
    return _build("dpfedavg-gaussian", parameters, local, population, schedule, Perturb(noise_std=noise_std), claim)


def _schedule(parameters: DpFedAvgParameters) -> HarmonicSteps:
    return HarmonicSteps(
        parameters.rounds, parameters.E, parameters.mu, max(8 * parameters.lam / parameters.mu, parameters.E)
    )


def _own_rounds(parameters: DpFedAvgParameters, population: Population) -> float:
    """T_l = bT_g/N, how many rounds a client takes part in."""
    if (parameters.b or 1) > population.clients:
        raise ValueError(f"b = {parameters.b}: there are only {population.clients} clients")
    return (parameters.b or population.clients) * parameters.rounds / population.clients


def _build(
    name: str,
    parameters: DpFedAvgParameters,
    local: LocalTraining,
    population: Population,
    schedule: HarmonicSteps,
    noise: Perturb,
    claim: Claim,
) -> Scheme:
    check_share(name, parameters.share, ("weights",))
    clip = StepClip("gradient", parameters.zeta, parameters.order)
    return Scheme(
        name=name,
        source=SOURCE,
        local=replace(full_batch(local, parameters.E, clip, population), lr=1.0),
        share="weights",
        client=(noise,),
        aggregate=PopulationMean(population.clients, sum(population.samples)),
        update=Replace(),
        schedule=schedule,
        participation=RoundRobin(parameters.b or population.clients),
        claim=claim,
    )


SOURCE = "Fu et al. (ITER), Alg. 1, Thm 1-3"

LAPLACE = Preset(
    name="dpfedavg-laplace",
    title="FedAvg with clipped full-batch steps and Laplace noise on the model, clients in turn",
    source=SOURCE,
    parameters=DpFedAvgParameters,
    build=build_laplace,
    needs="ε, the gradients' clip ζ, local steps E, clients a round b, and the loss's μ and λ",
    claimed_unit="record (replace_one)",
    provable="2ε for a record (the claim forgets a factor 2), ε for the client (zero_out); with an L2 clip nothing",
)

GAUSSIAN = Preset(
    name="dpfedavg-gaussian",
    title="FedAvg with clipped full-batch steps and Gaussian noise on the model, clients in turn",
    source=SOURCE,
    parameters=GaussianParameters,
    build=build_gaussian,
    needs="(ε, δ), the gradients' clip ζ, local steps E, clients a round b, the loss's μ and λ, and the unstated c2",
    claimed_unit="record (replace_one)",
    provable="the bound 2·Ση·ζ for a record, Ση·ζ for the client; more than claimed at c2 = √2 and ε ≥ 10",
)
