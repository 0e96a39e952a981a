"""What the attacker's auxiliary records tell of images: the mean and the spectrum, and so the best linear filter."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....defenses.data.dataset import digest
from ....defenses.randomness import generator

RECORDS = 100  # auxiliary records, at least: the filter of fewer is no prior worth the name
ONE_IN = 10  # records, one is held out
AT = (0.1, 1.0)  # noise on the held-out ones, pixels


@dataclass(frozen=True, eq=False)
class WienerFilter:
    """Every coefficient of the discrete cosine transform of every principal colour is normal by itself: the best linear
    filter for images whose statistics do not depend on the place.

    mean, variance: (channels, height, width), of coefficients. colours (channels, channels), rows (height, height),
    columns (width, width): the orthonormal transform. said: how good it is on held-out records, in words.
    """

    mean: Tensor
    variance: Tensor
    colours: Tensor
    rows: Tensor
    columns: Tensor
    said: str = ""

    @classmethod
    def learned(cls, images: Tensor) -> WienerFilter:
        """With means and variances of images (m, *shape), these averaged over neighbouring frequencies."""
        rows, columns = (cosine_waves(side).float() for side in images.shape[2:])
        centred = (images - images.mean((0, 2, 3), keepdim=True)).transpose(0, 1).flatten(1)
        colours = torch.linalg.eigh(centred @ centred.T / centred.shape[1])[1].T
        plain = cls(colours, colours, colours, rows, columns)
        coefficients = plain.transformed(images)
        variance = coefficients.var(0)
        bands = [(4 * torch.log2(1 + torch.arange(float(side)))).round() for side in images.shape[2:]]
        band = 1000 * bands[0][:, None] + bands[1]
        for one in band.unique():
            inside = band == one
            variance[:, inside] = variance[:, inside].mean(1, keepdim=True)
        return replace(plain, mean=coefficients.mean(0), variance=variance.clamp_min(1e-8))

    @property
    def shape(self) -> tuple[int, ...]:
        """(channels, height, width) of an image."""
        return tuple(self.mean.shape)

    def to(self, device: str) -> WienerFilter:
        mean, variance, colours = self.mean.to(device), self.variance.to(device), self.colours.to(device)
        return WienerFilter(mean, variance, colours, self.rows.to(device), self.columns.to(device), self.said)

    def transformed(self, images: Tensor) -> Tensor:
        """Coefficients (n, *shape) of images (n, *shape), by an orthonormal transform."""
        return torch.einsum("dc,nchw->ndhw", self.colours, self.rows @ images @ self.columns.T)

    def back(self, coefficients: Tensor) -> Tensor:
        """The images (n, *shape) of coefficients: the inverse of `transformed`, and its transpose."""
        return torch.einsum("dc,ndhw->nchw", self.colours, self.rows.T @ coefficients @ self.columns)

    def filtered(self, noisy: Tensor, level: float) -> Tensor:
        """What the filter makes of `noisy` (n, *shape), white noise of standard deviation `level` in pixels."""
        gain = self.variance / (self.variance + level**2)
        return self.back(self.mean + gain * (self.transformed(noisy) - self.mean))


def cosine_waves(side: int) -> Tensor:
    """The orthonormal discrete cosine transform (side, side), frequencies in rows; float64."""
    place = torch.arange(side, dtype=torch.float64)
    waves = torch.cos(math.pi / side * (place + 0.5) * place[:, None]) * math.sqrt(2 / side)
    waves[0] /= math.sqrt(2)
    return waves


_IN_THIS_PROCESS: dict[str, WienerFilter] = {}  # by the records' digest


def filter_of(images: Tensor) -> WienerFilter:
    """The filter of auxiliary records; of the same ones computed once in a process.

    Args:
        images: (m, *shape) in [0, 1].

    Raises:
        ValueError: there are fewer than `RECORDS`.
    """
    if len(images) < RECORDS:
        raise ValueError(f"{len(images)} auxiliary records are too few to learn a prior from, at least {RECORDS} are")
    key = digest(images)
    if key not in _IN_THIS_PROCESS:
        _IN_THIS_PROCESS[key] = _filter(images)
    return _IN_THIS_PROCESS[key]


def _filter(images: Tensor) -> WienerFilter:
    order = torch.randperm(len(images), generator=generator(0, "held out"))
    own, held_out = images[order[len(images) // ONE_IN :]], images[order[: len(images) // ONE_IN]]
    made = WienerFilter.learned(own)
    noise = torch.randn(held_out.shape, generator=generator(0, "noise on held out"))
    held = []
    for level in AT:
        noisy = held_out + level * noise
        before, after = _psnr(noisy, held_out), _psnr(made.filtered(noisy, level), held_out)
        held.append(f"{after:.1f} dB at noise {level:g} where the noisy images have {before:.1f}")
    about = f"by the spectrum of {len(own)} auxiliary records; of {len(held_out)} held-out ones "
    return replace(made, said=about + ", ".join(held))


def _psnr(images: Tensor, originals: Tensor) -> float:
    error = (images.clamp(0, 1) - originals).square().flatten(1).mean(1).clamp_min(1e-10)
    return float((-10 * error.log10()).mean())
