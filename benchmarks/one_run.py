"""One training with 1,000 canaries: how much of the proven ε do its scores show, where noise is correlated over rounds?

    python benchmarks/one_run.py [--runs 200] [--rounds 100]

1,000 clients, 100 a round, turns ten rounds apart, noise that proves ε = 4.38 (μ = 1) for a client (zero_out) towards
the downlink at δ = 1e-5: the schemes of `benchmarks/ftrl.py`, noise by their own code. Every client is a canary: by a
fair coin of its own it sends C along a direction of its own in all its turns, or nothing. Trainings are simulated: a
vector has one number for each canary (orthogonal directions, as one-coordinate canaries have), and what others send is
known and left out. What is seen are the sums of all rounds; a score is the canary's share in them after their noise was
made white, as in `audit/worlds/federation/sequence.py`.

*Seen*: the ε of the canaries' exact μ in what is seen, from the weakest to the strongest; the proof is of the noise
that the hub draws. *Above*: share of runs whose bound exceeds the proven ε, and the ε of the strongest canary.
Printed as markdown; exit code 1 where a bound exceeds the latter in more than 5 % of runs (exact binomial test at 1 %).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import ftrl
import numpy as np
import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.audit.proof.theorems.gaussian import gaussian_epsilon
from dpfl_audit.audit.two_worlds.estimators import one_run, one_run_fdp, one_run_shift
from dpfl_audit.defenses.steps.perturb import Perturb, PerturbCorrelated
from dpfl_audit.defenses.strategies import BandMF, NoiseStrategy, decoder_of
from scipy.stats import binomtest

MECHANISMS = ("unamplified", "dp-ftrl", "band-mf", "blt")
ESTIMATORS = {"one_run": one_run, "one_run_fdp": one_run_fdp, "one_run_shift": one_run_shift}
SEPARATION, DELTA = ftrl.CLIENTS // ftrl.COHORT, ftrl.DELTA


@dataclass(frozen=True)
class Training:
    """A scheme's noise, and what a canary adds to the rounds: step (C over the cohort) and noise_std in equal units.

    patterns: (separation, rounds), what canaries of each turn add.
    """

    strategy: NoiseStrategy
    noise_std: float
    step: float

    @property
    def patterns(self) -> np.ndarray:
        turns = np.arange(self.strategy.rounds) % SEPARATION
        return self.step * (turns == np.arange(SEPARATION)[:, None])

    @cached_property
    def whitening(self) -> np.ndarray:
        """W, (rounds, rounds): of what was added to the rounds it makes noise of std 1, independent in all rounds."""
        decoder = decoder_of(self.strategy)
        return np.linalg.inv(np.linalg.cholesky(decoder @ decoder.T)) / self.noise_std

    def shifts(self) -> np.ndarray:
        """(separation,): μ of a canary in what is seen, by its turn."""
        return np.linalg.norm(self.whitening @ self.patterns.T, axis=0)

    def scores(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Of canaries that were there and that were not, in standard deviations of their noise."""
        rng = np.random.default_rng(seed)
        there, turn = rng.random(ftrl.CLIENTS) < 0.5, np.arange(ftrl.CLIENTS) % SEPARATION
        kept: dict[str, torch.Tensor] = {}

        def white(row: int) -> torch.Tensor:
            return torch.from_numpy(rng.normal(scale=self.noise_std, size=ftrl.CLIENTS))

        noise = np.array([self.strategy.noise(t, white, kept).numpy() for t in range(self.strategy.rounds)])
        seen = self.whitening @ (noise + self.patterns[turn].T * there)
        along = (self.whitening @ self.patterns.T) / self.shifts()
        scores = (along[:, turn] * seen).sum(0)
        return scores[there], scores[~there]


def training(mechanism: str, rounds: int) -> Training:
    """Of noise that proves μ = 1."""
    data: dict[str, object] = {"name": "digits", "samples_per_client": 1}
    made = ftrl.planned(mechanism, gaussian_epsilon(1.0, DELTA), rounds, data)
    step = made.scheme.server[0]
    strategy = step.correlated.strategy if isinstance(step, PerturbCorrelated) else BandMF(rounds, 1)
    assert isinstance(step, Perturb | PerturbCorrelated) and step.noise_std is not None
    return Training(strategy, step.noise_std, made.parameters.clip / ftrl.COHORT)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="simulated trainings of each scheme")
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    proven, broken = gaussian_epsilon(1.0, DELTA), False
    names = " | ".join(f"{name}: mean | of proven | above proven, seen" for name in ESTIMATORS)
    print(f"| noise | proven ε | seen ε | {names} |\n|---|{'---:|' * (2 + 3 * len(ESTIMATORS))}")
    for mechanism in MECHANISMS:
        made = training(mechanism, given.rounds)
        seen = [gaussian_epsilon(1 / mu, DELTA) for mu in np.sort(made.shifts())]
        cells = [mechanism, f"{proven:.2f}", f"{seen[0]:.2f} to {seen[-1]:.2f}"]
        runs = [made.scores(seed) for seed in range(given.runs)]
        for estimator in ESTIMATORS.values():
            shown = np.array([estimator(*scores, delta=DELTA).epsilon for scores in runs])
            above = int((shown > seen[-1]).sum())
            broken |= binomtest(above, given.runs, 0.05, "greater").pvalue < 0.01
            mean = float(shown.mean())
            cells += [f"{mean:.2f}", f"{mean / proven:.0%}", f"{(shown > proven).mean():.1%}, {above / given.runs:.1%}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
