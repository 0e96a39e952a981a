"""What a pipeline asks: assertions, JUnit, differences between two results, numbers for a tracker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import dpfl_audit
import numpy as np
import pytest
from command import called
from dpfl_audit.audit.ci.diff import compared
from dpfl_audit.audit.ci.junit import junit_text
from dpfl_audit.audit.ci.tracking import opened_trackers, tracked, untracked
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.results.gates import Outcome, parse_gate

DELTA = 1e-5


def noisy(world: bool, seed: int) -> np.ndarray:
    return np.random.RandomState(seed).normal(size=2) + np.array([5.0 * world, 0.0])


# --- assertions ---


def test_a_false_claim_fails_with_its_sentence_and_a_true_one_passes():
    with pytest.raises(AssertionError, match=r"noisy is not \(1, 1e-05\)-DP per client.*\n  claim violated: at least"):
        dpfl_audit.assert_private(noisy, 1, DELTA, draws=200)

    def quiet(world: bool, seed: int) -> np.ndarray:
        """ε = 4.3772 exactly."""
        return np.random.RandomState(seed).normal(size=2) + np.array([1.0 * world, 0.0])

    audit = dpfl_audit.assert_private(quiet, 4.4, DELTA, draws=200, gaussian=True, unit="record")
    assert audit.finding().level == "consistent" and audit.about.unit == "record"


def test_a_condition_is_named():
    with pytest.raises(AssertionError, match="violated if the noise is Gaussian"):
        dpfl_audit.assert_private(noisy, 9, DELTA, draws=300, gaussian=True)


def test_what_could_not_have_failed_does_not_pass():
    with pytest.raises(
        BadInput, match=r"even a perfect attack shows at most .* take more draws, or pass gaussian=True"
    ):
        dpfl_audit.assert_private(noisy, 12, DELTA, draws=100)
    with pytest.raises(BadInput, match="assert_private: draws = 5: expected a whole number from 10"):
        dpfl_audit.assert_private(noisy, 1, DELTA, draws=5)


def test_an_option_that_is_none_is_named_beside_those_that_are(tmp_path):
    with pytest.raises(BadInput, match="assert_private: 'drawz' is no option; did you mean 'draws'"):
        dpfl_audit.assert_private(noisy, 1, DELTA, drawz=300)
    with pytest.raises(
        BadInput, match="assert_private: 'unknown' is no option; known are candidates, noiseless, draws"
    ):
        dpfl_audit.assert_private(noisy, 1, DELTA, unknown=3)
    with pytest.raises(BadInput, match="'claim' is no option; known are"):  # it is called epsilon here
        dpfl_audit.assert_private(noisy, 1, DELTA, claim=3)
    with pytest.raises(BadInput, match="assert_leakage: 'atacks' is no option; did you mean 'attacks'"):
        dpfl_audit.assert_leakage(tmp_path, "reidentified <= .2", atacks=["inversion"])


def test_a_statement_about_leakage(make_results, tmp_path):
    folder = make_results(tmp_path / "results", quality=0.97)
    results = dpfl_audit.Results.read(folder)
    for what in (folder, str(folder), results):
        dpfl_audit.assert_leakage(what, "psnr >= 1")
        with pytest.raises(AssertionError, match=r"reidentified <= \.2 does not hold \(reidentified > 0\.2 \("):
            dpfl_audit.assert_leakage(what, "reidentified <= .2")
    dpfl_audit.assert_leakage(folder, "level == severe")
    with pytest.raises(AssertionError, match="level < high does not hold"):
        dpfl_audit.assert_leakage(folder, "level < high")


def test_an_audit_of_ones_own_is_results_too():
    def shy(world: bool, seed: int) -> np.ndarray:
        return noisy(world, seed) * np.array([0.2, 1.0]) + np.random.RandomState(seed + 1).normal(size=2)

    audit = dpfl_audit.audit_mechanism(shy, delta=DELTA, draws=200)
    dpfl_audit.assert_leakage(audit, "demonstrated <= 3")
    audit = dpfl_audit.audit_mechanism(noisy, delta=DELTA, claim=1, draws=100)
    with pytest.raises(AssertionError, match="demonstrated <= 1 does not hold"):
        dpfl_audit.assert_leakage(audit, "demonstrated <= 1")


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("auc <= .6", "no auc was measured"),
        ("reidentifid <= .2", "did you mean 'reidentified'?"),
        ("reidentified <= 20", "lies between 0 and 1"),
        ("reidentified", "expected 'METRIC > NUMBER'"),
    ],
)
def test_what_was_not_measured_does_not_hold(statement, why, make_results, tmp_path):
    folder = make_results(tmp_path / "results")
    with pytest.raises(BadInput, match=r"^assert_leakage") as refused:
        dpfl_audit.assert_leakage(folder, statement)
    assert why in str(refused.value)


def test_a_setup_is_attacked(tmp_path):
    tables = {
        "data": {"name": "photos", "classes": 10, "clients": 2, "samples_per_client": 10},  # whose classifiers ship
        "model": {"name": "logistic"},
        "scheme": {"name": "ldp", "clip": 0.5, "sigma": 1.0, "rounds": 1, "share": "gradient"},
        "attack": {"inversion": {"iterations": 5}},
    }
    setup = dpfl_audit.train(tables, tmp_path / "setup", quiet=True)
    dpfl_audit.assert_leakage(setup, "psnr <= 1000", attacks=["inversion"])
    with pytest.raises(BadInput, match="attacks are for attacking a setup"):
        dpfl_audit.assert_leakage(dpfl_audit.audit_mechanism(noisy, delta=DELTA, draws=20), "level < high", attacks=[])


@pytest.mark.full
def test_under_pytest_a_failure_reads_like_one(tmp_path):
    (tmp_path / "test_mine.py").write_text(
        "import dpfl_audit, numpy as np\n"
        "def update(world, seed):\n    return np.random.RandomState(seed).normal(size=1) + 9.0 * world\n"
        "def test_private():\n    dpfl_audit.assert_private(update, epsilon=1, delta=1e-5, draws=100)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1 and "AssertionError: update" in ran.stdout
    assert "assertions.py" not in ran.stdout  # only the user's own line


# --- JUnit ---


def test_junit_has_a_case_a_gate():
    cases: list[Any] = [
        (parse_gate("reidentified > 0.2"), Outcome(True, "gate failed: <x> \x07")),
        (parse_gate("level >= high"), Outcome(False, "gate passed")),
        (parse_gate("auc > .6"), BadInput("not measured")),
    ]
    suite = ElementTree.fromstring(junit_text(cases, "a & b").encode())
    assert suite.attrib == {"name": "dpfl-audit", "tests": "3", "failures": "1", "errors": "1"}
    assert [case[0].tag for case in suite] == ["failure", "system-out", "error"]
    assert suite[0][0].attrib["message"].endswith(" <x>  ")


def test_audit_run_writes_it(tmp_path, capsys):
    (tmp_path / "config.toml").write_text(
        '[data]\nname = "digits"\nclients = 2\nsamples_per_client = 10\n[model]\nname = "logistic"\n'
        '[scheme]\nname = "ldp"\nclip = 0.5\nsigma = 1.0\nrounds = 1\nshare = "gradient"\n'
        "[attack.inversion]\niterations = 5\n[capture]\nauxiliary = 9\n"  # too few for reference classifiers
    )
    setup, results, junit = (tmp_path / name for name in ("setup", "results", "gates.xml"))
    assert called(capsys, "train", tmp_path / "config.toml", "-o", setup, "--quiet")[0] == 0
    run = ("run", setup, "-o", results, "--attack", "inversion", "--quiet", "--junit", junit)
    gates = ("proof != proven", "psnr > 1000")
    assert called(capsys, *run, "--fail-if", gates[0], "--fail-if", gates[1])[0] == 1
    suite = ElementTree.parse(junit).getroot()
    assert suite.attrib["failures"] == "1" and [case.attrib["name"] for case in suite] == [
        str(parse_gate(gate)) for gate in gates
    ]


# --- differences ---


def test_more_leakage_is_a_regression_and_the_same_is_none(make_results, membership, tmp_path, capsys):
    good, bad, again = (
        make_results(tmp_path / name, quality=quality, extra_attacks=[membership(auc)], seed=seed)
        for name, quality, auc, seed in (("a", 0.2, 0.55, 0), ("b", 0.97, 0.85, 0), ("c", 0.2, 0.551, 0))
    )
    code, said, _ = called(capsys, "diff", good, bad)
    assert code == 1 and re.search(r"^worse +membership-rmia, server: AUC 0\.55", said, re.M)
    assert called(capsys, "diff", good, again)[:1] == (0,)
    code, said, _ = called(capsys, "diff", bad, good)
    assert code == 0 and re.search(r"^better +membership-rmia", said, re.M) and "worse" not in said
    document = json.loads(called(capsys, "diff", good, bad, "--json")[1])
    assert document["regressions"] > 0 and {one["change"] for one in document["differences"]} >= {"worse"}


def test_equal_results_are_one_line_and_other_data_come_first(make_results, membership, tmp_path, capsys):
    """`audit diff r r` listed 50 numbers as unclear; of unlike data it said "9 regressions" and no word of the data."""
    entries = [{**membership(0.6), "attack": f"membership-{k}"} for k in range(20)]
    one = make_results(tmp_path / "one", extra_attacks=entries)
    other = make_results(tmp_path / "other", extra_attacks=entries, setup={"data": {"name": "digits"}})
    code, said, _ = called(capsys, "diff", one, one)
    assert code == 0 and len(said.splitlines()) == 3
    assert f"unclear {len(compared(Results.read(one), Results.read(one)).differences)} " in said
    code, said, _ = called(capsys, "diff", one, other)
    assert code == 0 and "digits" in said.splitlines()[0]
    assert json.loads(called(capsys, "diff", one, other, "--json")[1])["same_data"] is False


@pytest.mark.parametrize("keys", [("secret", "secret"), ("secret", "published"), ("published", "published")])
def test_rows_are_said_to_differ_only_where_that_is_known(make_results, keys, tmp_path):
    """Of two trainings on one table it said that the data differ, as each keeps its digest under a key of its own."""
    a, b = (
        Results.read(make_results(tmp_path / name, setup={"data": {"name": "csv", "sha256": name}, "noise_key": key}))
        for name, key in zip("ab", keys, strict=True)
    )
    assert compared(a, a).same_data and compared(a, b).same_data is (None if "secret" in keys else False)
    assert compared(a, b).text.splitlines()[1:] == compared(a, a).text.splitlines()  # a line on the data goes before


def test_what_is_not_measured_any_more_is_a_regression(make_results, membership, tmp_path, capsys):
    both = make_results(tmp_path / "both", extra_attacks=[membership(0.6)])
    one = make_results(tmp_path / "one")
    code, said, _ = called(capsys, "diff", both, one)
    assert code == 1 and re.search(r"^lost +membership-rmia", said, re.M)
    assert called(capsys, "diff", one, both)[0] == 0


def test_bounds(make_results, row, tmp_path):
    def read(name: str, **changes: Any) -> Results:
        rows = [row(observer="server", unit="client", adjacency="zero_out", **changes)]
        return Results.read(make_results(tmp_path / name, epsilon=rows))

    tested = {"claimed": 5.0, "claimed_by": "owner", "demonstrated": 2.0, "ceiling": 9.0, "confidence": 0.95}
    a = read("a", proven=4.0, **tested)
    for name, changes, expected in (
        ("more proven", {**tested, "proven": 4.5}, ["worse"]),
        ("less proven", {**tested, "proven": 3.5}, ["better"]),
        ("nothing proven", {**tested, "proven": None}, ["lost"]),
        ("infinite", {**tested, "proven": "inf"}, ["worse"]),
        ("larger test", {**tested, "proven": 4.0, "demonstrated": 3.9}, ["unclear"]),
        ("refuted", {**tested, "proven": 4.0, "demonstrated": 6.0}, ["worse"]),
    ):
        found = [one for one in compared(a, read(name.replace(" ", "-"), **changes)).differences if "ε" in one.what]
        clear = [one.change for one in found if one.change != "unclear"] or ["unclear"]
        assert clear == expected, name


def test_a_refutation_that_a_smaller_test_could_not_repeat_is_not_better(row, make_results, tmp_path):
    claim = {"claimed": 5.0, "claimed_by": "owner", "proven": None, "confidence": 0.95}
    a, b = (
        Results.read(make_results(tmp_path / name, epsilon=[row(**claim, demonstrated=shown, ceiling=ceiling)]))
        for name, shown, ceiling in (("a", 6.0, 9.0), ("b", 2.0, 4.0))
    )
    (one,) = [one for one in compared(a, b).differences if one.what == "demonstrated ε"]
    assert one.change == "unclear"


def test_nothing_in_common_is_no_comparison():
    one, other = (dpfl_audit.audit_mechanism(noisy, delta=delta, draws=20).results() for delta in (DELTA, 1e-6))
    with pytest.raises(BadInput, match="nothing was measured in both"):
        compared(one, other)


def test_chance_alone_makes_a_regression_in_at_most_one_of_twenty(membership, make_results, tmp_path):
    """Both sides of the same truth, 20 metrics each: intervals of 95 %, errors normal with their widths."""
    rng, wrong = np.random.default_rng(0), 0
    base = Results.read(make_results(tmp_path / "base", n=4))
    entry = base.attacks[0]
    for _ in range(100):
        sides = []
        for _ in range(2):
            aucs = 0.6 + 0.02 * rng.normal(size=20)
            sides.append(
                base.model_copy(
                    update={
                        "attacks": tuple(
                            entry.model_copy(
                                update={
                                    "attack": f"membership-{i}",
                                    "metrics": type(entry.metrics).of({"auc": float(auc)}),
                                    "intervals": {"auc": (float(auc) - 0.0392, float(auc) + 0.0392)},
                                }
                            )
                            for i, auc in enumerate(aucs)
                        )
                    }
                )
            )
        wrong += bool(compared(*sides).regressions)
    assert wrong <= 9  # 5 % of 100, and chance: two-sided, so half of it


# --- trackers ---


def test_every_number_has_a_name_of_its_own(make_results, membership, tmp_path):
    results = Results.read(make_results(tmp_path / "results", extra_attacks=[membership(0.7), membership(0.8)]))
    numbers = tracked(results)
    assert numbers["membership-rmia/server/auc"] == 0.7 and numbers["membership-rmia/server/auc-2"] == 0.8
    assert numbers["verdict/level"] == 3 and all(np.isfinite(value) for value in numbers.values())
    assert all(c.isalnum() or c in "_-./ " for name in numbers for c in name)
    assert "inf" in untracked(results).values()


def test_mlflow_gets_them(make_results, tmp_path, monkeypatch):
    heard: dict[str, Any] = {}
    mlflow = types.SimpleNamespace(
        active_run=lambda: None,
        start_run=lambda run_name: heard.update(run=run_name),
        log_metrics=heard.update,
        set_tags=heard.update,
        end_run=lambda: heard.update(ended=True),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)  # type: ignore[arg-type]
    (log,) = opened_trackers(["mlflow"])
    log(Results.read(make_results(tmp_path / "results")))
    assert heard["run"].startswith("dpfl-audit") and heard["ended"] and heard["dpfl-audit.level"] == "severe"
    assert heard["inversion/server/one-round/round1/3fa9c1d2e4b50617/psnr"] > 10


def test_tensorboard_gets_them(make_results, tmp_path, monkeypatch):
    heard: dict[str, Any] = {}
    writer = types.SimpleNamespace(
        add_scalar=lambda name, value: heard.update({name: value}),
        add_text=lambda name, text: heard.update({name: text}),
        close=lambda: heard.update(closed=True),
    )
    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    module: Any = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = lambda folder: heard.update(folder=folder) or writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    (log,) = opened_trackers([f"tensorboard:{tmp_path / 'events'}"])
    log(Results.read(make_results(tmp_path / "results")))
    assert heard["closed"] and heard["folder"] == str(tmp_path / "events") and "dpfl-audit/verdict/level" in heard


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mlflow", r"needs mlflow: pip install 'dpfl-audit\[mlflow\]'"),
        ("tensorboard:runs", r"needs tensorboard: pip install 'dpfl-audit\[tensorboard\]'"),
        ("tensorboard", "a folder is missing: tensorboard:DIR"),
        ("mlfow", "did you mean 'mlflow'"),
    ],
)
def test_a_tracker_that_is_not_there_is_one_sentence(text, sentence, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=sentence):
        opened_trackers([text])


def test_results_of_a_mechanism_can_be_compared(tmp_path: Path):
    before, after = (
        dpfl_audit.audit_mechanism(
            lambda world, seed, shift=shift: np.random.RandomState(seed).normal(size=1) + shift * world,
            delta=DELTA,
            claim=2,
            draws=300,
            name="step",
        ).results()
        for shift in (0.5, 9.0)
    )
    (one,) = compared(before, after).regressions
    assert (one.what, one.change) == ("demonstrated ε", "worse")
