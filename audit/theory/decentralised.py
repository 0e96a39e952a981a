"""Anonymous decentralised DP-FL: noise needed and convergence (THESIS: Weng 2025, Theorems 8-9, (5.4)-(5.10),
Appendices K-L).

Letters as in the thesis: m all clients, m_tcs of them training a round (r_tcs = m_tcs/m), m_e receivers of a gossip
message, n records a client, C the clip, L smoothness, ζ (`zeta`) the bound on the local divergence, ρ2 (`rho_2`) the
second largest eigenvalue of the communication graph, T rounds. Convergence bounds are in units of the squared gradient
norm. The noise terms count one parameter: d parameters have d times as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .bound import (
    Bound,
    Recommendation,
    assumed,
    at_most,
    count,
    merged,
    nonnegative,
    one_of,
    positive,
    probability,
    recommend,
    remarks,
)

READINGS = ("appendix", "text", "rederived")


def noise_variance(*, T: int, epsilon: float, delta: float, m: int, r_tcs: float, m_e: int | None = None) -> Bound:
    """Theorem 8, (5.5): σ² = 7s₁T(ε + 2 ln(1/δ))/(m²ε²), s₁ = r_tcs² (leader, m_e None) or r_tcs²m_e (gossip).

    m is the number of *all* clients (Appendix K).

    >>> round(noise_variance(T=50, epsilon=8, delta=1e-5, m=100, r_tcs=0.7).value, 5)
    0.00831
    >>> round(noise_variance(T=50, epsilon=8, delta=1e-5, m=100, r_tcs=0.7, m_e=30).value, 5)
    0.24942
    """
    count(T=T, m=m, m_e=m_e or 1)
    positive(epsilon=epsilon, r_tcs=r_tcs)
    probability(delta=delta)
    at_most("r_tcs", r_tcs, "1", 1.0)
    logarithm = math.log(1 / delta)
    s_1 = r_tcs**2 * (m_e or 1)
    value = 7 * s_1 * T * (epsilon + 2 * logarithm) / (m * epsilon) ** 2
    alpha = 1 + 2 * logarithm / epsilon
    inside = 1 / (r_tcs * alpha * (1 + value))
    most = 1 + 2 / 3 * value * math.log(inside)
    return Bound(
        value,
        remarks(
            (
                epsilon >= 2 * logarithm,
                f"ε = {epsilon:g} is not below 2 ln(1/δ) = {2 * logarithm:.4g}: the order α = {alpha:.4g} is below 2.",
            ),
            (value < 0.7, f"σ² = {value:.3g} is below the .7 that Lemma 3's 3.5r²α/σ² needs."),
            (alpha > most, f"α = {alpha:.4g} exceeds Lemma 3's limit {most:.4g} (with Δ = 1)."),
            (m > 1, f"The privacy amplification by m = {m}, twice, has no proof."),
        ),
    )


def local_noise_std(*, sigma: float, C: float, n: int, m: int, reading: str = "equation") -> Bound:
    """The std a client adds, update units: 2Cσ/n ("equation", (5.3)-(5.4)) or 2Cσ/m ("theorem", end of Theorem 8)."""
    nonnegative(sigma=sigma)
    positive(C=C)
    count(n=n, m=m)
    one_of("reading", reading, ("equation", "theorem"))
    return Bound(
        2 * C * sigma / (n if reading == "equation" else m),
        remarks(
            (n != m, f"(5.4) divides by n = {n} records, the end of Theorem 8 by m = {m} clients."),
            (
                reading == "equation" and n > 1,
                (
                    "A clipped update turns around with one record: the sensitivity is 2C, the multiplier σ/n = "
                    f"{sigma / n:.3g}."
                ),
            ),
        ),
    )


def gossip_convergence(
    *,
    T: int,
    gap: float,
    zeta: float,
    L: float,
    rho_2: float,
    m_tcs: int,
    m_e: int,
    C: float,
    sigma2: float,
    n: int,
    reading: str = "appendix",
) -> Bound:
    """Theorem 9, gossip: E‖∇F‖² after T rounds, gap = F(W^0) − F(W*), sigma2 = σ² of Theorem 8.

    With D = ρ2 + ρ2L − L + 2 the text (5.8) has 2gap/(TD) − ζ²/D + ζ²(L−1)(1−ρ2)(m_tcs−m_e)/(m_eD(m_tcs−1)) +
    4LC²σ²(1−ρ2)/(n²m_eD). "appendix", (A.69): D − 4 in the first and last denominators, L + 1 for L − 1. "rederived",
    from (A.64)-(A.65): D = 1 − (L−1)₊(1−ρ2), +ζ²/D, (L−1)₊ (the middle step (A.66) bounds from above what L < 1 would
    need from below).
    """
    count(T=T, m_tcs=m_tcs, m_e=m_e, n=n)
    if m_e >= m_tcs:
        raise ValueError(f"m_e must be below m_tcs = {m_tcs}, the clients training, got {m_e}.")
    if not 0 <= rho_2 <= 1:
        raise ValueError(f"rho_2 must lie in [0, 1], the second eigenvalue of an averaging matrix, got {rho_2}.")
    _check(gap, zeta, L, C, sigma2, reading)
    sampling = zeta**2 * (1 - rho_2) * (m_tcs - m_e) / (m_e * (m_tcs - 1))
    privacy = 4 * L * C**2 * sigma2 * (1 - rho_2) / (n**2 * m_e)
    D = rho_2 + rho_2 * L - L + 2
    if reading == "rederived":
        extra = max(L - 1, 0.0)
        D = 1 - extra * (1 - rho_2)
        return _sum(T, gap, +(zeta**2), extra * sampling, privacy, D, D, L, reading)
    if reading == "text":
        return _sum(T, gap, -(zeta**2), (L - 1) * sampling, privacy, D, D, L, reading)
    return _sum(T, gap, -(zeta**2), (L + 1) * sampling, privacy, D - 4, D, L, reading)


def leader_convergence(
    *,
    T: int,
    gap: float,
    zeta: float,
    L: float,
    m: int,
    m_tcs: int,
    C: float,
    sigma2: float,
    n: int,
    reading: str = "appendix",
) -> Bound:
    """Theorem 9, pseudo-central (leader): E‖∇F‖² after T rounds.

    With D = 2 − L the text (5.9) has 2gap/(TD) − ζ²/D + ζ²(L−1)(m−m_tcs)/(m_tcsD(m−1)) + 4LC²σ²/(n²m_tcsD). "appendix",
    (A.74): L + 1 for L − 1. "rederived", from (A.70): D = 1 − (L−1)₊, +ζ²/D, (L−1)₊.
    """
    count(T=T, m=m, m_tcs=m_tcs, n=n)
    at_most("m_tcs", m_tcs, "m", m)
    _check(gap, zeta, L, C, sigma2, reading)
    sampling = 0.0 if m == m_tcs else zeta**2 * (m - m_tcs) / (m_tcs * (m - 1))
    privacy = 4 * L * C**2 * sigma2 / (n**2 * m_tcs)
    if reading == "rederived":
        extra = max(L - 1, 0.0)
        return _sum(T, gap, +(zeta**2), extra * sampling, privacy, 1 - extra, 1 - extra, L, reading)
    factor = L - 1 if reading == "text" else L + 1
    return _sum(T, gap, -(zeta**2), factor * sampling, privacy, 2 - L, 2 - L, L, reading)


def second_eigenvalue(*, m_e: int) -> Bound:
    """ρ2 ≈ 2√(m_e − 1)/m_e of a large random m_e-regular graph (Friedman, arXiv:cs/0405020); 1 for m_e ≤ 2.

    Ours: the thesis names no value.
    """
    count(m_e=m_e)
    return Bound(1.0 if m_e <= 2 else 2 * math.sqrt(m_e - 1) / m_e)


def recommend_rounds(
    *,
    epsilon: float,
    delta: float,
    clip: float,
    samples: int,
    clients: int,
    participants: int,
    neighbours: int | None = None,
    eigenvalue: float | None = None,
    dimension: int = 1,
    max_rounds: int = 500,
    smoothness: float = 1.5,
    divergence: float = 1.0,
    initial_gap: float = math.log(10),
) -> Recommendation:
    """T* of Theorem 9 ("rederived") with the noise of Theorem 8 for T rounds. neighbours m_e: gossip; None: leader."""
    count(max_rounds=max_rounds)
    at, notes = _system(
        epsilon, delta, clip, samples, clients, eigenvalue, dimension, smoothness, divergence, initial_gap
    )
    return recommend("rounds T", lambda T: at(int(T), participants, neighbours), range(1, max_rounds + 1), notes)


def recommend_participants(
    *,
    epsilon: float,
    delta: float,
    clip: float,
    samples: int,
    clients: int,
    rounds: int,
    neighbours: int | None = None,
    eigenvalue: float | None = None,
    dimension: int = 1,
    smoothness: float = 1.5,
    divergence: float = 1.0,
    initial_gap: float = math.log(10),
) -> Recommendation:
    """m_tcs* of Theorem 9 ("rederived"): more training clients sample better and need more noise.

    neighbours m_e: gossip; None: leader.
    """
    count(clients=clients)
    at, notes = _system(
        epsilon, delta, clip, samples, clients, eigenvalue, dimension, smoothness, divergence, initial_gap
    )
    least = 1 if neighbours is None else neighbours + 1
    at_most("neighbours + 1", least, "clients", clients)
    return recommend(
        "training clients m_tcs", lambda m_tcs: at(rounds, int(m_tcs), neighbours), range(least, clients + 1), notes
    )


def recommend_neighbours(
    *,
    epsilon: float,
    delta: float,
    clip: float,
    samples: int,
    clients: int,
    participants: int,
    rounds: int,
    dimension: int = 1,
    smoothness: float = 1.5,
    divergence: float = 1.0,
    initial_gap: float = math.log(10),
) -> Recommendation:
    """m_e* of Theorem 9 ("rederived") for gossip, ρ2 by `second_eigenvalue`.

    In the privacy error σ² ∝ m_e cancels the 1/m_e, so m_e enters it through ρ2 alone, unlike the thesis says. And
    every 1 − ρ2 should read 1/(1 − ρ2) by Lemma 9: as it stands the bound improves as the graph stops mixing, so m_e*
    is not advice.
    """
    if participants < 3:
        raise ValueError(f"participants must be at least 3, to leave a choice of neighbours, got {participants}.")
    at, notes = _system(epsilon, delta, clip, samples, clients, None, dimension, smoothness, divergence, initial_gap)
    backwards = (
        "Theorem 9 improves as ρ2 → 1, that is as the graph stops mixing (Lemma 9's 1/(1 − ρ2) has become 1 − ρ2): "
        "no advice."
    )
    return recommend(
        "neighbours m_e", lambda m_e: at(rounds, participants, int(m_e)), range(1, participants), (*notes, backwards)
    )


def _check(gap: float, zeta: float, L: float, C: float, sigma2: float, reading: str) -> None:
    nonnegative(gap=gap, zeta=zeta, sigma2=sigma2)
    positive(L=L, C=C)
    one_of("reading", reading, READINGS)


def _sum(
    T: int,
    gap: float,
    drift: float,
    sampling: float,
    privacy: float,
    outer: float,
    inner: float,
    L: float,
    reading: str,
) -> Bound:
    """2gap/(T·outer) + (drift + sampling)/inner + privacy/outer; nan where a denominator is 0."""
    if outer == 0 or inner == 0:
        return Bound(math.nan, ("A denominator of Theorem 9 is 0 (needs L < 2).",))
    value = 2 * gap / (T * outer) + (drift + sampling) / inner + privacy / outer
    return Bound(
        value,
        remarks(
            (outer < 0 or inner < 0, f"A denominator is negative ({min(outer, inner):.4g}): not a bound."),
            (L >= 2, f"L = {L:g} is not below 2."),
            (
                reading != "rederived" and L < 1,
                f"L = {L:g} < 1, where the proof bounds a negative multiple from the wrong side.",
            ),
            (drift < 0, "The term −ζ²/D lowers the bound as the data grow more different; (A.65) gives it a plus."),
            (value < 0, "The value is negative, impossible for a squared norm."),
        ),
    )


_System = Callable[[int, int, int | None], Bound]


def _system(
    epsilon: float,
    delta: float,
    clip: float,
    samples: int,
    clients: int,
    eigenvalue: float | None,
    dimension: int,
    smoothness: float,
    divergence: float,
    initial_gap: float,
) -> tuple[_System, tuple[str, ...]]:
    """The bound with Theorem 8's noise as a function of (T, m_tcs, m_e or None), and the sentence on the constants."""
    count(dimension=dimension)
    gap, zeta, L, C, n = initial_gap, divergence, smoothness, clip, samples

    def at(T: int, m_tcs: int, m_e: int | None) -> Bound:
        noise = noise_variance(T=T, epsilon=epsilon, delta=delta, m=clients, r_tcs=m_tcs / clients, m_e=m_e)
        sigma2 = dimension * noise.value
        if m_e is None:
            bound = leader_convergence(
                T=T, gap=gap, zeta=zeta, L=L, m=clients, m_tcs=m_tcs, C=C, sigma2=sigma2, n=n, reading="rederived"
            )
        else:
            rho_2 = second_eigenvalue(m_e=m_e).value if eigenvalue is None else eigenvalue
            bound = gossip_convergence(
                T=T,
                gap=gap,
                zeta=zeta,
                L=L,
                rho_2=rho_2,
                m_tcs=m_tcs,
                m_e=m_e,
                C=C,
                sigma2=sigma2,
                n=n,
                reading="rederived",
            )
        return Bound(bound.value, merged(bound.remarks, noise.remarks))

    return at, (assumed(smoothness=smoothness, divergence=divergence, initial_gap=initial_gap),)
