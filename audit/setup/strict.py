"""What `audit check --strict` asks beyond what is read: that a setup which another tool wrote is one in every detail of
docs/setup-format.md, and gives nothing away that the format keeps apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ...defenses.wire import SERVER, client_of
from .auditor import Auditor
from .folder import Setup, is_note
from .ledger import Ledger
from .reading import open_tensors

FILES = {
    "setup.json",
    "rounds.csv",
    "messages.jsonl",
    "environment.json",
    "knowledge/knowledge.json",
    "knowledge/labels.json",
    "knowledge/auxiliary.safetensors",
    "knowledge/candidates.safetensors",
    "knowledge/observers.json",
    "auditor/declared.json",
    "auditor/figures.csv",
    "auditor/labels.json",
    "auditor/models.jsonl",
    "auditor/noise-key",
    "auditor/participants.csv",
    "auditor/parties.json",
    "auditor/releases.jsonl",
    "auditor/seal.json",
    "auditor/source.json",
    "truth/gallery.safetensors",
    "truth/membership.json",
    "truth/messages.json",
    "truth/pool.safetensors",
    "truth/records.safetensors",
}
PRIVATE_FIGURES = ("loss", "accuracy", "norm", "clipped", "noise")  # words in names of what rounds.csv must not hold


def faults(setup: Setup, auditor: Auditor) -> list[str]:
    """Everything that is not as the format says, a sentence each; [] where all is. Both halves are read already."""
    found = [
        *_files(setup.folder, setup),
        *_order(setup),
        *_tensors(setup),
        *_public(setup),
        *([] if auditor.ledger is None else _ledger(setup, auditor.ledger)),
    ]
    return list(dict.fromkeys(found))


def _files(folder: Path, setup: Setup) -> Iterator[str]:
    tensors = {f"tensors/round-{m.round:04d}.safetensors" for m in setup.messages}
    held = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() or p.is_symlink()}
    for name in sorted(held - FILES - tensors):
        yield f"{name} is no file of the format"
    sealed = set(setup.manifest.files)
    public = {n for n in held if not n.startswith(("auditor/", "truth/"))} - {"environment.json"}
    for name in sorted(public - sealed):
        yield f"{name} is not sealed in setup.json's files"
    for name in sorted(n for n in sealed if n.startswith("truth/") or (n.startswith("auditor/") and "seal" not in n)):
        yield f"setup.json seals {name}, whose digest would let anybody try records; auditor/seal.json is for that"


def _order(setup: Setup) -> Iterator[str]:
    """Rounds in order; in a round by id, so that no order tells who was first."""
    places = [(m.round, m.id) for m in setup.messages]
    if places != sorted(places):
        yield "messages.jsonl: lines go by round, and in a round by id"
    times = Counter(m.round for m in setup.messages if m.sender == "server")
    if doubled := [round for round, count in sorted(times.items()) if count > 1]:
        yield f"messages.jsonl: the server sent {times[doubled[0]]} models in round {doubled[0]}"
    sent = Counter((m.round, m.sender) for m in setup.messages if m.sender != "server" and not is_note(m))
    if doubled_pairs := [place for place, count in sent.items() if count > 1 and client_of(place[1]) is not None]:
        yield f"messages.jsonl: {doubled_pairs[0][1]} sent more than one value in round {doubled_pairs[0][0]}"


def _tensors(setup: Setup) -> Iterator[str]:
    """No tensor that no message names."""
    by_round: dict[int, set[str]] = {}
    for m in setup.messages:
        by_round.setdefault(m.round, set()).update(f"{m.id}/{name}" for name in setup.layout.names)
    for round, named in sorted(by_round.items()):
        path = setup.folder / "tensors" / f"round-{round:04d}.safetensors"
        with open_tensors(setup.folder, path) as file:
            if more := sorted(set(file.keys()) - named):
                yield f"tensors/{path.name}: {more[0]!r} is of no message"


def _public(setup: Setup) -> Iterator[str]:
    for name in setup.rounds[0] if setup.rounds else ():
        if any(word in name for word in PRIVATE_FIGURES):
            yield f"rounds.csv: {name!r} tells of private values; it belongs into auditor/figures.csv"
    for m in setup.messages:
        clients = [c for a in (m.sender, *m.receivers) if (c := client_of(a)) is not None]
        if any(c >= len(setup.manifest.clients) for c in clients):
            yield f"messages.jsonl: message {m.id} names client-{max(clients)} of {len(setup.manifest.clients)}"


def _ledger(setup: Setup, ledger: Ledger) -> Iterator[str]:
    """That what is priced says what was sent."""
    for m in setup.messages:
        true = ledger.messages[m.id]
        public = "server" if m.sender == "server" else client_of(m.sender)
        if public is not None and (SERVER if public == "server" else public) != true.sender:
            yield f"auditor/parties.json: message {m.id} is of party {true.sender}, and its address is {m.sender!r}"
        if len(m.receivers) != len(true.receivers):
            counts = f"{len(true.receivers)} receivers, and in public {len(m.receivers)}"
            yield f"auditor/parties.json: message {m.id} has {counts}"
    for one in ledger.messages.values():
        if one.upload and not one.releases:
            yield f"auditor/parties.json: upload {one.id} reveals no release; one without noise reveals one of 'none'"
        if one.upload and any(one.sender not in ledger.releases[i].subjects for i in one.releases):
            yield f"auditor/parties.json: upload {one.id} of client {one.sender} reveals a release that is not about it"
    for release in ledger.releases.values():
        where = f"auditor/releases.jsonl: release {release.id}"
        if release.mechanism == "none" and not release.problem:
            yield f"{where} has no noise, and its problem does not say so"
    caught = {i for one in ledger.messages.values() for i in one.releases}
    caught |= {i for v in ledger.models.values() for i in (*v.releases, *(v.summed or ()), *(v.merged or ()))}
    if unused := sorted(set(ledger.releases) - caught):
        yield f"auditor/releases.jsonl: release {unused[0]} is revealed by nothing"
    inherited = {i for one in ledger.messages.values() for i in one.inherits}
    inherited |= {i for version in ledger.models.values() for i in version.parents}
    if unused := sorted(set(ledger.models) - inherited):
        yield f"auditor/models.jsonl: model {unused[0]} was never sent, and nothing was made of it"
