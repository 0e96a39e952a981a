"""What `audit mechanism` is asked: a function's name, or a config with a [mechanism] table, and options over it."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError

from ...defenses.progress import Progress
from ...defenses.terms import Adjacency, Observer
from ..errors import BadInput, bad_input
from ..lock import writing
from ..results.format import UNFINISHED as WORK
from ..results.gates import Gate, check_attacks, check_rows
from ..setup.config import AuditTable, ClaimTable, ConfigTable, read_toml
from ..setup.mistakes import sentence
from .function import audit_mechanism
from .outcome import OwnAudit, check_place
from .source import OwnCode, files_behind, own_code

Many = Annotated[int, Field(ge=10)]


class MechanismTable(ConfigTable):
    """[mechanism]: the function, and what `dpfl_audit.audit_mechanism` takes beside it."""

    function: str
    noiseless: str | None = None
    candidates: str | None = None
    draws: Many | None = None
    calibration: Many | None = None
    sizes: list[Annotated[int, Field(ge=1)]] | None = None
    rounds: int = Field(default=1, ge=1)
    rate: float = Field(default=1.0, gt=0, le=1)
    gaussian: bool = False
    same_steps: bool = True
    stop: bool = True
    confidence: float = Field(default=0.95, gt=0.5, lt=1)


class MechanismConfig(ConfigTable):
    """A config of `audit mechanism`: [mechanism], [claim] and [audit]."""

    name: str = ""
    seed: int = Field(default=0, ge=0, lt=2**63)
    mechanism: MechanismTable
    audit: AuditTable = AuditTable()
    claim: ClaimTable | None = None


@dataclass(frozen=True)
class MechanismRequest:
    """function: what is audited. options: for `audit_mechanism`. files: the code that its draws hang on."""

    function: OwnCode
    options: dict[str, Any] = field(default_factory=dict)
    files: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(cls, what: str, given: Mapping[str, Any]) -> Self:
        """What is asked by `what`, FILE.py:FUNCTION, package.module:function or a config, and by `given`, what was
        typed beside it (None for what was not).

        Raises:
            BadInput: a name, a key or a value is wrong.
        """
        typed = {name: value for name, value in given.items() if value is not None}
        if what.endswith(".toml"):
            path = Path(what)
            config, folder = _config(path), path.parent
            options = _of_config(config) | typed
            name = config.mechanism.function
        else:
            options, folder, name = typed, Path(), what
        if "delta" not in options:
            raise BadInput("which δ? An ε says nothing without it: give --delta 1e-5 (0 for pure DP)")
        function = own_code(name, folder)
        codes = [function]
        options.setdefault("name", function.name)
        if (noiseless := options.get("noiseless")) is not None:
            codes.append(own_code(noiseless, folder))
            options["noiseless"] = codes[-1].function
        if (candidates := options.get("candidates")) is not None:
            codes.append(own_code(candidates, folder))
            options["candidates"] = _records(codes[-1])
        if options.get("sizes") is not None:
            options["sizes"] = list(options["sizes"])
        with bad_input("--observer"):
            options["observer"] = str(Observer.parse(str(options.get("observer", "server"))))
        return cls(function, options, files_behind(codes))

    def check(self, gates: Sequence[Gate], output: Path | None, force: bool) -> None:
        """What can be wrong beside the function itself, before it is called thousands of times. Raises BadInput."""
        check_own_gates(gates, [self.options["observer"]], self.options.get("adjacency"))
        if output is not None:
            check_place(output, self.options["name"], force)

    def audit(self, progress: Progress | None = None, output: Path | None = None, *, force: bool = False) -> OwnAudit:
        """Carries it out; what the function prints goes to stderr, as stdout is for the answer.

        Args:
            progress: as of `audit_mechanism`. output: the results folder to be, which keeps finished batches of draws
                until the results are saved, so that a killed command goes on. force: begin anew.

        Raises:
            BadInput: as `audit_mechanism`, or somebody writes the folder, or another question was begun in it.
        """
        with contextlib.ExitStack() as around:
            around.enter_context(bad_input(self.function.name))
            around.enter_context(contextlib.redirect_stdout(sys.stderr))
            if output is not None:
                around.enter_context(writing(output))
            work = None if output is None else output / WORK
            if work is not None and force:
                shutil.rmtree(work, ignore_errors=True)
            fresh, code = work is None or not work.exists(), self.function.code
            try:
                return audit_mechanism(
                    self.function.function, code=code, files=self.files, work=work, progress=progress, **self.options
                )
            except ValueError:
                if work is not None and fresh:
                    shutil.rmtree(work, ignore_errors=True)  # what is refused leaves nothing
                raise


def check_own_gates(gates: Sequence[Gate], observers: Sequence[str], adjacency: Adjacency | None) -> None:
    """That the audit of own code will measure what gates ask for. observers: of its row. Raises BadInput."""
    check_attacks(gates, ["canary"])
    check_rows(gates, [Observer.parse(name) for name in observers], [adjacency or "zero_out"])


def _config(path: Path) -> MechanismConfig:
    raw = read_toml(path, "config file")
    if "mechanism" not in raw:
        raise BadInput(f'{path} has no [mechanism] table; expected one with function = "my.py:update"')
    try:
        return MechanismConfig(**raw)
    except ValidationError as error:
        raise BadInput(sentence(error, raw, str(path), MechanismConfig)) from None


def _of_config(config: MechanismConfig) -> dict[str, Any]:
    asked, claim = config.audit, config.claim or ClaimTable(whose="none")
    values = config.mechanism.model_dump(exclude={"function"}, exclude_none=True)
    values |= {"seed": config.seed, **({"name": config.name} if config.name else {})}
    values["claim"] = claim.epsilon
    for name in ("delta", "unit", "adjacency", "observer"):
        own = getattr(claim, name)
        values[name] = getattr(asked, name) if own is None else own
    return values


def _records(code: OwnCode) -> Any:
    """Candidates: a list or mapping, or a function that makes one."""
    records = code.function() if callable(code.value) else code.value
    if not isinstance(records, Mapping | Sequence) or isinstance(records, str):
        raise BadInput(f"{code.name} is a {type(records).__name__}; expected a list or a dict of candidates")
    return records
