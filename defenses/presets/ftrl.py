"""Central DP without amplification, as production runs it: noise that is correlated over the rounds.

DP-FTRL by tree aggregation (Kairouz et al. 2021, arXiv:2103.00039), BandMF (Choquette-Choo et al. 2023,
arXiv:2306.08153) and BLT (Dvijotham et al. 2024, arXiv:2404.16706; McMahan et al. 2024, arXiv:2408.08868).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Literal

from pydantic import Field

from ..aggregate import FixedMean
from ..buffered import buffered_optimum
from ..local import LocalTraining
from ..participation import Separated
from ..schedule import FixedRounds
from ..scheme import Claim, Scheme
from ..steps.clip import Clip
from ..steps.perturb import CorrelatedDraw, PerturbCorrelated
from ..strategies import BLT, BandMF, NoiseStrategy, Tree
from ..terms import Observer
from ..update import AddWithMomentum
from .base import Parameters, Population, Preset


class CorrelatedParameters(Parameters):
    """What all have."""

    clip: float = Field(default=1.0, gt=0, description="C, L2 norm of an update, in parameter units")
    participants: int | None = Field(
        default=None, ge=1, description="m, clients a round; all where it is not given, then each is in every round"
    )
    separation: int | None = Field(
        default=None,
        ge=1,
        description="rounds from one participation of a client to its next, at least; the clients over m, rounded down",
    )
    server_lr: float = Field(default=1.0, gt=0, description="the server's learning rate on the noisy mean")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="the server's: V becomes momentum·V + the noisy mean")


class DpFtrlParameters(CorrelatedParameters):
    """arXiv:2103.00039, Alg. 1 and appendix B."""

    noise_multiplier: float = Field(
        default=4.0, gt=0, description="σ of a node over C: noise_std = σ·C/m of each node, on the mean"
    )
    restart: int | None = Field(
        default=None, ge=1, description="rounds after which a new tree begins; one tree where it is not given"
    )
    honaker: bool = Field(default=True, description="estimate a node from all noisy nodes below it too (Honaker)")


class BandMfParameters(CorrelatedParameters):
    """arXiv:2306.08153, section 3."""

    noise_multiplier: float = Field(
        default=1.0,
        gt=0,
        description="σ of the whole training: noise_std = σ·√k·C/m of white noise, k = rounds/separation, rounded up",
    )
    bands: int | None = Field(
        default=None, ge=1, description="b of the strategy matrix, at most the separation, which is the default"
    )


class BltParameters(CorrelatedParameters):
    """arXiv:2408.08868, section 3."""

    noise_multiplier: float = Field(
        default=1.0,
        gt=0,
        description="σ of the whole training: noise_std = σ·s·C/m of white noise, s that of rounds/separation turns",
    )
    buffers: int = Field(default=3, ge=1, le=10, description="d, vectors that the server keeps from round to round")
    error: Literal["mean", "max"] = Field(
        default="mean", description='of prefix sums: "mean" over all rounds, or "max", that of the last'
    )


def _participation(p: CorrelatedParameters, population: Population) -> tuple[int, Separated, int]:
    """m, who takes part, and in how many rounds at most. Raises ValueError where the clients are too few."""
    clients = population.clients
    cohort = p.participants or clients
    if cohort > clients:
        raise ValueError(f"participants = {cohort}: there are only {clients} clients")
    separation = p.separation or clients // cohort
    if clients // separation < cohort:
        raise ValueError(
            f"separation = {separation}: of {clients} clients {clients // separation} can take turns in a round then,"
            f" fewer than participants = {cohort}"
        )
    return cohort, Separated(cohort, separation), ceil(p.rounds / separation)


def _scheme(
    p: CorrelatedParameters,
    local: LocalTraining,
    population: Population,
    name: str,
    strategy: NoiseStrategy,
    noise_std: float,
    sentence: str,
) -> Scheme:
    cohort, participation, _ = _participation(p, population)
    return Scheme(
        name=name,
        source={"dp-ftrl": DP_FTRL, "band-mf": BAND_MF, "blt": BLT_PRESET}[name].source,
        local=local,
        client=(Clip(p.clip),),
        aggregate=FixedMean(cohort),
        server=(PerturbCorrelated(noise_std, CorrelatedDraw(strategy)),),
        update=AddWithMomentum(p.server_lr, p.momentum),
        schedule=FixedRounds(p.rounds),
        participation=participation,
        claim=Claim(None, sentence, Observer("downlink"), whose="accountant"),
    )


def build_dp_ftrl(parameters: DpFtrlParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clients clip their update to C; the server keeps noisy sums of their means in a binary tree over the rounds, each
    node with N(0, (σC/m)²), and adds lr times the prefix sum to the first model.

    Readings: the model moves by the increments, which is the same (with momentum too, section 3.1); a client's turn
    comes every separation rounds by its number, and all weigh the same. Trees restart without virtual steps.
    Assumes a server that is trusted with raw updates. Claim: what the accountant proves towards the downlink, whoever
    knows who takes part.
    Provable: nothing towards the server; the downlink is one Gaussian of sensitivity √ζ·C, ζ that of what the prefix
    sums show (its formula: Tree in strategies.py): below the paper's Σ over nodes of (how often a client is in it)².

    8 rounds in one tree: a round is in 4 nodes, and in at most 4 of the numbers that rounds show.

    >>> p = DpFtrlParameters(rounds=8, participants=10)
    >>> scheme = DP_FTRL.scheme(p, LocalTraining(), Population((60,) * 80))
    >>> [len(scheme.server[0].correlated.strategy.column(t)) for t in range(8)], scheme.server[0].noise_std
    ([4, 3, 3, 2, 3, 2, 2, 1], 0.4)
    """
    p = parameters
    tree = Tree(p.rounds, min(p.restart or p.rounds, p.rounds), p.honaker)
    noise_std = p.noise_multiplier * p.clip / _participation(p, population)[0]
    sentence = f"what it proves of trees of Gaussian noise of {p.noise_multiplier:g} times the clip norm on each node"
    return _scheme(p, local, population, "dp-ftrl", tree, noise_std, sentence)


def build_band_mf(parameters: BandMfParameters, local: LocalTraining, population: Population) -> Scheme:
    """Clients clip their update to C; the server adds row t of C⁻¹Z to the mean of round t, Z of std σ·√k·C/m, for the
    b-banded matrix C of the least error.

    Readings: flat clipping, all clients weigh the same; a client's turn comes every separation ≥ b rounds by its
    number.
    Assumes a server that is trusted with raw updates. Claim: what the accountant proves towards the downlink, whoever
    knows who takes part: one Gaussian of multiplier σ, without amplification.
    Provable: nothing towards the server; the downlink is one Gaussian of sensitivity √k·C.

    16 rounds, separation 4: k = 4 and σ = 2 make white noise of std 2·√4·C/10 on the mean of 10 clients, ε = 1.99309 at
    δ = 1e-5.

    >>> p = BandMfParameters(rounds=16, participants=10, noise_multiplier=2.0)
    >>> scheme = BAND_MF.scheme(p, LocalTraining(), Population((60,) * 40))
    >>> scheme.server[0].noise_std, scheme.server[0].correlated.strategy
    (0.4, BandMF(rounds=16, bands=4))
    """
    p = parameters
    cohort, participation, most = _participation(p, population)
    bands = p.bands or min(participation.separation, p.rounds)
    if bands > min(participation.separation, p.rounds):
        raise ValueError(
            f"bands = {bands}: must be at most the separation, {participation.separation}, and the rounds, {p.rounds};"
            " beyond it a client's participations add up"
        )
    noise_std = p.noise_multiplier * most**0.5 * p.clip / cohort
    sentence = f"what it proves of one Gaussian of multiplier {p.noise_multiplier:g} over all rounds"
    return _scheme(p, local, population, "band-mf", BandMF(p.rounds, bands), noise_std, sentence)


def build_blt(parameters: BltParameters, local: LocalTraining, population: Population) -> Scheme:
    """As `band-mf`, with the buffered linear Toeplitz matrix of the least error in the place of the banded one: the
    server keeps d vectors instead of the separation's number.

    Readings: flat clipping, all clients weigh the same; a client's turn comes every separation rounds by its number.
    Assumes a server that is trusted with raw updates. Claim: what the accountant proves towards the downlink, whoever
    knows who takes part: one Gaussian of multiplier σ, without amplification.
    Provable: nothing towards the server; the downlink is one Gaussian of the sensitivity of k turns, which add up.

    100,000 rounds, one turn each, least error of the last sum with 2 buffers: θ = .99995289 and .98570687 (a test of
    jax_privacy).

    >>> p = BltParameters(rounds=100_000, buffers=2, error="max", participants=1)
    >>> strategy = BLT_PRESET.scheme(p, LocalTraining(), Population((60,) * 100_000)).server[0].correlated.strategy
    >>> [round(decay, 8) for decay in strategy.decays]
    [0.99995289, 0.98570687]
    """
    p = parameters
    cohort, participation, most = _participation(p, population)
    apart = participation.separation
    best = buffered_optimum(p.rounds, p.buffers, min(apart, p.rounds), most, p.error)
    noise_std = p.noise_multiplier * best.sensitivity(p.rounds, apart, most) * p.clip / cohort
    sentence = f"what it proves of one Gaussian of multiplier {p.noise_multiplier:g} over all rounds"
    return _scheme(p, local, population, "blt", BLT(p.rounds, best.decays, best.scales), noise_std, sentence)


DP_FTRL = Preset(
    name="dp-ftrl",
    title="DP-FTRL: clipped updates, prefix sums by tree aggregation, no amplification needed",
    source="Kairouz et al. 2021, arXiv:2103.00039, Alg. 1, appendix B",
    parameters=DpFtrlParameters,
    build=build_dp_ftrl,
    needs="the clip C, σ of a node over C, and rounds between two participations of a client",
    claimed_unit="client (zero_out), towards the downlink: what is proven",
    provable="depends",
    why="server: nothing (raw updates); downlink: one Gaussian, by how often a client is in each node",
    shares=("update",),
    noise=("noise_multiplier",),
    group="production",
)
BAND_MF = replace(
    DP_FTRL,
    name="band-mf",
    title="BandMF: clipped updates, noise correlated over the rounds by the best banded matrix",
    source="Choquette-Choo et al. 2023, arXiv:2306.08153, section 3",
    parameters=BandMfParameters,
    build=build_band_mf,
    needs="the clip C, σ of the whole training, and rounds between two participations of a client",
    why="server: nothing (raw updates); downlink: one Gaussian of multiplier σ, all rounds together",
)
BLT_PRESET = replace(
    BAND_MF,
    name="blt",
    title="BLT: clipped updates, noise correlated over the rounds by a few buffers",
    source="Dvijotham et al. 2024, arXiv:2404.16706; McMahan et al. 2024, arXiv:2408.08868",
    parameters=BltParameters,
    build=build_blt,
)
