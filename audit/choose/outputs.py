"""What a study leaves beside its page: recommended.toml, trials.csv, study.json."""

from __future__ import annotations

import csv
import io
from math import isfinite
from typing import Any

from ..setup.config import toml_value
from ..setup.paths import rebase
from .space import overrides, said
from .study import Study
from .trial import Trial

HEAD = "# Recommended by `audit choose`,"
COLUMNS = (
    "trial",
    "state",
    "why",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "auc",
    "test_loss",
    "leakage",
    "strongest",
    "reidentified",
    "images",
    "psnr_margin",
    "epsilon_proven",
    "noise_std",
    "server_noise_std",
    "clip_norm",
    "front",
    "recommended",
)


def recommended_toml(study: Study) -> str:
    """The config to train: the study's own, comments and all, with the point put in; how it was found stands above."""
    import tomlkit

    chosen, again = study.chosen, study.again
    assert chosen is not None and again is not None
    if study.case.selects:
        how = "in a private selection"
    else:
        how = f"trial {chosen.number} of {len(study.trials)}"
    head = [f"{HEAD.removeprefix('# ')} {how}: {said(chosen.point)}."]
    head += [f"{kept.goal}: {kept.said}, by {kept.by}." for kept in again.judged(study.case, chosen)]
    head += filter(None, [study.above, study.case.fewer, study.useless, study.ranks, study.tied, study.weaker])
    head += list(study.price.sentences)
    plain = tomlkit.dumps(study.case.raw)
    document = tomlkit.parse(_without_head(study.case.source) or plain)
    for text in (*study.case.overrides, *overrides(chosen.point), *_spent(study)):
        key, _, value = text.partition("=")
        _put(document, key.strip().split("."), value)
    if study.price.epsilon:
        document["audit"]["spent"].comment(
            "ε of the search on these records and of what came before, in [audit]'s terms"
        )
    rebase(document, study.case.base, study.folder)
    return "".join(f"# {line}\n" for line in head) + "\n" + tomlkit.dumps(document)


def _spent(study: Study) -> list[str]:
    """What the search spent on the clients' own records, and what was before it, as the next training's config has
    it.
    """
    if not study.price.epsilon:
        return []
    asked = study.case.config.audit
    epsilon = study.price.epsilon + asked.spent_before
    spent = [f"audit.spent={float(epsilon)!r}" if isfinite(epsilon) else 'audit.spent="unlimited"']
    if asked.spent_before:
        spent.append(f"audit.spent_delta={asked.delta + asked.delta_before!r}")
    return spent


def _without_head(source: str) -> str:
    """A config without the head that an earlier study wrote, which is about that one's setting."""
    if not source.startswith(HEAD):
        return source
    _, _, rest = source.partition("\n\n")
    return rest


def _put(document: Any, key: list[str], value: str) -> None:
    """One `--set` in a TOML document; without a value it unsets."""
    import tomlkit

    *tables, name = key
    parent = table = document
    for each in tables:
        if each not in table:
            table[each] = tomlkit.table()
        parent, table = table, table[each]
    if not value.strip():
        table.pop(name, None)
    elif name in table or not isinstance(table, tomlkit.items.Table):
        table[name] = toml_value(value)
    else:
        parent[tables[-1]] = _with_key(table, name, toml_value(value))


def _with_key(table: Any, key: str, value: object) -> Any:
    """The TOML table with a new key below its last one: a commented-out table may follow, to which it would belong."""
    import tomlkit

    body = table.value.body
    last = max((n for n, (name, _) in enumerate(body) if name is not None), default=-1)
    new = tomlkit.table(table.is_super_table())
    for name, item in (*body[: last + 1], (tomlkit.key(key), tomlkit.item(value)), *body[last + 1 :]):
        new.append(name, item)
    new.trivia.comment_ws, new.trivia.comment = table.trivia.comment_ws, table.trivia.comment
    return new


def trials_csv(study: Study) -> str:
    """One row a trial; the columns are the varied keys and `COLUMNS`. Empty: not measured; inf: ∞."""
    out = io.StringIO()
    keys = study.case.space.keys
    writer = csv.DictWriter(out, (*COLUMNS[:3], *keys, *COLUMNS[3:]), lineterminator="\n", restval="")
    writer.writeheader()
    best = {trial.number for trial in study.front}
    for trial in study.trials:
        row = {**trial.point, **_numbers(trial), "front": int(trial.number in best)}
        row["recommended"] = int(study.chosen is not None and study.chosen.number == trial.number)
        writer.writerow({key: value for key, value in row.items() if value is not None})
    return out.getvalue()


def document(study: Study) -> dict[str, Any]:
    """The whole study in plain values."""
    chosen, again = study.chosen, study.again
    return {
        "format": 1,
        "digest": study.case.digest,
        "answer": study.sentence,
        "useless": study.useless,
        "tied": study.tied,
        "weaker": study.weaker,
        "above": study.above,
        "goals": study.case.goals.words,
        "rows": study.case.rows,
        "fewer": study.case.fewer,
        "recommended": None
        if chosen is None or again is None
        else {
            "trial": chosen.number,
            "point": chosen.point,
            "epsilon": chosen.epsilon,
            "kept": [vars(kept) for kept in again.judged(study.case, chosen)],
            "again": again.model_dump(mode="json"),
        },
        "binding": None if study.obstacle is None else study.obstacle.goal,
        "nearest": None
        if study.obstacle is None or study.obstacle.nearest is None
        else study.obstacle.nearest.model_dump(mode="json"),
        "search": {
            "trainings": study.price.trainings,
            "epsilon": study.price.epsilon,
            "sentences": list(study.price.sentences),
        },
        "front": [trial.number for trial in study.front],
        "attacked_again": [
            {**a.model_dump(mode="json"), "kept": a.keeps(study.case, study.trials[a.trial])} for a in study.tried
        ],
        "beside": [trial.model_dump(mode="json") for trial in study.beside],
        "trials": [trial.model_dump(mode="json") for trial in study.trials],
    }


def _numbers(trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trial": trial.number,
        "state": trial.state,
        "why": trial.why,
        "epsilon_proven": trial.epsilon,
    }
    if (outcome := trial.outcome) is None:
        return row
    low, high = outcome.accuracy_limits or (None, None)
    strongest, rebuilt = outcome.strongest, outcome.reidentified
    return {
        **row,
        "accuracy": outcome.accuracy,
        "accuracy_low": low,
        "accuracy_high": high,
        "auc": outcome.area,
        "test_loss": outcome.loss,
        "leakage": outcome.leakage,
        "strongest": None if strongest is None else strongest.what,
        "reidentified": None if rebuilt is None else rebuilt.share,
        "images": None if rebuilt is None else rebuilt.n,
        "psnr_margin": outcome.psnr_margin,
        "noise_std": outcome.noise_std,
        "server_noise_std": outcome.server_noise_std,
        "clip_norm": outcome.clip_norm,
    }
