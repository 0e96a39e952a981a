"""A Flower app by its name: its ClientApp, its ServerApp and the run's config; and a ClientApp taken apart."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ....defenses.nearest import instead
from ...errors import BadInput
from ...record.flower.mods import AuditMod
from ...record.flower.strategy import RECORDS
from ...setup.config import read_toml
from ..source import code_of, own_module

ClientCall = Callable[[Any, Any], Any]  # (message, context) → reply


@dataclass(frozen=True, eq=False)
class FlowerApp:
    """A Flower app. name: for people. client: its ClientApp. server: its ServerApp, None where none is known.

    config: the run's, flat, as a `Context` has it. module: which the client's app is in. code: SHA-256 of its file.
    """

    name: str
    client: Any
    server: Any | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    module: ModuleType | None = None
    code: str = ""


def flower_app(name: str, server: str | None = None, settings: Sequence[str] = ()) -> FlowerApp:
    """Import an app; naming it is the word to run it.

    Args:
        name: FILE.py or package.module with one ClientApp in it, either with :NAME; or the folder of a pyproject.toml
            that names its components, as `flwr run` takes it.
        server: where the ServerApp is, in the same form; None: beside the ClientApp, or as pyproject.toml says.
        settings: "key=value" of the run's config.

    Raises:
        BadInput: there is no such app, several, or importing it fails.
    """
    config: dict[str, Any] = {}
    client, folder = name, Path()
    if Path(name).is_dir():
        folder = Path(name)
        client, known, config = _components(folder)
        server = server or known
    with _only_looked_at(name):
        client_app, module, attribute = _found(client, "ClientApp", folder)
        server_app = None
        if server is not None:
            server_app, _, _ = _found(server, "ServerApp", folder)
        elif len(beside := _named(module, "ServerApp")) == 1:
            server_app = next(iter(beside.values()))
    said = name if ":" in name or folder != Path() else f"{name}:{attribute}"
    return FlowerApp(said, client_app, server_app, {**config, **_settings(settings)}, module, code_of(module))


def _components(folder: Path) -> tuple[str, str | None, dict[str, Any]]:
    """What pyproject.toml says of the ClientApp, the ServerApp and the run's config."""
    path = folder / "pyproject.toml"
    if not path.is_file():
        raise BadInput(f"{folder} has no pyproject.toml; expected a Flower app's folder, FILE.py or package.module")
    app = read_toml(path, "pyproject.toml").get("tool", {}).get("flwr", {}).get("app", {})
    components = app.get("components", {})
    if "clientapp" not in components:
        raise BadInput(f'{path} has no clientapp in [tool.flwr.app.components]; expected "package.module:app"')
    if (beside := str(folder.resolve())) not in sys.path:
        sys.path.insert(0, beside)
    return components["clientapp"], components.get("serverapp"), dict(_flat(app.get("config", {})))


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _settings(settings: Iterable[str]) -> dict[str, Any]:
    made = {}
    for one in settings:
        key, separator, value = one.partition("=")
        if not separator or not key.strip():
            raise BadInput(f"--set {one}: expected KEY=VALUE, of the app's run config")
        try:
            made[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            made[key.strip()] = value.strip()
    return made


def _found(name: str, kind: str, folder: Path) -> tuple[Any, ModuleType, str]:
    """An app by its name, with the module and the name that it has there."""
    where, separator, attribute = name.rpartition(":")
    if not separator or not attribute.isidentifier():
        where, attribute = name, ""
    module = own_module(where, folder if where.endswith(".py") else Path())
    known = _named(module, kind)
    if attribute:
        if attribute not in known:
            raise BadInput(f"{where} has no {kind} {attribute!r}{instead(attribute, list(known))}")
        return known[attribute], module, attribute
    if len(known) != 1:
        many = "none"
        if known:
            many = f"{len(known)}: {', '.join(known)}; say which, {where}:NAME"
        raise BadInput(f"{where} holds {many}; expected one {kind}" if known else f"{where} holds no {kind}")
    return next(iter(known.values())), module, next(iter(known))


def _named(module: ModuleType, kind: str) -> dict[str, Any]:
    """The ClientApps or ServerApps of a module, each once."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        of_kind = any(base.__name__ == kind and base.__module__.startswith("flwr.") for base in type(value).__mro__)
        if of_kind and not any(value is other for other in found.values()):
            found[name] = value
    return found


@contextmanager
def _only_looked_at(name: str) -> Iterator[None]:
    """While an app is imported it records nothing, and finds no arguments of ours."""
    arguments, token = sys.argv, RECORDS.set(False)
    sys.argv = [name]
    try:
        yield
    finally:
        sys.argv = arguments
        RECORDS.reset(token)


@dataclass(frozen=True)
class TakenApart:
    """A ClientApp's way from a message to its reply. function: the app's own, that trains. mods: from the outermost in,
    without those that only record.
    """

    function: ClientCall
    mods: tuple[Any, ...]

    def through(self, function: ClientCall) -> ClientCall:
        """The same mods round another function."""
        from flwr.client.mod.utils import make_ffn

        return make_ffn(function, list(self.mods))


def taken_apart(app: Any, action: str = "train") -> TakenApart:
    """A ClientApp's training function and mods. Flower binds them together when the function is registered.

    Raises:
        BadInput: the app trains by no such function, or this Flower binds mods in a way that is not known here.
    """
    call = app._call
    if call is None:
        full = action if "." in action else f"{action}.default"
        call = app._registered_funcs.get(full)
        if call is None:
            known = ", ".join(app._registered_funcs) or "none"
            raise BadInput(f"the ClientApp has no function for {action!r}; it has {known}")
    _check_binding()
    mods: list[Any] = []
    while (held := _bound(call)) is not None:
        mod, call = held
        mods.append(mod)
    return TakenApart(call, tuple(mod for mod in mods if not isinstance(mod, AuditMod)))


def _bound(call: Any) -> tuple[Any, Any] | None:
    """The mod and the next call that Flower's `make_ffn` holds in a closure; None of any other function."""
    names = getattr(getattr(call, "__code__", None), "co_freevars", ())
    if set(names) != {"_ffn", "_mod"} or not getattr(call, "__qualname__", "").startswith("make_ffn."):
        return None
    cells = dict(zip(names, call.__closure__))
    return cells["_mod"].cell_contents, cells["_ffn"].cell_contents


def _check_binding() -> None:
    """A mod that stayed unseen would be taken for training, and its noise for part of the raw reply."""
    from flwr.client.mod.utils import make_ffn

    def function(message: Any, context: Any) -> Any: ...

    def mod(message: Any, context: Any, call_next: Any) -> Any: ...

    if _bound(make_ffn(function, [mod])) != (mod, function):
        raise BadInput("this version of Flower binds mods in a way that is not known here; Flower 1.41 is")
