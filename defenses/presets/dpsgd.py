"""DP-SGD in local training (Abadi et al. 2016, arXiv:1607.00133, Alg. 1)."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from ..claims import sampled_gaussian_epsilon
from ..local import LocalTraining, PerExample
from ..participation import drawn
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..terms import Observer
from .base import Parameters, Population, Preset, cohort_field, update_rule


class DpsgdParameters(Parameters):
    """Alg. 1's."""

    clip: float = Field(default=1.0, gt=0, description="C, L2 norm of every record's gradient, in parameter units")
    sigma: float = Field(
        default=1.0,
        gt=0,
        description="σ, noise multiplier: noise_std = σ·C on a batch's sum, σ·C/batch_size on its mean",
    )
    participants: int | None = cohort_field("clients a round")


def build(parameters: DpsgdParameters, local: LocalTraining, population: Population) -> Scheme:
    """Every local step: a Poisson batch of rate q = batch_size/n, each record's gradient clipped to C, their sum plus
    N(0, (σC)²), divided by batch_size (Alg. 1).

    Assumes Poisson batches that nobody sees, which the engine draws.
    Claim: RDP of the Poisson-sampled Gaussian (arXiv:1908.10530) over all steps of a client's own rounds, for the
    client with the largest ε.
    Provable: the same for a record, by an accountant that is tighter (PLD). A client is a group of n records. The noise
    is drawn inside local training, so a message is sent as is.
    The local training prescribed: the clip of each record's gradient, the noise and the Poisson batches; optimiser, lr,
    batch size and epochs stay.

    q = 60/600, σ = 4, 10 rounds of one epoch, that is 100 steps, δ = 1e-5: 1.08.

    >>> scheme = PRESET.scheme(DpsgdParameters(sigma=4.0), LocalTraining(batch_size=60), Population((600,) * 10))
    >>> round(scheme.claim.epsilon(10, 1e-5), 2)
    1.08
    """

    def epsilon(releases: int, delta: float) -> float:
        worst = 0.0
        for n in set(population.records):
            size = min(local.batch_size, n)
            steps = local.steps if local.steps is not None else -(-n // size) * (local.epochs or 1)
            worst = max(worst, sampled_gaussian_epsilon(size / n, parameters.sigma, steps * releases, delta))
        return worst

    return Scheme(
        name="dpsgd",
        source=PRESET.source,
        local=replace(local, per_example=PerExample(parameters.clip, parameters.sigma)),
        share=parameters.share,
        update=update_rule(parameters.share, local),
        schedule=FixedRounds(parameters.rounds),
        participation=drawn(parameters.participants, population.clients),
        claim=Claim(
            epsilon,
            f"RDP of the Poisson-sampled Gaussian, multiplier {parameters.sigma:g} a local step",
            Observer("server"),
            "record",
            "zero_out",
        ),
    )


PRESET = Preset(
    name="dpsgd",
    title="Per-record clipping and noise inside local training",
    source="Abadi et al. 2016, arXiv:1607.00133, Alg. 1",
    parameters=DpsgdParameters,
    build=build,
    needs="the clip C of a record's gradient, the noise multiplier σ, and local batches well below n",
    claimed_unit="record (zero_out)",
    provable="yes",
    why="the same number for a record; a client is a group of n records",
    shares=("update", "weights"),
    noise=("sigma",),
    group="production",
)
