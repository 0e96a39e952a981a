"""Tuning iteration times: convergence of DP-FedAvg and the best number of local steps (ITER: Fu et al., Theorems 3-5,
Corollaries 1.1, 2.1, 5.1).

Letters as in the paper: E local iterations a round, T_g rounds, T = E·T_g iterations, each client in T_l = bT_g/N
rounds; Y the expected squared distance to the optimum (parameter units squared).

Not here: Theorem 4, for noise variances of a power z < 1 of T_g, which neither mechanism has; E = 1 beats its optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ...defenses import ranges
from ..proof.theorems.gaussian import gaussian_multiplier
from .formula import FormulaValue, Recommendation, assumed, holding, merged, scan

POWER_OF_ROUNDS = {"laplace": 2.0, "gaussian": 1.0}
"""z of Definition 2, the power of T_g in the noise variance, by mechanism."""


@dataclass(frozen=True, kw_only=True)
class IterationConstants:
    """The numbers of Theorem 3. The paper states none of those with a default.

    Args:
        mechanism: "laplace" or "gaussian".
        epsilon: the target over all of a client's rounds; inf means no noise.
        clip: ζ, taken for ξ, the bound on a clipped gradient (L1 for Laplace, L2 for Gaussian).
        clients, participants: N, and b of them a round (round robin).
        dimension: p, the parameters of the model.
        delta, c2: of Theorem 2 (Gaussian only); c2 is never stated in the paper.
        smoothness, convexity: λ and μ, of strong convexity.
        gradient_norm: G, a bound on the gradient's norm.
        noniid: Γ, the degree of non-IID.
        initial_distance: Y_0 = ‖θ_0 − θ*‖², parameter units squared.

    Raises: ValueError for an impossible value.
    """

    mechanism: Literal["laplace", "gaussian"]
    epsilon: float
    clip: float
    clients: int
    participants: int
    dimension: int
    delta: float | None = None
    c2: float = math.sqrt(2)
    smoothness: float = 1.0
    convexity: float = 0.1
    gradient_norm: float = 1.0
    noniid: float = 0.1
    initial_distance: float = 1.0

    def __post_init__(self) -> None:
        ranges.require_one_of("mechanism", self.mechanism, tuple(POWER_OF_ROUNDS))
        ranges.require_above_zero(
            epsilon=self.epsilon, c2=self.c2, smoothness=self.smoothness, convexity=self.convexity
        )
        ranges.require_nonnegative(
            clip=self.clip, gradient_norm=self.gradient_norm, initial_distance=self.initial_distance
        )
        ranges.require_count(clients=self.clients, participants=self.participants, dimension=self.dimension)
        ranges.require_at_most("participants", self.participants, "clients", self.clients)
        if self.delta is not None:
            ranges.require_probability(delta=self.delta)
        elif self.mechanism == "gaussian":
            raise ValueError("delta must be given for the Gaussian mechanism, got None.")

    @property
    def z(self) -> float:
        """z of Definition 2, the power of T_g in the noise variance."""
        return POWER_OF_ROUNDS[self.mechanism]

    def noise_variance(
        self, T_g: float, Xi: float, shares: float | None = None, reading: Literal["printed", "corrected"] = "printed"
    ) -> FormulaValue:
        """E‖w_t^b‖², the variance of the noise on the aggregate (Corollaries 1.1 and 2.1), parameter units squared.

        Laplace 2pbΞ²T_g²n̄²/(n²ε²), Gaussian 2pc2²N ln(1/δ)Ξ²T_gn̄²/(n²ε²), n = Σ n_l, n̄² the mean of n_l². The proof
        of the Gaussian one gives each component the variance 2σ² of a Laplace draw of scale σ: it is twice too big
        (reading "corrected" drops the 2).

        Xi: Ξ = η̃Eξ of Theorems 1 and 2. shares: n̄²/n², by default 1/N² of clients of equal size.
        """
        weight = self.dimension * (1 / self.clients**2 if shares is None else shares) * (Xi / self.epsilon) ** 2
        if self.delta is None or self.mechanism == "laplace":
            return FormulaValue(2 * weight * self.participants * T_g**2)
        twice = 1
        if reading == "printed":
            twice = 2
        wrong = "Corollary 2.1 takes 2σ² for the variance of a Gaussian draw of std σ: twice too big."
        value = twice * weight * self.c2**2 * self.clients * math.log(1 / self.delta) * T_g
        return FormulaValue(value, holding((reading == "printed", wrong)))

    def noise_weight(self, reading: Literal["printed", "corrected"] = "printed") -> FormulaValue:
        """C_M of Theorem 3 for clients of equal size: 8pbξ²/(N²ε²) (Laplace), 8pc2² ln(1/δ)ξ²/(Nε²) (Gaussian; 4
        instead of 8 if "corrected").

        The variance of Corollary 1.1 or 2.1 is at most η_k²·C_M·E²·T_g^z, for Ξ ≤ 2η_kEξ.
        """
        return self.noise_variance(1.0, 2 * self.clip, reading=reading)

    def noise_free_weight(self, E: float) -> FormulaValue:
        """ω0 = 6λΓ + 8(E−1)²G² + 4E²G²(N−b)/((N−1)b) of Theorem 3: non-IID data, local drift, client sampling."""
        N, b, G = self.clients, self.participants, self.gradient_norm
        sampling = 0.0 if b == N else 4 * (E * G) ** 2 * (N - b) / ((N - 1) * b)
        return FormulaValue(
            6 * self.smoothness * self.noniid + 8 * ((E - 1) * G) ** 2 + sampling,
            holding(
                (self.noniid < 0, f"The degree of non-IID Γ = {self.noniid:g} is negative, impossible by definition."),
                (b < N, "Lemma 1 averages over uniformly drawn clients, but the scheme takes them round robin."),
            ),
        )

    def convergence(
        self, k: int, E: int, T_g: float, reading: Literal["printed", "corrected"] = "printed"
    ) -> FormulaValue:
        """Theorem 3: Y_k ≤ (4ω0/μ² + γY_0)/(k + γ) + (4/μ²)·t·C_M E²T_g^z/(k + γ − 1)², γ = max(8λ/μ, E), t = ⌊k/E⌋,
        after k iterations.
        """
        lam, mu = self.smoothness, self.convexity
        free, weight = self.noise_free_weight(E), self.noise_weight(reading)
        gamma = max(8 * lam / mu, E)
        value = (4 * free.value / mu**2 + gamma * self.initial_distance) / (k + gamma)
        value += 4 / mu**2 * (k // E) * weight.value * E**2 * T_g**self.z / (k + gamma - 1) ** 2
        return FormulaValue(
            value,
            merged(
                free.remarks,
                self._on_rounds(T_g),
                holding(
                    (lam < mu, f"A smoothness {lam:g} below the strong convexity {mu:g} is impossible."),
                    (k > E * T_g, f"k = {k} iterations are more than the E·T_g = {E * T_g:g} that the noise is for."),
                ),
            ),
        )

    def orders(self) -> tuple[float, float] | None:
        """(4), Y_T ≈ first·E²/T + second·E^(1−z)·T^(z−1), with the constants of Theorem 3 for large E and T: first =
        (4/μ²)G²(8 + 4(N−b)/((N−1)b)), second = (4/μ²)C_M. None where one of them is 0.
        """
        N, b, scale = self.clients, self.participants, 4 / self.convexity**2
        sampling = 0.0 if b == N else 4 * (N - b) / ((N - 1) * b)
        first, second = scale * self.gradient_norm**2 * (8 + sampling), scale * self.noise_weight().value
        if first > 0 and second > 0:
            return first, second
        return None

    def recommend_local_steps(self, *, total_steps: int) -> Recommendation:
        """E* of Theorem 3 at a fixed total of T = `total_steps` iterations.

        Scans the divisors E of T that leave every client at least one round (T/E ≥ N/b), as the paper's Fig. 5-6 do:
        below that the formula's noise is less than one round needs. Remarks give the closed form of (4).
        """
        ranges.require_count(total_steps=total_steps)
        T, N, b = int(total_steps), self.clients, self.participants
        if T * b < N:
            raise ValueError(f"total_steps must be at least clients/participants = {N / b:g}, got {T}.")
        settings = [E for E in range(1, T + 1) if T % E == 0 and T // E * b >= N]
        z = self.z
        flat = "For z = 1 (Gaussian) (4) has no interior minimum: every E up to √T gives O(1), the fewest is best."
        notes = (
            self._assumed(),
            f"Theorem 5 asks for the order T^({z:g}/{z + 1:g}) = {T ** (z / (z + 1)):.4g}.",
            *holding((z == 1, flat)),
        )
        corrected = scan("local steps E", lambda E: self.convergence(T, int(E), T / E, "corrected"), settings)
        halved = holding((self.mechanism == "gaussian", f"With the right variance E* = {corrected.value:g}."))
        return scan(
            "local steps E",
            lambda E: self.convergence(T, int(E), T / E),
            settings,
            merged(notes, self.noise_weight().remarks, halved, self._closed_form(T), self._on_c2()),
        )

    def recommend_rounds(self, *, local_steps: int = 1, max_rounds: int = 500) -> Recommendation:
        """T_g* of Theorem 3 at a fixed E = `local_steps`, by a scan from ⌈N/b⌉ to max_rounds; a remark gives T* of
        Corollary 5.1.
        """
        ranges.require_count(max_rounds=max_rounds, local_steps=local_steps)
        least = -(-self.clients // self.participants)
        if max_rounds < least:
            raise ValueError(f"max_rounds must be at least ⌈clients/participants⌉ = {least}, got {max_rounds}.")
        notes = (
            self._assumed(),
            *holding((self.z <= 1, "For z ≤ 1 the analysis has no best number of rounds (Corollary 5.1 needs z > 1).")),
        )
        return scan(
            "rounds T_g",
            lambda T_g: self.convergence(int(T_g) * local_steps, local_steps, T_g),
            range(least, max_rounds + 1),
            merged(notes, self.noise_weight().remarks, self._best_total(local_steps)),
        )

    def _assumed(self) -> str:
        return assumed(self, "smoothness", "convexity", "gradient_norm", "noniid", "initial_distance")

    def _on_rounds(self, T_g: float) -> tuple[str, ...]:
        own = self.participants * T_g / self.clients
        return holding(
            (own < 1, f"T_l = bT_g/N = {own:.4g} < 1: the noise is then less than a single round of a client needs."),
            (
                own > 1 and not math.isclose(own, round(own)),
                f"T_l = bT_g/N = {own:.4g} is not whole: some clients take part in more rounds than their noise pays "
                "for.",
            ),
        )

    def _on_c2(self) -> tuple[str, ...]:
        """Whether Theorem 2's noise gives its (ε, δ) even with ξ = ζ: T_l rounds of it are one Gaussian of multiplier
        c2·√ln(1/δ)/ε.
        """
        if self.delta is None or self.mechanism == "laplace" or math.isinf(self.epsilon):
            return ()
        least = gaussian_multiplier(self.epsilon, self.delta) * self.epsilon / math.sqrt(math.log(1 / self.delta))
        small = f"c2 = {self.c2:.4g} is too small: Theorem 2's noise gives (ε, δ) from {least:.4g} on, even with ξ = ζ."
        return holding((self.c2 < least, small))

    def _closed_form(self, T: int) -> tuple[str, ...]:
        """Theorem 5's optimum at z = 2 (Laplace), and how the bound grows with T there: E* =
        (second/(2·first))^(1/3)·T^(2/3), where the derivative 2·first·E/T − second·E^(−2)·T is 0.
        """
        orders = self.orders()
        if self.z == 1 or orders is None:
            return ()
        first, second = orders
        inside = (second / (2 * first)) ** (1 / 3) * T ** (2 / 3)
        best = min(max(inside, 1.0), float(T))
        value = first * best**2 / T + second * T / best
        return (
            f"(4) with Theorem 3's constants: E* = {best:.4g}, where Y_T ≈ {value:.4g}; it grows as T^0.333.",
            *holding((best != inside, f"The stationary point {inside:.4g} of (4) lies outside [1, T].")),
        )

    def _best_total(self, E: int) -> tuple[str, ...]:
        """Corollary 5.1's optimum at z = 2: T* = √(first·E³/second)."""
        orders = self.orders()
        if self.z == 1 or orders is None:
            return ()
        first, second = orders
        best = math.sqrt(first * E**3 / second)
        less = f"T* = {best:.4g} of (4) is less than one round of E = {E:g} iterations."
        return (
            f"Corollary 5.1 with Theorem 3's constants: T* = {best:.4g} iterations, {best / E:.4g} rounds.",
            *holding((best < E, less)),
        )
