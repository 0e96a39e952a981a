"""BatchNorm's running statistics, sent beside the parameters, tell a batch's own; and images are asked for those."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dpfl_audit import Gaussian, Recorder
from dpfl_audit.attacks.base import Knowledge, View
from dpfl_audit.attacks.inversion.ablated import SWITCHES, ablation
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import DEFAULTS
from dpfl_audit.attacks.inversion.match.case import Case
from dpfl_audit.attacks.inversion.match.evaluate import loss_at
from dpfl_audit.attacks.inversion.match.told_statistics import ToldMoments, told_moments, with_statistics
from dpfl_audit.attacks.inversion.presets.automatic import RULES
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from dpfl_audit.attacks.inversion.read.mode import as_run
from dpfl_audit.attacks.inversion.read.statistics import (
    STATISTICS,
    Statistics,
    as_broadcast,
    batch_moments,
    batchnorms,
    running_moments,
)
from dpfl_audit.attacks.inversion.read.target import Target, one_round
from dpfl_audit.attacks.inversion.solve import solve
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.folder import Setup
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.terms import Observer
from messages import target_of
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE, N, LR = (1, 6, 6), 5, 0.1

OWN = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().flatten(1))
"""


def network(momentum: float | None = 0.1) -> nn.Module:
    """Both kinds of BatchNorm, after two batches of noise."""
    torch.manual_seed(0)
    parts = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=momentum), nn.ReLU(), nn.Flatten(), nn.Linear(64, 6)]
    module = nn.Sequential(*parts, nn.BatchNorm1d(6, momentum=momentum), nn.ReLU(), nn.Linear(6, 3)).train()
    for _ in range(2):
        module(torch.rand(7, *SHAPE))
    return module


def batch(seed: int = 1) -> Tensor:
    return torch.rand(N, *SHAPE, generator=torch.Generator().manual_seed(seed))


def buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.float().clone() for name, value in module.named_buffers()}


def seen_by_layers(module: nn.Module, images: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Of a network in training mode; the mean and variance that torch itself finds in what goes into each layer."""
    found = {}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            values = given[0].double().transpose(0, 1).flatten(1)
            found[name] = values.mean(1), values.var(1)

        return hook

    own = copy.deepcopy(module)
    for name, layer in batchnorms(own).items():
        layer.register_forward_pre_hook(keep(name))
    own(images)
    return found


@pytest.mark.parametrize("momentum", (0.1, 0.7, 1.0, None))
def test_the_statistics_of_a_batch_are_read_off_what_it_did_to_the_running_ones(momentum: float | None) -> None:
    module = network(momentum)
    before, true = buffers(module), seen_by_layers(module, batch())
    module(batch())
    found, steps = batch_moments(batchnorms(module), before, buffers(module))
    assert steps == 1 and found.keys() == true.keys() == {"1", "5"}
    for name, moments in true.items():
        for own, other in zip(found[name], moments):
            assert torch.allclose(own, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("momentum", (0.3, None))
def test_of_several_steps_they_are_a_mean_over_batches(momentum: float | None) -> None:
    module = network(momentum)
    before, true = buffers(module), [seen_by_layers(module, batch(k)) for k in range(3)]
    for k in range(3):
        module(batch(k))
    found, steps = batch_moments(batchnorms(module), before, buffers(module))
    weights = torch.tensor([1.0, 1.0, 1.0] if momentum is None else [0.49, 0.7, 1.0], dtype=torch.float64)
    assert steps == 3
    for name, moments in found.items():
        for place in (0, 1):
            mean = (torch.stack([one[name][place] for one in true]) * weights[:, None]).sum(0) / weights.sum()
            assert torch.allclose(moments[place], mean, rtol=1e-4, atol=1e-6)


def test_a_network_that_was_never_trained_and_a_client_that_kept_its_statistics_tell_nothing() -> None:
    fresh = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
    assert running_moments(batchnorms(fresh), buffers(fresh)) == {} == running_moments(batchnorms(fresh), {})
    module = network()
    before = buffers(module)
    assert running_moments(batchnorms(module), before).keys() == {"1", "5"}
    module.eval()(batch())
    assert batch_moments(batchnorms(module), before, buffers(module)) == ({}, 0)
    noised = {**before, "1.running_var": -before["1.running_var"]}
    assert running_moments(batchnorms(module), noised).keys() == {"5"}


def told(module: nn.Module, images: Tensor) -> ToldMoments:
    own = copy.deepcopy(module)
    before = buffers(own)
    own(images)
    found, _ = batch_moments(batchnorms(own), before, buffers(own))
    run = as_run(module, "train").double()
    return ToldMoments(run, {name: p.detach() for name, p in run.named_parameters()}, found, 3.0)


def test_the_true_images_alone_have_a_distance_of_0_whatever_their_order() -> None:
    one, images = told(network(), batch()), batch().double()
    assert one.distance(images) < 1e-4 and one.distance(images.flip(0)) < 1e-4
    steps = [one.distance(images + share * torch.rand_like(images)).item() for share in (0.01, 0.1, 1.0)]
    assert 1e-3 < steps[0] < steps[1] < steps[2]


def test_its_slope_is_that_of_finite_differences_and_weighs_as_asked() -> None:
    one, images = told(network(), batch()), batch(2).double()

    def nothing(of: Tensor) -> tuple[Tensor, Tensor]:
        return of.new_ones(len(of)), torch.zeros_like(of)

    asked = with_statistics(nothing, [[one], [], [one, one]])
    values, slopes = asked(torch.stack([images] * 3))
    assert values[1] == 1 and not slopes[1].any()
    assert values[0] == values[2] and torch.equal(slopes[0], slopes[2])
    way, step = torch.randn(images.shape, generator=torch.Generator().manual_seed(3)).double(), 1e-6
    ahead, behind = (one.distance(images + sign * step * way).item() for sign in (1, -1))
    assert float((slopes[0] * way).sum()) == pytest.approx(3 * (ahead - behind) / (2 * step), rel=1e-4)
    assert values[0].item() == pytest.approx(1 + 3 * one.distance(images).item())
    assert with_statistics(nothing, [[], []]) is nothing


def test_a_single_image_has_a_mean_and_no_variance_to_be_asked_for() -> None:
    module = network().eval()
    known = running_moments(batchnorms(module), buffers(module))
    one = ToldMoments(module, dict(module.named_parameters()), known, 1.0)
    x = batch()[:1].requires_grad_()
    (slope,) = torch.autograd.grad(one.distance(x), x)
    assert slope.isfinite().all() and slope.any()


def test_the_batchs_statistics_explain_a_gradient_of_training_and_running_ones_do_not() -> None:
    module = network()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    target = target_of(copy.deepcopy(module), batch(), torch.arange(N) % 3)
    settings, losses = Inversion(tv=0.0, objective="euclidean", iterations=20), {}
    for mode in ("train", "eval"):
        own = as_run(module, mode)
        losses[mode] = loss_at(Case(own, Layout.of(own), target, target.labels, SHAPE, settings, 0), batch())
    assert losses["train"] < 1e-5 and losses["eval"] > 1e-3
    assert solve(module, [target], SHAPE, settings, 0)[0].loss < 1
    assert module.training and all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch, eval_mode: bool = False, **facts: Any) -> Any:
    """A client's one step on a network that saw other batches, recorded whole; the module before it, and the step."""
    (folder / "my_counting_net.py").write_text(OWN)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    torch.manual_seed(2)
    net = __import__("my_counting_net").Net().train()
    for _ in range(3):
        net(torch.rand(8, *SHAPE))
    first = copy.deepcopy(net)
    local = {"optimiser": "sgd", "lr": LR, "batch_size": N, "epochs": 1}
    facts = {"share": "weights", "tables": {"local": local}, **facts}
    labels = torch.tensor([0, 0, 1, 1, 2])
    with Recorder("s", net, data={"input_shape": SHAPE, "classes": 3}, **facts) as rec:
        rec.broadcast(0, net)
        net.train(not eval_mode)
        F.cross_entropy(net(batch()), labels).backward()
        torch.optim.SGD(net.parameters(), lr=LR).step()
        sent = net.state_dict()
        if facts["share"] == "update":
            sent = {name: value - first.state_dict()[name] for name, value in sent.items()}
        rec.upload(0, 0, sent, N, records=(batch(), labels))
    setup, _ = check_setup(Path("s"))
    assert isinstance(setup, Setup)
    return first, setup.view(Observer.parse("server"), "my_counting_net:Net"), setup.knowledge()


def statistics_of(view: View, knowledge: Knowledge) -> Statistics | None:
    (aim,) = one_round(view, knowledge)
    return aim.target.statistics


@pytest.mark.parametrize("share", ("weights", "update"))
def test_a_recording_tells_the_batchs(share: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, view, knowledge = recorded(tmp_path, monkeypatch, share=share)
    found = statistics_of(view, knowledge)
    assert found is not None and found.steps == 1
    for own, other in zip(found.batch["1.norm"], seen_by_layers(first, batch())["norm"]):
        assert torch.allclose(own, other, rtol=1e-3, atol=1e-5)
    assert torch.equal(found.running["1.norm"][0], first.norm.running_mean)
    both = Inversion(batch_statistics=0.1, running_statistics=0.2)
    assert found.used(both) == (found.batch, 0.1) and found.used(replace(both, mode="eval")) == (found.running, 0.2)
    assert found.used(replace(both, batch_statistics=0)) == (found.running, 0.2) and found.used(Inversion())[0] == {}
    assert "training alone" in " ".join(found.assumed(Inversion(mode="eval")))
    attack = Inversion(iterations=3, batch_statistics=STATISTICS)
    words = attack.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0).assumed
    assert any("batch's own" in said for said in words)
    plain = replace(attack, batch_statistics=0.0)
    assert not any(
        "running" in said for said in plain.run_part(attack.parts(view, knowledge)[0], view, knowledge, 0).assumed
    )


@pytest.mark.parametrize("how", ("noise", "clip", "eval"))
def test_what_hides_the_batchs_leaves_the_models(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics that were clipped or noised with the rest, or that the client did not change."""
    declared = {"mechanism": Gaussian(clip=1, noise_std=0.1, by="client")} if how == "noise" else {}
    _, view, knowledge = recorded(tmp_path, monkeypatch, eval_mode=how == "eval", **declared)
    if how == "clip":
        view = replace(view, facts=replace(view.facts, clip_norm=1.0))
    found = statistics_of(view, knowledge)
    assert found is not None and not found.batch and found.running
    settings = Inversion(batch_statistics=0.1)
    assert found.assumed(settings) == []
    assert "running ones" in found.assumed(replace(settings, running_statistics=0.1))[0]


def test_fixed_statistics_are_those_of_the_model_that_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, view, knowledge = recorded(tmp_path, monkeypatch, eval_mode=True)
    (aim,) = one_round(view, knowledge)
    settings, losses = Inversion(tv=0.0, objective="euclidean", mode="eval", iterations=3), []
    for statistics in (aim.target.statistics, None):
        run = as_run(as_broadcast(view.module, statistics), "eval")
        losses.append(loss_at(Case(run, Layout.of(run), aim.target, aim.target.labels, SHAPE, settings, 0), batch()))
    assert losses[0] < 1e-6 < 1e-3 < losses[1]
    both = [aim.target, replace(aim.target, key="other", statistics=None)]
    together = solve(view.module, both, SHAPE, settings, 0)
    assert together[0].loss != together[1].loss
    assert together[0].loss == solve(view.module, both[:1], SHAPE, settings, 0)[0].loss
    found = settings.run_part(settings.parts(view, knowledge)[0], view, knowledge, 0)
    assert any("fixed statistics" in words for words in found.assumed)


def test_they_are_withheld_with_the_statistics_of_normalisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, view, knowledge = recorded(tmp_path, monkeypatch)
    what = "normalisation statistics"
    assert what in ablation(Inversion(batch_statistics=0.1), [view], knowledge).attacks
    assert what in ablation(Inversion(), [view], knowledge).nothing
    assert statistics_of(*SWITCHES[what](view, knowledge)) is None


def test_images_come_nearer_with_the_batchs() -> None:
    module, images, labels = network(), batch(), torch.arange(N) % 3
    run = as_run(module, "train")
    gradient = torch.autograd.grad(F.cross_entropy(run(images), labels), list(run.parameters()))
    layout, before = Layout.of(run), buffers(module)
    module(images)
    weights = layout.join(dict(run.named_parameters())).detach()
    found = Statistics(
        running_moments(batchnorms(module), before), *batch_moments(batchnorms(module), before, buffers(module))
    )
    target = Target("t", weights, torch.cat([g.flatten() for g in gradient]), labels, N, statistics=found)
    off = {}
    for weight in (0.0, STATISTICS):
        (solved,) = solve(module, [target], SHAPE, Inversion(iterations=50, batch_statistics=weight), 0)
        (own,) = told_moments(run, layout, target, Inversion(batch_statistics=1.0))
        off[weight] = own.distance(solved.images).item(), (solved.images - images).square().mean().item()
    assert off[STATISTICS][0] < off[0.0][0] / 2 and off[STATISTICS][1] < off[0.0][1]


def test_which_settings_use_them_and_which_are_refused() -> None:
    using = {name for name, published in PRESETS.items() if published.settings.batch_statistics}
    assert using == {"gradinversion", "see-through"}
    for settings in (PRESETS[name].settings for name in using):  # α_BN of Yin et al., and breaching's scale
        assert settings.batch_statistics == settings.running_statistics == 0.1
    assert DEFAULTS["batch_statistics"] == STATISTICS and "running_statistics" not in DEFAULTS
    assert [r.preset for r in RULES if r.settings.get("batch_statistics") != STATISTICS] == ["dlg"]
    with pytest.raises(ValueError, match="batch_statistics does nothing beside a learned prior"):
        Inversion(objective="euclidean", learned=True, batch_statistics=0.1)
