"""Restarts that hold together are drawn to their mean, whatever order a label's images are in."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.attacks.inversion.attack import Inversion
from dpfl_audit.attacks.inversion.make import make_inversions
from dpfl_audit.attacks.inversion.match.consensus import matched, with_consensus
from dpfl_audit.attacks.inversion.presets.published import PRESETS
from torch import Tensor

LABELS = torch.tensor([[0, 1, 1, 2], [3, 3, 3, 1]])
SHAPE = (1, 3, 3)


def nothing(images: Tensor) -> tuple[Tensor, Tensor]:
    return images.new_zeros(len(images)), torch.zeros_like(images)


def drawn(candidates: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(candidates, 4, *SHAPE, generator=rng, dtype=torch.float64)


def test_images_of_a_label_are_matched_and_no_others() -> None:
    first = drawn(1)[0]
    order = torch.tensor([0, 2, 1, 3])
    assert torch.equal(matched(first, first[order], LABELS[0]), order)
    swapped = first[torch.tensor([3, 1, 2, 0])]  # of other labels
    assert torch.equal(matched(first, swapped, LABELS[0]), torch.arange(4))


def test_restarts_that_agree_up_to_order_cost_nothing_and_others_their_variance() -> None:
    first = drawn(1)[0]
    same = torch.stack([first, first[[0, 2, 1, 3]]])
    value, slope = with_consensus(nothing, LABELS[:1], 2, 3.0)(same)
    assert value.abs().max() < 1e-15 and slope.abs().max() < 1e-15
    apart = torch.stack([first, first + 0.2])
    assert with_consensus(nothing, LABELS[:1], 2, 3.0)(apart)[0].tolist() == pytest.approx([3 * 0.01] * 2)


def test_the_slope_points_to_the_mean() -> None:
    """Of the restarts of each target alone; the mean is held where it is, as everywhere in this file's source."""
    images = drawn(6)
    value, slope = with_consensus(nothing, LABELS, 3, 2.0)(images)
    one, own_slope = with_consensus(nothing, LABELS[1:], 3, 2.0)(images[3:])
    assert torch.equal(value[3:], one) and torch.equal(slope[3:], own_slope)
    nearer, _ = with_consensus(nothing, LABELS, 3, 2.0)(images - 0.1 * slope)
    assert (nearer < value).all()
    assert slope.sum() == pytest.approx(0, abs=1e-12)


def test_no_weight_and_no_restarts_change_nothing() -> None:
    assert with_consensus(nothing, LABELS, 1, 2.0) is nothing and with_consensus(nothing, LABELS, 3, 0.0) is nothing
    for wrong in (
        {"restarts": 1},
        {"restarts": 2, "optimiser": "lbfgs", "tv": 0.0},
        {"restarts": 2, "consensus": -1.0},
    ):
        with pytest.raises(ValueError, match="consensus is"):
            Inversion(**{"consensus": 0.1, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_made_as_it_stands(name: str) -> None:
    (made,) = make_inversions({"preset": name}, False, "cpu")[:1]
    assert made == PRESETS[name].settings or name == "noise-aware"
