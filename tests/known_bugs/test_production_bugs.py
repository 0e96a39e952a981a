"""Bugs of production mechanisms: what the ledger proves of them, and what shows in their output, tells them from their
correct twins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.proven.target import build
from dpfl_audit.audit.record.flower.defects import moved_the_wrong_way, noise_of_the_next_bound
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.audit.worlds.function import audit_mechanism
from dpfl_audit.defenses.banded import banded_optimum, prefix_error
from dpfl_audit.defenses.federation import run_many
from dpfl_audit.defenses.scheme import Context
from dpfl_audit.defenses.steps.perturb import release
from dpfl_audit.defenses.steps.quantile import PerturbQuantile
from dpfl_audit.defenses.strategies import BandMF, decoder_of
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.wire import SERVER, Message, Parcel, Wire
from tiers import quick
from torch import Tensor

DELTA = 1e-5


@dataclass(frozen=True)
class RowsOfNorm1(BandMF):
    """pfl's factorisation: numpy's Cholesky factor of the best X = CᵀC, whose rows have norm 1 and not its columns."""

    @cached_property
    def matrix(self) -> np.ndarray:
        best = banded_optimum(self.rounds, self.bands)
        return np.linalg.cholesky(best.T @ best)


def experiment(name: str, clients: int, **scheme) -> Experiment:
    raw = {
        "data": {"name": "digits", "clients": clients, "samples_per_client": 7},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 1.0, "epochs": 5},
        "scheme": {"name": name, **scheme},
    }
    return build(parse_config(raw), Path())


def proven(made: Experiment) -> float:
    (row,) = rows(planned_ledger(made), None, DELTA, [Observer("downlink")], ["client"], ["zero_out"])
    return row.proven


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("n", "b", "sensitivity", "error"), [(16, 4, 2.263, 60.5), (32, 8, 2.528, 174), (100, 10, 3.866, 1345)]
)
def test_a_factorisation_normalised_by_rows_is_proven_for_what_it_is(n, b, sensitivity, error):
    """comparators.md 8b: true sensitivities against the claimed √k = 2, 2, √10, and errors above the optimum's."""
    right = experiment("band-mf", b, rounds=n, participants=1, noise_multiplier=1.0)
    (step,) = right.scheme.server
    bug = replace(step, correlated=replace(step.correlated, strategy=RowsOfNorm1(n, b)))
    wrong = replace(right, scheme=replace(right.scheme, server=(bug,)))
    claim, k = gaussian_epsilon(1.0, DELTA), -(-n // b)
    assert proven(right) == pytest.approx(claim, rel=1e-6)
    assert proven(wrong) == pytest.approx(gaussian_epsilon(sqrt(k) / sensitivity, DELTA), rel=1e-3)
    assert proven(wrong) > 1.1 * claim
    assert prefix_error(bug.correlated.strategy.matrix) == pytest.approx(error, rel=2e-3)


@pytest.mark.parametrize("bug", quick([False, True], 1))
def test_a_factorisation_normalised_by_rows_shows_in_the_sequence(bug):
    """One participation in round 0 of 12, in the increments decorrelated: μ is 1.6 instead of 1."""
    n, dim, std = 12, 4, 1.0
    strategy = RowsOfNorm1(n, n) if bug else BandMF(n, n)
    decoder = decoder_of(strategy)
    white = torch.from_numpy(np.linalg.inv(np.linalg.cholesky(decoder @ decoder.T)))
    mixed = white @ torch.from_numpy(decoder)  # increments, decorrelated

    def noiseless(world: bool) -> Tensor:
        increments = torch.zeros(n, dim, dtype=torch.float64)
        increments[0, 0] = float(world)
        return (white @ increments).flatten()

    def update(world: bool, seed: int) -> Tensor:
        z = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * std
        return noiseless(world) + (mixed @ z).flatten()

    claim = gaussian_epsilon(1.0, DELTA)
    shown = audit_mechanism(update, delta=DELTA, noiseless=noiseless, draws=800, gaussian=True).if_gaussian
    assert shown is not None and shown.ceiling > claim
    assert (shown.epsilon > claim) == bug


@dataclass(frozen=True)
class FlowersQuantile(PerturbQuantile):
    """Flower 1.41: C·exp(−η(share clipped − γ)), and the noise is that of the next bound."""

    def __call__(self, parcel: Parcel, context: Context) -> Parcel:
        norm, below = parcel.clip_norm, context.memory.pop("within")
        moved = norm * exp(-self.lr * (0.5 - below / self.cohort - self.quantile))
        made = release(parcel, self.noise_multiplier * moved / self.cohort, "gaussian", context)
        return replace(made, side={"clip_norm": moved})


def path(made: Experiment) -> list[float]:
    """C_0, C_1, … as broadcasts tell them."""
    norms = [made.parameters.clip]

    def hear(message: Message) -> None:
        if message.sender_party == SERVER and message.side:
            norms.append(message.side["clip_norm"])

    run_many([made.federation(Wire(hear))])
    return norms


def flowers(made: Experiment) -> Experiment:
    """The same with its adaptive clip."""
    first, *rest = made.scheme.server
    changed = FlowersQuantile(first.noise_multiplier, first.count_std, first.cohort, first.quantile, first.lr)
    return replace(made, scheme=replace(made.scheme, server=(changed, *rest)))


@pytest.mark.parametrize(("clip", "clipped"), [(1e-3, 100), (1e3, 0)])
def test_an_adaptive_clip_that_moves_the_wrong_way_runs_away(clip, clipped):
    """100 clients, five rounds: all updates far above C, C falls to .61 of it; all far below, it grows to 1.65."""
    right = experiment("adaptive-clip", 100, rounds=5, clip=clip, noise_multiplier=0.5)
    wrong = path(flowers(right))
    assert wrong[-1] / clip == pytest.approx(exp(-0.5 if clipped else 0.5), rel=1e-6)
    for before, after in zip(wrong, wrong[1:]):
        assert moved_the_wrong_way(clipped, 100, before, after, 0.5) is not None
        assert (noise_of_the_next_bound(before, after) is not None) == (clipped > 0)
    good = path(right)
    assert not any(moved_the_wrong_way(clipped, 100, a, b, 0.5) for a, b in zip(good, good[1:]))


def test_noise_of_a_bound_that_moved_the_wrong_way_is_proven_for_what_it_is():
    """The plan's updates are 0, which clip nothing, and the share clipped is ½; a training's are longer than C."""
    right = experiment("adaptive-clip", 20, rounds=3, clip=1e-3, noise_multiplier=1.0, count_std=1e3)
    claim = gaussian_epsilon(1 / sqrt(3), DELTA)
    assert proven(right) == pytest.approx(claim, rel=1e-5)
    ratios = []
    for made in (right, flowers(right)):
        seen: dict[str, float] = {}

        def hear(message: Message, seen: dict[str, float] = seen) -> None:
            for version in message.inherits:
                seen.update({r.id: r.ratio for r in version.mentioned if r.mechanism == "gaussian"})

        run_many([made.federation(Wire(hear))])
        ratios.append(sorted(seen.values()))
    assert ratios[0] == pytest.approx([1.0] * 3, rel=1e-5)  # bound over noise, the count included
    assert ratios[1] == pytest.approx([exp(0.1)] * 3, rel=1e-5)  # noise of e^(−.1) of the bound that was clipped to
