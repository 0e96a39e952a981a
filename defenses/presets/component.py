"""Adaptive noise component by component (ADN: Xue et al., Alg. 2-4, eq. 2-4 and 12, Table II)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from ..aggregate import Mean
from ..claims import component_epsilon
from ..local import LocalTraining
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Budget, Claim, Scheme
from ..steps.components import ClipComponents, PerturbComponents
from ..terms import Observer
from ..wire import Kind
from .base import Parameters, Population, Preset, update_rule


class ComponentParameters(Parameters):
    """rounds: T at most. epsilon, delta: the budget (ε, δ*). sigma: σ0. beta: the truncation factor β. K: local steps a
    round. stop: "after" the round that passes the budget (Alg. 2), or "before" it. threshold: a public |w − G| for all
    components, instead of the paper's. participants: clients a round, by lot (None: all).
    """

    rounds: int = Field(default=100, ge=1)
    share: Kind = "weights"
    epsilon: float = Field(default=2.0, gt=0)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    sigma: float = Field(default=26.0, gt=0)
    beta: float = Field(default=1.1, gt=0)
    K: int = Field(default=16, ge=2)
    stop: Literal["after", "before"] = "after"
    threshold: float | None = Field(default=None, gt=0)
    participants: int | None = Field(default=None, ge=1)


def build(parameters: ComponentParameters, local: LocalTraining, population: Population) -> Scheme:
    """Component m of the weights truncated to w0 ± q_m and noised; mean weighted by |D_i|.

    q_m = (β/2)|w_{K−1} − G(g_{K−1})|; the noise has std √M σ0·2q_m.

    G is the optimiser's step (SGD, momentum, Adam, RMSprop; Table II, with its ε = 1e-7 under the root) repeated with
    the gradient that led to w_{K−1}, from the optimiser's state there; hence K ≥ 2. A client who drops out spends
    nothing.
    Readings: Algorithm 2 tests δ_i > δ* after aggregating, so one release more than the budget happens (8, 109, 209
    instead of 7, 108, 208 at (.5, 26), (2, 26), (8, 10)); stop = "before" drops each client in time. √M σ0 β|w| is
    enormous for real models.
    Assumes that the thresholds q_m are public.
    Claim: Alg. 4 solved for ε, min over integer α of Lα/(2σ0²) + ln(1/δ)/(α − 1), L own releases.
    Provable: nothing, the thresholds come from private gradients; with a public threshold multiplier σ0 for a record,
    2σ0 for the client (zero_out).
    The local training prescribed: K steps; RMSprop's γ = .9.

    σ0 = 26, δ* = 1e-5: ε = 2 allows 108 releases of a client, and not 109.

    >>> scheme = PRESET.scheme(ComponentParameters(sigma=26.0), LocalTraining(), Population((500,) * 50))
    >>> [scheme.claim.epsilon(releases, 1e-5) <= 2 for releases in (108, 109)]
    [True, False]
    """
    training = replace(local, epochs=None, steps=parameters.K, smoothing=0.9, keep_last=True)

    def epsilon(releases: int, delta: float) -> float:
        return component_epsilon(releases, parameters.sigma, delta)

    return Scheme(
        name="component",
        source=PRESET.source,
        local=training,
        share=parameters.share,
        client=(
            ClipComponents(parameters.beta, training, parameters.share == "weights", parameters.threshold),
            PerturbComponents(parameters.sigma),
        ),
        aggregate=Mean(weighted=True),
        update=update_rule(parameters.share, local),
        schedule=FixedRounds(parameters.rounds),
        participation=drawn(parameters.participants, population.clients),
        claim=Claim(
            epsilon,
            f"ADN Theorem 1 and Alg. 4 with σ0 = {parameters.sigma:g}",
            Observer("server"),
            "record",
            "replace_one",
        ),
        budget=Budget(parameters.epsilon, parameters.delta, parameters.stop),
    )


PRESET = Preset(
    name="component",
    title="Every component truncated and noised by its own threshold, from the optimiser's repeated step",
    source="Xue et al. (ADN), Alg. 2-4, eq. 2-4 and 12, Table II",
    parameters=ComponentParameters,
    build=build,
    needs="(ε, δ*), σ0, β, K ≥ 2 local steps; a public threshold for a proof",
    claimed_unit="record (replace_one), sensitivity from private thresholds",
    provable="depends",
    why=(
        "nothing (thresholds from private gradients); with a public threshold multiplier σ0 for a record, 2σ0 for a"
        " client"
    ),
    shares=("weights", "update"),
)
