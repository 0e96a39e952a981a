"""What recording a Flower app costs: CPU time of a round without it, with AuditMod, and with raw values too.

    python benchmarks/recording.py [--clients 4] [--rounds 3] [--examples 500] [--repeats 5]

A network of 1.9 million parameters (7.6 MB a message) is trained for an epoch in batches of 32 behind LocalDpMod, by
Flower's own strategy before a grid without Ray, so that all CPU time is this process's. "disk" is writing and syncing
as many bytes as a round's messages have, as a file: what no recording can do without.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def app_of(folder: str | None, raw: bool, examples: int) -> tuple[Any, Any]:
    """A ClientApp, and its network."""
    import torch
    from dpfl_audit import AuditMod
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.clientapp.mod import LocalDpMod
    from torch import nn

    net = nn.Sequential(nn.Linear(1000, 1200), nn.ReLU(), nn.Linear(1200, 500), nn.ReLU(), nn.Linear(500, 200))
    inputs, targets = torch.rand(examples, 1000), torch.arange(examples) % 200
    outer = [] if folder is None else [AuditMod(folder)]
    inner = [AuditMod.raw(folder)] if raw and folder is not None else []
    app = ClientApp(mods=[*outer, LocalDpMod(1.0, 1.0, 50.0, 1e-5), *inner])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in zip(inputs.split(32), targets.split(32)):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()
        content: dict[str, Any] = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": examples}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    return app, net


def grid_of(app: Any, clients: int) -> Any:
    from flwr.app import Context, RecordDict

    class Inline:
        def __init__(self) -> None:
            self.nodes = {900 + c: Context(c, 900 + c, {"partition-id": c}, RecordDict(), {}) for c in range(clients)}

        def get_node_ids(self) -> list[int]:
            return list(self.nodes)

        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
            del timeout
            return [app(message, self.nodes[message.metadata.dst_node_id]) for message in messages]

    return Inline()


def round_of(way: str, clients: int, rounds: int, examples: int) -> float:
    """CPU seconds of a round. way: alone, recorded, or raw too."""
    from dpfl_audit import record_strategy
    from flwr.app import ArrayRecord
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        setattr(TaskIdentity, name, 1)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        folder = None if way == "alone" else f"{place}/setup"
        app, net = app_of(folder, way == "raw too", examples)
        strategy: Any = FedAvg(fraction_evaluate=0.0, min_available_nodes=clients, min_train_nodes=clients)
        if folder is not None:
            strategy = record_strategy(strategy, folder, net)
            strategy._flow.close = lambda arrays: strategy._flow.recorder.abandon()  # rounds alone: closing is once
        began = spent()
        strategy.start(grid=grid_of(app, clients), initial_arrays=ArrayRecord(net.state_dict()), num_rounds=rounds)
        return (spent() - began) / rounds


def disk(size: int) -> tuple[float, float]:
    """CPU and wall seconds of writing and syncing a file of `size` bytes."""
    content = os.urandom(size)
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
        cpu, wall = spent(), time.perf_counter()
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        return spent() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    import flwr  # noqa: F401  sets its logger up
    import torch

    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    cpu, wall = disk(4 * 1_901_900 * (options.clients + 1))
    found: dict[str, float] = {}
    for _ in range(options.repeats):  # in turns, as other programs come and go
        for way in ("alone", "recorded", "raw too"):
            seconds = round_of(way, options.clients, options.rounds, options.examples)
            found[way] = min(seconds, found.get(way, seconds))
    print("| a round | CPU s | more than alone |")
    print("|---|---|---|")
    for way, seconds in found.items():
        print(f"| {way} | {seconds:.3f} | {100 * (seconds / found['alone'] - 1):.0f} % |")
    print(f"| disk | {cpu:.3f} ({wall:.3f} by the clock) | {100 * cpu / found['alone']:.0f} % |")


if __name__ == "__main__":
    main()
