"""The verdict: what leak was found, what is proven, by rule; and three sentences for somebody who has to decide.

The leak:

    severe      demonstrated ε > claimed or proven ε, or `reidentified` beats its control and has a lower limit ≥ .5,
                or an attack did better than the proof allows any (`beyond_proof`)
    high        `reidentified` beats its control with a lower limit > 5 × chance and a PSNR margin ≥ 3 dB,
                or TPR at 1 % FPR beats its control with a lower limit ≥ .1,
                or ε demonstrated on a condition (Gaussian-shaped scores) > claimed or proven ε
    moderate    some check beats its control, or an ε is demonstrated, on a condition or not, that no proof of 10 at
                most allows
    none found  none of these

An ε that is demonstrated below a proven one of 10 at most is no leak: the test has seen what the proof allows, and no
more. A larger proven one excuses nothing, since it allows nearly anything (`allowed_epsilon`).

The proof, of the rows that bound every attacked observer (`bounding_rows`):

    proven      a finite ε ≤ 10 at a δ ≤ .01
    weak        a finite one, above 10 or at a larger δ
    none        no finite one, or one that was contradicted
    not priced  nobody computed one

Only `reidentified` and `psnr_margin` speak for images: the other image metrics are correlated with them and would only
add chances of a false alarm. Doing worse than a grey image is no leak.

One check in forty lies above its control by luck, so of many checks some do. They are therefore judged together, by
Holm's (1979) procedure: the one with the least p-value of m must stay below .05/m, the next below .05/(m − 1), and so
on to the first that does not. Whatever leaks nothing, and however the checks depend on each other, the chance that any
beats its control is at most 5 % (as p-values are two-sided, 2.5 %). A check that does beat it also has a 95 % interval
above it, but not conversely. Demonstrated ε hold together already (`canary.rows.demonstrate_rows`). No level means that
a setup is free of leaks: the failure of these attacks says nothing of other attacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import erfc, inf, sqrt
from typing import Literal

from .format import AttackResult, Epsilon, Level, Proof, Verdict
from .words import (
    at_least,
    at_most,
    claim_said,
    could_show,
    listed,
    number,
    observer,
    on_condition,
    percent,
    percent_at_least,
    percent_at_most,
    sees_at_most,
    times,
)

STRICT_FPR = 0.01
COMPARABLE = "control"  # the key under which an attack says why no control of its images is comparable
SIGNIFICANCE = 0.05  # of all checks of one verdict together
USEFUL_EPSILON = 10.0  # a larger proven ε bounds nothing anybody would notice
USEFUL_DELTA = 0.01  # with a larger one whatever publishes every hundredth record is private


@dataclass(frozen=True)
class Check:
    """One metric beside its control. low: of its 95 % interval. against: what the control is, in words.

    p_value: the least 1 − confidence at which it beats the control; None for a bound with a confidence of its own.
    beats: whether it does, all checks of the verdict considered.
    """

    metric: str
    value: float | None
    low: float
    control: float
    p_value: float | None
    against: str = "chance"
    beats: bool = False


def checks(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> list[list[Check]]:
    """For each attack every metric that has a control, all of them judged together (Holm 1979).

    epsilon: the ε table, whose proofs are the controls of what canaries demonstrate.
    """
    own_checks = [_checks(attack, epsilon) for attack in attacks]
    values = sorted(check.p_value for own in own_checks for check in own if check.p_value is not None)
    passed = takewhile(lambda pair: pair[1] <= SIGNIFICANCE / (len(values) - pair[0]), enumerate(values))
    limit = max((p for _, p in passed), default=-1.0)
    return [
        [
            replace(check, beats=check.low > check.control if check.p_value is None else check.p_value <= limit)
            for check in own
        ]
        for own in own_checks
    ]


def _checks(attack: AttackResult, epsilon: Sequence[Epsilon]) -> list[Check]:
    def p_value(metric: str, low: float, control: float) -> float:
        """As stored; in results of before, what the 95 % interval says: as of a normal one with that lower half."""
        if metric in attack.p_values or low <= control:
            return attack.p_values.get(metric, 1.0)
        value = attack.value(metric)
        half = low if value is None else value - low
        return SIGNIFICANCE if half <= 0 else float(erfc(1.959964 * (half + low - control) / half / sqrt(2)))

    known: list[Check] = []
    line_up = picked(attack)
    comparable = COMPARABLE not in attack.not_measured or line_up.share == "pool_share"
    low, chance = attack.low(line_up.share), attack.value(line_up.chance)
    if comparable and low is not None and chance is not None:
        shares = (controls.get(line_up.share) for controls in attack.controls.values())
        best = max([chance, *(share for share in shares if share is not None)])
        against = "chance" if best == chance else "a control"
        p = p_value(line_up.share, low, best)
        known.append(Check("reidentified", attack.value(line_up.share), low, best, p, against))
    if COMPARABLE not in attack.not_measured and (low := attack.low("psnr_margin")) is not None:
        known.append(Check("psnr_margin", attack.value("psnr_margin"), low, 0.0, p_value("psnr_margin", low, 0.0)))
    if (low := attack.low("auc")) is not None:
        control = max(0.5, attack.controls.get("shuffled", {}).get("auc") or 0.0)
        known.append(Check("auc", attack.value("auc"), low, control, p_value("auc", low, control)))
    point = strict_point(attack)
    # The interval takes the false positive rate for exact, so without a p-value it says nothing.
    if point is not None and "tpr" in attack.p_values:
        known.append(Check("tpr", point[0], point[1], max(STRICT_FPR, point[2]), attack.p_values["tpr"]))
    if attack.kind == "canary" and (low := attack.low("epsilon")) is not None:
        known.append(Check("epsilon", attack.value("epsilon"), low, _allowed_canary(attack, epsilon), None))
    return known


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
        if row.proven is not None and _bounded_by(shown, row) and (row.delta or 0.0) <= USEFUL_DELTA
    ]
    least = min(proven, default=inf)
    return least if least <= USEFUL_EPSILON else 0.0


def leaking(epsilon: Sequence[Epsilon]) -> list[Epsilon]:
    """The rows of which more ε is demonstrated than a proof allows."""
    return [row for row in epsilon if most_demonstrated(row) > allowed_epsilon(row, epsilon)]


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


def strict_point(attack: AttackResult) -> tuple[float, float, float] | None:
    """TPR at 1 % FPR, its lower limit, and the FPR really reached; None if not measured."""
    for point in attack.tpr_points:
        if abs(point.fpr - STRICT_FPR) < 1e-9 and point.interval is not None:
            return point.tpr, point.interval[0], point.realised_fpr or 0.0
    return None


def refutations(
    epsilon: Sequence[Epsilon], what: Literal["claimed", "proven"] = "claimed", on_condition: bool = False
) -> list[tuple[Epsilon, Epsilon]]:
    """Pairs (demonstrated, claimed) of rows in which the demonstration refutes the claim; or (demonstrated, proven),
    where it contradicts the proof, which is all that a claim of the accountant's own says.

    Only what is demonstrated without a condition counts. `on_condition` asks for the other pairs instead: those that
    only a bound with a condition refutes, so that somebody may be right to doubt them.

    Rows are compared at equal unit, adjacency and δ. What is demonstrated of an observer also holds of one who sees at
    least as much, by post-processing; pairs of one observer come first. A client-level `replace_one` claim is also
    refuted at record level, since exchanging one record is one way of exchanging the client's data. A `zero_out` claim
    is not: one record can turn a clipped update around (distance 2C), while leaving the client out moves it by C only.
    """
    pairs = []
    for shown in epsilon:
        for claim in epsilon:
            limit: float | None = getattr(claim, what)
            if what == "claimed" and claim.claimed_by == "accountant":
                continue
            if limit is not None and _bounded_by(shown, claim) and _exceeds(shown, limit, on_condition):
                pairs.append((shown, claim))
    return sorted(pairs, key=lambda pair: pair[0].observer != pair[1].observer)


def _bounded_by(shown: Epsilon, row: Epsilon) -> bool:
    """Whether an ε of `row`, claimed or proven, also bounds what is demonstrated of `shown`."""
    same = shown.delta == row.delta and sees_at_most(shown.observer, row.observer)
    same_row = (shown.unit, shown.adjacency) == (row.unit, row.adjacency)
    implied = (shown.unit, row.unit, row.adjacency) == ("record", "client", "replace_one")
    return same and (same_row or implied)


def _exceeds(shown: Epsilon, limit: float, on_condition: bool) -> bool:
    counted = shown.demonstrated is not None and shown.demonstrated > limit
    if not on_condition:
        return counted
    return not counted and shown.demonstrated_on_condition is not None and shown.demonstrated_on_condition > limit


def refuted_on_condition(epsilon: Sequence[Epsilon]) -> list[tuple[Epsilon, Epsilon]]:
    """The pairs of rows in which a bound with a condition exceeds a claim, then those in which it exceeds a proof."""
    return refutations(epsilon, "claimed", on_condition=True) + refutations(epsilon, "proven", on_condition=True)


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


def severely_rebuilt(own: Sequence[Check]) -> bool:
    return _low(own, "reidentified") >= 0.5


def clearly_rebuilt(attack: AttackResult, own: Sequence[Check]) -> bool:
    chance, margin = attack.value(picked(attack).chance), attack.value("psnr_margin")
    return chance is not None and margin is not None and _low(own, "reidentified") > 5 * chance and margin >= 3


def clearly_member(own: Sequence[Check]) -> bool:
    return _low(own, "tpr") >= 0.1


def strength(attack: AttackResult) -> tuple[float, ...]:
    """The sort key of attacks: share re-identified beyond chance, then PSNR margin, then AUC, then demonstrated ε."""
    nothing = float("-inf")
    line_up = picked(attack)
    share, chance = attack.value(line_up.share), attack.value(line_up.chance)
    beyond = nothing if share is None else share - (chance or 0.0)
    return (
        beyond,
        *(nothing if (v := attack.value(name)) is None else v for name in ("psnr_margin", "auc", "epsilon")),
    )


def bounding_rows(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> dict[str, Epsilon | None]:
    """The row that bounds the attacks on each attacked observer, or on every observer if none was attacked.

    None for an observer without a row. The attacks are after single records, so it is the row of unit record where
    there is one, with `zero_out`: in the training data or not. Of several such rows (several δ) it is the one with the
    largest proven ε.
    """
    observers = {attack.observer: None for attack in attacks if attack.scored} or {
        row.observer: None for row in epsilon
    }

    def order(row: Epsilon) -> tuple[bool, bool, bool, float]:
        return row.unit != "record", row.adjacency != "zero_out", row.proven is not None, -(row.proven or 0.0)

    return {who: min((row for row in epsilon if row.observer == who), key=order, default=None) for who in observers}


def worst_proven(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> float | None:
    """The largest proven ε of the bounding rows; None where one is missing, not priced or at too large a δ."""
    proven = [
        None if row is None or (row.delta or 0.0) > USEFUL_DELTA else row.proven
        for row in bounding_rows(attacks, epsilon).values()
    ]
    known = [value for value in proven if value is not None]
    return max(known) if known and len(known) == len(proven) else None


def level(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> Level:
    """The leak found, by the rule at the top of this page."""
    own_checks = checks(attacks, epsilon)
    if refutations(epsilon) or refutations(epsilon, "proven") or any(map(severely_rebuilt, own_checks)):
        return "severe"
    if beyond_proof(attacks):
        return "severe"
    clear = any(clearly_rebuilt(attack, own) or clearly_member(own) for attack, own in zip(attacks, own_checks))
    if clear or refuted_on_condition(epsilon):
        return "high"
    if any(check.beats for own in own_checks for check in own) or leaking(epsilon):
        return "moderate"
    return "none found"


def proof(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> Proof:
    """What is proven, by the rule at the top of this page; a proof that was exceeded proves nothing."""
    rows = list(bounding_rows(attacks, epsilon).values())
    contradicted = refutations(epsilon, "proven") + refutations(epsilon, "proven", on_condition=True)
    if contradicted or beyond_proof(attacks) or any(row is not None and row.proven == inf for row in rows):
        return "none"
    if not rows or any(row is None or row.proven is None for row in rows):
        return "not priced"
    worst = worst_proven(attacks, epsilon)
    return "proven" if worst is not None and worst <= USEFUL_EPSILON else "weak"


def anything_measured(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> bool:
    """Whether anything could have shown a leak: a metric with a control, or a test of ε."""
    tested = any(row.demonstrated is not None or row.demonstrated_on_condition is not None for row in epsilon)
    return tested or any(checks(attacks, epsilon))


def headline(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> Epsilon | None:
    """The row a short text should quote: a refuted claim or proof (on a condition, if none is without), else a claim
    about an attacked observer, else the worst of the bounding rows.
    """
    certain = (*refutations(epsilon), *refutations(epsilon, "proven"))
    refuted = [row for _, row in (*certain, *refuted_on_condition(epsilon))]
    rows = bounding_rows(attacks, epsilon)
    claimed = [row for row in epsilon if row.claimed is not None and row.observer in rows]
    by_proof = sorted(
        (row for row in rows.values() if row is not None), key=lambda row: row.proven or 0.0, reverse=True
    )
    return next(iter([*refuted, *claimed, *by_proof, *epsilon]), None)


def verdict(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> Verdict:
    """The leak, the proof, and three sentences: what was reached, what ε says, what it means."""
    tried, rows = list(attacks), list(epsilon)
    reached, known = level(tried, rows), proof(tried, rows)
    return Verdict(
        level=reached,
        proof=known,
        proven=worst_proven(tried, rows) if known in ("proven", "weak") else None,
        measured=anything_measured(tried, rows),
        attacked=bool(tried),
        sentences=(_reached(tried, rows), _priced(tried, rows), _meaning(tried, rows, reached, known)),
    )


def _reached(attacks: list[AttackResult], epsilon: list[Epsilon]) -> str:
    order = sorted(zip(attacks, checks(attacks, epsilon)), key=lambda pair: strength(pair[0]), reverse=True)
    scored = [(attack, own) for attack, own in order if attack.scored]
    rebuilt = next((attack for attack, own in scored if severely_rebuilt(own)), None)
    also = "."
    if rebuilt:
        also = f", and {percent(rebuilt.value(picked(rebuilt).share))} of the attacked images could be re-identified."
    if refuted := refutations(epsilon):
        shown, claim = max(refuted, key=lambda pair: pair[0].demonstrated or 0)
        return (
            f"The claim of this setup is refuted: ε = {claim_said(claim)} against"
            f" {observer(claim.observer)} (per {claim.unit}, {_terms(claim)}), a test demonstrated at least"
            f" {at_least(shown.demonstrated)}{_elsewhere(shown, claim)}{also}"
        )
    if broken := refutations(epsilon, "proven"):
        shown, proof = max(broken, key=lambda pair: pair[0].demonstrated or 0)
        return (
            f"The proof of this setup is contradicted: ε = {at_most(proof.proven)} is proven against"
            f" {observer(proof.observer)} (per {proof.unit}, {_terms(proof)}), a test demonstrated at least"
            f" {at_least(shown.demonstrated)}{_elsewhere(shown, proof)}{also}"
        )
    if beyond := beyond_proof(attacks):
        share, ceiling = max(beyond)
        return (
            f"The proof of this setup is contradicted: an attack succeeded with {percent(share)} of the records, where"
            f" the proof allows any attack {percent_at_most(ceiling)} on average{also}"
        )
    if doubted := refutations(epsilon, on_condition=True):
        shown, claim = max(doubted, key=lambda pair: most_demonstrated(pair[0]))
        return (
            f"The claim of this setup is refuted if {shown.condition}: ε = {claim_said(claim)} against"
            f" {observer(claim.observer)} (per {claim.unit}, {_terms(claim)}), a test demonstrated at least"
            f" {_both(shown, said=True)}{_elsewhere(shown, claim)}{also}"
        )
    if doubted := refutations(epsilon, "proven", on_condition=True):
        shown, proof = max(doubted, key=lambda pair: most_demonstrated(pair[0]))
        return (
            f"The proof of this setup is contradicted if {shown.condition}: ε = {at_most(proof.proven)} is proven"
            f" against {observer(proof.observer)} (per {proof.unit}, {_terms(proof)}), a test demonstrated at least"
            f" {_both(shown, said=True)}{_elsewhere(shown, proof)}{also}"
        )
    leaks, within = leaking(epsilon), _within_proof(epsilon)
    if not scored and not leaks:
        why = "no attack was run" if not attacks else "the attacks could not be scored without the training data"
        return f"What an attacker really gets was not measured: {why}.{within}"
    images = next((attack for attack, own in scored if severely_rebuilt(own) or clearly_rebuilt(attack, own)), None)
    members = next((attack for attack, own in scored if clearly_member(own)), None)
    if images is not None:
        return _rebuilt(images, next(own for attack, own in scored if attack is images))
    if members is not None:
        tpr, low, _ = strict_point(members) or (None, None, None)
        return (
            f"From what {observer(members.observer)} sees, an attacker recognised {percent(tpr)} of the training"
            f" records as such (at least {percent_at_least(low)}) while accusing only {percent(STRICT_FPR)} of"
            " outsiders."
        )
    judged = [(attack, check) for attack, own in scored for check in own]
    beaten = [(attack, check) for attack, check in judged if check.beats]
    if beaten:
        attack, check = beaten[0]
        return (
            f"From what {observer(attack.observer)} sees, an attacker got more than chance explains: {_outcome(check)}"
            f" ({_of(len(beaten), len(judged))} beat{'s' if len(judged) == 1 else ''}"
            f" {'its' if len(judged) == 1 else 'their'} control{_corrected(len(judged))})."
        )
    if leaks:
        most = max(leaks, key=most_demonstrated)
        return (
            f"A test demonstrated that {observer(most.observer)} learns something about a {most.unit}: ε is at least"
            f" {_both(most)}."
        )
    if not judged:
        return (
            f"What an attacker really gets was not measured: nothing that the attacks got"
            f" ({times(len(scored), 'attack')} scored) has a control to compare it with.{within}"
        )
    by_luck = sum(check.p_value is not None and check.p_value <= SIGNIFICANCE for _, check in judged)
    luck = ""
    if by_luck:
        luck = (
            f"; {_of(by_luck, len(judged))} would have beaten its control alone, which proves nothing among"
            f" {len(judged)}"
        )
    if all(check.metric == "epsilon" for _, check in judged):
        return f"No leak was found by the only test there was, that of ε.{within}"
    best = f"; the best: {_outcome(judged[0][1])}"
    return f"No attack got more than its control ({times(len(scored), 'attack')} scored{best}{luck}).{within}"


def _within_proof(epsilon: Sequence[Epsilon]) -> str:
    """What was demonstrated and is no leak, as the proof allows it: a sentence, "" where nothing was."""
    within = [row for row in epsilon if 0 < most_demonstrated(row) <= allowed_epsilon(row, epsilon)]
    if not within:
        return ""
    shown = max(within, key=most_demonstrated)
    proofs = [row.proven for row in epsilon if row.proven is not None and _bounded_by(shown, row)]
    return (
        f" A test of ε per {shown.unit} towards {observer(shown.observer)} ({_terms(shown)}) showed at least"
        f" {_both(shown)}, and the proof allows {at_most(min(proofs))}: no more than was promised, so no leak."
    )


def _terms(row: Epsilon) -> str:
    """What an ε means nothing without, beside its observer and unit."""
    delta = "" if row.delta is None else f", δ = {number(row.delta)}"
    return f"{row.adjacency}{delta}"


def _elsewhere(shown: Epsilon, refuted: Epsilon) -> str:
    """Whose view was tested, where it is not that of the row it refutes."""
    if shown.observer == refuted.observer:
        return ""
    return f" from what {observer(shown.observer)} sees, which is no more"


def _both(row: Epsilon, said: bool = False) -> str:
    """What a row demonstrates: the number that holds in any case, and before it the one on a condition.

    said: whether the condition has just been named.

    >>> place = {"observer": "server", "unit": "client", "adjacency": "zero_out"}
    >>> _both(Epsilon(**place, demonstrated=8.6, condition="it rains", demonstrated_on_condition=55.0))
    '55 if it rains, and 8.6 in any case'
    """
    counted, conditional = at_least(row.demonstrated), on_condition(row)
    if conditional is None:
        return counted
    if said:
        conditional = f"{at_least(row.demonstrated_on_condition)} on that condition"
    return conditional if row.demonstrated is None else f"{conditional}, and {counted} in any case"


def _of(some: int, checks: int) -> str:
    return f"{some} of {times(checks, 'check')}"


def _corrected(checks: int) -> str:
    """How many checks were judged together, where that changed anything."""
    return "" if checks < 2 else f", all {checks} judged together"


def _rebuilt(attack: AttackResult, own: Sequence[Check]) -> str:
    line_up = picked(attack)
    low, high = attack.intervals[line_up.share] or (None, None)
    check = next(check for check in own if check.metric == "reidentified")
    return (
        f"From what {observer(attack.observer)} sees, an attacker rebuilt training images so well that"
        f" {percent(attack.value(line_up.share))} of them could be re-identified (interval {percent_at_least(low)} to"
        f" {percent_at_most(high)}; {check.against} gives {percent(check.control)})."
    )


def _outcome(check: Check) -> str:
    if check.metric == "reidentified":
        return (
            f"{percent(check.value)} of the images re-identified where {check.against} gives {percent(check.control)}"
        )
    if check.metric == "psnr_margin":
        value = check.value or 0.0
        return (
            f"images {number(abs(value), 2)} dB {'closer to' if value >= 0 else 'further from'} the originals than the"
            " best control"
        )
    if check.metric == "auc":
        return f"members told from outsiders with AUC {number(check.value)} where guessing gives 0.5"
    if check.metric == "tpr":
        return f"{percent(check.value)} of members recognised at {percent(STRICT_FPR)} false alarms"
    return f"ε of at least {at_least(check.low)} demonstrated"


def _priced(attacks: list[AttackResult], epsilon: list[Epsilon]) -> str:
    row = headline(attacks, epsilon)
    if row is None:
        return "No privacy loss ε was claimed or priced for this setup."
    if row.proven is None:
        proven = "no bound was priced"
    elif row.proven == float("inf"):
        proven = "no finite bound can be proven"
    else:
        proven = f"{at_most(row.proven)} can be proven"
    claim = claim_said(row)
    if row.claimed is None and (other := next((r for r in epsilon if r.claimed is not None), None)) is not None:
        claim += f" here ({claim_said(other)} per {other.unit} towards {observer(other.observer)}, {_terms(other)})"
    contradictions, doubts = refutations(epsilon, "proven"), refutations(epsilon, "proven", on_condition=True)
    pairs = (*refutations(epsilon), *contradictions, *refuted_on_condition(epsilon))
    test = next((shown for shown, refuted in pairs if refuted is row), row)
    if test.demonstrated is None and test.demonstrated_on_condition is None:
        demonstrated = "no test of ε was run"
    else:
        demonstrated = f"a test demonstrated at least {_both(test)}"
    if any(shown is test for shown, _ in contradictions):
        demonstrated += ", more than is proven, so either the proof or the implementation is broken"
    elif any(shown is test for shown, _ in doubts):
        demonstrated += ", so either that condition fails, or the proof or the implementation is broken"
    elif test.ceiling_on_condition is not None:
        also = "" if test.ceiling is None else f", and {at_most(test.ceiling)} in any case"
        demonstrated += f" ({could_show(test.ceiling_on_condition)} on that condition{also})"
    elif test.ceiling is not None:
        demonstrated += f" ({could_show(test.ceiling)})"
    return (
        f"For the privacy loss ε per {row.unit} towards {observer(row.observer)} ({_terms(row)}; smaller protects"
        f" more), {listed([claim, proven, demonstrated])}.{_of_other_units(row, epsilon)}"
    )


def _of_other_units(row: Epsilon, epsilon: Sequence[Epsilon]) -> str:
    """What a test of ε says per record where the sentence is about clients, or the other way round; "" without a test.

    An ε of one unit says nothing of the other, so none stands without its own.
    """
    if not any(most_demonstrated(r) or r.demonstrated is not None for r in epsilon):
        return ""
    rows = [r for r in epsilon if r.observer == row.observer]
    broken = [proof for _, proof in refutations(epsilon, "proven") + refutations(epsilon, "proven", on_condition=True)]
    said = []
    for unit in dict.fromkeys(r.unit for r in rows if r.unit != row.unit):
        own = [r for r in rows if r.unit == unit]
        worst = max(own, key=lambda r: (most_demonstrated(r), r.adjacency == row.adjacency, -(r.delta or 0.0)))
        if most_demonstrated(worst):
            said.append(f" Per {unit} ({_terms(worst)}) it is at least {_both(worst)}{_beside_proof(worst)}.")
        elif worst in broken:
            said.append(f" Per {unit} the proven {at_most(worst.proven)} ({_terms(worst)}) is contradicted.")
        elif worst.proven is not None and worst.proven < inf:
            said.append(f" Per {unit} ({_terms(worst)}) nothing contradicts the proven {at_most(worst.proven)}.")
        else:
            said.append(f" Per {unit} nothing was demonstrated, and nothing is proven.")
    return "".join(said)


def _beside_proof(row: Epsilon) -> str:
    return f", of {at_most(row.proven)} proven" if row.proven is not None and row.proven < inf else ""


def _meaning(attacks: list[AttackResult], epsilon: list[Epsilon], level: Level, known: Proof) -> str:
    if refutations(epsilon, "proven"):
        return (
            "Trust no ε of this setup until the fault is found, and until then treat what this observer sees as if it"
            " were the training data itself."
        )
    if level == "severe":
        return (
            "Treat what this observer sees as if it were the training data itself, and change the setup before it"
            " trains on anybody's real data."
        )
    if doubted := refutations(epsilon, "proven", on_condition=True):
        return (
            f"Until it is clear that the condition fails ({doubted[0][0].condition}), trust no ε of this setup, and"
            " treat what this observer sees as personal data."
        )
    if level == "high":
        return (
            "Treat what this observer sees as personal data, and strengthen the noise before the setup trains on"
            " anybody's real data."
        )
    if level == "moderate":
        certain = any((row.demonstrated or 0) > USEFUL_EPSILON for row in epsilon)
        condition = next((r.condition for r in epsilon if (r.demonstrated_on_condition or 0) > USEFUL_EPSILON), "")
        if certain or condition:
            worst = "In the worst case" if certain else f"In the worst case, and if {condition},"
            return (
                f"{worst} the leak is large: an ε above {number(USEFUL_EPSILON)} lets what is seen change the odds of a"
                " guess more than 20\N{NARROW NO-BREAK SPACE}000-fold; strengthen the noise before the setup trains on"
                " anybody's real data."
            )
        return (
            "The leak is real, and a stronger attack may get more: prefer a setting in which no attack beats its"
            " control."
        )
    if known == "proven":
        unit = next((row.unit for row in bounding_rows(attacks, epsilon).values() if row is not None), "record")
        return (
            f"The proven ε of {at_most(worst_proven(attacks, epsilon))} limits stronger attacks of this kind as well, "
            f"for one {unit} and this observer; other observers, and people with many {unit}s, are not covered."
        )
    tried = "that these attacks failed" if anything_measured(attacks, epsilon) else "that nothing was measured"
    return (
        f"Take no comfort from it {tried}: no useful bound (ε ≤ {number(USEFUL_EPSILON)}) is proven, so nothing"
        " rules out a stronger attack."
    )
