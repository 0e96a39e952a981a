"""The auditor's half of a trained setup: the truth that evidence is scored by, and the ledger that ε is priced from.

It leads to the attacker's half (`folder.Setup`); nothing leads back. Evidence is made from a `Setup` alone, so it
cannot depend on what is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ...defenses.data.dataset import OWN_TABLE
from ...defenses.progress import Progress
from ...defenses.releases import Release
from ...defenses.wire import SERVER
from ..errors import BadInput, bad_input
from ..files import digest_of_file
from .description import mean_of, values_of
from .folder import Setup, check_seal, open_setup
from .format import (
    DECLARED,
    DRAWN_LABELS,
    SEAL,
    SOURCE,
    Declaration,
    Declarations,
    FactsPart,
    Labels,
    ModelRow,
    Parties,
    ReleaseRow,
    Seal,
    SourcePart,
)
from .key import FILE as KEY_FILE
from .key import PUBLISHED, drawn_with, read_key
from .ledger import Ledger, LedgerMessage, ModelVersion, release_of
from .reading import (
    open_tensors,
    present,
    read_checked,
    read_figures,
    read_json,
    read_records,
    read_rows,
    read_tensor,
    regular,
)


@dataclass(frozen=True, eq=False)
class Truth:
    """What the captured uploads were made of.

    Args:
        inputs: (n, *shape), the records of the audited clients.
        targets: (n,).
        messages: rows of the records by message id.
        gallery_inputs: (m, *shape), examples nobody trained on, among which a re-identified one must stand out.
        gallery_targets: (m,).
        pool_inputs: (p, *shape), images that might as well have been dealt in the place of the records; none where the
            clients' were not drawn by lot, or nothing was left.
        pool_targets: (p,).
        candidate_owners: (k,), the client that trained on each membership candidate, −1 for nobody; None without
            candidates.
        candidate_holders: (k,), who holds each candidate, where a lot dealt every holder's rows to the splits; else
            None, as the two below.
        holders: (n,), who holds each of the records. gallery_holders: (m,), each of the gallery.
        outsiders_left_over: the others were left over when the clients' records were dealt by lot, and served for
            nothing else.
    """

    inputs: Tensor
    targets: Tensor
    messages: Mapping[str, tuple[int, ...]]
    gallery_inputs: Tensor
    gallery_targets: Tensor
    pool_inputs: Tensor
    pool_targets: Tensor
    candidate_owners: Tensor | None = None
    outsiders_left_over: bool = False
    candidate_holders: Tensor | None = None
    holders: Tensor | None = None
    gallery_holders: Tensor | None = None

    @property
    def by_holder(self) -> tuple[Tensor, Tensor] | None:
        """Who holds the records and who the gallery, where both are known."""
        if self.holders is None or self.gallery_holders is None:
            return None
        return self.holders, self.gallery_holders


@dataclass(frozen=True, eq=False)
class Auditor:
    """truth/ and auditor/ of a setup, read and checked when they are asked for. Reading raises BadInput.

    allow_model: the user's word for a model outside the zoo, where the training is built again.
    """

    setup: Setup
    allow_model: str | None = None

    @classmethod
    def open(cls, setup: Setup) -> Auditor:
        """Both read and checked now. Raises BadInput."""
        auditor = cls(setup)
        _ = auditor.truth, auditor.ledger, auditor.rounds, auditor.declared
        return auditor

    def having_truth(self, truth: Truth) -> Auditor:
        """With the same truth put otherwise."""
        other = replace(self)
        other.__dict__["truth"] = truth  # where the cached property looks first
        return other

    @property
    def _shared(self) -> bool:
        """Whether auditor/ is there."""
        folder = self.setup.folder / "auditor"
        return present(folder) and not (folder.is_dir() and not any(folder.iterdir()))

    @cached_property
    def _sealed(self) -> Mapping[str, str]:
        """SHA-256 by path of knowledge/, and of truth/ and auditor/ as auditor/seal.json has them; nobody knows these
        without it.
        """
        setup = self.setup
        if not self._shared:
            return setup.manifest.files
        seal = read_checked(Seal, setup.folder, setup.folder / SEAL).root
        setup.check_seal(SEAL)
        return {**setup.manifest.files, **seal}

    @cached_property
    def edited_digests(self) -> dict[str, str | None]:
        """SHA-256 of the files of knowledge/ and truth/ that are not as they were written, None for one that is gone:
        an owner may change what is assumed, but not without a word.
        """
        folder, sealed = self.setup.folder, self._sealed
        names = [n for n in sealed if n.startswith(("knowledge/", "truth/")) and present(folder / n.partition("/")[0])]
        held = {n: digest_of_file(regular(folder / n, folder)) if present(folder / n) else None for n in names}
        return {name: digest for name, digest in held.items() if digest != sealed[name]}

    @property
    def edited(self) -> list[str]:
        """The names of these files."""
        return list(self.edited_digests)

    @cached_property
    def drawn_labels(self) -> dict[str, Tensor]:
        """The labels of the records that secret batches took, by message: what an attack may be granted on top."""
        if self.ledger is None or not present(self.setup.folder / DRAWN_LABELS):
            return {}
        check_seal(self.setup.folder, self._sealed, [DRAWN_LABELS])
        return self.setup.labels(self.setup.folder / DRAWN_LABELS)

    @cached_property
    def declared(self) -> tuple[Declaration, ...]:
        """What the owner of a recorded training states of it, and whether that fits what was recorded; () for one that
        was trained here.
        """
        folder = self.setup.folder
        if self.setup.manifest.recorded is None or self.ledger is None:
            return ()
        found = read_checked(Declarations, folder, folder / DECLARED).root
        check_seal(folder, self._sealed, [DECLARED])
        return tuple(found)

    @cached_property
    def source(self) -> SourcePart:
        """Where the training was started, and with whose rows."""
        folder = self.setup.folder
        if not present(folder / SOURCE):
            return SourcePart()
        check_seal(folder, self._sealed, [SOURCE])
        return read_checked(SourcePart, folder, folder / SOURCE)

    @cached_property
    def truth(self) -> Truth | None:
        """What the captured uploads were made of, for scoring only; None where the owner does not share it."""
        folder = self.setup.folder / "truth"
        if not present(folder) or (folder.is_dir() and not any(folder.iterdir())):
            return None
        records = self._records(regular(folder / "records.safetensors", self.setup.folder))
        assert records is not None
        path = folder / "messages.json"
        places = read_checked(Labels, self.setup.folder, path).root
        known = {m.id for m in self.setup.messages}
        for key, rows in places.items():
            if key not in known or not rows or not all(r < len(records[0]) for r in rows):
                raise BadInput(
                    f"{path}: message {key!r} is not in messages.jsonl, or names records outside 0 to"
                    f" {len(records[0]) - 1}"
                )
        gallery = self._records(folder / "gallery.safetensors") or (records[0][:0], records[1][:0])
        if len(gallery[0]) != (
            expected := min(
                self.setup.config.capture.auxiliary,
                self.setup.manifest.data.description.get("sizes", {}).get("test", 0),
            )
        ):
            raise BadInput(
                f"{folder / 'gallery.safetensors'}: {len(gallery[0])} records; its config and data say {expected}"
            )
        pool = self._records(folder / "pool.safetensors") or (records[0][:0], records[1][:0])
        owners, left_over, holders = self._owners(folder / "membership.json")
        messages = {k: tuple(v) for k, v in places.items()}
        of_records = self._holders(folder / "records.safetensors", len(records[0]))
        of_gallery = self._holders(folder / "gallery.safetensors", len(gallery[0]))
        return Truth(*records, messages, *gallery, *pool, owners, left_over, holders, of_records, of_gallery)

    def _holders(self, path: Path, count: int) -> Tensor | None:
        """Who holds each of a file's records, where it says so."""
        if not present(path):
            return None
        with open_tensors(self.setup.folder, path) as file:
            if "holders" not in file.keys():  # noqa: SIM118
                return None
        held = read_tensor(self.setup.folder, path, "holders", ())
        if held.dtype != torch.long or len(held) != count:
            raise BadInput(f"{path}: tensor 'holders' must hold a number in torch.int64 for each of {count} records")
        return held

    def _records(self, path: Path) -> tuple[Tensor, Tensor] | None:
        return read_records(self.setup.folder, path, self.setup.manifest.data)

    def _owners(self, path: Path) -> tuple[Tensor | None, bool, Tensor | None]:
        """Who trained on each membership candidate; whether the others were left over by lot; who holds each."""
        if not present(path):
            return None, False, None
        content = read_json(self.setup.folder, path)
        owners = None
        if isinstance(content, dict):
            owners = content.get("client")
        count = len(self.setup.knowledge().candidate_ids)
        if (
            not isinstance(owners, list)
            or len(owners) != count
            or not all(type(c) is int and -1 <= c < len(self.setup.manifest.clients) for c in owners)
        ):
            raise BadInput(
                f"{path}: client must list, for every one of {count} candidates, the number of the client that trained"
                " on it, or -1 for nobody"
            )
        holders = content.get("holder")
        if holders is not None and (len(holders) != count or not all(type(holder) is int for holder in holders)):
            raise BadInput(f"{path}: holder must list a number for each of {count} candidates")
        held = None if holders is None else torch.tensor(holders, dtype=torch.long)
        return torch.tensor(owners, dtype=torch.long), content.get("left_over") is True, held

    @cached_property
    def ledger(self) -> Ledger | None:
        """The auditor's key: true parties and releases; None where auditor/ was removed."""
        folder = self.setup.folder / "auditor"
        if not self._shared:
            return None
        releases = self._releases(folder / "releases.jsonl")
        models = self._models(folder / "models.jsonl", releases)
        messages, observers = self._parties(folder / "parties.json", releases, models)
        names = ["releases.jsonl", "models.jsonl", "parties.json"]  # every number in them decides the proven ε
        if present(folder / "noise-key"):  # which its owner may keep back
            names.append("noise-key")
        check_seal(self.setup.folder, self._sealed, (f"auditor/{name}" for name in names))
        ledger = Ledger(releases, messages, models, observers, len(self._clients))
        recorded = self.setup.manifest.recorded is not None
        columns_known = self.setup.manifest.data.name == OWN_TABLE
        return replace(ledger, declared=recorded, published_key=not self.key_is_secret, columns_known=columns_known)

    @cached_property
    def rounds(self) -> list[dict[str, float]]:
        """What training measured, one row a finished round: rounds.csv, and auditor/figures.csv unless auditor/ was
        removed.
        """
        setup = self.setup
        if self.ledger is None:
            return setup.rounds
        figures = read_figures(setup.folder, setup.folder / "auditor" / "figures.csv", setup.manifest.rounds)
        check_seal(setup.folder, self._sealed, ["auditor/figures.csv"])
        return [{**public, **private} for public, private in zip(setup.rounds, figures, strict=True)]

    def check_seal(self) -> None:
        """That no file of auditor/ is missing or changed, but for a key that its owner keeps back. Raises BadInput."""
        names = (name for name in self._sealed if name.startswith("auditor/") and name != SEAL)
        if self._shared:
            folder = self.setup.folder
            check_seal(folder, self._sealed, [n for n in names if n != KEY_FILE or present(folder / n)])

    @property
    def facts(self) -> FactsPart:
        """The public facts, and what the auditor's figures show of clip and noise."""
        facts, rounds = self.setup.manifest.facts, self.rounds
        norms = sorted(row["norm_before_clip"] for row in rounds if "norm_before_clip" in row)
        measured: dict[str, float | None] = {
            "share_clipped": mean_of(rounds, "share_clipped"),
            "norm_before_clip_median": norms[len(norms) // 2] if norms else None,
        }
        if facts.extra.noise_unknown and (noise := mean_of(rounds, "noise_std")) is not None:
            measured["noise_std"] = noise
            if facts.clip_norm:
                measured["noise_multiplier"] = noise / facts.clip_norm
            else:
                measured["noise_multiplier"] = None
        return facts.model_copy(update=measured)

    @property
    def key(self) -> str:
        """What noise and secret cohorts were drawn with. The published key, which draws other ones, where it is kept
        back.
        """
        path = self.setup.folder / KEY_FILE
        if present(path):
            return read_key(path, self.setup.folder)
        return PUBLISHED

    @property
    def knows_key(self) -> bool:
        """Whether `streams` are those of the training."""
        return present(self.setup.folder / KEY_FILE) or self.setup.manifest.noise_key != "secret"

    @property
    def key_is_secret(self) -> bool:
        """Whether setup.json says so, and the key that is kept beside it is not the published one after all."""
        kept = present(self.setup.folder / KEY_FILE)
        return self.setup.manifest.noise_key == "secret" and not (kept and self.key == PUBLISHED)

    @property
    def streams(self) -> str:
        """What the training's streams began with."""
        manifest = self.setup.manifest
        return drawn_with(self.key, manifest.digest, values_of(manifest.data.description, manifest.engine.name))

    @property
    def _clients(self) -> range:
        return range(len(self.setup.manifest.clients))

    def _releases(self, path: Path) -> dict[str, Release]:
        rows, clients = read_rows(ReleaseRow, self.setup.folder, path), frozenset(self._clients)
        for row in rows:
            if not row.subjects or not clients.issuperset(row.subjects):
                raise BadInput(
                    f"{path}: release {row.id} is about clients {row.subjects}; expected some of 0 to {max(clients)}"
                )
            if row.sampling is not None and row.sampling.cohort > row.sampling.population:
                raise BadInput(
                    f"{path}: release {row.id} samples {row.sampling.cohort:g} of {row.sampling.population}; a sample"
                    " fits in its population"
                )
        with bad_input(str(path)):
            return {row.id: release_of(row.model_dump()) for row in rows}

    def _models(self, path: Path, releases: Mapping[str, Release]) -> dict[str, ModelVersion]:
        models: dict[str, ModelVersion] = {}
        for row in read_rows(ModelRow, self.setup.folder, path):
            named = (*row.releases, *(row.summed or ()), *(row.merged or ()))
            if missing := [i for i in named if i not in releases]:
                raise BadInput(f"{path}: model {row.id} reveals release {missing[0]}, which releases.jsonl lacks")
            if missing := [i for i in row.parents if i not in models]:
                raise BadInput(f"{path}: model {row.id} was made of {missing[0]}, which no line before it has")
            models[row.id] = ModelVersion(
                tuple(row.releases),
                tuple(row.parents),
                None if row.summed is None else tuple(row.summed),
                None if row.merged is None else tuple(row.merged),
            )
        return models

    def _parties(
        self, path: Path, releases: Mapping[str, Release], models: Mapping[str, ModelVersion]
    ) -> tuple[dict[str, LedgerMessage], dict[str, int]]:
        parties, last = read_checked(Parties, self.setup.folder, path), self._clients[-1]
        somebody = frozenset((SERVER, *self._clients))
        for key, row in parties.messages.items():
            if missing := [i for i in row.releases if i not in releases]:
                raise BadInput(f"{path}: message {key} reveals release {missing[0]}, which releases.jsonl lacks")
            if missing := [i for i in row.inherits if i not in models]:
                raise BadInput(f"{path}: message {key} inherits from model {missing[0]}, which models.jsonl lacks")
            if not somebody.issuperset((row.sender, *row.receivers)):
                raise BadInput(
                    f"{path}: message {key} is between parties {[row.sender, *row.receivers]}; expected some of"
                    f" {SERVER} (the server) to {last}"
                )
        if not set(parties.observers.values()) <= set(self._clients):
            raise BadInput(f"{path}: observers are the parties {parties.observers}; expected some of 0 to {last}")
        kept = {key: (row.round, row.kind) for key, row in parties.messages.items() if row.captured}
        if kept != {m.id: (m.round, m.kind) for m in self.setup.messages}:
            raise BadInput(f"{path}: the captured messages are not those of messages.jsonl, in id, round and kind")
        messages = {
            key: LedgerMessage(
                id=key,
                round=row.round,
                kind=row.kind,
                sender=row.sender,
                receivers=tuple(row.receivers),
                captured=row.captured,
                upload=row.upload,
                releases=tuple(row.releases),
                inherits=tuple(row.inherits),
            )
            for key, row in parties.messages.items()
        }
        return messages, {str(name): party for name, party in parties.observers.items()}


def check_setup(folder: Path, progress: Progress | None = None) -> tuple[Setup, Auditor]:
    """Both halves of a setup folder, every file of it read and checked. Raises BadInput in one sentence.

    progress: called with messages and files read and in all.
    """
    setup = open_setup(folder)
    auditor = Auditor.open(setup)
    setup.check(progress)  # its seal comes last: what contradicts something else is said with more words than "changed"
    auditor.check_seal()
    return setup, auditor
