"""VectorScores of trials by the deviations of their vectors, with spreads fitted to separate trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from .levels import Levels
from .likelihood import Deviations, LikelihoodRatio
from .rounds import RoundShape

Both = tuple[Deviations, Deviations]  # of the same trials, from what world 0 and world 1 expect


@dataclass(frozen=True, eq=False)
class VectorScores:
    """The log-likelihood ratio of vectors of several messages, one after the other.

    shape: of the deviations. levels: whose groups `shape` has, where those of a tensor count as one; None where each
    part has a spread of its own. ratios: by message.
    """

    shape: RoundShape
    levels: Levels | None
    ratios: tuple[LikelihoodRatio, ...]

    @classmethod
    def fitted(cls, own: Sequence[Both], shape: RoundShape, levels: Levels, rate: float) -> VectorScores:
        """Of the two ways, a spread for each tensor and one for each level of noise in it, the one that tells these
        trials apart better.

        Args:
            own: trials of world 0 and of world 1, which count for nothing else. shape: with the groups of `levels`.
            rate: the chance that the canary is in a message at all.
        """
        by_level = cls._of(own, shape, None, rate)
        if not levels.several:
            return by_level
        # Numbers that are rarely other than 0 only look as if they had less noise, and tensors are the better guess:
        # levels are to be clearly better on these trials, or perfect.
        by_tensor = cls._of(own, shape, levels, rate)
        found, known = (_told_apart(way(*own[0]), way(*own[1])) for way in (by_level, by_tensor))
        error = sqrt(known * (1 - known) / min(len(own[0][0]), len(own[1][0])))
        if found == 1 or found > known + 2 * error:
            return by_level
        return by_tensor

    @classmethod
    def _of(cls, own: Sequence[Both], shape: RoundShape, levels: Levels | None, rate: float) -> VectorScores:
        found = cls(shape, levels, ())
        ratios = []
        for columns in shape.columns:
            without = found._message(own[0][0], columns)
            # A mixture's own deviations are not its noise's.
            present = found._message(own[1][1], columns) if rate == 1 else without
            sizes = shape.sizes if levels is None else levels.tensors
            ratios.append(LikelihoodRatio.fitted(without, present, sizes, rate=rate))
        return cls(shape, levels, tuple(ratios))

    def __call__(self, from_0: Deviations, from_1: Deviations) -> NDArray[np.float64]:
        """(n,) of trials with these deviations."""
        each = zip(self.ratios, self.shape.columns)
        return np.sum([r(self._message(from_0, c), self._message(from_1, c)) for r, c in each], axis=0)

    def _message(self, found: Deviations, columns: slice) -> Deviations:
        own = self.shape.of_round(found, columns)
        if self.levels is None:
            return own
        return self.levels.by_tensor(own)

    @property
    def one_size(self) -> bool:
        """Whether the noise showed one size in both worlds."""
        return all(ratio.one_size for ratio in self.ratios)

    def shift(self, own: Sequence[Both], rate: float) -> float:
        """‖v₁ − v₀‖ in standard deviations of the noise, measured on separate trials along the direction that others
        told: by ⟨mean of world 1 − mean of world 0, c₁ − c₀⟩, which a direction learned from noise does not lengthen,
        as ‖c₁ − c₀‖ would.
        """
        total = 0.0
        for ratio, columns in zip(self.ratios, self.shape.columns):
            along = [(self._message(a, columns) - self._message(b, columns)).mean(0) for a, b in own]
            total += float(((along[1] - along[0]) / (2 * rate * ratio.spread[0])).sum())
        return sqrt(max(0.0, total))


def _told_apart(without: NDArray[np.float64], present: NDArray[np.float64]) -> float:
    """The chance that a trial with the canary scores higher than one without it."""
    higher = present[:, None] > without
    return float((higher + 0.5 * (present[:, None] == without)).mean())
