"""What a reader decides by, before any table: may these updates be shared, what is the strongest leak, which ε holds,
and what to change first. Plain values; the page lays them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import expm1, inf, isfinite
from typing import Literal

from ...defenses.presets import PRESETS
from ..results import words
from ..results.checks import (
    STRICT_FPR,
    USEFUL_EPSILON,
    clearly_member,
    clearly_rebuilt,
    leaking,
    most_demonstrated,
    picked,
    refutations,
    refuted_on_condition,
    severely_rebuilt,
    strength,
    strict_point,
)
from ..results.format import LEVELS, PROOFS, AttackResult, Epsilon, Results
from ..results.levels import bounding_rows, proof
from .advice import above_chance, noise_factor
from .facts import ReportedSetting
from .together import noiseless

Answer = Literal["no", "unproven", "proven"]
CLAIM_OR_PROOF: tuple[Literal["claimed", "proven"], ...] = ("claimed", "proven")
STRONG_EPSILON = 1.0  # a strong guarantee; above it, up to 10, a reasonable one: arXiv:2303.00654, section 5.2.1


@dataclass(frozen=True)
class Sharing:
    """Whether what was looked at may be shared.

    question: what is to be shared: the updates, or as much as the observers see. answer: no, where a leak was found
      that no useful proof allows for; proven, where stronger attacks are bounded too; else unproven, which is not a
      yes. limited: whether what is proven is more than `STRONG_EPSILON`, which still allows an attacker to be nearly
      sure.
    """

    answer: Answer
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


@dataclass(frozen=True, eq=False)
class Leak:
    """The most that any attack got.

    kind: what shows it best: the images, a membership attack's ROC, or a number.
    found: whether it is a leak by the verdict's rules; else it is only the best of the attempts.
    value, beside: for a number, it and what it is to be compared with, in words.
    """

    kind: Literal["images", "roc", "number"]
    setting: ReportedSetting
    found: bool
    said: str
    attack: AttackResult | None = None
    value: str = ""
    beside: str = ""


@dataclass(frozen=True)
class Range:
    """What the settings have of one quantity. count: how many have it; least: the setting of the least, or "", where
    there is only one value.
    """

    low: float
    high: float
    count: int
    least: str = ""


@dataclass(frozen=True)
class Losses:
    """ε for one unit, observer, adjacency and δ, over all settings; None: not claimed, priced or measured in any.

    refuted: a sentence a setting of which more is demonstrated than is claimed or proven, of any unit and observer.
    claimed_by: whose the claims are, "" where the settings differ in it. demonstrated: the most in any setting, which
    `demonstrated_in` names; on_condition: the same in words, of a bound with a condition. secret: whether every noise's
    key is.
    """

    unit: str
    observer: str
    adjacency: str
    delta: float | None
    settings: int
    proven: Range | None
    claimed: Range | None
    claimed_by: str
    demonstrated: float | None
    demonstrated_in: str
    confidence: float | None
    on_condition: str
    refuted: tuple[str, ...] = ()
    secret: bool = True


@dataclass(frozen=True)
class Change:
    """The one change that helps most.

    sentence: what to do. basis: measured, where this very setting was trained and attacked; computed, where its noise
      follows from the proof's formula; unknown, where not even its noise is known.
    noise_std, server_noise_std: in parameter units, at this clip_norm. proven: the ε that this noise proves, for what
      `where` says.
    why: of a computed target, why this ε, a sentence. accuracy: of the final model, None where it was not measured.
    accuracy_now: what was measured before the change, in words. note: what else to know.
    """

    sentence: str
    basis: Literal["measured", "computed", "unknown"]
    noise_std: float | None = None
    server_noise_std: float | None = None
    proven: float | None = None
    where: str = ""
    accuracy: float | None = None
    note: str = ""
    accuracy_now: str = ""
    why: str = ""
    clip_norm: float | None = None


@dataclass(frozen=True, eq=False)
class Decision:
    """untrained: why no accuracy can be compared, a sentence; "" where some accuracy lies above guessing."""

    share: Sharing
    worst: ReportedSetting
    leak: Leak | None
    losses: Losses | None
    change: Change
    untrained: str


def decision_on(settings: Sequence[ReportedSetting]) -> Decision:
    """Of one setting or of several; `worst` is the one that gives the decision."""
    worst = max(settings, key=_gravity)
    losses, change = _losses(settings, worst), _change(settings, worst)
    return Decision(share(settings), worst, _strongest(settings), losses, change, _untrained(settings))


def _untrained(settings: Sequence[ReportedSetting]) -> str:
    """A model that guesses in every setting says nothing of what noise costs; without noise it learned nothing."""
    results = [setting.results for setting in settings if setting.results.setup.test_accuracy is not None]
    if not results or not all(words.no_better_than_guessing(own.setup) for own in results):
        return ""
    if any(map(noiseless, results)):
        return (
            "No better than guessing: the model learned nothing yet, so accuracy says nothing about the cost of noise."
        )
    return (
        "No better than guessing: either the model learned nothing yet, or the noise keeps it from learning; a training"
        " without noise tells which."
    )


def share(settings: Sequence[ReportedSetting]) -> Sharing:
    """The decision as a sentence, and one or two that say why."""
    what = _looked_at([setting.results for setting in settings])
    if len(settings) == 1:
        return _share(settings[0].results, what)
    answers = [_share(setting.results, what) for setting in settings]
    leaking, quiet, proven = (
        [setting for setting, answer in zip(settings, answers) if answer.answer == kind]
        for kind in ("no", "unproven", "proven")
    )
    most = max(proven, key=lambda setting: setting.results.verdict.proven or 0.0, default=None)
    if most is not None and len(proven) == len(settings):
        return _share(most.results, what)
    if most is not None:
        named, bound = words.quoted([setting.label for setting in proven]), _bound(most.results)
        said = [f"With {named} no attack can be right more than {bound.right} of the time. {bound.question}"]
        said += [f"Attacks got more with {_some(leaking, settings)}."] if leaking else []
        said += [f"Nothing useful is proven with {_some(quiet, settings)}."] if quiet else []
        only = f"{what.verb.capitalize()} {what.what} only as with {named}"
        return Sharing("proven", only, " ".join(said), what.question, bound.limited)
    if not leaking:
        measured = any(setting.results.verdict.measured for setting in settings)
        sentence = "No leak found, nothing proven" if measured else "Nothing measured, nothing proven"
        return Sharing("unproven", sentence, _UNPROVEN, what.question)
    worst = max(settings, key=_gravity)
    because = f"“{worst.label}”: {worst.results.verdict.sentences[0]}"
    if quiet:
        because += (
            f" {len(leaking)} of {len(settings)} settings leak; with {_some(quiet, settings)} no leak was found, but"
            " nothing useful is proven."
        )
    else:
        because += " Every setting leaks."
    return Sharing("no", what.stop, because, what.question)


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


_PUBLISHED = (
    "What is proven holds for a secret key alone: this one is published, so whoever has the config can take the noise"
    " off again. This is not a yes."
)


def _share(results: Results, what: _Shared = UPDATES) -> Sharing:
    verdict, question = results.verdict, what.question
    within = proof(results.attacks, results.epsilon) == "proven"  # if the key is secret
    secret, beyond = results.setup.secret_key, leaking(results.epsilon)
    allowed = within and secret and not beyond
    if verdict.level in ("severe", "high") or (verdict.level == "moderate" and not allowed):
        return Sharing("no", what.stop, verdict.sentences[0], question)
    if within and not secret:
        return Sharing("unproven", "No leak found, but the noise is no secret", _PUBLISHED, question)
    if within:
        bound = _bound(results)
        sentence = f"Proven: no attack can be right more than {bound.right} of the time"
        because = f"{bound.question} No proof covers other observers, or people with much more in it."
        if bound.limited:
            sentence = f"Proven within limits: an attack may be right up to {bound.right} of the time"
            strong = at_most_right(STRONG_EPSILON, 0.0)
            because = f"{because} A strong guarantee (ε ≤ {STRONG_EPSILON:g}) allows {strong}."
        return Sharing("proven", sentence, because, question, bound.limited)
    if not verdict.measured:
        return Sharing("unproven", "Nothing measured, nothing proven", f"{verdict.sentences[0]} {_UNPROVEN}", question)
    because = f"{verdict.sentences[0]} {_unproven(results)}"
    return Sharing("unproven", f"No leak found, {_too_little(results)}", because, question)


def _too_little(results: Results) -> str:
    """Where a proof of use stands beside a row in which there is none, of which unit or towards whom."""
    rows = [row for row in bounding_rows(results.attacks, results.epsilon).values() if row is not None]
    useful = [row for row in rows if row.proven is not None and row.proven <= USEFUL_EPSILON]
    if not useful or any(row.proven is None for row in rows):
        return "nothing proven"
    worst = max(rows, key=lambda row: row.proven or 0.0)
    if any(row.observer == worst.observer for row in useful):
        return f"too little proven per {worst.unit}"
    return f"too little proven towards {words.observer(worst.observer)}"


def _unproven(results: Results) -> str:
    """Of which unit and observer: a smaller ε of another one may stand beside it."""
    rows = [row for row in bounding_rows(results.attacks, results.epsilon).values() if row is not None]
    if not rows:
        return _UNPROVEN
    row = max(rows, key=lambda row: inf if row.proven is None else row.proven)
    return _UNPROVEN.replace(" is proven,", f" is proven {_where(row)},")


@dataclass(frozen=True)
class _Bound:
    """The question on which the proof limits every attack, the share of right answers it allows, and whether that is
    more than a strong guarantee would.
    """

    question: str
    right: str
    limited: bool


def _bound(results: Results) -> _Bound:
    rows = [row for row in bounding_rows(results.attacks, results.epsilon).values() if row is not None]
    row = max(rows, key=lambda row: row.proven or 0.0)
    who = words.listed(list(dict.fromkeys(words.observer(row.observer) for row in rows)))
    delta = f" ({row.adjacency}, δ = {words.number(row.delta)})" if row.delta else f" ({row.adjacency})"
    question = (
        f"Asked whether one {row.unit} took part, from all that {who} sees{delta}; a guess is right half of the time."
    )
    proven = row.proven or 0.0
    return _Bound(question, at_most_right(proven, row.delta or 0.0), proven > STRONG_EPSILON)


def at_most_right(epsilon: float, delta: float) -> str:
    """The share of right answers that (ε, δ) allows to the question "in or out?" at even odds, rounded up but not to
    all of them: (e^ε + δ)/(1 + e^ε), Kairouz, Oh and Viswanath, arXiv:1311.0776, theorem 2.1.

    >>> [at_most_right(x, 0.0).replace("\N{NO-BREAK SPACE}", " ") for x in (0.0, 1.0, 7.3)]
    ['50 %', '73.2 %', '99.94 %']
    """
    wrong = (1 - delta) / (expm1(epsilon) + 2)
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


def _gravity(setting: ReportedSetting) -> tuple[float, ...]:
    """The sort key of settings: the leak found, then that an attack shows it rather than a test of ε, then strength."""
    best = max((strength(attack) for attack in setting.results.attacks), default=(-inf,))
    verdict = setting.results.verdict
    if verdict.level == LEVELS[0]:  # of settings without a leak that of which least is proven
        return 0, PROOFS.index(verdict.proof), inf if verdict.proven is None else verdict.proven, *best
    return LEVELS.index(verdict.level), *best


def _strongest(settings: Sequence[ReportedSetting]) -> Leak | None:
    """The gravest of all settings' leaks; the best attempt where none leaked; None where nothing was tried."""
    found = [
        (grade, strength(leak.attack) if leak.attack else (-inf,), leak)
        for setting in settings
        for grade, leak in _leaks(setting)
    ]
    return max(found, key=lambda entry: entry[:2])[2] if found else None


def _leaks(setting: ReportedSetting) -> list[tuple[int, Leak]]:
    """Each attack's leak, and that of the tests of ε, with how grave it is: 4 at most, 0 is no leak."""
    results = setting.results
    leaks = []
    for attack in results.attacks:
        own = setting.checks(attack)
        if attack.kind not in ("inversion", "membership") or not attack.scored:
            continue
        grade = 1 if any(check.beats for check in own) else 0
        if severely_rebuilt(own):
            grade = 4
        elif clearly_rebuilt(attack, own) or clearly_member(own):
            grade = 3
        if attack.kind == "inversion":
            leaks.append((grade, Leak("images", setting, grade > 0, _rebuilt(setting, attack), attack)))
        elif attack.roc is not None:
            leaks.append((grade, Leak("roc", setting, grade > 0, _recognised(attack), attack)))
        else:
            leaks.append((grade, Leak("number", setting, grade > 0, _recognised(attack), attack, _area(attack), "")))
    if (tested := _tested(setting)) is not None:
        leaks.append(tested)
    return leaks


def _rebuilt(setting: ReportedSetting, attack: AttackResult) -> str:
    share, margin = attack.value(picked(attack).share), attack.value("psnr_margin")
    control, against = setting.compared(attack)
    said = []
    if share is not None:
        interval = attack.intervals.get(picked(attack).share)
        beside = [words.between(interval)] if interval else []
        beside += [] if control is None else [f"{against} {words.percent(control)}"]
        of = "" if attack.n is None else f" of {words.times(attack.n, 'image')}"
        exact = attack.value("exact")
        back = f", {words.percent(exact)} came back exactly" if exact else ""
        compared = f" ({'; '.join(beside)})" if beside else ""
        said.append(f"{words.percent(share)}{of} re-identified{compared}{back}")
    if margin is not None and margin > 0:
        said.append(f"{words.number(margin, 2)} dB closer to the original than the best control")
    elif margin is not None:
        said.append("no closer to the original than the best control")
    return ", ".join(said)


def _recognised(attack: AttackResult) -> str:
    point = strict_point(attack)
    said = f"{_area(attack)} (guessing 0.5)"
    if point is not None:
        said = (
            f"{words.percent(point[0])} of the members recognised while {words.percent(STRICT_FPR)} of outsiders are"
            f" accused; {said}"
        )
    return said


def _area(attack: AttackResult) -> str:
    """AUC, with its interval."""
    interval = attack.intervals.get("auc")
    between = f" ({words.at_least(interval[0])} to {words.at_most(interval[1])})" if interval else ""
    return f"AUC {words.number(attack.value('auc'))}{between}"


def _tested(setting: ReportedSetting) -> tuple[int, Leak] | None:
    """The largest ε that a test demonstrated, beside the claim or proof that it refutes or keeps within."""
    rows = setting.results.epsilon
    pairs = [*refutations(rows), *refutations(rows, "proven")]
    doubts = refuted_on_condition(rows)
    if pairs or doubts:
        shown, limit = max(pairs or doubts, key=lambda pair: most_demonstrated(pair[0]))
        grade = 4 if pairs else 3
    else:
        rows = tuple(row for row in rows if not row.aside)
        shown = limit = max(rows, key=most_demonstrated, default=None)  # type: ignore[assignment]
        if shown is None or not any(row.demonstrated is not None or row.condition for row in rows):
            return None
        grade = 1 if leaking(rows) else 0
    counted = shown.demonstrated is not None and shown.demonstrated >= most_demonstrated(shown)
    value = f"ε ≥ {words.at_least(shown.demonstrated if counted else shown.demonstrated_on_condition)}"
    beside = f"{words.at_most(limit.proven)} proven" if limit.proven is not None else "nothing proven"
    if limit.claimed is not None:
        beside = f"{words.claim(limit.claimed, limit.claimed_by)} claimed, {beside}"
    condition = "" if counted else f", if {shown.condition}"
    if not counted and shown.demonstrated is not None:
        condition += f" (at least {words.at_least(shown.demonstrated)} in any case)"
    said = f"demonstrated by a test, {_where(shown)}{condition}"
    return grade, Leak("number", setting, grade > 0, said, None, value, beside)


def _losses(settings: Sequence[ReportedSetting], worst: ReportedSetting) -> Losses | None:
    """The ε that the config asks about; else the one that most claims are about, or that of the worst setting's
    headline where nothing is claimed.
    """
    asked = next((row for row in worst.results.epsilon if row.asked), None)
    claims = [_place(row) for setting in settings for row in setting.results.epsilon if row.claimed is not None]
    head = worst.headline
    if head is None and not claims:
        head = next((setting.headline for setting in settings if setting.headline is not None), None)
        if head is None:
            return None
    refuted = [row for _, row in (*refutations(worst.results.epsilon), *refuted_on_condition(worst.results.epsilon))]
    if refuted:
        place = _place(refuted[0])
    elif asked is not None:
        place = _place(asked)
    else:
        place = max(claims, key=claims.count) if claims else _place(head)  # type: ignore[arg-type]
    rows = [(setting.label, row) for setting in settings for row in setting.results.epsilon if _place(row) == place]
    first = rows[0][1]
    claimants = {row.claimed_by for _, row in rows if row.claimed is not None}
    most, shown = max(rows, key=lambda pair: (pair[1].demonstrated is not None, pair[1].demonstrated or 0.0))
    conditional = max((row for _, row in rows), key=lambda row: row.demonstrated_on_condition or -1.0)
    return Losses(
        unit=first.unit,
        observer=words.observer(first.observer),
        adjacency=first.adjacency,
        delta=first.delta,
        settings=len(settings),
        proven=_range([(label, row.proven) for label, row in rows]),
        claimed=_range([(label, row.claimed) for label, row in rows]),
        claimed_by=claimants.pop() if len(claimants) == 1 else "",
        demonstrated=shown.demonstrated,
        demonstrated_in=most if shown.demonstrated is not None and len(settings) > 1 else "",
        confidence=shown.confidence if shown.demonstrated is not None else None,
        on_condition=words.on_condition(conditional) or "",
        refuted=tuple(said for setting in settings if (said := _refuted(setting))),
        secret=all(setting.results.setup.secret_key for setting in settings),
    )


def _refuted(setting: ReportedSetting) -> str:
    """The setting's claim, else its proof, beside the most that refutes it; on a condition only where nothing else
    does; "" where nothing is refuted.
    """
    rows = setting.results.epsilon
    for on_condition in (False, True):
        for what in CLAIM_OR_PROOF:
            pairs = refutations(rows, what, on_condition)
            if not pairs:
                continue
            shown, limit = max(pairs, key=lambda pair: most_demonstrated(pair[0]))
            condition = f" if {shown.condition}" if on_condition else ""
            most = words.at_least(shown.demonstrated_on_condition if on_condition else shown.demonstrated)
            if what == "claimed":
                refuted = f"The claim ε = {words.number(limit.claimed)} of “{setting.label}” is refuted"
            else:
                refuted = f"The proof of ε ≤ {words.at_most(limit.proven)} of “{setting.label}” is contradicted"
            there = " on that condition" if on_condition else ""
            return f"{refuted}{condition}: at least {most}{there} was demonstrated, per {shown.unit}."
    return ""


def _place(row: Epsilon) -> tuple[str, str, str, float | None]:
    return row.observer, row.unit, row.adjacency, row.delta


def _range(values: Sequence[tuple[str, float | None]]) -> Range | None:
    known = [(value, label) for label, value in values if value is not None]
    if not known:
        return None
    (low, least), (high, _) = min(known, key=lambda pair: pair[0]), max(known, key=lambda pair: pair[0])
    return Range(low, high, len(known), least if low < high else "")


def _change(settings: Sequence[ReportedSetting], worst: ReportedSetting) -> Change:
    """A setting that is proven and whose attacks got no more than chance; else the noise that a useful proof takes;
    never one in which attacks merely failed.
    """
    kept = [s for s in settings if _share(s.results).answer == "proven" and not above_chance(s.results)]
    if kept:
        return _keep(max(kept, key=_usefulness), len(settings))
    if any(_share(setting.results).because == _PUBLISHED for setting in settings):
        return Change(
            "Train again with a secret noise key: leave `--noise-key published` out, and the same noise proves what is"
            " said here",
            "unknown",
            accuracy_now=_accuracy_now(worst),
        )
    if refutations(worst.results.epsilon, "proven") or refutations(worst.results.epsilon, "proven", on_condition=True):
        return Change(
            "Find the fault first: more was demonstrated than is proven, so the proof does not describe what ran, and"
            " no amount of noise can be computed from it",
            "unknown",
            accuracy_now=_accuracy_now(worst),
        )
    alike = [setting for setting in settings if _training(setting.results) == _training(worst.results)]
    priced = [(setting, rows) for setting in alike if (rows := _wanted(setting)) and _scale(setting, rows)]
    if not priced:
        return _first_steps(worst)
    return _computed(*min(priced, key=lambda pair: max(row.proven or inf for row in pair[1])), alike, len(settings))


def _usefulness(setting: ReportedSetting) -> tuple[float, float]:
    setup = setting.results.setup
    return -1.0 if setup.test_accuracy is None else setup.test_accuracy, -(setup.noise_std or 0.0)


def _keep(setting: ReportedSetting, count: int) -> Change:
    results = setting.results
    rows = [row for row in bounding_rows(results.attacks, results.epsilon).values() if row is not None]
    row = max(rows, key=lambda row: row.proven or 0.0)
    sentence = f"Use the noise of “{setting.label}”" if count > 1 else "Keep this noise: the proof rests on it"
    if count > 1 and words.no_better_than_guessing(results.setup):
        sentence += ", if its model is of any use: it only guesses"
    return Change(
        sentence,
        "measured",
        results.setup.noise_std,
        results.server_noise_std,
        row.proven,
        _where(row),
        results.setup.test_accuracy,
        words.accuracy_said(results.setup, setting.without_noise).partition(" (")[2].removesuffix(")"),
        clip_norm=results.setup.clip_norm,
    )


def _training(results: Results) -> tuple[object, ...]:
    """What must be equal for the noise of one setting to say anything of another's."""
    setup = results.setup
    model = setup.model and (setup.model.name, setup.model.parameters)
    return setup.data.get("name"), model, setup.share, setup.clients, setup.rounds


def _wanted(setting: ReportedSetting) -> list[Epsilon]:
    """The rows a proof is wanted for: of the headline, the claim and all rows that the verdict counts those in which
    too little is proven, as noise that cures one row alone would leave the page as red as it is; else the row of which
    least is proven.
    """
    results = setting.results
    claims = (r for r in results.epsilon if r.claimed is not None and isfinite(r.claimed) and not r.aside)
    counted = bounding_rows(results.attacks, results.epsilon).values()
    found = (setting.headline, next(claims, None), *counted)
    rows = list({id(row): row for row in found if row is not None}.values())
    if unmet := [row for row in rows if not _met(row)]:
        return unmet
    return [max(rows, key=lambda row: row.proven or 0.0)] if rows else []


def _met(row: Epsilon) -> bool:
    """Whether as little is proven as is claimed, and that is of use."""
    return row.proven is not None and row.proven <= min(USEFUL_EPSILON, (row.claimed or inf) * 1.001)


def _scale(setting: ReportedSetting, rows: Sequence[Epsilon]) -> bool:
    """Whether a formula says what more of this setting's noise would prove."""
    has_noise = bool(setting.results.setup.noise_std or setting.results.server_noise_std)
    return has_noise and all(noise_factor(row, USEFUL_EPSILON) is not None for row in rows)


def _target(row: Epsilon, alike: Sequence[ReportedSetting]) -> tuple[float, str]:
    """The ε to prove, and why this one: the claim, where all settings have one and the same; else 10, or 1 where 10 is
    proven already, or half of what is proven.
    """
    same = [own for setting in alike for own in _wanted(setting) if _place(own) == _place(row)]
    claims = {own.claimed for own in same if own.claimed is not None}
    proven = row.proven or 0.0
    claimed = row.claimed is not None and len(claims) == 1
    wishes = [
        *((claim, "That is what is claimed") for claim in (claims if claimed else ())),
        (USEFUL_EPSILON, ""),  # the first screen says that a proof above it promises little
        (1.0, f"{USEFUL_EPSILON:g} is proven already; 1 is a strong guarantee"),
    ]
    half = proven / 2, f"{words.at_most(proven)} is proven already; this is half of it"
    return next((wish for wish in wishes if 0 < wish[0] <= USEFUL_EPSILON and wish[0] < 0.999 * proven), half)


def _computed(
    setting: ReportedSetting, rows: Sequence[Epsilon], alike: Sequence[ReportedSetting], count: int
) -> Change:
    """The noise of the row that takes most of it."""
    setup, server = setting.results.setup, setting.results.server_noise_std
    targets = [(row, *_target(row, alike)) for row in rows]
    factors = [noise_factor(row, target) or 0.0 for row, target, _ in targets]  # `_scale` has asked: none is None
    factor = max(factors)
    row, target, why = targets[factors.index(factor)]
    name = f" of “{setting.label}”" if count > 1 else ""
    now = f" (noise_std {words.number(setup.noise_std)})" if setup.noise_std else ""
    typed = _typed(setup.scheme, setup.parameters, factor)
    take = f"ake {words.at_most(factor, 2)} times the noise{name}{now}{typed}"
    return Change(
        f"T{take}" if setup.secret_key else f"Train with a secret noise key, and t{take}",
        "computed",
        setup.noise_std * factor if setup.noise_std else None,
        server * factor if server else None,
        target,
        _where(row),
        accuracy_now=_accuracy_now(setting),
        why=why,
        clip_norm=setup.clip_norm,
    )


def _typed(scheme: str, parameters: Mapping[str, object], factor: float) -> str:
    """The noise in the scheme's own parameter, as a config has it; "" where that one is not in proportion to it."""
    preset = PRESETS.get(scheme)
    for name in (*preset.noise[:1], "sigma") if preset else ():
        if isinstance(value := parameters.get(name), int | float) and name != "noise_std":
            return f", {name} = {words.at_most(value * factor)}"
    return ""


def _accuracy_now(setting: ReportedSetting) -> str:
    """The accuracy that was measured, beside that without noise and what guessing gets; "" where it was not."""
    setup, server = setting.results.setup, setting.results.server_noise_std
    if setup.test_accuracy is None:
        return ""
    accuracies = [f"{words.percent(setup.test_accuracy)} at {words.noise(setup.noise_std, server)}"]
    if setting.no_noise_accuracy is not None and not noiseless(setting.results):
        accuracies.append(f"{words.percent(setting.no_noise_accuracy)} without noise")
    if setup.chance_accuracy is not None:
        accuracies.append(f"{words.percent(setup.chance_accuracy)} by guessing")
    return f"it is {words.listed(accuracies)}"


def _first_steps(setting: ReportedSetting) -> Change:
    """What to do where no formula gives the noise."""
    results = setting.results
    setup = results.setup
    steps = []
    if setup.clip_norm is None:
        steps.append("clip every update to a fixed, public norm")
    if not setup.noise_std and not results.server_noise_std:
        steps.append("add noise before anything leaves the client")
    text = words.listed(steps or ["add more noise"])
    asked = f"--target-epsilon {USEFUL_EPSILON:g}"
    if not setup.noise_std and not results.server_noise_std:  # a scheme without noise has none to compute
        asked = f"--set scheme.name=local-gaussian --set scheme.clip=1 --set scheme.target_epsilon={USEFUL_EPSILON:g}"
    return Change(
        f"{text[0].upper()}{text[1:]}",
        "unknown",
        note=(f"`audit epsilon CONFIG {asked}` computes how much of it proves ε ≤ {USEFUL_EPSILON:g}."),
        accuracy_now=_accuracy_now(setting),
    )


def _where(row: Epsilon) -> str:
    delta = "" if row.delta is None else f", δ = {words.number(row.delta)}"
    return f"per {row.unit} towards {words.observer(row.observer)} ({row.adjacency}{delta})"
