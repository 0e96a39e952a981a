"""Anonymous decentralised FL (THESIS chapter 5, Alg. 5.1-5.2, eq. 5.2-5.4, App. K): gossip and elected leader."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import sqrt

from pydantic import Field

from ..claims.anonymous import anonymous_claimed_epsilon, anonymous_lemma3_failures, anonymous_variance
from ..local import LocalTraining
from ..participation import Uniform
from ..schedule import FixedRounds
from ..scheme import Budget, Claim, Scheme
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from ..terms import Observer
from ..topology import Gossip, Leader
from .base import Parameters, Population, Preset, update_rule


class AnonymousParameters(Parameters):
    """Theorem 8's. A client trains in as many rounds whatever the noise."""

    rounds: int = Field(default=50, ge=1, description="T, how many rounds")
    clip: float = Field(default=1.0, gt=0, description="C, L2 norm of an update, in parameter units")
    epsilon: float = Field(
        default=8.0,
        gt=0,
        description="ε: noise_std = 2C·σ/n, σ² = 7s·T(ε + 2 ln(1/δ))/(m·ε)², n records, m clients (eq. 5.5)",
    )
    delta: float = Field(default=1e-5, gt=0, lt=1, description="δ of that formula")
    noise_std: float | None = Field(
        default=None, gt=0, description="instead of epsilon: of the noise on each update, in parameter units"
    )
    train_share: float = Field(default=0.7, gt=0, le=1, description="r_tcs, share of the clients that train a round")
    neighbours: int = Field(default=30, ge=1, description="m_e, to how many others a client sends (gossip)")
    own: bool = Field(default=False, description="whether a client merges its own value too (the text's reading)")


def build(parameters: AnonymousParameters, local: LocalTraining, population: Population, *, gossip: bool) -> Scheme:
    """Clip to C, noise of std 2Cσ/n (5.3-5.4; Theorem 8's own text divides by m instead), addresses anew each round
    from a proxy; σ² = 7s₁T(ε + 2 ln(1/δ))/(m²ε²) (5.5), s₁ = r_tcs²·m_e.

    Gossip: every training client sends to m_e others over a random regular graph and adds the mean of what it received
    to the model it started from. Leader: a random client does so for all and answers its senders with its model. A
    client asks to join while it has training rounds left, r_tcs·T in all.
    Assumes "amplification by m, twice", for which no proof is given, and Lemma 3's conditions: ε < 2 ln(1/δ), σ² ≥ .7
    and a bound on α; σ² is far below .7 at the paper's settings. Claim: (5.5) solved for ε.
    Provable: who receives a client's message sees one vector clipped to C with noise 2Cσ/n, multiplier σ/n over 2C.
    Fresh addresses weaken attacks that need several messages of one sender; they do not change a message's guarantee.

    T = 50, r_tcs = .7, ε = 8, δ = 1e-5, m = 100: σ² = .00831 for the leader, 30 times that for gossip with m_e = 30.

    >>> parameters, population = AnonymousParameters(neighbours=30), Population((600,) * 100)
    >>> schemes = [preset.scheme(parameters, LocalTraining(), population) for preset in (LEADER, GOSSIP)]
    >>> [round((scheme.client[1].noise_multiplier / 2) ** 2, 5) for scheme in schemes]
    [0.00831, 0.24942]
    """
    clients, fan_out = population.clients, parameters.neighbours if gossip else 1
    training = max(2, round(parameters.train_share * clients))
    if training > clients or clients < 2:
        raise ValueError(f"clients = {clients}: anonymous learning needs at least 2")
    if gossip and parameters.neighbours >= training:
        raise ValueError(
            f"neighbours = {parameters.neighbours}: only {training} clients train a round, so at most {training - 1}"
            " others receive"
        )
    if gossip and parameters.neighbours == 1 and (training % 2 or parameters.dropout > 0):
        raise ValueError(
            f"neighbours = 1: {training} clients, or those who are left after dropouts, cannot all be paired; use 2 or"
            " more neighbours"
        )
    facts = (parameters.train_share, clients, fan_out)
    target = parameters.epsilon
    if parameters.noise_std is None:
        variance = anonymous_variance(target, parameters.delta, parameters.rounds, *facts)
        noise = Perturb(noise_multiplier=2 * sqrt(variance), divided_by="records")
    else:
        variance = (parameters.noise_std * min(population.records) / (2 * parameters.clip)) ** 2
        target = anonymous_claimed_epsilon(variance, parameters.delta, parameters.rounds, *facts)
        noise = Perturb(noise_std=parameters.noise_std)

    def epsilon(releases: int, delta: float) -> float:
        rounds = max(float(parameters.rounds), releases / parameters.train_share)
        return anonymous_claimed_epsilon(variance, delta, rounds, *facts) if releases else 0.0

    remark = " ".join(anonymous_lemma3_failures(variance, target, parameters.delta, parameters.train_share))
    return Scheme(
        name="anonymous-gossip" if gossip else "anonymous-leader",
        source=SOURCE,
        local=local,
        share="update",
        client=(Clip(parameters.clip), noise),
        update=update_rule("update", local),
        schedule=FixedRounds(parameters.rounds),
        participation=Uniform(training),
        topology=Gossip(parameters.neighbours, parameters.own) if gossip else Leader(),
        claim=Claim(
            epsilon,
            f"THESIS Theorem 8 and App. K, σ² = {variance:.4g} over all {clients} clients. {remark}".strip(),
            Observer("peer"),
            "record",
            "replace_one",
        ),
        budget=Budget(target * (1 + 1e-9), parameters.delta),
        min_clients=2,
    )


SOURCE = "Weng 2025 (THESIS) 5.2-5.4, Alg. 5.1-5.2, App. K"

GOSSIP = Preset(
    name="anonymous-gossip",
    title="Anonymous decentralised FL: noised updates over a random graph, fresh addresses each round",
    source=SOURCE,
    parameters=AnonymousParameters,
    build=partial(build, gossip=True),
    needs="C, a target (ε, δ), the share of clients that train, and the number of neighbours",
    claimed_unit="record (replace_one) towards a peer, amplified by the number of clients",
    provable="yes",
    why="a receiver sees single messages of multiplier σ/n over 2C; the amplification has no proof",
    shares=("update",),
    noise=("noise_std", "epsilon"),
    example={"neighbours": 3},
)

LEADER = replace(
    GOSSIP,
    name="anonymous-leader",
    title="Anonymous decentralised FL: a random client averages and answers, fresh addresses each round",
    build=partial(build, gossip=False),
    needs="C, a target (ε, δ), and the share of clients that train",
    why="the leader sees single messages of multiplier σ/n over 2C, others its mean; the amplification has no proof",
    example={},
)
