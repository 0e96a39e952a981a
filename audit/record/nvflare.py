"""NVFlare: `AuditFilter` before and after the platform's own filters, which writes a dump for `audit import`.

    recipe.add_client_input_filter(AuditFilter("dump", "global"), tasks=["train"])
    recipe.add_client_output_filter(AuditFilter("dump", "raw"), tasks=["train"])
    recipe.add_client_output_filter(SVTPrivacy(), tasks=["train"])
    recipe.add_client_output_filter(AuditFilter("dump", "sent"), tasks=["train"])

NVFlare makes each filter anew in a client's process, from its arguments. What both ends of the pair see of a task meets
in that process; files hold the rest: round-0/broadcast.safetensors, round-0/client-site-1.safetensors.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from ..errors import BadInput
from ..files import write_tensors
from ..setup.reading import short
from ..tensors import dense_tensor

try:
    from nvflare.apis.filter import Filter
except ModuleNotFoundError:  # a dump is written by whoever calls `process`
    Filter = object

STAGES = ("global", "raw", "sent")
MODELS = ("WEIGHTS", "WEIGHT_DIFF")  # kinds of content that NVFlare's own filters take
BOOKKEEPING = {  # of a reply: nothing of a value. Steps weigh it, as a number of records does
    *("NUM_STEPS_CURRENT_ROUND", "PROCESSED_ALGORITHM", "PROCESSED_KEYS", "filter_history", "configs"),
    *("start_round", "current_round", "total_rounds", "job_id", "site_name"),
}
_LOG = logging.getLogger("dpfl-audit")
_raw: dict[tuple[str, str], tuple[int, dict[str, Tensor]]] = {}  # by folder and site, of the task that goes on
_given: dict[tuple[str, str], tuple[int, Tensor]] = {}  # a digest of the model that it began with
_last: dict[tuple[str, str], int] = {}  # the round that a site was in last


class AuditFilter(Filter):  # type: ignore[misc]
    """An NVFlare filter that changes nothing.

    folder: of the dump. On a machine of its own a client writes its own part; bring the parts together by folders.
    stage: what it sees: the model on its way to the client, "global"; the result before the platform's filters, "raw",
      to check clip and noise by; or what they leave, "sent". Raw values stand in the dump, in the client's file.
    num_examples: how many records the client has, None where declared.toml says it.

    Raises BadInput for another stage.
    """

    def __init__(self, folder: str, stage: str, num_examples: int | None = None) -> None:
        super().__init__()
        if stage not in STAGES:
            raise BadInput(f"AuditFilter: stage = {short(stage)}; expected one of {', '.join(STAGES)}")
        self.folder, self.stage, self.num_examples = str(Path(folder).absolute()), stage, num_examples

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        """Whatever fails here stops nobody's training."""
        site = str(fl_ctx.get_identity_name())
        with _never_in_the_way():
            round = self._round(shareable, site)
            try:
                self._keep(shareable, site, round)
            except Exception as error:
                if self.stage == "sent":
                    self._write(site, round, {f"@beside/what is not recorded ({type(error).__name__})": torch.empty(0)})
                raise
        return shareable

    def _round(self, shareable: Any, site: str) -> int:
        """As its header says, or its content; that of the task before, where neither does."""
        content = shareable.get("DXO") or {}
        known = [shareable.get_header("current_round"), (content.get("meta") or {}).get("current_round")]
        key = (self.folder, site)
        _last[key] = next((int(one) for one in known if one is not None), _last.get(key, 0))
        return _last[key]

    def _keep(self, shareable: Any, site: str, round: int) -> None:
        content = shareable.get("DXO")
        values, others = _parted(content) if content else ({}, [])
        others += [str(name) for name in shareable if name != "DXO" and not str(name).startswith("__")]
        place = self.folder, site
        if self.stage == "global" and values:
            path = Path(self.folder) / f"round-{round}" / "broadcast.safetensors"
            if not path.exists():
                write_tensors(path, values)
            _given[place] = round, _digest(values)
        elif self.stage == "raw":
            _raw[place] = round, {name: value.clone() for name, value in values.items()}
        elif self.stage == "sent":
            at, raw = _raw.pop(place, (round, {}))
            beside = {f"@beside/{name}": torch.empty(0) for name in others}
            if self.num_examples is None:
                told = {}
            else:
                told = {"@num_examples": torch.tensor([self.num_examples])}
            if (given := _given.get(place)) is not None and given[0] == round:
                told["@global"] = given[1]
            before = {f"@raw/{name}": value for name, value in raw.items() if at == round and values}
            if values or beside:
                self._write(site, round, {**values, **(told if values else {}), **before, **beside})

    def _write(self, site: str, round: int, tensors: Mapping[str, Tensor]) -> None:
        """Beside what the same site sent in the round before; a second model of it is what is not recorded."""
        path = Path(self.folder) / f"round-{round}" / f"client-{site}.safetensors"
        held = load_file(path) if path.exists() else {}
        again = any(not name.startswith("@") for name in held) and any(not n.startswith("@") for n in tensors)
        if again:
            tensors = {"@beside/a second model": torch.empty(0)}
        write_tensors(path, {**held, **tensors})


def _digest(values: Mapping[str, Tensor]) -> Tensor:
    found = hashlib.sha256()
    for name, value in sorted(values.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return torch.tensor(list(found.digest()), dtype=torch.uint8)


@contextmanager
def _never_in_the_way() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _LOG.warning("dpfl-audit: this is not recorded (%s: %s)", type(error).__name__, error)


def _parted(content: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[str]]:
    """Of a DXO: its model's tensors by name, and the names of all else that it tells."""
    kind = getattr(content.get("kind"), "value", content.get("kind"))
    data, values = content.get("data") or {}, dict[str, Tensor]()
    others = [str(name) for name in content.get("meta") or {} if name not in BOOKKEEPING]
    if kind not in MODELS or not isinstance(data, Mapping):
        return {}, [f"content of the kind {kind}", *others]
    for name, value in data.items():
        if isinstance(value, np.ndarray | np.generic | Tensor | float | int):
            values[str(name)] = dense_tensor(np.asarray(value) if not isinstance(value, Tensor) else value, str(name))
        else:
            others.append(str(name))
    return {name: value.contiguous() for name, value in values.items()}, others
