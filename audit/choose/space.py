"""What a study varies: `--vary scheme.clip=0.1,1,10` (values) and `--vary scheme.noise_std=1e-4..1e-1` (a range)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..errors import BadInput
from ..setup.config import toml_value
from ..setup.reading import MOST_INTEGER

TABLES = ("scheme", "local", "model", "data")  # what a point may change: how is trained, and never what is asked
DEALT = ("data.split_seed", "data.train_on")
DIGITS = 3  # of a value out of a range, so that a recommendation can be read and typed
_RANGE = re.compile(r"^\s*([^\s,\[\]\"']+?)\s*\.\.\s*([^\s,\[\]\"']+?)\s*$")

Setting = dict[str, Any]  # value by key, such as {"scheme.clip": 1.0}


@dataclass(frozen=True)
class Values:
    """A key and its values, in the order they were given."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Span:
    """A key and all numbers from low to high; whole: whole ones only. factors: they are evenly spread by factors, as
    they are a part of a range that was.
    """

    key: str
    low: float
    high: float
    whole: bool
    factors: bool = False

    @property
    def log(self) -> bool:
        """Where the range spans a factor of ten or more, equal factors matter and not equal differences."""
        return self.factors or (self.low > 0 and self.high / self.low >= 10)

    def levels(self, count: int) -> tuple[float, ...]:
        """So many numbers, evenly spread from low to high; fewer where whole numbers are fewer.

        >>> Span("scheme.noise_std", 1e-4, 1e-1, False).levels(4)
        (0.0001, 0.001, 0.01, 0.1)
        """
        if self.whole and count > self.high - self.low:
            return tuple(range(int(self.low), int(self.high) + 1))
        return tuple(dict.fromkeys(self.at(i / (count - 1)) for i in range(count)))

    def at(self, share: float) -> float:
        """The number that lies `share` ∈ [0, 1] of the way up."""
        if self.log:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        return self.rounded(value)

    def beside(self, value: float) -> tuple[float, ...]:
        """One step down and one up: half and double, or a tenth of the range; none beyond its limits.

        >>> Span("scheme.noise_std", 0.0, 1.0, False).beside(0.95), Span("scheme.rounds", 1, 50, True).beside(1)
        ((0.85, 1.0), (2,))
        """
        step = (self.high - self.low) / 10
        if self.log:
            down, up = value / 2, value * 2
        else:
            down, up = value - step, value + step
        if self.whole:
            down, up = min(down, value - 1), max(up, value + 1)
        return tuple(dict.fromkeys(v for v in (self.rounded(down), self.rounded(up)) if v != value))

    def rounded(self, value: float) -> float:
        """To `DIGITS` digits, or to a whole number; never beyond the limits."""
        if self.whole:
            return int(min(max(round(value), self.low), self.high))
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Space:
    """Everything that may be tried: every combination of what varies."""

    varied: tuple[Values | Span, ...]

    @property
    def size(self) -> float:
        """How many points, ∞ where a range of all numbers is among them."""
        return math.prod(
            len(v.values) if isinstance(v, Values) else (v.high - v.low + 1 if v.whole else math.inf)
            for v in self.varied
        )

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(v.key for v in self.varied)

    def grid(self, levels: int) -> Iterator[Setting]:
        """All combinations, with so many numbers of every range; the last key varies fastest."""
        axes = [v.values if isinstance(v, Values) else v.levels(levels) for v in self.varied]
        return (dict(zip(self.keys, values)) for values in product(*axes))

    def points(self) -> Iterator[Setting]:
        """All there are, where their number is finite."""
        whole = max((int(v.high - v.low) + 1 for v in self.varied if isinstance(v, Span)), default=2)
        return self.grid(max(2, whole))

    def design(self, trials: int) -> list[Setting]:
        """The points to begin with: all of them where there are no more than `trials`; else, where there are ranges, a
        grid of at most half as many points, so that the rest can go where it matters; of both ends of each range, where
        even that takes more than half.
        """
        if self.size <= trials:
            return list(self.points())
        ranges = sum(isinstance(v, Span) for v in self.varied)
        lists = math.prod(len(v.values) for v in self.varied if isinstance(v, Values))
        if not ranges:
            return []
        levels = int((max(trials, 2) / 2 / lists) ** (1 / ranges) + 1e-9)
        if levels < 2 and lists * 2**ranges <= trials:
            levels = 2
        if levels >= 2:
            return list(self.grid(levels))
        return []

    def beside(self, point: Setting) -> list[Setting]:
        """The settings one step away in one key: of values those next to it, of words all others."""
        found = []
        for varied in self.varied:
            mine = point[varied.key]
            if isinstance(varied, Span):
                steps: tuple[Any, ...] = varied.beside(mine)
            elif all(isinstance(v, int | float) and not isinstance(v, bool) for v in varied.values):
                ordered = sorted(varied.values)
                place = ordered.index(mine)
                steps = tuple(ordered[max(0, place - 1) : place] + ordered[place + 1 : place + 2])
            else:
                steps = tuple(v for v in varied.values if v != mine)
            found += [{**point, varied.key: value} for value in steps]
        return found

    def ordered(self, point: Setting) -> Setting:
        """The point with its keys in the order they were given."""
        return {key: point[key] for key in self.keys}


def parse_space(given: Sequence[str]) -> Space:
    """The space of what follows each `--vary`.

    >>> parse_space(["scheme.clip=0.1,1", "scheme.noise_std=1e-4..0.1"]).keys
    ('scheme.clip', 'scheme.noise_std')

    Raises:
        BadInput: one of them is not of the form, or there are not two points to choose between.
    """
    varied = [_parsed(text) for text in given]
    for i, one in enumerate(varied):
        if any(one.key == other.key for other in varied[:i]):
            raise BadInput(f"--vary {one.key}: given twice; give all its values at once")
    space = Space(tuple(varied))
    if space.size < 2:
        raise BadInput(
            "--vary leaves a single setting, so there is nothing to choose between; give two values at least, such as"
            " --vary scheme.clip=0.1,1 (`audit train` and `audit run` audit one setting)"
        )
    return space


def overrides(point: Setting) -> list[str]:
    """A point as `--set` takes it.

    >>> overrides({"scheme.name": "ldp", "scheme.clip": 0.5})
    ['scheme.name="ldp"', 'scheme.clip=0.5']
    """
    return [f"{key}={json.dumps(value)}" for key, value in point.items()]


def said(point: Setting) -> str:
    """A point in a few words: the last part of each key, and its value.

    >>> said({"scheme.name": "ldp", "scheme.clip": 0.5})
    'scheme ldp, clip 0.5'
    """
    return ", ".join(f"{short_name(key)} {_plain(value)}" for key, value in point.items())


def short_name(key: str) -> str:
    """The name that a key has in a table's head.

    >>> short_name("scheme.noise_std"), short_name("model.name")
    ('noise_std', 'model')
    """
    table, _, last = key.rpartition(".")
    if last == "name":
        return table.rpartition(".")[2]
    return last


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _parsed(text: str) -> Values | Span:
    key, separator, given = text.partition("=")
    key = key.strip()
    if not separator or not given.strip() or "." not in key:
        raise BadInput(f"--vary {text!r}: expected TABLE.KEY=VALUE,VALUE,… or TABLE.KEY=LOW..HIGH")
    if key.partition(".")[0] not in TABLES:
        raise BadInput(
            f"--vary {key}: a study varies how is trained, [{'], ['.join(TABLES)}]; what is asked is the same of every"
            " setting"
        )
    if key in DEALT:
        raise BadInput(
            f"--vary {key}: it decides whose records are whose, which every setting of a study must agree on"
        )
    if (match := _RANGE.match(given)) is not None:
        return _range(text, key, match[1], match[2])
    try:
        if given.strip().startswith("["):
            values = toml_value(given)
        else:
            values = toml_value(f"[{given}]")
    except BadInput:
        values = None
    if not isinstance(values, list):  # bare words
        words = [toml_value(part) for part in given.split(",")]
        values = [word if (number := _number(word)) is None else number for word in words]
    if any(part == "" for part in values):
        raise BadInput(f"--vary {text!r}: a value is missing between two commas")
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        raise BadInput(f"--vary {text!r}: every number must be finite")
    if len({json.dumps(value) for value in values}) < len(values):
        raise BadInput(f"--vary {text!r}: every value once")
    return Values(key, tuple(values))


def _range(text: str, key: str, first: str, last: str) -> Span:
    low, high = (_number(toml_value(end)) for end in (first, last))
    if low is None or high is None or not low < high:
        raise BadInput(f"--vary {text!r}: expected two numbers, the lower one first, such as 1e-4..1e-1")
    return Span(key, low, high, isinstance(low, int) and isinstance(high, int))


def _number(value: Any) -> float | int | None:
    """A number as typed that a float holds; TOML wants digits before a point, people do not."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, int) and abs(value) > MOST_INTEGER:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return None
