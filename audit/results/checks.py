"""What an attack got beside what its control explains, and what a test showed beside what is claimed and proven: the
evidence that levels (`judge.judgement`) are read from.

One check in forty lies above its control by luck, so of many checks some do. They are therefore judged together, by
Holm's (1979) procedure: the one with the least p-value of m must stay below .05/m, the next below .05/(m − 1), and so
on to the first that does not. Whatever leaks nothing, and however the checks depend on each other, the chance that any
beats its control is at most 5 % (as p-values are two-sided, 2.5 %). A check that does beat it also has a 95 % interval
above it, but not conversely. Demonstrated ε hold together already (`canary.rows.demonstrate_rows`).

Only `reidentified`, `psnr_margin` and `exact` speak for images: the other image metrics are correlated with them and
would only add chances of a false alarm. An image that came back beyond doubt (`metrics.exact`) needs no line-up: that
of a single picture cannot tell it from luck. Doing worse than a grey image is no leak.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf
from typing import Literal, get_args

from ...defenses.terms import Observer
from ...metrics.intervals import clopper_pearson_interval
from ..setup.promise import USEFUL_DELTA
from .format import AttackResult, Epsilon, Level, TprPoint

STRICT_FPR = 0.01
COMPARABLE = "control"  # the key under which an attack says why no control of its images is comparable
SIGNIFICANCE = 0.05  # of all checks of one verdict together
ClaimState = Literal["holds", "not proven", "does not hold"]
CLAIMS: tuple[ClaimState, ...] = get_args(ClaimState)  # from best to worst
TYPED = 1.01  # a claim is typed with two or three digits, and a proven number rounded up
USEFUL_EPSILON = 10.0  # a larger proven ε bounds nothing anybody would notice


@dataclass(frozen=True)
class Check:
    """One metric beside its control. low: of its 95 % interval. against: what the control is, in words.

    p_value: the least 1 − confidence at which it beats the control; None for a bound with a confidence of its own.
    beats: whether it does, all checks of the verdict considered. least: the p-value of perfect success; powerless:
    whether even that would not beat it among so many checks, so that failure says nothing. question: what several
    entries answer together with one p-value, which counts once; "" for an entry's own. together: hits and images of all
    entries that answer it, of a line-up.
    """

    metric: str
    value: float | None
    low: float
    control: float
    p_value: float | None
    against: str = "chance"
    beats: bool = False
    least: float = 0.0
    powerless: bool = False
    question: str = ""
    together: tuple[int, int] = (0, 0)


def checks(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> list[list[Check]]:
    """For each attack every metric that has a control, all of them judged together (Holm 1979).

    epsilon: the ε table, whose proofs are the controls of what canaries demonstrate.
    """
    alone = [_checks(attack, epsilon) for attack in attacks]
    every = [check for attack in alone for check in attack if check.p_value is not None]
    asked: dict[str, list[float]] = {}
    for check in every:
        if check.question:
            asked.setdefault(check.question, []).append(check.p_value or 0.0)
    of_entries = [check.p_value or 0.0 for check in every if not check.question]
    values = sorted([*of_entries, *(value for answers in asked.values() for value in _answers(answers))])
    passed = takewhile(lambda pair: pair[1] <= SIGNIFICANCE / (len(values) - pair[0]), enumerate(values))
    limit = max((p for _, p in passed), default=-1.0)
    together: dict[str, tuple[int, int]] = {}
    for attack, judged in zip(attacks, alone, strict=True):
        for check in judged:
            if check.metric == "reidentified" and check.question:
                n, (hits, images) = attack.n or 1, together.get(check.question, (0, 0))
                together[check.question] = hits + round((check.value or 0.0) * n), images + n

    def judged_together(check: Check) -> Check:
        if check.p_value is None:
            return replace(check, beats=check.low > check.control)
        beats = check.p_value <= limit
        powerless = not beats and check.least > SIGNIFICANCE / len(values)
        return replace(check, beats=beats, powerless=powerless, together=together.get(check.question, (0, 0)))

    return [[judged_together(check) for check in attack] for attack in alone]


def _answers(values: Sequence[float]) -> Sequence[float]:
    """A question's p-value, once; its entries that got no more than their control have 1, and ask nothing of their own.
    All of them, where each was judged by itself.
    """
    below = {value for value in values if value < 1}
    if len(below) > 1:
        return values
    return list(below or {1.0})


def _checks(attack: AttackResult, epsilon: Sequence[Epsilon]) -> list[Check]:
    line_up, alike, own_pool = picked(attack), question_of(attack), attack.value("pool_share") is not None
    comparable = COMPARABLE not in attack.not_measured
    judged: list[Check] = []

    def judge(
        metric: str, low: float, control: float, key: str = "", against: str = "chance", question: str = ""
    ) -> None:
        """key: of its value and p-values, where that is not the metric's name."""
        key = key or metric
        p, least = attack.p_values.get(key, 1.0), attack.least_p_values.get(key, 0.0)
        judged.append(Check(metric, attack.value(key), low, control, p, against, least=least, question=question))

    low, chance = attack.low(line_up.share), attack.value(line_up.chance)
    if (comparable or own_pool) and low is not None and chance is not None:
        best, question = best_control(attack), f"{alike} {line_up.share}"
        against = "a control"
        if best == chance:
            against = "chance"
        judge("reidentified", low, best, line_up.share, against=against, question=question)
    if exact := attack.value("exact") or 0.0:  # of itself no measurement: without one, nothing is said
        judged.append(Check("exact", exact, exact, 0.0, None, "anything made without the message"))
    if "psnr_margin" in attack.p_values and comparable:  # without other images there is no test
        low = attack.low("psnr_margin")  # one image has no interval
        judge("psnr_margin", -inf if low is None else low, 0.0, question=f"{alike} psnr_margin")
    if "words_told" in attack.p_values and comparable:
        of_controls = [own.get("words_told") or 0.0 for own in attack.controls.values()]
        judge("words_told", attack.low("words_told") or 0.0, max(of_controls, default=0.0), against="a control")
    if "linked" in attack.p_values:
        judge("linked", attack.low("linked") or 0.0, attack.value("linked_chance") or 0.0)
    if (low := attack.low("attribute_advantage")) is not None:
        judge("attribute_advantage", low, 0.0, against="outsiders")
    if (low := attack.low("auc")) is not None:
        judge("auc", low, max(0.5, attack.controls.get("shuffled", {}).get("auc") or 0.0))
    point = strict_point(attack)
    # The interval takes the false positive rate for exact, so without a p-value it says nothing.
    if point is not None and point.interval is not None and "tpr" in attack.p_values:
        control, least = max(STRICT_FPR, point.realised_fpr or 0.0), attack.least_p_values.get("tpr", 0.0)
        judged.append(Check("tpr", point.tpr, point.interval[0], control, attack.p_values["tpr"], least=least))
    low = attack.low("epsilon")
    if attack.kind == "canary" and low is not None and attack.observer not in observers_aside(epsilon):
        judged.append(Check("epsilon", attack.value("epsilon"), low, _allowed_canary(attack, epsilon), None))
    return judged


def best_control(attack: AttackResult) -> float:
    """The largest share of originals that chance, or a picture that knows nothing, picks out of the entry's line-up."""
    line_up = picked(attack)
    shares = (controls.get(line_up.share) for controls in attack.controls.values())
    return max(share for share in (attack.value(line_up.chance) or 0.0, *shares) if share is not None)


def question_of(attack: AttackResult) -> str:
    """What a run's entries of an attack have in common that differ in the message alone."""
    settings = json.dumps(attack.settings, sort_keys=True, default=str)
    return f"{attack.run} {attack.attack} {attack.observer} {attack.manner} {settings}"


def _allowed_canary(attack: AttackResult, epsilon: Sequence[Epsilon]) -> float:
    """What the proof allows a canary's entry to demonstrate, by its row; by the strictest where several δ have one."""
    unit, adjacency = attack.settings.get("unit"), attack.settings.get("adjacency")
    rows = [r for r in epsilon if (r.observer, r.unit, r.adjacency) == (attack.observer, unit, adjacency)]
    return min((allowed_epsilon(row, epsilon) for row in rows), default=0.0)


def allowed_epsilon(shown: Epsilon, epsilon: Sequence[Epsilon]) -> float:
    """The largest ε that may be demonstrated of a row without a leak: what is proven, where that is 10 at most, as a
    larger one allows nearly anything; else 0.
    """
    proven = [
        row.proven
        for row in epsilon
        if row.proven is not None and bounded_by(shown, row) and (row.delta or 0.0) <= USEFUL_DELTA
    ]
    least = min(proven, default=inf)
    if least <= USEFUL_EPSILON:
        return least
    return 0.0


def observers_aside(epsilon: Sequence[Epsilon]) -> set[str]:
    """Whom the run is not about."""
    return {row.observer for row in epsilon if row.aside}


@dataclass(frozen=True)
class Picked:
    """The names of two metrics: how many originals were picked out of other images, and how many by chance."""

    share: str
    chance: str


def picked(attack: AttackResult) -> Picked:
    """Out of a record's own pool, images that might as well have been there, where there is one."""
    if attack.value("pool_share") is not None:
        return Picked("pool_share", "pool_chance")
    return Picked("reidentified", "reidentified_chance")


def strict_point(attack: AttackResult) -> TprPoint | None:
    """The TPR at 1 % FPR with its limits and the FPR really reached; None if not measured."""
    points = (point for point in attack.tpr_points if abs(point.fpr - STRICT_FPR) < 1e-9)
    return next((point for point in points if point.interval is not None), None)


def bounded_by(shown: Epsilon, row: Epsilon) -> bool:
    """Whether an ε of `row`, claimed or proven, also bounds what is demonstrated of `shown`."""
    same = shown.delta == row.delta and Observer.parse(shown.observer).sees_at_most(Observer.parse(row.observer))
    same_row = (shown.unit, shown.adjacency) == (row.unit, row.adjacency)
    implied = (shown.unit, row.unit, row.adjacency) == ("record", "client", "replace_one")
    return same and (same_row or implied)


def claim_of(row: Epsilon, refuted: bool) -> ClaimState | None:
    """What becomes of a row's claim, by its proof and by what refutes it; None where nothing is claimed."""
    if row.claimed is None:
        return None
    if refuted or cannot_hold(row):
        return "does not hold"
    if row.proven is not None and row.proven <= row.claimed * TYPED:
        return "holds"
    return "not proven"


def cannot_hold(row: Epsilon) -> bool:
    """Whether the noise is too small for the claim, whatever a better proof might show: a curve of Gaussian noise
    without sampling (Dong, Roth and Su 2019, Corollary 2.13) is exact for the largest update that a client may send.
    Of a record this says nothing, as it seldom moves an update by all that the clip allows.
    """
    unsampled = row.proven_without_sampling is None
    exact = row.unit == "client" and row.accountant == "closed form" and row.mu is not None and unsampled
    claimed, proven = row.claimed, row.proven
    return exact and claimed is not None and proven is not None and claimed * TYPED < proven


def most_demonstrated(row: Epsilon) -> float:
    """The largest ε demonstrated of a row, on a condition or not; 0 where none was."""
    return max(row.demonstrated or 0.0, row.demonstrated_on_condition or 0.0)


def beyond_proof(attacks: Sequence[AttackResult]) -> list[tuple[float, float]]:
    """The shares of successes, each with its ceiling by proof, that contradict the proof.

    The ceiling is about one training with fresh noise. Records attacked in it share that noise, so together they are
    one trial and not many: a run's share of successes has an expectation below the ceiling, and by Markov's inequality
    it reaches ceiling/α with probability α at most. Only a share beyond that contradicts the proof, α = 5 % shared by
    all ceilings of an audit (Bonferroni).
    """
    pairs = []
    for attack in attacks:
        share, ceiling = attack.value("pool_share"), attack.value("pool_ceiling")
        if share is not None and ceiling is not None:
            pairs.append((share, ceiling))
        pairs += [(point.tpr, point.ceiling) for point in attack.tpr_points if point.ceiling is not None]
    return [(share, ceiling) for share, ceiling in pairs if share * SIGNIFICANCE / len(pairs) > ceiling]


def _low(own: Sequence[Check], metric: str) -> float:
    """The lower limit of a metric that beats its control, else −∞."""
    return next((check.low for check in own if check.metric == metric and check.beats), float("-inf"))


def rebuilt_together(own: Sequence[Check]) -> tuple[float, float] | None:
    """The interval of the share re-identified over all messages of the attack; None where it does not beat its control,
    or this message is all there is.
    """
    check = next((check for check in own if check.metric == "reidentified" and check.beats), None)
    if check is None or not check.together[1]:
        return None
    return clopper_pearson_interval(*check.together)


def _low_of_line_up(own: Sequence[Check]) -> float:
    """Of this message, or of all of the attack's: many messages of one image each are as bad as one of many."""
    together = rebuilt_together(own)
    return max(_low(own, "reidentified"), together[0] if together else 0.0)


def severity(attack: AttackResult, judged: Sequence[Check]) -> Level:
    """The leak that an attack shows, by the rule of `judge.judgement`."""
    if severely_rebuilt(judged):
        return "severe"
    if clearly_rebuilt(attack, judged) or clearly_member(judged) or clearly_guessed(judged):
        return "high"
    if any(check.beats for check in judged):
        return "moderate"
    return "none found"


def severely_rebuilt(own: Sequence[Check]) -> bool:
    return max(_low_of_line_up(own), _low(own, "exact")) >= 0.5


def clearly_rebuilt(attack: AttackResult, own: Sequence[Check]) -> bool:
    if _low(own, "exact") > 0 or _low(own, "words_told") >= 0.5:
        return True
    chance, margin = attack.value(picked(attack).chance), attack.value("psnr_margin")
    return chance is not None and margin is not None and _low_of_line_up(own) > 5 * chance and margin >= 3


def clearly_member(own: Sequence[Check]) -> bool:
    return _low(own, "tpr") >= 0.1


def clearly_guessed(own: Sequence[Check]) -> bool:
    """Whether half of the members have a value told that the same guesses do not tell of others."""
    return _low(own, "attribute_advantage") >= 0.5


def strength(attack: AttackResult) -> tuple[float, ...]:
    """The sort key of attacks: share re-identified beyond chance, PSNR margin, attribute advantage, AUC, then ε."""
    nothing = float("-inf")
    line_up = picked(attack)
    share, chance = attack.value(line_up.share), attack.value(line_up.chance)
    beyond = nothing if share is None else share - (chance or 0.0)
    return (
        beyond,
        *(
            nothing if (v := attack.value(name)) is None else v
            for name in ("psnr_margin", "words_told", "attribute_advantage", "auc", "epsilon")
        ),
    )
