"""How many draws a world refute a claim that is off by a factor of two, and how often a true claim is refuted.

    python benchmarks/few_draws.py [--null 1000] [--tests counting kernel]

Mechanisms of known ε at δ = 1e-5: randomised response, Laplace noise on a number, Gaussian noise on a number. The claim
is half of the truth; the score is the number itself, and 100 draws a world are learned from and not counted. Median of
20 runs of at most 500 draws a world, at the looks that an audit takes; "never": more than half of the runs do not
refute the claim. Null worlds: the claim is the truth. Printed as markdown; exit code 1 where a true claim is refuted in
more than 5 % of them (exact binomial test at 1 %).

- counting: assumes nothing (`estimators/betting.py`).
- mean shift: scores are Gaussian (`estimators/mean_shift.py`). The draws are those of the whole audit, which goes on
  while counting could refute the claim as well.
- f-DP betting: the worlds have a Gaussian's curve, whatever is done to the noise (`estimators/curve_bets.py`). *Signs*
  are what is left of Gaussian noise where only its sign at the threshold is seen.
- kernel: bets on the witness of a Gaussian kernel, as in arXiv:2509.07055, here by its range; no part of the product.
  It refutes a total variation: that of the (ε, δ) claim, or with "on the curve" that of the claimed Gaussian.
- best bet: not a test, but how many draws the best single event and stake would take if all were known beforehand.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
import quiet  # noqa: F401
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_multiplier
from dpfl_audit.audit.two_worlds.estimators.betting import STAKES, Bets, Nulls, Wagers, block_ends
from dpfl_audit.audit.two_worlds.estimators.curve_bets import CurveBets, CurveWagers
from dpfl_audit.audit.two_worlds.estimators.separate import Separate
from dpfl_audit.audit.two_worlds.sequential import BoundRule, take
from scipy.stats import binomtest, norm

DELTA, MOST, LEARNED, RUNS = 1e-5, 500, 100, 20
CLAIMS = (0.5, 1.0, 2.0, 4.0)
Sampler = Callable[[np.random.Generator, bool, int], np.ndarray]
Test = Callable[[Sampler, float, int], float]


def response(epsilon: float) -> Sampler:
    wrong = 1 / (1 + exp(epsilon))
    return lambda rng, world, n: (rng.random(n) < (1 - wrong if world else wrong)) + 1e-9 * rng.random(n)


def laplace(epsilon: float) -> Sampler:
    return lambda rng, world, n: rng.laplace(size=n) + epsilon * world


def shift_of(epsilon: float) -> float:
    return 1 / gaussian_multiplier(epsilon, DELTA)


def gaussian(epsilon: float) -> Sampler:
    mu = shift_of(epsilon)
    return lambda rng, world, n: rng.normal(size=n) + mu * world


def signs(epsilon: float) -> Sampler:
    mu = shift_of(epsilon)
    return lambda rng, world, n: np.sign(rng.normal(size=n) + mu * world - mu / 2)


def mean_shift(sampler: Sampler, claim: float, seed: int) -> float:
    """Draws a world when an audit ends that refutes the claim if noise is Gaussian, ∞ where 500 do not."""
    rng = np.random.default_rng(seed)
    past = Separate(sampler(rng, True, LEARNED), sampler(rng, False, LEARNED))

    def draw(first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        return sampler(rng, True, end - first), sampler(rng, False, end - first)

    taken = take(draw, past, MOST, BoundRule(DELTA, 0.95, gaussian=True, targets=(claim,)))
    return taken.draws if taken.if_gaussian is not None and taken.if_gaussian.epsilon > claim else inf


@dataclass(frozen=True)
class Skeptic:
    """Bets against the claim alone, until they refute it. on_curve: whether it is a Gaussian's whole curve."""

    on_curve: bool = False

    def __call__(self, sampler: Sampler, claim: float, seed: int) -> float:
        rng = np.random.default_rng(seed)
        past, first = [sampler(rng, world, LEARNED) for world in (True, False)], 0
        nulls, mus = Nulls(np.array([exp(claim)]), np.array([DELTA])), np.array([shift_of(claim)])
        wagers, curve = Wagers.on(nulls), CurveWagers.on(mus)
        for end in block_ends(MOST):
            new = [sampler(rng, world, end - first) for world in (True, False)]
            if self.on_curve:
                curve = curve.after(new[0], new[1], CurveBets.best(mus, *past))
            else:
                wagers = wagers.after(new[0], new[1], Bets.best(nulls, *past))
            if curve.refuted(0.05) or wagers.refuted(0.05):
                return end
            past, first = [np.concatenate(both) for both in zip(past, new)], end
        return inf


@dataclass(frozen=True)
class Kernel:
    """Bets that a witness f, learned from earlier draws, is higher with the canary than without: by TV times its range
    at most. on_curve: whether the claim is a Gaussian's whole curve.
    """

    on_curve: bool = False

    def __call__(self, sampler: Sampler, claim: float, seed: int) -> float:
        rng = np.random.default_rng(seed)
        apart = 1 - 2 * (1 - DELTA) / (1 + exp(claim))
        if self.on_curve:
            apart = 2 * norm.cdf(shift_of(claim) / 2) - 1
        past, first, wealth = [sampler(rng, world, LEARNED) for world in (True, False)], 0, 0.0
        for end in block_ends(MOST):
            new = [sampler(rng, world, end - first) for world in (True, False)]
            width = float(np.median(np.abs(past[0] - past[1][::-1]))) + 1e-3
            learned, paid = ([_witness(scores, past, width) for scores in part] for part in (past, new))
            low, high = np.min(learned), np.max(learned)
            wide = max(high - low, 1e-12)
            gains = [(np.clip(p[0], low, high) - np.clip(p[1], low, high)) / wide for p in (learned, paid)]
            grown = [np.log1p(s * (gains[0] - apart) / (1 + apart)).mean() for s in STAKES]
            if max(grown) > 0:
                wealth += np.log1p(STAKES[np.argmax(grown)] * (gains[1] - apart) / (1 + apart)).sum()
            if wealth >= log(20):
                return end
            past, first = [np.concatenate(both) for both in zip(past, new)], end
        return inf


def _witness(scores: np.ndarray, past: Sequence[np.ndarray], width: float) -> np.ndarray:
    with_, without = (np.exp(-(((scores[:, None] - p) / width) ** 2) / 2).mean(1) for p in past)
    return with_ - without


def best_bet(sampler: Sampler, claim: float) -> float:
    """Draws until the wealth of the best event and stake is 20 on average, by two million draws."""
    rng = np.random.default_rng(0)
    scores = [np.sort(sampler(rng, world, 10**6)) for world in (True, False)]
    at = np.unique(np.quantile(np.concatenate(scores), np.linspace(0, 1, 2001)[1:-1]))
    tpr, fpr = (1 - np.searchsorted(s, at) / len(s) for s in scores)
    hit, alarm = np.concatenate([tpr, 1 - fpr]), np.concatenate([fpr, 1 - tpr])
    chances = (hit * (1 - alarm), (1 - hit) * alarm, hit * alarm, (1 - hit) * (1 - alarm))
    slope, stakes = exp(claim), np.geomspace(1e-3, 0.999, 100)[:, None]
    paid = (1 - DELTA, -slope - DELTA, 1 - slope - DELTA, -DELTA)
    growth = sum(c * np.log1p(stakes * p / (slope + DELTA)) for c, p in zip(chances, paid))
    return float(log(20) / growth.max())


TESTS: dict[str, tuple[Test, tuple[str, ...]]] = {
    "counting": (Skeptic(), ("randomised response", "Laplace", "Gaussian")),
    "mean shift": (mean_shift, ("Gaussian",)),
    "f-DP betting": (Skeptic(on_curve=True), ("Gaussian", "signs of Gaussian")),
    "kernel": (Kernel(), ("randomised response", "Laplace", "Gaussian")),
    "kernel, on the curve": (Kernel(on_curve=True), ("Gaussian", "signs of Gaussian")),
}
NOISES: dict[str, Callable[[float], Sampler]] = {
    "randomised response": response,
    "Laplace": laplace,
    "Gaussian": gaussian,
    "signs of Gaussian": signs,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", type=int, default=1000, help="null worlds of each row")
    parser.add_argument("--tests", choices=[*TESTS, "best bet"], nargs="+", default=[*TESTS, "best bet"])
    options = parser.parse_args()
    heads = [f"claim {claim:g}, truth {2 * claim:g}" for claim in CLAIMS]
    print(f"| noise | test | {' | '.join(heads)} | true claim of 1 refuted |\n|---|---|{'---:|' * 5}")
    broken = False
    for test, name in [(t, name) for t in options.tests if t in TESTS for name in TESTS[t][1]]:
        run, made = TESTS[test][0], NOISES[name]
        cells = []
        for claim in CLAIMS:
            needed = np.median([run(made(2 * claim), claim, seed) for seed in range(RUNS)])
            cells.append("never" if needed == inf else f"{needed:.0f}")
        wrong = sum(run(made(1.0), 1.0, 1000 + seed) < inf for seed in range(options.null))
        broken |= binomtest(wrong, options.null, 0.05, "greater").pvalue < 0.01
        print(f"| {name} | {test} | {' | '.join(cells)} | {100 * wrong / options.null:.1f} % |", flush=True)
    if "best bet" in options.tests:
        for name in TESTS["counting"][1]:
            needed = [f"{best_bet(NOISES[name](2 * claim), claim):,.0f}" for claim in CLAIMS]
            print(f"| {name} | best bet | {' | '.join(needed)} | – |", flush=True)
    sys.exit(int(broken))


if __name__ == "__main__":
    main()
