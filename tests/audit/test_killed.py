"""`audit run` of inversions and links, really killed or met by a second one: no byte is lost and none is another."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import call, called, content
from configs import small_config
from dpfl_audit.audit.lock import NAME

CONFIG = small_config(
    seed=4,
    claim="none",
    data={"clients": 3, "samples_per_client": 4},
    model={"options": {"widths": [32]}},
    local={"optimiser": "adam", "batch_size": 4},
    scheme={"name": "anonymous-leader", "rounds": 3, "train_share": 1.0, "clip": 5.0, "noise_std": 0.001},
    capture={"clients": [0, 1, 2], "auxiliary": 6},
    audit={"observer": "uplink"},
    attack={"inversion": {"iterations": 30}},
)
ATTACK = ("--attack", "linking", "--attack", "inversion")


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("killed")
    (home / "config.toml").write_text(CONFIG)
    assert call("train", home / "config.toml", "-o", home / "setup", "--quiet", "--noise-key", "published") == 0
    return home / "setup"


@pytest.fixture(scope="module")
def alone(setup: Path) -> dict[str, bytes]:
    """What a run that nobody disturbs writes."""
    assert call("run", setup, "-o", setup.parent / "alone", "--quiet", *ATTACK) == 0
    return content(setup.parent / "alone")


def stopped_at(process: subprocess.Popen[str], output: Path, files: int) -> None:
    """Stopped where so many pieces of evidence are there, or at the end, if it is faster than we look."""
    while len([*output.glob("evidence/*.safetensors")]) < files and process.poll() is None:
        time.sleep(0.001)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGSTOP)


@pytest.mark.parametrize("files", [pytest.param(0, marks=pytest.mark.full), 2])
def test_what_was_killed_in_the_middle_ends_with_the_same_bytes(setup, alone, tmp_path, start, files: int) -> None:
    output = tmp_path / "results"
    first = start("run", setup, "-o", output, "--quiet", *ATTACK)
    while files == 0 and not (output / ".work" / "digest").exists() and first.poll() is None:
        time.sleep(0.001)
    stopped_at(first, output, files)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    there = {path.name: path.read_bytes() for path in output.glob("evidence/*.safetensors")}
    assert len(there) >= files and all(alone[f"evidence/{name}"] == data for name, data in there.items())
    for _ in range(2):  # and once more, of what is done
        assert call("run", setup, "-o", output, "--quiet", *ATTACK) == 0
        assert content(output) == alone


@pytest.mark.full  # tests/audit/test_lock.py has a short one
def test_two_at_once_one_writes_and_the_other_says_so_in_a_sentence(setup, alone, tmp_path, start, capsys) -> None:
    output = tmp_path / "results"
    first = start("run", setup, "-o", output, "--quiet", *ATTACK)
    stopped_at(first, output, 1)
    assert first.poll() is None, first.communicate()
    before = content(output)
    for other in (ATTACK, ("--attack", "inversion"), (*ATTACK, "--force")):
        code, out, told = called(capsys, "run", setup, "-o", output, "--quiet", *other)
        assert code == 2 and out == "" and told.count("\n") == 0 and f"(pid {first.pid} on " in told
    assert content(output) == before  # nothing lost, nothing changed, by --force neither
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(timeout=600) == 0
    assert content(output) == alone and not [*tmp_path.rglob(f"*{NAME}")]
