"""A Flower app that fine-tunes LoRA adapters, and the lines that record it, marked; all else is Flower and peft.

    python examples/lora/flower_app.py MODEL SETUP [private]

docs/howto/lora.md goes with it. MODEL is the folder of all-MiniLM-L6-v2; "private" adds Flower's LocalDpMod.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from dpfl_audit import AuditMod, record_strategy  # dpfl-audit
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from minilm import CLIENTS, described, load_data, network
from peft import get_peft_model_state_dict, set_peft_model_state_dict

MODEL, SETUP = (str(Path(name).absolute()) for name in sys.argv[1:3])
PRIVATE = "private" in sys.argv[3:]


def records_of(context: Context):  # dpfl-audit: for scoring, not needed for ε
    return load_data(MODEL, int(context.node_config["partition-id"]))


noise = [LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=8.0, delta=1e-5)] if PRIVATE else []
client_app = ClientApp(mods=[AuditMod(SETUP, records=records_of), *noise, AuditMod.raw(SETUP)])  # dpfl-audit
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    model = network(MODEL)
    set_peft_model_state_dict(model, message.content.array_records["arrays"].to_torch_state_dict())
    inputs, labels = load_data(MODEL, int(context.node_config["partition-id"]))
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(**inputs, labels=labels).loss.backward()
    optimiser.step()
    arrays = ArrayRecord(get_peft_model_state_dict(model))
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": len(labels)})})
    return Message(content=content, reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    del context
    model = network(MODEL)
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
    claim = {"epsilon": 8.0, "delta": 1e-5} if PRIVATE else None
    strategy = record_strategy(strategy, SETUP, model, claim=claim, **described(MODEL))  # dpfl-audit
    strategy.start(grid=grid, initial_arrays=ArrayRecord(get_peft_model_state_dict(model)), num_rounds=1)


if __name__ == "__main__":
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
