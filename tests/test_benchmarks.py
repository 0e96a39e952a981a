"""The benchmarks start, and their pages are what their numbers say: nothing is trained or attacked here."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from math import inf
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import ValidationError

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
SHARED = ("quiet", "lines", "one_gradient", "by_pixels", "sources", "same_pieces")
COMMANDS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in SHARED)


@pytest.fixture(autouse=True)
def beside_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python benchmarks/NAME.py` has it: its own folder comes first in the path of imports."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")


def benchmark(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_benchmark_has_help(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {name}.py")


# --- findings ---


def test_the_page_of_findings_follows_from_its_numbers():
    findings = benchmark("findings")
    text = (ROOT / "docs" / "findings.json").read_text(encoding="utf-8")
    kept = findings.Findings.read(text)
    assert set(kept.by_row) == {row.name for row in findings.ROWS}
    assert findings.page(kept) == (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert kept.text() == text


def test_a_finding_whose_proof_is_infinite_survives_the_file():
    findings = benchmark("findings")
    kept = findings.Findings.read((ROOT / "docs" / "findings.json").read_text(encoding="utf-8"))
    assert kept.by_row["component"].proven == inf
    finding = kept.by_row["ldp-sound"].model_copy(update={"proven": inf})
    again = findings.Findings.read(kept.having("ldp-sound", finding).text())
    assert again.by_row["ldp-sound"] == finding
    assert list(again.by_row) == [row.name for row in findings.ROWS]


def test_a_finding_with_a_field_missing_is_refused():
    findings = benchmark("findings")
    with pytest.raises(ValidationError, match="proven"):
        findings.Findings.read('{"ldp-sound": {"claimed": 4.0}}')


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"demonstrated": 5.0}, "**claim violated**"),
        ({"demonstrated": 5.0, "claimed": None}, "**proof violated**"),
        ({"demonstrated": 5.0, "metrics": {"epsilon": 2.0, "epsilon_if_gaussian": 5.0}}, "**claim violated** (G)"),
        ({"demonstrated": 2.0}, "consistent"),
        ({"demonstrated": 0.0}, "not shown"),
        ({"demonstrated": 2.0, "proven": inf}, "not shown"),
        ({"demonstrated": 2.0, "ceiling": 3.0}, "not shown"),
    ],
)
def test_verdict_of_a_finding(numbers, verdict):
    findings = benchmark("findings")
    kept = findings.Findings.read((ROOT / "docs" / "findings.json").read_text(encoding="utf-8"))
    row = next(row for row in findings.ROWS if row.name == "ldp-sound")  # claims 4, and 4 is proven
    assert findings._verdict(row, kept.by_row["ldp-sound"].model_copy(update=numbers)) == verdict


def test_nearly_every_claim_is_refuted_in_few_draws():
    """Which clients and records a canary meets is by lot: two rows may take up to three times as many."""
    findings = benchmark("findings")
    kept = findings.Findings.read((ROOT / "docs" / "findings.json").read_text(encoding="utf-8")).by_row
    above = [kept[row.name] for row in findings.ROWS if "laim" in findings._verdict(row, kept[row.name])]
    assert len(above) >= 25 and all(found.demonstrated > found.claimed for found in above)
    longer = [found.trials / findings.few_draws(found.claimed, found.if_gaussian) for found in above]
    assert sum(share > 1 for share in longer) <= 2 and max(longer) <= 3
    assert all(found.drawn for found in kept.values())  # with bets


# --- soundness ---


def test_the_short_page_of_soundness_has_the_figures_of_the_last_run():
    measured = (BENCHMARKS / "measured" / "soundness.md").read_text(encoding="utf-8")
    (row,) = (line for line in measured.splitlines() if line.startswith("| all | ") and line.count("|") == 10)
    *figures, below = (cell.strip() for cell in row.split("|")[2:6])
    page = (ROOT / "docs" / "soundness.md").read_text(encoding="utf-8")
    stated = re.search(r"drew ([\d,]+) schemes and priced ([\d,]+) ε, of which ([\d,]+) are finite\. None", page)
    assert stated is not None and list(stated.groups()) == figures and below == "0"


# --- choose


@pytest.mark.full
def test_a_recommendation_keeps_its_limits_with_seeds_that_nobody_had(tmp_path):
    """Quick: one study of six settings, whose few seeds show a limit of 40 %; `benchmarks/choose.py` has ten of 24."""
    choose = benchmark("choose")
    goals = choose.replace(choose.GOALS, leakage_at_most=0.4)
    quick = choose.replace(choose.OPTIONS, trials=6, minutes=0.05, goals=goals)
    assert choose.keeps(choose.Bench(tmp_path, 1, 2, (3, 2), quick)) == (1, 1)


def test_what_a_study_states_of_its_recommendation_holds_in_95_of_100_studies():
    """Where half of the settings keep the limits, and where all lie just above one; the benchmark has 16 worlds and
    more studies. Of 50 studies no more than 7 are wrong with a chance of 5 % each, but for one in a hundred times.
    """
    simulated = benchmark("simulated_studies")
    worlds = {world.name: world for world in simulated.worlds()}
    for name in ("many keep them; members", "none keeps them: all just above"):
        told = simulated.carried_out(worlds[name], 50)
        assert sum(one.above for one in told) <= 7 and sum(one.broken for one in told) <= 7
    assert sum(one.recommended for one in simulated.carried_out(worlds["many keep them"], 20)) > 14


# --- correlated noise

ONE_EACH = {"name": "digits", "samples_per_client": 1}  # bounds and noise do not hang on the data
