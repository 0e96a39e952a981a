"""What is known to be wrong in Flower's differential privacy (read in flwr 1.41), told from a recording's numbers.

Plain functions of plain numbers: None where the defect does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

ONE_IN_A_MILLION = 5.0  # standard deviations


@dataclass(frozen=True)
class FlowerDefect:
    """what, said, why: as of a `Declaration`. breaks: nothing that is declared holds because of it."""

    what: str
    said: str
    why: str
    breaks: bool = False


def _factor(times: float) -> str:
    """
    >>> _factor(2.0), _factor(10_000.0)
    ('2', '10,000')
    """
    if times < 1000:
        return f"{times:.3g}"
    return f"{times:,.0f}"


def other_sensitivity(clip: float, sensitivity: float, epsilon: float, delta: float) -> FlowerDefect | None:
    """LocalDpMod scales its noise to an argument that nothing ties to its clip.

    >>> other_sensitivity(1.0, 0.01, 8.0, 1e-5).why
    'the noise is scaled to a sensitivity of 0.01, and the clip allows 1: it is 100 times too small for that ε'
    >>> other_sensitivity(1.0, 1.0, 8.0, 1e-5)
    """
    if sensitivity >= clip * (1 - 1e-9):
        return None
    if sensitivity == 0:
        times = "infinitely often"
    else:
        times = f"{_factor(clip / sensitivity)} times"
    return FlowerDefect(
        "sensitivity",
        f"LocalDpMod(clipping_norm={clip:g}, sensitivity={sensitivity:g}, epsilon={epsilon:g}, delta={delta:g})",
        f"the noise is scaled to a sensitivity of {sensitivity:g}, and the clip allows {clip:g}: it is {times} too"
        " small for that ε",
    )


def weights_beyond_noise(counts: Sequence[int], expected: int, multiplier: float) -> FlowerDefect | None:
    """Noise of z·C/n on a mean in which somebody weighs more than 1/n.

    counts: records of those who replied. expected: num_sampled_clients, n. multiplier: z.

    >>> weights_beyond_noise([30, 10, 10], 3, 1.0).why
    'a client of 30 of 50 records weighs 0.6, and the noise is that of 1/3: its multiplier is 0.556, not 1'
    >>> weights_beyond_noise([10, 10, 10], 3, 1.0)
    """
    if not counts:
        return None
    most = max(counts) / sum(counts)
    if most * expected <= 1 + 1e-9:
        return None
    return FlowerDefect(
        "weighted mean",
        f"noise of {multiplier:g}·C/{expected} on a mean weighed by numbers of records",
        f"a client of {max(counts)} of {sum(counts)} records weighs {most:.3g}, and the noise is that of 1/{expected}:"
        f" its multiplier is {multiplier / (most * expected):.3g}, not {multiplier:g}",
    )


def moved_the_wrong_way(clipped: int, total: int, before: float, after: float, target: float) -> FlowerDefect | None:
    """An adaptive clip that follows C·exp(−η(share clipped − target)): clipping many makes it clip more.

    Args:
        clipped: how many of `total` updates were longer than `before`. after: the next bound. target: the quantile.

    >>> moved_the_wrong_way(100, 100, 1.0, 0.9, 0.5).what, moved_the_wrong_way(50, 100, 1.0, 0.99, 0.5)
    ('adaptive clip', None)
    """
    if total == 0:
        return None
    share = clipped / total
    spread = 0.0
    if total > 1:
        spread = ONE_IN_A_MILLION * sqrt(target * (1 - target) / total)
    wrong = (share > target and after < before) or (share < target and after > before)
    if not wrong or abs(share - target) <= min(spread, 0.25):
        return None
    return FlowerDefect(
        "adaptive clip",
        f"clips a share of {target:g} of the updates",
        f"{clipped} of {total} updates were longer than C = {before:.4g}, and C became {after:.4g}: it moves away from"
        " what it is to reach",
    )


def noise_of_the_next_bound(before: float, after: float) -> FlowerDefect | None:
    """Noise scaled to the bound of the next round.

    >>> noise_of_the_next_bound(1.0, 0.9).what, noise_of_the_next_bound(1.0, 1.1)
    ('adaptive noise', None)
    """
    if after >= before * (1 - 1e-9):
        return None
    return FlowerDefect(
        "adaptive noise",
        "noise in proportion to the clip",
        f"updates were clipped to C = {before:.4g}, and the noise is that of the next bound, {after:.4g}",
    )


def unclipped_tensors(shapes: Mapping[str, tuple[int, ...]]) -> FlowerDefect | None:
    """Tensors without a dimension are counted in the norm, but `array *= factor` does not change them.

    >>> unclipped_tensors({"weight": (3,), "logit_scale": ()}).why
    "the tensor 'logit_scale' has no dimension, and passes the clip as it is, however large"
    """
    alone = [name for name, shape in shapes.items() if shape == ()]
    if not alone:
        return None
    return FlowerDefect(
        "unclipped tensors",
        "the whole update is clipped",
        f"the tensor {alone[0]!r} has no dimension, and passes the clip as it is, however large",
        breaks=True,
    )


def bits_in_the_open(metrics: Mapping[str, object]) -> FlowerDefect | None:
    """The clients' norm bits, averaged without noise into the metrics that are published.

    >>> bits_in_the_open({"norm_bit": 1.0}).what
    'norm bits'
    """
    if "norm_bit" not in metrics:
        return None
    return FlowerDefect(
        "norm bits",
        "the count of clipped updates gets noise",
        "the mean of the clients' norm_bit stands in the aggregated metrics without any noise",
        breaks=True,
    )


def fewer_than_noise_is_for(replies: int, expected: int) -> FlowerDefect | None:
    """
    >>> fewer_than_noise_is_for(5, 10).why
    '5 clients replied, and the noise is that of a mean of 10: it is 2 times too small'
    """
    if not 0 < replies < expected:
        return None
    return FlowerDefect(
        "fewer replies",
        f"noise for {expected} sampled clients",
        f"{replies} clients replied, and the noise is that of a mean of {expected}: it is {expected / replies:.3g}"
        " times too small",
    )
