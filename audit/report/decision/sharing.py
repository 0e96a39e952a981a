"""May what was looked at be shared? The answer, in a sentence, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import expm1, hypot, inf
from typing import Literal

from scipy.special import ndtr

from ...proven.gaussian import gaussian_epsilon, gaussian_multiplier
from ...results import words
from ...results.checks import USEFUL_EPSILON, leaking, refutations, strength
from ...results.format import LEVELS, PROOFS, Epsilon, Results
from ...results.levels import asked_or_worst, bounding_rows, proof
from ..facts import ReportedSetting

SharingAnswer = Literal["no", "unproven", "proven"]


STRONG_EPSILON = 1.0  # a strong guarantee; above it, up to 10, a reasonable one: arXiv:2303.00654, section 5.2.1


@dataclass(frozen=True)
class Sharing:
    """Whether what was looked at may be shared.

    question: what is to be shared: the updates, or as much as the observers see. answer: no, where a leak was found
      that no useful proof allows for; proven, where stronger attacks are bounded too; else unproven, which is not a
      yes. limited: whether what is proven is more than `STRONG_EPSILON`, which still allows an attacker to be nearly
      sure.
    """

    answer: SharingAnswer
    sentence: str
    because: str
    question: str
    limited: bool = False


@dataclass(frozen=True)
class _Shared:
    """What is to be shared, and how people say that."""

    what: str
    verb: str = "share"
    shared: str = "shared"

    @property
    def question(self) -> str:
        return f"May {self.what} be {self.shared}?"

    @property
    def stop(self) -> str:
        return f"Do not {self.verb} {self.what}"


UPDATES = _Shared("these updates")


# Who sees less than uploads -> what that is.
SEEN = {
    "model": _Shared("this model", "publish", "published"),
    "downlink": _Shared("the models sent out"),
    "aggregate": _Shared("these sums"),
}


def share(settings: Sequence[ReportedSetting]) -> Sharing:
    """The decision as a sentence, and one or two that say why."""
    what = _looked_at([setting.results for setting in settings])
    if len(settings) == 1:
        return share_one(settings[0].results, what)
    answers = [share_one(setting.results, what) for setting in settings]
    leaking, quiet, proven = (
        [setting for setting, answer in zip(settings, answers) if answer.answer == kind]
        for kind in ("no", "unproven", "proven")
    )
    most = min(proven, key=lambda setting: _bound(setting.results).wrong, default=None)
    if most is not None and len(proven) == len(settings):
        one = share_one(most.results, what)
        return replace(one, because=f"{one.because}{_together(proven)}")
    if most is not None:
        named, bound = words.quoted([setting.label for setting in proven]), _bound(most.results)
        said = [f"With {named} no attack can be right more than {bound.right} of the time. {bound.question}"]
        said += [f"Attacks got more with {_some(leaking, settings)}."] if leaking else []
        said += [f"Nothing useful is proven with {_some(quiet, settings)}."] if quiet else []
        only = f"{what.verb.capitalize()} {what.what} only as with {named}"
        return Sharing("proven", only, " ".join(said) + _together(proven), what.question, bound.limited)
    if not leaking:
        measured = any(setting.results.verdict.measured for setting in settings)
        sentence = "No leak found, nothing proven" if measured else "Nothing measured, nothing proven"
        return Sharing("unproven", sentence, _UNPROVEN, what.question)
    worst = max(settings, key=gravity)
    because = f"“{worst.label}”: {worst.results.verdict.sentences[0]}"
    if quiet:
        because += (
            f" {len(leaking)} of {len(settings)} settings leak; with {_some(quiet, settings)} no leak was found, but"
            " nothing useful is proven."
        )
    else:
        because += " Every setting leaks."
    return Sharing("no", what.stop, because, what.question)


def _together(proven: Sequence[ReportedSetting]) -> str:
    """What whoever sees all these trainings of the same people may learn; "" where they are of others, or only one.

    Gaussian curves compose to one of √Σμ² (Dong, Roth and Su, arXiv:1905.02383); any others by the sums of ε and of δ.
    """
    people = [(setting.results.setup.data, setting.results.setup.clients) for setting in proven]
    if len(proven) < 2 or any(one != people[0] for one in people):
        return ""
    rows = [_worst(setting.results) for setting in proven]
    mus = [row.mu for row in rows]
    delta = max(row.delta or 0.0 for row in rows)
    if None not in mus and 0 < delta < 1:
        mu = hypot(*(mu or 0.0 for mu in mus))
        epsilon, wrong = gaussian_epsilon(1 / mu, delta) if mu else 0.0, float(ndtr(-mu / 2))
    else:
        epsilon, delta = sum(row.proven or 0.0 for row in rows), sum(row.delta or 0.0 for row in rows)
        wrong = least_wrong(epsilon, min(delta, 1.0))
    return (
        f" That is of one training: whoever sees all {len(proven)}, of the same people, may be right up to"
        f" {at_most_right(wrong)} of the time (ε ≤ {words.at_most(epsilon)}, δ = {words.number(delta)})."
    )


def gravity(setting: ReportedSetting) -> tuple[float, ...]:
    """The sort key of settings: the leak found, then that an attack shows it rather than a test of ε, then strength."""
    best = max((strength(attack) for attack in setting.results.attacks), default=(-inf,))
    verdict = setting.results.verdict
    if verdict.level == LEVELS[0] or verdict.only_claim:  # of settings without a leak that of which least is proven
        return 0, PROOFS.index(verdict.proof), inf if verdict.proven is None else verdict.proven, *best
    return LEVELS.index(verdict.level), *best


def _looked_at(settings: Sequence[Results]) -> _Shared:
    """What all observers who count see, where that is less than single updates."""
    seen = {SEEN.get(who, UPDATES) for results in settings for who in _observers(results)}
    return seen.pop() if len(seen) == 1 else UPDATES


def _observers(results: Results) -> set[str]:
    """Who was attacked, or whom a proof is wanted for."""
    rows = bounding_rows(results.attacks, results.epsilon)
    return {name if row is None else row.observer for name, row in rows.items()}


_UNPROVEN = (
    f"No useful bound (ε ≤ {USEFUL_EPSILON:g}) is proven, so nothing rules out a stronger attack: this is not a yes."
)


PUBLISHED = (
    "What is proven holds for a secret key alone: this one is published, so whoever has the config can take the noise"
    " off again. This is not a yes."
)


def _of_own_code(results: Results) -> Sharing:
    """Of a function nobody knows more than what became of its claim; that a test failed proves nothing."""
    claimed = next((row for row in results.epsilon if row.claimed is not None), None)
    question = f"Does {results.setup.title} keep its claim?"
    if claimed is None:
        return Sharing("unproven", "No claim was given, nothing proven", results.verdict.sentences[0], question)
    if refutations(results.epsilon):
        return Sharing("no", "No: the claim is refuted", results.verdict.sentences[0], question)
    if refutations(results.epsilon, on_condition=True):
        return Sharing(
            "no", f"Not if {claimed.condition}: the claim is refuted", results.verdict.sentences[0], question
        )
    limit, most = claimed.claimed or 0.0, claimed.ceiling or 0.0
    on_condition = claimed.ceiling_on_condition or 0.0
    if max(most, on_condition) <= limit:
        could = words.could_show(max(most, on_condition))
        return Sharing(
            "unproven",
            "Not tested: the claim could not have been refuted",
            f"{could[:1].upper()}{could[1:]}: take more draws.",
            question,
        )
    if_so = "" if most > limit else f" if {claimed.condition}"
    shown = f"ε of at least {words.at_least(claimed.demonstrated)} whatever the noise"
    conditional = words.on_condition(claimed)
    shown += "" if conditional is None else f", and of at least {conditional}"
    because = f"A test could have refuted it{if_so}, and showed an {shown}."
    proves = "That is no proof: another canary, or a stronger attack, may show more."
    return Sharing("unproven", "Not refuted, nothing proven", f"{because} {proves}", question)


def share_one(results: Results, what: _Shared = UPDATES) -> Sharing:
    if results.setup.own_code:
        return _of_own_code(results)
    verdict, question = results.verdict, what.question
    within = proof(results.attacks, results.epsilon) == "proven"  # if the key is secret
    secret, beyond = results.setup.secret_key, leaking(results.epsilon)
    allowed = within and secret and not beyond
    level = LEVELS[0] if verdict.only_claim else verdict.level
    if level in ("severe", "high") or (level == "moderate" and not allowed):
        return Sharing("no", what.stop, verdict.sentences[0], question)
    found, said = "No leak found", f"{verdict.sentences[0]} "
    if verdict.only_claim:
        found = "A claim is refuted"
    if within and not secret:
        return Sharing("unproven", f"{found}, but the noise is no secret", PUBLISHED, question)
    if within:
        bound = _bound(results)
        sentence = f"Proven: no attack can be right more than {bound.right} of the time"
        because = f"{bound.question} No proof covers other observers, or people with much more in it."
        if bound.limited:
            sentence = f"Proven within limits: an attack may be right up to {bound.right} of the time"
            because = f"{because} A strong guarantee (ε ≤ {STRONG_EPSILON:g}) allows {bound.strong}."
        if unchecked := results.setup.unchecked:
            sentence = f"As declared, not checked: {sentence.partition(': ')[2]}"
            because += f" It rests on the owner's word: {words.listed([d.what for d in unchecked])}."
        if verdict.only_claim:
            sentence = f"A claim is refuted. {sentence}"
            because = said + because
        return Sharing("proven", sentence, because, question, bound.limited or bool(unchecked))
    if not verdict.measured:
        measured = "Leak not measured" if results.attacks else "Nothing measured"
        return Sharing("unproven", f"{measured}, {_too_little(results)}", f"{said}{_UNPROVEN}", question)
    return Sharing("unproven", f"{found}, {_too_little(results)}", f"{said}{_unproven(results)}", question)


def _too_little(results: Results) -> str:
    """Where a proof of use stands beside a row in which there is none, of which unit or towards whom."""
    rows = _bounding(results)
    useful = [row for row in rows if row.proven is not None and row.proven <= USEFUL_EPSILON]
    if not useful and rows and all(row.proven is not None and row.proven < inf for row in rows):
        return "nothing useful proven"
    if not useful or any(row.proven is None for row in rows):
        return "nothing proven"
    worst = max(rows, key=lambda row: row.proven or 0.0)
    if any(row.observer == worst.observer for row in useful):
        return f"too little proven per {worst.unit}"
    return f"too little proven towards {words.observer(worst.observer)}"


def _unproven(results: Results) -> str:
    """Of which unit and observer: a smaller ε of another one may stand beside it."""
    rows = _bounding(results)
    if not rows:
        return _UNPROVEN
    row = max(rows, key=lambda row: inf if row.proven is None else row.proven)
    return _UNPROVEN.replace(" is proven,", f" is proven {words.where(row)},")


@dataclass(frozen=True)
class _Bound:
    """The question on which the proof limits every attack, the least share of wrong answers it forces, that which a
    strong guarantee would, and whether it allows more than that.
    """

    question: str
    wrong: float
    strongly_wrong: float
    limited: bool

    @property
    def right(self) -> str:
        return at_most_right(self.wrong)

    @property
    def strong(self) -> str:
        return at_most_right(self.strongly_wrong)


def _bound(results: Results) -> _Bound:
    rows, worst = _bounding(results), _worst(results)
    asked = asked_or_worst(results.attacks, results.epsilon)
    row = asked if asked.asked else worst
    who = words.listed(list(dict.fromkeys(words.observer(one.observer) for one in ([row] if row.asked else rows))))
    delta = row.delta or 0.0
    place = f" ({row.adjacency}, δ = {words.number(delta)})" if delta else f" ({row.adjacency})"
    question = (
        f"Asked whether one {row.unit} took part, from all that {who} sees{place}; a guess is right half of the time."
    )
    if _least_wrong(worst) < _least_wrong(row):  # of another unit or observer, and counted too
        most = at_most_right(_least_wrong(worst))
        question += f" About one {worst.unit}, towards {words.observer(worst.observer)}, it is {most}"
        turned = (row.unit, worst.unit) == ("client", "record")
        question += ", as one record can turn a whole clipped update around." if turned else "."
    strong_mu = 1 / gaussian_multiplier(STRONG_EPSILON, delta) if row.mu is not None and 0 < delta < 1 else None
    limited = max(row.proven or 0.0 for row in rows) > STRONG_EPSILON
    return _Bound(question, _least_wrong(row), least_wrong(STRONG_EPSILON, delta, strong_mu), limited)


def _bounding(results: Results) -> list[Epsilon]:
    return [row for row in bounding_rows(results.attacks, results.epsilon).values() if row is not None]


def _worst(results: Results) -> Epsilon:
    """The row of those that count on which an attack may be right most often."""
    return min(_bounding(results), key=_least_wrong)


def _least_wrong(row: Epsilon) -> float:
    return least_wrong(row.proven or 0.0, row.delta or 0.0, row.mu)


def least_wrong(epsilon: float, delta: float, mu: float | None = None) -> float:
    """The share of wrong answers to the question "in or out?" at even odds that (ε, δ) forces on any attack:
    (1 − δ)/(1 + e^ε), Kairouz, Oh and Viswanath, arXiv:1311.0776, theorem 2.1.

    mu: where a Gaussian's curve bounds it too: then at least Φ(−μ/2), far more, as an attack can be nearly sure of few
      only (Dong, Roth and Su, arXiv:1905.02383, section 2).

    >>> round(least_wrong(1.0, 0.0), 4), round(least_wrong(4.3772, 1e-5, mu=1.0), 4)      # multiplier 1: Φ(−0.5)
    (0.2689, 0.3085)
    """
    wrong = (1 - delta) / (expm1(epsilon) + 2)
    return wrong if mu is None else max(wrong, float(ndtr(-mu / 2)))


def at_most_right(wrong: float) -> str:
    """All other answers as a percentage, rounded up but not to all of them.

    >>> [at_most_right(x).replace("\N{NO-BREAK SPACE}", " ") for x in (0.5, 0.2689, 0.0006)]
    ['50 %', '73.2 %', '99.94 %']
    """
    for digits in range(3, 16):
        said = words.at_most(100 * (1 - wrong), digits)
        if said != "100":
            break
    return f"{said}\N{NO-BREAK SPACE}%"


def _some(some: Sequence[ReportedSetting], settings: Sequence[ReportedSetting], most: int = 3) -> str:
    """Names in a sentence; only how many, where they are many."""
    if len(some) <= most:
        return words.quoted([setting.label for setting in some])
    return f"{len(some)} of {len(settings)} settings"
