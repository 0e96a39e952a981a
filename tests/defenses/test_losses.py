"""Losses are torch's own, in value, batch and slope, and are carried as they are written."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.defenses.chain_engine import ChainTrainer
from dpfl_audit.defenses.engine import looped
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalJob, LocalTraining
from dpfl_audit.defenses.losses import LOSSES, loss_of
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 4
WEIGHT = [0.5, 1.0, 2.0, 0.25]
LABELS = torch.tensor([0, 3, 1, 1, 2])
SETS = torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1], [1, 0, 0, 0]])
BITS = torch.tensor([6, 0, 15, 8, 1])


def one_hot(labels: Tensor) -> Tensor:
    return F.one_hot(labels, CLASSES).double()


def focal(outputs: Tensor, labels: Tensor) -> Tensor:
    p = outputs.softmax(1).gather(1, labels[:, None]).squeeze(1)
    return (-((1 - p) ** 3) * p.log()).mean()


# written, targets as a setup keeps them, torch's own value of a batch
TORCH = {
    "cross_entropy": (LABELS, F.cross_entropy),
    "cross_entropy(label_smoothing=0.1)": (LABELS, lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1)),
    f"cross_entropy(weight={WEIGHT}, label_smoothing=0.2)": (
        LABELS,
        lambda z, y: F.cross_entropy(z, y, weight=torch.tensor(WEIGHT).double(), label_smoothing=0.2),
    ),
    "bce_with_logits": (LABELS, lambda z, y: F.binary_cross_entropy_with_logits(z, one_hot(y))),
    f"bce_with_logits(pos_weight={WEIGHT}, multi_label=True)": (
        BITS,
        lambda z, _: F.binary_cross_entropy_with_logits(z, SETS.double(), pos_weight=torch.tensor(WEIGHT).double()),
    ),
    "cross_entropy(weight=[1, 2, 1, 3])": (
        LABELS,
        lambda z, y: F.cross_entropy(z, y, weight=torch.tensor([1.0, 2, 1, 3]).double()),
    ),
    "focal(gamma=3)": (LABELS, focal),
    "squared_error(factor=1.0)": (LABELS, lambda z, y: F.mse_loss(z, one_hot(y))),
    "squared_error": (torch.linspace(-1, 1, 20).view(5, 4), lambda z, y: F.mse_loss(z, y.double()) / 2),
    "absolute_error": (LABELS, lambda z, y: F.l1_loss(z, one_hot(y))),
}
OUTPUTS = torch.randn(5, CLASSES, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("text", TORCH)
def test_a_batch_is_torchs_own_in_value_and_slope(text):
    targets, own = TORCH[text]
    loss, z = loss_of(text), OUTPUTS.clone().requires_grad_()
    assert loss.text == text
    by_records = loss.values(z, targets).sum() / loss.size(targets[None])[0]
    for value in (loss.mean(z, targets), by_records):
        torch.testing.assert_close(value, own(z, targets), rtol=1e-6, atol=0)
        found, right = (torch.autograd.grad(one, z, retain_graph=True)[0] for one in (value, own(z, targets)))
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-9)


def test_one_logit_and_pixels():
    z, y = OUTPUTS[:, :1], LABELS % 2
    value = loss_of("bce_with_logits").mean(z, y)
    torch.testing.assert_close(value, F.binary_cross_entropy_with_logits(z[:, 0], y.double()))
    p = z[:, 0].sigmoid()
    right = torch.where(y == 1, p, 1 - p)
    sigmoid_focal = torch.where(y == 1, 0.25, 0.75) * (1 - right) ** 2 * -right.log()  # torchvision's, by its paper
    torch.testing.assert_close(loss_of("focal(alpha=0.25)").values(z, y), sigmoid_focal)
    pixels, classes = torch.randn(2, CLASSES, 3, 3).double(), torch.randint(0, CLASSES, (2, 3, 3))
    weighed = loss_of(f"cross_entropy(weight={WEIGHT})")
    value = F.cross_entropy(pixels, classes, weight=torch.tensor(WEIGHT).double())
    torch.testing.assert_close(weighed.mean(pixels, classes), value)
    torch.testing.assert_close(weighed.values(pixels, classes).sum() / weighed.size(classes[None])[0], value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ctc", "known are cross_entropy, bce_with_logits"),
        ("focal(2)", "with parameters as in"),
        ("__import__('os').system('x')", "with parameters as in"),
        ("focal(gamma=__import__('os'))", "with parameters as in"),
        ("focal(beta=2)", "'beta' is no parameter of it; gamma, weight"),
        ("focal(gamma='x')", "wrong type"),
        ("focal(gamma=-1)", "gamma from 0 on"),
        ("cross_entropy(weight=[-1, 2])", "from 0 on"),
        ("cross_entropy(label_smoothing=1)", "below 1"),
    ],
)
def test_what_is_no_loss_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        loss_of(text)


@pytest.mark.parametrize(
    ("text", "outputs", "classes", "words"),
    [
        ("cross_entropy", 1, 2, "bce_with_logits"),
        ("cross_entropy", 3, 0, "takes classes"),
        ("bce_with_logits", 1, 3, "no 3 classes by one output"),
        ("hinge", 2, 2, "one output"),
        (f"cross_entropy(weight={WEIGHT})", 3, 3, "4 weights, and the network 3 outputs"),
    ],
)
def test_what_does_not_go_together_is_told(text, outputs, classes, words):
    assert words in loss_of(text).misfit(outputs, classes)


def test_what_does_is_not():
    assert {loss_of(name).misfit(4, 4) for name in LOSSES if name != "hinge"} == {""}
    assert {loss_of(name).misfit(1, 2) for name in LOSSES if name != "cross_entropy"} == {""}
    assert loss_of("squared_error").misfit(3, 0) == loss_of("absolute_error").misfit(1, 0) == ""


@pytest.mark.parametrize(
    "text", ["squared_error", "cross_entropy", "bce_with_logits", f"cross_entropy(weight={WEIGHT})"]
)
def test_both_engines_take_the_same_steps(text):
    """Stacked and in closed form as one client after the other; of weighed classes by Σ w_y, as torch does."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES))
    layout, inputs = Layout.of(net), torch.rand(5, 6)
    start = layout.join({n: p.detach() for n, p in net.named_parameters()})
    batches = torch.tensor([[0, 1, 2], [3, 4, -1]])
    training = LocalTraining(optimiser="sgd", lr=0.1, batch_size=3, loss=text)
    job = LocalJob(net, layout, training, start, inputs, LABELS, batches, "update", 0.1)
    alone = looped([job])[0].value
    closed = ChainTrainer.of(job)
    assert (closed is None) == (text not in ("squared_error", "cross_entropy"))
    if closed is not None:
        torch.testing.assert_close(closed.sgd(start[None], batches[None], [0.1, 0.1])[0] - start, alone)
    from dpfl_audit.defenses.engine import batched

    torch.testing.assert_close(batched([job, job])[1].value, alone)
    own, step = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES)), []
    own.load_state_dict(net.state_dict())
    for rows in ([0, 1, 2], [3, 4]):
        own.zero_grad()
        z, y = own(inputs[rows]), LABELS[rows]
        by_torch = {
            "squared_error": lambda z, y: F.mse_loss(z, one_hot(y).float()) / 2,
            "cross_entropy": F.cross_entropy,
            "bce_with_logits": lambda z, y: F.binary_cross_entropy_with_logits(z, one_hot(y).float()),
        }.get(text, lambda z, y: F.cross_entropy(z, y, weight=torch.tensor(WEIGHT)))
        by_torch(z, y).backward()
        with torch.no_grad():
            for p in own.parameters():
                p -= 0.1 * p.grad
        step.append(rows)
    torch.testing.assert_close(layout.join(dict(own.named_parameters())).detach() - start, alone)
