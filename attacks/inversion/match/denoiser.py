"""What takes white noise of a known level off images, and so what a learned prior knows of them: a filter, and a small
network beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTHS = (32, 48, 64)  # channels at a half, a quarter and an eighth of an image's side
LEAST, MOST = 0.03, 3.0  # standard deviations of noise that it is trained for, in pixels of [0, 1]
EMBEDDING = 16


class Denoiser(nn.Module):
    """A Wiener filter, and a U-Net for what that misses.

    The filter takes every coefficient of the discrete cosine transform of every principal colour as normal by itself,
    N(mean, variance): the best linear filter for images whose statistics do not depend on the place. The network adds
    to its output, in units of the error that the filter must have by that (preconditioned as by Karras et al. 2022,
    arXiv:2206.00364, section 5); untrained it adds nothing.

    shape: (channels, height, width) of an image. widths: of the network, one level each; () for the filter alone.
    """

    mean: Tensor
    variance: Tensor
    colours: Tensor
    rows: Tensor
    columns: Tensor

    def __init__(self, shape: Sequence[int], widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        self.shape, self.widths = tuple(shape), tuple(widths)
        channels, height, width = self.shape
        self.register_buffer("mean", torch.zeros(self.shape))
        self.register_buffer("variance", torch.ones(self.shape))
        self.register_buffer("colours", torch.eye(channels))
        self.register_buffer("rows", cosine_waves(height).float(), persistent=False)
        self.register_buffer("columns", cosine_waves(width).float(), persistent=False)
        self.network = _Network(channels, self.widths) if self.widths else None

    def learn_spectrum(self, images: Tensor) -> None:
        """Sets means and variances to those of images (m, *shape), these averaged over neighbouring frequencies."""
        centred = (images - images.mean((0, 2, 3), keepdim=True)).transpose(0, 1).flatten(1)
        self.colours.copy_(torch.linalg.eigh(centred @ centred.T / centred.shape[1])[1].T)
        coefficients = self.transformed(images)
        self.mean.copy_(coefficients.mean(0))
        variance = coefficients.var(0)
        bands = [(4 * torch.log2(1 + torch.arange(float(side)))).round() for side in self.shape[1:]]
        band = 1000 * bands[0][:, None] + bands[1]
        for one in band.unique():
            inside = band == one
            variance[:, inside] = variance[:, inside].mean(1, keepdim=True)
        self.variance.copy_(variance.clamp_min(1e-8))

    def transformed(self, images: Tensor) -> Tensor:
        """Coefficients (n, *shape) of images (n, *shape), by an orthonormal transform."""
        return torch.einsum("dc,nchw->ndhw", self.colours, self.rows @ images @ self.columns.T)

    def back(self, coefficients: Tensor) -> Tensor:
        """The images (n, *shape) of coefficients: the inverse of `transformed`, and its transpose."""
        return torch.einsum("dc,ndhw->nchw", self.colours, self.rows.T @ coefficients @ self.columns)

    def wiener(self, noisy: Tensor, level: Tensor) -> Tensor:
        """What the filter makes of `noisy` (n, *shape), noise of standard deviation `level` (n,)."""
        square = level.square().view(-1, 1, 1, 1)
        gain = self.variance / (self.variance + square)
        return self.back(self.mean + gain * (self.transformed(noisy) - self.mean))

    def filter_error(self, level: Tensor) -> Tensor:
        """The root mean square error (n, 1, 1, 1) of the filter on images that are as it takes them to be."""
        square = level.square().view(-1, 1, 1, 1)
        return (self.variance * square / (self.variance + square)).mean((1, 2, 3), keepdim=True).sqrt()

    def beyond(self, noisy: Tensor, level: Tensor) -> Tensor:
        """What the network adds to the filter's output; as of `forward`."""
        if self.network is None:
            return torch.zeros_like(noisy)
        filtered, error = self.wiener(noisy, level), self.filter_error(level)
        rest = (noisy - filtered) / (error + level.view(-1, 1, 1, 1))
        return error * self.network(torch.cat([rest, 4 * (filtered - 0.5)], 1), level)

    def forward(self, noisy: Tensor, level: Tensor) -> Tensor:
        """The images (n, *shape) behind `noisy` (n, *shape), white noise of standard deviation `level` (n,) in pixels;
        not cut off to [0, 1].
        """
        return self.wiener(noisy, level) + self.beyond(noisy, level)


def cosine_waves(side: int) -> Tensor:
    """The orthonormal discrete cosine transform (side, side), frequencies in rows; float64."""
    place = torch.arange(side, dtype=torch.float64)
    waves = torch.cos(math.pi / side * (place + 0.5) * place[:, None]) * math.sqrt(2 / side)
    waves[0] /= math.sqrt(2)
    return waves


def _silence(layer: nn.Module) -> None:
    """Its output is 0 until it is trained."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)


class _Block(nn.Module):
    """Two convolutions beside the identity; the noise's level scales and shifts between them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.of_level = nn.Linear(EMBEDDING, 2 * channels)
        for layer in (self.second, self.of_level):
            _silence(layer)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        scale, shift = self.of_level(level)[:, :, None, None].chunk(2, 1)
        added: Tensor = self.second(F.silu(self.first(x) * (1 + scale) + shift))
        return x + added


class _Network(nn.Module):
    """A U-Net (2·channels, height, width) → (channels, height, width) that begins with 2×2 pixels as channels."""

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.level = nn.Sequential(nn.Linear(1, EMBEDDING), nn.SiLU(), nn.Linear(EMBEDDING, EMBEDDING), nn.SiLU())
        self.first = nn.Conv2d(8 * channels, widths[0], 3, padding=1)
        self.ways_down = nn.ModuleList(_Block(width) for width in widths)
        self.ways_up = nn.ModuleList(_Block(width) for width in widths)
        steps = list(zip(widths, widths[1:]))
        self.smaller = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in steps)
        self.larger = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in steps)
        self.last = nn.Conv2d(widths[0], 4 * channels, 3, padding=1)
        _silence(self.last)

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        of_level = self.level(level.log()[:, None] / 2)
        height, width = x.shape[-2:]
        grain = 2 ** (1 + len(self.smaller))
        x = F.pad(x, (0, -width % grain, 0, -height % grain), mode="replicate")
        x, kept = self.first(F.pixel_unshuffle(x, 2)), []
        for depth, block in enumerate(self.ways_down):
            x = block(x, of_level)
            if depth < len(self.smaller):
                kept.append(x)
                x = self.smaller[depth](x)
        for depth in range(len(self.ways_up) - 1, -1, -1):
            x = self.ways_up[depth](x, of_level)
            if depth:
                x = self.larger[depth - 1](x) + kept[depth - 1]
        return F.pixel_shuffle(self.last(x), 2)[..., :height, :width]
