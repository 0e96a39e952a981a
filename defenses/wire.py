"""What leaves a party: parcels, messages and the releases of noise they reveal.

There is one ledger. `Wire.send` is the only way out of a party, and it writes the message that attacks see together
with the releases (`releases`) that the accountant prices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from .releases import Release, Terms
from .terms import Unit

if TYPE_CHECKING:  # a ledger of bare numbers is priced without torch, which takes seconds to import
    from torch import Tensor

SERVER = -1  # the party number of the server; clients are 0, 1, 2 …

Kind = Literal["gradient", "update", "weights"]


@dataclass(frozen=True, eq=False)
class Bound:
    """What is guaranteed of a vector, whatever the data.

    of = "client": the whole vector has norm ≤ `norm` (a clip of the whole vector). One record can turn such a vector
      around, so the record-unit sensitivity is 2·norm under either adjacency.
    of = "record": one record's contribution to the vector has norm ≤ `norm`, and the vector is a sum of `records` such
      contributions (one step of per-example-clipped gradients).

    norm: in parameter units; a number, or one per component (d,). order: 1 or 2.
    private: why the bound gives no guarantee although it holds (it was itself computed from private data); "" if it was
      not.
    centred: the vector is that close to the model the round began with, not to 0. Whoever does not see that model,
      which carries the party's earlier values, cannot use the bound.
    anywhere: without the subject the vector is not 0 but anything within the bound, as what was clipped held noise or
      others' values: one subject can turn it around, so zero_out costs 2·norm too.
    """

    norm: float | Tensor
    order: int = 2
    of: Unit = "client"
    records: int = 1
    private: str = ""
    centred: bool = False
    anywhere: bool = False

    def scaled(self, factor: float) -> Bound:
        return replace(self, norm=self.norm * factor)


@dataclass(frozen=True, eq=False)
class Lineage:
    """One version of a model, as accounting knows it: the releases that went into it, and the versions it was made of.

    Whoever sees the version sees its own releases and those of every version behind it. A version is one node, shared
    by all that is made of it, so that R rounds leave R nodes and not R sets of up to R rounds' releases.

    Args:
        id: opaque, for the auditor's files alone: an attacker who saw it could follow a model from address to address.
        releases: what this version adds to its parents, for whoever may see single values too.
        summed: the same for whoever sees sums alone, before the hub's own noise; None where it is no less.
        merged: the same for whoever sees the model alone; None where it is no less.
        parents: the hub's version before, and those that the values it merged were trained from.
    """

    id: str
    releases: frozenset[Release]
    parents: tuple[Lineage, ...] = field(default=(), repr=False)
    summed: frozenset[Release] | None = None
    merged: frozenset[Release] | None = None

    @property
    def mentioned(self) -> frozenset[Release]:
        """All releases that it names, whoever they are for."""
        return self.releases | (self.summed or frozenset()) | (self.merged or frozenset())


def ancestry(tips: Iterable[Lineage], known: Container[str] = ()) -> list[Lineage]:
    """The versions `tips` and all behind them, each once, parents first.

    Those whose id is `known`, and what is only behind these, are left out. Takes time linear in what it returns; no
    recursion, as a chain is as long as a training.

    >>> first = Lineage("a", frozenset())
    >>> second = Lineage("b", frozenset(), (first,))
    >>> [version.id for version in ancestry([second, Lineage("c", frozenset(), (first, second))])]
    ['a', 'b', 'c']
    """
    order: list[Lineage] = []
    seen: set[str] = set()
    for tip in tips:
        todo = [(tip, False)]
        while todo:
            version, parents_done = todo.pop()
            if parents_done:
                order.append(version)
            elif version.id not in seen and version.id not in known:
                seen.add(version.id)
                todo.append((version, True))
                todo += [(parent, False) for parent in reversed(version.parents)]
    return order


@dataclass(frozen=True, eq=False)
class Parcel:
    """A value on its way out of a party: a flat vector (d,), the bound on it, and the releases it reveals.

    releases: fresh ones, of noise drawn for this value.
    inherits: the versions of models it was made from; it reveals their releases too.
    noise_std: the Gaussian noise already in the vector that protects every subject (0: none), in parameter units,
      number or (d,). Only linear steps keep it: a clip shrinks noise together with the value, by a factor that depends
      on both.
    terms: of a sum, the senders' noises, of which `noise_std` is the least (see `Release`); worth nothing where
      `noise_std` is 0. counts, scale: it is scale · Σ counts_i · value_i. summed: see `Lineage`.
    step: of the grid that the last noise was added on (`grid`): the vector is a whole number of steps as long as that
      noise is in it unbent; 0 without noise. modulus: its whole numbers of steps count modulo so many, and so does
      their sum; 0 for no such thing.
    side: numbers sent along by name (e.g. the value's norm). told: the releases of these, which stay among `releases`
      whatever noise the value gets afterwards.
    clip_norm: what each component's tensor was clipped to (a number, or (d,) where tensors are clipped apart); noise is
      scaled by it.
    carries: why a bound on the value is none on what it tells of somebody, "" where it is one.
    """

    vector: Tensor
    bound: Bound | None = None
    releases: frozenset[Release] = frozenset()
    inherits: tuple[Lineage, ...] = ()
    noise_std: float | Tensor = 0.0
    clip_norm: float | Tensor | None = None
    side: Mapping[str, float] = field(default_factory=dict)
    told: frozenset[Release] = frozenset()
    terms: Terms = ()
    counts: tuple[int, ...] = ()
    scale: float = 1.0
    step: float = 0.0
    modulus: int = 0
    summed: frozenset[Release] | None = None
    carries: str = ""

    @property
    def noisy(self) -> bool:
        """Whether noise was drawn on the way to it."""
        return any(release.mechanism != "none" for release in self.releases)

    @property
    def revealed(self) -> frozenset[Release]:
        """All that whoever sees the value sees: its own releases and the inherited ones."""
        return self.releases.union(*(version.releases for version in ancestry(self.inherits)))


@dataclass(frozen=True, eq=False)
class Message:
    """What went over the wire, with the releases it reveals as its `Parcel` has them.

    num_examples: 0 where it is not told (models on their way down; anonymous senders). `sender` and `receivers` are
    addresses, which anonymous schemes change every round; `sender_party` and `receiver_parties` are the truth, kept in
    the auditor's key and never shown to an attack.
    """

    id: str
    round: int
    sender: str
    receivers: tuple[str, ...]
    kind: Kind
    num_examples: int
    vector: Tensor
    releases: frozenset[Release]
    inherits: tuple[Lineage, ...]
    sender_party: int
    receiver_parties: tuple[int, ...]
    side: Mapping[str, float] = field(default_factory=dict)


def opaque_id(seed: int, *what: object) -> str:
    """A 16-digit id that tells nothing about what it names to anybody without the seed.

    Addresses, message ids and release ids are made by it, so no order, sender or round can be read off them.
    """
    return hashlib.sha256(repr(("dpfl-audit id", seed, *what)).encode()).hexdigest()[:16]


def client_address(client: int) -> str:
    """Where everybody can reach a client whose address is no secret.

    >>> client_address(3)
    'client-3'
    """
    return f"client-{client}"


def client_of(address: str) -> int | None:
    """The client behind a public address; None for every other address: the server's, or an anonymous one.

    >>> client_of("client-3"), client_of("server"), client_of("1f0c66a4b2d93e58")
    (3, None, None)
    """
    head, _, number = address.partition("client-")
    return int(number) if not head and number.isdecimal() else None


@dataclass(frozen=True, eq=False)
class Wire:
    """The only way out of a party. `sink` receives every message; None is the null wire, of shadow federations."""

    sink: Callable[[Message], None] | None = None

    def send(self, message: Message) -> None:
        if self.sink is not None:
            self.sink(message)


def as_scalar(value: float | Tensor) -> float:
    """The root mean square of a per-component quantity, or the number itself."""
    return value.double().square().mean().sqrt().item() if hasattr(value, "double") else float(value)
