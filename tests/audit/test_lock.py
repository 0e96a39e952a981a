"""Two commands in one folder, with real processes: one writes, the other is told so; what was killed is taken over."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command import call, called, content
from configs import small_config
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.lock import NAME, holder_of, writing, writing_file

CONFIG = small_config(
    seed=4,
    model={"options": {"widths": [64]}},
    scheme={"rounds": 20},
    capture={"rounds": 1, "auxiliary": 6},
    attack={"inversion": {"objective": "cosine", "iterations": 300}},
)
KEY = ("--noise-key", "published")


def wait_for(ready: Callable[[], object], process: subprocess.Popen) -> None:
    while not ready():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lock") / "config.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def alone(config: Path) -> dict[str, bytes]:
    """What one training by itself leaves."""
    assert call("train", config, "-o", config.parent / "alone", *KEY) == 0
    return content(config.parent / "alone")


@pytest.mark.full
def test_two_trainings_a_second_apart_leave_one_whole_setup(config, alone, tmp_path, start, capsys):
    first = start("train", config, "-o", tmp_path / "setup", *KEY)
    wait_for((tmp_path / "setup" / ".work" / "round-0000.json").exists, first)
    os.kill(first.pid, signal.SIGSTOP)  # so that it writes for longer than a second, whatever the machine
    time.sleep(1)
    code, _, told = called(capsys, "train", config, "-o", tmp_path / "setup", *KEY)
    assert code == 2 and "\n" not in told
    assert f"(pid {first.pid}" in told and socket.gethostname() in told
    for reader in ("check", "epsilon"):
        code, _, told = called(capsys, reader, tmp_path / "setup")
        assert code == 2 and f"(pid {first.pid}" in told and "still training" in told
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait(timeout=600) == 0
    assert call("check", tmp_path / "setup") == 0 and content(tmp_path / "setup") == alone


@pytest.mark.full
def test_what_was_killed_is_taken_over_and_ends_with_the_same_bytes(config, alone, tmp_path, start):
    killed = start("train", config, "-o", tmp_path / "setup", *KEY)
    wait_for((tmp_path / "setup" / ".work" / "round-0002.json").exists, killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert json.loads((tmp_path / "setup" / NAME).read_text())["pid"] == killed.pid
    assert holder_of(tmp_path / "setup") is None
    assert call("train", config, "-o", tmp_path / "setup", *KEY) == 0
    assert content(tmp_path / "setup") == alone


@pytest.mark.full
def test_two_runs_and_a_report_in_one_results_folder(config, tmp_path, start, capsys):
    assert call("train", config, "-o", tmp_path / "setup", "--set", "scheme.rounds=1", *KEY) == 0
    first = start("run", tmp_path / "setup", "-o", tmp_path / "results")
    wait_for((tmp_path / "results" / ".work" / "digest").exists, first)
    os.kill(first.pid, signal.SIGSTOP)
    for command in (("run", tmp_path / "setup", "-o"), ("report",)):
        code, _, told = called(capsys, *command, tmp_path / "results")
        assert code == 2 and f"(pid {first.pid}" in told, told
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert call("run", tmp_path / "setup", "-o", tmp_path / "results") == 0
    assert call("report", tmp_path / "results") == 0
    assert not list(tmp_path.rglob(f"*{NAME}"))


@pytest.mark.parametrize("kernel", [True, False], ids=["flock", "a file system without locks"])
def test_a_lock_is_held_by_who_lives(tmp_path, monkeypatch, kernel):
    if not kernel:

        def no_locks(*_: object) -> None:
            raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(fcntl, "flock", no_locks)
    folder = tmp_path / "a" / "b"
    with writing(folder):
        assert f"(pid {os.getpid()}" in str(holder_of(folder)) and socket.gethostname() in str(holder_of(folder))
        with (
            pytest.raises(BadInput, match=rf"b: another audit \(pid {os.getpid()} on .*\) is writing here"),
            writing(folder),
        ):
            pass
        (folder / "kept").touch()
    assert [p.name for p in folder.iterdir()] == ["kept"]
    gone = subprocess.Popen(["true"])
    gone.wait()
    for left in (json.dumps({"pid": gone.pid, "host": socket.gethostname()}), "", '{"pid": 3'):
        (folder / NAME).write_text(left)
        with writing(folder):
            assert holder_of(folder) is not None
        assert [p.name for p in folder.iterdir()] == ["kept"]


def test_another_host_is_named_and_its_lock_is_left_to_its_owner(tmp_path):
    lock = tmp_path / NAME
    lock.write_text(json.dumps({"pid": 77, "host": "elsewhere"}))
    with pytest.raises(BadInput) as error, writing(tmp_path):
        pass
    assert all(part in str(error.value) for part in ("(pid 77", "elsewhere", str(lock)))
    assert json.loads(lock.read_text())["host"] == "elsewhere"


def test_a_folder_that_nothing_was_written_to_goes_again(tmp_path):
    for around in (writing, writing_file):
        with pytest.raises(ZeroDivisionError), around(tmp_path / "a" / "b" / "c"):
            raise ZeroDivisionError
        assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="is a file"), writing(tmp_path / "file"):
        pass


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])
def test_a_folder_that_another_removes_in_the_middle_is_made_again(tmp_path, monkeypatch, error):
    """The other's folder is there when ours is made, and gone when we look what it was."""
    make, raised = os.mkdir, []

    def mkdir(path: Path, mode: int = 0o777) -> None:
        if not raised:
            raised.append(path)
            raise error(path)
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with writing(tmp_path / "folder"):
        assert raised and holder_of(tmp_path / "folder") is not None


def test_what_stays_in_the_way_is_said_and_not_waited_for(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for folder in (tmp_path / "link", tmp_path / "link" / "setup"):
        with pytest.raises(FileExistsError), writing(folder):
            pass


def test_where_no_file_can_be_made_nobody_waits(tmp_path, monkeypatch):
    """/proc answers so for ever."""

    def none(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", none)
    with pytest.raises(FileNotFoundError), writing(tmp_path / "folder"):
        pass


@pytest.mark.parametrize("device", ["/dev/null", "/dev/stdout", "/dev/fd/1"])
def test_a_device_is_not_replaced_by_a_file(device):
    """/dev/stdout may lead to a file, and is none all the same."""
    with pytest.raises(BadInput, match=f"{device} is a device or a pipe; name a file"), writing_file(Path(device)):
        pass


def test_a_path_with_a_nul_byte_is_refused():
    with pytest.raises(BadInput, match="NUL byte"), writing(Path("a\0b")):
        pass


def test_of_many_processes_at_once_one_writes(tmp_path):
    """Each that gets the lock appends a line, waits and appends another: no two are ever inside together."""
    program = (
        "import sys, time, pathlib\n"
        "from dpfl_audit.audit.lock import writing\n"
        "from dpfl_audit.audit.errors import BadInput\n"
        "folder, log = map(pathlib.Path, sys.argv[1:])\n"
        "end = time.time() + 1\n"
        "while time.time() < end:\n"
        "    try:\n"
        "        with writing(folder):\n"
        "            for word in ('in', 'out'):\n"
        "                with open(log, 'a') as file: file.write(word + '\\n')\n"
        "                time.sleep(0.001)\n"
        "    except BadInput: pass\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "folder"), str(tmp_path / "log")]
    running = [subprocess.Popen(command) for _ in range(6)]
    assert [process.wait(timeout=600) for process in running] == [0] * 6
    lines = (tmp_path / "log").read_text().split()
    assert len(lines) > 20 and lines == ["in", "out"] * (len(lines) // 2)
