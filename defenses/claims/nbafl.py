"""NbAFL's noise and what it claims (NBA: Wei et al., arXiv:1911.00222, Theorem 1 and Lemma 5; the formulas re-derived).

C clips a client's weights, m is the smallest client's record count, and the paper's sensitivity is Δ = 2C/m, which is
disputed (arXiv:2406.05858) and which a clip of the whole vector does not give.
"""

from __future__ import annotations

from math import expm1, inf, log, log1p, sqrt


def nbafl_uplink_std(*, epsilon: float, delta: float, clip: float, records: int, exposures: int) -> float:
    """σ_U = cLΔ/ε, Δ = 2C/m: the noise a client adds when L of its uploads may be caught, in parameter units.

    Args:
        epsilon, delta: over the uploads caught. clip: C, on the weights. records: m of a client. exposures: L.

    >>> round(nbafl_uplink_std(epsilon=50, delta=0.01, clip=1.0, records=1000, exposures=25), 6)
    0.003108
    """
    return _c(delta) * exposures * 2 * clip / (records * epsilon)


def nbafl_epsilon(*, noise_std: float, delta: float, clip: float, records: int, exposures: int) -> float:
    """ε = cLΔ/σ, Δ = 2C/m: what noise of that standard deviation claims, linear in the uploads caught.

    Args:
        noise_std: σ, in parameter units. delta, clip, records, exposures: as for `nbafl_uplink_std`.

    >>> std = nbafl_uplink_std(epsilon=50, delta=0.01, clip=1.0, records=1000, exposures=25)
    >>> round(nbafl_epsilon(noise_std=std, delta=0.01, clip=1.0, records=1000, exposures=25), 9)
    50.0
    """
    return _c(delta) * exposures * 2 * clip / (records * noise_std)


def nbafl_downlink_std(
    *,
    epsilon: float,
    delta: float,
    clip: float,
    records: int,
    exposures: int,
    rounds: int,
    clients: int,
    cohort: int | None = None,
) -> float:
    """σ_D, the noise the server adds before a broadcast beyond what the uploads bring; 0 where they bring enough.

    All N clients (Theorem 1): 2cC√(T² − L²N)/(mNε) if T > L√N, else 0.
    K of N (Lemma 5): 0 unless T > ε/γ, γ = −ln(1 − K/N + (K/N)e^(−ε/(L√K))); then 2cC√(T²/b² − L²K)/(mKε) with
    b = −(T/ε)ln(1 − N/K + (N/K)e^(−ε/T)). The test comes first: b is undefined where ε/T ≥ −ln(1 − K/N).

    Args:
        epsilon, delta: the target.
        clip: C, of a client's weights.
        records: m, of the smallest client.
        exposures: L, how many uploads of a client may be caught.
        rounds: T.
        clients: N.
        cohort: K, None for all clients.

    Raises:
        ValueError: a cohort of more than all clients.

    >>> setting = dict(delta=0.01, clip=1.0, records=1000, rounds=25, clients=50)
    >>> f"{nbafl_downlink_std(epsilon=50, exposures=1, **setting):.3e}"
    '5.961e-05'
    >>> f"{nbafl_downlink_std(epsilon=5, exposures=1, cohort=20, **setting):.3e}"
    '4.333e-04'
    """
    k = clients if cohort is None else cohort
    if not 1 <= k <= clients:
        raise ValueError(f"cohort is {k}; it must be from 1 to the {clients} clients")
    b = 1.0
    if k < clients:
        gamma = -log1p(k / clients * expm1(-epsilon / (exposures * sqrt(k))))
        if rounds <= epsilon / gamma:
            return 0.0
        b = -rounds / epsilon * log1p(clients / k * expm1(-epsilon / rounds))
    beyond = (rounds / b) ** 2 - exposures**2 * k
    return 2 * _c(delta) * clip * sqrt(max(0.0, beyond)) / (records * k * epsilon)


def nbafl_round_budgets(epsilon: float, rounds: int, clients: int, cohort: int) -> tuple[float, float]:
    """(used, sound): the ε a round that Lemma 5 spends on a client, and what sampling K of N really allows.

    Lemma 5 inverts the weaker direction of amplification, −ln(1 − N/K + (N/K)e^(−ε/T)); sound is ln(1 + (e^(ε/T) −
    1)N/K). Infinite where the first is undefined.

    >>> [round(e, 3) for e in nbafl_round_budgets(5, 25, 50, 20)]
    [0.604, 0.441]
    """
    inside = clients / cohort * expm1(-epsilon / rounds)
    used = -log1p(inside) if inside > -1 else inf
    return used, log1p(clients / cohort * expm1(epsilon / rounds))


def _c(delta: float) -> float:
    """c = √(2 ln(1.25/δ)), the constant of the Gaussian mechanism."""
    return sqrt(2 * log(1.25 / delta))
