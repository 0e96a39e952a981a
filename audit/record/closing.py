"""From the finished rounds of a recording to a setup folder like any other."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ...defenses import engine as engines
from ...defenses.data.dataset import DEALT_BY_LOT
from ...defenses.data.vocabulary import Vocabulary
from ...defenses.layout import Layout
from ...defenses.losses import loss_of
from ..errors import BadInput
from ..files import write_json, write_tensors
from ..setup.capture import write_sealed, write_tables
from ..setup.config import Config
from ..setup.description import digest_of_parts, model_part, versions
from ..setup.format import DECLARED, FORMAT, Declaration
from ..setup.public import Public
from ..setup.reading import plain_json, read_text
from .declared import declarations, replayed_said
from .ledger_rows import NO_ROWS, LedgerRows, LedgerWriter
from .mechanism import in_round
from .network import Network
from .recording import DataFacts, Recording, config_of
from .rounds import ClosedRound, read_rounds, records_of
from .sent import AllSent, Attempt

GRANTED = "granted.safetensors"  # in .work: what the owner grants to an attacker, and scores by


@dataclass(frozen=True, eq=False)
class Granted:
    """What attacks may use, and what they are scored by. Pairs are inputs (n, *shape) and targets (n, …).

    auxiliary: of the attacker's own. gallery: records nobody trained on, among which one that was rebuilt must stand
    out. pool: records that might as well have been dealt in the place of the clients'. candidates: records whose
    membership is asked for; owners: (n,) the client that trained on each, -1 for nobody.
    """

    auxiliary: tuple[Tensor, Tensor] | None = None
    gallery: tuple[Tensor, Tensor] | None = None
    pool: tuple[Tensor, Tensor] | None = None
    candidates: tuple[Tensor, Tensor] | None = None
    owners: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        named = {"auxiliary": self.auxiliary, "gallery": self.gallery, "pool": self.pool, "candidates": self.candidates}
        held = {f"{n}/{p}": v for n, pair in named.items() if pair for p, v in zip(("inputs", "targets"), pair)}
        if self.owners is None:
            return held
        return {**held, "owners": self.owners}

    @classmethod
    def of_tensors(cls, held: Mapping[str, Tensor]) -> Granted:
        def pair(name: str) -> tuple[Tensor, Tensor] | None:
            if f"{name}/inputs" in held:
                return (held[f"{name}/inputs"], held[f"{name}/targets"])
            return None

        return cls(pair("auxiliary"), pair("gallery"), pair("pool"), pair("candidates"), held.get("owners"))


@dataclass(frozen=True, eq=False)
class Begun:
    """What lies in .work of an unfinished recording. names: of the tensors that are sent, () before the first."""

    recording: Recording
    names: tuple[str, ...]

    @property
    def sent(self) -> tuple[str, ...]:
        return self.names or self.recording.network.trained

    @property
    def layout(self) -> Layout:
        return self.recording.network.layout(self.sent)

    def write(self, folder: Path) -> None:
        content = {"recording": self.recording.plain(), "names": list(self.names)}
        write_json(folder / ".work" / "recording.json", content)

    @classmethod
    def read(cls, folder: Path) -> Begun:
        content = plain_json(read_text(folder / ".work" / "recording.json"))
        return cls(Recording.of_plain(content["recording"]), tuple(content["names"]))


def read_granted(folder: Path) -> Granted:
    path = folder / ".work" / GRANTED
    if path.exists():
        return Granted.of_tensors(load_file(path))
    return Granted()


def write_granted(folder: Path, granted: Granted) -> None:
    write_tensors(folder / ".work" / GRANTED, granted.tensors())


def write_partial(folder: Path, begun: Begun) -> None:
    """setup.json of a recording that goes on, which says what the folder is."""
    config = config_of(begun.recording, 1, begun.recording.clients or 1, (0,))
    Public(folder).write("manifest", _manifest(begun, config, [], (1,) * config.data.clients, {}, "partial"))


def close_recording(folder: Path) -> Path:
    """Makes the setup of the whole rounds that are there; killed, it is done again.

    Raises:
        BadInput: nothing was recorded.
    """
    begun, rounds, granted = Begun.read(folder), read_rounds(folder), read_granted(folder)
    trained = [r for r in rounds if r.uploads or r.lost]
    if not trained:
        raise BadInput(
            f"{folder}: no client uploaded anything in a whole round, so there is nothing to keep; a round is whole"
            " when the next one is broadcast, or the recorder is closed"
        )
    sent = AllSent.read(folder)
    after, done = None, rounds
    if not (rounds[-1].uploads or rounds[-1].lost):  # a last model on its way down
        after, done = rounds[-1], rounds[:-1]
        own = done[-1]  # with what was found in evaluating it
        done[-1] = replace(own, unnoised=(*own.unnoised, *after.unnoised), defects=(*own.defects, *after.defects))
    if not begun.recording.mechanism:  # declared round by round
        first = next((r.mechanism for r in done if r.mechanism), ())
        begun = replace(begun, recording=replace(begun.recording, mechanism=first))
    beside = sent.beyond(rounds)
    clients = _sizes(begun.recording, done, beside, granted)
    captured = sorted({u["client"] for r in done for u in r.uploads if u["kept"]})
    given = _truth(folder, done)
    gallery, auxiliary, candidates = (
        len(part[0]) if part is not None else 0 for part in (granted.gallery, granted.auxiliary, granted.candidates)
    )
    config = config_of(begun.recording, len(done), len(clients), captured, max(gallery, auxiliary), candidates)
    end = len(done)
    # Whoever closes says that no other model went out; where only sums are seen, somebody else has the last one.
    untold = after is None and not any(attempt.number == end for attempt in beside)
    left_out = any(refusal.breaks for refusal in sent.refusals)  # a model that the recorder did not take, perhaps
    held = untold and sent.orderly and not left_out and not begun.recording.secure_aggregation
    found = declarations(
        begun.recording, done, len(clients), beside, held=held, names=begun.sent, refusals=sent.refusals
    )
    granted, wrong = _owners_by_records(granted, given, done)
    found += [*wrong, *(replayed_said(one) for one in sent.replays)]
    ledger, rows = LedgerWriter(begun.recording, clients, found, _told(done, beside)), []
    begin = ledger.begun()
    for closed in done:
        part = begin + _attempts(ledger, beside, closed.number, kept=True) + ledger.round(closed)
        begin = NO_ROWS
        rows.append({"round": closed.number, **vars(part), "figures": _figures(closed), "participants": closed.clients})
    part = _attempts(ledger, beside, end, kept=after is not None)
    if after is not None:
        part += ledger.last_model(after.number, after.broadcast)
    elif untold:
        part += ledger.held_sum(end - 1) if held else ledger.unseen_model(end)  # the server has the sum in any case
    if part.ledger:
        rows.append({"round": end, **vars(part), "figures": {}, "participants": ()})
    _drop_unnamed_tensors(folder, {row["round"] for row in rows if row["messages"]})
    write_tables(folder, rows, {})
    write_json(folder / DECLARED, [declaration.model_dump() for declaration in found])
    by_coins = any(one.sampling and one.sampling.unit == "record" for closed in done for one in closed.mechanism)
    _write_knowledge(folder, config, given, granted, by_coins)
    _write_truth(folder, given, granted, begun.recording.data.by_lot)
    sizes = {"training": 0 if given is None else len(given.inputs), "auxiliary": auxiliary, "test": gallery}
    write_sealed(folder, _manifest(begun, config, done, clients, {"sizes": sizes}, "complete"))
    shutil.rmtree(folder / ".work")
    return folder


def _attempts(ledger: LedgerWriter, beside: Sequence[Attempt], number: int, *, kept: bool) -> LedgerRows:
    """What was sent in attempts at a round that did not become whole. kept: whether its model went out once more."""
    rows, models = NO_ROWS, int(kept)
    here = [attempt for attempt in beside if attempt.number == number]
    others = any(attempt.model for attempt in here)  # the round did not begin anew with the model that it began with
    for attempt in here:
        rows += ledger.attempt(attempt, drawn_again=models > 0, goes_on=others)
        models += bool(attempt.model)
    return rows


def _drop_unnamed_tensors(folder: Path, named: Collection[int]) -> None:
    """The tensors of a round that a kill ended in writing: its file was there, and its row was not."""
    for path in (folder / "tensors").glob("round-*"):
        if path.suffix == ".part" or int(path.stem.removeprefix("round-")) not in named:
            path.unlink()


def _sizes(
    recording: Recording, rounds: Sequence[ClosedRound], beside: Sequence[Attempt], granted: Granted
) -> tuple[int, ...]:
    """The records of each client, the most it said in any round; 1 of one that never sent anything."""
    most: dict[int, int] = {}
    if granted.owners is not None and len(granted.owners) and int(granted.owners.max()) >= 0:
        most[int(granted.owners.max())] = 1  # who has a candidate is a client
    for client, counts in _told(rounds, beside).items():
        most[client] = max(counts)
    lost = [client for closed in rounds for client, _ in (*closed.lost, *closed.unnoised)]
    for client in [*lost, *(m.client for attempt in beside for m in attempt.sent)]:
        most.setdefault(client, 1)
    return tuple(most.get(c, 1) for c in range(max(recording.clients or 0, max(most) + 1)))


def _told(rounds: Sequence[ClosedRound], beside: Sequence[Attempt]) -> dict[int, list[int]]:
    """The numbers of records that each client ever said."""
    counts: dict[int, list[int]] = defaultdict(list)
    for attempt in beside:
        for m in attempt.sent:
            if not m.why:
                counts[m.client].append(m.num_examples)
    for closed in rounds:
        for upload in closed.uploads:
            counts[upload["client"]].append(upload["num_examples"])
    return counts


def _figures(closed: ClosedRound) -> dict[str, float]:
    """A round's figures: what the owner measured, and the declared noise."""
    figures = {"participants": float(len(closed.uploads) + len(closed.lost)), **closed.figures}
    first = None
    if closed.mechanism:
        first = in_round(closed.mechanism[0], closed.number)
    if first is None or first.of != "client":
        return figures
    if first.by == "client":
        return figures | {"noise_std": float(first.noise_std)}
    return figures | {"server_noise_std": float(first.noise_std), "server_clip_norm": float(first.clip)}


# --- records


@dataclass(frozen=True, eq=False)
class _Given:
    """The records behind uploads, each once. rows: of them, by message."""

    inputs: Tensor
    targets: Tensor
    rows: dict[str, list[int]]


def _truth(folder: Path, rounds: Sequence[ClosedRound]) -> _Given | None:
    known: dict[bytes, int] = {}
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    rows: dict[str, list[int]] = {}
    for closed in rounds:
        held = records_of(folder, closed.number)
        for upload in closed.uploads:
            if not upload["records"]:
                continue
            own, copies = [], dict[bytes, int]()
            for x, y in zip(*held[upload["client"]]):
                plain = _bytes_of(x, y)
                copies[plain] = copies.get(plain, 0) + 1
                name = plain + copies[plain].to_bytes(4, "big")  # a record that a client holds twice is two
                if name not in known:
                    known[name] = len(inputs)
                    inputs.append(x)
                    targets.append(y)
                own.append(known[name])
            rows[upload["id"]] = sorted(own)
    if inputs:
        return _Given(torch.stack(inputs), torch.stack(targets), rows)
    return None


def _owners_by_records(
    granted: Granted, given: _Given | None, rounds: Sequence[ClosedRound]
) -> tuple[Granted, list[Declaration]]:
    """Candidates whose owners the records behind uploads contradict get those of the records, and that is said: scores
    of members that are called nobody's, or of the reverse, would hide any leak.
    """
    if given is None or granted.candidates is None or granted.owners is None:
        return granted, []
    place = {_bytes_of(x, y): i for i, (x, y) in reversed([*enumerate(zip(given.inputs, given.targets))])}
    uploads = [(u["client"], set(given.rows.get(u["id"], ()))) for r in rounds for u in r.uploads]
    lost = {client for r in rounds for client, _ in r.lost}
    trained: dict[int, set[int]] = {}
    for client, rows in uploads:
        trained.setdefault(client, set()).update(rows)
    drawn = any(
        one.of == "record" and one.sampling for r in rounds for one in r.mechanism
    )  # may miss what a client has
    told = {c for c in trained if c not in lost and all(rows for client, rows in uploads if client == c)}
    all_told = set[int]() if drawn else told
    owners, nobodys, strangers = granted.owners.clone(), 0, 0
    for i, (x, y) in enumerate(zip(*granted.candidates)):
        called, row = int(owners[i]), place.get(_bytes_of(x, y))
        who = [c for c, rows in sorted(trained.items()) if row is not None and row in rows]
        if called < 0 and who:
            owners[i], nobodys = who[0], nobodys + 1
        elif called in all_told and called not in who:
            owners[i], strangers = who[0] if who else -1, strangers + 1
    if not nobodys + strangers:
        return granted, []
    said = f"{len(owners)} candidates belong to whom rec.candidates names"
    why = (
        f"{nobodys} that are called nobody's are among the records of uploads, and {strangers} are not among those of"
        " the client that is named; they count as the records say"
    )
    wrong = Declaration.model_validate({"what": "candidates", "said": said, "status": "defect", "why": why})
    return replace(granted, owners=owners), [wrong]


def _bytes_of(inputs: Tensor, target: Tensor) -> bytes:
    return bytes(inputs.numpy().tobytes() + target.numpy().tobytes())


def _write_knowledge(
    folder: Path, config: Config, given: _Given | None, granted: Granted, drawn_by_coins: bool
) -> None:
    items, public = [], Public(folder)
    if given is not None and given.targets.dtype == torch.long and given.targets.dim() == 1:
        labels = {i: sorted(given.targets[torch.tensor(rows)].tolist()) for i, rows in given.rows.items()}
        items += public.write_labels(labels, drawn_by_coins)
    if granted.auxiliary is not None:
        public.write("auxiliary", _pair(granted.auxiliary))
        words = f"{len(granted.auxiliary[0])} examples of the same kind that nobody trained on"
        items.append({"item": "auxiliary", "file": "auxiliary.safetensors", "words": words})
    if granted.candidates is not None and granted.owners is not None:
        public.write("candidates", _pair(granted.candidates))
        members = int((granted.owners >= 0).sum())
        words = f"{len(granted.owners)} records whose membership is asked for, {members} of them members"
        items.append(
            {"item": "candidates", "file": "candidates.safetensors", "words": f"{words}, without saying which"}
        )
    public.write("knowledge", {"items": items})


def _write_truth(folder: Path, given: _Given | None, granted: Granted, by_lot: bool) -> None:
    """Nothing of it without a record: then it is known that nothing can be scored."""
    shutil.rmtree(folder / "truth", ignore_errors=True)
    if given is None:
        return
    truth = folder / "truth"
    index = torch.arange(len(given.inputs))
    write_tensors(truth / "records.safetensors", {"inputs": given.inputs, "targets": given.targets, "rows": index})
    write_json(truth / "messages.json", given.rows)
    if granted.gallery is not None:
        write_tensors(truth / "gallery.safetensors", _pair(granted.gallery))
    if granted.pool is not None:
        write_tensors(truth / "pool.safetensors", _pair(granted.pool))
    if granted.owners is not None:
        write_json(truth / "membership.json", {"client": granted.owners.tolist(), "left_over": by_lot})


def _pair(pair: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    return {"inputs": pair[0], "targets": pair[1]}


# --- setup.json


def _manifest(
    begun: Begun,
    config: Config,
    rounds: Sequence[ClosedRound],
    clients: Sequence[int],
    description: Mapping[str, Any],
    status: str,
) -> dict[str, Any]:
    recording, network, layout = begun.recording, begun.recording.network, begun.layout
    data = _data(network, recording, description)
    content = config.model_dump(mode="json")
    stated = config.claim
    claim = None
    if stated is not None and stated.whose == "owner":
        claim = {
            "whose": "owner",
            "sentence": f"ε = {stated.epsilon:g} at δ = {stated.delta:g}",
            "observer": str(stated.observer),
            "unit": stated.unit,
            "adjacency": stated.adjacency,
            "delta": config.audit.delta,
        }
    parameters = config.parameters()
    made_with = versions()
    return {
        "format": FORMAT,
        "status": status,
        "name": config.name or "recorded",
        "seed": config.seed,
        "noise_key": "secret",  # declared: nobody here drew the noise
        "digest": digest_of_parts(content, data["description"], made_with),
        "rounds": len(rounds),
        "config": content,
        "scheme": {
            "name": "recorded",
            "title": "A training that was recorded; clip and noise are as its owner declares",
            "source": f"recorded by {recording.by}",
            "parameters": parameters.model_dump(mode="json"),
        },
        "clients": list(clients),
        "facts": _facts(recording, config),
        "claim": claim,
        "model": model_part(network.name, layout.dim, network.layers, network.frozen_numbers),
        "layout": {"names": list(layout.names), "shapes": [list(s) for s in layout.shapes]},
        "data": data,
        "engine": {"name": "recorded", "chunk_numbers": engines.CHUNK_NUMBERS},
        "recorded": {
            "by": recording.by,
            "network": network.known,
            "local": recording.local_known,
            "data": recording.data.input_shape is not None and recording.data.classes is not None,
            "loss": recording.loss is not None,
        },
        "versions": made_with,
    }


def _data(network: Network, recording: Recording, description: Mapping[str, Any]) -> dict[str, Any]:
    """What a record looks like."""
    data = recording.data
    shape = list(data.input_shape or (1,))
    mean = list(network.mean or data.mean or [0.0] * shape[0])
    std = list(network.std or data.std or [1.0] * shape[0])
    source = "none"
    if network.mean or data.mean:
        source = "config"
    test = "given by the owner"
    if data.by_lot:
        test = DEALT_BY_LOT
    described: dict[str, Any] = {"test": test, "statistics_of": source, **description}
    if data.read_as:
        described["read_as"] = "; ".join(data.read_as)
    if data.vocabulary is not None:
        mean, std = [], []
        described |= {**Vocabulary(data.vocabulary).as_facts(), "pad": data.pad}
    facts = {"name": data.name, "input_shape": shape, "classes": data.classes or 0}
    several = recording.minimised is not None and loss_of(recording.minimised).several
    targets = {"target_shape": list(data.target_shape or ()), "label_sets": several}
    return {**facts, **targets, "mean": mean, "std": std, "description": described}


def _facts(recording: Recording, config: Config) -> dict[str, Any]:
    """What everybody knows; of noise and clip what is declared of the first round."""
    first = next(iter(recording.mechanism), None)
    inside = first is not None and first.of == "record"
    order, noise, clip, multiplier = 2, 0.0, None, None
    said = "none: nothing bounds what is sent"
    if first is not None:
        order = first.order
    if first is not None and first.by == "client" and first.of == "client":
        clip, noise = float(first.clip), float(first.noise_std)
        norm = ""
        if first.order == 1:
            norm = ", L1"
        said = f"C = {clip:g} (the whole {recording.share}{norm}; client, zero_out)"
        if clip:
            multiplier = first.spread / clip
    elif inside:
        said = "bounded inside local training"
    local = config.local
    return {
        "share": recording.share,
        "optimiser": local.optimiser if recording.local_known else "unknown",
        "lr": local.lr,
        "batch_size": local.batch_size,
        "epochs": local.epochs_taken,
        "steps": local.steps,
        "clip_norm": clip,
        "clip_order": order,
        "per_layer": False,
        "noise_std": noise,
        "noise_multiplier": multiplier,
        "sensitivity": said,
        "share_clipped": None,
        "clipped_in_training": inside,
        "norm_before_clip_median": None,
        # A client that sends weights clips what it adds to them, so that only the direction of that is public.
        "extra": {"clip_unknown": True} if clip is not None and recording.share == "weights" else {},
    }


def as_given(data: DataFacts, pair: tuple[Tensor, Tensor], mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Inputs as they were before normalisation, from what an owner hands over."""
    inputs = pair[0]
    if not data.normalised:
        return inputs
    shape = (1, -1, *[1] * (inputs.dim() - 2))
    low = inputs.double() * torch.tensor(list(std), dtype=torch.float64).view(shape)
    whole = low + torch.tensor(list(mean), dtype=torch.float64).view(shape)
    if inputs.dim() == 4 and _nearly_pixels(whole):
        return whole.clamp(0, 1).float()
    return whole.float()


def _nearly_pixels(inputs: Tensor) -> bool:
    return bool(((inputs > -1e-4) & (inputs < 1 + 1e-4)).all())
