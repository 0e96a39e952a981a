"""`audit check` finds what is missing, and the same `audit train` makes it again, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import call, called, content
from configs import small_config

CONFIG = small_config(capture={"candidates": 8, "auxiliary": 6})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repair")
    (folder / "config.toml").write_text(CONFIG)
    assert call("train", folder / "config.toml", "-o", folder / "setup") == 0  # with a key of its own
    return folder


@pytest.fixture
def setup(home: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(home / "setup", tmp_path / "setup"))


def same_bytes(one: Path, other: Path) -> bool:
    return content(one) == content(other)


@pytest.mark.full
def test_every_file_that_goes_missing_is_named_and_comes_back(home, setup, capsys):
    """But for the owner's: what an attacker is assumed to know and the truth may be taken away, which is said; so may
    the key; and when and where it was trained is nobody's business.
    """
    owned = ("truth/", "knowledge/", "auditor/noise-key", "environment.json")
    files = [name for name in content(setup, but=()) if not name.startswith(owned) and name != "setup.json"]
    assert len(files) >= 9
    for name in files:
        (setup / name).unlink()
        code, _, error = called(capsys, "check", setup)
        assert code == 2 and Path(name).name in error, (name, error)
        assert call("train", home / "config.toml", "-o", setup) == 0
        assert call("check", setup) == 0 and same_bytes(setup, home / "setup"), name
    for name in (name for name in content(setup, but=()) if name.startswith(("truth/", "knowledge/"))):
        kept = (setup / name).read_bytes()
        (setup / name).unlink()
        code, told, error = called(capsys, "check", setup)
        assert Path(name).name in (error if code else told), name
        (setup / name).write_bytes(kept)


def test_what_was_changed_comes_back_as_it_was(home, setup):
    (setup / "tensors" / "round-0000.safetensors").write_bytes(b"half")
    (setup / "rounds.csv").write_text("round\n")
    assert call("train", home / "config.toml", "-o", setup) == 0
    assert same_bytes(setup, home / "setup")


def test_whole_rooms_that_an_owner_took_away_stay_away(home, setup):
    shutil.rmtree(setup / "truth")
    assert call("train", home / "config.toml", "-o", setup) == 0 and not (setup / "truth").exists()
    (setup / "auditor" / "noise-key").unlink()
    assert call("train", home / "config.toml", "-o", setup) == 0 and call("check", setup) == 0


def test_without_its_key_a_damaged_setup_is_not_quietly_made_another(home, setup, capsys):
    (setup / "auditor" / "noise-key").unlink()
    (setup / "rounds.csv").unlink()
    before = content(setup, but=())
    code, _, error = called(capsys, "train", home / "config.toml", "-o", setup)
    assert code == 2 and "rounds.csv" in error and "auditor/noise-key" in error
    assert content(setup, but=()) == before
    assert call("train", home / "config.toml", "-o", setup, "--force") == 0 and call("check", setup) == 0


def test_a_setup_without_setup_json_asks_and_anything_else_is_left_alone(home, setup, capsys):
    (setup / "setup.json").unlink()
    code, _, error = called(capsys, "train", home / "config.toml", "-o", setup)
    assert code == 2 and "setup.json" in error and "--force" in error
    (setup / "letter.txt").write_text("mine")
    for force in ((), ("--force",)):
        code, _, error = called(capsys, "train", home / "config.toml", "-o", setup, *force)
        assert code == 2 and "another folder" in error and (setup / "letter.txt").exists()
    (setup / "letter.txt").unlink()
    assert call("train", home / "config.toml", "-o", setup, "--force") == 0 and call("check", setup) == 0


@pytest.mark.parametrize("left", [["setup.json.part"], [".work/round-0000.json"], [".lock", ".work/state.safetensors"]])
def test_what_a_command_killed_at_its_very_start_or_end_left_is_no_obstacle(home, setup, tmp_path, left):
    for folder in (tmp_path / "begun", setup):
        for name in left:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"")
        assert call("train", home / "config.toml", "-o", folder) == 0 and call("check", folder) == 0
        assert not (folder / ".work").exists() and not (folder / ".lock").exists()
    assert (content(setup, but=()).keys() - set(left)) == content(home / "setup", but=()).keys()


def test_force_that_was_killed_half_way_leaves_what_the_next_command_mends(home, setup, capsys):
    """setup.json goes last, so what is left of another setup says whose it was."""
    other = ("--set", "seed=9")
    for name in [name for name in content(setup, but=()) if name.startswith(("tensors/", "knowledge/"))]:
        (setup / name).unlink()
    code, _, error = called(capsys, "train", home / "config.toml", "-o", setup, *other)
    assert code == 2 and "--force" in error
    assert call("train", home / "config.toml", "-o", setup, *other, "--force") == 0 and call("check", setup) == 0
