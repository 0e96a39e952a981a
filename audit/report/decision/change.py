"""The one change that helps most: which noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from ....defenses.presets import PRESETS
from ....defenses.terms import Observer
from ...judge.question import RowQuestion
from ...proof.theorems.gaussian import gaussian_epsilon, gaussian_multiplier
from ...results.checks import USEFUL_EPSILON
from ...results.format import Epsilon, Results
from ...say import change as say
from ...say import words
from ..facts import ReportedSetting
from ..together import noiseless
from .sharing import share_one

WANTED = 8.0  # ε where nothing useful is proven yet, as of the config that `audit init` writes


@dataclass(frozen=True)
class Change:
    """The one change that helps most.

    sentence: what to do. basis: measured, where this very setting was trained and attacked; computed, where its noise
      follows from the proof's formula; unknown, where not even its noise is known; own code, where it is somebody's
      function and no setting of ours.
    noise_std, server_noise_std: in parameter units, at this clip_norm. proven: the ε that this noise proves, for what
      `where` says.
    noised: what `noise_std` is on, in words, "" where it is not known.
    why: of a computed target, why this ε, a sentence. accuracy: of the final model, None where it was not measured.
    accuracy_now: what was measured before the change, in words. note: what else to know. further: what would help
      beside noise, a sentence each.
    """

    sentence: str
    basis: Literal["measured", "computed", "unknown", "own code"]
    noise_std: float | None = None
    server_noise_std: float | None = None
    proven: float | None = None
    where: str = ""
    accuracy: float | None = None
    note: str = ""
    accuracy_now: str = ""
    why: str = ""
    clip_norm: float | None = None
    noised: str = ""
    further: tuple[str, ...] = ()


def change_of(settings: Sequence[ReportedSetting], worst: ReportedSetting) -> Change:
    """A setting that is proven and whose attacks got no more than chance; else the noise that a useful proof takes;
    never one in which attacks merely failed.
    """
    if worst.results.setup.own_code:
        return _of_own_code(worst)
    answers = [(setting, share_one(setting)) for setting in settings]
    kept = [s for s, answer in answers if answer.answer == "proven" and not s.judgement.more_than_luck]
    if kept:
        return _keep(max(kept, key=_usefulness), len(settings))
    if any(answer.reason == "published key" for _, answer in answers):
        return Change(say.SECRET_KEY, "unknown", accuracy_now=_accuracy_now(worst))
    if worst.judgement.violated:
        return Change(say.FIND_VIOLATION, "unknown", accuracy_now=_accuracy_now(worst))
    if worst.results.setup.contradicted:
        return Change(say.FIND_DIFFERENCE, "unknown", accuracy_now=_accuracy_now(worst))
    if worst.judgement.contradicted or worst.judgement.refuting("proven"):
        return Change(say.FIND_FAULT, "unknown", accuracy_now=_accuracy_now(worst))
    alike = [setting for setting in settings if _training(setting.results) == _training(worst.results)]
    priced = [(setting, rows) for setting in alike if (rows := _wanted(setting)) and _scale(setting, rows)]
    if not priced:
        return _first_steps(worst)
    return _computed(*min(priced, key=lambda pair: max(row.proven or inf for row in pair[1])), alike, len(settings))


def _of_own_code(setting: ReportedSetting) -> Change:
    """Nothing was priced, so no noise can be computed."""
    if setting.judgement.violated:
        return Change(f"{say.FIND_VIOLATION}.", "own code")
    if setting.judgement.refuting("claimed"):
        sentence = say.FIND_IN_CODE
    else:
        sentence = say.PRICE_CODE
    return Change(sentence, "own code", note=say.PRICE_CODE_NOTE)


def _usefulness(setting: ReportedSetting) -> tuple[float, float]:
    setup = setting.results.setup
    return -1.0 if setup.test_accuracy is None else setup.test_accuracy, -(setup.noise_std or 0.0)


def _keep(setting: ReportedSetting, count: int) -> Change:
    setup = setting.results.setup
    row = max(setting.judgement.rows.bounding, key=lambda row: row.proven or 0.0)
    return Change(
        say.keep(setup, setting.label if count > 1 else "", _parameter(setup.scheme, setup.parameters, 1.0)),
        "measured",
        setup.noise_std,
        setting.results.server_noise_std,
        row.proven,
        words.where(row),
        setup.test_accuracy,
        say.accuracy_beside(setup, setting.without_noise),
        clip_norm=setup.clip_norm,
        noised=say.noised(setup),
        further=_further(setting),
    )


def _training(results: Results) -> tuple[object, ...]:
    """What must be equal for the noise of one setting to say anything of another's."""
    setup = results.setup
    model = setup.model and (setup.model.name, setup.model.parameters)
    return setup.data.get("name"), model, setup.share, setup.clients, setup.rounds


def _wanted(setting: ReportedSetting) -> list[Epsilon]:
    """The rows a proof is wanted for: of the quoted one, the claim and all rows that the judgement counts those in
    which too little is proven, as noise that cures one row alone would leave the page as red as it is; else the row of
    which least is proven.
    """
    judgement = setting.judgement
    claims = (r for r in judgement.epsilon if r.claimed is not None and isfinite(r.claimed) and not r.aside)
    counted = (judgement.rows.quoted, next(claims, None), *judgement.rows.bounding)
    rows = list({id(row): row for row in counted if row is not None}.values())
    if unmet := [row for row in rows if not _met(row)]:
        return unmet
    return sorted(rows, key=lambda row: -(row.proven or 0.0))[:1]


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
    question, proven = RowQuestion.about(row), row.proven or 0.0
    same = [each for setting in alike for each in _wanted(setting) if RowQuestion.about(each) == question]
    claims = {each.claimed for each in same if each.claimed is not None}
    wishes = [
        (USEFUL_EPSILON, ""),  # the first screen says that a proof above it promises little
        (1.0, say.STRONG),
    ]
    if row.claimed is not None and len(claims) == 1:
        wishes.insert(0, (row.claimed, say.CLAIMED))
    half = proven / 2, say.half_of(proven)
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
    label = ""
    if count > 1:
        label = setting.label
    parameter = _parameter(setup.scheme, setup.parameters, factor)
    return Change(
        say.more_noise(setup, factor, label, parameter, _claim_is_false(setting)),
        "computed",
        setup.noise_std * factor if setup.noise_std else None,
        server * factor if server else None,
        target,
        words.where(row),
        accuracy_now=_accuracy_now(setting),
        why="; ".join(filter(None, (why, _asked_then(setting, row, factor)))),
        clip_norm=setup.clip_norm,
        noised=say.noised(setup),
        further=_further(setting),
    )


def _asked_then(setting: ReportedSetting, row: Epsilon, factor: float) -> str:
    """What that noise proves of the row that is asked about, where it is not the one that needs most."""
    asked = setting.judgement.rows.asked
    if asked is None or asked is row or noise_factor(asked, USEFUL_EPSILON) is None or not asked.mu or not asked.delta:
        return ""
    return say.asked_then(gaussian_epsilon(factor / asked.mu, asked.delta), asked, row)


def _claim_is_false(setting: ReportedSetting) -> bool:
    """A formula that says less than is proven says so of more noise as well, and would be refuted again."""
    rows = [row for row in setting.results.epsilon if row.claimed is not None and row.claimed_by == "paper"]
    return any((row.proven or 0.0) > 1.001 * (row.claimed or 0.0) for row in rows)


def _parameter(scheme: str, parameters: Mapping[str, object], factor: float) -> str:
    """The noise in the scheme's own parameter, as a config has it; "" where that one is not in proportion to it."""
    preset = PRESETS.get(scheme)
    if parameters.get("schedule", "constant") != "constant":
        return ""  # σ follows the schedule, whatever sigma says
    for name in (*preset.noise[:1], "sigma") if preset else ():
        if isinstance(value := parameters.get(name), int | float) and name != "noise_std":
            return f"{name} = {words.at_most(value * factor)}"
    return ""


def _accuracy_now(setting: ReportedSetting) -> str:
    without_noise = None if noiseless(setting.results) else setting.no_noise_accuracy
    return say.accuracy_now(setting.results.setup, setting.results.server_noise_std, without_noise)


def _first_steps(setting: ReportedSetting) -> Change:
    """What to do where no formula gives the noise."""
    setup = setting.results.setup
    noisy = bool(setup.noise_std or setting.results.server_noise_std)
    wanted = _wanted(setting)
    targets = [_target(row, [setting])[0] for row in wanted if row.proven and isfinite(row.proven)]
    steps = say.first_steps(setup, noisy)
    unit = "client"
    if wanted:
        unit = wanted[0].unit
    note = say.first_steps_note(noisy, unit, min(targets, default=WANTED), config=not setup.recorded)
    return Change(steps, "unknown", note=note, accuracy_now=_accuracy_now(setting), further=_further(setting))


def _further(setting: ReportedSetting) -> tuple[str, ...]:
    """What would help beside noise, a sentence each; none of it was attacked."""
    setup, sentences = setting.results.setup, []
    if _leaks_only_together(setting):
        sentences.append(say.FEWER_ROUNDS)
    clip, median = setup.clip_norm, setup.norm_before_clip_median
    if setup.share_clipped == 0 and clip and median and median < clip:
        sentences.append(say.smaller_clip(clip, median))
    unbounded = [row for row in _wanted(setting) if row.proven == inf]
    if unbounded and clip and setup.noise_std:
        sentences.append(say.PUBLIC_BOUNDS)
    uploads_seen = any(not Observer.parse(row.observer).sees_merged_only for row in unbounded)
    if uploads_seen and setting.results.server_noise_std and not setup.noise_std:
        sentences.append(say.NOISE_OF_CLIENTS)
    return tuple(sentences)


def _leaks_only_together(setting: ReportedSetting) -> bool:
    """Whether an attack on all rounds together beats its control, and neither it nor another does on one round."""
    checks = [(judged.attack, check.beats) for judged in setting.judgement.attacks for check in judged.checks]
    together = {attack.attack for attack, beats in checks if attack.manner == "all-rounds" and beats}
    of_one = [(attack.attack, beats) for attack, beats in checks if attack.manner == "one-round"]
    return any(name in together for name, _ in of_one) and not any(beats for _, beats in of_one)


def noise_factor(row: Epsilon, target: float) -> float | None:
    """By how much all noise must grow for `row.proven` to become `target`.

    None unless all that is seen amounts to one Gaussian release (`Epsilon.mu`), whose ε is known at any noise.

    Releases of unsampled Gaussian noise compose to one of noise multiplier (Σ z_i⁻²)^(−1/2), which goes with the noise.
    At δ = 1e-5 multiplier 1 has ε = 4.38, and fifteen such releases 23.35, so fifteen need √15 times the noise:

    >>> from ....defenses.releases import GaussianLaw, declare
    >>> from ...proof.certificate import ProofQuestion, prove_settings, row_of
    >>> question = ProofQuestion(Observer("server"), "client", "zero_out", delta=1e-5)
    >>> proof = prove_settings(declare("", 0, GaussianLaw(1.0), 1.0, frozenset({0})), 15, 1.0, question)
    >>> round(noise_factor(row_of(proof), target=4.3772), 2)
    3.87
    """
    if not row.mu or not row.delta or not 0 < row.delta < 1 or not row.proven or row.proven == inf:
        return None
    return row.mu * gaussian_multiplier(target, row.delta)
