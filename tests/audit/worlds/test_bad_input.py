"""What cannot be asked of an audit of own code is one sentence, before the code is called and with nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dpfl_audit
import numpy as np
import pytest
import torch
from command import called
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.worlds.composed_steps import DpSgdNumbers

NAN, INF, HUGE = float("nan"), float("inf"), 10**30
NO_NUMBERS = (NAN, INF, -INF, -1, 10**400, HUGE, "x", None, True, [1])
NO_COUNTS = (*NO_NUMBERS, 0, 1.5, 3.0)
BOUNDS = [
    *({"delta": value} for value in (*NO_NUMBERS, 1, 1.5)),
    *({"claim": value} for value in (NAN, INF, -INF, -1, 10**400, "x", True, [1])),
    *({"confidence": value} for value in (*NO_NUMBERS, 0, 0.5, 1)),
    *({"seed": value} for value in (NAN, INF, -1, HUGE, 2**63, 1.5, "x", None, True)),
]


class Called(BaseException):
    """What no `except Exception` takes for an error of the function."""


def never(*_: Any) -> Any:
    raise Called


def sentence(call) -> None:
    with pytest.raises(ValueError) as caught:
        call()
    said = str(caught.value)
    assert said and "\n" not in said and len(said) < 400, said


MECHANISM = [
    *BOUNDS,
    *({name: value} for name in ("draws", "calibration") for value in NO_COUNTS if value is not None),
    *({"draws": value} for value in (9, 10_000_001)),
    *({"rounds": value} for value in NO_COUNTS),
    *({"sizes": value} for value in (5, "4", [], *([value] for value in NO_COUNTS))),
    *({"rate": value} for value in (*(v for v in NO_NUMBERS if v is not True), 0, 1.5)),
    *({name: value} for name in ("gaussian", "stop", "same_steps") for value in ("no", 1, None)),
    *({"unit": value} for value in ("round", 5, None, [1])),
    *({"adjacency": value} for value in ("add", 5, None)),
    *({"observer": value} for value in ("sever", 5, None)),
    *({"candidates": value} for value in ("x", 5, [], {}, [None])),
    {"noiseless": 5},
]


@pytest.mark.parametrize("options", MECHANISM)
def test_a_mechanism(options):
    sentence(lambda: dpfl_audit.audit_mechanism(never, **{"delta": 1e-5, **options}))


@pytest.mark.parametrize("function", [5, "mine.py:update", None])
def test_no_function(function):
    sentence(lambda: dpfl_audit.audit_mechanism(function, delta=1e-5))


@pytest.mark.parametrize(("epsilon", "delta"), [(NAN, 1e-5), (-1, 1e-5), ("8", 1e-5), (INF, 1e-5), (8, NAN), (8, 2)])
def test_an_assertion(epsilon, delta):
    with pytest.raises(BadInput, match=r"^assert_private: [^\n]*expected"):
        dpfl_audit.assert_private(never, epsilon, delta)


NUMBERS = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "sample_rate": 0.1, "steps": 10}
BAD_NUMBERS = [
    *({"noise_multiplier": value} for value in (NAN, INF, -1, 10**400, "x", None, True)),
    *({"max_grad_norm": value} for value in (NAN, INF, -1, 0, 10**400, "x", None, True)),
    *({"sample_rate": value} for value in (NAN, INF, -1, 0, 1.5, "x", None)),
    *({"steps": value} for value in NO_COUNTS),
]
DATA = [(torch.zeros(3), 0)] * 5


@pytest.mark.parametrize("numbers", BAD_NUMBERS)
def test_what_is_declared_of_dp_sgd(numbers):
    sentence(lambda: DpSgdNumbers(**{**NUMBERS, **numbers}))


def test_numbers_of_numpy_are_numbers():
    same = {"noise_multiplier": np.float32(1), "max_grad_norm": 1, "sample_rate": np.float64(1), "steps": np.int64(3)}
    assert DpSgdNumbers(**same).parameters["steps"] == 3


TRAINING = [
    *BOUNDS,
    *({"trainings": value} for value in (*NO_COUNTS, 9)),
    *({"place": value} for value in (-1, 5, 1.5, NAN, HUGE, "0", None, True)),
    *({"canaries": value} for value in (5, "x", [1], {})),
]


@pytest.mark.parametrize("options", TRAINING)
def test_dp_sgd(options):
    sentence(lambda: dpfl_audit.audit_dpsgd(never, DATA, **{**NUMBERS, "delta": 1e-5, **options}))


@pytest.mark.parametrize(("train", "dataset"), [(5, DATA), (never, []), (never, 5), (never, iter(DATA))])
def test_no_training(train, dataset):
    sentence(lambda: dpfl_audit.audit_dpsgd(train, dataset, **NUMBERS, delta=1e-5))


def test_no_numbers_of_dp_sgd():
    sentence(lambda: dpfl_audit.audit_dpsgd(never, DATA, numbers=(1, 1, 1, 1), delta=1e-5))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", TRAINING)
@pytest.mark.filterwarnings("ignore")  # Opacus's own, of its engine
def test_opacus(options):
    opacus = pytest.importorskip("opacus")
    engine = opacus.PrivacyEngine(accountant="rdp")
    if options == {"canaries": {}}:
        return  # looked at with the first training's settings
    with pytest.raises(BadInput, match=r"^audit_opacus: [^\n]*$"):
        dpfl_audit.audit_opacus(never, engine, DATA, **options)


FLOWER = [
    *(one for one in BOUNDS if one != {"delta": None}),
    *({name: value} for name in ("draws", "calibration", "clients") for value in NO_COUNTS if value is not None),
    *({"client": value} for value in (NAN, -1, HUGE, 1.5, "x", None)),
    *({name: "no"} for name in ("anew", "gaussian", "unit", "adjacency", "observer")),
]


@pytest.mark.parametrize("options", FLOWER)
def test_flower(options):
    pytest.importorskip("flwr")
    with pytest.raises(BadInput, match=r"^[^\n]*$"):
        dpfl_audit.audit_flower("nowhere.py", **options)


# --- the command


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def update(world, seed):\n    raise AssertionError\n\n\nnumber = 5\n")
    (tmp_path / "raises.py").write_text('raise RuntimeError("no\\nway")\n')
    (tmp_path / "leaves.py").write_text("import sys\n\nsys.exit(3)\n")
    (tmp_path / "half.py").write_text("def update(\n")
    return tmp_path


def refused(capsys, folder: Path, *arguments: object) -> str:
    before = sorted(folder.iterdir())
    code, printed, said = called(capsys, *arguments)
    assert (code, printed) == (2, "") and said.startswith("audit: ") and "\n" not in said, (code, said)
    assert {p for p in folder.iterdir() if p.name != "__pycache__"} <= {*before}
    return said


OPTIONS = {
    "--claim": ("nan", "inf", "-1", "1e400", "x", ""),
    "--delta": ("nan", "inf", "-1", "1", "1e400", "x"),
    "--draws": ("nan", "-1", "0", "1.5", "1e400", HUGE),
    "--calibration": ("9", "1.5", HUGE),
    "--sizes": ("0", "-1", "x", HUGE),
    "--rounds": ("0", "1.5", HUGE),
    "--rate": ("nan", "0", "2", "x"),
    "--confidence": ("nan", "0.5", "1", "inf"),
    "--seed": ("-1", "1.5", HUGE),
    "--adjacency": ("add",),
    "--observer": ("sever",),
    "--noiseless": ("own.py:number", "none.py:f", "raises.py:f"),
    "--candidates": ("own.py:number", "none.py:f", "leaves.py:f"),
    "--drawz": ("5",),
}


@pytest.mark.few(3)
@pytest.mark.parametrize(("option", "value"), [(option, value) for option in OPTIONS for value in OPTIONS[option]])
def test_an_option(option, value, folder, capsys):
    typed = ("mechanism", "own.py:update", "--delta", "1e-5", "-o", "out", "--quiet", option, value)
    refused(capsys, folder, *typed)


@pytest.mark.parametrize(
    "function",
    [
        "own.py:number",
        "own.py:updat",
        "none.py:f",
        "own.py",
        "raises.py:f",
        "leaves.py:f",
        "half.py:update",
        "nosuch.module:f",
        "raises:f",
        "own.py:update:x",
        ":f",
        "own.py:",
        "",
    ],
)
def test_a_name(function, folder, capsys):
    refused(capsys, folder, "mechanism", function, "--delta", "1e-5", "-o", "out", "--quiet")


TABLE = [
    *(f"{key} = {value}" for key in ("draws", "calibration", "rounds") for value in ("nan", "0", "1.5", HUGE, "'x'")),
    *(f"rate = {value}" for value in ("nan", "inf", "0", "2", "'x'")),
    *(f"confidence = {value}" for value in ("nan", "0.5", "1", "'x'")),
    *(f"sizes = {value}" for value in ("5", "[]", "[0]", "[1.5]", "['x']", f"[{HUGE}]")),
    *(f"{key} = {value}" for key in ("gaussian", "stop", "same_steps") for value in ("1", "'yes'")),
    "candidates = 5",
    "noiseless = 'own.py:number'",
    "drawz = 5",
    "[audit]\ndelta = nan",
    "[audit]\ndelta = 0",
    "[claim]\nepsilon = nan",
    "[claim]\nepsilon = inf",
    "[claim]\nepsilon = 1e400",
    "[claim]\nepsilon = -1",
]


@pytest.mark.few(2)
@pytest.mark.parametrize("line", TABLE)
def test_a_table(line, folder, capsys):
    (folder / "c.toml").write_text(f"[mechanism]\nfunction = 'own.py:update'\n{line}\n")
    refused(capsys, folder, "mechanism", "c.toml", "-o", "out", "--quiet")


NUMBER_OPTIONS = {
    "--clip": ("nan", "inf", "0", "-1", "1e400", "x"),
    "--noise-std": ("nan", "inf", "0", "-1"),
    "--rounds": ("0", "-1", "1.5", HUGE),
    "--clients": ("0", "1.5", HUGE),
    "--cohort": ("0", "11", HUGE),
    "--claimed": ("nan", "inf", "0", "-1"),
    "--delta": ("nan", "0", "1", "-1"),
    "--target-epsilon": ("nan", "inf", "0", "-1"),
}


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option in NUMBER_OPTIONS for value in NUMBER_OPTIONS[option]]
)
def test_bare_numbers(option, value, folder, capsys):
    refused(capsys, folder, "epsilon", "--clip", 1, "--noise-std", 1, "--clients", 10, "--quiet", option, value)
