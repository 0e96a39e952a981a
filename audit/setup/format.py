"""What the files of a trained setup hold : every field, its type and its range. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from ...defenses.terms import Adjacency, Claimant, Unit

ROWS = ("sha256", "test_sha256")  # digests of rows that may be private, keyed
FORMAT = 1  # the only one that is written and read; a later one reads this one too
SEAL = "auditor/seal.json"
BASE = "base.safetensors"  # the parameters that nobody trains, once in a setup; a message is what is trained
SOURCE = "auditor/source.json"
DECLARED = "auditor/declared.json"  # of a recorded training
RECORDED_CALLS = "calls of the recorder"  # a Declaration.what: some were refused, so a recording is incomplete
REPLAYED = "replay"  # a Declaration.what: what replaying the loop showed
MISSING = "missing uploads"  # a Declaration.what: fewer clients than in nearly all rounds
RESTART = "restart"  # a Declaration.what: a round began again with another model
LAST_MODEL = "last model"  # a Declaration.what: that nobody gets it
DRAWN_LABELS = "auditor/labels.json"  # tells which records secret batches took, which ε counts on: none of knowledge/


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


Id = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
KeyKind = Literal["published", "secret"]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class SchemePart(_Part):
    name: str
    title: str
    source: str
    parameters: dict[str, Any]


class ClaimPart(_Part):
    whose: Claimant
    sentence: str
    observer: str
    unit: Unit
    adjacency: Adjacency
    delta: float = Field(gt=0, lt=1)


class ModelPart(_Part):
    """parameters: numbers that are trained and sent. frozen: numbers that are neither, in `BASE`."""

    name: str
    parameters: int = Field(ge=1)
    layers: list[str]
    frozen: int = Field(default=0, ge=0)


class LayoutPart(_Part):
    names: list[str] = Field(min_length=1)
    shapes: list[list[Count]]


class EnginePart(_Part):
    name: Literal["batched", "looped", "sliced", "recorded"]  # recorded: somebody else's code
    chunk_numbers: int


class DataPart(_Part):
    """classes: 0 where targets are numbers. target_shape: of a record's, [] for one; label_sets: it is a set of labels
    of `classes`, bit j for label j.
    """

    name: str
    input_shape: list[Count] = Field(min_length=1)
    classes: int = Field(ge=0)
    mean: list[float]
    std: list[Positive]
    description: dict[str, Any]
    target_shape: list[Count] = []
    label_sets: bool = False

    @property
    def targets_below(self) -> int:
        """What every target is below; 0 where they are numbers."""
        if self.label_sets:
            return 2**self.classes
        return self.classes

    @property
    def classes_of_records(self) -> int:
        """Of which each record is one; 0 where its targets are more than that."""
        return self.classes * (not self.target_shape)


class HiddenFacts(_Part):
    """What depends on private data, so that no attacker knows it: the norm of a clip, the scale of the noise."""

    clip_unknown: bool = False
    noise_unknown: bool = False


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
    clipped_in_training: bool
    extra: HiddenFacts = HiddenFacts()


class RecordedPart(_Part):
    """Of a training that was recorded: what its owner told of it, so that nobody takes a stand-in for the real thing.

    by: what wrote it. network: whether the model can be built again; local: whether the tables say how clients trained;
    data: whether input_shape and classes are known. loss: whether it is declared.
    """

    by: str
    network: bool
    local: bool
    data: bool
    loss: bool = False


class Declaration(_Part):
    """One thing that the owner states: `said` of `what`. checked: it fits what was recorded, as `why` says; declared:
    nobody could tell; contradicted: it is not what ran; defect: it is what ran, and does not do what it is for.
    """

    what: str
    said: str
    status: Literal["declared", "checked", "contradicted", "defect"]
    why: str


class Declarations(RootModel[list[Declaration]]):
    """auditor/declared.json."""

    model_config = ConfigDict(strict=True)


class Manifest(_Part):
    """setup.json."""

    format: Literal[1]
    status: Literal["complete", "partial", "diverged"]
    name: str
    seed: int
    noise_key: KeyKind
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
    engine: EnginePart
    recorded: RecordedPart | None = None  # None: it was trained here
    versions: dict[str, str]
    files: dict[str, str] = {}  # the seal: SHA-256 by path, of the public files, `SEAL` and everything else in here


class MessageRow(_Part):
    """One line of messages.jsonl."""

    id: Id
    round: int = Field(ge=0)
    sender: str
    receivers: list[str]
    kind: Literal["gradient", "update", "weights"]
    num_examples: int = Field(ge=0)
    side: dict[str, float] = {}


class SamplingPart(_Part):
    kind: Literal["poisson", "without_replacement", "partition"]
    population: Count
    cohort: Positive
    unit: Unit


class TermPart(_Part):
    """Equal noises of several senders in a sum."""

    noise_std: NotNegative
    count: Count


class EntryPart(_Part):
    """An entry of a strategy matrix C that is not 0, of the column of a release's round."""

    row: int = Field(ge=0)
    value: Annotated[float, Field(ge=-1e100, le=1e100)]


class AlsoPart(_Part):
    """What else is told, under Gaussian noise of its own: how far a subject moves it, and the noise's std."""

    moved: NotNegative
    noise_std: NotNegative


class CorrelationPart(_Part):
    """How correlated noise hangs together with that of other rounds: `Correlation`."""

    chain: Id
    column: list[EntryPart]
    separation: Count = 1
    most: Count | None = None


class LatticePart(_Part):
    """Where a value and its discrete noise are whole numbers of steps: `Lattice`."""

    step: Annotated[float, Field(gt=0, le=1e100)]
    numbers: Count


class ReleaseRow(_Part):
    """One line of auditor/releases.jsonl: `Release`, its law's parts among its own."""

    id: Id
    round: int = Field(ge=0)
    mechanism: Literal["none", "gaussian", "laplace", "response", "correlated", "discrete"]
    noise_std: NotNegative
    bound_norm: NotNegative | None
    bound_order: Literal[1, 2]
    bound_of: Unit
    records: Count
    subjects: list[int]
    sampling: SamplingPart | None
    parents: list[Id]
    steps: Count
    problem: str
    centred: bool
    anywhere: bool
    slot: str
    terms: list[TermPart]
    rounding: NotNegative
    lot: str = ""
    correlation: CorrelationPart | None = None
    lattice: LatticePart | None = None
    epsilon: Annotated[float, Field(gt=0, le=1e100)] | None = None
    about_zero: bool = False
    earlier: NotNegative = 0.0
    also: AlsoPart | None = None


class ModelRow(_Part):
    """One line of auditor/models.jsonl: a version of a model, below its parents."""

    id: Id
    releases: list[Id]
    parents: list[Id]
    summed: list[Id] | None = None
    merged: list[Id] | None = None


class PartyRow(_Part):
    """A message as it really was."""

    sender: int
    receivers: list[int]
    releases: list[Id]
    inherits: list[Id] = []
    round: int = Field(ge=0)
    kind: Literal["gradient", "update", "weights"]
    captured: bool
    upload: bool


class Parties(_Part):
    """auditor/parties.json."""

    observers: dict[Literal["peer", "leader"], int] = {}
    messages: dict[Id, PartyRow]


class SourcePart(_Part):
    """auditor/source.json, of a training by this tool: what its config alone does not say.

    folder: where the config's relative paths start, seen from the folder that holds the setup. holders: who holds the
    rows of each of the first clients, by name; none where no column says it.
    """

    folder: str = "."
    holders: list[str] = []


class Seal(RootModel[dict[str, str]]):
    """auditor/seal.json: SHA-256 by path of truth/ and auditor/. In setup.json they would let anybody try records; the
    noise key's among them makes this file's own SHA-256 one that nobody can.
    """

    model_config = ConfigDict(strict=True)


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
