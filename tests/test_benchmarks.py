"""The benchmarks start, and their pages are what their numbers say: nothing is trained or attacked here."""

from __future__ import annotations

import importlib
import json
import re
import runpy
import sys
from math import inf
from pathlib import Path
from types import ModuleType

import pandas
import pytest
import torch
from dpfl_audit.audit.choose.outcome import Performance, SingledOut
from dpfl_audit.audit.results.format import SCORING, Results
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import build
from pydantic import ValidationError
from stated import proven_row

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


# --- utility ---


def small(scheme: dict[str, object]):
    return build(
        parse_config(
            {
                "data": {"name": "digits", "clients": 2, "samples_per_client": 10},
                "model": {"name": "logistic"},
                "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 5},
                "scheme": {**scheme, "rounds": 2},
            }
        ),
        Path.cwd(),
    )


def test_every_example_of_the_page_of_utility_is_a_config():
    utility = benchmark("utility")
    assert {f"{row.name}.toml" for row in utility.ROWS} <= {path.name for path in utility.EXAMPLES.glob("*.toml")}
    page = utility.PAGE.read_text(encoding="utf-8")
    for row in utility.ROWS:
        assert page.count(f"| [{row.name}](../../examples/{row.name}.toml) |") == 2  # accuracy and ε


def test_nearly_every_claim_is_refuted_in_few_draws():
    """Which clients and records a canary meets is by lot: two rows may take up to three times as many."""
    findings = benchmark("findings")
    kept = findings.Findings.read((ROOT / "docs" / "findings.json").read_text(encoding="utf-8")).by_row
    above = [kept[row.name] for row in findings.ROWS if "laim" in findings._verdict(row, kept[row.name])]
    assert len(above) >= 25 and all(found.demonstrated > found.claimed for found in above)
    longer = [found.trials / findings.few_draws(found.claimed, found.if_gaussian) for found in above]
    assert sum(share > 1 for share in longer) <= 2 and max(longer) <= 3
    assert all(found.drawn for found in kept.values())  # with bets


# --- membership findings ---

RESULTS = Results.model_validate(
    {
        "scoring": SCORING,
        "setup": {"digest": "", "scheme": "ldp", "test_accuracy": 0.5},
        "verdict": {
            "level": "none found",
            "proof": "not priced",
            "measured": False,
            "attacked": False,
            "sentences": ("", "", ""),
        },
        "epsilon": [
            proven_row(proven=inf),
            proven_row(observer="downlink", unit="record", claimed=0.5, proven=1.25),
            proven_row(adjacency="replace_one", proven=3.0),
        ],
        "attacks": [{"attack": "membership-loss", "observer": "server", "key": "loss-server"}],
    }
)


def test_scores_of_federations_are_pooled_by_rank(tmp_path):
    """Federations whose scores have different scales: each alone ranks its members first, so do they together."""
    findings = benchmark("membership_findings")
    federations = []
    for number, scale in enumerate((1.0, 1e6)):
        scores = scale * torch.arange(1200.0)
        table = pandas.DataFrame({"id": range(1200), "score": scores, "member": [i >= 1000 for i in range(1200)]})
        folder = tmp_path / str(number) / "results" / "scores"
        folder.mkdir(parents=True)
        table.sample(frac=1, random_state=0).to_csv(folder / "loss-server.csv", index=False)
        federations.append(findings._scores(RESULTS, tmp_path / str(number), "final model's loss"))
    assert federations[0][1].sum() == 200
    figures = findings._found(federations)
    assert (figures.tpr, figures.auc) == (1.0, 1.0)
    assert figures.low < 1.0 == figures.high
    assert figures.control[0] < 0.5 < figures.control[1]
    assert not figures.inside


def test_the_table_of_epsilon_has_zeroed_out_rows_of_server_and_downlink():
    assert benchmark("membership_findings")._epsilon("local DP", [RESULTS, RESULTS]) == [
        "| local DP | 50.0 | server | client | – | ∞ |",
        "| local DP | 50.0 | downlink | record | 0.5 | 1.25 |",
    ]


def test_the_published_figures_of_membership_show_the_three_claims(capsys):
    """The table of measured/membership.md, read back: the same lines, and the same three sentences below it."""
    findings = benchmark("membership_findings")
    page = (BENCHMARKS / "measured" / "membership.md").read_text(encoding="utf-8")
    published: dict[str, dict[str, object]] = {}
    for scheme in findings.SCHEMES:
        for attack in findings.ATTACKS:
            (line,) = (line for line in page.splitlines() if line.startswith(f"| {scheme} | {attack} |"))
            rate, area, control, _ = line.removeprefix(f"| {scheme} | {attack} | ").removesuffix(" |").split(" | ")
            tpr, low, high, *areas = (
                float(x) for x in f"{rate} {area}".replace("(", "").replace(")", "").replace("–", " ").split()
            )
            figures = findings.Found(
                tpr / 100,
                low / 100,
                high / 100,
                areas[0],
                (areas[1], areas[2]),
                tuple(float(x) for x in control.split("–")),
            )
            assert line == f"| {scheme} | {attack} | {figures} |"
            published.setdefault(scheme, {})[attack] = figures
    assert findings._judge(published) == 0
    assert capsys.readouterr().out in page


# --- soundness ---


def test_the_short_page_of_soundness_has_the_figures_of_the_last_run():
    measured = (BENCHMARKS / "measured" / "soundness.md").read_text(encoding="utf-8")
    (row,) = (line for line in measured.splitlines() if line.startswith("| all | ") and line.count("|") == 10)
    *figures, below = (cell.strip() for cell in row.split("|")[2:6])
    page = (ROOT / "docs" / "soundness.md").read_text(encoding="utf-8")
    stated = re.search(r"drew ([\d,]+) schemes and priced ([\d,]+) ε, of which ([\d,]+) are finite\. None", page)
    assert stated is not None and list(stated.groups()) == figures and below == "0"


# --- mutants ---


def test_every_mutated_module_has_tests_that_can_notice():
    mutants = benchmark("mutants")
    modules = mutants.modules_of(ROOT, [])
    every = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    assert {path.split("/")[0] for path in modules} == {"defenses", "audit", "attacks", "metrics"}
    for path in modules:
        rings = mutants.tests_for(ROOT, path)
        assert any(rings[:2]) and sorted(test for ring in rings for test in ring) == every
    near, room, far = mutants.tests_for(ROOT, "defenses/federation.py")
    assert "tests/defenses/test_federation.py" in near and "tests/audit/proof/theorems/test_gaussian.py" in room
    assert "tests/test_layout.py" in far


CODE = """LIMIT = 3


@decorated(
    1
)
def f(x, y=2):
    "Text."
    if (
        x
        > y
    ):
        return 1
    else:
        y = [
            x,
        ]
    return y
"""


@pytest.mark.parametrize(
    ("line", "lines", "called"),
    [
        (1, {1}, False),
        (5, {4, 5, 6, 7}, False),  # a decorator and a signature run once, at import
        (10, {9, 10, 11, 12, 14}, True),  # a condition; `else:` has no code
        (13, {13}, True),
        (16, {15, 16, 17}, True),
        (18, {18}, True),
    ],
)
def test_a_mutant_lies_in_the_innermost_statement(line, lines, called):
    assert benchmark("mutants").statement(CODE, line) == (lines, called)


PRODUCT = """import functools


def own():
    return 1


@functools.cache
def kept():
    return 1


def by_fixture():
    return 1


def by_cache():
    return 1


def by_nobody():
    return 1
"""
TESTS = """import functools

import pytest
from dpfl_audit.metrics import m


@pytest.fixture(scope="module")
def shared():
    return m.by_fixture()


@functools.cache
def once():
    return m.by_cache()


def test_a(shared):
    assert m.kept() == m.own() == once()


def test_b(shared):
    assert m.kept() == once()
"""


def test_the_lines_of_a_test_are_its_own_and_those_it_shares_its_files(tmp_path):
    pytest.importorskip("coverage", reason="it says what runs: pip install 'dpfl-audit[mutants]'")
    mutants = benchmark("mutants")
    files = {"__init__.py": "", "metrics/__init__.py": "", "metrics/m.py": PRODUCT, "tests/test_m.py": TESTS}
    files["tests/pytest.ini"] = "[pytest]\naddopts = --import-mode=importlib\n"
    files["benchmarks/lines.py"] = (BENCHMARKS / "lines.py").read_text(encoding="utf-8")
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / ".link").mkdir()
    (tmp_path / ".link" / "dpfl_audit").symlink_to("..")
    code, printed = mutants.pytest(tmp_path, ["tests/test_m.py"], 120, tmp_path / "lines.json")
    assert code == 0, printed
    record = mutants.Record(**json.loads((tmp_path / "lines.json").read_text(encoding="utf-8")))
    file = "tests/test_m.py"
    a, b = f"{file}::test_a", f"{file}::test_b"
    assert record.lines == {"metrics/m.py": {"5": [a], "10": [a, b], "14": [file], "18": [file]}}
    assert list(record.seconds) == [a, b]


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("int | None", "int & None", True),  # an annotation
        ("= 1,", "= 2,", True),  # a default
        ("{x} > 2", "{x} < 2", True),  # what an error says
        ("*, y", "/, y", True),  # how a parameter may be given
        ("ValueError", "TypeError", False),
        ("if x > 2", "if x > 3", False),
        ("x * 3", "x / 3", False),
    ],
)
def test_what_no_test_need_notice_is_no_mutant(before, after, same):
    meaning = benchmark("mutants").meaning
    code = "def f(x: int | None = 1, *, y=0):\n    if x > 2:\n        raise ValueError(f'{x} > 2')\n    return x * 3\n"
    assert code.count(before) == 1 and (meaning(code.replace(before, after)) == meaning(code)) == same


def test_a_drawn_mutant_is_one_change_and_the_draw_repeats(tmp_path):
    pytest.importorskip("cosmic_ray", reason="its operators are an extra: pip install 'dpfl-audit[mutants]'")
    mutants = benchmark("mutants")
    module = tmp_path / "metrics" / "m.py"
    module.parent.mkdir()
    module.write_text("def f(x, y):\n    a = min(x, y)\n    b = g(x, key=y)\n    return a < b\n")
    drawn = mutants.draw(tmp_path, ["metrics/m.py"], 10, 0)
    lines = {m.line: [text for text in m.diff.splitlines() if text[0] == "+"][1][1:] for m in drawn}
    assert lines.pop(4) in ("    return a <= b", "    return a > b")
    assert lines == {2: "    a = max(x, y)", 3: "    b = g(x)"}
    assert mutants.draw(tmp_path, ["metrics/m.py"], 10, 0) == drawn
    assert "min(x, y)" in module.read_text()


# --- choose


@pytest.mark.full
def test_a_recommendation_keeps_its_limits_with_seeds_that_nobody_had(tmp_path):
    """Quick: one study of six settings, whose few seeds show a limit of 40 %; `benchmarks/choose.py` has ten of 24."""
    choose = benchmark("choose")
    goals = choose.replace(choose.GOALS, leakage_at_most=0.4)
    quick = choose.replace(choose.OPTIONS, trials=6, minutes=0.05, goals=goals)
    assert choose.keeps(choose.Bench(tmp_path, 1, 2, (3, 2), quick)) == (1, 1)


def test_what_dominates_is_better_beyond_the_intervals():
    choose = benchmark("choose")
    goals = choose.Goals(accuracy_at_least=0.6, leakage_at_most=0.3)

    def made(accuracy: float, hits: int) -> Performance:
        leak = SingledOut(attack="inversion", what="", hits=hits, n=200, chance=0.05)
        return Performance(accuracies=(accuracy,) * 3, test_records=400, leaks=(leak,))

    chosen = made(0.7, 60)
    others = [made(0.9, 10), made(0.9, 58), made(0.9, 150), made(0.72, 10)]
    assert choose.dominating(chosen, others, goals) == ([0], [0, 1])


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


@pytest.mark.full
def test_the_noise_of_bandmf_has_the_prefix_error_computed_beforehand():
    """ε = 1 at δ = 1e-5 over 100 rounds of 10 bands: 3.7306²·10·841.37/100 = 1171 (comparators.md 8b: 841)."""
    ftrl = benchmark("ftrl")
    assert ftrl.prefix_error(ftrl.planned("band-mf", 1.0, 100, ONE_EACH)) == pytest.approx(1170, rel=2e-3)


@pytest.mark.full
@pytest.mark.parametrize(
    ("epsilon", "banded", "amplified"), [(1.0, 1170, 786), (2.0, 334, 255), (4.0, 98, 97), (8.0, 30, 44)]
)
def test_correlated_noise_beats_amplified_noise_from_an_epsilon_of_four(epsilon, banded, amplified):
    ftrl = benchmark("ftrl")
    errors = [ftrl.prefix_error(ftrl.planned(m, epsilon, 100, ONE_EACH)) for m in ("band-mf", "amplified")]
    assert errors == pytest.approx([banded, amplified], rel=0.015)


def test_the_page_of_correlated_noise_is_its_numbers():
    """Student's t of two seeds: 12.706·s/√2, so ± 12.7 points for 80 and 82 %."""
    ftrl = benchmark("ftrl")
    found = [ftrl.Trained(m, 2.0, seed, 100, 30.0, 0.8 + 0.02 * seed) for m in ftrl.MECHANISMS for seed in (1, 0)]
    table = ftrl.page(found)
    assert table.count("30, 81.0 % ± 12.7") == 5 and table.count("+0.0 ± 0.0") == 2
