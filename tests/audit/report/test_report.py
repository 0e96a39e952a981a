"""The page is one file that shows what results.json says, and nothing a stranger's name could smuggle in."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.judge.judgement import judgement_of
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.report import page as page_module
from dpfl_audit.audit.report import plots
from dpfl_audit.audit.report.card import card_markdown
from dpfl_audit.audit.report.decision import decision_on
from dpfl_audit.audit.report.decision.change import noise_factor
from dpfl_audit.audit.report.facts import notices, read_settings
from dpfl_audit.audit.report.markdown import escaped
from dpfl_audit.audit.report.membership import CLIENTS, _shown
from dpfl_audit.audit.report.page import TEMPLATES, _own_plots
from dpfl_audit.audit.report.pictures import data_uri
from dpfl_audit.audit.report.points import make_card
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.results.format import CRAFTED_WEIGHTS, AttackResult, ClientRow, Epsilon, Results, Roc
from dpfl_audit.audit.results.gates import outcome, parse_gate
from dpfl_audit.audit.say import words
from dpfl_audit.audit.say.metrics import metric
from PIL import Image
from safetensors.numpy import load_file, save_file
from stated import proven_row

VOID = {"meta", "link", "img", "br", "hr", "input"}
Maker = Callable[..., Path]


class Page(HTMLParser):
    """What a test asks of a page: tags with attributes in order, texts by tag, every tag closed where it should be."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.append((self.open[-1], " ".join(data.split())))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def headings(self) -> list[str]:
        return [text for tag, text in self.texts if tag in ("h2", "h3")]

    @property
    def text(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in ("style", "script")).replace(
            "\N{NO-BREAK SPACE}", " "
        )


@pytest.fixture(scope="module")
def full(everything: Path) -> str:
    return str(render([everything]))


@pytest.fixture(scope="module")
def many(side_by_side: list[Path]) -> str:
    return str(render(side_by_side))


# --- the page ---


def test_sections_come_in_the_order_a_reader_needs(full: str) -> None:
    """One screen that decides, what is to be seen, and the rest folded."""
    page = Page(full)
    assert page.of("h1") == [{"id": "decision"}]
    order = [
        "The strongest leak",
        "Privacy loss ε (smaller protects more)",
        "Which noise?",
        "What weakens this audit",
        "Originals beside reconstructions",
        "Plots",
        "Details",
        "The verdict in full",
        "Claimed, proven, demonstrated ε",
        "Attacks, controls and intervals",
        "Who was in the training data",
        "Provenance and assumptions",
    ]
    headings = page.headings()
    assert [heading for heading in headings if heading in order] == order
    folded = full[full.index("<h2>Details</h2>") :]
    assert folded.count("<details") == full.count("<details") - 1  # one more attack's pictures stand above
    assert "<details open" not in full and full.index("<h1") < full.index("<details")


@pytest.mark.parametrize("which", ["full", "many"])
def test_headings_skip_no_level(which: str, request: pytest.FixtureRequest) -> None:
    levels = [int(tag[1]) for tag, _ in Page(request.getfixturevalue(which)).tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))


@pytest.mark.parametrize("which", ["full", "many"])
def test_one_file_that_fetches_nothing_and_runs_its_own_script_only(which: str, request: pytest.FixtureRequest) -> None:
    """The browser is told the SHA-256 of the one script that may run (CSP level 2), whatever else gets in."""
    html = request.getfixturevalue(which)
    page = Page(html)
    assert page.of("script") == [{}] and not page.of("iframe") and not page.of("base")
    (script,) = re.findall("<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [str(a["content"]) for a in page.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert dict(rule.split(" ", 1) for rule in policy.split("; ")) == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",
        "script-src": f"'sha256-{digest}'",
    }
    for attributes in (attributes for _, attributes in page.tags):
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            if name in attributes:
                assert str(attributes[name]).startswith(("data:", "#"))
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\(", html)


@pytest.mark.parametrize("which", ["full", "many"])
def test_readable_without_seeing_it(which: str, request: pytest.FixtureRequest) -> None:
    page = Page(request.getfixturevalue(which))
    assert all(attributes.get("alt") for attributes in page.of("img"))
    assert page.of("th") and all(
        attributes.get("scope") in ("col", "row", "rowgroup", "colgroup") for attributes in page.of("th")
    )
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(a["href"])[1:] for a in page.of("a")} <= set(ids)
    assert page.of("html")[0] == {"lang": "en"} and len(page.of("h1")) == 1


def test_the_page_says_what_weakens_it(full: str, everything: Path) -> None:
    page = Page(full)
    for part in (
        "--quick run",
        "Nothing was clipped in training: C = 1, the median norm before the clip was 0.84.",
        "small resnet (43 %)",
        "Not measured: LPIPS",
        "The auxiliary split has only 40 images.",
    ):
        assert part in page.text
    said = notices(
        Results.read(everything).model_copy(
            update={"warnings": ("Nothing was clipped in training: C = 1, the median norm before the clip was 0.84.",)}
        )
    )
    assert sum("clipped" in sentence for sentence in said) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clip_norm": None, "share_clipped": None}, "this setup has no clip"),
        ({"status": "diverged"}, "finite rounds are attacked"),
        ({"status": "partial"}, "not finished"),
    ],
)
def test_notices_follow_the_setup(changes: dict[str, Any], said: str, make_results: Maker, tmp_path: Path) -> None:
    assert said in " ".join(notices(Results.read(make_results(tmp_path, n=2, setup=changes))))


def test_the_three_numbers_and_why_they_differ(full: str) -> None:
    page = Page(full)
    for part in (
        "5.3",
        "812",
        "6.2",
        "≤ 7.4",
        "∞",
        "95 % confidence",
        "exceeds claimed (5.3): the claim is false.",
        "812, 153 times the claim",
        "With this many trials even a perfect attack shows at most 7.4.",
    ):
        assert part in page.text
    assert [a["rowspan"] for a in page.of("th") if a.get("scope") == "rowgroup"] == ["1", "1", "1"]


def test_reasons_that_hold_for_every_observer_are_said_once(make_results: Maker, row: Any, tmp_path: Path) -> None:
    rows = [
        row(observer=who, unit=unit, proven=5.0, notes=["Common."] if unit == "record" else [])
        for who in ("server", "model")
        for unit in ("client", "record")
    ]
    text = Page(str(render([make_results(tmp_path, n=2, noise_std=0.1, epsilon=rows)]))).text
    assert text.count("Common.") == 1
    assert text.count("every observer:") == 1


def test_originals_beside_reconstructions_the_worst_leak_first(full: str, everything: Path) -> None:
    page = Page(full)
    results = Results.read(everything)
    strongest = next(attack for attack in results.attacks if attack.manner == "all-rounds")
    expected = sorted((pair.psnr for pair in strongest.pairs), reverse=True)
    shown = [float(text.split(" dB")[0]) for tag, text in page.texts if tag == "figcaption" and " dB" in text][
        : len(expected)
    ]
    assert shown == [round(value, 1) for value in expected]
    images = [str(a["src"]) for a in page.of("img") if str(a["alt"]).startswith(("Original", "Reconstruction"))]
    first = max(strongest.pairs, key=lambda pair: pair.psnr)
    for folder, index, uri in (("originals", first.original, images[0]), ("evidence", first.reconstruction, images[1])):
        pixels = load_file(everything / folder / f"{strongest.key}.safetensors")["images"][index]
        assert np.array_equal(decoded(uri), np.rint(255 * pixels).transpose(1, 2, 0))


def decoded(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_data_uri_keeps_grey_and_colour_pixels() -> None:
    ramp = np.arange(16, dtype=np.float32).reshape(1, 4, 4) * 17 / 255
    assert decoded(data_uri(ramp)).tolist() == (np.arange(16).reshape(4, 4) * 17).tolist()
    assert decoded(data_uri(np.repeat(ramp, 3, 0))).shape == (4, 4, 3)
    assert decoded(data_uri(np.full((1, 1, 1), 7.0))).tolist() == [[255]]


def test_membership_shows_five_false_positive_rates(full: str) -> None:
    page = Page(full)
    assert [text for tag, text in page.texts if tag == "th" and text.startswith("TPR")] == [
        f"TPR at {rate} FPR" for rate in ("10 %", "1 %", "0.1 %", "0.01 %", "0 %")
    ]
    assert page.text.count("000 others") > 0 and page.text.count("1000 members") > 0
    assert sum("ROC" in str(a["alt"]) for a in page.of("img")) == 1


@pytest.mark.parametrize("found", [True, False])
def test_a_rebuilt_row_is_called_so_only_where_there_is_a_leak(found: bool, tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(TEMPLATES, tmp_path / "templates")
    macro = re.search(
        r"{% macro leak\(leak\) %}.*?{% endmacro %}", (TEMPLATES / "report.html.j2").read_text(), re.DOTALL
    )
    assert macro is not None
    (tmp_path / "templates" / "card.j2").write_text(macro[0] + "{{ leak(card) }}<script></script>")
    monkeypatch.setattr(page_module, "TEMPLATES", tmp_path / "templates")
    cells = {"lines": [{"name": "age", "cells": [("40", "41", True)]}]}
    card = {
        "found": found,
        "pair": None,
        "roc": None,
        "cells": cells,
        "cells_beside": "1 of its 1 cells are right",
        "text": None,
        "seen_by": "the server",
        "said": "20 %",
    }
    html = page_module.filled("card.j2", card=card, several=None)
    assert ("rebuild it" in html) is found and ("is right" in html) is not found


def test_a_page_lists_the_clients_of_whom_most_is_shown() -> None:
    rows = [
        ClientRow(client=f"client-{i}", n_members=1, n_nonmembers=1, auc=0.5, interval=(i / 100, 1.0))
        for i in range(40)
    ]
    nobody = [ClientRow(client=f"client-{40 + i}", n_members=0, n_nonmembers=9) for i in range(260)]
    assert _shown([*rows, *nobody]) == rows[40 - CLIENTS :]
    assert _shown([*rows[:3], *nobody]) == rows[:3]


def test_a_canary_entry_needs_no_table_of_its_own(full: str) -> None:
    text = Page(full).text
    assert "canary: one-run" in text and metric("mu").label in text and "0.61" in text


@pytest.mark.parametrize("backwards", [False, True])
def test_the_verdict_on_several_settings_is_that_of_the_worst(side_by_side: list[Path], backwards: bool) -> None:
    folders = side_by_side[::-1] if backwards else side_by_side
    levels = {folder: Results.read(folder).verdict.level for folder in folders}
    assert levels[side_by_side[0]] == "severe" and list(levels.values()).count("severe") < len(folders)
    worst = decision_on(read_settings(folders)).worst
    assert (worst.judgement.level, worst.label) == ("severe", "no noise")


def test_settings_side_by_side_show_the_same_images(many: str, side_by_side: list[Path]) -> None:
    page = Page(many)
    assert [heading.split()[0] for heading in page.headings()[3:7]] == ["Side", "The", "Leakage", "Every"]
    originals = [decoded(str(a["src"])) for a in page.of("img") if re.fullmatch(r"Original \d+", str(a["alt"]))][:6]
    for name in ("no noise", "some noise", "more noise", "strong noise"):
        rebuilt = [decoded(str(a["src"])) for a in page.of("img") if f"rebuilt with {name}" in str(a["alt"])]
        assert len(rebuilt) == 6
        errors = [np.mean((a / 255.0 - b / 255.0) ** 2) for a, b in zip(originals, rebuilt, strict=True)]
        captions = [
            float(re.search(r"(-?[\d.]+) dB", str(a["alt"]))[1])
            for a in page.of("img")
            if f"rebuilt with {name}" in str(a["alt"])
        ]  # type: ignore[index]
        assert np.allclose(-10 * np.log10(errors), captions, atol=0.3)
    links = [text for tag, text in page.texts if tag == "a"]
    assert links[-4:] == ["no noise", "some noise", "more noise", "strong noise"]


def test_different_images_leave_gaps(make_results: Maker, tmp_path: Path) -> None:
    a, b = make_results(tmp_path / "a", "a", n=3), make_results(tmp_path / "b", "b", n=2)
    assert str(render([a, b])).count('class="gap"') == 1


def test_settings_of_one_name_are_told_apart(make_results: Maker, tmp_path: Path) -> None:
    folders = [make_results(tmp_path / which / "results", "same", n=2) for which in ("a", "b")]
    text = Page(str(render(folders))).text
    assert "same (a/results)" in text and "same (b/results)" in text


def test_without_truth_nothing_is_scored_and_the_page_says_so(make_results: Maker, tmp_path: Path) -> None:
    folder = make_results(tmp_path, truth=False, n=3)
    page = Page(str(render([folder])))
    assert not judgement_of(Results.read(folder)).measured and "originals are" in page.text
    assert sum("unknown original" in str(a["alt"]) for a in page.of("img")) == 3


def test_without_evidence_or_attacks_a_page_is_still_made(make_results: Maker, tmp_path: Path) -> None:
    folder = make_results(tmp_path / "a", n=2)
    for path in folder.glob("*/*.safetensors"):
        path.unlink()
    assert "evidence file" in str(render([folder]))
    empty = make_results(tmp_path / "b", attacks=[], epsilon=[])
    assert "No attack" not in str(render([folder])) and "No attack" in str(render([empty]))
    assert "same images" not in str(render([empty, folder]))


EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> $\\frac{$ _{} `x` | =1+1"


@pytest.mark.parametrize("form", ["html", "csv", "json"])
def test_a_strangers_text_stays_text(form: str, make_results: Maker, row: Any, membership: Any, tmp_path: Path) -> None:
    folder = make_results(
        tmp_path / "r",
        EVIL,
        n=2,
        warnings=[EVIL],
        epsilon=[row(proven=3.0, accountant=EVIL, notes=[EVIL])],
        extra_attacks=[membership() | {"attack": EVIL, "assumed": [EVIL]}],
        classifiers=[{"family": EVIL, "accuracy": 0.1}],
        setup={
            "config": {EVIL: EVIL},
            "versions": {EVIL: EVIL},
            "scheme": EVIL,
            "model": {"name": EVIL},
            "sensitivity": EVIL,
            "parameters": {EVIL: [EVIL]},
            "digest": EVIL,
        },
    )
    text = str(render([folder, make_results(tmp_path / "s", EVIL[::-1], n=2, noise_std=0.1)], format=form))  # type: ignore[arg-type]
    if form == "html":
        page = Page(text)
        assert page.of("script") == [{}] and all(str(a["src"]).startswith("data:") for a in page.of("img"))
        assert not [name for _, attributes in page.tags for name in attributes if name == "onerror"]
        assert "&lt;script&gt;" in text
    if form == "csv":
        assert all(not cell.startswith("=") for line in csv.reader(io.StringIO(text)) for cell in line)
    if form == "json":
        assert json.loads(text)["results"][0]["setup"]["name"] == EVIL


def test_a_formula_in_a_name_does_not_run_in_a_spreadsheet(make_results: Maker, tmp_path: Path) -> None:
    text = str(render([make_results(tmp_path, "=HYPERLINK(1)", n=2)], format="csv"))
    assert next(csv.DictReader(io.StringIO(text)))["setting"] == "'=HYPERLINK(1)"


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["html", "csv", "json"])
def test_the_same_folders_give_the_same_bytes(
    form: str, everything: Path, side_by_side: list[Path], tmp_path: Path
) -> None:
    folders = [everything, *side_by_side]
    first = render(folders, tmp_path / "first", form)  # type: ignore[arg-type]
    assert isinstance(first, Path) and first.read_text(encoding="utf-8") == render(folders, None, form)  # type: ignore[arg-type]


# --- the other formats ---


def test_json_is_the_results_and_their_comparison(everything: Path, side_by_side: list[Path]) -> None:
    made = json.loads(str(render([everything, *side_by_side], format="json")))
    assert [entry["setting"] for entry in made["comparison"]] == [
        setting.label for setting in read_settings([everything, *side_by_side])
    ]
    first, second = made["comparison"][:2]
    assert first["claimed"] == 5.3 and second["proven"] == "inf" and second["auc"] is None
    results = made["results"][0]
    assert results["attacks"][0]["metrics"]["lpips"] is None and results["epsilon"][2]["proven"] == "inf"
    original = json.loads((everything / "results.json").read_text())
    for attack, kept in zip(original["attacks"], made["results"][0]["attacks"], strict=True):
        assert kept["metrics"].pop("ceilings_proof") == ""
        points = kept["metrics"]["tpr_at_fpr"] or ()
        points = [point and {k: v for k, v in point.items() if k != "ceiling"} for point in points]
        assert {**kept["metrics"], "tpr_at_fpr": points or None} == {"tpr_at_fpr": None, **attack["metrics"]}


def test_csv_has_every_number_once(everything: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(str(render([everything], format="csv")))))
    (psnr,) = [r for r in rows if r["quantity"] == "psnr" and r["manner"] == "all-rounds" and not r["control"]]
    attack = next(a for a in Results.read(everything).attacks if a.manner == "all-rounds")
    assert float(psnr["value"]) == attack.value("psnr") and float(psnr["low"]) == attack.low("psnr")
    (gray,) = [r for r in rows if r["quantity"] == "psnr" and r["manner"] == "all-rounds" and r["control"] == "gray"]
    assert float(gray["control_value"]) == attack.controls["gray"]["psnr"]
    assert [r["value"] for r in rows if r["quantity"] == "epsilon_proven"] == ["812.0", "8.1", "inf"]
    assert {r["quantity"] for r in rows} >= {"tpr_at_fpr_0.01", "epsilon_ceiling", "auc", "mu"}


def test_writing_is_whole_or_not_at_all(everything: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "page.html"
    assert render([everything], target) == target and [p.name for p in target.parent.iterdir()] == ["page.html"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="cannot be written"):
        render([everything], tmp_path / "file" / "page.html")
    broken = tmp_path / "broken"
    broken.mkdir()
    with pytest.raises(BadInput):
        render([everything, broken], target)
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [p.name for p in target.parent.iterdir()] == ["page.html"]


def test_a_page_is_written_over_no_file_of_another_kind(everything: Path, tmp_path: Path) -> None:
    config, results = tmp_path / "config.toml", (everything / "results.json").read_bytes()
    config.write_text("[data]")
    for target, form in ((config, "html"), (config, "json"), (everything / "results.json", "json")):
        with pytest.raises(BadInput, match="another kind of file"):
            render([everything], target, form)  # type: ignore[arg-type]
    assert config.read_text() == "[data]" and (everything / "results.json").read_bytes() == results
    for form in ("json", "csv"):  # of a page, render_twice
        for _ in range(2):
            assert render([everything], tmp_path / form, form) == tmp_path / form  # type: ignore[arg-type]


def test_what_cannot_be_rendered_is_said(everything: Path) -> None:
    with pytest.raises(BadInput, match="at least one RESULTS folder"):
        render([])
    with pytest.raises(BadInput, match=r"format is 'pdf', expected one of html, json, csv$"):
        render([everything], format="pdf")  # type: ignore[arg-type]


# --- reading ---


def test_results_survive_a_round_trip(everything: Path, tmp_path: Path) -> None:
    results = Results.read(everything)
    (tmp_path / "results.json").write_text(results.text(), encoding="utf-8")
    assert Results.read(tmp_path) == results and Results.read(tmp_path).text() == results.text()
    assert results.epsilon[2].proven == math.inf and '"proven": "inf"' in results.text()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), 2, "format is 2, expected 1"),
        (
            ("verdict", "level"),
            "fine",
            "verdict.level is 'fine', expected 'none found', 'moderate', 'high' or 'severe'",
        ),
        (("verdict", "sentences"), ["one"], "verdict.sentences"),
        (("setup", "digest"), None, "setup.digest is None, expected text"),
        (("setup", "share_clipped"), 1.5, "setup.share_clipped is 1.5, expected at most 1"),
        (("setup", "noise_std"), "lots", "setup.noise_std is 'lots', expected a number, or \"inf\""),
        (("setup", "noise_std"), True, "setup.noise_std is True, expected a number"),
        (("epsilon", 0, "unit"), "person", "epsilon[0].unit is 'person', expected 'record' or 'client'"),
        (("epsilon", 0, "observer"), "fly", "epsilon[0].observer is 'fly', expected"),
        (("attacks", 0, "surprise"), 1, "attacks[0].surprise is 1, expected"),
        (("attacks", 0, "key"), "../../etc/passwd", "attacks[0].key is '../../etc/passwd'"),
        (("attacks", 0, "key"), "/etc/passwd", "attacks[0].key"),
        (("attacks", 0, "intervals", "psnr"), [3, 1], "psnr has [3, 1]"),
        (("attacks", 0, "metrics", "psnr"), "high", "attacks[0].metrics.psnr is 'high'"),
        (("attacks", 0, "pairs", 0, "original"), -1, "attacks[0].pairs[0].original is -1, expected at least 0"),
        (("attacks", 0, "roc"), {"fpr": [0, 1], "tpr": [0]}, "as many tpr (1) as fpr (2)"),
        (
            ("attacks", 0, "histogram"),
            {"edges": [0, 1], "members": [1, 2], "nonmembers": [1]},
            "one edge more than counts",
        ),
    ],
)
def test_a_fault_is_one_sentence_with_file_field_and_value(
    path: tuple[Any, ...], value: Any, message: str, make_results: Maker, tmp_path: Path
) -> None:
    folder = make_results(tmp_path, n=2)
    content = json.loads((folder / "results.json").read_text())
    at = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    (folder / "results.json").write_text(json.dumps(content))
    with pytest.raises(BadInput) as caught:
        Results.read(folder)
    sentence = str(caught.value)
    assert message in sentence and str(folder / "results.json") in sentence and "\n" not in sentence


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "the content is a list, expected an object"),
        ('{"format": 1, "x": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"format": 1}', "scoring is missing"),
        (None, "is missing; expected a folder written by `audit run`"),
    ],
)
def test_what_is_no_results_file_is_said(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "results.json").write_text(text)
    with pytest.raises(BadInput, match=re.escape(message)):
        Results.read(tmp_path)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.zeros((6, 3, 4), np.float32), "float32 of shape (6, 3, 4), expected floats of shape (n, c, h, w)"),
        (np.zeros((6, 3, 4, 4), np.int64), "expected floats"),
        (np.full((6, 3, 4, 4), np.nan, np.float32), "not finite"),
        (np.zeros((1, 3, 4, 4), np.float32), "name original 1, expected below 1"),
    ],
)
def test_images_that_do_not_fit_the_results_are_refused(
    tensor: np.ndarray, message: str, make_results: Maker, tmp_path: Path
) -> None:
    folder = make_results(tmp_path, n=2)
    save_file({"images": tensor}, next((folder / "originals").iterdir()))
    with pytest.raises(BadInput, match=re.escape(message)):
        render([folder])
    next((folder / "originals").iterdir()).write_bytes(b"no tensors")
    with pytest.raises(BadInput, match="cannot be read as safetensors"):
        render([folder])


# --- the noise that is advised ---


@pytest.mark.parametrize("target", [0.5, 4.38, 20.0])
def test_the_noise_advised_proves_the_target(target: float) -> None:
    """Fifteen releases at multiplier 1: the factor makes the accountant's own curve reach the target."""
    row = proven_row(proven=gaussian_epsilon(1 / math.sqrt(15), 1e-5), mu=math.sqrt(15))
    factor = noise_factor(row, target)
    assert factor is not None and gaussian_epsilon(factor / math.sqrt(15), 1e-5) == pytest.approx(target, rel=1e-9)


def test_noise_is_computed_only_where_the_formula_holds(row: Any) -> None:
    def factor(**changes: Any) -> float | None:
        return noise_factor(
            Epsilon.model_validate(row(**{"proven": 50.0, "accountant": "closed form", **changes})), 5.0
        )

    assert factor() is not None
    assert (
        factor(mu=None)  # of another law, or of a sample, also where a closed form composed it
        is factor(proven="inf")
        is factor(delta=None)
        is factor(delta=0.0)
        is None
    )


# --- plots and words ---


@pytest.mark.full
def test_plots_are_the_same_bytes_and_take_any_name() -> None:
    # An interval need not hold its estimate.
    points = [plots.Point(0.0, 0.9, 0.8, 0.95), plots.Point(0.1, 0.2, 0.25, 0.3), plots.Point(1e-9, 0.5)]
    for name in ("plain", "$x_{$", "_hidden", "<svg onload=x>", "名前 🙂", ""):
        first, second = (
            plots.leakage({name: points, "other": []}, "noise_std", "re-identified", 0.1, name, share=True)
            for _ in range(2)
        )
        assert first == second and first.startswith("data:image/svg+xml;base64,")
        assert b"<svg onload" not in base64.b64decode(first.partition(",")[2])


def test_attacks_of_one_round_that_differ_in_settings_are_lines_of_their_own(monkeypatch) -> None:
    """One line through all of them went up and down at every round."""
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "leakage", lambda series, *_, **__: drawn.append(series) or "data:")
    entries = [
        AttackResult.model_validate(
            {
                "attack": "inversion",
                "observer": observer,
                "manner": "one-round",
                "round": number,
                "settings": {"objective": objective, **prior},
                "metrics": {"psnr_margin": float(number)},
            }
        )
        for observer in ("server", "uplink")
        for number in (0, 1)
        for objective, prior in (("cosine", {}), ("cosine", {"prior": "fixed"}), ("euclidean", {}))
    ]
    for attacks, who in ((entries[:6], [""]), (entries, [", server", ", uplink"])):
        _own_plots(SimpleNamespace(results=SimpleNamespace(attacks=attacks)))  # type: ignore[arg-type]
        series = drawn.pop()
        assert sorted(series) == sorted(
            f"{variant}{by}" for variant in {attack.variant for attack in attacks} for by in who
        )
        assert all([point.x for point in points] == [0, 1] for points in series.values())


def test_roc_is_thinned_to_what_the_eye_can_tell() -> None:
    fpr = np.linspace(0, 1, 100_001)
    curve = Roc(fpr=tuple(fpr), tpr=tuple(np.sqrt(fpr)))
    kept = plots._thinned(curve, 1e-5)
    assert len(kept) < 1000 and kept[0][0] == 1e-5 and kept[-1] == (1.0, 1.0)
    assert all(abs(math.log10(tpr) - 0.5 * math.log10(fpr)) < 0.01 for fpr, tpr in kept if fpr > 1e-5)
    assert len(plots.roc_plot({"attack": curve})) < 200_000


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.5, "0.5"),
        (100.0, "100"),
        (99.96, "100"),
        (1e6, "10⁶"),
        (0.00009, "9·10⁻⁵"),
        (-0.5, "−0.5"),
        (123456.0, "123\N{NARROW NO-BREAK SPACE}456"),
    ],
)
def test_numbers_for_people(value: float, said: str) -> None:
    assert words.number(value) == said


def test_no_form_of_a_report_calls_proven_what_a_published_key_gives_away(make_results, row, tmp_path):
    """In tables and the card as well: "8" stood in the proven column, although the first screen said "none"."""
    epsilon = [row(proven=8.0, accountant="closed form"), row(unit="client", proven="inf")]
    for key, said in (("published", True), ("secret", False)):
        folders = [
            make_results(tmp_path / f"{key}{i}", quality=0.0, n=4, epsilon=epsilon, setup={"noise_key": key})
            for i in range(2)
        ]
        for folder in (folders[:1], folders):
            assert (words.proven_if_secret(8.0, secret=False) in render(folder)) is said
        text = card_markdown(make_card(folders[:1]))
        assert (words.proven_if_secret(8.0, secret=False) in text) is said
        card = make_card(folders[:1])
        assert escaped(card.places[0]) in text and ("is published" in card.places[0]) is said


CONDITIONAL = {"condition": "it rains", "demonstrated_on_condition": 6.21, "ceiling_on_condition": 9.0}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "changes",
    [
        {"claimed": 5.0, "demonstrated": 6.21},  # the claim is refuted
        {"proven": 5.0, "demonstrated": 6.21},  # the proof is contradicted
        {"proven": 60.0, "demonstrated": 6.21},
        {"claimed": 5.0, "demonstrated": 0.4, **CONDITIONAL},
        {"proven": 5.0, "demonstrated": 0.4, **CONDITIONAL},
        {"proven": 60.0, "demonstrated": None, **CONDITIONAL},
    ],
)
def test_a_number_from_weights_that_the_adversary_chose_says_so_wherever_it_stands(
    changes: dict[str, Any], make_results: Maker, row: Any, tmp_path: Path
) -> None:
    rows = [row(**changes, ceiling=9.0, confidence=0.95, demonstrated_from=CRAFTED_WEIGHTS)]
    folder = make_results(tmp_path, n=2, quality=0.0, noise_std=0.1, epsilon=rows)
    said = Results.read(folder).verdict.sentences
    page = re.split(r"</(?:tr|figure|dl|li)>|<p>", str(render([folder])))
    card = card_markdown(make_card([folder])).splitlines()
    for where in (said, page, card, str(render([folder], format="csv")).splitlines()):
        having = [text for text in where if "6.21" in text]
        assert having and all(CRAFTED_WEIGHTS in text for text in having)
    gated = outcome(parse_gate(f"demonstrated{'_on_condition' * ('condition' in changes)} > 6"), Results.read(folder))
    assert gated.failed and CRAFTED_WEIGHTS in gated.sentence
