"""The workload of benchmarks/federation.py as a Flower app, run by Flower's own simulation (extra `flower`, with `flwr[simulation]`).

    python benchmarks/flower_peer.py [--clients 100] [--cohort 50] [--records 600] [--rounds 3] [--model mlp|logistic]

Prints one line: client trainings per second from the first round's start to the last round's end, start-up of the simulation left out.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

BATCH, LR = 10, 0.1


def network(model: str) -> nn.Module:
    if model == "logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--cohort", type=int, default=50)
    parser.add_argument("--records", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", choices=["mlp", "logistic"], default="mlp")
    options = parser.parse_args()

    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client_app = ClientApp()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        module = network(options.model)
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        rng = torch.Generator().manual_seed(int(context.node_config["partition-id"]))
        x, y = torch.rand(options.records, 1, 28, 28, generator=rng), torch.randint(10, (options.records,), generator=rng)
        optimiser = torch.optim.SGD(module.parameters(), lr=LR)
        for batch in torch.randperm(options.records).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
            optimiser.step()
        content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": options.records})})
        return Message(content=content, reply_to=message)

    server_app = ServerApp()
    seconds: list[float] = []

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        del context
        strategy = FedAvg(fraction_train=options.cohort / options.clients, fraction_evaluate=0.0, min_available_nodes=options.clients)
        start = ArrayRecord(network(options.model).state_dict())
        strategy.start(grid=grid, initial_arrays=start, num_rounds=1)      # warm-up: actors start and import torch
        began = time.perf_counter()
        strategy.start(grid=grid, initial_arrays=start, num_rounds=options.rounds)
        seconds.append(time.perf_counter() - began)

    run_simulation(server_app=server_app, client_app=client_app, num_supernodes=options.clients,
                   backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
    print(f"flower       {options.rounds * options.cohort / seconds[0]:8.1f} client trainings/s ({options.model}, {seconds[0]:.2f} s)")


if __name__ == "__main__":
    main()
