"""Whether a recording's loss is what attacks take it for: right trainings are never called another loss."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from dpfl_audit import Gaussian, Recorder
from dpfl_audit.audit import run as runner
from dpfl_audit.audit.ci.diff import compared
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.results.gates import outcome, parse_gate
from dpfl_audit.audit.scoring.trained_loss import FITS, Upload, misfit
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from torch import nn
from torch.nn import functional as F

CLASSES, RECORDS = 5, 8


def smoothed(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, label_smoothing=0.1)


def weighed(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, weight=torch.linspace(0.2, 2, outputs.shape[1]))


def bce(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(outputs, F.one_hot(targets, outputs.shape[1]).float())


def mse(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(outputs, F.one_hot(targets, outputs.shape[1]).float())


def conv(*more: nn.Module) -> nn.Sequential:
    first = (nn.Conv2d(1, 8, 5, 2, 2), *more, nn.Tanh())
    return nn.Sequential(*first, nn.Conv2d(8, 8, 5, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(72, CLASSES))


NETS = {
    "conv": conv,
    "batchnorm": lambda: conv(nn.BatchNorm2d(8)),
    "dropout": lambda: conv(nn.Dropout(0.5)),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, CLASSES)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
}
STEPS = {"one": (1, RECORDS), "five": (5, RECORDS), "batches": (2, 3)}  # epochs, batch size
OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "slow": lambda p: torch.optim.SGD(p, 1e-3),
    "decay": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.05),
    "nesterov": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3),
}
SENT = {
    "clipped": lambda v: v / v.norm(),
    "halves": lambda v: v.half().float(),
    "signs": lambda v: v.sign(),
    "sparse": lambda v: torch.where(v.abs() >= v.abs().quantile(0.9), v, 0.0),
    "noised": lambda v: v + 0.1 * v.norm() / len(v) ** 0.5 * torch.randn(len(v)),
}


def uploaded(net="conv", loss=F.cross_entropy, optimiser="sgd", steps="one", sent=lambda v: v, used=RECORDS) -> Upload:
    torch.manual_seed(3)
    network, inputs, targets = NETS[net](), torch.rand(RECORDS, 1, 12, 12), torch.randint(0, CLASSES, (RECORDS,))
    layout, trained = Layout.of(network), copy.deepcopy(network)
    weights = layout.join(dict(network.named_parameters())).detach()
    stepping, (epochs, size) = OPTIMISERS[optimiser](trained.parameters()), STEPS[steps]
    for _ in range(epochs):
        for rows in torch.randperm(used).split(size):
            stepping.zero_grad()
            loss(trained(inputs[rows]), targets[rows]).backward()
            stepping.step()
    value = sent(layout.join(dict(trained.named_parameters())).detach() - weights)
    return Upload(network, layout, weights, value, False, inputs, targets, "cross_entropy", CLASSES)


@pytest.mark.few(5)
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("steps", STEPS)
def test_no_right_training_is_called_another_loss(net, steps):
    """Of every optimiser; by hand, one thing at a time, so that no other rule of the tool is in it."""
    for optimiser in OPTIMISERS:
        assert misfit(uploaded(net, optimiser=optimiser, steps=steps), None) is None


@pytest.mark.parametrize("sent", SENT)
def test_nor_is_what_is_done_to_an_update(sent):
    assert misfit(uploaded(sent=SENT[sent]), None) is None


@pytest.mark.parametrize("loss", [smoothed, weighed])
def test_nor_are_records_that_weigh_unequally_or_smoothed_labels(loss):
    """Cross-entropy in another measure: nothing proves it, and it does not fit where it matters."""
    assert misfit(uploaded(loss=loss), None) is None
    assert uploaded(loss=weighed).left_by_step() > 0.5
    assert misfit(uploaded(used=4), None) is None  # a batch of some of the records


def test_a_declared_single_step_leaves_no_room_for_weights():
    declared = LocalTraining(optimiser="sgd", batch_size=RECORDS)
    assert misfit(uploaded(), declared) is None
    by_loss, by_any = misfit(uploaded(loss=weighed), declared)
    assert by_loss > 0.5 and by_any < 1e-4


@pytest.mark.parametrize("net", ["conv", "mlp"])
@pytest.mark.parametrize("loss", [bce, mse])
def test_another_loss_is_measured(net, loss):
    by_loss, by_any = misfit(uploaded(net, loss), None)
    assert by_loss > 0.5 and by_any < 1e-4
    assert misfit(uploaded(net, loss, steps="five"), None) is None  # several steps tell nothing


@pytest.mark.parametrize(("optimiser", "sent"), [("sgd", "clipped"), ("decay", "clipped"), ("slow", "halves")])
def test_one_step_fits_at_any_scale(optimiser, sent):
    assert uploaded(optimiser=optimiser, sent=SENT[sent]).left_by_step() < FITS / 10


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_declared_local_training_is_simulated(optimiser):
    ran = uploaded(optimiser=optimiser, steps="five")
    told = LocalTraining(optimiser=optimiser, lr={"sgd": 0.1, "adam": 1e-3}[optimiser], batch_size=RECORDS, epochs=5)
    assert ran.left_by_training(told) < FITS / 10 < FITS < ran.left_by_step()
    assert uploaded(loss=bce, optimiser=optimiser, steps="five").left_by_training(told) > 0.3


# --- a whole audit


CLIENTS, HELD = 12, 3  # so few records that each shows in its client's update


def recorded(folder: Path, loss, noise_std: float = 0.0, records: bool = True, idle: int = 0, declared=None) -> Results:
    """The twins of a report: one step of each client, whose members `membership-cosine` tells by their gradients.

    idle: how many of the clients send zeros. declared: as their loss.
    """
    draw = torch.Generator().manual_seed(3)
    torch.manual_seed(0)
    net, members = conv(), CLIENTS * HELD
    count = members + 96
    images, labels = torch.rand(count, 1, 12, 12, generator=draw), torch.randint(0, CLASSES, (count,), generator=draw)
    model = {name: value.clone() for name, value in net.state_dict().items()}
    noise = Gaussian(clip=1.0, noise_std=noise_std, by="client") if noise_std else None
    data = {"by_lot": True, "classes": CLASSES}
    with Recorder(folder / "setup", net, data=data, mechanism=noise, loss=declared) as rec:
        rec.candidates(images, labels, [i // HELD if i < members else -1 for i in range(count)])
        rec.broadcast(0, model)
        for client in range(CLIENTS):
            rows = slice(client * HELD, (client + 1) * HELD)
            net.zero_grad()
            loss(net(images[rows]), labels[rows]).backward()
            update = {name: -0.1 * p.grad + noise_std * torch.randn(p.shape) for name, p in net.named_parameters()}
            if client < idle:
                update = {name: torch.zeros_like(value) for name, value in update.items()}
            pair = (images[rows], labels[rows]) if records else None
            rec.upload(0, client, update, num_examples=HELD, records=pair)
        rec.broadcast(1, model)
    options = runner.RunOptions(attacks=("membership-cosine",), pixels_only=True)
    return runner.run(folder / "setup", folder / "results", options)


def test_the_twin_by_cross_entropy_keeps_its_level(tmp_path):
    results = recorded(tmp_path, F.cross_entropy)
    assert {attack.doubt for attack in results.attacks} == {""}
    assert results.verdict.measured and results.verdict.level in ("moderate", "high")


@pytest.mark.parametrize(
    ("loss", "declared"),
    [(bce, "bce_with_logits"), (mse, nn.MSELoss()), (smoothed, nn.CrossEntropyLoss(label_smoothing=0.1))],
)
def test_nor_does_a_twin_by_a_declared_loss_lose_it(loss, declared, tmp_path):
    results = recorded(tmp_path, loss, declared=declared)
    assert {attack.doubt for attack in results.attacks} == {""}
    assert results.verdict.measured and results.verdict.level in ("moderate", "high")


def test_declared_and_hidden_by_noise_it_stays_declared(tmp_path):
    results = recorded(tmp_path, bce, noise_std=0.05, declared="bce_with_logits")
    assert {attack.doubt for attack in results.attacks} == {""}


@pytest.mark.parametrize("idle", [0, 8])
def test_the_twin_by_another_loss_was_not_measured(idle, tmp_path):
    """Zeros of idle clients are a gradient of any loss, and count for none."""
    results = recorded(tmp_path, bce, idle=idle)
    (doubt,) = {attack.doubt for attack in results.attacks}
    assert doubt.startswith("loss taken as cross-entropy, which does not fit")
    assert doubt in results.verdict.sentences[0]
    assert any(doubt[1:] in text for text in results.warnings)
    assert not results.verdict.measured
    with pytest.raises(BadInput, match="no level was measured"):
        outcome(parse_gate("level >= high"), results)


def test_a_difference_takes_what_is_doubted_for_lost_and_not_for_better(tmp_path):
    trusted, doubted = (recorded(tmp_path / loss.__name__, loss) for loss in (F.cross_entropy, bce))
    metrics = {(one.what, one.change) for one in compared(trusted, doubted).differences if one.what == "auc"}
    assert metrics == {("auc", "lost")}
    again = compared(doubted, doubted)
    assert again.regressions == [] and {one.change for one in again.differences} == {"unclear"}


def test_the_uploads_that_are_compared_are_a_lot_of_all(tmp_path):
    """A third of twelve clients trained by another loss; the first eight uploads by themselves would all fit."""
    mixed = [F.cross_entropy] * 8 + [bce] * 4
    results = recorded(tmp_path, lambda outputs, targets: mixed.pop(0)(outputs, targets))
    (doubt,) = {attack.doubt for attack in results.attacks}
    assert doubt.startswith("loss taken as cross-entropy, which does not fit")


@pytest.mark.parametrize("given", [{"noise_std": 0.05}, {"records": False}])
def test_what_nothing_tells_was_not_checked(given, tmp_path):
    results = recorded(tmp_path, F.cross_entropy, **given)
    assert all(attack.doubt.startswith("loss taken as cross-entropy, not checked") for attack in results.attacks)
    assert results.verdict.level != "none found"
