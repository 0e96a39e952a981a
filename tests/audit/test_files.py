"""What is written to disk: safetensors byte for byte as their own library writes them, without its copies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.files import write_tensors
from safetensors.torch import load_file, save

BASE = torch.arange(12.0)
KINDS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.float64, torch.float16)


@pytest.mark.parametrize(
    ("tensors", "metadata"),
    [
        ({"b": torch.arange(3.0), "a/x": torch.ones(2, 2)}, None),
        ({"b": torch.arange(3.0), 'é"q\n': torch.zeros(())}, {"state": 'a "quoted" é\n line'}),
        ({str(kind): torch.ones(3, dtype=kind) for kind in (*KINDS, torch.bfloat16, torch.float32)}, None),
        ({"none": torch.zeros(0, 3), "one": torch.ones(1), "bit": torch.tensor(True)}, None),
        ({"flat": BASE, "part": BASE[3:7], "turned": BASE.reshape(3, 4).T}, None),  # of one memory
        ({}, {"only": "metadata"}),
    ],
)
def test_tensors_are_written_as_safetensors_writes_them(tensors, metadata, tmp_path):
    write_tensors(tmp_path / "a.safetensors", tensors, metadata)
    own = {name: tensor.contiguous().clone() for name, tensor in sorted(tensors.items())}
    assert (tmp_path / "a.safetensors").read_bytes() == save(own, metadata)
    held = load_file(tmp_path / "a.safetensors")
    assert all(torch.equal(held[name], tensor) for name, tensor in tensors.items()) and len(held) == len(tensors)


def test_what_needs_no_disk_is_whole_or_not_there_too(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"x": torch.ones(4)}, durable=False)
    before = path.read_bytes()

    def fails(first: Path, second: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="no space left"):
        write_tensors(path, {"x": torch.zeros(4)}, durable=False)
    assert path.read_bytes() == before
