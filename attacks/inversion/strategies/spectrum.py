"""Natural images in a cosine basis: coefficients of about equal size make images that vary as photographs do, 1/f."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

OPPONENT = F.normalize(torch.tensor([[1.0, 1, 1], [1, 0, -1], [1, -2, 1]]), dim=1)  # brightness, and two of colour
OF_COLOUR = torch.tensor([1.0, 0.3, 0.15])  # how much natural images vary along them
DEVIATION = 0.25  # of a pixel


class Spectrum:
    """The orthonormal DCT of images of a shape, each coefficient in units of its deviation in natural images.

    Args:
        shape: (channels, height, width); colours are turned to brightness and opponents where there are three channels.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        channels, height, width = shape
        self.rows, self.columns = _cosines(height), _cosines(width)
        self.colours = OPPONENT if channels == 3 else torch.eye(channels)
        of_colour = OF_COLOUR if channels == 3 else torch.ones(channels)
        frequency = (torch.arange(float(height))[:, None].square() + torch.arange(float(width)).square()).sqrt()
        spread = of_colour[:, None, None] / (1 + frequency)
        self.spread = spread * (DEVIATION * math.prod(shape) ** 0.5 / spread.norm())

    def images(self, coefficients: Tensor) -> Tensor:
        """(n, *shape) of coefficients (n, *shape); .5 everywhere of zeros."""
        colours = torch.einsum("nouv,oc->ncuv", coefficients * self.spread, self.colours)
        return 0.5 + self.rows.T @ colours @ self.columns

    def back(self, slope: Tensor) -> Tensor:
        """The slope with respect to the coefficients, from that with respect to the images, both (n, *shape)."""
        return torch.einsum("ncuv,oc->nouv", self.rows @ slope @ self.columns.T, self.colours) * self.spread


def _cosines(side: int) -> Tensor:
    """The orthonormal DCT (side, side), a row for each frequency."""
    k = torch.arange(float(side))
    basis = torch.cos(math.pi * (k + 0.5) * k[:, None] / side) * (2 / side) ** 0.5
    basis[0] /= 2**0.5
    return basis
