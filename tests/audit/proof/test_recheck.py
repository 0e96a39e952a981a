"""The second way brackets every proof, and refuses those that are wrong in one fact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.proof import recheck
from dpfl_audit.audit.proof.recheck import _ends, _laplace_sum, bracket, recheck_rows
from dpfl_audit.audit.proven.accounting import Exposure, proven
from dpfl_audit.audit.proven.table import ledger_of, table
from dpfl_audit.audit.proven.views import Views
from dpfl_audit.defenses.releases import (
    CorrelatedLaw,
    DiscreteLaw,
    GaussianLaw,
    LaplaceLaw,
    NoiseFact,
    Release,
    ResponseLaw,
    Sampling,
)
from dpfl_audit.defenses.terms import Adjacency, Observer
from stated import proven_otherwise, stated

DELTA = 1e-5
ROOT = Path(__file__).resolve().parents[3]
CHAIN = [((0, 1.0), (1, -0.5)), ((1, 1.0),)]


def many(law: Callable[[int], NoiseFact], count: int, bound: float = 1.0, **facts: object) -> list[Release]:
    return [stated(law(i), bound, round=i, **facts) for i in range(count)]


COIN, HALF = Sampling("poisson", 20, 2), Sampling("without_replacement", 10, 3)
TWO_OF_A_LOT = [stated(GaussianLaw(2.0 + i), round=t, sampling=COIN, lot="all") for t in range(4) for i in range(2)]
KINDS: dict[str, tuple[list[Release], Adjacency]] = {
    "gaussian": (many(lambda i: GaussianLaw(2.0 + i), 3), "zero_out"),
    "coins": (many(lambda i: GaussianLaw(1.5), 8, sampling=COIN), "zero_out"),
    "coins of either": (many(lambda i: GaussianLaw(2.0), 5, sampling=COIN), "replace_one"),
    "a cohort": (many(lambda i: GaussianLaw(3.0), 6, sampling=HALF), "replace_one"),
    "two of a lot": (TWO_OF_A_LOT, "zero_out"),
    "two of a lot of either": (TWO_OF_A_LOT, "replace_one"),
    "laplace": (many(lambda i: LaplaceLaw(3.0), 4), "zero_out"),
    "a sum of laplace": (many(lambda i: LaplaceLaw(0.0, ((3.0, 1), (4.0, 5))), 4), "zero_out"),
    "laplace, coins": (many(lambda i: LaplaceLaw(3.0), 6, sampling=COIN), "zero_out"),
    "shuffled responses": (many(lambda i: ResponseLaw(1.0, 1.0, ((1.0, 10),)), 3, steps=2), "replace_one"),
    "responses": (many(lambda i: ResponseLaw(1.0, 1.0), 3, steps=4), "replace_one"),
    "responses about 0": (many(lambda i: ResponseLaw(1.0, 1.0, about_zero=True), 3, steps=4), "zero_out"),
    "discrete": (many(lambda i: DiscreteLaw(8.0, 1.0, 10), 2, 8.0), "zero_out"),
    "a sum of discrete": (many(lambda i: DiscreteLaw(0.0, 1.0, 10, ((6.0, 3),)), 2, 8.0), "zero_out"),
    "correlated": (many(lambda i: CorrelatedLaw(2.0, "z", CHAIN[i]), 2), "zero_out"),
    "mixed": ([*many(lambda i: GaussianLaw(3.0), 2), *many(lambda i: LaplaceLaw(4.0), 2)], "zero_out"),
}


def price(releases: list[Release], adjacency: Adjacency) -> float:
    return proven(releases, subject=0, unit="client", adjacency=adjacency, delta=DELTA).epsilon


def ends(releases: list[Release], adjacency: Adjacency, coalition: int = 0) -> tuple[float, float]:
    return _ends(Exposure.of(releases, [0], coalition), "client", adjacency, DELTA)


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_priced_lies_between(kind: str) -> None:
    releases, adjacency = KINDS[kind]
    low, high = ends(releases, adjacency)
    found = price(releases, adjacency)
    assert low * (1 - 1e-6) <= found <= high * 1.01
    assert low > 0.93 * found  # near enough to see what is wrong by a tenth


def _smaller(r: Release) -> Release:
    if isinstance(r.law, ResponseLaw):
        return stated(replace(r.law, epsilon=0.9 * r.law.epsilon), round=r.round, steps=r.steps)
    return stated(r.law, 0.9 * (r.bound_norm or 0.0), round=r.round, sampling=r.sampling, lot=r.lot)


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
def test_a_tenth_off_the_ratio_is_refused(kind: str) -> None:
    releases, adjacency = KINDS[kind]
    assert price([_smaller(r) for r in releases], adjacency) < ends(releases, adjacency)[0]


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("correlated", "a sum of discrete")])
def test_a_draw_left_out_is_refused(kind: str) -> None:
    releases, adjacency = KINDS[kind]
    assert price(releases[1:], adjacency) < ends(releases, adjacency)[0]


@pytest.mark.parametrize(("lot", "law"), [(COIN, GaussianLaw(1.5)), (HALF, GaussianLaw(1.5)), (COIN, LaplaceLaw(3.0))])
def test_half_the_rate_is_refused(lot: Sampling, law: NoiseFact) -> None:
    adjacency: Adjacency = "zero_out" if lot is COIN else "replace_one"
    right, wrong = (many(lambda i: law, 6, sampling=one) for one in (lot, Sampling(lot.kind, 40, 2)))
    assert price(wrong, adjacency) < ends(right, adjacency)[0]


@pytest.mark.parametrize("size", [0.05, 1.0, 4.0])
def test_two_laplace_noises_hide_what_an_integral_of_their_density_says(size: float) -> None:
    def density(x: np.ndarray) -> np.ndarray:
        return (1 + np.abs(x)) * np.exp(-np.abs(x)) / 4

    x = np.linspace(-60, size + 60, 2_000_001)
    here, there = _laplace_sum(size, np.ones(2)) or (x, x)
    for level in (0.0, 0.3 * size, 0.9 * size):
        right = float(np.maximum(density(x - size) - np.exp(level) * density(x), 0).sum() * (x[1] - x[0]))
        found = float(np.maximum(here - np.exp(level) * there, 0).sum())
        assert right * (1 - 2e-3) - 2e-6 < found < right * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("law", [LaplaceLaw(0.001), LaplaceLaw(0.0, ((0.01, 3),))])
def test_laplace_noise_that_hides_nothing_has_a_bound_too(law: LaplaceLaw) -> None:
    """ε = 1,414 and more: a mass that underflowed was no mass, or none was left."""
    releases = many(lambda i: law, 2)
    low, high = ends(releases, "zero_out")
    assert 0 <= low <= price(releases, "zero_out") <= high * 1.01 < inf


@pytest.mark.parametrize("far", [LaplaceLaw(sqrt(2) / 28), GaussianLaw(1 / 50)])
def test_what_a_double_does_not_hold_is_no_attack(far: LaplaceLaw | GaussianLaw) -> None:
    """Masses of e⁻³⁸ and less of the other world were differences of 1 and 1, or none: ε above 650 of 28.7."""
    releases = [stated(far), stated(LaplaceLaw(2 * sqrt(2)), round=1)]
    low, high = ends(releases, "zero_out")
    assert 0.3 * high < low <= price(releases, "zero_out") <= high * 1.01


def test_nothing_of_a_round_with_a_batch_of_an_epoch_is_amplified_above() -> None:
    """One draw may be behind both, named or not: 15.7 was called enough of 18.2."""
    releases = [stated(LaplaceLaw(1.0), sampling=COIN), stated(GaussianLaw(0.7), sampling=COIN, slot="epoch 0")]
    low, high = _ends(Exposure.of(releases, [0]), "record", "zero_out", DELTA)
    found = proven(releases, subject=0, unit="record", adjacency="zero_out", delta=DELTA).epsilon
    assert low <= found <= high * 1.01


def test_a_coalition_that_is_left_out_is_refused() -> None:
    releases = many(lambda i: GaussianLaw(1.0), 5, sampling=Sampling("without_replacement", 10, 1))
    assert price(releases, "replace_one") < ends(releases, "replace_one", coalition=9)[0]


def test_nothing_hidden_is_infinite_and_a_loose_proof_is_called_so(tmp_path: Path) -> None:
    assert ends([stated(GaussianLaw(0.0))], "zero_out") == (inf, inf)
    source = tmp_path / "config.toml"
    source.write_text("""
data = { name = "digits", clients = 4, samples_per_client = 5 }
model = { name = "linear" }
local = { optimiser = "sgd", lr = 0.1, batch_size = 5 }
scheme = { name = "local-gaussian", clip = 1.0, noise_multiplier = 4.0, rounds = 5 }
""")
    asked = {"observers": ["server"], "unit": "client", "adjacency": "zero_out"}
    (row,) = table(source, **asked).rows
    views = Views(ledger_of(source)[0])
    low, high = bracket(views, Observer("server"), "client", "zero_out", row.delta or 0.0)
    assert low == pytest.approx(row.proven, rel=1e-6) and row.proven < high < row.proven * (1 + sqrt(0.02))
    loose = proven_otherwise(row, proven=1.5 * (row.proven or 0.0))
    (wrong,) = recheck_rows([loose], views)
    assert "loose" in wrong


@pytest.mark.full
@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.toml")))
def test_every_example_lies_between(example: str) -> None:
    try:
        ledger, config = ledger_of(ROOT / "examples" / example)
    except BadInput as missing:
        pytest.skip(str(missing))  # data that are not on this machine
    assert recheck_rows(table(ROOT / "examples" / example).rows, Views(ledger, config.audit.honest)) == []


def test_equal_steps_are_one_draw_and_many_lose_little_to_wider_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """15 rounds of 45 steps took 300 s, as each was looked at by itself; what n rounds of m steps have is what one
    of n·m has. Wider cells are post-processing: they learn less, and little less.
    """
    coins: dict[str, Any] = {"bound_of": "record", "sampling": Sampling("poisson", 10_000, 200, "record")}
    law = GaussianLaw(1.0)
    found = {}
    for cells in (recheck.MOST_CELLS, 2**14):
        monkeypatch.setattr(recheck, "MOST_CELLS", cells)
        recheck._ends_of.cache_clear()
        split, whole = many(lambda i: law, 15, steps=20, **coins), many(lambda i: law, 1, steps=300, **coins)
        ends = [_ends(Exposure.of(releases, [0]), "record", "zero_out", DELTA) for releases in (split, whole)]
        assert ends[0] == pytest.approx(ends[1], rel=1e-9)
        found[cells] = ends[0][0]
    coarse, fine = sorted(found.values())
    right = proven(split, subject=0, unit="record", adjacency="zero_out", delta=DELTA).epsilon
    assert found[2**14] == coarse and 0.93 * right < coarse < fine <= right
