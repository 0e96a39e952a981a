"""What a secret draw of clients or records hides, and how far one of them moves a value.

A lot is one draw, whatever is told of whom it drew: several releases about the same members are one Gaussian, sampled
once (`Draw.of_one_lot`). Whatever else is released of a subject in the same round may be of the same draw, or of
another one, and tells who was drawn: without a lot that all of them name, nothing there is amplified.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ...defenses.releases import CorrelatedLaw, GaussianLaw, ResponseLaw
from ...defenses.terms import Adjacency, Unit
from ..proof.theorems.draw import Amplification
from ..setup.counted import Counted


def amplified(about: Sequence[Counted], unit: Unit, adjacency: Adjacency) -> list[Amplified]:
    """How each release of one subject is amplified, where all of them are seen."""
    found = [_of_one(seen, unit, adjacency) for seen in about]
    rounds: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, seen in enumerate(about):
        rounds[seen.training, seen.round].append(i)
    for places in rounds.values():
        hidden = [i for i in places if found[i].kind]
        if len(places) > 1 and hidden and not _is_one_draw([about[i] for i in places], [found[i] for i in places]):
            for i in hidden:
                found[i] = Amplified(
                    "Sampling amplifies nothing where several releases of a round are not of one draw, each step of it"
                    " under Gaussian noise."
                )
    return found


def _is_one_draw(seen: Sequence[Counted], hidden: Sequence[Amplified]) -> bool:
    draws = {(r.lot, r.sampling, r.steps, r.mechanism, how.kind, how.known) for r, how in zip(seen, hidden)}
    return len(draws) == 1 and seen[0].lot != "" and seen[0].mechanism == "gaussian"


def factor(release: Counted, unit: Unit, adjacency: Adjacency) -> int:
    """Sensitivity over the bound, as `accounting` has the table; the ε of a response is for any two values."""
    if release.mechanism == "response":
        return 1
    if release.bound_of == "client":
        if goes_to_zero(release, unit, adjacency):
            return 1
        return 2
    return (group_size(release) if unit == "client" else 1) * (1 if adjacency == "zero_out" else 2)


def goes_to_zero(release: Counted, unit: Unit, adjacency: Adjacency) -> bool:
    """Whether without the subject the whole vector is 0."""
    return unit == "client" and adjacency == "zero_out" and not release.anywhere


def group_size(release: Counted) -> int:
    """How many records a client can have in the vector: with sampled records, as many as a batch can hold."""
    sampling = release.sampling
    if sampling is None or sampling.unit != "record":
        return release.records
    return max(release.records, sampling.population if sampling.kind == "poisson" else ceil(sampling.cohort))


@dataclass(frozen=True)
class Amplified:
    """How sampling amplifies a release, what over noise its event wants (`Draw.inner`), of how many it is known whether
    they were drawn, and that in words.
    """

    words: str = ""
    kind: Amplification = ""
    inner: float = 0.0
    known: int = 0


def _of_one(seen: Counted, unit: Unit, adjacency: Adjacency) -> Amplified:
    release, sampling = seen, seen.sampling
    if sampling is None or sampling.cohort == sampling.population:
        return Amplified()
    if sampling.kind == "partition":
        words = "batches are public"
        if unit == sampling.unit:
            words = f"every {sampling.unit} is in one batch of an epoch"
        return Amplified(f"Nothing is sampled: {words}.")
    fixed, by_client = sampling.kind == "without_replacement", sampling.unit == "client"
    if isinstance(release.law, CorrelatedLaw):
        return Amplified("Sampling amplifies nothing here: a round's noise is in other rounds too.")
    if not seen.secret:
        return Amplified("Sampling amplifies nothing here: the observer saw some of the sample's members.")
    if _counts_own_noise(release):
        return Amplified("Sampling amplifies nothing here: part of the noise comes and goes with the members.")
    if unit == "client" and not by_client:
        return Amplified("Sampling records hides a record, not a client: no amplification.")
    hidden_whole = unit == sampling.unit and adjacency == "zero_out"  # the unit's contribution is there or not
    if release.mechanism == "laplace" and (fixed or not hidden_whole or (by_client and release.steps > 1)):
        return Amplified("No accountant amplifies Laplace noise under this sampling and adjacency.")
    one = release.ratio * (group_size(release) if by_client and release.bound_of == "record" else 1)
    drawn = f"{sampling.cohort:g} of {sampling.population} {sampling.unit}s"
    if fixed:
        also = ", of which zeroing out is a special case"
        if adjacency == "replace_one":
            also = ""
        words = f"Exactly {drawn} are drawn: not Poisson, but without replacement, for replace_one{also}."
        known = 0
        if by_client:
            known = min(seen.coalition, sampling.population - 1)
        if by_client:
            words += f" This observer knows of {known or 'none'} of them whether they were drawn (--colluding)."
        return Amplified(words, "fixed", 2 * one, known)
    words = (
        f"Poisson sampling of {drawn} on average amplifies, if this observer knows neither who is drawn nor how many."
    )
    if hidden_whole:
        return Amplified(words, "poisson", release.ratio * factor(release, unit, adjacency))
    if not by_client and release.bound_of == "client":
        return Amplified("No amplification is proven under replace_one where only the sum of a batch is clipped.")
    if (
        release.anywhere
    ):  # without the subject the value may lie as far from one of the two worlds as they from each other
        return Amplified("No amplification by coins is proven where what was clipped held noise or others' values.")
    return Amplified(words, "poisson_pair", one)


def _counts_own_noise(release: Counted) -> bool:
    """Whether `ratio` counts more noise than this release drew itself: noise the members' values already had."""
    law = release.law
    return (
        bool(law.terms)
        or isinstance(law, ResponseLaw)
        or (isinstance(law, GaussianLaw) and law.earlier > 1e-5 * law.std)
    )
