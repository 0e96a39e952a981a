"""What a recorded training has spent so far, and what it would have spent after one round more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ...defenses.wire import SERVER
from ..files import write_json
from ..lock import NAME as LOCK
from ..proven.table import table
from ..results.format import Epsilon
from ..setup.reading import plain_json, read_text
from ..setup.state import round_files
from .closing import Begun, close_recording
from .recording import Recording
from .rounds import OpenRound, recorded_id, write_round

# What is measured of values.
UNLIKE = ("residuals", "weighed", "projections", "lengths", "tensors", "energies", "copies", "defects")


def spent(
    folder: Path, opened: OpenRound | None, delta: float | None, observers: Sequence[str], *, more: bool = False
) -> tuple[Epsilon, ...]:
    """The rows of ε of an unfinished recording, as if it were closed now by somebody who may send another model.

    Args:
        folder: of the recording; it stays as it is. opened: the round that goes on, which counts as it is by now.
        delta: None for that of the recording. observers: () for those whom the recording is about.
        more: with one more round like the last: its clients, their numbers of records, its clip and noise.

    Raises:
        BadInput: no client sent anything; or an observer or δ that cannot be.
    """
    with TemporaryDirectory(prefix=".spent-", dir=folder.parent) as home:
        copy = Path(home) / "setup"
        shutil.copytree(folder, copy, copy_function=_linked, ignore=shutil.ignore_patterns(LOCK, "tensors", "*.part"))
        begun = Begun.read(copy)
        if opened is not None and (opened.uploads or opened.lost):
            write_round(copy, begun.recording, begun.layout, _light(opened))
        if more and (rounds := round_files(copy / ".work")):
            _write_another(copy / ".work", rounds[-1], begun.recording)
        close_recording(copy)
        return table(copy, delta=delta, observers=observers).rows


def _light(opened: OpenRound) -> OpenRound:
    """A round to be priced and thrown away: without uploads and records on disk. Writing one remembers its noises."""
    uploads = {client: replace(upload, kept=False, records=None) for client, upload in opened.uploads.items()}
    return replace(opened, uploads=uploads, seen=deepcopy(opened.seen))


def _write_another(work: Path, last: Path, recording: Recording) -> None:
    """A round like the last, by what is public of it."""
    content = plain_json(read_text(last))
    number = content["round"] + 1
    uploads = [
        {
            **upload,
            "id": recorded_id(recording, number, upload["client"], recording.share, upload["num_examples"]),
            "kept": False,
            "records": False,
        }
        for upload in content["uploads"]
    ]
    broadcast = recorded_id(recording, number, SERVER, "weights", 0)
    further = {
        "round": number,
        "broadcast": broadcast,
        "uploads": uploads,
        "session": "",
        "noisy_mean": False,
        "weights": "",
    }
    write_json(work / f"round-{number:04d}.json", {**content, **further, **{name: [] for name in UNLIKE}})


def _linked(source: str, target: str) -> None:
    """Files are replaced and never changed, so that a second name of each is a copy."""
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
