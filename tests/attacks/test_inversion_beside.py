"""The inversions beside those whose prior grows with the noise: they run where noise is known, name themselves, and see
what the others do not.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dpfl_audit.attacks.inversion.ablated import Ablation, ablation
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import FixedPrior, SpectrumPrior, make_inversions
from dpfl_audit.audit.results.checks import checks
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.folder import open_setup
from dpfl_audit.defenses.terms import Observer

RAW: dict[str, Any] = {
    "seed": 0,
    "data": {"name": "photos", "clients": 2, "samples_per_client": 8},
    "model": {"name": "mlp", "options": {"widths": [256, 256]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 4},
    "capture": {"clients": [0, 1]},
}


def attacked(folder: Path, noise: float, **inversion: Any) -> Results:
    scheme = {"name": "ldp", "clip": 0.4, "sigma": 0.4 * noise, "rounds": 1}
    if noise:
        scheme = {"name": "local-gaussian", "clip": 0.4, "noise_multiplier": noise, "rounds": 1}
    config = parse_config({**RAW, "scheme": scheme, "attack": {"inversion": inversion}}, folder)
    setup = train(build(config, folder), folder / "setup")
    return run(setup, folder / "results", RunOptions(attacks=("inversion",), device="cpu", pixels_only=True))


def by_variant(results: Results) -> dict[str, int]:
    """Images that were re-identified, by variant."""
    hits: dict[str, int] = {}
    for entry in results.attacks:
        hits[entry.variant] = hits.get(entry.variant, 0) + round((entry.value("reidentified") or 0) * (entry.n or 0))
    return hits


@pytest.mark.full
def test_the_default_finds_a_leak_that_the_growing_prior_smooths_away(tmp_path: Path) -> None:
    """.01·C of noise is 99 % of what is sent. The old default is what `tv = "noise-aware"` still asks for."""
    old = attacked(tmp_path / "old", 0.01, tv="noise-aware")
    new = attacked(tmp_path / "new", 0.01)
    assert set(by_variant(old)) == {"cosine", "euclidean"} and max(by_variant(old).values()) <= 5
    beside = {name: by_variant(new)[name] for name in ("cosine, fixed prior", "euclidean, spectrum prior")}
    assert by_variant(new) == {**by_variant(old), **beside}
    assert min(beside.values()) >= 7  # of 16, where chance gives 1
    assert old.verdict.level == "none found" and new.verdict.level == "moderate"
    # They are further tries, and their checks count among all: two each for two messages and four variants.
    assert sum(map(len, checks(old.attacks, old.epsilon))) == 8
    assert sum(map(len, checks(new.attacks, new.epsilon))) == 16


@pytest.mark.full
def test_without_noise_nothing_runs_twice(tmp_path: Path) -> None:
    assert set(by_variant(attacked(tmp_path, 0.0, iterations=2))) == {"cosine", "euclidean"}


@pytest.mark.parametrize(
    ("table", "fixed"),
    [
        ({}, 1),
        ({"objective": "cosine"}, 1),
        ({"preset": "noise-aware", "objective": ["cosine", "euclidean"]}, 1),
        ({"objective": "euclidean"}, 0),
        ({"preset": "noise-aware"}, 0),
        ({"tv": "noise-aware"}, 0),
        ({"tv": 0.01}, 0),
        ({"preset": "default"}, 0),
    ],
)
def test_it_runs_where_the_prior_grows_and_the_table_does_not_name_it(table: dict[str, Any], fixed: int) -> None:
    made = make_inversions({**table, "iterations": 9}, True, "cpu")
    found = [attack for attack in made if isinstance(attack, FixedPrior)]
    assert len(found) == fixed
    both = "objective" not in table or isinstance(table["objective"], list)
    assert sum(isinstance(attack, SpectrumPrior) for attack in made) == (fixed and both)
    for attack in made:
        assert isinstance(attack, Inversion) and attack.iterations == 3
    assert all((attack.objective, attack.tv, attack.prior) == ("cosine", 0.01, "fixed") for attack in found)


def test_the_spectrum_begins_as_often_as_the_others_and_searches_by_itself() -> None:
    made = make_inversions({"restarts": 3, "lr": 0.05, "optimiser": "adam", "iterations": 500}, False, "cpu")
    (own,) = (attack for attack in made if isinstance(attack, SpectrumPrior))
    assert (own.restarts, own.lr, own.optimiser, own.iterations) == (3, 0.2, "signed-adam", 60)


@pytest.mark.full
def test_the_spectrum_is_tried_on_what_is_mostly_noise_where_records_tell_it(tmp_path: Path) -> None:
    """Noise of half a message's energy is the edge: d·noise_std²/‖message‖²; of several that are read together, of half
    their mean's, where it has less.
    """
    config = parse_config(
        {**RAW, "scheme": {"name": "local-gaussian", "clip": 0.4, "noise_multiplier": 0.01, "rounds": 4}}, tmp_path
    )
    setup = open_setup(train(build(config, tmp_path), tmp_path / "setup"))
    view, known = setup.view(Observer.parse("server")), setup.knowledge()
    attack = next(a for a in make_inversions({}, False, "cpu") if isinstance(a, SpectrumPrior))
    parts = attack.parts(view, known)
    assert parts and all(t.noise_share > 0.9 for part in parts for t in part.content.targets)
    few = replace(known, auxiliary_inputs=known.auxiliary_inputs[:99])
    assert attack.parts(view, few) == []
    plain = Inversion(objective="euclidean", tv="noise-aware", iterations=1)
    for own, says in ((known, False), (few, True)):  # what is weaker for it says so
        assumed = plain.run_part(plain.parts(view, own)[0], view, own, 0).assumed
        assert any(words.startswith("99 ") and "spectrum" in words for words in assumed) == says
    std = view.facts.noise_std
    assert std is not None
    for factor, runs in ((0.75, True), (0.65, False), (0.0, False)):  # energies of .56, .42 and none
        told = replace(view, facts=replace(view.facts, noise_std=std * factor))
        assert {part.content.manner for part in attack.parts(told, known)} == ({"one-round"} if runs else set())
    assert attack.parts(replace(view, facts=replace(view.facts, noise_std=None)), known) == []
    alone, together = parts[0], next(part for part in parts if part.content.target.others)
    few_steps = replace(attack, iterations=2)
    for part, nothing in ((alone, "a message of noise"), (together, "of messages of noise")):
        said = few_steps.run_part(part, view, known, 0).assumed
        assert any("Wiener" in words for words in said)
        assert any(f"{nothing} alone" in words for words in said)
    share = together.content.target.noise_share
    assert share == pytest.approx(1 / (1 + 4 * (1 / alone.content.target.noise_share - 1)), abs=0.02)
    assert any(f"{share:.0%}" in words for words in said)
    assert ablation(attack, [view], known) == Ablation({}, {})
