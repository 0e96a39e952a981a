"""Work in threads: what a chunk of clients trains to hangs on its own weights alone."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.defenses.data.dataset import make
from dpfl_audit.defenses.federation import Federation, run_many
from dpfl_audit.defenses.layout import Layout
from dpfl_audit.defenses.local import LocalTraining
from dpfl_audit.defenses.presets import PRESETS, Population
from dpfl_audit.defenses.wire import Message, Wire
from torch import Tensor, nn

CLIENTS, RECORDS = 60, 15  # more than one chunk of clients
REPEATS = 8  # with a module that chunks share, five of six trainings differed


def trained(threads: int) -> Tensor:
    """All messages of two rounds of DP-SGD by clients of three batches each."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    inputs, targets = torch.rand(CLIENTS * RECORDS, 64), torch.randint(10, (CLIENTS * RECORDS,))
    data = make("random", (inputs, targets), (inputs[:10], targets[:10]), (inputs[:0], targets[:0]), 10, {})
    clients = list(torch.arange(CLIENTS * RECORDS).split(RECORDS))
    preset, local = PRESETS["dpsgd"], LocalTraining(optimiser="sgd", lr=0.1, batch_size=5, epochs=2)
    population = Population(tuple(map(len, clients)), Layout.of(module))
    scheme = preset.scheme(preset.parameters(rounds=2), local, population)
    sent: list[Message] = []
    run_many([Federation(scheme, module, data, clients, 3, Wire(sent.append), key="k", evaluate=False)])
    return torch.stack([message.vector for message in sent])


@pytest.mark.full
def test_private_training_by_two_threads_is_that_by_one():
    threads = torch.get_num_threads()
    try:
        alone = trained(1)
        assert all(torch.equal(trained(2), alone) for _ in range(REPEATS))
    finally:
        torch.set_num_threads(threads)
