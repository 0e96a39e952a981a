"""An audit of text from its config to the page: what came back, its level, and what is told without a truth."""

from __future__ import annotations

import json
import shutil

import dpfl_audit
import pytest
from dpfl_audit.audit.report.page import page as page_of
from dpfl_audit.audit.report.texts import read_texts
from dpfl_audit.audit.results.format import Results

CONFIG = """
seed = 3
[data]
name = "notes"
clients = 2
samples_per_client = 2
[model]
name = "transformer"
options = {width = 64, causal = true}
[local]
optimiser = "sgd"
batch_size = 2
[scheme]
name = "fedavg"
share = "gradient"
rounds = 1
[capture]
clients = [0, 1]
auxiliary = 100
"""


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "c.toml").write_text(CONFIG)
    return dpfl_audit.train(folder / "c.toml", folder / "setup", quiet=True)


@pytest.fixture(scope="module")
def results(setup, tmp_path_factory):
    return dpfl_audit.run(setup, tmp_path_factory.mktemp("r") / "r", attacks=["inversion-text"], quiet=True)


def test_notes_come_back_word_for_word_and_the_leak_is_severe(results):
    assert [attack.value("whole") for attack in results.attacks] == [1.0, 1.0]
    assert [attack.value("exact") for attack in results.attacks] == [1.0, 1.0]
    assert all(attack.p_values["words_told"] < 0.01 and attack.thing == "text" for attack in results.attacks)
    assert results.verdict.level == "severe" and "vocabulary" not in results.setup.data


def test_the_page_has_the_texts_and_marks_right_words(results):
    texts = read_texts(results.folder, results.attacks[0])
    assert all(text.certain and text.right == len(text.original) for text in texts.texts)
    page = page_of([results.folder])
    first = " ".join(f"<b>{word}</b>" for word in texts.texts[0].original)
    assert first in page.split("<figure", 1)[1].split("</figure>")[0]
    assert page.count(first) == 2  # and in the table of all texts


def test_without_the_truth_texts_are_read_and_not_scored(setup, tmp_path):
    shutil.copytree(setup.folder, tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "truth")
    shutil.rmtree(tmp_path / "s" / "auditor")
    found = dpfl_audit.run(tmp_path / "s", tmp_path / "r", attacks=["inversion-text"], quiet=True)
    assert not any(attack.scored for attack in found.attacks) and found.attacks[0].n == 2


def test_the_same_command_leaves_the_same_bytes(setup, results, tmp_path):
    again = dpfl_audit.run(setup, tmp_path / "r", attacks=["inversion-text"], quiet=True)
    key = again.attacks[0].key
    one, other = (
        (folder / "evidence" / f"{key}.safetensors").read_bytes() for folder in (again.folder, results.folder)
    )
    assert one == other
    assert json.loads((again.folder / "results.json").read_text())["attacks"][0]["metrics"]["rouge2"] == 1.0
    assert Results.read(again.folder).attacks == results.attacks
