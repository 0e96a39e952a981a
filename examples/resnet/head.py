"""A frozen torchvision ResNet whose head is fine-tuned by FedAvg in a loop of one's own, recorded in three lines.

    python examples/resnet/head.py setup [WEIGHTS]
    audit check setup
    audit run setup -o results
    audit report results -o page.html

What clients send is of the head alone, so the head is the model that is recorded, and its records are the features that
the frozen network makes of images: whose they are is what an attacker asks. WEIGHTS is a state dict of ResNet-18 that
you have; without it the network is as torchvision starts it, so that the example needs no download.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torchvision
from dpfl_audit import Gaussian, Recorder  # dpfl-audit
from sklearn.datasets import load_digits
from torch import Tensor, nn

CLIENTS, RECORDS, OUTSIDERS, ROUNDS, CLASSES = 4, 30, 120, 3, 10
CLIP, NOISE_STD, LR, EPOCHS = 1.0, 0.05, 0.5, 2


def backbone(weights: str | None = None) -> nn.Module:
    """ResNet-18 without its last layer: images (n, 3, 32, 32) to features (n, 512). Nothing of it is trained."""
    torch.manual_seed(0)
    network = torchvision.models.resnet18(weights=None)
    if weights is not None:
        network.load_state_dict(torch.load(weights, weights_only=True))
    network.fc = nn.Identity()
    return network.eval().requires_grad_(False)


def records(network: nn.Module) -> tuple[Tensor, Tensor]:
    """Features and labels of scikit-learn's digits, in random order."""
    images, labels = load_digits(return_X_y=True)
    some = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[: CLIENTS * RECORDS + OUTSIDERS]
    pixels = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)[some]
    features = network(nn.functional.interpolate(pixels, size=32).expand(-1, 3, -1, -1))
    return features, torch.tensor(labels)[some]


def trained(head: nn.Linear, start: dict[str, Tensor], features: Tensor, labels: Tensor) -> list[Tensor]:
    """The client's update, one tensor for each of the head's."""
    head.load_state_dict(start)
    optimiser = torch.optim.SGD(head.parameters(), lr=LR)
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(features), labels).backward()
        optimiser.step()
    return [value.detach() - start[name] for name, value in head.named_parameters()]


def clipped(update: list[Tensor]) -> list[Tensor]:
    norm = torch.cat([value.flatten() for value in update]).norm()
    return [value * min(1.0, CLIP / float(norm)) for value in update]


def main(folder: str = "setup", weights: str | None = None) -> Path:
    features, labels = records(backbone(weights))
    owners = torch.arange(len(features)) // RECORDS  # client by client, and the rest nobody's
    owners[CLIENTS * RECORDS :] = -1
    clients = [(features[owners == c], labels[owners == c]) for c in range(CLIENTS)]
    head = nn.Linear(512, CLASSES)
    model = {name: value.detach().clone() for name, value in head.named_parameters()}
    said = Gaussian(clip=CLIP, noise_std=NOISE_STD, by="client")
    with Recorder(folder, head, claim=8, mechanism=said, data={"by_lot": True}) as recorder:  # dpfl-audit
        recorder.candidates(features, labels, owners.tolist())  # dpfl-audit: of whom membership is asked
        for t in range(ROUNDS):
            recorder.broadcast(t, model)  # dpfl-audit
            sent = []
            for client, own in enumerate(clients):
                before = clipped(trained(head, model, *own))
                update = [value + NOISE_STD * torch.randn(value.shape) for value in before]
                recorder.upload(t, client, update, num_examples=RECORDS, records=own)  # dpfl-audit
                recorder.raw(t, client, before)  # dpfl-audit: where you have it, so that the noise is checked
                sent.append(update)
            mean = [torch.stack(values).mean(0) for values in zip(*sent)]
            model = {name: value + moved for (name, value), moved in zip(model.items(), mean)}
        recorder.broadcast(ROUNDS, model)  # dpfl-audit: the last model
    return Path(folder)


if __name__ == "__main__":
    print(main(*sys.argv[1:3]))
