"""Convergence of the cosine reconstruction attack on noisy gradients (THESIS: Weng 2025, section 4.3, Lemma 7,
Theorem 6, Corollary 2).

Corollary 2 is in units of ‖∇J‖², J the attack's loss. Not here: the Euclidean half (Lemma 8, Theorem 7). It takes the
root of 1 − k1 where Theorem 6 takes 1 − 1/k1 for a probability: the two exclude each other but at k1 = 1, and whatever
noise stops an attack has k1 > 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ...defenses.ranges import require_above_zero, require_count, require_nonnegative
from .formula import FormulaValue, Recommendation, assumed, holding, merged


@dataclass(frozen=True, kw_only=True)
class ReconstructionConstants:
    """The numbers of Corollary 2. The thesis states none of those with a default.

    Args:
        sigma: σ, the base noise scale: the noise has std σC/n.
        clip: C, update units.
        samples: n, records of a client.
        dimension: d, the parameters of the model; None leaves the noise of d components out of the remarks.
        gradient_norm: g = ‖g(x*)‖, the norm of the true gradient.
        agreement: s in [0, 1], the probability that the attack's two terms agree in sign.
        smoothness: L, of the attack's loss J.
        initial_gap: J(x^0) − J(x*); 2 is the most that a cosine loss allows.
        attack_steps: T, steps of the attack.

    Raises: ValueError for an impossible value.
    """

    sigma: float
    clip: float
    samples: int
    dimension: int | None = None
    gradient_norm: float = 1.0
    agreement: float = 0.25
    smoothness: float = 1.0
    initial_gap: float = 2.0
    attack_steps: int = 2500

    def __post_init__(self) -> None:
        require_nonnegative(sigma=self.sigma, initial_gap=self.initial_gap)
        require_above_zero(clip=self.clip, gradient_norm=self.gradient_norm, smoothness=self.smoothness)
        require_count(samples=self.samples, attack_steps=self.attack_steps)
        require_count(dimension=self.dimension)
        if not 0 <= self.agreement <= 1:
            raise ValueError(f"agreement must be a probability in [0, 1], got {self.agreement}.")

    @property
    def kept(self) -> float:
        """min(1, C/g), the share of the true gradient that the clip leaves."""
        return min(1.0, self.clip / self.gradient_norm)

    def noise_share(self, reading: Literal["n", "d"] = "n") -> float:
        """The noise's norm over g for σ = 1: C/(√n·g) ("n", as (A.39) prints it) or √d·C/(n·g) ("d").

        The noise has d components of std σC/n, so E‖noise‖ ≤ √d·σC/n; (A.39) writes √n for √d.
        """
        ratio, n, d = self.clip / self.gradient_norm, self.samples, self.dimension
        if reading == "n":
            return ratio / math.sqrt(n)
        assert d is not None
        return math.sqrt(d) * ratio / n

    def norm_ratio(self, reading: Literal["n", "d"] = "n") -> FormulaValue:
        """Lemma 7, (4.5): k1 = min(1, C/g) + (σ/√n)(C/g), with ‖noisy gradient‖ ≤ k1·g.

        Readings as in `noise_share`. Either bounds the mean, not every draw.

        >>> noisy = ReconstructionConstants(sigma=2, clip=1, samples=100, gradient_norm=2, dimension=400)
        >>> noisy.norm_ratio().value, noisy.norm_ratio("d").value        # 1/2 + (2/10)/2, 1/2 + 20·2/(100·2)
        (0.6, 0.7)
        """
        value = self.kept + self.sigma * self.noise_share(reading)
        return FormulaValue(
            value,
            holding(
                (value < 1, f"k1 = {value:.4g} < 1: Theorem 6's probability 1 − 1/k1 is negative."),
                (
                    self.sigma == 0 and self.kept < 1,
                    "Clipping alone rescales the gradient, which the cosine loss does not see; k1 says it does.",
                ),
            ),
        )

    def update_factor(self, reading: Literal["n", "d"] = "n") -> FormulaValue:
        """Theorem 6, (4.8)-(4.11): k3 = 1 − 2k2 + 2k2s, k2 = (k1−1)/k1, the share of a signed step that survives the
        noise.
        """
        k1 = self.norm_ratio(reading)
        k2 = (k1.value - 1) / k1.value
        value = 1 - 2 * k2 + 2 * k2 * self.agreement
        return FormulaValue(
            value,
            merged(
                k1.remarks,
                holding((value <= 0, f"k3 = {value:.4g} is not positive: the attack's steps do not descend.")),
            ),
        )

    def convergence(self, reading: Literal["printed", "appendix"] = "printed") -> FormulaValue:
        """Corollary 2, (4.10): mean ‖∇J‖² ≤ L·gap/(2Tk3) ("printed") or 2L·gap/(Tk3) ("appendix", as (A.43) gives)."""
        k3 = self.update_factor()
        if k3.value == 0:
            return FormulaValue(math.nan, ("k3 = 0: the attack does not move.",))
        four = 2.0
        if reading == "printed":
            four = 0.5
        value = four * self.smoothness * self.initial_gap / (self.attack_steps * k3.value)
        return FormulaValue(
            value,
            merged(
                k3.remarks,
                holding(
                    (
                        reading == "printed",
                        "(4.10) is four times smaller than (A.43), the line it is said to follow from.",
                    ),
                    (k3.value < 0, "k3 < 0: the value is negative and bounds nothing."),
                    (k3.value > 1, f"k3 = {k3.value:.4g} > 1: the last step of (A.42) needs k3 ≤ 1."),
                ),
            ),
        )

    def stopping_scale(self, reading: Literal["n", "d"] = "n") -> float:
        """The σ with k3 = 0, from which on the attack's steps do not descend; inf for s ≥ 1/2.

        k3 ≤ 0 from k1 = 2(1−s)/(1−2s) on. (Ours, from (4.5) and (4.11).)

        >>> ReconstructionConstants(sigma=0, clip=1, samples=100, agreement=0.25).stopping_scale()  # k1 = 3 = 1 + 2
        20.0
        """
        s = self.agreement
        if s >= 0.5:
            return math.inf
        return (2 * (1 - s) / (1 - 2 * s) - self.kept) / self.noise_share(reading)

    def recommend_noise(self) -> Recommendation:
        """The noise scale σ from which on Corollary 2 sees no descent left; the curve is its bound, (A.43), below that.

        A larger bound is a worse attack. Remarks: the config's own σ, d components instead of √n, and what is wrong.
        """
        scale = self.stopping_scale()
        top = max(2 * self.sigma, 1.0) if math.isinf(scale) else scale
        grid = [top * i / 16 for i in range(16)]
        curve = tuple((sigma, replace(self, sigma=sigma).convergence("appendix").value) for sigma in grid)
        k3, own = self.update_factor(), self.convergence()
        notes = (
            assumed(self, "gradient_norm", "agreement", "smoothness", "initial_gap", "attack_steps"),
            f"At σ = {self.sigma:g} k3 = {k3.value:.4g} of a step survives the noise, (4.11); as printed, (4.10) is "
            f"{own.value:.4g}.",
            *own.remarks,
            *holding(
                (math.isinf(scale), "With an agreement of 1/2 or more no noise stops the attack, (4.11)."),
                (True, "Corollary 2 bounds a gradient, not what is seen: measure with `audit run`."),
            ),
        )
        return Recommendation("noise scale σ", math.nan if math.isinf(scale) else scale, curve, (*notes, *self._on_d()))

    def _on_d(self) -> tuple[str, ...]:
        if self.dimension is None or self.agreement >= 0.5:
            return ()
        return (
            f"√n of (A.39) stands for the square root of the number of parameters: with d = {self.dimension} "
            f"σ = {self.stopping_scale('d'):.4g} is enough.",
        )
