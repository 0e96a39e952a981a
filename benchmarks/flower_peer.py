"""The workload of benchmarks/federation.py as a Flower app, run by Flower's own simulation (extra `bench`).

The same work as ours: each client's data stay in its process, every update is clipped to 1 and gets Gaussian noise of
std 0.01, here by Flower's own LocalDpMod (`--no-dp` leaves both out).

    python benchmarks/flower_peer.py [--clients 100] [--cohort 50] [--records 600] [--rounds 3] [--model mlp|logistic]
    [--no-dp]

Prints one line: client trainings per second from the first round's start to the last round's end, start-up of the
simulation left out.
"""

from __future__ import annotations

import argparse
import math
import time

import quiet  # noqa: F401 - before torch
import torch
from torch import nn

BATCH, LR = 10, 0.1


def network(model: str) -> nn.Module:
    if model == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--records", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", choices=["mlp", "logistic"], default="mlp")
    parser.add_argument("--no-dp", action="store_true")
    options = parser.parse_args()

    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.clientapp.mod import LocalDpMod
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    delta = 1e-5
    private = LocalDpMod(
        clipping_norm=1.0, sensitivity=1.0, epsilon=math.sqrt(2 * math.log(1.25 / delta)) / 0.01, delta=delta
    )
    client_app = ClientApp(mods=[] if options.no_dp else [private])

    def data(client: int) -> tuple[torch.Tensor, torch.Tensor]:
        # Flower sends this code anew with every message; a module stays in the process
        kept = vars(torch).setdefault("_benchmark_data", {})
        if not kept:  # all at once, in the warm-up
            rng, shape = torch.Generator().manual_seed(0), (options.clients, options.records)
            kept.update(x=torch.rand(*shape, 1, 28, 28, generator=rng), y=torch.randint(10, shape, generator=rng))
        return kept["x"][client], kept["y"][client]

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        module = network(options.model)
        module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        x, y = data(int(context.node_config["partition-id"]))
        optimiser = torch.optim.SGD(module.parameters(), lr=LR)
        for batch in torch.randperm(options.records).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            optimiser.step()
        content = RecordDict(
            {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": options.records})}
        )
        return Message(content=content, reply_to=message)

    server_app = ServerApp()
    seconds: list[float] = []

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        del context
        strategy = FedAvg(
            fraction_train=options.cohort / options.clients, fraction_evaluate=0.0, min_available_nodes=options.clients
        )
        start = ArrayRecord(network(options.model).state_dict())
        strategy.start(grid=grid, initial_arrays=start, num_rounds=1)  # warm-up: actors start and import torch
        began = time.perf_counter()
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=options.rounds)
        if len(result.train_metrics_clientapp) != options.rounds:
            raise RuntimeError("a client failed in Flower's simulation; its log above says why")
        seconds.append(time.perf_counter() - began)

    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=options.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    print(
        f"flower       {options.rounds * options.cohort / seconds[0]:8.1f} client trainings/s ({options.model},"
        f" {'no DP' if options.no_dp else 'LocalDpMod'}, {seconds[0]:.2f} s)"
    )


if __name__ == "__main__":
    main()
