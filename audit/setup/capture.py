"""Training into a setup folder: messages stream to disk as they are sent, and a killed run goes on where it was.

While it runs, SETUP/.work holds one JSON file a finished round and the state to go on from; both are written
atomically, the state last, so that a round is either all there or done again. The end assembles the setup's tables from
them and removes .work.

A round's file holds what is new in it: its messages, the releases and the versions of models it made. What a message
inherits is the name of a version, never a list of all releases behind it, so files and state grow with the rounds and
not with their square. Versions go into auditor/ alone: one that stood in messages.jsonl would link an anonymous
party's messages from round to round.
"""

from __future__ import annotations

import csv
import io
import json
import platform
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ...attacks.cost import minutes
from ...attacks.membership import ShadowFactory
from ...defenses import engine as engines
from ...defenses.data.dataset import DEALT_BY_LOT
from ...defenses.data.partition import BY_LOT
from ...defenses.federation import Federation, RoundRecord, State, address_of, evaluate, run_many, start_state
from ...defenses.layout import Layout, frozen_of
from ...defenses.local import decision
from ...defenses.process import ready
from ...defenses.progress import Progress
from ...defenses.randomness import generator
from ...defenses.schedule import rounds_planned
from ...defenses.slices import SLICED, Keep, run_sliced
from ...defenses.wire import SERVER, Message, Parcel, Wire, ancestry, opaque_id
from ...defenses.workers import HERE, Workers
from ...metrics.utility import area_under_roc, class_balanced_accuracy, majority_accuracy
from ..errors import BadInput
from ..files import (
    appears,
    digest_of_file,
    digest_of_json,
    file_digests,
    remove_all,
    write_bytes,
    write_json,
    write_lines,
    write_tensors,
)
from ..lock import NAME as LOCK
from ..lock import writing
from .auditor import check_setup
from .description import described, digest_of, engine_of, manifest_of, numbers_of, with_key
from .experiment import Experiment
from .format import BASE, ROWS, SEAL, SOURCE, SourcePart
from .key import FILE as KEY_FILE
from .key import PUBLISHED, keep_key, key_for, read_key
from .ledger import LedgerMessage, ModelVersion, release_row
from .lot import allowed, lot_of, proportional, strata
from .paths import relative
from .public import Public
from .reading import left_by_a_killed_run, plain_json, present, read_text
from .state import load_state, round_files, save_state


@dataclass(frozen=True, eq=False)
class Training:
    """One experiment to train into one folder. key: of its noise, 64 hex digits; None for the one the folder was begun
    with, else a fresh one.
    """

    experiment: Experiment
    folder: Path
    key: str | None = PUBLISHED


def train(
    experiment: Experiment,
    folder: Path,
    *,
    key: str | None = PUBLISHED,
    force: bool = False,
    engine: str = "batched",
    progress: Progress | None = None,
    workers: Workers = HERE,
) -> Path:
    """Train the experiment's federation into `folder`; complete, resumed or repaired, the same bytes by the same key.

    Args:
        experiment: what to train. folder: the setup to write.
        key: as of a `Training`.
        force: replace another setup in it.
        engine: batched, looped or sliced; a network that does not stack is trained by the looped one, a cohort whose
            hub needs more than a sum by another one than the sliced, and the setup says so.
        progress: called with rounds done and planned. workers: who works on slices.

    Raises:
        BadInput: the folder holds something else, or was begun with another key, or somebody else writes it, or the
            disk is too small.
    """
    return train_together(
        [Training(experiment, folder, key)], force=force, engine=engine, progress=progress, workers=workers
    )[0]


def train_together(
    trainings: Sequence[Training],
    *,
    force: bool = False,
    engine: str = "batched",
    progress: Progress | None = None,
    workers: Workers = HERE,
) -> list[Path]:
    """Train several experiments in lock-step, so that clients of all of them are stacked (`run_many`).

    Each is complete, resumed or repaired by itself. In company its values may differ from those of a training of its
    own by rounding; the same company gives the same bytes.

    Args:
        trainings: into folders of their own.
        force, engine, workers: as of `train`, for each. progress: called with rounds done and planned, of all.

    Raises:
        BadInput: as `train`, of the first that is refused; those before it stay begun.
    """
    ready()
    for training in trainings:
        check_space(training.experiment)
    with ExitStack() as locks:
        for training in trainings:
            locks.enter_context(writing(training.folder))
        rounds = _Rounds(progress)
        begun = [b for training in trainings if (b := _begin(training, force, engine, rounds)) is not None]
        rounds.say()
        for name in dict.fromkeys(each.engine for each in begun):
            _finish_together([each for each in begun if each.engine == name], workers)
    return [training.folder for training in trainings]


@dataclass(eq=False)
class _Rounds:
    """The rounds of all trainings together. done, planned: by training."""

    progress: Progress | None
    done: list[int] = field(default_factory=list)
    planned: list[int] = field(default_factory=list)

    def training(self, done: int, planned: int) -> Callable[[int], None]:
        """Takes one in; returns what is called with the rounds that it has done."""
        place = len(self.done)
        self.done.append(done)
        self.planned.append(planned)

        def now(done: int) -> None:
            self.done[place] = done
            self.say()

        return now

    def say(self) -> None:
        if self.progress is not None and self.planned:
            self.progress(sum(self.done), sum(self.planned), "training rounds")


@dataclass(frozen=True, eq=False)
class _Begun:
    """A training whose folder is ready for what is still missing."""

    experiment: Experiment
    folder: Path
    digest: str
    engine: str
    state: State | None
    recorder: _Recorder


def _begin(training: Training, force: bool, engine: str, rounds: _Rounds) -> _Begun | None:
    """None where all of it is there."""
    experiment, folder = training.experiment, training.folder
    digest, engine = digest_of(experiment), engine_of(experiment, engine)
    state_before = _prepare(folder, experiment, digest, engine, force)
    experiment = with_key(experiment, key_for(folder, training.key, begun=state_before != "new"), engine)
    if state_before == "complete":
        shutil.rmtree(folder / ".work", ignore_errors=True)  # left by a command that was killed at the very end
        return None
    if state_before == "damaged":
        remove_all(folder, but=("setup.json", KEY_FILE))
    Public(folder).write("manifest", manifest_of(experiment, "partial", digest, 0, engine))
    keep_key(folder, experiment.key)
    with left_by_a_killed_run(folder / ".work", "use --force to start anew"):
        state = load_state(experiment, folder / ".work")
        planned = rounds_planned(experiment.scheme.schedule)
        now = rounds.training(0 if state is None else state.round, planned)
        recorder = _Recorder(experiment, folder, now)
    recorder.start(state)
    return _Begun(experiment, folder, digest, engine, state, recorder)


def _finish_together(begun: Sequence[_Begun], workers: Workers) -> None:
    """Train what is begun, by one engine."""
    started = time.time()
    federations = [each.experiment.federation(Wire(each.recorder.message)) for each in begun]
    if begun[0].engine == SLICED:
        lasts = [
            run_sliced(federation, each.state, each.recorder.round, each.recorder.keep, workers)
            for federation, each in zip(federations, begun)
        ]
    else:
        lasts = run_many(
            federations,
            engines.ENGINES[begun[0].engine],
            [each.state for each in begun],
            lambda i, record: begun[i].recorder.round(record),
        )
    for each, last in zip(begun, lasts):
        each.recorder.finish(last, each.digest, each.engine)
        Public(each.folder).write(
            "environment",
            {
                "host": socket.gethostname(),
                "platform": platform.platform(),
                "threads": torch.get_num_threads(),
                "seconds": round(time.time() - started, 3),
                "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
        )
        shutil.rmtree(each.folder / ".work")


def planned_bytes(experiment: Experiment) -> dict[str, Any]:
    """What a capture will take on disk, before it starts: messages and bytes, assuming every captured client takes part
    each round.
    """
    rounds = rounds_planned(experiment.scheme.schedule)
    if experiment.config.capture.rounds == "all":
        kept = rounds
    else:
        kept = min(rounds, int(experiment.config.capture.rounds))
    uploads = kept * len(set(experiment.config.capture.clients))
    broadcasts = 0
    if experiment.scheme.topology.central:
        broadcasts = kept + 1
    size = 4 * experiment.layout.dim
    base = 4 * numbers_of(frozen_of(experiment.module))
    return {
        "rounds": rounds,
        "uploads": uploads,
        "broadcasts": broadcasts,
        "parameters": experiment.layout.dim,
        "bytes": (uploads + broadcasts) * size + base,
        "state_bytes": size * (1 if experiment.scheme.topology.central else len(experiment.clients)),
    }


def planned_minutes(experiment: Experiment) -> float:
    """About how long a training takes on two cores, counted from shapes."""
    federation = ShadowFactory(experiment.scheme, experiment.module, tuple(map(len, experiment.clients)))
    rounds = rounds_planned(experiment.scheme.schedule)
    return minutes(federation.operations(tuple(experiment.data.input_shape), rounds))


def check_space(experiment: Experiment) -> None:
    """Raises BadInput where a capture would take more than the config allows."""
    plan, limit = planned_bytes(experiment), experiment.config.capture.max_gib
    if plan["bytes"] > limit * 2**30:
        raise BadInput(
            f"[capture] would write {plan['bytes'] / 2**30:.1f} GiB, more than max_gib = {limit:g}; capture fewer"
            " rounds or clients, or raise max_gib"
        )


OF_A_SETUP = {"auditor", "knowledge", "truth", "tensors", "messages.jsonl", "rounds.csv", "environment.json", BASE}


def _prepare(folder: Path, experiment: Experiment, digest: str, engine: str, force: bool) -> str:
    """What the folder holds of this experiment: "new" (nothing), "partial", "damaged" or "complete".

    Under `force` another setup goes, setup.json last: whatever kills the command, what is left says what it is.
    """
    manifest = folder / "setup.json"
    if not manifest.exists():
        left = {p.name for p in folder.iterdir() if p.name not in (".work", LOCK) and p.suffix != ".part"}
        if left - OF_A_SETUP:
            raise BadInput(f"{folder} is not empty and holds no setup; choose another folder for -o")
        if left and not force:
            raise BadInput(f"{folder} holds a setup without its setup.json; use --force to train it anew")
        remove_all(folder)
        return "new"
    if force:
        remove_all(folder, but=("setup.json",))
        return "new"
    with left_by_a_killed_run(manifest, "use --force to start anew"):
        held = dict(plain_json(read_text(manifest)))
    if held.get("digest") != digest:
        raise BadInput(
            f"{folder} holds another setup (digest {str(held.get('digest'))[:12]}, this config is {digest[:12]}); use"
            " --force to replace it"
        )
    if present(folder / KEY_FILE):
        now = described(replace(experiment, key=read_key(folder / KEY_FILE, folder)))
        for name, rows in zip(ROWS, ("training", "test")):
            if name in held["data"]["description"] and held["data"]["description"][name] != now.get(name):
                raise BadInput(f"{folder} holds a setup of other {rows} data; use --force to replace it")
    begun = held["engine"]["name"]
    if held.get("status") not in ("complete", "diverged") and begun != engine:
        raise BadInput(f"{folder} was begun with --engine {begun}; go on with it, or use --force to start anew")
    if held.get("status") not in ("complete", "diverged"):
        return "partial"
    try:
        check_setup(folder)
    except BadInput as damage:
        if not present(folder / KEY_FILE):
            raise BadInput(
                f"{damage}; without {KEY_FILE} its noise cannot be drawn again: use --force to train it anew"
            ) from None
        return "damaged"
    return "complete"


NAMED = 20  # holders whose names are kept, in the order of the clients
POOL = 200  # images of a label beside which an original is to be picked


class _Recorder:
    """Collects a round's messages, writes the round, then the state."""

    def __init__(self, experiment: Experiment, folder: Path, done: Callable[[int], None]) -> None:
        self.experiment, self.folder, self.work = experiment, folder, folder / ".work"
        self.done = done
        self.observers = experiment.observer_parties
        self.models = start_state(experiment.federation()).models
        self.known: set[str] = set()  # ids of the releases and versions that stand in some round's file
        self.pending: list[tuple[Message, bool]] = []
        self.diverged = False
        for path in round_files(self.work):
            content = plain_json(read_text(path))
            self.known.update(row["id"] for row in content["releases"] + content["models"])

    def message(self, message: Message) -> None:
        """The wire's sink. Messages are kept until their round is written, as long as the round loop keeps them
        itself.
        """
        within = self._within(message.round - 1 if message.sender_party == SERVER else message.round)
        wanted = (
            message.sender_party == SERVER
            or message.sender_party in self.experiment.config.capture.clients
            or bool(set(message.receiver_parties) & set(self.observers.values()))
        )
        self.pending.append((message, within and wanted))

    def _within(self, round: int) -> bool:
        rounds = self.experiment.config.capture.rounds
        return rounds == "all" or round < int(rounds)

    @property
    def keep(self) -> Keep:
        """Which messages those who work on slices write for the recorder to find."""
        clients = frozenset(self.experiment.config.capture.clients)
        return Keep(
            lambda round: clients if self._within(round) else frozenset(),
            partial(_write_message, self.work / "messages", self.experiment.layout),
        )

    def start(self, state: State | None) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        if frozen := frozen_of(self.experiment.module):
            Public(self.folder).write("base", frozen)
        if state is not None:
            self.models = dict(state.models)

    def note_own_models(self, round: int) -> None:
        """Without a server, an observer's own model at the start of a round is part of what it sees: a note from itself
        to itself.
        """
        federation = self.experiment.federation()
        for party in sorted(set(self.observers.values())):
            parcel, address = self.models[party], address_of(federation, round)(party)
            name = opaque_id(federation.secret, "note", round, party)
            self.message(
                Message(
                    id=name,
                    round=round,
                    sender=address,
                    receivers=(address,),
                    kind="weights",
                    num_examples=0,
                    vector=parcel.vector,
                    releases=parcel.releases | federation.disclosed,
                    inherits=parcel.inherits,
                    sender_party=party,
                    receiver_parties=(party,),
                )
            )

    def round(self, record: RoundRecord) -> None:
        if not record.finite:  # no attack gets its uploads, but they were sent: what they reveal counts
            self.diverged = True
            self.note_own_models(record.round)
            self.pending = [(m, captured and m.sender_party == SERVER) for m, captured in self.pending]
            return
        self.note_own_models(record.round)
        figures = dict(record.figures)
        if "test_accuracy" in figures:
            figures |= evaluate(self.experiment.federation(), record.state, _of_classes)
        self._write_round(record.round, record.state.models, figures, record.participants, record.batches)
        self.models = dict(record.state.models)
        save_state(record.state, self.work)
        self.done(record.round + 1)

    def _write_round(
        self,
        round: int,
        models: Mapping[int, Parcel],
        figures: Mapping[str, float],
        participants: tuple[int, ...],
        batches: Mapping[int, Tensor],
    ) -> None:
        messages, ledger = [], []
        tensors: dict[str, Tensor] = {}
        self.pending.sort(key=lambda m: m[0].id)
        values = [message for message, _ in self.pending] + [models[party] for party in sorted(models)]
        versions = ancestry((tip for value in values for tip in value.inherits), self.known)
        sets = [value.releases for value in values] + [version.mentioned for version in versions]
        fresh = {r.id: r for releases in sets for r in releases if r.id not in self.known}
        self.known |= fresh.keys() | {version.id for version in versions}
        for message, captured in self.pending:
            ledger.append(vars(LedgerMessage.of(message, self.experiment.scheme.share, captured)))
            if captured:
                messages.append(
                    {
                        "id": message.id,
                        "round": message.round,
                        "sender": message.sender,
                        "receivers": list(message.receivers),
                        "kind": message.kind,
                        "num_examples": message.num_examples,
                        "side": dict(message.side),
                    }
                )
                if len(message.vector):
                    named = self.experiment.layout.split(message.vector)
                else:
                    named = _read_message(self.work / "messages", message.id)
                tensors |= {f"{message.id}/{name}": value for name, value in named.items()}
        self.pending.clear()
        if tensors:
            Public(self.folder).write("tensors", tensors, round)
        shutil.rmtree(self.work / "messages", ignore_errors=True)
        kept = {
            str(c): sorted(set(batches[c][batches[c] >= 0].tolist()))
            for c in self.experiment.config.capture.clients
            if c in batches
        }
        write_json(
            self.work / f"round-{round:04d}.json",
            {
                "round": round,
                "figures": dict(figures),
                "participants": list(participants),
                "rows": kept,
                "messages": messages,
                "ledger": ledger,
                "models": [{"id": version.id, **asdict(ModelVersion.of(version))} for version in versions],
                "releases": [release_row(fresh[i]) for i in sorted(fresh)],
            },
        )

    def finish(self, state: State, digest: str, engine: str) -> None:
        status = "complete"
        if self.diverged:
            status = "diverged"
        if self.pending:  # the last model on its way down, or what was sent in a round that diverged
            self._write_round(self.pending[0][0].round, {}, {}, (), {})
        rows = [json.loads(path.read_text()) for path in round_files(self.work)]
        done = write_tables(self.folder, rows, self.observers)
        self._write_knowledge_and_truth(rows)
        self._write_source()
        manifest = manifest_of(self.experiment, status, digest, len(done), engine, done)
        write_sealed(self.folder, manifest)

    def _write_source(self) -> None:
        """Nothing where no relative path leads to the data, or also from here, and no column says whose a row is."""
        root, start = self.experiment.config.data.root, "."
        if root is not None and not Path(root).expanduser().is_absolute():
            start = relative(".", self.experiment.base, self.folder.parent)
        source = SourcePart(folder=start, holders=list(self.experiment.data.group_names[:NAMED]))
        if source != SourcePart():
            write_json(self.folder / SOURCE, source.model_dump())

    def _write_knowledge_and_truth(self, rounds: list[dict[str, Any]]) -> None:
        data, capture = self.experiment.data, self.experiment.config.capture
        sender = {m["id"]: m["sender"] for r in rounds for m in r["ledger"] if m["upload"]}
        rows = {
            m["id"]: r["rows"][str(sender[m["id"]])]
            for r in rounds
            for m in r["messages"]
            if r["rows"].get(str(sender.get(m["id"])))  # secret batches may all be empty
        }
        items, public = [], Public(self.folder)
        if data.classes and not data.target_shape:
            labels = {i: sorted(data.targets[torch.tensor(r)].tolist()) for i, r in rows.items()}
            items += public.write_labels(labels, self.experiment.scheme.local.per_example is not None)
        n = min(capture.auxiliary, len(data.auxiliary_inputs))
        if n:
            pick = torch.randperm(
                len(data.auxiliary_inputs), generator=generator(self.experiment.config.seed, "auxiliary")
            )[:n]
            public.write("auxiliary", {"inputs": data.auxiliary_inputs[pick], "targets": data.auxiliary_targets[pick]})
            items.append(
                {
                    "item": "auxiliary",
                    "file": "auxiliary.safetensors",
                    "words": f"{n} examples of the same kind that nobody trained on",
                }
            )
        if capture.candidates:
            items.append(self._write_candidates())
        if self.observers:
            federation = self.experiment.federation()
            own = {
                name: [address_of(federation, r["round"])(party) for r in rounds]
                for name, party in self.observers.items()
            }
            public.write("observers", own)
            items.append(
                {"item": "addresses", "file": "observers.json", "words": "an observer's own address in every round"}
            )
        public.write("knowledge", {"items": items})
        if capture.truth:  # even where no audited client sent anything: then it is known that there is nothing
            union = sorted({row for ids in rows.values() for row in ids})
            place = {row: i for i, row in enumerate(union)}
            index = torch.tensor(union, dtype=torch.long)
            records = {"inputs": data.inputs[index], "targets": data.targets[index], "rows": index}
            n = min(capture.auxiliary, len(data.test_inputs))
            gallery = {"inputs": data.test_inputs[:n], "targets": data.test_targets[:n]}
            if data.holders is not None:
                records["holders"], gallery["holders"] = data.holders[0][index], data.holders[1][:n]
            write_tensors(self.folder / "truth" / "records.safetensors", records)
            if n:
                write_tensors(self.folder / "truth" / "gallery.safetensors", gallery)
            write_json(
                self.folder / "truth" / "messages.json", {i: [place[row] for row in ids] for i, ids in rows.items()}
            )
            pool = self._pool(data.targets[index])
            if len(pool):
                write_tensors(
                    self.folder / "truth" / "pool.safetensors",
                    {"inputs": data.inputs[pool], "targets": data.targets[pool]},
                )

    def _pool(self, labels: Tensor) -> Tensor:
        """Row numbers of images that might as well have been dealt in the place of the captured ones: of the same
        labels, in the same split, left over when the clients' were dealt by lot. What a proof bounds an inversion by is
        how often it picks an original among these.
        """
        data, rows = self.experiment.data, self._left_over()
        if data.inputs.ndim != 4 or not data.classes:
            return rows[:0]
        rng = generator(self.experiment.config.seed, "pool")
        rows = rows[torch.randperm(len(rows), generator=rng)]
        return torch.cat([rows[data.targets[rows] == label][:POOL] for label in labels.unique()] or [rows[:0]])

    def _left_over(self) -> Tensor:
        """Row numbers of the training split that no client got, where they were dealt by lot."""
        left = torch.ones(len(self.experiment.data.targets), dtype=torch.bool)
        if self.experiment.config.data.partition not in BY_LOT:
            return torch.zeros(0, dtype=torch.long)
        left[torch.cat(self.experiment.clients)] = False
        return left.nonzero().flatten()

    def _write_candidates(self) -> dict[str, str]:
        """Members of the audited clients and as many records that nobody trained on, mixed; who is which goes to truth/
        alone. Where only records of one class, or of one holder, may be compared, those of both are in the same
        proportions.

        The others are left over from dealing by lot, where there are enough; else of the test split, by which the model
        is also measured.
        """
        experiment = self.experiment
        data, capture = experiment.data, experiment.config.capture
        rng = generator(experiment.config.seed, "candidates")
        held = torch.cat([experiment.clients[c] for c in capture.clients])
        owner = torch.cat([torch.full((len(experiment.clients[c]),), c) for c in capture.clients])
        pick = torch.randperm(len(held), generator=rng)[: capture.candidates // 2]
        left, wanted = self._left_over(), capture.candidates - len(pick)
        by_lot = len(left) >= wanted
        if by_lot:
            spare = (data.inputs[left], data.targets[left])
        else:
            spare = (data.test_inputs, data.test_targets)
        others = torch.randperm(len(spare[0]), generator=rng)
        test = DEALT_BY_LOT if by_lot else data.description.get("test")
        classes = 0 if data.target_shape else data.classes
        of_members, of_others = data.targets[held[pick]], spare[1]
        holders = None if by_lot else data.holders
        if holders is not None:
            of_members = strata(of_members, holders[0][held[pick]], classes)
            of_others = strata(of_others, holders[1], classes)
        if lot_of(experiment.config.data.partition, classes, test, holders is not None).by_class:
            others = _of_the_classes(of_members, of_others, others, capture.candidates, rng)
        others = others[:wanted]
        inputs = torch.cat([data.inputs[held[pick]], spare[0][others]])
        targets = torch.cat([data.targets[held[pick]], spare[1][others]])
        clients = torch.cat([owner[pick], torch.full((len(others),), -1)])
        order = torch.randperm(len(inputs), generator=rng)
        Public(self.folder).write("candidates", {"inputs": inputs[order], "targets": targets[order]})
        if capture.truth:
            owners = {"client": clients[order].tolist(), "left_over": by_lot}
            if holders is not None:
                owners["holder"] = torch.cat([holders[0][held[pick]], holders[1][others]])[order].tolist()
            write_json(self.folder / "truth" / "membership.json", owners)
        words = f"{len(order)} records whose membership is asked for, {len(pick)} of them members, without saying which"
        return {"item": "candidates", "file": "candidates.safetensors", "words": words}


def _write_message(folder: Path, layout: Layout, name: str, vector: Tensor) -> None:
    """A message for the recorder, by whoever made it."""
    write_tensors(folder / f"{name}.safetensors", layout.split(vector))


def _read_message(folder: Path, name: str) -> dict[str, Tensor]:
    """What `_write_message` wrote. Raises BadInput where it was on a disk of another machine."""
    path = folder / f"{name}.safetensors"
    if not appears(path):
        raise BadInput(f"{path} was written and is not seen here; with --ray all machines must share the folder (NFS)")
    return load_file(path)


def _of_the_classes(members: Tensor, targets: Tensor, order: Tensor, candidates: int, rng: torch.Generator) -> Tensor:
    """The first rows in `order` whose kinds, `targets`, have the proportions of the members' (n,), `candidates` − n at
    most.
    """
    labels, own = members.unique(return_counts=True)
    rows = [order[targets[order] == label] for label in labels.tolist()]
    asked = Fraction(candidates - len(members), max(1, len(members)))
    factor = min(asked, allowed(own.tolist(), [len(r) for r in rows]))
    counts = proportional([n if len(r) else 0 for n, r in zip(own.tolist(), rows)], factor, rng)
    return torch.cat([r[:count] for r, count in zip(rows, counts)])


def write_tables(
    folder: Path, rows: Sequence[Mapping[str, Any]], observers: Mapping[str, int]
) -> list[Mapping[str, Any]]:
    """Messages, ledger and figures of all rounds, each as the round loop left it. Returns those with figures: the
    finished ones, without a last model on its way down.
    """
    done = [r for r in rows if r["figures"]]
    parted = [(r["round"], *parted_figures(r["figures"])) for r in done]
    Public(folder).write("participants", figures_csv([{"round": i, **public} for i, public, _ in parted]))
    write_bytes(folder / "auditor" / "figures.csv", figures_csv([{"round": i, **own} for i, _, own in parted]))
    Public(folder).write("messages", [m for r in rows for m in r["messages"]])
    models, releases = revealed_rows(rows)
    write_lines(folder / "auditor" / "models.jsonl", models)
    write_lines(folder / "auditor" / "releases.jsonl", releases)
    write_json(
        folder / "auditor" / "parties.json",
        {
            "observers": dict(observers),
            "messages": {m["id"]: {k: v for k, v in m.items() if k != "id"} for r in rows for m in r["ledger"]},
        },
    )
    write_bytes(
        folder / "auditor" / "participants.csv",
        figures_csv([{"round": r["round"], "client": c} for r in rows for c in r["participants"]]),
    )
    return done


def write_sealed(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Both seals of a folder in which all else is written, and setup.json last: with it the setup is complete."""
    digests = {name: digest for name, digest in file_digests(folder).items() if name != SEAL}
    private = {name: digest for name, digest in digests.items() if name.startswith(("truth/", "auditor/"))}
    write_json(folder / SEAL, private)
    public = {name: digest for name, digest in digests.items() if name not in private}
    sealed = {**public, SEAL: digest_of_file(folder / SEAL), "setup.json": digest_of_json(manifest)}
    Public(folder).write("manifest", {**manifest, "files": sealed})


def revealed_rows(rounds: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The versions and releases that some message reveals. A model that was never sent, and its hub's own value that
    went into nothing but this model, are nobody's to see.
    """
    rounds = list(rounds)
    messages = [message for r in rounds for message in r["ledger"]]
    models = {model["id"]: model for r in rounds for model in r["models"]}
    sent = {i for message in messages for i in message["inherits"]}
    for i, model in reversed(models.items()):  # children before their parents
        if i in sent:
            sent.update(model["parents"])
    kept = [model for i, model in models.items() if i in sent]
    named = [row["releases"] for row in (*messages, *kept)]
    named += [row[what] or () for row in kept for what in ("summed", "merged")]
    seen = {i for ids in named for i in ids}
    return kept, [release for r in rounds for release in r["releases"] if release["id"] in seen]


def parted_figures(figures: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """A round's figures that everybody sees, and those that tell of private values: a model's test loss too, which an
    observer of single uploads is not told.
    """
    public = {name: figures[name] for name in ("participants",) if name in figures}
    return public, {name: value for name, value in figures.items() if name not in public}


def figures_csv(rows: list[dict[str, Any]]) -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _of_classes(federation: Federation, outputs: Tensor) -> dict[str, float]:
    """What an accuracy hides, of outputs (n, classes), or of the one score (n, 1) of two classes."""
    targets = federation.data.test_targets
    figures = {
        "majority_accuracy": majority_accuracy(targets),
        "balanced_accuracy": class_balanced_accuracy(decision(outputs), targets),
    }
    if outputs.shape[1] <= 2:
        area = area_under_roc(outputs[:, -1] - (outputs[:, 0] if outputs.shape[1] == 2 else 0.0), targets)
        figures |= {} if area is None else {"test_auc": area}
    return figures
