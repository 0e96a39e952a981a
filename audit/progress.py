"""How far work is: a bar with the time left on a terminal, a plain line every ten seconds anywhere else."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from textwrap import shorten
from typing import TextIO

from tqdm import tqdm

DELAY = 2.0  # seconds before a bar appears: what is done by then needs none
FRAME = 0.25  # seconds between two drawings of it
LINE = 10.0  # seconds between two lines

LATE = "longer than expected"
SOON = 0.1  # of the work: until then a time left is renewed where it is this much of the whole time too short
FAR = 2.0  # and later where it is so many times as much; a smaller rise comes slowly
RISE = 0.1  # a time left that is so much too short is no reason for another; it rises by so much in ten seconds
BESIDE = 60  # columns for percents, bar and times beside the words


class Reporter:
    """A `Progress` that shows itself while it is open, in a thread of its own: whatever the work is busy with, somebody
    who watches sees the seconds pass.

    The time left falls as time passes, and faster where the work is faster. Where it is too short it rises slowly, as
    "at least". Where it is over before the work is, or far too short, there is a new one; that it is longer than was
    first expected is said.

    >>> with Reporter(quiet=True) as progress:
    ...     progress(3, 4, "training rounds")
    >>> progress.line().partition(",")[0]
    'training rounds 75 %'
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.began = self.since = time.monotonic()
        self.done, self.total, self.first, self.words = 0, 0, 0, "preparing"
        self.ends: float | None = None  # when the work is over
        self.held: float | None = None  # seconds left at least, where it may be over later than that
        self.expected = 0.0  # when it was to be over at first
        self.heard = 0.0  # when anything was last known
        self.about: float | None = None  # when it is over by a plan, as long as nothing is known
        self.drawn = 0  # columns
        self.printing = threading.Lock()
        self.ended = threading.Event()
        if quiet:
            self.thread = None
        else:
            self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Reporter:
        if self.thread is not None:
            self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Before anything else is printed."""
        self.ended.set()
        if self.thread is not None and self.thread.is_alive():
            self.thread.join()
        if self.drawn:
            self._draw("")

    def __call__(self, done: int, total: int, /, words: str = "") -> None:
        """The time left is that of the work since it was first heard of: what an earlier run left was free."""
        now = time.monotonic()
        if total != self.total or done < self.done:
            self.since, self.first, self.ends, self.held = now, done, None, None
        elif done > self.done and now - self.since >= DELAY:
            self._expect(now, (now - self.since) * (total - done) / (done - self.first), done < SOON * total)
        self.done, self.total, self.words = done, total, words or self.words

    def plan(self, minutes: float) -> None:
        """What is to come takes about so long; it is shown until the work tells by itself."""
        self.about = time.monotonic() + 60 * minutes

    def _expect(self, now: float, left: float, soon: bool) -> None:
        """left: seconds, by what is known now. soon: whether little is done."""
        shown = left if self.ends is None else self._seconds(now)
        if self.ends is None:
            self.expected = now + left
        if soon:
            far = left - shown > SOON * (now - self.since + left)
        else:
            far = left > FAR * shown
        if left <= shown or shown <= 0 or far:
            self.ends, self.held = now + left, None
        elif left <= (1 + RISE) * shown:
            self.ends, self.held = now + shown, None
        else:
            self.held = min(left, shown * (1 + RISE) ** ((now - self.heard) / 10))
        self.heard = now

    def _seconds(self, now: float) -> float:
        """That are shown as left."""
        assert self.ends is not None
        if self.held is None:
            return self.ends - now
        return self.held

    def note(self, words: str) -> None:
        """A line that stays, above the bar."""
        with self.printing:
            if self.drawn:
                self._draw("")
            print(f"note: {words}", file=self.stream, flush=True)

    def _watch(self) -> None:
        while not self.ended.wait(FRAME if self.terminal else LINE):
            with self.printing:
                if not self.terminal:
                    print(f"audit: {self.line()}", file=self.stream, flush=True)
                elif time.monotonic() - self.began > DELAY:
                    self._draw(self.line(shutil.get_terminal_size().columns - 1))

    def _draw(self, text: str) -> None:
        self.stream.write("\r" + text.ljust(self.drawn) + ("" if text else "\r"))
        self.stream.flush()
        self.drawn = len(text)

    def line(self, columns: int = 0) -> str:
        """As it stands now. columns: of a terminal, with a bar; 0 for a line without."""
        now = time.monotonic()
        if columns:
            words = shorten(self.words, max(10, columns - BESIDE), placeholder=" …")
        else:
            words = self.words
        if not self.total:
            return ", ".join(filter(None, [words, f"{tqdm.format_interval(now - self.began)} so far", self._left(now)]))
        times = ", ".join(filter(None, ["{elapsed} so far", self._left(now)]))
        percent = f"{100 * self.done // self.total:.0f} %"  # not 100 before all is done
        shape = f"{percent} |{{bar}}| {times}" if columns else f"{percent}, {times}"
        return tqdm.format_meter(
            self.done,
            self.total,
            now - self.began,
            ncols=columns or None,
            ascii=True,
            bar_format=words.replace("{", "(").replace("}", ")") + " " + shape,
        )[: columns or None]

    def _left(self, now: float) -> str:
        """ "" as long as nothing tells."""
        if self.ends is None:
            if self.about is None or self.about - now < 1:
                return ""
            return f"about {tqdm.format_interval(self.about - now)} left"
        seconds = self._seconds(now)
        if seconds < 0:
            return LATE
        left = f"{tqdm.format_interval(seconds)} left"
        if self.held is not None:
            return f"at least {left}"
        if self.ends - self.expected > RISE * (self.ends - self.began):
            return f"{LATE}, {left}"
        return left
