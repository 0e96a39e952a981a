"""Is what is proven true? Random schemes, priced by the ledger and by an oracle of its own: `make soundness`.

Each composition is priced for every observer, unit and adjacency, next to the most that explicit adversaries learn
(adversary/oracle.py); some are run through the real round loop and counted. Exits with 1 if anything is proven below
the oracle, if post-processing costs, or if more than 5 % of the counted bounds lie above what is proven.

Killed work goes on where it was: give the same command again. Delete the file of results to start anew. One seed:
`python benchmarks/soundness.py --first 48 --compositions 1 --results one.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from itertools import chain
from math import inf
from pathlib import Path

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.audit.proven.rows import rows
from dpfl_audit.audit.proven.table import table
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.benchmarks.adversary import coins, recorded
from dpfl_audit.benchmarks.adversary.compositions import NEWEST_FROM, Composition, draw
from dpfl_audit.benchmarks.adversary.counted import COUNTABLE, Counted, count, countable
from dpfl_audit.benchmarks.adversary.oracle import truth
from dpfl_audit.defenses.terms import ADJACENCIES, UNITS, Observer

ROOT = Path(__file__).resolve().parents[1]
EXACT, SAME = 1e-6, 1e-4  # relative: of the oracle's rounding; of two accountants' (PLD's grid) for one thing
ALLOWED = 0.05
TIGHT = 1.05  # times the oracle: what is proven so is called tight
COINS = 2000  # the first seed of cohorts drawn by coins
RECORDINGS = 5000  # and of recordings that declare something false
# Seeds of every family, 3,000 in all.
EVERY_FAMILY = (range(1800), range(COINS, COINS + 100), range(3000, 3900), range(RECORDINGS, RECORDINGS + 200))
MOST_UPLOADS = 16  # a run: what takes longer is not counted
START, END = "<!-- written by `make soundness` -->", "<!-- end -->"
# Who sees no more than the next one does.
ORDERS = (("model", "downlink", "aggregate", "server"), ("uplink(L)", "uplink(M)", "uplink", "server"))


@dataclass(frozen=True)
class Row:
    observer: str
    unit: str
    adjacency: str
    proven: float
    oracle: float
    game: str

    @property
    def holds(self) -> bool:
        return self.proven >= self.oracle * (1 - EXACT) - 1e-9


@dataclass(frozen=True)
class Checked:
    """What came out for one composition. costly: post-processing that costs, in words."""

    seed: int
    family: str
    scheme: str
    rows: tuple[Row, ...]
    costly: tuple[str, ...] = ()
    counted: tuple[Counted, ...] = ()
    seconds: float = 0.0

    @property
    def violations(self) -> list[Row]:
        return [row for row in self.rows if not row.holds]

    def above(self) -> list[Counted]:
        """The counted bounds above what is proven."""
        proven = {(row.observer, row.adjacency): row.proven for row in self.rows if row.unit == "client"}
        return [c for c in self.counted if c.epsilon > proven[c.observer, c.adjacency]]

    @classmethod
    def read(cls, line: str) -> Checked:
        raw = json.loads(line)
        made = {"rows": tuple(Row(**r) for r in raw["rows"]), "counted": tuple(Counted(**r) for r in raw["counted"])}
        return cls(**{**raw, **made, "costly": tuple(raw["costly"])})


def observers(c: Composition) -> list[Observer]:
    """All that a federation with a server can have."""
    few, more = c.caught
    names = ["server", "uplink", f"uplink({few})", f"uplink({more})", "aggregate", "downlink", "model"]
    return [Observer.parse(name) for name in names if name != "aggregate" or _knows_aggregate()]


def _knows_aggregate() -> bool:
    try:
        return bool(Observer.parse("aggregate"))
    except ValueError:
        return False


def check(seed: int, trials: int = 0) -> Checked:
    """One composition. trials: in each world of a count, 0 for none."""
    if COINS <= seed < NEWEST_FROM:
        return check_coins(seed)
    if seed >= RECORDINGS:
        return check_recording(seed)
    began, c = time.perf_counter(), draw(seed)
    made = []
    for row in rows(planned_ledger(c.experiment()), None, c.delta, observers(c)):
        learned = truth(c, Observer.parse(str(row.observer)), row.unit, row.adjacency)
        proven = inf if row.proven is None else row.proven
        made.append(Row(str(row.observer), row.unit, row.adjacency, proven, learned.epsilon, learned.game))
    counts = counted(c, seed, trials) if trials else ()
    return Checked(
        seed, c.family, str(c), tuple(made), tuple(costly(c, made)), tuple(counts), time.perf_counter() - began
    )


def check_coins(seed: int) -> Checked:
    """One training whose cohorts are drawn by coins, towards who sees the models."""
    began, c = time.perf_counter(), coins.draw(seed)
    adjacency = coins.adjacency_of(c)
    [row] = rows(
        planned_ledger(c.experiment), None, c.delta, [Observer("downlink")], units=["client"], adjacencies=[adjacency]
    )
    learned, game = coins.truth(c, adjacency)
    proven = inf if row.proven is None else row.proven
    made = (Row("downlink", "client", adjacency, proven, learned, game),)
    return Checked(seed, "coins", str(c), made, seconds=time.perf_counter() - began)


def check_recording(seed: int) -> Checked:
    """One recording in which one thing that is declared is false, towards who sees the uploads."""
    began, c, made = time.perf_counter(), recorded.draw(seed), []
    with tempfile.TemporaryDirectory() as scratch:
        setup = Path(scratch) / "setup"
        recorded.record(c, setup)
        for row in table(setup, observers=["server"], unit="client", delta=recorded.DELTA).rows:
            learned, game = recorded.truth(c, setup, row.adjacency)
            made.append(
                Row("server", "client", row.adjacency, inf if row.proven is None else row.proven, learned, game)
            )
    return Checked(seed, f"recorded: {c.lie}", str(c), tuple(made), seconds=time.perf_counter() - began)


def costly(c: Composition, priced: Sequence[Row]) -> Iterable[str]:
    """Pairs of observers of whom the one who sees less is given the larger ε."""
    names = {"uplink(L)": f"uplink({c.caught[0]})", "uplink(M)": f"uplink({c.caught[1]})"}
    proven = {(row.observer, row.unit, row.adjacency): row.proven for row in priced}
    for unit in UNITS:
        for adjacency in ADJACENCIES:
            for order in ORDERS:
                known = [n for o in order if ((n := names.get(o, o)), unit, adjacency) in proven]
                for less, more in zip(known, known[1:]):
                    a, b = proven[less, unit, adjacency], proven[more, unit, adjacency]
                    if a > b * (1 + SAME) + 1e-9:
                        yield f"{unit}, {adjacency}: {less} {a:.4g}, {more} {b:.4g}"


def counted(c: Composition, seed: int, trials: int) -> Iterable[Counted]:
    """One observer and adjacency, by the seed; none where a run is long or would not have the planned cohorts."""
    if not countable(c) or sum(map(len, c.members)) > MOST_UPLOADS:
        return
    names = (*COUNTABLE, f"uplink({c.caught[0]})")
    adjacency = ADJACENCIES[seed // 2 % 2]
    for turn in range(len(names)):
        if made := count(c, Observer.parse(names[(seed + turn) % len(names)]), adjacency, trials):
            yield made
            return


# --- the page


@dataclass
class _Tally:
    compositions: int = 0
    priced: int = 0
    finite: int = 0
    violations: int = 0
    least: float = inf
    shown: int = 0
    tight: int = 0
    counted: int = 0
    above: int = 0
    games: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def report(results: Sequence[Checked]) -> str:
    """The figures as Markdown."""
    families: dict[str, _Tally] = defaultdict(_Tally)
    for result in results:
        for tally in (families[result.family], families["all"]):
            tally.compositions += 1
            tally.priced += len(result.rows)
            tally.finite += sum(row.proven < inf for row in result.rows)
            tally.violations += len(result.violations)
            tally.counted += len(result.counted)
            tally.above += len(result.above())
            for row in result.rows:
                if row.oracle > 0 and row.proven < inf:
                    tally.shown += 1
                    tally.tight += row.proven <= TIGHT * row.oracle
                    tally.least = min(tally.least, row.proven / row.oracle)
                    tally.games[row.game] += 1
    lines = [
        "| Family | compositions | ε priced | finite | proven below the oracle | smallest proven / oracle |"
        " at most 1.05 times the oracle | counted | above proven |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, t in sorted(families.items(), key=lambda item: (item[0] == "all", item[0])):
        least = f"{t.least:.6f}" if t.least < inf else "–"
        tight = f"{100 * t.tight / t.shown:.0f} %" if t.shown else "–"
        cells = (name, t.compositions, t.priced, t.finite, t.violations, least, tight, t.counted, t.above)
        lines.append("| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells) + " |")
    games = ", ".join(f"{name} {n:,}" for name, n in sorted(families["all"].games.items(), key=lambda g: -g[1]))
    lines += ["", f"The game that shows the most, by how often it does (finite ε alone): {games}."]
    wrong = [r for r in results if r.violations or r.costly or r.above()]
    lines += ["", "None is violated." if not wrong else f"{len(wrong)} compositions are violated:", ""]
    for r in wrong[:40]:
        worst = max(r.violations, key=lambda row: row.oracle - row.proven, default=None)
        told = [f"{worst.observer}, {worst.unit}, {worst.adjacency}: proven {worst.proven:.4g}, {worst.game}"
                f" {worst.oracle:.4g}"] if worst else []  # fmt: skip
        told += [f"post-processing costs: {r.costly[0]}"] if r.costly else []
        told += [f"counted {c.observer} ≥ {c.epsilon:.4g}" for c in r.above()]
        lines.append(f"- seed {r.seed} ({r.family}): {'; '.join(told)}")
    return "\n".join(lines).rstrip() + "\n"


def sound(results: Sequence[Checked]) -> bool:
    counts = sum(len(r.counted) for r in results)
    above = sum(len(r.above()) for r in results)
    return not any(r.violations or r.costly for r in results) and above <= ALLOWED * counts


def write_page(page: Path, figures: str) -> None:
    """Puts the figures between the two marks of a page."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{START}\n\n{figures}\n{END}{after}", encoding="utf-8")


# --- running


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compositions", type=int, help="how many, from --first on (3,000 of all families)")
    parser.add_argument("--first", type=int, default=0, help="the first seed, with --compositions (0)")
    parser.add_argument("--trials", type=int, default=1000, help="runs in each world of a count (1000)")
    parser.add_argument("--count-every", type=int, default=5, help="of so many one is counted, if it can be (5)")
    parser.add_argument("--processes", type=int, default=2, help="at once (2)")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "soundness.jsonl", help="a line a composition")
    parser.add_argument("--page", type=Path, help="where the figures go, e.g. benchmarks/measured/soundness.md")
    given = parser.parse_args(arguments)
    one_span = range(given.first, given.first + (given.compositions or 0))
    seeds = [*chain.from_iterable(EVERY_FAMILY)] if given.compositions is None else [*one_span]
    done = _kept(given.results, seeds)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    began, new = time.perf_counter(), 0
    with (
        given.results.open("a", encoding="utf-8") as kept,
        ProcessPoolExecutor(given.processes, initializer=_one) as pool,
    ):
        todo = [seed for seed in seeds if seed not in done]
        running = {pool.submit(check, s, given.trials if s % given.count_every == 0 else 0): s for s in todo}
        for future in as_completed(running):
            result = future.result()
            done[result.seed] = result
            kept.write(json.dumps(asdict(result)) + "\n")
            kept.flush()
            new += 1
            if result.violations or result.costly or result.above():
                print(f"seed {result.seed}: {len(result.violations)} proven too low, {len(result.costly)} costly")
            if new % 25 == 0:
                print(f"{len(done)} of {len(seeds)}, {time.perf_counter() - began:.0f} s", flush=True)
    results = [done[seed] for seed in seeds]
    figures = report(results)
    print(figures)
    if given.page:
        write_page(given.page, figures)
    return 0 if sound(results) else 1


def _kept(path: Path, seeds: Sequence[int]) -> dict[int, Checked]:
    if not path.exists():
        return {}
    results = map(Checked.read, path.read_text(encoding="utf-8").splitlines())
    return {result.seed: result for result in results if result.seed in seeds}


def _one() -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
