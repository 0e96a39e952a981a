"""Who attacks: the kinds of observers, by name."""

from __future__ import annotations

import re

from ..errors import BadInput

OBSERVERS = {
    "server": "honest but curious: all uploads and broadcasts",
    "downlink": "an eavesdropper of the broadcasts",
    "uplink": (
        "an eavesdropper who catches every upload; uplink(L): any L of one client's (an attack sees those of the first"
        " L rounds)"
    ),
    "model": "whoever gets the final model only",
    "peer": "any client of a federation without a server: what it receives itself",
    "leader": "the client elected in the first round: what it receives itself, in all rounds",
}
OWN_PARTIES = ("peer", "leader")  # observers who are themselves clients, and see only their own mail
NEED_SERVER = ("server", "downlink", "model")


def uplink_count(observer: str) -> int | None:
    """L of "uplink(L)"; None for plain "uplink" (all). Raises BadInput for anything that is not an observer."""
    if observer in OBSERVERS:
        return None
    if match := re.fullmatch(r"uplink\(([1-9][0-9]{0,8})\)", observer):
        return int(match[1])
    raise BadInput(f"observer {observer!r} is unknown; known are {', '.join(OBSERVERS)} and uplink(L)")


def sees(observer: str, from_server: bool, to_server: bool, round: int, last_round: int) -> bool:
    """Whether an observer of a federation with a server sees a message of this round, `last_round` being that of the
    final model.
    """
    limit = uplink_count(observer)
    match observer.split("(")[0]:
        case "server":
            return from_server or to_server
        case "downlink":
            return from_server
        case "uplink":
            return not from_server and (limit is None or round < limit)
        case _:
            return from_server and round == last_round
