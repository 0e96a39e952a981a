"""Whether a record lies in the span of what a client sent (ProjRes), beside the other tests of captured uploads.

    python benchmarks/membership_projection.py --data-root DIR

Ten clients train an MLP of 32 for 5 rounds of SGD (.1): one full step a round, or 5 epochs of batches of 5. Noise is
added to every upload, clipped to 1. All members are asked and as many others as the table says, each judged by one
client's uploads. Five federations a row (seeds 1 to 5), judged together. Printed as markdown.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks import ATTACKS
from dpfl_audit.metrics.membership import auc, tpr_at_fpr
from membership_sequence import Federation

CLIENTS, ROUNDS, SEEDS = 10, 5, (1, 2, 3, 4, 5)
DATA = {"digits": (10, 1200), "adult": (20, 2500), "fashion_mnist": (20, 2500)}  # records of a client, candidates
LOCAL = {"one step": {"epochs": 1}, "5 epochs": {"epochs": 5, "batch_size": 5}}
CASES = (("one step", 0.0), ("5 epochs", 0.0), ("one step", 0.003), ("one step", 0.03))
TESTS = ("projection", "cosine", "fedmia", "sequence")


def settings(name: str, root: Path, local: str, noise: float, seed: int) -> dict[str, Any]:
    records, candidates = DATA[name]
    scheme = {"name": "ldp", "clip": 1.0, "noise_std": noise} if noise else {"name": "fedavg"}
    place = {} if name == "digits" else {"root": str(root)}
    return {
        "seed": seed,
        "data": {"name": name, "clients": CLIENTS, "samples_per_client": records, **place},
        "model": {"name": "mlp", "options": {"widths": [32]}},
        "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": records, **LOCAL[local]},
        "scheme": {**scheme, "rounds": ROUNDS},
        "capture": {"clients": list(range(CLIENTS)), "candidates": candidates, "auxiliary": 0},
        "audit": {"delta": 1e-5, "unit": "record", "observer": "server"},
        "claim": "none",
    }


def row(federations: list[Federation], test: str) -> str:
    """AUC, and TPR in percent at 1 % and 0.1 % FPR, each with its interval."""
    (attack,) = ATTACKS[f"membership-{test}"].make({}, False, "cpu")
    scores = torch.cat([federation.judged(federation.scores(attack)) for federation in federations])
    member = torch.cat([federation.owner >= 0 for federation in federations])
    inside, outside = scores[member].numpy(), scores[~member].numpy()
    area, (low, high) = auc(inside, outside)
    cells = [f"{area:.3f} ({low:.3f}–{high:.3f})"]
    rates = tpr_at_fpr(inside, outside)
    for level in (0.01, 0.001):
        rate = rates[level]
        assert rate is not None and rate.tpr_interval is not None
        cells.append(f"{100 * rate.tpr:.1f} ({100 * rate.tpr_interval[0]:.1f}–{100 * rate.tpr_interval[1]:.1f})")
    return f"{' | '.join(cells)} | {len(inside):,} / {len(outside):,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True, help="folder with FashionMNIST/ and adult/")
    parser.add_argument("--data", nargs="+", choices=[*DATA], default=[*DATA])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| data | training | noise_std | test | AUC | TPR % at 1 % FPR | TPR % at 0.1 % FPR | members / others |")
    print("|---|---|---:|---|---:|---:|---:|---:|")
    for name in options.data:
        for local, noise in CASES:
            made = [settings(name, options.data_root.resolve(), local, noise, seed) for seed in SEEDS]
            federations = [Federation.trained(each) for each in made]
            for test in TESTS:
                print(f"| {name} | {local} | {noise:g} | {test} | {row(federations, test)} |", flush=True)


if __name__ == "__main__":
    main()
