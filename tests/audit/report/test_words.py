"""The words of a report, read as by somebody who has not read the papers."""

from __future__ import annotations

import csv
import io
import re
from html import unescape
from pathlib import Path

import pytest
from dpfl_audit.audit.judge.judgement import AuditEvidence, judge
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.results.format import Epsilon, Results
from dpfl_audit.audit.say.badge import badge
from dpfl_audit.audit.say.loss import loss_sentence


@pytest.fixture(scope="module")
def folder(make_results, row, canary, tmp_path_factory) -> Path:
    """The thesis's scheme at σ = 1 with 100 records a client: noise_std C/100, so a multiplier of .01 over C."""
    rows = [
        row(
            unit="client",
            claimed=5.3,
            proven=1700.0,
            demonstrated=2.1,
            confidence=0.95,
            ceiling=5.77,
            condition="the noise is Gaussian",
            demonstrated_on_condition=37.5,
            ceiling_on_condition=55.0,
        ),
        row(adjacency="replace_one", proven=1800.0, demonstrated=2.0, ceiling=5.77),
    ]
    scheme = {"parameters": {"clip": 1.0, "sigma": 1.0, "noise_std": None, "rounds": 15}, "noise_multiplier": 0.01}
    return make_results(
        tmp_path_factory.mktemp("words"),
        "thesis",
        noise_std=0.01,
        n=6,
        epsilon=rows,
        setup=scheme,
        extra_attacks=[canary()],
    )


def plain(html: str) -> str:
    """Text of a page, its details included."""
    body = re.sub(r"<(style|script|title).*?</\1>", " ", html.partition("<body>")[2], flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.fixture(scope="module")
def text(folder) -> str:
    return plain(render([folder]))


def test_a_multiplier_never_stands_without_its_formula(text):
    """σ = 1 and a multiplier of .01 are the same noise, and only the formulas say so."""
    assert re.search(r"sigma 1\b.*?noise_std = σ·C/n, n records a client", text)
    assert re.search(r"noise_multiplier 0\.01\b.*?noise_std divided by the clip norm C = 1", text)


def test_a_bound_on_a_condition_names_it(text):
    named = re.findall(r"37\.5 (?:if the noise is Gaussian|on that condition)|Gaussian \(37\.5\)", text)
    assert named and text.count("37.5") == len(named)


def test_leak_probability_is_in_no_main_table_and_lost_nowhere(folder):
    """Its label-mean control scores higher than an attack, so beside other metrics it misleads."""
    html = render([folder])
    tables = re.findall(r"<table>.*?</table>", html, re.S)
    assert tables and not any("leak probability" in table for table in tables)
    outside = re.sub(r"<details.*?</details>", "", html, flags=re.S)
    assert "leak probability" in html and "leak probability" not in outside
    quantities = {line["quantity"] for line in csv.DictReader(io.StringIO(render([folder], None, "csv")))}
    assert "leak_probability" in quantities
    assert any("leak_probability" in attack.numbers for attack in Results.read(folder).attacks)


def test_rows_of_one_run_name_their_unit(row):
    """The issue's: per client at least 5.06; per record nothing contradicts 7.3."""
    rows = [
        Epsilon.model_validate(row(unit="client", claimed=8.0, proven=44.0, demonstrated=5.06, ceiling=5.77)),
        Epsilon.model_validate(row(proven=7.3)),
    ]
    sentence = loss_sentence(judge(AuditEvidence((), tuple(rows))))
    assert re.search(r"ε per client.*5\.06.*Per record \(zero_out, δ = 10⁻⁵\):[^.]*7\.3\.", sentence)
    flipped = (rows[0].having(claimed=None), rows[1].having(claimed=5.0))
    sentence = loss_sentence(judge(AuditEvidence((), flipped)))
    assert re.search(r"ε per record.*Per client \(zero_out, δ = 10⁻⁵\):.*5\.06.*44\.", sentence)


def test_every_badge_says_both_axes():
    from dpfl_audit.audit.results.format import LEVELS, PROOFS, Verdict

    for level in LEVELS:
        for proof in PROOFS:
            said = badge(
                Verdict(level=level, proof=proof, proven=7.3, measured=True, attacked=True, sentences=("", "", ""))
            )
            assert said.count(" · ") == 1 and ("leak" in said) and ("proven" in said or "priced" in said)
            assert not re.search(r"\b(safe|low)\b", said)
