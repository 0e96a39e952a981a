"""Are the demonstrated bounds bounds? Each estimator on thousands of audits whose true ε is known: `make validity`.

Writes docs/validity.md and exits with 1 if an estimator that promises 95 % is refuted: if so many of its bounds exceed
the truth that an exact one-sided binomial test at 1 % rejects "at most 5 %". Two uncorrected estimators show that the
test can see that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

import numpy as np
import quiet  # noqa: F401 - before torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.two_worlds.estimators import Guesses, clopper_pearson, gdp, one_run, one_run_fdp, one_run_shift
from dpfl_audit.audit.two_worlds.estimators.betting import block_ends
from dpfl_audit.audit.two_worlds.estimators.clopper_pearson import best_threshold, error_limits
from dpfl_audit.audit.two_worlds.estimators.gdp import mu_limit
from dpfl_audit.audit.two_worlds.estimators.one_run import best_guesses, one_run_epsilon, one_run_p_value
from dpfl_audit.audit.two_worlds.estimators.separate import Separate
from dpfl_audit.audit.two_worlds.sequential import BoundRule, Taken, take
from dpfl_audit.defenses.randomness import stream
from scipy.stats import binom

DELTA, CANARIES = 1e-5, 1000
LEARNED = 50  # of the scores of either kind, which the first bets are learned from
ALLOWED, SIGNIFICANCE = 0.05, 0.01
DEFAULT_OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "validity.md"


@dataclass(frozen=True)
class Audit:
    """One simulated audit: scores of inserted and left-out canaries."""

    scores_in: np.ndarray
    scores_out: np.ndarray


@dataclass(frozen=True)
class World:
    """A mechanism with a known ε: sample(rng, inserted) are scores (n,) for canaries with inserted (n,) true or
    false.
    """

    name: str
    epsilon: float
    gaussian: bool
    threshold: float
    sample: Callable[[np.random.Generator, np.ndarray], np.ndarray]

    def audit(self, run: int) -> Audit:
        rng = np.random.default_rng(stream(0, "validity", self.name, run))
        inserted = rng.random(CANARIES) < 0.5
        scores = self.sample(rng, inserted)
        return Audit(scores[inserted], scores[~inserted])


def gaussian(rng: np.random.Generator, inserted: np.ndarray, mu: float) -> np.ndarray:
    return rng.normal(size=len(inserted)) + mu * inserted


def no_leak(rng: np.random.Generator, inserted: np.ndarray) -> np.ndarray:
    return gaussian(rng, inserted, 0.0)


def one_release(rng: np.random.Generator, inserted: np.ndarray) -> np.ndarray:
    return gaussian(rng, inserted, 1.0)


def randomised_response(rng: np.random.Generator, inserted: np.ndarray) -> np.ndarray:
    """The inserted bit, flipped with probability 1 / (1 + e), plus half a uniform number so that no two scores are
    equal.
    """
    told = inserted ^ (rng.random(len(inserted)) < 1 / (1 + exp(1)))
    return told + rng.random(len(inserted)) / 2


WORLDS = (
    World("no leak", 0.0, True, 2.0, no_leak),
    World("Gaussian, μ = 1", gaussian_epsilon(1.0, DELTA), True, 2.0, one_release),
    # The tight case for guesses: δ = P - e^ε Q at the true bit.
    World(
        "randomised response, ε = 1",
        log((exp(1) / (1 + exp(1)) - DELTA) * (1 + exp(1))),
        False,
        1.0,
        randomised_response,
    ),
)


def uncorrected_sweep(audit: Audit) -> float:
    """The best of many numbers of guesses, each tested as if it were the only one: also what not to do."""
    sides = [0, *np.unique(np.geomspace(4, CANARIES // 2, 25).astype(int)).tolist()]
    rules = [Guesses(a, b) for a in sides for b in sides if a + b]
    return best_guesses(
        audit.scores_in,
        audit.scores_out,
        rules,
        ALLOWED * len(rules),
        largest=lambda m, r, v, level: one_run_epsilon(m, r, v, DELTA, level),
        refuted=lambda m, r, v, epsilon, level: one_run_p_value(m, r, v, epsilon, DELTA) <= level,
    )[0]


def drawn(audit: Audit, gaussian: bool = False) -> Taken:
    """Draws one after the other, looked at after every block; the bound is the highest of all looks."""
    pairs = min(len(audit.scores_in), len(audit.scores_out)) - LEARNED
    past = Separate(audit.scores_in[:LEARNED], audit.scores_out[:LEARNED])
    tested_in, tested_out = audit.scores_in[LEARNED:], audit.scores_out[LEARNED:]
    return take(
        lambda first, end: (tested_in[first:end], tested_out[first:end]), past, pairs, BoundRule(DELTA, 0.95, gaussian)
    )


def looked_at_often(audit: Audit, world: World) -> float:
    """The highest of as many looks by a bound that is right at each one of them: what not to do either."""
    pairs = min(len(audit.scores_in), len(audit.scores_out))
    return max(
        clopper_pearson(audit.scores_in[:n], audit.scores_out[:n], delta=DELTA, threshold=world.threshold).epsilon
        for n in block_ends(pairs)
    )


@dataclass(frozen=True)
class Row:
    """An estimator with its settings; run(audit, world) is its ε. promises: whether it claims 95 %."""

    name: str
    run: Callable[[Audit, World], float]
    promises: bool = True
    gaussian_only: bool = False


def by_threshold(method: Callable, chosen: Callable[[Audit, World], float]) -> Callable[[Audit, World], float]:
    def run(audit: Audit, world: World) -> float:
        return method(audit.scores_in, audit.scores_out, delta=DELTA, threshold=chosen(audit, world)).epsilon

    return run


def fixed(audit: Audit, world: World) -> float:
    return world.threshold


def best_counted(audit: Audit, world: World) -> float:
    """The threshold that is best on the tested scores themselves: what not to do."""
    return best_threshold(audit.scores_in, audit.scores_out, DELTA, ALLOWED)


def best_shift(audit: Audit, world: World) -> float:
    """The same for `gdp`."""
    candidates = np.unique(np.concatenate([audit.scores_in, audit.scores_out]))
    limits = error_limits(audit.scores_in, audit.scores_out, candidates, ALLOWED)
    return float(candidates[np.argmax(mu_limit(*limits))])


def _mean_shift(audit: Audit, world: World) -> float:
    bound = drawn(audit, gaussian=True).if_gaussian
    assert bound is not None
    return bound.epsilon


def by_guesses(method: Callable, guesses: Guesses | None) -> Callable[[Audit, World], float]:
    return lambda audit, world: method(audit.scores_in, audit.scores_out, delta=DELTA, guesses=guesses).epsilon


def rows() -> tuple[Row, ...]:
    half, few = Guesses(CANARIES // 2, CANARIES // 2), Guesses(CANARIES // 20, CANARIES // 20)
    return (
        Row("clopper_pearson, fixed threshold", by_threshold(clopper_pearson, fixed)),
        Row(
            "clopper_pearson, best threshold, uncorrected", by_threshold(clopper_pearson, best_counted), promises=False
        ),
        Row("gdp, fixed threshold", by_threshold(gdp, fixed), gaussian_only=True),
        Row("gdp, best threshold, uncorrected", by_threshold(gdp, best_shift), promises=False, gaussian_only=True),
        Row("betting, the highest of all looks", lambda audit, world: drawn(audit).counted.epsilon),
        Row("mean shift, the highest of all looks", _mean_shift, gaussian_only=True),
        Row("clopper_pearson, the highest of all looks, uncorrected", looked_at_often, promises=False),
        Row("one_run, all guessed", by_guesses(one_run, half)),
        Row("one_run, a tenth guessed", by_guesses(one_run, few)),
        Row("one_run, ladder", by_guesses(one_run, None)),
        Row("one_run, best of all guesses, uncorrected", lambda audit, world: uncorrected_sweep(audit), promises=False),
        Row("one_run_fdp, all guessed", by_guesses(one_run_fdp, half), gaussian_only=True),
        Row("one_run_fdp, a tenth guessed", by_guesses(one_run_fdp, few), gaussian_only=True),
        Row("one_run_fdp, ladder", by_guesses(one_run_fdp, None), gaussian_only=True),
        Row(
            "one_run_shift",
            lambda audit, world: one_run_shift(audit.scores_in, audit.scores_out, delta=DELTA).epsilon,
            gaussian_only=True,
        ),
    )


def rows_named(names: Sequence[str]) -> tuple[Row, ...]:
    """All, where none is named."""
    return tuple(row for row in rows() if not names or row.name in names)


def bounds(job: tuple[int, Sequence[int], Sequence[str]]) -> np.ndarray:
    """The ε of the named rows (columns) on every run of one world; NaN where a row does not apply."""
    world, table = WORLDS[job[0]], rows_named(job[2])
    audits = (world.audit(run) for run in job[1])
    return np.array(
        [
            [row.run(audit, world) if world.gaussian or not row.gaussian_only else np.nan for row in table]
            for audit in audits
        ]
    )


def simulate(runs: int, workers: int, names: Sequence[str]) -> list[np.ndarray]:
    """For each world the ε (runs, rows)."""
    chunks = [range(first, min(first + 100, runs)) for first in range(0, runs, 100)]
    jobs = [(index, chunk, names) for index in range(len(WORLDS)) for chunk in chunks]
    with ProcessPoolExecutor(workers) as pool:
        done = list(pool.map(bounds, jobs))
    return [np.concatenate(done[start : start + len(chunks)]) for start in range(0, len(done), len(chunks))]


def table(runs: int, results: Sequence[np.ndarray], names: Sequence[str]) -> tuple[str, list[str]]:
    """The page, and the rows that broke their promise."""
    broken: list[str] = []
    lines = [
        "# Validity and power of the demonstrated bounds",
        "",
        (
            f"Written by `make validity`: {runs:,} simulated audits per column, {CANARIES:,} canaries each, every one"
            " inserted by a fair coin;"
        ),
        (
            f"δ = {DELTA:g}, 95 % confidence, fixed seeds. *Too high*: share of audits whose bound exceeds the true ε;"
            " it may be 5 %, and a"
        ),
        (
            f"row is refuted (**bold**) where an exact binomial test at {SIGNIFICANCE:.0%} says it is more. *Mean*:"
            " mean bound, and its share of the true ε."
        ),
        "Rows called uncorrected promise nothing and show what the corrections are for.",
        "",
        "| Estimator | "
        + " | ".join(f"{world.name}, true ε {world.epsilon:.3g}: too high | mean" for world in WORLDS)
        + " |",
        "|---" * (1 + 2 * len(WORLDS)) + "|",
    ]
    for column, row in enumerate(rows_named(names)):
        cells = [row.name]
        for world, found in zip(WORLDS, results):
            epsilons = found[:, column]
            if np.isnan(epsilons).any():
                cells += ["–", "–"]
                continue
            high = int((epsilons > world.epsilon).sum())
            refuted = binom.sf(high - 1, runs, ALLOWED) <= SIGNIFICANCE
            if refuted and row.promises:
                broken.append(f"{row.name} ({world.name}): {high} of {runs} bounds exceed the truth")
            share = f" ({epsilons.mean() / world.epsilon:.0%})" if world.epsilon else ""
            cells += [f"**{high / runs:.1%}**" if refuted else f"{high / runs:.1%}", f"{epsilons.mean():.2f}{share}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n", broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="simulated audits per world (default 2000)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help="the page to write (default docs/validity.md)"
    )
    parser.add_argument(
        "--rows", choices=[row.name for row in rows()], nargs="+", default=(), help="these alone, and no page"
    )
    options = parser.parse_args()
    if options.runs < 1 or options.workers < 1:
        parser.error(f"--runs and --workers must be at least 1, got {options.runs} and {options.workers}")
    page, broken = table(options.runs, simulate(options.runs, options.workers, options.rows), options.rows)
    if not options.rows:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(page, encoding="utf-8")
    print(page)
    for line in broken:
        print(f"refuted: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
