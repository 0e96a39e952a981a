"""How many draws a world refute a claim that is off by a factor of two, and how often a true claim is refuted.

    python benchmarks/few_draws.py [--null 1000]

Mechanisms of known ε at δ = 1e-5: randomised response, Laplace noise on a number, Gaussian noise on a number. The claim
is half of the truth; the score is the number itself, and 100 draws a world are learned from and not counted. *Counting*
assumes nothing (`estimators/betting.py`); *mean shift* that scores are Gaussian. Median of 20 runs of at most 500
draws a world; "never": more than half of the runs do not refute it. Null worlds: the claim is the truth. Printed as
markdown; exit code 1 where a true claim is refuted in more than 5 % of them (exact binomial test at 1 %).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import exp, inf

import numpy as np
import quiet  # noqa: F401
from dpfl_audit.audit.two_worlds.estimators.gdp import mu_epsilon
from dpfl_audit.audit.two_worlds.estimators.separate import Separate
from dpfl_audit.audit.two_worlds.sequential import BoundRule, take
from scipy.optimize import brentq
from scipy.stats import binomtest

DELTA, MOST, LEARNED, RUNS = 1e-5, 500, 100, 20
CLAIMS = (0.5, 1.0, 2.0, 4.0)
Sampler = Callable[[np.random.Generator, bool, int], np.ndarray]


def response(epsilon: float) -> Sampler:
    wrong = 1 / (1 + exp(epsilon))
    return lambda rng, world, n: (rng.random(n) < (1 - wrong if world else wrong)) + 1e-9 * rng.random(n)


def laplace(epsilon: float) -> Sampler:
    return lambda rng, world, n: rng.laplace(size=n) + epsilon * world


def gaussian(epsilon: float) -> Sampler:
    mu = brentq(lambda mu: mu_epsilon(mu, DELTA) - epsilon, 1e-3, 50)
    return lambda rng, world, n: rng.normal(size=n) + mu * world


def refuted_after(sampler: Sampler, claim: float, shaped: bool, seed: int) -> float:
    """Draws a world until the claim is refuted, ∞ where 500 do not; at the looks that an audit takes."""
    rng = np.random.default_rng(seed)
    past = Separate(sampler(rng, True, LEARNED), sampler(rng, False, LEARNED))

    def draw(first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        return sampler(rng, True, end - first), sampler(rng, False, end - first)

    taken = take(draw, past, MOST, BoundRule(DELTA, 0.95, gaussian=shaped, targets=(claim,)))
    bound = taken.if_gaussian if shaped else taken.counted
    return taken.draws if bound is not None and bound.epsilon > claim else inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", type=int, default=1000, help="null worlds of each row")
    options = parser.parse_args()
    cases = (
        ("randomised response", response, False),
        ("Laplace", laplace, False),
        ("Gaussian", gaussian, False),
        ("Gaussian", gaussian, True),
    )
    heads = [f"claim {claim:g}, truth {2 * claim:g}" for claim in CLAIMS]
    print(f"| noise | test | {' | '.join(heads)} | true claim of 1 refuted |\n|---|---|{'---:|' * 5}")
    broken = False
    for name, made, shaped in cases:
        cells = []
        for claim in CLAIMS:
            needed = np.median([refuted_after(made(2 * claim), claim, shaped, seed) for seed in range(RUNS)])
            cells.append("never" if needed == inf else f"{needed:.0f}")
        wrong = sum(refuted_after(made(1.0), 1.0, shaped, 1000 + seed) < inf for seed in range(options.null))
        broken |= binomtest(wrong, options.null, 0.05, "greater").pvalue < 0.01
        test = "mean shift" if shaped else "counting"
        print(f"| {name} | {test} | {' | '.join(cells)} | {100 * wrong / options.null:.1f} % |", flush=True)
    sys.exit(int(broken))


if __name__ == "__main__":
    main()
