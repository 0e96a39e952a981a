"""Whether a canary's scores can be Gaussian-shaped, which follows from the ledger and from what trials draw anew.

The Gaussian bound measures one point of a trade-off curve and takes the rest from the curve N(0, 1) against N(μ, 1).
That is exact for one message with Gaussian noise of one public size and everything else known. Later rounds, whose
models follow the noise, and training that the noise runs through can have another curve; there the bound stands on its
condition. Where the ledger says that the curve is another one, there is no such bound at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....defenses.participation import Everyone, RoundRobin, Separated
from ....defenses.releases import Facts
from ...proven.views import behind
from .case import CanaryCase
from .plan import Protocol


def not_gaussian(case: CanaryCase, protocol: Protocol) -> str:
    """Why no bound of this protocol may take scores for Gaussian-shaped, in words; "" where one may, on that condition.

    Coins fall where the client is in the round, so that a secret draw of the cohort makes no mixture of these scores.
    """
    hidden = protocol == "end-to-end" or (case.aggregate and protocol != "rounds")
    rule = case.federation.scheme.participation
    known = isinstance(rule, Everyone | RoundRobin)
    if isinstance(rule, Separated):  # whole trainings draw a cohort of their own
        known = protocol != "end-to-end" or rule.everybody(len(case.experiment.clients))
    if hidden and not known:
        return "the client is there by lot, unseen"
    job = case.rounds[0].job
    if protocol in ("mechanism-redrawn", "end-to-end") and bool(((job.batches >= 0).sum(1) < len(job.inputs)).any()):
        return "the batches are drawn anew in every trial, unseen"
    seen = behind(case.ledger, case.question.observer, case.client)
    return not_gaussian_by(seen, cohort_hidden=hidden)


def noise_last(case: CanaryCase) -> bool:
    """Whether nothing nonlinear comes between the Gaussian noise and what is seen of a round.

    Noise inside local training goes through the optimiser and the steps after it: one step of SGD only scales it, Adam
    makes signs of it. Then scores may be narrower than the noise is, and only bets on errors bound μ
    (`two_worlds/estimators/curve_bets.py`).
    """
    job = case.rounds[0].job
    if job.training.per_example is None or job.share == "gradient":
        return True
    return job.training.optimiser in ("sgd", "momentum") and len(job.batches) == 1


def not_gaussian_by(releases: Iterable[Facts], *, cohort_hidden: bool = True) -> str:
    """Why these releases together are no Gaussian mechanism; "" where they may be.

    Args:
        releases: all that is behind what an observer sees.
        cohort_hidden: whether a secret draw of clients is part of every trial.

    >>> from dpfl_audit.defenses.releases import LaplaceLaw, declare
    >>> not_gaussian_by([declare("a", 0, LaplaceLaw(1.0), 1.0, frozenset({0}), bound_order=1)])
    'there is Laplace noise'
    """
    for release in releases:
        drawn = release.sampling
        if release.mechanism == "none":
            return release.problem or "a value is sent without noise"
        if release.mechanism == "response":
            return "every number is one of two values"
        if release.mechanism not in ("gaussian", "correlated"):
            if release.mechanism == "discrete":
                name = "discrete"
            else:
                name = release.mechanism.capitalize()
            return f"there is {name} noise"
        if release.problem:
            return release.problem
        secret = drawn is not None and drawn.kind != "partition"
        if (
            drawn is not None
            and secret
            and drawn.cohort < drawn.population
            and (cohort_hidden or drawn.unit == "record")
        ):
            return f"{drawn.unit}s are drawn by lot, unseen"
    return ""
