"""Local DP with one of two values for every weight (Sun, Qian and Chen, LDP-FL, IJCAI 2021, arXiv:2007.15789)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..local import LocalTraining
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.respond import ClipRange, Respond
from ..terms import Observer
from ..update import Replace
from ..wire import Kind
from .base import Parameters, Population, Preset, cohort_field


class LdpFlParameters(Parameters):
    """Of the paper's MNIST."""

    rounds: int = Field(default=10, ge=1, description="T, how many rounds")
    share: Kind = Field(default="weights", description='a client\'s message: "weights"')
    epsilon: float = Field(
        default=1.0,
        gt=0,
        le=30,
        description="ε of one weight: it becomes c ± rK, K = (e^ε + 1)/(e^ε − 1), of std up to rK",
    )
    centre: float = Field(
        default=0.0, description="c, middle of the range that weights are clipped to, parameter units"
    )
    radius: float = Field(default=0.075, gt=0, description="r, half of that range, in parameter units")
    range: Literal["fixed", "adaptive"] = Field(
        default="fixed",
        description='"adaptive": c and r of each tensor from the model sent out, r at least radius (our rule)',
    )
    participants: int | None = cohort_field("k_l, clients a round")


def build(parameters: LdpFlParameters, local: LocalTraining, population: Population) -> Scheme:
    """Every weight clipped to [c − r, c + r], then sent as c + rK or c − rK, K = (e^ε + 1)/(e^ε − 1), the one with
    probability ((w − c)(e^ε − 1) + r(e^ε + 1))/(2r(e^ε + 1)) (eq. 2), without bias; the server's mean is uniform.

    Readings: the server also recomputes (c, r) of each layer; the paper has no rule, ours is half the sum and half the
    difference of the tensor's largest and least weight (range = "adaptive"). Clients send their weights one by one, at
    random times and without a name (parameter shuffling); here the server knows whose they are. Who sees sums alone
    sees what shuffled answers tell.
    Assumes that shuffling and anonymity make the ε of a single weight enough. Claim: Theorem 1, ε-DP of one weight,
    whatever the number of weights and rounds; by the paper's own words T·d·ε without shuffling.
    Provable: ε for each of d weights and each of a client's rounds, since one record can move them all: pure DP of
    T·d·ε, and for δ > 0 the exact ε of that many randomised responses; towards the aggregate, and whoever sees less, so
    many that are shuffled (arXiv:2012.12803).

    c = 0, r = .075, ε = 1: K = 2.163953, so ± .162297; of 26,010 weights one upload is proven 12,626 at δ = 1e-5.

    >>> from math import tanh
    >>> round(1 / tanh(0.5), 6), round(0.075 / tanh(0.5), 6)
    (2.163953, 0.162297)
    """
    p = parameters
    within = ClipRange(p.centre, p.radius, p.range == "adaptive")

    def epsilon(releases: int, delta: float) -> float:
        del delta
        return p.epsilon if releases else 0.0

    return Scheme(
        name="ldp-fl",
        source=PRESET.source,
        local=local,
        share="weights",
        client=(within, Respond(within, p.epsilon)),
        update=Replace(),
        schedule=FixedRounds(p.rounds),
        participation=drawn(p.participants, population.clients),
        claim=Claim(
            epsilon,
            f"LDP-FL Theorem 1, ε = {p.epsilon:g} of one weight, which shuffling is said to make enough",
            Observer("server"),
            "client",
            "replace_one",
        ),
    )


PRESET = Preset(
    name="ldp-fl",
    title="Every weight clipped to a range and sent as one of two values",
    source="Sun, Qian and Chen 2021 (LDP-FL), arXiv:2007.15789, Alg. 1, eq. 2, Thm 1",
    parameters=LdpFlParameters,
    build=build,
    needs="ε of one weight, and its range c ± r",
    claimed_unit="client (replace_one), for one weight alone",
    provable="yes",
    why="ε for each of d weights and each round: pure DP of T·d·ε; aggregate: shuffled answers",
    shares=("weights",),
    group="comparators",
)
