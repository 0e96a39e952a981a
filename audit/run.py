"""`audit run`: a line of stages, each a function of the ones before.

    open → plan → attack (evidence.py) → score (scoring.py) → price → judge → write

Plan and attack get the public half of a setup alone: what an observer sees, and knowledge/. The auditor's half (truth/
and auditor/) enters at the stage of scores.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from ..attacks import ATTACKS
from ..attacks.base import Knowledge
from ..attacks.membership import ShadowFactory
from ..defenses.nearest import instead
from ..defenses.progress import Progress
from ..defenses.terms import ADJACENCIES, Observer
from ..metrics import perceptual
from . import evidence, scoring
from .canary.plan import CanarySettings, canary_settings
from .canary.rows import demonstrate_rows
from .errors import BadInput, bad_input
from .evidence import ChosenAttack, Plan
from .files import digest_of_file, write_bytes
from .lock import writing
from .proven.rows import check_observers, observers_of, setup_rows
from .results.format import FILE, AttackResult, AuditedModel, AuditedSetup, Epsilon, Results
from .results.membership_entries import check_membership
from .results.verdict import verdict
from .results.warnings import NO_TRUTH, implied
from .setup.auditor import Auditor, check_setup
from .setup.config import CANARY, toml_value
from .setup.description import versions
from .setup.folder import Setup

DEFAULT_ATTACKS = ("inversion",)
OTHER_NET = "LPIPS is by SqueezeNet here: not to be compared with values by AlexNet, which most papers report."


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


def run(
    folder: Path, output: Path, options: RunOptions, *, force: bool = False, progress: Progress | None = None
) -> Results:
    """Attack, score, write `output`. A killed run goes on with the cell it was in.

    Args:
        folder: the setup. output: the results folder.
        options: what to attack with.
        force: replace other results.
        progress: called with work done and in all.

    Raises:
        BadInput: before anything is written.
    """
    torch.set_flush_denormal(True)  # before the first parallel region: threads started earlier would not inherit it
    job = _open(folder, options)
    with writing(output):
        results = evidence.finished(output, job.digest, force) or _run(job, output, force, progress)
        shutil.rmtree(output / ".work", ignore_errors=True)  # last, and again where a command was killed at it
        return results


def _run(job: Job, output: Path, force: bool, progress: Progress | None) -> Results:
    options = job.options
    with bad_input("--lpips-weights"):
        found = job.lpips
        lpips = found if isinstance(found, perceptual.NotMeasured) else perceptual.load(*found)
    plan = _plan(job.setup, job.auditor.drawn_labels, job.attacks, job.observers, options.allow_model)
    evidence.start(output, job.digest, force)
    collected = evidence.collect(plan, output, options.seed, progress)
    scores = scoring.score(job.setup, job.auditor, collected, lpips, options.seed, output, progress)
    priced = _price(job, progress)
    results = _judge(job, plan, scores, priced)
    write_bytes(output / FILE, results.text().encode())
    return results


# --- open ---


@dataclass(frozen=True, eq=False)
class Job:
    """What is asked for, checked: both halves of the setup, and whom and what to try."""

    setup: Setup
    auditor: Auditor
    observers: tuple[Observer, ...]
    attacks: tuple[ChosenAttack, ...]
    canaries: CanarySettings | None
    options: RunOptions
    lpips: tuple[perceptual.Net, Path] | perceptual.NotMeasured

    @property
    def net(self) -> perceptual.Net | None:
        """The backbone of LPIPS, None where there is none."""
        return None if isinstance(self.lpips, perceptual.NotMeasured) else self.lpips[0]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides the results."""
        weights = None
        if not isinstance(self.lpips, perceptual.NotMeasured):
            weights = [self.lpips[0], digest_of_file(self.lpips[1])]
        content = {
            "setup": self.setup.manifest.digest,
            "files": self.setup.manifest.files,  # another noise key gives other messages
            "attacks": [(chosen.name, chosen.settings) for chosen in self.attacks],
            "canaries": None if self.canaries is None else asdict(self.canaries),
            "observers": list(map(str, self.observers)),
            "seed": self.options.seed,
            "quick": self.options.quick,
            "lpips": weights,
            "versions": versions(),
            "truth": self.auditor.truth is not None,
            "auditor": self.auditor.ledger is not None,
            "edited": self.auditor.edited_digests,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _open(folder: Path, options: RunOptions) -> Job:
    setup, auditor = check_setup(folder)  # all of it, before anything is written
    with bad_input("--observer"):
        observers = tuple(map(Observer.parse, options.observers)) or (setup.config.audit.observer,)
    if auditor.ledger is not None and not auditor.ledger.participations():
        raise BadInput(
            f"{folder}: no client sent anything in a round that ended finite, so there is nothing to attack and nothing"
            " to price"
        )
    attacks = _chosen(setup, options)
    if any(chosen.name.startswith("membership") for chosen in attacks):
        check_membership(auditor, setup.knowledge())
    canaries = _canaries(setup, options)
    if canaries is not None and auditor.ledger is not None:
        with bad_input("[attack.canary] observers"):
            check_observers(auditor.ledger, [Observer.parse(name) for name in canaries.observers])
    with bad_input("--lpips-weights"):
        lpips = perceptual.find(options.lpips_weights)
    return Job(setup, auditor, observers, attacks, canaries, options, lpips)


def _chosen(setup: Setup, options: RunOptions) -> tuple[ChosenAttack, ...]:
    chosen = []
    for name in options.attacks or DEFAULT_ATTACKS:
        if name == CANARY:
            continue
        if name not in ATTACKS:
            raise BadInput(f"--attack {name!r} is unknown{instead(name, (*ATTACKS, CANARY))}")
        settings = _table_of(name, setup, options)
        with bad_input(f"[attack.{name}]"):
            for attack in ATTACKS[name].make(settings, options.quick, _device(options.device)):
                values = asdict(cast(Any, attack)).items()
                plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values if k not in ("name", "device")}
                chosen.append(ChosenAttack(name, attack, plain))
    return tuple(chosen)


def _canaries(setup: Setup, options: RunOptions) -> CanarySettings | None:
    """The settings of the canary audit, None where it was not asked for."""
    if CANARY not in options.attacks:
        return None
    return canary_settings(_table_of(CANARY, setup, options), options.quick)


def _table_of(name: str, setup: Setup, options: RunOptions) -> dict[str, Any]:
    """An attack's settings: the config's table, then the overrides."""
    names = (*ATTACKS, CANARY)
    overrides: dict[str, Any] = {}
    for text in options.overrides:
        key, separator, value = text.partition("=")
        attack, dot, entry = key.removeprefix("attack.").partition(".")
        if not separator or not dot:
            raise BadInput(f"--set {text!r}: expected ATTACK.KEY=VALUE, e.g. inversion.iterations=1000")
        if attack not in names:
            raise BadInput(f"--set {text!r}: {attack!r} is not an attack{instead(attack, names)}")
        if attack == name:
            overrides[entry] = toml_value(value) if value.strip() else None
    table = {**setup.config.attack.get(name, {}), **overrides}
    return {key: value for key, value in table.items() if value is not None}


def _device(name: str) -> str:
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: no CUDA device is available here; use --device cpu")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


# --- plan ---


def _plan(
    setup: Setup,
    drawn_labels: Mapping[str, torch.Tensor],
    attacks: Sequence[ChosenAttack],
    observers: Sequence[Observer],
    allow_model: str | None,
) -> Plan:
    """drawn_labels: granted on top of knowledge/, where batches are drawn in secret; `_warnings` says so."""
    module = setup.module(allow_model)
    given = setup.knowledge()
    knowledge = _with_shadows(setup, replace(given, labels={**given.labels, **drawn_labels}), module)
    with bad_input("attack"):
        return evidence.plan([setup.view(observer, module=module) for observer in observers], attacks, knowledge)


def _with_shadows(setup: Setup, knowledge: Knowledge, module: torch.nn.Module) -> Knowledge:
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
    return replace(knowledge, shadow_factory=factory)


# --- price ---


@dataclass(frozen=True, eq=False)
class Priced:
    """The ε table, the canaries' entries, and what a reader must be warned of."""

    rows: tuple[Epsilon, ...] = ()
    attacks: tuple[AttackResult, ...] = ()
    warnings: tuple[str, ...] = ()


def _price(job: Job, progress: Progress | None) -> Priced:
    """Claimed and proven ε, and the demonstrated one where canaries were asked for."""
    ledger, config, claim = job.auditor.ledger, job.setup.config.audit, job.setup.claim
    if ledger is None:
        warnings = ["auditor/ is absent: ε was not priced."]
        if job.canaries is not None:
            warnings.append("No canary audit: without auditor/ there is no ε to compare it with.")
        return Priced(warnings=tuple(warnings))
    wanted = {config.adjacency} | ({claim.adjacency} if claim else set())
    asked = job.observers
    if job.canaries is not None:
        wanted |= set(job.canaries.adjacencies)
        asked += tuple(map(Observer.parse, job.canaries.observers))
    observers = observers_of(ledger, claim, config.observer, *asked)
    adjacencies = tuple(a for a in ADJACENCIES if a in wanted)
    table = setup_rows(job.auditor, config.delta, observers, adjacencies=adjacencies, progress=progress)
    if job.canaries is None:
        return Priced(tuple(table))
    filled, attacks, reasons = demonstrate_rows(
        job.auditor, table, job.canaries, job.options.seed, progress, job.observers
    )
    return Priced(tuple(filled), tuple(attacks), tuple(reasons))


# --- judge ---


def _judge(job: Job, plan: Plan, scores: scoring.ScoredAttacks, priced: Priced) -> Results:
    attacks = (*scores.attacks, *priced.attacks)
    results = Results(
        digest=job.digest,
        setup=_audited(job.auditor),
        quick=job.options.quick,
        seed=job.options.seed,
        verdict=verdict(attacks, priced.rows),
        epsilon=priced.rows,
        attacks=attacks,
        classifiers=scores.classifiers,
        rounds=tuple(job.auditor.rounds),
    )
    measured = any(attack.value("lpips") is not None for attack in attacks)
    by_other = [OTHER_NET] if measured and job.net == "squeeze" else []
    warnings = (*implied(results), *_warnings(job), *by_other, *scores.warnings, *priced.warnings, *plan.refused)
    return results.model_copy(update={"warnings": warnings})


def _audited(auditor: Auditor) -> AuditedSetup:
    """What the results say of the setup, as far as the auditor's half is there to say it."""
    manifest, facts, rounds = auditor.setup.manifest, auditor.facts, auditor.rounds
    inside = auditor.setup.scheme.local.per_example  # DP-SGD bounds records in training and sends what comes of it
    return AuditedSetup(
        digest=manifest.digest,
        name=manifest.name,
        scheme=manifest.scheme.name,
        parameters=manifest.scheme.parameters,
        share=facts.share,
        clients=len(manifest.clients),
        rounds=manifest.rounds,
        clip_norm=facts.clip_norm if inside is None else inside.clip_norm,
        noise_std=facts.noise_std,
        noise_multiplier=facts.noise_multiplier if inside is None else inside.noise_multiplier,
        sensitivity=(
            facts.sensitivity
            if inside is None
            else f"C = {inside.clip_norm:g} (each record's gradient in a local step; record, zero_out)"
        ),
        share_clipped=facts.share_clipped,
        clipped_in_training=facts.clipped_in_training,
        norm_before_clip_median=facts.norm_before_clip_median,
        test_accuracy=rounds[-1].get("test_accuracy") if rounds else None,
        status=manifest.status,
        seed=manifest.seed,
        noise_key=manifest.noise_key or "published",
        config=manifest.config,
        versions=manifest.versions,
        data={"name": manifest.data.name, "classes": manifest.data.classes, **manifest.data.description},
        model=AuditedModel(name=manifest.model.name, parameters=manifest.model.parameters),
    )


def _warnings(job: Job) -> list[str]:
    """What no field of the results says."""
    warnings = []
    if edited := job.auditor.edited:
        warnings.append(
            f"Changed after training: {', '.join(edited)}; what the attacks were given and scored by is not what was"
            " captured."
        )
    if job.auditor.truth is None:
        warnings.append(f"{NO_TRUTH}.")
    if job.auditor.drawn_labels and any(chosen.name == "inversion" for chosen in job.attacks):
        warnings.append(
            "Inversion with known labels is told which records the secret batches drew, which is more than an observer"
            " sees: ε, which counts on that secret, does not bound it; the ceilings do."
        )
    if job.auditor.truth is not None and job.auditor.ledger is None:
        warnings.append("Whether truth/ was changed after training cannot be told: its seal was in auditor/.")
    return warnings
