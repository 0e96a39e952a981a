"""The one change that helps most: which noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from ....defenses.presets import PRESETS
from ...proven.gaussian import gaussian_epsilon
from ...results import words
from ...results.checks import USEFUL_EPSILON, refutations
from ...results.format import Epsilon, Results
from ...results.levels import bounding_rows
from ..advice import above_chance, noise_factor
from ..facts import ReportedSetting
from ..together import noiseless
from .losses import place_of
from .sharing import PUBLISHED, share_one


@dataclass(frozen=True)
class Change:
    """The one change that helps most.

    sentence: what to do. basis: measured, where this very setting was trained and attacked; computed, where its noise
      follows from the proof's formula; unknown, where not even its noise is known; own code, where it is somebody's
      function and no setting of ours.
    noise_std, server_noise_std: in parameter units, at this clip_norm. proven: the ε that this noise proves, for what
      `where` says.
    why: of a computed target, why this ε, a sentence. accuracy: of the final model, None where it was not measured.
    accuracy_now: what was measured before the change, in words. note: what else to know.
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


def change_of(settings: Sequence[ReportedSetting], worst: ReportedSetting) -> Change:
    """A setting that is proven and whose attacks got no more than chance; else the noise that a useful proof takes;
    never one in which attacks merely failed.
    """
    if worst.results.setup.own_code:
        return _of_own_code(worst.results)
    kept = [s for s in settings if share_one(s.results).answer == "proven" and not above_chance(s.results)]
    if kept:
        return _keep(max(kept, key=_usefulness), len(settings))
    if any(share_one(setting.results).because == PUBLISHED for setting in settings):
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


def _of_own_code(results: Results) -> Change:
    """Nothing was priced, so no noise can be computed."""
    note = "`audit epsilon --clip C --noise-std S --target-epsilon E` computes the noise that proves ε ≤ E."
    if refutations(results.epsilon) or refutations(results.epsilon, on_condition=True):
        said = (
            "Find out where the function gives more away than is claimed: is the noise scaled by what the clip"
            " guarantees, is every tensor clipped and noised, does the accountant hear of every step?"
        )
        return Change(said, "own code", note=note)
    return Change("Price the mechanism: a test that refutes nothing proves nothing.", "own code", note=note)


def _usefulness(setting: ReportedSetting) -> tuple[float, float]:
    setup = setting.results.setup
    return -1.0 if setup.test_accuracy is None else setup.test_accuracy, -(setup.noise_std or 0.0)


def _keep(setting: ReportedSetting, count: int) -> Change:
    results = setting.results
    rows = [row for row in bounding_rows(results.attacks, results.epsilon).values() if row is not None]
    row = max(rows, key=lambda row: row.proven or 0.0)
    sentence = f"Use the noise of “{setting.label}”" if count > 1 else "Keep this noise: the proof rests on it"
    if count > 1 and words.useless(results.setup):
        sentence += ", if its model is of any use: it only guesses"
    return Change(
        sentence,
        "measured",
        results.setup.noise_std,
        results.server_noise_std,
        row.proven,
        words.where(row),
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
    same = [own for setting in alike for own in _wanted(setting) if place_of(own) == place_of(row)]
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
    why = "; ".join(part for part in (why, _asked_then(setting, row, factor)) if part)
    name = f" of “{setting.label}”" if count > 1 else ""
    now = f" (noise_std {words.number(setup.noise_std)})" if setup.noise_std else ""
    typed = _typed(setup.scheme, setup.parameters, factor)
    take = f"ake {words.at_most(factor, 2)} times the noise{name}{now}{typed}{_without_claim(setting)}"
    return Change(
        f"T{take}" if setup.secret_key else f"Train with a secret noise key, and t{take}",
        "computed",
        setup.noise_std * factor if setup.noise_std else None,
        server * factor if server else None,
        target,
        words.where(row),
        accuracy_now=_accuracy_now(setting),
        why=why,
        clip_norm=setup.clip_norm,
    )


def _asked_then(setting: ReportedSetting, row: Epsilon, factor: float) -> str:
    """What that noise proves of the row that the config asks about, where it is not the one that needs most."""
    asked = next((own for own in setting.results.epsilon if own.asked and own is not row), None)
    if asked is None or noise_factor(asked, USEFUL_EPSILON) is None or not asked.mu or not asked.delta:
        return ""
    then = gaussian_epsilon(factor / asked.mu, asked.delta)
    place = f"per {asked.unit}" if asked.observer == row.observer else words.where(asked)
    return f"and ε ≤ {words.at_most(then)} {place}, which is asked about"


def _without_claim(setting: ReportedSetting) -> str:
    """A formula that says less than is proven says so of more noise as well, and would be refuted again."""
    rows = [row for row in setting.results.epsilon if row.claimed is not None and row.claimed_by == "paper"]
    false = any((row.proven or 0.0) > 1.001 * (row.claimed or 0.0) for row in rows)
    return ', with claim = "none", as the paper\'s formula promises more than holds' if false else ""


def _typed(scheme: str, parameters: Mapping[str, object], factor: float) -> str:
    """The noise in the scheme's own parameter, as a config has it; "" where that one is not in proportion to it."""
    preset = PRESETS.get(scheme)
    if parameters.get("schedule", "constant") != "constant":
        return ""  # σ follows the schedule, whatever sigma says
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
    if setup.guessing_accuracy is not None:
        accuracies.append(f"{words.percent(setup.guessing_accuracy, 3)} by guessing")
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
    steps = steps or ["add more noise"]
    if not setup.secret_key:
        steps = ["train with a secret noise key", *steps]
    text = words.listed(steps)
    asked = f"--target-epsilon {USEFUL_EPSILON:g}"
    if not setup.noise_std and not results.server_noise_std:  # a scheme without noise has none to compute
        asked = f"--set scheme.name=local-gaussian --set scheme.clip=1 --set scheme.target_epsilon={USEFUL_EPSILON:g}"
    return Change(
        f"{text[0].upper()}{text[1:]}",
        "unknown",
        note=(f"`audit epsilon CONFIG {asked}` computes how much of it proves ε ≤ {USEFUL_EPSILON:g}."),
        accuracy_now=_accuracy_now(setting),
    )
