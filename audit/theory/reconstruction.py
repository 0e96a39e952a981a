"""Convergence of reconstruction attacks on noisy gradients (THESIS: Weng 2025, section 4.3, Lemmas 7-8, Theorems 6-7,
Corollary 2).

Letters as in the thesis: C the clip, σ (`sigma`) base noise scale, n records, g = ‖g(x*)‖ the norm of the true
gradient, L smoothness of the attack's loss J, s the probability that its two terms agree in sign, T attack steps.
Corollary 2 and Theorem 7 are in units of ‖∇J‖².

The two halves exclude each other: Theorem 6 takes 1 − 1/k1 for a probability, which needs k1 ≥ 1, and Lemma 8 the root
of 1 − k1, which needs k1 ≤ 1. Without noise and clipping k1 = 1 and both are the noise-free bound.
"""

from __future__ import annotations

import math

from .bound import Bound, count, merged, nonnegative, one_of, positive, remarks


def norm_ratio(*, C: float, sigma: float, n: int, g: float, d: int | None = None, reading: str = "n") -> Bound:
    """Lemma 7, (4.5): k1 = min(1, C/g) + (σ/√n)(C/g), with ‖noisy gradient‖ ≤ k1·g.

    The noise has d components of std σC/n, so E‖noise‖ ≤ √d·σC/n; (A.39) writes √n for √d. Readings "n" (printed) and
    "d" (needs d). Either bounds the mean, not every draw.

    >>> norm_ratio(C=1.0, sigma=2.0, n=100, g=2.0).value              # 1/2 + (2/10)/2
    0.6
    >>> norm_ratio(C=1.0, sigma=2.0, n=100, g=2.0, d=400, reading="d").value   # 1/2 + 20·2/(100·2)
    0.7
    """
    positive(C=C, g=g)
    nonnegative(sigma=sigma)
    count(n=n)
    one_of("reading", reading, ("n", "d"))
    printed = sigma / math.sqrt(n) * C / g
    if reading == "n":
        noise = printed
        other = remarks(
            (
                d is not None and sigma > 0 and d != n,
                (
                    f"√n stands for the square root of the number of parameters: with d = {d} k1 = "
                    f"{min(1, C / g) + math.sqrt(d or 0) * sigma * C / (n * g):.4g}."
                ),
            )
        )
    elif d is None:
        raise ValueError("d must be given for the reading 'd', got None.")
    else:
        count(d=d)
        noise, other = math.sqrt(d) * sigma * C / (n * g), ()
    value = min(1.0, C / g) + noise
    both = remarks(
        (value > 1, f"k1 = {value:.4g} > 1: Lemma 8 and Theorem 7 take the root of a negative number."),
        (value < 1, f"k1 = {value:.4g} < 1: Theorem 6's probability 1 − 1/k1 is negative."),
        (
            sigma == 0 and g > C,
            "Clipping alone rescales the gradient, which the cosine loss does not see; k1 says it does.",
        ),
    )
    return Bound(value, merged(other, both))


def update_factor(*, k1: float, s: float) -> Bound:
    """Theorem 6, (4.8)-(4.11): k3 = 1 − 2k2 + 2k2s, k2 = (k1−1)/k1, the share of a signed step that survives the
    noise.
    """
    positive(k1=k1)
    if not 0 <= s <= 1:
        raise ValueError(f"s must be a probability in [0, 1], got {s}.")
    k2 = (k1 - 1) / k1
    value = 1 - 2 * k2 + 2 * k2 * s
    return Bound(
        value,
        remarks(
            (k1 < 1, f"k1 = {k1:.4g} < 1 makes the probability 1 − 1/k1 negative."),
            (value <= 0, f"k3 = {value:.4g} is not positive: the attack's steps do not descend."),
        ),
    )


def cosine_convergence(*, T: int, L: float, gap: float, k3: float, reading: str = "printed") -> Bound:
    """Corollary 2, (4.10): mean ‖∇J‖² ≤ L·gap/(2Tk3) ("printed") or 2L·gap/(Tk3) ("appendix", what (A.43) gives).

    gap = J(x^0) − J(x*).
    """
    count(T=T)
    positive(L=L)
    nonnegative(gap=gap)
    one_of("reading", reading, ("printed", "appendix"))
    if k3 == 0:
        return Bound(math.nan, ("k3 = 0: the attack does not move.",))
    value = (0.5 if reading == "printed" else 2.0) * L * gap / (T * k3)
    return Bound(
        value,
        remarks(
            (reading == "printed", "Four times smaller than (A.43), the line it is said to follow from."),
            (k3 < 0, "k3 < 0: the value is negative and bounds nothing."),
            (k3 > 1, f"k3 = {k3:.4g} > 1: the last step of (A.42) needs k3 ≤ 1."),
        ),
    )


def euclidean_loss(*, J: float, k1: float, inner: float, reading: str = "text") -> Bound:
    """Lemma 8: J + √(2(1−k1)g(x)g(x*)) ("text", (4.13)) or J + 2√((1−k1)g(x)g(x*)) ("appendix", (A.48)).

    `inner` = g(x)·g(x*); nan if imaginary. (A.47), from which both are said to follow, gives the text's √2; it needs a
    lower bound on the noisy gradient where Lemma 7 has an upper one.
    """
    nonnegative(J=J, k1=k1)
    one_of("reading", reading, ("text", "appendix"))
    root = (1 - k1) * inner
    wrong = remarks(
        (k1 > 1, f"k1 = {k1:.4g} > 1: (4.13) is imaginary."),
        (inner < 0, "The gradients point apart: (4.13) is imaginary."),
    )
    if root < 0:
        return Bound(math.nan, wrong)
    value = J + (math.sqrt(2) if reading == "text" else 2.0) * math.sqrt(root)
    return Bound(value, merged(wrong, remarks((root > 0, "(4.13) has √2 where (A.48) has 2."))))


def gradient_shift(*, k1: float, ratio: float) -> Bound:
    """k4 = √(2(1−k1)·ratio), (4.15), with ratio = g(x*)/g(x); nan if imaginary.

    The derivative of (4.13) by g(x) is half of this and that of (A.48) 1/√2 of it: (4.15) follows from neither.
    """
    nonnegative(k1=k1)
    root = 2 * (1 - k1) * ratio
    wrong = remarks(
        (k1 > 1, f"k1 = {k1:.4g} > 1: (4.15) is imaginary."),
        (ratio < 0, "The gradients point apart: (4.15) is imaginary."),
    )
    if root < 0:
        return Bound(math.nan, wrong)
    return Bound(math.sqrt(root), merged(wrong, remarks((root > 0, "k4 is twice the derivative of (4.13)."))))


def shift_factor(*, k4: float, beta_3: float, sign: int = 1) -> Bound:
    """k5 = 1 + k4/(β3 ± 1), (4.17); β3 = ∇Re/g'(x), (4.18), the sign that of g(x) − g(x*). nan for β3 ± 1 = 0."""
    if sign not in (1, -1):
        raise ValueError(f"sign must be 1 or -1, got {sign}.")
    if beta_3 + sign == 0:
        return Bound(math.nan, (f"β3 {sign:+d} = 0: the noise-free gradient vanishes.",))
    value = 1 + k4 / (beta_3 + sign)
    return Bound(value, remarks((math.isnan(k4), "k4 is imaginary.")))


def euclidean_convergence(*, T: int, L: float, gap: float, k5: float, reading: str = "printed") -> Bound:
    """Theorem 7, (4.16): mean ‖∇J‖² ≤ L·gap/(2Tk5²) ("printed") or 2L·gap/(Tk5²) ("appendix", what (A.54) gives)."""
    count(T=T)
    positive(L=L)
    nonnegative(gap=gap)
    one_of("reading", reading, ("printed", "appendix"))
    if math.isnan(k5) or k5 == 0:
        return Bound(math.nan, ("k5 is 0 or undefined.",))
    value = (0.5 if reading == "printed" else 2.0) * L * gap / (T * k5**2)
    return Bound(
        value,
        remarks(
            (reading == "printed", "Four times smaller than (A.54), the line it is said to follow from."),
            (k5 > 1 or k5 < 0, f"k5 = {k5:.4g} lies outside [0, 1], where (A.52) does not hold."),
        ),
    )
