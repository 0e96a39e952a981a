"""Classifiers that were kept are those that were trained; what was damaged or is about others is trained anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dpfl_audit.audit.scoring import kept_classifiers
from dpfl_audit.audit.scoring.kept_classifiers import kept_reference
from dpfl_audit.metrics.classifiers import train_reference
from torch import Tensor


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a training, of a few steps."""
    done: list[int] = []

    def few(inputs: Tensor, targets: Tensor, classes: int, seed: int, **others: object) -> object:
        done.append(seed)
        return train_reference(inputs, targets, classes, seed, steps=1, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_classifiers, "train_reference", few)
    return done


def test_what_was_trained_once_is_read_and_the_same(tmp_path: Path, trainings: list[int]) -> None:
    inputs = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(20) % 4
    first = kept_reference(tmp_path, inputs, targets, 4, 0)
    again = kept_reference(tmp_path, inputs, targets, 4, 0)
    assert trainings == [0] and (again.accuracy, again.source) == (first.accuracy, first.source)
    assert [name for name, _ in again.members] == [name for name, _ in first.members]
    assert torch.equal(again.averaged_outputs(inputs), first.averaged_outputs(inputs))
    for other in (
        (inputs.flip(0), targets, 4, 0),
        (inputs, targets.flip(0), 4, 0),
        (inputs, targets, 5, 0),
        (inputs, targets, 4, 1),
    ):
        kept_reference(tmp_path, *other)
    assert len(trainings) == 5 and len(list(tmp_path.iterdir())) == 5


@pytest.mark.full
def test_a_damaged_file_is_trained_anew_and_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, trainings: list[int]
) -> None:
    inputs, targets = torch.rand(12, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2
    first = kept_reference(tmp_path, inputs, targets, 2, 0)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in (whole[:50], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        again = kept_reference(tmp_path, inputs, targets, 2, 0)
        assert torch.equal(again.averaged_outputs(inputs), first.averaged_outputs(inputs))
    assert len(trainings) == 3 and path.read_bytes() == whole
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert kept_reference(blocked / "below", inputs, targets, 2, 0).accuracy == first.accuracy
