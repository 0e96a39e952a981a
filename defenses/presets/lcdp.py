"""Local and central DP together, with sparse updates and momentum (THESIS 3.2, Alg. 3.1, eq. 3.1-3.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from pydantic import Field

from ..aggregate import Mean
from ..claims import moments_epsilon
from ..local import LocalTraining
from ..scheme import Claim, Scheme, Step
from ..steps.clip import ClipReceived, OwnNorm
from ..steps.momentum import Momentum
from ..steps.perturb import Perturb
from ..steps.side import WithNorm
from ..steps.sparsify import TopK
from ..terms import Observer
from .base import Population, Preset, update_rule
from .thesis import ThesisParameters

Spent = Callable[[int, float], float]  # (rounds, δ) -> ε


class LcdpParameters(ThesisParameters):
    """sigma_cdp = 0 is the paper's LDP-only run, without central clip or noise."""

    sigma_ldp: float = Field(
        default=8.0, gt=0, description="a client's σ: noise_std = σ·S/n, S the norm of its sparse update, n its records"
    )
    sigma_cdp: float = Field(
        default=1.18, ge=0, description="the server's σ: noise_std = σ·S, S the median of those norms"
    )
    top: float = Field(default=0.1, gt=0, le=1, description="share of an update's components that is sent")
    beta: float = Field(default=0.5, ge=0, lt=1, description="β, momentum of clients and server")
    noise: Literal["before_momentum", "after_momentum"] = Field(
        default="before_momentum",
        description='the server\'s: "before_momentum" (3.3, 3.6) or "after_momentum" (Alg. 3.1)',
    )
    ldp_epsilon: float | None = Field(
        default=None, gt=0, description="ε that ends the run, local; none where it is not given"
    )
    ldp_delta: float = Field(default=1e-6, gt=0, lt=1, description="δ of it")
    cdp_epsilon: float | None = Field(
        default=None, gt=0, description="ε that ends the run, central; none where it is not given"
    )
    cdp_delta: float = Field(default=1e-3, gt=0, lt=1, description="δ of it")


def build(parameters: LcdpParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clients: top-k of the update by magnitude, N(0, (S_iσ)²) with S_i = ‖sparse update‖/n_i, the norm sent along in
    the clear. Server: clip to the median S of those norms, mean weighted by n_i, N(0, (Sσ)²) (3.3 literally), momentum
    V ← βV + (1−β)·mean, W ← W + V.

    Readings: only the kept components are sent, so only they get noise. The norm sent is that of the un-noised update,
    as (3.5) has it. The two accountants stop the run when the first is spent (the printed test in line 4 is inverted):
    moments 1 to 32; LDP with q = 1/M and all clients' releases summed, which gives the published 52 rounds (σ = 8,
    50 of 100 clients, (0.5, 1e-6)) exactly; CDP with q = m/M. The server's learning rate γ of (3.7) is 1 as in Alg.
    3.1.
    The local training prescribed: momentum as a running mean of gradients, i.e. torch's with momentum β and lr·(1 − β).
    Assumes that S_i, S and the components kept are public, and Poisson samples of rates 1/M and m/M.
    Claim: CDP towards the downlink, or LDP towards the server in the LDP-only run.
    Provable: nothing. No update is bounded, and the noise's scale, the support and the norm reveal it; with noise after
    the momentum each round's release carries all earlier rounds too.

    THESIS table 3.1, LDP-only: σ = 8 and 50 of 100 clients spend (0.5, 1e-6) in 52 rounds.

    >>> local_only = LcdpParameters(sigma_cdp=0, ldp_epsilon=0.5, participants=50, rounds=200)
    >>> PRESET.scheme(local_only, LocalTraining(), Population((600,) * 100)).schedule.rounds
    52
    """
    clients, cohort = population.clients, parameters.participants or population.clients

    def ldp(rounds: int, delta: float) -> float:
        return moments_epsilon(1 / clients, parameters.sigma_ldp, rounds * cohort, delta)

    def cdp(rounds: int, delta: float) -> float:
        return moments_epsilon(cohort / clients, parameters.sigma_cdp, rounds, delta)

    rounds = _rounds_within(parameters, ldp, cdp)
    central = Perturb(noise_multiplier=parameters.sigma_cdp)
    steps: tuple[Step, ...] = (central, Momentum(parameters.beta))
    if parameters.noise == "after_momentum":
        steps = (Momentum(parameters.beta), central)
    claim = Claim(cdp, "THESIS 3.2: moments accountant with q = m/M", observer=Observer("downlink"), counts="rounds")
    if parameters.sigma_cdp == 0:
        steps = (Momentum(parameters.beta),)
        claim = Claim(
            ldp,
            "THESIS 3.2: moments accountant with q = 1/M over the releases of all cohorts",
            unit="record",
            counts="rounds",
        )
    return Scheme(
        name="lcdp",
        source=PRESET.source,
        local=replace(local, optimiser="momentum", momentum=parameters.beta, lr=local.lr * (1 - parameters.beta)),
        client=(
            TopK(parameters.top),
            OwnNorm(),
            WithNorm(Perturb(noise_multiplier=parameters.sigma_ldp, divided_by="records")),
        ),
        gather=(ClipReceived(),) if parameters.sigma_cdp > 0 else (),
        aggregate=Mean(weighted=True),
        server=steps,
        update=update_rule("update", local),
        schedule=parameters.schedule(at_most=rounds),
        participation=parameters.participation(population),
        claim=claim,
        min_clients=cohort,
    )


def _rounds_within(parameters: LcdpParameters, ldp: Spent, cdp: Spent) -> int:
    """How many rounds both accountants allow. Raises ValueError if it is none."""
    checks = [(ldp, parameters.ldp_epsilon, parameters.ldp_delta, "ldp_epsilon")]
    if parameters.sigma_cdp > 0:
        checks.append((cdp, parameters.cdp_epsilon, parameters.cdp_delta, "cdp_epsilon"))
    rounds = parameters.rounds
    for spent, budget, delta, name in checks:
        if budget is not None:
            rounds = next((t for t in range(rounds) if spent(t + 1, delta) > budget), rounds)
            if rounds == 0:
                raise ValueError(
                    f"{name} = {budget:g}: the first round already spends {spent(1, delta):.3g}; raise the budget or σ"
                )
    return rounds


PRESET = Preset(
    name="lcdp",
    title="Local and central DP with top-k updates, momentum on both sides and two accountants",
    source="Weng 2025 (THESIS) 3.2, Alg. 3.1, eq. 3.1-3.7",
    parameters=LcdpParameters,
    build=build,
    needs="σ_ldp, σ_cdp, the share of components sent, momentum β, and two budgets if it is to stop",
    claimed_unit="client (zero_out) towards the downlink; LDP-only: record towards the server",
    provable="no",
    why="nothing: no update is bounded, and the noise scale, the support and the norms sent reveal it",
    shares=("update",),
)
