"""DP-SGD whose batches are shuffled, with the ε of batches drawn by coins, as many trainings state it.

    audit mechanism examples/opacus/shuffled.py:seen --unit record --delta 1e-5 --claim 1.9

Every record is in exactly one of `STEPS` batches of an epoch, and dp_accounting's 1.9 is for batches that each record
joins by a coin of probability 1/STEPS. The records are as bad as they can be: each gradient is clipped to −1, the
canary's to +1, and what is left of it without the canary is nothing (zero_out). Both worlds have one batch that is off
the others, by 2 and by 1, at a place that the shuffle hides; the attacker's number is the likelihood ratio of all sums.
Annamalai, Balle, De Cristofaro, Hayes 2024 (arXiv:2411.10614) found up to four times the stated ε so.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

STEPS, BATCH, NOISE_MULTIPLIER, CLIP = 4000, 4, 0.5, 1.0


def epoch(canary: bool, rng: np.random.Generator) -> np.ndarray:
    """(STEPS,) sums of clipped gradients with noise, of records in the order of a shuffle."""
    gradients = np.full(STEPS * BATCH, -CLIP)
    gradients[0] = CLIP if canary else 0.0
    sums = rng.permutation(gradients).reshape(STEPS, BATCH).sum(1)
    return sums + NOISE_MULTIPLIER * CLIP * rng.normal(size=STEPS)


def seen(world: bool, seed: int) -> list[float]:
    """What the attacker makes of an epoch: the log-likelihood ratio of a batch off by 2 and one off by 1."""
    off = (epoch(world, np.random.default_rng(seed)) + BATCH * CLIP) / CLIP
    with_canary, without = (logsumexp((shift * off - shift**2 / 2) / NOISE_MULTIPLIER**2) for shift in (2.0, 1.0))
    return [float(with_canary - without)]
