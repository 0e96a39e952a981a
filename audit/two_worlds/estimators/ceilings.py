"""How much an audit could show at all, and how large it must be to test a claim."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from .betting import betting_ceiling
from .bound import checked_level
from .clopper_pearson import perfect_limits, refuted_epsilon
from .fdp import fdp_mu
from .gdp import mu_epsilon, mu_limit
from .one_run import one_run_epsilon

METHODS = ("clopper-pearson", "betting", "gdp", "one-run", "one-run-fdp", "one-shot")

_MOST_CANARIES = 2**22


def ceiling(
    method: str,
    n_in: int,
    n_out: int,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: int | None = None,
) -> float:
    """The ε that an attack without any error shows with n_in inserted and n_out left-out canaries at a fixed threshold.

    An estimate has no ceiling: inf.

    Args:
        method: of METHODS.
        n_in: inserted canaries, or trials with the canary.
        n_out: left-out canaries, or trials without it.
        delta, confidence: of the bound.
        guesses: of one-run methods, about m = n_in + n_out canaries; all if None.

    Raises:
        ValueError: the method is unknown, there are no canaries, or more guesses than canaries.

    >>> round(ceiling("clopper-pearson", 500, 500, delta=1e-5), 2)
    4.91
    >>> round(ceiling("clopper-pearson", 50, 100_000, delta=1e-5), 1)       # left-out canaries are often free
    10.1
    """
    alpha = checked_level(delta, confidence, delta_above_zero=method in ("gdp", "one-run-fdp", "one-shot"))
    if min(n_in, n_out) < 1:
        raise ValueError(f"there must be at least one inserted and one left-out canary, got {n_in} and {n_out}")
    m = n_in + n_out
    r = m if guesses is None else guesses
    if not 0 < r <= m:
        raise ValueError(f"the number of guesses must be between 1 and the {m} canaries, got {r}")
    match method:
        case "clopper-pearson":
            return max(*map(float, refuted_epsilon(*perfect_limits(n_in, n_out, alpha), delta)), 0.0)
        case "betting":
            return betting_ceiling(min(n_in, n_out), delta, alpha)
        case "gdp":
            return mu_epsilon(float(mu_limit(*perfect_limits(n_in, n_out, alpha))), delta)
        case "one-run":
            return one_run_epsilon(m, r, r, delta, alpha)
        case "one-run-fdp":
            return mu_epsilon(fdp_mu(m, r, r, alpha), delta)
        case "one-shot":
            return inf
    raise ValueError(f"the method must be one of {', '.join(METHODS)}, got {method!r}")


@dataclass(frozen=True)
class DrawPlan:
    """The smallest audit whose ceiling exceeds a target: canaries inserted and left out, and that ceiling."""

    n_in: int
    n_out: int
    ceiling: float


def plan_draws(
    target_epsilon: float,
    delta: float,
    confidence: float = 0.95,
    method: str = "clopper-pearson",
    *,
    out_per_in: float = 1.0,
) -> DrawPlan:
    """How many canaries (or independent draws) it takes before a perfect attack could refute `target_epsilon`.

    A real attack errs, so this is the least, not the right size.

    Args:
        target_epsilon: the ε to refute.
        delta, confidence: of the bound.
        method: of METHODS.
        out_per_in: left-out canaries per inserted one; 1 for fair coins, many where a left-out canary costs nothing.

    Raises:
        ValueError: the target is below 0 or out of reach (with delta > 0 the one-run test pays for every canary and
            saturates), or the method is an estimate.

    >>> audit = plan_draws(8.0, 1e-5, out_per_in=1000)
    >>> audit.n_in, audit.n_out, round(audit.ceiling, 2)
    (15, 15000, 8.06)
    """
    if not target_epsilon >= 0:
        raise ValueError(f"the target ε must be ≥ 0, got {target_epsilon}")
    if not out_per_in > 0:
        raise ValueError(f"the number of left-out canaries per inserted one must be above 0, got {out_per_in}")
    if method == "one-shot":
        raise ValueError("a one-shot estimate bounds nothing and cannot refute a claim of any size; plan for 'gdp'")

    def sized(n_in: int) -> DrawPlan:
        n_out = max(round(n_in * out_per_in), 1)
        return DrawPlan(n_in, n_out, ceiling(method, n_in, n_out, delta=delta, confidence=confidence))

    # The ceiling rises with the size, or rises and then falls; either way it rises up to the first size that is enough.
    low, high, best = 0, 1, DrawPlan(0, 0, 0.0)
    while (enough := sized(high)).ceiling <= target_epsilon:
        best = max(best, enough, key=lambda trial: trial.ceiling)
        low, high = high, 2 * high
        if enough.ceiling < best.ceiling or high * (1 + out_per_in) > _MOST_CANARIES:
            raise ValueError(
                f"{method} cannot show ε = {target_epsilon:g} at δ = {delta:g}: of all sizes tried, {best.n_in:,} + "
                f"{best.n_out:,} canaries could show most, {best.ceiling:.3g}; try 'gdp' or more left-out canaries"
            )
    while high - low > 1:
        middle = (low + high) // 2
        if (trial := sized(middle)).ceiling > target_epsilon:
            high, enough = middle, trial
        else:
            low = middle
    return enough
