"""RMIA: does the target model raise a record's probability more than it raises that of other people's records?"""

from __future__ import annotations

import torch
from torch import Tensor

from ...metrics.membership import auc


def rmia(
    target: Tensor,
    shadows: Tensor,
    keep: Tensor,
    population: Tensor,
    population_shadows: Tensor,
    population_keep: Tensor,
    *,
    a: float,
) -> Tensor:
    """Offline RMIA scores (n,) in [0, 1]: the share of population records z with ratio_x > ratio_z.

    Source: Zarifzadeh et al. 2024, arXiv:2312.03262, with γ = 1.

    ratio_x = P(x|θ) / P(x) with P(x) = ½((1 + a)·mean_OUT + (1 − a)), mean_OUT over the shadows not trained on x: their
    mean lies too low, as half of "all models" would know x; `a` in [0, 1] says by how much.

    The population's ratios are sorted once, and a bisection gives every candidate's place among them: O((n + m) log m),
    no n × m matrix. Scores are multiples of 1/m, so m limits their resolution.

    Args:
        target: (n,), the attacked model's confidences on the candidates. shadows: (S, n), those of the shadows.
        keep: (S, n) bool, True where shadow s trained on candidate i.
        population: (m,), population_shadows: (S, m), population_keep: (S, m): the same for records that the target did
            not train on.
        a: in [0, 1], see above.

    Raises:
        ValueError: a is out of range, there is no population, or some record was in every shadow's training set.
    """
    if not 0 <= a <= 1:
        raise ValueError(f"a is {a}; it must lie in [0, 1]")
    if len(population) == 0:
        raise ValueError(
            "RMIA compares with records known not to be members, and there are none; give the attacker auxiliary data"
        )
    ratio_x = target.double() / _marginal(shadows, keep, a)
    ratio_z = population.double() / _marginal(population_shadows, population_keep, a)
    below = torch.searchsorted(ratio_z.sort().values, ratio_x)
    return below.double() / len(population)


def tune_a(shadows: Tensor, keep: Tensor, population_shadows: Tensor, population_keep: Tensor) -> float:
    """The `a` of 0, .1, … 1 with the best AUC in an attack on the first shadow with the help of the others.

    The first shadow's members are no secret to the attacker, who trained it.

    Candidates that no other shadow leaves out are not used, nor population records that the first shadow was trained
    on.

    Args:
        shadows: (S, n), confidences on the candidates. keep: (S, n) bool, True where shadow s trained on candidate i.
        population_shadows, population_keep: (S, m), the same for the population.

    Raises:
        ValueError: there are fewer than four shadows, or the first was trained on all or none of the usable candidates.
    """
    if len(shadows) < 4:
        raise ValueError(f"there are {len(shadows)} shadows; tuning a needs at least 4")
    x = (~keep[1:]).any(0)
    z = (~population_keep[1:]).any(0) & ~population_keep[0]
    member = keep[0, x]

    def area(a: float) -> float:
        scores = rmia(
            shadows[0, x],
            shadows[1:, x],
            keep[1:, x],
            population_shadows[0, z],
            population_shadows[1:, z],
            population_keep[1:, z],
            a=a,
        )
        return auc(scores[member], scores[~member])[0]

    return max((step / 10 for step in range(11)), key=area)


def _marginal(confidences: Tensor, keep: Tensor, a: float) -> Tensor:
    out = (~keep).sum(0)
    if bool((out == 0).any()):
        raise ValueError(
            f"{int((out == 0).sum())} records were in the training set of every shadow; RMIA needs one without them"
        )
    mean = torch.where(keep, 0.0, confidences.double()).sum(0) / out
    return (((1 + a) * mean + (1 - a)) / 2).clamp_min(torch.finfo(torch.float64).tiny)
