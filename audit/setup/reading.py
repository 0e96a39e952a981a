"""Reading files that somebody else wrote: a regular file inside its folder, plain JSON, one sentence where it is
anything else.
"""

from __future__ import annotations

import csv
import json
import math
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open

from ...defenses.complaint import first_complaint
from ..errors import BadInput
from .format import DataPart

if TYPE_CHECKING:
    from torch import Tensor

_Model = TypeVar("_Model", bound=BaseModel)

MOST_INTEGER = 2**64  # larger ones overflow what computes with them
SHARES = ("test_accuracy", "majority_accuracy", "balanced_accuracy", "test_auc", "share_clipped")  # figures from 0 to 1


def present(path: Path) -> bool:
    """Whether there is something at `path`, be it a link that leads nowhere: that is damage, not absence."""
    return path.is_symlink() or path.exists()


def misplaced(path: Path) -> str:
    """What somebody may have meant who gave `path` where something else belongs: the end of a sentence."""
    if path.is_file():
        if path.suffix == ".toml":
            return f"; {path} is a config: `audit train {path} -o setup`"
        if path.suffix in (".zip", ".tar", ".gz", ".tgz"):
            return f"; {path} is an archive: unpack it and give the folder"
        return f"; {path} is a file"
    if present(path / "setup.json"):
        return f"; {path} is a setup: `audit run {path} -o results`"
    if present(path / "results.json"):
        return f"; {path} holds results: `audit report {path}`"
    return ""


def regular(path: Path, root: Path | None = None) -> Path:
    """`path`, if it is a regular file (a pipe would wait for ever, a device never end) and inside the setup folder
    `root`. Raises BadInput.
    """
    try:
        real = path.resolve(strict=True)
        kind = real.stat().st_mode
    except FileNotFoundError:
        raise BadInput(f"{path} is missing") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself, before Python 3.13
        raise BadInput(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if root is not None and not real.is_relative_to(root.resolve()):
        raise BadInput(f"{path} leads outside the setup folder; a setup holds its own files")
    if not stat.S_ISREG(kind):
        raise BadInput(f"{path} is not a file; expected a regular one")
    return path


def read_text(path: Path, root: Path | None = None) -> str:
    """A file's text. Raises BadInput."""
    try:
        return regular(path, root).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text ({error})") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from None


@contextmanager
def left_by_a_killed_run(path: Path, remedy: str) -> Iterator[None]:
    """Around reading what an earlier run left, whole because writes are atomic: whatever is wrong with it is damage.
    Raises BadInput.
    """
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{error}; {remedy}") from None
    except (AttributeError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise BadInput(
            f"{path}: what an earlier run left is damaged ({type(error).__name__}: {error}); {remedy}"
        ) from error


def plain_json(text: str) -> Any:
    """JSON as its standard has it, and no more: no NaN, no number too large to compute with, no key twice, no half
    characters.

    >>> plain_json('{"a": 1e400}')
    Traceback (most recent call last):
    ...
    ValueError: 1e400 is too large a number

    Raises ValueError.
    """
    try:
        value = json.loads(
            text, parse_constant=_no_nan, parse_float=_finite, parse_int=_integer, object_pairs_hook=_once
        )
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _no_nan(text: str) -> float:
    raise ValueError(f'{text} is not JSON; expected a number, null, or "inf"')


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _integer(text: str) -> int:
    if len(text) > 40 or abs(value := int(text)) > MOST_INTEGER:
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)[:40]!r} stands twice")
    return values


def validated(model: type[_Model], raw: Any, path: Path, place: str = "") -> _Model:
    """`raw` as a model of `audit.format`. place: where in the file it stands. Raises BadInput."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        wrong = first_complaint(error, raw)
        where = ".".join([place, *map(str, wrong.path)]).strip(".")
        raise BadInput(f"{path}: {short(where, str)} = {short(wrong.value)}: expected {wrong.expected}") from None


def short(value: Any, words: Callable[[Any], str] = repr) -> str:
    """A value for a sentence, cut to 80 characters."""
    text = words(value)
    if len(text) < 80:
        return text
    return text[:77] + "..."


def with_tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    """The lists of a table as tuples, as frozen values have them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}


def read_json(folder: Path, path: Path) -> Any:
    """A JSON file of a setup. Raises BadInput."""
    try:
        return plain_json(read_text(path, folder))
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{path}: not valid JSON ({error})") from None


def read_checked(model: type[_Model], folder: Path, path: Path) -> _Model:
    """A JSON file of a setup as a model of `audit.format`. Raises BadInput."""
    return validated(model, read_json(folder, path), path)


def read_rows(model: Any, folder: Path, path: Path) -> list[Any]:
    """The lines of a JSON-lines file as models of `audit.format`, every id once. Raises BadInput."""
    rows: dict[str, Any] = {}
    for i, line in enumerate(read_text(path, folder).split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = validated(model, plain_json(line), path, f"line {i}")
        except BadInput:
            raise
        except ValueError as error:
            raise BadInput(f"{path}: line {i} is not valid JSON ({error})") from None
        if row.id in rows:
            raise BadInput(f"{path}: line {i} has the id {row.id} of a line before it; ids stand once")
        rows[row.id] = row
    return list(rows.values())


def read_figures(folder: Path, path: Path, rounds: int) -> list[dict[str, float]]:
    """A table of one row a finished round, numbers where there are any. Raises BadInput."""
    text = read_text(path, folder)
    try:
        table = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise BadInput(f"{path}: not a CSV table ({error})") from None
    head, rows = (table[0], table[1:]) if table else ([], [])
    if (
        not text.endswith("\n")
        or len(rows) != rounds
        or any(len(row) != len(head) for row in rows)
        or (rows and head[0] != "round")
    ):
        raise BadInput(f"{path}: expected a header from `round` on and {rounds} whole lines of as many values")
    figures = []
    for i, row in enumerate(rows):
        values = {name: csv_number(path, i, name, text) for name, text in zip(head, row) if text}
        if values.get("round") != i:
            raise BadInput(f"{path}: row {i + 1} is of round {row[0]!r}; expected {i}")
        figures.append(values)
    return figures


def csv_number(path: Path, row: int, name: str, text: str) -> float:
    """A value of a CSV table, row counted from 0. Raises BadInput."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (name in SHARES and not 0 <= value <= 1):
        raise BadInput(f"{path}: row {row + 1}: {name} = {short(text)}; expected a finite number, a share from 0 to 1")
    return value


def open_tensors(folder: Path, path: Path):
    """A safetensors file of a setup, for `with`. Raises BadInput."""
    try:
        return safe_open(regular(path, folder), "pt")
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path}: not a whole safetensors file ({error})") from None


def read_tensor(folder: Path, path: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor (n, *shape) of a safetensors file, finite. Raises BadInput."""
    import torch

    with open_tensors(folder, path) as file:
        if name not in file.keys():  # noqa: SIM118
            raise BadInput(f"{path}: tensor {name!r} is missing")
        value = file.get_tensor(name)
    if value.dim() != len(shape) + 1 or tuple(value.shape[1:]) != shape:
        raise BadInput(
            f"{path}: tensor {name!r} has shape {tuple(value.shape)}; expected (n, {', '.join(map(str, shape))})"
        )
    if value.is_floating_point() and not torch.isfinite(value).all():
        raise BadInput(f"{path}: tensor {name!r} holds a value that is not finite")
    return value


def read_records(folder: Path, path: Path, data: DataPart) -> tuple[Tensor, Tensor] | None:
    """Records of a setup: inputs (n, *shape) and targets (n, …) of a file, checked; None where there is none."""
    import torch

    from ...defenses.data.vocabulary import vocabulary_of
    from ...defenses.losses import IGNORED

    if not present(path):
        return None
    shape, most = tuple(data.input_shape), data.targets_below
    inputs = read_tensor(folder, path, "inputs", shape)
    targets = read_tensor(folder, path, "targets", tuple(data.target_shape))
    words = vocabulary_of(data.description)
    kind = torch.float32 if words is None else torch.int64
    if inputs.dtype != kind:
        raise BadInput(f"{path}: tensor 'inputs' is of {inputs.dtype}; expected {kind}")
    if words is not None and inputs.numel() and not -1 <= int(inputs.min()) <= int(inputs.max()) < len(words):
        raise BadInput(
            f"{path}: the tokens of tensor 'inputs' run from {int(inputs.min())} to {int(inputs.max())}; expected -1"
            f" for padding, and words from 0 to {len(words) - 1}"
        )
    if len(shape) == 3 and inputs.numel() and not 0 <= float(inputs.min()) <= float(inputs.max()) <= 1:
        raise BadInput(
            f"{path}: the pixels of tensor 'inputs' run from {float(inputs.min()):g} to {float(inputs.max()):g};"
            " expected 0 to 1"
        )
    if len(inputs) != len(targets):
        raise BadInput(f"{path}: {len(inputs)} inputs and {len(targets)} targets; every record needs one of each")
    least = 0
    if words is not None and data.target_shape:
        least = IGNORED
    if most and (targets.dtype != torch.long or bool(((targets < least) | (targets >= most)).any())):
        raise BadInput(f"{path}: tensor 'targets' must hold class numbers from 0 to {most - 1} as torch.int64")
    return inputs, targets
