"""The rounds of a recording: one in memory while it goes on, the finished ones on disk, each whole or not there.

    SETUP/tensors/round-0000.safetensors        what was broadcast and uploaded
    SETUP/.work/records-0000.safetensors        what clients trained on, where it was told
    SETUP/.work/noise-0000.safetensors          what is left of messages without their raw values
    SETUP/.work/round-0000.json                 everything else; written last, with it the round is there

Raw values are compared with what was sent while they are in memory, and never written. Nor can they be computed from
what is: noise that is left over stands in an order, and with signs, that are drawn when a recorder starts and kept in
memory alone. The law of the noise does not hang on them, nor do correlations of messages with the same ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, fsum, prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from ...defenses.layout import Layout
from ...defenses.randomness import secret_seed
from ...defenses.wire import SERVER, opaque_id
from ..files import write_json, write_tensors
from ..setup.format import Declaration
from ..setup.key import PUBLISHED
from ..setup.public import Public
from ..setup.reading import plain_json, read_text
from ..setup.state import round_files
from .across import Energy
from .averaged import other_weights
from .copies import NoisesSeen
from .independence import MOST_SIGNS, strongest_repeat
from .mechanism import Declared, in_round, mechanism_of_plain
from .network import Network
from .noise_tests import (
    HEAVY,
    LAWS,
    Alike,
    LeftOver,
    Projection,
    Repeat,
    SentTensor,
    TensorPart,
    Weighed,
    length_of_sent,
)
from .outside import Outside, SentValue, outside, without
from .recording import Average, Recording
from .still import still_tensors
from .values import first_few

COORDINATES = 4096  # of a message, whose noise is looked at
SOME = 64  # of every tensor at least, as far as it has them and there are not too many tensors
ABSENT = 1e-3  # of the noise: what is left of a number without noise is less, and so is seldom that of one with noise
FINE_ENOUGH = 1e-4  # of the noise: the most that float32's steps may be for that
PREFIX = 256  # numbers at the beginning of a tensor, which a generator that is seeded anew would repeat
SAMPLE = 2**15  # coordinates that tell how uploads were averaged
BLOCK = 2**16  # numbers whose products are added in float32
COARSE = 0.02  # of the noise: where float32's steps are larger, rounding would be taken for noise


@dataclass(frozen=True, eq=False)
class SentUpload:
    """One client's upload. value: (d,). num_examples: its records. raw: (d,) before noise, None where nobody told.
    again: (d,) of the same round run a second time. records: inputs (n, *shape) and targets (n,), None untold.
    kept: whether its tensors go to disk.
    """

    value: Tensor
    num_examples: int
    kept: bool
    raw: Tensor | None = None
    again: Tensor | None = None
    records: tuple[Tensor, Tensor] | None = None


@dataclass(eq=False)
class OpenRound:
    """The round that goes on. lost: by client, why something that it sent is not in the recording. unnoised: by client,
    what it sent beside its upload. defects: known ones of what ran, as `Declaration` has them. secret: the recorder's,
    that shuffles what is left over. noisy_mean: (d,) as a server has it that makes the next model of it by an optimiser
    of its own. seen: the noises of the rounds before.
    """

    number: int
    broadcast: Tensor
    mechanism: tuple[Declared, ...]
    secret: int
    uploads: dict[int, SentUpload] = field(default_factory=dict)
    lost: list[tuple[int, str]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    defects: list[dict[str, str]] = field(default_factory=list)
    unnoised: list[tuple[int, str]] = field(default_factory=list)
    noisy_mean: Tensor | None = None
    seen: NoisesSeen = field(default_factory=NoisesSeen)


def recorded_id(recording: Recording, round: int, sender: int, kind: str, num_examples: int) -> str:
    """As a training by this tool with a published key names it: senders are no secret here.

    Args:
        recording: gives the seed. round, sender, kind, num_examples: of the message.
    """
    return opaque_id(secret_seed(recording.seed, PUBLISHED), "message", round, sender, kind, num_examples)


def write_round(
    folder: Path, recording: Recording, layout: Layout, round: OpenRound, next_model: Tensor | None = None
) -> None:
    """The round to disk, whole or not at all.

    Args:
        folder: the setup. recording: its facts. layout: of a vector.
        round: what was sent in it. next_model: what was broadcast after it, where anything was.
    """
    tensors: dict[str, Tensor] = {}
    broadcast = recorded_id(recording, round.number, SERVER, "weights", 0)
    sent = [(broadcast, round.broadcast)]
    uploads: list[dict[str, Any]] = []
    records: dict[str, Tensor] = {}
    for client, upload in sorted(round.uploads.items()):
        name = recorded_id(recording, round.number, client, recording.share, upload.num_examples)
        row = {"id": name, "client": client, "num_examples": upload.num_examples, "kept": upload.kept}
        uploads.append({**row, "records": upload.records is not None and upload.kept})
        if upload.kept:
            sent.append((name, upload.value))
            if upload.records is not None:
                records[f"{client}/inputs"], records[f"{client}/targets"] = upload.records
    for name, value in sent:
        tensors |= {f"{name}/{key}": part for key, part in layout.split(value).items()}
    work = folder / ".work"
    Public(folder).write("tensors", tensors, round.number)
    if records:
        write_tensors(work / f"records-{round.number:04d}.safetensors", records)
    places = Places.of(layout, recording.network)
    measured = MeasuredRound.of(recording, places, round, next_model)
    if measured.residuals:
        rows = np.stack([places.shuffled(residual.values, round.secret) for residual in measured.residuals])
        write_tensors(work / f"noise-{round.number:04d}.safetensors", {"noise": torch.from_numpy(rows)})
    write_json(
        work / f"round-{round.number:04d}.json",
        {
            "round": round.number,
            "broadcast": broadcast,
            "mechanism": [one.plain() for one in round.mechanism],
            "uploads": uploads,
            "lost": [{"client": client, "why": why} for client, why in round.lost],
            "unnoised": [{"client": client, "what": what} for client, what in round.unnoised],
            "figures": round.figures,
            "defects": round.defects,
            "session": session_of(round.secret),
            "residuals": [
                {
                    "name": residual.name,
                    "exact": residual.exact,
                    "law": residual.law,
                    "parts": [vars(part) for part in residual.parts],
                    "alike": [vars(pair) for pair in residual.alike],
                    "beside": residual.beside,
                    "repeat": None if residual.repeat is None else vars(residual.repeat),
                }
                for residual in measured.residuals
            ],
            "weighed": [vars(weighed) for weighed in measured.weighed],
            "projections": [vars(projection) for projection in measured.projections],
            "lengths": measured.lengths,
            "tensors": [vars(tensor) for tensor in measured.tensors],
            "harmless": measured.harmless,
            "moved": measured.moved,
            "noisy_mean": round.noisy_mean is not None,
            "copies": measured.copies,
            "weights": measured.weights,
            "energies": [vars(energy) for energy in measured.energies],
            "still": still_tensors(recording.network, places.spans, _uploads(recording, round)),
        },
    )


def session_of(secret: int) -> str:
    """Names a recorder's shuffle, and tells nothing of it."""
    return hashlib.sha256(f"dpfl-audit session {secret}".encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class ClosedRound:
    """A round as it is on disk."""

    number: int
    broadcast: str
    mechanism: tuple[Declared, ...]
    uploads: tuple[Mapping[str, Any], ...]
    lost: tuple[tuple[int, str], ...]
    figures: Mapping[str, float]
    residuals: tuple[LeftOver, ...]
    projections: tuple[Projection, ...]
    lengths: tuple[str, ...]
    defects: tuple[Declaration, ...] = ()
    weighed: tuple[Weighed, ...] = ()
    session: str = ""
    tensors: tuple[SentTensor, ...] = ()
    harmless: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    noisy_mean: bool = False
    unnoised: tuple[tuple[int, str], ...] = ()
    energies: tuple[Energy, ...] = ()
    copies: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    weights: str = ""

    @property
    def clients(self) -> tuple[int, ...]:
        return tuple(upload["client"] for upload in self.uploads)


def read_rounds(folder: Path) -> list[ClosedRound]:
    """The finished rounds of an unfinished recording."""
    rounds = []
    for path in round_files(folder / ".work"):
        content = plain_json(read_text(path))
        noise = folder / ".work" / f"noise-{content['round']:04d}.safetensors"
        rows = [*load_file(noise)["noise"].numpy()] if content["residuals"] else []
        rounds.append(
            ClosedRound(
                content["round"],
                content["broadcast"],
                tuple(mechanism_of_plain(one) for one in content["mechanism"]),
                tuple(content["uploads"]),
                tuple((row["client"], row["why"]) for row in content["lost"]),
                content["figures"],
                tuple(_left_over(row, facts, content["session"]) for row, facts in zip(rows, content["residuals"])),
                tuple(Projection(**row) for row in content["projections"]),
                tuple(content["lengths"]),
                tuple(Declaration.model_validate(row) for row in content["defects"]),
                tuple(Weighed(**row) for row in content["weighed"]),
                content["session"],
                tuple(SentTensor(**row) for row in content["tensors"]),
                tuple(content["harmless"]),
                tuple(content["moved"]),
                content["noisy_mean"],
                tuple((row["client"], row["what"]) for row in content["unnoised"]),
                tuple(Energy(**row) for row in content["energies"]),
                tuple(content["copies"]),
                tuple(content["still"]),
                content.get("weights", ""),
            )
        )
    return rounds


def _left_over(row: np.ndarray, facts: Mapping[str, Any], session: str) -> LeftOver:
    parts = tuple(TensorPart(**part) for part in facts["parts"])
    alike = tuple(Alike(**pair) for pair in facts["alike"])
    repeat = None if facts["repeat"] is None else Repeat(**facts["repeat"])
    return LeftOver(row, facts["name"], facts["exact"], session, facts["law"], parts, alike, facts["beside"], repeat)


def records_of(folder: Path, round: int) -> dict[int, tuple[Tensor, Tensor]]:
    """What clients trained on in a round, by client, as far as it was told."""
    path = folder / ".work" / f"records-{round:04d}.safetensors"
    if not path.exists():
        return {}
    held = load_file(path)
    clients = sorted({int(name.partition("/")[0]) for name in held})
    return {c: (held[f"{c}/inputs"], held[f"{c}/targets"]) for c in clients}


# --- what raw values, second runs and lengths tell


@dataclass(frozen=True, eq=False)
class Places:
    """Where the noise of a message is looked at: the same coordinates of every message, some of every tensor.

    index: (m,), tensor by tensor. counts: how many of each tensor. spans: of each its owner's name for it, its first
    number and its end in the message. outside: names of those that are not looked at.
    """

    index: Tensor
    counts: tuple[int, ...]
    spans: tuple[tuple[str, int, int], ...]
    outside: frozenset[str] = frozenset()

    @property
    def inside(self) -> list[tuple[str, int, int]]:
        return [span for span in self.spans if span[0] not in self.outside]

    @property
    def numbers(self) -> int:
        return sum(end - first for _, first, end in self.inside)

    @classmethod
    def of(cls, layout: Layout, network: Network) -> Places:
        ends = np.cumsum([prod(shape) for shape in layout.shapes]).tolist()
        owners = {network.called(name): name for name in network.state}
        spans = [(owners[name], end - prod(shape), end) for name, shape, end in zip(layout.names, layout.shapes, ends)]
        spans = [span for span in spans if span[2] > span[1]]
        some = max(8, min(SOME, COORDINATES // max(1, len(spans))))
        index, counts = [], []
        for _, first, end in spans:
            share = ceil(COORDINATES * (end - first) / max(1, ends[-1]))
            count = min(end - first, max(some, share))
            index.append(first + torch.linspace(0, end - first - 1, count, dtype=torch.float64).long().unique())
            counts.append(len(index[-1]))
        return cls(torch.cat(index), tuple(counts), tuple(spans))

    def sample(self, left_out: Collection[str]) -> Tensor:
        """Coordinates of a message, evenly spread, at most `SAMPLE`; none of the tensors that are left out."""
        end = self.spans[-1][2]
        places = torch.linspace(0, end - 1, min(end, SAMPLE), dtype=torch.float64).round().long()
        inside = torch.ones(len(places), dtype=torch.bool)
        for name, first, last in self.spans:
            if name in left_out:
                inside &= (places < first) | (places >= last)
        return places[inside]

    def shuffled(self, values: np.ndarray, secret: int) -> np.ndarray:
        """Values (m,) of `index`, in another order within each tensor, with signs that are drawn."""
        rng = np.random.default_rng(secret)
        starts = np.cumsum([0, *self.counts[:-1]])
        order = np.concatenate([start + rng.permutation(count) for start, count in zip(starts, self.counts)])
        return values[order] * rng.choice((-1.0, 1.0), len(values))

    def left_over(
        self, left: Tensor, noise_std: float, sent: Tensor, name: str, *, exact: bool = True, law: str = "gaussian"
    ) -> LeftOver:
        """What is to be tested of the noise of a message.

        Args:
            left: (d,), the noise as it is left over. noise_std: as declared. sent: (d,), what float32 rounded.
            name, exact, law: as of `LeftOver`.
        """
        silent = (left.abs() < ABSENT * noise_std) & (sent.abs() * 2.0**-23 <= FINE_ENOUGH * noise_std)
        seldom = float(LAWS[law](np.float64(ABSENT)) - LAWS[law](np.float64(-ABSENT)))
        parts = tuple(
            TensorPart(tensor, count, 0, 0, 0.0)
            if tensor in self.outside
            else TensorPart(tensor, count, end - first, int(silent[first:end].sum()), seldom * (end - first))
            for (tensor, first, end), count in zip(self.spans, self.counts)
        )
        values = self._looked_at(left, noise_std, sent)
        alike, repeat = self._alike(left, noise_std, sent), self._repeat(left, noise_std, sent)
        return LeftOver(values, name, exact, law=law, parts=parts, alike=alike, repeat=repeat)

    def noise(self, left: Tensor, noise_std: float, sent: Tensor) -> np.ndarray:
        """In the message's order, from its beginning, as many as `NoisesSeen` takes. Arguments as of `left_over`."""
        parts, more = [np.empty(0)], MOST_SIGNS
        for _, first, end in self.inside:
            part = slice(first, min(end, first + more))
            parts.append(_fine(left[part], noise_std, sent[part]))
            more -= len(parts[-1])
        return np.concatenate(parts)

    def energy(self, left: Tensor, noise_std: float, sent: Tensor, bound: float, name: str) -> Energy:
        """Of all that is left over of Gaussian noise.

        Args:
            left, noise_std, sent, name: as of `left_over`. bound: of the value beside it, in parameter units.
        """
        coarse = sent.abs() * 2.0**-23 > COARSE * noise_std
        fine = left.masked_fill(coarse, 0.0)
        numbers = sum(end - first - int(coarse[first:end].sum()) for _, first, end in self.inside)
        return Energy(_dot(fine, fine) / noise_std**2, numbers, bound / noise_std, name)

    def as_sent(self, value: Tensor, noise: Declared, sent: Tensor, name: str) -> LeftOver:
        """A message whose raw value nobody told: its noise, and a value that a clip bounds (of L1 the L2 norm too).

        Args:
            value: (d,), what it adds to the model. noise: as declared. sent: (d,), what float32 rounded. name: its.
        """
        values = self._looked_at(value, noise.noise_std, sent)
        return LeftOver(values, name, exact=False, law=noise.law, beside=noise.clip / noise.noise_std)

    def _looked_at(self, left: Tensor, noise_std: float, sent: Tensor) -> np.ndarray:
        """Of `index`, in standard deviations; NaN where nothing is looked at."""
        values = _fine(left[self.index], noise_std, sent[self.index])
        values[np.repeat([name in self.outside for name, _, _ in self.spans], self.counts)] = np.nan
        return values

    def lengths(self, value: Tensor, noise: Declared, sent: Tensor, name: str) -> list[SentTensor]:
        """The tensors of the same, but those for which float32 is too coarse. Arguments as of `as_sent`."""
        made = []
        for tensor, first, end in self.inside:
            if float(sent[first:end].abs().max()) * 2.0**-23 <= COARSE * noise.noise_std:
                length = _length(value[first:end], noise.order) / noise.spread
                size = length if noise.law == "laplace" else length**2 / 2
                made.append(SentTensor(tensor, end - first, size, noise.law, name, noise.clip / noise.spread))
        return made

    def _alike(self, left: Tensor, noise_std: float, sent: Tensor) -> tuple[Alike, ...]:
        """Each tensor beside the next larger one, number by number from the beginning."""
        pairs, by_size = [], sorted(self.inside, key=lambda span: span[1] - span[2])
        for (one, first, end), (other, start, stop) in zip(by_size, by_size[1:]):
            count = min(end - first, stop - start, PREFIX)
            here, there = slice(first, first + count), slice(start, start + count)
            a, b = (_fine(left[part], noise_std, sent[part]) for part in (here, there))
            known = np.isfinite(a) & np.isfinite(b)
            pairs.append(Alike(one, other, int((known & (a * b > 0)).sum()), int(known.sum())))
        return tuple(pairs)

    def _repeat(self, left: Tensor, noise_std: float, sent: Tensor) -> Repeat | None:
        """Of as many numbers of every tensor, from its beginning, as can be looked at: all of the small ones."""
        parts, left_of = [], MOST_SIGNS
        for i, (_, first, end) in enumerate(sorted(self.inside, key=lambda span: span[2] - span[1])):
            count = min(end - first, left_of // (len(self.inside) - i))
            parts.append(slice(first, first + count))
            left_of -= count
        parts.sort(key=lambda part: part.start)
        known = [_fine(left[part], noise_std, sent[part]) for part in parts]
        if known:
            return strongest_repeat(np.concatenate(known))
        return None


@dataclass(frozen=True, eq=False)
class MeasuredRound:
    """What a round tells of its first mechanism. lengths: what is wrong with the length of a message, in sentences.
    tensors: of messages of which nothing but what was sent is known. harmless, moved: as of `Outside`.
    copies: which noise is that of an earlier message, in sentences. weights: that uploads were averaged otherwise.
    """

    residuals: tuple[LeftOver, ...] = ()
    projections: tuple[Projection, ...] = ()
    lengths: tuple[str, ...] = ()
    weighed: tuple[Weighed, ...] = ()
    tensors: tuple[SentTensor, ...] = ()
    harmless: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    energies: tuple[Energy, ...] = ()
    copies: tuple[str, ...] = ()
    weights: str = ""

    @classmethod
    def of(cls, recording: Recording, places: Places, round: OpenRound, next_model: Tensor | None) -> MeasuredRound:
        if not round.mechanism:
            return cls()
        noise = in_round(round.mechanism[0], round.number)
        if noise is None:
            return cls()
        if noise.by == "server":
            return _of_server(recording, places, round, noise, next_model)
        measured = {"record": _of_records, "client": _of_clients}[noise.of](recording, places, round, noise)
        uncounted = {*measured.harmless, *measured.moved}  # no steps along gradients
        return replace(measured, weights=_weights(recording, places.sample(uncounted), round, next_model))


def _weights(recording: Recording, index: Tensor, round: OpenRound, next_model: Tensor | None) -> str:
    """What `other_weights` says of the round's numbers at `index`."""
    if next_model is None or round.lost or recording.average not in ("records", "mean"):
        return ""
    changes = {one.client: one.change(index) for one in _uploads(recording, round)}
    counts = {client: upload.num_examples for client, upload in round.uploads.items()}
    step = next_model[index] - round.broadcast[index]
    return other_weights(step, changes, weights_of(recording.average, counts))


def _uploads(recording: Recording, round: OpenRound) -> list[SentValue]:
    start = None
    if recording.share == "weights":
        start = round.broadcast
    return [
        SentValue(client, upload.value, start, upload.raw, upload.num_examples)
        for client, upload in sorted(round.uploads.items())
    ]


def _of_records(recording: Recording, places: Places, round: OpenRound, noise: Declared) -> MeasuredRound:
    """Noise on gradients is on all that they step on, and on nothing else."""
    found = outside(recording.network, places.spans, _uploads(recording, round), noise.noise_std)
    wrong = [found.wrong] if found.wrong else []
    if found.moved:
        wrong.append(f"{named(found.moved)} are no steps along gradients, so that no noise is on them")
    return MeasuredRound(lengths=tuple(wrong), harmless=found.harmless, moved=found.moved)


def named(tensors: Sequence[str]) -> str:
    """Running statistics, for a sentence."""
    return f"the running statistics {first_few([*map(repr, tensors)], 3)}"


def _of_clients(recording: Recording, places: Places, round: OpenRound, noise: Declared) -> MeasuredRound:
    residuals, projections, lengths, tensors, energies = [], [], list[str](), list[SentTensor](), list[Energy]()
    copies = list[str]()
    sent = _uploads(recording, round)
    found = outside(recording.network, places.spans, sent, noise.noise_std)
    places = replace(places, outside=found.names)
    if found.wrong:
        lengths.append(found.wrong)
    if found.plain:
        lengths.append(f"{named(found.plain)} are sent without noise")
    for one in sent:
        client, upload = one.client, round.uploads[one.client]
        name = f"client {client} in round {round.number}"
        value = without(one.change(), places.spans, found.names)
        told = length_of_sent(_length(value, noise.order), places.numbers, noise.clip, noise.spread, name, noise.law)
        lengths += [] if told is None else [told.why]
        bare = one.bare()
        if bare is not None:
            raw = without(bare, places.spans, found.names)
            length, straight = _length(raw, noise.order), _length(raw)
            left = torch.sub(value, raw, alpha=shortened(length, noise.clip))
            residuals.append(places.left_over(left, noise.noise_std, upload.value, name, law=noise.law))
            copies.append(round.seen.copied(places.noise(left, noise.noise_std, upload.value), name))
            if noise.law == "gaussian":
                energies.append(places.energy(left, noise.noise_std, upload.value, noise.clip, name))
            bound, along = noise.clip, 0.0  # what clips leave of it, straight
            if length > 0:
                bound, along = noise.clip * straight / length, _dot(value, raw) / straight
            spread = noise.noise_std / bound * (HEAVY if noise.law == "laplace" else 1.0)
            projections.append(Projection(length / noise.clip, along / bound, spread, name, noise.law))
        elif upload.again is not None:
            left = (upload.value - upload.again) / 2**0.5
            law = "two laplaces" if noise.law == "laplace" else noise.law
            residuals.append(places.left_over(left, noise.noise_std, upload.value, name, exact=False, law=law))
        else:
            residuals.append(places.as_sent(value, noise, upload.value, name))
            tensors += places.lengths(value, noise, upload.value, name)
    return MeasuredRound(
        tuple(residuals),
        tuple(projections),
        tuple(lengths),
        tensors=tuple(tensors),
        harmless=found.harmless,
        moved=found.moved,
        energies=tuple(energies),
        copies=tuple(filter(None, copies)),
    )


def _of_server(
    recording: Recording, places: Places, round: OpenRound, noise: Declared, next_model: Tensor | None
) -> MeasuredRound:
    """The server's noise is what the noisy mean, or else the next model, has beside the mean of the clipped updates."""
    unknown = recording.share == "gradient" or recording.average == "unknown"
    expected = recording.average == "expected"
    told = next_model if round.noisy_mean is None else round.noisy_mean
    if told is None or round.lost or unknown or not (round.uploads or expected):
        return MeasuredRound()
    counts = {client: upload.num_examples for client, upload in round.uploads.items()}
    weights = weights_of(recording.average, counts, round.mechanism)
    sent, moved = _uploads(recording, round), told.double()
    if round.noisy_mean is None:
        moved = moved - round.broadcast.double()
    found = _outside_of_model(recording, places, round, noise, sent, moved, weights)
    places = replace(places, outside=found.names)
    mean = torch.zeros_like(moved)
    beyond = torch.zeros_like(moved)  # what a clip takes away; along it nothing of it may be left
    kept: dict[int, float] = {}
    for one in sent:
        client, change = one.client, without(one.change(), places.spans, found.names).double()
        kept[client] = shortened(_length(change, noise.order), noise.clip)
        mean += weights[client] * kept[client] * change
        beyond += weights[client] * (1 - kept[client]) * change
    left = without(moved, places.spans, found.names) - mean
    name, std = f"the server in round {round.number}", noise.noise_std
    if noise.on == "sum":
        std /= _expected(round.mechanism) if expected else len(round.uploads)
    residual = places.left_over(left, std, told, name, law=noise.law)
    gaussian = noise.law == "gaussian"  # else its sum along a direction has no law that is known here
    weighed = [_weighed(-1, left, mean, std, name)] if gaussian else []
    for one in sent:
        client = one.client
        if gaussian and (weights[client] < 1 or expected):
            own = weights[client] * kept[client] * without(one.change(), places.spans, found.names).double()
            others = 0.0 if expected else weights[client] / (1 - weights[client])  # of a mean all others weigh less
            more = own - others * (mean - own)  # what twice its weight would add
            weighed.append(_weighed(client, left, more, std, name))
    wrong = [found.wrong] if found.wrong else []
    if found.plain:
        wrong.append(f"{named(found.plain)} of the next model are the mean, without noise")
    most, taken = noise.clip * max(weights.values(), default=0.0), _length(beyond)
    measured = MeasuredRound(
        (residual,),
        lengths=tuple(wrong),
        weighed=tuple(weighed),
        harmless=found.harmless,
        moved=found.moved,
        energies=(places.energy(left, std, told, most, name),) if gaussian else (),
        copies=tuple(filter(None, [round.seen.copied(places.noise(left, std, told), name)])),
    )
    if taken <= 1e-6 * _length(mean) or noise.order != 2:
        return measured
    along = float(torch.dot(left, beyond)) / taken
    return replace(measured, projections=(Projection(1 + taken / most, 1 + along / most, std / most, name),))


def _outside_of_model(
    recording: Recording,
    places: Places,
    round: OpenRound,
    noise: Declared,
    sent: Sequence[SentValue],
    moved: Tensor,
    weights: Mapping[int, float],
) -> Outside:
    """Of the next model, which goes on by `moved`. Counters that differ tell who was drawn in secret."""
    if not recording.network.untrained and not recording.network.twins:
        return Outside()
    bare = torch.zeros_like(moved)
    for one in sent:
        bare += weights[one.client] * one.change().double()
    found = outside(recording.network, places.spans, [SentValue(SERVER, moved, None, bare, 1)], noise.noise_std)
    wrong = outside(recording.network, places.spans, sent, noise.noise_std).wrong
    if noise.sampling is not None:
        for name, first, end in places.spans:
            counted = {float(one.change(slice(first, end))) for one in sent if end == first + 1}
            if name in found.harmless and counted - {float(moved[first])}:
                wrong = wrong or f"{name!r} of the next model tells who took part"
    return replace(found, wrong=wrong)


def _weighed(client: int, left: Tensor, more: Tensor, noise_std: float, name: str) -> Weighed:
    length = _length(more)
    along = 0.0
    if length > 0:
        along = float(torch.dot(left, more)) / length
    return Weighed(client, along / noise_std, length / noise_std, name)


def weights_of(average: Average, counts: Mapping[int, int], mechanism: Sequence[Declared] = ()) -> dict[int, float]:
    """How much of each client goes into the mean. counts: their records. mechanism: of the round."""
    if average == "expected" and (expected := _expected(mechanism)):
        return dict.fromkeys(counts, 1 / expected)
    if average == "records":
        total = sum(counts.values())
        return {c: n / total for c, n in counts.items()}
    return {c: 1 / len(counts) for c in counts}


def _expected(mechanism: Sequence[Declared]) -> float:
    if not mechanism or mechanism[0].sampling is None:
        return 0.0
    return mechanism[0].sampling.cohort


def shortened(length: float, norm: float) -> float:
    """The factor of a clip to `norm` on a value of that length.

    >>> shortened(4.0, 1.0), shortened(0.0, 1.0)
    (0.25, 1.0)
    """
    if length > 0:
        return min(1.0, norm / length)
    return 1.0


def _length(value: Tensor, order: int = 2) -> float:
    if order == 1:
        return float(value.abs().sum(dtype=torch.float64))
    return sqrt(_dot(value, value))


def _dot(first: Tensor, second: Tensor) -> float:
    """Σ of the products, in float32 within a block and in float64 over blocks: a ten-millionth off, at an eighth of the
    time that float64 copies of both take.
    """
    one, other = first.numpy(), second.numpy()
    blocks = (slice(start, start + BLOCK) for start in range(0, len(one), BLOCK))
    return fsum(float(np.dot(one[block], other[block])) for block in blocks)


def _fine(left: Tensor, noise_std: float, sent: Tensor) -> np.ndarray:
    """What is left, in standard deviations; NaN where float32's steps at what was sent are coarse beside the noise."""
    values = left.double() / noise_std
    values[sent.abs().double() * 2.0**-23 > COARSE * noise_std] = float("nan")
    return values.numpy()
