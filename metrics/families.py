"""Five small convolutional networks, one of each family that the thesis's reference classifiers come from.

ResNet, VGG, RepVGG, ShuffleNet and MobileNet share one skeleton and differ in their block. Each has under 100,000
parameters. Group normalisation throughout: an image's output never depends on the other images of its batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import relu


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution that keeps (or halves) the size, then group normalisation.

    Args:
        inputs, outputs: channels. kernel: its side, odd. stride: 1 keeps the size, 2 halves it.
        groups: of the convolution; the normalisation has up to four of its own.
    """
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.GroupNorm(min(4, outputs), outputs),
    )


class Residual(nn.Module):
    """Basic block of ResNet (He et al. 2015): two convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = conv(inputs, outputs, stride=stride), conv(outputs, outputs)
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.second(relu(self.first(x))) + self.shortcut(x))


class Plain(nn.Module):
    """A convolution of VGG (Simonyan, Zisserman 2014), which shrinks by pooling."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body, self.pool = conv(inputs, outputs), nn.MaxPool2d(stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(relu(self.body(x)))


class Branches(nn.Module):
    """Block of RepVGG (Ding et al. 2021) in training: the sum of a 3×3, a 1×1 and, if shapes allow, an identity."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.wide, self.point = conv(inputs, outputs, stride=stride), conv(inputs, outputs, 1, stride)
        self.identity = nn.GroupNorm(min(4, outputs), outputs) if inputs == outputs and stride == 1 else None

    def forward(self, x: Tensor) -> Tensor:
        total = self.wide(x) + self.point(x)
        return relu(total if self.identity is None else total + self.identity(x))


class Shuffled(nn.Module):
    """Unit of ShuffleNet v2 (Ma et al. 2018): half of the channels pass, half are convolved depthwise; interleaved."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.split = inputs == outputs and stride == 1
        shrink = nn.Sequential(conv(inputs, inputs, 3, stride, inputs), conv(inputs, half, 1), nn.ReLU())
        self.left = nn.Identity() if self.split else shrink
        first = nn.Sequential(conv(half if self.split else inputs, half, 1), nn.ReLU())
        self.right = nn.Sequential(first, conv(half, half, 3, stride, half), conv(half, half, 1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1) if self.split else (x, x)
        return torch.stack([self.left(left), self.right(right)], dim=2).flatten(1, 2)


class Inverted(nn.Module):
    """Inverted residual of MobileNet v2 (Sandler et al. 2018): expand threefold, convolve depthwise, project."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 3 * inputs
        self.body = nn.Sequential(
            conv(inputs, wide, 1), nn.ReLU(), conv(wide, wide, 3, stride, wide), nn.ReLU(), conv(wide, outputs, 1)
        )
        self.skip = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x if self.skip else self.body(x)


LARGEST = 32  # pixels of a side that a classifier computes on
_BlockMaker = Callable[[int, int, int], nn.Module]
FAMILIES: dict[str, tuple[_BlockMaker, int]] = {  # block and width of the first stage
    "resnet": (Residual, 16),
    "vgg": (Plain, 20),
    "repvgg": (Branches, 20),
    "shufflenet": (Shuffled, 48),
    "mobilenet": (Inverted, 24),
}


class Classifier(nn.Module):
    """A stem and three stages of two blocks, each half the size of the one before, average pooling, a linear layer.

    Takes images (n, channels, h, w) in [0, 1] and gives logits (n, classes). Of large ones it sees the means of squares
    of pixels, `LARGEST` to a side or a little more: what a class is told by is there, at a fraction of the time.
    """

    def __init__(self, block: _BlockMaker, width: int, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, side = shape[0], min(shape[1:])
        self.shrink = nn.AvgPool2d(max(1, side // LARGEST))
        stem_stride = 2 if side >= 16 else 1  # for speed
        stages: list[nn.Module] = [conv(channels, width, stride=stem_stride), nn.ReLU()]
        for inputs, outputs, stride in ((width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 2)):
            stages += [block(inputs, outputs, stride), block(outputs, outputs, 1)]
        self.body = nn.Sequential(*stages)
        self.head = nn.Linear(outputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(4 * self.shrink(x) - 2).mean(dim=(2, 3)))


def build(family: str, shape: tuple[int, ...], classes: int, seed: int) -> Classifier:
    """An untrained classifier for images of `shape` (c, h, w), in eval mode. It moves no global random state."""
    block, width = FAMILIES[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Classifier(block, width, shape, classes).eval()
