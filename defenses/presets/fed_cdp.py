"""Per-record and per-client noise, tensor by tensor (Wei et al., Fed-CDP, ICDCS 2021, arXiv:2107.01154).

The paper's text was not at hand: after its abstract and its authors' code, github.com/git-disl/Fed-CDP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Literal

from pydantic import Field

from ..claims import sampled_gaussians_epsilon
from ..local import LocalTraining, PerExample
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.clip import Clip
from ..steps.perturb import Perturb
from ..terms import Observer
from ..wire import Kind
from .base import Parameters, Population, Preset, cohort_field, update_rule

BATCHES = '"disjoint": each record once an epoch, in a public order (the code); "poisson": secret samples (the claim)'


class FedCdpParameters(Parameters):
    """Of the code for MNIST; its accountant has σ = 6, its training file .5."""

    rounds: int = Field(default=100, ge=1, description="T, how many rounds")
    clip: float = Field(
        default=4.0, gt=0, description="C, L2 norm of each tensor of a record's gradient, in parameter units"
    )
    sigma: float = Field(
        default=6.0,
        gt=0,
        description="σ, noise multiplier over C: noise_std = σ·C/batch_size on a step's mean gradient",
    )
    batches: Literal["disjoint", "poisson"] = Field(default="disjoint", description=BATCHES)
    participants: int | None = cohort_field("K_t, clients a round")


def build_cdp(parameters: FedCdpParameters, local: LocalTraining, population: Population) -> Scheme:
    """Every local step: each tensor of each record's gradient clipped to C, N(0, (σC)²) on their sum, divided by
    batch_size; the clients' weights or updates are averaged.

    Readings: the code deals a client's records into disjoint batches and goes through them once a round; it divides
    the sum of K_t clients by K_t − 1, a loop's last index (here by K_t).
    Assumes one bound C for a whole record, and Poisson batches of rate B·K_t/N that nobody sees. Claim: RDP of the
    Poisson-sampled Gaussian of multiplier σ over all local steps of all rounds, at TF-Privacy's orders.
    Provable: over Λ tensors a record has norm C√Λ, so the multiplier is σ/√Λ; a server sees each client's upload, so
    that neither the lot of the clients nor disjoint batches amplify anything: a record counts once an epoch of its
    client's own rounds. A client is as many records as a batch holds, at every step.
    The local training prescribed: the clips, the noise, the batches; whole epochs.

    MNIST, 1,000 clients of 500 of 50,000 records' shards, batches of 5, 100 clients a round, σ = 6, 100 rounds of 100
    steps, δ = 1e-5: q = .01 there (N = 50,000, which its clients share), .8227. Here N is what the clients hold
    together: 100 clients of 500, 100 a round, the same q.

    >>> federation = LocalTraining(batch_size=5), Population((500,) * 100)
    >>> round(FED_CDP.scheme(FedCdpParameters(), *federation).claim.epsilon(100, 1e-5), 4)
    0.8227
    """
    p = parameters
    rule = PerExample(p.clip, p.sigma, per_layer=True, batches=p.batches)
    sentence = f"RDP of a Poisson-sampled Gaussian of multiplier {p.sigma:g} a local step, one bound for all tensors"
    return Scheme(
        name="fed-cdp",
        source=FED_CDP.source,
        local=replace(whole_epochs(local, "fed-cdp"), per_example=rule),
        share=p.share,
        update=update_rule(p.share, local),
        schedule=FixedRounds(p.rounds),
        participation=drawn(p.participants, population.clients),
        claim=record_claim([p.sigma] * p.rounds, p.participants, local, population, sentence),
    )


def whole_epochs(local: LocalTraining, name: str) -> LocalTraining:
    """The local training, which must be one of epochs. Raises ValueError in one sentence."""
    if local.steps is not None:
        raise ValueError(f"[local] steps = {local.steps}: {name!r} goes through all records; give epochs instead")
    return local


def record_claim(
    sigmas: Sequence[float], participants: int | None, local: LocalTraining, population: Population, sentence: str
) -> Claim:
    """The accountant of the authors' code: q = B·K_t/N, and every local step of every round is one of N's samples.

    Args:
        sigmas: σ by round; beyond its end the last one. participants: K_t, None for all.
        local: batch size and epochs. population: whose records N counts. sentence: of the claim.
    """
    size = min(local.batch_size, *population.records)
    cohort = participants or population.clients
    rate = min(1.0, size * cohort / sum(population.records))
    steps = ceil(max(population.records) / size) * (local.epochs or 1)

    def epsilon(releases: int, delta: float) -> float:
        used = [*sigmas[:releases], *[sigmas[-1]] * (releases - len(sigmas))]
        counts = dict.fromkeys(used, 0)
        for sigma in used:
            counts[sigma] += steps
        return sampled_gaussians_epsilon(rate, tuple(counts.items()), delta)

    return Claim(epsilon, f"{sentence}, q = {rate:.4g}", Observer("server"), "record", "zero_out", "rounds")


class FedSdpParameters(Parameters):
    """Of the code for MNIST."""

    rounds: int = Field(default=100, ge=1, description="T, how many rounds")
    share: Kind = Field(default="update", description='a client\'s message: "update"')
    clip: float = Field(default=4.0, gt=0, description="C, L2 norm of each tensor of an update, in parameter units")
    sigma: float = Field(
        default=6.0, gt=0, description="σ, noise multiplier over C: the server's noise_std = σ·C/K_t, K_t clients"
    )
    participants: int | None = cohort_field("K_t, clients a round")


def build_sdp(parameters: FedSdpParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clients train without noise and clip each tensor of their update to C; the server adds N(0, (σC)²) to the sum of
    K_t and divides by K_t.

    Assumes one bound C for the whole update, and Poisson cohorts of rate K_t/K. Claim: RDP of the Poisson-sampled
    Gaussian of multiplier σ over the rounds.
    Provable: nothing towards the server, which gets raw values; the downlink is a Gaussian of multiplier σ/√Λ over Λ
    tensors for a client, cohorts of exactly K_t drawn without replacement.

    100 of 1,000 clients, σ = 6, 101 rounds, δ = 1e-5: .8536.

    >>> scheme = FED_SDP.scheme(FedSdpParameters(participants=100), LocalTraining(), Population((500,) * 1000))
    >>> round(scheme.claim.epsilon(101, 1e-5), 4)
    0.8536
    """
    p, clients = parameters, population.clients
    rate = (p.participants or clients) / clients

    def epsilon(releases: int, delta: float) -> float:
        return sampled_gaussians_epsilon(rate, ((p.sigma, releases),) if releases else (), delta)

    return Scheme(
        name="fed-sdp",
        source=FED_SDP.source,
        local=local,
        client=(Clip(p.clip, per_layer=True),),
        server=(Perturb(noise_multiplier=p.sigma, divided_by="senders"),),
        update=update_rule("update", local),
        schedule=FixedRounds(p.rounds),
        participation=drawn(p.participants, clients),
        claim=Claim(
            epsilon,
            f"RDP of a Poisson-sampled Gaussian of multiplier {p.sigma:g} a round, one bound for all tensors,"
            f" q = {rate:.4g}",
            Observer("downlink"),
            counts="rounds",
        ),
    )


SOURCE = "Wei et al. 2021 (Fed-CDP), arXiv:2107.01154, by its authors' code git-disl/Fed-CDP"

FED_CDP = Preset(
    name="fed-cdp",
    title="Every tensor of every record's gradient clipped and noised in local training",
    source=SOURCE,
    parameters=FedCdpParameters,
    build=build_cdp,
    needs="the clip C of a tensor, the noise multiplier σ, whole local epochs",
    claimed_unit="record (zero_out), one bound for all tensors",
    provable="yes",
    why="multiplier σ/√Λ over Λ tensors, once an epoch of a client's own rounds, without amplification",
    shares=("weights", "update"),
    noise=("sigma",),
    group="comparators",
)

FED_SDP = Preset(
    name="fed-sdp",
    title="Every tensor of an update clipped by its client, noise on the sum by the server",
    source=SOURCE,
    parameters=FedSdpParameters,
    build=build_sdp,
    needs="the clip C of a tensor, the noise multiplier σ, a cohort size for amplification",
    claimed_unit="client (zero_out), towards the downlink, one bound for all tensors",
    provable="depends",
    why="server: nothing (raw values); downlink: multiplier σ/√Λ over Λ tensors, cohorts of fixed size",
    shares=("update",),
    noise=("sigma",),
    group="comparators",
)
