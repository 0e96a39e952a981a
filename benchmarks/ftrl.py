"""Noise that is correlated over the rounds against independent noise, amplified or not, at equal proven ε.

    python benchmarks/ftrl.py          a small run: 20 rounds, ε = 2, one seed
    python benchmarks/ftrl.py --full --page benchmarks/measured/schemes.md
                                       100 rounds, ε 1, 2, 4, 8, three seeds: about 20 minutes

Fashion-MNIST (`--data-root`, else $DPFL_AUDIT_DATA), 1,000 clients of 60 records, 100 a round, a logistic model. All
prove the same ε for a client (zero_out) towards the downlink at δ = 1e-5:

- amplified: `central-gaussian`, a secret coin for every client in every round;
- unamplified: independent noise, clients take turns ten rounds apart (`band-mf` with one band);
- dp-ftrl: one tree with Honaker's estimator, the same turns;
- band-mf: ten bands, the same turns;
- blt: three buffers in place of the ten bands, the same turns.

Beforehand: how far the prefix sums of the noise are from 0, the mean square over the rounds, in units of (C/m)². What
is trained is kept in --results, so killed work goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.audit.proven.target import build
from dpfl_audit.audit.setup.config import parse_config
from dpfl_audit.audit.setup.experiment import Experiment, with_scheme
from dpfl_audit.defenses.federation import evaluate, run_many
from dpfl_audit.defenses.steps.perturb import Perturb, PerturbCorrelated
from dpfl_audit.defenses.strategies import decoder_of
from scipy.stats import t as student

ROOT = Path(__file__).resolve().parents[1]
CLIENTS, COHORT, DELTA = 1000, 100, 1e-5
MECHANISMS = ("amplified", "unamplified", "dp-ftrl", "band-mf", "blt")
BEGIN, END = "<!-- correlated noise: written by benchmarks/ftrl.py -->", "<!-- correlated noise: end -->"


@dataclass(frozen=True)
class Trained:
    """A training's test accuracy, and the noise's mean squared prefix sum that was computed beforehand."""

    mechanism: str
    epsilon: float
    seed: int
    rounds: int
    error: float
    accuracy: float


def planned(mechanism: str, epsilon: float, rounds: int, data: dict[str, object], clip: float = 0.5) -> Experiment:
    """An experiment whose noise proves ε."""
    schemes: dict[str, dict[str, object]] = {
        "amplified": {"name": "central-gaussian", "sampling": "poisson"},
        "unamplified": {"name": "band-mf", "bands": 1},
        "dp-ftrl": {"name": "dp-ftrl"},
        "band-mf": {"name": "band-mf"},
        "blt": {"name": "blt"},
    }
    public = {"rounds": rounds, "participants": COHORT, "clip": clip, "target_epsilon": epsilon}
    config = {
        "data": {"clients": CLIENTS, "samples_per_client": 60, **data},
        "model": {"name": "logistic"},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 20, "epochs": 1},
        "scheme": {**schemes[mechanism], **public},
        "audit": {"observer": "downlink", "unit": "client", "adjacency": "zero_out", "delta": DELTA},
    }
    return build(parse_config(config), ROOT)


def prefix_error(made: Experiment) -> float:
    """The mean over rounds of the squared prefix sum of the noise in one number, in units of (C/m)²."""
    step, rounds = made.scheme.server[0], made.parameters.rounds
    decoder = np.eye(rounds)
    if isinstance(step, PerturbCorrelated):
        decoder = decoder_of(step.correlated.strategy)
    assert isinstance(step, Perturb | PerturbCorrelated) and step.noise_std is not None
    std = step.noise_std * COHORT / made.parameters.clip
    return float(std**2 * np.square(np.cumsum(decoder, axis=0)).sum() / rounds)


def train(made: Experiment, seeds: Sequence[int]) -> list[float]:
    """Test accuracy after the last round, by seed of the batches, cohorts and noise."""
    federations = []
    for seed in seeds:
        config = made.config.model_copy(update={"seed": seed})
        federation = with_scheme(config, made.data, made.module, made.clients).federation()
        federations.append(replace(federation, evaluate=False))
    states = run_many(federations)
    return [evaluate(federation, state)["test_accuracy"] for federation, state in zip(federations, states)]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval by Student's t; no width for a single one."""
    if len(values) < 2:
        return float(np.mean(values)), float("nan")
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return float(np.mean(values)), float(half)


def page(found: Sequence[Trained]) -> str:
    """The table, a row an ε."""
    head = ["ε", *(f"{m}: prefix error, accuracy" for m in MECHANISMS), "band-mf − unamplified", "band-mf − amplified"]
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head))]
    for epsilon in sorted({one.epsilon for one in found}):
        of = {mechanism: _of(found, mechanism, epsilon) for mechanism in MECHANISMS}
        cells = [f"{epsilon:g}"]
        for own in of.values():
            cells.append(f"{own[0].error:.3g}, {said([o.accuracy for o in own])}" if own else "–")
        for other in ("unamplified", "amplified"):
            both = [(a.accuracy - b.accuracy) for a, b in zip(of["band-mf"], of[other])]
            cells.append(said(both, signed=True) if both else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def said(shares: Sequence[float], signed: bool = False) -> str:
    """In percent, with half the width of the interval."""
    mean, half = interval(shares)
    number = f"{100 * mean:+.1f}" if signed else f"{100 * mean:.1f} %"
    return number if half != half else f"{number} ± {100 * half:.1f}"


def write_between(path: Path, table: str) -> None:
    """The table between its marks in the page; all other text stays."""
    before, mark, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, closing, after = rest.partition(END)
    if not mark or not closing:
        sys.exit(f"{path} has lost the marks {BEGIN!r} and {END!r}, between which the table goes")
    path.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", default=os.environ.get("DPFL_AUDIT_DATA"), help="where FashionMNIST/ is")
    parser.add_argument("--full", action="store_true", help="100 rounds, ε 1, 2, 4, 8, seeds 0, 1, 2")
    parser.add_argument("--rounds", type=int, help="instead of 20 or 100")
    parser.add_argument("--epsilon", type=float, nargs="+", help="instead of 2, or 1, 2, 4, 8")
    parser.add_argument("--mechanisms", choices=MECHANISMS, nargs="+", default=MECHANISMS, help="instead of all")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "ftrl.jsonl", help="a line a training")
    parser.add_argument("--page", type=Path, help="a page to write the table into")
    given = parser.parse_args(arguments)
    if given.data_root is None:
        parser.error("--data-root: where is FashionMNIST/? ($DPFL_AUDIT_DATA is not set)")
    torch.set_num_threads(1)
    rounds = given.rounds or (100 if given.full else 20)
    seeds = (0, 1, 2) if given.full else (0,)
    data: dict[str, object] = {"name": "fashion_mnist", "root": str(Path(given.data_root).resolve())}
    found = [one for one in _kept(given.results) if one.rounds == rounds and one.seed in seeds]
    given.results.parent.mkdir(parents=True, exist_ok=True)
    for epsilon in given.epsilon or ((1.0, 2.0, 4.0, 8.0) if given.full else (2.0,)):
        for mechanism in given.mechanisms:
            todo = [seed for seed in seeds if seed not in {one.seed for one in _of(found, mechanism, epsilon)}]
            if todo:
                made = planned(mechanism, epsilon, rounds, data)
                error = prefix_error(made)
                new = [Trained(mechanism, epsilon, *one) for one in _measured(made, todo, rounds, error)]
                with given.results.open("a", encoding="utf-8") as kept:
                    kept.writelines(json.dumps(asdict(one)) + "\n" for one in new)
                found += new
            own = _of(found, mechanism, epsilon)
            shown = said([one.accuracy for one in own])
            print(f"ε {epsilon:g}, {mechanism}: prefix error {own[0].error:.4g}, {shown}", flush=True)
    table = page(found)
    print(table)
    if given.page:
        write_between(given.page, table)
    return 0


def _measured(made: Experiment, seeds: Sequence[int], rounds: int, error: float) -> list[tuple[int, int, float, float]]:
    return [(seed, rounds, error, accuracy) for seed, accuracy in zip(seeds, train(made, seeds))]


def _of(found: Sequence[Trained], mechanism: str, epsilon: float) -> list[Trained]:
    own = (one for one in found if (one.mechanism, one.epsilon) == (mechanism, epsilon))
    return sorted(own, key=lambda one: one.seed)


def _kept(path: Path) -> list[Trained]:
    if not path.exists():
        return []
    return [Trained(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
