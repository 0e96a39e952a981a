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
from configs import small_config
from dpfl_audit.audit import progress
from dpfl_audit.audit.progress import Reporter
from dpfl_audit.audit.timetable import WHOLE, Timetable, WorkKind

BAR = re.compile(r"(\S.*?) +(\d+) % \|([#0-9 ]*)\| (\d[\d:]*) so far(?:, (\d[\d:]*) left)?")

CONFIG = small_config(
    data={"samples_per_client": 40},
    model={"options": {"widths": [256]}},
    scheme={"rounds": 5000},
    capture={"rounds": 1},
)


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


@pytest.mark.full
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
    assert reporter.line() == "attacking 60 %, 00:05 so far"
    now[0] = 15.0
    reporter(80, 100, "attacking")
    assert reporter.line() == "attacking 80 %, 00:15 so far, 00:10 left"
    reporter(999, 1000, "pricing")
    assert reporter.line().startswith("pricing 99 %")
    reporter(1, 4, "scoring")  # other work, of which nothing is known yet
    assert reporter.line().endswith("scoring 25 %, 00:15 so far")
    name, percent, _, so_far, left = BAR.match(reporter.line(80)).groups()
    assert (name, percent, so_far, left) == ("scoring", "25", "00:15", None) and len(reporter.line(80)) <= 80
    reporter(1, 4, "a name {of} " + 200 * "x")
    for columns in (60, 80, 200):
        assert len(reporter.line(columns)) <= columns and reporter.line(columns).endswith("so far")


def test_a_bar_appears_after_two_seconds_of_anything_and_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(progress, "FRAME", 0.01)
    for delay, shown in ((0.0, True), (60.0, False)):
        monkeypatch.setattr(progress, "DELAY", delay)
        screen = Terminal()
        with Reporter(stream=screen):
            time.sleep(0.2)  # not a word from the work
        assert ("preparing, 00:00 so far" in screen.getvalue()) is shown
        last = screen.getvalue().split("\r")
        assert not shown or (
            last[-1] == "" and last[-2].strip() == "" and len(last[-2]) >= len("preparing, 00:00 so far")
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
            assert lines[0] == "audit: training rounds 25 %, 00:00 so far"


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert not Reporter(stream=Terminal()).terminal
    monkeypatch.setenv("TERM", "xterm")
    assert Reporter(stream=Terminal()).terminal


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass as the test says."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def seconds_left(reporter: Reporter) -> float | None:
    """As it stands in the line."""
    found = re.search(r"(\d+):(\d+) left", reporter.line())
    return None if found is None else 60.0 * int(found[1]) + int(found[2])


def test_the_time_left_of_work_that_stalls_falls_and_then_says_so(clock):
    """ "80 %, 00:28 left" rose to "00:48 left" within forty seconds of silence."""
    reporter = Reporter(quiet=True)
    reporter(0, 100, "scoring")
    clock[0] = 80.0
    reporter(80, 100, "scoring")
    shown = []
    for clock[0] in range(80, 130, 5):
        shown.append(seconds_left(reporter))
    assert shown == [20.0, 15.0, 10.0, 5.0, 0.0, None, None, None, None, None]
    assert reporter.line() == "scoring 80 %, 02:05 so far, longer than expected"
    clock[0] = 180.0
    reporter(90, 100, "scoring")  # by what is known now: 180 s for nine tenths
    assert reporter.line() == "scoring 90 %, 03:00 so far, longer than expected, 00:20 left"
    clock[0] = 185.0
    reporter(98, 100, "scoring")  # faster again
    assert seconds_left(reporter) == 3.0


def test_work_that_turns_out_far_slower_has_another_time_left_and_says_so(clock):
    """A little slower is no reason for another number: it falls on to 0; by more than a tenth, it rises slowly."""
    reporter = Reporter(quiet=True)
    reporter(0, 100, "attacking")
    for clock[0], done, left in ((10.0, 10, 90), (21.0, 20, 79), (40.0, 33, 71), (50.0, 36, 79)):
        reporter(done, 100, "attacking")  # by a tenth in ten seconds, to 89
        assert seconds_left(reporter) == left and (reporter.held is not None) is (done > 20)
    clock[0] = 120.0
    reporter(40, 100, "attacking")
    assert reporter.line() == "attacking 40 %, 02:00 so far, longer than expected, 03:00 left"


def test_no_line_after_the_first_fifth_has_a_tenth_more_left_than_the_one_before(clock):
    """Of work whose speed changes by a factor of two every twenty steps."""
    reporter, shown = Reporter(quiet=True), []
    for done in range(201):
        clock[0] += 1.0 if done // 20 % 2 else 2.0
        reporter(done, 200, "attacking")
        if done > 40 and done % 5 == 0:
            shown.append(seconds_left(reporter))
    assert all(later <= 1.1 * before + 1 for before, later in zip(shown, shown[1:])) and max(shown) > 150


def unequal(fast: float, slow: float) -> dict[str, WorkKind]:
    return {"fast": WorkKind(fast, ("training",)), "slow": WorkKind(slow, ("scoring",))}


def heard_of(
    clock: list[float], kinds: dict[str, WorkKind], fast: float, slow: float
) -> list[tuple[float, float | None]]:
    """When, and the time left, of three stages whose units take `fast` and `slow` seconds each, a tick a tenth."""
    reporter = Reporter(quiet=True)
    table = Timetable(reporter, kinds, lambda: clock[0])
    shown = []
    for stage in [table.plan({"fast": 10, "slow": 10}) for _ in range(3)]:
        for words, each in (("training", fast), ("scoring", slow)):
            for done in range(1, 101):
                clock[0] += each / 10
                stage(done, 100, words)
                shown.append((clock[0], seconds_left(reporter)))
        stage.end()
    return shown


def test_the_time_left_falls_by_the_second_over_stages_of_unequal_speed(clock):
    """Of 1 s and 20 s a unit, as was planned: all the way within two seconds of what is really left, never up."""
    shown = heard_of(clock, unequal(1, 20), 1, 20)
    end = shown[-1][0]
    assert end == pytest.approx(3 * (10 * 1 + 10 * 20))
    known = [(when, left) for when, left in shown if left is not None]
    assert len(known) > 0.9 * len(shown)
    assert all(left == pytest.approx(end - when, abs=3) for when, left in known)
    assert all(later <= before for (_, before), (_, later) in zip(known, known[1:]))


def test_slow_scoring_is_counted_from_the_first_stage_on_though_the_plan_knew_nothing_of_it(clock):
    """Sixteen minutes of scoring in the second and third stage are in the time left before they begin."""
    shown = heard_of(clock, unequal(1, 1), 1, 48)
    end, first = shown[-1][0], 10 * 1 + 10 * 48
    later = [(when, left) for when, left in shown if when > 1.1 * first and left is not None]
    assert all(left == pytest.approx(end - when, rel=0.1, abs=3) for when, left in later) and len(later) > 250
    assert all(after <= before for (_, before), (_, after) in zip(later, later[1:]))


def test_what_an_earlier_run_left_is_no_speed(clock):
    """Two of three stages are done already: nothing is heard of them, and the third takes as long as planned."""
    heard: list[tuple[int, int]] = []
    table = Timetable(lambda done, total, words="": heard.append((done, total)), unequal(1, 20), lambda: clock[0])
    first, second, third = (table.plan({"fast": 10, "slow": 10}) for _ in range(3))
    first.end()
    second.end()
    assert table.left == 210.0
    clock[0] = 5.0
    third(50, 100, "training")  # half of it was done before anybody heard of it
    assert table.left == 205.0 and heard[-1] == (int(WHOLE * 5 / 210), WHOLE)
    clock[0] = 15.0
    third(75, 100, "training")  # 2.5 units in ten seconds
    assert table.left == 2.5 * 4 + 200.0
    third.end()
    assert table.left == 0.0


def test_work_that_is_left_out_leaves_the_time_left_at_once_and_says_nothing_of_speed(clock):
    """Of eight settings a stage a changing part is trained and attacked, of 2 and 10 s each, as was planned."""
    reporter, shown = Reporter(quiet=True), []
    table = Timetable(reporter, unequal(2, 10), lambda: clock[0])
    stages = [table.plan({"fast": 8, "slow": 8}) for _ in range(5)]
    for stage, trained, attacked in zip(stages, (8, 4, 8, 2, 0), (8, 1, 6, 0, 0)):
        before = table.left
        stage.has("fast", trained)
        stage.has("slow", attacked)
        assert table.left == pytest.approx(before - 2 * (8 - trained) - 10 * (8 - attacked))
        for words, each, count in (("training", 2, trained), ("scoring", 10, attacked)):
            for done in range(1, 10 * count + 1):
                clock[0] += each / 10
                stage(done, 10 * count, words)
                shown.append(seconds_left(reporter))
        stage.end()
    assert table.left == pytest.approx(0.0)
    known = [left for left in shown if left is not None]
    assert len(known) > 0.8 * len(shown) and all(later <= before for before, later in zip(known, known[1:]))


def test_what_is_planned_is_shown_until_the_work_tells(clock):
    reporter = Reporter(quiet=True)
    reporter.plan(2.0)
    clock[0] = 30.0
    reporter(0, 4, "training rounds")
    assert reporter.line() == "training rounds 0 %, 00:30 so far, about 01:30 left"
    clock[0] = 60.0
    reporter(1, 4, "training rounds")  # the first round took 30 s
    assert reporter.line() == "training rounds 25 %, 01:00 so far, 01:30 left"


@pytest.mark.parametrize("rounds", [3])
def test_an_epsilon_says_which_rows_are_priced(tmp_path, rounds):
    from dpfl_audit.audit.proven.table import table

    (tmp_path / "c.toml").write_text(CONFIG.replace("5000", str(rounds)))
    heard: list[tuple[int, int, str]] = []
    table(Path(tmp_path / "c.toml"), progress=lambda done, total, words="": heard.append((done, total, words)))
    assert [done for done, _, _ in heard] == list(range(1, heard[-1][1] + 1)) and heard[-1][2] == "pricing rows"
