"""Anonymous decentralised DP-FL: noise needed and convergence (THESIS: Weng 2025, Theorems 8-9, (5.4)-(5.10),
Appendices K-L).

Letters as in the thesis: m all clients, m_tcs of them training a round (r_tcs = m_tcs/m), m_e receivers of a gossip
message. Convergence bounds are in units of the squared gradient norm. The noise terms count one parameter: d parameters
have d times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ...defenses import ranges
from .formula import FormulaValue, Recommendation, assumed, holding, merged, scan

Theorem9Reading = Literal["appendix", "text", "rederived"]


@dataclass(frozen=True, kw_only=True)
class DecentralisedConstants:
    """The numbers of Theorems 8 and 9. The thesis states none of those with a default.

    Args:
        epsilon, delta: the (ε, δ) of the noise.
        clip: C, update units.
        samples: n, records of a client.
        clients, participants: m, and m_tcs of them training a round.
        neighbours: m_e, receivers of a gossip message; None: a leader averages.
        eigenvalue: ρ2 in [0, 1], the second largest eigenvalue of the communication graph; None: `second_eigenvalue`.
        dimension: d, the parameters of the model.
        smoothness: L. divergence: ζ, the bound on the local divergence.
        initial_gap: F(W^0) − F(W*), loss units (ln 10: ten classes, a uniform guess).

    Raises: ValueError for an impossible value.
    """

    epsilon: float
    delta: float
    clip: float
    samples: int
    clients: int
    participants: int
    neighbours: int | None = None
    eigenvalue: float | None = None
    dimension: int = 1
    smoothness: float = 1.5
    divergence: float = 1.0
    initial_gap: float = math.log(10)

    def __post_init__(self) -> None:
        ranges.require_above_zero(epsilon=self.epsilon, clip=self.clip, smoothness=self.smoothness)
        ranges.require_probability(delta=self.delta)
        ranges.require_count(samples=self.samples, clients=self.clients, participants=self.participants)
        ranges.require_count(neighbours=self.neighbours, dimension=self.dimension)
        ranges.require_at_most("participants", self.participants, "clients", self.clients)
        ranges.require_nonnegative(divergence=self.divergence, initial_gap=self.initial_gap)
        if self.eigenvalue is not None and not 0 <= self.eigenvalue <= 1:
            raise ValueError(
                f"eigenvalue must lie in [0, 1], the second of an averaging matrix, got {self.eigenvalue}."
            )

    def noise_variance(self, T: int, r_tcs: float, m_e: int | None = None) -> FormulaValue:
        """Theorem 8, (5.5): σ² = 7s₁T(ε + 2 ln(1/δ))/(m²ε²), s₁ = r_tcs² (leader, m_e None) or r_tcs²m_e (gossip).

        m is the number of *all* clients (Appendix K).

        >>> thesis = DecentralisedConstants(epsilon=8, delta=1e-5, clip=1, samples=600, clients=100, participants=70)
        >>> round(thesis.noise_variance(50, 0.7).value, 5), round(thesis.noise_variance(50, 0.7, m_e=30).value, 5)
        (0.00831, 0.24942)
        """
        epsilon, m, logarithm = self.epsilon, self.clients, math.log(1 / self.delta)
        s_1 = r_tcs**2 * (m_e or 1)
        value = 7 * s_1 * T * (epsilon + 2 * logarithm) / (m * epsilon) ** 2
        alpha = 1 + 2 * logarithm / epsilon
        inside = 1 / (r_tcs * alpha * (1 + value))
        most = 1 + 2 / 3 * value * math.log(inside)
        return FormulaValue(
            value,
            holding(
                (
                    epsilon >= 2 * logarithm,
                    f"ε = {epsilon:g} is not below 2 ln(1/δ) = {2 * logarithm:.4g}: the order α = {alpha:.4g} is "
                    "below 2.",
                ),
                (value < 0.7, f"σ² = {value:.3g} is below the .7 that Lemma 3's 3.5r²α/σ² needs."),
                (alpha > most, f"α = {alpha:.4g} exceeds Lemma 3's limit {most:.4g} (with Δ = 1)."),
                (m > 1, f"The privacy amplification by m = {m}, twice, has no proof."),
            ),
        )

    def local_noise_std(self, sigma: float) -> FormulaValue:
        """The std a client adds, update units: 2Cσ/n, (5.3)-(5.4). A remark gives the 2Cσ/m of the end of Theorem 8."""
        C, n, m = self.clip, self.samples, self.clients
        return FormulaValue(
            2 * C * sigma / n,
            holding(
                (
                    n != m,
                    f"(5.4) divides by n = {n} records, the end of Theorem 8 by m = {m} clients: "
                    f"{2 * C * sigma / m:.4g}.",
                ),
                (
                    n > 1,
                    (
                        "A clipped update turns around with one record: the sensitivity is 2C, the multiplier σ/n = "
                        f"{sigma / n:.3g}."
                    ),
                ),
            ),
        )

    def gossip_convergence(
        self, T: int, m_tcs: int, m_e: int, sigma2: float, reading: Theorem9Reading = "appendix"
    ) -> FormulaValue:
        """Theorem 9, gossip: E‖∇F‖² after T rounds.

        With D = ρ2 + ρ2L − L + 2 the text (5.8) has 2gap/(TD) − ζ²/D + ζ²(L−1)(1−ρ2)(m_tcs−m_e)/(m_eD(m_tcs−1)) +
        4LC²σ²(1−ρ2)/(n²m_eD). "appendix", (A.69): D − 4 in the first and last denominators, L + 1 for L − 1.
        "rederived", from (A.64)-(A.65): D = 1 − (L−1)₊(1−ρ2), +ζ²/D, (L−1)₊ (the middle step (A.66) bounds from above
        what L < 1 would need from below).

        Args:
            T: rounds.
            m_tcs, m_e: clients training and receivers of a message, m_e < m_tcs.
            sigma2: σ² of Theorem 8.
            reading: of the theorem.
        """
        if m_e >= m_tcs:
            raise ValueError(f"m_e must be below m_tcs = {m_tcs}, the clients training, got {m_e}.")
        rho_2 = second_eigenvalue(m_e) if self.eigenvalue is None else self.eigenvalue
        L, zeta = self.smoothness, self.divergence
        sampling = zeta**2 * (1 - rho_2) * (m_tcs - m_e) / (m_e * (m_tcs - 1))
        privacy = 4 * L * self.clip**2 * sigma2 * (1 - rho_2) / (self.samples**2 * m_e)
        if reading == "rederived":
            extra = max(L - 1, 0.0)
            D = 1 - extra * (1 - rho_2)
            return self._sum(T, +(zeta**2) + extra * sampling, privacy, (D, D), reading)
        D = rho_2 + rho_2 * L - L + 2
        if reading == "text":
            return self._sum(T, -(zeta**2) + (L - 1) * sampling, privacy, (D, D), reading)
        return self._sum(T, -(zeta**2) + (L + 1) * sampling, privacy, (D - 4, D), reading)

    def leader_convergence(
        self, T: int, m_tcs: int, sigma2: float, reading: Theorem9Reading = "appendix"
    ) -> FormulaValue:
        """Theorem 9, pseudo-central (leader): E‖∇F‖² after T rounds; sigma2 is σ² of Theorem 8.

        With D = 2 − L the text (5.9) has 2gap/(TD) − ζ²/D + ζ²(L−1)(m−m_tcs)/(m_tcsD(m−1)) + 4LC²σ²/(n²m_tcsD).
        "appendix", (A.74): L + 1 for L − 1. "rederived", from (A.70): D = 1 − (L−1)₊, +ζ²/D, (L−1)₊.
        """
        L, zeta, m = self.smoothness, self.divergence, self.clients
        sampling = 0.0 if m == m_tcs else zeta**2 * (m - m_tcs) / (m_tcs * (m - 1))
        privacy = 4 * L * self.clip**2 * sigma2 / (self.samples**2 * m_tcs)
        if reading == "rederived":
            extra = max(L - 1, 0.0)
            return self._sum(T, +(zeta**2) + extra * sampling, privacy, (1 - extra, 1 - extra), reading)
        factor = L - 1 if reading == "text" else L + 1
        return self._sum(T, -(zeta**2) + factor * sampling, privacy, (2 - L, 2 - L), reading)

    def convergence(self, T: int, m_tcs: int, m_e: int | None, reading: Theorem9Reading = "rederived") -> FormulaValue:
        """Theorem 9 with the noise of Theorem 8 on d parameters; m_e None: leader."""
        noise = self.noise_variance(T, m_tcs / self.clients, m_e)
        sigma2 = self.dimension * noise.value
        if m_e is None:
            bound = self.leader_convergence(T, m_tcs, sigma2, reading)
        else:
            bound = self.gossip_convergence(T, m_tcs, m_e, sigma2, reading)
        return FormulaValue(bound.value, merged(bound.remarks, noise.remarks))

    def recommend_rounds(self, *, max_rounds: int = 500) -> Recommendation:
        """T* of Theorem 9 ("rederived"); remarks give the T* of the other readings and the noise (5.4) has there."""
        ranges.require_count(max_rounds=max_rounds)

        def optimum(reading: Theorem9Reading) -> Recommendation:
            return scan(
                "rounds T",
                lambda T: self.convergence(int(T), self.participants, self.neighbours, reading),
                range(1, max_rounds + 1),
            )

        best, text, appendix = optimum("rederived"), optimum("text"), optimum("appendix")
        others = f"T* of the other readings of Theorem 9: text: {text.value:g}; appendix: {appendix.value:g}."
        noise = () if math.isnan(best.value) else self._on_noise(int(best.value))
        return replace(best, remarks=merged((self._assumed(),), best.remarks, (others,), noise))

    def recommend_participants(self, *, rounds: int) -> Recommendation:
        """m_tcs* of Theorem 9 ("rederived"): more training clients sample better and need more noise."""
        ranges.require_count(rounds=rounds)
        m_e = self.neighbours
        least = 1 if m_e is None else m_e + 1
        ranges.require_at_most("neighbours + 1", least, "clients", self.clients)
        return scan(
            "training clients m_tcs",
            lambda m_tcs: self.convergence(rounds, int(m_tcs), m_e),
            range(least, self.clients + 1),
            (self._assumed(),),
        )

    def _assumed(self) -> str:
        return assumed(self, "smoothness", "divergence", "initial_gap")

    def _on_noise(self, T: int) -> tuple[str, ...]:
        """What a client adds in each of T rounds."""
        variance = self.noise_variance(T, self.participants / self.clients, self.neighbours).value
        noise = self.local_noise_std(math.sqrt(variance))
        return (f"For {T} rounds a client adds noise of std {noise.value:.4g}, (5.4).", *noise.remarks)

    def _sum(
        self, T: int, data: float, privacy: float, denominators: tuple[float, float], reading: Theorem9Reading
    ) -> FormulaValue:
        """2gap/(T·outer) + data/inner + privacy/outer of Theorem 9; nan where a denominator (outer, inner) is 0.

        Args:
            T: rounds.
            data: the terms in ζ².
            privacy: the term in σ².
            denominators: outer, of the first and last term, and inner, of the terms in ζ².
            reading: of the theorem.
        """
        (outer, inner), L = denominators, self.smoothness
        if outer == 0 or inner == 0:
            return FormulaValue(math.nan, ("A denominator of Theorem 9 is 0 (needs L < 2).",))
        value = 2 * self.initial_gap / (T * outer) + data / inner + privacy / outer
        literal = reading != "rederived"
        return FormulaValue(
            value,
            holding(
                (outer < 0 or inner < 0, f"A denominator is negative ({min(outer, inner):.4g}): not a bound."),
                (L >= 2, f"L = {L:g} is not below 2."),
                (literal and L < 1, f"L = {L:g} < 1, where the proof bounds a negative multiple from the wrong side."),
                (
                    literal and self.divergence > 0,
                    "The term −ζ²/D lowers the bound as the data grow more different; (A.65) gives it a plus.",
                ),
                (value < 0, "The value is negative, impossible for a squared norm."),
            ),
        )


def second_eigenvalue(m_e: int) -> float:
    """ρ2 ≈ 2√(m_e − 1)/m_e of a large random m_e-regular graph (Friedman, arXiv:cs/0405020); 1 for m_e ≤ 2.

    Ours: the thesis names no value.
    """
    if m_e <= 2:
        return 1.0
    return 2 * math.sqrt(m_e - 1) / m_e
