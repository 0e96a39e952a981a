"""A user's function by its name, "FILE.py:FUNCTION" or "package.module:function". Naming it is the word to run it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ...defenses.nearest import instead
from ..errors import BadInput, bad_input
from ..owners_code import guarded, in_words


@dataclass(frozen=True)
class OwnCode:
    """What a name stands for. value: the object. code: SHA-256 of its file, "" where it has none. file: that file."""

    name: str
    value: Any
    code: str = ""
    file: Path | None = None

    @property
    def function(self) -> Callable[..., Any]:
        """The object, to be called; what it raises becomes one sentence. Raises BadInput where it is no function."""
        if not callable(self.value):
            raise BadInput(f"{self.name} is a {type(self.value).__name__}; expected a function")

        call = guarded(self.value, self.name)

        def called(*arguments: Any) -> Any:
            with bad_input(""):
                return call(*arguments)

        return called


def own_code(name: str, folder: Path = Path()) -> OwnCode:
    """Import what `name` says; a file's path starts at `folder`, and what lies beside it can be imported too.

    Raises:
        BadInput: the name is of another form, there is no such file or object in it, or importing it fails.
    """
    where, separator, attribute = name.rpartition(":")
    if not separator or not where or not attribute.isidentifier():
        raise BadInput(f"{name!r} names no function; expected FILE.py:FUNCTION or package.module:function")
    module = own_module(where, folder)
    if not hasattr(module, attribute):
        raise BadInput(f"{where} has no {attribute!r}{instead(attribute, public_names(module))}")
    return OwnCode(name, getattr(module, attribute), code_of(module), _file_of(module))


def public_names(module: ModuleType) -> list[str]:
    """What somebody may have meant in a module."""
    return [name for name in vars(module) if not name.startswith("_")]


def code_of(module: ModuleType) -> str:
    """SHA-256 of a module's file, "" where it has none."""
    file = _file_of(module)
    if file is None:
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def files_behind(codes: Iterable[OwnCode]) -> list[tuple[str, str]]:
    """Name and SHA-256 of the files of these, and of all modules by now imported from the same folders."""
    return _with_those_beside(code.file for code in codes)


def files_of(functions: Iterable[object]) -> list[tuple[str, str]]:
    """`files_behind` of functions that nobody named; of one that is in no file nothing."""
    return _with_those_beside(_written_in(function) for function in functions if callable(function))


def _written_in(function: Any) -> Path | None:
    """The file of a function's code, or of the class of an object that can be called."""
    whole = inspect.unwrap(getattr(function, "func", function))  # a functools.partial's own
    known = hasattr(whole, "__code__") or inspect.ismethod(whole) or inspect.isclass(whole)
    try:
        file = Path(inspect.getfile(whole if known else type(whole))).resolve()
    except (TypeError, OSError):  # built in, or typed at a prompt
        return None
    if file.is_file():
        return file
    return None


def _with_those_beside(files: Iterable[Path | None]) -> list[tuple[str, str]]:
    own = {file for file in files if file is not None}
    folders = {file.parent for file in own}
    known = (_file_of(module) for module in list(sys.modules.values()))
    beside = {file for file in known if file is not None and file.parent in folders}
    return [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in sorted(own | beside)]


def _file_of(module: object) -> Path | None:
    file = getattr(module, "__dict__", {}).get("__file__")  # a lazy module is not to load itself
    if isinstance(file, str):
        return _resolved(file)
    return None


@cache
def _resolved(file: str) -> Path | None:
    """A command asks several times where some 3,000 modules lie, a second each time."""
    if Path(file).is_file():
        return Path(file).resolve()
    return None


def own_module(where: str, folder: Path = Path()) -> ModuleType:
    """Import FILE.py or package.module; a file's path starts at `folder`. Raises BadInput where it cannot be."""
    path = None
    if where.endswith(".py"):
        path = (folder / where).expanduser()
    if path is not None and not path.is_file():
        raise BadInput(f"there is no file {str(path)!r}; expected FILE.py:FUNCTION")
    beside = str((path.parent if path is not None else Path()).resolve())
    if beside not in sys.path:
        sys.path.insert(0, beside)
    try:
        if path is None:
            return importlib.import_module(where)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)  # dataclasses and pickles look for it there
        spec.loader.exec_module(module)
        return module
    except (Exception, SystemExit) as error:
        raise BadInput(f"{where} cannot be imported: {in_words(error)}") from error
