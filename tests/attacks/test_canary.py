"""Canaries: what they change, and that all of it follows from a seed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dpfl_audit.attacks.canary import (
    CLIENT_CANARIES,
    RECORD_CANARIES,
    Blank,
    CraftedRecord,
    DiracGradient,
    Existing,
    Filled,
    Mislabelled,
    NotFinite,
)
from dpfl_audit.attacks.canary.crafted import mean_gradient
from dpfl_audit.defenses.engine import looped
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining, PerExample
from dpfl_audit.defenses.randomness import generator
from dpfl_audit.defenses.steps.clip import clip_to
from torch import nn
from torch.func import functional_call


def job_of(training: LocalTraining | None = None) -> LocalJob:
    """12 records of 6 features in [0, 1], 3 classes."""
    rng = generator(0, "canary test")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    layout = Layout.of(module)
    start = layout.join({name: p.detach() for name, p in module.named_parameters()})
    training = training or LocalTraining(optimiser="sgd", lr=0.5, batch_size=12)
    return LocalJob(
        module,
        layout,
        training,
        start,
        torch.rand(12, 6, generator=rng),
        torch.arange(12) % 3,
        torch.arange(12)[None],
        "update",
        training.lr,
    )


@pytest.mark.parametrize(
    "canary",
    [Mislabelled(), Blank(), Filled(), CraftedRecord(), CraftedRecord("length"), Existing()],
    ids=lambda c: c.name,
)
def test_only_the_canarys_record_is_another_and_a_seed_gives_the_same(canary):
    job = job_of()
    before = job.inputs.clone(), job.targets.clone()
    made, again = (canary.insert(job, 5, 3, seed=1) for _ in range(2))
    others = torch.arange(12) != 5
    assert torch.equal(made.inputs[others], job.inputs[others])
    assert torch.equal(made.targets[others], job.targets[others])
    assert torch.equal(job.inputs, before[0]) and torch.equal(job.targets, before[1])
    assert torch.equal(made.inputs, again.inputs) and torch.equal(made.targets, again.targets)
    assert 0 <= int(made.targets[5]) < 3
    if canary.name == "existing":
        assert made is job
    else:
        assert made.targets[5] != job.targets[5]
    if canary.name == "blank":
        assert (made.inputs[5] == 0).all()
    if canary.name == "filled":
        assert (made.inputs[5] == job.inputs.max()).all()


def test_a_regression_canary_gets_the_target_furthest_from_its_own():
    job = job_of()
    job.targets.copy_(torch.arange(12))
    assert Mislabelled().insert(job, 2, 0, seed=0).targets[2] == 11


def test_a_mislabelled_record_never_keeps_its_class():
    job = job_of()
    for seed in range(30):
        assert Mislabelled().insert(job, 2, 3, seed).targets[2] != job.targets[2]


def test_what_a_crafted_record_aims_at_is_the_mean_gradient_of_the_others():
    """The record that is left out counts among their number, as it does in the update that it is compared with."""
    job = job_of()
    weights = {name: value.clone().requires_grad_() for name, value in job.layout.split(job.start).items()}
    losses = torch.stack(
        [
            torch.nn.functional.cross_entropy(functional_call(job.module, weights, (x[None],)), y[None])
            for x, y in zip(job.inputs, job.targets)
        ]
    )
    by_hand = torch.autograd.grad(losses[torch.arange(12) != 5].sum() / 12, list(weights.values()))
    torch.testing.assert_close(
        mean_gradient(job, job.inputs, job.targets, skip=5), job.layout.join(dict(zip(weights, by_hand)))
    )


def influence(job: LocalJob, clip: float) -> float:
    """‖clip(v₁) − clip(v₀)‖ with record 5 in and muted."""
    present, absent = looped([job, replace(job, muted=(5,))])
    return float((clip_to(present.value, clip) - clip_to(absent.value, clip)).norm())


@pytest.mark.parametrize(("aim", "clip"), [("direction", 0.5), ("length", 100.0)])
def test_a_crafted_record_moves_the_update_further_than_the_others(aim, clip):
    """Turned where a clip cuts every update to half its length, longer where it cuts none; within the range of the
    client's own inputs and 0.
    """
    job = job_of()
    norm = clip * float(looped([job])[0].value.norm())
    crafted = CraftedRecord(aim).insert(job, 5, 3, seed=1)
    assert (crafted.inputs[5] <= job.inputs.amax(0)).all() and (crafted.inputs[5] >= 0).all()
    assert influence(crafted, norm) > max(
        influence(c.insert(job, 5, 3, seed=1), norm) for c in (Existing(), Mislabelled(), Filled(), Blank())
    )


def test_a_dirac_gradient_moves_one_step_of_dp_sgd_by_the_clip_norm():
    """lr·C/batch on one coordinate, by hand: 0.5 · 2 / 12."""
    job = job_of(LocalTraining(optimiser="sgd", lr=0.5, batch_size=12, per_example=PerExample(2.0, 0.0)))
    planted = DiracGradient().insert(job, 5, 3, seed=0)
    present, absent = looped([planted, replace(planted, muted=(5,))])
    change = present.value - absent.value
    assert (change.abs() > 1e-6).sum() == 1
    assert float(change.abs().max()) == pytest.approx(0.5 * 2 / 12, rel=1e-4)
    with pytest.raises(ValueError, match="per-record clipping"):
        DiracGradient().insert(job_of(), 0, 3, seed=0)


@pytest.mark.parametrize("canary", CLIENT_CANARIES.values(), ids=CLIENT_CANARIES)
@pytest.mark.parametrize("order", [1, 2])
def test_canary_updates_have_the_norm_asked_for_and_come_from_their_seed(canary, order):
    made, again, other = (canary.update(500, 3.0, order, seed) for seed in (1, 1, 2))
    finite = torch.nan_to_num(made)
    assert torch.equal(finite, torch.nan_to_num(again)) and not torch.equal(finite, torch.nan_to_num(other))
    assert float(torch.linalg.vector_norm(finite, order)) == pytest.approx(3.0, rel=0.02)
    assert bool(torch.isnan(made).any()) == isinstance(canary, NotFinite)


def test_random_updates_are_nearly_orthogonal():
    """The cosine of two has standard deviation 1/√d."""
    updates = torch.stack([CLIENT_CANARIES["random-update"].update(10_000, 1.0, 2, seed) for seed in range(20)])
    cosines = (updates @ updates.T)[~torch.eye(20, dtype=torch.bool)]
    assert float(cosines.std()) == pytest.approx(0.01, rel=0.15)


def test_every_canary_has_its_own_name():
    assert all(name == canary.name for names in (RECORD_CANARIES, CLIENT_CANARIES) for name, canary in names.items())
