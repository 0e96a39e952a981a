"""May what was looked at be shared? The answer, in a sentence, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, hypot, inf
from typing import Literal

from scipy.special import ndtr

from ...judge.judgement import NO_LEAK, Judgement
from ...proof.theorems.gaussian import gaussian_epsilon, gaussian_multiplier
from ...results.checks import strength
from ...results.format import LEVELS, PROOFS, AuditedSetup, Epsilon
from ...say import sharing as say
from ...say import words
from ...say.accuracy import useless
from ...say.warnings import contradicted_said, spent_before
from ..facts import ReportedSetting

SharingAnswer = Literal["no", "unproven", "proven"]
Reason = Literal["leak", "published key", "proven", "unproven", "own code"]


@dataclass(frozen=True)
class Sharing:
    """Whether what was looked at may be shared.

    answer: no, where a leak was found that no useful proof allows for; proven, where stronger attacks are bounded too;
      else unproven, which is not a yes. question: what is to be shared: the updates, or as much as the observers see.
      reason: what decided. limited: whether what is proven is more than `STRONG_EPSILON`, which still allows an
      attacker to be nearly sure, or rests on what nobody checked, or is not all that was spent.
    """

    answer: SharingAnswer
    sentence: str
    because: str
    question: str
    reason: Reason
    limited: bool = False


def share(settings: Sequence[ReportedSetting]) -> Sharing:
    """The decision as a sentence, and one or two that say why."""
    what = _looked_at(settings)
    if len(settings) == 1:
        return share_one(settings[0], what)
    answers = [share_one(setting, what) for setting in settings]
    leaking, quiet, proven = (
        [setting for setting, answer in zip(settings, answers, strict=True) if answer.answer == kind]
        for kind in ("no", "unproven", "proven")
    )
    if len(proven) == len(settings):
        return _proven(proven, what)
    leaking_names, quiet_names = (
        say.of_several([setting.label for setting in some], len(settings)) if some else "" for some in (leaking, quiet)
    )
    if proven:
        return _proven(proven, what, say.others(leaking_names, quiet_names))
    if not leaking:
        measured = any(setting.judgement.measured for setting in settings)
        found = "Nothing measured"
        if measured:
            found = "No leak found"
        lacking = say.too_little([row for setting in settings for row in setting.judgement.rows.bounding])
        return Sharing("unproven", f"{found}, {lacking}", say.unproven(), what.question, "unproven")
    worst = max(settings, key=gravity)
    because = say.several_leak(f"“{worst.label}”: {worst.sentences[0]}", len(leaking), len(settings), quiet_names)
    return Sharing("no", what.stop, because, what.question, "leak")


def _together(proven: Sequence[ReportedSetting]) -> str:
    """What whoever sees all these trainings of the same people may learn; "" where they are of others, or only one.

    Gaussian curves compose to one of √Σμ² (Dong, Roth and Su, arXiv:1905.02383); any others by the sums of ε and of δ.
    """
    people = [(setting.results.setup.data, setting.results.setup.clients) for setting in proven]
    if len(proven) < 2 or any(each != people[0] for each in people):
        return ""
    rows = [min(setting.judgement.rows.bounding, key=_least_wrong) for setting in proven]
    mus = [row.mu for row in rows]
    delta = max(row.delta or 0.0 for row in rows)
    if None not in mus and 0 < delta < 1:
        mu = hypot(*(mu or 0.0 for mu in mus))
        epsilon, wrong = gaussian_epsilon(1 / mu, delta) if mu else 0.0, float(ndtr(-mu / 2))
    else:
        epsilon, delta = sum(row.proven or 0.0 for row in rows), sum(row.delta or 0.0 for row in rows)
        wrong = least_wrong(epsilon, min(delta, 1.0))
    return " " + say.trainings_together(len(proven), at_most_right(wrong), epsilon, delta)


def gravity(setting: ReportedSetting) -> tuple[float, ...]:
    """The sort key of settings: the leak found, then that an attack shows it rather than a test of ε, then strength."""
    best = max((strength(attack) for attack in setting.results.attacks), default=(-inf,))
    judgement = setting.judgement
    if not judgement.shows_leak:  # of settings without a leak that of which least is proven
        proven = inf if judgement.proven is None else judgement.proven
        return 0, PROOFS.index(judgement.proof), proven, *best
    return LEVELS.index(judgement.severity), *best


def _looked_at(settings: Sequence[ReportedSetting]) -> say.Sharable:
    """What all observers who count see, where that is less than single updates."""
    observers = {observer for setting in settings for observer in setting.judgement.rows.observers}
    seen = {say.SEEN.get(observer, say.UPDATES) for observer in observers}
    if len(seen) == 1:
        return seen.pop()
    return say.UPDATES


def share_one(setting: ReportedSetting, what: say.Sharable = say.UPDATES) -> Sharing:
    """Of one setting."""
    if setting.results.setup.own_code:
        return _of_own_code(setting)
    judgement, question = setting.judgement, what.question
    level = judgement.severity if judgement.shows_leak else NO_LEAK
    useful = judgement.proven_if_secret
    allowed = useful and judgement.secret and not judgement.leaking
    if level in ("severe", "high") or (level == "moderate" and not allowed):
        return Sharing("no", what.stop, setting.sentences[0], question, "leak")
    if judgement.violated:
        return Sharing("unproven", say.VIOLATED, setting.sentences[0], question, "unproven")
    if contradicted := contradicted_said(setting.results.setup):
        return Sharing("unproven", say.CONTRADICTED, f"{contradicted} {setting.sentences[0]}", question, "unproven")
    found = "No leak found"
    if judgement.only_claim:
        found = "A claim is refuted"
    if useful and judgement.secret:
        return _proven([setting], what)
    if useful:
        return Sharing("unproven", f"{found}, but the noise is no secret", say.PUBLISHED, question, "published key")
    lacking = say.too_little(judgement.rows.bounding)
    weakest = max(judgement.rows.bounding, key=lambda row: _weakness(row, judgement), default=None)
    if not judgement.measured:
        found = "Nothing measured"
        if judgement.attacked:
            found = "Leak not measured"
        weakest = None
    choice = setting.results.choice
    unfinished = choice.unfinished if choice is not None else ()
    because = " ".join([setting.sentences[0], *say.not_finished(sorted(unfinished)), say.unproven(weakest)])
    return Sharing("unproven", f"{found}, {lacking}", because, question, "unproven")


def _weakness(row: Epsilon, judgement: Judgement) -> tuple[float, bool]:
    """The sort key of what is proven of a row; of equals the one that is asked about is the weakest."""
    return inf if row.proven is None else row.proven, row is judgement.rows.asked


def _proven(proven: Sequence[ReportedSetting], what: say.Sharable, others: Sequence[str] = ()) -> Sharing:
    """The bound of the setting on which an attack may be right most often; as declared, where a proof of any of them
    is. others: what is said of the settings that are not proven.
    """
    bounds = [_bound(setting.judgement) for setting in proven]
    worst, names = min(bounds, key=lambda bound: bound.wrong), [setting.label for setting in proven]
    declared = [setting for setting in proven if setting.judgement.declared]
    refuted = next((setting for setting in proven if setting.judgement.only_claim), None)
    limited = any(bound.limited for bound in bounds)
    earlier = max((setting.results.setup for setting in proven), key=lambda setup: setup.spent)
    if others:
        sentence, because = what.only_as(names), [say.most_right(worst.right, names), *others, worst.question]
    else:
        sentence, because = say.proven_answer(worst.right, limited, earlier.spent > 0), [worst.question]
    because.append(say.not_covered(worst.row.unit))
    like_with_like = worst.row.mu is not None or not worst.row.profile  # else a curve stands beside a single point
    if limited and like_with_like and worst.strongly_wrong > worst.wrong:
        because.append(say.strong_allows(worst.strong))
    if declared:
        sentence, owners = say.as_declared(sentence), [s.label for s in declared] if len(names) > 1 else []
        because.append(say.rests_on([name for setting in declared for name in setting.judgement.stated], owners))
    guessing = [setting for setting in proven if useless(setting.results.setup)]
    if len(guessing) == len(proven):
        sentence, because = say.NO_REASON, [f"{sentence}.", *because]
    elif guessing:
        because.append(say.some_guess([setting.label for setting in guessing]))
    if refuted is not None:
        sentence, because = f"A claim is refuted. {sentence}", [refuted.sentences[0], *because]
    if earlier.spent:
        because.append(spent_before(earlier))
    if earlier.spent and worst.row.asked:  # what was spent is of these terms alone
        epsilon, delta = with_spent(worst.row, earlier)
        because.append(say.right_of_both(at_most_right(least_wrong(epsilon, delta)), epsilon, delta))
    said = " ".join(because) + _together(proven)
    weaker = limited or bool(declared) or earlier.spent > 0
    return Sharing("proven", sentence, said, what.question, "proven", weaker)


def with_spent(row: Epsilon, setup: AuditedSetup) -> tuple[float, float]:
    """ε and δ of what the row proves and of what was spent before, by basic composition. row: the one that is asked
    about, as the setup's `spent` is of its observer, unit and adjacency.
    """
    delta = row.delta or 0.0
    return (row.proven or 0.0) + setup.spent, min(1.0, delta + (setup.spent_delta or delta))


def _of_own_code(setting: ReportedSetting) -> Sharing:
    """Of a function nobody knows more than what became of its claim; that a test failed proves nothing."""
    judgement, because = setting.judgement, setting.sentences[0]
    question = f"Does {setting.results.setup.title} keep its claim?"
    row = next((row for row in judgement.epsilon if row.claimed is not None), None)
    if judgement.refuting("claimed", on_condition=False):
        return Sharing("no", say.REFUTED, because, question, "own code")
    if judgement.violated:
        return Sharing("unproven", say.VIOLATED, because, question, "own code")
    if row is None:
        return Sharing("unproven", say.NO_CLAIM, because, question, "own code")
    if judgement.refuting("claimed", on_condition=True):
        return Sharing("no", f"Not if {row.condition}: the claim is refuted", because, question, "own code")
    counted, conditional = row.ceiling or 0.0, row.ceiling_on_condition or 0.0
    claimed, most = row.claimed or 0.0, max(counted, conditional)
    if most <= claimed:
        return Sharing("unproven", say.NOT_TESTED, say.claim_not_tested(most), question, "own code")
    because = say.claim_not_refuted(row, on_condition_alone=counted <= claimed)
    return Sharing("unproven", say.NOT_REFUTED, because, question, "own code")


@dataclass(frozen=True)
class _Bound:
    """How far the proof limits every attack. row: the one that is asked about, else the worst. wrong: the least share
    of wrong answers that it forces on any attack; strongly_wrong: that a strong guarantee would; limited: whether it
    allows more than that.
    """

    row: Epsilon
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


def _bound(judgement: Judgement) -> _Bound:
    rows = judgement.rows
    worst = min(rows.bounding, key=_least_wrong)  # on which an attack may be right most often
    row, observers = worst, [each.observer for each in rows.bounding]
    if rows.asked is not None:
        row, observers = rows.asked, [rows.asked.observer]
    question = say.right_of(row, observers)
    if _least_wrong(worst) < _least_wrong(row):
        question += f" {say.right_of_worst(row, worst, at_most_right(_least_wrong(worst)))}"
    delta = row.delta or 0.0
    strong_mu = None
    if row.mu is not None and 0 < delta < 1:
        strong_mu = 1 / gaussian_multiplier(say.STRONG_EPSILON, delta)
    limited = max(each.proven or 0.0 for each in rows.bounding) > say.STRONG_EPSILON
    return _Bound(row, question, _least_wrong(row), least_wrong(say.STRONG_EPSILON, delta, strong_mu), limited)


def _least_wrong(row: Epsilon) -> float:
    return max(least_wrong(epsilon, delta, row.mu) for delta, epsilon in row.points)


def least_wrong(epsilon: float, delta: float, mu: float | None = None) -> float:
    """The share of wrong answers to the question "in or out?" at even odds that (ε, δ) forces on any attack:
    (1 − δ)/(1 + e^ε), Kairouz, Oh and Viswanath, arXiv:1311.0776, theorem 2.1.

    mu: where a Gaussian's curve bounds it too: then at least Φ(−μ/2), far more, as an attack can be nearly sure of few
      only (Dong, Roth and Su, arXiv:1905.02383, section 2).

    >>> round(least_wrong(1.0, 0.0), 4), round(least_wrong(4.3772, 1e-5, mu=1.0), 4)      # multiplier 1: Φ(−0.5)
    (0.2689, 0.3085)
    """
    wrong = (1 - delta) / (expm1(min(epsilon, 700.0)) + 2)  # beyond that a float has no power of e
    if mu is None:
        return wrong
    return max(wrong, float(ndtr(-mu / 2)))


def at_most_right(wrong: float) -> str:
    """All other answers as a percentage, rounded up but not to all of them.

    >>> [at_most_right(x).replace("\N{NO-BREAK SPACE}", " ") for x in (0.5, 0.2689, 0.0006, 1e-10)]
    ['50 %', '73.2 %', '99.94 %', 'almost 100 %']
    """
    for digits in range(3, 7):
        right = words.at_most(100 * (1 - wrong), digits)
        if right != "100":
            return f"{right}\N{NO-BREAK SPACE}%"
    return "almost 100\N{NO-BREAK SPACE}%"
