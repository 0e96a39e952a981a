"""What `audit flower` is asked: an app by its name, and options over what its own parameters say."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ....defenses.progress import Progress
from ....defenses.terms import Observer
from ...errors import bad_input
from ...extras import needed
from ...replay.outcome import Replay
from ...results.gates import Gate
from ..outcome import OwnAudit, check_place
from ..request import check_own_gates
from ..source import own_code
from .app import FlowerApp, flower_app
from .audited import audit_flower
from .replayed import FlowerReplay


@dataclass(frozen=True)
class FlowerRequest:
    """app: what is audited. options: for `audit_flower`."""

    app: FlowerApp
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, what: str, given: Mapping[str, Any]) -> Self:
        """What is asked by `what`, an app's name as `flower_app` takes it, and by `given`, what was typed beside it
        (None for what was not; settings is "key=value" of the run's config, model the name of one).

        Raises:
            BadInput: a name or a value is wrong.
        """
        needed("flwr", "audit flower", "flower")
        typed = {name: value for name, value in given.items() if value is not None}
        with bad_input("--observer"):
            Observer.parse(str(typed.get("observer", "server")))
        with contextlib.redirect_stdout(sys.stderr):
            app = flower_app(what, typed.pop("server", None), typed.pop("settings", ()))
            if (name := typed.pop("name", None)) is not None:
                app = replace(app, name=name)
            if (model := typed.get("model")) is not None:
                typed["model"] = _model(model)
        return cls(app, typed)

    def check(self, gates: Sequence[Gate], output: Path | None, force: bool) -> None:
        """What can be wrong beside the app itself. Raises BadInput."""
        seen = self.options.get("observer")
        check_own_gates(gates, ["server", "downlink"] if seen is None else [seen], self.options.get("adjacency"))
        if output is not None:
            check_place(output, self.app.name, force)

    def audit(self, progress: Progress | None = None) -> OwnAudit:
        """Carries it out; what the app prints goes to stderr, as stdout is for the answer. Raises BadInput."""
        with contextlib.redirect_stdout(sys.stderr):
            return audit_flower(self.app, progress=progress, **self.options)

    @property
    def only_replays(self) -> bool:
        """Whether nothing is asked that draws are for: a claim, a δ, a canary."""
        return self.options.get("replay", False) and not set(self.options) - {"replay", *FlowerReplay.names()}

    def replayed(self, output: Path | None, progress: Progress | None = None) -> Replay:
        """The round replayed instead of drawn. Raises BadInput."""
        asked = {name: value for name, value in self.options.items() if name != "replay"}
        with contextlib.redirect_stdout(sys.stderr):
            return FlowerReplay(**asked).of(self.app, progress, output)


def _model(name: str) -> Any:
    """FILE.py:NAME or package.module:NAME, a network, its state dict, or what makes one."""
    code = own_code(name)
    makes = isinstance(code.value, type) or (callable(code.value) and not hasattr(code.value, "state_dict"))
    if makes:
        return code.function()
    return code.value
