"""What used to give a wrong result without a word: an error or a sentence each, and an exit code that says which."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import called
from configs import small_config

CONFIG = small_config(seed=4, data={"samples_per_client": 20}, scheme={"rounds": 3})
RNG = np.random.default_rng(0)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    return path


def train(capsys: pytest.CaptureFixture[str], config: Path, *changes: str, quiet: bool = False) -> tuple[int, str, str]:
    sets = [part for change in changes for part in ("--set", change)]
    return called(capsys, "train", config, "-o", config.parent / "setup", *sets, *(["--quiet"] if quiet else []))


def manifest(config: Path) -> dict:
    return json.loads((config.parent / "setup" / "setup.json").read_text())


def test_a_budget_without_a_single_round_is_refused(config, capsys):
    """σ = 1 at δ = 1e-5: the first release costs 1/2 + √(2 ln 10⁵) = 5.30 (THESIS Def. 7), two cost 7.79."""
    code, _, error = train(capsys, config, "scheme.budget=5.2")
    assert code == 2 and "5.299" in error
    assert not (config.parent / "setup").exists()
    assert called(capsys, "epsilon", config, "--set", "scheme.budget=5.2")[0] == 2
    code, told, error = train(capsys, config, "scheme.budget=5.4")
    assert (code, error) == (0, "") and "1 of" in told and "budget" in told
    assert manifest(config)["rounds"] == 1


def test_training_that_diverges_at_once_is_an_error_and_later_a_sentence(config, capsys):
    """A step of 1e37 along a gradient of norm 0.5: the first update overflows float32 behind the optimiser."""
    for quiet in (False, True):  # whoever asks for errors only gets this one, and gets it again
        code, _, error = train(capsys, config, "scheme={name='fedavg', rounds=3}", "local.lr=1e37", quiet=quiet)
        assert code == 2 and "first round" in error and "[local] lr" in error
    assert manifest(config)["status"] == "diverged"
    (config.parent / "late").mkdir()
    late = config.parent / "late" / "config.toml"
    late.write_text(CONFIG)
    deep = "model={name='mlp', options={activation='linear', widths=[4, 4, 4]}}"  # the weights' product grows
    local = "local={optimiser='sgd', lr=2.0, batch_size=20, steps=1}"
    code, told, error = train(capsys, late, "scheme={name='fedavg', rounds=40}", local, deep)
    assert (code, error) == (0, "") and 0 < (kept := manifest(late)["rounds"]) < 40
    assert f"round {kept}" in told and f"{kept} finite" in told


def test_a_batch_larger_than_any_client_is_said(config, capsys):
    code, _, said = train(capsys, config, "local.batch_size=5000")
    assert code == 0 and "5000" in said and "20 records" in said and "\n" not in said
    assert train(capsys, config, "local.batch_size=5000", quiet=True) == (0, "", "")
    for enough in (19, 20):
        assert called(capsys, "train", config, "--dry-run", "--set", f"local.batch_size={enough}")[2] == ""
    assert "5000" in called(capsys, "train", config, "--dry-run", "--set", "local.batch_size=5000")[2]


@pytest.mark.parametrize(("classes", "said"), [(None, False), (2, False), (3, True), (10, True)])
def test_more_classes_than_the_table_has_are_said(config, capsys, classes, said):
    targets = np.arange(200) % 2
    np.savez(config.parent / "two.npz", inputs=RNG.normal(size=(200, 3)), targets=targets)
    kept = [] if classes is None else [f"data.classes={classes}"]
    code, _, error = train(capsys, config, "data.name=npz", "data.root=two.npz", *kept)
    assert code == 0 and ("(0 to" in error) is said
    assert manifest(config)["data"]["classes"] == (classes or 2)


def test_images_of_either_order_are_read_as_they_are_and_said(config, capsys):
    """Whoever read height for channels would train on something else; where both could be meant, one is asked."""
    np.savez(config.parent / "hwc.npz", inputs=np.zeros((200, 8, 6, 3), np.float32), targets=np.arange(200) % 2)
    code, _, said = train(capsys, config, "data={name='npz', root='hwc.npz', clients=2, samples_per_client=20}")
    assert code == 0 and "channel-height-width" in said
    assert manifest(config)["data"]["input_shape"] == [3, 8, 6]
    for shape, words in (((200, 3, 8, 3), "say which by order"), ((200, 8, 8, 4), "neither the first nor the last")):
        np.savez(config.parent / "both.npz", inputs=np.zeros(shape, np.float32), targets=np.arange(200) % 2)
        code, _, error = train(capsys, config, "data={name='npz', root='both.npz', clients=2, samples_per_client=20}")
        assert code == 2 and words in error


def test_a_delta_that_promises_nothing_is_said(config, capsys):
    said = train(capsys, config, "audit.delta=0.9")[2]
    assert "[audit]" in said and "0.9" in said


def test_targets_of_a_single_class_are_said(config, capsys):
    np.savez(config.parent / "one.npz", inputs=np.zeros((200, 4), np.float32), targets=np.zeros(200, np.int64))
    code, _, said = train(capsys, config, "data={name='npz', root='one.npz', clients=2, samples_per_client=20}")
    assert code == 0 and "one class" in said


@pytest.mark.parametrize("name", ["photos", "digits", "breast_cancer"])
def test_a_root_that_nothing_reads_is_refused(config, capsys, name):
    code, _, error = train(capsys, config, f"data={{name='{name}', root='/data', clients=2, samples_per_client=20}}")
    assert code == 2 and "root" in error and "'/data'" in error and name in error
    assert not (config.parent / "setup").exists()
