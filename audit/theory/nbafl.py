"""NbAFL: convergence bounds, optimal rounds and optimal participants (NBA: Wei et al., arXiv:1911.00222,
Theorems 2-3, (10)-(22)).

Letters as in the paper: T rounds, N clients of which K take part, m records at the smallest client, C the bound on the
weights, L exposed uploads, μ (`mu`) the proximal constant, ρ (`rho`) smoothness, β (`beta`) Lipschitz constant, l the
Polyak-Lojasiewicz (PL) constant, B the dissimilarity, Θ (`Theta`) the initial gap F(w0) − F(w*). Bounds are in units of
the loss. c = √(2 ln(1.25/δ)).

Three readings of the same theorem, since two of them are wrong in different places:

- "printed": the paper's. λ1 = 1/μ + ρB/μ should be 1 + ρB/μ (Talaei, Izadi, arXiv:2406.05858), and its noise constants
  are half and a quarter of what Δ = 2C/(mN) gives.
- "talaei": their correction, Θ + k2·T + k1·T²/ε + k0·T³/ε². It puts ‖∇F‖ ≤ β into λ2‖∇F‖², which bounds it from above
  only for λ2 ≥ 0; but an optimal T exists only for λ2 < 0, and there the value falls below zero.
- "rederived" (ours): for λ2 < 0 the PL inequality does give λ2‖∇F‖² ≤ 2lλ2(F − F*), so the gap contracts by P;
  independent zero-mean noise adds E F(w + n) − F(w) ≤ (ρ/2)·d·σ_A² and no term in β. For λ2 ≥ 0 it is Talaei and
  Izadi's with that noise term. σ_A is the noise that Theorem 1 and Lemma 5 really leave on the aggregate, d the number
  of parameters (the paper counts one component, times √N).

Theorem 3's constants (20)-(22) are those of arXiv v2 as remembered, for the copy at hand had lost its formulas: Q was
checked against the derivation of FedProx's Theorem 4 (arXiv:1812.06127), which it follows; α0 and α1 could not be
checked, so do not rest a claim on them.
"""

from __future__ import annotations

import math

from .bound import (
    Bound,
    Recommendation,
    assumed,
    at_most,
    count,
    geometric_sum,
    merged,
    nonnegative,
    one_of,
    positive,
    power,
    probability,
    recommend,
    remarks,
)

READINGS = ("printed", "talaei", "rederived")


def noise_constant(delta: float) -> float:
    """c = √(2 ln(1.25/δ)) of the classical Gaussian mechanism.

    >>> round(noise_constant(0.01), 4)
    3.1075
    """
    probability(delta=delta)
    return math.sqrt(2 * math.log(1.25 / delta))


def lambda_0(*, rho: float) -> float:
    """λ0 = ρ/2 of (10), the weight of E‖n‖²."""
    return rho / 2


def lambda_1(*, rho: float, B: float, mu: float, reading: str = "printed") -> float:
    """λ1 of (10), the weight of ‖∇F‖·E‖n‖: 1/μ + ρB/μ as printed, 1 + ρB/μ in the other readings."""
    positive(mu=mu)
    one_of("reading", reading, READINGS)
    return (1 / mu if reading == "printed" else 1.0) + rho * B / mu


def lambda_2(*, rho: float, B: float, mu: float) -> float:
    """λ2 = −1/μ + ρB/μ² + ρB²/(2μ²) of (10), the weight of ‖∇F‖²; negative iff μ > ρB(1 + B/2).

    >>> lambda_2(rho=1.0, B=1.0, mu=1.5)
    0.0
    """
    positive(mu=mu)
    return (-mu + rho * B + rho * B**2 / 2) / mu**2


def increment(
    *, gradient: float, noise: float, noise_squared: float, rho: float, B: float, mu: float, reading: str = "printed"
) -> Bound:
    """(10): E F(w_{t+1}) − F(w_t) ≤ λ2‖∇F‖² + λ1‖∇F‖E‖n‖ + λ0E‖n‖², one round's change of the loss.

    gradient: ‖∇F‖; noise and noise_squared: E‖n‖ and E‖n‖² of the aggregate's noise, parameter units.
    """
    nonnegative(gradient=gradient, noise=noise, noise_squared=noise_squared, rho=rho, B=B)
    low = lambda_2(rho=rho, B=B, mu=mu)
    value = (
        low * gradient**2
        + lambda_1(rho=rho, B=B, mu=mu, reading=reading) * gradient * noise
        + lambda_0(rho=rho) * noise_squared
    )
    return Bound(
        value,
        remarks(
            *_on_constants(rho, B, low),
            (noise_squared < noise**2 * (1 - 1e-12), "E‖n‖² is below (E‖n‖)², impossible by Jensen's inequality."),
        ),
    )


def contraction(*, rho: float, B: float, mu: float, l: float) -> Bound:
    """P = 1 + 2lλ2 of Theorem 2, the factor by which a round with all clients shrinks the gap without noise."""
    positive(rho=rho, l=l)
    nonnegative(B=B)
    low = lambda_2(rho=rho, B=B, mu=mu)
    return Bound(1 + 2 * l * low, remarks(*_on_constants(rho, B, low), *_on_pl(l, rho, 1 + 2 * l * low)))


def sampled_contraction(
    *, rho: float, B: float, mu: float, l: float, K: int, N: int, reading: str = "printed"
) -> Bound:
    """Q of Theorem 3, (20), the contraction when K of N clients take part.

    "printed": 1 + (2l/μ²)(ρB²/2 + ρB + ρB²/K + 2ρB²/√K + μB/√K − μ). "rederived": P + lρB²(N−K)/(K(N−1)μ²): the mean of
    K clients drawn without replacement is unbiased, so smoothness alone bounds what the draw costs; at K = N it is P,
    which the printed one is not.
    """
    positive(rho=rho, l=l, mu=mu)
    nonnegative(B=B)
    count(K=K, N=N)
    at_most("K", K, "N", N)
    one_of("reading", reading, ("printed", "rederived"))
    low = lambda_2(rho=rho, B=B, mu=mu)
    if reading == "printed":
        low += (rho * B**2 / K + 2 * rho * B**2 / math.sqrt(K) + mu * B / math.sqrt(K)) / mu**2
    elif K < N:
        low += rho * B**2 * (N - K) / (2 * K * (N - 1) * mu**2)
    value = 1 + 2 * l * low
    return Bound(
        value,
        remarks(
            (B < 1, _DISSIMILARITY.format(B)),
            (low >= 0, f"Q = {value:.6g} is not below 1: the gap does not shrink, so no number of rounds is best."),
            *_on_pl(l, rho, value),
        ),
    )


def aggregate_noise_std(*, T: int, N: int, K: int, m: int, C: float, epsilon: float, delta: float, L: int = 1) -> Bound:
    """σ_A: the std of the noise on the aggregate (per parameter), uploads' and server's together (Theorem 1, Lemma 5).

    The larger of what the averaged uploads bring, 2cLC/(m√K·ε), and what the downlink asks for, 2cCT/(bmKε), with b =
    −(T/ε)ln(1 − N/K + (N/K)e^(−ε/T)), 1 for K = N. Where b is undefined (ε/T ≥ −ln(1 − K/N)) the server adds nothing.
    Both tests of the paper, T > L√N and T > ε/γ, are this maximum.
    """
    count(T=T, N=N, K=K, m=m, L=L)
    positive(C=C, epsilon=epsilon)
    at_most("K", K, "N", N)
    at_most("L", L, "T", T)
    uplink = 2 * noise_constant(delta) * L * C / (m * math.sqrt(K) * epsilon)
    budget = _round_budget(T, N, K, epsilon)
    downlink = 0.0 if math.isnan(budget) else 2 * noise_constant(delta) * C / (m * K * budget)
    sound = math.log1p((math.exp(min(epsilon / T, 700.0)) - 1) * N / K)
    return Bound(
        max(uplink, downlink),
        remarks(
            (1 <= epsilon / L < math.inf, _CLASSICAL),
            (
                K < N and downlink > uplink and budget > sound,
                (
                    "Lemma 5 inverts the weaker direction of amplification by sampling: it spends "
                    f"ε = {budget:.3g} a round where {sound:.3g} is sound."
                ),
            ),
        ),
    )


def convergence(
    *,
    T: int,
    epsilon: float,
    delta: float,
    N: int,
    m: int,
    C: float,
    Theta: float,
    rho: float,
    B: float,
    mu: float,
    l: float,
    beta: float,
    reading: str = "printed",
    L: int = 1,
    d: int = 1,
) -> Bound:
    """Theorem 2, (15): the gap F − F* after T rounds with all N clients. L and d matter only to "rederived".

    "printed": P^TΘ + (κ1T/ε + κ0T²/ε²)(1 − P^T), κ1 = (λ1βcC/(m(1−P)))√(2/(Nπ)), κ0 = λ0c²C²/(m²(1−P)N).
    "talaei": Θ + k2T + k1T²/ε + k0T³/ε², k2 = λ2β², k1 = (2λ1βCc/m)√(2/(Nπ)), k0 = 4λ0C²c²/(m²N).
    "rederived": see the module.
    """
    count(T=T, N=N, m=m, d=d)
    positive(C=C, epsilon=epsilon)
    nonnegative(Theta=Theta, beta=beta)
    one_of("reading", reading, READINGS)
    shrink = contraction(rho=rho, B=B, mu=mu, l=l)
    if reading == "rederived":
        return _rederived(T, N, N, m, C, epsilon, delta, L, d, Theta, rho, beta, l, shrink)
    P, c = shrink.value, noise_constant(delta)
    low = lambda_2(rho=rho, B=B, mu=mu)
    first = (
        lambda_1(rho=rho, B=B, mu=mu, reading=reading) * beta * c * C / m * math.sqrt(2 / (N * math.pi)) * T / epsilon
    )
    second = lambda_0(rho=rho) * (c * C * T / (m * epsilon)) ** 2 / N
    if reading == "talaei":
        value = Theta + T * (low * beta**2 + 2 * first + 4 * second)
        return Bound(
            value,
            merged(
                shrink.remarks,
                remarks(
                    (
                        low < 0 < beta,
                        (
                            "λ2 < 0, where λ2‖∇F‖² ≤ λ2β² is the wrong way round: the correction is a bound only for "
                            "λ2 ≥ 0."
                        ),
                    ),
                    (value < 0, "The value is negative, impossible for F − F*."),
                    (1 <= epsilon / T < math.inf, _CLASSICAL),
                ),
            ),
        )
    # (1 − P^T)/(1 − P) is a geometric sum, which also has the limit T at P = 1
    value = power(P, T) * Theta + (first + second) * geometric_sum(P, T)
    return Bound(
        value,
        merged(
            shrink.remarks,
            remarks(
                (mu != 1, "λ1 = 1/μ + ρB/μ should be 1 + ρB/μ (Talaei, Izadi, arXiv:2406.05858)."),
                (low >= 0, "λ2 ≥ 0, where the PL inequality cannot be used as the proof does: not a bound."),
                (1 <= epsilon / T < math.inf, _CLASSICAL),
            ),
        ),
    )


def curvature(
    *,
    T: float,
    epsilon: float,
    delta: float,
    N: int,
    m: int,
    C: float,
    Theta: float,
    rho: float,
    B: float,
    mu: float,
    l: float,
    beta: float,
) -> Bound:
    """(16): the second derivative in T of the printed Theorem 2, loss units. Undefined (nan) unless 0 < P < 1.

    (Θ − κ1T/ε − κ0T²/ε²)P^T ln²P − 2(κ1/ε + 2κ0T/ε²)P^T ln P + 2κ0(1 − P^T)/ε².
    """
    positive(T=T, C=C, epsilon=epsilon)
    count(N=N, m=m)
    nonnegative(Theta=Theta, beta=beta)
    shrink = contraction(rho=rho, B=B, mu=mu, l=l)
    P, c = shrink.value, noise_constant(delta)
    if not 0 < P < 1:
        return Bound(math.nan, shrink.remarks)
    k1 = lambda_1(rho=rho, B=B, mu=mu) * beta * c * C / (m * (1 - P)) * math.sqrt(2 / (N * math.pi)) / epsilon
    k0 = lambda_0(rho=rho) * (c * C / (m * epsilon)) ** 2 / ((1 - P) * N)
    log, decay = math.log(P), P**T
    first = (Theta - k1 * T - k0 * T**2) * decay * log**2
    value = first - 2 * (k1 + 2 * k0 * T) * decay * log + 2 * k0 * (1 - decay)
    return Bound(value, merged(shrink.remarks, remarks((value < 0, f"The bound is not convex at T = {T:g}."))))


def sampled_convergence(
    *,
    T: int,
    K: int,
    epsilon: float,
    delta: float,
    N: int,
    m: int,
    C: float,
    Theta: float,
    rho: float,
    B: float,
    mu: float,
    l: float,
    beta: float,
    reading: str = "printed",
    L: int = 1,
    d: int = 1,
) -> Bound:
    """Theorem 3, (19): the gap F − F* after T rounds in which K of N clients take part.

    "printed": Q^TΘ + (1−Q^T)/(1−Q)·(cCα1β√(2/π)/(mKx) + c²C²α0/(m²K²x²)), x = −ln(1 − N/K + (N/K)e^(−ε/T)), α0 = 2ρK/N
    + ρ, α1 = 1 + 2ρB/μ + 2ρB√K/(μN); undefined (nan) for ε/T ≥ −ln(1 − K/N). "rederived": see the module.
    """
    count(T=T, m=m, d=d)
    positive(C=C, epsilon=epsilon)
    nonnegative(Theta=Theta, beta=beta)
    one_of("reading", reading, ("printed", "rederived"))
    shrink = sampled_contraction(rho=rho, B=B, mu=mu, l=l, K=K, N=N, reading=reading)
    if reading == "rederived":
        return _rederived(T, N, K, m, C, epsilon, delta, L, d, Theta, rho, beta, l, shrink)
    budget = _round_budget(T, N, K, epsilon)
    if math.isnan(budget):
        return Bound(
            math.nan,
            (
                *shrink.remarks,
                f"b is undefined: ε/T = {epsilon / T:.3g} is at least −ln(1 − K/N) (the uploads' noise suffices).",
            ),
        )
    Q, unit = shrink.value, noise_constant(delta) * C / (m * K * budget)
    alpha_0 = 2 * rho * K / N + rho
    alpha_1 = 1 + 2 * rho * B / mu + 2 * rho * B * math.sqrt(K) / (mu * N)
    noise = unit * alpha_1 * beta * math.sqrt(2 / math.pi) + unit**2 * alpha_0
    value = power(Q, T) * Theta + geometric_sum(Q, T) * noise
    return Bound(value, merged(shrink.remarks, remarks((1 <= epsilon / T < math.inf, _CLASSICAL))))


def optimal_rounds(
    *, max_rounds: int, K: int | None = None, reading: str = "printed", **constants: float
) -> Recommendation:
    """T* by a scan of T = 1 … max_rounds of `convergence`, or with K of `sampled_convergence`.

    `constants` are the other arguments. The paper promises an optimum after Theorem 2; it needs λ2 < 0 (μ > ρB(1 +
    B/2)), since otherwise every further round only adds.
    """
    count(max_rounds=max_rounds)

    def at(T: float) -> Bound:
        if K is None:
            return convergence(T=int(T), reading=reading, **constants)  # type: ignore[arg-type]
        return sampled_convergence(T=int(T), K=K, reading=reading, **constants)  # type: ignore[arg-type]

    return recommend("rounds T", at, range(int(constants.get("L", 1)), max_rounds + 1))


def optimal_participants(*, N: int, reading: str = "printed", **constants: float) -> Recommendation:
    """K* by a scan of K = 1 … N of `sampled_convergence`; `constants` are the other arguments."""
    count(N=N)

    def at(K: float) -> Bound:
        return sampled_convergence(K=int(K), N=N, reading=reading, **constants)  # type: ignore[arg-type]

    found = recommend("participants K", at, range(1, N + 1))
    undefined = sum(math.isnan(value) for _, value in found.curve)
    skipped = remarks(
        (undefined > 0, f"Theorem 3 is undefined for {undefined} of the {N} values of K, where ε/T ≥ −ln(1 − K/N).")
    )
    return Recommendation(found.what, found.value, found.curve, merged(skipped, found.remarks))


def recommend_rounds(
    *,
    epsilon: float,
    delta: float,
    clip: float,
    samples: int,
    clients: int,
    participants: int | None = None,
    proximal: float = 3.0,
    exposures: int = 1,
    dimension: int = 1,
    max_rounds: int = 200,
    smoothness: float = 1.0,
    pl: float = 0.1,
    dissimilarity: float = 1.0,
    lipschitz: float = 1.0,
    initial_gap: float = math.log(10),
) -> Recommendation:
    """T* of the reading "rederived"; a remark gives the T* of the printed theorem and of its published correction.

    clip C in parameter units, samples m at the smallest client, proximal μ, exposures L, dimension d. `participants`
    None: all clients.
    """
    constants = dict(
        epsilon=epsilon,
        delta=delta,
        N=clients,
        m=samples,
        C=clip,
        Theta=initial_gap,
        rho=smoothness,
        B=dissimilarity,
        mu=proximal,
        l=pl,
        beta=lipschitz,
        L=exposures,
        d=dimension,
    )
    K = None if participants in (None, clients) else participants
    found = optimal_rounds(max_rounds=max_rounds, K=K, reading="rederived", **constants)
    others = ("printed",) if K else ("printed", "talaei")
    rest = "; ".join(
        f"{r}: {optimal_rounds(max_rounds=max_rounds, K=K, reading=r, **constants).value:g}" for r in others
    )
    notes = (
        assumed(
            smoothness=smoothness, pl=pl, dissimilarity=dissimilarity, lipschitz=lipschitz, initial_gap=initial_gap
        ),
        f"T* of the other readings of Theorem {3 if K else 2}: {rest}.",
    )
    return Recommendation(found.what, found.value, found.curve, merged(notes, found.remarks))


def recommend_participants(
    *,
    epsilon: float,
    delta: float,
    clip: float,
    samples: int,
    clients: int,
    rounds: int,
    proximal: float = 3.0,
    exposures: int = 1,
    dimension: int = 1,
    smoothness: float = 1.0,
    pl: float = 0.1,
    dissimilarity: float = 1.0,
    lipschitz: float = 1.0,
    initial_gap: float = math.log(10),
) -> Recommendation:
    """K* of the reading "rederived" after `rounds` = T rounds; a remark gives the printed theorem's."""
    constants = dict(
        T=rounds,
        epsilon=epsilon,
        delta=delta,
        m=samples,
        C=clip,
        Theta=initial_gap,
        rho=smoothness,
        B=dissimilarity,
        mu=proximal,
        l=pl,
        beta=lipschitz,
        L=exposures,
        d=dimension,
    )
    found = optimal_participants(N=clients, reading="rederived", **constants)
    printed = optimal_participants(N=clients, reading="printed", **constants)
    notes = (
        assumed(
            smoothness=smoothness, pl=pl, dissimilarity=dissimilarity, lipschitz=lipschitz, initial_gap=initial_gap
        ),
        f"K* of Theorem 3 as printed: {printed.value:g}.",
        *(note for note in printed.remarks if note.startswith("Theorem 3 is undefined")),
    )
    return Recommendation(found.what, found.value, found.curve, merged(notes, found.remarks))


_DISSIMILARITY = "The dissimilarity B = {:g} is below 1, impossible by Jensen's inequality."
_CLASSICAL = (
    "An ε of 1 or more a release lies outside the proof of the classical Gaussian mechanism behind c = √(2 ln(1.25/δ))."
)


def _on_constants(rho: float, B: float, low: float) -> tuple[tuple[bool, str], ...]:
    return (
        (B < 1, _DISSIMILARITY.format(B)),
        (
            low >= 0,
            (
                f"λ2 = {low:.4g} is not negative: no number of rounds is best (needs μ > ρB(1 + B/2) = "
                f"{rho * B * (1 + B / 2):g})."
            ),
        ),
    )


def _on_pl(l: float, rho: float, factor: float) -> tuple[tuple[bool, str], ...]:
    return (
        (l > rho, f"A PL constant {l:g} above the smoothness {rho:g} is impossible."),
        (factor < 0, f"The contraction factor {factor:.4g} is negative: its powers alternate in sign."),
    )


def _round_budget(T: int, N: int, K: int, epsilon: float) -> float:
    """bε/T = −ln(1 − N/K + (N/K)e^(−ε/T)), the ε that Lemma 5 spends a round; nan where undefined."""
    if K == N:
        return epsilon / T
    rest = 1 + N / K * math.expm1(-epsilon / T)
    return -math.log(rest) if rest > 0 else math.nan


def _rederived(
    T: int,
    N: int,
    K: int,
    m: int,
    C: float,
    epsilon: float,
    delta: float,
    L: int,
    d: int,
    Theta: float,
    rho: float,
    beta: float,
    l: float,
    shrink: Bound,
) -> Bound:
    noise = aggregate_noise_std(T=T, N=N, K=K, m=m, C=C, epsilon=epsilon, delta=delta, L=L)
    energy = rho / 2 * d * noise.value**2
    factor = shrink.value
    if factor < 1:
        factor = max(factor, 0.0)  # x_{t+1} ≤ P·x_t + a with P < 0 and x_t ≥ 0 is x_{t+1} ≤ a
        value = power(factor, T) * Theta + energy * geometric_sum(factor, T)
    else:
        value = Theta + T * ((factor - 1) / (2 * l) * beta**2 + energy)
    return Bound(value, merged(shrink.remarks, noise.remarks))
