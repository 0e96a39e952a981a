"""study.html: the setting to take first, then what it keeps, what one step costs, the front, the map, every trial."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from statistics import mean
from typing import Any

from matplotlib.axes import Axes

from ... import __version__
from ..errors import BadInput
from ..report.facts import ReportedSetting, read_settings
from ..report.page import filled
from ..report.pictures import data_uri
from ..report.plots import COLOURS, plain_log_axis, svg_of
from ..report.side_by_side import best_of_each_original
from ..results.checks import USEFUL_EPSILON
from ..say import study as say
from ..say.words import MISSING, at_least, at_most, between, number, percent, percent_at_most
from ..setup.config import CANARY
from .again import ALONE
from .attacks import MEMBERSHIP
from .goals import Goals, Kept
from .outcome import Performance
from .space import said, short_name
from .study import Study
from .trial import SCREEN_MESSAGES, Trial, trial_folder

LABEL_SIZE = (26, 13)  # width and height of a trial's number in pixels: nearer points have one label
MOST_NAMES = 4  # in one label
MOST_CELLS = 12  # rows of the map; more values than that are no grid


def study_page(study: Study) -> str:
    """The HTML text; it fetches nothing and runs no script but its own."""
    case, asked = study.case, study.case.config.audit
    chosen, data = study.chosen, case.config.data
    return filled(
        "study.html.j2",
        version=__version__,
        headline=study.headline,
        answer=study.sentence,
        selects=case.selects,
        protected=_protected(study),
        tone=_tone(study),
        useless=study.useless,
        tied=" ".join(filter(None, [study.ranks, study.tied])),
        weaker=study.weaker,
        above=study.above,
        fewer=study.case.fewer,
        screened=SCREEN_MESSAGES,
        alone=ALONE,
        not_tried=list(dict.fromkeys(lack for again in study.tried for lack in again.not_tried)),
        **_recommended(study),
        steps=[_step(study, step.key, step.up, step.trial) for step in study.steps],
        price=list(study.price.sentences),
        goals=case.goals.words,
        best=case.goals.best.replace("accuracy", study.figure),
        figure=study.figure,
        guessing=_guessing(study),
        membership=study.again is not None and any(name.startswith(MEMBERSHIP) for name in study.again.attacks),
        question=say.question_of_study(str(asked.observer), asked.unit, asked.adjacency, asked.delta),
        data=f"{case.config.name or data.name}, {case.rows} records",
        counts=_counts(study),
        looks=sum(again.looks for again in study.tried),
        failed=[_failed(study, i) for i in range(len(study.tried)) if chosen is None or i < len(study.tried) - 1],
        plots=_plots(study),
        map=_map(study),
        keys=[short_name(key) for key in case.space.keys],
        rows=[_row(study, trial) for trial in study.trials],
    )


def _recommended(study: Study) -> dict[str, Any]:
    """What is known of the recommended setting; nothing where there is none."""
    chosen, again = study.chosen, study.again
    empty: dict[str, Any] = {"chosen": None, "loss": None, "judged": [], "utility": None, "seeds": 0, "attacks": []}
    if chosen is None or again is None:
        return {**empty, "strongest": [], "leakage": MISSING}
    known = {
        "chosen": said(chosen.point),
        "loss": at_most(chosen.epsilon),
        "judged": [_goal(kept) for kept in again.judged(study.case, chosen)],
        "seeds": len(again.seeds),
        "attacks": list(again.attacks),
    }
    if again.outcome is None:
        return {**empty, **known, "strongest": [], "leakage": MISSING}
    outcome = again.outcome
    return {
        **known,
        "utility": _utility(study.case.goals, outcome, again.without_noise),
        "attacks": [name for name in again.attacks if name in {CANARY, *(leak.attack for leak in outcome.leaks)}],
        "strongest": _strongest(outcome),
        "leakage": percent(outcome.leakage),
        "most": percent_at_most(outcome.most_leakage),
    }


def _guessing(study: Study) -> str:
    """What guessing gets, behind the name of the figure; "" where it is not known, or not the same of all settings."""
    if study.figure == "AUC":
        return " (guessing 0.5)"
    known = {trial.outcome.guessing for trial in study.trials if trial.outcome is not None} - {None}
    if len(known) == 1:
        return f" (guessing {percent(known.pop(), 3)})"
    return ""


def _protected(study: Study) -> str:
    """Whether what is recommended is protected by a proof, or only from the attacks that were tried."""
    if study.chosen is None or study.again is None:
        return ""
    judged = [k for k in study.again.judged(study.case, study.chosen) if k.by != "measurement"]
    proof = [f"{k.goal}, and it is {k.said}" for k in judged if k.by == "proof"]
    attack = [k.goal for k in judged if k.by == "attack"]
    return say.protected_by(proof, attack, study.chosen.epsilon, study.case.goals.epsilon_at_most is not None)


def _tone(study: Study) -> str:
    """The colour of the answer: a proof that promises something of a model that learned, less, or nothing to take."""
    if study.chosen is None:
        return "no"
    if study.useless or study.chosen.epsilon is None or study.chosen.epsilon > USEFUL_EPSILON:
        return "limited"
    return "proven"


def _goal(kept: Kept) -> dict[str, Any]:
    words = {"proof": "a proof", "attack": "the attacks tried", "measurement": "measurement"}
    return {"goal": kept.goal, "said": kept.said, "by": words[kept.by]}


def _utility(goals: Goals, outcome: Performance, without_noise: Sequence[float]) -> dict[str, str]:
    if goals.by_area(outcome) and outcome.area_limits is not None:
        low, high = outcome.area_limits
        beside = f"guessing 0.5; mean of such trainings {at_least(low, 3)} to {at_most(high, 3)}"
        if accuracy := outcome.accuracy_said(outcome.guess_and_balance):
            beside += f"; {accuracy}"
        return {"name": goals.figure(outcome), "value": goals.figure_said(outcome), "beside": beside}
    if outcome.accuracy is not None and outcome.accuracy_limits is not None:
        known = outcome.beside_accuracy
        if without_noise:
            known.append(f"without clip and noise {percent(mean(without_noise), 3)}")
        return {
            "name": "accuracy",
            "value": percent(outcome.accuracy, 3),
            "beside": "; ".join([*known, f"mean of such trainings {between(outcome.accuracy_limits)}"]),
        }
    return {"name": "test loss", "value": number(outcome.loss), "beside": ""}


def _strongest(outcome: Performance) -> list[dict[str, str]]:
    return [
        {
            "what": leak.what,
            "share": f"{percent(leak.share)} of {leak.n}",
            "control": percent(leak.control),
            "most": percent_at_most(leak.high),
            "ceiling": percent_at_most(leak.ceiling),
        }
        for leak in outcome.leaks
    ]


def _step(study: Study, key: str, up: bool, trial: Trial) -> dict[str, str]:
    """What the neighbour has, beside what the recommended setting had in the same search."""
    assert study.chosen is not None
    value, mine = trial.point[key], study.chosen.point[key]
    arrow = {True: "↑ ", False: "↓ "}[up]
    if isinstance(value, str):
        arrow = ""
    chosen = study.chosen
    return {
        "what": f"{arrow}{short_name(key)} {_text(mine)} → {_text(value)}",
        "figure": " → ".join(study.case.goals.figure_said(t.outcome) or MISSING for t in (chosen, trial)),
        "leakage": f"{percent(chosen.leakage)} → {percent(trial.leakage)}",
        "epsilon": f"{at_most(chosen.epsilon)} → {at_most(trial.epsilon)}",
    }


def _text(value: Any) -> str:
    if _is_number(value):
        return number(value)
    return str(value)


def _counts(study: Study) -> str:
    if study.case.selects:
        return say.SELECTION
    trials = study.trials
    measured = sum(trial.state == "measured" for trial in trials)
    never = sum(trial.epsilon is None or trial.why.startswith("never") for trial in trials if trial.outcome is None)
    return say.settings_counted(len(trials), measured, never)


def _failed(study: Study, place: int) -> dict[str, str]:
    again = study.tried[place]
    trial = study.trials[again.trial]
    if again.outcome is None:
        return {"point": said(trial.point), "why": again.why}
    missed = [f"{k.goal}: {k.said}" for k in again.missed(study.case, trial)]
    if again.outcome.contradicted:
        missed.append(say.CONTRADICTED)
    return {"point": said(trial.point), "why": "; ".join(missed)}


def _row(study: Study, trial: Trial) -> dict[str, Any]:
    outcome = trial.outcome or Performance()
    return {
        "number": trial.number,
        "values": [{"said": _text(v), "key": v} for v in trial.point.values()],
        "worth": study.case.goals.worth(outcome),
        "figure": study.case.goals.figure_said(trial.outcome) or number(outcome.loss),
        "leakage": trial.leakage,
        "most": percent_at_most(outcome.most_leakage),
        "strongest": outcome.strongest.what if outcome.strongest else "",
        "margin": outcome.psnr_margin,
        "epsilon": trial.epsilon,
        "why": trial.why,
        "front": trial in study.front,
        "chosen": study.chosen is not None and study.chosen.number == trial.number,
    }


# --- pictures ---


def _plots(study: Study) -> list[dict[str, str]]:
    """Accuracy against leakage, and against proven ε."""
    goals = study.case.goals
    measured = [(t, w) for t in study.trials if t.outcome is not None and (w := goals.worth(t.outcome)) is not None]
    name, scale, least = "accuracy (%)", 100, goals.accuracy_at_least
    if study.figure == "AUC":
        name, scale, least = "AUC", 1, goals.auc_at_least
    elif any(t.outcome is not None and t.outcome.accuracy is None for t, _ in measured):
        name, scale = "minus the test loss", 1
    plots, best = [], {t.number for t in study.front}
    leakage = None if goals.leakage_at_most is None else 100 * goals.leakage_at_most
    for what, label, known, factor, most in (
        ("leakage", "singled out beyond chance (%)", "leakage", 100, leakage),
        ("proven ε", "proven ε", "epsilon", 1, goals.epsilon_at_most),
    ):
        points = [(t, w, factor * x) for t, w in measured if (x := getattr(t, known)) is not None and isfinite(x)]
        if len(points) < 2:
            continue

        def paint(
            axes: Axes,
            points: Any = points,
            label: str = label,
            log: bool = known == "epsilon",
            most: float | None = most,
        ) -> None:
            named = []
            for trial, worth, x in points:
                chosen = study.chosen is not None and trial.number == study.chosen.number
                marker, size = ("*", 190) if chosen else ("o", 42)
                filled_in = chosen or trial.number in best
                colour = COLOURS[1] if chosen else COLOURS[0]
                y, face = scale * worth, colour if filled_in else "none"
                axes.scatter([x], [y], marker=marker, s=size, facecolors=face, edgecolors=colour, zorder=3)
                if filled_in:
                    named.append((trial.number, (x, y)))
            if least is not None:
                axes.axhline(scale * least, **_LIMIT)
            if most is not None:
                axes.axvline(most, **_LIMIT)
            if log:
                plain_log_axis(axes)
            _name_points(axes, named)
            axes.set_xlabel(label)
            axes.set_ylabel(name)

        alt, caption = say.plot_words(name, what, least is not None or most is not None)
        plots.append({"image": svg_of(paint), "alt": alt, "caption": caption})
    return plots


_LIMIT: dict[str, Any] = {"color": "#667788", "linestyle": "--", "linewidth": 1, "zorder": 2}


def _name_points(axes: Axes, points: Sequence[tuple[int, tuple[float, float]]]) -> None:
    """The trials' numbers beside their points, those of points that nearly coincide in one label."""
    axes.autoscale_view()  # the places below hang on the limits
    labels: list[tuple[Any, list[int]]] = []
    for trial, point in points:
        place = axes.transData.transform(point)
        near = next((names for at, names in labels if (abs(place - at) < LABEL_SIZE).all()), None)
        if near is None:
            labels.append((place, [trial]))
        else:
            near.append(trial)
    for place, names in labels:
        text = ", ".join(map(str, names[:MOST_NAMES])) + (" …" if len(names) > MOST_NAMES else "")
        right = axes.transAxes.inverted().transform(place)[0] > 0.5
        x, y = axes.transData.inverted().transform(place)
        axes.annotate(
            text,
            (x, y),
            xytext=(-7 if right else 7, 5),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=9,
            zorder=4,
        )


def _map(study: Study) -> dict[str, Any] | None:
    """Leakage over the two numbers that vary, with what an attack makes of the same image in every cell; None where
    they are no grid.
    """
    keys = [k for k in study.case.space.keys if all(_is_number(t.point[k]) for t in study.trials)]
    if not keys:
        return None
    across = max(keys, key=lambda k: len({t.point[k] for t in study.trials}))
    down = next((k for k in keys if k != across), None)
    shown = [t for t in study.trials if t.outcome is not None and t.leakage is not None]
    columns = sorted({t.point[across] for t in shown})
    rows = [None] if down is None else sorted({t.point[down] for t in shown})
    if not shown or len(rows) > MOST_CELLS:
        return None
    pictures = all(len(parts.data.input_shape) == 3 for parts in study.case.parts.values())
    images: dict[int, _Found] = {t.number: _rebuilt(study, t) if pictures else {} for t in shown}
    original, mark = _shared([found for found in images.values() if found])
    cells = []
    for value in rows:
        line = []
        for x in columns:
            own = [t for t in shown if t.point[across] == x and (down is None or t.point[down] == value)]
            worst = max(own, key=lambda t: t.leakage or 0.0, default=None)
            line.append(None if worst is None else _cell(study, worst, images[worst.number], mark))
        cells.append({"head": "" if down is None else _text(value), "cells": line})
    return {
        "across": short_name(across),
        "down": "" if down is None else short_name(down),
        "columns": [_text(x) for x in columns],
        "rows": cells,
        "original": original,
        "others": len(study.case.space.keys) > (1 if down is None else 2),
    }


_Found = dict[str, tuple[float, Any, Any]]


def _cell(study: Study, trial: Trial, images: _Found, mark: str) -> dict[str, Any]:
    leakage, image, closeness = trial.leakage or 0.0, "", ""
    if mark in images:
        image, closeness = data_uri(images[mark][2]), f"{images[mark][0]:.1f} dB"
    return {
        "tint": round(100 * min(1.0, leakage)),
        "leakage": percent(leakage),
        "figure": study.case.goals.figure_said(trial.outcome),
        "image": image,
        "closeness": closeness,
        "chosen": study.chosen is not None and trial.number == study.chosen.number,
        "number": trial.number,
    }


def _rebuilt(study: Study, trial: Trial) -> _Found:
    folder = trial_folder(study.folder, trial.number) / "results"
    if not folder.is_dir():
        return {}
    try:
        settings: list[ReportedSetting] = read_settings([folder])
    except BadInput:
        return {}
    return best_of_each_original(settings[0])


def _shared(found: Sequence[_Found]) -> tuple[str, str]:
    """The original that most cells have, of these the one with the most to see in it; and its mark."""
    marks = list(dict.fromkeys(mark for images in found for mark in images))
    if not marks:
        return "", ""

    def rank(mark: str) -> tuple[int, float]:
        have = [images[mark] for images in found if mark in images]
        return len(have), float(have[0][1].std())

    best = max(marks, key=rank)
    return next(data_uri(images[best][1]) for images in found if best in images), best


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
