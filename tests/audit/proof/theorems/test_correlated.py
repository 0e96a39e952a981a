"""Correlated noise in the ledger: sensitivities under participation, published goldens, and that no round of a chain is
ever priced by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import isinf, sqrt

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems.correlated import chain_ratio, largest_sum
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.accounting import Exposure, proven
from dpfl_audit.audit.setup.ledger import release_of, release_row
from dpfl_audit.benchmarks.adversary.federation import noise_of_rounds
from dpfl_audit.defenses.releases import CorrelatedLaw, Sampling
from dpfl_audit.defenses.strategies import BandMF, NoiseStrategy, Tree
from stated import changed, stated, strategy_of

DELTA = 1e-5


def releases(
    strategy: NoiseStrategy | Nodes,
    std: float,
    rounds: range | None = None,
    separation: int = 1,
    most: int | None = None,
):
    """A chain's, about client 0, with bound 1."""
    made = []
    for t in rounds or range(strategy.rounds):
        law = CorrelatedLaw(std, "z", strategy.column(t), separation, most)
        made.append(stated(law, id=f"{t}", round=t))
    return made


@dataclass(frozen=True)
class Nodes:
    """A row for every complete node of one tree, whose noisy sums are all seen: what TF Privacy prices."""

    rounds: int

    def column(self, round: int) -> tuple[tuple[int, float], ...]:
        heights = range(self.rounds.bit_length())
        return tuple((h * self.rounds + (round >> h), 1.0) for h in heights if ((round >> h) + 1) << h <= self.rounds)


def zeta(strategy: NoiseStrategy | Nodes, separation: int, most: int | None) -> float:
    """Squared sensitivity at worst; of nodes Σ of (participations in each)²."""
    chain = releases(strategy, 1.0, separation=separation, most=most)
    return chain_ratio(chain, [1.0] * strategy.rounds) ** 2


@pytest.mark.parametrize(
    ("participations", "between", "steps", "squares"), [(1, 7, 8, 4), (3, 3, 9, 11), (3, 2, 7, 9), (8, 2, 24, 88)]
)
def test_the_trees_of_tf_privacy(participations, between, steps, squares):
    """tree_aggregation_accountant_test.py, `…_toy`; its separation counts the rounds strictly between."""
    assert zeta(Nodes(steps), between + 1, participations) == pytest.approx(squares)


@pytest.mark.parametrize(("separation", "most"), [(1, 1), (1, None), (3, 2), (4, None)])
@pytest.mark.parametrize("tree", [Tree(8, 8), Tree(11, 11), Tree(11, 4), Tree(7, 7, honaker=False)], ids=str)
def test_a_tree_costs_what_its_prefix_sums_show(tree, separation, most):
    """P at worst of 1ᵀ(D Dᵀ)⁻¹1 over its rounds, D by least squares on noisy nodes: no more than all nodes together."""
    seen = noise_of_rounds(tree)
    gram = np.linalg.inv(seen @ seen.T)
    assert gram.min() > -1e-12  # so that P's rounds all point the same way at worst
    assert zeta(tree, separation, most) == pytest.approx(by_hand(gram, separation, most))
    assert zeta(tree, separation, most) <= zeta(Nodes(tree.rounds), separation, most) * (1 + 1e-12)


def test_two_rounds_of_a_tree_by_hand():
    """Prefix sums of variances 1 and 2/3, covariance 1/3: the inverse is (6, −3; −3, 9)/5; either round costs 9/5."""
    assert zeta(Tree(2, 2), 1, 1) == pytest.approx(9 / 5)


@pytest.mark.full
def test_gboards_production_run():
    """2,000 rounds, at most 6 participations, 313 rounds between: ζ = 79, ρ = .806; exact ε 8.526 at δ = 1e-10 (8.90 by
    their RDP).
    """
    chain = releases(Nodes(2000), 7.0, separation=314, most=6)
    ratio = chain_ratio(chain, [1.0] * 2000)
    assert (ratio * 7) ** 2 == pytest.approx(79) and ratio**2 / 2 == pytest.approx(0.80612, abs=1e-5)
    assert gaussian_epsilon(1 / ratio, 1e-10) == pytest.approx(8.526, abs=1e-3)
    assert chain_ratio(releases(Tree(2000, 2000), 7.0, separation=314, most=6), [1.0] * 2000) < ratio


@pytest.mark.parametrize(("sigma", "epsilon"), [(1.13, 17.667), (8.83, 1.6487)])
def test_one_participation_in_1600_steps(sigma, epsilon):
    assert zeta(Nodes(1600), 1600, 1) == pytest.approx(11)
    assert gaussian_epsilon(sigma / sqrt(11), 1e-6) == pytest.approx(epsilon, rel=1e-4)


def test_bandmf_is_one_gaussian_of_its_multiplier():
    """n 16, b 4, k 4: white noise of std 4 over columns of norm 1 is ε = 1.99309 (comparators.md 8b)."""
    price = proven(
        releases(BandMF(16, 4), 4.0, separation=4), subject=0, unit="client", adjacency="zero_out", delta=DELTA
    )
    assert price.epsilon == pytest.approx(1.99309, abs=5e-6) and price.accountant == "closed form"
    assert price.releases == 16 and any("by itself" in reason for reason in price.reasons)


def test_participations_closer_than_the_bands_add_up():
    """Whoever is in every round: ‖C 1‖² = Σ of all of CᵀC, here non-negative, and more than the sum of the rounds."""
    strategy = BandMF(16, 4)
    dense = strategy_of(strategy)
    assert (dense.T @ dense).min() >= 0
    ratio = chain_ratio(releases(strategy, 1.0), [1.0] * 16)
    assert ratio == pytest.approx(float(np.linalg.norm(dense.sum(1)))) and ratio > 1.5 * 4


def by_hand(gram: np.ndarray, separation: int, most: int | None) -> float:
    sets = [()]
    for size in range(1, (most or len(gram)) + 1):
        sets += [p for p in combinations(range(len(gram)), size) if all(b - a >= separation for a, b in zip(p, p[1:]))]
    return max(float(gram[np.ix_(p, p)].sum()) if p else 0.0 for p in sets)


def test_the_worst_participation_is_found():
    rng = np.random.default_rng(0)
    for trial in range(60):
        n, separation = int(rng.integers(1, 10)), int(rng.integers(1, 5))
        most = None if trial % 2 else int(rng.integers(1, n + 1))
        factor = rng.random((n, n)) * (rng.random((n, n)) < 0.5)
        gram = factor.T @ factor if trial % 3 else np.diag(rng.random(n))
        assert largest_sum(gram, range(n), separation, most) == pytest.approx(by_hand(gram, separation, most))


def test_where_too_much_would_be_to_try_the_bound_is_above(monkeypatch):
    monkeypatch.setattr("dpfl_audit.audit.proof.theorems.correlated.MOST_TRIED", 3)
    rng = np.random.default_rng(1)
    for _ in range(20):
        factor = rng.random((9, 9))
        gram = factor.T @ factor
        bound, true = largest_sum(gram, range(9), 2, 3), by_hand(gram, 2, 3)
        assert true <= bound * (1 + 1e-12) and bound <= 2 * true


def test_what_is_known_of_participation_counts():
    """Rounds 0, 4, 8, 12 by name cost what any four rounds that are four apart do."""
    named = [r for r in releases(BandMF(16, 4), 4.0) if r.round % 4 == 0]
    price = proven(named, subject=0, unit="client", adjacency="zero_out", delta=DELTA)
    assert price.epsilon == pytest.approx(1.99309, abs=5e-6)
    once = proven(named[:1], subject=0, unit="client", adjacency="zero_out", delta=DELTA)
    assert once.epsilon == pytest.approx(gaussian_epsilon(4.0, DELTA))


def test_sampling_amplifies_nothing():
    sampled = [changed(r, sampling=Sampling("poisson", 100, 1)) for r in releases(BandMF(8, 2), 4.0, separation=2)]
    price = proven(sampled, subject=0, unit="client", adjacency="zero_out", delta=DELTA)
    assert price.epsilon == pytest.approx(gaussian_epsilon(2.0, DELTA))
    assert any(reason.startswith("Sampling amplifies nothing here") for reason in price.reasons)


@pytest.mark.parametrize(("unit", "adjacency"), [("client", "replace_one"), ("record", "zero_out")])
def test_what_can_turn_around_costs_twice(unit, adjacency):
    price = proven(releases(BandMF(16, 4), 4.0, separation=4), subject=0, unit=unit, adjacency=adjacency, delta=DELTA)
    assert price.epsilon == pytest.approx(gaussian_epsilon(1.0, DELTA))


def test_two_chains_compose():
    other = [
        changed(r, id=f"b{r.id}", law=replace(r.law, chain="y")) for r in releases(BandMF(16, 4), 4.0, separation=4)
    ]
    both = [*releases(BandMF(16, 4), 4.0, separation=4), *other]
    price = proven(both, subject=0, unit="client", adjacency="zero_out", delta=DELTA)
    assert price.epsilon == pytest.approx(gaussian_epsilon(2 / sqrt(2), DELTA))


def test_the_noise_for_a_target():
    chain = releases(BandMF(16, 4), 4.0, separation=4)
    asked = {"unit": "client", "adjacency": "zero_out", "delta": DELTA}
    scale = Exposure.of(chain, [0]).worst_noise_scale_for(**asked, target_epsilon=1.0)
    assert 2 * scale == pytest.approx(3.7306, rel=1e-4)  # `gaussian_multiplier` of ε = 1


@pytest.mark.parametrize("change", [{"std": 8.0}, {"separation": 2}])
def test_a_chain_that_does_not_hang_together_is_refused(change):
    chain = releases(BandMF(4, 2), 4.0)
    with pytest.raises(ValueError, match="one chain"):
        proven(
            [*chain[:3], changed(chain[3], law=replace(chain[3].law, **change))],
            subject=0,
            unit="client",
            adjacency="zero_out",
            delta=DELTA,
        )


def test_without_noise_nothing_is_proven():
    silent = releases(BandMF(4, 2), 0.0)
    assert isinf(proven(silent, subject=0, unit="client", adjacency="zero_out", delta=DELTA).epsilon)


def test_a_row_of_the_ledger_keeps_it():
    for release in releases(Tree(5, 5), 2.0, separation=2, most=3):
        row = release_row(release)
        assert vars(release_of(row)) == vars(release)
    assert "correlation" not in release_row(stated())
