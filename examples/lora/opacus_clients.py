"""Clients that fine-tune LoRA adapters with Opacus (DP-SGD on every note), and the lines that record them, marked.

    python examples/lora/opacus_clients.py MODEL SETUP

docs/howto/lora.md goes with it. MODEL is the folder of all-MiniLM-L6-v2.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from dpfl_audit import Gaussian, Recorder, Sampling  # dpfl-audit
from minilm import CLIENTS, NOTES, described, load_data, network
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from torch.utils.data import DataLoader, TensorDataset

NOISE, CLIP, LR, EPOCHS, DELTA = 1.0, 1.0, 0.1, 2, 1e-5
RECORDS = len(NOTES) // CLIENTS


def trained(folder: str, weights: dict[str, torch.Tensor], client: int) -> dict[str, torch.Tensor]:
    """What a client's adapters and head are after its private steps, each of a Poisson batch of one note on average."""
    model = network(folder).train()
    model.load_state_dict(weights, strict=False)
    inputs, labels = load_data(folder, client)
    data = TensorDataset(inputs["input_ids"], inputs["attention_mask"], labels)
    model, optimiser, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LR),
        data_loader=DataLoader(data, batch_size=1),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
    )
    for _ in range(EPOCHS):
        for ids, mask, own in loader:
            optimiser.zero_grad()
            if len(own):
                model(input_ids=ids, attention_mask=mask, labels=own).loss.backward()
            else:  # the library's networks take no batch without records, and noise has to be sent all the same
                for p in optimiser.params:
                    p.grad_sample = p.new_zeros(0, *p.shape)
            optimiser.step()
    return adapters_of(model._module)


def adapters_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def main(folder: str, setup: str) -> None:
    warnings.simplefilter("ignore")  # Opacus's, on random numbers and hooks
    model = network(folder)
    weights = adapters_of(model)
    lot = Sampling("poisson", RECORDS, 1, unit="record")
    steps = EPOCHS * RECORDS
    private = Gaussian(CLIP, noise_multiplier=NOISE, of="record", steps=steps, sampling=lot)
    accountant = RDPAccountant()
    for _ in range(steps):
        accountant.step(noise_multiplier=NOISE, sample_rate=1 / RECORDS)
    claim = {"epsilon": accountant.get_epsilon(DELTA), "delta": DELTA, "unit": "record"}
    said = {"mechanism": private, "share": "weights", "claim": claim, **described(folder)}
    with Recorder(setup, model, **said) as rec:  # dpfl-audit
        rec.broadcast(0, weights)  # dpfl-audit
        for client in range(CLIENTS):
            sent = trained(folder, weights, client)
            rec.upload(0, client, sent, num_examples=RECORDS, records=load_data(folder, client))  # dpfl-audit


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()), sys.argv[2])
