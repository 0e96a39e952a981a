"""Inversion by the loss that was minimised: every engine has its gradients, and labels are read by its errors."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.inversion.engines.convolved import Convolved, open_stages
from dpfl_audit.attacks.inversion.engines.double_backward import DoubleBackward
from dpfl_audit.attacks.inversion.engines.ghost import Ghost
from dpfl_audit.attacks.inversion.engines.grouped_steps import GroupedSteps
from dpfl_audit.attacks.inversion.labels.counts import labels_by_errors
from dpfl_audit.attacks.inversion.match.features import SolvedFeatures
from dpfl_audit.attacks.inversion.match.objective import Matching
from dpfl_audit.attacks.inversion.read.local_training import Recipe
from dpfl_audit.attacks.inversion.read.target import Target
from dpfl_audit.attacks.inversion.strategies.simulated import Simulated
from dpfl_audit.defenses.chain import open_chain
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.losses import loss_of
from torch import nn

WEIGHTED = "cross_entropy(weight=[0.5, 1, 1.5, 2, 1, 3])"
LOSSES = ["bce_with_logits", "bce_with_logits(multi_label=True)", WEIGHTED, "focal", "squared_error", "absolute_error"]
SHAPE, COUNT = (1, 6, 6), 3


def chain(outputs: int = 6) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.Tanh(), nn.Linear(16, outputs))


def conv(outputs: int = 6) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.Tanh(), nn.Flatten(), nn.Linear(36, outputs))


def made(net: nn.Module, loss: str, recipe: Recipe | None = None) -> tuple[Layout, Target, torch.Tensor]:
    """One step's gradient of labels 1, 4 and 2, or sets of labels, and candidates."""
    layout = Layout.of(net.double())
    images, labels = torch.rand(COUNT, *SHAPE).double(), torch.tensor([1, 4, 2])
    weights = layout.join({n: p.detach() for n, p in net.named_parameters()})
    gradient = torch.autograd.grad(loss_of(loss).mean(net(images), labels), list(net.parameters()))
    sent = layout.join(dict(zip(layout.names, gradient)))
    target = Target(
        "t", weights, sent, labels, COUNT, loss=loss, recipe=recipe, update=None if recipe is None else -sent
    )
    return layout, target, torch.rand(2, COUNT, *SHAPE).double()


@pytest.mark.parametrize("loss", [*LOSSES, "cross_entropy"])
@pytest.mark.parametrize("network", [chain, conv])
def test_engines_by_hand_are_double_backward(loss, network):
    torch.manual_seed(0)
    net = network()
    layout, target, images = made(net, loss)
    labels = target.labels[None]
    plain = DoubleBackward(net, layout, [target], labels, 2, Matching.of("euclidean", [target], 2))
    matching = Matching.of("euclidean", [target], 2)
    if network is chain:
        fast = Ghost(open_chain(net), layout, [target], labels, 2, matching)
    else:
        fast = Convolved(*open_stages(net, SHAPE), layout, [target], labels, 2, matching)
    for found, right in zip(fast(images), plain(images)):
        torch.testing.assert_close(found, right, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("loss", [*LOSSES, "cross_entropy"])
def test_simulated_steps_by_hand_are_those_by_autograd(loss):
    torch.manual_seed(0)
    recipe = Recipe("sgd", 0.1, (2, 1), 1)
    layout, target, images = made(chain(), loss, recipe)
    matching = Matching.of("euclidean", [target])
    both = Simulated(chain().double(), layout, target, target.labels[None], matching)
    assert both.ghost is not None
    for found, right in zip(both(images[:1]), both._unrolled(images[:1])):
        torch.testing.assert_close(found, right, rtol=1e-8, atol=1e-12)
    net = conv()
    layout, target, images = made(net, loss, recipe)
    alone = Simulated(net, layout, target, target.labels[None], Matching.of("euclidean", [target]))
    grouped = GroupedSteps(*open_stages(net, SHAPE, pools=True), layout, [target], Matching.of("euclidean", [target]))
    for found, right in zip(grouped(images[:1], target.labels[None]), alone(images[:1])):
        torch.testing.assert_close(found, right, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("loss", ["cross_entropy", "bce_with_logits", "focal", WEIGHTED, "squared_error"])
def test_a_classifiers_inputs_are_solved_for_by_any_curved_loss(loss):
    torch.manual_seed(0)
    net = conv(10).double()
    weights = Layout.of(net).join({n: p.detach() for n, p in net.named_parameters()})
    loss = loss.replace("3]", "3, 1, 1, 1, 1]")
    images, labels = torch.rand(COUNT, *SHAPE).double(), torch.tensor([1, 4, 2])
    gradient = torch.autograd.grad(loss_of(loss).mean(net(images), labels), list(net.parameters()))
    target = Target("t", weights, torch.cat([g.flatten() for g in gradient]), labels, COUNT, loss=loss)
    found = SolvedFeatures.of(net, Layout.of(net), target, labels, SHAPE)
    right = net[:-1](images).detach() @ found.directions.T
    torch.testing.assert_close(found.places, right, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("loss", ["bce_with_logits", "focal", WEIGHTED, "cross_entropy(label_smoothing=0.1)"])
def test_labels_are_those_whose_errors_add_up_to_the_bias_gradient(loss):
    torch.manual_seed(1)
    for _ in range(5):
        net, images, labels = chain().double(), torch.rand(8, *SHAPE).double(), torch.randint(0, 6, (8,))
        gradient = torch.autograd.grad(loss_of(loss).mean(net(images), labels), list(net.parameters()))[-1]
        probes = net(torch.rand(64, *SHAPE).double()).detach()
        assert labels_by_errors(gradient, probes, loss_of(loss), 8, True).tolist() == sorted(labels.tolist())


def test_one_logit_and_sets_of_labels():
    torch.manual_seed(1)
    bce = loss_of("bce_with_logits")
    net, images, labels = chain(1).double(), torch.rand(8, *SHAPE).double(), torch.tensor([0, 0, 1, 0, 1, 0, 0, 0])
    gradient = torch.autograd.grad(bce.mean(net(images), labels), list(net.parameters()))[-1]
    probes = net(torch.rand(64, *SHAPE).double()).detach()
    assert labels_by_errors(gradient, probes, bce, 8, True).tolist() == sorted(labels.tolist())
    with pytest.raises(ValueError, match="one record alone"):
        labels_by_errors(gradient, probes, bce, 8, False)
    sets, net = loss_of("bce_with_logits(multi_label=True)"), chain().double()
    own = torch.tensor([0b101001])
    gradient = torch.autograd.grad(sets.mean(net(images[:1]), own), list(net.parameters()))[-1]
    assert labels_by_errors(gradient, probes.expand(-1, 6), sets, 1, False).tolist() == own.tolist()
    with pytest.raises(ValueError, match="which stand together"):
        labels_by_errors(gradient, probes.expand(-1, 6), sets, 2, True)
