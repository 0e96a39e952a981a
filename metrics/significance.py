"""Whether an attack's images show more of the originals than luck does: the p-values of two scores, and their least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import closer_test
from .intervals import paired_p_value, share_by_luck, share_p_value
from .pool_test import Rebuilt, least_p_value, pool_p_value
from .reidentification import Reidentified

FEW = 20  # of a line-up's other images an original


@dataclass(frozen=True, eq=False)
class LineUpTests:
    """The tests of one reconstruction by a line-up. Each gives a p-value, None where there is none, and the least that
    it can be, as if the attack had been perfect.

    originals: (n, c, h, w). images: (m, c, h, w), what was made of them. others: (k, c, h, w), that the attack did not
    get, k ≥ 1. labels, image_labels, other_labels: of each, all or none. seed: of the draws.
    """

    originals: Tensor
    images: Tensor
    others: Tensor
    labels: Tensor | None
    image_labels: Tensor | None
    other_labels: Tensor | None
    seed: int

    def _kinds(self) -> tuple[Tensor, Tensor]:
        """Labels of originals and others, one for all where they are not known."""
        if self.labels is not None and self.other_labels is not None:
            return self.labels, self.other_labels
        return torch.zeros(len(self.originals)), torch.zeros(len(self.others))

    def _least(self, draws: int) -> float:
        own, other = self._kinds()
        return least_p_value(self.originals, own, self.others, other, draws)

    def closer(self, slack: float) -> tuple[float | None, float]:
        """That the images are closer to the originals than to others dealt in their place (`closer_p_value`).

        Args:
            slack: dB that others of another lot may be further off.
        """
        informed = self.labels, self.image_labels, self.other_labels
        p_value = closer_test.closer_p_value(
            self.originals, self.images, self.others, informed, seed=self.seed, slack=slack
        )
        return p_value, self._least(closer_test.DRAWS)

    def reidentified(
        self, picked: Reidentified, controls: Sequence[float], nothing: Reidentified | None, relabellings: int
    ) -> tuple[float, float]:
        """That the share picked is above what luck may explain (`share_by_luck`), in each of the ways that apply.

        Args:
            picked: of the images. controls: the controls' shares: a picture that knows nothing may resemble originals
                more than the line-up's other images, and must be beaten, too.
            nothing: picked by what the same attack makes of noise alone, to be beaten original by original; or None.
            relabellings: at most so many, of the exact test of a line-up of few images.
        """
        luck = share_by_luck(min(picked.chance, 1.0), [round(share * picked.n) for share in controls], picked.n)
        p_values = [share_p_value(picked.hits, picked.n, luck)]
        leasts = [share_p_value(picked.n, picked.n, luck)]
        if nothing is not None:
            p_values.append(paired_p_value(picked.found, nothing.found))
            leasts.append(paired_p_value([True] * picked.n, nothing.found))
        if len(self.others) < FEW * len(self.originals):  # all hits hang on the same few, which a binomial does not
            message = Rebuilt(range(len(self.originals)), self.images)
            own, other = self._kinds()
            by_lot = pool_p_value(self.originals, own, [message], self.others, other, self.seed, relabellings)
            p_values.append(1.0 if by_lot is None else by_lot)
            leasts.append(self._least(relabellings))
        return max(p_values), max(leasts)
