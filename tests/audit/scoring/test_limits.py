"""Limits by proof beside an attack: what they are, when there are none, and what a run may exceed by luck."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from dpfl_audit.audit.proof.theorems.tradeoff import gaussian_ceiling
from dpfl_audit.audit.results.checks import beyond_proof
from dpfl_audit.audit.results.format import AttackResult, Metrics, TprPoint
from dpfl_audit.audit.scoring.limits import Limits
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.terms import Observer
from pydantic import ValidationError

SERVER = Observer("server")


def experiment(scheme, base=Path(), **data):
    tables = {
        "data": {"name": "digits", "clients": 3, "samples_per_client": 10, **data},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "batch_size": 10},
        "capture": {"clients": [0]},
    }
    return build(parse_config({**tables, "scheme": scheme}), base)


def test_the_limit_is_that_of_the_gaussians_seen_so_far():
    """ldp, C = 1, std 4: a record turns a vector around, 2/4 a round; after three rounds 2/4·√3."""
    limits = Limits(planned_ledger(experiment({"name": "ldp", "clip": 1.0, "noise_std": 4.0, "rounds": 5})), 1.0)
    for last in (0, 2):
        expected = [gaussian_ceiling(0.5 * sqrt(last + 1), kappa) for kappa in (0.1, 0.3)]
        assert limits.rebuilt(SERVER, last, (0.1, 0.3, 0.3)) == pytest.approx((expected[0] + 2 * expected[1]) / 3)
    assert limits.member(SERVER, 4, 101) == pytest.approx(gaussian_ceiling(0.5 * sqrt(5), 0.05))
    assert limits.member(SERVER, 0, 101, 10) == pytest.approx(gaussian_ceiling(0.5 * sqrt(5), 0.1))


def test_the_largest_area_is_that_of_the_gaussians_curve():
    """The area under the curve of N(0, 1) against N(μ, 1) is Φ(μ/√2); a limit of n others is a little above it."""
    limits = Limits(planned_ledger(experiment({"name": "ldp", "clip": 1.0, "noise_std": 4.0, "rounds": 5})), 1.0)
    exact = NormalDist().cdf(0.5 * sqrt(5) / sqrt(2))
    assert exact < limits.area(SERVER, 20_000) < exact + 0.02
    few = sum(gaussian_ceiling(0.5 * sqrt(5), (k + 3) / 9) if k + 3 < 9 else 1.0 for k in range(10)) / 10
    assert limits.area(SERVER, 10, strata=3) == pytest.approx(few)
    open_ = Limits(planned_ledger(experiment({"name": "fedavg", "rounds": 1})), 1.0)
    assert open_.area(SERVER, 5) == 1


def test_without_a_proof_there_is_no_limit_below_1():
    limits = Limits(planned_ledger(experiment({"name": "fedavg", "rounds": 1})), 1.0)
    assert limits.rebuilt(SERVER, 0, (0.1,)) == 1 == limits.member(SERVER, 0, 99)


def test_a_ceiling_that_was_typed_is_refused():
    """It is what a proof allows, and known by its mark as the proof's own numbers are."""
    point = TprPoint(fpr=0.01, tpr=0.9, ceiling=0.3)
    made = Metrics.of({"pool_share": 0.1, "pool_ceiling": 0.148}, (point,))
    assert Metrics.model_validate(made.model_dump()) == made
    for typed in ({"pool_ceiling": 0.0101}, {"tpr_at_fpr": ({**point.model_dump(), "ceiling": 0.02},)}):
        with pytest.raises(ValidationError):
            Metrics.model_validate({**made.model_dump(), **typed})
    assert Metrics.of({"pool_share": 0.1}).ceilings_proof == ""


def test_luck_once_in_twenty_audits_is_no_contradiction():
    """A run's share of successes has an expectation below the ceiling, however its records depend on each other: 5 %
    of audits are beyond at most, whatever the law. Here all records of a run succeed together.
    """
    rng = np.random.default_rng(0)

    def audit(*shares: tuple[float, float]):
        return beyond_proof(
            [
                AttackResult(
                    attack="inversion", observer="server", metrics=Metrics.of({"pool_share": s, "pool_ceiling": c})
                )
                for s, c in shares
            ]
        )

    alarms = 0
    for _ in range(1000):
        alarms += bool(audit(*((float(rng.random() < limit), limit) for limit in (0.01, 0.02, 0.2))))
    assert alarms / 1000 <= 0.05
    assert audit((1.0, 0.01), (0.0, 0.5)) == [(1.0, 0.01)] and not audit((1.0, 0.03), (0.0, 0.5))


@pytest.mark.parametrize(("partition", "each", "pool"), [("iid", 10, True), ("sorted", 10, False), ("iid", 400, False)])
def test_a_pool_is_what_was_left_over_by_lot(partition, each, pool, tmp_path):
    made = experiment({"name": "ldp", "noise_std": 1.0, "rounds": 1}, partition=partition, samples_per_client=each)
    train(made, tmp_path / "s")
    truth = Auditor.open(open_setup(tmp_path / "s")).truth
    assert (len(truth.pool_inputs) > 0) == pool
    if pool:
        assert set(truth.pool_targets.tolist()) == set(truth.targets.tolist())
        held = {row.numpy().tobytes() for rows in made.clients for row in made.data.inputs[rows]}
        assert not held & {row.numpy().tobytes() for row in truth.pool_inputs}


def test_a_secret_draw_of_records_raises_no_ceiling():
    """Under DP-SGD a record is scored because Poisson drew it: the ceiling is that of the batch it is in."""
    drawn = experiment({"name": "dpsgd", "clip": 1.0, "sigma": 2.0, "rounds": 1}, clients=1, samples_per_client=100)
    limits = Limits(planned_ledger(drawn), 1.0)
    steps = next(iter(planned_ledger(drawn).releases.values())).steps
    assert limits.rebuilt(SERVER, 0, (0.1,)) == pytest.approx(gaussian_ceiling(0.5 * sqrt(steps), 0.1), rel=1e-3)


@pytest.mark.parametrize(
    ("partition", "each", "left_over"), [("iid", 10, True), ("sorted", 10, False), ("iid", 400, False)]
)
def test_outsiders_are_left_over_by_lot_where_there_are_enough(partition, each, left_over, tmp_path):
    """Test records are no outsiders to judge a proof by: everybody knows the mean of their losses."""
    raw = experiment({"name": "ldp", "noise_std": 1.0, "rounds": 1}, partition=partition, samples_per_client=each)
    made = build(
        raw.config.model_copy(update={"capture": raw.config.capture.model_copy(update={"candidates": 20})}), tmp_path
    )
    train(made, tmp_path / "s")
    setup = open_setup(tmp_path / "s")
    truth, asked = Auditor.open(setup).truth, setup.knowledge().candidate_inputs
    assert truth.outsiders_left_over == left_over
    split = made.data.inputs if left_over else made.data.test_inputs
    known = {row.numpy().tobytes() for row in split}
    held = {made.data.inputs[row].numpy().tobytes() for rows in made.clients for row in rows}
    for record, owner in zip(asked, truth.candidate_owners.tolist(), strict=True):
        assert record.numpy().tobytes() in (held if owner >= 0 else known)
        assert owner >= 0 or not left_over or record.numpy().tobytes() not in held
