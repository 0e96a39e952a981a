"""Membership scores beside the truth: what an attack's entry in results.json says of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import Tensor

from ...attacks.base import MembershipScores
from ...defenses.randomness import generator
from ...metrics.intervals import bootstrap_interval
from ...metrics.membership import LEVELS, auc, auc_p_value, balanced_accuracy, roc, tpr_at_fpr
from ..errors import BadInput
from .checks import STRICT_FPR
from .format import AttackResult, ClassRow, Exposed, Histogram, Metrics, Roc, TprPoint

SHUFFLES = 200
ROC_POINTS = 400
BINS = 40
EXPOSED = 10


def score_membership(scores: MembershipScores, member: Tensor, classes: Tensor | None, seed: int) -> AttackResult:
    """What an attack's scores got right.

    The control gives the same scores to members chosen at random, 200 times. Its auc and balanced_accuracy are means (a
    balanced accuracy chosen on the scores it judges exceeds ½ even for noise); auc_low and auc_high hold 95 % of the
    shuffles.

    Args:
        scores: the attack's.
        member: (n,) bool in the scores' order, the truth.
        classes: (n,) the records' labels, for the per-class table; None for no table.
        seed: of the shuffled-membership control.

    Raises:
        BadInput: there are no members or no others, or a record is listed twice.
    """
    values = np.asarray(scores.scores, dtype=np.float64)
    truth = np.asarray(member, dtype=bool)
    _check(scores, truth)
    inside, outside = values[truth], values[~truth]
    area, interval = auc(inside, outside)
    rates = tpr_at_fpr(inside, outside)
    shuffled = _shuffled(values, len(inside), seed)
    strict = rates[STRICT_FPR]
    # Shuffled scores scatter around ½ themselves: below it they would make the test too easy.
    p_values = {"auc": auc_p_value(area, len(inside), len(outside), max(0.5, shuffled["auc"]))} | (
        {} if strict is None else {"tpr": strict.p_value}
    )
    perfect = tpr_at_fpr(np.ones(len(inside)), np.zeros(len(outside)))[STRICT_FPR]
    leasts = {"auc": auc_p_value(1.0, len(inside), len(outside), max(0.5, shuffled["auc"]))} | (
        {} if perfect is None else {"tpr": perfect.p_value}
    )
    controls: dict[str, dict[str, float | None]] = {"shuffled": dict(shuffled)}
    means: dict[str, float] = {}
    intervals: dict[str, tuple[float, float] | None] = {"auc": interval}
    if scores.metric:
        means[scores.metric], controls["outsiders"] = float(inside.mean()), {scores.metric: float(outside.mean())}
        intervals[scores.metric] = bootstrap_interval(torch.from_numpy(inside), seed=seed)
    points = tuple(
        None if rate is None else TprPoint(fpr=level, tpr=rate.tpr, interval=rate.tpr_interval, realised_fpr=rate.fpr)
        for level, rate in ((level, rates[level]) for level in LEVELS)
    )
    return AttackResult(
        attack=scores.attack,
        observer=scores.observer,
        manner=scores.manner,
        n=len(values),
        metrics=Metrics.of(
            {
                "auc": area,
                "balanced_accuracy": balanced_accuracy(inside, outside),
                "n_members": len(inside),
                "n_nonmembers": len(outside),
                **means,
            },
            points,
        ),
        controls=controls,
        intervals=intervals,
        p_values=p_values,
        least_p_values=leasts,
        roc=_thinned_roc(inside, outside),
        histogram=_histogram(inside, outside),
        per_class=() if classes is None else _per_class(values, truth, np.asarray(classes)),
        most_exposed=_most_exposed(scores.ids, values, truth),
    )


def _check(scores: MembershipScores, truth: np.ndarray) -> None:
    what, ids = scores.attack, scores.ids.tolist()
    if not len(ids) == len(scores.scores) == len(truth):
        raise BadInput(
            f"{what}: {len(ids)} record ids, {len(scores.scores)} scores and {len(truth)} membership flags; there must"
            " be one of each a record"
        )
    members, others = ({i for i, inside in zip(ids, truth.tolist()) if inside is kind} for kind in (True, False))
    if not members:
        raise BadInput(
            f"{what}: none of the {len(ids)} candidates is a member; membership can only be scored on members and"
            " non-members"
        )
    if not others:
        raise BadInput(
            f"{what}: all {len(ids)} candidates are members; membership can only be scored with non-members beside them"
        )
    if both := members & others:
        raise BadInput(
            f"{what}: {len(both)} records are both members and non-members (first: id {min(both)}); the two groups must"
            " not overlap"
        )
    if len(members) + len(others) < len(ids):
        twice = [i for i, times in Counter(ids).items() if times > 1]
        raise BadInput(
            f"{what}: {len(twice)} records are among the candidates more than once (first: id {min(twice)}); each may"
            " be scored once"
        )


def _shuffled(values: np.ndarray, members: int, seed: int) -> dict[str, float]:
    areas, accuracies = [], []
    rng = generator(seed, "shuffled membership")
    for _ in range(SHUFFLES):
        order = torch.randperm(len(values), generator=rng).numpy()
        inside, outside = values[order[:members]], values[order[members:]]
        fpr, tpr, _ = roc(inside, outside)
        areas.append(float((np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2).sum()))
        accuracies.append(float((1 + (tpr - fpr).max()) / 2))
    low, high = np.quantile(areas, [0.025, 0.975])
    return {
        "auc": float(np.mean(areas)),
        "auc_low": float(low),
        "auc_high": float(high),
        "balanced_accuracy": float(np.mean(accuracies)),
    }


def _thinned_roc(inside: np.ndarray, outside: np.ndarray) -> Roc:
    """At most 400 points of the ROC: its corners, of many those spread evenly over the rates and their logarithms."""
    fpr, tpr, _ = roc(inside, outside)
    corner = np.ones(len(fpr), dtype=bool)  # a point in the middle of a straight step adds nothing
    corner[1:-1] = ~(
        ((fpr[1:-1] == fpr[:-2]) & (fpr[1:-1] == fpr[2:])) | ((tpr[1:-1] == tpr[:-2]) & (tpr[1:-1] == tpr[2:]))
    )
    fpr, tpr = fpr[corner], tpr[corner]
    if len(fpr) > ROC_POINTS:
        quarter = ROC_POINTS // 4
        places = [0, len(fpr) - 1]
        for rate in (fpr, tpr):
            first = rate[rate > 0].min()
            for grid in (np.linspace(0, 1, quarter), np.geomspace(first, 1, quarter)):
                places += np.searchsorted(rate, grid).clip(max=len(rate) - 1).tolist()
        chosen = sorted(set(places))[:ROC_POINTS]
        chosen[-1] = len(fpr) - 1
        fpr, tpr = fpr[chosen], tpr[chosen]
    return Roc(fpr=tuple(fpr.tolist()), tpr=tuple(tpr.tolist()))


def _histogram(inside: np.ndarray, outside: np.ndarray) -> Histogram:
    """Counts in 40 equal bins over the middle 99 % of the scores.

    The first and last bin hold the few scores beyond: else one huge likelihood ratio leaves all others in a single bin.
    """
    low, high = np.quantile(np.concatenate([inside, outside]), [0.005, 0.995])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    members, others = (tuple(np.histogram(group.clip(low, high), edges)[0].tolist()) for group in (inside, outside))
    return Histogram(edges=tuple(edges.tolist()), members=members, nonmembers=others)


def _per_class(values: np.ndarray, truth: np.ndarray, classes: np.ndarray) -> tuple[ClassRow, ...]:
    """A class without members, or without others, has no AUC."""
    if len(classes) != len(values):
        raise BadInput(f"{len(classes)} labels for {len(values)} scored records; the per-class table needs one each")
    rows = []
    for label in np.unique(classes).tolist():
        inside, outside = values[truth & (classes == label)], values[~truth & (classes == label)]
        if len(inside) and len(outside):
            area, interval = auc(inside, outside)
        else:
            area, interval = None, None
        row = {"class": label, "n_members": len(inside), "n_nonmembers": len(outside)}
        rows.append(ClassRow.model_validate({**row, "auc": area, "interval": interval}))
    return tuple(rows)


def _most_exposed(ids: Tensor, values: np.ndarray, truth: np.ndarray) -> tuple[Exposed, ...]:
    """The members with the highest scores, and the share of non-members who score at least as high."""
    outside = values[~truth]
    top = [i for i in np.argsort(-values, kind="stable").tolist() if truth[i]][:EXPOSED]
    return tuple(
        Exposed(id=int(ids[i]), score=float(values[i]), nonmembers_above=float((outside >= values[i]).mean()))
        for i in top
    )
