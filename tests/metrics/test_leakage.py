"""The score of a reconstruction: literal formulas, honest controls, plain JSON."""

from __future__ import annotations

import json

import pytest
import torch
from dpfl_audit.metrics import image
from dpfl_audit.metrics.classifiers import Reference
from dpfl_audit.metrics.controls import control_images, psnr_margin
from dpfl_audit.metrics.intervals import share_p_value
from dpfl_audit.metrics.leak_probability import leaking_images
from dpfl_audit.metrics.leakage import metric_names, score_images
from dpfl_audit.metrics.perceptual import NotMeasured
from torch import Tensor

SHAPE = (3, 12, 12)


def smooth(n: int, seed: int) -> torch.Tensor:
    coarse = torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(coarse, size=(12, 12), mode="bilinear")


def noise(n: int, seed: int) -> torch.Tensor:
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


def brightness(x: torch.Tensor) -> torch.Tensor:
    """A classifier of two classes."""
    bright = 10 * (x.flatten(1).mean(1) - 0.5)
    return torch.stack([bright, -bright], dim=1)


REFERENCE = Reference((("brightness", brightness),), None, "test")


@pytest.mark.parametrize("noise_scale", [0.0, 0.03, 7.0])
def test_leak_probability_is_equation_4_3(noise_scale):
    rng = torch.Generator().manual_seed(0)
    cosine, euclidean = torch.rand(50, generator=rng).double(), torch.rand(50, generator=rng).double()
    rho = noise_scale if noise_scale < 0.1 else 0.1
    pairs = zip(cosine.tolist(), euclidean.tolist())
    pl = [(cs - cosine.mean().item() - rho) / 2 - (ed - euclidean.mean().item() + rho) / 2 for cs, ed in pairs]
    assert leaking_images(cosine, euclidean, noise_scale).tolist() == [value > 0 for value in pl]


def test_leak_probability_of_perfect_recovery_is_zero_although_cosines_are_rounded():
    outputs = torch.softmax(torch.randn(200, 10, generator=torch.Generator().manual_seed(0)), dim=1)
    same = image.feature_cosine(outputs, outputs), image.feature_euclidean(outputs, outputs)
    assert not leaking_images(*same, 0.0).any()


def test_controls_are_what_they_say():
    auxiliary, labels, start = smooth(30, 1), torch.arange(30) % 3, noise(4, 2)
    images = control_images((4, *SHAPE), auxiliary, start, torch.tensor([0, 2, 2, 9]), labels)
    assert (images["gray"] == 0.5).all() and torch.equal(images["random"], start)
    assert torch.allclose(images["mean"][3], auxiliary.mean(0)) and images["mean"].shape == (4, *SHAPE)
    assert torch.allclose(images["label_mean"][1], auxiliary[labels == 2].mean(0))
    assert torch.equal(images["label_mean"][3], images["mean"][3])  # a label nobody else has
    assert list(control_images((4, *SHAPE), auxiliary[:0])) == ["gray"]


def test_perfect_recovery():
    originals, order = smooth(6, 0), torch.tensor([3, 1, 0, 5, 4, 2])
    score = score_images(originals, originals[order], start=noise(6, 1), auxiliary=smooth(94, 2), classifiers=REFERENCE)
    assert score["psnr"] == image.PSNR_CAP and score["mse"] == 0 and score["ssim"] == pytest.approx(1)
    assert score["pixel_cosine"] == pytest.approx(1) and score["feature_cosine"] == pytest.approx(1)
    assert score["feature_euclidean"] == 0 and score["leak_probability"] == 0
    assert score["reidentified"] == 1 and score["reidentified_chance"] == pytest.approx(0.06)
    assert [(p["original"], p["reconstruction"]) for p in score["pairs"]] == [
        (i, order.tolist().index(i)) for i in range(6)
    ]
    best = max(row["psnr"] for row in score["controls"].values())
    assert score["psnr_margin"] == pytest.approx(100 - best)
    low, high = score["intervals"]["psnr_margin"]
    assert low <= score["psnr_margin"] <= high


def test_score_is_plain_json_with_the_contract_s_keys_and_repeats_itself():
    def score():
        return score_images(
            smooth(5, 0),
            noise(5, 1),
            start=noise(5, 2),
            auxiliary=smooth(20, 3),
            attack_loss=0.25,
            perceptual=NotMeasured("no weights"),
            classifiers=REFERENCE,
            seed=4,
        )

    row = score()
    assert set(row) == {*metric_names(), "controls", "intervals", "p_values", "least_p_values", "pairs", "not_measured"}
    assert json.loads(json.dumps(row, allow_nan=False)) == row == score()
    assert set(row["controls"]) == {"gray", "mean", "random"}
    assert all(
        set(control) == set(metric_names()) - {"exact", "psnr_margin", "attack_loss"}
        for control in row["controls"].values()
    )
    assert row["lpips"] is None and row["not_measured"] == {"lpips": "no weights"} and row["attack_loss"] == 0.25
    for name, limits in row["intervals"].items():
        assert limits[0] <= row[name] <= limits[1], name


def test_controls_are_scored_as_an_attack_that_returned_them():
    originals, auxiliary, start = smooth(8, 0), smooth(40, 1), noise(8, 2)
    row = score_images(originals, smooth(8, 3), start=start, auxiliary=auxiliary, classifiers=REFERENCE)
    for name, images in control_images((8, *SHAPE), auxiliary, start).items():
        alone = score_images(originals, images, start=start, auxiliary=auxiliary, classifiers=REFERENCE)
        assert {k: alone[k] for k in row["controls"][name]} == pytest.approx(row["controls"][name])
        assert alone["psnr_margin"] <= 1e-9  # a control never beats the best control


def test_controls_are_not_reidentified_beyond_chance():
    row = score_images(smooth(20, 0), noise(20, 1), start=noise(20, 2), auxiliary=smooth(180, 3))
    for control in (row, *row["controls"].values()):
        assert control["reidentified_chance"] == pytest.approx(0.1)
        assert control["reidentified"] <= 0.25  # 20 picks at .1: more than 5 hits has probability .011
    assert row["controls"]["gray"]["reidentified"] == 0
    hits = round(20 * row["reidentified"])
    assert row["p_values"]["reidentified"] >= share_p_value(hits, 20, 0.1) > 0.05  # chance, and few others
    assert row["p_values"]["psnr_margin"] > 0.05


def test_known_labels_group_matching_line_up_and_mean():
    originals, labels = smooth(4, 0), torch.tensor([0, 1, 2, 3])
    auxiliary, of_auxiliary = smooth(40, 1), torch.arange(40) % 4
    row = score_images(
        originals,
        noise(4, 2),
        labels=labels,
        reconstruction_labels=labels.flip(0),
        auxiliary=auxiliary,
        auxiliary_labels=of_auxiliary,
        start=noise(4, 3),
    )
    assert [(p["original"], p["reconstruction"]) for p in row["pairs"]] == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert row["reidentified_chance"] == pytest.approx(1 / 11) and "label_mean" in row["controls"]
    row = score_images(originals, noise(4, 2), labels=labels, reconstruction_labels=labels, auxiliary=auxiliary)
    assert row["reidentified"] is None and "labels" in row["not_measured"]["reidentified"]


@pytest.mark.parametrize(("n", "m"), [(3, 5), (5, 3), (1, 1)])
def test_numbers_may_differ(n, m):
    row = score_images(smooth(n, 0), noise(m, 1), start=noise(m, 2), auxiliary=smooth(20, 3))
    assert len(row["pairs"]) == min(n, m)
    assert (row["intervals"]["psnr"] is None) == (min(n, m) == 1)


def test_what_cannot_be_measured_is_none_with_a_reason():
    row = score_images(torch.rand(2, 1, 5, 5), torch.rand(2, 1, 5, 5))
    missing = {
        "ssim",
        "lpips",
        "feature_cosine",
        "feature_euclidean",
        "leak_probability",
        "reidentified",
        "reidentified_chance",
    }
    assert set(row["not_measured"]) == missing and all(row[name] is None for name in missing)
    assert row["psnr"] is not None and list(row["controls"]) == ["gray"]


def test_bad_images_are_refused():
    good = smooth(2, 0)
    for bad in (good * 3 - 1, good * float("nan"), good[:0], good[:, :1]):
        with pytest.raises(ValueError):
            score_images(good, bad)
    with pytest.raises(ValueError, match=r"must be \(n, c, h, w\) like the originals, \(3, 12, 12\)"):
        score_images(good, good[..., :-1])
    with pytest.raises(ValueError, match="start"):
        score_images(good, good, start=good[:1])
    with pytest.raises(ValueError, match="at least one"):
        psnr_margin(1.0, {})


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pictures_that_a_prior_invents_must_beat_those_it_makes_of_nothing(seed):
    """The originals have something in common that no other image has, and the prior knows it: pictures of anybody pick
    many of them, for one reason, which is no luck of a binomial's. Every original has a label of its own here.
    """
    rng = torch.Generator().manual_seed(seed)
    n, each, shape = 25, 30, (1, 8, 8)
    common = torch.rand(1, *shape, generator=rng)
    originals = (0.35 * common + 0.65 * torch.rand(n, *shape, generator=rng)).clamp(0, 1)
    others, labels = torch.rand(n * each, *shape, generator=rng), torch.arange(n)

    def invented() -> Tensor:
        return 0.35 * common + 0.65 * torch.rand(n, *shape, generator=rng)

    def p_value(found: Tensor, start: Tensor, of_nothing: bool) -> tuple[float, float]:
        scores = score_images(
            originals,
            found,
            labels=labels,
            reconstruction_labels=labels,
            start=start,
            of_nothing=of_nothing,
            distractors=others,
            distractor_labels=labels.repeat_interleave(each),
            relabellings=10,
        )
        return scores["p_values"]["reidentified"], scores["least_p_values"]["reidentified"]

    pairs = [p_value(invented(), invented(), True)[0] for _ in range(8)]
    assert sum(p <= 0.05 for p in pairs) <= 2
    assert min(p_value(invented(), torch.rand(n, *shape, generator=rng), False)[0] for _ in range(5)) < 0.01
    clear, least = p_value(0.3 * originals + 0.7 * invented(), invented(), True)
    assert least <= clear < 1e-3
