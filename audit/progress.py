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
FAR = 0.2  # of the whole time: a promise that is this much too short is renewed, a smaller error shows at its end
BESIDE = 60  # columns for percents, bar and times beside the words


class Reporter:
    """A `Progress` that shows itself while it is open, in a thread of its own: whatever the work is busy with, somebody
    who watches sees the seconds pass.

    The time left is a promise: it falls as time passes, and faster where the work is faster. Where it is over before
    the work is, or what was done since shows it to be far too short, that is said, with a new one.

    >>> with Reporter(quiet=True) as progress:
    ...     progress(3, 4, "training rounds")
    >>> progress.line().partition(",")[0]
    'training rounds 75 %'
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.began = self.since = time.monotonic()
        self.done, self.total, self.first, self.words = 0, 0, 0, "reading"
        self.ends: float | None = None  # when the work is over, as promised
        self.late = False
        self.drawn = 0  # columns
        self.printing = threading.Lock()
        self.ended = threading.Event()
        self.thread = None if quiet else threading.Thread(target=self._watch, daemon=True)

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
            self.since, self.first, self.ends, self.late = now, done, None, False
        elif done > self.done and now - self.since >= DELAY:
            ends = now + (now - self.since) * (total - done) / (done - self.first)
            broken = self.ends is not None and (self.ends < now or ends - self.ends > FAR * (ends - self.since))
            self.late = self.late or broken
            self.ends = ends if self.ends is None or broken else min(self.ends, ends)
        self.done, self.total, self.words = done, total, words or self.words

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
        words = shorten(self.words, max(10, columns - BESIDE), placeholder=" …") if columns else self.words
        if not self.total:
            return f"{words}, {tqdm.format_interval(now - self.began)} so far"
        times = ", ".join(filter(None, ["{elapsed} so far", self._left(now)]))
        shape = f"{{percentage:.0f}} % |{{bar}}| {times}" if columns else f"{{percentage:.0f}} %, {times}"
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
            return ""
        if self.ends < now:
            return LATE
        left = f"{tqdm.format_interval(self.ends - now)} left"
        return f"{LATE}, {left}" if self.late else left
