"""What results say, by rule, once: which leak was found, what is proven, what is refuted.

The leak:

    severe      demonstrated ε > claimed or proven ε, or `reidentified` beats its control and has a lower limit ≥ 0.5,
                of one message or of all of the attack's,
                or half of the images came back beyond doubt,
                or an attack did better than the proof allows any (`beyond_proof`)
    high        `reidentified` beats its control with a lower limit > 5 × chance and a PSNR margin ≥ 3 dB,
                or some image came back beyond doubt,
                or TPR at 1 % FPR beats its control with a lower limit ≥ 0.1,
                or an attribute advantage beats 0 with a lower limit ≥ 0.5,
                or ε demonstrated on a condition (Gaussian-shaped scores) > claimed or proven ε
    moderate    some check beats its control, or an ε is demonstrated, on a condition or not, that no proof of 10 at
                most allows
    none found  none of these

A test of an observer whom the run is not about (`Epsilon.aside`) counts only where it refutes a claim or a proof.
`only_claim`: a false claim is all there is; what was demonstrated is no more than a useful proof allows.
A demonstrated ε below a proven one of 10 at most is no leak: the test has seen what the proof allows. A larger proven ε
excuses nothing, since it allows nearly anything (`allowed_epsilon`).

The proof, of the rows that bound every attacked observer, and of the row that is asked about (`ChosenRows.bounding`):

    proven      a finite ε ≤ 10 at a δ ≤ 0.01
    weak        a finite one, above 10 or at a larger δ
    none        no finite one, or one that was contradicted, or whose ground a replay violates, or noise that everybody
                can draw
    not priced  nobody computed one

No level means that a setup is free of leaks: the failure of these attacks says nothing of other attacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Literal

from scipy.stats import binom

from ..results.checks import (
    SIGNIFICANCE,
    USEFUL_EPSILON,
    Check,
    allowed_epsilon,
    beyond_proof,
    bounded_by,
    checks,
    most_demonstrated,
    observers_aside,
    severity,
)
from ..results.format import LEVELS, NOT_MEASURED, AttackResult, Epsilon, Level, Proof, Results, VerdictLevel
from ..setup.promise import USEFUL_DELTA
from .question import ChosenRows, RowQuestion

Limit = Literal["claimed", "proven"]
NO_LEAK = LEVELS[0]
MANY = 0.01  # below this probability, as many checks above their controls are more than luck explains


@dataclass(frozen=True, eq=False)
class AuditEvidence:
    """What is judged.

    stated: what the owner of a recorded training states and nobody checked, by name. Whether a proof rests on it, and
    on a key that is secret, its row says, and no other part of a file. violated: as of `AuditedSetup`.
    """

    attacks: tuple[AttackResult, ...]
    epsilon: tuple[Epsilon, ...]
    stated: tuple[str, ...] = ()
    violated: str = ""

    @classmethod
    def of(cls, results: Results) -> AuditEvidence:
        setup = results.setup
        return cls(results.attacks, results.epsilon, tuple(d.what for d in setup.unchecked), setup.violated)

    @property
    def without_claims(self) -> AuditEvidence:
        """What is known of the observers whom the run is about, whatever anybody claims."""
        aside = observers_aside(self.epsilon)
        attacks = tuple(a for a in self.attacks if a.kind != "canary" or a.observer not in aside)
        rows = tuple(row.having(claimed=None, claimed_by="") for row in self.epsilon if not row.aside)
        return replace(self, attacks=attacks, epsilon=rows)


@dataclass(frozen=True, eq=False)
class Refutation:
    """More was demonstrated of `shown` than is claimed, or proven, of `row`, which bounds it.

    on_condition: only a bound with a condition (`shown.condition`) says so, and somebody may be right to doubt it.
    """

    shown: Epsilon
    row: Epsilon
    limit: Limit
    on_condition: bool

    @property
    def demonstrated(self) -> float:
        """The ε that refutes."""
        if self.on_condition:
            shown = self.shown.demonstrated_on_condition
        else:
            shown = self.shown.demonstrated
        return shown or 0.0

    @property
    def aside(self) -> bool:
        """Whether it is a claim about an observer whom the run is not about."""
        return self.row.aside and self.limit == "claimed"


@dataclass(frozen=True, eq=False)
class JudgedAttack:
    """An attack with its checks, all checks of the judgement considered, and the leak that they show."""

    attack: AttackResult
    checks: tuple[Check, ...]
    level: Level


@dataclass(frozen=True, eq=False)
class Judgement:
    """The one answer that every text, table and gate reads.

    question: the row that is asked about; None where none is. rows: which rows count. attacks: in the evidence's order.
    refuted: certain claims, certain proofs, then both on a condition; of each those of one observer first.
    beyond: shares of successes with the proof's ceilings that they contradict (`beyond_proof`).
    leaking: rows of which more is demonstrated than a proof allows; leaking_aside: of observers whom the run is not
      about. kinds: each kind of attack that was tried, and whether it could have shown a leak.
    severity, proof: by the rules above. measured: whether anything could have shown a leak.
    only_claim: a refuted claim is all that gives the level.
    """

    evidence: AuditEvidence
    question: RowQuestion | None
    rows: ChosenRows
    attacks: tuple[JudgedAttack, ...]
    refuted: tuple[Refutation, ...]
    beyond: tuple[tuple[float, float], ...]
    leaking: tuple[Epsilon, ...]
    leaking_aside: tuple[Epsilon, ...]
    kinds: Mapping[str, bool]
    severity: Level
    proof: Proof
    measured: bool
    only_claim: bool

    @property
    def level(self) -> VerdictLevel:
        """The severity; "not measured" where nothing was found and nothing could have shown a leak."""
        if self.measured:
            return self.severity
        return NOT_MEASURED

    @property
    def proven(self) -> float | None:
        """The largest ε of the bounding rows; None where one of them is missing, ∞ or at a larger δ than 0.01, and
        where nothing is proven.
        """
        if self.proof in ("proven", "weak"):
            return _worst_proven(self.rows)
        return None

    @property
    def epsilon(self) -> tuple[Epsilon, ...]:
        return self.evidence.epsilon

    @property
    def secret(self) -> bool:
        """Whether the noise's key is; with a published one nothing is proven against whoever has the config."""
        return all(row.secret_key for row in self.epsilon)

    @property
    def stated(self) -> tuple[str, ...]:
        return self.evidence.stated

    @property
    def violated(self) -> str:
        return self.evidence.violated

    @property
    def declared(self) -> bool:
        """Whether a proof that bounds attacks rests on what an owner states and nobody checked."""
        return any(row.declared for row in self.rows.bounding)

    @property
    def attacked(self) -> bool:
        return bool(self.attacks)

    def refuting(self, limit: Limit | None = None, on_condition: bool | None = None) -> list[Refutation]:
        """Those of claims or of proofs, certain or on a condition; None: both."""
        return [
            refutation
            for refutation in self.refuted
            if limit in (None, refutation.limit) and on_condition in (None, refutation.on_condition)
        ]

    @property
    def contradicted(self) -> bool:
        """Whether a proof is wrong, without a condition."""
        return bool(self.refuting("proven", on_condition=False) or self.beyond)

    @property
    def shows_leak(self) -> bool:
        """Whether a leak was found, of any size; a claim that is false while the proof holds is none."""
        return self.severity != NO_LEAK and not self.only_claim

    @property
    def checked_alone(self) -> tuple[int, int]:
        """How many checks would beat their control if each were the only one, and how many there are."""
        checks = [check for judged in self.attacks for check in judged.checks]
        return sum(check.p_value is not None and check.p_value <= SIGNIFICANCE for check in checks), len(checks)

    @property
    def more_than_luck(self) -> bool:
        """Whether that is more than luck explains of independent checks."""
        alone, count = self.checked_alone
        return alone > 0 and float(binom.sf(alone - 1, count, SIGNIFICANCE)) < MANY

    @property
    def proven_if_secret(self) -> bool:
        """Whether a useful ε is proven, were the noise's key secret."""
        return _proof_if_secret(self.rows, self.refuted, self.beyond) == "proven"

    @cached_property
    def without_claims(self) -> Judgement:
        """What is left where no claim counts, nor anything of an observer whom the run is not about."""
        return judge(self.evidence.without_claims, self.question)


def judge(evidence: AuditEvidence, question: RowQuestion | None = None) -> Judgement:
    """The judgement of `evidence`.

    question: the row that is asked about; None for the one that the rows mark.
    """
    attacks, epsilon = evidence.attacks, evidence.epsilon
    question = question or RowQuestion.asked(epsilon)
    judged = _attacks(evidence)
    refuted = tuple(_refutations(epsilon))
    beyond = tuple(beyond_proof(attacks))
    rows = ChosenRows.of(question, attacks, epsilon, [refutation.row for refutation in refuted])
    exceeding = [row for row in epsilon if most_demonstrated(row) > allowed_epsilon(row, epsilon)]
    leaking = tuple(row for row in exceeding if not row.aside)
    level = _level(judged, refuted, beyond, leaking)
    kinds = _kinds(judged, epsilon)
    proof = _proof_if_secret(rows, refuted, beyond)
    if proof in ("proven", "weak") and not all(row.secret_key for row in epsilon):
        proof = "none"  # against whoever can draw the noise again
    if evidence.violated:
        proof = "none"
    return Judgement(
        evidence=evidence,
        question=question,
        rows=rows,
        attacks=judged,
        refuted=refuted,
        beyond=beyond,
        leaking=leaking,
        leaking_aside=tuple(row for row in exceeding if row.aside),
        kinds=kinds,
        severity=level,
        proof=proof,
        measured=level != NO_LEAK or (bool(kinds) and all(kinds.values())),
        only_claim=_only_claim(evidence, level, refuted),
    )


def judgement_of(results: Results) -> Judgement:
    """The judgement of what results hold."""
    return judge(AuditEvidence.of(results))


def _attacks(evidence: AuditEvidence) -> tuple[JudgedAttack, ...]:
    judged = checks(evidence.attacks, evidence.epsilon)
    pairs = zip(evidence.attacks, judged, strict=True)
    return tuple(JudgedAttack(attack, tuple(each), severity(attack, each)) for attack, each in pairs)


def _refutations(epsilon: Sequence[Epsilon]) -> Iterator[Refutation]:
    """Rows that refute a claim or contradict a proof.

    Rows are compared at equal unit, adjacency and δ. What is demonstrated of an observer also holds of one who sees at
    least as much, by post-processing. A client-level `replace_one` claim is also refuted at record level, since
    exchanging one record is one way of exchanging the client's data. A `zero_out` claim is not: one record can turn a
    clipped update around (distance 2C), while leaving the client out moves it by C only. A claim of the accountant's
    says no more than its proof.
    """
    limits: tuple[Limit, ...] = ("claimed", "proven")
    for on_condition in (False, True):
        for limit in limits:
            pairs = [
                Refutation(shown, row, limit, on_condition)
                for shown in epsilon
                for row in epsilon
                if not (limit == "claimed" and row.claimed_by == "accountant")
                and bounded_by(shown, row)
                and _exceeds(shown, getattr(row, limit), on_condition)
            ]
            yield from sorted(pairs, key=lambda pair: pair.shown.observer != pair.row.observer)


def _exceeds(shown: Epsilon, limit: float | None, on_condition: bool) -> bool:
    if limit is None:
        return False
    counted = shown.demonstrated is not None and shown.demonstrated > limit
    if not on_condition:
        return counted
    return not counted and shown.demonstrated_on_condition is not None and shown.demonstrated_on_condition > limit


def _level(
    attacks: Sequence[JudgedAttack],
    refuted: Sequence[Refutation],
    beyond: Sequence[tuple[float, float]],
    leaking: Sequence[Epsilon],
) -> Level:
    """The leak found, by the rule at the top of this page."""
    levels: list[Level] = [NO_LEAK, *(judged.level for judged in attacks)]
    if beyond or any(not refutation.on_condition for refutation in refuted):
        levels.append("severe")
    if refuted:
        levels.append("high")
    if leaking:
        levels.append("moderate")
    return max(levels, key=LEVELS.index)


def _only_claim(evidence: AuditEvidence, level: Level, refuted: Sequence[Refutation]) -> bool:
    """Whether a refuted claim is all that gives the level: it is false, and nothing else leaks more than is proven."""
    if level == NO_LEAK or not refuted or any(refutation.limit == "proven" for refutation in refuted):
        return False
    return judge(evidence.without_claims).severity == NO_LEAK


def _proof_if_secret(rows: ChosenRows, refuted: Sequence[Refutation], beyond: Sequence[tuple[float, float]]) -> Proof:
    """What is proven, were the noise's key secret, by the rule above; a proof that was exceeded proves nothing."""
    contradicted = any(refutation.limit == "proven" for refutation in refuted) or bool(beyond)
    if contradicted or any(row.proven == inf for row in rows.bounding):
        return "none"
    if not rows.bounding or _unpriced(rows):
        return "not priced"
    worst = _worst_proven(rows)
    if worst is not None and worst <= USEFUL_EPSILON:
        return "proven"
    return "weak"


def _unpriced(rows: ChosenRows) -> bool:
    """Whether a row that must be covered is missing, or has no price."""
    return None in rows.by_observer.values() or any(row.proven is None for row in rows.bounding)


def _worst_proven(rows: ChosenRows) -> float | None:
    """The largest proven ε of the bounding rows; None where one is missing, not priced or at too large a δ."""
    if _unpriced(rows) or any((row.delta or 0.0) > USEFUL_DELTA for row in rows.bounding):
        return None
    return max((row.proven for row in rows.bounding if row.proven is not None), default=None)


def _kinds(attacks: Sequence[JudgedAttack], epsilon: Sequence[Epsilon]) -> dict[str, bool]:
    """Each kind of attack that was tried, and whether it could have shown a leak, by a metric with a control that
    success would have beaten, without a doubt of what it assumes; tests of ε where they could have shown more than the
    proof allows. The failure of one kind says nothing of another, which no success could have shown.
    """
    kinds: dict[str, bool] = {}
    for judged in attacks:
        kind = judged.attack.kind
        if kind != "canary":
            able = not judged.attack.doubt and any(not check.powerless for check in judged.checks)
            kinds[kind] = kinds.get(kind, False) or able
    if any(_could_show(row) > allowed_epsilon(row, epsilon) for row in epsilon if not row.aside):
        kinds["canary"] = True  # a test within a useful proof is one of the proof, and no failed attack
    return kinds


def _could_show(row: Epsilon) -> float:
    """The most that a row's test could show: infinite where nobody wrote it down, −∞ without a test."""
    if not row.tested:
        return -inf
    ceilings = (ceiling for ceiling in (row.ceiling, row.ceiling_on_condition) if ceiling is not None)
    return max(ceilings, default=inf)
