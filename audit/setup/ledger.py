"""The ledger of a trained setup: which releases every message reveals, and what that means for an observer. The
auditor's key, never an attack's.

A message names the releases that are its own and the versions of models it inherits from; a version names what it adds
and the versions before it. What an observer sees is a walk over this graph from the messages it gets, each version
visited once: linear in rounds, where lists of all inherited releases would grow with their square.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ...defenses.terms import Observer
from ...defenses.wire import SERVER, Kind, Message, Release, Sampling


@dataclass(frozen=True)
class LedgerMessage:
    """A message as it really was.

    Args:
        id, round, kind: as in messages.jsonl.
        sender, receivers: the true parties (`SERVER` or a client's number), whatever addresses they had.
        captured: whether messages.jsonl and tensors/ have it.
        upload: it is a client's own value, and neither a model on its way down nor a party's note to itself.
        releases: ids of the releases that are its own.
        inherits: ids of the versions it was made from; it reveals theirs too. Always () in setups of format 1, whose
            `releases` list everything.
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
    """What a version of a model reveals (`Lineage`, by ids): its own releases, and those of all its parents."""

    releases: tuple[str, ...]
    parents: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Ledger:
    """All releases and versions by id, and every message sent, captured or not, by id.

    models: a version stands after its parents. observers: where there is no server, which party each kind of observer
    is.
    """

    releases: Mapping[str, Release]
    messages: Mapping[str, LedgerMessage]
    models: Mapping[str, ModelVersion] = field(default_factory=dict)
    observers: Mapping[str, int] = field(default_factory=dict)

    @property
    def default_observers(self) -> tuple[Observer, ...]:
        return tuple(Observer(name) for name in self.observers or ("server", "downlink", "model"))

    def revealed(self, messages: Iterable[LedgerMessage]) -> list[Release]:
        """All that whoever sees `messages` sees: their own releases and the inherited ones, by id."""
        ids: set[str] = set()
        todo: list[str] = []
        for message in messages:
            ids.update(message.releases)
            todo += message.inherits
        seen: set[str] = set()
        while todo:
            if (version := todo.pop()) not in seen:
                seen.add(version)
                ids.update(self.models[version].releases)
                todo += self.models[version].parents
        return [self.releases[i] for i in sorted(ids)]

    def seen_by(self, observer: Observer) -> list[Release]:
        """The releases an observer's messages reveal."""
        if (party := self.observers.get(observer.name)) is not None:
            return self.revealed(self._mail.get(party, ()))
        last = max((m.round for m in self.messages.values()), default=0)
        return self.revealed(m for m in self.messages.values() if party_sees(observer, m, last))

    @cached_property
    def everyone(self) -> frozenset[int]:
        """Whom some release is about."""
        return frozenset().union(*(r.subjects for r in self.releases.values()))

    def subjects(self, observer: Observer) -> list[int]:
        """Whom an observer may learn about: everybody but itself."""
        return sorted(self.everyone - {self.observers.get(observer.name, SERVER)})

    def cases(self, observer: Observer) -> list[tuple[list[Release], list[int]]]:
        """What is to be priced: releases seen, and whom they may tell about; the observer's ε is the worst of all.

        One case, but for uplink(L), one a client: any L of its uploads may be caught, so the L with the least noise
        count (all of them where only records are bounded: such an upload builds on the ones before); and for peer, one
        a party: any of them may be the curious one.
        """
        if (limit := observer.catches) is not None:
            return [(self._caught(uploads, limit), [client]) for client, uploads in self.uploads.items()]
        if observer.kind.anybody and observer.name in self.observers:
            return [
                (self.revealed(mail), others)
                for party, mail in sorted(self._mail.items())
                if (others := sorted(self.everyone - {party}))
            ]
        return [(self.seen_by(observer), self.subjects(observer))]

    @cached_property
    def uploads(self) -> dict[int, list[LedgerMessage]]:
        """A client's own values, by client."""
        by_party: dict[int, list[LedgerMessage]] = {}
        for message in self.messages.values():
            if message.upload:
                by_party.setdefault(message.sender, []).append(message)
        return by_party

    @cached_property
    def _mail(self) -> dict[int, list[LedgerMessage]]:
        """What each party received."""
        by_party: dict[int, list[LedgerMessage]] = {}
        for message in self.messages.values():
            for party in message.receivers:
                by_party.setdefault(party, []).append(message)
        return by_party

    def _caught(self, uploads: list[LedgerMessage], limit: int) -> list[Release]:
        """The releases of the worst `limit` uploads of one client."""
        worst = [self._worst(m.releases, m.inherits, self._worst_behind) for m in uploads]
        if all(whole for _, whole in worst):
            order = sorted(range(len(uploads)), key=lambda i: worst[i][0], reverse=True)
            uploads = [uploads[i] for i in order[:limit]]
        return self.revealed(uploads)

    def _worst(
        self, releases: Iterable[str], versions: Iterable[str], known: Mapping[str, tuple[float, bool]]
    ) -> tuple[float, bool]:
        """Of what these releases and versions reveal: the largest bound over noise (∞ where nothing is proven), and
        whether every bound is on a client's whole vector. known: the same of each version.
        """
        own = [self.releases[i] for i in releases]
        behind = [known[i] for i in versions]
        ratios = [math.inf if r.problem else r.ratio for r in own] + [ratio for ratio, _ in behind]
        whole = all(r.bound_of == "client" for r in own) and all(whole for _, whole in behind)
        return max(ratios, default=0.0), whole

    @cached_property
    def _worst_behind(self) -> dict[str, tuple[float, bool]]:
        worst: dict[str, tuple[float, bool]] = {}
        for i, version in self.models.items():  # its parents stand before it
            worst[i] = self._worst(version.releases, version.parents, worst)
        return worst

    @property
    def rounds(self) -> list[int]:
        """The rounds somebody uploaded in."""
        return sorted({m.round for uploads in self.uploads.values() for m in uploads})

    def participations(self) -> dict[int, int]:
        """Own uploads by client."""
        return {client: len(uploads) for client, uploads in self.uploads.items()}


def party_sees(observer: Observer, message: LedgerMessage, last_round: int) -> bool:
    """Whether an observer sees a message of the ledger (true parties, rounds and kinds)."""
    return observer.sees(
        from_server=message.sender == SERVER,
        to_server=SERVER in message.receivers,
        round=message.round,
        last_round=last_round,
    )


def release_row(release: Release) -> dict[str, Any]:
    """A release as a JSON line."""
    row = {k: v for k, v in asdict(release).items() if k != "sampling"}
    row["subjects"] = sorted(release.subjects)
    row["parents"] = sorted(release.parents)
    row["sampling"] = None if release.sampling is None else asdict(release.sampling)
    return row


def release_of(row: Mapping[str, Any]) -> Release:
    """The inverse of `release_row`."""
    sampling = None if row["sampling"] is None else Sampling(**row["sampling"])
    values = {
        **row,
        "subjects": frozenset(row["subjects"]),
        "parents": frozenset(row["parents"]),
        "ratio": float(row["ratio"]),
        "sampling": sampling,
    }
    return Release(**values)
