"""What a recording is begun with: the model's tensors, what records look like, and all that its owner states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from torch import nn

from ...defenses.data.vocabulary import read_tokenizer
from ...defenses.losses import CrossEntropy, NextToken, loss_of, loss_with
from ...defenses.wire import Kind
from ..errors import BadInput, bad_input
from ..setup.config import Config, ConfigTable, parse_config
from ..setup.mistakes import sentence
from ..setup.reading import short, with_tuples
from .declared_loss import declared_loss
from .matrix import stds_of
from .mechanism import Correlated, Declared, mechanism_of_plain, mechanisms_of
from .network import Network, builder_of, built_by, network_of
from .usable import SeenRecords, check_usable, outputs_of, warn_of_all_frozen, warn_of_no_attacks

Average = Literal["records", "mean", "expected", "unknown"]
A_TEXT = (2,)  # the shape of one that any network of texts takes
MOST_CLIENTS = 100_000  # whom a broadcast's line names one by one
TABLES = ("name", "audit", "local", "attack")  # of a config, which an owner may give


class DataFacts(ConfigTable):
    """What a record looks like, and how records came to clients.

    input_shape: (channels, height, width) of an image with pixels in [0, 1], or (features,). classes: 0 for regression.
    mean, std: with which each channel or feature is normalised before the network gets it. normalised: records are
    handed over as the network gets them, and not as they were before. by_lot: one lot dealt records to the clients, and
    left over those that are called outsiders; without it scores have nothing to be compared with. Declared.
    first_model: made without the clients' records, or with them; None is taken as without. target_shape: of a record's
    targets, () for one class, number or set of labels; loss: that attacks take gradients of. Both are found out from
    records. vocabulary: of texts, whose records are (length,) numbers of words; or tokenizer: the file tokenizer.json
    that has it. pad: the number that the network takes for padding; None where a mask stands beside the records.
    labels: the classes in their order, where targets are words. axes, white: how records stand as their owner hands
    them over, and what pixels are divided by; read_as: what was decided of these, in words. All found out.
    """

    name: str = "recorded"
    input_shape: tuple[Annotated[int, Field(ge=1, le=2**31)], ...] | None = Field(default=None, min_length=1)
    classes: int | None = Field(default=None, ge=0, le=10**6)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    normalised: bool = False
    by_lot: bool = False
    first_model: Literal["public", "private"] | None = None
    target_shape: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    loss: str | None = None
    vocabulary: tuple[str, ...] | None = Field(default=None, min_length=1)
    tokenizer: str | None = None
    pad: int | None = Field(default=None, ge=0)
    labels: tuple[str, ...] | None = None
    axes: Literal["as given", "grey", "hwc"] | None = None
    white: Annotated[float, Field(gt=0)] | None = None
    read_as: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Recording:
    """The facts of one recording, before its first round. Equal facts may go on with each other's rounds.

    network: the model. data: what a record looks like. share: what a client's upload is.
    mechanism: what clients or the server do to the values, as declared. average: how the server weighs them.
    secure_aggregation: nobody but the clients sees single uploads, as declared.
    claim: the owner's ε, as a config's [claim]. tables: others of a config. seed: of ids alone.
    clients: how many there are, None for as many as are seen. by: what records. loss: that clients minimise by
    its owner's word, as `losses.loss_of` reads it, None where it is not told.
    """

    network: Network
    data: DataFacts
    share: Kind
    mechanism: tuple[Declared, ...]
    average: Average
    secure_aggregation: bool
    claim: dict[str, Any] | str
    tables: dict[str, Any]
    clients: int | None
    seed: int
    by: str
    loss: str | None = None

    @property
    def minimised(self) -> str | None:
        """The loss that attacks take gradients of, None for the usual one."""
        return self.data.loss or self.loss

    @property
    def tells_next_word(self) -> bool:
        return self.loss is not None and loss_of(self.loss).name == NextToken.name

    @property
    def local_known(self) -> bool:
        return "local" in self.tables

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        content = asdict(self)
        content["mechanism"] = [one.plain() for one in self.mechanism]
        content["data"] = self.data.model_dump()
        return content

    @classmethod
    def of_plain(cls, content: Mapping[str, Any]) -> Recording:
        """The inverse of `plain`, of what was read from JSON."""
        net = dict(content["network"])
        for name in ("state", "parameters", "mean", "std", "layers", "untrained", "whole"):
            net[name] = tuple(net[name])
        net["shapes"] = tuple(tuple(shape) for shape in net["shapes"])
        data: dict[str, Any] = with_tuples(content["data"])
        mechanism = tuple(mechanism_of_plain(one) for one in content["mechanism"])
        known = {**content, "network": Network(**net), "data": DataFacts(**data), "mechanism": mechanism}
        return cls(**known)


@dataclass(frozen=True, kw_only=True)
class DeclaredTraining:
    """What is said of a training before its first round, unchecked.

    claim: the owner's ε, or a mapping with epsilon, delta, unit, observer, adjacency; None for no claim. data: the
    fields of `DataFacts`. tables: audit, local, attack and name, as in a config. loss: as `declared_loss` takes it.
    build: what makes the network again, as `builder_of` takes it. All else: as of `Recording`.
    """

    claim: float | Mapping[str, Any] | None = None
    mechanism: Declared | Sequence[Declared] | None = None
    share: Kind = "update"
    average: Average = "records"
    secure_aggregation: bool = False
    data: Mapping[str, Any] | None = None
    tables: Mapping[str, Any] | None = None
    clients: int | None = None
    seed: int = 0
    by: str = "dpfl_audit.Recorder"
    loss: object = None
    build: str | Callable[..., Any] | None = None


def recording_of(model: object, declared: DeclaredTraining) -> Recording:
    """The facts of a recording, checked.

    Args:
        model: an nn.Module; or its state dict, or a list of its arrays, of which no network is built.
        declared: what is said of its training.

    Raises:
        BadInput: in one sentence.
    """
    _check_declared(declared)
    facts = _data_facts(declared.data)
    network, builder = network_of(model), None
    tables, loss = _loss_apart(declared)
    if declared.build is not None:
        name, builder = builder_of(declared.build)
        network = built_by(network, name)
    if isinstance(model, nn.Module):
        loss = _by_token(model, facts, loss)
        seen = SeenRecords(facts.input_shape, facts.classes, loss, facts.vocabulary is not None)
        check_usable(model, network.name, seen, "model", builder)
        warn_of_no_attacks(network)
        warn_of_all_frozen(network)
    elif builder is not None:
        raise BadInput(f"build = {network.name!r} makes a network; give the recorder the network as model too")
    if (facts.mean is None) != (facts.std is None):
        raise BadInput("data: mean and std are given together")
    if facts.mean is not None and facts.std is not None and len(facts.mean) != len(facts.std):
        raise BadInput(f"data: mean has {len(facts.mean)} numbers and std {len(facts.std)}; each channel has both")
    if facts.std is not None and not all(0 < one < inf for one in facts.std):
        raise BadInput(f"data: std = {short(list(facts.std))}: expected numbers above 0")
    if network.mean and facts.mean is not None:
        raise BadInput("data: the model begins with a normalisation of its own, so mean and std are given twice")
    made = Recording(
        network,
        facts,
        declared.share,
        fitting(mechanisms_of(declared.mechanism), declared.average),
        declared.average,
        declared.secure_aggregation,
        _claim_table(declared.claim),
        tables,
        declared.clients,
        declared.seed,
        declared.by,
        loss,
    )
    config_of(made, 1, max(1, declared.clients or 1), (0,))  # what cannot be is said before anything is recorded
    return made


def _by_token(module: nn.Module, facts: DataFacts, loss: str | None) -> str | None:
    """The loss; cross-entropy of a network that scores every word at each place of a text is of next words, and torch's
    mean is over all of a batch that are asked for.
    """
    if loss == CrossEntropy.name and facts.vocabulary is not None:
        with suppress(BadInput):  # which is said where the network is looked at
            if len(outputs_of(module, facts.input_shape or A_TEXT, "model", texts=True)) > 1:
                return loss_with(NextToken, {"by": "token"}).text
    return loss


def _loss_apart(declared: DeclaredTraining) -> tuple[dict[str, Any], str | None]:
    """The tables without the loss, and the loss. Raises BadInput."""
    tables, loss = dict(declared.tables or {}), declared_loss(declared.loss)
    local = dict(tables.get("local", {}))
    if "loss" in local:
        named = declared_loss(local.pop("loss"))
        if loss not in (None, named):
            raise BadInput(f"loss = {loss!r}, and tables say local.loss = {named!r}; give it once")
        loss = named
        tables = {name: table for name, table in {**tables, "local": local}.items() if table or name != "local"}
    return tables, loss


def _check_declared(declared: DeclaredTraining) -> None:
    if declared.share not in ("update", "weights", "gradient"):
        raise BadInput(f"share = {declared.share!r}: an upload is an 'update', 'weights' or a 'gradient'")
    if declared.average not in ("records", "mean", "expected", "unknown"):
        raise BadInput(
            f"average = {declared.average!r}: the server weighs by 'records', takes the plain 'mean', divides by how"
            " many are 'expected', or 'unknown'"
        )
    if declared.clients is not None and not (type(declared.clients) is int and 1 <= declared.clients <= MOST_CLIENTS):
        raise BadInput(
            f"clients = {short(declared.clients)}: expected a whole number from 1 to {MOST_CLIENTS:,}, or None"
        )
    if not (isinstance(declared.seed, int) and not isinstance(declared.seed, bool) and 0 <= declared.seed < 2**63):
        raise BadInput(f"seed = {short(declared.seed)}: expected a whole number from 0 to 2^63 - 1")
    if not isinstance(declared.by, str) or not declared.by:
        raise BadInput(f"by = {short(declared.by)}: expected the name of what records")
    if not isinstance(declared.secure_aggregation, bool):
        raise BadInput(f"secure_aggregation = {declared.secure_aggregation!r}: expected true or false")
    for what, table in (
        ("data", declared.data),
        ("tables", declared.tables),
        *((f"tables: {n}", t) for n, t in _tables_in(declared.tables)),
    ):
        if table is not None and not isinstance(table, Mapping):
            raise BadInput(f"{what} = {short(table)}: expected a table of names and values")
    if stranger := [name for name in declared.tables or {} if name not in TABLES]:
        raise BadInput(f"tables: {short(stranger[0])} cannot be given to a recording; {', '.join(TABLES)} can")


def _data_facts(data: Mapping[str, Any] | None) -> DataFacts:
    given: dict[str, Any] = with_tuples(data or {})
    try:
        facts = DataFacts(**given)
        if facts.tokenizer is None:
            return facts
        with bad_input("data"):
            words = read_tokenizer(Path(facts.tokenizer).expanduser()).words
        return facts.model_copy(update={"vocabulary": words, "tokenizer": None})
    except ValidationError as error:
        raise BadInput(sentence(error, given, "data", DataFacts)) from None


def fitting(mechanism: tuple[Declared, ...], average: Average) -> tuple[Declared, ...]:
    """A mechanism, if it says how many clients are expected where an average is over these. Raises BadInput."""
    if average == "expected" and mechanism and (mechanism[0].by != "server" or mechanism[0].sampling is None):
        raise BadInput(
            "average = 'expected': the server divides by the cohort of its mechanism's sampling, so give Gaussian(…,"
            " by='server', sampling=Sampling('poisson', population, cohort))"
        )
    return mechanism


def _tables_in(tables: object) -> list[tuple[str, object]]:
    """Those of `TABLES` that are tables themselves."""
    if isinstance(tables, Mapping):
        return [(n, t) for n, t in tables.items() if n != "name"]
    return []


def _claim_table(claim: float | Mapping[str, Any] | None) -> dict[str, Any] | str:
    if claim is None:
        return "none"
    if isinstance(claim, Mapping):
        return {name: value for name, value in claim.items() if value is not None}
    with suppress(OverflowError):
        if isinstance(claim, int | float) and not isinstance(claim, bool):
            return {"epsilon": float(claim)}
    raise BadInput(f"claim = {short(claim)}: expected an ε, a mapping with epsilon, delta, unit, …, or None")


def config_of(
    recording: Recording, rounds: int, clients: int, captured: Sequence[int], auxiliary: int = 0, candidates: int = 0
) -> Config:
    """The config that a setup of this recording has. Raises BadInput.

    Args:
        recording: its facts. rounds: finished ones, at least 1. clients: how many there are.
        captured: whose uploads are kept. auxiliary, candidates: how many records of these there are.
    """
    first = next(iter(recording.mechanism), None)
    declared: dict[str, Any] = {}
    if first is not None:
        std = first.noise_std * (float(stds_of(first.strategy).mean()) if isinstance(first, Correlated) else 1.0)
        sizes = {"clip": float(first.clip), "noise_std": float(std)}
        declared = {**sizes, "by": first.by, "law": first.law}
    if first is not None and first.of == "record":
        declared = {}  # the clip is of gradients inside local training, and no bound of what is sent
    tables = dict(recording.tables)
    audit = dict(tables.get("audit", {}))
    claim = recording.claim
    if recording.secure_aggregation:
        audit.setdefault("observer", "aggregate")
    elif first is not None and first.by == "server":
        audit.setdefault("observer", "downlink")
    if isinstance(claim, dict) and claim.get("delta") is not None:
        audit.setdefault("delta", claim["delta"])
    if isinstance(claim, dict):
        asked = {"delta": 1e-5, "unit": "client", "observer": "server", "adjacency": "zero_out", **audit}
        claim = {**{name: asked[name] for name in ("delta", "unit", "observer", "adjacency")}, **claim}
    raw = {
        "name": tables.get("name", ""),
        "seed": recording.seed,
        "data": {
            "name": recording.data.name,
            "clients": clients,
            "partition": "iid" if recording.data.by_lot else "recorded",
        },
        "model": {"name": recording.network.name, "options": recording.network.options},
        "local": {**tables.get("local", {}), "loss": recording.minimised},
        "scheme": {"name": "recorded", "rounds": rounds, "share": recording.share, **declared},
        "capture": {"clients": sorted(captured) or [0], "auxiliary": auxiliary, "candidates": candidates},
        "audit": audit,
        "claim": claim,
        "attack": tables.get("attack", {}),
    }
    return parse_config(raw, "recording")
