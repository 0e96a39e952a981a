"""Without these terms an ε says nothing: who looks (observer), whose data (unit), which two worlds (adjacency)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from .nearest import instead

Unit = Literal["record", "client"]
Adjacency = Literal["zero_out", "replace_one"]
Claimant = Literal["paper", "owner", "framework", "accountant"]  # whose ε is claimed; the last is what is proven here
UNITS: tuple[Unit, ...] = ("client", "record")
ADJACENCIES: tuple[Adjacency, ...] = ("zero_out", "replace_one")


@dataclass(frozen=True)
class ObserverKind:
    """What one kind of observer sees.

    Args:
        words: who that is, as a sentence calls it.
        about: what it sees, for a list to choose from.
        uploads: which messages of clients: those the server receives, any on the way, or none.
        broadcasts: which messages of the server: all, the final model's, or none.
        sums: it sees what the server merged before the server's own steps, and no single value.
        party: it is itself a client, and sees only the mail of its own address.
        anybody: every client may be this one, so its ε is that of the worst.
    """

    words: str
    about: str
    uploads: Literal["received", "any", "none"] = "none"
    broadcasts: Literal["all", "last", "none"] = "none"
    sums: bool = False
    party: bool = False
    anybody: bool = False


KINDS: dict[str, ObserverKind] = {
    "server": ObserverKind(
        "the server", "honest but curious: all uploads and broadcasts", uploads="received", broadcasts="all"
    ),
    "aggregate": ObserverKind(
        "a server that sees sums alone",
        "the server under secure aggregation: each round's sum, and the broadcasts",
        broadcasts="all",
        sums=True,
    ),
    "downlink": ObserverKind(
        "an eavesdropper on the server's broadcasts", "an eavesdropper of the broadcasts", broadcasts="all"
    ),
    "uplink": ObserverKind(
        "an eavesdropper on all uploads",
        "an eavesdropper who catches every upload; uplink(L): any L of one client's (an attack sees those of the first"
        " L rounds)",
        uploads="any",
    ),
    "model": ObserverKind("whoever gets the final model", "whoever gets the final model only", broadcasts="last"),
    "peer": ObserverKind(
        "another participant",
        "any client of a federation without a server: what it receives itself",
        party=True,
        anybody=True,
    ),
    "leader": ObserverKind(
        "an elected leader", "the client elected in the first round: what it receives itself, in all rounds", party=True
    ),
}


@dataclass(frozen=True, order=True)
class Observer:
    """Who looks at the messages of a federation, and who tells it what they know.

    Args:
        name: a key of `KINDS`.
        catches: how many of one client's uploads it catches, for `uplink(L)`; None for all.
        colluding: how many clients tell it all they know: their values, noise and coins, what they are sent, and in
          which rounds they are. Whom the ε is about is none of them.

    >>> str(Observer.parse("uplink(3)")), Observer("server").sees_merged_only, Observer("model").sees_merged_only
    ('uplink(3)', False, True)
    >>> Observer.parse("server+2")
    Observer(name='server', catches=None, colluding=2)
    """

    name: str
    catches: int | None = None
    colluding: int = 0

    def __post_init__(self) -> None:
        if self.name not in KINDS or (self.catches is not None and (self.name != "uplink" or self.catches < 1)):
            raise ValueError(f"observer {str(self)!r} is unknown{instead(str(self), (*KINDS, 'uplink(L)'))}")
        if self.colluding < 0:
            raise ValueError(f"{self.colluding} clients collude with the observer; it must be at least 0")

    @classmethod
    def parse(cls, text: str) -> Observer:
        """The observer of a name such as "server", "uplink(5)" or "server+2". Raises ValueError for any other text."""
        match = re.fullmatch(r"([^+(]*)(?:\(([1-9][0-9]{0,8})\))?(?:\+([1-9][0-9]{0,8}))?", text)
        if match is None:
            return cls(text)
        name, catches, colluding = match.groups()
        return cls(name, int(catches) if catches else None, int(colluding or 0))

    def __str__(self) -> str:
        caught = "" if self.catches is None else f"({self.catches})"
        return f"{self.name}{caught}{f'+{self.colluding}' if self.colluding else ''}"

    @property
    def alone(self) -> Observer:
        """The same without those who collude with it."""
        return Observer(self.name, self.catches)

    @property
    def kind(self) -> ObserverKind:
        return KINDS[self.name]

    @property
    def words(self) -> str:
        """As a sentence calls it: "the server"."""
        words = self.kind.words if self.catches is None else f"an eavesdropper on {self.catches} of a client's uploads"
        if not self.colluding:
            return words
        return f"{words} together with {self.colluding} client{'s' if self.colluding > 1 else ''}"

    @property
    def needs_server(self) -> bool:
        return self.kind.broadcasts != "none"

    @property
    def sees_merged_only(self) -> bool:
        """It sees what a server made of many uploads, and none of the uploads."""
        return self.needs_server and self.kind.uploads == "none"

    def sees_at_most(self, other: Observer) -> bool:
        """Whether whatever it sees can be computed from what `other` sees, in a federation with a server.

        >>> Observer("model").sees_at_most(Observer("aggregate")), Observer("downlink").sees_at_most(Observer("uplink"))
        (True, False)
        """
        if self.colluding > other.colluding:
            return False
        other = replace(other, colluding=self.colluding)
        if self.kind.party or other.kind.party:
            return self == other
        if self.name == other.name == "uplink":
            return other.catches is None or (self.catches or inf) <= other.catches
        return self == other or other.alone in _SEE_MORE.get(self.name, ())

    @property
    def sees_every_round(self) -> bool:
        """Whether it sees what each single round did: the uploads, every broadcast, or the mail of a party."""
        return self.kind.party or self.kind.uploads != "none" or self.kind.broadcasts == "all"

    @property
    def with_models(self) -> Observer:
        """The least of `KINDS`, alone, that sees what it does and what clients are sent, as they tell who collude."""
        if self.sees_merged_only and not self.kind.sums:
            return Observer("downlink")
        return Observer(self.name)

    def sees(self, *, from_server: bool, to_server: bool, round: int, last_round: int) -> bool:
        """Whether it sees a message of `round` in a federation with a server; the final model's round is `last_round`.

        A party sees what is addressed to it, which is not asked here.
        """
        if from_server:
            return self.kind.broadcasts == "all" or (self.kind.broadcasts == "last" and round == last_round)
        if self.catches is not None and round >= self.catches:
            return False
        return self.kind.uploads == "any" or (self.kind.uploads == "received" and to_server)


_SEE_MORE = {  # who sees all that the first sees, or can compute it
    "model": (Observer("downlink"), Observer("aggregate"), Observer("server")),
    "downlink": (Observer("aggregate"), Observer("server")),
    "aggregate": (Observer("server"),),
    "uplink": (Observer("server"),),
}
