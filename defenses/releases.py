"""Facts: what one draw of noise hides, and how well. Nothing here is priced.

A `Release` has two makers: `steps.perturb.emit`, of noise that was drawn in the same call, and `declare`, of what
somebody states: a recording, an import, bare numbers, a line of releases.jsonl. What it costs is a property of its law
and its bound, computed in one place (`ratio_of`), so no two facts can contradict each other.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field, fields, replace
from math import exp, fsum, hypot, inf, isnan, sqrt
from typing import Any, ClassVar, Literal

from .terms import Unit

Terms = tuple[tuple[float, int], ...]  # independent noises: standard deviation, how many; the least first
LawName = Literal["none", "gaussian", "laplace", "response", "discrete", "correlated"]


@dataclass(frozen=True)
class Sampling:
    """A cohort (or batch): each release was about a subset of the population, a secret random one unless it is a
    "partition": then the population is dealt into cohorts anew for every epoch, openly, one cohort a step.
    """

    kind: Literal["poisson", "without_replacement", "partition"]
    population: int
    cohort: float  # expected (poisson) or exact size
    unit: Unit = "client"  # what is sampled


@dataclass(frozen=True)
class Silent:
    """No noise at all."""

    name: ClassVar[LawName] = "none"
    std: float = 0.0
    terms: Terms = ()


@dataclass(frozen=True)
class GaussianLaw:
    """std: drawn, in parameter units; where it differs by component, of the noise alike in all that hides the bound as
    well; 0 for a sum, whose noise is that of its `terms`.

    earlier: of the noise that was in the value before and protects the same subjects.
    terms: (std, how many): the independent noises of different senders in a sum, the least first; one of them, at least
    the first, is the subject's own.
    also: what else is told under noise of its own: how far a subject moves it, and its noise's std.
    """

    name: ClassVar[LawName] = "gaussian"
    std: float
    earlier: float = 0.0
    terms: Terms = ()
    also: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class LaplaceLaw:
    """std: drawn, √2 times the scale; 0 for a sum. terms: as of a `Gaussian`."""

    name: ClassVar[LawName] = "laplace"
    std: float
    terms: Terms = ()


@dataclass(frozen=True)
class ResponseLaw:
    """Every number is one of two values (`steps.perturb.respond`).

    epsilon: of one number, whatever two values it may have. terms: how many senders answer where only a sum is seen.
    about_zero: in the place of a value of 0 either answer is as likely.
    """

    name: ClassVar[LawName] = "response"
    std: float
    epsilon: float
    terms: Terms = ()
    about_zero: bool = False


@dataclass(frozen=True)
class DiscreteLaw:
    """Discrete Gaussian noise: value and noise are whole numbers of a step (`steps.discrete`).

    step: in parameter units. numbers: how many the value has. std, terms: as of a `Gaussian`.
    """

    name: ClassVar[LawName] = "discrete"
    std: float
    step: float
    numbers: int
    terms: Terms = ()


@dataclass(frozen=True)
class CorrelatedLaw:
    """Gaussian noise that other rounds have a part of too: η = D Z with D C = I (`strategies`).

    Together the rounds of a chain are one Gaussian release of C x + Z and not one release each; whoever sees some of
    them sees no more.

    std: of the white noise Z. chain: the name of Z. column: of C, where it is not 0: into which rows the round's value
    goes, and how much of it.
    separation, most: of the rounds whose releases are about a client it is really in some that are at least so far
    apart, and in at most so many; 1 and None where it is in all of them, as in whatever was really trained.
    """

    name: ClassVar[LawName] = "correlated"
    std: float
    chain: str
    column: tuple[tuple[int, float], ...]
    separation: int = 1
    most: int | None = None
    terms: ClassVar[Terms] = ()


NoiseFact = Silent | GaussianLaw | LaplaceLaw | ResponseLaw | DiscreteLaw | CorrelatedLaw


def total_std(terms: Terms) -> float:
    """The standard deviation of independent noises together."""
    return sqrt(fsum(std * std * count for std, count in terms))


def ratio_of(law: NoiseFact, norm: float | None) -> float:
    """Sensitivity over noise of a bound `norm` (L2, or L1 under Laplace noise, over its scale); ∞ without noise or
    bound.

    Gaussian: of all noise together. Correlated: of who is in no other round of the chain. Of a sum of Laplace noises:
    over the largest alone. Of a response: the pure ε of one number, with what a coin of 53 bits adds to it.

    >>> ratio_of(GaussianLaw(3.0, earlier=4.0), 1.0), ratio_of(LaplaceLaw(2**0.5), 3.0), ratio_of(GaussianLaw(0.0), 1.0)
    (0.2, 3.0, inf)
    """
    if isinstance(law, ResponseLaw):
        return law.epsilon + 2.0**-52 * (exp(law.epsilon) + 1)
    if isinstance(law, LaplaceLaw):
        hides = (law.terms[-1][0] if law.terms else law.std) / sqrt(2)
    elif isinstance(law, CorrelatedLaw):
        column = hypot(*(value for _, value in law.column))
        hides = law.std / column if column else inf
    elif isinstance(law, GaussianLaw):
        hides = hypot(law.std, total_std(law.terms) if law.terms else law.earlier)
    else:
        hides = total_std(law.terms) if law.terms else law.std
    if norm is None or isnan(norm) or not hides > 0:
        return inf
    moved, std = law.also if isinstance(law, GaussianLaw) else (0.0, 1.0)
    return hypot(norm / hides, moved / std if std > 0 else inf) if moved else norm / hides


@dataclass(frozen=True, eq=False)
class Facts:
    """One draw of noise over private data (or, with a `Silent` law, no noise at all), as somebody counts it.

    law: of the noise really drawn.
    bound_norm, bound_order, bound_of, records: the guaranteed bound (`wire.Bound`), None where there is none.
    subjects: the parties whose data it is about.
    parents: ids of the releases it was computed from; an observer of all of these learns nothing more from it.
    steps: how many times the mechanism ran with fresh noise (local DP-SGD: its steps; a response: for each number).
    problem: why nothing can be proven ("" if something can): no bound, or a bound or noise scale computed from private
      data.
    centred: the value carries the party's earlier ones: the bound is on the distance from the model the round began
      with (`wire.Bound`), or the party sends a running mean. anywhere: as of `wire.Bound`.
    lot: the draw that made the sample, by name, "" where nobody names it: releases of a round that name the same one
      are about the same members; of all others nobody knows.
    slot: releases of one slot are about disjoint records of a subject, "" for none: the batches of one epoch.
    rounding: how much of `bound_norm` the rounding to the grid added, which grows with the noise (`grid`).
    """

    id: str
    round: int
    law: NoiseFact
    bound_norm: float | None
    bound_order: int
    bound_of: Unit
    records: int
    subjects: frozenset[int]
    sampling: Sampling | None = None
    parents: frozenset[str] = frozenset()
    steps: int = 1
    problem: str = ""
    centred: bool = False
    anywhere: bool = False
    slot: str = ""
    rounding: float = 0.0
    lot: str = ""

    @property
    def mechanism(self) -> LawName:
        return self.law.name

    @property
    def noise_std(self) -> float:
        return self.law.std

    @property
    def terms(self) -> Terms:
        return self.law.terms

    @property
    def ratio(self) -> float:
        """Sensitivity over noise, for one subject's own and later noise (`ratio_of`)."""
        return ratio_of(self.law, self.bound_norm)


_MAKER = object()


@dataclass(frozen=True, eq=False)
class Release(Facts):
    """Facts that somebody vouches for. maker: nobody else has it, nor has `replace`: facts cannot be rewritten."""

    maker: InitVar[object] = field(kw_only=True)

    def __post_init__(self, maker: object) -> None:
        if maker is not _MAKER:
            raise TypeError("a release is made by `emit`, of noise that was just drawn, or by `declare`")


def declare(
    id: str, round: int, law: NoiseFact, bound_norm: float | None, subjects: frozenset[int], **facts: Any
) -> Release:
    """A release that somebody states and nobody here drew.

    Args:
        id, round, law, bound_norm, subjects: as of `Facts`.
        facts: the others of these; without them the bound is an L2 norm of the whole vector.
    """
    known = {"bound_order": 2, "bound_of": "client", "records": 1, **facts}
    return Release(id, round, law, bound_norm, subjects=subjects, maker=_MAKER, **known)


def and_also(release: Release, moved: float, std: float) -> Release:
    """The same, with another value told beside it under Gaussian noise of its own: it costs more."""
    assert isinstance(release.law, GaussianLaw)
    return _restated(release, law=replace(release.law, also=(moved, std)))


def carrying(release: Release) -> Release:
    """The same of a value that carries the party's earlier ones too."""
    return _restated(release, centred=True)


def in_slot(release: Release, slot: str) -> Release:
    """The same, named as one of a slot: the batches of an epoch, of which a record is in one."""
    return _restated(release, slot=slot)


def of_lot(release: Release, lot: str) -> Release:
    """The same, of a sample that this draw made."""
    return _restated(release, lot=lot)


def of_another(release: Release, id: str, subjects: frozenset[int], parents: frozenset[str] = frozenset()) -> Release:
    """What others who are alike release of themselves, or all senders together."""
    return _restated(release, id=id, subjects=subjects, parents=parents)


def _restated(release: Release, **changes: Any) -> Release:
    known = {each.name: getattr(release, each.name) for each in fields(release)}
    return declare(**{**known, **changes})
