"""Component-adaptive noise: noise needed, error of the global model, rounds allowed (ADN: Xue et al., Theorem 1, Lemmas
7-8, Theorem 3, (7)-(13)).

The thresholds come from private data, so none of this is a guarantee: these are the paper's own formulas. What a client
has spent, (12), is `defenses.claims.component_delta`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...defenses.claims import component_rounds
from ...defenses.ranges import require_count, require_positive, require_probability
from .formula import FormulaValue, Recommendation, holding, merged


@dataclass(frozen=True, kw_only=True)
class ComponentConstants:
    """The numbers of Theorems 1 and 3.

    Args:
        epsilon, delta: the budget (ε, δ*).
        sigma: σ0, the noise multiplier.
        clients: n; dimension: M components. Only the error of Theorem 3 needs them.

    Raises: ValueError for an impossible value.
    """

    epsilon: float
    delta: float
    sigma: float
    clients: int | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma, epsilon=self.epsilon)
        require_probability(delta=self.delta)
        require_count(clients=self.clients, dimension=self.dimension)

    @property
    def best_order(self) -> float:
        """The real α at which (10) asks for the least noise: 1 + (l + √(l² + εl))/ε, l = ln(1/δ), for any L_i."""
        logarithm = math.log(1 / self.delta)
        return 1 + (logarithm + math.sqrt(logarithm**2 + self.epsilon * logarithm)) / self.epsilon

    def required_noise(self, L_i: int, alpha: float) -> FormulaValue:
        """(10): the least σ0² for L_i uploads, L_iα/(2(ε − ln(1/δ)/(α−1))), sensitivity 1; nan unless
        α > 1 + ln(1/δ)/ε (Theorem 1).
        """
        logarithm = math.log(1 / self.delta)
        if not alpha > 1 + logarithm / self.epsilon:
            return FormulaValue(
                math.nan,
                (f"α = {alpha:.4g} is not above 1 + ln(1/δ)/ε = {1 + logarithm / self.epsilon:.4g} (Theorem 1).",),
            )
        return FormulaValue(L_i * alpha / (2 * (self.epsilon - logarithm / (alpha - 1))))

    def global_variance(self, T: int, alpha: float, components: int, clients: int) -> FormulaValue:
        """Lemma 8: the noise variance of the global model, MTα/(2n(ε − ln(1/δ)/(α−1))) for M `components`, n `clients`.

        Holds if every component's sensitivity is at most 1; it does not depend on how many clients take part a round,
        for it is the same in every case of the proof (the third case's /4n is a slip).
        """
        noise = self.required_noise(T, alpha)
        return FormulaValue(components * noise.value / clients, noise.remarks)

    def error(self, T: int, components: int, clients: int) -> FormulaValue:
        """Theorem 3 before its O(): √(3·`global_variance`) at α = (T + 2εσ0²)/(2T), parameter units; nan where the
        rounds do not fit.

        The proof calls this the 3-sigma rule, which would be 3√Var; √3 standard deviations hold with probability .917
        for a Gaussian, not → 1.
        """
        alpha = (T + 2 * self.epsilon * self.sigma**2) / (2 * T)
        variance = self.global_variance(T, alpha, components, clients)
        if math.isnan(variance.value):
            return variance
        return FormulaValue(
            math.sqrt(3 * variance.value),
            ("√3 standard deviations are not the 3-sigma rule the proof names: they hold with probability .917.",),
        )

    def recommend_rounds(self, *, max_rounds: int = 1000, rounds: int | None = None) -> Recommendation:
        """The most rounds of full participation with δ_T ≤ δ*, (13); a remark says what noise `rounds` would need.

        The curve is log10 of δ_T, not a loss: the paper has no optimum of one. 7, 108 and 208 for (ε, σ0) = (.5, 26),
        (2, 26), (8, 10) at δ* = 1e-5. Algorithm 2 tests after aggregating, so it makes one more.
        """
        require_count(max_rounds=max_rounds, rounds=rounds)
        fitting = min(component_rounds(self.epsilon, self.sigma, self.delta), max_rounds)
        shown = range(1, min(fitting + 1, max_rounds) + 1)
        curve = tuple((float(T), self._log_delta(T) / math.log(10)) for T in shown)
        notes = holding(
            (
                True,
                (
                    "Not an optimum: Lemma 8's error grows with T and the paper has no term that falls with it; this "
                    "is the last round that fits."
                ),
            ),
            (True, "Algorithm 2 tests its budget after aggregating, so literally one more release happens."),
            (not fitting, "Not even one round fits the budget."),
            (fitting == max_rounds, f"The budget outlasts the scanned {max_rounds} rounds."),
        )
        return Recommendation(
            "rounds T", float(fitting), curve, merged(notes, self._on_planned(rounds), self._on_error(fitting))
        )

    def _log_delta(self, T: int) -> float:
        """ln δ_T of (12), which itself underflows: the best whole α is next to (1 + 2εσ0²/T)/2 or the least allowed."""
        least = math.floor(1 + math.log(1 / self.delta) / self.epsilon) + 1
        free = (1 + 2 * self.epsilon * self.sigma**2 / T) / 2
        orders = {max(least, math.floor(free)), max(least, math.ceil(free))}
        return min((a - 1) * (T * a / (2 * self.sigma**2) - self.epsilon) for a in orders)

    def _on_planned(self, rounds: int | None) -> tuple[str, ...]:
        """The least σ0 of (10) for the planned rounds, at the better whole order next to the best real one."""
        if rounds is None:
            return ()
        orders = (math.floor(self.best_order), math.ceil(self.best_order))
        candidates = [(self.required_noise(rounds, alpha).value, alpha) for alpha in orders]
        variance, alpha = min((value, alpha) for value, alpha in candidates if not math.isnan(value))
        return (f"The planned {rounds} rounds fit from σ0 = {math.sqrt(variance):.4g} on, (10) at α = {alpha}.",)

    def _on_error(self, fitting: int) -> tuple[str, ...]:
        """Theorem 3's error after the last round that fits."""
        if self.clients is None or self.dimension is None or not fitting:
            return ()
        error = self.error(fitting, self.dimension, self.clients)
        return (f"The global model's noise there is {error.value:.4g} by Theorem 3, parameter units.", *error.remarks)
