"""Amplitude-varying perturbation: convergence bound, optimal rounds and schedule (GEO: Yuan et al., Theorem 3,
Corollaries 1-2, (10)-(14)).

Every bound is in units of the loss. Beyond the arguments, three things hold nowhere: the proof counts ‖noise‖² as σ²,
which is one parameter of one client (d parameters averaged over K equal clients have dσ²/K); it counts one gradient
step a round although there are τ; and (39) starts the noise at ϑ where (6) starts it at 1 (the sum (41b) is right for
(6)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ...defenses import ranges
from ..proof.theorems.gaussian import gaussian_delta
from .formula import FormulaValue, Recommendation, assumed, geometric_sum, holding, merged, mixed_sum, power, scan


@dataclass(frozen=True, kw_only=True)
class GeometricConstants:
    """The numbers of Theorem 3. The paper states none of those with a default.

    Args:
        epsilon, delta: the (ε, δ) that Theorem 1's noise is for; ε = inf means no noise.
        clip: C, the bound on the weights, parameter units.
        samples: n, records of a client.
        clients, participants: U, and K of them a round; q = K/U.
        vartheta: ϑ > 0, the ratio of the noise variances of successive rounds.
        learning_rate: η.
        dimension: d, the parameters of the model; None leaves out the remark on the noise really added.
        smoothness, lipschitz, pl: L, L_c (of the loss) and ρ, the Polyak-Lojasiewicz (PL) constant.
        dissimilarity, divergence: B, of the clients' gradients, and γ, how far they stray from the mean gradient.
        initial_gap: Θ = F(ω(0)) − F(ω*), loss units (ln 10: ten classes, a uniform guess).

    Raises: ValueError for an impossible value.
    """

    epsilon: float
    delta: float
    clip: float
    samples: int
    clients: int
    participants: int
    vartheta: float = 1.0
    learning_rate: float = 0.1
    dimension: int | None = None
    smoothness: float = 1.0
    pl: float = 0.1
    dissimilarity: float = 1.0
    lipschitz: float = 1.0
    divergence: float = 0.1
    initial_gap: float = math.log(10)

    def __post_init__(self) -> None:
        ranges.require_above_zero(epsilon=self.epsilon, clip=self.clip, vartheta=self.vartheta)
        ranges.require_above_zero(learning_rate=self.learning_rate, smoothness=self.smoothness, pl=self.pl)
        ranges.require_probability(delta=self.delta)
        ranges.require_count(samples=self.samples, clients=self.clients, participants=self.participants)
        ranges.require_count(dimension=self.dimension)
        ranges.require_at_most("participants", self.participants, "clients", self.clients)
        ranges.require_nonnegative(dissimilarity=self.dissimilarity, lipschitz=self.lipschitz)
        ranges.require_nonnegative(divergence=self.divergence, initial_gap=self.initial_gap)

    @property
    def sensitivity(self) -> float:
        """Δs = 2C/n of Theorem 1, parameter units."""
        return 2 * self.clip / self.samples

    def contraction(self) -> FormulaValue:
        """A = 1 + 2ρφ of Theorem 3, the factor by which a round shrinks the gap without noise.

        φ = (η²L/2)·((U−K)B²/(K(U−1)) + x) − η with x = (K−1)/(UK(U−1)), (36). A remark gives A for x =
        U(K−1)/(K(U−1)), which the mean over all K-subsets of ‖mean gradient‖² has, since ‖Σ_k ∇f_k‖² = U²‖∇F‖²: at K =
        U the bracket is then 1, as full-batch descent needs; the printed one is 1/U².
        """
        eta, L, rho, B, U, K = (
            self.learning_rate,
            self.smoothness,
            self.pl,
            self.dissimilarity,
            self.clients,
            self.participants,
        )
        brackets = (1.0, 1.0)
        if U > 1:
            drawn = (U - K) * B**2 / (K * (U - 1))
            brackets = drawn + (K - 1) / (U * K * (U - 1)), drawn + U * (K - 1) / (K * (U - 1))
        value, fixed = (1 + 2 * rho * (eta**2 * L / 2 * bracket - eta) for bracket in brackets)
        return FormulaValue(
            value,
            holding(
                (eta > 1 / L, f"The learning rate {eta:g} exceeds 1/L = {1 / L:g} (Assumption 1.3)."),
                (rho > L, f"A PL constant {rho:g} above the smoothness {L:g} is impossible."),
                (B < 1, f"The dissimilarity B = {B:g} is below 1, impossible by Jensen's inequality."),
                (not 0 < value < 1, f"A = {value:.6g} lies outside (0, 1): the gap does not shrink steadily."),
                (
                    abs(value - fixed) > 1e-12,
                    f"(36) lacks a factor U² in its second term: with it A = {fixed:.6g} instead of {value:.6g}.",
                ),
            ),
        )

    def local_drift(self, tau: float) -> FormulaValue:
        """H(τ) = (γ/L)((ηL + 1)^τ − 1) − ηγτ of Lemma 1: how far τ local steps stray from central descent.

        In parameter units. τ may be fractional (the paper sets τ = T/M).
        """
        eta, L, gamma = self.learning_rate, self.smoothness, self.divergence
        # expm1 keeps the value exact where the two terms cancel; the residue at τ = 1 is rounding, not drift.
        if tau == 1:
            growth = 0.0
        else:
            growth = math.expm1(tau * math.log1p(eta * L)) / L - eta * tau
        value = gamma * growth
        return FormulaValue(
            value,
            holding(
                (eta > 1 / L, f"The learning rate {eta:g} exceeds 1/L = {1 / L:g} (Assumption 1.3)."),
                (value < 0, "H is negative between 0 and 1 step, where Lemma 1 says nothing."),
            ),
        )

    def convergence(self, m: int, reading: Literal["corrected", "printed"] = "corrected") -> FormulaValue:
        """Theorem 3, (11): the gap F − F* after m rounds, with the noise that Theorem 1 asks for m rounds.

        A^m Θ + qLΔs² ln(1/δ)(ϑ^m − A^m)(ϑ − ϑ^(1−m)) / (ε²(ϑ − A)·D), D = ϑ − 1 (reading "corrected", what (8) put into
        (41b) gives) or D = U − 1 (reading "printed", (11)-(14)). The corrected form has its limits at ϑ = 1 and ϑ = A.
        """
        printed, vartheta, A = reading == "printed", self.vartheta, self.contraction().value
        spread = mixed_sum(A, vartheta, m) * geometric_sum(1 / vartheta, m)
        if printed:
            spread *= (vartheta - 1) / (self.clients - 1)
        logarithm = math.log(1 / self.delta)
        rate = self.participants / self.clients
        scale = rate * self.smoothness * self.sensitivity**2 * logarithm / self.epsilon**2
        noise = 0.0 if scale == 0 else scale * spread
        actual = gaussian_delta(multiplier=math.sqrt(2 * logarithm) / self.epsilon, epsilon=self.epsilon)
        return FormulaValue(
            power(A, m) * self.initial_gap + noise,
            holding(
                (not 0 < A < 1, f"A = {A:.6g} lies outside (0, 1): the first term does not shrink steadily."),
                (
                    printed and vartheta == 1 and scale > 0,
                    "The noise term is 0 at ϑ = 1 because of the printed (U − 1): with (ϑ − 1) it is not.",
                ),
                (
                    printed and vartheta < 1 and scale > 0,
                    "The noise term is negative for ϑ < 1 because of the printed (U − 1): not an upper bound.",
                ),
                (
                    actual > self.delta and scale > 0,
                    (
                        f"Theorem 1's noise misses its own target: at ε = {self.epsilon:g} it gives δ = {actual:.3g}, "
                        f"not {self.delta:g} (its proof drops a term in ε)."
                    ),
                ),
            ),
        )

    def final_convergence(
        self, M: int, tau: float, reading: Literal["corrected", "printed"] = "corrected"
    ) -> FormulaValue:
        """Corollary 1, (12): `convergence` after M rounds plus L_c·H(τ)."""
        central, drift = self.convergence(M, reading), self.local_drift(tau)
        return FormulaValue(central.value + self.lipschitz * drift.value, merged(central.remarks, drift.remarks))

    def steps_for_convexity(self) -> FormulaValue:
        """The least τ that Corollary 2 asks for: ln(η/ln(ηL+1))/ln(ηL+1).

        It lost an L (and is not free of units): H'(τ) = 0 at ln(ηL/ln(ηL+1))/ln(ηL+1), between 1/2 and 1, so that every
        τ ≥ 1 satisfies it and the condition is no condition.
        """
        eta, L = self.learning_rate, self.smoothness
        step = math.log1p(eta * L)
        value = math.log(eta / step) / step
        return FormulaValue(
            value,
            holding(
                (value < 0, "Corollary 2's printed least τ is negative: it excludes no τ."),
                (
                    value > 1,
                    (
                        f"Corollary 2's printed least τ = {value:.4g} exceeds 1; with its lost L it is "
                        f"{math.log(eta * L / step) / step:.4g}, no condition."
                    ),
                ),
            ),
        )

    def optimal_rounds(
        self, max_rounds: int, total_steps: float | None = None, reading: Literal["corrected", "printed"] = "corrected"
    ) -> Recommendation:
        """M* by a scan of M = 1 … max_rounds: of (13), or with T = `total_steps` of (14), which adds L_c·H(T/M).

        The paper bisects the derivative (14), trusting Corollary 2's convexity; (13) itself omits the drift that (14)
        has.
        """
        ranges.require_count(max_rounds=max_rounds)
        if total_steps is not None:
            ranges.require_above_zero(total_steps=total_steps)

        def at(M: float) -> FormulaValue:
            if total_steps is None:
                return self.convergence(int(M), reading)
            return self.final_convergence(int(M), total_steps / M, reading)

        # at least one local step a round
        if total_steps is None:
            last = max_rounds
        else:
            last = min(max_rounds, max(int(total_steps), 1))
        best = scan("rounds M", at, range(1, last + 1))
        values = [value for _, value in best.curve]
        bends = [i + 2 for i in range(len(values) - 2) if values[i] - 2 * values[i + 1] + values[i + 2] < 0]
        A = self.contraction().value
        notes = holding(
            (self.vartheta < A, f"ϑ = {self.vartheta:g} is below A = {A:.6g} (Corollary 2)."),
            (
                bool(bends) and self.vartheta >= A,
                (
                    f"The bound is not convex (first at M = {bends[0] if bends else 0}) although ϑ ≥ A: Corollary 2 is "
                    "not sufficient, hence the scan."
                ),
            ),
        )
        return replace(best, remarks=merged(best.remarks, notes))

    def recommend_rounds(self, *, total_steps: float | None = None, max_rounds: int = 200) -> Recommendation:
        """M* of Section IV-C. With `total_steps` = T, τ = T/M shrinks as M grows, (14); else (13).

        Remarks give M* by the printed divisor U − 1 and, with `dimension` d, for the noise really added, dσ²/K instead
        of σ².
        """
        best, factor = self.optimal_rounds(max_rounds, total_steps), self.contraction()
        K, d = self.participants, self.dimension
        if d is None:
            real = ""
        else:
            real = f"{self._with_noise_of(d / K).optimal_rounds(max_rounds, total_steps).value:g}"
        notes = (
            assumed(self, "smoothness", "pl", "dissimilarity", "lipschitz", "divergence", "initial_gap"),
            "Δs = 2C/n holds for one step of per-example clipping, not for a clipped model: there one record can move "
            "2C.",
            *holding(
                (
                    bool(real),
                    (
                        f"The analysis counts the noise of one parameter of one client; with d = {d} parameters "
                        f"averaged over K = {K} clients M* = {real}."
                    ),
                )
            ),
        )
        return replace(
            best, remarks=merged(notes, factor.remarks, best.remarks, self._as_printed(max_rounds, total_steps))
        )

    def recommend_schedule(self, *, rounds: int) -> Recommendation:
        """The noise schedule ϑ with the smallest noise term in (12), at a fixed number of rounds.

        The curve is that term over its value at ϑ = 1. It is (Σ_i A^(M−i) v_i)(Σ_i 1/v_i) with v_i = ϑ^(i−1), so by the
        Cauchy-Schwarz inequality the best of *all* variance sequences is v_i ∝ A^(i/2): ϑ* = √A, whatever ε, M and Θ.
        (Our derivation; the paper tunes ϑ by experiment.) The curve is a grid around it. The analysis therefore always
        asks for decreasing noise, while the paper's MLP and SVM did best with ϑ > 1.
        """
        ranges.require_count(rounds=rounds)
        factor = self.contraction()
        notes = (assumed(self, "smoothness", "pl", "dissimilarity"),)
        A = factor.value
        if A <= 0:
            return Recommendation("noise schedule ϑ", math.nan, (), merged(notes, factor.remarks))
        flat = mixed_sum(A, 1.0, rounds) * rounds

        def noise(vartheta: float) -> float:
            return mixed_sum(A, vartheta, rounds) * geometric_sum(1 / vartheta, rounds) / flat

        best = math.sqrt(A)
        grid = sorted({best, 1.0, *(round(0.8 + 0.01 * i, 2) for i in range(41))})
        curve = tuple((vartheta, noise(vartheta)) for vartheta in grid)
        saving = f"The noise term shrinks to {noise(best):.4g} of its value at ϑ = 1."
        single = holding((rounds == 1, "With one round every ϑ is the same."))
        return Recommendation("noise schedule ϑ", best, curve, merged(notes, factor.remarks, (saving,), single))

    def _with_noise_of(self, variance: float) -> GeometricConstants:
        """These constants with the noise variance times `variance`."""
        return replace(self, clip=self.clip * math.sqrt(variance))

    def _as_printed(self, max_rounds: int, total_steps: float | None) -> tuple[str, ...]:
        """What the printed (14) and Corollary 2 say instead."""
        if self.clients == 1:
            return ()
        printed, threshold = self.optimal_rounds(max_rounds, total_steps, "printed"), self.steps_for_convexity()
        wrong = [remark for remark in printed.remarks if "printed (U − 1)" in remark]
        return (f"As printed, with U − 1 for ϑ − 1, M* = {printed.value:g}.", *wrong, *threshold.remarks)
