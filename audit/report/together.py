"""Several results side by side: those of one setup taken together, and names that tell the others apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import binom

from ..judge.question import RowQuestion
from ..results.format import AttackResult, AuditedSetup, Choice, Epsilon, Results
from ..say import words
from ..say.verdict import judged
from ..say.warnings import not_run, not_tested


def combined(parts: Sequence[Results]) -> Results:
    """All results on one setup as one: every attack, every row of ε once, and the verdict on all of it together.

    Args:
        parts: results of the same setup digest, at least one.
    """
    parts = [part for i, part in enumerate(parts) if part not in parts[:i]]  # the same run, copied
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    first_of: dict[str, AttackResult] = {}
    for part in parts:
        for attack in part.attacks:  # the same in two runs counts once
            first_of.setdefault(attack.model_dump_json(), attack.having(run=part.digest))
    attacks = list(first_of.values())
    ablated = {entry.model_dump_json(): entry.having(run=part.digest) for part in parts for entry in part.ablated}
    epsilon = _together([row for part in parts for row in part.epsilon])
    untried = {text for part in parts for text in (*not_run(part), *not_tested(part.epsilon))}  # in their own run
    return judged(
        scoring=min(part.scoring for part in parts),
        digest=" ".join(dict.fromkeys(part.digest for part in parts)),
        seed=first.seed,
        setup=first.setup,
        warnings=tuple(dict.fromkeys(text for part in parts for text in part.warnings if text not in untried)),
        choice=_chosen(parts, attacks),
        quick=any(part.quick for part in parts),
        epsilon=tuple(epsilon),
        attacks=tuple(attacks),
        ablated=tuple(ablated.values()),
        not_withheld={what: why for part in parts for what, why in part.not_withheld.items()},
        classifiers=next((part.classifiers for part in parts if part.classifiers), ()),
        rounds=next((part.rounds for part in parts if part.rounds), ()),
    )


def _chosen(parts: Sequence[Results], attacks: Sequence[AttackResult]) -> Choice | None:
    """What was chosen in any run, without what another one then tried."""
    choices = [part.choice for part in parts if part.choice is not None]
    if not choices:
        return None
    unfinished = frozenset[str]().union(*(choice.unfinished for choice in choices))
    tried = {attack.attack.partition("/")[0] for attack in attacks} - unfinished
    tried |= {"canary"} if any(row.demonstrated is not None for part in parts for row in part.epsilon) else set()
    left = {entry.attack: entry for choice in choices for entry in choice.not_run if entry.attack not in tried}
    ran = {entry.attack: entry for choice in choices for entry in choice.ran}
    minutes = max(choice.minutes for choice in choices)
    return Choice(minutes=minutes, ran=tuple(ran.values()), not_run=tuple(left.values()))


def _together(rows: Iterable[Epsilon]) -> list[Epsilon]:
    """Every question's row once. Of several proofs, by several versions, the weakest counts; of several tests what
    `_shown` says, as the largest of many is above the truth by luck. Equal rows count too: each test has its own luck.
    """
    by_question: dict[RowQuestion, list[Epsilon]] = {}
    for row in rows:
        by_question.setdefault(RowQuestion.about(row), []).append(row)
    together = []
    for same in by_question.values():
        base = max(same, key=lambda row: (row.proven is not None, row.proven or 0.0))
        together.append(base if len(same) == 1 else base.having(**_common(same, base)))
    return together


def _common(rows: Sequence[Epsilon], base: Epsilon) -> dict[str, Any]:
    """What rows of one question say together. base: the one of which least is proven."""
    claim = next((row for row in rows if row.claimed is not None), base)
    tests = [row for row in rows if row.tested]
    return {
        "claimed": claim.claimed,
        "claimed_by": claim.claimed_by,
        "asked": any(row.asked for row in rows),
        "aside": all(row.aside for row in rows),
        **_tested(tests),
        "untested": "" if tests else next((row.untested for row in rows if row.untested), ""),
        "notes": tuple(dict.fromkeys(note for row in rows for note in row.notes)),
    }


def _tested(tests: Sequence[Epsilon]) -> dict[str, Any]:
    """What the adversary chose is said of all numbers of a row, so they come from tests with the same choice."""
    if not tests:
        return {}
    furthest = max(tests, key=lambda row: (row.ceiling or 0.0, row.ceiling_on_condition or 0.0))
    tests = [row for row in tests if row.demonstrated_from == furthest.demonstrated_from]
    conditional = max(tests, key=lambda row: (row.demonstrated_on_condition or 0.0, bool(row.condition)))
    on_it = [row for row in tests if row.condition == conditional.condition]
    return {
        "demonstrated": _shown(tests, "demonstrated", "ceiling"),
        "ceiling": _largest(tests, "ceiling"),
        "confidence": min((row.confidence for row in tests if row.confidence is not None), default=None),
        "condition": conditional.condition,
        "demonstrated_on_condition": _shown(on_it, "demonstrated_on_condition", "ceiling_on_condition"),
        "ceiling_on_condition": _largest(on_it, "ceiling_on_condition"),
        "demonstrated_from": furthest.demonstrated_from,
    }


def _shown(tests: Sequence[Epsilon], name: str, ceiling: str) -> float | None:
    """What several tests demonstrate together, with the confidence of each: the bound of the one that could have shown
    the most, which its design decides and not its outcome; of k such tests the r-th largest, as r or more of them are
    above the truth with the probability of r heads of k coins, at most that of one (r = 2 of 2, 3 of 10).
    """
    known = [row for row in tests if getattr(row, name) is not None]
    if not known:
        return None
    most = max(getattr(row, ceiling) or 0.0 for row in known)
    equal = [row for row in known if (getattr(row, ceiling) or 0.0) >= most * (1 - 1e-9)]
    wrong = max(1 - (row.confidence or 0.0) for row in equal)
    place = int(binom.isf(wrong, len(equal), wrong))  # the least r with P(more than r wrong) ≤ wrong
    return sorted((getattr(row, name) for row in equal), reverse=True)[min(place, len(equal) - 1)]


def _largest(rows: Sequence[Epsilon], name: str) -> float | None:
    return max((value for row in rows if (value := getattr(row, name)) is not None), default=None)


def labels(setups: Sequence[AuditedSetup], folders: Sequence[Path]) -> list[str]:
    """A name for each setup: its own, and where another has the same one, what differs between those.

    The noise, the clip and whatever else decides a setting are named wherever they differ; if that tells them not
    apart, so are entries of their configs; the folder only where nothing differs.
    """
    titles = [setup.title for setup in setups]
    names = list(titles)
    for title in dict.fromkeys(titles):
        group = [i for i, name in enumerate(titles) if name == title]
        if len(group) > 1:
            for i, said in zip(group, _apart([setups[i] for i in group], [folders[i] for i in group])):
                names[i] = f"{title} ({said})"
    return names


def _apart(setups: Sequence[AuditedSetup], folders: Sequence[Path]) -> list[str]:
    parts: list[list[str]] = [[] for _ in setups]
    for known in ([_decisive(setup) for setup in setups], [_leaves(setup.config) for setup in setups]):
        for key in dict.fromkeys(key for one in known for key in one):
            values = [one.get(key, f"no {key}") for one in known]
            if len(set(values)) > 1:
                for own, value in zip(parts, values):
                    own.append(value)
        if len(set(map(tuple, parts))) == len(setups):
            break
    return [
        ", ".join([*own, _distinct(folder, folders)] if parts.count(own) > 1 else own)
        for own, folder in zip(parts, folders)
    ]


def _decisive(setup: AuditedSetup) -> dict[str, str]:
    """What people choose between settings by, in words."""
    if setup.clip_norm is None:
        clip = "no clip"
    else:
        clip = f"clip {words.number(setup.clip_norm)}"
    known: dict[str, Any] = {
        "noise_std": words.noise(setup.noise_std, None),
        "clip": clip,
        "scheme": f"scheme {setup.scheme}",
        "model": setup.model and f"model {setup.model.name}",
        "data": setup.data.get("name") and f"data {setup.data['name']}",
        "share": setup.share and f"{setup.share} shared",
        "clients": setup.clients and words.times(setup.clients, "client"),
        "rounds": setup.rounds and words.times(setup.rounds, "round"),
        "seed": None if setup.seed is None else f"seed {setup.seed}",
        "noise_key": setup.noise_key and f"{setup.noise_key} noise key",
    }
    return {name: said for name, said in known.items() if said}


def _leaves(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Every entry of a config by its dotted name, as text."""
    found: dict[str, str] = {}
    for name, value in config.items():
        where = f"{path}.{name}" if path else str(name)
        found |= _leaves(value, where) if isinstance(value, Mapping) else {where: f"{where} = {value}"}
    return found


def _distinct(folder: Path, folders: Sequence[Path]) -> str:
    """The shortest tail of the path that no other folder has: `demo/a/results` and `demo/b/results` are a/results and
    b/results.
    """
    parts, others = folder.parts, [Path(other).parts for other in folders if Path(other) != folder]
    length = next((k for k in range(1, len(parts)) if all(parts[-k:] != other[-k:] for other in others)), len(parts))
    return "/".join(parts[-length:])


def noiseless(results: Results) -> bool:
    """Whether nothing that anybody sees was noised, as far as the results know."""
    return results.setup.noise_std == 0 and not results.server_noise_std


def no_noise_accuracy(results: Results, compared: Sequence[Results]) -> float | None:
    """The best accuracy of the compared settings without noise, on the same data with the same model."""

    def task(setup: AuditedSetup) -> tuple[Any, ...]:
        return setup.data.get("name"), setup.model and (setup.model.name, setup.model.parameters)

    same = [other.setup for other in compared if noiseless(other) and task(other.setup) == task(results.setup)]
    return max((setup.test_accuracy for setup in same if setup.test_accuracy is not None), default=None)
