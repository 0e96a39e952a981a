"""What attacks reach beside what the proof allows any attack: `ldp` and `dpsgd` at a proven ε of 1, 4 and 8 a record.

    python benchmarks/ceilings.py [--epsilons 1 4 8] [--sets digits photos] [--seeds 5] [-o build/ceilings]

The noise of each setting is the least that proves (ε, 1e-5) of one record towards the server, under the worse of
zero_out and replace_one: for `ldp` with the real sensitivity of a whole clipped vector, 2C. One client of eight shares
gradients of batches of four for two rounds (`ldp`) or trains two steps by DP-SGD; cosine inversion with known labels,
and membership by the average cosine of captured updates. Printed as markdown; exit code 1 where a share of successes
contradicts its ceiling (`results.verdict.beyond_proof`). Shares are means over seeds, and over messages and objectives:
a ceiling is about the expected share, and the best of several attacks is not what it bounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import quiet  # noqa: F401 - before torch
from dpfl_audit.audit.proven.views import Views
from dpfl_audit.audit.results.checks import beyond_proof
from dpfl_audit.audit.results.format import Results
from dpfl_audit.audit.run import RunOptions, run
from dpfl_audit.audit.setup.capture import train
from dpfl_audit.audit.setup.config import Config, parse_config
from dpfl_audit.audit.setup.experiment import build
from dpfl_audit.audit.setup.key import PUBLISHED
from dpfl_audit.audit.setup.planned import planned_ledger
from dpfl_audit.defenses.terms import ADJACENCIES, Observer

DELTA, CLIENTS, RECORDS = 1e-5, 8, 8
SCHEMES: dict[str, dict[str, Any]] = {
    "ldp": {"name": "ldp", "share": "gradient", "rounds": 2, "clip": 1.0, "noise_std": 1.0},
    "dpsgd": {"name": "dpsgd", "rounds": 2, "clip": 1.0, "sigma": 1.0},
}
NOISE = {"ldp": "noise_std", "dpsgd": "sigma"}


def config(data: str, scheme: str, noise: float, seed: int = 0) -> Config:
    return parse_config(
        {
            "seed": seed,
            "name": f"{scheme} on {data}",
            "data": {"name": data, "clients": CLIENTS, "samples_per_client": RECORDS},
            "model": {"name": "mlp", "options": {"widths": [64]}},
            "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 4, "steps": 1},
            "scheme": {**SCHEMES[scheme], NOISE[scheme]: noise},
            "capture": {"clients": [0], "candidates": 16, "auxiliary": 100},
            "audit": {"delta": DELTA, "unit": "record", "adjacency": "replace_one"},
            "attack": {"inversion": {"iterations": 300, "labels": "known"}},
        }
    )


def noise_for(data: str, scheme: str, epsilon: float) -> float:
    """The least noise parameter that proves ε per record towards the server."""
    views = Views(planned_ledger(build(config(data, scheme, 1.0), Path())))
    return max(
        sight.noise_scale(unit="record", adjacency=adjacency, delta=DELTA, target_epsilon=epsilon)
        for adjacency in ADJACENCIES
        for sight in views.of(Observer("server"), "record", adjacency)
    )


def measured(data: str, scheme: str, epsilon: float, seeds: int, home: Path) -> tuple[float, list[Results]]:
    """The noise and the results of one setting, for each seed."""
    noise, made = noise_for(data, scheme, epsilon), []
    for seed in range(seeds):
        name = f"{data}-{scheme}-{epsilon:g}-{seed}"
        setup = train(build(config(data, scheme, noise, seed), Path()), home / name, force=True, key=PUBLISHED)
        out = home / f"{name}-results"
        run(setup, out, RunOptions(attacks=("inversion", "membership-cosine")), force=True)
        made.append(Results.read(out))
    return noise, made


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def row(data: str, scheme: str, epsilon: float, noise: float, results: Sequence[Results]) -> str:
    rebuilt = [a for r in results for a in r.attacks if a.kind == "inversion" and a.value("pool_share") is not None]
    points = [
        p for r in results for a in r.attacks if a.kind == "membership" for p in a.tpr_points if p.ceiling is not None
    ]
    strict = [p for p in points if p.fpr == max(q.fpr for q in points)]

    def mean_of(name: str) -> float | None:
        return mean(a.value(name) or 0.0 for a in rebuilt) if rebuilt else None

    reached, ceiling = mean_of("pool_share"), mean_of("pool_ceiling")
    gap = None if reached is None or ceiling is None else ceiling - reached
    cells = [data, scheme, f"{epsilon:g}", f"{noise:.3g}", share(reached), share(mean_of("pool_chance"))]
    cells += [share(ceiling), share(gap)]
    if not strict:
        return f"| {' | '.join([*cells, '–', '–', '–'])} |"
    tpr = (strict[0].fpr, mean(p.tpr for p in strict), mean(p.ceiling or 0.0 for p in strict))
    return f"| {' | '.join([*cells, *map(share, tpr)])} |"


HEAD = ("data", "scheme", "proven ε", "noise", "re-identified", "chance", "ceiling", "gap", "FPR", "TPR", "TPR ceiling")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0, 8.0])
    parser.add_argument("--sets", nargs="+", default=["digits", "photos"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/ceilings"))
    asked = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}")
    broken = False
    for data in asked.sets:
        for scheme in SCHEMES:
            for epsilon in asked.epsilons:
                noise, results = measured(data, scheme, epsilon, asked.seeds, asked.output)
                broken = broken or any(beyond_proof(result.attacks) for result in results)
                print(row(data, scheme, epsilon, noise, results), flush=True)
    sys.exit(int(broken))


if __name__ == "__main__":
    main()
