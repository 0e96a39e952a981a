"""`audit run`: a line of stages, each a function of the ones before.

    open, choose (choice.py) → plan → attack (evidence.py) → score (scoring.py) → price → judge → write

Choose, plan and attack get the public half of a setup alone: what an observer sees, and knowledge/. The auditor's half
(truth/ and auditor/) enters at the stage of scores.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch

from ..attacks import ATTACKS, AUTO
from ..attacks.base import Knowledge, View
from ..attacks.canary import CraftedStart
from ..attacks.membership import ShadowFactory
from ..defenses.nearest import instead
from ..defenses.progress import Progress
from ..defenses.terms import ADJACENCIES, Adjacency, Observer
from ..defenses.workers import HERE, Workers
from ..metrics import perceptual
from . import choice, evidence, scoring
from .canary.plan import CanarySettings, canary_settings
from .canary.rows import demonstrate_rows
from .errors import BadInput, bad_input
from .evidence import ChosenAttack, Plan
from .files import cache_folder, digest_of_file, write_bytes
from .lock import writing
from .proven.rows import check_observers, observers_of, setup_rows
from .results.ablation import nothing_said
from .results.format import (
    FILE,
    SCORING,
    AttackResult,
    AuditedModel,
    AuditedSetup,
    Choice,
    Epsilon,
    NotRun,
    Results,
)
from .results.gates import Gate, check_attacks, check_rows
from .results.membership_entries import check_membership
from .results.verdict import verdict
from .results.warnings import NO_TRUTH, implied
from .results.words import listed
from .setup.auditor import Auditor, check_setup
from .setup.config import CANARY, toml_value
from .setup.description import versions
from .setup.folder import Setup
from .setup.ledger import Ledger

INVERSION = "inversion"
NOT_OURS = (
    "a canary is tried by the training's own code, and a recording has none; dpfl_audit.audit_mechanism tries one on a"
    " function of yours"
)
OTHER_NET = "LPIPS is by SqueezeNet here: not to be compared with values by AlexNet, which most papers report."


@dataclass(frozen=True)
class RunOptions:
    """What to attack with.

    attacks: names in `ATTACKS`, "auto" for an inversion by a preset that suits, or "canary"; () for every one that
    applies within `minutes`, see `choice`.
    minutes: None for `choice.DEFAULT_MINUTES`, and then without canaries. canaries: False leaves them out of what
    minutes choose from. observers: () for the config's. overrides: "attack.key=value".
    pixels_only: without LPIPS and reference classifiers, which need networks and decide nothing.
    ablate: also run the inversion without each piece of what it knows; it alone where no attack is named.
    """

    attacks: tuple[str, ...] = ()
    minutes: float | None = None
    canaries: bool = True
    observers: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    seed: int = 0
    device: str = "auto"
    lpips_weights: Path | None = None
    quick: bool = False
    pixels_only: bool = False
    allow_model: str | None = None
    ablate: bool = False


def run(
    folder: Path, output: Path, options: RunOptions, *, force: bool = False, progress: Progress | None = None
) -> Results:
    """`carry_out` what `opened` gives.

    Args:
        folder: the setup. output: the results folder.
        options: what to attack with.
        force, progress: as of `carry_out`.

    Raises:
        BadInput: as theirs; before anything is written, but for an attack that fails.
    """
    return carry_out(opened(folder, options), output, force=force, progress=progress)


def carry_out(
    job: Job, output: Path, *, force: bool = False, progress: Progress | None = None, workers: Workers = HERE
) -> Results:
    """Attack, score, write `output`. A killed run goes on with the cell it was in.

    Args:
        job: of `opened`. output: the results folder.
        force: replace other results.
        progress: called with work done and in all. workers: who attacks; whoever it is, the bytes are the same.

    Raises:
        BadInput: `output` holds something else, or an attack asked for by name fails.
    """
    return carry_out_together([job], [output], force=force, progress=progress, workers=workers)[0]


def carry_out_together(
    jobs: Sequence[Job],
    outputs: Sequence[Path],
    *,
    force: bool = False,
    progress: Progress | None = None,
    workers: Workers = HERE,
) -> list[Results]:
    """`carry_out` of several jobs, whose messages at equal weights are attacked as one (`evidence.collect_together`).

    Args:
        jobs: with the same seed and network for LPIPS, and all of them with or without attacks chosen by name.
        outputs: a results folder for each.
        force, progress, workers: as for `carry_out`.

    Raises:
        BadInput: as `carry_out`, of any of them.
    """
    torch.set_flush_denormal(True)  # before the first parallel region: threads started earlier would not inherit it
    with ExitStack() as locks:
        for output in outputs:
            locks.enter_context(writing(output))
        done = [evidence.finished(output, job.digest, force) for job, output in zip(jobs, outputs)]
        results = [r for r in done if r is not None]
        if len(results) < len(jobs):
            results = _run(jobs, outputs, done, force, progress, workers)
        for output in outputs:
            shutil.rmtree(output / ".work", ignore_errors=True)  # last, and again where a command was killed at it
        return results


def _run(
    jobs: Sequence[Job],
    outputs: Sequence[Path],
    done: Sequence[Results | None],
    force: bool,
    progress: Progress | None,
    workers: Workers,
) -> list[Results]:
    """done: what is there already. Its evidence is planned all the same: what goes together always runs whole."""
    first = jobs[0]
    with bad_input("--lpips-weights"):
        found = first.lpips
        lpips = found if isinstance(found, perceptual.NotMeasured) else perceptual.load(*found)
    plans = [_plan(job, workers) for job in jobs]
    for job, output, there in zip(jobs, outputs, done):
        if there is None:
            evidence.start(output, job.digest, force)
    errands = [evidence.Errand(plan, output) for plan, output in zip(plans, outputs)]
    brought = evidence.collect_together(
        errands, first.options.seed, progress, asked=first.choice is None, workers=workers
    )
    results = []
    for job, output, plan, collected, there in zip(jobs, outputs, plans, brought, done):
        results.append(there if there is not None else _scored(job, output, plan, collected, lpips, progress, workers))
    return results


def _scored(
    job: Job,
    output: Path,
    plan: Plan,
    collected: evidence.Collected,
    lpips: perceptual.Perceptual | perceptual.NotMeasured,
    progress: Progress | None,
    workers: Workers,
) -> Results:
    if collected.failed and not collected.evidence and job.canaries is None:
        name, why = next(iter(collected.failed.items()))
        raise BadInput(f"attack {name}: {why}")
    # Scored by themselves: a p-value depends on how many attacks are judged beside it.
    ablated = tuple(item for item in collected.evidence if "without" in item.cell.settings)
    tried = tuple(item for item in collected.evidence if "without" not in item.cell.settings)
    score = partial(scoring.score, job.setup, job.auditor)
    last = (lpips, job.options.seed, output, progress)
    scores = score(tried, *last)
    weaker = score(ablated, *last).attacks if ablated else ()
    priced = _price(job, progress, workers)
    if job.attacks == () and job.choice is None and not priced.tested:
        raise BadInput(f"attack {CANARY}: nothing was measured; {' '.join(priced.warnings)}".rstrip("."))
    results = _judge(job, plan, collected, scores, priced, weaker)
    write_bytes(output / FILE, results.text().encode())
    return results


# --- open ---


@dataclass(frozen=True, eq=False)
class Ground:
    """What the attacks stand on: what every observer sees, and what is granted to them."""

    views: tuple[View, ...]
    knowledge: Knowledge


@dataclass(frozen=True, eq=False)
class Job:
    """What is asked for, checked: both halves of the setup, and whom and what to try.

    choice: how the attacks were chosen, None where they were named.
    ablated: the attacks without a piece of what they know; not_withheld: by piece, why there is none without it.
    """

    setup: Setup
    auditor: Auditor
    observers: tuple[Observer, ...]
    attacks: tuple[ChosenAttack, ...]
    canaries: CanarySettings | None
    choice: Choice | None
    options: RunOptions
    lpips: tuple[perceptual.Net, Path] | perceptual.NotMeasured
    ablated: tuple[ChosenAttack, ...] = ()
    not_withheld: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all that runs, as typed after --attack."""
        names = dict.fromkeys(chosen.name for chosen in self.attacks)
        return (*names, *([] if self.canaries is None else [CANARY]))

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
            **({"pixels_only": True} if self.options.pixels_only else {}),
            "versions": versions(),
            "truth": self.auditor.truth is not None,
            "auditor": self.auditor.ledger is not None,
            "edited": self.auditor.edited_digests,
        }
        if self.choice is not None:
            content["choice"] = self.choice.model_dump()
        if self.ablated:
            content["ablated"] = [(chosen.name, chosen.settings) for chosen in self.ablated]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def opened(folder: Path, options: RunOptions) -> Job:
    """Read, check and choose; writes nothing.

    Raises:
        BadInput: the setup or an option is wrong, or nothing can be run.
    """
    if options.attacks and options.minutes is not None:
        raise BadInput("--minutes chooses attacks where none is named by --attack; give one of the two")
    setup, auditor = check_setup(folder)  # all of it, before anything is written
    if setup.diverged_at_once:
        raise BadInput(
            f"{folder}: training diverged in round 0, so there is nothing to attack; lower [local] lr or the noise, and"
            " train again"
        )
    with bad_input("--observer"):
        observers = tuple(map(Observer.parse, options.observers)) or (setup.config.audit.observer,)
    if auditor.ledger is not None and not auditor.ledger.participations():
        raise BadInput(
            f"{folder}: no client sent anything in a round that ended finite, so there is nothing to attack and nothing"
            " to price"
        )
    if options.ablate:
        options = _to_ablate(options)
    options = _spelled_out(options, setup)
    names, chosen_by_us = options.attacks, None
    if not names:
        chosen_by_us = _choose(setup, auditor, observers, options)
        names = tuple(ran.attack for ran in chosen_by_us.ran)
    half = _Half(setup, auditor.drawn_labels, observers, options)
    attacks = tuple(chosen for name in names if name != CANARY for chosen in _variants(name, half))
    if any(name.startswith("membership") for name in names):
        check_membership(auditor, setup.knowledge())
    canaries = canary_settings(_table_of(CANARY, setup, options), options.quick) if CANARY in names else None
    if canaries is not None and setup.manifest.recorded is not None:
        raise BadInput(f"attack {CANARY}: {NOT_OURS}")
    _check_overrides(options.overrides, names, named=bool(options.attacks))
    if canaries is not None and auditor.ledger is not None:
        with bad_input("[attack.canary] observers"):
            check_observers(auditor.ledger, [Observer.parse(name) for name in canaries.observers])
    lpips: tuple[perceptual.Net, Path] | perceptual.NotMeasured = scoring.LEFT_OUT
    if not options.pixels_only:
        with bad_input("--lpips-weights"):
            lpips = perceptual.find(options.lpips_weights)
    ablated, not_withheld = _ablated(attacks, half) if options.ablate else ((), {})
    return Job(setup, auditor, observers, attacks, canaries, chosen_by_us, options, lpips, ablated, not_withheld)


def _to_ablate(options: RunOptions) -> RunOptions:
    """The attacks named that knowledge is withheld from; an inversion where none is. Raises BadInput."""
    if options.minutes is not None:
        raise BadInput("--minutes chooses among all attacks, and --ablate is about one; give one of the two")
    able = (*(name for name, kind in ATTACKS.items() if kind.ablate is not None), AUTO)
    for name in options.attacks:
        if name not in able and name in (*ATTACKS, CANARY):
            raise BadInput(
                f"--ablate withholds knowledge from an inversion, and {name} is none; run it by itself, without"
                " --ablate"
            )
    return replace(options, attacks=options.attacks or (INVERSION,))


def _ablated(attacks: Sequence[ChosenAttack], half: _Half) -> tuple[tuple[ChosenAttack, ...], dict[str, str]]:
    """The attacks without each piece of their knowledge; and by piece, why nothing can be withheld.

    Raises BadInput where that is true of every piece.
    """
    found: list[ChosenAttack] = []
    reasons: dict[str, dict[str, str]] = {}
    for chosen in attacks:
        kind = ATTACKS[chosen.name]
        assert kind.ablate is not None  # others were refused
        able = kind.ablate(chosen.attack, half.ground.views, half.ground.knowledge)
        for what, ablated in able.attacks.items():
            said = {"labels": ablated.weaker.labels, "without": what}
            found.append(ChosenAttack(chosen.name, ablated, {**chosen.settings, **said}))
        for what, why in able.nothing.items():
            reasons.setdefault(what, {})[str(chosen.settings.get("objective"))] = why
    done = {chosen.settings["without"] for chosen in found}
    nothing = {
        what if what not in done else f"{what} for {listed(list(by_objective))}": next(iter(by_objective.values()))
        for what, by_objective in reasons.items()
    }
    if not found:
        raise BadInput(f"--ablate: {nothing_said(nothing)}")
    return tuple(found), nothing


def _spelled_out(options: RunOptions, setup: Setup) -> RunOptions:
    """`--attack auto` as what it is short for. Raises BadInput."""
    if AUTO not in options.attacks:
        return options
    if INVERSION in options.attacks:
        raise BadInput(f"--attack {AUTO} is an inversion by a preset that suits; give it or --attack {INVERSION}")
    named = _table_of(INVERSION, setup, options).get("preset", AUTO)
    if named != AUTO:
        raise BadInput(
            f"--attack {AUTO} picks the preset, which is {named!r} already; use --attack {INVERSION} for that"
        )
    names = tuple(INVERSION if name == AUTO else name for name in options.attacks)
    return replace(options, attacks=names, overrides=(*options.overrides, f"{INVERSION}.preset={AUTO}"))


@dataclass(frozen=True, eq=False)
class _Half:
    """The public half of a setup, and what is wanted of it. Views are made where something asks for them."""

    setup: Setup
    drawn_labels: Mapping[str, torch.Tensor]
    observers: tuple[Observer, ...]
    options: RunOptions

    @cached_property
    def ground(self) -> Ground:
        return _ground(self.setup, self.drawn_labels, self.observers, self.options.allow_model)


def _variants(name: str, half: _Half) -> tuple[ChosenAttack, ...]:
    """An attack as the config's table and the options want it, in all its variants."""
    if name not in ATTACKS:
        raise BadInput(f"--attack {name!r} is unknown{instead(name, (*ATTACKS, AUTO, CANARY))}")
    kind, options = ATTACKS[name], half.options
    settings, said, variants = _table_of(name, half.setup, options), dict[str, Any](), []
    with bad_input(f"[attack.{name}]"):
        if kind.pick is not None and settings.get("preset") == AUTO:
            picked = kind.pick(settings, half.ground.views, half.ground.knowledge)
            settings, said = dict(picked.settings), {"preset": picked.settings["preset"], "picked": picked.why}
        for attack in kind.make(settings, options.quick, _device(options.device)):
            values = asdict(cast(Any, attack)).items()
            plain: dict[str, Any] = {  # a GPU rounds otherwise, so that its results are others than the CPU's
                k: list(v) if isinstance(v, tuple) else v
                for k, v in values
                if k != "name" and (k, v) != ("device", "cpu")
            }
            if weights := plain.get("prior_weights"):
                said["prior_weights_sha256"] = _digest_of_weights(Path(weights).expanduser())
            variants.append(ChosenAttack(name, attack, {**plain, **said}))
    return tuple(variants)


def _digest_of_weights(path: Path) -> str:
    try:
        return digest_of_file(path)
    except OSError as error:
        raise ValueError(f"prior_weights: {path} cannot be read ({error.strerror})") from None


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


def _check_overrides(overrides: Sequence[str], names: Sequence[str], named: bool) -> None:
    """That no setting is of an attack that does not run, and so without effect. Raises BadInput."""
    for text in overrides:
        attack = text.partition("=")[0].removeprefix("attack.").partition(".")[0]
        if attack not in names:
            how = f"add --attack {attack}" if named else f"name it with --attack {attack}"
            raise BadInput(f"--set {text!r}: {attack} does not run here; {how}")


def _device(name: str) -> str:
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: no CUDA device is available here; use --device cpu")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


# --- choose and plan ---


def _ground(
    setup: Setup, drawn_labels: Mapping[str, torch.Tensor], observers: Sequence[Observer], allow_model: str | None
) -> Ground:
    """drawn_labels: granted on top of knowledge/, where batches are drawn in secret; `_warnings` says so."""
    module = setup.module(allow_model)
    given = setup.knowledge()
    granted = replace(given, labels={**given.labels, **drawn_labels}, kept=cache_folder("denoisers"))
    knowledge = _with_shadows(setup, granted, module)
    return Ground(tuple(setup.view(observer, module=module) for observer in observers), knowledge)


def _choose(setup: Setup, auditor: Auditor, observers: Sequence[Observer], options: RunOptions) -> Choice:
    """What runs where no attack is named. Canaries, which take minutes, only where minutes are granted."""
    if why := _not_attackable(setup):
        there = choice.Applying({}, dict.fromkeys(ATTACKS, why))
    else:
        half = _Half(setup, auditor.drawn_labels, tuple(observers), options)
        asked = [n for n, kind in ATTACKS.items() if any(kind.arises(view) for view in half.ground.views)]
        variants = {name: _variants(name, half) for name in asked}
        there = choice.applying(half.ground.views, variants, half.ground.knowledge)
    canary = _canary(setup, auditor, options)
    if setup.manifest.recorded is not None and not there.work:  # ε and the checks are worth a page of their own
        refused = {**{name: _of_a_recording(why) for name, why in there.refused.items()}, **canary.refused}
        lost = tuple(NotRun(attack=name, reason=why) for name, why in refused.items())
        return Choice(minutes=options.minutes or choice.DEFAULT_MINUTES, ran=(), not_run=lost)
    if options.minutes is None or not options.canaries:
        made = choice.choose(there, options.minutes or choice.DEFAULT_MINUTES)
        why = choice.NOT_BY_DEFAULT if CANARY in canary.work else canary.refused[CANARY]
        return made.having(not_run=(*made.not_run, NotRun(attack=CANARY, reason=why)))
    both = choice.Applying({**there.work, **canary.work}, {**there.refused, **canary.refused})
    return choice.choose(both, options.minutes)


def _not_attackable(setup: Setup) -> str:
    """Why no attack can be tried on a recording, "" where some can."""
    recorded = setup.manifest.recorded
    if recorded is None or (recorded.network and recorded.data):
        return ""
    if not recorded.network:
        return (
            "the recording holds no network that can be built again; give the Recorder a stack of torch's own layers,"
            " or a class of yours"
        )
    return (
        "the recording does not say what a record looks like; give the Recorder data={'input_shape': …, 'classes': …}"
    )


def _of_a_recording(why: str) -> str:
    """Why an attack cannot be tried, with the remedy that a recording has."""
    if "labels of none" in why:
        return "no upload came with its records, so their labels are not known; rec.upload(…, records=…) tells them"
    if "candidates" in why:
        return "no records to ask about; rec.candidates(…) names some"
    return why


def _canary(setup: Setup, auditor: Auditor, options: RunOptions) -> choice.Applying:
    """Whether canaries can be tried, and at which cost."""
    settings = canary_settings(_table_of(CANARY, setup, options), options.quick)
    if setup.manifest.recorded is not None:
        return choice.Applying({}, {CANARY: NOT_OURS})
    if auditor.ledger is None or auditor.truth is None:
        lacking = "auditor/" if auditor.ledger is None else "truth/"
        return choice.Applying({}, {CANARY: f"{lacking} is absent, and the auditor plays the attacker with it"})
    module, shape = setup.module(options.allow_model), tuple(setup.manifest.data.input_shape)
    federation = ShadowFactory(setup.scheme, module, tuple(setup.manifest.clients))
    crafting = CraftedStart().operations(module, shape, sum(setup.manifest.clients))
    operations = choice.canary_operations(settings, federation.operations(shape, setup.manifest.rounds), crafting)
    return choice.Applying({CANARY: [(operations, "")]}, {})


def _plan(job: Job, workers: Workers) -> Plan:
    if not job.attacks and job.setup.manifest.recorded is not None:
        return Plan((), job.setup.knowledge(), ())
    half = _Half(job.setup, job.auditor.drawn_labels, job.observers, job.options)
    ground, knowledge = half.ground, half.ground.knowledge
    if knowledge.shadow_factory is not None:
        knowledge = replace(knowledge, shadow_factory=replace(knowledge.shadow_factory, workers=workers))
    try:
        return evidence.plan(ground.views, (*job.attacks, *job.ablated), knowledge)
    except ValueError as refused:
        raise BadInput(f"attack: {refused}; {_others(job, half)}") from refused


def _others(job: Job, half: _Half) -> str:
    """What to name in place of an attack that is refused."""
    ground = half.ground
    variants = {}
    for name, kind in ATTACKS.items():
        if not any(kind.arises(view) for view in ground.views):
            continue
        with suppress(BadInput):  # a table of an attack that nobody asked for
            variants[name] = _variants(name, half)
    names = [*choice.applying(ground.views, variants, ground.knowledge).work]
    if job.auditor.ledger is not None and job.auditor.truth is not None:
        names.append(CANARY)
    what = f"what applies to this setup and observer: {', '.join(names)}" if names else "nothing else applies either"
    if len(ground.knowledge.candidate_ids) or any(name.startswith("membership") for name in job.names):
        return what
    return f"{what}; membership attacks need candidates in [capture]"


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
    digest = hashlib.sha256(json.dumps([setup.manifest.digest, versions()], sort_keys=True).encode()).hexdigest()
    sizes, shadows = tuple(setup.manifest.clients), cache_folder("shadows")
    evaluate = len(knowledge.auxiliary_inputs) > 0
    if setup.manifest.recorded is not None and not setup.manifest.recorded.local:
        return knowledge  # nobody told how clients train
    factory = ShadowFactory(setup.scheme, start, sizes, digest, shadows, evaluate=evaluate)
    return replace(knowledge, shadow_factory=factory)


# --- price ---


@dataclass(frozen=True, eq=False)
class Priced:
    """The ε table, the canaries' entries, and what a reader must be warned of."""

    rows: tuple[Epsilon, ...] = ()
    attacks: tuple[AttackResult, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def tested(self) -> bool:
        return any(row.demonstrated is not None or row.demonstrated_on_condition is not None for row in self.rows)


def priced_places(job: Job, ledger: Ledger) -> tuple[tuple[Observer, ...], tuple[Adjacency, ...]]:
    """The observers and adjacencies of the ε table, each for both units; known before anything runs."""
    config, claim = job.setup.config.audit, job.setup.claim
    wanted = {config.adjacency} | ({claim.adjacency} if claim else set())
    asked = job.observers
    if job.canaries is not None:
        wanted |= set(job.canaries.adjacencies)
        asked += tuple(map(Observer.parse, job.canaries.observers))
    return tuple(observers_of(ledger, claim, config.observer, *asked)), tuple(a for a in ADJACENCIES if a in wanted)


def _about(job: Job) -> tuple[Observer, ...]:
    """Whom the run is about: who is named by the config, by `--observer` or for canaries."""
    canaries = () if job.canaries is None else map(Observer.parse, job.canaries.observers)
    return (job.setup.config.audit.observer, *job.observers, *canaries)


def check_gates(gates: Sequence[Gate], job: Job) -> None:
    """That this run measures what is gated, said before a long run. Raises BadInput."""
    check_attacks(gates, job.names)
    if (ledger := job.auditor.ledger) is not None:
        check_rows(gates, *priced_places(job, ledger))


def _price(job: Job, progress: Progress | None, workers: Workers = HERE) -> Priced:
    """Claimed and proven ε, and the demonstrated one where canaries were asked for."""
    ledger, config = job.auditor.ledger, job.setup.config.audit
    if ledger is None:
        warnings = ["auditor/ is absent: ε was not priced."]
        if job.canaries is not None:
            warnings.append("No canary audit: without auditor/ there is no ε to compare it with.")
        return Priced(warnings=tuple(warnings))
    observers, adjacencies = priced_places(job, ledger)
    table = setup_rows(job.auditor, config.delta, observers, adjacencies=adjacencies, progress=progress)
    asked = (str(config.observer), config.unit, config.adjacency)
    about = _about(job)
    table = [
        row.having(
            asked=(row.observer, row.unit, row.adjacency) == asked,
            aside=not any(Observer.parse(row.observer).sees_at_most(observer) for observer in about),
        )
        for row in table
    ]
    if job.canaries is None:
        return Priced(tuple(table))
    filled, attacks, reasons = demonstrate_rows(
        replace(job.auditor, allow_model=job.options.allow_model),
        table,
        job.canaries,
        job.options.seed,
        progress,
        job.observers,
        workers,
    )
    return Priced(tuple(filled), tuple(attacks), tuple(reasons))


# --- judge ---


def _judge(
    job: Job,
    plan: Plan,
    collected: evidence.Collected,
    scores: scoring.ScoredAttacks,
    priced: Priced,
    ablated: tuple[AttackResult, ...],
) -> Results:
    """ablated: weaker than the attacks by intent, so that no verdict is on them."""
    attacks = (*scores.attacks, *priced.attacks)
    chosen_by_us, unfinished = _ran(job.choice, collected)
    setup = _audited(job.auditor)
    results = Results(
        digest=job.digest,
        scoring=SCORING,
        setup=setup,
        quick=job.options.quick,
        seed=job.options.seed,
        verdict=verdict(attacks, priced.rows, setup.secret_key, bool(setup.unchecked)),
        epsilon=priced.rows,
        attacks=attacks,
        ablated=ablated,
        not_withheld=dict(job.not_withheld),
        choice=chosen_by_us,
        classifiers=scores.classifiers,
        rounds=tuple(job.auditor.rounds),
    )
    measured = any(attack.value("lpips") is not None for attack in attacks)
    by_other = [OTHER_NET] if measured and job.net == "squeeze" else []
    warnings = (*implied(results), *_warnings(job), *by_other, *scores.warnings, *priced.warnings, *plan.refused)
    return results.model_copy(update={"warnings": tuple(dict.fromkeys((*warnings, *unfinished)))})


def _ran(chosen_by_us: Choice | None, collected: evidence.Collected) -> tuple[Choice | None, list[str]]:
    """The choice without what failed, which did not run; and a sentence on what failed in parts."""
    brought = {item.evidence.attack for item in collected.evidence}
    parts = [f"Not finished: {name} ({why})." for name, why in collected.failed.items() if name in brought]
    if chosen_by_us is None:
        return None, parts
    lost = {name: why for name, why in collected.failed.items() if name not in brought}
    failed = (NotRun(attack=ran.attack, reason=lost[ran.attack]) for ran in chosen_by_us.ran if ran.attack in lost)
    ran = tuple(ran for ran in chosen_by_us.ran if ran.attack not in lost)
    return chosen_by_us.having(ran=ran, not_run=(*chosen_by_us.not_run, *failed)), parts


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
        engine=None if manifest.engine.name == "recorded" else manifest.engine.name,
        recorded="" if manifest.recorded is None else manifest.recorded.by,
        declared=auditor.declared,
        seed=manifest.seed,
        noise_key="secret" if auditor.key_is_secret else "published",
        messages=hashlib.sha256(json.dumps(manifest.files, sort_keys=True).encode()).hexdigest(),
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
