"""What somebody who waits sees: a bar with the time left on a real terminal, a line every ten seconds in a log."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dpfl_audit.audit import demo, progress
from dpfl_audit.audit.progress import Reporter

BAR = re.compile(r"(\S.*?) +(\d+) % \|([#0-9 ]*)\| (\d[\d:]*) so far, (\d[\d:]*|\?) left")

CONFIG = """
[data]
name = "digits"
clients = 2
samples_per_client = 40
[model]
name = "mlp"
options = { widths = [256] }
[local]
optimiser = "sgd"
batch_size = 5
[scheme]
name = "ldp"
clip = 0.5
sigma = 1.0
rounds = 5000
[capture]
rounds = 1
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(command: list[str], until: str, seconds: float = 120) -> str:
    """What a command writes to a terminal of 100 columns until `until` is seen; it is killed then."""
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(command, stdout=child, stderr=child, stdin=child, env=environment, close_fds=True)
    os.close(child)
    seen, end = "", time.time() + seconds
    try:
        while not re.search(until, seen) and time.time() < end:
            if select.select([parent], [], [], 0.2)[0]:
                try:
                    seen += os.read(parent, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
    finally:
        process.kill()
        process.wait()
        os.close(parent)
    return seen


def test_a_training_on_a_real_terminal_has_a_bar_with_the_time_left(tmp_path):
    (tmp_path / "c.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "dpfl_audit.cli", "train", str(tmp_path / "c.toml"), "-o", str(tmp_path / "s")]
    seen = on_a_terminal(command, r"training rounds.*so far, \d[\d:]* left")
    frames = [line for line in seen.replace("\n", "\r").split("\r") if "training rounds" in line]
    assert frames and BAR.match(frames[-1]), seen[-500:]
    assert max(map(len, frames)) < 100  # a longer one would break and leave its first half behind


def test_the_time_left_is_that_of_the_work_since_it_was_heard_of(monkeypatch):
    """60 of 100 were there before; 20 more took 10 s, so the other 20 take 10 s."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    reporter = Reporter(quiet=True)
    now[0] = 5.0
    reporter(60, 100, "attacking")
    assert reporter.line() == "attacking 60 %, 00:05 so far, ? left"
    now[0] = 15.0
    reporter(80, 100, "attacking")
    assert reporter.line() == "attacking 80 %, 00:15 so far, 00:10 left"
    reporter(1, 4, "scoring")  # other work, of which nothing is known yet
    assert reporter.line().endswith("scoring 25 %, 00:15 so far, ? left")
    name, percent, _, so_far, left = BAR.match(reporter.line(80)).groups()
    assert (name, percent, so_far, left) == ("scoring", "25", "00:15", "?") and len(reporter.line(80)) <= 80
    reporter(1, 4, "a name {of} " + 200 * "x")
    for columns in (60, 80, 200):
        assert len(reporter.line(columns)) <= columns and reporter.line(columns).endswith("left")


def test_a_bar_appears_after_two_seconds_of_anything_and_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(progress, "FRAME", 0.01)
    for delay, shown in ((0.0, True), (60.0, False)):
        monkeypatch.setattr(progress, "DELAY", delay)
        screen = Terminal()
        with Reporter(stream=screen):
            time.sleep(0.2)  # not a word from the work
        assert ("starting, 00:00 so far" in screen.getvalue()) is shown
        last = screen.getvalue().split("\r")
        assert not shown or (
            last[-1] == "" and last[-2].strip() == "" and len(last[-2]) >= len("starting, 00:00 so far")
        )


def test_a_log_gets_a_line_every_ten_seconds_and_quiet_nothing(monkeypatch):
    every = [
        sys.executable,
        "-c",
        "from dpfl_audit.audit.progress import LINE; print(LINE)",
    ]  # not as the tests have it
    assert subprocess.check_output(every, text=True) == "10.0\n"
    monkeypatch.setattr(progress, "LINE", 0.05)
    for quiet in (False, True):
        log = io.StringIO()
        with Reporter(quiet=quiet, stream=log) as reporter:
            reporter(1, 4, "training rounds")
            time.sleep(0.3)
            if not quiet:
                reporter.note("a batch")
        lines = log.getvalue().splitlines()
        assert bool(lines) is not quiet and "\r" not in log.getvalue()
        if lines:
            assert 2 <= len(lines) <= 8 and lines[-1] == "note: a batch"
            assert lines[0] == "audit: training rounds 25 %, 00:00 so far, ? left"


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert not Reporter(stream=Terminal()).terminal
    monkeypatch.setenv("TERM", "xterm")
    assert Reporter(stream=Terminal()).terminal


def test_the_demo_never_goes_back_and_ends_at_its_end():
    """Its parts each run from nothing to all; the whole goes on over them, so the time left is that of the demo."""
    heard: list[tuple[int, int]] = []
    before = [0]
    for spans, told in (
        ({"training": demo.TRAINING}, ("training rounds",)),
        (demo.ATTACKS, ("attacking", "scoring", "scoring", "pricing rows")),
        (demo.CANARY, ("pricing rows", "canary: a", "canary: b")),
        (
            demo.STUDY,
            ("settings 1 to 8: training rounds", "settings 1 to 8: attacking", "again, x: scoring", "one step"),
        ),
    ):
        stage = demo._Stage(lambda done, total, words="": heard.append((done, total)), "x", spans, before)
        for words in told:
            for done in range(5):
                stage(done, 4, words)
    done = [d for d, _ in heard]
    assert done == sorted(done) and done[0] == 0 and done[-1] == heard[-1][1] and len({t for _, t in heard}) == 1


@pytest.mark.parametrize("rounds", [3])
def test_an_epsilon_says_which_rows_are_priced(tmp_path, rounds):
    from dpfl_audit.audit.proven.table import table

    (tmp_path / "c.toml").write_text(CONFIG.replace("5000", str(rounds)))
    heard: list[tuple[int, int, str]] = []
    table(Path(tmp_path / "c.toml"), progress=lambda done, total, words="": heard.append((done, total, words)))
    assert [done for done, _, _ in heard] == list(range(1, heard[-1][1] + 1)) and heard[-1][2] == "pricing rows"
