"""One target, and everything that says how its images are sought."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ....defenses.data.unit_scale import words_of
from ....defenses.layout import Layout
from ...cost import CALL, forward_operations
from ..read.table import OwnRows
from ..read.target import Target
from ..settings import Settings
from .wiener import WienerFilter

ImageShape = tuple[int, ...]

PASSES = 8  # of the network for the gradient of a gradient's distance: 6 by `Ghost`, some 9 by `DoubleBackward`


@dataclass(frozen=True, eq=False)
class Auxiliary:
    """What the attacker's auxiliary records give.

    wiener: the prior that is learned from them, None without. rows: of a table, None for images.
    """

    wiener: WienerFilter | None = None
    rows: OwnRows | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """A target with its network, its labels and the attack's settings.

    network: as clients ran it (`as_run`), on the device. layout: of its parameters. target: what was sent.
    labels: (n,) int64 on the CPU, those that images are sought for; empty in a plan. labels_by: how they were inferred,
    in words, "" for known ones. shape: (channels, height, width) of an image. seed: of all draws.
    """

    network: nn.Module
    layout: Layout
    target: Target
    labels: Tensor
    shape: ImageShape
    settings: Settings
    seed: int
    auxiliary: Auxiliary = Auxiliary()
    labels_by: str = ""

    def asked(self, **settings: Any) -> Case:
        """The case with other settings."""
        return replace(self, settings=replace(self.settings, **settings))

    @property
    def words(self) -> tuple[tuple[int, int], ...]:
        """A table's columns of words; () of images."""
        return words_of(self.network)

    @property
    def image_operations(self) -> int:
        """For one image in the gradient of a message's distance."""
        return PASSES * forward_operations(self.network, self.shape)

    @property
    def step_operations(self) -> int:
        """For one step of a search: of all images, and of all messages."""
        return len(self.target.messages) * (CALL + self.target.count * self.image_operations)
