"""How pricing counts the facts of a ledger: a plan, a view and what a coalition knows are arguments of pricing, which
make a `Counted` of a release and never another release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import ceil, log2

from ...defenses.releases import CorrelatedLaw, Facts, GaussianLaw, NoiseFact, ResponseLaw


@dataclass(frozen=True, eq=False)
class Counted(Facts):
    """A release as it counts for one observer.

    secret: the observer saw nothing of who was in its sample. coalition: how many clients tell it all they know.
    training: which of several trainings it is of.
    """

    secret: bool = True
    coalition: int = 0
    training: int = 0

    def turned(self, factor: float) -> Counted:
        """Its bound may be so many times as large; the ε of a response is for any two values, and none of them is 0
        where another one may take its place.
        """
        if factor == 1:
            return self
        law = self.law
        if isinstance(law, ResponseLaw):
            return replace(self, law=replace(law, about_zero=False))
        if isinstance(law, GaussianLaw):
            law = replace(law, also=(law.also[0] * factor, law.also[1]))
        bound = None if self.bound_norm is None else self.bound_norm * factor
        return replace(self, law=law, bound_norm=bound, rounding=self.rounding * factor)

    def louder(self, factor: float) -> Counted:
        """All its noise is so many times as large, and the grid with it, by powers of two."""
        if 1 < factor < float("inf"):
            rounding = self.rounding * 2 ** ceil(log2(factor))
        else:
            rounding = self.rounding
        if self.bound_norm is None:
            bound = None
        else:
            bound = self.bound_norm - self.rounding + rounding
        return replace(self, law=_louder(self.law, factor), bound_norm=bound, rounding=rounding)

    def of_training(self, number: int) -> Counted:
        """With names that no other training has: by the published key ids come again, and an epoch's batches are
        disjoint in one training alone.
        """
        parents = frozenset(f"{number} {parent}" for parent in self.parents)
        slot = ""
        if self.slot:
            slot = f"{number} {self.slot}"
        law = replace(self.law, chain=f"{number} {self.law.chain}") if isinstance(self.law, CorrelatedLaw) else self.law
        return replace(self, id=f"{number} {self.id}", parents=parents, slot=slot, law=law, training=number)

    def told_by(self, coalition: int) -> Counted:
        """To whom so many clients tell all they know: of a sum the noise is left that the others add, and the subject;
        who is worst off has as many colluding as there are, in every round, and those with the loudest noise.
        """
        left, kept = 1 + max(0, sum(count for _, count in self.terms) - 1 - coalition), []
        for std, count in self.terms:
            kept.append((std, min(count, left)))
            left -= kept[-1][1]
        terms = tuple((std, count) for std, count in kept if count)
        law = self.law if isinstance(self.law, CorrelatedLaw) else replace(self.law, terms=terms)
        return replace(self, law=law, coalition=coalition)


def _louder(law: NoiseFact, factor: float) -> NoiseFact:
    terms = tuple((std * factor, count) for std, count in law.terms)
    if isinstance(law, CorrelatedLaw):
        return replace(law, std=law.std * factor)
    if isinstance(law, GaussianLaw):
        also = (law.also[0], law.also[1] * factor)
        return GaussianLaw(law.std * factor, law.earlier * factor, terms, also)
    return replace(law, std=law.std * factor, terms=terms)


@dataclass(frozen=True)
class Counting:
    """How a ledger's facts count where the training is still to come, or is another's: premises of its proofs.

    separation: rounds of correlated noise that a client is in are at least so far apart. problem: why nothing can be
    proven of it. noise: by release id, the factor on its noise on the worst path; ∞ for one that never comes.
    drawn_openly: whoever is asked about knows who, and what, was drawn, and when. any_key: it is planned for any key.
    """

    separation: int = 1
    problem: str = ""
    noise: Mapping[str, float] = field(default_factory=dict)
    drawn_openly: bool = False
    any_key: bool = False

    def count(self, release: Facts, alone: bool = False) -> Counted:
        """alone: also where another one of its slot counts."""
        one = Counted(**{each.name: getattr(release, each.name) for each in fields(release)})
        if self.separation > 1 and isinstance(one.law, CorrelatedLaw):
            one = replace(one, law=replace(one.law, separation=self.separation))
        if self.problem:
            one = replace(one, problem=one.problem or self.problem)
        if (factor := self.noise.get(one.id)) is not None:
            one = one.louder(factor)
        if self.drawn_openly:
            one = replace(one, sampling=None)
        if alone or self.drawn_openly:
            return replace(one, slot="")
        return one
