"""The attacker's half of a trained setup on disk, and what is public: reading it back, checking every part of it, and
showing it to an observer. Who sent what and what it was made of is the other half, `setup.auditor`, to which nothing
leads from here: an attack that is handed a `Setup` cannot touch the truth.

Only JSON, CSV and safetensors are read, so opening somebody else's setup never runs code; nothing outside its folder is
opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...attacks.base import Knowledge, PublicFacts, RoundFactors, Seen, View
from ...attacks.inversion.read.local_training import LINEAR, Recipe
from ...defenses import models
from ...defenses.data.columns import TableColumn, table_columns
from ...defenses.data.vocabulary import Vocabulary, vocabulary_of
from ...defenses.layout import Layout, freeze
from ...defenses.presets import KNOWN, Population
from ...defenses.progress import Progress
from ...defenses.schedule import RoundPlan, reads_history
from ...defenses.scheme import Claim, Scheme
from ...defenses.steps.components import ClipComponents
from ...defenses.steps.quantile import QuantileClip
from ...defenses.steps.respond import ClipRange, Respond
from ...defenses.steps.sparsify import TopK
from ...defenses.terms import Observer
from ...defenses.wire import client_address
from ..errors import BadInput, bad_input
from ..files import digest_of_file, digest_of_json
from ..lock import holder_of
from .claim import stated_claim
from .config import Config, parse_config
from .description import digest_of_parts
from .experiment import local_training
from .format import BASE, FORMAT, Addresses, Items, Labels, Manifest, MessageRow
from .reading import (
    misplaced,
    open_tensors,
    present,
    read_checked,
    read_figures,
    read_json,
    read_records,
    read_rows,
    regular,
    short,
    validated,
)
from .sums import sums_of

SMALL = 2**16  # numbers of a message: 512 kept ones are 128 MB at most


@dataclass(frozen=True, eq=False, repr=False)
class Setup:
    """What an attacker may use of a setup folder, checked. Tensors are read when they are asked for."""

    folder: Path
    manifest: Manifest
    messages: tuple[MessageRow, ...]

    def __repr__(self) -> str:
        return f"<Setup {str(self.folder)!r}: {', '.join(f'{key} {value!r}' for key, value in self.summary.items())}>"

    @property
    def layout(self) -> Layout:
        return Layout(tuple(self.manifest.layout.names), tuple(tuple(s) for s in self.manifest.layout.shapes))

    @property
    def summary(self) -> dict[str, Any]:
        """What this is, in a few plain values."""
        m = self.manifest
        return {
            "name": m.name,
            "scheme": m.scheme.name,
            "status": m.status,
            "engine": m.engine.name,
            "rounds": m.rounds,
            "messages": len(self.messages),
            "parameters": m.model.parameters,
        }

    @property
    def diverged_at_once(self) -> bool:
        """Whether not even round 0 ended finite: no message is there for an attack, whatever was broadcast before."""
        return self.manifest.status == "diverged" and self.manifest.rounds == 0

    @cached_property
    def config(self) -> Config:
        return parse_config(self.manifest.config, f"{self.folder / 'setup.json'}: config")

    @cached_property
    def scheme(self) -> Scheme:
        """The scheme, rebuilt from the setup's parameters. Raises BadInput."""
        preset = KNOWN[self.config.preset_name]
        population = Population(tuple(self.manifest.clients), self.layout)
        with bad_input(f"{self.folder / 'setup.json'}: scheme"):
            return preset.scheme(
                self.config.parameters(), local_training(self.config, self.manifest.data.classes), population
            )

    @property
    def claim(self) -> Claim | None:
        """What the setup claims."""
        return stated_claim(self.config, self.scheme)

    @cached_property
    def rounds(self) -> list[dict[str, float]]:
        """rounds.csv, one row a finished round: what everybody sees."""
        return read_figures(self.folder, self.folder / "rounds.csv", self.manifest.rounds)

    def check(self, progress: Progress | None = None) -> None:
        """Read and check every captured tensor, knowledge/ and the tables, and their seal.

        Args:
            progress: called with messages and files read and in all.

        Raises:
            BadInput: one is damaged.
        """
        others = ("setup.json", "knowledge/", "truth/", "auditor/")
        sealed = [partial(self.check_seal, name) for name in self.manifest.files if not name.startswith(others)]
        read = [partial(self.load, message) for message in self.messages]
        steps: list[Callable[[], object]] = [*read, self.knowledge, lambda: self.rounds, *sealed]
        for i, step in enumerate(steps):
            if progress is not None:
                progress(i, len(steps), "reading")
            step()

    def check_seal(self, *names: str) -> None:
        """That files are, byte for byte, those setup.json names. Raises BadInput."""
        check_seal(self.folder, self.manifest.files, names)

    def load(self, message: MessageRow) -> Tensor:
        """A message's flat vector (d,), checked for shape and finiteness."""
        return load_message(self.folder, self.layout, message)

    def module(self, allow_model: str | None = None) -> nn.Module:
        """A fresh network of the setup's architecture. A model outside the zoo is imported only if `allow_model`
        repeats its name.
        """
        part, data, recorded = self.manifest.model, self.manifest.data, self.manifest.recorded
        if recorded is not None and not recorded.network:
            raise BadInput(
                f"{self.folder / 'setup.json'}: the recording holds no network that can be built again, so only ε and"
                " the checks of what is declared can be had; give the Recorder a stack of torch's layers, or a class"
            )
        if recorded is not None and not recorded.data:
            raise BadInput(
                f"{self.folder / 'setup.json'}: the recording does not say what a record looks like, so only ε and the"
                " checks of what is declared can be had; give the Recorder data={'input_shape': …, 'classes': …}"
            )
        with bad_input(f"{self.folder / 'setup.json'}: model"):
            if models.allow_loss(self.config.local.loss, allow_model) and ":" not in part.name:
                allow_model = None  # the word is for the loss alone
            module = models.build(
                part.name,
                input_shape=tuple(data.input_shape),
                classes=data.classes,
                mean=tuple(data.mean),
                std=tuple(data.std),
                seed=0,
                vocabulary=len(self.vocabulary or ()),
                target_shape=tuple(data.target_shape),
                pad=data.description.get("pad"),
                allow=allow_model,
                batchnorm=self.config.model.batchnorm,
                trained_elsewhere=recorded is not None,
                **self.config.model.options,
            )
        self._with_base(module)
        if self._trained(module) != Layout.of(module):
            raise BadInput(
                f"{self.folder / 'setup.json'}: layout does not fit the model {part.name!r}; it is from another version"
                " or was changed"
            )
        return module

    def _with_base(self, module: nn.Module) -> None:
        """Gives the network its parameters that nobody trains, and freezes them."""
        if not self.manifest.model.frozen:
            return
        with open_tensors(self.folder, self.folder / BASE) as file, bad_input(str(self.folder / BASE)):
            freeze(module, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118

    def _trained(self, module: nn.Module) -> Layout:
        """The layout of what is trained; a recording may hold a BatchNorm's running statistics beside it, and tied
        weights twice. In the network's order, where the names and shapes are its.
        """
        if self.manifest.recorded is None:
            return self.layout
        once = {name for name, _ in module.named_parameters()}
        twins = {name for name, _ in module.named_parameters(remove_duplicate=False)} - once
        beside = twins | {name for name, _ in module.named_buffers()}
        kept = [pair for pair in zip(self.layout.names, self.layout.shapes) if pair[0] not in beside]
        own = Layout.of(module)
        if sorted(kept) == sorted(zip(own.names, own.shapes)):
            return own  # a dump's tensors stand in any order
        return Layout(tuple(name for name, _ in kept), tuple(shape for _, shape in kept))

    def _beside(self, trained: Layout) -> Layout:
        """The layout of what a recording holds beside that."""
        pairs = [pair for pair in zip(self.layout.names, self.layout.shapes) if pair[0] not in trained.names]
        return Layout(tuple(name for name, _ in pairs), tuple(shape for _, shape in pairs))

    @property
    def owners_code(self) -> str:
        """What `--allow-model` has to repeat before an attack runs it: the network's function, else the loss's; ""
        where neither is code.
        """
        if models.is_owners_code(self.manifest.model.name):
            return self.manifest.model.name
        if self.config.local.loss is None:
            return ""
        return getattr(models.loss_of(self.config.local.loss), "code", "")

    def view(self, observer: Observer, allow_model: str | None = None, module: nn.Module | None = None) -> View:
        """What an observer sees, addresses only. Raises BadInput for one that this federation does not have."""
        module = module if module is not None else self.module(allow_model)
        layout = self._trained(module)
        beside = self._beside(layout)
        messages = tuple(self._seen(m, layout, beside) for m in self._seen_by(observer))
        merged = observer.sees_merged_only and self.manifest.recorded is None
        if merged:
            sums, why = sums_of(self.scheme, self.facts, self.manifest.clients, self.rounds)
        else:
            sums, why = {}, ""
        return View(
            observer=str(observer),
            messages=messages,
            module=module,
            layout=layout,
            facts=self.facts,
            input_shape=tuple(self.manifest.data.input_shape),
            classes=self.manifest.data.classes,
            target_shape=tuple(self.manifest.data.target_shape),
            columns=self.columns,
            vocabulary=self.vocabulary,
            records=self._records_by_address,
            sums=sums,
            why_no_sums=why,
            anonymous=self.manifest.recorded is None and self.scheme.topology.anonymous,
        )

    @cached_property
    def vocabulary(self) -> Vocabulary | None:
        """Of text, None of anything else."""
        return vocabulary_of(self.manifest.data.description)

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """Of a table, () for images and text."""
        data = self.manifest.data
        if len(data.input_shape) != 1 or self.vocabulary is not None:
            return ()
        return table_columns(data.description, data.input_shape[0], data.mean, data.std)

    @property
    def _records_by_address(self) -> dict[str, int]:
        """How many records a client holds, where its address is no secret; a recording does not say."""
        if self.manifest.recorded is not None or self.scheme.topology.anonymous:
            return {}
        return {client_address(client): count for client, count in enumerate(self.manifest.clients)}

    def behind(self, message_id: str) -> tuple[str, ...]:
        """The uploads that a message is made of: itself, or, of a model on its way down, those of the round before it;
        () where not all of these were captured.
        """
        message = next(m for m in self.messages if m.id == message_id)
        if message.sender != "server":
            return (message_id,)
        if not 0 < message.round <= len(self.rounds):
            return ()
        uploads = tuple(m.id for m in self.messages if m.round == message.round - 1 and m.sender != "server")
        drawn = self.rounds[message.round - 1].get("participants")
        if drawn == len(uploads):
            return uploads
        return ()

    def _seen_by(self, observer: Observer) -> list[MessageRow]:
        path = self.folder / "knowledge" / "observers.json"
        if present(path):
            own_addresses = read_checked(Addresses, self.folder, path).root
        else:
            own_addresses = {}
        if observer.needs_server and own_addresses:
            raise BadInput(
                f"observer {str(observer)!r}: this setup has no server; its observers are {', '.join(own_addresses)}"
                " and uplink"
            )
        if not observer.kind.party:
            return [
                m
                for m in self.messages
                if observer.sees(
                    from_server=m.sender == "server",
                    to_server="server" in m.receivers,
                    round=m.round,
                    last_round=self.manifest.rounds,
                )
            ]
        addresses = own_addresses.get(cast(Any, observer.name))
        if addresses is None:
            parties = list(map(str, own_addresses)) or ["server", "downlink", "model"]
            what = "a server and no such party"
            if own_addresses:
                what = "no server, and no such party"
            raise BadInput(
                f"observer {str(observer)!r}: this setup has {what}; known are {', '.join(parties)} and uplink"
            )
        own = set(addresses)
        received = [m for m in self.messages if own & set(m.receivers)]
        return sorted(received, key=lambda m: (m.round, not is_note(m)))

    @property
    def facts(self) -> PublicFacts:
        part, local = self.manifest.facts, self.scheme.local
        trains = part.share != "gradient"  # a gradient that is sent is the loss's alone
        return PublicFacts(
            scheme=self.manifest.scheme.name,
            share=part.share,
            optimiser=part.optimiser,
            lr=part.lr,
            batch_size=part.batch_size,
            epochs=part.epochs,
            steps=part.steps,
            clip_norm=part.clip_norm,
            clip_order=part.clip_order,
            per_layer=part.per_layer,
            clip_unknown=part.extra.clip_unknown or self._has(QuantileClip),  # its norm of a round is not kept
            noise_std=self._noise_of_a_message,
            loss=local.loss,
            momentum=local.momentum,
            smoothing=local.smoothing,
            secret_batches=local.per_example is not None and local.per_example.batches == "poisson",
            sent_share=next((step.share for step in self.scheme.client if isinstance(step, TopK)), 1.0),
            schedule=self._round_factors,
            gradient_scale=local.gradient_scale if trains else 1.0,
            penalties=local.penalties if trains else (),
            step_clip=local.step_clip if trains else None,
            record_clip=local.per_example is not None,
            truncated=self._has(ClipComponents, ClipRange),
            gaussian=self._noise_is_gaussian,
        )

    def _has(self, *kinds: type) -> bool:
        return any(isinstance(step, kinds) for step in self.scheme.client)

    @property
    def _noise_is_gaussian(self) -> bool:
        recorded_laplace = self.manifest.recorded is not None and self.manifest.facts.clip_order == 1
        laplace = any(getattr(step, "mechanism", "") == "laplace" for step in self.scheme.client)
        return not (recorded_laplace or laplace or self._has(Respond))

    @property
    def _noise_of_a_message(self) -> float | None:
        """Standard deviation of the noise on what a client sends, in parameter units; None where it depends on private
        data. DP-SGD's, which setup.json has, is of a step's mean gradient: steps of SGD or momentum add so many of it
        up, others divide it by gradients' own sizes.
        """
        part, rule = self.manifest.facts, self.scheme.local.per_example
        if part.extra.noise_unknown or rule is None or part.share == "gradient":
            if part.extra.noise_unknown:
                return None
            return part.noise_std
        if part.optimiser not in LINEAR:
            return None
        epochs = part.epochs or 1
        steps = {part.steps or epochs * -(-n // part.batch_size) for n in self.manifest.clients}
        if len(steps) > 1:  # a client's own
            return None
        recipe = Recipe(part.optimiser, part.lr, (1,) * steps.pop(), None, self.scheme.local.momentum)
        return recipe.lr * sum(share**2 for share in recipe.shares) ** 0.5 * part.noise_std

    @cached_property
    def _round_factors(self) -> tuple[RoundFactors, ...]:
        """How its rounds differ, of their mean noise, which stands in setup.json; () where they do not."""
        if self.manifest.recorded is not None:
            return ()
        schedule, history = self.scheme.schedule, {}
        if reads_history(schedule):
            names = {name for row in self.rounds for name in row}
            history = {name: [row[name] for row in self.rounds if name in row] for name in names}
        plans = [schedule.plan(round, history) or RoundPlan() for round in range(self.manifest.rounds)]
        if all(plan == RoundPlan() for plan in plans):
            return ()
        middle = sum(plan.noise for plan in plans) / len(plans) or 1.0
        return tuple(
            RoundFactors(
                plan.lr * (plan.lr_by_step[0] if len(set(plan.lr_by_step)) == 1 else 1.0),
                plan.noise / middle * (1.0 if self.scheme.local.per_example is None else plan.lr),
                plan.lr_by_step if len(set(plan.lr_by_step)) > 1 else (),
            )
            for plan in plans
        )

    def _seen(self, m: MessageRow, layout: Layout, beside: Layout) -> Seen:
        return Seen(
            m.id,
            m.round,
            m.sender,
            tuple(m.receivers),
            m.kind,
            m.num_examples,
            partial(load_message, self.folder, layout, m),
            m.sender == "server" or is_note(m),
            partial(load_beside, self.folder, beside, m),
        )

    def knowledge(self) -> Knowledge:
        """What the attacker is granted: labels and auxiliary data, as far as they are in knowledge/."""
        path = self.folder / "knowledge"
        if present(path / "knowledge.json"):
            for item in read_checked(Items, self.folder, path / "knowledge.json").items:
                regular(path / item.file, self.folder)  # what the report will name must be there
        if present(path / "observers.json"):
            read_checked(Addresses, self.folder, path / "observers.json")
        labels = self.labels(path / "labels.json")
        labels |= self._labels_of_sums(labels)
        given = Knowledge(labels, *(self._records(path / "auxiliary.safetensors") or self._no_records))
        candidates = self._records(path / "candidates.safetensors")
        if candidates is None:
            return given
        return replace(
            given,
            candidate_inputs=candidates[0],
            candidate_targets=candidates[1],
            candidate_ids=torch.arange(len(candidates[0])),
        )

    def _labels_of_sums(self, labels: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of the records behind a model, by its message, where all clients took part: whoever is told the labels behind
        each upload knows them. Those of some clients would tell which these were, which may be secret.
        """
        found = {}
        for message in self.messages:
            if message.sender == "server" and message.id not in labels:
                uploads = self.behind(message.id)
                if len(uploads) == len(self.manifest.clients) and all(i in labels for i in uploads):
                    found[message.id] = torch.cat([labels[i] for i in uploads]).sort().values
        return found

    def labels(self, path: Path) -> dict[str, Tensor]:
        """A file of labels by message, {} where there is none. Raises BadInput."""
        most, labels = max(1, self.manifest.data.targets_below), {}
        if present(path):
            for key, values in read_checked(Labels, self.folder, path).root.items():
                if not all(v < most for v in values):
                    raise BadInput(f"{path}: labels of message {key!r} must be class numbers from 0 to {most - 1}")
                labels[key] = torch.tensor(values, dtype=torch.long)
        return labels

    @property
    def _no_records(self) -> tuple[Tensor, Tensor]:
        inputs = torch.zeros(0, *self.manifest.data.input_shape)
        if self.vocabulary is not None:
            inputs = inputs.long()
        return inputs, torch.zeros(0, *self.manifest.data.target_shape, dtype=torch.long)

    def _records(self, path: Path) -> tuple[Tensor, Tensor] | None:
        return read_records(self.folder, path, self.manifest.data)


def check_seal(folder: Path, sealed: Mapping[str, str], names: Iterable[str]) -> None:
    """That files have the SHA-256 they were sealed with, as far as they were. Raises BadInput."""
    for name in names:
        if name in sealed and sealed[name] != digest_of_file(regular(folder / name, folder)):
            raise BadInput(
                f"{folder / name} was changed after training: its SHA-256 is not the one it was sealed with; put it"
                " back as it was written, or, where `audit train` made it, run that again"
            )


def load_message(folder: Path, layout: Layout, message: MessageRow) -> Tensor:
    """A message's flat vector (d,) out of tensors/, and nothing else of a setup: what an attack holds to read it.

    Small ones are kept: every attack reads them, and to open a file takes a hundred times as long as to copy them.
    """
    path = folder / "tensors" / f"round-{message.round:04d}.safetensors"
    if layout.dim > SMALL or not path.exists():
        return _read_message(folder, layout, message.id, message.round)
    return _kept_message(folder, layout, message.id, message.round, path.stat().st_mtime_ns).clone()


@lru_cache(maxsize=512)
def _kept_message(folder: Path, layout: Layout, id: str, round: int, changed: int) -> Tensor:
    return _read_message(folder, layout, id, round)


def _read_message(folder: Path, layout: Layout, id: str, round: int) -> Tensor:
    path = folder / "tensors" / f"round-{round:04d}.safetensors"
    tensors = {}
    with open_tensors(folder, path) as file:
        held = set(file.keys())
        for name, shape in zip(layout.names, layout.shapes):
            key = f"{id}/{name}"
            if key not in held:
                raise BadInput(f"{path}: tensor {key!r} is missing; messages.jsonl names message {id} in round {round}")
            value = file.get_tensor(key)
            if tuple(value.shape) != shape:
                raise BadInput(
                    f"{path}: tensor {key!r} has shape {tuple(value.shape)}; setup.json's layout says {shape}"
                )
            if value.dtype != torch.float32:
                raise BadInput(f"{path}: tensor {key!r} is of {value.dtype}; expected torch.float32")
            # A sum is finite of finite numbers but very large ones, and a tenth of the work of looking at each.
            if not torch.isfinite(value.sum()) and not torch.isfinite(value).all():
                raise BadInput(f"{path}: tensor {key!r} holds a value that is not finite")
            tensors[name] = value
    return layout.join(tensors)


def load_beside(folder: Path, beside: Layout, message: MessageRow) -> dict[str, Tensor]:
    """What was sent beside what is trained, by name."""
    if beside.names:
        return beside.split(load_message(folder, beside, message))
    return {}


def is_note(message: MessageRow) -> bool:
    """A party's own model at the start of a round, kept as a message to itself."""
    return message.receivers == [message.sender]


def open_setup(folder: Path, check_tensors: bool = False) -> Setup:
    """Read and check the attacker's half of a setup folder. With `check_tensors` every captured tensor, knowledge/ and
    the tables are read too. Raises BadInput in one sentence.
    """
    path = folder / "setup.json"
    if not present(path):
        remedy = misplaced(folder) or f"; `audit train CONFIG.toml -o {folder.name or folder}` makes one"
        raise BadInput(f"{folder} is not a setup: it has no setup.json{remedy}")
    raw = read_json(folder, path)
    if not isinstance(raw, dict) or "format" not in raw:
        raise BadInput(f"{folder} is not a setup: its setup.json is of something else, as it has no format")
    if raw["format"] != FORMAT:
        raise BadInput(f"{path}: format = {raw['format']!r}; this version reads format {FORMAT}")
    manifest = validated(Manifest, raw, path)
    if manifest.status == "partial":
        if (holder := holder_of(folder)) is not None:
            raise BadInput(f"{folder}: {holder} is still training it; wait until it has ended")
        remedy = "run the same `audit train` again to finish it"
        if manifest.recorded is not None:
            remedy = f"`audit import {folder}` closes the recording with its whole rounds, if it has one"
        raise BadInput(f"{folder}: training is unfinished (status = 'partial'); {remedy}")
    path = folder / "messages.jsonl"
    messages = tuple(read_rows(MessageRow, folder, path))
    if outside := [m for m in messages if m.round > manifest.rounds]:
        raise BadInput(
            f"{path}: message {outside[0].id} is of round {outside[0].round}; setup.json says {manifest.rounds} rounds"
        )
    setup = Setup(folder, manifest, messages)
    _check_manifest(setup, folder / "setup.json")
    if manifest.files.get("setup.json") != digest_of_json({key: value for key, value in raw.items() if key != "files"}):
        raise BadInput(
            f"{folder / 'setup.json'} was changed after training: it is not what its own entry in files says; put it"
            " back as it was written"
        )
    if check_tensors:
        setup.check()
    return setup


def _check_manifest(setup: Setup, path: Path) -> None:
    """That setup.json's parts agree with each other and with its digest. Raises BadInput."""
    m, config = setup.manifest, setup.config
    if len(m.layout.names) != len(m.layout.shapes) or len(set(m.layout.names)) < len(m.layout.names):
        raise BadInput(
            f"{path}: layout: {len(m.layout.names)} names and {len(m.layout.shapes)} shapes; every tensor needs one of"
            " each, names once"
        )
    parameters = config.parameters().model_dump(mode="json")
    pairs = [
        ("seed", m.seed, config.seed),
        ("scheme.name", m.scheme.name, config.preset_name),
        ("model.name", m.model.name, config.model.name),
        ("scheme.parameters", m.scheme.parameters, parameters),
        ("the number of clients", len(m.clients), config.data.clients),
        ("model.parameters", m.model.parameters, setup.layout.dim),
    ]
    for name, value, expected in pairs:
        if value != expected:
            raise BadInput(f"{path}: {name} is {short(value)}; its config and layout say {short(expected)}")
    if m.digest != digest_of_parts(m.config, m.data.description, m.versions):
        raise BadInput(
            f"{path}: digest {m.digest[:12]!r} is not that of the config, data and versions beside it; they were"
            " changed after training"
        )
