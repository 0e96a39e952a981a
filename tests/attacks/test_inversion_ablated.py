"""What is withheld from an inversion is not used: whatever stands in its place, the images come out the same bits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from dpfl_audit.attacks.base import NOISE_KNOWN, Knowledge, Reconstruction, View
from dpfl_audit.attacks.inversion.ablated import SWITCHES, Ablated, ablation
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.defenses.models import Normalise
from dpfl_audit.defenses.terms import Observer

BASE: dict[str, Any] = {
    "seed": 5,
    "data": {"name": "digits", "clients": 1, "samples_per_client": 6},
    "model": {"name": "mlp", "options": {"widths": [16]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 3, "epochs": 2},
    "scheme": {"name": "local-gaussian", "rounds": 2, "clip": 0.3, "noise_multiplier": 0.01, "share": "update"},
    "capture": {"clients": [0]},
}
ADAM = {"local": {"optimiser": "adam", "lr": 0.01, "batch_size": 6}}
GRADIENT = {"scheme": {**BASE["scheme"], "share": "gradient"}, "local": {"batch_size": 6}}
PLAIN = {"scheme": {"name": "fedavg", "rounds": 1, "share": "gradient"}, "local": {"batch_size": 6}}
WEIGHTS = {"scheme": {**BASE["scheme"], "share": "weights"}}
ATTACK = Inversion(objective="euclidean", tv="noise-aware", exact=True, iterations=4)


def told(folder: Path, **tables: Any) -> tuple[View, Knowledge]:
    made = open_setup(train(build(parse_config({**BASE, **tables}), folder), folder / "setup"))
    return made.view(Observer.parse("server")), made.knowledge()


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> tuple[View, Knowledge]:
    return told(tmp_path_factory.mktemp("ablated"))


def brought(attack: Inversion | Ablated, view: View, knowledge: Knowledge) -> list[Reconstruction]:
    groups = attack.groups(attack.parts(view, knowledge), view)
    found = [
        one
        for parts in groups
        for one in attack.run_group(parts, [view] * len(parts), [knowledge] * len(parts), seed=3)
    ]
    return sorted(found, key=lambda one: (one.manner, one.message_ids))


def same(one: list[Reconstruction], other: list[Reconstruction]) -> bool:
    """Whether all that an attacker got is, to the last bit."""
    return len(one) == len(other) and all(
        torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) and a.loss == b.loss
        and (a.message_ids, a.assumed) == (b.message_ids, b.assumed)
        for a, b in zip(one, other)
    )  # fmt: skip


def _other_facts(view: View, knowledge: Knowledge, **facts: Any) -> tuple[View, Knowledge]:
    return replace(view, facts=replace(view.facts, **facts)), knowledge


def _other_labels(view: View, knowledge: Knowledge) -> tuple[View, Knowledge]:
    return view, replace(knowledge, labels={i: (own + 3) % 10 for i, own in knowledge.labels.items()})


def _other_statistics(view: View, knowledge: Knowledge) -> tuple[View, Knowledge]:
    module = copy.deepcopy(view.module)
    for part in module.modules():
        if isinstance(part, Normalise):
            part.mean, part.std = part.mean + 0.7, part.std * 5
    return replace(view, module=module), knowledge


Garbage = Callable[[View, Knowledge], tuple[View, Knowledge]]
GARBAGE: dict[str, Garbage] = {
    "labels": _other_labels,
    "noise": lambda view, own: _other_facts(view, own, noise_std=0.3),
    "clip": lambda view, own: _other_facts(view, own, clip_norm=0.05),
    "local training": lambda view, own: _other_facts(
        view, own, optimiser="adam", lr=7.0, batch_size=2, epochs=None, steps=9, momentum=0.3, smoothing=0.2
    ),
    "normalisation statistics": _other_statistics,
}


@pytest.fixture(scope="module")
def whole(ground: tuple[View, Knowledge]) -> list[Reconstruction]:
    """What the attacker brings who knows everything."""
    return brought(ATTACK, *ground)


@pytest.fixture(scope="module")
def without(ground: tuple[View, Knowledge]) -> Callable[[str], list[Reconstruction]]:
    """And the one from whom something is withheld."""
    return cache(lambda what: brought(Ablated(ATTACK, what), *ground))


@pytest.mark.few(2)
@pytest.mark.parametrize("what", SWITCHES)
def test_what_is_withheld_is_not_used(what: str, ground: tuple[View, Knowledge], whole, without) -> None:
    """And the same messages are attacked from the same starts."""
    garbage, left = GARBAGE[what](*ground), without(what)
    assert same(left, brought(Ablated(ATTACK, what), *garbage))
    assert not same(whole, brought(ATTACK, *garbage)) and not same(whole, left)  # it was used before
    assert [found.message_ids for found in whole] == [found.message_ids for found in left]
    assert all(torch.equal(a.start, b.start) and b.attack == "inversion" for a, b in zip(whole, left))


def test_what_is_withheld_is_not_assumed(whole, without) -> None:
    """Each switch takes its own assumption out of what the report lists."""
    taken = {
        "labels": "labels known",
        "noise": NOISE_KNOWN,
        "clip": "clip norm known and modelled",
        "local training": "the weights hardly move during local training: the update is read as −lr·steps·(mean"
        " gradient)",
    }
    said = {text for found in whole if found.manner == "one-round" for text in found.assumed}
    for what, text in taken.items():
        left = {t for found in without(what) if found.manner == "one-round" for t in found.assumed}
        assert text in said and text not in left


NOTHING = {
    "whole": ({}, ATTACK, {}),
    "cosine": ({}, replace(ATTACK, objective="cosine"), {"clip": "these settings do not read its norm"}),
    "plain prior": ({}, replace(ATTACK, tv=0.01, exact=False), {"noise": "these settings do not read its size"}),
    "gradient": (GRADIENT, ATTACK, {"local training": "a gradient is sent as it is"}),
    "inferred": ({}, replace(ATTACK, labels="inferred"), {"labels": "they are inferred as it is"}),
    "no noise": (
        PLAIN,
        ATTACK,
        {"noise": "there is none", "clip": "there is none", "local training": "a gradient is sent as it is"},
    ),
    "one step": (
        {"local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 6}},
        ATTACK,
        {"local training": "one step of sgd is one gradient"},
    ),
    "weights": (WEIGHTS, ATTACK, {"clip": "a clip of weights is taken not to have acted"}),
    "adam reads all": (ADAM, replace(ATTACK, objective="cosine", tv=0.01, exact=False), {}),
}


@pytest.mark.parametrize("case", NOTHING)
def test_a_switch_that_takes_nothing_away_is_named_with_the_reason(case: str, tmp_path: Path) -> None:
    tables, attack, expected = NOTHING[case]
    view, knowledge = told(tmp_path, **tables)
    found = ablation(attack, [view], knowledge)
    assert found.nothing == expected
    assert [*found.attacks] == [what for what in SWITCHES if what not in expected]
    assert all(ablated.attack == attack for ablated in found.attacks.values())


def test_labels_that_cannot_be_inferred_are_not_withheld(ground: tuple[View, Knowledge]) -> None:
    view, knowledge = ground
    cut = torch.nn.Sequential(view.module, torch.nn.Unflatten(1, (-1, 1)), torch.nn.Flatten(2))  # (n, classes, 1)
    why = ablation(ATTACK, [replace(view, module=cut)], knowledge).nothing["labels"]
    assert "no classifier" in why


def test_only_an_inversion_has_knowledge_to_withhold(ground: tuple[View, Knowledge]) -> None:
    from dpfl_audit.attacks.membership import LossThreshold

    with pytest.raises(ValueError, match="no inversion"):
        ablation(LossThreshold(), [ground[0]], ground[1])
    with pytest.raises(ValueError, match="without"):
        Ablated(ATTACK, "noises")
