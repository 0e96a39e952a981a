"""Of every scheme: what the attack takes a message for, made of the true images in the true order, is what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dpfl_audit
import pytest
import torch
from dpfl_audit.attacks.base import PublicFacts
from dpfl_audit.attacks.inversion.read.local_steps import LocalSteps, besides_assumed
from dpfl_audit.attacks.inversion.read.local_training import PENALTIES, RECORDS, TRUNCATED
from dpfl_audit.attacks.inversion.read.sums import summed
from dpfl_audit.attacks.inversion.read.target import Target, one_round
from dpfl_audit.attacks.inversion.strategies.simulated import update_of
from dpfl_audit.defenses import engine, federation
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob
from dpfl_audit.defenses.presets import PRESETS
from dpfl_audit.defenses.steps import adapt, perturb, quantile
from dpfl_audit.defenses.terms import Observer
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

LOCAL = {"sgd": {"lr": 0.1}, "momentum": {"lr": 0.05, "momentum": 0.7}, "adam": {"lr": 1e-3}}
BATCHES = {"batch_size": 4, "epochs": 2}  # of ten records: the last of an epoch has two
Sent = dict[str, tuple[LocalJob, Tensor]]  # by a message's id: its training, and its value without noise

MODELLED: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedavg, weights": {"share": "weights"},
    "fedavg, gradient": {"share": "gradient"},
    "ldp": {"clip": 0.05, "sigma": 1e-6, "lr_decay": 0.5},
    "ldp, by tensor": {"clip": 0.05, "sigma": 1e-6, "per_layer": True},
    "ldp, median": {"clip": "median", "sigma": 1e-6, "per_layer": True},
    "ldp, gradient": {"clip": 0.05, "sigma": 1e-6, "share": "gradient"},
    "local-gaussian": {"clip": 0.05, "noise_multiplier": 1e-6},
    "thesis-baseline": {"clip": 0.05, "sigma": 1e-6},
    "nbafl": {"clip": 1e3, "mu": 0.5, "noise_std": 1e-7},
    "naafl": {"clip": 1e3, "noise_std": 1e-7},
    "fednore2": {"lam": 2e5, "clip": 0.1, "noise_std": 1e-7, "form": "scaled"},
    "fednore2, plus": {"lam": 2e5, "clip": 0.1, "noise_std": 1e-7, "form": "scaled-plus"},
    "geometric": {"clip": 2.5, "noise_std": 1e-7, "tau": 3, "ratio": 1.5},
    "laplace": {"clip": 60.0, "noise_std": 1e-7, "tau": 3},
    "iteration-gaussian": {"zeta": 0.2, "noise_std": 1e-7, "E": 1, "order": 2},
    "iteration-laplace": {"zeta": 0.5, "noise_std": 1e-7, "E": 1, "order": 1},
    "lcdp": {"sigma_ldp": 1e-6, "sigma_cdp": 0.0},
    "cdp": {"sigma": 1e-6},
    "fed-sdp": {},
    "privatedl": {"share": "update"},
    "privatedl, gradient": {},
    "central-gaussian": {},
    "adaptive-clip": {},
    "dp-ftrl": {},
    "band-mf": {},
    "blt": {},
    "anonymous-leader": {"train_share": 0.9},
    "anonymous-gossip": {"train_share": 0.9, "neighbours": 2},
    "distributed-gaussian": {"clip": 0.05, "bits": 24, "granularity": 2.0**-22, "noise_multiplier": 1e-3},
}
SAID = {  # what is not modelled, in words
    "fednore1": ({"lam": 2e5, "clip": 0.1, "noise_std": 1e-7, "per_layer": False, "lr_decay": 0.5}, PENALTIES),
    "fednore1, median": ({"lam": 1.0, "sigma": 1e-2}, PENALTIES),
    "fednore12": ({"lam": 2e5, "clip": 0.1, "noise_std": 1e-7, "form": "scaled", "per_layer": False}, PENALTIES),
    "component": ({"K": 5, "sigma": 1e-6, "epsilon": 1e9}, TRUNCATED),
    "ldp-fl": ({}, TRUNCATED),
    "dpsgd": ({"clip": 1.0}, RECORDS),
    "fed-cdp": ({}, RECORDS),
    "fed-alpha-cdp": ({}, RECORDS),
    "dp-dyns": ({"batches": "disjoint"}, RECORDS),
    "adap-dpfl": ({}, RECORDS),
}


@pytest.fixture
def sent(monkeypatch) -> Iterator[Sent]:
    """What clients send while it holds, with no noise drawn."""
    kept: Sent = {}
    real = federation.upload

    def upload(own, state, client, plan, job, result):
        parcel, figures = real(own, state, client, plan, job, result)
        told = federation.records_told(own, client, job.batches)
        name = federation.message_id(own, state.round, client, own.scheme.share, told)
        kept[name] = job, parcel.vector.clone()
        return parcel, figures

    monkeypatch.setattr(federation, "upload", upload)
    yield kept


@pytest.fixture
def without_noise(monkeypatch) -> None:
    for module in (perturb, adapt, quantile, engine):
        monkeypatch.setattr(module, "draw", lambda law, std, dim, rng: torch.zeros(dim, dtype=torch.float64))


def trained(folder, scheme: str, parameters: dict, optimiser: str = "sgd", rounds: int = 2, **local):
    config = {
        "data": {"name": "digits", "clients": 4, "samples_per_client": 10},
        "model": {"name": "mlp", "options": {"widths": [12]}},
        "local": {"optimiser": optimiser, **LOCAL[optimiser], **BATCHES, **local},
        "scheme": {"rounds": rounds, "name": scheme.split(",")[0], **parameters},
        "capture": {"clients": [0, 1, 2, 3]},
        "claim": "none",
    }
    setup = dpfl_audit.train(config, folder / "s", noise_key="published", quiet=True)
    view = setup.view(Observer("peer" if scheme.startswith("anonymous") else "server"))
    return setup, view, [aim.target for aim in one_round(view, setup.knowledge().beside(view))]


def gradient(module: nn.Module, layout: Layout, weights: Tensor, job: LocalJob, rows: Tensor) -> Tensor:
    at = {name: w.clone().requires_grad_() for name, w in layout.split(weights).items()}
    loss = F.cross_entropy(functional_call(module, at, (job.inputs[rows],)), job.targets[rows])
    return layout.join(dict(zip(at, torch.autograd.grad(loss, list(at.values())))))


def made(target: Target, module: nn.Module, layout: Layout, job: LocalJob) -> Tensor:
    """What the attack takes the target's gradient for, of the true images."""
    batches, recipe = [rows[rows >= 0] for rows in job.batches], target.recipe
    if recipe is None:
        return gradient(module, layout, target.weights, job, batches[0])
    assert tuple(map(len, batches)) == recipe.sizes
    walk = LocalSteps(recipe, target.weights)
    for rows in batches:
        walk.forward(gradient(module, layout, walk.weights, job, rows))
    return (target.weights - walk.weights) / recipe.scale


def clipped(value: Tensor, target: Target, layout: Layout) -> Tensor:
    whole = [slice(0, len(value))]
    parts = [value[own] for own in (layout.slices if target.per_layer else whole)]
    if target.clip_norm is None:
        return value
    return torch.cat([own * min(1.0, target.clip_norm / float(own.norm(target.clip_order))) for own in parts])


def off(value: Tensor, observed: Tensor, known: bool, parts: list[slice]) -> float:
    """How far they are apart, in shares of what was observed; but for a factor by part where no scale is known."""
    factors = [1.0 if known else observed[own] @ value[own] / value[own].square().sum() for own in parts]
    rests = [observed[own] - factor * value[own] for own, factor in zip(parts, factors)]
    return float(torch.cat(rests).norm() / observed.norm())


def test_every_scheme_is_here() -> None:
    here = {name.split(",")[0] for name in (*MODELLED, *SAID)}
    assert here == set(PRESETS)


@pytest.mark.few(20)
@pytest.mark.parametrize("optimiser", LOCAL)
@pytest.mark.parametrize("scheme", MODELLED)
def test_the_true_images_make_what_was_sent(tmp_path, sent: Sent, without_noise, scheme: str, optimiser: str) -> None:
    """But for the clip, which is modelled, or leaves the scale open."""
    _, view, targets = trained(tmp_path, scheme, MODELLED[scheme], optimiser)
    assert targets
    for target in targets:
        job, layout, recipe = sent[target.key][0], view.layout, target.recipe
        value, observed = made(target, view.module, layout, job), target.gradient
        if recipe is not None:
            observed = update_of(target, "cpu").gradient
        if target.sparse is not None:
            value = value * target.sparse.sent
        whole = recipe is not None and not recipe.linear and target.update is not None
        known = target.scale_known or target.sent_to_scale or whole
        parts = list(layout.slices) if target.per_layer else [slice(0, layout.dim)]
        assert off(clipped(value, target, layout) if known else value, observed, known, parts) < 1e-4


@pytest.mark.few(3)
@pytest.mark.parametrize("scheme", SAID)
def test_what_is_not_modelled_is_said_and_leaves_the_scale_open(tmp_path, scheme: str) -> None:
    parameters, words = SAID[scheme]
    _, view, targets = trained(tmp_path, scheme, parameters)
    for target in targets:
        assert target.recipe is not None and words in target.recipe.left_out
        assert not target.scale_known and not target.sent_to_scale
        assert target.recipe.own_gradients == (words == RECORDS)
        assert words in besides_assumed(view.facts, target.recipe)[0]


def test_batches_drawn_in_secret_are_not_simulated(tmp_path) -> None:
    _, _, targets = trained(tmp_path, "dpsgd", {})
    assert all(target.recipe is not None and target.recipe.epochs is None for target in targets)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("scheme", "parameters", "optimiser"),
    [
        ("dpsgd", {"sigma": 0.01}, "sgd"),
        ("dpsgd", {"sigma": 0.01, "share": "weights"}, "momentum"),
        ("fed-cdp", {"sigma": 0.01}, "sgd"),
        ("dp-dyns", {"sigma": 0.01, "noise_on": "clip"}, "sgd"),
        ("ldp", {"sigma": 0.01, "clip": 1.0}, "sgd"),
        ("ldp", {"sigma": 0.01, "clip": 1.0}, "adam"),
        ("distributed-gaussian", {"noise_multiplier": 0.01}, "sgd"),
    ],
)
def test_the_noise_told_is_that_of_a_message(
    tmp_path, monkeypatch, sent: Sent, scheme: str, parameters: dict, optimiser: str
) -> None:
    """Not that of a step inside local training: at a small learning rate both are far apart."""
    for lr in (0.001, 0.01):
        with monkeypatch.context() as patched:
            _, view, _ = trained(tmp_path / f"{lr}", scheme, {**parameters, "rounds": 1}, optimiser, lr=lr)
            noisy = {name: value for name, (_, value) in sent.items()}
            for module in (perturb, engine):
                patched.setattr(module, "draw", lambda law, std, dim, rng: torch.zeros(dim, dtype=torch.float64))
            trained(tmp_path / f"{lr} quiet", scheme, {**parameters, "rounds": 1}, optimiser, lr=lr)
        noise = torch.cat([noisy[name] - value for name, (_, value) in sent.items()])
        assert isinstance(view.facts, PublicFacts) and view.facts.noise_std is not None
        assert view.facts.noise_std == pytest.approx(float(noise.double().std()), rel=0.1)


def test_noise_that_an_optimiser_divides_by_gradients_is_not_known(tmp_path) -> None:
    _, view, _ = trained(tmp_path, "dpsgd", {"sigma": 0.01}, "adam")
    assert view.facts.noise_std is None


# --- weights that were clipped ---

WEIGHTS = {
    "nbafl": {"clip": 1.0, "noise_std": 1e-6},
    "naafl": {"clip": 2.0, "noise_std": 1e-6},
    "ldp": {"clip": 1.0, "sigma": 1e-5, "share": "weights"},
    "geometric": {"clip": 2.0, "noise_std": 1e-6, "tau": 2},
    "laplace": {"clip": 20.0, "noise_std": 1e-6, "tau": 2},
}


def along(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


@pytest.mark.parametrize("scheme", WEIGHTS)
def test_weights_that_were_clipped_are_read_by_the_update_and_not_by_the_clip(tmp_path, sent: Sent, scheme) -> None:
    """Fresh weights are longer than the clip, which scales them down: what was sent less them hardly is the update."""
    _, view, targets = trained(tmp_path, scheme, WEIGHTS[scheme], rounds=1, lr=0.02)
    for target in targets:
        (job, value), layout, recipe = sent[target.key], view.layout, target.recipe
        assert recipe is not None and target.stretched > 1.3
        batches = [rows[rows >= 0] for rows in job.batches]
        true = sum(gradient(view.module, layout, target.weights, job, rows) for rows in batches) / len(batches)
        assert along(target.gradient, true) > 0.93 > abs(along(value.float() - target.weights, true)) + 0.6
        if recipe.step_clip is None:  # else its scale is open
            assert float(target.gradient.norm()) == pytest.approx(float(true.norm()), rel=0.2)
            assert target.noise_std * recipe.scale == pytest.approx(target.stretched * (view.facts.noise_std or 0.0))
        else:  # every step's clip is simulated, so that the update is compared as it was sent
            ready = update_of(target, "cpu")
            assert off(made(target, view.module, layout, job), ready.gradient, True, [slice(0, layout.dim)]) < 1e-3
            assert ready.noise_std * recipe.scale == pytest.approx(view.facts.noise_std)


def test_a_sum_of_clipped_weights_is_read_by_their_updates(tmp_path, sent: Sent) -> None:
    setup, _, _ = trained(tmp_path, "naafl", {"clip": 2.0, "noise_std": 1e-6}, rounds=1, lr=0.02, batch_size=10)
    view = setup.view(Observer("downlink"))
    (aim,) = summed(view, setup.knowledge().beside(view))
    jobs = [job for job, _ in sent.values()]
    true = sum(gradient(view.module, view.layout, aim.target.weights, job, job.batches[0]) for job in jobs) / len(jobs)
    assert aim.target.stretched > 1.3 and along(aim.target.gradient, true) > 0.97


def test_weights_shorter_than_their_clip_stay_as_they_are(tmp_path) -> None:
    _, _, targets = trained(tmp_path, "nbafl", {"clip": 50.0, "noise_std": 1e-4})
    assert all(target.stretched == 1.0 for target in targets)
