"""From membership evidence to one entry an attack: whose message judges which record, and the scores on disk.

An attack on uploads gives scores for every sender. Judged one sender at a time it would be as many attacks with a few
members each, some of which always look lucky; here it is one: a member is judged by what its own client sent, an
outsider by a sender drawn as often as the members have it, so that the sender says nothing of membership; where classes
were dealt on purpose, as often as the members of its class have it (`setup.lot`). Every record counts once, as
intervals and false positive rates require.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy
import pandas
import torch
from torch import Tensor

from ...attacks.base import Knowledge, MembershipScores
from ...defenses.data.dataset import DEALT_BY_LOT
from ...defenses.randomness import generator
from ...defenses.wire import client_of
from ...metrics.membership import auc
from ..errors import BadInput
from ..files import write_bytes
from ..results.format import AttackResult, ClientRow, Metrics, Roc
from ..results.membership import score_membership
from ..setup.auditor import Auditor
from ..setup.lot import Lot, allowed, lot_of, proportional, strata

NOBODY = -1  # the client of a record that nobody trained on


@dataclass(frozen=True, eq=False)
class Scored:
    """One part's evidence: the key of its file, the attack's settings, the scores."""

    key: str
    settings: Mapping[str, Any]
    scores: MembershipScores


def check_membership(auditor: Auditor, knowledge: Knowledge) -> None:
    """Refuses, before any attack runs, candidates on which no attack can be scored. Only the groups' sizes are read.

    Raises:
        BadInput: all candidates are members, or none is.
    """
    clients = _owners(auditor)
    if clients is None or not len(knowledge.candidate_ids):
        return
    path, n = auditor.setup.folder / "truth" / "membership.json", len(knowledge.candidate_ids)
    members = int((clients >= 0).sum())
    if members in (0, n):
        lack = f"all {n} membership candidates are members"
        if not members:
            lack = f"none of the {n} membership candidates is a member"
        raise BadInput(
            f"{path}: {lack}; an attack can only be scored on members and non-members, so capture candidates of both"
            " kinds"
        )


def membership_entries(
    auditor: Auditor, knowledge: Knowledge, scored: Iterable[Scored], seed: int, output: Path
) -> tuple[list[AttackResult], list[str]]:
    """An entry for each attack, settings and observer, with scores/KEY.csv and .npz in `output`; and warnings.

    Args:
        setup: what the attacks were run on.
        auditor: its truth and ledger, each None where it is absent.
        knowledge: the attacker's, with the candidates.
        scored: the evidence of all attacks.
        seed: of the draws of who judges whom.
        output: the RESULTS folder.
    """
    clients = _owners(auditor)
    warnings = []
    if clients is not None:
        twins = outside_twins(knowledge.candidate_inputs, knowledge.candidate_targets, clients)
        if twins.any():
            warnings.append(_overlap(auditor, clients, twins))
    lot = lot_behind(auditor)
    groups: dict[str, list[Scored]] = {}
    for part in scored:
        name = json.dumps(
            [part.scores.attack, part.scores.observer, part.scores.manner, dict(part.settings)], sort_keys=True
        )
        groups.setdefault(name, []).append(part)
    entries = [_entry(auditor, knowledge, parts, seed, output) for parts in groups.values()]
    if entries and clients is not None and not lot.comparable:
        warnings.append(f"Membership: {lot.sentence}.")
    return entries, warnings


def _owners(auditor: Auditor) -> Tensor | None:
    """(n,), the client that each candidate is of, as far as the auditor knows."""
    if auditor.truth is None:
        return None
    return auditor.truth.candidate_owners


def outside_twins(inputs: Tensor, targets: Tensor, clients: Tensor) -> Tensor:
    """(n,) bool: non-members that equal a member, inputs (n, …) and targets (n,) alike, to the last bit.

    They stay: a lot deals frequent records to either side alike, and without those of one side they would give away the
    other.
    """

    def digests() -> list[bytes]:
        rows = inputs.flatten(1).contiguous().numpy()
        return [hashlib.sha256(row.tobytes() + label.tobytes()).digest() for row, label in zip(rows, targets.numpy())]

    named, member = digests(), (clients != NOBODY).tolist()
    held = {name for name, inside in zip(named, member) if inside}
    return torch.tensor([not inside and name in held for name, inside in zip(named, member)], dtype=torch.bool)


def _overlap(auditor: Auditor, clients: Tensor, twins: Tensor) -> str:
    count, others = int(twins.sum()), int((clients == NOBODY).sum())
    first = int(twins.nonzero()[0])
    if count == others:
        raise BadInput(
            f"{auditor.setup.folder / 'knowledge'}: all {others} non-members among the candidates equal members (first:"
            f" candidate {first}); the two groups must not overlap"
        )
    equal = "equal members exactly"
    if count == 1:
        equal = "equals a member exactly"
    return (
        f"Members and non-members overlap: {count} of the {others} non-members among the candidates {equal} (first:"
        f" candidate {first}); no attack can tell such records apart, and one that somebody holds k times has k times"
        " the ε of one."
    )


# --- whose message judges which record ---


@dataclass(frozen=True, eq=False)
class DealtCandidates:
    """Who judges whom. judge: (n,) of each candidate a place among the senders, −1 for none. rows: (m,) candidates that
    are judged; member: (m,) bool, of these. parties: the client behind each sender, None for the whole federation.
    clients: (n,) whose record each is. said: what a reader has to know of it.
    """

    judge: Tensor
    rows: Tensor
    member: Tensor
    parties: list[int | None]
    clients: Tensor
    lot: Lot
    said: tuple[str, ...]


def lot_behind(auditor: Auditor) -> Lot:
    """The lot by which the setup's members and outsiders were dealt."""
    data = auditor.setup.manifest.data
    left_over = auditor.truth is not None and auditor.truth.outsiders_left_over
    test = DEALT_BY_LOT if left_over else data.description.get("test")
    by_holder = auditor.truth is not None and auditor.truth.candidate_holders is not None
    return lot_of(auditor.setup.config.data.partition, data.classes_of_records, test, by_holder)


def judges_of(auditor: Auditor, knowledge: Knowledge, senders: Sequence[str], seed: int) -> DealtCandidates | str:
    """Who judges whom among the candidates, or why nobody can be judged.

    Args:
        senders: the address behind each part, "" for the whole federation. seed: of the lot.
    """
    clients = _owners(auditor)
    if clients is None:
        return "who is a member is not in truth/"
    parties = _parties(auditor, senders)
    if parties is None:
        return "auditor/ is absent, and without it nobody knows which client is behind an anonymous address"
    lot = lot_behind(auditor)
    alike, holders = knowledge.candidate_targets, None if auditor.truth is None else auditor.truth.candidate_holders
    if holders is not None:
        alike = strata(alike, holders, auditor.setup.manifest.data.classes_of_records)
    judge = assign(clients, parties, seed, alike if lot.by_class else None)
    rows = (judge >= 0).nonzero().squeeze(1)
    member = clients[rows] != NOBODY
    heard = torch.tensor([None in parties or client in parties for client in clients.tolist()]) & (clients != NOBODY)
    if not member.any() or member.all():
        if heard.any():
            return "too few outsiders have the classes of members to compare them with; ask for more candidates"
        return (
            "none of the candidates is a record of a client whose messages were captured; add clients to [capture]"
            " clients, or ask for more candidates"
        )
    said = []
    if left := int((~heard & (clients != NOBODY)).sum()):
        said.append(f"{left} members of clients none of whose messages were captured are left out")
    if lot.sentence:
        said.append(lot.sentence)
    lacking, spare = int((heard & (judge < 0)).sum()), int(((clients == NOBODY) & (judge < 0)).sum())
    if lacking or spare:
        said.append(f"{lacking} members and {spare} outsiders without a counterpart of their class are left out")
    return DealtCandidates(judge, rows, member, parties, clients, lot, tuple(said))


def assign(clients: Tensor, parties: Sequence[int | None], seed: int, labels: Tensor | None = None) -> Tensor:
    """(n,): for each record the part that judges it, −1 for none.

    A member is judged by one of its own client's parts, of several by one drawn at random; a member whose client sent
    nothing by none. Outsiders get the parts of members in turn, in random order: among them every part is as frequent
    as among members. With labels so is every part among the outsiders of a label as among its members, by the largest
    factor that all labels allow; who is beyond it, or of a label that only one side has, is judged by none.

    Args:
        clients: (n,) whose record it is. parties: the client behind each part, None for the whole federation.
        seed: of the lot. labels: (n,), None where any outsider will do.

    >>> assign(torch.tensor([0, 0, 1, 1, 2, -1, -1, -1, -1]), [0, 1], seed=0)[:5].tolist()
    [0, 0, 1, 1, -1]
    """
    rng = generator(seed, "who judges whom")
    judge = torch.full((len(clients),), -1)
    for party in clients[clients != NOBODY].unique().tolist():
        own = torch.tensor([i for i, p in enumerate(parties) if p is None or p == party], dtype=torch.long)
        rows = (clients == party).nonzero().squeeze(1)
        if len(own):
            judge[rows] = own[torch.randint(len(own), (len(rows),), generator=rng)]
    outside = (clients == NOBODY).nonzero().squeeze(1)
    if labels is not None:
        return _matched(judge, outside, labels, rng)
    drawn = judge[judge >= 0]
    if len(drawn):
        order = torch.randperm(len(drawn), generator=rng)
        judge[outside] = drawn[order[torch.arange(len(outside)) % len(drawn)]]
    return judge


def _matched(judge: Tensor, outside: Tensor, labels: Tensor, rng: torch.Generator) -> Tensor:
    """Members' judges (n,), with outsiders (rows) drawn to them label by label; see `assign`."""
    known = labels[judge >= 0].unique().tolist()
    inside = [((judge >= 0) & (labels == label)).nonzero().squeeze(1) for label in known]
    others = [outside[labels[outside] == label] for label in known]
    factor = allowed([len(rows) for rows in inside], [len(rows) for rows in others])
    judge = judge.clone()
    cells: list[tuple[int, int, int]] = []  # place of the label, part, members
    for place, (rows, free) in enumerate(zip(inside, others)):
        if not len(free):
            judge[rows] = -1
            continue
        parts, counts = judge[rows].unique(return_counts=True)
        cells += [(place, part, count) for part, count in zip(parts.tolist(), counts.tolist())]
    left = [rows[torch.randperm(len(rows), generator=rng)] for rows in others]
    for (place, part, _), wanted in zip(cells, proportional([count for *_, count in cells], factor, rng)):
        judge[left[place][:wanted]] = part
        left[place] = left[place][wanted:]
    return judge


def _entry(auditor: Auditor, knowledge: Knowledge, parts: Sequence[Scored], seed: int, output: Path) -> AttackResult:
    first = parts[0].scores
    senders = list(dict.fromkeys(part.scores.sender for part in parts))
    key = parts[0].key
    if len(parts) > 1:
        key = hashlib.sha256(json.dumps([part.key for part in parts]).encode()).hexdigest()[:16]
    entry = AttackResult(
        attack=first.attack,
        observer=first.observer,
        manner=first.manner,
        client=senders[0] if len(senders) == 1 else None,
        n=len(first.ids),
        key=key,
        evidence=tuple(part.key for part in parts),
        assumed=_assumed(parts),
        settings=dict(parts[0].settings),
    )
    dealt = judges_of(auditor, knowledge, [part.scores.sender for part in parts], seed)
    every = torch.stack([part.scores.scores for part in parts])
    if not isinstance(dealt, str):
        dealt = _judged(dealt, ~every[dealt.judge[dealt.rows], dealt.rows].isnan())
    if isinstance(dealt, str):
        _write_unscored(output, key, parts)
        return _not_measured(entry, dealt)
    rows, judge, member = dealt.rows, dealt.judge, dealt.member
    scores = every[judge[rows], rows]
    labels = None
    if auditor.setup.manifest.data.classes_of_records:
        labels = knowledge.candidate_targets[rows]
    records = replace(first, ids=first.ids[rows], scores=scores)
    scored = score_membership(records, member, labels, seed)
    names = [parts[j].scores.sender for j in judge[rows].tolist()]
    assert scored.roc is not None
    _write_scores(output / "scores" / key, records, names, member, labels, scored.roc)
    assumed = entry.assumed + dealt.said
    known = {name: getattr(entry, name) for name in ("client", "key", "evidence", "settings")}
    if not dealt.lot.comparable:
        return scored.having(**known, assumed=assumed, p_values={}, intervals={}, controls={}, per_class=())
    per_client = _per_client(parts, dealt.parties, dealt.clients, judge if dealt.lot.by_class else None)
    return scored.having(**known, assumed=assumed, per_client=per_client)


def _judged(dealt: DealtCandidates, has: Tensor) -> DealtCandidates | str:
    """Without those of its rows (m,) that have no score, how many these are being said; or why nobody is left."""
    if bool(has.all()):
        return dealt
    inside, outside = int((dealt.member & ~has).sum()), int((~dealt.member & ~has).sum())
    if not bool(has.any()) or len(dealt.member[has].unique()) < 2:
        return "no member, or no outsider, has a score of this attack"
    said = (*dealt.said, f"{inside} members and {outside} outsiders without a score are left out")
    return replace(dealt, rows=dealt.rows[has], member=dealt.member[has], said=said)


def _not_measured(entry: AttackResult, why: str) -> AttackResult:
    return entry.having(metrics=Metrics.of({"auc": None}), not_measured={"auc": why})


def _assumed(parts: Sequence[Scored]) -> tuple[str, ...]:
    """What the attacker is assumed to know, then how the scores came about."""
    sentences = list(dict.fromkeys(item for part in parts for item in part.scores.assumed))
    notes = list(dict.fromkeys(part.scores.note for part in parts if part.scores.note))
    if len(notes) > 3:
        notes = [f"{len(notes)} messages, each by itself"]
    if any(part.scores.sender for part in parts):
        sentences.append(
            "which client a record would belong to: a member is judged by what its own client sent, an outsider by a"
            " sender drawn at random"
        )
    elif len(parts) > 1:
        notes.append("every record is judged by one of them, drawn at random")
    return (*sentences, *notes)


def _parties(auditor: Auditor, addresses: Sequence[str]) -> list[int | None] | None:
    """The true client behind each address, None for the whole federation (""); no list where only auditor/ knows."""
    if auditor.ledger is None and any(address and client_of(address) is None for address in addresses):
        return None
    sent = {} if auditor.ledger is None else auditor.ledger.messages
    known = {m.sender: sent[m.id].sender for m in auditor.setup.messages if m.id in sent}
    return [None if not a else known[a] if (client := client_of(a)) is None else client for a in addresses]


def _per_client(
    parts: Sequence[Scored], parties: Sequence[int | None], clients: Tensor, judge: Tensor | None
) -> tuple[ClientRow, ...]:
    """Each sender's own AUC, its records against all other candidates, or with `judge` against the outsiders whom it
    judges; () where one client has several addresses.
    """
    if len(parts) < 2 or None in parties or len(set(parties)) < len(parties):
        return ()
    rows = []
    for place, party in sorted(enumerate(parties), key=lambda pair: pair[1] or 0):
        part, own = parts[place], clients == (party or 0)
        others = ~own
        if judge is not None:
            own, others = own & (judge == place), others & (judge == place)
        inside, outside = part.scores.scores[own], part.scores.scores[others]
        if len(inside) and len(outside):
            area, interval = auc(inside, outside)
        else:
            area, interval = None, None
        rows.append(
            ClientRow(
                client=part.scores.sender, n_members=len(inside), n_nonmembers=len(outside), auc=area, interval=interval
            )
        )
    return tuple(rows)


# --- on disk ---


def _write_scores(
    path: Path, records: MembershipScores, senders: Sequence[str], member: Tensor, labels: Tensor | None, roc: Roc
) -> None:
    """The scores of every record, highest first, as CSV and npz. path: of both, without their endings."""
    table = pandas.DataFrame(
        {
            "id": records.ids.numpy(),
            "sender": list(senders),
            "score": records.scores.double().numpy(),
            "member": member.numpy().astype(int),
        }
    )
    if labels is not None:
        table.insert(1, "class", labels.numpy())
    table = table.sort_values(["score", "id"], ascending=[False, True])
    write_bytes(path.with_name(f"{path.name}.csv"), table.to_csv(index=False, lineterminator="\n").encode())
    _write_npz(
        path.with_name(f"{path.name}.npz"),
        id=records.ids.numpy(),
        sender=numpy.array(senders, dtype=str),
        score=records.scores.double().numpy(),
        member=member.numpy(),
        fpr=numpy.array(roc.fpr),
        tpr=numpy.array(roc.tpr),
    )


def _write_unscored(output: Path, key: str, parts: Sequence[Scored]) -> None:
    """Without the truth: every record's score for every sender."""
    ids = numpy.concatenate([part.scores.ids.numpy() for part in parts])
    senders = numpy.array([part.scores.sender for part in parts for _ in part.scores.ids], dtype=str)
    scores = numpy.concatenate([part.scores.scores.double().numpy() for part in parts])
    table = pandas.DataFrame({"id": ids, "sender": senders, "score": scores}).sort_values(
        ["score", "id"], ascending=[False, True]
    )
    write_bytes(output / "scores" / f"{key}.csv", table.to_csv(index=False, lineterminator="\n").encode())
    _write_npz(output / "scores" / f"{key}.npz", id=ids, sender=senders, score=scores)


def _write_npz(path: Path, **arrays: numpy.ndarray) -> None:
    packed = io.BytesIO()
    numpy.savez(packed, **arrays)  # type: ignore[arg-type]
    write_bytes(path, packed.getvalue())
