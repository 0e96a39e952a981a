"""Attacks on what observers see: planned in cells, each done whole or again, their evidence kept on disk so that a
killed run goes on.

Everything here works on views and on the attacker's knowledge. The truth and the auditor's key are not in reach.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ...attacks.base import (
    Evidence,
    GuessedValues,
    Knowledge,
    Links,
    MembershipScores,
    ReadTexts,
    Reconstruction,
    Together,
    View,
)
from ...attacks.cells import Cell, CellEvidence, ChosenAttack
from ...defenses.progress import Progress
from ...defenses.workers import HERE, Workers
from ..errors import BadInput
from ..files import plain, remove_all, write_bytes, write_tensors
from ..lock import empty
from ..results.format import FILE, SCORING, Results
from ..setup.reading import left_by_a_killed_run, plain_json, read_text, regular, with_tuples


@dataclass(frozen=True, eq=False)
class Plan:
    """All that the attacks will do. refused: what only some of several observers can try, in a sentence each."""

    cells: tuple[Cell, ...]
    knowledge: Knowledge
    refused: tuple[str, ...]


def plan(views: Sequence[View], attacks: Sequence[ChosenAttack], knowledge: Knowledge) -> Plan:
    """Every attack on every observer's view.

    Raises:
        ValueError: no observer's view allows one of the attacks, in one sentence.
    """
    cells: list[Cell] = []
    refused: list[tuple[int, str, ValueError]] = []
    for view in views:
        beside = knowledge.beside(view)
        for place, chosen in enumerate(attacks):
            try:
                parts = chosen.attack.parts(view, beside)
            except ValueError as error:
                refused.append((place, view.observer, error))
                continue
            cells += [
                Cell(_key(chosen, view.observer, part.key), chosen.attack, chosen.settings, view, part)
                for part in parts
            ]
    by_observer: dict[str, list[tuple[str, ValueError]]] = {}
    for place, observer, why in refused:
        if sum(other == place for other, _, _ in refused) == len(views):
            raise why
        by_observer.setdefault(observer, []).append((attacks[place].name, why))
    sentences = (
        f"Not tried for the observer {observer}: {', '.join(dict.fromkeys(name for name, _ in reasons))}"
        f" ({reasons[0][1]})."
        for observer, reasons in by_observer.items()
    )
    return Plan(tuple(cells), knowledge, tuple(sentences))


def _key(chosen: ChosenAttack, observer: str, part: str) -> str:
    content = json.dumps([chosen.name, dict(chosen.settings), observer, part], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Collected:
    """What the attacks brought. failed: by attack, why some of its cells have no evidence."""

    evidence: tuple[CellEvidence, ...]
    failed: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Errand:
    """A plan, and the results folder that its evidence goes to."""

    plan: Plan
    output: Path

    def path(self, cell: Cell) -> Path:
        return self.output / "evidence" / f"{cell.key}.safetensors"


def collect_together(
    errands: Sequence[Errand], seed: int, progress: Progress | None, *, asked: bool = True, workers: Workers = HERE
) -> list[Collected]:
    """The evidence of every cell, from disk where a run before this one left it, for several results at once: what an
    attack solves as one array may come from all of them, as the noise cells of one model do.

    Args:
        errands: each with a folder of its own. seed: of all attacks.
        progress: called with operations done and in all.
        asked: the attacks were asked for by name, so that one that fails ends the command.
        workers: who attacks.

    Raises:
        BadInput: an attack that was asked for fails, in one sentence.
    """
    units = _units(_groups(errands))
    todo = [[group for group in unit if not all(placed.path(errands).exists() for placed in group)] for unit in units]
    todo = [unit for unit in todo if unit]
    total = sum(_work(unit) for unit in units)
    left = list(accumulate((_work(unit) for unit in reversed(todo)), initial=0))[::-1]  # before the n-th unit
    failed: list[dict[str, str]] = [{} for _ in errands]
    without: list[set[str]] = [set() for _ in errands]  # keys of the cells that failed

    def watch(n: int) -> Progress:
        def tick(step: int, steps: int, /, words: str = "") -> None:
            if progress is not None:
                progress(total - left[n] + (left[n] - left[n + 1]) * step // steps, total, "attacking")

        return tick

    if progress is not None:
        progress(total - left[0], total, "attacking")
    known = _known(errands)
    outcomes = workers.map(partial(_attempted, seed=seed), (_given(unit, known) for unit in todo), watch)
    for n, (unit, brought) in enumerate(zip(todo, outcomes)):
        for group, found in zip(unit, brought):
            if isinstance(found, ValueError):
                name = group[0].cell.attack.name
                if asked:
                    raise BadInput(f"attack {name}: {found}") from found
                for placed in group:
                    failed[placed.errand].setdefault(name, str(found))
                    without[placed.errand].add(placed.cell.key)
                continue
            for placed, evidence in zip(group, found):
                _write(placed.path(errands), evidence)
        watch(n)(1, 1)
    if progress is not None:
        progress(total, total, "attacking")
    collected = []
    for i, errand in enumerate(errands):
        with left_by_a_killed_run(errand.output / "evidence", "remove it, and the same command makes it again"):
            kept = [cell for cell in errand.plan.cells if cell.key not in without[i]]
            there = tuple(CellEvidence(cell, _read(errand.path(cell))) for cell in kept)
            collected.append(Collected(there, failed[i]))
    return collected


@dataclass(frozen=True, eq=False)
class _Placed:
    """A cell of an errand, by its number."""

    errand: int
    cell: Cell

    def path(self, errands: Sequence[Errand]) -> Path:
        return errands[self.errand].path(self.cell)


@dataclass(frozen=True, eq=False)
class _Given:
    """A group of cells that are run as one, with what the attacker knows of each."""

    cells: tuple[Cell, ...]
    knowledge: tuple[Knowledge, ...]

    def run(self, seed: int, progress: Progress | None) -> Sequence[Evidence]:
        first = self.cells[0]
        if isinstance(first.attack, Together):
            parts, views = [cell.part for cell in self.cells], [cell.view for cell in self.cells]
            return first.attack.run_group(parts, views, self.knowledge, seed, progress)
        return [first.attack.run_part(first.part, first.view, self.knowledge[0], seed, progress)]


def _known(errands: Sequence[Errand]) -> dict[tuple[int, int], Knowledge]:
    """What the attacker knows beside each errand's view, one of each: what attacks compute once is kept by it."""
    places = {(i, id(cell.view)): cell.view for i, errand in enumerate(errands) for cell in errand.plan.cells}
    return {key: errands[key[0]].plan.knowledge.beside(view) for key, view in places.items()}


def _given(unit: Sequence[Sequence[_Placed]], known: Mapping[tuple[int, int], Knowledge]) -> list[_Given]:
    return [
        _Given(
            tuple(placed.cell for placed in group),
            tuple(known[placed.errand, id(placed.cell.view)] for placed in group),
        )
        for group in unit
    ]


def _attempted(unit: list[_Given], progress: Progress | None, *, seed: int) -> list[Sequence[Evidence] | ValueError]:
    """The evidence of each group of a unit, or why there is none."""
    works = [sum(cell.part.work for cell in group.cells) for group in unit]
    brought: list[Sequence[Evidence] | ValueError] = []
    for n, group in enumerate(unit):

        def tick(step: int, steps: int, /, words: str = "", *, n: int = n) -> None:
            if progress is not None:
                progress(sum(works[:n]) + works[n] * step // steps, max(1, sum(works)))

        try:
            brought.append(group.run(seed, tick))
        except ValueError as error:
            brought.append(error)
        except torch.OutOfMemoryError:
            raise BadInput("--device cuda: the GPU has too little memory for this attack; use --device cpu") from None
    return brought


def _work(unit: Sequence[Sequence[_Placed]]) -> int:
    return sum(placed.cell.part.work for group in unit for placed in group)


def _units(groups: Sequence[list[_Placed]]) -> list[list[list[_Placed]]]:
    """What one worker does: a group; or all groups, one after the other, that share work which is done once and kept,
    as shadow models are.
    """
    units: dict[Hashable, list[list[_Placed]]] = {}
    for n, group in enumerate(groups):
        first = group[0]
        shared = (first.errand, first.cell.part.shared) if first.cell.part.shared else n
        units.setdefault(shared, []).append(group)
    return list(units.values())


def _groups(errands: Sequence[Errand]) -> list[list[_Placed]]:
    """Which cells are run as one: by the attack's own rule, and never by what a run before this one left on disk."""
    alike: dict[tuple[Hashable, ...], list[_Placed]] = {}
    networks: dict[int, str] = {}
    for i, errand in enumerate(errands):
        for cell in errand.plan.cells:
            if isinstance(cell.attack, Together):
                network = networks.setdefault(id(cell.view), _network(cell.view))
                key: tuple[Hashable, ...] = (cell.attack, cell.view.observer, network)
            else:
                key = (i, id(cell.attack), id(cell.view))
            alike.setdefault(key, []).append(_Placed(i, cell))
    groups: list[list[_Placed]] = []
    for own in alike.values():
        attack = own[0].cell.attack
        if isinstance(attack, Together):
            place = {id(placed.cell.part): placed for placed in own}
            together = attack.groups([placed.cell.part for placed in own], own[0].cell.view)
            groups += [[place[id(part)] for part in group] for group in together]
        else:
            groups += [[placed] for placed in own]
    return groups


def _network(view: View) -> str:
    """Equal for views whose networks compute the same of the same weights."""
    digest = hashlib.sha256(f"{view.module} {view.layout} {view.input_shape}".encode())
    for name, buffer in view.module.named_buffers():
        digest.update(name.encode() + buffer.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


# --- on disk ---

KINDS: dict[str, Any] = {
    "reconstruction": Reconstruction,
    "membership": MembershipScores,
    "links": Links,
    "texts": ReadTexts,
    "guesses": GuessedValues,
}


def _write(path: Path, evidence: Evidence) -> None:
    """Tensors as tensors, everything else as one line of JSON."""
    values = {f.name: getattr(evidence, f.name) for f in fields(evidence)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    facts = {name: value for name, value in values.items() if name not in tensors}
    kind = next(name for name, cls in KINDS.items() if isinstance(evidence, cls))
    write_tensors(path, tensors, {"evidence": json.dumps(plain({"kind": kind, **facts}), sort_keys=True)})


def _read(path: Path) -> Evidence:
    with safe_open(regular(path), "pt") as file:
        facts = json.loads(file.metadata()["evidence"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    kind = KINDS[facts.pop("kind")]
    values: dict[str, Any] = with_tuples(facts)
    if "loss" in values:
        values["loss"] = float(values["loss"])
    return kind(**values, **tensors)


def finished(output: Path, digest: str, force: bool) -> Results | None:
    """The results, where the output folder already holds these very ones; writes nothing. Those that other rules scored
    are scored anew, from the evidence beside them.

    Raises:
        BadInput: the folder holds something else.
    """
    mark = output / ".work" / "digest"
    if (output / FILE).exists():
        try:
            content = plain_json(read_text(output / FILE))
            held, scoring = content.get("digest"), content.get("scoring")
        except (ValueError, AttributeError):
            held, scoring = None, None
        if held != digest and not force:
            raise BadInput(
                f"{output} holds other results (digest {str(held)[:12]}, this run is {digest[:12]}); use --force to"
                " replace them"
            )
        if held == digest and scoring == SCORING:
            return Results.read(output)
        return None
    if mark.exists():
        if not force and read_text(mark) != digest:
            raise BadInput(
                f"{output} holds another unfinished run (of another setup, setting, seed, device or version); finish it"
                " as it was begun, or use --force to replace it"
            )
    elif output.exists() and not empty(output):
        raise BadInput(f"{output} is not empty and holds no results; choose another folder for -o")
    return None


def start(output: Path, digest: str, force: bool) -> None:
    """Marks the folder as this run's. Other results are removed under `force`, their results.json first: whatever kills
    the command, what is left is no results, and stays marked as somebody else's until all of it is gone.
    """
    mark = output / ".work" / "digest"
    if force and not (mark.exists() and mark.read_text() == digest):
        if not mark.exists():
            write_bytes(mark, b"replaced")
        (output / FILE).unlink(missing_ok=True)
        remove_all(output, but=(".work/digest",))
    write_bytes(mark, digest.encode())
