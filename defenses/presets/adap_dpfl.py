"""Adaptive clip and noise in cross-silo learning (Fu, Chen, Han: adap DP-FL, TrustCom 2022, arXiv:2211.15893)."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Literal

import numpy as np
from pydantic import Field

from ..aggregate import Mean
from ..claims.gaussian import sampled_renyi
from ..local import LocalTraining, PerExample
from ..participation import Everyone
from ..schedule import DecayWhileFalling
from ..scheme import Claim, Scheme
from ..steps.adapt import AdaptClip
from ..terms import Observer
from .base import Parameters, Population, Preset, update_rule

ORDERS = tuple(range(2, 65))  # α of (10)


class AdapDpflParameters(Parameters):
    """Of the paper's MNIST."""

    per_round = ("beta",)

    rounds: int = Field(default=100, ge=1, description="T, how many rounds, of one local step each")
    alpha: float = Field(default=1.0, gt=0, description="α: C of the next round = α·(noised mean of this lot's norms)")
    beta: float = Field(
        default=0.9999, gt=0, le=1, description="β, σ times it after three falls of the test loss in a row (eq. 9)"
    )
    sigma: float = Field(
        default=6.0, gt=0, description="σ_0, noise multiplier: noise_std = σ·C/batch_size on the lot's mean gradient"
    )
    clip: float = Field(
        default=1.0, gt=0, description="C_0, L2 norm of a record's gradient in the first round, in parameter units"
    )
    threshold: Literal["norms", "gradient", "constant"] = Field(
        default="norms",
        description='the mean of eq. 6: "norms": of the lot\'s clipped norms, noised anew; "gradient": norm of the'
        ' noised mean gradient; "constant": C stays C_0',
    )


def build(parameters: AdapDpflParameters, local: LocalTraining, population: Population) -> Scheme:
    """One local step a round on a lot of rate q = L/n: gradients clipped to C_t, their sum plus N(0, (σ_tC_t)²),
    divided by L; Σ p_k w_k with p_k = n_k/n. C_{t+1} = α·(the noised mean of the norms), σ times β after three falls.

    Readings: eq. 6 literally is a second noised sum over the lot that is released (threshold = "norms"); by the remark
    that it is post-processing it is the norm of the noised mean gradient, whose noise alone makes C grow σ√d/L-fold a
    round. The paper's verification set is the test split here, J of the first three models is ∞. C_0 is the mean norm
    of one round on random noise in the paper, a number here. An optimiser begins each round anew.
    Assumes one release a round. Claim: (10), RDP of the sampled Gaussian at α = 2 … 64 with the σ_t used, to which ε =
    R + ln(1/δ)/(α − 1) belongs; as printed, (10) and (15) lack the logarithm. A claim counts rounds and no losses: it
    is for σ that falls as soon as it can.
    Provable: threshold = "norms" makes the two releases of a lot one of multiplier σ_t/√2; the other two readings have
    σ_t. Either way on the path of the least noise, as the losses decide it.
    The local training prescribed: one step, the clip, the noise, the Poisson lot.

    q = 78/6000, σ = 6 all along, 1,000 rounds, δ = 1e-5: .339; printed, without the logarithm, (1/δ)/63 alone is
    1,587.

    >>> federation = LocalTraining(batch_size=78), Population((6000,) * 10)
    >>> round(PRESET.scheme(AdapDpflParameters(beta=1.0), *federation).claim.epsilon(1000, 1e-5), 3)
    0.339
    """
    p = parameters
    rule = PerExample(p.clip, p.sigma, adapts=p.threshold != "constant")
    training = replace(local, epochs=None, steps=1, per_example=rule)
    rate = min(1.0, local.batch_size / min(population.records))
    least, orders = DecayWhileFalling(p.rounds, p.beta).least(), np.array(ORDERS)
    spent = [np.zeros(len(ORDERS))]  # after so many rounds

    def epsilon(releases: int, delta: float) -> float:
        while len(spent) <= releases:
            sigma = p.sigma * least[min(len(spent), p.rounds) - 1].noise
            spent.append(spent[-1] + sampled_renyi(rate, sigma, ORDERS))
        return float((spent[releases] + log(1 / delta) / (orders - 1)).min()) if releases else 0.0

    adapt = () if p.threshold == "constant" else (AdaptClip(training, p.alpha, p.threshold),)
    return Scheme(
        name="adap-dpfl",
        source=PRESET.source,
        local=training,
        share=p.share,
        client=adapt,
        aggregate=Mean(weighted=True),
        update=update_rule(p.share, local),
        schedule=DecayWhileFalling(p.rounds, p.beta),
        participation=Everyone(),
        claim=Claim(
            epsilon,
            f"adap DP-FL (10), RDP of a sampled Gaussian, σ from {p.sigma:g} falling by {p.beta:g}, a release a round",
            Observer("server"),
            "record",
            "zero_out",
        ),
    )


PRESET = Preset(
    name="adap-dpfl",
    title="DP-SGD of one step a round, its clip from the last round's norms, its noise falling with the loss",
    source="Fu, Chen and Han 2022 (adap DP-FL), arXiv:2211.15893, eq. 6-10, Thm 1",
    parameters=AdapDpflParameters,
    build=build,
    needs="σ_0, α and β, the first clip C_0, and which mean eq. 6 is",
    claimed_unit="record (zero_out), one release a round",
    provable="yes",
    why='multiplier σ_t/√2 with threshold = "norms" (two releases of a lot), σ_t else, on the path of least noise',
    shares=("weights", "update"),
    noise=("sigma",),
    group="comparators",
)
