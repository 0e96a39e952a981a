"""Whether a message has the noise of an earlier one, moved along, reordered, or with other signs.

Correlations at equal places do not show it: a generator that is seeded anew each round, and used for something else
first, draws the same numbers some places on. What is compared is kept in memory alone, as long as a recorder runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .independence import MOST_PAIRED

RUN = 128  # signs in a row: two independent messages have none in common but with chance d²/2¹²⁸
LARGEST = 32  # sizes, of which independent ones agree as closely with chance 10⁻³⁰
ALIKE = 1e-3  # standard deviations, beyond what rounding to float32 leaves of a size
MARKS = 32  # runs of a message that are looked for in later ones, at least
APART = 512  # numbers from one to the next at most
COMPARED = f"no {RUN} signs in a row of one, or their opposites, and no {LARGEST} largest sizes are those of another"

Keys = NDArray[np.uint64]


class NoisesSeen:
    """The noises of a recorder's messages so far, as far as later ones are compared with them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.marks: list[Keys] = []  # (n, 2) a message: the first half of a run, and the second
        self.largest: list[NDArray[np.float64]] = []  # (LARGEST,) a message

    def copied(self, noise: NDArray[np.float64], name: str) -> str:
        """What of an earlier message this one has, "" for nothing; from then on it is an earlier one.

        Args:
            noise: (d,) in the message's order, in standard deviations; NaN or 0 where it is not known.

        >>> seen, noise = NoisesSeen(), np.random.default_rng(0).standard_normal(2000)
        >>> seen.copied(noise[:-48], "one"), seen.copied(-noise[48:], "two")
        ('', 'the noise of two has 128 signs in a row of that of one, or their opposites')
        """
        noise = noise[np.isfinite(noise) & (noise != 0)]
        if len(noise) < 2 * RUN:
            return ""
        keys = _keys(noise)
        largest = np.sort(np.partition(np.abs(noise), -LARGEST)[-LARGEST:])
        found = self._run_in(keys, name) or self._largest_in(largest, name)
        if len(self.names) < MOST_PAIRED:
            places = np.arange(0, len(keys) - RUN // 2, max(1, min(APART, len(keys) // MARKS)))
            self.names.append(name)
            self.marks.append(np.stack([keys[places], keys[places + RUN // 2]], axis=1))
            self.largest.append(largest)
        return found

    def _run_in(self, keys: Keys, name: str) -> str:
        if not self.marks:
            return ""
        marks, whose = np.concatenate(self.marks), np.repeat(np.arange(len(self.marks)), [len(m) for m in self.marks])
        for at in np.flatnonzero(np.isin(keys[: -RUN // 2], marks[:, 0])):
            same = np.flatnonzero((marks[:, 0] == keys[at]) & (marks[:, 1] == keys[at + RUN // 2]))
            if len(same):
                other = int(whose[same[0]])
                return (
                    f"the noise of {name} has {RUN} signs in a row of that of {self.names[other]}, or their opposites"
                )
        return ""

    def _largest_in(self, largest: NDArray[np.float64], name: str) -> str:
        if not self.largest:
            return ""
        far = np.abs(np.stack(self.largest) - largest).max(axis=1)
        if far.min() > ALIKE:
            return ""
        other = self.names[int(np.argmin(far))]
        return f"the {LARGEST} largest sizes of the noise of {name} are those of {other}"


def _keys(noise: NDArray[np.float64]) -> Keys:
    """64 signs in a row from each place on, as a number that is the same for the opposite ones."""
    keys = (noise > 0).astype(np.uint64)
    for shift in (1, 2, 4, 8, 16, 32):
        keys = (keys[:-shift] << np.uint64(shift)) | keys[shift:]
    return np.minimum(keys, ~keys)
