"""Shadow federations together against one after another: the same models, how much sooner, and in how much memory.

    python benchmarks/membership.py [--federations 25] [--batches 10 32 600] [--shadows 64] [--threads 2]

Network 784-32-10, plain SGD, random images. "One client after another" is an ordinary PyTorch loop over federations and
clients (the looped engine); "one federation after another" batches a federation's clients but trains the federations by
themselves. The time of 64 shadows and the memory they take are measured in a process of their own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import quiet  # noqa: F401 - before torch
import torch
from dpfl_audit.attacks.membership import ShadowFactory
from dpfl_audit.attacks.membership.shadows import deal, keep_matrix, train_shadows
from dpfl_audit.defenses.engine import batched, looped
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.randomness import generator
from dpfl_audit.defenses.schedule import FixedRounds
from dpfl_audit.defenses.scheme import Scheme
from dpfl_audit.defenses.wire import SERVER
from torch import Tensor, nn

PIXELS, HIDDEN, CLASSES = 784, 32, 10


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    if options.alone:
        print(json.dumps(_shadows(options)))
        return
    peak = _peak_flops()
    print(
        f"{options.federations} federations of {options.clients} clients with {options.records} records,"
        f" {options.rounds} round(s), {options.threads} thread(s)"
    )
    print(f"peak of this machine's matrix product: {peak / 1e9:.0f} GFLOP/s\n")
    print(
        f"{'batch':>6} {'loop s':>8} {'alone s':>8} {'together s':>11} {'speed-up':>9} {'to alone':>9} {'of peak':>8}"
        f" {'largest difference':>19}"
    )
    wrong = False
    for batch in options.batches:
        federations = _federations(options, batch)
        for engine in (looped, batched):
            _weights(federations[:1], engine)  # the first use of an engine pays for torch's own set-up
        each, slow = _timed(partial(_one_by_one, federations, looped), options.repeat)
        _, alone = _timed(partial(_one_by_one, federations, batched), options.repeat)
        together, fast = _timed(partial(_weights, federations, batched), options.repeat)
        difference = float((together - each).abs().max())
        wrong |= not difference <= 1e-4
        share = _flops(options) / fast / peak
        print(
            f"{batch:6d} {slow:8.2f} {alone:8.2f} {fast:11.2f} {slow / fast:8.1f}x {alone / fast:8.1f}x"
            f" {100 * share:7.0f}% {difference:19.1e}"
        )
    command = [sys.executable, __file__, "--alone", *sys.argv[1:]]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"\n{options.shadows} shadows of the same federations at batch {told['batch']}: {told['seconds']:.1f} s,"
        f" {told['peak_gib']:.2f} GiB at the most, of which {told['before_gib']:.2f} GiB are the libraries and the data"
        f" (bound for training: {options.memory_gib:g} GiB)"
    )
    if wrong:
        sys.exit("batched and looped federations differ by more than 1e-4")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--federations", type=int, default=25)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--records", type=int, default=600, help="records of a client")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[10, 32, 600])
    parser.add_argument("--shadows", type=int, default=64)
    parser.add_argument("--memory-gib", type=float, default=2.0, help="what training the shadows may take")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many timings")
    parser.add_argument(
        "--alone", action="store_true", help="only train the shadows, and print time and memory as JSON"
    )
    return parser.parse_args()


def _records(options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    rng = generator(0, "benchmark records")
    n = 2 * options.clients * options.records
    return torch.rand(n, PIXELS, generator=rng), torch.randint(CLASSES, (n,), generator=rng)


def _factory(options: argparse.Namespace, batch: int) -> ShadowFactory:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    scheme = Scheme(
        name="fedavg",
        source="",
        local=LocalTraining(lr=0.1, batch_size=batch, epochs=1),
        schedule=FixedRounds(options.rounds),
    )
    return ShadowFactory(scheme, module, (options.records,) * options.clients)


def _rows(count: int, options: argparse.Namespace) -> list[list[Tensor]]:
    keep = keep_matrix(count + count % 2, 2 * options.clients * options.records, seed=0)[:count]
    return [
        deal(row.nonzero().squeeze(1), (options.records,) * options.clients, generator(0, "deal", s))
        for s, row in enumerate(keep)
    ]


def _federations(options: argparse.Namespace, batch: int) -> list[Federation]:
    make = _factory(options, batch).on(*_records(options), torch.arange(0), CLASSES)
    return [make(rows, seed) for seed, rows in enumerate(_rows(options.federations, options))]


def _weights(federations: list[Federation], engine) -> Tensor:
    return torch.stack([state.models[SERVER].vector for state in run_many(federations, engine)])


def _one_by_one(federations: list[Federation], engine) -> Tensor:
    return torch.cat([_weights([federation], engine) for federation in federations])


def _timed(work: Callable[[], Tensor], repeat: int) -> tuple[Tensor, float]:
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return result, best


def _flops(options: argparse.Namespace) -> float:
    """Of all matrix products: forward, weight gradients, and the second layer's error; the first layer's inputs need
    none.
    """
    records = options.federations * options.clients * options.records * options.rounds
    return 2.0 * records * (2 * PIXELS * HIDDEN + 3 * HIDDEN * CLASSES)


def _peak_flops() -> float:
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    _, seconds = _timed(lambda: a @ b, 5)
    return 2 * 2048**3 / seconds


def _shadows(options: argparse.Namespace) -> dict[str, float]:
    """The hardest case for memory: the largest batch."""
    batch = max(options.batches)
    factory = _factory(options, batch)
    make, rows = factory.on(*_records(options), torch.arange(0), CLASSES), _rows(options.shadows, options)
    before = _memory_gib()
    start = time.perf_counter()
    weights = train_shadows(make, rows, list(range(options.shadows)), memory=int(options.memory_gib * 2**30))
    seconds = time.perf_counter() - start
    assert weights.shape == (options.shadows, Layout.of(factory.module).dim)
    return {"batch": batch, "seconds": seconds, "peak_gib": _memory_gib(), "before_gib": before}


def _memory_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # KiB on Linux


if __name__ == "__main__":
    main()
