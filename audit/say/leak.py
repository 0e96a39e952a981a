"""Which leak was found, in sentences: the first answer of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from ..judge.judgement import JudgedAttack, Judgement, Limit, Refutation
from ..results.checks import (
    COMPARABLE,
    STRICT_FPR,
    Check,
    allowed_epsilon,
    bounded_by,
    clearly_guessed,
    clearly_member,
    clearly_rebuilt,
    most_demonstrated,
    picked,
    rebuilt_together,
    severely_rebuilt,
    strength,
    strict_point,
)
from ..results.format import AttackResult
from .evidence import guessed_line
from .words import (
    KINDS,
    at_least,
    at_most,
    between,
    chosen,
    claim_said,
    number,
    observer,
    percent,
    percent_at_least,
    percent_at_most,
    where,
)
from .words import demonstrated as demonstrated_said


def leak_sentence(judgement: Judgement) -> str:
    """What a replay showed, which is a fact; what was reached, of those whom the run is about and of others."""
    sentences = [_reached(judgement)]
    if judgement.only_claim:  # said, and then what is known without it
        sentences.append(_reached(judgement.without_claims))
    elif judgement.refuted and all(refutation.aside for refutation in judgement.refuted):
        sentences.insert(0, _reached(judgement.without_claims))  # what is asked about comes first
    violated = [f"{judgement.violated}."] if judgement.violated else []
    return " ".join(filter(None, [*violated, *sentences, _towards_others(judgement)]))


def _reached(judgement: Judgement) -> str:
    scored = sorted(
        (judged for judged in judgement.attacks if judged.attack.scored),
        key=lambda judged: strength(judged.attack),
        reverse=True,
    )
    rebuilt = next((judged.attack for judged in scored if severely_rebuilt(judged.checks)), None)
    if contradicted := _contradicted(judgement):
        return _sentences(contradicted, _reidentified(rebuilt) if rebuilt else "")
    within = _within_proof(judgement)
    if not scored and not judgement.leaking:
        return _sentences(_nothing_scored(judgement), within)
    images = next((judged for judged in scored if _is_rebuilt(judged)), None)
    if images is not None:
        return _rebuilt(images)
    members = next((judged.attack for judged in scored if clearly_member(judged.checks)), None)
    if members is not None:
        return _recognised(members)
    guessed = next((judged.attack for judged in scored if clearly_guessed(judged.checks)), None)
    if guessed is not None:
        return f"An attack on what {observer(guessed.observer)} sees tells a hidden column: {guessed_line(guessed)}."
    tested = [_TestedCheck(judged.attack, check) for judged in scored for check in judged.checks]
    above = [each for each in tested if each.check.beats]
    if above:
        best = above[0]
        return (
            f"An attack on what {observer(best.attack.observer)} sees beats its control: {best.outcome}. Checks above"
            f" their control: {len(above)} of {len(tested)}."
        )
    if judgement.leaking:
        most = max(judgement.leaking, key=most_demonstrated)
        return (
            f"A test of ε per {most.unit} demonstrated a leak towards {observer(most.observer)}: at least"
            f" {demonstrated_said(most)}."
        )
    if not tested:
        known = (judged.attack.not_measured.get(COMPARABLE, "") for judged in scored)
        why = next(filter(None, known), "no attack has a control")
        return _sentences(
            f"The leak was not measured, as no attack could be tested against its control: {why}.", within
        )
    return _no_leak(judgement, tested, len(scored), within)


def _sentences(*texts: str) -> str:
    return " ".join(filter(None, texts))


@dataclass(frozen=True, eq=False)
class _TestedCheck:
    """A check of an attack."""

    attack: AttackResult
    check: Check

    @property
    def outcome(self) -> str:
        """What the attack got, beside what its control gets."""
        attack, check = self.attack, self.check
        beside = f"{check.against}: {percent(check.control)}"
        if check.metric == "reidentified":
            return f"{percent(check.value)} of the {attack.thing}s re-identified ({beside})"
        if check.metric == "exact":
            return f"{percent(check.value)} of the {attack.thing}s came back beyond doubt"
        if check.metric == "psnr_margin":
            return f"PSNR of the {attack.thing}s minus that of the best control {number(check.value, 2)} dB"
        if check.metric == "words_told":
            return f"{percent(check.value)} of the words of a text told ({beside})"
        if check.metric == "linked":
            return f"{percent(check.value)} of the pairs of messages of one anonymous sender linked ({beside})"
        if check.metric == "attribute_advantage":
            return guessed_line(attack)
        if check.metric == "auc":
            return f"membership AUC {number(check.value)} (guessing: 0.5)"
        if check.metric == "tpr":
            return f"{percent(check.value)} of the members recognised at a false positive rate of {percent(STRICT_FPR)}"
        return f"ε of at least {at_least(check.low)} demonstrated{chosen(attack)}"


def _is_rebuilt(judged: JudgedAttack) -> bool:
    return severely_rebuilt(judged.checks) or clearly_rebuilt(judged.attack, judged.checks)


def _reidentified(attack: AttackResult) -> str:
    return f"{percent(attack.value(picked(attack).share))} of the attacked {attack.thing}s were re-identified."


def _rebuilt(judged: JudgedAttack) -> str:
    attack, seen = judged.attack, f"from what {observer(judged.attack.observer)} sees"
    if attack.thing == "text":
        whole, told = attack.value("whole"), percent(attack.value("words_told"))
        texts, seen = "the training texts of one message", f"{seen} (texts: {number(attack.n)})"
        if not whole:
            return f"{told} of the words of {texts} were told, {seen}."
        back = f"{percent(whole)} of {texts} came back word for word, as the model reads them"
        return f"{back}, and {told} of their words were told, {seen}."
    check = next((check for check in judged.checks if check.metric == "reidentified" and check.beats), None)
    if check is None:  # too few images for a line-up to tell
        return (
            f"{percent(attack.value('exact'))} of the attacked training {attack.thing}s came back beyond doubt {seen}"
            f" ({attack.thing}s: {number(attack.n)}; error below 1/30 of that of any {attack.thing} made without the"
            " message)."
        )
    line_up = picked(attack)
    share, (low, high) = attack.value(line_up.share), attack.intervals[line_up.share] or (0.0, 1.0)
    of, together = f"training {attack.thing}s", rebuilt_together(judged.checks)
    if together is not None and together[0] > low:
        (hits, many), (low, high) = check.together, together
        share, of = hits / many, f"{many} training {attack.thing}s in all messages"
    return (
        f"{percent(share)} of the {of} were re-identified {seen} (95 % interval {between((low, high))};"
        f" {check.against}: {percent(check.control)})."
    )


def _recognised(attack: AttackResult) -> str:
    point = strict_point(attack)
    assert point is not None and point.interval is not None  # `clearly_member` has looked
    return (
        f"{percent(point.tpr)} of the training records were recognised as members from what"
        f" {observer(attack.observer)} sees (at least {percent_at_least(point.interval[0])}), at a false positive rate"
        f" of {percent(STRICT_FPR)}."
    )


# --- claims and proofs that a test refutes


def _contradicted(judgement: Judgement) -> str:
    """By what the claim or the proof is shown to be wrong; "" where nothing does."""
    certain = [judgement.refuting(limit, on_condition=False) for limit in ("claimed", "proven")]
    if pairs := next(filter(None, certain), None):
        return refuted(pairs)
    if judgement.beyond:
        share, ceiling = max(judgement.beyond)
        return (
            f"The proof of this setup is contradicted: an attack succeeded with {percent(share)} of the records, and"
            f" the proof allows {percent_at_most(ceiling)} on average."
        )
    doubted = [judgement.refuting(limit, on_condition=True) for limit in ("claimed", "proven")]
    return refuted(next(filter(None, doubted), []))


WRONG: dict[Limit, str] = {
    "claimed": "The claim of {whose} is refuted",
    "proven": "The proof of {whose} is contradicted",
}


def refuted(pairs: Sequence[Refutation], whose: str = "this setup") -> str:
    """The strongest of refutations of one kind; "" of none."""
    if not pairs:
        return ""
    strongest = max(pairs, key=_demonstrated)
    shown, row = strongest.shown, strongest.row
    condition = ""
    if strongest.on_condition:
        condition = shown.condition
    stated = {"claimed": claim_said(row), "proven": f"ε ≤ {at_most(row.proven)} is proven"}[strongest.limit]
    least, limit = at_least(strongest.demonstrated), {"claimed": row.claimed, "proven": row.proven}[strongest.limit]
    if least == number(limit):  # refuted by a little: both round to the same
        least = at_least(strongest.demonstrated, 6)
    least += chosen(shown)
    if condition:
        least = demonstrated_said(shown, named=condition)
    return (
        f"{WRONG[strongest.limit].format(whose=whose)}{condition and f' if {condition}'}: {stated} {where(row)}, and a"
        f" test demonstrated at least {least}{_elsewhere(strongest)}."
    )


def _demonstrated(refutation: Refutation) -> float:
    if refutation.on_condition:
        return most_demonstrated(refutation.shown)
    return refutation.demonstrated


def _elsewhere(refutation: Refutation) -> str:
    """Whose view was tested, where it is not that of the row it refutes."""
    if refutation.shown.observer == refutation.row.observer:
        return ""
    return f" from what {observer(refutation.shown.observer)} sees, which is no more"


def _within_proof(judgement: Judgement) -> str:
    """What was demonstrated and is no leak, as the proof allows it; "" where nothing was."""
    epsilon = judgement.epsilon
    within = [row for row in epsilon if 0 < most_demonstrated(row) <= allowed_epsilon(row, epsilon)]
    if not within:
        return ""
    shown = max(within, key=most_demonstrated)
    allowed = min(row.proven for row in epsilon if row.proven is not None and bounded_by(shown, row))
    return (
        f"A test of ε {where(shown)} demonstrated at least {demonstrated_said(shown)}; the proof allows"
        f" {at_most(allowed)}, so this is no leak."
    )


def _towards_others(judgement: Judgement) -> str:
    """The leak towards observers whom the run is not about; "" where none is known, or where it refutes something and
    is said already.
    """
    refuting = [refutation.shown for refutation in judgement.refuted]
    leaking = [row for row in judgement.leaking_aside if row not in refuting]
    if not leaking:
        return ""
    most = max(leaking, key=most_demonstrated)
    return (
        f"Not counted, since this audit is about other observers: a test of ε per {most.unit} towards"
        f" {observer(most.observer)} demonstrated at least {demonstrated_said(most)}."
    )


# --- no check beats its control


def _no_leak(judgement: Judgement, tested: Sequence[_TestedCheck], scored: int, within: str) -> str:
    """How much the failure of the attacks says. scored: attacks. within: what a test showed within the proof."""
    if all(each.check.powerless or each.attack.doubt for each in tested):
        return _sentences(f"The leak was not measured: {_blind(tested)}", within)
    kinds = dict.fromkeys(each.attack.kind for each in tested)
    lost = [name for name in judgement.kinds if not judgement.kinds[name] and name in kinds]
    blind = [
        f"The leak by {KINDS[name]} was not measured: {_blind([each for each in tested if each.attack.kind == name])}"
        for name in lost
    ]
    if all(each.check.metric == "epsilon" for each in tested):
        return _sentences("The test of ε found no leak, and nothing else was tried.", within, *blind)
    return _sentences(
        f"No attack beats its control. Attacks scored: {scored}. Nearest to a leak: {tested[0].outcome}.",
        _luck(judgement),
        within,
        *blind,
    )


def _luck(judgement: Judgement) -> str:
    """How many checks would have beaten their control alone; "" for none."""
    alone, count = judgement.checked_alone
    if not alone:
        return ""
    explained = "as luck explains"
    if judgement.more_than_luck:
        explained = "more than luck explains if they are independent"
    return f"Checks above their control, each judged alone: {alone} of {count}, {explained}."


def _nothing_scored(judgement: Judgement) -> str:
    """What scoring lacked: who is behind an anonymous address stands in another folder than the records."""
    kinds = {judged.attack.kind for judged in judgement.attacks}
    lacking = "the attacks could not be scored without the training data"
    if not kinds:
        lacking = "no attack was run"
    elif kinds == {"linking"}:
        lacking = "the attacks could not be scored without auditor/"
    if judgement.measured:
        return f"The test of ε found no leak; {lacking}."
    return f"The leak was not measured: {lacking}."


_FEW = {
    "attribute": "the guesses of so few records",
    "membership": "the scores of so few records",
    "linking": "the links of so few messages",
}


def _blind(tested: Sequence[_TestedCheck]) -> str:
    """Why not even success would have been told from luck, or why there may have been none; and what came of it."""
    first = tested[0]
    doubts = chain((each.attack.doubt for each in tested if each.attack.doubt), [""])
    few = _FEW.get(first.attack.kind, f"a line-up of so few {first.attack.thing}s")
    return f"{next(doubts) or f'{few} cannot tell success from luck'}. Best: {first.outcome}."
