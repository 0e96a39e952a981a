"""`audit import`: rounds that something else wrote, as .npz or .safetensors files, into a setup.

A layout says which file holds what. `rounds`: one file a round, round-0.npz, of arrays broadcast/TENSOR and
client-3/TENSOR. `files`: round-0/broadcast.npz and round-0/client-3.npz. Or a pattern of one's own for uploads, such as
'r{round}/site{client}.npz', with another for broadcasts. Beside a client's tensors may stand @num_examples, @inputs,
@targets and @raw/TENSOR. Nothing that runs code is opened.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from torch import Tensor

from ...defenses import models
from ...defenses.layout import Layout
from ...defenses.progress import Progress
from ..errors import BadInput, bad_input
from ..files import remove_all
from ..setup.config import read_toml
from ..setup.reading import regular, short
from ..tensors import real_numbers
from .declared import COMPLETENESS, NOTHING_ELSE
from .dump_files import files_of_dump
from .mechanism import mechanism_of_plain
from .network import Network, NetworkOnBase, digest_of_base, network_of
from .recorder import Recorder
from .recording import MOST_CLIENTS
from .values import read_file

TABLES_AND_KEYS = (
    "mechanism",
    "claim",
    "model",
    "data",
    "audit",
    "local",
    "attack",
    "name",
    "share",
    "average",
    "clients",
    "secure_aggregation",
    "num_examples",
)
MOST_NAMED = 5  # clients that a note lists
BESIDE = ("@num_examples", "@inputs", "@targets", "@global")
PARTS = ("@raw/", "@beside/")


@dataclass(frozen=True, eq=False)
class DumpedUpload:
    """One client's part of a dumped round. beside: what stands there by the names of `BESIDE`; raw: @raw/ tensors;
    others: names of what it sent beside its tensors, without noise.
    """

    tensors: dict[str, Any]
    beside: dict[str, Any]
    raw: dict[str, Any]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class DumpedRound:
    """number: as the dump counts. broadcast: by tensor name. uploads: by client."""

    number: int
    broadcast: dict[str, Any]
    uploads: dict[int, DumpedUpload]


def import_dump(
    dump: Path,
    output: Path,
    layout: str = "rounds",
    *,
    broadcasts: str | None = None,
    declared: Path | None = None,
    loss: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """A setup of the rounds in a dump.

    Args:
        dump: the folder. output: the setup to write.
        layout: a name of `LAYOUTS`, or a pattern with {round} and {client}.
        broadcasts: a pattern with {round}, where the layout is one's own.
        declared: a TOML file with what the owner states: tables mechanism, claim, model, data, audit, local, attack,
            and name, share, average, clients, secure_aggregation, num_examples (where no file says it).
        loss: what clients minimised, as of a `Recorder`. progress: called with rounds done and in all.

    Raises:
        BadInput: one sentence: what is wrong, where, and what would be right. Nothing is left in `output`.
    """
    found = files_of_dump(dump, layout, broadcasts)
    if declared is None:
        stated = {}
    else:
        stated = read_toml(declared, "file of what is declared")
    if stranger := sorted(set(stated) - set(TABLES_AND_KEYS)):
        known = ", ".join(TABLES_AND_KEYS)
        raise BadInput(f"{declared}: {stranger[0]!r} is nothing to declare; {known} are")
    numbers = sorted(found)
    _all_there(numbers, dump)
    clients = _numbered({name for held in found.values() for name in _senders(held)})
    first = _read_round(numbers[0], found[numbers[0]], clients)
    where = str(declared or "declared")
    with bad_input(where):
        network = _network(first.broadcast, stated, Path(where).parent)
        recorder = _recorder(output, network, stated, dump, loss)
    default = stated.get("num_examples")
    try:
        with recorder as rec:
            if any(name != str(number) for name, number in clients.items()):
                listed = ", ".join(f"{name} as {number}" for name, number in [*clients.items()][:MOST_NAMED])
                rec.note(f"clients numbered in their order: {listed}" + ", …" * (len(clients) > MOST_NAMED))
            if numbers[0]:
                rec.note(f"rounds {numbers[0]} to {numbers[-1]} of the dump are rounds 0 to {len(numbers) - 1} here")
            for t, number in enumerate(numbers):
                if t == 0:
                    round = first
                else:
                    round = _read_round(number, found[number], clients)
                with bad_input(f"{dump}, round {number}"):
                    _replay(rec, t, round, default)
                if progress is not None:
                    progress(t + 1, len(numbers), "importing rounds")
            rec.close(nothing_more=False)  # a dump does not say that its last model went to nobody
    except BadInput:
        _remove(output)
        raise
    return output


def _recorder(
    output: Path, network: Network | NetworkOnBase, stated: Mapping[str, Any], dump: Path, loss: str | None
) -> Recorder:
    given = stated.get("mechanism")
    mechanism = None
    if given is not None:
        mechanism = [mechanism_of_plain(_floats(one)) for one in (given if isinstance(given, list) else [given])]
    for name in ("model", "data"):
        if not isinstance(stated.get(name, {}), Mapping):
            raise BadInput(f"{name} = {short(stated[name])}: expected a table, [{name}]")
    tables = {name: stated[name] for name in ("audit", "local", "attack", "name") if name in stated}
    names = ("claim", "share", "average", "clients", "secure_aggregation")
    options = {name: stated[name] for name in names if name in stated}
    data = dict(stated.get("data", {}))
    by = "audit import"
    return Recorder(
        output, network, mechanism=mechanism, tables=tables, data=data, by=by, loss=loss, strict=True, **options
    )


def _floats(table: Any) -> Any:
    """TOML's 1 is a whole number, and a norm is not."""
    if not isinstance(table, Mapping):
        return table
    sizes = ("clip", "noise_std", "noise_multiplier", "noise_scale")
    small = {k for k in sizes if type(table.get(k)) is int and abs(table[k]) < 2**53}
    return {k: float(v) if k in small else v for k, v in table.items()}


def _all_there(numbers: Sequence[int], dump: Path) -> None:
    """Raises BadInput where a round is missing: what was sent in it, nobody could price."""
    if numbers[0] > 1:
        raise BadInput(f"{dump}: the first round is {numbers[0]}; rounds count from 0 or 1, and all of them are priced")
    for before, after in zip(numbers, numbers[1:]):
        if after != before + 1:
            raise BadInput(f"{dump}: round {before + 1} is missing, and {short(after)} is there; all rounds are priced")


def _remove(output: Path) -> None:
    """What was written before something was refused."""
    remove_all(output)
    if output.exists() and not any(output.iterdir()):
        output.rmdir()


def _replay(rec: Recorder, t: int, round: DumpedRound, default: object) -> None:
    rec.broadcast(t, round.broadcast)
    if len({bytes(u.beside["@global"]) for u in round.uploads.values() if "@global" in u.beside}) > 1:
        why = "clients got models that differ, and one of them alone is recorded"
        rec.defect(t, COMPLETENESS, NOTHING_ELSE, why, breaks=True)
    for client, upload in sorted(round.uploads.items()):
        for name in upload.others:
            rec.unnoised(t, client, name)
        if upload.others and not upload.tensors:
            continue
        count = upload.beside.get("@num_examples", default)
        if count is None:
            raise BadInput(
                f"client {client} does not say how many records it has; write @num_examples beside its tensors, or"
                " declare num_examples"
            )
        inputs, targets = (upload.beside.get(name) for name in ("@inputs", "@targets"))
        if (inputs is None) != (targets is None):
            raise BadInput(f"client {client} has @inputs without @targets, or the other way round; records need both")
        records = None if inputs is None else (inputs, targets)
        rec.upload(t, client, upload.tensors, _count(count), records=records)
        if upload.raw:
            rec.raw(t, client, upload.raw)


def _count(value: Any) -> Any:
    """The one number of an array of one; anything else as it is, for the recorder to judge."""
    if isinstance(value, np.ndarray | Tensor):
        numbers = value.reshape(-1).tolist()
        value = numbers[0] if len(numbers) == 1 else numbers
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _network(first: Mapping[str, Any], stated: Mapping[str, Any], home: Path) -> Network | NetworkOnBase:
    """The tensors of the first broadcast, and the network that the owner names, with the file of what is frozen in it,
    from `home` on.
    """
    model = stated.get("model")
    given = None
    if isinstance(model, Mapping):
        given = model.get("base")
    if given is None:
        return _named(network_of(first), stated)
    if not isinstance(given, str):
        raise BadInput(f"[model] base = {short(given)}: expected a file of the parameters that nobody trains")
    values = {n: real_numbers(v, n, torch.float32) for n, v in read_file(home / given).items() if n not in first}
    tensors = network_of({**first, **values})
    frozen = tuple(n for n in tensors.state if n in values)
    base = digest_of_base(values)
    whole = replace(tensors, parameters=tensors.state, untrained=(*tensors.untrained, *frozen), base=base)
    return NetworkOnBase(_named(whole, stated), values)


def _named(tensors: Network, stated: Mapping[str, Any]) -> Network:
    model, data = stated.get("model"), stated.get("data", {})
    if model is None:
        return tensors
    if not isinstance(model, Mapping) or not isinstance(model.get("options", {}), Mapping):
        raise BadInput("[model]: expected a table of name and, if need be, options")
    if not isinstance(data, Mapping):
        raise BadInput(f"data = {short(data)}: expected a table, [data]")
    name, options = model.get("name"), dict(model.get("options", {}))
    if not isinstance(name, str) or sorted(set(model) - {"name", "options", "base"}):
        raise BadInput("[model]: expected name and, if need be, options and base")
    if ":" in name:  # imported by nobody here
        return replace(tensors, name=name, options=options, prefix="1.")
    shape, classes = data.get("input_shape"), data.get("classes")
    if tensors.base:
        raise BadInput(f"[model] name = {name!r} is trained whole; base goes with a class of your own, file:Class")
    if shape is None or classes is None:
        raise BadInput(f"[model] name = {name!r} needs [data] input_shape and classes")
    mean, std = data.get("mean", [0.0] * shape[0]), data.get("std", [1.0] * shape[0])
    built = models.build(name, input_shape=shape, classes=classes, mean=mean, std=std, seed=0, **options)
    again = Layout.of(built)
    if again.shapes != tensors.shapes:
        raise BadInput(f"[model] name = {name!r} has tensors of other shapes than the first broadcast")
    return replace(tensors, name=name, options=options, renamed=dict(zip(tensors.state, again.names)))


# --- files


def _senders(files: Mapping[str, Path]) -> list[str]:
    """Of a round: what its clients are called, by file names or by the arrays of its one file."""
    if "all" not in files:
        return [name for name in files if name != "broadcast"]
    named = {name.partition("/")[0] for name in _names_in(files["all"])}
    return [name.removeprefix("client-") for name in named if name.startswith("client-")]


def _names_in(path: Path) -> list[str]:
    """Of the arrays of a file, which are not read."""
    if path.suffix == ".npz":
        with suppress(BadZipFile), ZipFile(regular(path)) as archive:  # what is damaged is said where it is read
            return [name.removesuffix(".npy") for name in archive.namelist()]
    return list(read_file(path))


def _numbered(names: Collection[str]) -> dict[str, int]:
    """A number for each client: its own, or where one has none or a larger one than recorders take, its place.

    >>> _numbered(["07", "3"]), _numbered(["hospital-b", "hospital-a"]), _numbered(["17146521349845112345", "3"])
    ({'3': 3, '07': 7}, {'hospital-a': 0, 'hospital-b': 1}, {'3': 0, '17146521349845112345': 1})
    """
    whole = all(name.isdecimal() for name in names)
    ordered = sorted(names, key=(lambda name: (int(name), name)) if whole else None)
    if whole and all(int(name) < MOST_CLIENTS for name in names):
        return {name: int(name) for name in ordered}
    return {name: place for place, name in enumerate(ordered)}


def _read_round(number: int, files: Mapping[str, Path], clients: Mapping[str, int]) -> DumpedRound:
    if "all" not in files:
        uploads = {clients[n]: _upload(read_file(p)) for n, p in files.items() if n != "broadcast"}
        return DumpedRound(number, read_file(files["broadcast"]), uploads)
    path = files["all"]
    parts: dict[str, dict[str, Any]] = {}
    for name, value in read_file(path).items():
        sender, _, rest = name.partition("/")
        if not re.fullmatch(r"broadcast|client-.+", sender):
            raise BadInput(f"{path}: the array {name!r} is neither broadcast/TENSOR nor client-NAME/TENSOR")
        parts.setdefault(sender, {})[rest or "values"] = value
    if "broadcast" not in parts:
        raise BadInput(f"{path}: no array is called broadcast/TENSOR; the model that clients started from is needed")
    broadcast, uploads = parts.pop("broadcast"), dict[int, DumpedUpload]()
    for name, part in parts.items():
        if (client := clients[name.removeprefix("client-")]) in uploads:
            raise BadInput(f"{path}: {name} is a client that stands there by another spelling too; each uploads once")
        uploads[client] = _upload(part)
    return DumpedRound(number, broadcast, uploads)


def _upload(arrays: Mapping[str, Any]) -> DumpedUpload:
    beside = {n: v for n, v in arrays.items() if n in BESIDE}
    raw = {n.removeprefix("@raw/"): v for n, v in arrays.items() if n.startswith("@raw/")}
    others = tuple(sorted(n.removeprefix("@beside/") for n in arrays if n.startswith("@beside/")))
    if stranger := [n for n in arrays if n.startswith("@") and n not in BESIDE and not n.startswith(PARTS)]:
        known = f"{', '.join(BESIDE)}, @raw/TENSOR and @beside/NAME"
        raise BadInput(f"{stranger[0]!r} is unknown; beside tensors may stand {known}")
    return DumpedUpload({n: v for n, v in arrays.items() if not n.startswith("@")}, beside, raw, others)
