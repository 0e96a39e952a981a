"""Cells of a table that are right, and other rows as a control."""

from __future__ import annotations

import torch
from dpfl_audit.metrics.cells import TOLERANCE, cells_right
from dpfl_audit.metrics.controls import other_rows
from dpfl_audit.metrics.leakage import score_images

CELLS = [(1, 0.1), (3, 0.0)]


def test_cells_by_hand():
    truth = torch.tensor([[0.5, 0.0, 1.0, 0.0]]).expand(4, 4)
    off = 0.1 * TOLERANCE
    rebuilt = torch.tensor(
        [[0.5, 0.2, 0.5, 0.3], [0.5 + 0.99 * off, 1.0, 0.0, 0.0], [0.5 + 1.01 * off, 0, 1, 0], [0.9, 0.0, 0.0, 1.0]]
    )
    assert cells_right(truth, rebuilt, CELLS).tolist() == [1.0, 0.5, 0.5, 0.0]


def rows(n: int, seed: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    number = (0.5 + 0.1 * torch.randn(n, 1, generator=rng)).clamp(0, 1)
    word = torch.eye(3)[torch.randint(3, (n,), generator=rng)]
    return torch.cat([number, word], 1)[:, :, None, None]


def test_other_rows_are_auxiliary_ones_of_the_same_labels():
    auxiliary, labels = rows(9, 0), torch.arange(9) % 3
    drawn = other_rows(8, auxiliary, torch.tensor([0, 1, 1, 2, 0, 0, 0, 0]), labels, seed=1)
    which = [int((auxiliary == row).flatten(1).all(1).nonzero()[0]) for row in drawn]
    assert [place % 3 for place in which] == [0, 1, 1, 2, 0, 0, 0, 0] and len({*which[1:3]}) == 2
    assert other_rows(4, auxiliary, torch.tensor([7] * 4), labels, seed=1).shape == (4, 4, 1, 1)  # none of that label


def test_rows_are_scored_without_what_is_of_pictures():
    originals, auxiliary = rows(6, 1), rows(40, 2)
    labels, of_others = torch.zeros(6, dtype=torch.long), torch.zeros(40, dtype=torch.long)
    known = {"labels": labels, "reconstruction_labels": labels, "auxiliary": auxiliary, "auxiliary_labels": of_others}
    scores = score_images(originals, originals, cells=CELLS, start=rows(6, 3), **known)
    assert scores["cells_right"] == 1.0 and scores["intervals"]["cells_right"] == [1.0, 1.0]
    assert 0 < scores["controls"]["other_rows"]["cells_right"] < 1
    assert scores["ssim"] is None and "a table" in scores["not_measured"]["ssim"]
    assert "cells_right" not in score_images(torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8))
