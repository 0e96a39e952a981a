"""Learning rates and noise that change from round to round are public, and each message is read by its own round's."""

from __future__ import annotations

import dpfl_audit
import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.read.local_steps import besides
from dpfl_audit.attacks.inversion.read.target import one_round
from dpfl_audit.attacks.inversion.strategies.simulated import can_simulate, trained_on
from dpfl_audit.attacks.membership.captured import gradient_sum
from dpfl_audit.audit.setup.auditor import Auditor
from dpfl_audit.defenses.local import Proximal, ScaleByRoot, StepClip
from dpfl_audit.defenses.terms import Observer
from torch.func import functional_call
from torch.nn.functional import cross_entropy

LOCAL = {"optimiser": "sgd", "lr": 0.5, "batch_size": 6, "epochs": 1}


def trained(folder, scheme: dict, local: dict = LOCAL):
    config = {
        "data": {"name": "digits", "clients": 3, "samples_per_client": 6},
        "model": {"name": "logistic"},
        "local": local,
        "scheme": scheme,
        "capture": {"clients": [0, 1, 2]},
        "claim": "none",
    }
    return dpfl_audit.train(config, folder, noise_key="published", quiet=True)


def test_an_update_is_read_as_the_gradient_it_was_whatever_the_round_s_learning_rate(tmp_path) -> None:
    setup = trained(tmp_path / "s", {"name": "ldp", "rounds": 3, "lr_decay": 0.3, "clip": 1e3, "sigma": 0.0})
    view, truth = setup.view(Observer("server")), Auditor(setup).truth
    assert truth is not None
    aims = one_round(view, setup.knowledge().beside(view))
    assert {aim.messages[0].round for aim in aims} == {0, 1, 2}
    for aim in aims:
        target, (message,) = aim.target, aim.messages
        rows = list(truth.messages[message.id])
        at = {name: w.clone().requires_grad_() for name, w in view.layout.split(target.weights).items()}
        loss = cross_entropy(functional_call(view.module, at, (truth.inputs[rows],)), truth.targets[rows])
        gradient = view.layout.join(dict(zip(at, torch.autograd.grad(loss, list(at.values())))))
        assert torch.allclose(target.gradient, gradient, atol=1e-5)
        assert target.recipe is not None and target.recipe.lr == pytest.approx(0.5 * 0.3**message.round)
        found = gradient_sum(message, -message.load(), view.facts)
        assert torch.allclose(found, 6 * gradient, atol=1e-4)


def test_the_noise_s_size_is_its_round_s(tmp_path) -> None:
    """Next to nothing is learned, so that messages are noise, of 650 numbers each."""
    scheme = {"name": "geometric", "rounds": 6, "ratio": 2.0, "epsilon": 2.0, "delta": 1e-3, "clip": 5.0, "tau": 1}
    setup = trained(tmp_path / "s", {**scheme, "participants": 3}, {"optimiser": "sgd", "lr": 1e-9, "batch_size": 6})
    view = setup.view(Observer("server"))
    stds: dict[int, float] = {}
    for message in view.messages:
        if not message.broadcast:
            value = message.load()
            value = value - view.global_model(message.round) if message.kind == "weights" else value
            stds.setdefault(message.round, 0.0)
            stds[message.round] += float(value.square().mean()) / 3
            known = view.facts.of_round(message.round).noise_std
            assert known is not None and value.std().item() == pytest.approx(known, rel=0.15)
    assert len(stds) == 6 and stds[5] > 8 * stds[0]


def test_steps_with_learning_rates_of_their_own_are_simulated_with_them(tmp_path) -> None:
    """Batches of all records, which have no order."""
    scheme = {"name": "iteration-gaussian", "rounds": 2, "noise_std": 1e-9, "zeta": 3.0, "E": 3, "b": 3}
    scheme |= {"order": 1, "mu": 2.0, "lam": 2.0}
    setup = trained(tmp_path / "s", scheme, {**LOCAL, "lr": 1.0})
    view, truth = setup.view(Observer("server")), Auditor(setup).truth
    assert truth is not None
    for aim in one_round(view, setup.knowledge().beside(view)):
        target, rows = aim.target, list(truth.messages[aim.messages[0].id])
        plan = setup.scheme.schedule.plan(aim.messages[0].round, {})
        assert plan is not None and len(set(plan.lr_by_step)) == 3 and target.recipe is not None
        assert target.recipe.scale == pytest.approx(sum(plan.lr_by_step)) and can_simulate(target)
        made = trained_on(view.module, view.layout, target, truth.inputs[rows], truth.targets[rows], 0)
        assert (made - target.update).norm() < 1e-4 * target.update.norm()


@pytest.mark.parametrize(
    ("scheme", "held"),
    [
        (
            {"name": "nbafl", "rounds": 1, "clip": 10.0, "mu": 0.1, "epsilon": 50.0, "delta": 0.01},
            {"penalties": (Proximal(0.1),)},
        ),
        (
            {"name": "geometric", "rounds": 2, "ratio": 1.1, "epsilon": 2.0, "delta": 1e-3, "tau": 2},
            {"step_clip": StepClip("weights", 5.0)},
        ),
        (
            {"name": "fednore2", "rounds": 1, "clip": 10.0, "sigma": 1.0, "form": "scaled"},
            {"gradient_scale": ScaleByRoot(-1.0)},
        ),
        ({"name": "fedavg", "rounds": 1, "share": "gradient"}, {}),
    ],
)
def test_what_local_training_does_besides_is_public_and_said(tmp_path, scheme, held) -> None:
    setup = trained(tmp_path / "s", {**scheme, "participants": 3} if scheme["name"] == "geometric" else scheme)
    view, known = setup.view(Observer("server")), setup.knowledge()
    facts = view.facts
    plain = {"gradient_scale": 1.0, "penalties": (), "step_clip": None}
    assert {name: getattr(facts, name) for name in plain} == {**plain, **held}
    attack = Inversion(iterations=1, labels="known", manners=("one-round",))
    (part, *_) = attack.parts(view, known.beside(view))
    assumed = attack.run_part(part, view, known.beside(view), 0).assumed
    assert any(f"modelled ({', '.join(besides(facts))})" in line for line in assumed) == bool(held)


def test_rounds_that_are_all_alike_have_no_schedule(tmp_path) -> None:
    setup = trained(tmp_path / "s", {"name": "fedavg", "rounds": 2})
    facts = setup.view(Observer("server")).facts
    assert facts.schedule == () and facts.of_round(1) == facts


@pytest.mark.parametrize("scheme", ["fedavg", "local-gaussian", "iteration-laplace", "ldp-fl"])
def test_noise_is_known_where_it_is_gaussian_or_none(tmp_path, scheme) -> None:
    facts = trained(tmp_path / "s", {"name": scheme, "rounds": 1}).view(Observer("server")).facts
    assert facts.noise_is_known == (scheme in ("fedavg", "local-gaussian"))
