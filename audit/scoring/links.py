"""Links between messages beside the truth, which is in auditor/ alone: who was behind an address."""

from __future__ import annotations

from ...attacks.base import Links
from ...attacks.cells import Cell
from ...metrics.linking import linked
from ..results.format import AttackResult, Metrics
from ..setup.auditor import Auditor

NO_ADDRESSES = "auditor/ is absent, and without it nobody knows who is behind an anonymous address"
NOBODY_TWICE = "no client is behind messages of two rounds that were compared"


def link_entry(auditor: Auditor, cell: Cell, links: Links, seed: int) -> AttackResult:
    """What was linked, beside links by lot.

    Args:
        auditor: with the ledger, or without. cell: of the evidence. links: the attack's. seed: of the permutations.
    """
    entry = AttackResult(
        attack=links.attack,
        observer=links.observer,
        manner=links.manner,
        n=len(links.message_ids),
        key=cell.key,
        assumed=links.assumed,
        settings=dict(cell.settings),
    )
    if auditor.ledger is None:
        return entry.having(not_measured={"linked": NO_ADDRESSES})
    senders = [auditor.ledger.messages[i].sender for i in links.message_ids]
    rounds = links.rounds.tolist()
    scored = linked([(a, b) for a, b in links.links.tolist()], rounds, senders, seed)
    if scored is None:
        return entry.having(not_measured={"linked": NOBODY_TWICE})
    joined = links.joined
    numbers = {
        "linked": scored.share,
        "linked_chance": scored.chance,
        "tracked": sum(senders[a] == senders[b] for a, b in joined) / len(joined) if joined else None,
    }
    return entry.having(
        metrics=Metrics.of(numbers),
        intervals={"linked": scored.interval},
        p_values={"linked": scored.p_value},
        least_p_values={"linked": scored.least},
        not_measured={} if joined else {"tracked": "no two messages were alike enough to be joined"},
    )
