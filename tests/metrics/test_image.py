"""Image metrics against scikit-image, hand calculations and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from dpfl_audit.metrics import image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity


def pair(seed: int, shape: tuple[int, ...], noise: float = 0.2) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    a = torch.rand(shape, generator=rng)
    return a, (a + noise * torch.randn(shape, generator=rng)).clamp(0, 1)


@pytest.mark.parametrize("shape", [(3, 3, 32, 32), (2, 1, 28, 28), (2, 1, 8, 8), (1, 3, 7, 9)])
def test_psnr_and_ssim_are_scikit_images(shape):
    a, b = pair(0, shape)
    for k, (x, y) in enumerate(zip(a.double().numpy(), b.double().numpy())):
        assert image.psnr(a, b)[k].item() == pytest.approx(peak_signal_noise_ratio(x, y, data_range=1), abs=1e-9)
        expected = structural_similarity(x, y, data_range=1, channel_axis=0)
        assert image.ssim(a, b)[k].item() == pytest.approx(expected, abs=1e-9)


def test_ssim_of_flat_images_is_scikit_images():
    a, b = torch.full((1, 1, 8, 8), 0.5), torch.full((1, 1, 8, 8), 0.6)
    expected = structural_similarity(a[0, 0].double().numpy(), b[0, 0].double().numpy(), data_range=1)
    assert image.ssim(a, b).item() == pytest.approx(expected, abs=1e-9)


def test_identical_images():
    a, _ = pair(1, (4, 3, 16, 16))
    assert torch.isposinf(image.psnr(a, a)).all()
    assert image.PER_IMAGE["psnr"](a, a).tolist() == [image.PSNR_CAP] * 4
    assert torch.equal(image.mse(a, a), torch.zeros(4, dtype=torch.float64))
    assert torch.allclose(image.ssim(a, a), torch.ones(4, dtype=torch.float64))
    assert torch.allclose(image.pixel_cosine(a, a), torch.ones(4, dtype=torch.float64))
    assert not image.pixel_euclidean(a, a).any()


def test_values_by_hand():
    a, b = torch.zeros(1, 1, 8, 8), torch.full((1, 1, 8, 8), 0.5)
    assert image.mse(a, b).item() == 0.25
    assert image.psnr(a, b).item() == pytest.approx(6.0206, abs=1e-4)
    assert image.pixel_euclidean(a, b).item() == 4.0
    assert image.pixel_cosine(a, b).item() == 0.0
    assert image.pixel_cosine(a, a).item() == 1.0
    mean, std = torch.tensor([0.25]), torch.tensor([0.5])
    assert image.pixel_cosine(a, b, mean, std).item() == pytest.approx(-1)  # −.5 against +.5
    assert image.pixel_euclidean(a, b, mean, std).item() == pytest.approx(8)


def test_feature_metrics_of_opposite_certainties():
    sure, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert image.feature_euclidean(sure, other).item() == pytest.approx(1)  # the greatest there is
    assert image.feature_cosine(sure, other).item() == 0
    assert image.feature_euclidean(sure, sure).item() == 0


def test_small_or_unequal_images_are_refused():
    with pytest.raises(ValueError, match="6×8 are too small"):
        image.ssim(*pair(0, (1, 1, 6, 8)))
    with pytest.raises(ValueError, match="must be the same"):
        image.mse(torch.zeros(1, 1, 8, 8), torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize("seed", range(5))
def test_match_is_the_best_of_all_permutations(seed):
    a, b = torch.rand(2, 4, 1, 3, 3, generator=torch.Generator().manual_seed(seed))
    cost = ((a[:, None] - b[None]) ** 2).flatten(2).mean(2)
    best = min(itertools.permutations(range(4)), key=lambda p: sum(cost[i, j].item() for i, j in enumerate(p)))
    assert image.match(a, b) == list(enumerate(best))


def test_match_stays_within_labels_and_takes_leftovers_last():
    a = torch.tensor([0.0, 0.1, 0.9]).view(3, 1, 1, 1)
    b = torch.tensor([0.9, 0.0, 0.1]).view(3, 1, 1, 1)
    assert image.match(a, b) == [(0, 1), (1, 2), (2, 0)]
    labels_a, labels_b = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
    # label 0: original 1 (.1) and reconstruction 0 (.9) are nearest; label 1: original 2 and reconstruction 2; 0 and 1
    # remain
    assert image.match(a, b, labels_a, labels_b) == [(0, 1), (1, 0), (2, 2)]


@pytest.mark.parametrize(("n", "m"), [(2, 5), (5, 2)])
def test_match_of_unequal_numbers_pairs_the_fewer(n, m):
    rng = np.random.default_rng(0)
    a, b = torch.tensor(rng.random((n, 1, 2, 2))), torch.tensor(rng.random((m, 1, 2, 2)))
    pairs = image.match(a, b, torch.zeros(n), torch.zeros(m))
    assert len(pairs) == 2 and len({i for i, _ in pairs}) == 2 and len({j for _, j in pairs}) == 2


def test_match_refuses_labels_of_one_side():
    with pytest.raises(ValueError, match="one side only"):
        image.match(torch.rand(2, 1, 2, 2), torch.rand(2, 1, 2, 2), torch.zeros(2))
