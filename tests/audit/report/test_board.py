"""The statement for a board: what it counts, and what it refuses."""

from __future__ import annotations

import json
import shutil
from math import exp
from pathlib import Path

import numpy as np
import pytest
from command import called
from dpfl_audit.audit.report.markdown import escaped
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.say.accuracy import only_ranks, useless
from dpfl_audit.audit.say.board import FALSE_ALARMS, most_recognised, people_line, proof_line, spent_too
from dpfl_audit.audit.say.statement import NOT_PRICED
from dpfl_audit.audit.say.verdict import judged
from dpfl_audit.audit.say.words import NO_SECRET
from scipy.stats import norm
from stated import proven_row, published


@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
def test_nobody_recognises_more_than_the_line_says(mu: float) -> None:
    """The likelihood ratio of N(0, 1) against N(μ, 1) at 1 % false alarms is the best test there is."""
    rng = np.random.default_rng(0)
    worlds = rng.normal(0, 1, 400_000), rng.normal(mu, 1, 400_000)
    threshold = np.quantile(worlds[0], 1 - FALSE_ALARMS)
    reached = float((worlds[1] > threshold).mean())
    assert most_recognised(proven_row(proven=3.0, mu=mu)) == pytest.approx(reached, abs=0.004)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (2.0, 1e-3), (5.0, 1e-5)])
def test_without_a_curve_it_is_randomised_response_at_most(epsilon: float, delta: float) -> None:
    """Of any (ε, δ): TPR ≤ e^ε·FPR + δ and 1 − FPR ≤ e^ε·(1 − TPR) + δ, of which the smaller binds."""
    bound = most_recognised(proven_row(proven=epsilon, mu=None, delta=delta))
    binding = min(exp(epsilon) * FALSE_ALARMS + delta, 1 - exp(-epsilon) * (1 - FALSE_ALARMS - delta))
    assert bound == pytest.approx(min(1.0, binding)) and norm.ppf(bound) > norm.ppf(FALSE_ALARMS)
    assert most_recognised(proven_row(proven="inf")) == 1.0


def test_a_statement_of_both_kinds_says_each_line_once(everything: Path, tmp_path: Path, capsys) -> None:
    owner = tmp_path / "owner.toml"
    owner.write_text('name = "Ward <4>"\npeople = 2400\nharm = "stigma"\nreview = "yearly"\n')
    for name in ("s.md", "s.html"):
        code, out, _ = called(capsys, "report", everything, "--statement", tmp_path / name, "--card-from", owner)
        assert (code, out.strip()) == (0, str(tmp_path / name))
    text = (tmp_path / "s.md").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "|"))]
    assert len(lines) == len(set(lines)) and "stigma" in text and "yearly" in text
    page = (tmp_path / "s.html").read_text()
    assert "Ward &lt;4&gt;" in page and "<script" not in page and page.count("<h1>") == 1


def test_a_model_that_only_guesses_is_called_so_in_figures_of_as_many_digits(everything: Path, tmp_path: Path, capsys):
    """82 % stood beside 82.6 %, and nothing said that no model does as well."""
    content = json.loads((everything / "results.json").read_text())
    content["setup"] |= {"test_accuracy": 0.8246, "majority_accuracy": 0.8263, "balanced_accuracy": 0.5}
    content["setup"]["data"] |= {"classes": 2, "sizes": {"test": 570}}
    shutil.copytree(everything, tmp_path / "r")
    for area, said in ((None, useless), (0.65, only_ranks)):
        content["setup"]["test_auc"] = area
        (tmp_path / "r" / "results.json").write_text(json.dumps(content))
        assert called(capsys, "report", tmp_path / "r", "--statement", tmp_path / "s.md")[0] == 0
        text = (tmp_path / "s.md").read_text().partition("## Accuracy")[2].partition("##")[0].replace("\xa0", " ")
        assert "82.5" in text and "82.6" in text
        assert said(Results.read(tmp_path / "r").setup).replace("\xa0", " ") in text


def test_what_was_spent_before_counts_towards_whoever_saw_it(everything: Path, tmp_path: Path, capsys) -> None:
    """The people line is of this training, as the first line is; the sum stands after it, with its condition."""
    read = Results.read(everything)
    row = proven_row(proven=3.0, mu=0.7, unit="record", asked=True)
    setup = read.setup.model_copy(update={"config": {"audit": {"spent": 75.0, "spent_delta": 2e-5}}})
    again = judged(
        **{name: value for name, value in read if name not in ("verdict", "format", "setup", "epsilon")},
        setup=setup,
        epsilon=(row,),
    )
    shutil.copytree(everything, tmp_path / "r")
    (tmp_path / "r" / "results.json").write_text(again.model_dump_json(by_alias=True))
    (tmp_path / "owner.toml").write_text("people = 1000\n")
    arguments = ("report", tmp_path / "r", "--statement", tmp_path / "s.md", "--card-from", tmp_path / "owner.toml")
    assert called(capsys, *arguments)[0] == 0
    text = (tmp_path / "s.md").read_text()
    alone = people_line("record", 1000, None, most_recognised(row)).partition(" on average")
    assert text.index(escaped(alone[0])) < text.index(escaped(spent_too(78.0, 3e-5, 1.0)))
    assert "1,057" in people_line("record", 718, 1057, 0.1) and "1,057" not in people_line("client", 718, 1057, 0.1)


def test_with_a_published_key_no_epsilon_stands_in_it(everything: Path, tmp_path: Path, capsys) -> None:
    """It said that no ε was priced."""
    shutil.copytree(everything, tmp_path / "r")
    content = json.loads((everything / "results.json").read_text())
    judged_again = published(Results.model_validate(content))
    verdict_of = judged(**{name: value for name, value in judged_again if name not in ("verdict", "format")})
    (tmp_path / "r" / "results.json").write_text(verdict_of.model_dump_json(by_alias=True))
    assert called(capsys, "report", tmp_path / "r", "--statement", tmp_path / "s.md")[0] == 0
    text = (tmp_path / "s.md").read_text()
    assert escaped(NO_SECRET) in text and escaped(NOT_PRICED) not in text
    assert not any(escaped(proof_line(row)) in text for row in judged_again.epsilon)
