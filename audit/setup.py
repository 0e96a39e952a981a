"""A trained setup on disk (format 1): reading one back, checking every part of it, and showing it to an observer.

Only JSON, CSV and safetensors are read, so opening somebody else's setup never runs code; nothing outside its folder is opened.
"""

from __future__ import annotations

import csv
import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from .. import __version__
from ..attacks.base import Knowledge, PublicFacts, Seen, View
from ..defenses import models
from ..defenses.layout import Layout
from ..defenses.randomness import stream
from ..defenses.wire import SERVER, Release
from .config import Config, parse_config
from .errors import BadInput, bad_input
from .experiment import Experiment

FORMAT = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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
    names: list[str]
    shapes: list[list[int]]


class DataPart(_Part):
    name: str
    input_shape: list[int]
    classes: int = Field(ge=0)
    mean: list[float]
    std: list[float]
    description: dict[str, Any]


class FactsPart(_Part):
    share: Literal["gradient", "update", "weights"]
    optimiser: str
    lr: float
    batch_size: int = Field(ge=1)
    epochs: int | None
    steps: int | None
    clip_norm: float | None
    clip_order: int
    per_layer: bool
    noise_std: float | None
    noise_multiplier: float | None
    sensitivity: str
    share_clipped: float | None
    norm_before_clip_median: float | None
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
    clients: list[int]
    facts: FactsPart
    claim: ClaimPart | None
    model: ModelPart
    layout: LayoutPart
    data: DataPart
    engine: dict[str, Any]
    versions: dict[str, str]


class MessageRow(_Part):
    """One line of messages.jsonl."""

    id: str = Field(pattern="^[0-9a-f]{16}$")
    round: int = Field(ge=0)
    sender: str
    receivers: list[str]
    kind: Literal["gradient", "update", "weights"]
    num_examples: int = Field(ge=0)
    releases: list[str]
    side: dict[str, float] = {}


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
        """rounds.csv, numbers where there are any."""
        with open(self.folder / "rounds.csv", newline="") as file:
            return [{k: float(v) for k, v in row.items() if v not in ("", None)} for row in csv.DictReader(file)]

    def load(self, message: MessageRow) -> Tensor:
        """A message's flat vector (d,), checked for shape and finiteness."""
        path = self.folder / "tensors" / f"round-{message.round:04d}.safetensors"
        tensors = {}
        with _open(path) as file:
            present = set(file.keys())
            for name, shape in zip(self.layout.names, self.layout.shapes):
                key = f"{message.id}/{name}"
                if key not in present:
                    raise BadInput(f"{path}: tensor {key!r} is missing; messages.jsonl names message {message.id} in round {message.round}")
                value = file.get_tensor(key)
                if tuple(value.shape) != shape:
                    raise BadInput(f"{path}: tensor {key!r} has shape {tuple(value.shape)}; setup.json's layout says {shape}")
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
        if observer not in OWN_PARTIES:
            return [m for m in self.messages if _sees(observer, m, self.manifest.rounds)]
        path = self.folder / "knowledge" / "observers.json"
        addresses = _json(path).get(observer) if path.exists() else None
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
            steps=part.steps, clip_norm=part.clip_norm, clip_order=part.clip_order, per_layer=part.per_layer, noise_std=None if part.extra.get("clip_unknown") else part.noise_std, extra=part.extra,
        )

    def _seen(self, m: MessageRow) -> Seen:
        return Seen(m.id, m.round, m.sender, tuple(m.receivers), m.kind, m.num_examples, lambda: self.load(m), m.sender == "server" or is_note(m))

    def knowledge(self) -> Knowledge:
        """What the attacker is granted: labels and auxiliary data, as far as they are in knowledge/."""
        shape = tuple(self.manifest.data.input_shape)
        path = self.folder / "knowledge" / "labels.json"
        labels = {}
        if path.exists():
            for key, values in _json(path).items():
                if not isinstance(values, list) or not all(isinstance(v, int) and 0 <= v < max(1, self.manifest.data.classes) for v in values):
                    raise BadInput(f"{path}: labels of message {key!r} must be class numbers from 0 to {self.manifest.data.classes - 1}")
                labels[key] = torch.tensor(values)
        inputs, targets = torch.zeros(0, *shape), torch.zeros(0, dtype=torch.long)
        path = self.folder / "knowledge" / "auxiliary.safetensors"
        if path.exists():
            inputs, targets = _tensor(path, "inputs", shape), _tensor(path, "targets", ())
        path = self.folder / "knowledge" / "candidates.safetensors"
        if not path.exists():
            return Knowledge(labels, inputs, targets)
        candidates, classes = _tensor(path, "inputs", shape), _tensor(path, "targets", ())
        return Knowledge(labels, inputs, targets, candidates, classes, torch.arange(len(candidates)))

    @cached_property
    def truth(self) -> Truth | None:
        """What the captured uploads were made of, for scoring only; None where the owner does not share it."""
        path = self.folder / "truth" / "records.safetensors"
        if not path.exists():
            return None
        inputs, targets = _tensor(path, "inputs", tuple(self.manifest.data.input_shape)), _tensor(path, "targets", ())
        places = _json(self.folder / "truth" / "messages.json")
        for key, rows in places.items():
            if not isinstance(rows, list) or not all(isinstance(r, int) and 0 <= r < len(inputs) for r in rows):
                raise BadInput(f"{path.parent / 'messages.json'}: message {key!r} names records outside 0 to {len(inputs) - 1}")
        gallery = path.parent / "gallery.safetensors"
        others = (inputs[:0], targets[:0])
        if gallery.exists():
            others = (_tensor(gallery, "inputs", tuple(self.manifest.data.input_shape)), _tensor(gallery, "targets", ()))
        owners = None
        if (path.parent / "membership.json").exists():
            owners = torch.tensor(_json(path.parent / "membership.json")["client"])
        return Truth(inputs, targets, {k: tuple(v) for k, v in places.items()}, *others, owners)

    @cached_property
    def ledger(self) -> Ledger | None:
        """The auditor's key: true parties and releases; None where auditor/ was removed."""
        path = self.folder / "auditor" / "releases.jsonl"
        if not path.exists():
            return None
        from .capture import release_of  # capture writes setups with this module's help

        try:
            releases = {row["id"]: release_of(row) for row in _lines(path)}
            parties = _json(self.folder / "auditor" / "parties.json")
            messages = parties["messages"]
            return Ledger(releases, messages, parties.get("observers", {}))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{path.parent}: the auditor's key is damaged ({type(error).__name__}: {error})") from None


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
        last = max((m["round"] for m in self.messages.values()), default=0)
        ids: set[str] = set()
        for message in self.messages.values():
            party = self.observers.get(observer)
            if party in message["receivers"] if party is not None else party_sees(observer, message, last):
                ids.update(message["releases"])
        return [self.releases[i] for i in sorted(ids)]

    def subjects(self, observer: str) -> list[int]:
        """Whom an observer may learn about: everybody but itself."""
        return sorted({s for r in self.releases.values() for s in r.subjects} - {self.observers.get(observer, SERVER)})

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


OBSERVERS = {
    "server": "honest but curious: all uploads and broadcasts",
    "downlink": "an eavesdropper of the broadcasts",
    "uplink": "an eavesdropper who catches every upload of a client; uplink(L): L of them",
    "model": "whoever gets the final model only",
    "peer": "a client of a federation without a server: what it receives itself",
    "leader": "the client elected in the first round: what it receives itself, in all rounds",
}
OWN_PARTIES = ("peer", "leader")      # observers who are themselves clients, and see only their own mail


def is_note(message: MessageRow) -> bool:
    """A party's own model at the start of a round, kept as a message to itself."""
    return message.receivers == [message.sender]


def uplink_count(observer: str) -> int | None:
    """L of "uplink(L)"; None for plain "uplink" (all). Raises BadInput for anything that is not an observer."""
    if observer in OBSERVERS:
        return None
    if observer.startswith("uplink(") and observer.endswith(")") and observer[7:-1].isdigit() and int(observer[7:-1]) > 0:
        return int(observer[7:-1])
    raise BadInput(f"observer {observer!r} is unknown; known are {', '.join(OBSERVERS)} and uplink(L)")


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
    if not path.exists():
        raise BadInput(f"{folder} is not a setup: it has no setup.json; `audit train CONFIG.toml -o {folder.name}` makes one")
    raw = _json(path)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        raise BadInput(f"{path}: format = {found!r}; this version reads format {FORMAT}")
    manifest = _validated(Manifest, raw, path)
    if manifest.status == "partial":
        raise BadInput(f"{folder}: training is unfinished (status = 'partial'); run the same `audit train` again to finish it")
    layout = manifest.layout
    if len(layout.names) != len(layout.shapes) or len(set(layout.names)) < len(layout.names):
        raise BadInput(f"{path}: layout: {len(layout.names)} names and {len(layout.shapes)} shapes; every tensor needs one of each, names once")
    path = folder / "messages.jsonl"
    messages = tuple(_validated(MessageRow, row, path, f"line {i}") for i, row in enumerate(_lines(path), 1))
    setup = Setup(folder, manifest, messages)
    if check_tensors:
        for message in messages:
            setup.load(message)
        setup.knowledge()
        _ = setup.truth, setup.ledger, setup.config, setup.rounds
    return setup


def _validated(model, raw: Any, path: Path, place: str = ""):
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([place, *map(str, first["loc"])]).strip(".")
        value = repr(first["input"])
        value = value if len(value) < 80 else value[:77] + "..."
        raise BadInput(f"{path}: {where} = {value}: {first['msg'][:1].lower() + first['msg'][1:]}") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(_inside(path).read_text(encoding="utf-8"), parse_constant=_no_nan)
    except FileNotFoundError:
        raise BadInput(f"{path} is missing") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise BadInput(f"{path}: not valid JSON ({error})") from None


def _lines(path: Path) -> list[Any]:
    try:
        return [json.loads(line, parse_constant=_no_nan) for line in _inside(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise BadInput(f"{path} is missing") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise BadInput(f"{path}: not valid JSON lines ({error})") from None


def _no_nan(text: str) -> float:
    raise ValueError(f"{text} is not a number here")


def _inside(path: Path) -> Path:
    """`path`, refused where a link leads it out of its setup folder."""
    folder = path.parent if path.name == "setup.json" or path.name == "messages.jsonl" else path.parent.parent
    if path.exists() and not path.resolve().is_relative_to(folder.resolve()):
        raise BadInput(f"{path} leads outside the setup folder; a setup holds its own files")
    return path


def _open(path: Path):
    if not path.exists():
        raise BadInput(f"{path} is missing")
    try:
        return safe_open(_inside(path), "pt")
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path}: not a whole safetensors file ({error})") from None


def _tensor(path: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    with _open(path) as file:
        if name not in file.keys():     # noqa: SIM118
            raise BadInput(f"{path}: tensor {name!r} is missing")
        value = file.get_tensor(name)
    if tuple(value.shape[1:]) != shape:
        raise BadInput(f"{path}: tensor {name!r} has shape {tuple(value.shape)}; expected (n, {', '.join(map(str, shape))})")
    if value.is_floating_point() and not torch.isfinite(value).all():
        raise BadInput(f"{path}: tensor {name!r} holds a value that is not finite")
    return value


# --- what a setup says of itself ---------------------------------------------------------------------------------------


def digest_of(experiment: Experiment) -> str:
    """SHA-256 of what decides the bytes: the resolved config, the data and the versions."""
    content = {
        "config": experiment.config.model_dump(mode="json"),
        "data": experiment.data.description,
        "versions": versions(),
        "format": FORMAT,
        "model_stream": stream(experiment.config.seed, "model"),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def versions() -> dict[str, str]:
    import numpy
    import torchvision

    return {"dpfl-audit": __version__, "torch": torch.__version__, "torchvision": torchvision.__version__, "numpy": numpy.__version__,
            "python": platform.python_version()}


def public_facts(experiment: Experiment, done: list[dict[str, Any]]) -> dict[str, Any]:
    """The public hyperparameters an attacker knows, and what training showed of clip and noise (means over rounds)."""
    from ..defenses.steps.clip import Clip, MedianClip

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
        "sensitivity": f"C = {clip_norm:g} (the {'whole ' if clip and not clip.per_layer else 'per-layer '}{sent}; client, zero_out)" if clip_norm else "none: nothing bounds what is sent",
        "share_clipped": _mean(done, "share_clipped"),
        "norm_before_clip_median": norms[len(norms) // 2] if norms else None,
        "extra": {"clip_unknown": True} if hidden is not None else {},
    }


def _mean(done: list[dict[str, Any]], name: str) -> float | None:
    values = [r["figures"][name] for r in done if name in r["figures"]]
    return sum(values) / len(values) if values else None
