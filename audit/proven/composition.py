"""What many draws of noise cost together: closed form where it is exact, else by dp_accounting (`accountants`).

A `Draw` is one release in the only terms an accountant needs: noise against sensitivity, and how the release was
amplified by sampling. Dropping an amplification is always sound (who is sampled does not depend on the data), so every
bound below holds, and the least one is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, fsum, hypot, inf, isfinite, sqrt
from typing import Literal

from .cohort import Shares, shares
from .discrete import as_continuous
from .gaussian import gaussian_epsilon
from .response import pure, response_epsilon

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


@lru_cache(maxsize=4096)
def epsilon(draws: Draws, delta: float, use_pld: bool = True) -> tuple[float, str]:
    """The least ε proven at δ for all draws together, and the accountant that gave it.

    use_pld: False leaves PLD out (a looser ε at a hundredth of the time).
    """
    if not draws:
        return 0.0, "none"
    best = _closed_form(draws, delta)
    if len(draws) == 1 and draws[0][0].mechanism == "response":
        alone = response_epsilon(draws[0][0].ratio, draws[0][1], delta, draws[0][0].fair), "closed form"
        if draws[0][0].senders == 1:
            return alone
        best = min(best, alone)
    if is_exact(draws):
        return best
    if any(draw.mechanism == "discrete" for draw, _ in draws):
        best = min(best, _of_continuous(draws, delta, use_pld))
    from .accountants import least_epsilon  # a second, and most Gaussians need none of it

    return least_epsilon(draws, delta, best, use_pld)


def _of_continuous(draws: Draws, delta: float, use_pld: bool) -> tuple[float, str]:
    continuous, off = with_continuous_noise(draws)
    if not isfinite(off):
        return inf, "none"
    value, accountant = epsilon(continuous, delta * exp(-off), use_pld)
    return value + 2 * off, accountant


def with_continuous_noise(draws: Draws) -> tuple[Draws, float]:
    """Continuous noise in the place of discrete noise (`discrete`), and κ, how far log-probabilities are from post-
    processing of it; ∞ where no continuous noise will do.
    """
    counts: Counter[Draw] = Counter()
    off = 0.0
    for draw, count in draws:
        if draw.mechanism == "discrete":
            factor, apart = as_continuous(draw.steps, draw.senders, draw.numbers)
            if not isfinite(factor):
                return (), inf
            draw, off = Draw("gaussian", draw.ratio * factor), off + count * apart
        counts[draw] += count
    return tuple(sorted(counts.items())), off


def is_exact(draws: Draws) -> bool:
    """Whether the closed form is not only a bound but the truth."""
    return all(draw.mechanism == "gaussian" and not draw.amplification for draw, _ in draws)


def _closed_form(draws: Draws, delta: float) -> tuple[float, str]:
    """Gaussians exactly, pure ε summed, both without amplification; discrete Gaussians have neither."""
    if any(draw.mechanism == "discrete" for draw, _ in draws):
        return inf, "none"
    gaussian = joint_ratio(draws)
    summed = fsum(draw.pure * count for draw, count in draws if draw.mechanism != "gaussian")
    names = ["closed form"] * (gaussian > 0) + ["linear composition"] * (summed > 0)
    return (gaussian_epsilon(1 / gaussian, delta) if gaussian else 0.0) + summed, " + ".join(names)


def gaussian_mu(draws: Draws) -> float | None:
    """μ of the one Gaussian release whose trade-off curve bounds that of all draws together (μ-GDP, Dong, Roth and Su
    2019); None where some of them have another law, or a sample hides something.

    Discrete noise is off by a factor of e^κ of continuous noise (`discrete`), for each of the two worlds. Φ⁻¹ of a
    probability moves by less than 2κ where that, and what is missing to 1, change by no more than such a factor.
    """
    continuous, off = draws, 0.0
    if any(draw.mechanism == "discrete" for draw, _ in draws):
        continuous, off = with_continuous_noise(draws)
    return joint_ratio(continuous) + 4 * off if is_exact(continuous) and off < 0.1 else None


def joint_ratio(draws: Draws) -> float:
    """The ratio of the one release that all Gaussian draws amount to, without amplification; 0 if there is none."""
    return hypot(*(draw.ratio * sqrt(count) for draw, count in draws if draw.mechanism == "gaussian"))
