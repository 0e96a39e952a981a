"""The two axes of a verdict, by rule: what leak was found, and what is proven.

The leak:

    severe      demonstrated ε > claimed or proven ε, or `reidentified` beats its control and has a lower limit ≥ .5, of
                one message or of all of the attack's,
                or half of the images came back beyond doubt,
                or an attack did better than the proof allows any (`beyond_proof`)
    high        `reidentified` beats its control with a lower limit > 5 × chance and a PSNR margin ≥ 3 dB,
                or some image came back beyond doubt,
                or TPR at 1 % FPR beats its control with a lower limit ≥ .1,
                or ε demonstrated on a condition (Gaussian-shaped scores) > claimed or proven ε
    moderate    some check beats its control, or an ε is demonstrated, on a condition or not, that no proof of 10 at
                most allows
    none found  none of these

A test of what somebody sees whom the run is not about (`Epsilon.aside`) counts only where it refutes a claim or proof.
`only_claim` says where a false claim is all there is: what was demonstrated is no more than a useful proof allows.
An ε that is demonstrated below a proven one of 10 at most is no leak: the test has seen what the proof allows, and no
more. A larger proven one excuses nothing, since it allows nearly anything (`allowed_epsilon`).

The proof, of the rows that bound every attacked observer, and of the one that the config asks about (`bounding_rows`):

    proven      a finite ε ≤ 10 at a δ ≤ .01
    weak        a finite one, above 10 or at a larger δ
    none        no finite one, or one that was contradicted, or noise that everybody can draw
    not priced  nobody computed one

No level means that a setup is free of leaks: the failure of these attacks says nothing of other attacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ..setup.promise import USEFUL_DELTA
from .checks import (
    USEFUL_EPSILON,
    allowed_epsilon,
    beyond_proof,
    checks,
    clearly_member,
    clearly_rebuilt,
    leaking,
    observers_aside,
    refutations,
    refuted_on_condition,
    severely_rebuilt,
)
from .format import LEVELS, AttackResult, Epsilon, Level, Proof


def bounding_rows(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> dict[str, Epsilon | None]:
    """The row that bounds the attacks on each attacked observer, or on every observer if none was attacked; of those
    that the run is about.

    None for an observer without a row. The attacks are after single records, so it is the row of unit record where
    there is one, with `zero_out`: in the training data or not. Of several such rows (several δ) it is the one with the
    largest proven ε. The row that the config asks about counts too, by the name "asked": attacks after records, or on
    somebody who sees less, do not answer for clients, or for the server.
    """
    scored, aside = [attack.observer for attack in attacks if attack.scored], observers_aside(epsilon)
    attacked = [who for who in scored if who not in aside]
    observers = dict.fromkeys(attacked or [row.observer for row in epsilon if not row.aside])

    def order(row: Epsilon) -> tuple[bool, bool, bool, float]:
        return row.unit != "record", row.adjacency != "zero_out", row.proven is not None, -(row.proven or 0.0)

    rows = {who: min((row for row in epsilon if row.observer == who), key=order, default=None) for who in observers}
    asked = next((row for row in epsilon if row.asked and not any(row is known for known in rows.values())), None)
    return rows if asked is None else {**rows, "asked": asked}


def asked_or_worst(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> Epsilon:
    """Of the bounding rows the one that the config asks about; else that of which least is proven.

    Raises ValueError where there is none.
    """
    rows = [row for row in bounding_rows(attacks, epsilon).values() if row is not None]
    return max(rows, key=lambda row: (row.asked, row.proven or 0.0))


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


def without_claims(
    attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]
) -> tuple[list[AttackResult], list[Epsilon]]:
    """What is known of those whom the run is about, whatever anybody claims."""
    aside = observers_aside(epsilon)
    own = [attack for attack in attacks if attack.kind != "canary" or attack.observer not in aside]
    return own, [row.having(claimed=None, claimed_by="") for row in epsilon if not row.aside]


def only_claim(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> bool:
    """Whether a refuted claim is all that gives the level: it is false, and nothing else leaks more than is proven."""
    if refutations(epsilon, "proven") or refutations(epsilon, "proven", on_condition=True):
        return False
    return level(attacks, epsilon) != LEVELS[0] and level(*without_claims(attacks, epsilon)) == LEVELS[0]


def proof(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon], secret: bool = True) -> Proof:
    """What is proven, by the rule at the top of this page; a proof that was exceeded proves nothing, nor does one
    against whoever can draw the noise again, as its key is not `secret`.
    """
    rows = list(bounding_rows(attacks, epsilon).values())
    contradicted = refutations(epsilon, "proven") + refutations(epsilon, "proven", on_condition=True)
    if contradicted or beyond_proof(attacks) or any(row is not None and row.proven == inf for row in rows):
        return "none"
    if not rows or any(row is None or row.proven is None for row in rows):
        return "not priced"
    if not secret:
        return "none"
    worst = worst_proven(attacks, epsilon)
    return "proven" if worst is not None and worst <= USEFUL_EPSILON else "weak"


def kinds_tried(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> dict[str, bool]:
    """Each kind of attack that was tried, and whether it could have shown a leak, by a metric with a control that
    success would have beaten, without a doubt of what it assumes; tests of ε where they could have shown more than the
    proof allows.
    """
    kinds: dict[str, bool] = {}
    for attack, own in zip(attacks, checks(attacks, epsilon)):
        if attack.kind != "canary":
            able = not attack.doubt and any(not check.powerless for check in own)
            kinds[attack.kind] = kinds.get(attack.kind, False) or able
    known = [row for row in epsilon if not row.aside]
    tested = [row for row in known if row.demonstrated is not None or row.demonstrated_on_condition is not None]
    if any(_ceiling(row) > allowed_epsilon(row, epsilon) for row in tested):
        kinds["canary"] = True  # a test within a useful proof is one of the proof, and no failed attack
    return kinds


def _ceiling(row: Epsilon) -> float:
    """The most that a row's test could show; infinite where nobody wrote it down."""
    known = [most for most in (row.ceiling, row.ceiling_on_condition) if most is not None]
    return max(known, default=inf)


def was_measured(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> bool:
    """Whether a leak was found, or every kind of attack that was tried could have shown one: the failure of one kind
    says nothing of another, which no success could have shown.
    """
    if level(attacks, epsilon) != LEVELS[0]:
        return True
    kinds = kinds_tried(attacks, epsilon)
    return bool(kinds) and all(kinds.values())


def headline(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> Epsilon | None:
    """The row a short text should quote: a refuted claim or proof (on a condition, if none is without) about whom the
    run is about, else the row that the config asks about, else a claim about an attacked observer, else the worst of
    the bounding rows.
    """
    certain = (*refutations(epsilon), *refutations(epsilon, "proven"))
    refuted = [row for _, row in (*certain, *refuted_on_condition(epsilon)) if not row.aside]
    rows = bounding_rows(attacks, epsilon)
    claimed = [row for row in epsilon if row.claimed is not None and row.observer in rows]
    by_proof = sorted(
        (row for row in rows.values() if row is not None), key=lambda row: row.proven or 0.0, reverse=True
    )
    asked = [row for row in epsilon if row.asked]
    return next(iter([*refuted, *asked, *claimed, *by_proof, *epsilon]), None)
