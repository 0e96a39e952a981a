"""The ledger of a trained setup: which releases every message reveals, and what that means for an observer. The
auditor's key, never an attack's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...defenses.terms import Observer
from ...defenses.wire import SERVER, Release, Sampling


@dataclass(frozen=True, eq=False)
class Ledger:
    """All releases by id, and for every message sent, captured or not: true sender, receivers, round, kind, release
    ids.

    observers: where there is no server, which party each kind of observer is.
    """

    releases: Mapping[str, Release]
    messages: Mapping[str, Mapping[str, Any]]
    observers: Mapping[str, int] = field(default_factory=dict)

    @property
    def default_observers(self) -> tuple[Observer, ...]:
        return tuple(Observer(name) for name in self.observers or ("server", "downlink", "model"))

    def seen_by(self, observer: Observer) -> list[Release]:
        """The releases an observer's messages reveal."""
        if (party := self.observers.get(observer.name)) is not None:
            return self._received(party)
        last = max((m["round"] for m in self.messages.values()), default=0)
        return self._revealed(m for m in self.messages.values() if party_sees(observer, m, last))

    def subjects(self, observer: Observer) -> list[int]:
        """Whom an observer may learn about: everybody but itself."""
        return sorted(
            {s for r in self.releases.values() for s in r.subjects} - {self.observers.get(observer.name, SERVER)}
        )

    def cases(self, observer: Observer) -> list[tuple[list[Release], list[int]]]:
        """What is to be priced: releases seen, and whom they may tell about; the observer's ε is the worst of all.

        One case, but for uplink(L), one a client: any L of its uploads may be caught, so the L with the least noise
        count (all of them where
        only records are bounded: such an upload builds on the ones before); and for peer, one a party: any of them may
            be the curious one.
        """
        if (limit := observer.catches) is not None:
            return [(self._caught(client, limit), [client]) for client in self.participations()]
        everyone = {s for r in self.releases.values() for s in r.subjects}
        if observer.kind.anybody and observer.name in self.observers:
            receivers = sorted({p for m in self.messages.values() for p in m["receivers"]})
            return [(self._received(party), sorted(everyone - {party})) for party in receivers if everyone - {party}]
        return [(self.seen_by(observer), self.subjects(observer))]

    def _received(self, party: int) -> list[Release]:
        return self._revealed(m for m in self.messages.values() if party in m["receivers"])

    def _revealed(self, messages: Iterable[Mapping[str, Any]]) -> list[Release]:
        return [self.releases[i] for i in sorted({i for m in messages for i in m["releases"]})]

    def _caught(self, client: int, limit: int) -> list[Release]:
        uploads = [
            [self.releases[i] for i in m["releases"]]
            for m in self.messages.values()
            if m["upload"] and m["sender"] == client
        ]
        if all(r.bound_of == "client" for releases in uploads for r in releases):
            uploads.sort(
                key=lambda releases: max((math.inf if r.problem else r.ratio for r in releases), default=0.0),
                reverse=True,
            )
            uploads = uploads[:limit]
        found = {r.id: r for releases in uploads for r in releases}
        return [found[i] for i in sorted(found)]

    @property
    def rounds(self) -> list[int]:
        """The rounds somebody uploaded in."""
        return sorted({m["round"] for m in self.messages.values() if m["upload"]})

    def participations(self) -> dict[int, int]:
        """Own uploads by client."""
        counts: dict[int, int] = {}
        for message in self.messages.values():
            if message["upload"]:
                counts[message["sender"]] = counts.get(message["sender"], 0) + 1
        return counts


def party_sees(observer: Observer, message: Mapping[str, Any], last_round: int) -> bool:
    """Whether an observer sees a message of the ledger (true parties, rounds and kinds)."""
    return observer.sees(
        from_server=message["sender"] == SERVER,
        to_server=SERVER in message["receivers"],
        round=message["round"],
        last_round=last_round,
    )


def release_row(made: Release) -> dict[str, Any]:
    """A release as a JSON line."""
    row = {k: v for k, v in asdict(made).items() if k != "sampling"}
    row["subjects"] = sorted(made.subjects)
    row["parents"] = sorted(made.parents)
    row["ratio"] = "inf" if made.ratio == float("inf") else made.ratio
    row["sampling"] = None if made.sampling is None else asdict(made.sampling)
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
