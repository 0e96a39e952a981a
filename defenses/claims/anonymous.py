"""The noise of anonymous decentralised FL (Weng 2025, THESIS Theorem 8, eq. 5.5, Appendix K, Lemma 3)."""

from __future__ import annotations

from math import log, sqrt


def anonymous_variance(
    epsilon: float, delta: float, rounds: float, rate: float, clients: int, neighbours: int = 1
) -> float:
    """σ² = 7s₁T(ε + 2 ln(1/δ))/(m²ε²) (eq. 5.5, A.59), s₁ = r_tcs²·m_e; the noise's std is 2Cσ/n (eq. 5.3-5.4).

    Args:
        epsilon, delta: the claim over all rounds. rounds: T. rate: r_tcs, the share of clients that train in a round.
        clients: m, all of them (Appendix K).
        neighbours: m_e, to how many a client sends in gossip; 1 for the elected leader.

    Raises:
        ValueError: from ε = 2 ln(1/δ) on (A.60).

    >>> round(anonymous_variance(8, 1e-5, 50, 0.7, 100), 5), round(anonymous_variance(8, 1e-5, 50, 0.7, 100, 30), 5)
    (0.00831, 0.24942)
    """
    if epsilon >= 2 * log(1 / delta):
        raise ValueError(f"epsilon is {epsilon:g}; Theorem 8 needs it below 2 ln(1/delta) = {2 * log(1 / delta):.4g}")
    return 7 * rate**2 * neighbours * rounds * (epsilon + 2 * log(1 / delta)) / (clients * epsilon) ** 2


def anonymous_claimed_epsilon(
    variance: float, delta: float, rounds: float, rate: float, clients: int, neighbours: int = 1
) -> float:
    """The ε that Theorem 8 gives σ² for: the positive root of σ²m²ε² − aε − 2a ln(1/δ) = 0, a = 7s₁T.

    Args:
        variance: σ². delta, rounds, rate, clients, neighbours: as for `anonymous_variance`.

    >>> round(anonymous_claimed_epsilon(anonymous_variance(8, 1e-5, 50, 0.7, 100, 30), 1e-5, 50, 0.7, 100, 30), 9)
    8.0
    """
    a, square = 7 * rate**2 * neighbours * rounds, variance * clients**2
    return (a + sqrt(a * a + 8 * a * square * log(1 / delta))) / (2 * square)


def anonymous_lemma3_failures(variance: float, epsilon: float, delta: float, rate: float) -> tuple[str, ...]:
    """The conditions of Lemma 3, on which Theorem 8 rests, that do not hold, in words; empty if all do.

    σ² ≥ .7, and α ≤ (2/3)σ² ln(1/(rα(1 + σ²))) + 1 (its Δ²R is 1 here) at Theorem 8's α = 1 + 2 ln(1/δ)/ε.

    >>> len(anonymous_lemma3_failures(anonymous_variance(8, 1e-5, 50, 0.7, 100), 8, 1e-5, 0.7))
    2
    """
    alpha = 1 + 2 * log(1 / delta) / epsilon
    most = 2 / 3 * variance * log(1 / (rate * alpha * (1 + variance))) + 1
    failures = []
    if variance < 0.7:
        failures.append(f"Lemma 3 needs σ² of at least 0.7, and it is {variance:.4g}.")
    if alpha > most:
        failures.append(f"Lemma 3 needs α of at most {most:.4g}, and Theorem 8 takes {alpha:.4g}.")
    return tuple(failures)
