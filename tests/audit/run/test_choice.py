"""`audit run` without --attack: which attacks run, what says so, and that neither a clock nor a kill has a say."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dpfl_audit
import pytest
from command import called, content
from dpfl_audit.attacks import ATTACKS
from dpfl_audit.attacks.cost import A_MINUTE
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.membership import LossThreshold, products
from dpfl_audit.attacks.membership.gradients import squared_norms
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.results.gates import outcome, parse_gate
from dpfl_audit.audit.run import RunOptions, opened
from dpfl_audit.audit.run.choice import Applying, choose

pytestmark = pytest.mark.usefixtures("without_closeness")
# Here, where senders have names and records are no texts.
OTHERS = ("membership-quantile", "membership-stacked", "linking", "inversion-text", "attribute", "membership-exposure")
APPLY = [name for name in ATTACKS if name not in OTHERS]
MEMBERSHIP = [name for name in ATTACKS if name.startswith("membership") and name != "membership-exposure"]
FEW = {"inversion": {"iterations": 9, "objective": "cosine"}} | {
    f"membership-{m}": {"shadows": 4} for m in ("shokri", "lira", "rmia")
}
# 15 auxiliary images are too few to train reference classifiers on, which would take most of the time.
IMAGES: dict[str, Any] = {  # plain SGD, five captured clients, labels, candidates: every attack applies
    "seed": 3,
    "data": {"name": "digits", "clients": 5, "samples_per_client": 20},
    "model": {"name": "mlp", "options": {"widths": [8]}},
    "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10, "epochs": 1},
    "scheme": {"name": "ldp", "rounds": 2, "clip": 10.0, "sigma": 1e-4},
    "capture": {"clients": [0, 1, 2, 3, 4], "auxiliary": 15, "candidates": 100},
    "attack": FEW | {"membership-lira-offline": {"shadows": 4}},
}
TABLE = IMAGES | {
    "data": {"name": "breast_cancer", "clients": 2, "samples_per_client": 20},
    "capture": {"clients": [0, 1], "auxiliary": 15, "candidates": 40},
}


def trained(config: Mapping[str, Any], folder: Path) -> Path:
    return dpfl_audit.train(config, folder, noise_key="published", quiet=True).folder


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return trained(IMAGES, tmp_path_factory.mktemp("choice") / "images")


@pytest.fixture(scope="module")
def whole(images) -> Path:
    """Results of no --attack."""
    dpfl_audit.run(images, images.parent / "whole", quiet=True)
    return images.parent / "whole"


def test_without_attack_everything_that_applies_is_chosen_and_the_rest_has_a_reason(images) -> None:
    choice = opened(images, RunOptions()).choice
    assert [ran.attack for ran in choice.ran] == APPLY
    reasons = {lack.attack: lack.reason for lack in choice.not_run}
    assert "--attack canary" in reasons["canary"] and "15 auxiliary" in reasons["membership-quantile"]
    assert "15" in reasons["membership-stacked"] and len(reasons) == 3


@pytest.mark.full
def test_what_was_chosen_is_run_and_the_rest_is_a_warning(images, whole) -> None:
    results = Results.read(whole)
    assert results.choice == opened(images, RunOptions()).choice
    assert {attack.attack for attack in results.attacks} == {*APPLY}
    for lack in results.choice.not_run:
        assert any(f"{lack.attack} (" in warning for warning in results.warnings)


@pytest.mark.full
def test_the_list_it_names_gives_the_same_evidence(whole, images, tmp_path) -> None:
    names = [ran.attack for ran in Results.read(whole).choice.ran]
    named = dpfl_audit.run(images, tmp_path / "named", attacks=names, quiet=True)
    assert content(named.folder, but=["results.json"]) == content(whole, but=["results.json"])
    assert named.choice is None and named.attacks == Results.read(whole).attacks


@pytest.mark.full
def test_a_kill_or_a_slow_machine_changes_nothing(whole, images, tmp_path, monkeypatch) -> None:
    again = tmp_path / "again"
    dpfl_audit.run(images, again, quiet=True)
    for lost in sorted(again.glob("evidence/*"))[::2]:
        lost.unlink()
    (again / ".work").mkdir()
    (again / ".work" / "digest").write_text(json.loads((again / "results.json").read_text())["digest"])
    (again / "results.json").unlink()
    now = iter(range(0, 10**9, 1000))  # every look at a clock is a quarter of an hour later
    for clock in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, clock, lambda: float(next(now)))
    dpfl_audit.run(images, again, quiet=True)
    monkeypatch.undo()
    assert content(again) == content(whole)


def test_more_minutes_are_more_attacks_the_cheapest_first(images, tmp_path, capsys) -> None:
    """And never more of them than the minutes hold."""
    costs = {name: [(cost * A_MINUTE, "")] for name, cost in {"a": 5, "b": 1, "c": 2, "d": 2}.items()}
    expected = {1: "b", 2.9: "b", 3: "bc", 5: "bcd", 9.9: "bcd", 10: "abcd", float("inf"): "abcd"}
    for limit, names in expected.items():
        made = choose(Applying(costs, {"e": "no"}), limit)
        assert [ran.attack for ran in made.ran] == [*names] and sum(ran.minutes for ran in made.ran) <= limit
        assert {each.attack for each in made.not_run} == {*"abcde"} - {*names}
    few = called(capsys, "run", images, "-o", tmp_path / "few", "--minutes", "0.001", "--quiet")
    made = Results.read(tmp_path / "few").choice
    assert few == (0, "", "") and 0 < len(made.ran) < len(ATTACKS)
    late = {each.attack: each for each in made.not_run}
    assert "minutes" in late["canary"].reason and late["canary"].minutes > 0.001
    assert sum(ran.minutes for ran in made.ran) <= 0.001


def test_shadows_are_trained_once_and_counted_once() -> None:
    work = {name: [(A_MINUTE, "16 shadows")] for name in ("lira", "rmia")} | {"alone": [(A_MINUTE // 2, "")]}
    ran = {ran.attack: ran.minutes for ran in choose(Applying(work, {}), 1.5).ran}
    assert ran == {"lira": 1.0, "rmia": 0.0, "alone": 0.5}


@pytest.mark.parametrize(
    ("longer", "parts"), [(3, {"inversion": 2, "b": None, "c": None}), (9, dict.fromkeys(["inversion", "b"]))]
)
def test_of_an_inversion_that_is_too_long_the_first_parts_run(longer, parts) -> None:
    work = {"inversion": [(A_MINUTE, "")] * 5, "b": [(A_MINUTE // 2, "")], "c": [(longer * A_MINUTE, "")]}
    made = choose(Applying(work, {}), 3.6)
    assert {ran.attack: (ran.minutes, ran.parts) for ran in made.ran} == {"inversion": (3.0, 3), "b": (0.5, None)}
    assert {each.attack: each.minutes for each in made.not_run} == {"inversion": 2.0, "c": longer}
    assert made.unfinished == {"inversion"}
    assert {ran.attack: ran.parts for ran in choose(Applying(work, {}), 5.5).ran} == parts


def test_an_inversion_no_part_of_which_fits_has_fewer_iterations(tmp_path: Path) -> None:
    """Of pictures of 128 × 128 the first message took all ten minutes, and none was attacked."""
    config = {
        "data": {"name": "digits", "clients": 2, "samples_per_client": 20},
        "model": {"name": "linear"},
        "local": {"optimiser": "sgd", "lr": 0.5, "batch_size": 20},
        "scheme": {"name": "local-gaussian", "clip": 1.0, "noise_multiplier": 1.0, "rounds": 2, "share": "gradient"},
        "attack": {"inversion": {"iterations": 10**6}},
    }
    dpfl_audit.train(config, tmp_path / "setup", noise_key="published", quiet=True)
    job = opened(tmp_path / "setup", RunOptions(minutes=0.1))
    assert job.choice is not None and sum(ran.minutes for ran in job.choice.ran) <= 0.1
    chosen = {ran.attack: ran for ran in job.choice.ran}
    assert 30 <= (chosen["inversion"].iterations or 0) < 10**5 and "inversion" in job.choice.unfinished
    settings = {attack.settings["iterations"] for attack in job.attacks if attack.name == "inversion"}
    assert max(settings) == chosen["inversion"].iterations
    with pytest.raises(BadInput, match="does not run here"):  # where somebody asks for so many
        opened(tmp_path / "setup", RunOptions(minutes=0.1, overrides=(f"inversion.iterations={10**6}",)))


def test_an_inversion_whose_exact_methods_take_too_long_runs_without_them(tmp_path: Path) -> None:
    """Steps of Adam taken apart took nine of ten minutes a message of 128 × 128 pixels: nothing was measured."""
    config = {
        "data": {"name": "photos", "clients": 2, "samples_per_client": 20},
        "model": {"name": "mlp", "options": {"widths": [128]}},
        "local": {"optimiser": "adam", "lr": 1e-3, "batch_size": 10},
        "scheme": {"name": "fedavg", "rounds": 1},
    }
    dpfl_audit.train(config, tmp_path / "setup", noise_key="published", quiet=True)
    whole = opened(tmp_path / "setup", RunOptions(minutes=1e3)).choice.ran
    dear = next(ran.minutes for ran in whole if ran.attack == "inversion")
    job = opened(tmp_path / "setup", RunOptions(minutes=dear / 4))  # a message of two takes dear / 2
    exact = {attack.settings["exact"] for attack in job.attacks if attack.name == "inversion"}
    assert exact == {False} and "inversion" in job.choice.unfinished


@pytest.mark.full
def test_a_message_is_read_in_full_before_the_next(whole, images, tmp_path) -> None:
    """By every variant of the attack, as in a run of all; a gate does not pass by what was left out."""
    costs = {ran.attack: ran.minutes for ran in Results.read(whole).choice.ran}
    before = sum(cost for cost in costs.values() if cost < costs["inversion"])
    few = dpfl_audit.run(images, tmp_path / "few", minutes=before + costs["inversion"] / 3, quiet=True)
    (ran,) = (ran for ran in few.choice.ran if ran.attack == "inversion")
    (late,) = (each for each in few.choice.not_run if each.attack == "inversion")
    read, all_of_them = ([a for a in each.attacks if a.kind == "inversion"] for each in (few, Results.read(whole)))
    assert 0 < len(read) == ran.parts < len(all_of_them)
    assert ran.minutes + late.minutes == pytest.approx(costs["inversion"], abs=2e-3)
    assert {attack.key for attack in read} < {attack.key for attack in all_of_them}
    variants = [sum(1 for a in each if a.manner == "one-round") for each in (read, all_of_them)]
    messages = len({(a.round, a.client) for a in all_of_them if a.manner == "one-round"})
    by_message = Counter((a.round, a.client) for a in read)
    assert sorted(by_message.values())[1:] == [variants[1] // messages] * (len(by_message) - 1)
    with pytest.raises(BadInput, match="did not fit into the minutes"):
        outcome(parse_gate("reidentified > 0.99"), few)


def test_where_nothing_fits_the_prices_are_there(images, tmp_path, capsys) -> None:
    assert called(capsys, "run", images, "-o", tmp_path / "r", "--minutes", "1e-9", "--quiet") == (0, "", "")
    results = Results.read(tmp_path / "r")
    assert results.choice.ran == () and results.attacks == () and not results.verdict.measured
    assert all(row.proven is not None for row in results.epsilon) and len(results.epsilon) > 0
    assert {each.attack for each in results.choice.not_run if each.minutes is not None} == {*APPLY, "canary"}
    shutil.copytree(images, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "auditor")
    code, _, said = called(capsys, "run", tmp_path / "bare", "-o", tmp_path / "none", "--minutes", "1e-9")
    assert code == 2 and "--minutes 1e-09" in said and not (tmp_path / "none").exists()


def test_minutes_grant_canaries_too(tmp_path) -> None:
    config = IMAGES | {"capture": {"clients": [0], "auxiliary": 15}, "attack": FEW | {"canary": {"numbers": 1e6}}}
    results = dpfl_audit.run(trained(config, tmp_path / "s"), tmp_path / "r", minutes=1.0, quiet=True)
    assert {"inversion", "canary"} == {ran.attack for ran in results.choice.ran}
    assert any(row.demonstrated is not None for row in results.epsilon)
    assert {each.attack for each in results.choice.not_run} == {*MEMBERSHIP}
    assert all("[capture]" in each.reason for each in results.choice.not_run)


def test_an_attack_that_is_refused_names_those_that_apply(tmp_path, capsys) -> None:
    hinge = TABLE | {"model": {"name": "svm"}}
    table = trained(hinge, tmp_path / "table")
    code, _, said = called(capsys, "run", table, "-o", tmp_path / "r", "--attack", "inversion")
    assert code == 2 and "'hinge'" in said and not (tmp_path / "r").exists() and "\n" not in said
    assert "membership-loss, membership-cosine," in said
    assert "membership-fedmia" not in said and "canary" in said  # two clients are too few for FedMIA
    code, _, said = called(capsys, "run", table, "-o", tmp_path / "r", "--attack", "inversion", "--observer", "model")
    assert code == 2 and "membership-loss" in said and "membership-cosine" not in said  # it sees no upload
    dpfl_audit.run(table, tmp_path / "r", quiet=True)
    ran = {entry.attack for entry in Results.read(tmp_path / "r").attacks}
    # Quantile regression wants more auxiliary records, and these do not go with a hinge loss.
    assert ran == {"attribute", *MEMBERSHIP} - {
        f"membership-{name}" for name in ("stacked", "fedmia", "quantile", "shokri", "rmia")
    }
    bare = trained(hinge | {"capture": {"clients": [0], "auxiliary": 15, "truth": False}}, tmp_path / "bare")
    code, _, said = called(capsys, "run", bare, "-o", tmp_path / "b", "--attack", "inversion")
    assert code == 2 and "[capture]" in said
    code, _, said = called(capsys, "run", bare, "-o", tmp_path / "b")
    assert code == 2 and "inversion (" in said


def test_an_attack_that_fails_under_way_is_an_error_if_asked_for_and_else_a_reason(tmp_path, monkeypatch, capsys):
    table = trained(TABLE, tmp_path / "table")

    def fails(*_: object) -> None:
        raise ValueError("3 of 4 shadow federations diverged")

    monkeypatch.setattr(LossThreshold, "run_part", fails)
    asked = called(capsys, "run", table, "-o", tmp_path / "r", "--attack", "membership-loss")
    assert asked[:2] == (2, "") and "membership-loss: 3" in asked[2]
    results = dpfl_audit.run(table, tmp_path / "rest", quiet=True)
    lost = next(each for each in results.choice.not_run if each.attack == "membership-loss")
    assert lost.reason.startswith("3 of")
    assert "membership-loss" not in {entry.attack for entry in results.attacks} | {r.attack for r in results.choice.ran}
    assert any("membership-loss (3" in warning for warning in results.warnings)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--minutes", "1", "--attack", "inversion"), "give one of the two"),
        (("--minutes", "nan"), "--minutes nan: expected more than 0"),
        (("--minutes", "0"), "--minutes 0: expected more than 0"),
        (("--set", "membership-lira.shadow=3"), "unknown key 'shadow'"),
        (("--fail-if", "demonstrated > 1"), "add --attack canary"),
    ],
)
def test_what_would_run_nothing_is_one_sentence(images, tmp_path, capsys, options, said) -> None:
    code, out, error = called(capsys, "run", images, "-o", tmp_path / "r", *options)
    assert (code, out) == (2, "") and said in error and "\n" not in error and not (tmp_path / "r").exists()


def test_work_is_counted_from_shapes(images) -> None:
    """Twice the iterations are twice the work, whatever was captured."""
    setup = dpfl_audit.audit.setup.folder.open_setup(images)
    view, knowledge = setup.view(setup.config.audit.observer), setup.knowledge()
    once, twice = ([part.work for part in Inversion(iterations=n).parts(view, knowledge)] for n in (10, 20))
    assert twice == [2 * work for work in once] and min(once) > 0


def test_what_all_senders_share_is_computed_once_a_round(images, tmp_path, monkeypatch) -> None:
    """Each sender's part got a copy of what the attacker knows, and a ResNet-18 its norms for each of ten."""
    computed: list[int] = []

    def counted(*given: Any) -> Any:
        computed.append(len(given[2]))
        return squared_norms(*given)

    monkeypatch.setattr(products, "squared_norms", counted)
    dpfl_audit.run(images, tmp_path / "results", attacks=["membership-cosine"], quiet=True)
    assert computed == [100, 100]  # of the candidates, in each of two rounds
