"""`audit run --attack canary`: what canaries demonstrate of a setup, row by row of its ε table.

The auditor plays the attacker: it takes the client's own records, the model each round began with and the config, and
runs the setup's own code in two worlds. It needs the records (truth/), never the captured noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

from ....attacks.canary import CraftedStart
from ....defenses.progress import Progress
from ....defenses.randomness import stream
from ....defenses.schedule import reads_history
from ....defenses.terms import Observer
from ....defenses.threads import THREADED, one_thread
from ....defenses.workers import HERE, Workers
from ...errors import BadInput
from ...proof.theorems.gaussian import gaussian_multiplier
from ...results.format import CRAFTED_WEIGHTS, AttackResult, Epsilon, Metrics
from ...say.warnings import not_tested
from ...setup.auditor import Auditor
from ...setup.experiment import Experiment
from ...two_worlds.coin_ledger import Round, composed, planned_rounds, with_a_draw
from ...two_worlds.draws import MechanismAudit, audit_trials
from ...two_worlds.estimators import LowerBound
from ...two_worlds.estimators.betting import betting_ceiling
from ...two_worlds.measured import Measured, judged_on_condition, judgement, measured_of
from ...two_worlds.sequential import BoundRule
from .case import CanaryCase, NoDemonstration, Question, releases_seen, trial_cost
from .client_round import constants_apart, from_crafted
from .coins import CoinAudit, CoinRun, coin_flips
from .end_to_end import TrainedWorlds, end_to_end
from .plan import AuditPlan, CanarySettings, Protocol, calibrating, counting_takes, planned, rounds_tested
from .shape import noise_last, not_gaussian
from .trials import FederationTrials


@dataclass(frozen=True)
class Shown:
    """What a demonstration adds to its row of the ε table.

    demonstrated: a lower bound on ε by counting, whatever the mechanism. ceiling: the most that could have been shown.
    condition: what must hold for a further bound, `demonstrated_on_condition` (of at most `ceiling_on_condition`); ""
      where counting alone is valid.
    demonstrated_from: as in `Epsilon`.
    notes: sentences with the canary, the assumptions and the meaning.
    """

    demonstrated: float
    confidence: float
    ceiling: float
    notes: tuple[str, ...]
    condition: str = ""
    demonstrated_on_condition: float | None = None
    ceiling_on_condition: float | None = None
    demonstrated_from: str = ""

    def judges(self, value: float) -> tuple[float, float]:
        """The bound that an ε of `value`, claimed or proven, is judged by, and its ceiling."""
        counted = self.demonstrated, self.ceiling
        if self.demonstrated_on_condition is None or self.ceiling_on_condition is None:
            return counted
        on_condition = self.demonstrated_on_condition, self.ceiling_on_condition
        if judged_on_condition(counted, on_condition, value):
            return on_condition
        return counted


@dataclass(frozen=True, eq=False)
class Demonstration:
    """One row's demonstration.

    row: what it adds to the row, None where nothing was measured. attacks: entries for "attacks" in results.json.
    not_measured: why nothing was measured, "" if it was.
    """

    row: Shown | None
    attacks: tuple[AttackResult, ...] = ()
    not_measured: str = ""


def demonstrate_rows(
    source: Auditor | Experiment,
    rows: Sequence[Epsilon],
    settings: CanarySettings,
    seed: int = 0,
    progress: Progress | None = None,
    observers: Sequence[Observer] = (),
    workers: Workers = HERE,
) -> tuple[list[Epsilon], list[AttackResult], list[str]]:
    """The ε table's rows, with `demonstrated`, `confidence` and `ceiling` where settings ask for it; entries; warnings.

    The bounds of all rows and protocols, by counting and on a condition, hold together with the settings' confidence,
    each by itself with more (Bonferroni).

    Args:
        source: what is audited.
        rows: the ε table.
        settings: which rows to fill, and how.
        seed: of all draws.
        progress: called in the course of every protocol.
        observers: whom the run is about, where the settings name none.
        workers: who draws and trains.
    """
    wanted = [_wanted(row, source, settings, observers) for row in rows]
    if not any(wanted):
        return list(rows), [], ["No canary audit: no ε is priced for the observers, units and adjacencies asked for."]
    checks = sum(wanted) * len(settings.protocols)
    settings = replace(settings, confidence=1 - (1 - settings.confidence) / checks)
    filled: list[Epsilon] = []
    attacks: list[AttackResult] = []
    for row, asked in zip(rows, wanted):
        if not asked:
            filled.append(row)
            continue
        shown = demonstrate(source, settings, Question.of(row), seed, progress, workers)
        attacks += shown.attacks
        if shown.row is None:
            filled.append(row.having(untested=shown.not_measured))
            continue
        filled.append(row.having(**{**vars(shown.row), "notes": (*row.notes, *shown.row.notes)}))
    return filled, attacks, not_tested(filled)


def _wanted(
    row: Epsilon, source: Auditor | Experiment, settings: CanarySettings, observers: Sequence[Observer]
) -> bool:
    config = (source.setup if isinstance(source, Auditor) else source).config.audit
    who = settings.observers or tuple(map(str, observers))
    if settings.observers or settings.units or settings.adjacencies:
        chosen = ((who, row.observer), (settings.units, row.unit), (settings.adjacencies, row.adjacency))
        return all(not names or value in names for names, value in chosen)
    asked = row.observer in (who or (str(config.observer),))
    return row.claimed is not None or (asked and (row.unit, row.adjacency) == (config.unit, config.adjacency))


def demonstrate(
    source: Auditor | Experiment,
    settings: CanarySettings,
    question: Question,
    seed: int = 0,
    progress: Progress | None = None,
    workers: Workers = HERE,
) -> Demonstration:
    """What canaries demonstrate for one row.

    Where that cannot be measured (no truth/, data that cannot be loaded again, an observer who sees no message of the
    client), `not_measured` has the reason and nothing is raised.

    Args:
        source: a trained setup's auditor, or an experiment.
        settings: protocols, canaries and how many trials.
        question: the row of the ε table.
        seed: of all draws.
        progress: called with trials done and in all. workers: who draws and trains.
    """
    settings = settings.scaled()
    try:
        case = replace(CanaryCase.of(source, settings, question, seed), workers=workers)
    except (NoDemonstration, BadInput) as reason:
        return Demonstration(None, not_measured=str(reason).rstrip("."))
    row: Shown | None = None
    entries: list[AttackResult] = []
    reasons = []
    for protocol in settings.protocols:
        try:
            measured = _PROTOCOLS[protocol](_sharing(case, protocol), _Step(progress, protocol))
        except ValueError as reason:
            reasons.append(f"{protocol}: {str(reason).rstrip('.')}")
            continue
        metrics = Metrics.of({**measured.metrics, **_failure(measured, protocol, question.claimed)})
        numbers = {name: getattr(measured, name) for name in ("n", "manner", "intervals", "controls")}
        entries.append(case.entry(protocol).having(**numbers, metrics=metrics))
        if row is None:
            row = _row(measured, case, protocol)
    return Demonstration(row, tuple(entries), "; ".join(reasons) if row is None else "")


def _sharing(case: CanaryCase, protocol: Protocol) -> CanaryCase:
    """The case with half the risk of error for each bound, where the protocol gives two of which either may refute."""
    if case.question.delta == 0 or not_gaussian(case, protocol):
        return case
    return replace(case, settings=replace(case.settings, confidence=(1 + case.settings.confidence) / 2))


@dataclass(frozen=True)
class _Step:
    """Progress of one protocol, in words."""

    progress: Progress | None
    words: str

    def __call__(self, done: int, total: int, words: str = "") -> None:
        if self.progress is not None:
            self.progress(done, total, f"canary: {words or self.words}")

    def about(self, words: str) -> _Step:
        return _Step(self.progress, f"{self.words}, {words}")


# --- the protocols ---


def _mechanism(case: CanaryCase, step: _Step) -> Measured:
    _sees_rounds(case)
    messages = case.messages()
    return _trials(case, "mechanism", messages, _plan(case, messages), step)


def _sees_rounds(case: CanaryCase) -> None:
    observer = case.question.observer
    if not observer.sees_every_round and releases_seen(case.federation, observer) > 1:
        raise ValueError(f"{observer.words} sees no single round; --set 'canary.protocols=[\"end-to-end\"]' audits it")


def _plan(case: CanaryCase, messages: list[FederationTrials]) -> AuditPlan:
    cost = trial_cost(case.experiment, case.question.observer, case.client)
    allowed = planned(
        case.settings,
        dim=sum(messages[0].sizes),
        rounds=len(messages),
        target=case.question.target,
        delta=case.question.delta,
        training=cost,
    )
    return replace(
        allowed, rounds=len(messages), seconds=_seconds(messages) * 2 * (allowed.draws + allowed.calibration)
    )


def _redrawn(case: CanaryCase, step: _Step) -> Measured:
    messages = case.messages(redraw=True)[:1]
    draws, confidence = case.settings.redrawn, case.settings.confidence
    most = betting_ceiling(draws, case.question.delta, 1 - confidence)
    planning = AuditPlan(1, draws, calibrating(draws), most, None)
    return _trials(case, "mechanism-redrawn", messages, planning, step)


def _trials(
    case: CanaryCase, protocol: Protocol, messages: list[FederationTrials], planning: AuditPlan, step: _Step
) -> Measured:
    why_not = not_gaussian(case, protocol)
    rule = BoundRule(
        case.question.delta,
        case.settings.confidence,
        gaussian=not why_not,
        noise_last=noise_last(case),
        targets=tuple(case.question.targets) if case.settings.stop else (),
    )
    trains = protocol == "mechanism-redrawn" or case.federation.scheme.local.per_example is not None
    with one_thread(THREADED if trains else sum(messages[0].sizes)):  # trainings are dealt to threads
        audit = audit_trials(
            messages,
            rule,
            draws=planning.draws,
            calibration=planning.calibration,
            seed=stream(case.seed, "canary audit"),
            progress=step.about(planning.sentence),
            workers=case.workers,
        )
    manner = "one-round"
    if len(messages) > 1:
        manner = "all-rounds"
    return measured_of(audit, len(audit.scores_in), manner, why_not)


def _coins(case: CanaryCase, step: _Step) -> Measured:
    _sees_rounds(case)
    if case.whole:
        raise ValueError(
            "the noise of a round is in other rounds too, so no round is a trial of its own; the protocols mechanism"
            " and end-to-end look at all of them"
        )
    if constants_apart(case.worlds(case.rounds[0])) is not None:
        raise ValueError(
            "the model's mean and std are told once, before the first round; no round's coin can decide them"
        )
    own, why_not = planned_rounds(case.ledger, case.client, case.question.observer), not_gaussian(case, "rounds")
    drawn = min((r.rate for r in own), default=1.0)
    if drawn < 1 and (case.question.unit, case.question.adjacency) != ("client", "zero_out"):
        raise ValueError(
            "coins are flipped in rounds that the client is in, and what its secret draw hides under"
            f" {case.question.unit}, {case.question.adjacency} is not measured so"
        )
    run = CoinRun(
        case.settings.coin_rounds,
        own,
        case.aggregate,
        case.experiment.config.audit.honest,
        stream(case.seed, "canary coins"),
    )
    rule = BoundRule(case.question.delta, case.settings.confidence, not why_not, noise_last(case))
    audit = coin_flips(case.federation, case.client, case.worlds, run, rule, progress=step)
    one, gdp = _of_any_round(audit, drawn), audit.per_round.if_gaussian
    measured = measured_of(one, audit.measured, "one-round", why_not)
    if gdp is None:
        return measured
    bound, how = _over_rounds(audit, gdp, own, case.client)
    measured = replace(measured, if_gaussian=bound, how=how, manner="all-rounds" if audit.steady else "one-round")
    more: dict[str, float | None] = {"mu": audit.mu, "epsilon_composed": bound.epsilon}
    if drawn == 1:
        more["epsilon_one_run"] = audit.one_run.epsilon
        if audit.one_run_fdp is None:
            more["epsilon_one_run_if_gaussian"] = None
        else:
            more["epsilon_one_run_if_gaussian"] = audit.one_run_fdp.epsilon
        if audit.one_run_shift is None:
            more["epsilon_one_run_if_alone"] = None
        else:
            more["epsilon_one_run_if_alone"] = audit.one_run_shift.epsilon
    return replace(measured, metrics={**measured.metrics, **more})


def _over_rounds(audit: CoinAudit, gdp: LowerBound, own: Sequence[Round], client: int) -> tuple[LowerBound, str]:
    """One round's μ over the client's own rounds, or one round's ε where it says nothing of the others; and how."""
    value, how = audit.composed(own, gdp.delta)
    best, _ = replace(audit, mu=1 / gaussian_multiplier(gdp.ceiling, gdp.delta)).composed(own, gdp.delta)
    drawn = ""
    if any(r.rate < 1 for r in own):
        drawn = ", drawn in secret as stated"
    bound = replace(gdp, epsilon=value, ceiling=best, assumption="the noise of every round is Gaussian")
    return bound, f"of the rounds planned for client {client}{drawn}, {how}"


def _of_any_round(audit: CoinAudit, rate: float) -> MechanismAudit:
    """What coins in the rounds that the client is in say of a round that it is in at `rate`, in secret."""
    one, gdp = audit.per_round, audit.per_round.if_gaussian
    counted = with_a_draw(one.counted, rate)
    if gdp is None:
        return replace(one, counted=counted)
    mus = (audit.mu, 1 / gaussian_multiplier(gdp.ceiling, gdp.delta))
    low, most = (composed([(mu, rate)], gdp.delta)[0] for mu in mus)
    return replace(one, counted=counted, if_gaussian=replace(gdp, epsilon=low, ceiling=most))


def _end_to_end(case: CanaryCase, step: _Step) -> Measured:
    if not case.question.observer.needs_server:
        raise ValueError(f"{case.question.observer} does not see the final model")
    moment, why_not = case.rounds[0], not_gaussian(case, "end-to-end")
    worlds = case.worlds(moment)
    if case.settings.initial_weights == "crafted":
        worlds = from_crafted(moment, worlds, case.place, CraftedStart())
    federation = replace(case.federation, evaluate=reads_history(case.federation.scheme.schedule))
    audit = end_to_end(
        TrainedWorlds(federation, moment, worlds, case.place, case.secrets()),
        case.settings.replicas,
        BoundRule(case.question.delta, case.settings.confidence, gaussian=not why_not),
        seed=stream(case.seed, "canary replicas"),
        progress=step,
        workers=case.workers,
    )
    return measured_of(audit, case.settings.replicas, "all-rounds", why_not)


_PROTOCOLS: dict[str, Callable[[CanaryCase, _Step], Measured]] = {
    "mechanism": _mechanism,
    "mechanism-redrawn": _redrawn,
    "rounds": _coins,
    "end-to-end": _end_to_end,
}


def _seconds(messages: list[FederationTrials]) -> float:
    """What one draw of a trial takes, measured on one."""
    began = time.perf_counter()
    for message in messages:
        message.draw(0, [0], True)
    return time.perf_counter() - began


# --- numbers and sentences ---


def _failure(measured: Measured, protocol: str, claimed: float | None) -> dict[str, float | None]:
    """How badly the claim fails: the δ that its ε would need, by the counts of the bound that judges it.

    Nothing for coins: they count one round, and the claim is about all.
    """
    if claimed is None or not isfinite(claimed) or protocol == "rounds":
        return {}
    return {"delta_at_claim": measured.delta_at(claimed)}


def _row(measured: Measured, case: CanaryCase, protocol: str) -> Shown:
    """What goes into the ε table: numbers, and sentences with the canary, what was assumed and what it means."""
    claimed, proven, target = case.question.claimed, case.question.proven, case.question.target
    if case.place is not None:
        where = f"record {case.place} of client {case.client}"
    else:
        where = f"client {case.client}"
    notes: list[str] = []
    if claimed is not None:
        notes.append(judgement(measured.judging(claimed), claimed, "claim"))
    if proven is not None and isfinite(proven):
        notes.append(judgement(measured.judging(proven), proven, "proof"))
    if protocol == "mechanism":
        notes += filter(None, [rounds_tested(len(case.rounds), releases_seen(case.federation, case.question.observer))])
    notes += measured.notes(f"{case.name!r} ({where})", f"protocol {protocol!r}: {case.told(protocol)}")
    if measured.ceiling <= target < inf:
        if measured.why_not:
            notes.append(f"Only counting is valid here: {measured.why_not}.")
        if protocol != "rounds":  # coins count one round, and the target is about all
            notes.append(counting_takes(target, measured.counted.delta, measured.counted.confidence))
    chosen = ""
    if case.weights(protocol) == "crafted":
        chosen = CRAFTED_WEIGHTS
    return Shown(notes=tuple(notes), demonstrated_from=chosen, **measured.shown)
