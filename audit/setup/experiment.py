"""A config made real: data, model, clients and scheme."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...defenses import models
from ...defenses.data import NAMES as DATASETS
from ...defenses.data import load
from ...defenses.data.dataset import OWN_TABLE, Dataset
from ...defenses.data.partition import partition
from ...defenses.data.stand_in import most_of_auxiliary, of_auxiliary
from ...defenses.data.text import told_by_next_words
from ...defenses.data.vocabulary import vocabulary_of
from ...defenses.federation import Federation, cohort_of, groups_of
from ...defenses.layout import Layout
from ...defenses.local import LocalTraining
from ...defenses.losses import NextToken, loss_of
from ...defenses.nearest import instead
from ...defenses.presets import PRESETS, Population, Preset
from ...defenses.randomness import generator, stream
from ...defenses.scheme import Claim, Scheme
from ...defenses.terms import Observer
from ...defenses.topology import Leader
from ...defenses.wire import Wire
from ..errors import BadInput, bad_input
from .claim import resolved, stated_claim
from .config import Config, DataTable
from .key import PUBLISHED


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything `audit train` needs, made from a config and nothing else.

    config: with its claim written out.
    key: of the noise and all that is secret. Planning and replicas release nothing, so theirs may be the published one.
    drawn_with: what streams begin with, "" for the key itself (`key.drawn_with`).
    base: where the config's relative paths start.
    """

    config: Config
    preset: Preset
    parameters: Any
    data: Dataset
    module: nn.Module
    clients: list[Tensor]
    scheme: Scheme
    key: str = PUBLISHED
    drawn_with: str = ""
    base: Path = Path()

    @property
    def streams(self) -> str:
        return self.drawn_with or self.key

    @property
    def claim(self) -> Claim | None:
        """What the config claims."""
        return stated_claim(self.config, self.scheme)

    @property
    def layout(self) -> Layout:
        return Layout.of(self.module)

    @property
    def observer_parties(self) -> dict[str, int]:
        """Where there is no server: which party each kind of observer is. peer: the first client whose uploads are not
        audited; leader: who is elected in round 0, where there is an election.
        """
        if self.scheme.topology.central:
            return {}
        everyone = list(range(len(self.clients)))
        others = [c for c in everyone if c not in self.config.capture.clients]
        parties = {"peer": (others or everyone)[0]}
        if isinstance(self.scheme.topology, Leader):
            federation = self.federation()
            cohort = cohort_of(federation, 0, everyone)
            parties["leader"] = groups_of(federation, 0, cohort.members, everyone)[0].hub
        return parties

    def federation(self, wire: Wire | None = None) -> Federation:
        return Federation(
            self.scheme, self.module, self.data, self.clients, self.config.seed, wire or Wire(), key=self.streams
        )


def build(config: Config, base: Path, allow_model: str | None = None) -> Experiment:
    """The experiment of a config whose noise is given (`proven.target.build` computes that of a target_epsilon);
    relative paths start at `base`. Raises BadInput in one sentence.
    """
    _check_trainable(config)
    data = load_data(config, base)
    _check_records(config, data)
    _check_holders(config, data)
    with _options(
        "[data]",
        "partition_options",
        config.data.partition_options,
        ("kind", "targets", "clients", "samples_per_client", "generator"),
    ):
        clients = partition(
            config.data.partition,
            data.targets if data.groups is None or config.data.partition != "writer" else data.groups,
            config.data.clients,
            config.data.samples_per_client,
            generator(config.seed, "partition"),
            **config.data.partition_options,
        )
    if loss_of(config.local.loss or "cross_entropy").name == NextToken.name:
        if config.data.partition != "iid":
            raise BadInput(
                f"[data] partition = {config.data.partition!r} deals records by their class, and texts that are trained"
                ' on by next_token have none; "iid" deals them by lot'
            )
        with bad_input("[local] loss"):
            data = told_by_next_words(data)
    module = build_model(config, data, allow_model)
    outside = [c for c in config.capture.clients if not 0 <= c < len(clients)]
    if outside:
        raise BadInput(
            f"[capture] clients = {config.capture.clients}: there is no client {outside[0]}, clients are 0 to"
            f" {len(clients) - 1}"
        )
    return replace(with_scheme(config, data, module, clients), base=base)


def with_scheme(config: Config, data: Dataset, module: nn.Module, clients: list[Tensor]) -> Experiment:
    """The experiment of a config whose data and model are there already. Raises BadInput."""
    _check_trainable(config)
    preset, parameters = PRESETS[config.preset_name], config.parameters()
    if parameters.target_epsilon is not None:
        raise BadInput("[scheme] target_epsilon: give the noise instead; here it is not computed")
    local = local_training(config, data.classes)
    outputs = 1 if config.model.name == "svm" else max(1, data.classes)
    if why := loss_of(local.loss).misfit(outputs, data.classes):
        raise BadInput(f"[local] loss = {local.loss!r}: it {why}")
    with bad_input("[scheme]"):
        scheme = preset.scheme(parameters, local, Population(tuple(len(c) for c in clients), Layout.of(module)))
    made = Experiment(resolved(config, preset, scheme), preset, parameters, data, module, clients, scheme)
    if made.claim is not None and made.config.claim is not None and made.config.claim.whose == "owner":
        _check_observer(made, made.claim.observer)
    return made


def _check_trainable(config: Config) -> None:
    """Raises BadInput for the config of a recording."""
    if config.preset_name not in PRESETS:
        raise BadInput(
            f"[scheme] name = {config.preset_name!r} is a training that somebody else's code did; nothing here can"
            " train it"
        )


def _check_observer(made: Experiment, observer: Observer) -> None:
    """That a claim is towards somebody who is there. Raises BadInput."""
    parties = made.observer_parties
    if observer.needs_server if parties else observer.kind.party:
        here = "server, aggregate, downlink, model and uplink"
        if parties:
            here = ", ".join(parties) + " and uplink"
        raise BadInput(f"[claim] observer = {str(observer)!r}: nobody in this federation is that; there are {here}")
    if observer.kind.party and observer.name not in parties:
        raise BadInput(f"[claim] observer = {str(observer)!r}: nobody is elected here; there are {', '.join(parties)}")


class TooManyRecords(BadInput):
    """The clients ask for more records than there are to train on. fit: how many each can have."""

    def __init__(self, sentence: str, fit: int) -> None:
        super().__init__(sentence)
        self.fit = fit


def idle_holders(holders: Iterable[str], training: Iterable[str]) -> str:
    """Of whom the lot leaves no row to train on, in words; "" where all train. training: who holds a row that does."""
    idle = ", ".join(map(repr, sorted({*holders} - {*training})))
    return idle and f"the lot leaves no row of {idle} to train on"


def _check_holders(config: Config, data: Dataset) -> None:
    """Raises BadInput where records are dealt by holders whom nothing names, or not by those that a column names."""
    table = config.data
    if table.name != OWN_TABLE:
        return
    if table.partition == "writer" and data.groups is not None:
        _check_all_train(table, data.group_names, data.groups)
        return
    if table.partition != "writer" and data.groups is None:
        return
    if data.groups is None:
        raise BadInput('[data] partition = "writer" of a csv needs options = { holder = "COLUMN" }: who holds each row')
    raise BadInput(
        f"[data] partition = {table.partition!r} mixes the holders that options.holder names; say"
        ' partition = "writer", or leave that option out'
    )


def _check_all_train(table: DataTable, names: Sequence[str], groups: Tensor) -> None:
    """Raises BadInput where a holder, or some of its rows, would be left out: ε is of the least of those who train."""
    if table.samples_per_client is not None:
        raise BadInput("[data] samples_per_client: each holder trains on all of its rows; leave it out")
    idle = idle_holders(names, [names[number] for number in groups.unique().tolist()])
    if idle or table.clients != len(names):
        why = idle or f"there are {len(names)}"
        raise BadInput(f"[data] clients = {table.clients}: each holder is a client, and {why}")


def _check_records(config: Config, data: Dataset) -> None:
    """Raises TooManyRecords, with what test, auxiliary and outside records take of a data set."""
    clients, each, there = config.data.clients, config.data.samples_per_client, len(data.targets)
    outsiders = config.capture.candidates - config.capture.candidates // 2
    fit = (there - outsiders) // clients
    if each is None or clients * each <= there or fit < 1:
        return
    held = f"{len(data.test_targets)} records are for testing and {len(data.auxiliary_targets)} auxiliary"
    left = ""
    if outsiders:
        left = f", with {outsiders} outsiders for [capture] candidates = {config.capture.candidates}"
    raise TooManyRecords(
        f"[data]: {clients} clients of {each} records ask for {clients * each}, the training split has {there}, as"
        f" {held}; --set data.samples_per_client={fit} leaves enough for all of them{left}",
        fit,
    )


LINE_UP = 30  # images of a class left over, among which an original is to be picked (`scoring._in_its_pool`)


def load_data(config: Config, base: Path) -> Dataset:
    table = config.data
    if table.name not in DATASETS:
        raise BadInput(f"[data] name = {table.name!r} is not a data set{instead(table.name, DATASETS)}")
    if table.root is None:
        root = None
    else:
        root = str((base / Path(table.root).expanduser()).resolve())
    if table.samples_per_client is None:
        samples = None
    else:
        samples = table.clients * table.samples_per_client
    taken = (
        "name",
        "root",
        "target",
        "classes",
        "samples",
        "spare",
        "pool",
        "download",
        "seed",
        "statistics",
        "mean",
        "std",
    )
    with _options("[data]", "options", table.options, taken):
        data = load(
            table.name,
            root=root,
            target=table.target,
            classes=table.classes,
            samples=samples,
            spare=config.capture.candidates - config.capture.candidates // 2,  # outsiders, left over by the lot
            pool=LINE_UP if config.capture.candidates else 0,
            download=table.download,
            seed=stream(config.seed if table.split_seed is None else table.split_seed, "data"),
            statistics=table.statistics,
            mean=table.mean,
            std=table.std,
            **table.options,
        )
    if table.train_on == "training":
        return data
    if table.partition == "writer":
        raise BadInput(
            '[data] partition = "writer" gives each holder its own training rows, and nobody the auxiliary ones;'
            ' partition = "iid" without options.holder deals both'
        )
    if samples is None:
        raise BadInput(
            "[data] samples_per_client is needed to train on auxiliary records, as others are set aside too; at most"
            f" {most_of_auxiliary(data) // table.clients} fit"
        )
    with bad_input("[data]"):
        return of_auxiliary(data, samples, stream(config.seed, "data"))


def build_model(config: Config, data: Dataset, allow_model: str | None) -> nn.Module:
    with _options(
        "[model]",
        "options",
        config.model.options,
        ("name", "input_shape", "classes", "mean", "std", "seed", "vocabulary", "target_shape", "allow", "batchnorm"),
    ):
        return models.build(
            config.model.name,
            input_shape=data.input_shape,
            classes=data.classes,
            mean=data.mean,
            std=data.std,
            seed=stream(config.seed, "model"),
            vocabulary=len(vocabulary_of(data.description) or ()),
            target_shape=data.target_shape,
            allow=allow_model,
            batchnorm=config.model.batchnorm,
            **config.model.options,
        )


@contextmanager
def _options(where: str, key: str, given: Mapping[str, Any], taken: Sequence[str]) -> Iterator[None]:
    """Around a call that gets `given` as keywords: those that are `taken` are refused, and so are values of a type it
    cannot use.
    """
    if clash := sorted(set(given) & set(taken)):
        raise BadInput(
            f"{where} {key}: {clash[0]!r} is no option; it has its place elsewhere in the config, or is derived from it"
        )
    with bad_input(where):
        try:
            yield
        except TypeError as error:
            if not given:
                raise
            raise BadInput(f"{where} {key}: one of {str(dict(given))[:200]} is of the wrong type ({error})") from error


def local_training(config: Config, classes: int) -> LocalTraining:
    table = config.local
    return LocalTraining(
        optimiser=table.optimiser,
        lr=table.lr,
        batch_size=table.batch_size,
        epochs=table.epochs_taken,
        steps=table.steps,
        momentum=table.momentum,
        loss=table.loss or models.usual_loss(config.model.name, classes),
    )
