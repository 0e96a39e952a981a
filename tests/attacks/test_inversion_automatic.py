"""`preset = "auto"`: every row of the table, what a view tells, and that only that decides."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from dpfl_audit.attacks import ATTACKS
from dpfl_audit.attacks.base import Knowledge, View
from dpfl_audit.attacks.inversion.make import make_inversions, picked_inversion
from dpfl_audit.attacks.inversion.match.features import FEATURES
from dpfl_audit.attacks.inversion.match.softened import TIMES
from dpfl_audit.attacks.inversion.presets.automatic import RULES, Told, pick, told_by
from dpfl_audit.attacks.inversion.read.statistics import STATISTICS
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.defenses.terms import Observer

GRADIENT = Told("none", False, 8, 1, linear=True, smooth=False, spanned=True, labels=True)
BOTH = ["cosine", "euclidean"]
TOLD = {"exact": True, "features": FEATURES, "batch_statistics": STATISTICS}
NOISE_AWARE = {"preset": "noise-aware", **TOLD, "softened": TIMES}
EXACT = {"preset": "default", **TOLD}
ANY = {**EXACT, "objective": BOTH, "softened": TIMES}
ROWS: list[tuple[str, Told, dict[str, Any]]] = [
    (
        "noise is known, convolutions, local training",
        replace(GRADIENT, noise="known", spanned=False, steps=5),
        {**NOISE_AWARE, "objective": BOTH, "along": 0.5, "simulated": 60, "reorder": True},
    ),
    ("noise is known", replace(GRADIENT, noise="known"), {**NOISE_AWARE, "objective": BOTH}),
    ("nobody knows the noise", replace(GRADIENT, noise="unknown"), ANY),
    ("smooth, one image", replace(GRADIENT, smooth=True, images=1, spanned=False), {"preset": "dlg"}),
    ("chain, a gradient", GRADIENT, EXACT),
    ("chain, local training", replace(GRADIENT, steps=5), EXACT),
    (
        "convolutions, local training",
        replace(GRADIENT, spanned=False, steps=5),
        {**EXACT, "along": 0.5, "simulated": 60, "reorder": True, "softened": TIMES},
    ),
    ("one step of Adam", replace(GRADIENT, linear=False), ANY),
    ("steps of Adam", replace(GRADIENT, linear=False, steps=3), ANY),
    ("convolutions", replace(GRADIENT, spanned=False), ANY),
]


def test_every_row_of_the_table_decides_somewhere() -> None:
    assert len(ROWS) == len(RULES)
    for place, (_, told, settings) in enumerate(ROWS):
        assert next(i for i, rule in enumerate(RULES) if rule.holds(told)) == place
        assert pick(told).settings == settings


@pytest.mark.parametrize("but", [{"images": 2}, {"clipped": True}, {"steps": 2}, {"linear": False}, {"smooth": False}])
def test_dlg_is_for_the_gradient_of_one_image_alone(but: dict[str, Any]) -> None:
    smooth = replace(GRADIENT, smooth=True, images=1, spanned=False)
    assert pick(smooth).settings["preset"] == "dlg" and pick(replace(smooth, **but)).settings["preset"] == "default"


@pytest.mark.parametrize(("name", "told", "settings"), ROWS, ids=[row[0] for row in ROWS])
def test_a_picked_table_makes_attacks(name: str, told: Told, settings: dict[str, Any]) -> None:
    for labels in (True, False):
        found = pick(replace(told, labels=labels))
        made = make_inversions(found.settings, False, "cpu")
        assert [a.labels for a in made] == [["inferred", "known"][labels]] * len(made)  # type: ignore[attr-defined]
        assert ("inferred" in found.why) != labels and not found.why.endswith(".")


BASE: dict[str, Any] = {
    "seed": 5,
    "data": {"name": "digits", "clients": 2, "samples_per_client": 8},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 8},
    "scheme": {"name": "fedavg", "rounds": 1, "share": "gradient"},
    "capture": {"clients": [0, 1]},
}
GAUSSIAN = {"name": "local-gaussian", "rounds": 1, "clip": 1.0, "noise_multiplier": 0.1, "share": "gradient"}
SIGMOID = {"name": "mlp", "options": {"widths": [16], "activation": "sigmoid"}}
ONE = {"data": {**BASE["data"], "samples_per_client": 1}, "local": {**BASE["local"], "batch_size": 1}}
UPDATE = {"scheme": {**BASE["scheme"], "share": "update"}}
SETUPS: list[tuple[str, dict[str, Any], Told]] = [
    ("gradient", {}, GRADIENT),
    ("noise", {"scheme": GAUSSIAN}, replace(GRADIENT, noise="known", clipped=True)),
    ("sigmoid", {"model": SIGMOID, **ONE}, replace(GRADIENT, smooth=True, spanned=False, images=1)),
    ("five steps", {**UPDATE, "local": {**BASE["local"], "epochs": 5}}, replace(GRADIENT, steps=5)),
    ("adam", {**UPDATE, "local": {**BASE["local"], "optimiser": "adam"}}, replace(GRADIENT, linear=False)),
    ("too many", {"model": {"name": "mlp", "options": {"widths": [8]}}}, replace(GRADIENT, spanned=False)),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory):
    @cache
    def of(number: int) -> tuple[View, Knowledge]:
        folder: Path = tmp_path_factory.mktemp("auto")
        train(build(parse_config({**BASE, **SETUPS[number][1]}), folder), folder / "setup")
        from dpfl_audit.audit.setup.folder import open_setup

        setup = open_setup(folder / "setup")
        return setup.view(Observer.parse("server")), setup.knowledge()

    return of


@pytest.mark.parametrize("number", range(len(SETUPS)), ids=[row[0] for row in SETUPS])
def test_what_a_view_tells(number: int, seen) -> None:
    view, knowledge = seen(number)
    assert told_by([view], knowledge) == SETUPS[number][2]
    assert not told_by([view], replace(knowledge, labels={})).labels


def test_no_value_that_was_sent_decides(seen) -> None:
    """An attacker who chose by what the clip or the data made of a value would have to be priced for that."""
    view, knowledge = seen(1)
    zeros = tuple(
        replace(m, load=lambda m=m: torch.zeros_like(m.load())) if not m.broadcast else m for m in view.messages
    )
    assert told_by([replace(view, messages=zeros)], knowledge) == told_by([view], knowledge)


def test_the_table_stands_beside_the_pick_and_make_takes_no_auto(seen) -> None:
    view, knowledge = seen(1)
    found = picked_inversion({"preset": "auto", "iterations": 7, "objective": "cosine"}, [view], knowledge)
    assert found.settings == {**NOISE_AWARE, "objective": "cosine", "iterations": 7}
    with pytest.raises(ValueError, match="is not picked"):
        picked_inversion({"preset": "dlg"}, [view], knowledge)
    with pytest.raises(ValueError, match="preset"):
        ATTACKS["inversion"].make({"preset": "auto"}, False, "cpu")


def test_where_there_is_no_message_nothing_is_told_of_images(seen) -> None:
    view, knowledge = seen(0)
    told = told_by([replace(view, messages=())], knowledge)
    assert told.images == 1 and not told.labels


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"objective": ["cosine", "cosine"]}, "name each once"),
        ({"manners": ["one-round", "one-round"]}, "each once"),
        ({"manners": []}, "name at least one"),
        ({"manners": "foo"}, "manners = 'foo': expected"),
        ({"iterations": 10**20}, "must be from 1 to 10,000,000"),
        ({"simulated": 10**20}, "at most 10,000,000"),
    ],
)
def test_what_would_count_images_twice_or_never_end_is_one_sentence(table, words) -> None:
    with pytest.raises(ValueError, match=words):
        make_inversions(table, False, "cpu")
