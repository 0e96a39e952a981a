"""`audit run`: attacks on what a setup captured, scores of their evidence, the ε table, the verdict.

Evidence comes first and from the observer's view and knowledge/ alone; truth/ and auditor/ are opened only afterwards,
to score it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ..attacks import ATTACKS
from ..attacks.base import Attack, Evidence, Knowledge, MembershipScores, Reconstruction, Together, View
from ..attacks.membership import ShadowFactory
from ..attacks.settings import check_types
from ..defenses.progress import Progress
from ..defenses.terms import ADJACENCIES, Observer
from ..metrics import classifiers, perceptual
from ..metrics.leakage import score_images
from .canary.plan import CanarySettings
from .canary.rows import demonstrate_rows
from .errors import BadInput, bad_input
from .files import number, write_bytes, write_json, write_tensors
from .proven import rows as epsilon
from .results.membership_entries import Scored, check_membership, membership_entries
from .results.verdict import verdict
from .setup.auditor import Auditor, Truth, check_setup
from .setup.config import CANARY, toml_value
from .setup.description import versions
from .setup.folder import Setup
from .setup.reading import left_by_a_killed_run, plain_json, read_text, regular


@dataclass(frozen=True)
class RunOptions:
    """What to attack with. attacks: names in `ATTACKS`, () for the default. observers: () for the config's. overrides:
    "attack.key=value".
    """

    attacks: tuple[str, ...] = ()
    observers: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    seed: int = 0
    device: str = "auto"
    lpips_weights: Path | None = None
    quick: bool = False
    allow_model: str | None = None


@dataclass(frozen=True, eq=False)
class Cell:
    """One piece of work that is done whole or again: an attack on one observer's message (or messages)."""

    key: str
    attack: Attack
    settings: Mapping[str, Any]
    view: View
    part: Any


def run(
    folder: Path, output: Path, options: RunOptions, *, force: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Attack, score, write `output`; returns results.json's content. A killed run goes on with the cell it was in.
    Raises BadInput.
    """
    torch.set_flush_denormal(True)  # before the first parallel region: threads started earlier would not inherit it
    setup, auditor = check_setup(folder)  # all of it, before anything is written
    with bad_input("--observer"):
        observers = tuple(map(Observer.parse, options.observers)) or (setup.config.audit.observer,)
    if auditor.ledger is not None and not auditor.ledger.participations():
        raise BadInput(
            f"{folder}: no client sent anything in a round that ended finite, so there is nothing to attack and nothing"
            " to price"
        )
    attacks = _attacks(setup, options)
    canaries = _canaries(setup, options)
    digest = _digest(auditor, attacks, canaries, observers, options)
    if _complete(output, digest, force):
        return json.loads((output / "results.json").read_text())
    with bad_input("--lpips-weights"):
        lpips = perceptual.load("alex", options.lpips_weights)
    module = setup.module(options.allow_model)
    if any(name.startswith("membership") for name, _, _ in attacks):
        check_membership(auditor, setup.knowledge())
    knowledge = _with_shadows(setup, setup.knowledge(), module)
    with bad_input("attack"):
        cells, refused = _cells(setup, module, attacks, observers, knowledge)
    _start(output, digest, force)
    evidence = _collect(cells, knowledge, output, options.seed, progress)
    results = _results(auditor, options, digest, evidence, canaries, observers, lpips, output, progress)
    results["warnings"] += refused
    write_json(output / "results.json", results)
    shutil.rmtree(output / ".work")
    return results


def _table_of(name: str, setup: Setup, options: RunOptions) -> dict[str, Any]:
    """An attack's settings: the config's table, then the overrides."""
    names = (*ATTACKS, CANARY)
    overrides: dict[str, Any] = {}
    for text in options.overrides:
        key, separator, value = text.partition("=")
        attack, dot, entry = key.removeprefix("attack.").partition(".")
        if not separator or not dot or attack not in names:
            raise BadInput(f"--set {text!r}: expected ATTACK.KEY=VALUE with an attack of {', '.join(names)}")
        if attack == name:
            overrides[entry] = toml_value(value)
    return {**setup.config.attack.get(name, {}), **overrides}


def _canaries(setup: Setup, options: RunOptions) -> CanarySettings | None:
    """The settings of the canary audit, None where it was not asked for."""
    if CANARY not in options.attacks:
        return None
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in _table_of(CANARY, setup, options).items()
    }
    known = {f.name for f in fields(CanarySettings)}
    if unknown := sorted(set(values) - known):
        raise BadInput(f"[attack.canary]: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    with bad_input("[attack.canary]"):
        check_types(CanarySettings, values)
        return CanarySettings(**cast(Any, {**values, "quick": options.quick or bool(values.get("quick"))}))


def _attacks(setup: Setup, options: RunOptions) -> list[tuple[str, Attack, dict[str, Any]]]:
    """The attacks to run: name, attack, settings as they go into the results."""
    chosen = []
    for name in options.attacks or DEFAULT_ATTACKS:
        if name == CANARY:
            continue
        if name not in ATTACKS:
            raise BadInput(f"--attack {name!r} is unknown; known are {', '.join((*ATTACKS, CANARY))}")
        settings = _table_of(name, setup, options)
        with bad_input(f"[attack.{name}]"):
            for attack in ATTACKS[name].make(settings, options.quick, _device(options.device)):
                chosen.append((name, attack, _plain(asdict(cast(Any, attack)))))
    return chosen


DEFAULT_ATTACKS = ("inversion",)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items() if k not in ("name", "device")}


def _device(name: str) -> str:
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: no CUDA device is available here; use --device cpu")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def _digest(
    auditor: Auditor,
    attacks: Sequence[tuple[str, Attack, dict[str, Any]]],
    canaries: CanarySettings | None,
    observers: Sequence[Observer],
    options: RunOptions,
) -> str:
    weights = None if options.lpips_weights is None else str(options.lpips_weights)
    content = {
        "setup": auditor.setup.manifest.digest,
        "attacks": [(n, s) for n, _, s in attacks],
        "canaries": None if canaries is None else asdict(canaries),
        "observers": list(map(str, observers)),
        "seed": options.seed,
        "quick": options.quick,
        "lpips": weights,
        "versions": versions(),
        "truth": auditor.truth is not None,
        "auditor": auditor.ledger is not None,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _cells(
    setup: Setup,
    module: nn.Module,
    attacks: Sequence[tuple[str, Attack, dict[str, Any]]],
    observers: Sequence[Observer],
    knowledge: Knowledge,
) -> tuple[list[Cell], list[str]]:
    """All pieces of work; and, where several observers are asked for, what only some of them can try, in a sentence
    each. What none can try raises.
    """
    cells: list[Cell] = []
    refused: list[tuple[int, Observer, ValueError]] = []
    for observer in observers:
        view = setup.view(observer, module=module)
        for place, (name, attack, settings) in enumerate(attacks):
            try:
                parts = attack.parts(view, knowledge)
            except ValueError as error:
                refused.append((place, observer, error))
                continue
            cells += [
                Cell(_key(name, settings, str(observer), part.key), attack, settings, view, part) for part in parts
            ]
    by_observer: dict[Observer, list[tuple[int, ValueError]]] = {}
    for place, observer, why in refused:
        if sum(other == place for other, _, _ in refused) == len(observers):
            raise why
        by_observer.setdefault(observer, []).append((place, why))
    return cells, [
        f"Not tried for the observer {who}: {', '.join(dict.fromkeys(attacks[place][0] for place, _ in found))}"
        f" ({found[0][1]})."
        for who, found in by_observer.items()
    ]


def _key(name: str, settings: Mapping[str, Any], observer: str, part: str) -> str:
    content = json.dumps([name, dict(settings), observer, part], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _complete(output: Path, digest: str, force: bool) -> bool:
    """Whether the output folder already holds these very results. Raises BadInput where it holds something else; writes
    nothing.
    """
    mark = output / ".work" / "digest"
    if output.exists() and not output.is_dir():
        raise BadInput(f"{output} is a file; results are a folder")
    if (output / "results.json").exists():
        try:
            found = plain_json(read_text(output / "results.json")).get("digest")
        except (ValueError, AttributeError):
            found = None
        if found != digest and not force:
            raise BadInput(
                f"{output} holds other results (digest {str(found)[:12]}, this run is {digest[:12]}); use --force to"
                " replace them"
            )
        return bool(found == digest)
    if mark.exists():
        if not force and read_text(mark) != digest:
            raise BadInput(f"{output} holds another unfinished run; finish it, or use --force to replace it")
    elif output.exists() and any(output.iterdir()):
        raise BadInput(f"{output} is not empty and holds no results; choose another folder for -o")
    return False


def _start(output: Path, digest: str, force: bool) -> None:
    mark = output / ".work" / "digest"
    if force and output.exists() and not (mark.exists() and mark.read_text() == digest):
        shutil.rmtree(output)
    write_bytes(mark, digest.encode())


def _collect(
    cells: Sequence[Cell], knowledge: Knowledge, output: Path, seed: int, progress: Progress | None
) -> list[tuple[Cell, Evidence]]:
    """The evidence of every cell, from disk where a run before this one left it."""
    paths = [output / "evidence" / f"{cell.key}.safetensors" for cell in cells]
    total, done = sum(cell.part.work for cell in cells), 0
    for group in _groups(cells):
        first, work = cells[group[0]], sum(cells[i].part.work for i in group)
        if not all(paths[i].exists() for i in group):

            def tick(step: int, steps: int, base: int = done, work: int = work) -> None:
                if progress is not None:
                    progress(base + work * step // steps, total, "attacking")

            if isinstance(first.attack, Together):
                made = first.attack.run_group([cells[i].part for i in group], first.view, knowledge, seed, tick)
            else:
                made = [first.attack.run_part(first.part, first.view, knowledge, seed, tick)]
            for i, evidence in zip(group, made):
                _write_evidence(paths[i], evidence)
        done += work
        if progress is not None:
            progress(done, total, "attacking")
    with left_by_a_killed_run(output / "evidence", "remove it, and the same command makes it again"):
        return [(cell, _read_evidence(path)) for cell, path in zip(cells, paths)]


def _groups(cells: Sequence[Cell]) -> list[list[int]]:
    """Which cells (positions) are run as one: by the attack's own rule, and never by what a run before this one left on
    disk.
    """
    by_attack: dict[tuple[int, int], list[int]] = {}
    for i, cell in enumerate(cells):
        by_attack.setdefault((id(cell.attack), id(cell.view)), []).append(i)
    found = []
    for members in by_attack.values():
        attack, at = cells[members[0]].attack, {cells[i].part.key: i for i in members}
        if isinstance(attack, Together):
            groups = attack.groups([cells[i].part for i in members], cells[members[0]].view)
            found += [[at[part.key] for part in group] for group in groups]
        else:
            found += [[i] for i in members]
    return found


KINDS: dict[str, Any] = {"reconstruction": Reconstruction, "membership": MembershipScores}


def _write_evidence(path: Path, made: Evidence) -> None:
    """Tensors as tensors, everything else as one line of JSON."""
    values = {f.name: getattr(made, f.name) for f in fields(made)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    facts = {name: number(v) if isinstance(v, float) else v for name, v in values.items() if name not in tensors}
    kind = next(name for name, cls in KINDS.items() if isinstance(made, cls))
    write_tensors(path, tensors, {"evidence": json.dumps({"kind": kind, **facts}, sort_keys=True)})


def _read_evidence(path: Path) -> Evidence:
    with safe_open(regular(path), "pt") as file:
        facts = json.loads(file.metadata()["evidence"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    kind = KINDS[facts.pop("kind")]
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
    if "loss" in values:
        values["loss"] = float(values["loss"])
    return kind(**values, **tensors)


# --- scoring: from here on the truth may be looked at
# --------------------------------------------------------------------


def _results(
    auditor: Auditor,
    options: RunOptions,
    digest: str,
    evidence: Sequence[tuple[Cell, Evidence]],
    canaries: CanarySettings | None,
    observers: Sequence[Observer],
    lpips: perceptual.Perceptual | perceptual.NotMeasured,
    output: Path,
    progress: Progress | None,
) -> dict[str, Any]:
    setup = auditor.setup
    manifest = setup.manifest
    claim = setup.scheme.claim
    warnings = _warnings(auditor, options)
    table: list[dict[str, Any]] = []
    if auditor.ledger is None:
        warnings.append("auditor/ is absent: ε was not priced.")
    else:
        wanted = {setup.config.audit.adjacency} | ({claim.adjacency} if claim else set())
        table = epsilon.rows(
            auditor.ledger,
            claim,
            setup.config.audit.delta,
            adjacencies=tuple(a for a in ADJACENCIES if a in wanted),
        )
    knowledge = setup.knowledge()
    reference: classifiers.Reference | perceptual.NotMeasured | None = None
    if auditor.truth is not None and any(isinstance(made, Reconstruction) for _, made in evidence):
        reference = _reference(setup, knowledge)
    attacks = []
    rebuilt = [(cell, made) for cell, made in evidence if isinstance(made, Reconstruction)]
    for done, (cell, made) in enumerate(rebuilt, 1):
        attacks.append(_scored(setup, auditor.truth, knowledge, cell, made, reference, lpips, options, output))
        if progress is not None:
            progress(done, len(rebuilt), "scoring")
    found = [Scored(cell.key, cell.settings, made) for cell, made in evidence if isinstance(made, MembershipScores)]
    entries, overlaps = membership_entries(auditor, knowledge, found, options.seed, output)
    attacks += [_jsonable(entry) for entry in entries]
    warnings += overlaps
    families = []
    if isinstance(reference, classifiers.Reference):
        families = [
            {"family": name, "accuracy": reference.accuracy, "source": reference.source}
            for name, _ in reference.members
        ]
        if reference.accuracy is None or reference.accuracy < 0.6:
            known = "unknown" if reference.accuracy is None else f"{reference.accuracy:.0%}"
            warnings.append(
                f"The reference classifiers' accuracy is {known}, under 60 %: feature metrics and the leakage"
                " probability say little."
            )
    if canaries is not None and not table:
        warnings.append("No canary audit: without auditor/ there is no ε to compare it with.")
    elif canaries is not None:
        table, shown, reasons = demonstrate_rows(auditor, table, canaries, options.seed, progress, observers)
        attacks += [_jsonable(entry) for entry in shown]
        warnings += reasons
    facts = manifest.facts
    last = setup.rounds[-1] if setup.rounds else {}
    return {
        "format": 1,
        "digest": digest,
        "setup": {
            "digest": manifest.digest,
            "name": manifest.name,
            "scheme": manifest.scheme.name,
            "parameters": manifest.scheme.parameters,
            "share": facts.share,
            "clients": len(manifest.clients),
            "rounds": manifest.rounds,
            "clip_norm": facts.clip_norm,
            "noise_std": facts.noise_std,
            "noise_multiplier": facts.noise_multiplier,
            "sensitivity": facts.sensitivity,
            "share_clipped": facts.share_clipped,
            "norm_before_clip_median": facts.norm_before_clip_median,
            "test_accuracy": last.get("test_accuracy"),
            "status": manifest.status,
            "seed": manifest.seed,
            "config": manifest.config,
            "versions": manifest.versions,
            "data": {"name": manifest.data.name, **manifest.data.description},
            "model": {"name": manifest.model.name, "parameters": manifest.model.parameters},
        },
        "warnings": warnings,
        "quick": options.quick,
        "seed": options.seed,
        "verdict": verdict(attacks, table),
        "epsilon": table,
        "attacks": attacks,
        "classifiers": families,
        "rounds": setup.rounds,
    }


def _with_shadows(setup: Setup, knowledge: Knowledge, module: nn.Module) -> Knowledge:
    """Knowledge with a factory of shadow federations: the public scheme, started from the weights the server broadcast
    first.
    """
    if not len(knowledge.candidate_ids):
        return knowledge
    start = copy.deepcopy(module)
    first = next((m for m in setup.messages if m.round == 0 and m.sender == "server"), None)
    if first is not None:
        start.load_state_dict(setup.layout.split(setup.load(first)), strict=False)
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dpfl-audit" / "shadows"
    digest = hashlib.sha256(json.dumps([setup.manifest.digest, versions()], sort_keys=True).encode()).hexdigest()
    factory = ShadowFactory(
        setup.scheme, start, tuple(setup.manifest.clients), digest, home, evaluate=len(knowledge.auxiliary_inputs) > 0
    )
    return replace(knowledge, extra={**knowledge.extra, "shadow_factory": factory})


def _warnings(auditor: Auditor, options: RunOptions) -> list[str]:
    setup = auditor.setup
    facts, found = setup.manifest.facts, []
    if facts.clip_norm is not None and facts.share_clipped == 0:
        norm = facts.norm_before_clip_median
        found.append(
            f"Nothing was clipped in training: C = {facts.clip_norm:g}, the median norm before the clip was {norm:.3g}."
            if norm is not None
            else f"Nothing was clipped in training: C = {facts.clip_norm:g}."
        )
    if setup.manifest.status == "diverged":
        found.append(f"Training diverged; only its {setup.manifest.rounds} finite rounds are audited.")
    if edited := auditor.edited:
        found.append(
            f"Changed after training: {', '.join(edited)}; what the attacks were given and scored by is not what was"
            " captured."
        )
    if auditor.truth is None:
        found.append("truth/ is absent: what the attacks recovered could not be scored.")
    if options.quick:
        found.append("A --quick run: fewer iterations, so the attacks are weaker than they could be.")
    return found


def _reference(setup: Setup, knowledge: Knowledge) -> classifiers.Reference | perceptual.NotMeasured:
    """The five reference classifiers: shipped ones for the data set, or small ones trained on the attacker's auxiliary
    data.
    """
    data = setup.manifest.data
    if data.name in classifiers.shipped():
        return classifiers.load_reference(data.name)
    if len(knowledge.auxiliary_inputs) < max(10, 2 * data.classes):
        return perceptual.NotMeasured(
            f"{len(knowledge.auxiliary_inputs)} auxiliary images are too few to train reference classifiers of"
            f" {data.classes} classes on"
        )
    return classifiers.train_reference(
        knowledge.auxiliary_inputs, knowledge.auxiliary_targets, data.classes, seed=0, flip=data.input_shape[0] == 3
    )


def _scored(
    setup: Setup,
    truth: Truth | None,
    knowledge: Knowledge,
    cell: Cell,
    made: Reconstruction,
    reference: Any,
    lpips: Any,
    options: RunOptions,
    output: Path,
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "attack": made.attack,
        "observer": made.observer,
        "manner": made.manner,
        "round": made.round,
        "client": made.sender,
        "n": len(made.images),
        "key": cell.key,
        "assumed": list(made.assumed),
        "settings": dict(cell.settings),
    }
    if truth is None:
        return {
            **entry,
            "metrics": {"attack_loss": number(made.loss)},
            "controls": {},
            "intervals": {},
            "pairs": [],
            "not_measured": {"all": "truth/ is absent"},
        }
    rows = sorted({row for i in made.message_ids for row in truth.messages.get(i, ())})
    if not rows:
        return {
            **entry,
            "metrics": {"attack_loss": number(made.loss)},
            "controls": {},
            "intervals": {},
            "pairs": [],
            "not_measured": {
                "all": "truth/ does not hold what this sender trained on; add the client to [capture] clients"
            },
        }
    originals, labels = truth.inputs[rows], truth.targets[rows]
    write_tensors(output / "originals" / f"{cell.key}.safetensors", {"images": originals, "labels": labels})
    informed = cell.settings.get("labels") == "known"
    facts, data = setup.manifest.facts, setup.manifest.data
    others = [i for i in range(len(truth.inputs)) if i not in set(rows)]
    metrics = score_images(
        originals,
        made.images,
        labels=labels if informed else None,
        reconstruction_labels=made.labels if informed else None,
        start=made.start,
        auxiliary=knowledge.auxiliary_inputs if len(knowledge.auxiliary_inputs) else None,
        auxiliary_labels=knowledge.auxiliary_targets if len(knowledge.auxiliary_inputs) else None,
        distractors=torch.cat([knowledge.auxiliary_inputs, truth.gallery_inputs, truth.inputs[others]]),
        distractor_labels=torch.cat([knowledge.auxiliary_targets, truth.gallery_targets, truth.targets[others]]),
        classifiers=reference,
        perceptual=lpips,
        noise_scale=(facts.noise_std or 0.0) * max(setup.manifest.clients),
        normalise=(torch.tensor(data.mean), torch.tensor(data.std)),
        attack_loss=made.loss,
        seed=options.seed,
    )
    parts = {name: metrics.pop(name) for name in ("controls", "intervals", "p_values", "pairs", "not_measured")}
    return _jsonable({**entry, "metrics": metrics, **parts})


def _jsonable(value: Any) -> Any:
    """∞ as "inf", everywhere."""
    if isinstance(value, dict):
        return {k: _jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(v) for v in value]
    return number(value) if isinstance(value, float) else value


__all__ = ["RunOptions", "Tensor", "run"]
