"""What was sent, whether or not its round became whole: a kill ends the recording of a round, and takes nothing back.

SETUP/.work/sent.jsonl has a line for each broadcast and each upload, on disk before the call returns: who, how many
records, and a digest of the value, by which the same message sent again after a restart is known. A round that became
whole is in its own file with all its values; of the others this is all there is, and enough to price them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ..setup.reading import plain_json, read_text
from .mechanism import Declared, mechanism_of_plain
from .rounds import ClosedRound

FILE = "sent.jsonl"  # in .work


@dataclass(frozen=True)
class SentMessage:
    """An upload as it was sent. digest: of its value. why: it is not in the recording, "" for one that is."""

    client: int
    num_examples: int
    digest: str
    why: str = ""


@dataclass(frozen=True)
class Attempt:
    """One broadcast and what was sent after it. session: the recorder's, which begins a round once.

    model: the digest of what was broadcast, "" where that was sent in an earlier attempt at the round already.
    mechanism: as declared. sent: the uploads.
    """

    number: int
    session: str
    model: str
    mechanism: tuple[Declared, ...]
    sent: tuple[SentMessage, ...] = ()

    def as_round(self) -> ClosedRound:
        """As a round of which no value is known."""
        uploads = tuple({"client": m.client, "num_examples": m.num_examples} for m in self.sent if not m.why)
        lost = tuple((m.client, m.why) for m in self.sent if m.why)
        return ClosedRound(self.number, "", self.mechanism, uploads, lost, {}, (), (), ())


@dataclass(frozen=True)
class Refusal:
    """A call of the recorder that was not taken. why: in a sentence. breaks: whether something was sent that nothing
    counts.
    """

    why: str
    breaks: bool


@dataclass(frozen=True)
class Replayed:
    """What a replay of the loop found, in sentences. violated: whether it found a violation."""

    sentences: tuple[str, ...]
    violated: bool


@dataclass(frozen=True)
class SentJournal:
    """Writes down what is sent, while it is sent. session: as of an `Attempt`."""

    folder: Path
    session: str

    @property
    def _path(self) -> Path:
        return self.folder / ".work" / FILE

    def begin(self, done: int) -> None:
        """Before the first line of a session: what a machine without power left of a line goes; its call had not
        returned. done: rounds that are whole.
        """
        if self._path.exists():
            whole = self._path.read_bytes()
            os.truncate(self._path, whole.rfind(b"\n") + 1)
        else:
            self._write({"begun": done})

    def broadcast(self, number: int, model: Tensor, mechanism: Sequence[Declared]) -> None:
        said = {"round": number, "session": self.session, "model": digest_of_value(model)}
        self._write({**said, "mechanism": [one.plain() for one in mechanism]})

    def upload(self, client: int, num_examples: int, value: Tensor) -> None:
        self._write({"client": client, "num_examples": num_examples, "digest": digest_of_value(value), "why": ""})

    def lost(self, client: int, why: str) -> None:
        self._write({"client": client, "num_examples": 1, "digest": "", "why": why})

    def declare(self, mechanism: Sequence[Declared]) -> None:
        self._write({"mechanism": [one.plain() for one in mechanism]})

    def replayed(self, sentences: Sequence[str], violated: bool) -> None:
        self._write({"replayed": list(sentences), "violated": violated})

    def refused(self, refusal: Refusal) -> None:
        self._write({"refused": refusal.why, "breaks": refusal.breaks})

    def closed(self) -> None:
        """Its owner ends the recording: no model was sent after the last one."""
        self._write({"closed": True})

    def _write(self, line: Mapping[str, Any]) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, json.dumps(line, sort_keys=True).encode() + b"\n")
            os.fdatasync(file)
        finally:
            os.close(file)


def digest_of_value(value: Tensor) -> str:
    """Of a vector's bytes."""
    return hashlib.sha256(value.contiguous().numpy().data).hexdigest()[:32]


@dataclass(frozen=True)
class AllSent:
    """All that was sent. attempts: in order. orderly: the owner closed the recording, so no other model went out.
    refusals: calls that were not taken. replays: of the loop, before its first round.
    """

    attempts: tuple[Attempt, ...]
    orderly: bool
    refusals: tuple[Refusal, ...] = ()
    replays: tuple[Replayed, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> AllSent:
        """Of an unfinished recording; one whose journal does not begin with its first round is not orderly."""
        path = folder / ".work" / FILE
        attempts: list[Attempt] = []
        refusals: list[Refusal] = []
        replays: list[Replayed] = []
        orderly, from_the_start = False, False
        for line in read_text(path).split("\n")[:-1] if path.exists() else ():
            said = plain_json(line)
            orderly = "closed" in said
            if "round" in said:
                attempts.append(Attempt(said["round"], said["session"], said["model"], _mechanism(said)))
            elif "client" in said:
                attempts[-1] = replace(attempts[-1], sent=(*attempts[-1].sent, SentMessage(**said)))
            elif "mechanism" in said:
                attempts[-1] = replace(attempts[-1], mechanism=_mechanism(said))
            elif "replayed" in said:
                replays.append(Replayed(tuple(said["replayed"]), said["violated"]))
            elif "refused" in said:
                refusals.append(Refusal(said["refused"], said["breaks"]))
            elif "begun" in said:
                from_the_start = said["begun"] == 0
            elif not orderly:
                raise ValueError(f"{path.name} has a line of something else")
        return cls(tuple(attempts), orderly and from_the_start, tuple(refusals), tuple(replays))

    def beyond(self, rounds: Sequence[ClosedRound]) -> list[Attempt]:
        """What was sent beside whole rounds: attempts that did not become whole, without what is the same message as
        one of the round, or of an attempt before, bit for bit: sent twice it tells nothing new.
        """
        whole = {(r.number, r.session) for r in rounds}
        models: dict[int, set[str]] = defaultdict(set)
        uploads: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for attempt in self.attempts:
            if (attempt.number, attempt.session) in whole:
                models[attempt.number].add(attempt.model)
                uploads[attempt.number].update((m.client, m.digest) for m in attempt.sent)
        left = []
        for attempt in self.attempts:
            if (attempt.number, attempt.session) in whole:
                continue
            known = uploads[attempt.number]
            new = tuple(m for m in attempt.sent if m.why or (m.client, m.digest) not in known)
            model = "" if attempt.model in models[attempt.number] else attempt.model
            models[attempt.number].add(attempt.model)
            known.update((m.client, m.digest) for m in new)
            if new or model:
                left.append(replace(attempt, model=model, sent=new))
        return left


def _mechanism(said: Mapping[str, Any]) -> tuple[Declared, ...]:
    return tuple(mechanism_of_plain(one) for one in said["mechanism"])
