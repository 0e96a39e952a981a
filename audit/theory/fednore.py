"""Fed-nore: the noise beside the gradient and the convergence bounds of Fed-nore-1 (THESIS: Weng 2025, (3.23), Lemma 6,
Theorems 4-5).

Loss units throughout, except for Theorem 5 (squared gradient norm). Three steps of the proof hold at no parameters:
(A.22) takes ∇S_i = (W^t − W_i)/S_i, though S_i is a median of *past* norms, whose gradient is 0 (and a current norm's
has the other sign); (A.30) turns a triangle inequality into a minus sign; (A.32) puts the square of E‖N‖ for E‖N‖²
(Jensen: too small).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...defenses.ranges import require_above_zero, require_count, require_nonnegative
from .formula import FormulaValue, Recommendation, assumed, geometric_sum, holding, merged, power, scan


@dataclass(frozen=True, kw_only=True)
class FednoreConstants:
    """The numbers of Theorems 4 and 5. The thesis states none of those with a default.

    Args:
        sigma: σ, the base noise scale.
        samples: n, records of a client.
        clip: C; S = C/n is the client's sensitivity (the median norm over n), parameter units.
        strength: λ, the weight of the added term.
        dimension: d, the parameters of the model; None leaves the noise of d components out of the remarks.
        smoothness, lipschitz, pl: ρ, β and μ, the Polyak-Lojasiewicz (PL) constant.
        initial_gap: F(W^0) − F(W*), loss units (ln 10: ten classes, a uniform guess).

    Raises: ValueError for an impossible value.
    """

    sigma: float
    samples: int
    clip: float
    strength: float = 1.0
    dimension: int | None = None
    smoothness: float = 1.0
    pl: float = 0.1
    lipschitz: float = 1.0
    initial_gap: float = math.log(10)

    def __post_init__(self) -> None:
        require_above_zero(clip=self.clip, smoothness=self.smoothness, pl=self.pl)
        require_count(samples=self.samples, dimension=self.dimension)
        require_nonnegative(sigma=self.sigma, strength=self.strength)
        require_nonnegative(lipschitz=self.lipschitz, initial_gap=self.initial_gap)

    def noise_to_gradient(self) -> FormulaValue:
        """‖noise‖/‖gradient‖ = σ/√n, (3.23) and (A.12). A remark says what d draws of std σ‖∇W‖/n give: √d·σ/n."""
        sigma, n, d = self.sigma, self.samples, self.dimension
        return FormulaValue(
            sigma / math.sqrt(n),
            holding(
                (
                    d is not None and d != n,
                    (
                        f"√n of (3.23) stands for the square root of the number of parameters: with d = {d} the ratio "
                        f"is {math.sqrt(d or 0) * sigma / n:.4g}."
                    ),
                )
            ),
        )

    def pull(self) -> FormulaValue:
        """l1 = 1/(1 + λσ√n/S) of Lemma 6, (3.25): the share of a gradient step left by the added term; 1 without it."""
        shift = self.strength * self.sigma
        return FormulaValue(
            1 / (1 + shift * math.sqrt(self.samples) / (self.clip / self.samples)),
            holding(
                (
                    shift > 0,
                    "With S a median of past norms, (3.9), ∇S = 0 and l1 = 1: Fed-nore-1 is then the plain scheme.",
                )
            ),
        )

    def noise_norm(self) -> FormulaValue:
        """q1 = (σ/√n)(λσn^(3/2) − β), (3.28): the thesis's bound on E‖N‖ (parameter units)."""
        sigma, n = self.sigma, self.samples
        value = sigma / math.sqrt(n) * (self.strength * sigma * n**1.5 - self.lipschitz)
        return FormulaValue(
            value,
            holding(
                (value < 0, f"q1 = {value:.4g} is negative, impossible for a norm (the −β of (A.30) should be +β)."),
                (value == 0 < sigma, "q1 = 0 although there is noise: the −β of (A.30) cancels it."),
            ),
        )

    def floor(self) -> float:
        """βq1(1 − l1ρ) + ρq1²/2, what a round's noise adds to the loss in Theorems 4 and 5 ((3.24) of Lemma 6)."""
        l1, q1, rho = self.pull().value, self.noise_norm().value, self.smoothness
        return self.lipschitz * q1 * (1 - l1 * rho) + rho / 2 * q1**2

    def convergence(self, T: int) -> FormulaValue:
        """Theorem 4, (3.26): the gap F − F* ≤ l3^T·gap + floor·(1 − l3^T)/(1 − l3), l3 = μρl1² − 2l1μ + 1."""
        l1, rho, mu = self.pull(), self.smoothness, self.pl
        l3 = mu * rho * l1.value**2 - 2 * l1.value * mu + 1
        value = power(l3, T) * self.initial_gap + self.floor() * geometric_sum(l3, T)
        return FormulaValue(
            value,
            merged(
                l1.remarks,
                self.noise_norm().remarks,
                holding(
                    (mu > rho, f"A PL constant {mu:g} above the smoothness {rho:g} is impossible."),
                    (not 0 <= l3 < 1, f"l3 = {l3:.4g} lies outside [0, 1): the gap does not shrink (needs l1ρ < 2)."),
                    self._wrong_side(l1.value, "(A.32)"),
                    (value < 0, "The value is negative, impossible for F − F*."),
                ),
            ),
        )

    def gradient_convergence(self, T: int) -> FormulaValue:
        """Theorem 5, (3.29), non-convex: E‖∇F‖² ≤ gap/(DT) + floor/D, D = l1 − ρl1²/2; nan for D = 0."""
        l1, rho = self.pull(), self.smoothness
        D = l1.value - rho * l1.value**2 / 2
        value = math.nan if D == 0 else (self.initial_gap / T + self.floor()) / D
        return FormulaValue(
            value,
            merged(
                l1.remarks,
                self.noise_norm().remarks,
                holding(
                    (D <= 0, f"l1 − ρl1²/2 = {D:.4g} is not positive (needs l1ρ < 2): dividing by it gives no bound."),
                    self._wrong_side(l1.value, "(A.36)"),
                    (value < 0, "Theorem 5's value is negative, impossible for a squared norm."),
                ),
            ),
        )

    def recommend_rounds(self, *, max_rounds: int = 200) -> Recommendation:
        """T* of Theorem 4 by a scan; remarks give Theorem 5's bound there and the noise beside the gradient, (3.23).

        At a fixed σ the bound moves steadily from the initial gap to its limit, so T* is an end of the range; the
        budget decides instead. The bound's λ* = β/(σn^(3/2)) is where q1 = 0, an artefact of the sign in (A.30), and is
        not recommended.
        """
        require_count(max_rounds=max_rounds)
        notes = (
            assumed(self, "smoothness", "pl", "lipschitz", "initial_gap"),
            "Theorem 4 has no interior optimum in T at a fixed σ: it moves steadily towards its limit.",
        )
        best = scan("rounds T", lambda T: self.convergence(int(T)), range(1, max_rounds + 1), notes)
        empty = holding(
            (
                min(value for _, value in best.curve) > self.initial_gap,
                "The bound exceeds the initial gap at every T: it says nothing.",
            )
        )
        ratio, other = self.noise_to_gradient(), self.gradient_convergence(int(best.value))
        beside = (
            f"The noise is {ratio.value:.4g} times as long as the gradient, (3.23).",
            *ratio.remarks,
            f"Without the PL inequality, Theorem 5: the mean ‖∇F‖² up to there is at most {other.value:.4g}.",
            *other.remarks,
        )
        return replace(best, remarks=merged(best.remarks, empty, beside))

    def _wrong_side(self, l1: float, step: str) -> tuple[bool, str]:
        excess = l1 * self.smoothness
        return excess > 1, f"l1ρ = {excess:.4g} > 1: {step} then bounds a negative term from the wrong side."
