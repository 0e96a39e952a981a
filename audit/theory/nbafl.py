"""NbAFL: convergence bounds, optimal rounds and optimal participants (NBA: Wei et al., arXiv:1911.00222,
Theorems 2-3, (10)-(22)).

Bounds are in units of the loss. Three readings of the same theorem, since two of them are wrong in different places:

- "printed": the paper's. λ1 = 1/μ + ρB/μ should be 1 + ρB/μ (Talaei, Izadi, arXiv:2406.05858), and its noise constants
  are half and a quarter of what Δ = 2C/(mN) gives.
- "talaei": their correction, Θ + k2·T + k1·T²/ε + k0·T³/ε². It puts ‖∇F‖ ≤ β into λ2‖∇F‖², which bounds it from above
  only for λ2 ≥ 0; but an optimal T exists only for λ2 < 0, and there the value falls below zero.
- "rederived" (ours): for λ2 < 0 the PL inequality does give λ2‖∇F‖² ≤ 2lλ2(F − F*), so the gap contracts by P;
  independent zero-mean noise adds E F(w + n) − F(w) ≤ (ρ/2)·d·σ_A² and no term in β. For λ2 ≥ 0 it is Talaei and
  Izadi's with that noise term. σ_A is the noise that Theorem 1 and Lemma 5 really leave on the aggregate, d the number
  of parameters (the paper counts one component, times √N).

Of Theorem 3 the printed constants (20)-(22) were at hand from memory alone and could not be checked, so that only the
"rederived" reading has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ...defenses import ranges
from ...defenses.claims import nbafl_round_budgets
from .formula import FormulaValue, Recommendation, assumed, geometric_sum, holding, merged, power, scan

Theorem2Reading = Literal["printed", "talaei", "rederived"]


@dataclass(frozen=True, kw_only=True)
class NbaflConstants:
    """The numbers of Theorems 2 and 3. The paper states none of those with a default.

    Args:
        epsilon, delta: the (ε, δ) of the noise; ε = inf means no noise.
        clip: C, the bound on the weights, parameter units.
        samples: m, records at the smallest client.
        clients, participants: N, and K of them a round (None: all).
        proximal: μ > 0, the proximal constant.
        exposures: L, uploads of a client that may be caught; only the "rederived" reading counts them.
        dimension: d, the parameters of the model; only the "rederived" reading counts them.
        smoothness, lipschitz, pl: ρ, β and l, the Polyak-Lojasiewicz (PL) constant.
        dissimilarity: B, of the clients' gradients.
        initial_gap: Θ = F(w0) − F(w*), loss units (ln 10: ten classes, a uniform guess).

    Raises: ValueError for an impossible value.
    """

    epsilon: float
    delta: float
    clip: float
    samples: int
    clients: int
    participants: int | None = None
    proximal: float = 3.0
    exposures: int = 1
    dimension: int = 1
    smoothness: float = 1.0
    pl: float = 0.1
    dissimilarity: float = 1.0
    lipschitz: float = 1.0
    initial_gap: float = math.log(10)

    def __post_init__(self) -> None:
        ranges.require_above_zero(epsilon=self.epsilon, clip=self.clip, proximal=self.proximal)
        ranges.require_above_zero(smoothness=self.smoothness, pl=self.pl)
        ranges.require_probability(delta=self.delta)
        ranges.require_count(
            samples=self.samples, clients=self.clients, exposures=self.exposures, dimension=self.dimension
        )
        ranges.require_nonnegative(
            dissimilarity=self.dissimilarity, lipschitz=self.lipschitz, initial_gap=self.initial_gap
        )
        ranges.require_count(participants=self.sampled)
        ranges.require_at_most("participants", self.sampled, "clients", self.clients)

    @property
    def sampled(self) -> int:
        """K, the clients of a round."""
        if self.participants is None:
            return self.clients
        return self.participants

    @property
    def noise_constant(self) -> float:
        """c = √(2 ln(1.25/δ)) of the classical Gaussian mechanism (Theorem 1)."""
        return math.sqrt(2 * math.log(1.25 / self.delta))

    @property
    def lambda_0(self) -> float:
        """λ0 = ρ/2 of (10), the weight of E‖n‖²."""
        return self.smoothness / 2

    def lambda_1(self, reading: Theorem2Reading = "printed") -> float:
        """λ1 of (10), the weight of ‖∇F‖·E‖n‖: 1/μ + ρB/μ as printed, 1 + ρB/μ in the other readings."""
        own = 1.0
        if reading == "printed":
            own = 1 / self.proximal
        return own + self.smoothness * self.dissimilarity / self.proximal

    @property
    def lambda_2(self) -> float:
        """λ2 = −1/μ + ρB/μ² + ρB²/(2μ²) of (10), the weight of ‖∇F‖²; negative iff μ > ρB(1 + B/2)."""
        rho, B, mu = self.smoothness, self.dissimilarity, self.proximal
        return (-mu + rho * B + rho * B**2 / 2) / mu**2

    def increment(
        self, gradient: float, noise: float, noise_squared: float, reading: Theorem2Reading = "printed"
    ) -> FormulaValue:
        """(10): E F(w_{t+1}) − F(w_t) ≤ λ2‖∇F‖² + λ1‖∇F‖E‖n‖ + λ0E‖n‖², one round's change of the loss.

        gradient: ‖∇F‖; noise and noise_squared: E‖n‖ and E‖n‖² of the aggregate's noise, parameter units.
        """
        value = self.lambda_2 * gradient**2 + self.lambda_1(reading) * gradient * noise + self.lambda_0 * noise_squared
        impossible = noise_squared < noise**2 * (1 - 1e-12)
        return FormulaValue(
            value,
            merged(
                self._on_lambda_2(), holding((impossible, "E‖n‖² is below (E‖n‖)², impossible by Jensen's inequality."))
            ),
        )

    def contraction(self) -> FormulaValue:
        """P = 1 + 2lλ2 of Theorem 2, the factor by which a round with all clients shrinks the gap without noise."""
        value = 1 + 2 * self.pl * self.lambda_2
        return FormulaValue(value, merged(self._on_lambda_2(), self._on_pl(value)))

    def sampled_contraction(self, K: int) -> FormulaValue:
        """Theorem 3's contraction when K of N clients take part: P + lρB²(N−K)/(K(N−1)μ²), P at K = N. The mean of K
        clients drawn without replacement is unbiased, so smoothness alone bounds what the draw costs.
        """
        rho, B, mu, N, low = self.smoothness, self.dissimilarity, self.proximal, self.clients, self.lambda_2
        if K < N:
            low += rho * B**2 * (N - K) / (2 * K * (N - 1) * mu**2)
        value = 1 + 2 * self.pl * low
        growing = f"Q = {value:.6g} is not below 1: the gap does not shrink, so no number of rounds is best."
        return FormulaValue(value, merged(self._on_dissimilarity(), holding((low >= 0, growing)), self._on_pl(value)))

    def aggregate_noise_std(self, T: int, K: int) -> FormulaValue:
        """σ_A: the std of the noise on the aggregate (per parameter), uploads' and server's together (Theorem 1, Lemma
        5).

        The larger of what the averaged uploads bring, 2cLC/(m√K·ε), and what the downlink asks for, 2cCT/(bmKε), with
        b = −(T/ε)ln(1 − N/K + (N/K)e^(−ε/T)), 1 for K = N. Where b is undefined (ε/T ≥ −ln(1 − K/N)) the server adds
        nothing. Both tests of the paper, T > L√N and T > ε/γ, are this maximum.
        """
        ranges.require_at_most("exposures", self.exposures, "T", T)
        spent, sound = self._round_budgets(T, K)
        uplink = 2 * self.noise_constant * self.exposures * self.clip / (self.samples * math.sqrt(K) * self.epsilon)
        downlink = 2 * self.noise_constant * self.clip / (self.samples * K * spent)
        return FormulaValue(
            max(uplink, downlink),
            merged(
                self._on_release(self.exposures),
                holding(
                    (
                        self.clients > K and downlink > uplink and spent > sound,
                        (
                            "Lemma 5 inverts the weaker direction of amplification by sampling: it spends "
                            f"ε = {spent:.3g} a round where {sound:.3g} is sound."
                        ),
                    )
                ),
            ),
        )

    def convergence(self, T: int, reading: Theorem2Reading = "printed") -> FormulaValue:
        """Theorem 2, (15): the gap F − F* after T rounds with all N clients.

        "printed": P^TΘ + (κ1T/ε + κ0T²/ε²)(1 − P^T), κ1 = (λ1βcC/(m(1−P)))√(2/(Nπ)), κ0 = λ0c²C²/(m²(1−P)N).
        "talaei": Θ + k2T + k1T²/ε + k0T³/ε², k2 = λ2β², k1 = (2λ1βCc/m)√(2/(Nπ)), k0 = 4λ0C²c²/(m²N): T rounds of
        (10) with ‖∇F‖ = β, E‖n‖ = (2cCT/(mε))√(2/(Nπ)), E‖n‖² = (2cCT/(mε))²/N. "rederived": see the module.
        """
        if reading == "rederived":
            return self._rederived(T, self.clients, self.contraction())
        N, unit = self.clients, self.noise_constant * self.clip * T / (self.samples * self.epsilon)
        if reading == "talaei":
            return self._talaei(T, 2 * unit * math.sqrt(2 / (N * math.pi)), (2 * unit) ** 2 / N)
        shrink = self.contraction()
        noise = self.lambda_1() * self.lipschitz * unit * math.sqrt(2 / (N * math.pi)) + self.lambda_0 * unit**2 / N
        # (1 − P^T)/(1 − P) is a geometric sum, which also has the limit T at P = 1
        value = power(shrink.value, T) * self.initial_gap + noise * geometric_sum(shrink.value, T)
        return FormulaValue(
            value,
            merged(
                shrink.remarks,
                holding(
                    (self.proximal != 1, "λ1 = 1/μ + ρB/μ should be 1 + ρB/μ (Talaei, Izadi, arXiv:2406.05858)."),
                    (
                        self.lambda_2 >= 0,
                        "λ2 ≥ 0, where the PL inequality cannot be used as the proof does: not a bound.",
                    ),
                ),
                self._on_release(T),
            ),
        )

    def sampled_convergence(self, T: int, K: int) -> FormulaValue:
        """Theorem 3 ("rederived"): the gap F − F* after T rounds in which K of N clients take part."""
        return self._rederived(T, K, self.sampled_contraction(K))

    def optimal_rounds(self, max_rounds: int, reading: Theorem2Reading = "printed") -> Recommendation:
        """T* by a scan of T = L … max_rounds: of Theorem 2, or with fewer participants than clients of Theorem 3.

        The paper promises an optimum after Theorem 2; it needs λ2 < 0 (μ > ρB(1 + B/2)), since otherwise every further
        round only adds.
        """
        ranges.require_count(max_rounds=max_rounds)

        def at(T: float) -> FormulaValue:
            if self.sampled == self.clients:
                return self.convergence(int(T), reading)
            return self.sampled_convergence(int(T), self.sampled)

        return scan("rounds T", at, range(self.exposures, max_rounds + 1))

    def recommend_rounds(self, *, max_rounds: int = 200) -> Recommendation:
        """T* of the reading "rederived"; with all clients a remark gives the T* of the printed theorem and of its
        correction.
        """
        best = self.optimal_rounds(max_rounds, "rederived")
        others: tuple[Literal["printed", "talaei"], ...] = ()
        if self.sampled == self.clients:
            others = ("printed", "talaei")
        rest = "; ".join(f"{r}: {self.optimal_rounds(max_rounds, r).value:g}" for r in others)
        notes = (self._assumed(), *holding((bool(rest), f"T* of the other readings of Theorem 2: {rest}.")))
        return replace(best, remarks=merged(notes, best.remarks))

    def recommend_participants(self, *, rounds: int) -> Recommendation:
        """K* after `rounds` = T rounds by a scan of K = 1 … N of Theorem 3."""
        ranges.require_count(rounds=rounds)
        every = range(1, self.clients + 1)
        return scan("participants K", lambda K: self.sampled_convergence(rounds, int(K)), every, (self._assumed(),))

    def _talaei(self, T: int, noise: float, noise_squared: float) -> FormulaValue:
        step = self.increment(self.lipschitz, noise, noise_squared, "talaei")
        value = self.initial_gap + T * step.value
        return FormulaValue(
            value,
            merged(
                self.contraction().remarks,
                holding(
                    (
                        self.lambda_2 < 0 < self.lipschitz,
                        (
                            "λ2 < 0, where λ2‖∇F‖² ≤ λ2β² is the wrong way round: the correction is a bound only for "
                            "λ2 ≥ 0."
                        ),
                    ),
                    (value < 0, "The value is negative, impossible for F − F*."),
                ),
                self._on_release(T),
            ),
        )

    def _rederived(self, T: int, K: int, shrink: FormulaValue) -> FormulaValue:
        noise = self.aggregate_noise_std(T, K)
        energy = self.smoothness / 2 * self.dimension * noise.value**2
        factor = shrink.value
        if factor < 1:
            factor = max(factor, 0.0)  # x_{t+1} ≤ P·x_t + a with P < 0 and x_t ≥ 0 is x_{t+1} ≤ a
            value = power(factor, T) * self.initial_gap + energy * geometric_sum(factor, T)
        else:
            value = self.initial_gap + T * ((factor - 1) / (2 * self.pl) * self.lipschitz**2 + energy)
        return FormulaValue(value, merged(shrink.remarks, noise.remarks))

    def _round_budgets(self, T: int, K: int) -> tuple[float, float]:
        """(spent, sound): the ε that Lemma 5 spends a round, bε/T, inf where b is undefined; and what it may."""
        if self.clients == K:
            return self.epsilon / T, self.epsilon / T
        return nbafl_round_budgets(min(self.epsilon, 700.0 * T), T, self.clients, K)  # e^700: the most a float holds

    def _assumed(self) -> str:
        return assumed(self, "smoothness", "pl", "dissimilarity", "lipschitz", "initial_gap")

    def _on_dissimilarity(self) -> tuple[str, ...]:
        B = self.dissimilarity
        return holding((B < 1, f"The dissimilarity B = {B:g} is below 1, impossible by Jensen's inequality."))

    def _on_lambda_2(self) -> tuple[str, ...]:
        rho, B, low = self.smoothness, self.dissimilarity, self.lambda_2
        needed = rho * B * (1 + B / 2)
        none = f"λ2 = {low:.4g} is not negative: no number of rounds is best (needs μ > ρB(1 + B/2) = {needed:g})."
        return merged(self._on_dissimilarity(), holding((low >= 0, none)))

    def _on_pl(self, factor: float) -> tuple[str, ...]:
        l, rho = self.pl, self.smoothness
        return holding(
            (l > rho, f"A PL constant {l:g} above the smoothness {rho:g} is impossible."),
            (factor < 0, f"The contraction factor {factor:.4g} is negative: its powers alternate in sign."),
        )

    def _on_release(self, releases: int) -> tuple[str, ...]:
        return holding(
            (
                1 <= self.epsilon / releases < math.inf,
                (
                    "An ε of 1 or more a release lies outside the proof of the classical Gaussian mechanism behind "
                    "c = √(2 ln(1.25/δ))."
                ),
            )
        )
