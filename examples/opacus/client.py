"""A client that trains with Opacus: DP-SGD on 100 digits, Poisson batches of 20 on average, 10 steps.

    python examples/opacus/client.py

trains it once, and prints the ε of its accountant. `claim.py` beside it puts that ε to the test.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

CLIP, EPOCHS, BATCH = 1.0, 2, 20


def records(count: int = 100) -> TensorDataset:
    """The client's own data: 8×8 digits as (64,) in [0, 1], and their labels."""
    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images[:count] / 16, dtype=torch.float32)
    return TensorDataset(inputs, torch.tensor(labels[:count]))


def first_model() -> nn.Module:
    """What the server sent: the same for every training, and known to everybody."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(64, 10)


START = first_model()


def train(dataset: Dataset, privacy_engine: PrivacyEngine, noise_multiplier: float = 1.0) -> nn.Module:
    """The client's training. It seeds nothing: noise and batches are drawn anew each time."""
    model: Any = copy.deepcopy(START)
    optimiser: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimiser, loader = privacy_engine.make_private(
        module=model,
        optimizer=optimiser,
        data_loader=DataLoader(dataset, batch_size=BATCH),
        noise_multiplier=noise_multiplier,
        max_grad_norm=CLIP,
    )
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
    return model


if __name__ == "__main__":
    engine = PrivacyEngine()
    train(records(), engine)
    print(f"ε = {engine.get_epsilon(delta=1e-5):.2f} at δ = 1e-5, says the accountant")
