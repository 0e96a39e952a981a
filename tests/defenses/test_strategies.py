"""Correlated noise: published optima, the streams that rounds draw, and who takes part when."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.proven.target import build
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.banded import banded_optimum, prefix_error
from dpfl_audit.defenses.federation import RoundRecord, State, run_many
from dpfl_audit.defenses.participation import Everyone, Separated
from dpfl_audit.defenses.randomness import Keystream
from dpfl_audit.defenses.releases import CorrelatedLaw
from dpfl_audit.defenses.schedule import FixedRounds, RoundPlan
from dpfl_audit.defenses.steps import perturb
from dpfl_audit.defenses.strategies import BLT, BandMF, Tree, decoder_of
from dpfl_audit.defenses.terms import Observer
from dpfl_audit.defenses.update import Add, AddWithMomentum
from dpfl_audit.defenses.wire import SERVER, Message, Wire
from scipy.stats import kstest
from stated import strategy_of

STRATEGIES = [
    BandMF(9, 1),
    BandMF(9, 4),
    BandMF(6, 6),
    BLT(9, (0.95, 0.6), (0.1, 0.3)),
    BLT(5, (0.8,), (0.4,)),
    Tree(8, 8),
    Tree(11, 11),
    Tree(11, 11, honaker=False),
    Tree(11, 4),
    Tree(3, 1),
]
EACH = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


@pytest.mark.parametrize(
    ("n", "b", "error"),
    [(8, 1, 36), (8, 2, 23.941118), (8, 4, 19.126306), (8, 8, 17.866177), (16, 4, 57.936184), (32, 8, 140.11671)],
)
def test_bandmf_has_the_published_optimum(n, b, error):
    """‖A C⁻¹‖²_F (comparators.md 8b, by another optimiser); identity n 8: 36 by hand."""
    assert prefix_error(banded_optimum(n, b)) == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize(("n", "b"), [(1, 1), (16, 4), (100, 10)])
def test_its_columns_have_norm_1_and_its_rows_do_not(n, b):
    """So k participations b apart have sensitivity √k; jax_privacy's 32 × 32 of 4 bands: 8 participations, 8."""
    matrix = banded_optimum(n, b)
    assert np.allclose(np.linalg.norm(matrix, axis=0), 1)
    assert n == 1 or not np.allclose(np.linalg.norm(matrix, axis=1), 1, atol=0.05)
    assert np.array_equal(matrix, np.tril(matrix)) and np.allclose(matrix, np.triu(matrix, 1 - b), atol=1e-14)
    moved = matrix[:, ::b].sum(1)
    assert moved @ moved == pytest.approx(len(range(0, n, b)))


@EACH
def test_the_decoder_inverts_the_strategy_and_looks_at_no_later_noise(strategy):
    c, d = strategy_of(strategy), decoder_of(strategy)
    assert np.allclose(d @ c, np.eye(strategy.rounds))
    ends = [max(np.flatnonzero(row)) for row in c]  # the last round that goes into each row
    for t, row in enumerate(d):
        assert all(ends[i] <= t for i in np.flatnonzero(np.abs(row) > 1e-12)), "noise of a row that is not complete"


def test_honakers_estimator_is_the_least_squares_one():
    """Of each largest complete node, from all noisy nodes in it: at n = 4 variance 4/7 (arXiv:2103.00039, app. B)."""
    for n in (1, 2, 4, 8, 16):
        prefix = np.cumsum(decoder_of(Tree(n, n)), axis=0)[-1]
        assert prefix @ prefix == pytest.approx(1 / (2 - 1 / n))
    plain = np.cumsum(decoder_of(Tree(16, 16, honaker=False)), axis=0)
    assert np.allclose(np.square(plain).sum(1), [bin(t + 1).count("1") for t in range(16)])


@EACH
def test_the_stream_is_the_decoder_times_the_white_noise(strategy):
    rng = torch.Generator().manual_seed(1)
    c, d = strategy_of(strategy), decoder_of(strategy)
    rows = sorted({row for t in range(strategy.rounds) for row, _ in strategy.column(t)})
    z = dict(zip(rows, torch.randn(len(rows), 3, generator=rng, dtype=torch.float64)))
    kept: dict[str, torch.Tensor] = {}
    out = torch.stack([strategy.noise(t, z.__getitem__, kept) for t in range(strategy.rounds)])
    white = torch.stack([z[row] for row in rows]).numpy()
    assert np.allclose(out.numpy(), d @ white)
    if len(c) == len(c[0]):
        assert np.allclose(c @ out.numpy(), white)
    assert sum(len(v.reshape(-1, 3)) for v in kept.values()) <= max(3, strategy.rounds.bit_length(), 5)


@pytest.mark.parametrize("strategy", [BandMF(4, 2), BLT(4, (0.9,), (0.1,)), Tree(4, 4)], ids=str)
def test_noise_of_rounds_that_is_not_kept_is_missed(strategy):
    with pytest.raises(ValueError, match="not kept"):
        strategy.noise(2, lambda row: torch.zeros(3), {})


def experiment(name: str, **scheme) -> Experiment:
    raw = {
        "data": {"name": "digits", "clients": 6, "samples_per_client": 20},
        "model": {"name": "mlp", "options": {"widths": [24]}},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10},
        "scheme": {"name": name, "rounds": 6, "clip": 0.5, "participants": 2, **scheme},
    }
    return build(parse_config(raw), Path())


def increments(made: Experiment, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """What every round added to its model beyond what it would have added without noise, (rounds, d)."""
    models: list[torch.Tensor] = []
    starts: list[State] = []

    def note(message: Message) -> None:
        if message.sender_party == SERVER:
            models.append(message.vector)

    def keep(_: int, record: RoundRecord) -> None:
        state = record.state
        starts.append(State(state.round, dict(state.models), history=dict(state.history)))

    federation = made.federation(Wire(note))
    run_many([federation], on_round=keep)
    drawn = perturb.draw
    monkeypatch.setattr(perturb, "draw", lambda mechanism, std, dim, rng: torch.zeros(dim))
    monkeypatch.setattr(perturb.CorrelatedDraw, "draw", _silent)
    out = []
    for t, model in enumerate(models[1:]):
        again: list[torch.Tensor] = []
        first = None if t == 0 else starts[t - 1]
        only = replace(made.scheme, schedule=replace(made.scheme.schedule, rounds=t + 1))
        replay = replace(federation, scheme=only, wire=Wire(lambda m, a=again: a.append(m.vector)), evaluate=False)
        run_many([replay], states=[first])
        out.append(model.double() - again[-1].double())
    monkeypatch.setattr(perturb, "draw", drawn)
    return torch.stack(out)


def _silent(self, noise_std, parcel, context):
    return torch.zeros(parcel.vector.numel(), dtype=torch.float64), CorrelatedLaw(
        noise_std, "z", self.strategy.column(0)
    )


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("blt", {}),
        ("blt", {"buffers": 1, "separation": 2, "error": "max"}),
        ("band-mf", {}),
        ("band-mf", {"bands": 2, "server_lr": 0.5}),
        ("dp-ftrl", {"restart": 1}),
        ("dp-ftrl", {"honaker": False}),
        ("dp-ftrl", {}),
    ],
)
def test_stored_messages_decorrelated_are_white_noise_of_the_stated_std(name, scheme, monkeypatch):
    """Broadcasts minus what each round would have sent without noise, times C (whitened by the decoder where C is not
    square): Kolmogorov and Smirnov; as they are, or with another std, they are rejected.
    """
    made = experiment(name, **scheme)
    (step,) = made.scheme.server
    noise = increments(made, monkeypatch).numpy() / made.scheme.update.lr / step.noise_std
    d = decoder_of(step.correlated.strategy)
    white = np.linalg.solve(np.linalg.cholesky(d @ d.T), noise)
    if name in ("band-mf", "blt"):
        assert np.allclose(white, strategy_of(step.correlated.strategy) @ noise, atol=1e-5)
    assert kstest(white.ravel(), "norm").pvalue > 0.01
    assert np.abs(np.corrcoef(white) - np.eye(6)).max() < 5 / sqrt(white.shape[1])
    for wrong in (2 / 3, 3 / 2):
        assert kstest(white.ravel() / wrong, "norm").pvalue < 1e-6
    if not np.allclose(d @ d.T, np.eye(6)):
        assert np.abs(np.corrcoef(noise) - np.eye(6)).max() > 5 / sqrt(white.shape[1])


def test_nobody_takes_part_twice_within_the_separation():
    rule, last, times = Separated(2, 4), {}, dict.fromkeys(range(15), 0)
    for t in range(40):
        members = rule.select(t, range(15), Keystream(3, "cohort", t)).members
        assert len(members) == 2 and all(t - last.get(c, -9) >= 4 for c in members)
        last |= dict.fromkeys(members, t)
        for c in members:
            times[c] += 1
    assert max(times.values()) <= rule.most(40, 15) <= 10 and min(times.values()) > 0
    assert not rule.everybody(15) and Separated(4, 4).everybody(15) and rule.fewest(40, 15) == 2


def test_increments_with_momentum_are_momentum_over_prefix_sums():
    """arXiv:2103.00039, section 3.1: v ← βv + S_t, w_t = w_0 + lr·v, S_t the prefix sum."""
    rng = torch.Generator().manual_seed(2)
    merged = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    model, kept, v = torch.zeros(3, dtype=torch.float64), {}, torch.zeros(3, dtype=torch.float64)
    for t, value in enumerate(merged):
        model, kept = AddWithMomentum(0.3, 0.9)(model, value, kept, RoundPlan())
        v = 0.9 * v + merged[: t + 1].sum(0)
        assert torch.allclose(model, 0.3 * v)
    plain, _ = AddWithMomentum(1.0)(torch.zeros(3), merged[0], {}, RoundPlan())
    assert torch.equal(plain, Add()(torch.zeros(3), merged[0], {}, RoundPlan())[0])


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("scheme", "epsilon"), [("band-mf", 4.377189), ("blt", 4.377189), ("dp-ftrl", 5.0)], ids=lambda one: str(one)
)
def test_a_plan_for_any_key_is_the_worst_of_its_trainings(scheme, epsilon, tmp_path):
    """Nine clients in groups of 3, 2 drawn by lot: whoever is drawn most often is no worse off than planned."""
    raw = {
        "data": {"name": "digits", "clients": 9, "samples_per_client": 7},
        "model": {"name": "logistic"},
        "scheme": {"name": scheme, "rounds": 7, "participants": 2, "separation": 3, "noise_multiplier": 1.0},
    }
    made = build(parse_config(raw), tmp_path)

    planned = proven(made, any_key=True)
    drawn = [proven(replace(made, key=f"{k:064x}")) for k in range(12)]
    assert max(drawn) <= planned * (1 + 1e-9) and min(drawn) < planned
    if scheme in ("band-mf", "blt"):
        assert planned == pytest.approx(4.377189, rel=1e-5)  # σ = 1 at δ = 1e-5, whatever k


def proven(made: Experiment, any_key: bool = False) -> float:
    ledger = planned_ledger(made, any_key=any_key)
    (row,) = rows(ledger, None, 1e-5, [Observer("downlink")], ["client"], ["zero_out"])
    return row.proven


@pytest.mark.parametrize("any_key", [False, True])
def test_turns_count_where_they_are_taken_and_not_where_they_are_planned(any_key):
    """Everybody in every round of a scheme whose noise was chosen for turns: all of C's columns add up."""
    made = experiment("band-mf", separation=3, noise_multiplier=1.0)
    everybody = replace(made, scheme=replace(made.scheme, participation=Everyone()))
    c = strategy_of(BandMF(6, 3))
    moved = float(np.linalg.norm(c.sum(1))) / sqrt(2)  # noise of √k, k = 2
    assert proven(made, any_key) == pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-6)
    assert proven(everybody, any_key) == pytest.approx(gaussian_epsilon(1 / moved, 1e-5), rel=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "after"), [("band-mf", 3), ("blt", 1), ("blt", 3), ("blt", 5), ("dp-ftrl", 3)], ids=lambda one: str(one)
)
def test_a_killed_training_goes_on_with_the_same_noise(name, after, tmp_path):
    made = experiment(name, momentum=0.5)

    def killed(done: int, total: int, words: str) -> None:
        if done == after:
            raise KeyboardInterrupt

    train(made, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(made, tmp_path / "killed", progress=killed)
    train(made, tmp_path / "killed")
    both = [
        {p.relative_to(top): p.read_bytes() for p in top.rglob("*") if p.is_file() and p.name != "environment.json"}
        for top in (tmp_path / "whole", tmp_path / "killed")
    ]
    assert both[0] == both[1] and len(both[0]) > 5
    auditor = Auditor(open_setup(tmp_path / "killed"))
    (row,) = rows(auditor.ledger, None, 1e-5, [Observer("downlink")], ["client"], ["zero_out"])
    assert row.proven == pytest.approx(proven(made), rel=1e-9)


@pytest.mark.parametrize("name", ["band-mf", "blt", "dp-ftrl"])
def test_rounds_beyond_those_that_the_noise_was_made_for_are_refused(name, tmp_path):
    """Neither priced nor trained: a longer chain has another sensitivity."""
    made = experiment(name)
    longer = replace(made, scheme=replace(made.scheme, schedule=FixedRounds(7)))
    for attempt in (
        lambda: proven(longer),
        lambda: proven(longer, any_key=True),
        lambda: train(longer, tmp_path / "s"),
    ):
        with pytest.raises(ValueError, match="correlated noise was planned for 6 rounds; there is none for round 6"):
            attempt()
