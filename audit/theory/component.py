"""Component-adaptive noise: noise needed, error of the global model, rounds allowed (ADN: Xue et al., Theorem 1, Lemmas
7-8, Theorem 3, (7)-(13)).

Letters as in the paper: α (`alpha`) the Rényi order, L_i uploads of client i, σ0 (`sigma_0`) noise multiplier, M
components, n clients, T rounds. The thresholds come from private data, so none of this is a guarantee: these are the
paper's own formulas.
"""

from __future__ import annotations

import math

from .bound import Bound, Recommendation, count, positive, probability, remarks


def required_noise(*, L_i: int, alpha: int, epsilon: float, delta: float) -> Bound:
    """(10): the least σ0² for L_i uploads, L_iα/(2(ε − ln(1/δ)/(α−1))), sensitivity 1; nan unless α > 1 + ln(1/δ)/ε."""
    count(L_i=L_i, alpha=alpha)
    positive(epsilon=epsilon)
    probability(delta=delta)
    if alpha <= 1 + math.log(1 / delta) / epsilon:
        return Bound(
            math.nan,
            (f"α = {alpha} is not above 1 + ln(1/δ)/ε = {1 + math.log(1 / delta) / epsilon:.4g} (Theorem 1).",),
        )
    return Bound(L_i * alpha / (2 * (epsilon - math.log(1 / delta) / (alpha - 1))))


def spent_delta(*, L_i: int, sigma_0: float, epsilon: float, target_delta: float) -> Bound:
    """(12): δ_i = min over whole α > 1 + ln(1/δ*)/ε of exp((α−1)(L_iα/(2σ0²) − ε)).

    The exponent is convex in α with its minimum at (1 + 2εσ0²/L_i)/2; the best whole α is next to it or the least one
    allowed.
    """
    count(L_i=L_i)
    positive(sigma_0=sigma_0, epsilon=epsilon)
    probability(target_delta=target_delta)
    value = math.exp(min(_exponent(L_i, sigma_0, epsilon, target_delta), 700.0))
    return Bound(value, remarks((value > target_delta, f"δ_i = {value:.3g} exceeds the target {target_delta:g}.")))


def global_variance(*, M: int, T: int, n: int, alpha: int, epsilon: float, delta: float) -> Bound:
    """Lemma 8: the noise variance of one component of the global model, at most MTα/(2n(ε − ln(1/δ)/(α−1))).

    Holds if every component's sensitivity is at most 1; it does not depend on how many clients take part a round, for
    it is the same in every case of the proof (the third case's /4n is a slip).
    """
    count(M=M, n=n, T=T)
    noise = required_noise(L_i=T, alpha=alpha, epsilon=epsilon, delta=delta)
    return Bound(M * noise.value / n, noise.remarks)


def error(*, M: int, T: int, n: int, sigma_0: float, epsilon: float, delta: float) -> Bound:
    """Theorem 3 before its O(): √(3·`global_variance`) at α = (T + 2εσ0²)/(2T), parameter units.

    The proof calls this the 3-sigma rule, which would be 3√Var; √3 standard deviations hold with probability .917 for a
    Gaussian, not → 1.
    """
    count(M=M, T=T, n=n)
    positive(sigma_0=sigma_0, epsilon=epsilon)
    probability(delta=delta)
    alpha = (T + 2 * epsilon * sigma_0**2) / (2 * T)
    room = epsilon - math.log(1 / delta) / (alpha - 1) if alpha > 1 else -1.0
    if room <= 0:
        return Bound(math.nan, (f"α = {alpha:.4g} is not above 1 + ln(1/δ)/ε: these rounds do not fit the budget.",))
    return Bound(
        math.sqrt(3 * M * T * alpha / (2 * n * room)),
        ("√3 standard deviations are not the 3-sigma rule the proof names: they hold with probability .917.",),
    )


def recommend_rounds(*, epsilon: float, delta: float, sigma: float, max_rounds: int = 1000) -> Recommendation:
    """The most rounds of full participation with δ_T ≤ δ*, (13).

    The curve is log10 of δ_T, not a loss: the paper has no optimum of one. 7, 108 and 208 for (ε, σ0) = (.5, 26), (2,
    26), (8, 10) at δ* = 1e-5. Algorithm 2 tests after aggregating, so it makes one more.
    """
    count(max_rounds=max_rounds)
    positive(sigma=sigma, epsilon=epsilon)
    probability(delta=delta)
    curve = []
    for T in range(1, max_rounds + 1):
        curve.append((float(T), _exponent(T, sigma, epsilon, delta) / math.log(10)))
        if curve[-1][1] > math.log10(delta):
            break
    fitting = [T for T, exponent in curve if exponent <= math.log10(delta)]
    notes = remarks(
        (
            True,
            (
                "Not an optimum: Lemma 8's error grows with T and the paper has no term that falls with it; this is "
                "the last round that fits."
            ),
        ),
        (True, "Algorithm 2 tests its budget after aggregating, so literally one more release happens."),
        (not fitting, "Not even one round fits the budget."),
        (len(fitting) == max_rounds, f"The budget outlasts the scanned {max_rounds} rounds."),
    )
    return Recommendation("rounds T", float(len(fitting)), tuple(curve), notes)


def _exponent(L_i: int, sigma_0: float, epsilon: float, target_delta: float) -> float:
    """ln δ_i of (12), which itself can underflow."""
    least = math.floor(1 + math.log(1 / target_delta) / epsilon) + 1
    free = (1 + 2 * epsilon * sigma_0**2 / L_i) / 2
    orders = {max(least, math.floor(free)), max(least, math.ceil(free))}
    return min((a - 1) * (L_i * a / (2 * sigma_0**2) - epsilon) for a in orders)
