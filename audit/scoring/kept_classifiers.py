"""Reference classifiers that were trained once are kept: training them takes longer than most attacks."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ...defenses.atomic import write_bytes
from ...defenses.data.dataset import digest
from ...metrics import classifiers, families
from ...metrics.classifiers import Reference, train_reference
from ...metrics.families import FAMILIES, build


def kept_reference(
    folder: Path,
    inputs: Tensor,
    targets: Tensor,
    classes: int,
    seed: int,
    *,
    flip: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Reference:
    """`train_reference`'s, from a file in `folder` where the same arguments and version of torch left one.

    A damaged file is trained anew.

    Args:
        folder: made where it is absent; one that cannot be written keeps nothing.
        inputs, targets, classes, seed, flip, progress: of `train_reference`.

    Raises:
        ValueError: as `train_reference`.
    """
    shape = tuple(inputs.shape[1:])
    content = [digest(inputs, targets), classes, seed, flip, torch.__version__, _code()]
    path = folder / f"reference-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}.safetensors"
    known = _read(path, shape, classes, seed)
    if known is None:
        known = train_reference(inputs, targets, classes, seed, flip=flip, progress=progress)
        _write(path, known)
    return known


def _code() -> str:
    """Other code trains others."""
    files = (classifiers.__file__, families.__file__)
    return hashlib.sha256(b"".join(Path(str(file)).read_bytes() for file in files)).hexdigest()


def _tensors(reference: Reference) -> dict[str, Tensor]:
    return {
        f"{name}.{key}": value.contiguous()
        for name, member in reference.members
        for key, value in member.state_dict().items()  # type: ignore[attr-defined]
    }


def _read(path: Path, shape: tuple[int, ...], classes: int, seed: int) -> Reference | None:
    """None where the file is absent or damaged."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
        if facts["sha256"] != digest(*(tensors[name] for name in sorted(tensors))):
            return None
        members = []
        for family in FAMILIES:
            model = build(family, shape, classes, seed)
            prefix = f"{family}."
            own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            model.load_state_dict(own)
            members.append((family, model.eval().requires_grad_(False)))
        return Reference(tuple(members), facts["accuracy"], facts["source"])
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, TypeError):
        return None


def _write(path: Path, reference: Reference) -> None:
    """Several processes may fill one folder; where it cannot be written, nothing is kept."""
    tensors = _tensors(reference)
    checksum = digest(*(tensors[name] for name in sorted(tensors)))
    facts = {"accuracy": reference.accuracy, "source": reference.source, "sha256": checksum}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, save(tensors, {"facts": json.dumps(facts)}), writer=str(os.getpid()))
    except OSError:
        return
