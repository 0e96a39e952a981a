"""A server that weighs uploads otherwise than is declared is found by the models that it sends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dpfl_audit import Gaussian, Recorder
from dpfl_audit.audit.setup.auditor import check_setup
from torch import Tensor, nn

CLIENTS = 4


def average_of(folder: Path, weights: list[float], average: str = "mean", momentum: float = 0.0) -> str:
    """What becomes of the declared average where uploads are weighed so, on top of a momentum."""
    rng = torch.Generator().manual_seed(0)
    network = nn.Linear(20, 3)
    model = {name: value.detach().clone() for name, value in network.state_dict().items()}
    step: dict[str, Tensor] = {}
    noise = Gaussian(clip=1.0, noise_std=1.0, by="client")
    with Recorder(folder, network, average=average, mechanism=noise) as recorder:
        for round in range(2):
            recorder.broadcast(round, model)
            sent = []
            for client in range(CLIENTS):
                sent.append({name: torch.randn(value.shape, generator=rng) for name, value in model.items()})
                recorder.upload(round, client, sent[-1], num_examples=10 * (client + 1))
            mean = {name: sum(w * one[name] for w, one in zip(weights, sent)) for name in model}
            step = {name: momentum * step.get(name, 0.0) + value for name, value in mean.items()}
            model = {name: value + step[name] for name, value in model.items()}
        recorder.broadcast(2, model)
    (found,) = [one for one in check_setup(folder)[1].declared if one.what == "average"]
    return found.status


@pytest.mark.parametrize(
    ("weights", "average", "momentum", "status"),
    [
        ([0.25] * 4, "mean", 0.0, "declared"),
        ([0.125] * 4, "mean", 0.0, "declared"),  # a server's learning rate of a half
        ([0.1, 0.2, 0.3, 0.4], "records", 0.0, "declared"),
        ([0.25] * 4, "mean", 0.9, "declared"),  # no combination of a round's uploads: nothing tells
        ([0.7, 0.1, 0.1, 0.1], "mean", 0.0, "contradicted"),
        ([0.25] * 4, "records", 0.0, "contradicted"),
    ],
    ids=["mean", "scaled", "records", "momentum", "one client weighs more", "alike where records count"],
)
def test_an_average_that_was_not_taken_is_contradicted(tmp_path, weights, average, momentum, status) -> None:
    assert average_of(tmp_path / "s", weights, average, momentum) == status
