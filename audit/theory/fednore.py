"""Fed-nore: the change of the loss and the convergence bounds of Fed-nore-1 (THESIS: Weng 2025, Theorem 3, Corollary 1,
Lemma 6, Theorems 4-5).

Letters as in the thesis: λ (`lam`) the weight of the added term, σ (`sigma`) base noise scale, n records of a client, S
its sensitivity (the median norm over n, parameter units), ρ (`rho`) smoothness, β (`beta`) Lipschitz constant, μ (`mu`)
the Polyak-Lojasiewicz (PL) constant, T rounds. Loss units throughout, except for Theorem 5 (squared gradient norm).

Three steps of the proof hold at no parameters: (A.22) takes ∇S_i = (W^t − W_i)/S_i, though S_i is a median of *past*
norms, whose gradient is 0 (and a current norm's has the other sign); (A.30) turns a triangle inequality into a minus
sign; (A.32) puts the square of E‖N‖ for E‖N‖² (Jensen: too small).
"""

from __future__ import annotations

import math

from .bound import (
    Bound,
    Recommendation,
    assumed,
    count,
    geometric_sum,
    merged,
    nonnegative,
    one_of,
    positive,
    power,
    recommend,
    remarks,
)


def noise_to_gradient(*, sigma: float, n: int, d: int | None = None, reading: str = "printed") -> Bound:
    """‖noise‖/‖gradient‖ = σ/√n ("printed", (3.23) and (A.12)) or √d·σ/n ("components": d draws of std σ‖∇W‖/n each).

    >>> noise_to_gradient(sigma=8, n=400).value
    0.4
    """
    nonnegative(sigma=sigma)
    count(n=n)
    one_of("reading", reading, ("printed", "components"))
    if reading == "printed":
        other = remarks(
            (
                d is not None and d != n,
                (
                    f"√n stands for the square root of the number of parameters: with d = {d} the ratio is "
                    f"{math.sqrt(d or 0) * sigma / n:.4g}."
                ),
            )
        )
        return Bound(sigma / math.sqrt(n), other)
    if d is None:
        raise ValueError("d must be given for the reading 'components', got None.")
    count(d=d)
    return Bound(math.sqrt(d) * sigma / n)


def output_change(*, a: float, y: float, sigma: float, n: int) -> Bound:
    """Theorem 3, (3.18): the change (a − y)σ/√n of one softmax output a in [0, 1] with label y.

    It gives zero-mean noise the sign of the gradient; the expected change itself is 0 to first order.
    """
    if not 0 <= a <= 1:
        raise ValueError(f"a must lie in [0, 1], a softmax output, got {a}.")
    if y not in (0, 1):
        raise ValueError(f"y must be 0 or 1, a one-hot label, got {y}.")
    return Bound((a - y) * noise_to_gradient(sigma=sigma, n=n).value)


def pull(*, lam: float, sigma: float, n: int, S: float) -> Bound:
    """l1 = 1/(1 + λσ√n/S) of Lemma 6, (3.25): the share of a gradient step left by Fed-nore-1's term; 1 without it."""
    nonnegative(lam=lam, sigma=sigma)
    count(n=n)
    positive(S=S)
    return Bound(
        1 / (1 + lam * sigma * math.sqrt(n) / S),
        remarks(
            (
                lam * sigma > 0,
                "With S a median of past norms, (3.9), ∇S = 0 and l1 = 1: Fed-nore-1 is then the plain scheme.",
            )
        ),
    )


def noise_norm(*, lam: float, sigma: float, n: int, beta: float) -> Bound:
    """q1 = (σ/√n)(λσn^(3/2) − β), (3.28): the thesis's bound on E‖N‖ (parameter units)."""
    nonnegative(lam=lam, sigma=sigma, beta=beta)
    count(n=n)
    value = sigma / math.sqrt(n) * (lam * sigma * n**1.5 - beta)
    return Bound(
        value,
        remarks(
            (value < 0, f"q1 = {value:.4g} is negative, impossible for a norm (the −β of (A.30) should be +β)."),
            (value == 0 < sigma, "q1 = 0 although there is noise: the −β of (A.30) cancels it."),
        ),
    )


def expected_decrease(*, gradient: float, noise: float, noise_squared: float, l1: float, rho: float) -> Bound:
    """Lemma 6, (3.24): E F(W^{t+1}) − F(W^t) ≤ (ρl1²/2 − l1)‖∇F‖² + (1 − l1ρ)‖∇F‖E‖N‖ + (ρ/2)E‖N‖²."""
    nonnegative(gradient=gradient, noise=noise, noise_squared=noise_squared)
    positive(rho=rho, l1=l1)
    value = (rho * l1**2 / 2 - l1) * gradient**2 + (1 - l1 * rho) * gradient * noise + rho / 2 * noise_squared
    return Bound(
        value,
        remarks(
            (
                l1 * rho > 1,
                f"l1ρ = {l1 * rho:.4g} > 1: the cross term is then bounded by (l1ρ − 1)‖∇F‖E‖N‖, not by its negative.",
            ),
            (noise_squared < noise**2 * (1 - 1e-12), "E‖N‖² is below (E‖N‖)², impossible by Jensen's inequality."),
        ),
    )


def convergence(
    *, T: int, gap: float, beta: float, mu: float, rho: float, lam: float, sigma: float, n: int, S: float
) -> Bound:
    """Theorem 4, (3.26): l3^T·gap + (βq1(1 − l1ρ) + ρq1²/2)(1 − l3^T)/(1 − l3), l3 = μρl1² − 2l1μ + 1, gap = F(W^0) −
    F(W*).
    """
    count(T=T)
    nonnegative(gap=gap)
    positive(mu=mu, rho=rho)
    l1, q1, floor = _per_round(beta, rho, lam, sigma, n, S)
    l3 = mu * rho * l1.value**2 - 2 * l1.value * mu + 1
    value = power(l3, T) * gap + floor * geometric_sum(l3, T)
    return Bound(
        value,
        merged(
            l1.remarks,
            q1.remarks,
            remarks(
                (mu > rho, f"A PL constant {mu:g} above the smoothness {rho:g} is impossible."),
                (not 0 <= l3 < 1, f"l3 = {l3:.4g} lies outside [0, 1): the gap does not shrink (needs l1ρ < 2)."),
                (
                    l1.value * rho > 1,
                    f"l1ρ = {l1.value * rho:.4g} > 1: (A.32) then bounds a negative term from the wrong side.",
                ),
                (value < 0, "The value is negative, impossible for F − F*."),
            ),
        ),
    )


def gradient_convergence(
    *, T: int, gap: float, beta: float, rho: float, lam: float, sigma: float, n: int, S: float
) -> Bound:
    """Theorem 5, (3.29), non-convex: E‖∇F‖² ≤ gap/(DT) + (βq1(1 − l1ρ) + ρq1²/2)/D, D = l1 − ρl1²/2; nan for D = 0."""
    count(T=T)
    nonnegative(gap=gap)
    positive(rho=rho)
    l1, q1, floor = _per_round(beta, rho, lam, sigma, n, S)
    D = l1.value - rho * l1.value**2 / 2
    value = math.nan if D == 0 else (gap / T + floor) / D
    return Bound(
        value,
        merged(
            l1.remarks,
            q1.remarks,
            remarks(
                (D <= 0, f"l1 − ρl1²/2 = {D:.4g} is not positive (needs l1ρ < 2): dividing by it gives no bound."),
                (
                    l1.value * rho > 1,
                    f"l1ρ = {l1.value * rho:.4g} > 1: (A.36) then bounds a negative term from the wrong side.",
                ),
                (value < 0, "The value is negative, impossible for a squared norm."),
            ),
        ),
    )


def recommend_rounds(
    *,
    sigma: float,
    samples: int,
    clip: float,
    strength: float = 1.0,
    max_rounds: int = 200,
    smoothness: float = 1.0,
    pl: float = 0.1,
    lipschitz: float = 1.0,
    initial_gap: float = math.log(10),
) -> Recommendation:
    """T* of Theorem 4 by a scan, S = clip/samples, strength λ_nore1.

    At a fixed σ the bound moves steadily from the initial gap to its limit, so T* is an end of the range; the budget
    decides instead. The bound's λ* = β/(σn^(3/2)) is where q1 = 0, an artefact of the sign in (A.30), and is not
    recommended.
    """
    positive(clip=clip)
    count(samples=samples, max_rounds=max_rounds)

    def at(T: float) -> Bound:
        return convergence(
            T=int(T),
            gap=initial_gap,
            beta=lipschitz,
            mu=pl,
            rho=smoothness,
            lam=strength,
            sigma=sigma,
            n=samples,
            S=clip / samples,
        )

    notes = (
        assumed(smoothness=smoothness, pl=pl, lipschitz=lipschitz, initial_gap=initial_gap),
        "Theorem 4 has no interior optimum in T at a fixed σ: it moves steadily towards its limit.",
    )
    found = recommend("rounds T", at, range(1, max_rounds + 1), notes)
    empty = remarks(
        (
            min(value for _, value in found.curve) > initial_gap,
            "The bound exceeds the initial gap at every T: it says nothing.",
        )
    )
    return Recommendation(found.what, found.value, found.curve, (*found.remarks, *empty))


def _per_round(beta: float, rho: float, lam: float, sigma: float, n: int, S: float) -> tuple[Bound, Bound, float]:
    """l1, q1 and what a round adds, βq1(1 − l1ρ) + ρq1²/2."""
    l1 = pull(lam=lam, sigma=sigma, n=n, S=S)
    q1 = noise_norm(lam=lam, sigma=sigma, n=n, beta=beta)
    return l1, q1, beta * q1.value * (1 - l1.value * rho) + rho / 2 * q1.value**2
