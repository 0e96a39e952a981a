"""Tuning iteration times: convergence of DP-FedAvg and the best number of local steps (ITER: Fu et al., Theorems 3-5,
Corollaries 1.1, 2.1, 5.1).

Letters as in the paper: E local iterations a round, T_g rounds, T = E·T_g iterations, N clients of which b take part
(round robin), so each in T_l = bT_g/N rounds; λ (`lam`) smoothness, μ (`mu`) strong convexity, G a bound on the
gradient's norm, Γ (`Gamma`) the degree of non-IID, p parameters, ξ (`xi`) the bound on a clipped gradient (L1 for
Laplace, L2 for Gaussian), Y the expected squared distance to the optimum (parameter units squared). z is the power of
T_g in the noise variance: 2 for Laplace, 1 for Gaussian. ε = inf means no noise.
"""

from __future__ import annotations

import math

from .bound import (
    Bound,
    Recommendation,
    assumed,
    at_most,
    count,
    merged,
    nonnegative,
    one_of,
    positive,
    probability,
    recommend,
    remarks,
)

POWER_OF_ROUNDS = {"laplace": 2.0, "gaussian": 1.0}
"""z of Definition 2 by mechanism."""


def noise_variance(
    *,
    mechanism: str,
    p: int,
    b: int,
    N: int,
    T_g: float,
    n: float,
    n_bar2: float,
    Xi: float,
    epsilon: float,
    delta: float | None = None,
    c2: float = math.sqrt(2),
    reading: str = "printed",
) -> Bound:
    """E‖w_t^b‖², the variance of the noise on the aggregate (Corollaries 1.1 and 2.1), parameter units squared.

    Laplace 2pbΞ²T_g²n̄²/(n²ε²), Gaussian 2pc2²N ln(1/δ)Ξ²T_gn̄²/(n²ε²), n = Σ n_l, n̄² (`n_bar2`) the mean of n_l². The
    proof of the Gaussian one gives each component the variance 2σ² of a Laplace draw of scale σ: it is twice too big
    (reading "corrected" drops the 2). c2 is never stated in the paper.
    """
    count(p=p, b=b, N=N)
    positive(T_g=T_g, n=n, n_bar2=n_bar2, epsilon=epsilon)
    nonnegative(Xi=Xi)
    at_most("b", b, "N", N)
    shares = n_bar2 / n**2
    if _is_laplace(mechanism, reading):
        return Bound(2 * p * b * (Xi * T_g / epsilon) ** 2 * shares, _on_rounds(b, N, T_g))
    logarithm = _log_inverse(delta)
    positive(c2=c2)
    twice = 2 if reading == "printed" else 1
    value = twice * p * c2**2 * N * logarithm * Xi**2 * T_g * shares / epsilon**2
    return Bound(value, merged(_on_rounds(b, N, T_g), remarks((reading == "printed", _TWICE))))


def noise_weight(
    *,
    mechanism: str,
    p: int,
    b: int,
    N: int,
    xi: float,
    epsilon: float,
    delta: float | None = None,
    c2: float = math.sqrt(2),
    reading: str = "printed",
) -> Bound:
    """C_M of Theorem 3 for clients of equal size: 8pbξ²/(N²ε²) (Laplace), 8pc2² ln(1/δ)ξ²/(Nε²) (Gaussian; 4 instead of
    8 if "corrected").

    The variance of Corollary 1.1 or 2.1 is at most η_k²·C_M·E²·T_g^z.
    """
    count(p=p, b=b, N=N)
    positive(epsilon=epsilon)
    nonnegative(xi=xi)
    at_most("b", b, "N", N)
    if _is_laplace(mechanism, reading):
        return Bound(8 * p * b * (xi / (N * epsilon)) ** 2)
    logarithm = _log_inverse(delta)
    positive(c2=c2)
    eight = 8 if reading == "printed" else 4
    value = eight * p * c2**2 * logarithm * (xi / epsilon) ** 2 / N
    return Bound(value, remarks((reading == "printed", _TWICE)))


def noise_free_weight(*, lam: float, Gamma: float, E: float, G: float, N: int, b: int) -> Bound:
    """ω0 = 6λΓ + 8(E−1)²G² + 4E²G²(N−b)/((N−1)b) of Theorem 3: non-IID data, local drift, client sampling."""
    positive(lam=lam, E=E)
    nonnegative(G=G)
    count(N=N, b=b)
    at_most("b", b, "N", N)
    sampling = 0.0 if b == N else 4 * (E * G) ** 2 * (N - b) / ((N - 1) * b)
    return Bound(
        6 * lam * Gamma + 8 * ((E - 1) * G) ** 2 + sampling,
        remarks(
            (Gamma < 0, f"The degree of non-IID Γ = {Gamma:g} is negative, impossible by its definition."),
            (b < N, "Lemma 1 averages over uniformly drawn clients, but the scheme takes them round robin."),
        ),
    )


def convergence(
    *,
    k: int,
    E: int,
    T_g: float,
    z: float,
    C_M: float,
    lam: float,
    mu: float,
    Gamma: float,
    G: float,
    N: int,
    b: int,
    Y_0: float,
) -> Bound:
    """Theorem 3: Y_k ≤ (4ω0/μ² + γY_0)/(k + γ) + (4/μ²)·t·C_M E²T_g^z/(k + γ − 1)², γ = max(8λ/μ, E), t = ⌊k/E⌋, after
    k iterations.

    >>> convergence(k=10, E=1, T_g=10, z=2, C_M=0.0, lam=1.0, mu=1.0, Gamma=0.0, G=0.0, N=5, b=5, Y_0=9.0).value
    4.0
    """
    count(k=k, E=E)
    positive(T_g=T_g, mu=mu)
    nonnegative(z=z, C_M=C_M, Y_0=Y_0)
    free = noise_free_weight(lam=lam, Gamma=Gamma, E=E, G=G, N=N, b=b)
    gamma = max(8 * lam / mu, E)
    t = k // E
    value = (4 * free.value / mu**2 + gamma * Y_0) / (k + gamma)
    value += 4 / mu**2 * t * C_M * E**2 * T_g**z / (k + gamma - 1) ** 2
    return Bound(
        value,
        merged(
            free.remarks,
            _on_rounds(b, N, T_g),
            remarks(
                (lam < mu, f"A smoothness {lam:g} below the strong convexity {mu:g} is impossible."),
                (k > E * T_g, f"k = {k} iterations are more than the E·T_g = {E * T_g:g} that the noise was made for."),
                (z > 2, f"z = {z:g} exceeds 2, more than linear composition costs (Definition 2)."),
            ),
        ),
    )


def asymptotic(*, T: float, E: float, z: float, first: float = 1.0, second: float = 1.0) -> Bound:
    """(4): first·E²/T + second·E^(1−z)·T^(z−1), the two orders of Y_T with constants the paper leaves out (both 1)."""
    positive(T=T, E=E, first=first, second=second)
    nonnegative(z=z)
    value = first * E**2 / T + second * E ** (1 - z) * T ** (z - 1)
    return Bound(
        value,
        remarks(
            (E > T, f"E = {E:g} local iterations exceed the total T = {T:g}."),
            (
                1 < z < 2,
                f"For z = {z:g} Y_T is not convex in T (its second term is concave), as Corollary 5.1 says it is.",
            ),
        ),
    )


def order_of_local_steps(*, T: float, z: float) -> Bound:
    """T^(z/(z+1)), the E* of Theorem 4 (z < 1) and Theorem 5 (z ≥ 1), up to a constant the paper leaves open.

    >>> order_of_local_steps(T=1000, z=2).value   # Laplace: T^(2/3)
    100.0
    """
    positive(T=T)
    nonnegative(z=z)
    value = T ** (z / (z + 1))
    rounded = round(value)
    value = float(rounded) if math.isclose(value, rounded, rel_tol=1e-12) else value
    return Bound(
        value,
        remarks(
            (
                z < 1,
                (
                    f"For z = {z:g} < 1 (4) grows with E, so E = 1 beats Theorem 4: T^{z - 1:.3g} against "
                    f"T^{(z - 1) / (z + 1):.3g}."
                ),
            ),
            (
                z == 1,
                "For z = 1 (Gaussian) (4) has no interior minimum: every E up to √T gives O(1), the fewest is best.",
            ),
        ),
    )


def rate(*, z: float) -> Bound:
    """The exponent (z−1)/(z+1) of T in Y_T at that E (Theorems 4-5): negative converges, positive diverges."""
    nonnegative(z=z)
    return Bound(
        (z - 1) / (z + 1),
        remarks(
            (0 < z < 1, f"E = 1 reaches the better exponent {z - 1:.3g}."),
            (z > 1, "Y_T diverges (Theorem 5); the end of its proof prints the exponent z/(z+1) by mistake."),
        ),
    )


def optimal_local_steps(*, T: float, z: float, first: float = 1.0, second: float = 1.0) -> Bound:
    """The real E in [1, T] that minimises (4): (second(z−1)/(2·first))^(1/(z+1))·T^(z/(z+1)) for z > 1, else 1.

    The derivative is 2·first·E/T + (1−z)·second·E^(−z)T^(z−1); the paper sets an order of it to 0 without looking at
    the sign of 1 − z.
    """
    positive(T=T, first=first, second=second)
    nonnegative(z=z)
    if T < 1:
        raise ValueError(f"T must be at least 1, got {T}.")
    if z <= 1:
        return Bound(1.0, order_of_local_steps(T=T, z=z).remarks)
    inside = (second * (z - 1) / (2 * first)) ** (1 / (z + 1)) * T ** (z / (z + 1))
    value = min(max(inside, 1.0), T)
    return Bound(value, remarks((value != inside, f"The stationary point {inside:.4g} lies outside [1, T].")))


def optimal_iterations(*, E: float, z: float, first: float = 1.0, second: float = 1.0) -> Bound:
    """T* of Corollary 5.1 at a fixed E: (first·E^(z+1)/(second(z−1)))^(1/z) for z > 1, else inf (Y_T only falls)."""
    positive(E=E, first=first, second=second)
    nonnegative(z=z)
    if z <= 1:
        return Bound(math.inf, ("For z ≤ 1 more iterations never hurt the bound (4) at a fixed E.",))
    value = (first * E ** (z + 1) / (second * (z - 1))) ** (1 / z)
    return Bound(value, remarks((value < E, f"T* = {value:.4g} is less than one round of E = {E:g} iterations.")))


def recommend_local_steps(
    *,
    mechanism: str,
    epsilon: float,
    clip: float,
    clients: int,
    participants: int,
    dimension: int,
    total_steps: int,
    delta: float | None = None,
    c2: float = math.sqrt(2),
    smoothness: float = 1.0,
    convexity: float = 0.1,
    gradient_norm: float = 1.0,
    noniid: float = 0.1,
    initial_distance: float = 1.0,
) -> Recommendation:
    """E* of Theorem 3 at a fixed total of T = `total_steps` iterations.

    Scans the divisors E of T that leave every client at least one round (T/E ≥ N/b), as the paper's Fig. 5-6 do: below
    that the formula's noise is less than one round needs.

    clip ζ = ξ in gradient units, dimension p, initial_distance Y_0 = ‖θ_0 − θ*‖² in parameter units squared.
    """
    count(total_steps=total_steps)
    T = int(total_steps)
    weight = noise_weight(
        mechanism=mechanism, p=dimension, b=participants, N=clients, xi=clip, epsilon=epsilon, delta=delta, c2=c2
    )
    z = POWER_OF_ROUNDS[mechanism]

    def at(E: float) -> Bound:
        return convergence(
            k=T,
            E=int(E),
            T_g=T / E,
            z=z,
            C_M=weight.value,
            lam=smoothness,
            mu=convexity,
            Gamma=noniid,
            G=gradient_norm,
            N=clients,
            b=participants,
            Y_0=initial_distance,
        )

    if T * participants < clients:
        raise ValueError(f"total_steps must be at least clients/participants = {clients / participants:g}, got {T}.")
    settings = [E for E in range(1, T + 1) if T % E == 0 and T // E * participants >= clients]
    order = order_of_local_steps(T=T, z=z)
    notes = (
        assumed(
            smoothness=smoothness,
            convexity=convexity,
            gradient_norm=gradient_norm,
            noniid=noniid,
            initial_distance=initial_distance,
        ),
        f"Theorem {5 if z >= 1 else 4} asks for the order T^({z:g}/{z + 1:g}) = {order.value:.4g}.",
    )
    return recommend("local steps E", at, settings, merged(notes, order.remarks, weight.remarks))


def recommend_rounds(
    *,
    mechanism: str,
    epsilon: float,
    clip: float,
    clients: int,
    participants: int,
    dimension: int,
    local_steps: int = 1,
    delta: float | None = None,
    c2: float = math.sqrt(2),
    max_rounds: int = 500,
    smoothness: float = 1.0,
    convexity: float = 0.1,
    gradient_norm: float = 1.0,
    noniid: float = 0.1,
    initial_distance: float = 1.0,
) -> Recommendation:
    """T_g* of Theorem 3 at a fixed E = `local_steps`, by a scan from ⌈N/b⌉ to max_rounds; T* of Corollary 5.1 is
    E·T_g*.
    """
    count(max_rounds=max_rounds, local_steps=local_steps)
    weight = noise_weight(
        mechanism=mechanism, p=dimension, b=participants, N=clients, xi=clip, epsilon=epsilon, delta=delta, c2=c2
    )
    z = POWER_OF_ROUNDS[mechanism]

    def at(T_g: float) -> Bound:
        return convergence(
            k=int(T_g) * local_steps,
            E=local_steps,
            T_g=T_g,
            z=z,
            C_M=weight.value,
            lam=smoothness,
            mu=convexity,
            Gamma=noniid,
            G=gradient_norm,
            N=clients,
            b=participants,
            Y_0=initial_distance,
        )

    least = -(-clients // participants)
    if max_rounds < least:
        raise ValueError(f"max_rounds must be at least ⌈clients/participants⌉ = {least}, got {max_rounds}.")
    notes = (
        assumed(
            smoothness=smoothness,
            convexity=convexity,
            gradient_norm=gradient_norm,
            noniid=noniid,
            initial_distance=initial_distance,
        ),
        *remarks((z <= 1, "For z ≤ 1 the analysis has no best number of rounds (Corollary 5.1 needs z > 1).")),
    )
    return recommend("rounds T_g", at, range(least, max_rounds + 1), merged(notes, weight.remarks))


_TWICE = "Corollary 2.1 takes 2σ² for the variance of a Gaussian draw of std σ: twice too big."


def _is_laplace(mechanism: str, reading: str) -> bool:
    one_of("mechanism", mechanism, tuple(POWER_OF_ROUNDS))
    one_of("reading", reading, ("printed", "corrected"))
    return mechanism == "laplace"


def _log_inverse(delta: float | None) -> float:
    if delta is None:
        raise ValueError("delta must be given for the Gaussian mechanism, got None.")
    probability(delta=delta)
    return math.log(1 / delta)


def _on_rounds(b: int, N: int, T_g: float) -> tuple[str, ...]:
    own = b * T_g / N
    return remarks(
        (own < 1, f"T_l = bT_g/N = {own:.4g} < 1: the noise is then less than a single round of a client needs."),
        (
            own > 1 and not math.isclose(own, round(own)),
            f"T_l = bT_g/N = {own:.4g} is not whole: some clients take part in more rounds than their noise pays for.",
        ),
    )
