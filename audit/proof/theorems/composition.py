"""What many draws of noise cost together: closed form where it is exact, else by dp_accounting (`accountants`).

Dropping an amplification is always sound (who is sampled does not depend on the data), so every bound below holds, and
the least one is reported.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import exp, fsum, inf, isfinite

from .discrete import as_continuous
from .draw import Draw, Draws, joint_ratio
from .gaussian import gaussian_epsilon
from .response import response_epsilon


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
    if is_exact(continuous) and off < 0.1:
        return joint_ratio(continuous) + 4 * off
    return None
