"""ε of bare numbers: clip, noise, rounds, clients, cohort; no config, no data, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt
from typing import Literal

from scipy.optimize import brentq

from ...defenses.ranges import LEAST_SIZE, MOST_SIZE
from ...defenses.releases import GaussianLaw, Release, Sampling, declare
from ...defenses.terms import Adjacency, Observer, Unit
from ..errors import BadInput
from ..proof.certificate import ProofQuestion, Proven, Unproven, prove_settings, row_of
from ..proof.theorems.gaussian import gaussian_epsilon
from ..results.format import Epsilon
from ..say.words import at_most, known_to_another, number
from ..setup.counted import Counting
from ..setup.promise import promise

MOST_ROUNDS = 100_000  # more than anybody trains
MOST_CLIENTS = 10**12  # more than there are devices
LEAST_NOISE = 60.0  # e-folds below the clip, where noise is none
HUGE = 1e6  # the logarithm of an ε that is as good as infinite


@dataclass(frozen=True)
class Numbers:
    """What a platform's settings say.

    clip: C, the L2 norm that bounds an update. noise_std: in the same units; both lie in [1e-100, 1e100]. noise_on: of
    the noise on each "update", or on the round's "sum" of them, which a trusted server adds.
    rounds, clients: at least 1. cohort: how many clients are in a round, None for all; sampling: "fixed", exactly so
    many by lot, or "poisson", a coin for each client.
    records: of DP-SGD, how many one party trains on; None without. Then clip bounds a record's gradient, the noise is
    on their sum, a round is a step, and `batch` is the expected number of records in one, None for all.
    trainings: how many of these the same people are in.

    Raises BadInput for a number out of its range.
    """

    clip: float
    noise_std: float
    rounds: int = 1
    clients: int = 1
    cohort: int | None = None
    noise_on: Literal["update", "sum"] = "update"
    sampling: Literal["fixed", "poisson"] = "fixed"
    records: int | None = None
    batch: int | None = None
    trainings: int = 1

    def __post_init__(self) -> None:
        for option, value in (("--clip", self.clip), ("--noise-std", self.noise_std)):
            if not LEAST_SIZE <= value <= MOST_SIZE:
                raise BadInput(f"{option} {value:g}: must be above 0, from {LEAST_SIZE:g} to {MOST_SIZE:g}")
        counts = {"rounds": self.rounds, "clients": self.clients, "cohort": self.cohort, "trainings": self.trainings}
        for name, count in (counts | {"records": self.records, "batch": self.batch}).items():
            if count is not None and count < 1:
                raise BadInput(f"--{name} {count}: must be at least 1")
        self._check_records()
        if self.clients > MOST_CLIENTS:
            raise BadInput(f"--clients {self.clients}: at most {MOST_CLIENTS:,} are priced")
        if self.steps > MOST_ROUNDS:
            if self.trainings == 1:
                times = ""
            else:
                times = f" times --trainings {self.trainings}"
            raise BadInput(f"--rounds {self.rounds}{times}: at most {MOST_ROUNDS:,} are priced")
        if self.cohort is not None and self.cohort > self.clients:
            raise BadInput(f"--cohort {self.cohort}: there are only {self.clients} clients (--clients)")

    def _check_records(self) -> None:
        if self.records is None:
            if self.batch is not None:
                raise BadInput(f"--batch {self.batch}: of how many records? add --records")
            return
        if self.cohort is not None or self.noise_on == "sum" or self.clients > 1:
            raise BadInput(
                "--records is of DP-SGD by one party; --clients, --cohort and --noise-on are of federations: give the"
                " one or the other"
            )
        if self.batch is not None and self.batch > self.records:
            raise BadInput(f"--batch {self.batch}: there are only {self.records} records (--records)")
        if self.records > MOST_CLIENTS:
            raise BadInput(f"--records {self.records}: at most {MOST_CLIENTS:,} are priced")

    @property
    def steps(self) -> int:
        """How many releases there are, of all trainings."""
        return self.rounds * self.trainings

    @property
    def rate(self) -> float:
        if self.records is not None:
            if self.batch is None:
                return 1.0
            return self.batch / self.records
        if self.cohort is None:
            return 1.0
        return self.cohort / self.clients

    @property
    def sampled(self) -> bool:
        """Whether the draw hides who, or what, is in a round."""
        return (self.noise_on == "sum" or self.records is not None) and self.rate < 1

    @property
    def release(self) -> Release:
        """What somebody who is in every round reveals of itself in each, or a record in each step."""
        if self.records is not None:
            coins = Sampling("poisson", self.records, self.batch or self.records, unit="record")
            drawn = None
            if self.sampled:
                drawn = coins
            about = {"bound_of": "record", "records": self.records, "sampling": drawn}
            return declare(f"{0:016x}", 0, GaussianLaw(self.noise_std), self.clip, frozenset({0}), **about)
        kind: Literal["poisson", "without_replacement"] = (
            "poisson" if self.sampling == "poisson" else "without_replacement"
        )
        drawn = None
        if self.sampled:
            drawn = Sampling(kind, self.clients, self.cohort or self.clients)
        return declare(f"{0:016x}", 0, GaussianLaw(self.noise_std), self.clip, frozenset({0}), sampling=drawn)

    @property
    def seen_rate(self) -> float:
        """The chance with which a client is in a round, where that is seen."""
        if self.noise_on == "sum" or self.records is not None:
            return 1.0
        return self.rate


def number_rows(
    numbers: Numbers, claimed: float | None, delta: float, units: Sequence[Unit], adjacencies: Sequence[Adjacency]
) -> list[Epsilon]:
    """A row a unit and adjacency: towards the server where updates are noised, else towards the downlink.

    A server sees who is in a round, so the draw of cohorts hides nothing from it; but whoever is drawn less often
    reveals less. As the draw looks at no data, δ(ε) is the mean of δ_k(ε) over the number k of rounds that a client is
    in, binomial: exactly, as the k are part of what is seen.

    Args:
        numbers: the settings. claimed: the ε that somebody states, None for none.
        delta: in (0, 1). units, adjacencies: which rows.
    """
    if claimed is not None and not 0 < claimed < inf:
        raise BadInput(f"--claimed {claimed:g}: must be above 0 and finite")
    table = []
    for unit in units:
        for adjacency in adjacencies:
            proof = _proof(numbers, unit, adjacency, delta)
            price = proof.price
            assert price.multiplier is not None
            whole = gaussian_epsilon(price.multiplier / sqrt(numbers.steps), delta)  # of somebody in every round
            reasons = price.reasons
            if numbers.seen_rate < 1:
                reasons = (
                    reasons[0],
                    f"Who sees updates sees who is drawn; a client is in {numbers.rate * numbers.steps:g} of"
                    f" {numbers.steps} rounds on average, and in all of them at worst, which would cost"
                    f" {at_most(whole)}.",
                )
            if numbers.sampled and numbers.records is None and numbers.sampling == "fixed":
                another = _proof(numbers, unit, adjacency, delta, coalition=1).price.epsilon
                reasons = (*reasons, *([known_to_another(another)] if another > price.epsilon else []))
            told = [*promise(delta, numbers.clients if unit == "client" else 0), *_again(numbers)]
            table.append(
                row_of(
                    proof,
                    claimed=claimed,
                    claimed_by="" if claimed is None else "owner",
                    proven_without_sampling=whole if numbers.sampled else None,
                    notes=(_sentence(price.epsilon, claimed, exact=not numbers.sampled), *told, *reasons),
                )
            )
    return table


def _proof(numbers: Numbers, unit: Unit, adjacency: Adjacency, delta: float, coalition: int = 0) -> Proven | Unproven:
    """coalition: how many other clients tell the observer whether they were drawn."""
    if numbers.records is not None and unit == "client":
        raise BadInput("--unit client: DP-SGD by one party hides its records; ask --unit record")
    question = ProofQuestion(Observer("server" if numbers.noise_on == "update" else "downlink"), unit, adjacency, delta)
    release = Counting().count(numbers.release).told_by(coalition)
    return prove_settings(release, numbers.steps, numbers.seen_rate, question)


def _again(numbers: Numbers) -> list[str]:
    if numbers.trainings == 1:
        return []
    return [f"The same people are in {numbers.trainings} trainings, so in {numbers.steps} rounds."]


CLOSE = 1e-4  # relative, of the noise that is looked for


def noise_for(numbers: Numbers, target: float, delta: float, unit: Unit, adjacency: Adjacency) -> float:
    """The least noise_std at which ε is proven to be at most the target, to four digits and never less than it takes.
    Raises BadInput where no noise does that, or none that is priced.

    Args:
        numbers: the settings, whose own noise_std does not matter. target: above 0 and finite.
        delta, unit, adjacency: of which ε.

    One release at δ = 1e-5 has ε = 4.3772 at multiplier 1:

    >>> 1 <= noise_for(Numbers(1.0, 5.0), 4.3772, 1e-5, "client", "zero_out") < 1.0002
    True
    """

    def beyond(log_multiplier: float) -> float:
        at = replace(numbers, clip=1.0, noise_std=min(exp(log_multiplier), MOST_SIZE))
        value = _proof(at, unit, adjacency, delta).price.epsilon
        if value > 0:
            return min(log(value), HUGE) - log(target)
        return -HUGE

    unpriced = BadInput(
        f"--target-epsilon {target:g}: no noise_std from {LEAST_SIZE:g} to {MOST_SIZE:g} proves it at δ = {delta:g}"
        f" behind a clip of {numbers.clip:g}; take another target, or a larger δ"
    )
    low = high = log(numbers.steps) / 2
    step = 1.5
    while beyond(high) > 0:
        if high == log(MOST_SIZE):
            raise unpriced
        low, high, step = high, min(high + step, log(MOST_SIZE)), 2 * step
    while beyond(low) <= 0:
        low, high, step = low - step, low, 2 * step
        if low < -LEAST_NOISE:
            raise BadInput(
                f"--target-epsilon {target:g}: a client is drawn with probability"
                f" {numbers.rate * numbers.steps:.3g} at most, which is within δ = {delta:g}, so ε is 0 with any noise"
                " and says nothing of who is drawn; take a smaller δ"
            )
    root = float(brentq(beyond, low, high, xtol=CLOSE / 4))
    while beyond(root) > 0:
        root += CLOSE / 4
    noise_std = numbers.clip * exp(root)
    if not LEAST_SIZE <= noise_std <= MOST_SIZE:
        raise unpriced
    return noise_std


def _sentence(value: float, claimed: float | None, exact: bool) -> str:
    """exact: whether less than `value` is false, for the worst of all updates; else it is only not proven."""
    said = f"At these numbers ε is {'' if exact else 'at most '}{at_most(value, 4)}"
    if claimed is None:
        return f"{said}."
    if value <= claimed:
        return f"{said}; {number(claimed)} holds."
    return f"{said}; {number(claimed)} {'cannot hold' if exact else 'is not proven'}."
