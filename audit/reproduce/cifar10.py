"""The loss attack on published classifiers: the CIFAR-10 ResNets of akamaster/pytorch_resnet_cifar10.

They were trained on all 50,000 training images with flips and crops, so images of data_batch_1 and data_batch_2 are
members and those of test_batch are not (Yeom et al. 2018, arXiv:1709.01604: members have a lower loss). Their trainer
watched the test accuracy, so the test images are not quite strangers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...attacks.base import MembershipScores
from ...attacks.membership import signals
from ...defenses.data import load
from ...defenses.progress import Progress
from ...defenses.randomness import generator
from ...metrics.cifar_resnet import load_cifar_resnet
from ...metrics.intervals import clopper_pearson_interval
from ..errors import BadInput
from ..results.membership import score_membership
from ..setup.description import versions
from .cells import Cells
from .table import Column, FilledTable, Request, Row, span

PUBLISHED = {  # that repository's README: test accuracy
    "resnet20-12fca82f.th": 0.9178,
    "resnet32-d509ac18.th": 0.9278,
    "resnet44-014dd654.th": 0.9314,
    "resnet56-4bfd9763.th": 0.9362,
}
FOLDER = Path("weights") / "cifar10_resnet_akamaster"
QUICK_IMAGES = 2000  # members, and as many others
BATCH = 250


@dataclass(frozen=True)
class CifarTable:
    """The table. networks: weight files under DIR/weights/cifar10_resnet_akamaster, with their published accuracy."""

    networks: Mapping[str, float] = field(default_factory=lambda: PUBLISHED)

    def run(self, request: Request) -> FilledTable:
        if request.trials is not None:
            raise BadInput("the networks are published, so there is nothing to repeat; leave --trials out")
        if request.data not in (None, "cifar10"):
            raise BadInput(f"data = {request.data!r}: the table is made on cifar10")
        if request.data_root is None:
            raise BadInput(
                "the images and weights are read from a folder; give --data-root DIR, with DIR/cifar-10-batches-py and"
                f" DIR/{FOLDER}"
            )
        names = list(self.networks)[:1] if request.quick else list(self.networks)
        paths = {name: request.data_root / FOLDER / name for name in names}
        for path in paths.values():
            if not path.is_file():
                raise BadInput(
                    f"{path} is missing; it is in pretrained_models/ of github.com/akamaster/pytorch_resnet_cifar10"
                )
        data = load("cifar10", root=str(request.data_root), seed=0)
        others = (
            torch.cat([data.test_inputs, data.auxiliary_inputs]),
            torch.cat([data.test_targets, data.auxiliary_targets]),
        )
        groups = [
            _some(x, y, request.sized(QUICK_IMAGES, len(x)), request.seed, what)
            for what, x, y in (("members", data.inputs, data.targets), ("others", *others))
        ]
        x, y = torch.cat([g[0] for g in groups]), torch.cat([g[1] for g in groups])
        member = torch.arange(len(x)) < len(groups[0][0])
        weights = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}
        store = Cells(
            request.output,
            ["membership-cifar10", weights, data.description["sha256"], len(x), request.seed, versions()],
        )

        def watch(n: int) -> Progress:
            def tick(done: int, _: int, /, words: str = "") -> None:
                if request.progress is not None:
                    request.progress(n * len(x) + done, len(names) * len(x), f"asking {names[n]}")

            return tick

        def make(name: str, progress: Progress | None) -> dict[str, Any]:
            network = load_cifar_resnet(paths[name])
            return _row(name, self.networks[name], network, AskedRecords(x, y, member), request.seed, progress)

        rows = list(store.all(make, names, request.workers, watch))
        sentence = (
            f"{int(member.sum()):,} members (data_batch_1 and 2), {int((~member).sum()):,} others (test_batch); score ="
            " −loss."
        )
        return FilledTable(sentence, rows, _columns(request.quick), NOTES)


NOTES = (
    (
        "The networks were trained on five batches with flips and crops, and their trainer watched the test accuracy;"
        " asked are the images as they are."
    ),
    "Published is the test accuracy that the weights' authors state; no membership attack on them was published.",
    (
        "Intervals (95 %): Clopper-Pearson for rates, Newcombe's for AUC. Control: AUC with membership shuffled, 95 %"
        " of 200 shuffles."
    ),
)


def _some(inputs: Tensor, targets: Tensor, n: int, seed: int, what: str) -> tuple[Tensor, Tensor]:
    if n >= len(inputs):
        return inputs, targets
    rows = torch.randperm(len(inputs), generator=generator(seed, what))[:n]
    return inputs[rows], targets[rows]


@torch.inference_mode()
def _outputs(network: nn.Module, inputs: Tensor, progress: Progress | None) -> Tensor:
    """(n, 10)."""
    outputs = []
    for first in range(0, len(inputs), BATCH):
        outputs.append(network(inputs[first : first + BATCH]))
        if progress is not None:
            progress(min(first + BATCH, len(inputs)), len(inputs))
    return torch.cat(outputs)


@dataclass(frozen=True, eq=False)
class AskedRecords:
    """Images x, labels y, and whether each record is a member."""

    x: Tensor
    y: Tensor
    member: Tensor


def _row(
    name: str, published: float, network: nn.Module, records: AskedRecords, seed: int, progress: Progress | None
) -> dict[str, Any]:
    x, y, member = records.x, records.y, records.member
    outputs = _outputs(network, x, progress).double()
    loss, hit = signals.cross_entropy(outputs, y), outputs.argmax(1) == y
    scores = MembershipScores("membership-loss", "model", "final-model", "", torch.arange(len(x)), -loss, ())
    scored = score_membership(scores, member, None, seed)
    low_auc, high_auc = scored.intervals["auc"] or (None, None)
    shuffled = scored.controls["shuffled"]
    n, right = int((~member).sum()), int(hit[~member].sum())
    low, high = clopper_pearson_interval(right, n)
    row: dict[str, Any] = {
        "network": name.split("-")[0],
        "published_accuracy": published,
        "accuracy": right / n,
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_members": float(hit[member].double().mean()),
        "loss_members": float(loss[member].mean()),
        "loss_others": float(loss[~member].mean()),
        "auc": scored.value("auc"),
        "auc_low": low_auc,
        "auc_high": high_auc,
        "control_low": shuffled["auc_low"],
        "control_high": shuffled["auc_high"],
        "balanced_accuracy": scored.value("balanced_accuracy"),
        "members": int(member.sum()),
        "others": n,
    }
    for level, key in ((0.01, "tpr_1"), (0.001, "tpr_01")):
        point = next((p for p in scored.tpr_points if p.fpr == level), None)
        limits = (point and point.interval) or (None, None)
        row |= {key: None if point is None else point.tpr, f"{key}_low": limits[0], f"{key}_high": limits[1]}
    return row


def _columns(quick: bool) -> tuple[Column, ...]:
    def rate(key: str) -> Callable[[Row], str]:
        def shown(row: Row) -> str:
            if row[key] is None:
                return "–"
            return f"{100 * row[key]:.2f} ({100 * row[f'{key}_low']:.2f}–{100 * row[f'{key}_high']:.2f})"

        return shown

    return (
        Column("network", lambda row: str(row["network"])),
        Column("published accuracy %", lambda row: f"{100 * row['published_accuracy']:.2f}"),
        Column("ours % (quick)" if quick else "ours %", rate("accuracy")),
        Column("members' accuracy %", lambda row: f"{100 * row['accuracy_members']:.2f}"),
        Column("AUC", lambda row: f"{row['auc']:.3f} ({span(row, 'auc_low', 'auc_high')})"),
        Column("control AUC", lambda row: span(row, "control_low", "control_high")),
        Column("TPR % at 1 % FPR", rate("tpr_1")),
        Column("TPR % at .1 % FPR", rate("tpr_01")),
    )
