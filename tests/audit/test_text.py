"""An audit of text from its config to the page: what came back, its level, and what is told without a truth."""

from __future__ import annotations

import json
import shutil

import dpfl_audit
import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.report.page import page as page_of
from dpfl_audit.audit.report.texts import read_texts
from dpfl_audit.audit.results.format import Results
from dpfl_audit.defenses.data.vocabulary import next_words
from safetensors.torch import load_file

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


@pytest.mark.full
def test_a_decoder_that_tells_the_next_word_gives_its_notes_away(tmp_path):
    config = CONFIG.replace("batch_size = 2", 'batch_size = 2\nloss = "next_token"') + "candidates = 8\n"
    (tmp_path / "c.toml").write_text(config)
    dpfl_audit.train(tmp_path / "c.toml", tmp_path / "setup", quiet=True)
    asked = ["inversion-text", "membership-projection", "membership-loss"]
    found = dpfl_audit.run(tmp_path / "setup", tmp_path / "r", attacks=asked, quiet=True)
    assert [attack.value("whole") for attack in found.attacks if attack.thing == "text"] == [1.0, 1.0]
    assert {a.attack: a.value("auc") for a in found.attacks if a.attack == asked[1]} == {asked[1]: 1.0}
    assert all(0 <= a.value("auc") <= 1 for a in found.attacks if a.attack == asked[2])
    assert found.setup.test_accuracy is None and found.verdict.level == "severe"
    truth = load_file(tmp_path / "setup" / "truth" / "records.safetensors")
    assert torch.equal(truth["targets"], next_words(truth["inputs"]))
    assert not (tmp_path / "setup" / "knowledge" / "labels.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("causal = true", "causal = false", "causal = true"),
        ('name = "notes"', 'name = "notes"\npartition = "sorted"', "have none"),
        ('name = "notes"', 'name = "digits"', "next_token tells the words of a text"),
    ],
)
def test_what_next_words_do_not_go_with_is_refused(tmp_path, old, new, sentence):
    config = CONFIG.replace("batch_size = 2", 'batch_size = 2\nloss = "next_token"').replace(old, new)
    (tmp_path / "c.toml").write_text(config)
    with pytest.raises(BadInput, match=sentence):
        dpfl_audit.train(tmp_path / "c.toml", tmp_path / "setup", quiet=True)


def test_the_same_command_leaves_the_same_bytes(setup, results, tmp_path):
    again = dpfl_audit.run(setup, tmp_path / "r", attacks=["inversion-text"], quiet=True)
    key = again.attacks[0].key
    one, other = (
        (folder / "evidence" / f"{key}.safetensors").read_bytes() for folder in (again.folder, results.folder)
    )
    assert one == other
    assert json.loads((again.folder / "results.json").read_text())["attacks"][0]["metrics"]["rouge2"] == 1.0
    assert Results.read(again.folder).attacks == results.attacks
