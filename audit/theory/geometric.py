"""Amplitude-varying perturbation: convergence bound, optimal rounds and schedule (GEO: Yuan et al., Theorem 3,
Corollaries 1-2, (10)-(14)).

Letters as in the paper: m or M rounds (global aggregations), τ local steps a round, T = Mτ, U clients of which K take
part (q = K/U), ϑ (`vartheta`) the ratio of the noise variances of successive rounds, Δs (`delta_s`) the sensitivity, Θ
(`Theta`) the initial gap F(ω(0)) − F(ω*), L smoothness, L_c Lipschitz constant of the loss, ρ the Polyak-Lojasiewicz
(PL) constant, B the local dissimilarity, γ the gradient divergence, η the learning rate. Every bound is in units of the
loss. ε = inf means no noise.

Beyond the arguments, three things hold nowhere: the proof counts ‖noise‖² as σ², which is one parameter of one client
(d parameters averaged over K equal clients have dσ²/K); it counts one gradient step a round although there are τ; and
(39) starts the noise at ϑ where (6) starts it at 1 (the sum (41b) is right for (6)).
"""

from __future__ import annotations

import math

from .bound import (
    Bound,
    Recommendation,
    assumed,
    at_most,
    count,
    gaussian_delta,
    geometric_sum,
    merged,
    mixed_sum,
    nonnegative,
    one_of,
    positive,
    power,
    probability,
    recommend,
    remarks,
)


def contraction(*, eta: float, L: float, rho: float, B: float, U: int, K: int, reading: str = "printed") -> Bound:
    """A = 1 + 2ρφ of Theorem 3, the factor by which a round shrinks the gap without noise.

    φ = (η²L/2)·((U−K)B²/(K(U−1)) + x) − η with x = (K−1)/(UK(U−1)) (reading "printed", (36)) or x = U(K−1)/(K(U−1))
    (reading "corrected"): the mean over all K-subsets of ‖mean gradient‖² has the second, since ‖Σ_k ∇f_k‖² = U²‖∇F‖².
    At K = U the corrected bracket is 1, as full-batch descent needs; the printed one is 1/U².
    """
    positive(eta=eta, L=L, rho=rho)
    nonnegative(B=B)
    count(U=U, K=K)
    at_most("K", K, "U", U)
    one_of("reading", reading, ("printed", "corrected"))
    if U == 1:
        bracket = 1.0
        other = 1.0
    else:
        clients = (U - K) * B**2 / (K * (U - 1))
        printed, corrected = clients + (K - 1) / (U * K * (U - 1)), clients + U * (K - 1) / (K * (U - 1))
        bracket, other = (printed, corrected) if reading == "printed" else (corrected, printed)
    value, fixed = (1 + 2 * rho * (eta**2 * L / 2 * x - eta) for x in (bracket, other))
    return Bound(
        value,
        remarks(
            (eta > 1 / L, f"The learning rate {eta:g} exceeds 1/L = {1 / L:g} (Assumption 1.3)."),
            (rho > L, f"A PL constant {rho:g} above the smoothness {L:g} is impossible."),
            (B < 1, f"The dissimilarity B = {B:g} is below 1, impossible by Jensen's inequality."),
            (not 0 < value < 1, f"A = {value:.6g} lies outside (0, 1): the gap does not shrink steadily."),
            (
                reading == "printed" and abs(value - fixed) > 1e-12,
                f"(36) lacks a factor U² in its second term: with it A = {fixed:.6g} instead of {value:.6g}.",
            ),
        ),
    )


def local_drift(*, x: float, eta: float, L: float, gamma: float) -> Bound:
    """H(x) = (γ/L)((ηL + 1)^x − 1) − ηγx of Lemma 1: how far x local steps stray from central descent.

    In parameter units.

    >>> local_drift(x=1, eta=0.1, L=2.0, gamma=3.0).value
    0.0
    """
    positive(eta=eta, L=L)
    nonnegative(x=x, gamma=gamma)
    # expm1 keeps the value exact where the two terms cancel; the residue at x = 1 is rounding, not drift.
    growth = 0.0 if x == 1 else math.expm1(x * math.log1p(eta * L)) / L - eta * x
    value = gamma * growth
    return Bound(
        value,
        remarks(
            (eta > 1 / L, f"The learning rate {eta:g} exceeds 1/L = {1 / L:g} (Assumption 1.3)."),
            (value < 0, "H is negative between 0 and 1 step, where Lemma 1 says nothing."),
        ),
    )


def convergence(
    *,
    m: int,
    A: float,
    Theta: float,
    vartheta: float,
    q: float,
    L: float,
    delta_s: float,
    epsilon: float,
    delta: float,
    U: int,
    reading: str = "corrected",
) -> Bound:
    """Theorem 3, (11): the gap F − F* after m rounds, with the noise that Theorem 1 asks for m rounds.

    A^m Θ + qLΔs² ln(1/δ)(ϑ^m − A^m)(ϑ − ϑ^(1−m)) / (ε²(ϑ − A)·D), D = ϑ − 1 (reading "corrected", what (8) put into
    (41b) gives) or D = U − 1 (reading "printed", (11)-(14)). The corrected form has its limits at ϑ = 1 and ϑ = A.

    >>> common = dict(A=0.5, Theta=1.0, vartheta=1.0, q=1.0, L=1.0, delta_s=1.0, epsilon=1.0, delta=math.exp(-1), U=5)
    >>> convergence(m=2, **common).value                      # 1/4 + 2·(1 + 1/2)
    3.25
    >>> convergence(m=2, reading="printed", **common).value   # the noise has vanished
    0.25
    """
    count(m=m, U=U)
    positive(vartheta=vartheta, q=q, L=L, epsilon=epsilon)
    nonnegative(Theta=Theta, delta_s=delta_s)
    probability(delta=delta)
    at_most("q", q, "1", 1.0)
    one_of("reading", reading, ("corrected", "printed"))
    spread = mixed_sum(A, vartheta, m) * geometric_sum(1 / vartheta, m)
    if reading == "printed":
        if U == 1:
            raise ValueError("U must be at least 2 for the printed reading, whose noise term divides by U − 1, got 1.")
        spread *= (vartheta - 1) / (U - 1)
    scale = q * L * delta_s**2 * math.log(1 / delta) / epsilon**2
    noise = 0.0 if scale == 0 else scale * spread
    mu = epsilon / math.sqrt(2 * math.log(1 / delta))
    actual = 0.0 if math.isinf(epsilon) else gaussian_delta(epsilon, mu)
    return Bound(
        power(A, m) * Theta + noise,
        remarks(
            (not 0 < A < 1, f"A = {A:.6g} lies outside (0, 1): the first term does not shrink steadily."),
            (
                reading == "printed" and vartheta == 1 and scale > 0,
                "The noise term is 0 at ϑ = 1 because of the printed (U − 1): with (ϑ − 1) it is not.",
            ),
            (
                reading == "printed" and vartheta < 1 and scale > 0,
                "The noise term is negative for ϑ < 1 because of the printed (U − 1): not an upper bound.",
            ),
            (
                actual > delta,
                (
                    f"Theorem 1's noise misses its own target: at ε = {epsilon:g} it gives δ = {actual:.3g}, not"
                    f" {delta:g} (its proof drops a term in ε)."
                ),
            ),
        ),
    )


def final_convergence(
    *,
    M: int,
    tau: float,
    A: float,
    Theta: float,
    vartheta: float,
    q: float,
    L: float,
    L_c: float,
    eta: float,
    gamma: float,
    delta_s: float,
    epsilon: float,
    delta: float,
    U: int,
    reading: str = "corrected",
) -> Bound:
    """Corollary 1, (12): `convergence` at m = M plus L_c·H(τ). τ may be fractional (the paper sets τ = T/M)."""
    nonnegative(L_c=L_c)
    central = convergence(
        m=M,
        A=A,
        Theta=Theta,
        vartheta=vartheta,
        q=q,
        L=L,
        delta_s=delta_s,
        epsilon=epsilon,
        delta=delta,
        U=U,
        reading=reading,
    )
    drift = local_drift(x=tau, eta=eta, L=L, gamma=gamma)
    return Bound(central.value + L_c * drift.value, merged(central.remarks, drift.remarks))


def steps_for_convexity(*, eta: float, L: float, reading: str = "printed") -> Bound:
    """The least τ that Corollary 2 asks for: ln(η/ln(ηL+1))/ln(ηL+1) ("printed") or ln(ηL/ln(ηL+1))/ln(ηL+1)
    ("corrected").

    The corrected one is where H'(τ) = 0; it lies between 1/2 and 1, so every τ ≥ 1 satisfies it and the condition is no
    condition. The printed one lost the L (and is not free of units).
    """
    positive(eta=eta, L=L)
    one_of("reading", reading, ("printed", "corrected"))
    step = math.log1p(eta * L)
    value = math.log((eta if reading == "printed" else eta * L) / step) / step
    return Bound(
        value,
        remarks(
            (reading == "printed" and value < 0, "The printed threshold is negative: it excludes no τ."),
            (reading == "printed" and value > 1, "The printed threshold exceeds 1, the corrected one never does."),
        ),
    )


def curvature(
    *,
    M: int,
    A: float,
    Theta: float,
    vartheta: float,
    q: float,
    L: float,
    delta_s: float,
    epsilon: float,
    delta: float,
    U: int,
    reading: str = "corrected",
) -> Bound:
    """G(M+1) − 2G(M) + G(M−1) of the objective (13): the whole-number counterpart of (43), loss units. M ≥ 2.

    Corollary 2 says it is positive whenever ϑ ≥ A; that is not sufficient (below 1 the factor (ϑ − 1) turns the sign).

    >>> noise = dict(A=0.8, Theta=0.0, vartheta=0.95, q=0.1, L=1.0, delta_s=1.0, epsilon=1.0, delta=1e-3, U=100)
    >>> [curvature(M=M, **noise).value > 0 for M in (2, 6, 7, 30)]
    [True, True, False, False]
    """
    count(M=M)
    if M < 2:
        raise ValueError(f"M must be at least 2, for a second difference, got {M}.")
    left, middle, right = (
        convergence(
            m=rounds,
            A=A,
            Theta=Theta,
            vartheta=vartheta,
            q=q,
            L=L,
            delta_s=delta_s,
            epsilon=epsilon,
            delta=delta,
            U=U,
            reading=reading,
        )
        for rounds in (M - 1, M, M + 1)
    )
    value = left.value - 2 * middle.value + right.value
    return Bound(
        value,
        merged(
            middle.remarks,
            remarks(
                (vartheta < A, f"ϑ = {vartheta:g} is below A = {A:.6g} (Corollary 2)."),
                (
                    vartheta >= A and value < 0,
                    f"The bound is not convex at M = {M} although ϑ ≥ A: Corollary 2 is not sufficient.",
                ),
            ),
        ),
    )


def optimal_rounds(
    *,
    max_rounds: int,
    A: float,
    Theta: float,
    vartheta: float,
    q: float,
    L: float,
    delta_s: float,
    epsilon: float,
    delta: float,
    U: int,
    reading: str = "corrected",
    T: float | None = None,
    L_c: float = 0.0,
    eta: float | None = None,
    gamma: float = 0.0,
) -> Recommendation:
    """M* by a scan of M = 1 … max_rounds: of (13), or with a total of T local steps of (14), which adds L_c·H(T/M).

    The paper bisects the derivative (14), trusting Corollary 2's convexity; (13) itself omits the drift that (14) has.
    Give `eta`, `gamma` and `L_c` with `T`.
    """
    count(max_rounds=max_rounds)
    if T is not None and eta is None:
        raise ValueError("eta must be given with T, for the drift term L_c·H(T/M) of (14).")

    def at(M: float) -> Bound:
        common = convergence(
            m=int(M),
            A=A,
            Theta=Theta,
            vartheta=vartheta,
            q=q,
            L=L,
            delta_s=delta_s,
            epsilon=epsilon,
            delta=delta,
            U=U,
            reading=reading,
        )
        if T is None or eta is None:
            return common
        drift = local_drift(x=T / M, eta=eta, L=L, gamma=gamma)
        return Bound(common.value + L_c * drift.value, merged(common.remarks, drift.remarks))

    last = max_rounds if T is None else min(max_rounds, max(int(T), 1))  # at least one local step a round
    found = recommend("rounds M", at, range(1, last + 1))
    values = [value for _, value in found.curve]
    bends = [i + 2 for i in range(len(values) - 2) if values[i] - 2 * values[i + 1] + values[i + 2] < 0]
    notes = remarks(
        (vartheta < A, f"ϑ = {vartheta:g} is below A = {A:.6g} (Corollary 2)."),
        (
            bool(bends) and vartheta >= A,
            (
                f"The bound is not convex (first at M = {bends[0] if bends else 0}) although ϑ ≥ A: Corollary 2 is not "
                "sufficient, hence the scan."
            ),
        ),
    )
    return Recommendation(found.what, found.value, found.curve, merged(found.remarks, notes))


def recommend_rounds(
    *,
    epsilon: float,
    delta: float,
    clip: float,
    samples: int,
    clients: int,
    participants: int,
    vartheta: float = 1.0,
    learning_rate: float = 0.1,
    total_steps: float | None = None,
    dimension: int | None = None,
    max_rounds: int = 200,
    smoothness: float = 1.0,
    pl: float = 0.1,
    dissimilarity: float = 1.0,
    lipschitz: float = 1.0,
    divergence: float = 0.1,
    initial_gap: float = math.log(10),
) -> Recommendation:
    """M* of Section IV-C with Δs = 2C/n. With `total_steps` = T, τ = T/M shrinks as M grows, (14); else (13).

    clip C in parameter units, samples n a client, initial_gap Θ in loss units (ln 10: ten classes, a uniform guess);
    the paper states none of the constants. With `dimension` d a remark gives M* for the noise really added, dσ²/K
    instead of σ².
    """
    positive(clip=clip)
    count(samples=samples, **({} if dimension is None else {"dimension": dimension}))
    factor = contraction(eta=learning_rate, L=smoothness, rho=pl, B=dissimilarity, U=clients, K=participants)

    def scan(delta_s: float) -> Recommendation:
        return optimal_rounds(
            max_rounds=max_rounds,
            A=factor.value,
            Theta=initial_gap,
            vartheta=vartheta,
            q=participants / clients,
            L=smoothness,
            delta_s=delta_s,
            epsilon=epsilon,
            delta=delta,
            U=clients,
            T=total_steps,
            L_c=lipschitz,
            eta=learning_rate,
            gamma=divergence,
        )

    delta_s = 2 * clip / samples
    found = scan(delta_s)
    real = "" if dimension is None else f"{scan(delta_s * math.sqrt(dimension / participants)).value:g}"
    notes = (
        assumed(
            smoothness=smoothness,
            pl=pl,
            dissimilarity=dissimilarity,
            lipschitz=lipschitz,
            divergence=divergence,
            initial_gap=initial_gap,
        ),
        "Δs = 2C/n holds for one step of per-example clipping, not for a clipped model: there one record can move 2C.",
        *remarks(
            (
                bool(real),
                (
                    f"The analysis counts the noise of one parameter of one client; with d = {dimension} parameters "
                    f"averaged over K = {participants} clients M* = {real}."
                ),
            )
        ),
    )
    return Recommendation("rounds M", found.value, found.curve, merged(notes, factor.remarks, found.remarks))


def recommend_schedule(
    *,
    clients: int,
    participants: int,
    rounds: int,
    learning_rate: float = 0.1,
    smoothness: float = 1.0,
    pl: float = 0.1,
    dissimilarity: float = 1.0,
) -> Recommendation:
    """The noise schedule ϑ with the smallest noise term in (12), at a fixed number of rounds.

    The curve is that term over its value at ϑ = 1. It is (Σ_i A^(M−i) v_i)(Σ_i 1/v_i) with v_i = ϑ^(i−1), so by the
    Cauchy-Schwarz inequality the best of *all* variance sequences is v_i ∝ A^(i/2): ϑ* = √A, whatever ε, M and Θ. (Our
    derivation; the paper tunes ϑ by experiment.) The curve is a grid around it. The analysis therefore always asks for
    decreasing noise, while the paper's MLP and SVM did best with ϑ > 1.
    """
    count(rounds=rounds)
    factor = contraction(eta=learning_rate, L=smoothness, rho=pl, B=dissimilarity, U=clients, K=participants)
    notes = (assumed(smoothness=smoothness, pl=pl, dissimilarity=dissimilarity),)
    A = factor.value
    flat = mixed_sum(A, 1.0, rounds) * rounds

    def noise(vartheta: float) -> float:
        return mixed_sum(A, vartheta, rounds) * geometric_sum(1 / vartheta, rounds) / flat

    if A <= 0:
        return Recommendation("noise schedule ϑ", math.nan, (), merged(notes, factor.remarks))
    best = math.sqrt(A)
    grid = sorted({best, 1.0, *(round(0.8 + 0.01 * i, 2) for i in range(41))})
    curve = tuple((vartheta, noise(vartheta)) for vartheta in grid)
    saving = f"The noise term shrinks to {noise(best):.4g} of its value at ϑ = 1."
    single = remarks((rounds == 1, "With one round every ϑ is the same."))
    return Recommendation("noise schedule ϑ", best, curve, merged(notes, factor.remarks, (saving,), single))
