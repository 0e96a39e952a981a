"""The loss attack on published classifiers: the CIFAR-10 ResNets of akamaster/pytorch_resnet_cifar10.

    python benchmarks/cifar_membership.py DIR [--images 2000]

DIR holds cifar-10-batches-py and weights/cifar10_resnet_akamaster. The networks were trained on all 50,000 training
images with flips and crops, so images of data_batch_1 and data_batch_2 are members and those of test_batch are not
(Yeom et al. 2018, arXiv:1709.01604: members have a lower loss). Their trainer watched the test accuracy, so the test
images are not quite strangers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from dpfl_audit.attacks.base import MembershipScores
from dpfl_audit.attacks.membership import signals
from dpfl_audit.audit.results.membership import score_membership
from dpfl_audit.defenses.data import load
from dpfl_audit.metrics.checkpoint import read_checkpoint
from dpfl_audit.metrics.intervals import clopper_pearson_interval
from torch import Tensor, nn
from torch.nn.functional import pad, relu

PUBLISHED = {  # that repository's README: test accuracy
    "resnet20-12fca82f.th": 0.9178,
    "resnet32-d509ac18.th": 0.9278,
    "resnet44-014dd654.th": 0.9314,
    "resnet56-4bfd9763.th": 0.9362,
}
BATCH = 250
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # that repository's normalisation


class Block(nn.Module):
    """Basic block with the shortcut without parameters: every second pixel, new channels zero.

    Option A of He et al. 2015, section 4.2.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.stride, self.padding = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        shortcut = pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return relu(self.bn2(self.conv2(relu(self.bn1(self.conv1(x))))) + shortcut)


class CifarResNet(nn.Module):
    """6·blocks + 2 layers. Images (n, 3, h, w) in [0, 1] (normalised inside) to logits (n, 10)."""

    mean: Tensor
    std: Tensor

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(Block(inputs, outputs, stride), *(Block(outputs, outputs, 1) for _ in range(blocks - 1)))
            for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
        )
        self.linear = nn.Linear(64, 10)
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1((x - self.mean) / self.std)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean(dim=(2, 3)))


def load_cifar_resnet(path: str | Path) -> CifarResNet:
    """The network of a checkpoint `{"state_dict": {"module.…": …}}`, in eval mode; the weights tell its depth."""
    state = {key.removeprefix("module."): value for key, value in read_checkpoint(path).get("state_dict", {}).items()}
    blocks = len({key.split(".")[1] for key in state if key.startswith("layer1.")})
    with torch.random.fork_rng(devices=[]):
        model = CifarResNet(max(blocks, 1))
    model.load_state_dict(state, strict=False)
    return model.eval().requires_grad_(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, help="the first of each group; default: all")
    given = parser.parse_args()
    data = load("cifar10", root=str(given.folder), seed=0)
    x, y = data.inputs[: given.images], data.targets[: given.images]
    others = torch.cat([data.test_inputs, data.auxiliary_inputs])[: given.images]
    member = torch.arange(len(x) + len(others)) < len(x)
    y = torch.cat([y, torch.cat([data.test_targets, data.auxiliary_targets])[: given.images]])
    print("| network | published | accuracy (95 %) | of members | AUC (95 %) | control AUC | TPR at FPR |")
    print("|" + "---|" * 7)
    for name, published in PUBLISHED.items():
        network = load_cifar_resnet(given.folder / "weights" / "cifar10_resnet_akamaster" / name)
        print(f"| {name.split('-')[0]} | {published} | {row(network, torch.cat([x, others]), y, member)} |", flush=True)


@torch.inference_mode()
def row(network: nn.Module, x: Tensor, y: Tensor, member: Tensor) -> str:
    outputs = torch.cat([network(part) for part in x.split(BATCH)]).double()
    hit = outputs.argmax(1) == y
    scores = -signals.cross_entropy(outputs, y)
    scored = score_membership(
        MembershipScores("membership-loss", "model", "final-model", "", torch.arange(len(x)), scores, ()),
        member,
        None,
        0,
    )
    n, right = int((~member).sum()), int(hit[~member].sum())
    low, high = clopper_pearson_interval(right, n)
    shuffled, auc = scored.controls["shuffled"], scored.intervals["auc"] or (0.0, 1.0)
    points = ", ".join(f"{p.tpr:.4f} at {p.fpr:g}" for p in scored.tpr_points)
    return (
        f"{right / n:.4f} ({low:.4f}–{high:.4f}) | {float(hit[member].double().mean()):.4f}"
        f" | {scored.value('auc'):.3f} ({auc[0]:.3f}–{auc[1]:.3f})"
        f" | {shuffled['auc_low']:.3f}–{shuffled['auc_high']:.3f} | {points}"
    )


if __name__ == "__main__":
    main()
