"""The hostile user: a setup damaged one thing at a time, silly configs and command lines. Each is one sentence and exit
code 2, and nothing is written.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from command import call, called, content
from configs import small_config
from dpfl_audit.audit.setup.format import FORMAT
from dpfl_audit.audit.setup.reading import plain_json
from safetensors.torch import load_file, save_file

CONFIG = small_config(seed=4, capture={"candidates": 8, "auxiliary": 6}, attack={"inversion": {"iterations": 1}})


def refused(capsys: pytest.CaptureFixture[str], words: str, *arguments: object) -> None:
    code, _, error = called(capsys, *arguments)
    assert (code, "\n" in error, len(error) < 700) == (2, False, True), error
    assert words in error and "internal" not in error and error.isprintable(), error


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "config.toml").write_text(CONFIG)
    assert call("train", folder / "config.toml", "-o", folder / "setup") == 0
    assert call("run", folder / "setup", "-o", folder / "results", "--attack", "membership-loss") == 0
    return folder


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(home / "setup", tmp_path / "s"))


# --- a damaged setup


def text(path: str, old: str, new: str) -> Callable[[Path], None]:
    def harm(setup: Path) -> None:
        before = (setup / path).read_text()
        assert old in before
        (setup / path).write_text(before.replace(old, new, 1))

    return harm


def instead(path: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def harm(setup: Path) -> None:
        (setup / path).unlink()
        make(setup / path)

    return harm


def change_tensors(path: str, change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def harm(setup: Path) -> None:
        tensors = load_file(setup / path)
        change(tensors)
        save_file(tensors, setup / path)

    return harm


def tensor(path: str, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    def one(tensors: dict[str, torch.Tensor]) -> None:
        key = next(k for k in sorted(tensors) if k.endswith(name))
        tensors[key] = change(tensors[key]).contiguous()

    return change_tensors(path, one)


def key(path: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def harm(setup: Path) -> None:
        raw = json.loads((setup / path).read_text())
        change(raw)
        (setup / path).write_text(json.dumps(raw))

    return harm


def without_a_line(text: str, sender: str) -> str:
    """JSON lines without the first of this sender."""
    lines = text.splitlines(keepends=True)
    lines.remove(next(line for line in lines if json.loads(line)["sender"] == sender))
    return "".join(lines)


KEY, TENSORS = "auditor/releases.jsonl", "tensors/round-0000.safetensors"
DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    # what reading would never end, or lead elsewhere
    "a pipe": (instead(KEY, os.mkfifo), "not a file"),
    "a device": (instead("rounds.csv", lambda p: p.symlink_to("/dev/zero")), "outside the setup"),
    "a link to itself": (instead("auditor/parties.json", lambda p: p.symlink_to(p)), "cannot be read"),
    "a link to nowhere": (instead(KEY, lambda p: p.symlink_to("nowhere")), "is missing"),
    "a folder": (instead("auditor/parties.json", Path.mkdir), "not a file"),
    "a pickle": (
        lambda s: torch.save({"inputs": torch.zeros(3)}, s / "truth/records.safetensors"),
        "not a whole safetensors file",
    ),
    "a path that leads out": (
        lambda s: ((s / "messages.jsonl").rename(s.parent / "m"), (s / "messages.jsonl").symlink_to(s.parent / "m")),
        "leads outside",
    ),
    "a message's id that is a path": (text("messages.jsonl", '"id": "', '"id": "../'), "id ="),
    # text that is no JSON, or more than it
    "half of it": (lambda s: (s / "setup.json").write_text("{"), "not valid JSON"),
    "NaN": (text("setup.json", '"lr": 0.01', '"lr": NaN'), "not valid JSON"),
    "nested": (lambda s: (s / "auditor/parties.json").write_text("[" * 100_000), "nested too deeply"),
    "1e400": (text("setup.json", '"lr": 0.01', '"lr": 1e400'), "too large a number"),
    "400 digits": (text("setup.json", '"rounds": 2', '"rounds": 2' + 400 * "0"), "too large a number"),
    "a key twice": (text("setup.json", '"seed": 4', '"seed": 4, "seed": 4'), "stands twice"),
    "half a character": (text("setup.json", '"name": "ldp"', '"name": "\\ud800"'), "not valid JSON"),
    "a terminal's escape": (text("setup.json", '"digits"', '"\\u001b[31m\\u0000"'), "setup.json"),
    "a long value": (text("setup.json", '"digits"', json.dumps(100_000 * "a")), "setup.json"),
    "not UTF-8": (lambda s: (s / "messages.jsonl").write_bytes(b"\xff\xfe"), "not UTF-8"),
    # what this version does not read
    "another format": (key("setup.json", lambda r: r.update(format=FORMAT - 1)), f"this version reads format {FORMAT}"),
    "another tool's": (lambda s: (s / "setup.json").write_text('{"x": 2}'), "is not a setup"),
    "an unknown key": (key("setup.json", lambda r: r.update(evil=1)), "evil"),
    "an unknown scheme": (key("setup.json", lambda r: r["config"]["scheme"].update(name="nope")), "'nope' is not"),
    "another layout": (key("setup.json", lambda r: r["layout"]["names"].pop()), "layout"),
    # types that Python would let pass
    "true for 1": (text("setup.json", '"batch_size": 5', '"batch_size": true'), "batch_size = True"),
    "text for a number": (text("setup.json", '"clip_norm": 0.5', '"clip_norm": "0.5"'), "clip_norm"),
    "a negative deviation": (text(KEY, '"noise_std": 0.05', '"noise_std": -0.05'), "noise_std"),
    "no number": (text("setup.json", '"std": [', '"std": [0, '), "std"),
    # parts that do not agree, and so might change a number without a word
    "another σ": (
        lambda s: [
            text("setup.json", '"sigma": 1.0', '"sigma": 9.0')(s),
            text("setup.json", '"sigma": 1.0', '"sigma": 9.0')(s),
        ],
        "changed after",
    ),
    "another σ once": (text("setup.json", '"sigma": 1.0', '"sigma": 9.0'), "scheme.parameters"),
    "another δ": (
        text("setup.json", '"delta": 1e-05,\n   "honest"', '"delta": 0.5,\n   "honest"'),
        "changed after training",
    ),
    "another fact": (text("setup.json", '"lr": 0.01,\n  "noise', '"lr": 0.02,\n  "noise'), "changed after training"),
    "no seal": (key("setup.json", lambda r: r.pop("files")), "changed after training"),
    "another noise": (text(KEY, '"noise_std": ', '"noise_std": 1'), "changed after training"),
    "a release gone": (
        lambda s: (s / KEY).write_text((s / KEY).read_text().split("\n", 1)[1]),
        "which releases.jsonl lacks",
    ),
    "the key emptied": (lambda s: (s / KEY).write_text(""), "which releases.jsonl lacks"),
    "a release twice": (lambda s: (s / KEY).write_text(2 * (s / KEY).read_text()), "ids stand once"),
    "a message gone": (  # a broadcast, of which truth/ says nothing
        lambda s: (s / "messages.jsonl").write_text(without_a_line((s / "messages.jsonl").read_text(), "server")),
        "are not those of messages.jsonl",
    ),
    "a stranger": (
        key("auditor/parties.json", lambda r: next(iter(r["messages"].values())).update(sender=7)),
        "parties",
    ),
    "half the key": (lambda s: (s / KEY).unlink(), "is missing"),
    "half the truth": (lambda s: (s / "truth/records.safetensors").unlink(), "is missing"),
    "no gallery": (lambda s: (s / "truth/gallery.safetensors").unlink(), "its config and data say 6"),
    "named knowledge gone": (lambda s: (s / "knowledge/auxiliary.safetensors").unlink(), "is missing"),
    "a lying item": (text("knowledge/knowledge.json", '"labels.json"', '"../setup.json"'), "items.0.file"),
    "rounds gone": (lambda s: (s / "rounds.csv").write_text("round\n0\n"), "2 whole lines"),
    "rounds cut": (lambda s: (s / "rounds.csv").write_text((s / "rounds.csv").read_text()[:-2]), "whole lines"),
    "a NaN in a table": (text("rounds.csv", "\n1,2.0", "\n1,nan"), "finite number"),
    "a NaN in the auditor's": (text("auditor/figures.csv", ",0.5,0.1533", ",nan,0.1533"), "finite number"),
    "other figures": (text("auditor/figures.csv", ",0.5,0.1533", ",0.6,0.1533"), "changed after training"),
    "figures gone": (lambda s: (s / "auditor" / "figures.csv").unlink(), "is missing"),
    "a huge field": (lambda s: (s / "rounds.csv").write_text(200_000 * "a"), "not a CSV table"),
    "labels of no class": (
        key("knowledge/labels.json", lambda r: r[next(iter(r))].__setitem__(0, 77)),
        "class numbers from 0 to 9",
    ),
    "records that are not there": (
        key("truth/messages.json", lambda r: r[next(iter(r))].__setitem__(0, 10**6)),
        "names records outside",
    ),
    "a release of nothing": (lambda s: (s / KEY).write_text('{"id": "x"}\n'), "line 1.id = 'x'"),
    # tensors of the wrong kind
    "no tensor": (change_tensors(TENSORS, lambda t: t.pop(min(t))), "is missing"),
    "another shape": (change_tensors(TENSORS, lambda t: t.update({min(t): torch.zeros(2, 2, 2)})), "has shape"),
    "no finite tensor": (change_tensors(TENSORS, lambda t: t[min(t)].fill_(float("nan"))), "not finite"),
    "half a file": (lambda s: (s / TENSORS).write_bytes((s / TENSORS).read_bytes()[:200]), "not a whole safetensors"),
    "no file of tensors": (lambda s: (s / TENSORS).unlink(), "is missing"),
    "half precision": (tensor(TENSORS, "weight", torch.Tensor.half), "expected torch.float32"),
    "another update": (tensor(TENSORS, "weight", lambda t: t + 1), "changed after training"),
    "pixels out of range": (tensor("knowledge/auxiliary.safetensors", "inputs", lambda t: t + 99), "expected 0 to 1"),
    "a scalar": (tensor("knowledge/candidates.safetensors", "targets", torch.Tensor.sum), "has shape ()"),
    "classes out of range": (tensor("knowledge/candidates.safetensors", "targets", lambda t: t + 99), "class numbers"),
    "too few targets": (tensor("truth/records.safetensors", "targets", lambda t: t[:-1]), "one of each"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_sentence_and_nothing_is_written(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    harm, words = DAMAGE[damage]
    harm(copy)
    refused(capsys, words, "check", copy)
    refused(capsys, words, "run", copy, "-o", tmp_path / "results", "--attack", "membership-loss")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "change",
    [
        "another σ",
        "another δ",
        "another fact",
        "no seal",
        "another noise",
        "a release gone",
        "half the key",
        "true for 1",
        "nested",
    ],
)
def test_no_epsilon_is_told_of_a_changed_key(copy: Path, capsys: pytest.CaptureFixture[str], change: str) -> None:
    DAMAGE[change][0](copy)
    refused(capsys, DAMAGE[change][1] if change != "nested" else "nested", "epsilon", copy)


def test_an_owner_may_change_truth_and_knowledge_but_not_without_a_word(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensor("truth/records.safetensors", "inputs", torch.zeros_like)(copy)
    code, told, _ = called(capsys, "check", copy)
    assert code == 0 and "truth/records.safetensors" in told
    assert called(capsys, "run", copy, "-o", tmp_path / "r", "--attack", "membership-loss")[0] == 0
    assert any(
        "truth/records.safetensors" in w for w in json.loads((tmp_path / "r" / "results.json").read_text())["warnings"]
    )


def test_whole_rooms_may_be_absent(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(copy / "truth")
    shutil.rmtree(copy / "auditor")
    code, told, _ = called(capsys, "check", copy, "--json")
    facts = json.loads(told)
    assert code == 0 and facts["truth"] is facts["auditor"] is False and facts["edited"] == []
    refused(capsys, "no auditor/ folder", "epsilon", copy)


@pytest.mark.parametrize(
    "bad", ["NaN", "-Infinity", "1e400", "9" * 30, "[" * 100_000, '{"a": 1, "a": 2}', '"\\ud800"', ""]
)
def test_json_is_what_its_standard_says(bad: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|large|deep|twice|surrogate|Expecting"):
        plain_json(bad)
    assert plain_json(r'{"a":[1,2.5,"\ud83d\ude00",null]}') == {"a": [1, 2.5, "😀", None]}


# --- what an earlier run left, and results


def test_damaged_leftovers_are_one_sentence(
    home: Path, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for harm in (b"", b"null", b"\xff"):
        (copy / "setup.json").write_bytes(harm)
        refused(capsys, "--force", "train", home / "config.toml", "-o", copy)
    shutil.copy(home / "setup" / "setup.json", copy)
    text("setup.json", '"status": "complete"', '"status": "partial"')(copy)
    (copy / ".work").mkdir()
    (copy / ".work" / "state.safetensors").write_bytes(b"half")
    refused(capsys, "--force to start anew", "train", home / "config.toml", "-o", copy)
    results = Path(shutil.copytree(home / "results", tmp_path / "results"))
    (results / ".work").mkdir()
    (results / ".work" / "digest").write_text(json.loads((results / "results.json").read_text())["digest"])
    (results / "results.json").unlink()
    evidence = next((results / "evidence").iterdir())
    whole = evidence.read_bytes()
    evidence.write_bytes(whole[:40])
    refused(capsys, "remove it", "run", home / "setup", "-o", results, "--attack", "membership-loss")
    evidence.unlink()
    assert called(capsys, "run", home / "setup", "-o", results, "--attack", "membership-loss")[0] == 0
    assert content(results, but=()) == content(home / "results", but=())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["epsilon"][0].update(demonstrated=float("nan")), "NaN"),
        (lambda r: r["epsilon"].append(3), "epsilon[6]"),
        (lambda r: r["setup"]["config"].update(seed=5), "another setup"),
    ],
)
def test_a_demonstrated_epsilon_is_only_shown_beside_its_own_setup(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Any], Any], words: str
) -> None:
    results = Path(shutil.copytree(home / "results", tmp_path / "r"))
    key("results.json", change)(results)
    refused(capsys, words, "epsilon", home / "setup", "--results", results)
    assert called(capsys, "epsilon", home / "setup", "--results", home / "results")[0] == 0
