"""`audit diff A B`: what leaked more, what the bounds did, and whether that is more than the intervals explain.

A metric is a regression where both say so: B's 95 % interval lies wholly on the leaking side of A's, and the
difference, taken for normal with the intervals' widths, survives Holm's correction (1979) over all that is compared.
Nothing changed then gives a regression in at most 5 % of comparisons, however many metrics there are. A demonstrated ε
is a lower limit, so that B's is larger says nothing by itself; that it refutes what A's did not, does. Proven ε are
exact, and any rise is one. What A measured and B did not is a regression too: not measured is not safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from math import erfc, inf, sqrt
from typing import Any, Literal

from ...metrics.intervals import Interval
from ..errors import BadInput
from ..judge.judgement import Judgement, judgement_of
from ..results.checks import strict_point
from ..results.format import AttackResult, Epsilon, Results
from ..say import words
from ..say.badge import badge
from ..say.metrics import METRICS, Metric
from ..setup.format import ROWS

Direction = Literal["worse", "better", "unclear", "lost", "new"]

# The rest is correlated with them.
DECIDING = ("reidentified", "pool_share", "exact", "psnr_margin", "attribute_advantage", "auc", "tpr")
SIGNIFICANCE = 0.05
EXACT = 1e-6  # relative, below which two proven ε are the same
NORMAL = 1.959964  # half a 95 % interval in standard deviations
LOWER_LIMIT = "a lower limit, which says nothing of the most that leaks"
OTHER_DATA = "The data differ (A: {}, B: {}), so a change may come from the data and not from the setup."
HIDDEN_DATA = "Both trained on {} data. Each setup hides the digest of its rows, so the rows are not compared."


@dataclass(frozen=True)
class Difference:
    """One number in both results. interval_a, interval_b: 95 %, None for a number without.

    change: worse (a regression), better, unclear (within the intervals, or saying nothing by itself), lost (A has it
    and B does not: a regression), new (only B has it).
    """

    where: str
    what: str
    a: float | None
    b: float | None
    change: Direction
    interval_a: tuple[float, float] | None = None
    interval_b: tuple[float, float] | None = None
    why: str = ""

    @property
    def regression(self) -> bool:
        return self.change in ("worse", "lost")

    @property
    def sentence(self) -> str:
        described = METRICS.get(self.what, Metric(self.what, 0, ""))
        if self.what == "proven ε":  # an upper bound is never shown below its value
            pair = f"{words.at_most(self.a)} → {words.at_most(self.b)}"
            return f"{self.change:8}{self.where}: {self.what} {pair}{self._because}"
        pair = f"{_shown(described, self.a, self.interval_a)} → {_shown(described, self.b, self.interval_b)}"
        return f"{self.change:8}{self.where}: {described.label} {pair}{self._because}"

    @property
    def _because(self) -> str:
        if self.why:
            return f": {self.why}"
        return ""


def _shown(described: Metric, value: float | None, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return described.say(value)
    return f"{described.say(value)} [{described.say(interval[0])}, {described.say(interval[1])}]"


@dataclass(frozen=True)
class Comparison:
    """Everything that both results say, and what one of them lacks."""

    a: Results
    b: Results
    differences: tuple[Difference, ...]

    @property
    def regressions(self) -> list[Difference]:
        return [one for one in self.differences if one.regression]

    @property
    def text(self) -> str:
        """Lines for people: regressions first, what did not change clearly last."""
        order: tuple[Direction, ...] = ("worse", "lost", "better", "new", "unclear")
        shown = [one for one in self.differences if one.change != "unclear" or one.why not in ("", LOWER_LIMIT)]
        lines = [one.sentence for kind in order for one in shown if one.change == kind]
        if unclear := len(self.differences) - len(shown):
            lines.append(f"unclear {words.times(unclear, 'number')} without a clear change; --json lists all")
        count = len(self.regressions)
        last = "no regression beyond the intervals"
        if count:
            last = words.times(count, "regression")
        a, b = (str(results.setup.data.get("name", "")) or "unnamed" for results in (self.a, self.b))
        of_data = {True: [], False: [OTHER_DATA.format(a, b)], None: [HIDDEN_DATA.format(a)]}
        return "\n".join(
            [
                *of_data[self.same_data],
                f"verdict {badge(judgement_of(self.a))} → {badge(judgement_of(self.b))}",
                *lines,
                f"{last} (A → B, 95 % intervals)",
            ]
        )

    @property
    def same_data(self) -> bool | None:
        """None where it cannot be told: two secret keys give digests of the same rows that differ."""
        a, b = self.a.setup, self.b.setup
        if a.data == b.data:
            return True
        public_a, public_b = ({key: s.data[key] for key in s.data if key not in ROWS} for s in (a, b))
        if public_a != public_b or a.noise_key == b.noise_key == "published":
            return False
        return None

    def document(self) -> dict[str, Any]:
        verdicts = {name: badge(judgement_of(results)) for name, results in (("a", self.a), ("b", self.b))}
        return {
            "same_data": self.same_data,
            "verdict": verdicts,
            "regressions": len(self.regressions),
            "differences": [asdict(one) for one in self.differences],
        }


def compared(a: Results, b: Results) -> Comparison:
    """What changed from `a` to `b`.

    Raises:
        BadInput: they have nothing in common to compare.
    """
    found = [*_metrics(a.attacks, b.attacks), *_proven(a.epsilon, b.epsilon), *_tests(judgement_of(a), judgement_of(b))]
    if not any(one.a is not None and one.b is not None for one in found):
        raise BadInput(
            "nothing was measured in both results, so there is nothing to compare; run the same attacks on both"
        )
    return Comparison(a, b, tuple(found))


# --- attacks ---


def _place(attack: AttackResult) -> str:
    parts = [attack.attack, attack.observer, attack.manner]
    if attack.round is not None:
        parts.append(f"round {attack.round}")
    parts += [attack.settings.get("objective")]
    if attack.client:
        parts.append(f"client {attack.client}")
    return ", ".join(str(part) for part in parts if part)


def _by_place(attacks: Sequence[AttackResult]) -> dict[str, dict[str, tuple[float, Interval | None]]]:
    """By entry: its deciding metrics with their intervals. Entries of one place are numbered."""
    places: dict[str, dict[str, tuple[float, Interval | None]]] = {}
    for attack in attacks:
        if attack.kind == "canary":
            continue
        values = {
            name: (value, attack.intervals.get(name)) for name in DECIDING if (value := attack.value(name)) is not None
        }
        if "pool_share" in values:
            values.pop("reidentified", None)  # the page and the judgement go by the record's own pool
        if (point := strict_point(attack)) is not None:
            values["tpr"] = point.tpr, point.interval
        place, name, k = _place(attack), _place(attack), 1
        while name in places:
            k += 1
            name = f"{place} ({k})"
        places[name] = values
    return places


def _metrics(a: Sequence[AttackResult], b: Sequence[AttackResult]) -> list[Difference]:
    before, after = _by_place(a), _by_place(b)
    trusted = _by_place([attack for attack in a if not attack.doubt])
    for where in _by_place([attack for attack in b if attack.doubt]):
        if where in trusted:
            after.pop(where, None)  # an attack that assumes a loss nobody checked measures nothing by its failure
    pairs: list[tuple[Difference, float]] = []
    alone: list[Difference] = []
    for where in dict.fromkeys([*before, *after]):
        for name in dict.fromkeys([*before.get(where, {}), *after.get(where, {})]):
            first, second = before.get(where, {}).get(name), after.get(where, {}).get(name)
            if second is None and first is not None:
                alone.append(Difference(where, name, first[0], None, "lost", first[1], why="B did not measure it"))
            elif first is None and second is not None:
                alone.append(Difference(where, name, None, second[0], "new", None, second[1]))
            elif first is not None and second is not None and name == "exact":
                alone.append(_exact(where, first[0], second[0]))
            elif first is not None and second is not None:
                difference = Difference(where, name, first[0], second[0], "unclear", first[1], second[1])
                pairs.append((difference, _p_value(difference)))
    return [*_judged(pairs), *alone]


def _exact(where: str, a: float, b: float) -> Difference:
    """Images that came back beyond doubt."""
    why = "an image that comes back beyond doubt needs no interval"
    if (a > 0) == (b > 0):
        return Difference(where, "exact", a, b, "unclear")
    return Difference(where, "exact", a, b, "worse" if b > 0 else "better", why=why)


def _judged(pairs: Sequence[tuple[Difference, float]]) -> list[Difference]:
    """Holm's procedure over all pairs, two-sided."""
    ordered = sorted(p for _, p in pairs)
    passed = takewhile(lambda pair: pair[1] <= SIGNIFICANCE / (len(ordered) - pair[0]), enumerate(ordered))
    limit = max((p for _, p in passed), default=-1.0)
    judged = []
    for one, p in pairs:
        change: Direction = "unclear"
        if p <= limit and one.interval_a is not None and one.interval_b is not None:
            if one.interval_b[0] > one.interval_a[1]:
                change = "worse"
            elif one.interval_b[1] < one.interval_a[0]:
                change = "better"
        judged.append(Difference(**{**vars(one), "change": change}))
    return judged


def _p_value(one: Difference) -> float:
    """Of no difference, the errors being normal with the halves of the intervals that face each other."""
    if one.a is None or one.b is None or one.interval_a is None or one.interval_b is None:
        return 1.0
    half_a, half_b = one.a - one.interval_a[0], one.interval_b[1] - one.b
    if one.b >= one.a:
        half_a, half_b = one.interval_a[1] - one.a, one.b - one.interval_b[0]
    error = sqrt(half_a**2 + half_b**2) / NORMAL
    if error > 0:
        return float(erfc(abs(one.b - one.a) / error / sqrt(2)))
    return float(one.a == one.b)


# --- ε ---


def _row(row: Epsilon) -> str:
    delta = "" if row.delta is None else f", δ = {row.delta:g}"
    return f"{row.unit}, {row.observer}, {row.adjacency}{delta}"


def _proven(a: Iterable[Epsilon], b: Iterable[Epsilon]) -> list[Difference]:
    before = {_row(row): row.proven for row in a if row.proven is not None}
    after = {_row(row): row.proven for row in b if row.proven is not None}
    found = []
    for where in dict.fromkeys([*before, *after]):
        first, second = before.get(where), after.get(where)
        change: Direction = "unclear"
        if first is None or second is None:
            change = "lost"
            if first is None:
                change = "new"
        elif second > first * (1 + EXACT) or first < inf == second:
            change = "worse"
        elif second < first * (1 - EXACT) or second < inf == first:
            change = "better"
        why = ""
        if change == "lost":
            why = "B has no such row with a price"
        found.append(Difference(where, "proven ε", first, second, change, why=why))
    return found


def _tests(a: Judgement, b: Judgement) -> list[Difference]:
    """Demonstrated ε; worse where B's test refutes a claim or a proof that A's did not refute."""
    refuted = [_refuted(judgement) for judgement in (a, b)]
    before = {_row(row): row for row in a.epsilon}
    after = {_row(row): row for row in b.epsilon}
    found = []
    for where in dict.fromkeys([*before, *after]):
        first, second = before.get(where), after.get(where)
        for what in ("demonstrated", "demonstrated_on_condition"):
            one, other = (None if row is None else getattr(row, what) for row in (first, second))
            if one is None and other is None:
                continue
            change: Direction = "unclear"
            why = LOWER_LIMIT
            if one is None or other is None:
                if one is None:
                    change, why = "new", ""
                else:
                    change, why = "lost", "B was not tested"
            if where in refuted[1] and where not in refuted[0] and refuted[1][where] == what:
                change, why = "worse", "B's claim or proof is refuted, A's was not"
            elif where in refuted[0] and where not in refuted[1] and other is not None and refuted[0][where] == what:
                change, why = "better", "A's claim or proof was refuted, B's is not"
                if second is not None and (_most(second) or inf) <= (second.claimed or 0.0):
                    change, why = "unclear", "B's test could not have refuted its claim"
            if any(row is not None and row.demonstrated_from for row in (first, second)):
                chosen = (words.chosen_briefly(row) if row and row.demonstrated_from else "" for row in (first, second))
                why += "".join(f"; {name} {said}" for name, said in zip("AB", chosen) if said)
            found.append(Difference(where, f"{what.replace('_', ' ')} ε", one, other, change, why=why))
    return found


def _most(row: Epsilon) -> float | None:
    """The most that the row's test could have shown."""
    return max((most for most in (row.ceiling, row.ceiling_on_condition) if most is not None), default=None)


def _refuted(judgement: Judgement) -> dict[str, str]:
    """The rows whose test refutes something, and by which bound."""
    on_condition = {_row(r.shown): "demonstrated_on_condition" for r in judgement.refuting(on_condition=True)}
    return on_condition | {_row(r.shown): "demonstrated" for r in judgement.refuting(on_condition=False)}
