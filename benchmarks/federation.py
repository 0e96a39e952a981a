"""Client trainings per second: our batched engine, our looped engine, a plain PyTorch loop and (where installed) a
Flower simulation.

    python benchmarks/federation.py [--clients 100] [--cohort 50] [--records 600] [--rounds 3] [--model mlp|logistic]

All train one local epoch of SGD at batch 10 and clip and noise every update; ours also capture every message. Flower
(extra `bench`) runs `flower_peer.py` in a process of its own, in turn with the others. Run it on an idle machine.

The batched engine deals chunks to all threads. The looped engine and the plain loop get all threads or one, whichever a
trial of two clients finds faster: threads that share products as small as theirs wait for each other at every one, on a
busy machine (two cores, load 4) 115 s for 50 clients instead of 7 s.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.defenses import models
from dpfl_audit.defenses.data.dataset import make
from dpfl_audit.defenses.engine import batched, looped
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.participation import Uniform
from dpfl_audit.defenses.schedule import FixedRounds
from dpfl_audit.defenses.scheme import Scheme
from dpfl_audit.defenses.steps.clip import Clip
from dpfl_audit.defenses.steps.perturb import Perturb
from dpfl_audit.defenses.wire import Wire
from torch import nn

BATCH, LR = 10, 0.1


def synthetic(records: int):
    """Random images of Fashion-MNIST's shape: speed does not depend on what they show."""
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(records, 1, 28, 28, generator=rng), torch.randint(10, (records,), generator=rng)
    return make("synthetic", (x, y), (x[:100], y[:100]), (x[:0], y[:0]), 10, {})


def federation(options: argparse.Namespace, data, module: nn.Module, seed: int, kept: list) -> Federation:
    scheme = Scheme(
        name="bench",
        source="benchmarks/federation.py",
        local=LocalTraining(optimiser="sgd", lr=LR, batch_size=BATCH),
        client=(Clip(1.0), Perturb(noise_multiplier=0.01)),
        participation=Uniform(options.cohort),
        schedule=FixedRounds(options.rounds),
    )
    clients = list(torch.arange(options.clients * options.records).split(options.records))
    return Federation(scheme, module, data, clients, seed, Wire(lambda m: kept.append(m.vector.sum())), evaluate=False)


def plain(options: argparse.Namespace, data, module: nn.Module) -> None:
    """What most simulators do: one client after another, torch's own optimiser, the clip and the noise by hand."""
    for _ in range(options.rounds):
        start = [p.detach().clone() for p in module.parameters()]
        total = [torch.zeros_like(p) for p in start]
        for client in range(options.cohort):
            for p, s in zip(module.parameters(), start):
                p.data.copy_(s)
            optimiser = torch.optim.SGD(module.parameters(), lr=LR)
            rows = torch.arange(client * options.records, (client + 1) * options.records)[
                torch.randperm(options.records)
            ]
            for batch in rows.split(BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(data.inputs[batch]), data.targets[batch]).backward()
                optimiser.step()
            update = [p.detach() - s for p, s in zip(module.parameters(), start)]
            norm = torch.sqrt(sum((u.square().sum() for u in update), start=torch.zeros(())))
            for t, u in zip(total, update):
                t.add_(u * (1 / norm).clamp_max(1.0) + 0.01 * torch.randn_like(u))
        for p, s, t in zip(module.parameters(), start, total):
            p.data.copy_(s + t / options.cohort)


def flower(options: argparse.Namespace) -> float:
    """Seconds of Flower's simulation for the same rounds, its start-up left out."""
    own = [f"--{name}={getattr(options, name)}" for name in ("clients", "cohort", "records", "rounds", "model")]
    command = [sys.executable, str(Path(__file__).with_name("flower_peer.py")), *own]
    last = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1]
    return options.rounds * options.cohort / float(last.split()[1])


def seconds_of(run: Callable[[], object], at_least: float = 5.0) -> float:
    """Seconds a run takes: the mean over as many as fill `at_least` seconds after a first one, which wakes cores and
    threads as Flower's own warm-up round does. A run of .3 s straight after an idle moment took up to half as long
    again. A first run that itself takes as long as that is the measurement.
    """
    started = time.perf_counter()
    run()
    first = time.perf_counter() - started
    if first >= at_least:
        return first
    count, started = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - started < at_least:
        run()
        count += 1
    return (time.perf_counter() - started) / count


def faster_threads(run: Callable[[], object], threads: int) -> int:
    """1 or `threads`, with whichever `run` is faster; each is tried twice, the first time to wake up."""
    taken: dict[int, float] = {}
    for count in {1, threads}:
        torch.set_num_threads(count)
        run()
        started = time.perf_counter()
        run()
        taken[count] = time.perf_counter() - started
    return min(taken, key=taken.__getitem__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--records", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", choices=["mlp", "logistic"], default="mlp")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_flush_denormal(True)
    data = synthetic(options.clients * options.records)
    extra: dict[str, Any] = {"widths": [200, 200]} if options.model == "mlp" else {}
    # no normalisation, as in Flower's
    module = models.build(options.model, input_shape=(1, 28, 28), classes=10, mean=(0.0,), std=(1.0,), seed=0, **extra)
    kept: list = []
    runs: dict[str, Callable[[argparse.Namespace], object]] = {
        "batched": lambda o: run_many([federation(o, data, module, 0, kept)], batched),
        "looped": lambda o: run_many([federation(o, data, module, 0, kept)], looped),
        "plain loop": lambda o: plain(o, data, module),
    }
    every = torch.get_num_threads()
    trial = argparse.Namespace(**{**vars(options), "cohort": min(2, options.cohort), "rounds": 1})
    threads = {
        name: every if name == "batched" else faster_threads(partial(run, trial), every) for name, run in runs.items()
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.repeats):  # interleaved, so that a slow moment hits all alike
        for name, run in runs.items():
            torch.set_num_threads(threads[name])
            times[name].append(seconds_of(partial(run, options)))
        if importlib.util.find_spec("flwr"):
            times.setdefault("Flower", []).append(flower(options))
    count = options.rounds * options.cohort
    print(f"{options.model}, {options.clients} clients, {options.cohort} a round, {options.records} records")
    for name, seconds in times.items():
        middle, used = statistics.median(seconds), f", {threads[name]} threads" if name in threads else ""
        print(
            f"{name:12} {count / middle:8.1f} client trainings/s (median of {len(seconds)},"
            f" {min(seconds):.2f}-{max(seconds):.2f} s{used})"
        )
    print(f"largest resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
