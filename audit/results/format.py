"""An audit's results, as written to RESULTS/results.json (format 1). Reading validates; a fault is one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ...defenses.complaint import first_complaint
from ...defenses.terms import KINDS, Adjacency, Claimant, Observer, Unit
from ..errors import BadInput
from ..files import json_text
from ..setup.format import REPLAYED, Declaration
from ..setup.reading import misplaced, plain_json, present, read_text
from .premises import Premise
from .seal import SEALED, mark, seal

if TYPE_CHECKING:
    import pandas

FILE, UNFINISHED = "results.json", ".work"  # the folder is there till `audit run` has ended
CRAFTED_WEIGHTS = "crafted initial weights"  # a row's `demonstrated_from`
OWN_CODE = "own code"  # in a scheme's place, where somebody's own code was audited and nothing was trained here
Level = Literal["none found", "moderate", "high", "severe"]
LEVELS: tuple[Level, ...] = get_args(Level)  # of the leak, from best to worst
NOT_MEASURED: Final = "not measured"  # in a level's place, where nothing could have shown a leak
VerdictLevel = Level | Literal["not measured"]
Proof = Literal["proven", "weak", "none", "not priced"]
PROOFS: tuple[Proof, ...] = get_args(Proof)  # from best to worst


def _number(value: object) -> float | int:
    """JSON has no infinity, so ∞ is written "inf". Booleans and NaN are not numbers here.

    >>> _number("inf"), _number(3)
    (inf, 3)
    """
    if value in ("inf", "-inf"):
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError('a number, or "inf"')
    return value


def _observer(name: str) -> str:
    try:
        return str(Observer.parse(name))
    except ValueError:
        raise ValueError(f"one of {', '.join(KINDS)} or uplink(L)") from None


_ObserverName = Annotated[str, AfterValidator(_observer)]
Number = Annotated[
    int | float, BeforeValidator(_number), WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf"]}]})
]
Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    """Frozen; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def having(self, **changes: Any) -> Self:
        """A copy with other values, validated as a whole."""
        return type(self).model_validate({**self.model_dump(by_alias=True), **changes})


class AuditedModel(_Part):
    name: str
    parameters: int | None = None


class AuditedSetup(_Part):
    """The audited setup. noise_std and clip_norm in parameter units; noise_multiplier is noise_std over the sensitivity
    named beside it.

    noise_std is what is on a client's message; what a server adds is `Results.server_noise_std`.
    """

    digest: str
    name: str = ""  # a short human name, e.g. "no noise"
    scheme: str
    parameters: dict[str, Any] = {}  # by the paper's letters
    share: str | None = None  # gradient | update | weights
    clients: int | None = None
    rounds: int | None = None
    clip_norm: Number | None = None
    noise_std: Number | None = None
    noise_multiplier: Number | None = None
    sensitivity: str | None = None  # e.g. "C = 1 (whole vector, client, zero_out)"
    share_clipped: Share | None = None
    clipped_in_training: bool | None = None  # inside local training, record by record or step by step
    norm_before_clip_median: Number | None = None
    test_accuracy: Share | None = None
    majority_accuracy: Share | None = None  # of the most frequent class of the test records as the only answer
    balanced_accuracy: Share | None = (
        None  # the mean over classes of the share of a class's test records that are right
    )
    test_auc: Share | None = None  # of two classes
    status: Literal["complete", "partial", "diverged"] = "complete"
    engine: Literal["batched", "looped", "sliced"] | None = None  # looped: one client was trained after the other
    seed: int | None = None
    holders: tuple[str, ...] = ()  # of a table's rows, by client; of the first clients
    noise_key: Literal["published", "secret"] | None = None  # published: anybody can draw the noise again
    recorded: str = ""  # what recorded a training of somebody else's code; "" of one by this tool
    declared: tuple[Declaration, ...] = ()  # what the owner of such a one states, and what speaks for it
    messages: str | None = None  # digest of what was captured: trainings of one config with other noise have another
    config: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    data: dict[str, Any] = {}
    model: AuditedModel | None = None

    @property
    def title(self) -> str:
        return self.name or self.scheme

    @property
    def own_code(self) -> bool:
        """Whether it is code of somebody's own, of which nothing is known but what it was asked for."""
        return self.scheme == OWN_CODE

    @property
    def secret_key(self) -> bool:
        """Whether the noise's key is, or may be, secret."""
        return self.noise_key != "published"

    @property
    def unchecked(self) -> tuple[Declaration, ...]:
        """What ε rests on and only its owner says."""
        return tuple(declaration for declaration in self.declared if declaration.status == "declared")

    @property
    def violated(self) -> str:
        """What a replay showed that cannot be if the bounds hold, a sentence without its stop; "" for nothing."""
        found = (d.why for d in self.declared if d.what == REPLAYED and d.status == "contradicted")
        return next(found, "")

    @property
    def contradicted(self) -> tuple[Declaration, ...]:
        """What was recorded otherwise than it is declared; what a replay showed is `violated`."""
        return tuple(d for d in self.declared if d.status == "contradicted" and d.what != REPLAYED)

    @property
    def spent(self) -> float:
        """The ε that the config says was spent on the same records before: 0 for none, ∞ where no ε bounds it."""
        audit = self.config.get("audit")
        spent = (audit or {}).get("spent") or 0.0
        if spent == "unlimited":
            return math.inf
        return float(spent)

    @property
    def spent_delta(self) -> float | None:
        """The δ of `spent`; None for that of [audit]."""
        return (self.config.get("audit") or {}).get("spent_delta")

    @property
    def test_records(self) -> int | None:
        """How many records the accuracy is of; None where the setup does not say."""
        return self._size("test")

    @property
    def training_records(self) -> int | None:
        """How many records the clients may hold; None where the setup does not say."""
        return self._size("training")

    @property
    def auxiliary_records(self) -> int | None:
        """How many records were set aside for what everybody gets; None where the setup does not say."""
        return self._size("auxiliary")

    def _size(self, split: str) -> int | None:
        sizes = self.data.get("sizes")
        count = None
        if isinstance(sizes, dict):
            count = sizes.get(split)
        if isinstance(count, int) and count > 0:
            return count
        return None

    @property
    def guessing_accuracy(self) -> float | None:
        """What the best guess gets that looks at no record: always the most frequent class. Where nobody counted it,
        what any class with equal probability gets, which is no more; None for a regression, or where nobody says.
        """
        if self.majority_accuracy is not None:
            return self.majority_accuracy
        classes = self.data.get("classes")
        if isinstance(classes, int) and classes > 0:
            return 1 / classes
        return None


class Verdict(_Part):
    """Two answers that do not imply each other: which leak was found, and what is proven. `words.badge` says both.

    level: of the leak found. measured: whether anything could have shown one; else the level is "not measured".
    attacked: whether any attack was run at all.
    only_claim: whether a refuted claim is all that gives the level, and no leak was found beside it.
    proof: of every attacked observer. proven: a finite ε ≤ 10 at a δ ≤ .01; weak: a larger one; none: no finite one, or
      it is contradicted; not priced: nobody computed it.
    proven: the largest of these ε, None where one of them is missing, ∞ or at a larger δ.
    declared: whether they rest on what the owner of a recorded training says and nobody checked.
    """

    level: VerdictLevel
    proof: Proof
    proven: Number | None = None
    measured: bool
    attacked: bool
    only_claim: bool = False
    declared: bool = False
    sentences: tuple[str, str, str]


class Epsilon(_Part):
    """Claimed, proven and demonstrated ε for one observer, unit, adjacency and δ; None: not measured.

    claimed_by: whose the claim is; "" where there is none.
    mu: of the Gaussian whose trade-off curve bounds every attack (μ-GDP); None where no such curve is known.
    profile: further (δ, ε) that are proven too, of records behind secret draws, where there is no mu.
    proven_without_sampling: what is proven if the observer knows who, or what, was drawn; None: no draw is secret.
    demonstrated: by counting, whatever the mechanism. ceiling: the most the test could show.
    condition: what must hold for `demonstrated_on_condition`, "" where there is no such bound; that one could have been
      `ceiling_on_condition` at most. It refutes nothing unless the condition holds.
    demonstrated_from: what the adversary chose for both, beyond the canary ("crafted initial weights": the model's
      start), "" where nothing: what is demonstrated so refutes a claim or proof that holds whatever is chosen, and says
      nothing of a training that starts from its own.
    untested: why a canary audit of this row that was asked for measured nothing, "" where none was asked for or did.
    asked: whether it is the row that the config asks about ([audit]), which a proof must cover whoever attacked.
    premises: what the proof rests on (`results.premises`). ledger: the digest of the facts it is of.
    proof: the mark of all that is proven (`results.seal`); without it a row with a finite ε is refused.
    aside: whether the run is about observers who see less, and only the scheme or a claim brought this row in: what a
      test shows there is no leak towards those, unless it refutes a claim or a proof.
    """

    observer: _ObserverName
    unit: Unit
    adjacency: Adjacency
    delta: Number | None = None
    claimed: Number | None = None
    claimed_by: Claimant | Literal[""] = ""
    proven: Number | None = None
    proven_without_sampling: Number | None = None
    accountant: str | None = None
    multiplier: Number | None = None  # the least noise over sensitivity of any release
    releases: int | None = None  # how many draws of noise were composed
    mu: Annotated[Number, Field(ge=0)] | None = None
    profile: tuple[tuple[Share, Annotated[Number, Field(ge=0)]], ...] = ()
    demonstrated: Number | None = None
    confidence: Share | None = None
    ceiling: Number | None = None
    condition: str = ""
    demonstrated_on_condition: Number | None = None
    ceiling_on_condition: Number | None = None
    demonstrated_from: str = ""
    untested: str = ""
    asked: bool = False
    aside: bool = False
    premises: tuple[str, ...] = ()
    ledger: str = ""
    proof: str = ""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _unchanged(self) -> Self:
        numbers = (self.proven, self.proven_without_sampling, self.mu)
        if any(n is not None and n < math.inf for n in numbers) and self.proof != seal(vars(self)):
            raise ValueError("what `prove` made, with its mark; it was changed since, or nothing proves it")
        return self

    def having(self, **changes: Any) -> Self:
        """A copy with other values; of what is proven there is none.

        Raises:
            TypeError: a number of a proof is changed, which `proof.certificate.prove` alone makes.
        """
        sealed = {name: value for name, value in changes.items() if name in (*SEALED, "proof")}
        if changed := [name for name, value in sealed.items() if value != getattr(self, name)]:
            raise TypeError(f"{changed[0]} belongs to a proof, and a proof is made by `prove`")
        return super().having(**changes)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As `having`: pydantic's own copy validates nothing."""
        return self.having(**(update or {}))

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """All (δ, ε) that are proven; ε is ∞ where none is."""
        proven = math.inf if self.proven is None else self.proven
        return ((self.delta or 0.0, proven), *self.profile)

    @property
    def finite(self) -> bool:
        """Whether anything is proven."""
        return self.proven is not None and self.proven < math.inf

    @property
    def declared(self) -> bool:
        """Whether its proof rests on what an owner states and nobody checked."""
        return Premise.DECLARED.label in self.premises

    @property
    def secret_key(self) -> bool:
        """Whether nobody can draw the noise of its proof again."""
        return Premise.PUBLISHED_KEY.label not in self.premises

    @property
    def tested(self) -> bool:
        """Whether a test of this row demonstrated anything, 0 too."""
        return self.demonstrated is not None or self.demonstrated_on_condition is not None


class TprPoint(_Part):
    fpr: Share
    tpr: Share
    interval: tuple[Share, Share] | None = None
    realised_fpr: Share | None = None
    ceiling: Share | None = None  # the largest that the proof allows any attack; None where it says nothing


STACKED = "membership-stacked"
CEILINGS = (
    "attribute_ceiling",
    "auc_ceiling",
    "pool_ceiling",
    "psnr_ceiling",
    "psnr_ceiling_even",
)  # numbers that a proof gives


def _ceilings(numbers: Mapping[str, float | None], points: Sequence[TprPoint | None]) -> list[tuple[str, float]]:
    """What the proof allows any attack, by the name of what it bounds."""
    found = [(f"tpr at {point.fpr!r}", point.ceiling) for point in points if point is not None]
    found += [(name, value) for name, value in sorted(numbers.items()) if name in CEILINGS]
    return [(name, float(value)) for name, value in found if value is not None]


class Metrics(_Part):
    """Any number by its name, and the points of a membership ROC. None: not measured.

    ceilings_proof: the mark (`results.seal`) of the ceilings among them, of which a proof allows no other.
    """

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, Number | None]
    tpr_at_fpr: tuple[TprPoint | None, ...] | None = None
    ceilings_proof: str = ""

    @classmethod
    def of(cls, numbers: Mapping[str, float | None], tpr_at_fpr: tuple[TprPoint | None, ...] | None = None) -> Metrics:
        proof = mark(_ceilings(numbers, tpr_at_fpr or ()))
        return cls.model_validate({**numbers, "tpr_at_fpr": tpr_at_fpr, "ceilings_proof": proof})

    @model_validator(mode="after")
    def _unchanged(self) -> Self:
        if self.ceilings_proof != mark(_ceilings(self.__pydantic_extra__ or {}, self.tpr_at_fpr or ())):
            raise ValueError("the ceilings that the proof allows, with their mark; they were changed since")
        return self


class Pair(_Part):
    """Reconstruction number j was matched to original number i."""

    original: int = Field(ge=0)
    reconstruction: int = Field(ge=0)
    psnr: Number | None = None
    ssim: Number | None = None
    lpips: Number | None = None


class Roc(_Part):
    fpr: tuple[Share, ...]
    tpr: tuple[Share, ...]

    @model_validator(mode="after")
    def _as_long(self) -> Roc:
        if len(self.fpr) != len(self.tpr):
            raise ValueError(f"as many tpr ({len(self.tpr)}) as fpr ({len(self.fpr)})")
        return self


class Histogram(_Part):
    """Counts of scores between the edges."""

    edges: tuple[Number, ...]
    members: tuple[int, ...]
    nonmembers: tuple[int, ...]

    @model_validator(mode="after")
    def _as_long(self) -> Histogram:
        if not len(self.edges) - 1 == len(self.members) == len(self.nonmembers):
            raise ValueError("one edge more than counts of members and of nonmembers")
        return self


class ClassRow(_Part):
    """Membership inference on the records of one class."""

    label: int | str = Field(alias="class")
    n_members: int
    n_nonmembers: int
    auc: Share | None = None
    interval: tuple[Share, Share] | None = None


class ClientRow(_Part):
    """Membership inference by one client's messages: its own records against all other candidates."""

    client: str  # an address
    n_members: int
    n_nonmembers: int
    auc: Share | None = None
    interval: tuple[Share, Share] | None = None


class Exposed(_Part):
    """A member with a high score; nonmembers_above is the share of non-members who score at least as high."""

    id: int | str
    score: Number
    nonmembers_above: Share


class Method(_Part):
    """One method of an inversion, and why it did not run; "" where it did."""

    name: str
    why_not: str = ""


class AttackResult(_Part):
    """One attack on one message (or on several of one sender): its assumptions, its metrics, those of its controls."""

    attack: str  # as typed after --attack; what one attack tries in several ways follows a "/"
    observer: _ObserverName
    manner: str | None = None  # one-round | all-rounds
    round: int | None = None
    client: str | None = None  # an address
    n: int | None = None  # images, records or canaries attacked
    evidence: tuple[str, ...] = ()  # keys of the evidence files that a membership attack was judged by
    # It names files, so it may not lead out of the folder.
    key: Annotated[str, Field(pattern=r"^\w[\w.-]*$")] | None = None
    assumed: tuple[str, ...] = ()
    methods: tuple[Method, ...] = ()  # of an inversion
    doubt: str = ""  # what it takes for granted and is wrong, or unchecked, so that its failure says nothing
    settings: dict[str, Any] = {}
    metrics: Metrics = Field(default_factory=lambda: Metrics.model_validate({}))
    controls: dict[str, dict[str, Number | None]] = {}
    intervals: dict[str, tuple[Number, Number] | None] = {}
    p_values: dict[str, Share] = {}  # by check; the least 1 − confidence at which it beats its control
    least_p_values: dict[str, Share] = {}  # by check; its p-value were success perfect
    pairs: tuple[Pair, ...] = ()
    run: str = ""  # the results' digest, where a report takes several together
    not_measured: dict[str, str] = {}
    roc: Roc | None = None
    histogram: Histogram | None = None
    per_class: tuple[ClassRow, ...] = ()
    per_client: tuple[ClientRow, ...] = ()
    most_exposed: tuple[Exposed, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> AttackResult:
        for name, interval in self.intervals.items():
            if interval is not None and interval[0] > interval[1]:
                raise ValueError(f"intervals with the lower limit first, but {name} has {list(interval)}")
        return self

    @property
    def combines(self) -> bool:
        """Whether it is all tests of membership by one observer as one."""
        return self.attack == STACKED

    @property
    def variant(self) -> str:
        """By what an inversion compares gradients, and whether its prior is the fixed one that runs beside one which
        grows with the noise; the column that attribute inference asks for; of a canary audit what the adversary chose;
        "" for other attacks.
        """
        if self.demonstrated_from:
            return self.demonstrated_from
        if self.kind == "attribute":
            return str(self.settings.get("column") or "")
        said = ""
        if self.kind == "inversion":
            said = str(self.settings.get("objective") or "")
        if said and "prior" in self.settings:
            return f"{said}, {self.settings['prior']} prior"
        return said

    @property
    def kind(self) -> str:
        """inversion, linking, attribute, membership, canary: the first word of the attack's name.

        >>> names = ("inversion", "linking", "membership-lira", "canary/rounds")
        >>> [AttackResult(attack=name, observer="server").kind for name in names]
        ['inversion', 'linking', 'membership', 'canary']
        """
        return self.attack.partition("/")[0].partition("-")[0]

    @property
    def thing(self) -> str:
        """What an inversion rebuilds one of: "image", "text", of which words are counted, or "row" of a table, of which
        cells are.
        """
        if "words_told" in self.numbers:
            return "text"
        if "cells_right" in self.numbers:
            return "row"
        return "image"

    @property
    def demonstrated_from(self) -> str:
        """What the adversary chose beyond the canary, as `Epsilon.demonstrated_from` has it; "" where nothing."""
        crafted = self.attack == "canary/end-to-end" and self.settings.get("initial_weights") == "crafted"
        if crafted:
            return CRAFTED_WEIGHTS
        return ""

    @property
    def numbers(self) -> dict[str, float | None]:
        """The metrics that are one number, by name."""
        return self.metrics.__pydantic_extra__ or {}

    def value(self, metric: str) -> float | None:
        return self.numbers.get(metric)

    def low(self, metric: str) -> float | None:
        """The lower limit of the metric's interval."""
        interval = self.intervals.get(metric)
        if interval:
            return interval[0]
        return None

    @property
    def tpr_points(self) -> tuple[TprPoint, ...]:
        return tuple(point for point in self.metrics.tpr_at_fpr or () if point)

    @property
    def scored(self) -> bool:
        """Whether anything was compared with the truth. The attack's own loss needs none, so it does not count."""
        return bool(self.tpr_points) or any(
            v is not None for name, v in self.numbers.items() if name not in _NEEDS_NO_TRUTH
        )


_COUNTED = {"n_members", "n_nonmembers", "noise_over_gradient"}
_NEEDS_NO_TRUTH = {"attack_loss", "reidentified_chance", "label_chance", "linked_chance", *_COUNTED}


class Ran(_Part):
    """An attack that was chosen. minutes: about how long it takes, counted from shapes (`attacks.cost`). parts: how
    many of its parts ran, where all of them were too long; None for all. A part is a message, or a sender's together,
    by one variant of the attack. iterations: of an inversion none of whose parts would have fitted with all that were
    asked for; None for all.
    """

    attack: str
    minutes: Number
    parts: int | None = None
    iterations: int | None = None


class NotRun(_Part):
    """An attack that was not, or not in full, and why. minutes: of what did not run; None where it could not have run
    however long.
    """

    attack: str
    reason: str
    minutes: Number | None = None


class Choice(_Part):
    """What `audit run` chose within so many minutes, where no attack was named."""

    minutes: Number
    ran: tuple[Ran, ...]
    not_run: tuple[NotRun, ...] = ()

    @property
    def unfinished(self) -> frozenset[str]:
        """The attacks of which some parts ran, or all with fewer iterations or methods."""
        return frozenset({ran.attack for ran in self.ran} & {lack.attack for lack in self.not_run})


class ReferenceClassifier(_Part):
    family: str
    accuracy: Share | None = None
    source: str | None = None


SCORING = 6  # one more with every change to what a p-value is computed from


class Results(_Part):
    """RESULTS/results.json. Not measured is None; ∞ is "inf" on disk. choice: None where the attacks were named.
    scoring: by which rules p-values were computed, of `SCORING`.
    ablated: entries like those of `attacks`, of the same attacks without one piece of what they know, which is
    `settings["without"]`; no verdict is on them. not_withheld: by piece, why there are none without it.
    """

    format: Literal[1] = 1
    scoring: int
    digest: str = ""
    seed: int | None = None
    setup: AuditedSetup
    warnings: tuple[str, ...] = ()
    quick: bool = False
    verdict: Verdict
    epsilon: tuple[Epsilon, ...]
    attacks: tuple[AttackResult, ...]
    ablated: tuple[AttackResult, ...] = ()
    not_withheld: dict[str, str] = {}
    choice: Choice | None = None
    classifiers: tuple[ReferenceClassifier, ...] = ()
    rounds: tuple[dict[str, Any], ...] = ()

    @field_validator("epsilon")
    @classmethod
    def _proves_the_verdict(cls, rows: tuple[Epsilon, ...], info: ValidationInfo) -> tuple[Epsilon, ...]:
        setup: AuditedSetup | None = info.data.get("setup")
        if setup is not None and not setup.secret_key and any(row.finite and row.secret_key for row in rows):
            raise ValueError("proofs that rest on the published key of setup.noise_key, as the audit makes them now")
        said: Verdict | None = info.data.get("verdict")
        if said is None or (said.proof != "proven" and said.proven is None):
            return rows
        if said.proven not in [row.proven for row in rows]:
            raise ValueError(f"a row that proves the verdict's ε = {said.proven}")
        return rows

    @classmethod
    def read(cls, folder: Path | str) -> Results:
        """Read and check `folder`/results.json.

        Raises:
            BadInput: the file is missing, is not JSON, has another format, or a field is wrong: one sentence with file,
                field, value and what was expected.
        """
        path = Path(folder) / FILE
        if not present(path):
            if (Path(folder) / UNFINISHED).is_dir():
                raise BadInput(
                    f"{folder} is not finished: `audit run` was interrupted; the same command goes on with it"
                )
            raise BadInput(f"{path} is missing; expected a folder written by `audit run`{misplaced(Path(folder))}")
        text = read_text(path)
        try:
            content = plain_json(text)
        except ValueError as error:
            raise BadInput(f"{path} is not valid JSON: {error}") from None
        if not isinstance(content, dict):
            raise BadInput(f"{path}: the content is a {type(content).__name__}, expected an object")
        if content.get("format") != 1:
            raise BadInput(f"{path}: format is {content.get('format')!r}, expected 1, the only one this version reads")
        return parse(cls, content, str(path))

    def mean_of(self, figure: str) -> float | None:
        """A figure of rounds.csv, averaged over the rounds that have it."""
        values = [row[figure] for row in self.rounds if isinstance(row.get(figure), int | float)]
        if values:
            return sum(values) / len(values)
        return None

    @property
    def server_noise_std(self) -> float | None:
        """What a server adds to its broadcasts, in parameter units; it sees none of that noise itself."""
        return self.mean_of("server_noise_std")

    def text(self) -> str:
        """The JSON to write to results.json; the same results give the same bytes."""
        return json_text(self.model_dump(by_alias=True))

    def frame(self) -> pandas.DataFrame:
        """One row a metric of an attack: who attacked what, the value, its 95 % limits, its control and p-value.

        Columns: attack, observer, manner, round, client, n, metric, value, low, high, p_value, and `control_NAME` for
        every control. Not measured is NaN.
        """
        import pandas  # half a second, and most commands make no table

        rows = []
        for attack in self.attacks:
            place = {k: getattr(attack, k) for k in ("attack", "observer", "manner", "round", "client", "n")}
            for metric, value in attack.numbers.items():
                low, high = attack.intervals.get(metric) or (None, None)
                controls = {f"control_{name}": own.get(metric) for name, own in attack.controls.items()}
                limits = {"low": low, "high": high, "p_value": attack.p_values.get(metric)}
                rows.append({**place, "metric": metric, "value": value, **limits, **controls})
        return pandas.DataFrame(rows)

    def epsilon_frame(self) -> pandas.DataFrame:
        """One row an observer, unit, adjacency and δ: claimed, proven and demonstrated ε."""
        import pandas

        return pandas.DataFrame([row.model_dump(exclude={"notes"}) for row in self.epsilon])


def schema() -> dict[str, Any]:
    """The JSON schema of results.json: docs/results.schema.json is this, as text.

    Write it again after a change: `python -m dpfl_audit.audit.results.format > docs/results.schema.json`.
    """
    return Results.model_json_schema(by_alias=True)


_Model = TypeVar("_Model", bound=BaseModel)


def parse(model: type[_Model], content: Mapping[str, Any] | _Model, where: str) -> _Model:
    """Validate `content` as `model`; the first fault becomes one sentence that starts with `where`.

    Raises:
        BadInput: naming the field, its value and what was expected.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        wrong = first_complaint(error, content)
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in wrong.path).lstrip(".")
    if wrong.kind == "missing":
        raise BadInput(f"{where}: {field} is missing")
    value = repr(wrong.value)
    shown = value if len(value) <= 80 else value[:77] + "…"
    raise BadInput(f"{where}: {field or 'the content'} is {shown}, expected {wrong.expected}")


if __name__ == "__main__":
    print(json_text(schema()), end="")
