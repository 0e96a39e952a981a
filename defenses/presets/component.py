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
from .base import Parameters, Population, Preset, cohort_field, update_rule


class ComponentParameters(Parameters):
    """The paper's, and a public threshold in place of its private ones."""

    rounds: int = Field(default=100, ge=1, description="T at most")
    share: Kind = Field(default="weights", description='a client\'s message: "weights" or "update"')
    epsilon: float = Field(default=2.0, gt=0, description="ε of the budget that ends the run; decides no noise")
    delta: float = Field(default=1e-5, gt=0, lt=1, description="δ* of the budget")
    sigma: float = Field(
        default=26.0, gt=0, description="σ0: noise_std = √M·σ0·2q of each of M components, q its threshold"
    )
    beta: float = Field(default=1.1, gt=0, description="β, truncation: q = (β/2)·|w − G|, in parameter units")
    K: int = Field(default=16, ge=2, description="local steps a round")
    stop: Literal["after", "before"] = Field(
        default="after", description='"after" the round that passes the budget (Alg. 2), or "before" it'
    )
    threshold: float | None = Field(
        default=None,
        gt=0,
        description="a public |w − G| for all components, in parameter units, instead of the paper's",
    )
    reading: Literal["paper", "code"] = Field(
        default="paper",
        description="\"code\": the authors': q = β·|w − G − w0|, noise_std = √m·σ0·q/batch_size, m its tensor's",
    )
    participants: int | None = cohort_field("clients a round")


def build(parameters: ComponentParameters, local: LocalTraining, population: Population) -> Scheme:
    """Component m of the weights truncated to w0 ± q_m and noised; mean weighted by |D_i|.

    q_m = (β/2)|w_{K−1} − G(g_{K−1})|; the noise has std √M σ0·2q_m.

    G is the optimiser's step (SGD, momentum, Adam, RMSprop; Table II, with its ε = 1e-7 under the root) repeated with
    the gradient that led to w_{K−1}, from the optimiser's state there; hence K ≥ 2. A client who drops out spends
    nothing.
    Readings: Algorithm 2 tests δ_i > δ* after aggregating, so one release more than the budget happens (8, 109, 209
    instead of 7, 108, 208 at (.5, 26), (2, 26), (8, 10)); stop = "before" drops each client in time. √M σ0 β|w| is
    enormous for real models.
    reading = "code" is what the code does that ADN's printed accuracies most likely come from (themole233/ANDPFL): the
    threshold by the update instead of the weight, and noise by tensor over the batch size. It trains, where the printed
    formula cannot; with a public threshold a client has multiplier σ0/(B√Λ) over Λ tensors, a record half of it.
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

    code = parameters.reading == "code"

    def epsilon(releases: int, delta: float) -> float:
        return component_epsilon(releases, parameters.sigma, delta)

    return Scheme(
        name="component",
        source=PRESET.source,
        local=training,
        share=parameters.share,
        client=(
            ClipComponents(parameters.beta, training, parameters.share == "weights", parameters.threshold, code),
            PerturbComponents(parameters.sigma, local.batch_size if code else None),
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
    noise=("sigma",),
)
