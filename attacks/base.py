"""What goes into an attack (a view, and the knowledge granted to it) and what comes out (evidence). Never the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..defenses.layout import Layout, frozen_of
from ..defenses.local import Penalty, ScaleByRoot, StepClip
from ..defenses.losses import loss_of
from ..defenses.progress import Progress

if TYPE_CHECKING:
    from ..defenses.data.columns import TableColumn
    from ..defenses.data.vocabulary import Vocabulary
    from .membership.shadows import ShadowFactory

NOISE_KNOWN = "standard deviation of the noise known"  # an assumption of inversion and of linking


@dataclass(frozen=True, eq=False)
class Seen:
    """A message as an observer sees it: addresses, not parties.

    num_records: records its sender trained on, 0 where the sender is anonymous and keeps the number to itself.
    load: reads the flat vector (d,) from the capture. broadcast: the message is the global model on its way down.
    beside: reads what was sent beside parameters, as a BatchNorm's running statistics, by the name of a buffer.
    """

    id: str
    round: int
    sender: str
    receivers: tuple[str, ...]
    kind: str  # gradient | update | weights
    num_records: int
    load: Callable[[], Tensor]
    broadcast: bool
    beside: Callable[[], Mapping[str, Tensor]] = dict


@dataclass(frozen=True)
class RoundFactors:
    """What a round's public schedule multiplies the facts by. lr: of its local steps. noise: of noise_std. lr_by_step:
    further factors for its local steps 0, 1, …, () for none.
    """

    lr: float = 1.0
    noise: float = 1.0
    lr_by_step: tuple[float, ...] = ()


@dataclass(frozen=True)
class PublicFacts:
    """What every participant of the federation knows: its public hyperparameters. Nothing here depends on data.

    lr, batch_size, epochs, steps: of a client's local training; steps is None where epochs say how long it lasts.
    momentum, smoothing: of momentum SGD, and of RMSprop's running mean.
    clip_norm: in parameter units, None where nothing is clipped to a public norm. clip_order: 1 or 2, of that norm.
    per_layer: the clip holds for each tensor by itself. clip_unknown: values are clipped to a norm that depends on
    private data, so that only their direction is public. noise_std: on a client's message, in parameter units; 0.0 for
    no noise, None where it depends on private data. loss: what clients minimise, as `defenses.losses.loss_of` reads it.
    sent_share: of a value's components, the largest, that is sent; the others are 0.
    secret_batches: clients draw the records that they train on in secret, anew in every round.
    schedule: how rounds 0, 1, … differ, where they do; lr and noise_std are before that. lr_by_step: factors of lr at
    local steps 0, 1, …, () where all have one rate.
    gradient_scale, penalties, step_clip: what local training does more than its optimiser's steps on the loss, as of
    `defenses.local.LocalTraining`. record_clip: every record's gradient is clipped by itself. truncated: what is sent
    was cut component by component. gaussian: the noise on a message is.
    """

    scheme: str
    share: str  # gradient | update | weights
    optimiser: str
    lr: float
    batch_size: int
    epochs: int | None
    steps: int | None
    clip_norm: float | None = None
    clip_order: int = 2
    per_layer: bool = False
    clip_unknown: bool = False
    noise_std: float | None = None
    loss: str = "cross_entropy"
    momentum: float = 0.9
    smoothing: float = 0.99
    sent_share: float = 1.0
    secret_batches: bool = False
    schedule: tuple[RoundFactors, ...] = ()
    lr_by_step: tuple[float, ...] = ()
    gradient_scale: float | ScaleByRoot = 1.0
    penalties: tuple[Penalty, ...] = ()
    step_clip: StepClip | None = None
    record_clip: bool = False
    truncated: bool = False
    gaussian: bool = True

    @property
    def noise_is_known(self) -> bool:
        """Whether a message is its value and Gaussian noise of a public size, or no noise, and nothing else."""
        return self.noise_std is not None and not self.truncated and (self.gaussian or self.noise_std == 0)

    def of_round(self, round: int) -> PublicFacts:
        """The facts as they were in one round.

        >>> facts = PublicFacts("ldp", "update", "sgd", 0.1, 8, 1, None, schedule=(RoundFactors(), RoundFactors(0.5)))
        >>> facts.of_round(1).lr, facts.of_round(2).lr
        (0.05, 0.1)
        """
        own = self.schedule[round] if round < len(self.schedule) else RoundFactors()
        noise = None if self.noise_std is None else self.noise_std * own.noise
        return replace(self, lr=self.lr * own.lr, noise_std=noise, lr_by_step=own.lr_by_step, schedule=())


@dataclass(frozen=True)
class Sum:
    """How a server made the next model of a round's values, where that is public: it added `scale` times the mean of
    the clients' values and nothing else but noise (of gradients, what one step of SGD makes of their mean).

    clients: how many. records: of all their values together, each of which counts the same. everybody: no client was
    left out.
    noise_std: of the noise in each component of scale⁻¹ times the step, in parameter units; None where it depends on
    private data.
    """

    clients: int
    records: int
    everybody: bool
    scale: float
    noise_std: float | None


@dataclass(frozen=True, eq=False)
class View:
    """All messages one observer sees, in rounds' order but shuffled within a round, with the model's architecture.

    `module` is a fresh network of the right architecture; its frozen parameters are the base model's, and all other
    weights mean nothing. `layout` maps flat vectors to what is trained.
    input_shape: (c, h, w) for images with pixels in [0, 1], (features,) for tables; classes: number of labels (0:
    regression). target_shape: of a record's targets, () for one number or set of labels. columns: of a table, () for
    images. vocabulary: of text, whose records are (length,) words' numbers.
    records: how many a sender holds, by its address where that is public.
    sums: how the server merged the values of a round, by round, where that is public; why_no_sums: why it is of none.
    anonymous: every party has a fresh address in every round, and senders keep the number of their records to
      themselves.
    """

    observer: str
    messages: tuple[Seen, ...]
    module: nn.Module
    layout: Layout
    facts: PublicFacts
    input_shape: tuple[int, ...]
    classes: int
    columns: tuple[TableColumn, ...] = ()
    vocabulary: Vocabulary | None = None
    records: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[int, Sum] = field(default_factory=dict)
    why_no_sums: str = ""
    anonymous: bool = False
    target_shape: tuple[int, ...] = ()

    @property
    def several(self) -> bool:
        """Whether a record has a set of labels."""
        return loss_of(self.facts.loss).several

    @property
    def base_known(self) -> tuple[str, ...]:
        """What is assumed of parameters that nobody trains, in plain words; () where there are none."""
        numbers = sum(value.numel() for value in frozen_of(self.module).values())
        return (f"the frozen base model, {numbers:,} numbers",) if numbers else ()

    def global_model(self, round: int) -> Tensor:
        """The flat weights (d,) broadcast at the start of `round`.

        Raises:
            LookupError: this observer did not see them.
        """
        for message in self.messages:
            if message.broadcast and message.round == round:
                return message.load()
        raise LookupError(f"the observer {self.observer!r} saw no global model in round {round}")


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What the attacker is assumed to have beside the view, from SETUP/knowledge; every item used is in the report.

    labels: message id -> labels (n,) of its records, sorted, or {} where labels are unknown; an attack gets those of
      the messages in its view (`beside`).
    candidate_inputs (n, *input_shape), candidate_targets (n,), candidate_ids (n,): records whose membership is asked
      for, members and non-members mixed in an order that says nothing; may be empty.
    auxiliary_inputs (m, *input_shape), auxiliary_targets (m,): records of the same kind, disjoint from everybody's
      training data; may be empty.
    shadow_factory: how the target was trained, for attacks that train shadow models; None where the attacker does not
      know.
    """

    labels: Mapping[str, Tensor]
    auxiliary_inputs: Tensor
    auxiliary_targets: Tensor
    candidate_inputs: Tensor = field(default_factory=lambda: torch.zeros(0))
    candidate_targets: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    candidate_ids: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    shadow_factory: ShadowFactory | None = None

    def beside(self, view: View) -> Knowledge:
        """What somebody with this view knows: of other messages it is not told that there were any, as a client's
        upload would tell that a secret cohort had it.
        """
        known = _BESIDE.setdefault(view, WeakKeyDictionary())
        if self not in known:
            labels = {m.id: self.labels[m.id] for m in view.messages if m.id in self.labels}
            known[self] = replace(self, labels=labels)
        return known[self]


# What is read of a view is kept by what is known beside it, so that is the same one for all who ask.
_BESIDE: WeakKeyDictionary[View, WeakKeyDictionary[Knowledge, Knowledge]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Images that an inversion attack reconstructs from one message, or from several of one sender; of a table its
    rows, as images of a channel for each feature and one pixel (`UnitScale` of the view's columns).

    attack: the name of the attack in `ATTACKS`; what its settings add is beside it in the results.
    images, start: (n, c, h, w), in [0, 1]; start is the attack's own starting point, the "random" control.
    labels: (n,) the label each image was optimised for. loss: the attack's own objective at `images`, the only thing it
    may choose by.
    assumed: what the attacker was assumed to know, in plain words.
    methods: of inversion, in their order: its name, and why it did not run, in one clause, "" where it did.
    """

    attack: str
    observer: str
    manner: str  # one-round | all-rounds
    round: int  # of the (first) message
    sender: str
    message_ids: tuple[str, ...]
    images: Tensor
    start: Tensor
    labels: Tensor
    loss: float
    assumed: tuple[str, ...]
    methods: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """One score per candidate, higher = more likely a member. Membership itself is in truth/ and never seen here.

    attack: the name of the attack in `ATTACKS`. sender: the address of the client that the candidates are tested
    against, "" for the whole federation. ids: (n,) int64, the candidates' record ids, in the knowledge's order.
    scores: (n,) float64, finite; NaN of a candidate that is not judged. note: how the scores came about, in plain
      words. metric: the name of what a mean of scores is in itself, "" where it is nothing.
    """

    attack: str
    observer: str
    manner: str
    sender: str
    ids: Tensor
    scores: Tensor
    assumed: tuple[str, ...]
    note: str = ""
    metric: str = ""


@dataclass(frozen=True, eq=False)
class Links:
    """Which messages of anonymous senders an attack holds to be of one.

    attack: the name of the attack in `ATTACKS`. sender: "", as it is about all. message_ids: k messages; rounds: (k,)
    int64, theirs. links: (m, 2) int64, pairs of places of messages that are paired, whether or not a message has a
    partner at all. tracks: (k,) int64, one number for all messages that are alike enough to be taken for one sender's.
    assumed: what the attacker was assumed to know, in plain words.
    """

    attack: str
    observer: str
    manner: str
    sender: str
    message_ids: tuple[str, ...]
    rounds: Tensor
    links: Tensor
    tracks: Tensor
    assumed: tuple[str, ...]

    @property
    def joined(self) -> list[tuple[int, int]]:
        """All pairs of places of messages on one track."""
        of = self.tracks.tolist()
        return [(a, b) for a in range(len(of)) for b in range(a + 1, len(of)) if of[a] == of[b]]


@dataclass(frozen=True, eq=False)
class ReadTexts:
    """What an attack on text reads of one message.

    attack: the name of the attack in `ATTACKS`. words: (k,) int64, the numbers of words that the batch is said to have:
    by a test that no absent word passes, under noise at 95 % or of the likeliest texts that were tried. texts:
    (m, length) int64, at most as many as the message is of, padded. certain: (m,) bool, which of them the network
    confirms, or 95 % of that likelihood. assumed, methods: as of `Reconstruction`. noise_over_gradient: see `noise.py`.
    """

    attack: str
    observer: str
    manner: str
    round: int
    sender: str
    message_ids: tuple[str, ...]
    words: Tensor
    texts: Tensor
    certain: Tensor
    assumed: tuple[str, ...]
    methods: tuple[tuple[str, str], ...] = ()
    noise_over_gradient: float = 0.0


@dataclass(frozen=True, eq=False)
class GuessedValues:
    """The value that one column of a table's record is held to have, of every candidate. The true one is never seen.

    attack, observer, manner, sender, ids, assumed, note: as of `MembershipScores`. column: its name. values: (k,) names
    of those it may have. guesses: (n,) int64, places in `values`.
    """

    attack: str
    observer: str
    manner: str
    sender: str
    ids: Tensor
    guesses: Tensor
    column: str
    values: tuple[str, ...]
    assumed: tuple[str, ...]
    note: str = ""


Evidence = Reconstruction | MembershipScores | Links | ReadTexts | GuessedValues  # canary scores join them


@dataclass(frozen=True, eq=False)
class Part:
    """One piece of an attack's work, done whole or not at all.

    work: about how many floating-point operations it takes, by a rule on shapes (`cost`). content: what only the attack
      reads.
    shared: names work that is done once for all parts of that name, whatever their attack, as what it gives is kept
      (shadow models); "" for none.
    records: how many it gives back, which are scored afterwards.
    """

    key: str
    work: int
    content: Any = None
    shared: str = ""
    records: int = 0


class Attack(Protocol):
    """An attack's parameters are the fields of a frozen dataclass; all its randomness comes from `seed`.

    `parts` plans from the view alone, `run_part` gives the evidence of one part, whatever else is run beside it. An
    attack that is faster on several parts at once is also a `Together`.
    """

    @property
    def name(self) -> str:
        """The key in `ATTACKS`: what is typed after `--attack`, stands in the results and is printed on the page."""
        ...

    def parts(self, view: View, knowledge: Knowledge) -> list[Part]:
        """What there is to attack in this view.

        Raises:
            ValueError: the view or the knowledge does not allow the attack, in one sentence.
        """
        ...

    def run_part(
        self, part: Part, view: View, knowledge: Knowledge, seed: int, progress: Progress | None = None
    ) -> Evidence:
        """The evidence of one part.

        Args:
            part: of `parts`. view: what the observer saw. knowledge: what the attacker is assumed to have.
            seed: of all the attack's randomness. progress: called as `progress(done, total)` now and then.
        """
        ...


@runtime_checkable
class Together(Protocol):
    """An attack that solves several parts as one array.

    Rounding may depend on the company, so a group always runs whole. From each part alone its evidence differs by
    rounding only: tensors by less than 1e-3 on average, the attack's own loss by less than 1e-3 of itself; labels, ids
    and words not at all.
    """

    def groups(self, parts: Sequence[Part], view: View) -> list[list[Part]]:
        """Which parts to run together, by their shapes alone; of one view, or of several with the same network."""
        ...

    def run_group(
        self,
        parts: Sequence[Part],
        views: Sequence[View],
        knowledge: Sequence[Knowledge],
        seed: int,
        progress: Progress | None = None,
    ) -> Sequence[Evidence]:
        """The evidence of one group's parts, in order.

        Args:
            parts: one list of `groups`. views, knowledge: of each part; of one network (parts of several setups may go
                together). seed, progress: as for `Attack.run_part`.
        """
        ...
