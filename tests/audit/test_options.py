"""Options are written once: a command has each, and so has the function beside it, with the same default."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Annotated

import click
import dpfl_audit
import pytest
from click.testing import CliRunner
from dpfl_audit.audit.options.attack import AttackOptions
from dpfl_audit.audit.options.option import Option, called_with, options_of, takes_options
from dpfl_audit.audit.options.own_code import FlowerOptions, MechanismOptions
from dpfl_audit.audit.options.study import ChooseOptions
from dpfl_audit.audit.options.train import TrainOptions
from dpfl_audit.cli import audit

BOTH = {
    "train": (TrainOptions, dpfl_audit.train),
    "run": (AttackOptions, dpfl_audit.run),
    "choose": (ChooseOptions, dpfl_audit.choose),
    "mechanism": (MechanismOptions, dpfl_audit.audit_mechanism),
    "flower": (FlowerOptions, dpfl_audit.audit_flower),
}


@pytest.mark.parametrize("name", BOTH)
def test_a_command_and_its_function_have_every_option(name: str) -> None:
    options, function = BOTH[name]
    typed = {parameter.name: parameter for parameter in audit.commands[name].params}
    parameters = signature(function).parameters
    known = list(options_of(options))
    assert len(known) > 5
    for option in known:
        assert option.flags[0].split("/")[0] in typed[option.name].opts
        assert parameters[option.name].kind is Parameter.KEYWORD_ONLY
        if not option.several and name not in ("mechanism", "flower"):  # theirs may come from a config or from the app
            assert typed[option.name].get_default(click.Context(audit)) == option.field.default
        assert option.name in (function.__doc__ or "")


@dataclass(frozen=True)
class Asked:
    place: Annotated[str, Option("Where.")]
    words: Annotated[str | None, Option("Said after --loud.", flags="--word")] = None
    loud: Annotated[bool, Option("So that all hear it.")] = False


@called_with(Asked)
def answer(asked: Asked) -> tuple[str, str | None, bool]:
    """The answer."""
    return asked.place, asked.words, asked.loud


def test_a_function_takes_the_fields_of_its_request() -> None:
    assert answer("here", loud=True) == ("here", None, True)
    assert [(p.name, p.default) for p in signature(answer).parameters.values()] == [
        ("place", Parameter.empty),
        ("words", None),
        ("loud", False),
    ]
    assert (answer.__doc__ or "").splitlines()[4].endswith("`loud`.")
    with pytest.raises(TypeError, match=r"answer\(\) got an unexpected keyword argument 'word'.*'words'"):
        answer("here", word="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="place"):
        answer()  # type: ignore[call-arg]


def test_a_command_gets_its_options_as_one_value() -> None:
    seen = []

    @click.command()
    @takes_options("asked", Asked)
    def command(asked: Asked) -> None:
        seen.append(asked)

    made = CliRunner().invoke(command, ["--place", "here", "--word", "a"])
    assert (made.exit_code, seen) == (0, [Asked("here", "a", False)])
    assert CliRunner().invoke(command, []).exit_code == 2


def test_python_is_told_of_a_word_that_cannot_be_chosen_and_of_one_text_for_a_list() -> None:
    for wrong in ({"device": "gpu"}, {"attacks": "canary"}):
        with pytest.raises(dpfl_audit.BadInput, match=f"^{next(iter(wrong))} = "):
            dpfl_audit.run("nowhere", **wrong)
