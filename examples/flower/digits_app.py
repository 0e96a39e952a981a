"""A Flower app as the quickstart has it, with local differential privacy, and the lines that record it.

    pip install 'dpfl-audit[flower]' 'flwr[simulation]'
    python examples/flower/digits_app.py setup
    audit check setup
    audit run setup -o results --attack inversion

What dpfl-audit adds is marked; all else is a Flower app on scikit-learn's digits, dealt to four clients.
"""

from __future__ import annotations

import sys

import torch
from dpfl_audit import AuditMod, record_strategy  # dpfl-audit
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits
from torch import nn

CLIENTS, RECORDS, ROUNDS = 4, 20, 2
SETUP = sys.argv[1] if len(sys.argv) > 1 else "setup"


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load_data(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    rows = slice(client * RECORDS, (client + 1) * RECORDS)
    return torch.tensor(images[rows] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels[rows])


def records_of(context: Context) -> tuple[torch.Tensor, torch.Tensor]:  # dpfl-audit: for scoring, not needed for ε
    return load_data(int(context.node_config["partition-id"]))


local_dp = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=50.0, delta=1e-5)
client_app = ClientApp(mods=[AuditMod(SETUP, records=records_of), local_dp, AuditMod.raw(SETUP)])  # dpfl-audit
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    module = network()
    module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    inputs, targets = load_data(int(context.node_config["partition-id"]))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimiser.step()
    metrics = MetricRecord({"num-examples": len(inputs)})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    del context
    torch.manual_seed(0)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    strategy = record_strategy(strategy, SETUP, network(), claim={"epsilon": 50.0, "delta": 1e-5})  # dpfl-audit
    strategy.start(grid=grid, initial_arrays=ArrayRecord(network().state_dict()), num_rounds=ROUNDS)


if __name__ == "__main__":
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
