"""How time and memory grow with the number of clients: 100 to 100,000, of which 1 % take part in a round.

    python benchmarks/clients.py [--clients 100 1000 10000 100000] [--rounds 10] [--engine sliced] [--ray auto|ADDRESS]

Each row is one `audit train` of a logistic regression in a process of its own: clip, noise and the accountant's ledger
of every client, the messages of one captured. Data are random images of 8 × 8 (a client has 20): speed does not depend
on what they show. The slopes are of straight lines through the logarithms; 1 is proportional. The memory is the
command's own largest; with --ray each worker has its own, with one slice at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import linear_regression
from typing import Any

RECORDS = 20  # of a client


def one(clients: int, rounds: int, engine: str, address: str | None) -> dict[str, float]:
    """Train and capture, here: seconds by the clock and of this process's cores, and MiB."""
    import numpy as np
    import quiet  # noqa: F401 - before torch
    import torch
    from dpfl_audit.audit.cluster import joined
    from dpfl_audit.audit.setup import capture
    from dpfl_audit.audit.setup.config import parse_config
    from dpfl_audit.audit.setup.experiment import build

    rng = torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        place = Path(folder)
        count = clients * RECORDS
        arrays: dict[str, Any] = {
            "inputs": torch.rand(count, 1, 8, 8, generator=rng).numpy(),
            "targets": torch.randint(10, (count,), generator=rng).numpy(),
            "test_inputs": torch.rand(200, 1, 8, 8, generator=rng).numpy(),
            "test_targets": torch.randint(10, (200,), generator=rng).numpy(),
            "auxiliary_inputs": torch.rand(50, 1, 8, 8, generator=rng).numpy(),
            "auxiliary_targets": torch.randint(10, (50,), generator=rng).numpy(),
        }
        np.savez(place / "data.npz", **arrays)
        del arrays
        config = parse_config(
            {
                "data": {
                    "name": "npz",
                    "root": str(place / "data.npz"),
                    "clients": clients,
                    "samples_per_client": RECORDS,
                },
                "model": {"name": "logistic"},
                "local": {"optimiser": "sgd", "lr": 0.1, "batch_size": 10},
                "scheme": {
                    "name": "local-gaussian",
                    "clip": 1.0,
                    "noise_multiplier": 1.0,
                    "rounds": rounds,
                    "participants": max(1, clients // 100),
                },
            }
        )
        began = time.perf_counter()
        experiment = build(config, place)
        built = time.perf_counter()
        with joined(address) as workers:
            ready, used = time.perf_counter(), time.process_time()
            capture.train(experiment, place / "setup", engine=engine, workers=workers)
            ended, used = time.perf_counter(), time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"clients": clients, "building": built - began, "training": ended - ready, "cpu": used, "mib": peak}


def slope(rows: list[dict[str, float]], name: str) -> float:
    """Of log `name` by log clients."""
    return linear_regression([math.log(r["clients"]) for r in rows], [math.log(r[name]) for r in rows]).slope


def table(rows: list[dict[str, float]]) -> str:
    head = "| clients | a round | reading and dealing, s | training, s | of it computing, s | peak memory, MiB |"
    lines = [head, "|---:|---:|---:|---:|---:|---:|"]
    for r in rows:
        n, shown = int(r["clients"]), f"{r['building']:.1f} | {r['training']:.1f} | {r['cpu']:.1f} | {r['mib']:,.0f}"
        lines.append(f"| {n:,} | {max(1, n // 100):,} | {shown} |")
    if len(rows) > 1:
        slopes = " | ".join(f"{slope(rows, name):.2f}" for name in ("building", "training", "cpu", "mib"))
        lines.append(f"| slope | | {slopes} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--engine", default="sliced")
    parser.add_argument("--ray")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(options.one, options.rounds, options.engine, options.ray)))
        return
    rows = []
    for clients in options.clients:
        call = [
            sys.executable,
            __file__,
            "--one",
            str(clients),
            "--rounds",
            str(options.rounds),
            "--engine",
            options.engine,
        ]
        call += [] if options.ray is None else ["--ray", options.ray]
        done = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{rows[-1]} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
