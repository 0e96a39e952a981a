"""One draw of noise in the only terms that an accountant needs: noise against sensitivity, and how the release was
amplified by sampling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt
from typing import Literal

from .cohort import Shares, shares
from .response import pure

Amplification = Literal["", "poisson", "poisson_pair", "fixed"]


@dataclass(frozen=True, order=True)
class Draw:
    """One draw of noise about one subject.

    ratio: sensitivity / noise without amplification (Gaussian: L2 over std; Laplace: L1 over scale; a response: its
    pure ε; discrete: L2 over √senders·σ), > 0 and finite.
    amplification: how the subject was sampled: "poisson" (its contribution is there or not), "poisson_pair" (one of two
    contributions is there, or none), "fixed" (a sample of exactly `cohort` of `population`), "" (not, or not provably).
    inner: what over noise the amplified event wants: the whole contribution ("poisson"), either of the two
    ("poisson_pair"), or the distance between any two contributions ("fixed").
    scales: of a sum of Laplace noises, each over the L1 sensitivity (`laplace_sum`); () for a single one.
    steps, senders, numbers: of discrete Gaussian noise: σ of one sender in steps, how many such noises are summed, and
    of how many numbers. known: of how many others the observer knows whether they are in a "fixed" sample.
    senders, of a response: how many clients' answers are seen as a sum alone (`shuffled`). fair: without the subject it
    is a fair coin.
    """

    mechanism: Literal["gaussian", "laplace", "response", "discrete"]
    ratio: float
    amplification: Amplification = ""
    cohort: float = 1
    population: int = 1
    inner: float = 0.0
    scales: tuple[float, ...] = ()
    steps: float = 0.0
    senders: int = 1
    numbers: int = 1
    known: int = 0
    fair: bool = False

    @classmethod
    def laplace_sum(cls, scales: Iterable[float]) -> Draw:
        """One release under a sum of independent Laplace noises. scales: > 0, each over the L1 sensitivity.

        Without PLD it counts as the largest of them alone: the others come after it.
        """
        ordered = tuple(sorted(scales, reverse=True))
        return cls("laplace", 1 / ordered[0], scales=ordered if len(ordered) > 1 else ())

    @classmethod
    def of_one_lot(cls, draws: Sequence[Draw]) -> Draw:
        """Gaussian releases about the same sample: one Gaussian of all their numbers, sampled once, also where one of
        them follows what another one showed.

        Given who else is drawn, each world is a mixture of Gaussians whose means may follow what was seen, none further
        apart than the root of the sum of squares. Where one of two contributions is there (poisson_pair), the δ of the
        mixture is a convex function of the two likelihood ratios with a mixed derivative below 0, so that opposite
        moves of full length are the worst, at every moment (dynamic programming).
        """
        ratio, inner = (hypot(*sorted(getattr(draw, name) for draw in draws)) for name in ("ratio", "inner"))
        return replace(draws[0], ratio=ratio, inner=inner)

    @property
    def rate(self) -> float:
        return self.cohort / self.population

    @property
    def rates(self) -> Shares:
        """Of a "fixed" sample: the chances of what the observer knows, and how likely the subject then is in it."""
        return shares(self.population, int(self.cohort), self.known)

    @property
    def plain(self) -> Draw:
        """The same draw without its amplification, and of a sum of Laplace noises the largest alone."""
        unamplified = {"amplification": "", "cohort": 1, "population": 1, "inner": 0.0, "known": 0, "scales": ()}
        return replace(self, **unamplified)  # type: ignore[arg-type]

    @property
    def pure(self) -> float:
        """Its ε at δ = 0; of Gaussians there is none."""
        return pure(self.ratio, self.fair)

    def with_noise_times(self, factor: float) -> Draw:
        scales = tuple(scale * factor for scale in self.scales)
        steps = self.steps * factor
        return replace(self, ratio=self.ratio / factor, inner=self.inner / factor, scales=scales, steps=steps)


Draws = tuple[tuple[Draw, int], ...]  # sorted, with how many times each was made


def joint_ratio(draws: Draws) -> float:
    """The ratio of the one release that all Gaussian draws amount to, without amplification; 0 if there is none."""
    return hypot(*(draw.ratio * sqrt(count) for draw, count in draws if draw.mechanism == "gaussian"))
