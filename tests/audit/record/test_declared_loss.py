"""What clients minimise, as their owner declares it: which targets go with it, what refuses it, what it finds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from dpfl_audit import BadInput, Recorder
from dpfl_audit.audit import run as runner
from dpfl_audit.audit.record.declared_loss import declared_loss
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.defenses.losses import ALLOWED
from tiers import quick
from torch import Tensor, nn
from torch.nn import functional as F

WEIGHT = torch.tensor([0.5, 2.0])
BCE = F.binary_cross_entropy_with_logits


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, None),
        ("focal( gamma = 2.0 )", "focal"),
        (
            nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.1),
            "cross_entropy(weight=[0.5, 2.0], label_smoothing=0.1)",
        ),
        (nn.NLLLoss(), "cross_entropy"),
        (nn.BCEWithLogitsLoss(pos_weight=WEIGHT), "bce_with_logits(pos_weight=[0.5, 2.0])"),
        (nn.MSELoss(), "squared_error(factor=1.0)"),
        (F.l1_loss, "absolute_error"),
        (partial(F.cross_entropy, label_smoothing=0.5), "cross_entropy(label_smoothing=0.5)"),
    ],
)
def test_torchs_own_losses_are_read(given, text):
    assert declared_loss(given) == text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (nn.CTCLoss(), "CTCLoss: attacks know cross_entropy, .* leave loss out"),
        (F.kl_div, "kl_div: attacks know"),
        (lambda z, y: z, "attacks know"),
        (3, "int: attacks know"),
        ("ctc", "known are cross_entropy"),
        (nn.MSELoss(reduction="sum"), "expected the mean over a batch"),
        (nn.CrossEntropyLoss(ignore_index=0), "without a target"),
        (nn.BCEWithLogitsLoss(weight=WEIGHT), "pos_weight can"),
    ],
)
def test_others_are_refused_when_the_recorder_opens(given, words, tmp_path):
    with pytest.raises(BadInput, match=words):
        Recorder(tmp_path / "s", nn.Linear(3, 2), loss=given, strict=True)
    assert not (tmp_path / "s").exists()


def test_outputs_too_few_for_the_loss_are_told_when_it_opens(tmp_path):
    with pytest.raises(BadInput, match="of one logit it is bce_with_logits"):
        Recorder(tmp_path / "s", nn.Sequential(nn.Linear(3, 1)), loss="cross_entropy", strict=True)
    with pytest.raises(BadInput, match="give it once"):
        Recorder(tmp_path / "s", nn.Linear(3, 2), loss="focal", tables={"local": {"loss": "hinge"}}, strict=True)


# --- targets


def held(folder: Path, net: nn.Module, targets: Tensor, loss: object, shape: tuple[int, ...] = (4,)) -> tuple:
    """What a setup keeps of six records' targets: classes, shape, the loss, the targets."""
    start = net.state_dict()
    with Recorder(folder, net, loss=loss, strict=True) as rec:
        rec.broadcast(0, start)
        pair = torch.rand(6, *shape, generator=torch.Generator().manual_seed(0)), targets
        rec.upload(0, 0, {n: torch.ones_like(v) for n, v in start.items()}, 6, records=pair)
    setup, auditor = check_setup(folder)
    data = setup.manifest.data
    return data.classes, data.target_shape, setup.facts.loss, auditor.truth.targets.tolist()


ONES = torch.tensor([0, 1, 1, 0, 0, 1])
SETS = torch.tensor([[0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 1], [0, 1, 0], [0, 0, 1]])
BITS = [6, 0, 1, 7, 2, 4]
NUMBERS = torch.arange(18.0).view(6, 3) / 4
LOGIT, THREE = partial(nn.Linear, 4, 1), partial(nn.Linear, 4, 3)


@pytest.mark.parametrize(
    ("made", "targets", "loss", "kept"),
    [
        (LOGIT, ONES.float()[:, None], "bce_with_logits", (2, [], "bce_with_logits", ONES.tolist())),
        (LOGIT, ONES.bool(), nn.BCEWithLogitsLoss(), (2, [], "bce_with_logits", ONES.tolist())),
        (LOGIT, ONES.float(), None, (2, [], "bce_with_logits", ONES.tolist())),  # values decide, and it is checked
        (LOGIT, ONES[:, None] + 0.5, nn.MSELoss(), (0, [], "squared_error(factor=1.0)", (ONES + 0.5).tolist())),
        (LOGIT, ONES + 0.5, None, (0, [], "squared_error", (ONES + 0.5).tolist())),
        (THREE, SETS, "bce_with_logits", (3, [], "bce_with_logits(multi_label=True)", BITS)),
        (THREE, SETS.float(), "focal", (3, [], "focal(multi_label=True)", BITS)),
        (THREE, F.one_hot(ONES, 3), None, (3, [], "cross_entropy", ONES.tolist())),  # and the loss is checked
        (THREE, F.one_hot(ONES, 3), "cross_entropy", (3, [], "cross_entropy", ONES.tolist())),
        (THREE, ONES.double(), "cross_entropy", (3, [], "cross_entropy", ONES.tolist())),
        (THREE, NUMBERS, "absolute_error", (0, [3], "absolute_error", NUMBERS.tolist())),
    ],
)
def test_targets_are_what_their_values_the_outputs_and_the_loss_say(made, targets, loss, kept, tmp_path):
    assert held(tmp_path / "s", made(), targets, loss) == kept


def test_a_class_for_each_pixel(tmp_path):
    masks = torch.randint(0, 3, (6, 5, 5), generator=torch.Generator().manual_seed(1))
    net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1))
    kept = (3, [5, 5], "cross_entropy", masks.tolist())
    assert held(tmp_path / "s", net, masks, "cross_entropy", (1, 5, 5)) == kept


@pytest.mark.parametrize(
    ("made", "targets", "loss", "words"),
    [
        (THREE, SETS, None, "say what was minimised"),
        (THREE, SETS, "cross_entropy", "takes one class of a record"),
        (THREE, SETS[:, :2], "bce_with_logits", "outputs of shape"),
        (THREE, SETS + 0.5, "bce_with_logits", "0 or 1 for each of 3 labels"),
        (THREE, ONES + 0.5, "cross_entropy", "takes classes, and the targets are numbers"),
        (THREE, ONES + 2, "cross_entropy", "class numbers from 0 to 2"),
    ],
)
def test_others_are_refused_with_the_first_records(made, targets, loss, words, tmp_path):
    with pytest.raises(BadInput, match=words):
        held(tmp_path / "s", made(), targets, loss)


# --- what attacks get

CLIENTS, HELD, CLASSES = 4, 4, 5
CLASS_WEIGHT = torch.linspace(0.5, 2, CLASSES)


def one_hot(labels: Tensor) -> Tensor:
    return F.one_hot(labels, CLASSES).float()


def focal(outputs: Tensor, labels: Tensor) -> Tensor:
    values = F.cross_entropy(outputs, labels, reduction="none")
    return ((1 - (-values).exp()) ** 2 * values).mean()


def tempered(outputs: Tensor, labels: Tensor) -> Tensor:
    """None of those that attacks know."""
    return F.cross_entropy(outputs / 2, labels)


def each_record(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


# what a client minimises, what is declared, outputs
TWINS = {
    "cross-entropy": (F.cross_entropy, "cross_entropy", CLASSES),
    "bce": (lambda z, y: BCE(z, one_hot(y)), nn.BCEWithLogitsLoss(), CLASSES),
    "focal": (focal, "focal(gamma=2)", CLASSES),
    "weighed": (partial(F.cross_entropy, weight=CLASS_WEIGHT), nn.CrossEntropyLoss(weight=CLASS_WEIGHT), CLASSES),
    "smoothed": (partial(F.cross_entropy, label_smoothing=0.1), nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES),
    "mse": (lambda z, y: F.mse_loss(z, one_hot(y)), nn.MSELoss(), CLASSES),
    "sets of labels": (lambda z, y: BCE(z, y), "bce_with_logits", CLASSES),
    "one logit": (lambda z, y: BCE(z[:, 0], y), "bce_with_logits", 1),
    "its owner's": (tempered, tempered, CLASSES),
}


def mlp(outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, outputs))


def conv(outputs: int) -> nn.Sequential:
    first = (nn.Conv2d(1, 16, 5, 2, 2), nn.Tanh(), nn.Conv2d(16, 16, 5, 2, 2), nn.Tanh())
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(256, outputs))


def attacked(folder: Path, net: nn.Module, twin: str, declared: bool = True, steps: int = 2, **asked) -> Results:
    """Clients of `HELD` records that take so many steps of SGD, and what is found of the first one's."""
    minimised, loss, _ = TWINS[twin]
    draw = torch.Generator().manual_seed(3)
    count = CLIENTS * HELD + 96
    images = torch.rand(count, 1, 16, 16, generator=draw)
    targets = torch.randint(0, CLASSES, (count,), generator=draw)
    if twin == "sets of labels":
        targets = (torch.rand(count, CLASSES, generator=draw) < 0.4).float()
    if twin == "one logit":
        targets = (targets % 2).float()
    model = {name: value.clone() for name, value in net.state_dict().items()}
    tables = {"local": {"optimiser": "sgd", "lr": 0.1, "batch_size": HELD // steps, "epochs": 1}}
    told = {"loss": loss} if declared else {}
    with Recorder(folder / "setup", net, data={"by_lot": True}, keep=[0, 1], tables=tables, **told, strict=True) as rec:
        rec.candidates(images, targets, [i // HELD if i < CLIENTS * HELD else -1 for i in range(count)])
        rec.broadcast(0, model)
        for client in range(CLIENTS):
            rows = torch.arange(client * HELD, (client + 1) * HELD)
            net.load_state_dict(model)
            stepping = torch.optim.SGD(net.parameters(), 0.1)
            for some in rows.split(HELD // steps):
                stepping.zero_grad()
                minimised(net(images[some]), targets[some]).backward()
                stepping.step()
            update = {name: value - model[name] for name, value in net.state_dict().items()}
            rec.upload(0, client, update, num_examples=HELD, records=(images[rows], targets[rows]))
        rec.broadcast(1, model)
    options = runner.RunOptions(**{"attacks": ("inversion",), "pixels_only": True, **asked})
    return runner.run(folder / "setup", folder / "results", options)


@pytest.mark.parametrize("twin", quick(TWINS, 1, 8))
def test_two_steps_of_any_loss_give_the_images_away_as_those_of_cross_entropy_do(twin, tmp_path):
    torch.manual_seed(0)
    results = attacked(tmp_path, mlp(TWINS[twin][2]), twin)
    assert {attack.doubt for attack in results.attacks} == {""} and results.verdict.level == "severe"
    at_least = 45 if twin == "one logit" else 99  # one output's errors tell images apart by their size alone
    assert min(attack.metrics.psnr for attack in results.attacks) > at_least


QUICK = {"attacks": ("membership-cosine",)}


def test_a_loss_of_its_owners_runs_by_the_word_of_who_attacks_alone(tmp_path, monkeypatch):
    code = f"{tempered.__module__}:tempered"
    (attack,) = attacked(tmp_path, conv(CLASSES), "its owner's", steps=1, **QUICK).attacks  # the owner's own process
    assert attack.doubt == "" and attack.metrics.auc > 0.68  # six networks: 0.69 to 0.72
    monkeypatch.delitem(ALLOWED, code)
    options = runner.RunOptions(**QUICK, pixels_only=True)
    assert check_setup(tmp_path / "setup")[0].owners_code == code
    with pytest.raises(BadInput, match=f"--allow-model {code}"):
        runner.run(tmp_path / "setup", tmp_path / "refused", options)
    again = runner.run(tmp_path / "setup", tmp_path / "allowed", replace(options, allow_model=code)).attacks
    assert again == (attack,)


@pytest.mark.parametrize(("loss", "words"), [(tempered, "raises"), (each_record, "expected one number")])
def test_a_loss_of_its_owners_is_tried_with_the_first_records(loss, words, tmp_path):
    net = nn.Sequential(nn.Linear(3, CLASSES))
    with Recorder(tmp_path / "s", net, loss=loss, strict=True) as rec:
        rec.broadcast(0, net.state_dict())
        targets = torch.rand(4, 2) if words == "raises" else torch.arange(4)
        with pytest.raises(BadInput, match=words):
            rec.upload(0, 0, net.state_dict(), num_examples=4, records=(torch.rand(4, 3), targets))


@pytest.mark.parametrize("twin", ["bce", "mse"])
def test_a_loss_that_nobody_declares_is_named_and_never_no_leak(twin, tmp_path):
    torch.manual_seed(0)
    results = attacked(tmp_path, conv(CLASSES), twin, declared=False, steps=1, **QUICK)
    (doubt,) = {attack.doubt for attack in results.attacks}
    name = {"bce": "bce_with_logits", "mse": "squared_error"}[twin]
    assert repr(name) in doubt
    assert not results.verdict.measured and any(doubt[1:] in text for text in results.warnings)


def test_a_loss_that_is_declared_and_not_minimised_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(TWINS, "wrong", (TWINS["bce"][0], "focal", CLASSES))
    torch.manual_seed(0)
    results = attacked(tmp_path, conv(CLASSES), "wrong", steps=1, **QUICK)
    (doubt,) = {attack.doubt for attack in results.attacks}
    assert repr("bce_with_logits") in doubt and not results.verdict.measured


@pytest.mark.parametrize("twin", ["sets of labels", "one logit"])
def test_members_are_told_by_gradients_of_whatever_their_targets_are(twin, tmp_path):
    torch.manual_seed(0)
    (attack,) = attacked(tmp_path, conv(TWINS[twin][2]), twin, steps=1, **QUICK).attacks
    assert attack.doubt == "" and attack.metrics.auc > 0.68  # six networks: 0.69 to 0.72
