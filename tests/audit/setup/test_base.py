"""A network that is trained in part: its frozen parameters stand once in a setup, sealed, and attacks have them."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.setup import capture, experiment
from dpfl_audit.audit.setup.auditor import check_setup
from dpfl_audit.audit.setup.config import parse_config
from safetensors.torch import load_file

NETS = """
from torch import nn

def head(input_shape, classes):
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Linear(4, classes))
    made[1].requires_grad_(False)
    return made
"""
NAME = "nets_with_a_base:head"
RAW = {
    "seed": 1,
    "data": {"name": "digits", "clients": 2, "samples_per_client": 5},
    "model": {"name": NAME},
    "local": {"optimiser": "sgd", "batch_size": 5},
    "scheme": {"name": "ldp", "rounds": 1, "clip": 1.0, "sigma": 1.0},
}


def test_what_is_frozen_is_neither_trained_nor_sent(tmp_path, monkeypatch):
    (tmp_path / "nets_with_a_base.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    made = experiment.build(parse_config(RAW, "x"), tmp_path, NAME)
    folder = capture.train(made, tmp_path / "s")
    setup = check_setup(folder)[0]
    assert (setup.layout.names, setup.manifest.model.frozen) == (("1.2.weight", "1.2.bias"), 64 * 4 + 4)
    sent = load_file(folder / "tensors" / "round-0000.safetensors")
    assert {name.partition("/")[2] for name in sent} == {*setup.layout.names}
    base = setup.module(NAME).get_parameter("1.1.weight")
    assert torch.equal(base, made.module.get_parameter("1.1.weight")) and not base.requires_grad
    again = capture.train(experiment.build(parse_config(RAW, "x"), tmp_path, NAME), tmp_path / "t")
    assert (folder / "setup.json").read_bytes() == (again / "setup.json").read_bytes()
    (folder / "base.safetensors").write_bytes((folder / "tensors" / "round-0000.safetensors").read_bytes())
    with pytest.raises(BadInput, match=r"base\.safetensors was changed after training"):
        check_setup(folder)
