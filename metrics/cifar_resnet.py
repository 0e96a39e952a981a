"""ResNet-20 … 56 for CIFAR-10 with the weights of akamaster/pytorch_resnet_cifar10, as reference classifiers."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from .checkpoint import read_checkpoint

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
    """The network of a checkpoint `{"state_dict": {"module.…": …}}`, in eval mode; the weights tell its depth.

    Opened with weights_only=True: it runs no code. For instance
    `Reference((("resnet56", load_cifar_resnet("resnet56-4bfd9763.th")),), 0.9339, "akamaster")`.

    Raises:
        ValueError: the file does not exist or holds other weights.
    """
    state = {key.removeprefix("module."): value for key, value in read_checkpoint(path).get("state_dict", {}).items()}
    blocks = len({key.split(".")[1] for key in state if key.startswith("layer1.")})
    with torch.random.fork_rng(devices=[]):
        model = CifarResNet(max(blocks, 1))
    missing = [key for key in model.state_dict() if key not in state and not key.endswith("num_batches_tracked")]
    shapes = {key: value.shape for key, value in model.state_dict().items()}
    wrong = [key for key, value in state.items() if shapes.get(key) != value.shape]
    if missing or wrong:
        raise ValueError(f"{path} is no CIFAR-10 ResNet with option-A shortcuts: {(missing + wrong)[0]} does not fit")
    model.load_state_dict(state, strict=False)
    return model.eval().requires_grad_(False)
