"""An image is back beyond doubt where nothing that knows nothing comes near: no control, flat one, or other image."""

from __future__ import annotations

import pytest
import torch
from dpfl_audit.metrics.exact import back_beyond_doubt
from dpfl_audit.metrics.image import psnr
from dpfl_audit.metrics.leakage import score_images

PICTURES = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def at(decibel: float) -> torch.Tensor:
    """The pictures with an error of so many dB."""
    error = torch.randn(PICTURES.shape, generator=torch.Generator().manual_seed(1))
    error /= error.square().mean(dim=(1, 2, 3), keepdim=True).sqrt()
    return PICTURES + error * 10 ** (-decibel / 20)


@pytest.mark.parametrize(("decibel", "back"), [(24.0, False), (27.0, True), (60.0, True)])
def test_a_thirtieth_of_the_best_controls_error(decibel: float, back: bool) -> None:
    controls = torch.full((6,), 10.0)  # a flat picture of random pixels has 10.8 dB: 1/12 of squared error
    assert back_beyond_doubt(PICTURES, at(decibel), controls, None).tolist() == [back] * 6
    assert not back_beyond_doubt(PICTURES, at(decibel), controls + 40, None).any()


def test_what_another_image_shows_too_is_no_message() -> None:
    twin = torch.cat([PICTURES[:1], torch.rand(3, 3, 8, 8)])
    assert back_beyond_doubt(PICTURES, at(60.0), torch.zeros(6), twin).tolist() == [False] + [True] * 5
    assert back_beyond_doubt(PICTURES, PICTURES, torch.zeros(6), twin).tolist() == [False] + [True] * 5


def test_a_nearly_flat_image_is_never_back() -> None:
    flat = 0.5 + 0.001 * (PICTURES - 0.5)
    assert float(psnr(flat, torch.full_like(flat, 0.5)).min()) > 60
    assert not back_beyond_doubt(flat, flat + 1e-4, torch.zeros(6), None).any()


def test_the_share_is_among_the_scores() -> None:
    rebuilt = torch.cat([at(50.0)[:2], torch.full((4, 3, 8, 8), 0.5)]).clamp(0, 1)
    assert score_images(PICTURES, rebuilt)["exact"] == pytest.approx(2 / 6)
    assert score_images(PICTURES, torch.full_like(PICTURES, 0.5))["exact"] == 0.0
