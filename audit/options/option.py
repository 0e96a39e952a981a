"""An option is a field of a frozen dataclass: its type, default and help are written there once, and become an option
of click (`takes_options`) and a keyword of a Python function (`called_with`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from inspect import Parameter, getdoc, signature
from pathlib import Path
from textwrap import fill
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

import click

from ..errors import BadInput

Params = ParamSpec("Params")
Called = TypeVar("Called")
Result = TypeVar("Result")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
WIDTH = 120  # of a docstring


class OneOf(click.Choice):
    """A choice that asks what was meant by a word that is none of it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ...defenses.nearest import instead

        if value not in self.choices:
            self.fail(f"{value!r} cannot be chosen{instead(value, self.choices)}")
        return super().convert(value, param, ctx)


@dataclass(frozen=True)
class Option:
    """What a field says beside its name, type and default, by `Annotated`.

    help: for a command and for a function, where flags become the names of parameters. flags: as click takes them,
    with spaces; "" for --NAME. check: what a typed value must be; None for what the field's type says. metavar: what
    stands for the value. show_default: whether the command shows it.
    """

    help: str = ""
    flags: str = ""
    check: click.ParamType | None = None
    metavar: str | None = None
    show_default: bool = False


@dataclass(frozen=True)
class OptionField:
    """One option of a class: its field, the types it may have (None aside), and what is said of it."""

    field: Field
    kinds: tuple[Any, ...]
    annotation: Any
    option: Option

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def flags(self) -> list[str]:
        return self.option.flags.split() or [f"--{self.name.replace('_', '-')}"]

    @property
    def several(self) -> bool:
        return any(get_origin(kind) is Sequence and get_args(kind) != (Any,) for kind in self.kinds)

    @property
    def choices(self) -> tuple[Any, ...]:
        return tuple(value for kind in self.kinds if get_origin(kind) is Literal for value in get_args(kind))

    def decorator(self, *, unset: bool) -> Callable[[Decorated], Decorated]:
        """As an option of click. unset: whatever is not typed is None, as something else may say it."""
        needed = self.field.default is MISSING and not unset
        known: dict[str, Any] = {"help": self.option.help or None, "metavar": self.option.metavar}
        known |= {"required": needed, "show_default": self.option.show_default}
        if self.several:
            known["multiple"] = True
        elif not needed:
            known["default"] = None if unset else self.field.default
        if self.kinds != (bool,):
            known["type"] = self._click_type()
        elif "/" not in self.flags[0]:
            known["is_flag"] = True
        return click.option(*self.flags, self.name, **known)

    def _click_type(self) -> Any:
        if self.option.check is not None:
            return self.option.check
        if self.choices:
            return OneOf(self.choices)
        if Path in self.kinds:
            return click.Path(path_type=Path)
        if self.several:
            return None
        return self.kinds[0]

    def checked(self, value: object) -> object:
        """A value that Python code gave, as the command would have it. Raises BadInput."""
        from ...defenses.nearest import instead

        if value is None and self.field.default is None:
            return None
        if self.choices and value not in self.choices:
            raise BadInput(f"{self.name} = {value!r} cannot be chosen{instead(str(value), self.choices)}")
        if self.kinds == (Sequence[str],):
            return texts(self.name, value)
        return value


def texts(name: str, given: object) -> tuple[str, ...]:
    """Several names. One alone would be taken letter by letter, and is a BadInput."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
        raise BadInput(f"{name} = {given!r}: expected a list of texts, such as [{str(given)[:60]!r}]")
    return tuple(given)


def options_of(request: type) -> Iterator[OptionField]:
    """The fields of a dataclass that say of themselves that they are options, in the order of its parameters."""
    for field in sorted(fields(request), key=lambda field: bool(field.kw_only)):
        home = next(cls for cls in request.__mro__ if field.name in vars(cls).get("__annotations__", {}))
        written = eval(str(field.type), vars(sys.modules[home.__module__]))  # all annotations here are strings
        if get_origin(written) is not Annotated:
            continue
        annotation, option = get_args(written)
        if get_origin(annotation) in (Union, UnionType):
            union = get_args(annotation)
        else:
            union = (annotation,)
        yield OptionField(field, tuple(kind for kind in union if kind is not NoneType), annotation, option)


def part(request: Any, options: type | Sequence[str]) -> dict[str, Any]:
    """What a request says of the fields of one of its classes of options, or of some by name."""
    names = [field.name for field in fields(options)] if isinstance(options, type) else options
    return {name: getattr(request, name) for name in names}


def takes_options(
    name: str, options: type, *, unset: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command the options of a dataclass, which it gets as one argument.

    Args:
        name: of the argument. options: the dataclass.
        unset: the argument is a mapping of what was typed, as defaults may come from elsewhere.
    """
    known = list(options_of(options))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(**given: Any) -> Any:
            values = {option.name: given.pop(option.name) for option in known}
            typed = {key: value for key, value in values.items() if value is not None and value != ()}
            return function(**given, **{name: typed if unset else options(**values)})

        for option in reversed(known):
            called = option.decorator(unset=unset)(called)
        return called

    return decorate


def called_with(
    request: Callable[Params, Called], *, check: bool = True
) -> Callable[[Callable[[Called], Result]], Callable[Params, Result]]:
    """Lets a function of one request be called with the fields of the request, which its help then lists.

    Args:
        request: its class. check: whether choices and lists are checked here; False where the function does.

    Raises:
        TypeError: when it is called: a keyword is none of them; says which one was meant.
        BadInput: when it is called: a word that cannot be chosen, or one text where a list is expected.
    """

    def decorate(function: Callable[[Called], Result]) -> Callable[Params, Result]:
        assert isinstance(request, type)
        known = {option.name: option for option in options_of(request)}
        parameters = signature(request)

        @wraps(function)
        def call(*places: Params.args, **given: Params.kwargs) -> Result:
            _check_names(function.__name__, given, list(parameters.parameters))
            bound = parameters.bind(*places, **given)
            for name in bound.arguments:
                if check and name in known:
                    bound.arguments[name] = known[name].checked(bound.arguments[name])
            return function(request(*bound.args, **bound.kwargs))

        shown = [_parameter(p, known.get(p.name)) for p in parameters.parameters.values()]
        returned = signature(function).return_annotation
        vars(call)["__signature__"] = parameters.replace(parameters=shown, return_annotation=returned)
        call.__doc__ = _documented(getdoc(function) or "", list(known.values()))
        return call

    return decorate


def _check_names(function: str, given: Mapping[str, object], known: Sequence[str]) -> None:
    from ...defenses.nearest import instead

    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{instead(name, known)}")


def _parameter(parameter: Parameter, option: OptionField | None) -> Parameter:
    if option is None:
        return parameter
    return parameter.replace(annotation=option.annotation)


def _documented(text: str, options: Sequence[OptionField]) -> str:
    """A function's docstring with its parameters, where it does not list them itself."""
    if "Args:" in text:
        return text
    names = {flag: option.name for option in options for flag in re.split("[ /]", " ".join(option.flags))}

    def in_python(said: str) -> str:
        return re.sub(r"--[a-z][a-z-]*", lambda flag: f"`{names.get(flag[0], flag[0])}`", said)

    lines = [fill(f"{o.name}: {in_python(o.option.help)}", WIDTH - 8, subsequent_indent="    ") for o in options]
    listed = "Args:\n" + "\n".join("    " + line.replace("\n", "\n    ") for line in lines)
    before, raises, after = text.partition("Raises:")
    if raises:
        return f"{before.rstrip()}\n\n{listed}\n\n{raises}{after}"
    return f"{text}\n\n{listed}"


__all__ = ["Annotated", "OneOf", "Option", "called_with", "options_of", "part", "takes_options", "texts"]
