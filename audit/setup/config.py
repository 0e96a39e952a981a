"""The config file: TOML, validated, every unknown key named with its nearest neighbour."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from ...attacks import ATTACKS, AUTO
from ...defenses.losses import loss_of
from ...defenses.nearest import instead, nearest
from ...defenses.presets import KNOWN, PRESETS
from ...defenses.schedule import MOST_ROUNDS
from ...defenses.terms import Adjacency, Observer, Unit
from ...defenses.update import OPTIMISERS
from ..errors import BadInput, bad_input
from .mistakes import keys, sentence
from .reading import misplaced

CANARY = "canary"  # not an attack on the captured messages: it runs the setup's own code with and without a canary
OLD_NAMES = {  # of schemes, before they were named by what is theirs; still read where a user types one
    "dp-fedavg": "thesis-baseline",
    "dpfedavg-laplace": "iteration-laplace",
    "dpfedavg-gaussian": "iteration-gaussian",
}


def current_name(name: str) -> str:
    """The name a scheme has today; a name that was never given to one is handed back as it is.

    >>> current_name("dp-fedavg"), current_name("ldp"), current_name("none")
    ('thesis-baseline', 'ldp', 'none')
    """
    return OLD_NAMES.get(name, name)


def _observer(value: object) -> Observer:
    made = value if isinstance(value, Observer) else Observer.parse(str(value))
    if made.colluding:
        raise ValueError(
            f"observer {value!r}: who colludes is asked of `audit epsilon --colluding`, or is a share: honest"
        )
    return made


ObserverName = Annotated[Observer, BeforeValidator(_observer), PlainSerializer(str)]


class ConfigTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class DataTable(ConfigTable):
    """name: a data set (`audit list datasets`). root: folder of downloaded sets, or the .npz or .csv file. target: of a
    csv, the column to predict. samples_per_client: None = all, split evenly. mean, std: the constants of the model's
    first layer, one number a channel or feature; or statistics: where they come from (None: published values, else the
    auxiliary split). Everybody gets them, so of "training" rows nothing can be proven. train_on: "auxiliary" deals
    the auxiliary records to the clients in place of the training ones, which are then looked at nowhere (`audit choose`
    rehearses with them). split_seed: of the lot that deals a set into training, test and auxiliary records; None for
    the config's seed.
    """

    name: str = "photos"
    root: str | None = None
    target: str | None = None
    download: bool = False
    classes: int | None = Field(default=None, ge=2)
    clients: int = Field(default=1, ge=1)
    samples_per_client: int | None = Field(default=None, ge=1)
    partition: str = "iid"
    options: dict[str, Any] = {}
    partition_options: dict[str, Any] = {}
    mean: list[float] | None = None
    std: list[Annotated[float, Field(gt=0)]] | None = None
    statistics: Literal["published", "auxiliary", "none", "training"] | None = None
    train_on: Literal["training", "auxiliary"] = "training"
    split_seed: int | None = Field(default=None, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _one_source(self) -> DataTable:
        if (self.mean is None) != (self.std is None) or (self.mean is not None and self.statistics is not None):
            raise ValueError("mean and std are given together, and then without statistics")
        return self


class ModelTable(ConfigTable):
    """name: a model (`audit list models`), "hf:FOLDER", or "package.module:function" (imported only with
    --allow-model). batchnorm: what every BatchNorm of it becomes, as a BatchNorm mixes records.
    """

    name: str = "mlp"
    batchnorm: Literal["group", "frozen"] | None = None
    options: dict[str, Any] = {}


LossName = Annotated[str, AfterValidator(lambda text: loss_of(text).text)]


class LocalTable(ConfigTable):
    """Local training. `epochs` or `steps`, not both; neither matters when share = "gradient". loss: what is minimised,
    such as "bce_with_logits" or "focal(gamma=2)" (`defenses.losses`); None for the model's usual one.
    """

    optimiser: str = "adam"
    lr: float = Field(default=1e-3, gt=0, lt=1e38)  # a float32
    batch_size: int = Field(default=25, ge=1)
    epochs: int | None = Field(default=None, ge=1, le=MOST_ROUNDS)
    steps: int | None = Field(default=None, ge=1, le=MOST_ROUNDS)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    loss: LossName | None = None

    @model_validator(mode="after")
    def _check(self) -> LocalTable:
        if self.optimiser not in OPTIMISERS:
            raise ValueError(f"unknown optimiser {self.optimiser!r}{instead(self.optimiser, OPTIMISERS)}")
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self

    @property
    def epochs_taken(self) -> int | None:
        """One where neither epochs nor steps are given; None where steps are."""
        return self.epochs or (None if self.steps else 1)


class CaptureTable(ConfigTable):
    """What is kept of the wire: the uploads of `clients`, in all `rounds` or the first so many; at most `max_gib` on
    disk. truth: also keep what these clients trained on, for scoring. auxiliary: how many of the attacker's own
    examples, and as many of the test split for line-ups. candidates: how many records whose membership may be asked
    for: half of them (at most all) of the audited clients, the others records that no client has, or where too few are
    left over of the test split; 0 for none.
    """

    clients: list[Annotated[int, Field(ge=0)]] = Field(default=[0], min_length=1)
    rounds: Literal["all"] | Annotated[int, Field(ge=1)] = "all"
    truth: bool = True
    max_gib: float = Field(default=4.0, gt=0)
    candidates: int = Field(default=0, ge=0)
    auxiliary: int = Field(default=1000, ge=0)

    @model_validator(mode="after")
    def _once(self) -> CaptureTable:
        if len(set(self.clients)) < len(self.clients):
            raise ValueError(f"clients = {self.clients}: every client once")
        if self.candidates == 1:
            raise ValueError("candidates = 1: expected 0 or at least 2, as half of them are members")
        return self


class ClaimTable(ConfigTable):
    """Whose ε is put to the test: `claim = "paper"`, the formula of the scheme's paper; `claim = "none"`; or a table,
    the owner's own. What the owner leaves out is as [audit] has it.
    """

    whose: Literal["owner", "paper", "none"] = "owner"
    epsilon: float | None = Field(default=None, gt=0)
    delta: float | None = Field(default=None, ge=0, lt=1)
    unit: Unit | None = None
    observer: ObserverName | None = None
    adjacency: Adjacency | None = None

    @model_validator(mode="before")
    @classmethod
    def _word_or_table(cls, value: object) -> object:
        if value in ("paper", "none"):
            return {"whose": value}
        if not isinstance(value, ClaimTable | Mapping):
            raise ValueError(f'{value!r} is no claim: use "paper", "none", or a [claim] table with epsilon')
        return value

    @model_validator(mode="after")
    def _own_number(self) -> ClaimTable:
        if self.whose == "owner" and self.epsilon is None:
            raise ValueError('a [claim] of one\'s own needs epsilon (else claim = "paper" or "none")')
        if self.whose != "owner" and self.model_fields_set != {"whose"}:
            raise ValueError(f"whose = {self.whose!r} takes nothing beside it")
        return self

    @model_serializer(mode="wrap")
    def _as_typed(self, handler: SerializerFunctionWrapHandler) -> Any:
        if self.whose == "owner":
            return handler(self)
        return self.whose


class AuditTable(ConfigTable):
    """What is asked. honest: the share of all other clients that draw their own noise and tell nobody what they know;
    the others collude with every observer. spent: the ε that was spent on the same people before, as by a search on
    their records, of the same unit and adjacency; what no ε bounds is "unlimited". spent_delta: its δ; None for
    `delta`.
    """

    delta: float = Field(default=1e-5, gt=0, lt=1)
    unit: Unit = "client"
    adjacency: Adjacency = "zero_out"
    observer: ObserverName = Observer("server")
    honest: float = Field(default=1.0, ge=0, le=1)
    spent: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["unlimited"] | None = None
    spent_delta: float | None = Field(default=None, gt=0, lt=1)

    @property
    def spent_before(self) -> float:
        """`spent` as a number: 0 for none, ∞ where no ε bounds it."""
        if self.spent == "unlimited":
            return inf
        return self.spent or 0.0

    @property
    def delta_before(self) -> float:
        """The δ of `spent`: 0 for none."""
        if not self.spent:
            return 0.0
        return self.spent_delta or self.delta

    @model_serializer(mode="wrap")
    def _without_none(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As it was before there was `spent` or its δ, where there is none: a setup's digest covers the config."""
        made: dict[str, Any] = plain(self)
        for name in ("spent", "spent_delta"):
            if getattr(self, name) is None:
                made.pop(name, None)  # where it was asked for at all
        return made


class Config(ConfigTable):
    """A whole config. `scheme` holds the preset's own parameters by the paper's letters, `attack` one table per attack,
    `theory` the constants of the papers' analyses for `audit advise`.
    """

    name: str = ""
    seed: int = Field(default=0, ge=0, lt=2**63)
    data: DataTable = DataTable()
    model: ModelTable = ModelTable()
    local: LocalTable = LocalTable()
    scheme: dict[str, Any] = {"name": "fedavg"}
    capture: CaptureTable = CaptureTable()
    audit: AuditTable = AuditTable()
    claim: ClaimTable | None = None  # None: the paper's, where the scheme's parameters are in its terms
    attack: dict[str, dict[str, Any]] = {}
    theory: dict[str, float] = {}

    @property
    def preset_name(self) -> str:
        """The scheme's name of today; `scheme` keeps what was typed, which the digest of a setup covers."""
        return current_name(str(self.scheme.get("name", "fedavg")))

    def parameters(self) -> Any:
        """The preset's validated parameters. Raises BadInput."""
        name = self.preset_name
        if name not in KNOWN:
            raise BadInput(
                f"[scheme] name = {name!r} is not a scheme{instead(name, PRESETS)} (see `audit list schemes`)"
            )
        values = {k: v for k, v in self.scheme.items() if k != "name"}
        try:
            parameters = KNOWN[name].parameters.model_validate(values, strict=True)
        except ValidationError as error:
            raise BadInput(sentence(error, values, "[scheme]", KNOWN[name].parameters, ["name"])) from None
        if parameters.rounds > MOST_ROUNDS:
            raise BadInput(f"[scheme] rounds = {parameters.rounds}: at most {MOST_ROUNDS:,} can be planned")
        return parameters


INIT = "; `audit init ldp > config.toml` writes one"


def read_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The config in a TOML file, with `table.key=value` overrides. Raises BadInput in one sentence."""
    raw = read_toml(path, "config file", INIT)
    if not raw and not overrides:
        raise BadInput(f"the config file {str(path)!r} is empty{INIT}")
    return parse_config(raw, str(path), overrides)


def read_toml(path: Path, what: str, instead_of_none: str = "") -> dict[str, Any]:
    """The tables of a TOML file. Raises BadInput in one sentence, which calls the file `what`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))  # may be a pipe: audit train <(…)
    except FileNotFoundError:
        raise BadInput(f"there is no {what} {str(path)!r}{instead_of_none}") from None
    except IsADirectoryError:
        raise BadInput(f"the {what} {str(path)!r} cannot be read: it is a folder{misplaced(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the {what} {str(path)!r} cannot be read ({error})") from None
    except RecursionError:
        raise BadInput(f"{path}: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits is none of its own kind
        raise BadInput(f"{path}: not valid TOML: {error}") from None


def parse_config(raw: Mapping[str, Any], where: str = "config", overrides: Sequence[str] = ()) -> Config:
    """A validated config from plain values, with `table.key=value` overrides. Raises BadInput."""
    raw = with_overrides(raw, overrides)
    try:
        config = Config(**raw)
    except ValidationError as error:
        raise BadInput(sentence(error, raw, where, Config)) from None
    config.parameters()
    for name, table in config.attack.items():  # now, and not after a long training
        if name != CANARY and name not in ATTACKS:
            raise BadInput(f"[attack.{name}] is not an attack{instead(name, [*ATTACKS, CANARY])}")
        with bad_input(f"[attack.{name}]"):
            if name != CANARY:
                to_pick = table.get("preset") == AUTO and ATTACKS[name].pick is not None  # when there are views
                ATTACKS[name].make({k: v for k, v in table.items() if not (to_pick and k == "preset")}, False, "cpu")
    return config


def with_overrides(raw: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Plain values with `table.key=value` overrides; what they are given stays as it is. Raises BadInput."""
    changed = copy.deepcopy(dict(raw))
    for override in overrides:
        _override(changed, override)
    return changed


def _override(raw: dict[str, Any], override: str) -> None:
    """One --set table.key=value; the value is TOML, or a bare word taken as a string; no value unsets the key."""
    key, separator, value = override.partition("=")
    if not separator or not key.strip():
        raise BadInput(f"--set {override!r} is not of the form table.key=value")
    *tables, last = key.strip().split(".")
    place = raw
    for table in tables:
        place = place.setdefault(table, {})
        if not isinstance(place, dict):
            raise BadInput(f"--set {override!r}: {table!r} is not a table")
    if value.strip():
        place[last] = toml_value(value)
    elif isinstance(place.get(last), dict):
        table = key.strip()
        raise BadInput(f"--set {override!r} unsets one key, and {table!r} is a table; unset its keys: {table}.KEY=")
    elif last == "name" and tables in (["scheme"], ["data"], ["model"]):
        raise BadInput(
            f"--set {override!r}: a {tables[0]} has a name, which says what its other keys mean; give another"
        )
    elif last in place:
        del place[last]
    else:
        near = nearest(last, place)
        meant = ", so there is nothing to unset"
        if near and not _known(tables, last, raw):
            meant = f"; did you mean {near!r}?"
        raise BadInput(f"--set {override!r} unsets {key.strip()!r}, which is not set{meant}")


def _known(tables: Sequence[str], key: str, raw: Mapping[str, Any]) -> bool:
    """Whether a config may have this key, set or not."""
    if tables == ["scheme"]:
        preset = PRESETS.get(current_name(str(raw["scheme"].get("name", "fedavg"))))
        return preset is not None and key in preset.parameters.model_fields
    return key in keys(Config, tables)


def toml_value(text: str) -> Any:
    """The value of a --set: TOML, a number that begins with its point, or a bare word taken as a string. Raises
    BadInput.

    >>> toml_value("0.5"), toml_value("median"), toml_value(".5")
    (0.5, 'median', 0.5)
    """
    if re.fullmatch(r"\s*[+-]?\.\d+(e[+-]?\d+)?\s*", text):
        return float(text)
    try:
        value, *more = tomllib.loads(f"value = {text}").values()
    except tomllib.TOMLDecodeError:
        return text.strip()
    except RecursionError:
        raise BadInput("--set: the value is nested too deeply") from None
    if more:
        raise BadInput(f"--set: {text!r} is more than one value; give each its own --set")
    return value
