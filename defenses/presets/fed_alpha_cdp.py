"""Noise scaled by the largest gradients of a batch, and changing over time (Wei et al., TPDS 2023, arXiv:2305.06473).

The paper's text was not at hand: after its abstract, its authors' code, github.com/git-disl/Fed-alphaCDP, and what ADN
(Xue et al.) says of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Literal

from pydantic import Field

from ..claims import NoiseSchedule, alpha_sigma
from ..local import LocalTraining, PerExample
from ..participation import drawn
from ..schedule import NoiseOverRounds
from ..scheme import Scheme
from .base import Parameters, Population, Preset, cohort_field, update_rule
from .fed_cdp import BATCHES, record_claim, whole_epochs


class FedAlphaCdpParameters(Parameters):
    """Of the code for MNIST. The training prescribed is that of `fed-cdp`."""

    rounds: int = Field(default=100, ge=1, description="T, how many rounds")
    sensitivity: Literal["code", "paper"] = Field(
        default="code",
        description='S: "code": the mean over a batch of a record\'s largest tensor norm, .1 to limit; "paper": of each'
        " tensor the largest norm in the batch, clipped to C",
    )
    schedule: NoiseSchedule = Field(
        default="linear", description="σ over the rounds, from 15 down to 5; or constant: sigma"
    )
    sigma: float = Field(
        default=6.0,
        gt=0,
        description='σ of schedule = "constant": noise_std = σ·S/batch_size on a step\'s mean gradient',
    )
    clip: float = Field(
        default=4.0,
        gt=0,
        description='C of "paper", L2 norm of each tensor of a record\'s gradient, in parameter units',
    )
    limit: float = Field(
        default=32.0, gt=0.1, description='of "code": the largest norm of such a tensor that is not cut'
    )
    batches: Literal["disjoint", "poisson"] = Field(default="disjoint", description=BATCHES)
    participants: int | None = cohort_field("K_t, clients a round")


def build_alpha(parameters: FedAlphaCdpParameters, local: LocalTraining, population: Population) -> Scheme:
    """As `fed-cdp`, with the noise of a step scaled by S of its own batch, and σ falling from round to round.

    Readings: by the code each record's S_j is the largest norm of its tensors, from .1 to 32, it is clipped to S_j (so
    that nothing is clipped below 32), and the noise is σ·mean_j S_j. By ADN's account of the paper tensors are first
    clipped to C, and S is by tensor the largest norm in the batch. σ follows the part of all rounds that is done; in
    the code it is computed and then not used.
    Assumes that S is public and that all tensors have one bound. Claim: as `fed-cdp` with σ_t, the heterogeneous
    composition of the code's accountant.
    Provable: nothing, the noise is scaled by norms of a private batch.
    The local training prescribed: the clips, the noise, the batches; whole epochs.

    The linear schedule from 15 down to 4.85, q = .01, 100 rounds of 100 steps, σ by round: .571. (By step, as the
    accountant has it, .5748.)

    >>> federation = LocalTraining(batch_size=5), Population((500,) * 100)
    >>> round(FED_ALPHA_CDP.scheme(FedAlphaCdpParameters(), *federation).claim.epsilon(100, 1e-5), 3)
    0.571
    """
    p = parameters
    sigmas = [alpha_sigma(p.schedule, t / p.rounds, p.sigma) for t in range(p.rounds)]
    rule = PerExample(p.clip, sigmas[0], per_layer=True, batches=p.batches, scale="largest")
    if p.sensitivity == "code":
        rule = replace(rule, clip_norm=p.limit, scale="mean", least=0.1)
    sentence = f"RDP of Poisson-sampled Gaussians, σ {p.schedule} from {sigmas[0]:.4g} to {sigmas[-1]:.4g}, S public"
    return Scheme(
        name="fed-alpha-cdp",
        source=FED_ALPHA_CDP.source,
        local=replace(whole_epochs(local, "fed-alpha-cdp"), per_example=rule),
        share=p.share,
        update=update_rule(p.share, local),
        schedule=NoiseOverRounds(p.rounds, partial(_relative, p.schedule, sigmas[0], p.sigma)),
        participation=drawn(p.participants, population.clients),
        claim=record_claim(sigmas, p.participants, local, population, sentence),
    )


def _relative(schedule: NoiseSchedule, first: float, constant: float, done: float) -> float:
    return alpha_sigma(schedule, done, constant) / first


class DpDynsParameters(Parameters):
    """Of the code, which is centralised."""

    rounds: int = Field(default=100, ge=1, description="T, how many rounds")
    clip: float = Field(default=4.0, gt=0, description="C, L2 norm of every record's gradient, in parameter units")
    sigma: float = Field(
        default=6.0, gt=0, description="σ: noise_std = σ·S/batch_size on a step's mean gradient, S as noise_on says"
    )
    noise_on: Literal["sensitivity", "clip"] = Field(
        default="sensitivity",
        description='"sensitivity": S is the largest clipped norm in the batch; "clip": S = C, noise as of DP-SGD',
    )
    batches: Literal["poisson", "disjoint"] = Field(default="poisson", description=BATCHES)
    participants: int | None = cohort_field("clients a round")


def build_dyns(parameters: DpDynsParameters, local: LocalTraining, population: Population) -> Scheme:
    """DP-SGD in every client, each record's gradient clipped to C, the noise of a step scaled by S, the largest clipped
    norm in its batch (dynamic sensitivity), with σ fixed.

    Readings: the paper is centralised, and how ADN fitted it to federated learning is not said; here it is each
    client's local training. Its accounting code also keeps the noise at σC and prices it by σC/S (noise_on = "clip"),
    an ε below that of σ, which spends a private S too.
    Assumes that S is public. Claim: RDP of the Poisson-sampled Gaussian of multiplier σ over all local steps, as
    `fed-cdp`.
    Provable: nothing, the noise is scaled by a norm of a private batch; with noise_on = "clip" what is proven of DP-SGD
    (`dpsgd`).
    The local training prescribed: the clip, the noise, the batches; whole epochs.

    σ = 6, q = .01, 100 rounds of 100 steps, δ = 1e-5: .8227, as `fed-cdp`.

    >>> federation = LocalTraining(batch_size=5), Population((500,) * 100)
    >>> round(DP_DYNS.scheme(DpDynsParameters(), *federation).claim.epsilon(100, 1e-5), 4)
    0.8227
    """
    p = parameters
    scale: Literal["clip", "largest"] = "clip" if p.noise_on == "clip" else "largest"
    sentence = f"RDP of a Poisson-sampled Gaussian of multiplier {p.sigma:g} a local step, S public"
    return Scheme(
        name="dp-dyns",
        source=DP_DYNS.source,
        local=replace(
            whole_epochs(local, "dp-dyns"), per_example=PerExample(p.clip, p.sigma, batches=p.batches, scale=scale)
        ),
        share=p.share,
        update=update_rule(p.share, local),
        schedule=NoiseOverRounds(p.rounds, _constant),
        participation=drawn(p.participants, population.clients),
        claim=record_claim([p.sigma] * p.rounds, p.participants, local, population, sentence),
    )


def _constant(done: float) -> float:
    del done
    return 1.0


FED_ALPHA_CDP = Preset(
    name="fed-alpha-cdp",
    title="Records' gradients noised in proportion to their own batch's norms, with a σ that falls over the rounds",
    source="Wei et al. 2023 (Fed-αCDP), arXiv:2305.06473, by its authors' code git-disl/Fed-alphaCDP; ADN VI-B",
    parameters=FedAlphaCdpParameters,
    build=build_alpha,
    needs="which sensitivity (code or paper), a schedule of σ, whole local epochs",
    claimed_unit="record (zero_out), S public",
    provable="no",
    why="the noise is scaled by norms of a private batch",
    shares=("weights", "update"),
    group="comparators",
)

DP_DYNS = Preset(
    name="dp-dyns",
    title="DP-SGD with noise in proportion to the largest clipped norm in the batch",
    source="Wei and Liu 2022 (DP-dynS), arXiv:2112.13178, by its authors' code git-disl/Fed-alphaCDP; ADN VI-B",
    parameters=DpDynsParameters,
    build=build_dyns,
    needs="the clip C of a record's gradient, the noise multiplier σ, whole local epochs",
    claimed_unit="record (zero_out), S public",
    provable="depends",
    why='nothing (noise scaled by a norm of a private batch); with noise_on = "clip" what DP-SGD has',
    shares=("weights", "update"),
    group="comparators",
)
