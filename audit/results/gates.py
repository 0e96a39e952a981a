"""Gates for CI: `--fail-if 'reidentified > 0.2'`, `'proven[client,server] > 10'`, `'level >= high'`,
`'proof != proven'` or `'claim != holds'`.

`level` is the leak found and `proof` what is proven, in the words of the verdict, which stand in order from best to
worst: 'proof >= none' fails where nothing is proven and where nothing was priced. So does `claim`, the worst of all
claimed ε.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from ...defenses.nearest import instead
from ...defenses.terms import ADJACENCIES, KINDS, UNITS, Adjacency, Observer
from ..errors import BadInput
from ..judge.judgement import judgement_of
from ..say import gate as say
from ..say.metrics import METRICS
from ..say.words import chosen_briefly
from .checks import CLAIMS, claim_of
from .format import LEVELS, PROOFS, AttackResult, Epsilon, Results

LEVEL, PROOF, CLAIM = "level", "proof", "claim"
ORDERS: dict[str, tuple[str, ...]] = {LEVEL: LEVELS, PROOF: PROOFS, CLAIM: CLAIMS}  # gated by a word
EPSILONS = {  # of the rows of the ε table; the third holds without any condition
    "claimed": "ε claimed",
    "proven": "ε proven",
    "demonstrated": "ε demonstrated, whatever the mechanism",
    "demonstrated_on_condition": "ε demonstrated if the row's condition holds",
}
GATED = {  # beside the metrics
    **EPSILONS,
    LEVEL: f"the leak found: {', '.join(LEVELS)}",
    PROOF: f"what is proven: {', '.join(PROOFS)}",
    CLAIM: f"the claimed ε: {', '.join(CLAIMS)}",
}
EQUAL = {"==": operator.eq, "!=": operator.ne}  # of words alone
SIGNS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, **EQUAL}
MEMBERSHIP = ("auc", "balanced_accuracy", "exposure")
LINKING = ("linked", "tracked")
ATTRIBUTE = ("attribute", "attribute_advantage")
CANARY = (
    "demonstrated",
    "demonstrated_on_condition",
    *(name for name in METRICS if name.startswith(("epsilon", "mu"))),
)


@dataclass(frozen=True)
class Gate:
    """Fails where a metric of any attack, an ε of any row, or the verdict's level or proof compares as stated.

    bound: a number; of a word, its place in its order (`ORDERS`). rows: units, adjacencies and observers that a
    row of the ε table must have, () for any row.
    """

    metric: str
    sign: str
    bound: float
    rows: tuple[str, ...] = ()

    def __str__(self) -> str:
        of = ""
        if self.rows:
            of = f"[{','.join(self.rows)}]"
        return f"{self.metric}{of} {self.sign} {self.say(self.bound)}"

    def say(self, value: float) -> str:
        if self.metric in ORDERS:
            return ORDERS[self.metric][int(value)]
        return f"{value:.4g}"

    @property
    def needs(self) -> str:
        """The kind of attack that measures it, "" where none is needed."""
        if self.metric in MEMBERSHIP:
            return "membership"
        if self.metric in LINKING:
            return "linking"
        if self.metric in ATTRIBUTE:
            return "attribute"
        if self.metric in CANARY:
            return "canary"
        if self.metric in GATED:
            return ""
        return "inversion"


@dataclass(frozen=True)
class Outcome:
    """What became of a gate. sentence: with the value and where it was measured."""

    failed: bool
    sentence: str


IN_ONE = ("auc", "ssim")  # beside the shares


def parse_gate(text: str) -> Gate:
    """A gate from its text.

    >>> parse_gate("reidentified > 0.2"), parse_gate("proven[client,server] >= inf").rows
    (Gate(metric='reidentified', sign='>', bound=0.2, rows=()), ('client', 'server'))

    Raises:
        BadInput: the text is no comparison, of a metric that no run measures, or with no number or word of the verdict.
    """
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:\[(.*)\])?\s*(>=|<=|==|!=|>|<)\s*(.*?)\s*", text)
    if match is None:
        raise BadInput(f"--fail-if {text!r}: expected 'METRIC > NUMBER', e.g. 'reidentified > 0.2' or 'level >= high'")
    name, where, sign, bound = match[1], match[2], match[3], match[4].strip("'\"")
    known = [*(name for name, m in METRICS.items() if m.meaning), *GATED]
    if name not in known:
        raise BadInput(f"--fail-if {text!r}: nothing measures {name!r}{instead(name, known)}")
    if where is not None:
        rows = tuple(word.strip() for word in where.split(","))
    else:
        rows = ()
    if rows and name not in EPSILONS:
        raise BadInput(f"--fail-if {text!r}: only {', '.join(EPSILONS)} have rows to choose in [ ]")
    for word in rows:
        _check_word(text, word)
    if name in ORDERS:
        return Gate(name, sign, _place(text, name, bound))
    if sign in EQUAL:
        raise BadInput(
            f"--fail-if {text!r}: {sign} compares words, of {' and '.join(ORDERS)}; a number takes >, <, >= or <="
        )
    try:
        value = _number(bound)
    except ValueError:
        raise BadInput(f"--fail-if {text!r}: {bound!r} is not a number") from None
    if (name in IN_ONE or (name in METRICS and METRICS[name].share)) and not 0 <= value <= 1:
        raise BadInput(f"--fail-if {text!r}: {name} lies between 0 and 1, so this is always so or never; 20 % is 0.2")
    return Gate(name, sign, value, rows)


def _place(text: str, name: str, bound: str) -> int:
    """The place of a word in its order."""
    word = bound.replace("-", " ").replace("_", " ").lower()
    if word in ORDERS[name]:
        return ORDERS[name].index(word)
    raise BadInput(f"--fail-if {text!r}: {bound!r} is not a {name}{instead(bound, ORDERS[name])}")


def _number(text: str) -> float:
    """Raises ValueError for a NaN too: nothing compares with it, so its gate would pass whatever leaks."""
    value = float(text)
    if value != value:
        raise ValueError(text)
    return value


def _check_word(text: str, word: str) -> None:
    if word in UNITS or word in ADJACENCIES:
        return
    try:
        Observer.parse(word)
    except ValueError:
        known = (*UNITS, *ADJACENCIES, *KINDS)
        raise BadInput(
            f"--fail-if {text!r}: {word!r} is no unit, adjacency or observer{instead(word, known)}"
        ) from None


def check_attacks(gates: Sequence[Gate], attacks: Sequence[str]) -> None:
    """That some of the attacks to be run measures what is gated, said before a long run. Raises BadInput."""
    for gate in gates:
        if gate.needs and not any(name.partition("-")[0] == gate.needs for name in attacks):
            example = {"membership": "membership-loss"}.get(gate.needs, gate.needs)
            raise BadInput(f"--fail-if '{gate}': no attack of this run measures {gate.metric}; add --attack {example}")


def check_rows(gates: Sequence[Gate], observers: Sequence[Observer], adjacencies: Sequence[Adjacency]) -> None:
    """That the ε table of this run has the row that is gated. Raises BadInput."""
    for gate in gates:
        there = {*UNITS, *adjacencies, *map(str, observers)}
        if missing := [word for word in gate.rows if word not in there]:
            rows = f"{', '.join(UNITS)}, {', '.join(map(str, observers))}, {', '.join(adjacencies)}"
            raise BadInput(f"--fail-if '{gate}': this run has no row of {missing[0]}; its rows are of {rows}")


def outcome(gate: Gate, results: Results) -> Outcome:
    """Whether the gate fails by the worst value, and by which.

    Raises:
        BadInput: the run measured nothing of that name, or not everywhere, and passes where it did.
    """
    values = list(_values(gate, results))
    measured = [(value, where) for value, where in values if value is not None]
    missing = [where for value, where in values if value is None]
    if not measured:
        raise BadInput(say.nothing_gated(str(gate), _nothing(gate, results)))
    worst, where = (max if gate.sign.startswith(">") else min)(measured, key=lambda pair: pair[0])
    failed = SIGNS[gate.sign](worst, gate.bound)
    if missing and not failed:
        raise BadInput(say.not_everywhere(str(gate), gate.metric, missing[0]))
    if not failed and gate.metric == PROOF and gate.say(worst) == "not priced":
        raise BadInput(say.passes_unpriced(str(gate)))
    if not failed and (blind := _blind(gate, results)):
        raise BadInput(blind)
    return Outcome(failed, say.gate_sentence(str(gate), failed, gate.say(worst), where))


def _blind(gate: Gate, results: Results) -> str:
    """Which test could not have failed the gate whatever there is to see; "" where each could."""
    ceiling = {"demonstrated": "ceiling", "demonstrated_on_condition": "ceiling_on_condition"}.get(gate.metric)
    if ceiling is None or not gate.sign.startswith(">"):
        return ""
    for row in filter(lambda row: _selected(gate, row), results.epsilon):
        most = getattr(row, ceiling)
        if getattr(row, gate.metric) is not None and most is not None and not SIGNS[gate.sign](most, gate.bound):
            return say.passes_blind(str(gate), row, gate.say(most))
    return ""


def _nothing(gate: Gate, results: Results) -> str:
    if gate.metric == CLAIM:
        return say.NOT_CLAIMED
    if gate.metric not in EPSILONS:
        return say.metric_not_measured(gate.metric)
    if not results.epsilon:
        return say.NOT_PRICED
    if any(_selected(gate, row) for row in results.epsilon):
        return say.without_value(gate.metric)
    return say.no_such_row(results.epsilon)


def _values(gate: Gate, results: Results) -> Iterator[tuple[float | None, str]]:
    """Every value with where it was measured; None where it should have been measured and was not."""
    if gate.metric == LEVEL:
        judgement = judgement_of(results)
        if judgement.measured:  # else the level says no more than that nothing was tried
            yield LEVELS.index(judgement.severity), ""
    elif gate.metric == PROOF:
        judgement = judgement_of(results)
        known = ("" if judgement.secret else say.PUBLISHED, judgement.violated)
        yield PROOFS.index(judgement.proof), "; ".join(filter(None, known))
    elif gate.metric == CLAIM:
        judgement = judgement_of(results)
        refuted = [refutation.row for refutation in judgement.refuting("claimed", on_condition=False)]
        for row in judgement.epsilon:
            if (state := claim_of(row, row in refuted)) is not None:
                holds = state == "holds" and not judgement.secret
                place = (say.claim_place(row, judgement.secret), judgement.violated)
                yield CLAIMS.index("not proven" if holds else state), "; ".join(filter(None, place))
    elif gate.metric in EPSILONS:
        for row in filter(lambda row: _selected(gate, row), results.epsilon):
            value = getattr(row, gate.metric)
            asked = gate.metric == "proven" or (gate.metric.startswith("demonstrated") and row.untested)
            if gate.metric == "proven" and value is not None and not row.secret_key:
                yield inf, f"{say.row_place(row)}; {say.PUBLISHED}"
            elif value is not None or asked:  # a claim is about one row, canaries about a few
                from_what = ""
                if gate.metric.startswith("demonstrated"):
                    from_what = chosen_briefly(row)
                yield value, ", ".join(filter(None, (from_what, say.row_place(row))))
    else:
        kinds = {attack.kind for attack in results.attacks if attack.value(gate.metric) is not None}
        if results.choice is not None:
            unfinished = sorted(results.choice.unfinished)
        else:
            unfinished = []
        yield from ((None, say.parts_unfinished(name)) for name in unfinished if name.partition("-")[0] in kinds)
        yield from ((a.value(gate.metric), _entry(a) + _by_luck(gate, a)) for a in results.attacks if a.kind in kinds)
        yield from ((None, f"{_entry(a)}: {a.doubt}") for a in results.attacks if a.kind in kinds and a.doubt)
        if gate.metric == "reidentified":  # out of their own pools, which is what a page shows
            for judged in judgement_of(results).attacks:
                beaten = (check for check in judged.checks if check.metric == gate.metric and check.beats)
                yield from ((check.value, f"{_entry(judged.attack)}, own pool") for check in beaten)


def _by_luck(gate: Gate, attack: AttackResult) -> str:
    """What chance gives of a share that a gate takes as it is."""
    chance = None
    if gate.metric == "linked":
        chance = attack.value("linked_chance")
    if chance is None:
        return ""
    return f", chance {chance:.2g}"


def _selected(gate: Gate, row: Epsilon) -> bool:
    return set(gate.rows) <= {row.unit, row.adjacency, row.observer}


def _entry(attack: AttackResult) -> str:
    parts = [attack.attack, attack.observer, attack.manner, None if attack.round is None else f"round {attack.round}"]
    if attack.variant:
        parts.insert(1, attack.variant)
    if attack.client is not None:
        parts.append(f"client {attack.client}")
    return ", ".join(part for part in parts if part)
