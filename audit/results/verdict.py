"""The verdict: the levels (levels.py), and three sentences for somebody who has to decide."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal

from scipy.stats import binom

from . import words
from .checks import (
    SIGNIFICANCE,
    STRICT_FPR,
    USEFUL_EPSILON,
    Check,
    allowed_epsilon,
    beyond_proof,
    bounded_by,
    checks,
    clearly_member,
    clearly_rebuilt,
    leaking,
    most_demonstrated,
    picked,
    rebuilt_together,
    refutations,
    refuted_on_condition,
    severely_rebuilt,
    strength,
    strict_point,
)
from .format import AttackResult, Epsilon, Level, Proof, Verdict
from .levels import (
    asked_or_worst,
    bounding_rows,
    headline,
    kinds_tried,
    level,
    only_claim,
    proof,
    was_measured,
    without_claims,
    worst_proven,
)
from .warnings import KINDS
from .words import (
    at_least,
    at_most,
    chosen,
    claim_said,
    listed,
    number,
    observer,
    on_condition,
    percent,
    percent_at_least,
    percent_at_most,
    times,
)


def verdict(
    attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon], secret: bool = True, declared: bool = False
) -> Verdict:
    """The leak, the proof, and three sentences: what was reached, what ε says, what it means.

    secret: whether the noise's key is; with a published one nothing is proven against whoever has the config.
    declared: whether a proof rests on what the owner of a recorded training says and nobody checked.
    """
    tried, rows = list(attacks), list(epsilon)
    reached, known = level(tried, rows), proof(tried, rows, secret)
    claim_alone = only_claim(tried, rows)
    first, last = _reached(tried, rows), _meaning(tried, rows, reached, known)
    if claim_alone:  # said, and then what is known without it
        own = without_claims(tried, rows)
        first = f"{first} {_reached(*own)}"
        last = f"Do not rely on that claim. {_meaning(*own, level(*own), known)}"
    elif _of_others(rows):  # what is asked about comes first
        first = f"{_reached(*without_claims(tried, rows))} {first}"
    return Verdict(
        level=reached,
        proof=known,
        proven=worst_proven(tried, rows) if known in ("proven", "weak") else None,
        measured=was_measured(tried, rows),
        attacked=bool(tried),
        only_claim=claim_alone,
        declared=declared,
        sentences=(first + _towards_others(rows), _priced(tried, rows, secret, declared), last),
    )


def _reached(attacks: list[AttackResult], epsilon: list[Epsilon]) -> str:
    order = sorted(zip(attacks, checks(attacks, epsilon)), key=lambda pair: strength(pair[0]), reverse=True)
    scored = [(attack, own) for attack, own in order if attack.scored]
    rebuilt = next((attack for attack, own in scored if severely_rebuilt(own)), None)
    also = "."
    if rebuilt:
        share = percent(rebuilt.value(picked(rebuilt).share))
        also = f", and {share} of the attacked {rebuilt.thing}s could be re-identified."
    if told := _contradicted(attacks, epsilon):
        return f"{told}{also}"
    leaks, within = leaking(epsilon), _within_proof(epsilon)
    if not scored and not leaks:
        why = "no attack was run" if not attacks else _unscored(attacks)
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
            f"From what {observer(attack.observer)} sees, an attacker got more than chance explains:"
            f" {_outcome(attack, check)}"
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
            f" ({times(len(scored), 'attack')} scored) can be told from luck, for want of a control, or of enough"
            f" images or records to compare with it.{within}"
        )
    return _no_leak(attacks, epsilon, judged, len(scored), within)


def _contradicted(attacks: Sequence[AttackResult], epsilon: Sequence[Epsilon]) -> str:
    """What the claim or the proof is shown to be wrong by, without a full stop; "" where nothing does."""
    sides: tuple[Literal["claimed", "proven"], ...] = ("claimed", "proven")
    for doubted in (False, True):
        for what in sides:
            if found := refutations(epsilon, what, doubted):
                return _refuted(found, what, doubted)
        if not doubted and (beyond := beyond_proof(attacks)):
            share, ceiling = max(beyond)
            return (
                f"The proof of this setup is contradicted: an attack succeeded with {percent(share)} of the records,"
                f" where the proof allows any attack {percent_at_most(ceiling)} on average"
            )
    return ""


def _refuted(found: Sequence[tuple[Epsilon, Epsilon]], what: Literal["claimed", "proven"], doubted: bool) -> str:
    """By the strongest test of those `refutations`. doubted: it holds on a condition alone."""
    shown, row = max(found, key=lambda pair: most_demonstrated(pair[0]) if doubted else pair[0].demonstrated or 0)
    so = f" if {shown.condition}" if doubted else ""
    if what == "claimed":
        told = f"The claim of this setup is refuted{so}: ε = {claim_said(row)} against"
    else:
        told = f"The proof of this setup is contradicted{so}: ε = {at_most(row.proven)} is proven against"
    least = _both(shown, said=True) if doubted else f"{at_least(shown.demonstrated)}{chosen(shown)}"
    return (
        f"{told} {observer(row.observer)} (per {row.unit}, {_terms(row)}), a test demonstrated at least {least}"
        f"{_elsewhere(shown, row)}"
    )


def _no_leak(
    attacks: Sequence[AttackResult],
    epsilon: Sequence[Epsilon],
    judged: Sequence[tuple[AttackResult, Check]],
    scored: int,
    within: str,
) -> str:
    """No check beat its control: how much that says. scored: attacks. within: the last words, of the proof."""
    if all(check.powerless or attack.doubt for attack, check in judged):
        return f"What an attacker really gets was not measured: {_blind(judged)}.{within}"
    kinds = kinds_tried(attacks, epsilon)
    lost = [kind for kind, could in kinds.items() if not could and any(attack.kind == kind for attack, _ in judged)]
    for kind in lost:
        own = [(attack, check) for attack, check in judged if attack.kind == kind]
        within += f" What {KINDS[kind]} really gets was not measured: {_blind(own)}."
    by_luck = sum(check.p_value is not None and check.p_value <= SIGNIFICANCE for _, check in judged)
    luck = ""
    if by_luck:
        many = binom.sf(by_luck - 1, len(judged), SIGNIFICANCE) < 0.01
        so = "is more than luck would give if they were independent" if many else f"proves nothing among {len(judged)}"
        its = "its" if by_luck == 1 else "their"
        luck = f"; {_of(by_luck, len(judged))} would have beaten {its} control alone, which {so}"
    if all(check.metric == "epsilon" for _, check in judged):
        return f"No leak was found by the only test there was, that of ε.{within}"
    best = f"; the best: {_outcome(*judged[0])}"
    return f"No attack got more than its control ({times(scored, 'attack')} scored{best}{luck}).{within}"


def _unscored(attacks: Sequence[AttackResult]) -> str:
    """What scoring lacked: who is behind an anonymous address stands in another folder than the records."""
    linking = all(attack.kind == "linking" for attack in attacks)
    return "the attacks could not be scored without " + ("auditor/" if linking else "the training data")


def _within_proof(epsilon: Sequence[Epsilon]) -> str:
    """What was demonstrated and is no leak, as the proof allows it: a sentence, "" where nothing was."""
    within = [row for row in epsilon if 0 < most_demonstrated(row) <= allowed_epsilon(row, epsilon)]
    if not within:
        return ""
    shown = max(within, key=most_demonstrated)
    proofs = [row.proven for row in epsilon if row.proven is not None and bounded_by(shown, row)]
    return (
        f" A test of ε per {shown.unit} towards {observer(shown.observer)} ({_terms(shown)}) showed at least"
        f" {_both(shown)}, and the proof allows {at_most(min(proofs))}: no more than was promised, so no leak."
    )


def _of_others(epsilon: Sequence[Epsilon]) -> bool:
    """Whether all that is refuted are claims about somebody whom the run is not about."""
    pairs = (*refutations(epsilon), *refuted_on_condition(epsilon))
    return bool(pairs) and not refutations(epsilon, "proven") and all(claim.aside for _, claim in pairs)


def _towards_others(epsilon: Sequence[Epsilon]) -> str:
    """That more leaks towards somebody whom the run is not about, a sentence; "" where nothing is known to, or where it
    refutes something and is said already.
    """
    said = [
        shown for shown, _ in (*refutations(epsilon), *refutations(epsilon, "proven"), *refuted_on_condition(epsilon))
    ]
    leaks = [row for row in leaking(epsilon, aside=True) if row not in said]
    if not leaks:
        return ""
    most = max(leaks, key=most_demonstrated)
    who = observer(most.observer)
    return (
        f" Not counted here, as this audit is about others: {who} learns something about a {most.unit}, a test"
        f" demonstrated an ε of at least {_both(most)}."
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
        return f"{counted}{chosen(row)}"
    if said:
        conditional = f"{at_least(row.demonstrated_on_condition)} on that condition"
    both = conditional if row.demonstrated is None else f"{conditional}, and {counted} in any case"
    return f"{both}{',' * (row.demonstrated is not None and bool(chosen(row)))}{chosen(row)}"


def _blind(judged: Sequence[tuple[AttackResult, Check]]) -> str:
    """Why not even success would have been told from luck, or why there may have been none; and what came of it."""
    attack, check = judged[0]
    if doubt := next((attack.doubt for attack, _ in judged if attack.doubt), ""):
        return f"{doubt} ({_outcome(attack, check)})"
    what = {"membership": "records no score", "linking": "messages no link"}.get(
        attack.kind, f"{attack.thing}s no line-up"
    )
    return f"of so few {what} tells success from luck ({_outcome(attack, check)})"


def _of(some: int, checks: int) -> str:
    return f"{some} of {times(checks, 'check')}"


def _corrected(checks: int) -> str:
    """How many checks were judged together, where that changed anything."""
    return "" if checks < 2 else f", all {checks} judged together"


def _rebuilt(attack: AttackResult, own: Sequence[Check]) -> str:
    line_up, sees = picked(attack), f"From what {observer(attack.observer)} sees, an attacker rebuilt"
    check = next((check for check in own if check.metric == "reidentified" and check.beats), None)
    if check is None:  # too few images for a line-up to tell
        return f"{sees} {percent(attack.value('exact'))} of {_attacked(attack)} {_exact(attack)}."
    share, (low, high) = attack.value(line_up.share), attack.intervals[line_up.share] or (0.0, 1.0)
    of, together = "them", rebuilt_together(own)
    if together is not None and together[0] > low:
        (hits, many), (low, high) = check.together, together
        share, of = hits / many, f"the {many} in all messages"
    return (
        f"{sees} training {attack.thing}s so well that {percent(share)} of {of} could be re-identified (interval"
        f" {percent_at_least(low)} to {percent_at_most(high)}; {check.against} gives {percent(check.control)})."
    )


def _attacked(attack: AttackResult) -> str:
    return times(attack.n, f"attacked training {attack.thing}") if attack.n else f"the attacked {attack.thing}s"


def _exact(attack: AttackResult) -> str:
    guess = "row guessed" if attack.thing == "row" else "picture made"
    return f"beyond doubt, with less than a thirtieth of the error of any {guess} without the message"


def _outcome(attack: AttackResult, check: Check) -> str:
    if check.metric == "reidentified":
        return (
            f"{percent(check.value)} of the {attack.thing}s re-identified where {check.against} gives"
            f" {percent(check.control)}"
        )
    if check.metric == "exact":
        return f"{percent(check.value)} of the {attack.thing}s rebuilt {_exact(attack)}"
    if check.metric == "psnr_margin":
        value = check.value or 0.0
        return (
            f"{attack.thing}s {number(abs(value), 2)} dB {'closer to' if value >= 0 else 'further from'} the originals"
            " than the best control"
        )
    if check.metric == "linked":
        return (
            f"{percent(check.value)} of the pairs of messages of one anonymous sender linked where chance gives"
            f" {percent(check.control)}"
        )
    if check.metric == "auc":
        return f"members told from outsiders with AUC {number(check.value)} where guessing gives 0.5"
    if check.metric == "tpr":
        return f"{percent(check.value)} of members recognised at {percent(STRICT_FPR)} false alarms"
    return f"ε of at least {at_least(check.low)} demonstrated{chosen(attack)}"


def _priced(attacks: list[AttackResult], epsilon: list[Epsilon], secret: bool, declared: bool) -> str:
    row = headline(attacks, epsilon)
    if row is None:
        return "No privacy loss ε was claimed or priced for this setup."
    if row.proven is None:
        proven = "no bound was priced"
    elif row.proven == float("inf"):
        proven = "no finite bound can be proven"
    else:
        proven = f"{at_most(row.proven)} {'can be' if secret else 'could be'} proven"
        proven += "" if secret else " if the noise's key, which is published, were secret"
        proven += " if what its owner declares is so" if declared else ""
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
        demonstrated = _beside(demonstrated, f"{words.could_show(test.ceiling_on_condition)} on that condition{also}")
    elif test.ceiling is not None:
        demonstrated = _beside(demonstrated, words.could_show(test.ceiling))
    return (
        f"For the privacy loss ε per {row.unit} towards {observer(row.observer)} ({_terms(row)}; smaller protects"
        f" more), {listed([claim, proven, demonstrated])}.{_of_other_units(row, epsilon)}"
    )


def _beside(said: str, more: str) -> str:
    """With more in brackets, in those that it ends with if there are any.

    >>> _beside("a", "b"), _beside("a (b)", "c")
    ('a (b)', 'a (b; c)')
    """
    return f"{said.removesuffix(')')}; {more})" if said.endswith(")") else f"{said} ({more})"


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
        shown = leaking(epsilon)
        certain = any((row.demonstrated or 0) > USEFUL_EPSILON for row in shown)
        condition = next((r.condition for r in shown if (r.demonstrated_on_condition or 0) > USEFUL_EPSILON), "")
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
        row = asked_or_worst(attacks, epsilon)
        return (
            f"The proven ε of {at_most(row.proven)} limits stronger attacks of this kind as well, for one {row.unit}"
            f" and {observer(row.observer)}; other observers, and people with many {row.unit}s, are not covered."
        )
    tried = "that these attacks failed" if was_measured(attacks, epsilon) else "that nothing was measured"
    bounding = [row for row in bounding_rows(attacks, epsilon).values() if row is not None]
    weakest = max(bounding, key=lambda row: inf if row.proven is None else row.proven, default=None)
    where = "" if weakest is None else f" per {weakest.unit} towards {observer(weakest.observer)}"
    return (
        f"Take no comfort from it {tried}: no useful bound (ε ≤ {number(USEFUL_EPSILON)}) is proven{where}, so nothing"
        " rules out a stronger attack."
    )
