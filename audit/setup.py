"""A trained setup on disk (format 1): reading one back, checking every part of it, and showing it to an observer.

Only JSON, CSV and safetensors are read, so opening somebody else's setup never runs code; nothing outside its folder is opened.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from .. import __version__
from ..attacks.base import Knowledge, PublicFacts, Seen, View
from ..defenses import models
from ..defenses.layout import Layout
from ..defenses.randomness import stream
from ..defenses.scheme import Step
from ..defenses.steps.clip import Clip, MedianClip, OwnNorm
from ..defenses.steps.components import ClipComponents
from ..defenses.wire import SERVER, Release
from .config import Config, parse_config
from .errors import BadInput, bad_input
from .experiment import Experiment
from .files import digest_of_file, digest_of_json
from .observers import NEED_SERVER, OWN_PARTIES, uplink_count
from .reading import plain_json, present, read_text, regular

FORMAT = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


Id = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class SchemePart(_Part):
    name: str
    title: str
    source: str
    parameters: dict[str, Any]


class ClaimPart(_Part):
    sentence: str
    observer: str
    unit: Literal["record", "client"]
    adjacency: Literal["zero_out", "replace_one"]
    delta: float = Field(gt=0, lt=1)


class ModelPart(_Part):
    name: str
    parameters: int = Field(ge=1)
    layers: list[str]


class LayoutPart(_Part):
    names: list[str] = Field(min_length=1)
    shapes: list[list[Count]]


class DataPart(_Part):
    name: str
    input_shape: list[Count] = Field(min_length=1)
    classes: int = Field(ge=0)
    mean: list[float]
    std: list[Positive]
    description: dict[str, Any]


class FactsPart(_Part):
    share: Literal["gradient", "update", "weights"]
    optimiser: str
    lr: Positive
    batch_size: Count
    epochs: Count | None
    steps: Count | None
    clip_norm: NotNegative | None
    clip_order: Literal[1, 2]
    per_layer: bool
    noise_std: NotNegative | None
    noise_multiplier: NotNegative | None
    sensitivity: str
    share_clipped: float | None = Field(ge=0, le=1)
    norm_before_clip_median: NotNegative | None
    extra: dict[str, Any] = {}


class Manifest(_Part):
    """setup.json."""

    format: Literal[1]
    status: Literal["complete", "partial", "diverged"]
    name: str
    seed: int
    digest: str
    rounds: int = Field(ge=0)
    config: dict[str, Any]
    scheme: SchemePart
    clients: list[Count] = Field(min_length=1)
    facts: FactsPart
    claim: ClaimPart | None
    model: ModelPart
    layout: LayoutPart
    data: DataPart
    engine: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, str] = {}      # the seal: SHA-256 by path; of setup.json, of everything else in it


class MessageRow(_Part):
    """One line of messages.jsonl."""

    id: Id
    round: int = Field(ge=0)
    sender: str
    receivers: list[str]
    kind: Literal["gradient", "update", "weights"]
    num_examples: int = Field(ge=0)
    releases: list[str]
    side: dict[str, float] = {}


class SamplingPart(_Part):
    kind: Literal["poisson", "without_replacement"]
    population: Count
    cohort: Positive
    unit: Literal["record", "client"]


class ReleaseRow(_Part):
    """One line of auditor/releases.jsonl: `Release`, ∞ as "inf"."""

    id: Id
    round: int = Field(ge=0)
    mechanism: Literal["none", "gaussian", "laplace"]
    noise_std: NotNegative
    bound_norm: NotNegative | None
    bound_order: Literal[1, 2]
    bound_of: Literal["record", "client"]
    records: Count
    ratio: Annotated[float, Field(ge=0, le=1e100)] | Literal["inf"]
    subjects: list[int]
    sampling: SamplingPart | None
    parents: list[Id]
    steps: Count
    problem: str


class PartyRow(_Part):
    """A message as it really was."""

    sender: int
    receivers: list[int]
    releases: list[Id]
    round: int = Field(ge=0)
    kind: Literal["gradient", "update", "weights"]
    captured: bool
    upload: bool


class Parties(_Part):
    """auditor/parties.json."""

    observers: dict[Literal["peer", "leader"], int] = {}
    messages: dict[Id, PartyRow]


class Labels(RootModel[dict[str, list[Annotated[int, Field(ge=0)]]]]):
    """Class numbers, or rows of truth/records.safetensors, by message."""

    model_config = ConfigDict(strict=True)


class Addresses(RootModel[dict[Literal["peer", "leader"], list[str]]]):
    """knowledge/observers.json: an observer's own address in every round."""

    model_config = ConfigDict(strict=True)


class Item(_Part):
    item: str
    file: Literal["labels.json", "auxiliary.safetensors", "candidates.safetensors", "observers.json"]
    words: str


class Items(_Part):
    """knowledge/knowledge.json."""

    items: list[Item]


@dataclass(frozen=True, eq=False)
class Setup:
    """A setup folder that has been checked. Tensors are read when they are asked for."""

    folder: Path
    manifest: Manifest
    messages: tuple[MessageRow, ...]

    @property
    def layout(self) -> Layout:
        return Layout(tuple(self.manifest.layout.names), tuple(tuple(s) for s in self.manifest.layout.shapes))

    @cached_property
    def config(self) -> Config:
        return parse_config(self.manifest.config, f"{self.folder / 'setup.json'}: config")

    @cached_property
    def rounds(self) -> list[dict[str, float]]:
        """rounds.csv, one row a finished round, numbers where there are any."""
        path = self.folder / "rounds.csv"
        text = read_text(path, self.folder)
        try:
            table = list(csv.reader(text.splitlines()))
        except csv.Error as error:
            raise BadInput(f"{path}: not a CSV table ({error})") from None
        head, rows = (table[0], table[1:]) if table else ([], [])
        if not text.endswith("\n") or len(rows) != self.manifest.rounds or any(len(row) != len(head) for row in rows) or (rows and head[0] != "round"):
            raise BadInput(f"{path}: expected a header from `round` on and {self.manifest.rounds} whole lines of as many values")
        found = []
        for i, row in enumerate(rows):
            values = {name: _number(path, i, name, text) for name, text in zip(head, row) if text}
            if values.get("round") != i:
                raise BadInput(f"{path}: row {i + 1} is of round {row[0]!r}; expected {i}")
            found.append(values)
        return found

    def check_seal(self, *names: str) -> None:
        """That files are, byte for byte, those setup.json names. Raises BadInput."""
        for name in names:
            if (sealed := self.manifest.files.get(name)) and sealed != digest_of_file(regular(self.folder / name, self.folder)):
                raise BadInput(f"{self.folder / name} was changed after training: its SHA-256 is not the one in setup.json; use it as it was written")

    @property
    def edited(self) -> list[str]:
        """Files of knowledge/ and truth/ that are not as they were written: an owner may change what is assumed, but not without a word."""
        names = [name for name in self.manifest.files if name.startswith(("knowledge/", "truth/")) and present(self.folder / name.partition("/")[0])]
        return [n for n in names if not present(self.folder / n) or digest_of_file(regular(self.folder / n, self.folder)) != self.manifest.files[n]]

    def load(self, message: MessageRow) -> Tensor:
        """A message's flat vector (d,), checked for shape and finiteness."""
        path = self.folder / "tensors" / f"round-{message.round:04d}.safetensors"
        tensors = {}
        with _open(self.folder, path) as file:
            present = set(file.keys())
            for name, shape in zip(self.layout.names, self.layout.shapes):
                key = f"{message.id}/{name}"
                if key not in present:
                    raise BadInput(f"{path}: tensor {key!r} is missing; messages.jsonl names message {message.id} in round {message.round}")
                value = file.get_tensor(key)
                if tuple(value.shape) != shape:
                    raise BadInput(f"{path}: tensor {key!r} has shape {tuple(value.shape)}; setup.json's layout says {shape}")
                if value.dtype != torch.float32:
                    raise BadInput(f"{path}: tensor {key!r} is of {value.dtype}; expected torch.float32")
                if not torch.isfinite(value).all():
                    raise BadInput(f"{path}: tensor {key!r} holds a value that is not finite")
                tensors[name] = value
        return self.layout.join(tensors)

    def module(self, allow_model: str | None = None) -> nn.Module:
        """A fresh network of the setup's architecture. A model outside the zoo is imported only if `allow_model` repeats its name."""
        part, data = self.manifest.model, self.manifest.data
        with bad_input(f"{self.folder / 'setup.json'}: model"):
            module = models.build(
                part.name, input_shape=tuple(data.input_shape), classes=data.classes, mean=tuple(data.mean), std=tuple(data.std),
                seed=0, allow=allow_model, **self.config.model.options,
            )
        if Layout.of(module) != self.layout:
            raise BadInput(f"{self.folder / 'setup.json'}: layout does not fit the model {part.name!r}; it is from another version or was changed")
        return module

    def view(self, observer: str, allow_model: str | None = None, module: nn.Module | None = None) -> View:
        """What an observer sees, addresses only. Raises BadInput for an unknown observer."""
        return View(
            observer=observer,
            messages=tuple(self._seen(m) for m in self._seen_by(observer)),
            module=module if module is not None else self.module(allow_model),
            layout=self.layout,
            facts=self.facts,
            input_shape=tuple(self.manifest.data.input_shape),
            classes=self.manifest.data.classes,
        )

    def _seen_by(self, observer: str) -> list[MessageRow]:
        path = self.folder / "knowledge" / "observers.json"
        own_addresses = _checked(Addresses, self.folder, path).root if present(path) else {}
        if observer in NEED_SERVER and own_addresses:
            raise BadInput(f"observer {observer!r}: this setup has no server; its observers are {', '.join(own_addresses)} and uplink")
        if observer not in OWN_PARTIES:
            return [m for m in self.messages if _sees(observer, m, self.manifest.rounds)]
        addresses = own_addresses.get(cast(Any, observer))
        if addresses is None:
            raise BadInput(f"observer {observer!r}: this setup has a server and no such party; known are server, downlink, uplink, model")
        own = set(addresses)
        received = [m for m in self.messages if own & set(m.receivers)]
        return sorted(received, key=lambda m: (m.round, not is_note(m)))

    @property
    def facts(self) -> PublicFacts:
        part = self.manifest.facts
        return PublicFacts(
            scheme=self.manifest.scheme.name, share=part.share, optimiser=part.optimiser, lr=part.lr, batch_size=part.batch_size, epochs=part.epochs,
            steps=part.steps, clip_norm=part.clip_norm, clip_order=part.clip_order, per_layer=part.per_layer, noise_std=None if part.extra.get("noise_unknown") else part.noise_std, extra=part.extra,
        )

    def _seen(self, m: MessageRow) -> Seen:
        return Seen(m.id, m.round, m.sender, tuple(m.receivers), m.kind, m.num_examples, lambda: self.load(m), m.sender == "server" or is_note(m))

    def knowledge(self) -> Knowledge:
        """What the attacker is granted: labels and auxiliary data, as far as they are in knowledge/."""
        path, data = self.folder / "knowledge", self.manifest.data
        if present(path / "knowledge.json"):
            for item in _checked(Items, self.folder, path / "knowledge.json").items:
                regular(path / item.file, self.folder)      # what the report will name must be there
        if present(path / "observers.json"):
            _checked(Addresses, self.folder, path / "observers.json")
        labels = {}
        if present(path / "labels.json"):
            for key, values in _checked(Labels, self.folder, path / "labels.json").root.items():
                if not all(v < max(1, data.classes) for v in values):
                    raise BadInput(f"{path / 'labels.json'}: labels of message {key!r} must be class numbers from 0 to {data.classes - 1}")
                labels[key] = torch.tensor(values, dtype=torch.long)
        given = Knowledge(labels, *(self._examples(path / "auxiliary.safetensors") or self._no_examples))
        candidates = self._examples(path / "candidates.safetensors")
        return given if candidates is None else replace(given, candidate_inputs=candidates[0], candidate_targets=candidates[1], candidate_ids=torch.arange(len(candidates[0])))

    @property
    def _no_examples(self) -> tuple[Tensor, Tensor]:
        return torch.zeros(0, *self.manifest.data.input_shape), torch.zeros(0, dtype=torch.long)

    def _examples(self, path: Path) -> tuple[Tensor, Tensor] | None:
        """inputs (n, *shape) and targets (n,) of a file, checked; None where there is none."""
        if not present(path):
            return None
        shape, classes = tuple(self.manifest.data.input_shape), self.manifest.data.classes
        inputs, targets = _tensor(self.folder, path, "inputs", shape), _tensor(self.folder, path, "targets", ())
        if inputs.dtype != torch.float32:
            raise BadInput(f"{path}: tensor 'inputs' is of {inputs.dtype}; expected torch.float32")
        if len(shape) == 3 and inputs.numel() and not 0 <= float(inputs.min()) <= float(inputs.max()) <= 1:
            raise BadInput(f"{path}: the pixels of tensor 'inputs' run from {float(inputs.min()):g} to {float(inputs.max()):g}; expected 0 to 1")
        if len(inputs) != len(targets):
            raise BadInput(f"{path}: {len(inputs)} inputs and {len(targets)} targets; every example needs one of each")
        if classes and (targets.dtype != torch.long or bool(((targets < 0) | (targets >= classes)).any())):
            raise BadInput(f"{path}: tensor 'targets' must hold class numbers from 0 to {classes - 1} as torch.int64")
        return inputs, targets

    @cached_property
    def truth(self) -> Truth | None:
        """What the captured uploads were made of, for scoring only; None where the owner does not share it."""
        folder = self.folder / "truth"
        if not present(folder) or (folder.is_dir() and not any(folder.iterdir())):
            return None
        records = self._examples(regular(folder / "records.safetensors", self.folder))
        assert records is not None
        path = folder / "messages.json"
        places = _checked(Labels, self.folder, path).root
        known = {m.id for m in self.messages}
        for key, rows in places.items():
            if key not in known or not rows or not all(r < len(records[0]) for r in rows):
                raise BadInput(f"{path}: message {key!r} is not in messages.jsonl, or names records outside 0 to {len(records[0]) - 1}")
        gallery = self._examples(folder / "gallery.safetensors") or (records[0][:0], records[1][:0])
        if len(gallery[0]) != (expected := min(self.config.capture.auxiliary, self.manifest.data.description.get("sizes", {}).get("test", 0))):
            raise BadInput(f"{folder / 'gallery.safetensors'}: {len(gallery[0])} examples; its config and data say {expected}")
        return Truth(*records, {k: tuple(v) for k, v in places.items()}, *gallery, self._owners(folder / "membership.json"))

    def _owners(self, path: Path) -> Tensor | None:
        """Who trained on each membership candidate."""
        if not present(path):
            return None
        told = _json(self.folder, path)
        owners = told.get("client") if isinstance(told, dict) else None
        count = len(self.knowledge().candidate_ids)
        if not isinstance(owners, list) or len(owners) != count or not all(type(c) is int and -1 <= c < len(self.manifest.clients) for c in owners):
            raise BadInput(f"{path}: client must list, for every one of {count} candidates, the number of the client that trained on it, or -1 for nobody")
        return torch.tensor(owners, dtype=torch.long)

    @cached_property
    def ledger(self) -> Ledger | None:
        """The auditor's key: true parties and releases; None where auditor/ was removed."""
        folder, clients = self.folder / "auditor", range(len(self.manifest.clients))
        if not present(folder) or (folder.is_dir() and not any(folder.iterdir())):
            return None
        from .capture import release_of  # capture writes setups with this module's help

        path = folder / "releases.jsonl"
        rows = _rows(ReleaseRow, self.folder, path)
        releases = {row.id: release_of(row.model_dump()) for row in rows}
        for row in rows:
            if not row.subjects or not set(row.subjects) <= set(clients):
                raise BadInput(f"{path}: release {row.id} is about clients {row.subjects}; expected some of 0 to {clients[-1]}")
            if row.sampling is not None and row.sampling.cohort > row.sampling.population:
                raise BadInput(f"{path}: release {row.id} samples {row.sampling.cohort:g} of {row.sampling.population}; a sample fits in its population")
        path = folder / "parties.json"
        parties = _checked(Parties, self.folder, path)
        for key, row in parties.messages.items():
            if missing := [i for i in row.releases if i not in releases]:
                raise BadInput(f"{path}: message {key} reveals release {missing[0]}, which releases.jsonl lacks")
            if not {row.sender, *row.receivers} <= {SERVER, *clients}:
                raise BadInput(f"{path}: message {key} is between parties {[row.sender, *row.receivers]}; expected some of {SERVER} (the server) to {clients[-1]}")
        if not set(parties.observers.values()) <= set(clients):
            raise BadInput(f"{path}: observers are the parties {parties.observers}; expected some of 0 to {clients[-1]}")
        kept = {key: (row.round, row.kind, sorted(row.releases)) for key, row in parties.messages.items() if row.captured}
        if kept != {m.id: (m.round, m.kind, sorted(m.releases)) for m in self.messages}:
            raise BadInput(f"{path}: the captured messages are not those of messages.jsonl, in id, round, kind and releases")
        self.check_seal("auditor/releases.jsonl", "auditor/parties.json")      # every number in them decides the proven ε
        return Ledger(releases, {key: row.model_dump() for key, row in parties.messages.items()}, cast(Any, parties.observers))


@dataclass(frozen=True, eq=False)
class Truth:
    """inputs (n, *shape) and targets (n,) of the audited clients; messages: message id -> rows of them. gallery_inputs, gallery_targets:
    examples nobody trained on, among which a re-identified one must stand out. candidate_owners (n,): the client that trained on each
    membership candidate, −1 for nobody; None without candidates."""

    inputs: Tensor
    targets: Tensor
    messages: Mapping[str, tuple[int, ...]]
    gallery_inputs: Tensor
    gallery_targets: Tensor
    candidate_owners: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Ledger:
    """All releases by id, and for every message sent, captured or not: true sender, receivers, round, kind, release ids.

    observers: where there is no server, which party each kind of observer is.
    """

    releases: Mapping[str, Release]
    messages: Mapping[str, Mapping[str, Any]]
    observers: Mapping[str, int] = field(default_factory=dict)

    @property
    def default_observers(self) -> tuple[str, ...]:
        return tuple(self.observers) or ("server", "downlink", "model")

    def seen_by(self, observer: str) -> list[Release]:
        """The releases an observer's messages reveal."""
        if (party := self.observers.get(observer)) is not None:
            return self._received(party)
        last = max((m["round"] for m in self.messages.values()), default=0)
        return self._revealed(m for m in self.messages.values() if party_sees(observer, m, last))

    def subjects(self, observer: str) -> list[int]:
        """Whom an observer may learn about: everybody but itself."""
        return sorted({s for r in self.releases.values() for s in r.subjects} - {self.observers.get(observer, SERVER)})

    def cases(self, observer: str) -> list[tuple[list[Release], list[int]]]:
        """What is to be priced: releases seen, and whom they may tell about; the observer's ε is the worst of all.

        One case, but for uplink(L), one a client: any L of its uploads may be caught, so the L with the least noise count (all of them where
        only records are bounded: such an upload builds on the ones before); and for peer, one a party: any of them may be the curious one.
        """
        limit = uplink_count(observer)
        if limit is not None:
            return [(self._caught(client, limit), [client]) for client in self.participations()]
        everyone = {s for r in self.releases.values() for s in r.subjects}
        if observer == "peer" and observer in self.observers:
            receivers = sorted({p for m in self.messages.values() for p in m["receivers"]})
            return [(self._received(party), sorted(everyone - {party})) for party in receivers if everyone - {party}]
        return [(self.seen_by(observer), self.subjects(observer))]

    def _received(self, party: int) -> list[Release]:
        return self._revealed(m for m in self.messages.values() if party in m["receivers"])

    def _revealed(self, messages: Iterable[Mapping[str, Any]]) -> list[Release]:
        return [self.releases[i] for i in sorted({i for m in messages for i in m["releases"]})]

    def _caught(self, client: int, limit: int) -> list[Release]:
        uploads = [[self.releases[i] for i in m["releases"]] for m in self.messages.values() if m["upload"] and m["sender"] == client]
        if all(r.bound_of == "client" for releases in uploads for r in releases):
            uploads.sort(key=lambda releases: max((math.inf if r.problem else r.ratio for r in releases), default=0.0), reverse=True)
            uploads = uploads[:limit]
        found = {r.id: r for releases in uploads for r in releases}
        return [found[i] for i in sorted(found)]

    @property
    def rounds(self) -> list[int]:
        """The rounds somebody uploaded in."""
        return sorted({m["round"] for m in self.messages.values() if m["upload"]})

    def participations(self) -> dict[int, int]:
        """Own uploads by client."""
        counts: dict[int, int] = {}
        for message in self.messages.values():
            if message["upload"]:
                counts[message["sender"]] = counts.get(message["sender"], 0) + 1
        return counts


def is_note(message: MessageRow) -> bool:
    """A party's own model at the start of a round, kept as a message to itself."""
    return message.receivers == [message.sender]


def party_sees(observer: str, message: Mapping[str, Any], last_round: int) -> bool:
    """Whether an observer sees a message of the ledger (true parties, rounds and kinds)."""
    limit = uplink_count(observer)
    up, down = message["sender"] != SERVER, message["sender"] == SERVER
    match observer.split("(")[0]:
        case "server":
            return down or SERVER in message["receivers"]
        case "downlink":
            return down
        case "uplink":
            return up and (limit is None or message["round"] < limit)
        case _:
            return down and message["round"] == last_round


def _sees(observer: str, message: MessageRow, rounds: int) -> bool:
    limit = uplink_count(observer)
    down = message.sender == "server"
    match observer.split("(")[0]:
        case "server":
            return down or "server" in message.receivers
        case "downlink":
            return down
        case "uplink":
            return not down and (limit is None or message.round < limit)
        case _:
            return down and message.round == rounds


def open_setup(folder: Path, check_tensors: bool = False) -> Setup:
    """Read and check a setup folder. With `check_tensors` every captured tensor is read too. Raises BadInput in one sentence."""
    path = folder / "setup.json"
    if not present(path):
        raise BadInput(f"{folder} is not a setup: it has no setup.json; `audit train CONFIG.toml -o {folder.name}` makes one")
    raw = _json(folder, path)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        raise BadInput(f"{path}: format = {found!r}; this version reads format {FORMAT}")
    manifest = _validated(Manifest, raw, path)
    if manifest.status == "partial":
        raise BadInput(f"{folder}: training is unfinished (status = 'partial'); run the same `audit train` again to finish it")
    path = folder / "messages.jsonl"
    messages = tuple(_rows(MessageRow, folder, path))
    if outside := [m for m in messages if m.round > manifest.rounds]:
        raise BadInput(f"{path}: message {outside[0].id} is of round {outside[0].round}; setup.json says {manifest.rounds} rounds")
    setup = Setup(folder, manifest, messages)
    _check_manifest(setup, folder / "setup.json")
    if manifest.files.get("setup.json") != digest_of_json({key: value for key, value in raw.items() if key != "files"}):
        raise BadInput(f"{folder / 'setup.json'} was changed after training: it is not what its own entry in files says; use it as it was written")
    if check_tensors:
        for message in messages:
            setup.load(message)
        setup.knowledge()
        _ = setup.truth, setup.ledger, setup.rounds
        setup.check_seal(*(name for name in manifest.files if not name.startswith(("setup.json", "knowledge/", "truth/", "auditor/"))))
    return setup


def _check_manifest(setup: Setup, path: Path) -> None:
    """That setup.json's parts agree with each other and with its digest. Raises BadInput."""
    m, config = setup.manifest, setup.config
    if len(m.layout.names) != len(m.layout.shapes) or len(set(m.layout.names)) < len(m.layout.names):
        raise BadInput(f"{path}: layout: {len(m.layout.names)} names and {len(m.layout.shapes)} shapes; every tensor needs one of each, names once")
    pairs = [
        ("seed", m.seed, config.seed), ("scheme.name", m.scheme.name, config.preset_name), ("model.name", m.model.name, config.model.name),
        ("scheme.parameters", m.scheme.parameters, config.parameters().model_dump(mode="json")),
        ("the number of clients", len(m.clients), config.data.clients), ("model.parameters", m.model.parameters, setup.layout.dim),
    ]      # fmt: skip
    for name, value, expected in pairs:
        if value != expected:
            raise BadInput(f"{path}: {name} is {_short(value)}; its config and layout say {_short(expected)}")
    if m.digest != _digest(m.config, m.data.description, m.versions):
        raise BadInput(f"{path}: digest {m.digest[:12]!r} is not that of the config, data and versions beside it; they were changed after training")


def _validated(model, raw: Any, path: Path, place: str = ""):
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([place, *map(str, first["loc"])]).strip(".")
        raise BadInput(f"{path}: {_short(where, str)} = {_short(first['input'])}: {first['msg'][:1].lower() + first['msg'][1:]}") from None


def _short(value: Any, words: Callable[[Any], str] = repr) -> str:
    text = words(value)
    return text if len(text) < 80 else text[:77] + "..."


def _json(folder: Path, path: Path) -> Any:
    try:
        return plain_json(read_text(path, folder))
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{path}: not valid JSON ({error})") from None


def _checked(model, folder: Path, path: Path):
    return _validated(model, _json(folder, path), path)


def _rows(model, folder: Path, path: Path) -> list[Any]:
    """The lines of a file, every id once."""
    rows: dict[str, Any] = {}
    for i, line in enumerate(read_text(path, folder).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = _validated(model, plain_json(line), path, f"line {i}")
        except BadInput:
            raise
        except ValueError as error:
            raise BadInput(f"{path}: line {i} is not valid JSON ({error})") from None
        if row.id in rows:
            raise BadInput(f"{path}: line {i} has the id {row.id} of a line before it; ids stand once")
        rows[row.id] = row
    return list(rows.values())


def _number(path: Path, row: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (name in ("test_accuracy", "share_clipped") and not 0 <= value <= 1):
        raise BadInput(f"{path}: row {row + 1}: {name} = {_short(text)}; expected a finite number, a share from 0 to 1")
    return value


def _open(folder: Path, path: Path):
    try:
        return safe_open(regular(path, folder), "pt")
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path}: not a whole safetensors file ({error})") from None


def _tensor(folder: Path, path: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    with _open(folder, path) as file:
        if name not in file.keys():     # noqa: SIM118
            raise BadInput(f"{path}: tensor {name!r} is missing")
        value = file.get_tensor(name)
    if value.dim() != len(shape) + 1 or tuple(value.shape[1:]) != shape:
        raise BadInput(f"{path}: tensor {name!r} has shape {tuple(value.shape)}; expected (n, {', '.join(map(str, shape))})")
    if value.is_floating_point() and not torch.isfinite(value).all():
        raise BadInput(f"{path}: tensor {name!r} holds a value that is not finite")
    return value


# --- what a setup says of itself ---------------------------------------------------------------------------------------


def digest_of(experiment: Experiment) -> str:
    """SHA-256 of what decides the bytes: the resolved config, the data and the versions."""
    return _digest(experiment.config.model_dump(mode="json"), experiment.data.description, versions())


def _digest(config: Mapping[str, Any], description: Mapping[str, Any], made_with: Mapping[str, str]) -> str:
    content = {"config": config, "data": description, "versions": made_with, "format": FORMAT, "model_stream": stream(config["seed"], "model")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def versions() -> dict[str, str]:
    import numpy
    import torchvision

    return {"dpfl-audit": __version__, "torch": torch.__version__, "torchvision": torchvision.__version__, "numpy": numpy.__version__,
            "python": platform.python_version()}


def _scaled_in_private(steps: Sequence[Step]) -> bool:
    """Whether the noise of these steps is scaled by something computed from private data, so that its size is not public."""
    flat = [step for outer in steps for step in (outer, getattr(outer, "step", None))]
    return any(isinstance(s, MedianClip | OwnNorm) or (isinstance(s, ClipComponents) and s.threshold is None) for s in flat)


def public_facts(experiment: Experiment, done: list[dict[str, Any]]) -> dict[str, Any]:
    """The public hyperparameters an attacker knows, and what training showed of clip and noise (means over rounds)."""
    local, scheme = experiment.scheme.local, experiment.scheme
    clip = next((s for s in scheme.client if isinstance(s, Clip)), None)
    hidden = next((s for s in scheme.client if isinstance(s, MedianClip)), None)
    noise = _mean(done, "noise_std")
    clip_norm = None if clip is None else clip.norm
    norms = sorted(r["figures"]["norm_before_clip"] for r in done if "norm_before_clip" in r["figures"])
    sent = scheme.share
    return {
        "share": scheme.share,
        "optimiser": local.optimiser,
        "lr": local.lr,
        "batch_size": local.batch_size,
        "epochs": local.epochs,
        "steps": local.steps,
        "clip_norm": clip_norm,
        "clip_order": 2 if clip is None else clip.order,
        "per_layer": bool((clip or hidden) and (clip or hidden).per_layer),      # type: ignore[union-attr]
        "noise_std": noise if noise is not None else 0.0,
        "noise_multiplier": None if noise is None or not clip_norm else noise / clip_norm,
        "sensitivity": f"C = {clip_norm:g} (the {'whole ' if clip and not clip.per_layer else 'per-layer '}{sent}; client, zero_out)" if clip_norm
        else "bounded inside local training" if local.per_example or local.step_clip else "none: nothing bounds what is sent",
        "share_clipped": _mean(done, "share_clipped"),
        "norm_before_clip_median": norms[len(norms) // 2] if norms else None,
        "extra": {name: True for name, holds in (("clip_unknown", hidden is not None), ("noise_unknown", _scaled_in_private(scheme.client))) if holds},
    }


def _mean(done: list[dict[str, Any]], name: str) -> float | None:
    values = [r["figures"][name] for r in done if name in r["figures"]]
    return sum(values) / len(values) if values else None
