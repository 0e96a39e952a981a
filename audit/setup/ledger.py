"""The ledger of a trained setup: which releases every message reveals, and what that means for an observer. The
auditor's key, never an attack's.

A message names the releases that are its own and the versions of models it inherits from; a version names what it adds
and the versions before it. What an observer sees is a walk over this graph from the messages it gets, each version
visited once: linear in rounds, where lists of all inherited releases would grow with their square.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ...defenses.releases import (
    CorrelatedLaw,
    DiscreteLaw,
    GaussianLaw,
    LaplaceLaw,
    NoiseFact,
    Release,
    ResponseLaw,
    Sampling,
    Silent,
    declare,
)
from ...defenses.terms import Observer
from ...defenses.wire import SERVER, Kind, Lineage, Message
from .counted import Counted, Counting


@dataclass(frozen=True)
class LedgerMessage:
    """A message as it really was.

    Args:
        id, round, kind: as in messages.jsonl.
        sender, receivers: the true parties (`SERVER` or a client's number), whatever addresses they had.
        captured: whether messages.jsonl and tensors/ have it.
        upload: it is a client's own value, and neither a model on its way down nor a party's note to itself.
        releases: ids of the releases that are its own.
        inherits: ids of the versions it was made from; it reveals theirs too.
    """

    id: str
    round: int
    kind: Kind
    sender: int
    receivers: tuple[int, ...]
    captured: bool
    upload: bool
    releases: tuple[str, ...]
    inherits: tuple[str, ...] = ()

    @classmethod
    def of(cls, message: Message, share: Kind, captured: bool = False) -> LedgerMessage:
        """A message on the wire of a scheme in which clients send their `share`."""
        to_itself = message.receiver_parties == (message.sender_party,)
        return cls(
            id=message.id,
            round=message.round,
            kind=message.kind,
            sender=message.sender_party,
            receivers=message.receiver_parties,
            captured=captured,
            upload=message.sender_party != SERVER and message.kind == share and not to_itself,
            releases=tuple(sorted(r.id for r in message.releases)),
            inherits=tuple(version.id for version in message.inherits),
        )


@dataclass(frozen=True)
class ModelVersion:
    """What a version of a model reveals (`Lineage`, by ids): its own releases, and those of all its parents; to whoever
    sees sums alone `summed`, to whoever sees models alone `merged` (None: no less).
    """

    releases: tuple[str, ...]
    parents: tuple[str, ...]
    summed: tuple[str, ...] | None = None
    merged: tuple[str, ...] | None = None

    @classmethod
    def of(cls, version: Lineage) -> ModelVersion:
        def ids(releases: Iterable[Release] | None) -> tuple[str, ...] | None:
            if releases is None:
                return None
            return tuple(sorted(r.id for r in releases))

        parents = tuple(parent.id for parent in version.parents)
        return cls(ids(version.releases) or (), parents, ids(version.summed), ids(version.merged))

    def seen_by(self, observer: Observer | None) -> tuple[str, ...]:
        """The releases that the version adds for an observer; None is one who may see single values too."""
        if observer is None or not observer.sees_merged_only:
            return self.releases
        own = self.summed if observer.kind.sums else self.merged
        if own is None:
            return self.releases
        return own


@dataclass(frozen=True, eq=False)
class Ledger:
    """All releases and versions by id, and every message sent, captured or not, by id.

    models: a version stands after its parents. observers: where there is no server, which party each kind of observer
    is. clients: how many there are; 0 for those that a release is about. plan: how its facts count. declared: by its
    owner, of a recording. published_key: whether whoever has the config can draw its noise again.
    columns_known: whether what all rows of a table decided is published, and taken as known.
    """

    releases: Mapping[str, Release]
    messages: Mapping[str, LedgerMessage]
    models: Mapping[str, ModelVersion] = field(default_factory=dict)
    observers: Mapping[str, int] = field(default_factory=dict)
    clients: int = 0
    plan: Counting = Counting()
    declared: bool = field(default=False, kw_only=True)
    published_key: bool = field(default=False, kw_only=True)
    columns_known: bool = field(default=False, kw_only=True)

    @cached_property
    def digest(self) -> str:
        """Of all that is priced of it: facts, who gets what, and how they count."""
        parts = [
            [release_row(self.releases[i]) for i in sorted(self.releases)],
            [asdict(self.messages[i]) for i in sorted(self.messages)],
            {i: asdict(version) for i, version in sorted(self.models.items())},
            [dict(self.observers), self.clients, self.declared, self.published_key],
            [type(self).__name__, asdict(self.plan)],
            *(["columns known"] if self.columns_known else []),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def count(self, releases: Iterable[Release], alone: bool = False) -> list[Counted]:
        """As the plan has them (`Counting.count`)."""
        return [self.plan.count(release, alone) for release in releases]

    @property
    def default_observers(self) -> tuple[Observer, ...]:
        return tuple(Observer(name) for name in self.observers or ("server", "downlink", "model"))

    def revealed(self, messages: Iterable[LedgerMessage], observer: Observer | None = None) -> list[Release]:
        """All that whoever sees `messages` sees: their own releases and the inherited ones, by id.

        observer: somebody who sees none of the values that a model was made of; None for whoever may.
        """
        ids: set[str] = set()
        todo: list[str] = []
        for message in messages:
            ids.update(message.releases)
            todo += message.inherits
        seen: set[str] = set()
        while todo:
            if (version := todo.pop()) not in seen:
                seen.add(version)
                ids.update(self.models[version].seen_by(observer))
                todo += self.models[version].parents
        return [self.releases[i] for i in sorted(ids)]

    def seen_by(self, observer: Observer) -> list[Release]:
        """The releases an observer's messages reveal."""
        if (party := self.observers.get(observer.name)) is not None:
            return self.revealed(self.mail.get(party, ()))
        seen = (m for m in self.messages.values() if party_sees(observer, m, self.last_round))
        return self.revealed(seen, observer)

    def instead_of(self, observer: Observer) -> list[list[Counted]] | None:
        """The releases to price in the place of what an observer sees, where less than everything tells of more: each
        of these lists bounds it by itself. None where what it sees is enough.
        """
        del observer
        return None

    @property
    def caught(self) -> Ledger:
        """The ledger by which whoever catches some uploads is priced."""
        return self

    @cached_property
    def everyone(self) -> frozenset[int]:
        """Whom some release is about."""
        return frozenset().union(*(r.subjects for r in self.releases.values()))

    @cached_property
    def count_of_clients(self) -> int:
        """At least; that cohorts are drawn from more says so, though only these were seen."""
        drawn_from = (r.sampling for r in self.releases.values() if r.sampling is not None)
        populations = [lot.population for lot in drawn_from if lot.unit == "client"]
        return max([self.clients or len(self.everyone), *populations])

    def subjects(self, observer: Observer) -> list[int]:
        """Whom an observer may learn about: everybody but itself."""
        return sorted(self.everyone - {self.observers.get(observer.name, SERVER)})

    @cached_property
    def last_round(self) -> int:
        """The round of the last message."""
        return max((m.round for m in self.messages.values()), default=0)

    @cached_property
    def uploads(self) -> dict[int, list[LedgerMessage]]:
        """A client's own values, by client."""
        by_party: dict[int, list[LedgerMessage]] = {}
        for message in self.messages.values():
            if message.upload:
                by_party.setdefault(message.sender, []).append(message)
        return by_party

    @cached_property
    def mail(self) -> dict[int, list[LedgerMessage]]:
        """What each party received."""
        by_party: dict[int, list[LedgerMessage]] = {}
        for message in self.messages.values():
            for party in message.receivers:
                by_party.setdefault(party, []).append(message)
        return by_party

    @property
    def rounds(self) -> list[int]:
        """The rounds somebody uploaded in."""
        return sorted({m.round for uploads in self.uploads.values() for m in uploads})

    def participations(self) -> dict[int, int]:
        """Own uploads by client."""
        return {client: len(uploads) for client, uploads in self.uploads.items()}


def is_sum(release: Release) -> bool:
    """Whether it stands for a sum of others' releases, towards whoever sees none of these."""
    return bool(release.terms) and not release.parents


def party_sees(observer: Observer, message: LedgerMessage, last_round: int) -> bool:
    """Whether an observer sees a message of the ledger (true parties, rounds and kinds). What a server sends to nobody
    but itself is a sum that it holds.
    """
    if message.sender == SERVER and message.receivers == (SERVER,):
        return observer.kind.sums
    return observer.sees(
        from_server=message.sender == SERVER,
        to_server=SERVER in message.receivers,
        round=message.round,
        last_round=last_round,
    )


def release_row(release: Release) -> dict[str, Any]:
    """A release as a JSON line: its law's parts stand among its own, but for what two laws alone have."""
    law = asdict(release.law)
    row = {k: v for k, v in asdict(release).items() if k not in ("law", "sampling")}
    row |= {"mechanism": release.mechanism, "noise_std": release.noise_std}
    if math.isnan(release.noise_std):  # of a round that diverged, in which a median of norms is no number
        row |= {"noise_std": 0.0, "bound_norm": None, "rounding": 0.0}
    row["subjects"] = sorted(release.subjects)
    row["parents"] = sorted(release.parents)
    row["terms"] = [{"noise_std": std, "count": count} for std, count in release.terms]
    row["sampling"] = None if release.sampling is None else asdict(release.sampling)
    if not release.lot:
        del row["lot"]
    if isinstance(release.law, CorrelatedLaw):
        column = [{"row": i, "value": value} for i, value in release.law.column]
        row["correlation"] = {**{k: law[k] for k in ("chain", "separation", "most")}, "column": column}
    elif isinstance(release.law, DiscreteLaw):
        row["lattice"] = {k: law[k] for k in ("step", "numbers")}
    elif isinstance(release.law, ResponseLaw):
        row |= {k: law[k] for k in ("epsilon", "about_zero")}
    elif isinstance(release.law, GaussianLaw):
        row["earlier"] = 0.0 if math.isnan(law["earlier"]) else law["earlier"]
        if release.law.also[0]:
            row["also"] = {"moved": release.law.also[0], "noise_std": release.law.also[1]}
    return row


def release_of(row: Mapping[str, Any]) -> Release:
    """The inverse of `release_row`: what the release costs is computed anew, and no number of a file.

    Raises:
        ValueError: the line lacks a part of its law.
    """
    known = dict(row)
    law = _law_of(known)
    parts = ("mechanism", "noise_std", "terms", "correlation", "lattice", "epsilon", "about_zero", "earlier", "also")
    known = {k: v for k, v in known.items() if k not in parts}
    if row["sampling"] is None:
        known["sampling"] = None
    else:
        known["sampling"] = Sampling(**row["sampling"])
    for name in ("subjects", "parents"):
        known[name] = frozenset(row[name])
    return declare(law=law, **known)


def _law_of(row: Mapping[str, Any]) -> NoiseFact:
    std, mechanism = row["noise_std"], row["mechanism"]
    terms = tuple((term["noise_std"], term["count"]) for term in row["terms"])
    part = {"correlated": "correlation", "discrete": "lattice", "response": "epsilon"}.get(mechanism, "mechanism")
    if row.get(part) is None:
        raise ValueError(f"release {row['id']} is {mechanism}, and has no {part!r}")
    if mechanism == "correlated":
        column = tuple((entry["row"], float(entry["value"])) for entry in row["correlation"]["column"])
        return CorrelatedLaw(std, **{**row["correlation"], "column": column})
    if mechanism == "discrete":
        return DiscreteLaw(std, **row["lattice"], terms=terms)
    if mechanism == "response":
        return ResponseLaw(std, row["epsilon"], terms, row.get("about_zero") or False)
    if mechanism == "gaussian":
        also = row.get("also") or {"moved": 0.0, "noise_std": 1.0}
        return GaussianLaw(std, row.get("earlier") or 0.0, terms, (also["moved"], also["noise_std"]))
    if mechanism == "laplace":
        return LaplaceLaw(std, terms)
    return Silent()
