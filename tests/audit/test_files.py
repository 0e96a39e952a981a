"""What is written to disk: safetensors byte for byte as their own library writes them, without its copies."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.errors import BadInput
from dpfl_audit.audit.files import write_named, write_tensors
from dpfl_audit.defenses.atomic import write_bytes
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


def test_a_full_disk_is_said_with_the_path_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a").write_bytes(b"older")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as error:
        write_bytes(tmp_path / "a", b"newer")
    assert error.value.filename == str(tmp_path / "a")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"older"}


def test_what_a_user_names_is_written_over_its_own_kind_alone(tmp_path):
    for name, older in (("page", b"<!doctype html>older"), ("empty", b""), ("new", None)):
        if older is not None:
            (tmp_path / name).write_bytes(older)
        write_named([(tmp_path / name, b"<!doctype html>newer")])
        assert (tmp_path / name).read_bytes() == b"<!doctype html>newer"
    (tmp_path / "config.toml").write_bytes(b"[data]")
    with pytest.raises(BadInput, match=r"config\.toml is another kind of file, which is not written over"):
        write_named([(tmp_path / "config.toml", b"<!doctype html>")])
    assert (tmp_path / "config.toml").read_bytes() == b"[data]"
