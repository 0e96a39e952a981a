"""Without a server: what a peer or leader sees, and that one sender's messages cannot be joined across rounds."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from dpfl_audit.audit.setup import capture
from dpfl_audit.audit.setup.auditor import Auditor, check_setup
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import Setup
from dpfl_audit.audit.setup.ledger import Ledger
from dpfl_audit.defenses.terms import Observer

ROUNDS, CLIENTS = 12, 7


def setup_of(folder: Path, scheme: str, seed: int = 0) -> Setup:
    raw = {
        "seed": seed,
        "data": {"name": "digits", "clients": CLIENTS, "samples_per_client": 20},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 20},
        "scheme": {"name": scheme, "rounds": ROUNDS, "train_share": 1.0, "epsilon": 8, "neighbours": 4},
        "capture": {"clients": list(range(1, CLIENTS)), "truth": True},
        "audit": {"observer": "peer", "unit": "record", "adjacency": "replace_one"},
    }
    setup, _ = check_setup(capture.train(build(parse_config(raw), folder), folder / f"{scheme}-{seed}"))
    return setup


@pytest.fixture(scope="module")
def gossip(tmp_path_factory) -> Setup:
    return setup_of(tmp_path_factory.mktemp("gossip"), "anonymous-gossip")


@pytest.fixture(scope="module")
def leader(tmp_path_factory) -> Setup:
    return setup_of(tmp_path_factory.mktemp("leader"), "anonymous-leader", 2)  # in which the peer is not elected


def received(setup: Setup, observer: str = "peer") -> dict[int, list]:
    """What an observer received from others, by round."""
    rounds: dict[int, list] = {}
    for message in setup.view(Observer(observer)).messages:
        if not message.broadcast:
            rounds.setdefault(message.round, []).append(message)
    return rounds


def key(setup: Setup) -> Ledger:
    ledger = Auditor(setup).ledger
    assert ledger is not None
    return ledger


def true_sender(setup: Setup, message_id: str) -> int:
    return key(setup).messages[message_id].sender


def test_a_peer_gets_the_messages_of_its_neighbours_and_its_own_model(gossip):
    rounds = received(gossip)
    assert sum(map(len, rounds.values())) == 4 * ROUNDS
    view = gossip.view(Observer("peer"))
    assert all(view.global_model(r).shape == (gossip.layout.dim,) for r in range(ROUNDS))
    peer = key(gossip).observers["peer"]
    assert all(true_sender(gossip, m.id) != peer for messages in rounds.values() for m in messages)


@pytest.mark.parametrize("field", ["address", "id", "size", "file"])
def test_nothing_that_comes_with_a_message_joins_a_sender_across_rounds(gossip, field):
    """Each of these, taken as the sender's name, either never repeats or is the same for everybody."""
    names = []
    for messages in received(gossip).values():
        for message in messages:
            path = gossip.folder / "tensors" / f"round-{message.round:04d}.safetensors"
            value = {
                "address": message.sender,
                "id": message.id,
                "size": (message.num_records, message.kind),
                "file": path.name,
            }[field]
            names.append((message.round, value))
    by_name: dict = {}
    for round, value in names:
        by_name.setdefault(value, set()).add(round)
    per_round = {}
    for round, value in names:
        per_round.setdefault(round, set()).add(value)
    never_repeats = all(len(rounds) == 1 for rounds in by_name.values())
    same_for_all = all(len(values) == 1 for values in per_round.values())
    assert never_repeats or same_for_all


@pytest.mark.full
def test_the_order_of_messages_says_nothing_of_their_senders(tmp_path):
    """The same place next round is the same sender's no more often than by chance (six receive-alls, 1/6 each)."""
    hits = total = 0
    for seed in range(4):
        setup = setup_of(tmp_path, "anonymous-leader", seed)
        orders = [
            [
                true_sender(setup, m.id)
                for m in setup.messages
                if m.round == r and m.sender != m.receivers[0] and m.kind == "update"
            ]
            for r in range(ROUNDS)
        ]
        for before, after in pairwise(orders):
            hits += sum(a == b for a, b in zip(before, after))
            total += min(len(before), len(after))
    assert total > 150 and hits / total < 1 / 6 + 3 * (5 / 36 / total) ** 0.5


def test_an_unknown_number_of_senders_cannot_be_read_off_the_public_files(gossip):
    """No file an attack may read holds the auditor's party numbers."""
    public = [
        p
        for p in gossip.folder.rglob("*")
        if p.is_file() and p.suffix in (".json", ".jsonl", ".csv") and p.parent.name not in ("auditor", "truth")
    ]
    for path in public:
        if path.name in ("messages.jsonl", "observers.json", "labels.json", "knowledge.json"):
            assert "client-" not in path.read_text() and "sender_party" not in path.read_text()


@pytest.mark.parametrize("which", ["gossip", "leader"])
def test_the_order_of_receivers_says_nothing_of_who_they_are(which, request):
    """By party number, the k-th address would be the k-th party in every round."""
    setup = request.getfixturevalue(which)
    orders = [m.receivers for m in setup.messages if len(m.receivers) > 1]
    assert orders and all(receivers == sorted(receivers) for receivers in orders)


def test_leader_and_peer_see_their_own_mail_only(leader):
    ledger = key(leader)
    elected = ledger.observers["leader"]
    assert {ledger.messages[m.id].kind for m in received(leader, "leader")[0]} == {"update"}
    for messages in received(leader, "leader").values():
        assert all(elected in ledger.messages[m.id].receivers for m in messages)
    first = received(leader, "peer")[0]
    assert [m.kind for m in first] == ["weights"]  # an ordinary peer gets the leader's answer and nothing else


def test_the_claim_stands_in_the_peers_record_row_and_the_target_epsilon_comes_back(gossip):
    from dpfl_audit.audit.proven import rows as epsilon

    rows = epsilon.rows(key(gossip), gossip.scheme.claim, 1e-5)
    claimed = {(r.observer, r.unit, r.adjacency): r.claimed for r in rows if r.claimed is not None}
    assert claimed == {("peer", "record", "replace_one"): pytest.approx(8.0)}
    proven = next(r.proven for r in rows if (r.observer, r.unit, r.adjacency) == ("peer", "record", "replace_one"))
    assert float(proven) > 8.0
    assert json.loads((gossip.folder / "auditor" / "parties.json").read_text())["observers"] == {"peer": 0}
